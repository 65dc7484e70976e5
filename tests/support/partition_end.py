"""What is the same on both sides once nothing goes wrong any more."""

from __future__ import annotations

from collections.abc import Iterator

from partition_laws import is_going, origin_of
from partition_world import BORN, World
from syncing import CONFIGS

from farflung.machinery.errors import Obj
from farflung.syncer.kinds import Kinds
from farflung.syncer.shaping import for_edge, identical, is_create_only, is_downsynced, is_upsynced, takes_status
from farflung.syncer.values import FINALIZER, Part, Resource
from farflung.syncer.wanted import Wanted, read

LOCAL = frozenset({"local"})  #: annotations that belong to the edge
PROBLEM = tuple[str, str, str, str]


async def complaints(world: World) -> list[str]:
    """What is not as it should be."""
    the_one = await world.link.mailbox.get(CONFIGS, "the-one")
    wanted = read([the_one], Kinds().named)
    report = the_one.get("status") or {}
    return [*_down(world, wanted, report), *_up(world, wanted, report), *_orphans(world, report)]


def _down(world: World, wanted: Wanted, report: Obj) -> Iterator[str]:
    copies, objects, problems = world.copies(), world.objects(), _problems(report)
    for part, copy in copies.items():
        if is_upsynced(copy):
            continue
        live, told = objects.get(part), part in problems
        if is_going(copy):
            if FINALIZER in (copy["metadata"].get("finalizers") or ()) and not told and not _holds(world, part):
                yield f"{part} was deleted and is held in the mailbox"
        elif not wanted.covers(part) or told:
            continue  # once it was brought it is followed; but that may have been forgotten
        elif live is None:
            yield f"{part} is not at the edge"
        elif not is_downsynced(live):
            if not is_create_only(copy) and part.resource.plural != "namespaces":
                yield f"{part} is somebody else's at the edge, and nobody says so"
        else:
            yield from _differences(part, copy, live)


def _holds(world: World, part: Part) -> bool:
    """A namespace or a definition that is not empty yet, for a reason that is told of what is in it."""
    return False


def _differences(part: Part, copy: Obj, live: Obj) -> Iterator[str]:
    if FINALIZER not in (copy["metadata"].get("finalizers") or ()):
        yield f"{part} is at the edge, and not held in the mailbox"
    if not is_create_only(copy):
        if not identical(for_edge(copy), live):
            yield f"{part} is not as the mailbox has it: {origin_of(copy)} and {origin_of(live)}"
        if part.resource == Resource("", "configmaps") and live.get("data") != copy.get("data"):
            yield f"{part} has {live.get('data')} and should have {copy.get('data')}"
    if takes_status(part.resource) and live.get("status") and live["status"] != copy.get("status"):
        yield f"{part} has the status {live['status']} at the edge and {copy.get('status')} in the mailbox"


def _up(world: World, wanted: Wanted, report: Obj) -> Iterator[str]:
    copies, objects, problems = world.copies(), world.objects(), _problems(report)
    for part in BORN:
        obj, copy = objects.get(part), copies.get(part)
        if obj is None or not wanted.brings(*part):
            if copy is not None:
                yield f"{part} is in the mailbox still"
        elif copy is None:
            yield f"{part} is not in the mailbox"
        elif copy.get("data") != obj.get("data"):
            yield f"{part} is {copy.get('data')} in the mailbox and {obj.get('data')} at the edge"
        elif part in problems:
            yield f"{part} is told to be a problem"


def _orphans(world: World, report: Obj) -> Iterator[str]:
    """What was made only once may have been withdrawn, and stays."""
    copies = world.copies()
    found = {part for part, obj in world.objects().items() if is_downsynced(obj) and part not in copies}
    once = {part for part in found if is_create_only(world.objects()[part])}
    told = (report.get("objects") or {}).get("orphaned", -1)
    if not world.forgot and not len(found - once) <= told <= len(found):
        yield f"{told} orphans are told, and there are {sorted(map(str, found))}"


def _problems(report: Obj) -> set[Part]:
    return {
        Part(Resource(one["group"], one["resource"]), one["namespace"], one["name"])
        for one in report.get("problems") or ()
    }
