"""What is the same on both sides once nothing goes wrong any more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from partition_laws import is_going, origin_of
from partition_menu import BORN, REFS
from partition_world import World, separated
from syncing import CONFIGS

from farflung.apis.edge.names import SYNCER_FINALIZER
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef
from farflung.syncer.conversion import for_edge, identical, is_create_only, is_downsynced, is_upsynced, takes_status
from farflung.syncer.discovery import SharedKinds
from farflung.syncer.sync_scope import SyncScope, read_scope

DEFINITION = ObjectRef(GroupResource("apiextensions.k8s.io", "customresourcedefinitions"), "", "widgets.example.org")


@asynccontextmanager
async def at_rest(directory: Path) -> AsyncIterator[World]:
    """All that there can be is on both sides.  Whatever happens then, no law is broken."""
    async with separated(directory) as world:
        await world.furnish()
        await world.link.start()
        await agreed(world)
        yield world
        assert world.laws.broken == []


async def agreed(world: World) -> None:
    """Until nobody has anything to complain of."""
    found: list[str] = []

    async def settled() -> bool:
        found[:] = await complaints(world)
        heard = world.line("hub").has_told("syncerconfigs") and world.line("edge").has_told("customresourcedefinitions")
        return not found and heard and world.link.idle

    try:
        await world.link.eventually(settled, "agreement")
    except AssertionError as error:
        raise AssertionError(f"{found}\n{error}") from None


async def complaints(world: World) -> list[str]:
    """What is not as it should be."""
    the_one = await world.link.mailbox.get(CONFIGS, "the-one")
    wanted = read_scope([the_one], SharedKinds().named)
    report = the_one.get("status") or {}
    return [*_down(world, wanted, report), *_up(world, wanted, report), *_orphans(world, report)]


def _down(world: World, wanted: SyncScope, report: Obj) -> Iterator[str]:
    copies, objects, problems = world.copies(), world.objects(), _problems(report)
    for ref, copy in copies.items():
        if is_upsynced(copy) or (ref in world.unreported and not wanted.covers(ref)):
            continue
        live, reason = objects.get(ref), problems.get(ref, "")
        if is_going(copy):
            if SYNCER_FINALIZER in (copy["metadata"].get("finalizers") or ()) and reason != "NotEmpty":
                yield f"{ref} was deleted and is held in the mailbox"
        elif not wanted.covers(ref) and SYNCER_FINALIZER not in (copy["metadata"].get("finalizers") or ()):
            continue  # what was brought once is followed, be it wanted still or not
        elif live is None:
            if reason != "NotServedError" or ref.resource.group != "example.org" or DEFINITION in objects:
                yield f"{ref} is not at the edge"
        elif not is_downsynced(live):
            if reason != "NotManaged" and not is_create_only(copy) and ref.resource.resource != "namespaces":
                yield f"{ref} is somebody else's at the edge, and nobody says so"
        else:
            yield from _differences(ref, copy, live)
            if reason:
                yield f"{ref} is told to be a problem: {reason}"


def _differences(ref: ObjectRef, copy: Obj, live: Obj) -> Iterator[str]:
    if SYNCER_FINALIZER not in (copy["metadata"].get("finalizers") or ()):
        yield f"{ref} is at the edge, and not held in the mailbox"
    if not is_create_only(copy):
        if not identical(for_edge(copy), live):
            yield f"{ref} is not as the mailbox has it: {origin_of(copy)} and {origin_of(live)}"
        if ref.resource == GroupResource("", "configmaps") and live.get("data") != copy.get("data"):
            yield f"{ref} has {live.get('data')} and should have {copy.get('data')}"
    if takes_status(ref.resource) and live.get("status") and live["status"] != copy.get("status"):
        yield f"{ref} has the status {live['status']} at the edge and {copy.get('status')} in the mailbox"


def _up(world: World, wanted: SyncScope, report: Obj) -> Iterator[str]:
    copies, objects, problems = world.copies(), world.objects(), _problems(report)
    for ref in BORN:
        obj, copy = objects.get(ref), copies.get(ref)
        if obj is None or not wanted.upsyncs(*ref):
            if copy is not None and not (world.forgot and not wanted.may_upsync(ref.resource)):
                yield f"{ref} is in the mailbox still"
        elif copy is None:
            yield f"{ref} is not in the mailbox"
        elif copy.get("data") != obj.get("data"):
            yield f"{ref} is {copy.get('data')} in the mailbox and {obj.get('data')} at the edge"
        elif ref in problems:
            yield f"{ref} is told to be a problem"


def _orphans(world: World, report: Obj) -> Iterator[str]:
    """What was made only once may have been withdrawn, and stays; and somebody may have taken our mark from others."""
    copies = world.copies()
    found = {ref: obj for ref, obj in world.objects().items() if ref in REFS and ref not in copies}
    ours = {ref for ref, obj in found.items() if is_downsynced(obj) and not world.laws.may_stay(obj)}
    told = (report.get("objects") or {}).get("orphaned", -1)
    if not world.forgot and not len(ours) <= told <= len(found):
        yield f"{told} orphans are told, and there are {sorted(map(str, ours))}"


def _problems(report: Obj) -> dict[ObjectRef, str]:
    return {
        ObjectRef(GroupResource(one["group"], one["resource"]), one["namespace"], one["name"]): one["reason"]
        for one in report.get("problems") or ()
    }
