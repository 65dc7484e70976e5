"""`farflung list-upsynced`: objects that were born at edges, of all places at once.

The placements of a workspace say what comes back, and their slices from where; the objects are in the mailboxes of
those places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NamedTuple

import click

from farflung.apis.edge.names import EDGE_PLACEMENTS, SINGLE_PLACEMENT_SLICES
from farflung.apis.kcp.names import WORKSPACES
from farflung.cli import fields
from farflung.cli.connection import Hub, find_resource, placement_of, workspace_name
from farflung.cli.output import NONE, TABLE, machine_readable, table
from farflung.cli.placement_model import mailbox_of, places_of
from farflung.client.discovery import Resource, discover
from farflung.client.errors import Forbidden, NotFound
from farflung.client.rest import Client, Selection
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.placement.select import UpsyncSet, parse_workload_selector
from farflung.placement.syncer_config import SyncerSpec
from farflung.placement.types import Destination, Route, destinations_of, owners
from farflung.syncer import wanted
from farflung.syncer.conversion import is_upsynced
from farflung.syncer.types import Part
from farflung.syncer.types import Resource as Kind
from farflung.syncer.wanted import SyncScope

AT_ONCE: Final = 8  #: mailboxes that are read at the same time
ASKED: Final = 20  #: mailboxes that are asked what a word means, if the workspace does not know


@dataclass(frozen=True, slots=True)
class Question:
    kind: str  #: as kubectl takes it
    namespace: str = ""  #: empty: all of them
    labels: str = ""  #: a selector


async def upsynced(hub: Hub, question: Question) -> Obj:
    """All of them, as they are printed for programs."""
    await placement_of(hub, "-")  # is there such an API at all
    found = await Reading(hub, question).read()
    return {
        "workspace": workspace_name(hub),
        "kind": question.kind,
        "items": sorted(found.items, key=_order),
        "remarks": found.remarks,
    }


def _order(item: Obj) -> list[str]:
    metadata = item["object"]["metadata"]
    return [metadata.get("namespace") or "", metadata["name"], item["location"], item["syncTarget"], item["mailbox"]]


@dataclass(slots=True)
class Found:
    items: list[Obj] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


class Reading:
    def __init__(self, hub: Hub, question: Question) -> None:
        self._hub = hub
        self._question = question
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._hidden: dict[str, Forbidden] = {}  #: by mailbox

    async def read(self) -> Found:
        placements, slices = await asyncio.gather(
            *(self._hub.workspace.list(one) for one in (EDGE_PLACEMENTS, SINGLE_PLACEMENT_SLICES))
        )
        leading = ways(placements, slices)
        if not leading:
            return Found(remarks=[self._nothing_comes_back(placements)])
        there = await self._there(leading)
        resource = await self._resource(there)
        kind = Kind(resource.collection.group, resource.collection.plural)
        asked = {name: way for name, way in there.items() if way.may_bring(kind)}
        if not asked:
            reason = f"no EdgePlacement of the workspace {workspace_name(self._hub)} brings {kind} back (spec.upsync)"
            return Found(remarks=[reason])
        lists = await asyncio.gather(*(self._look(name, way, resource) for name, way in asked.items()))
        return Found([item for some in lists for item in some], self._remarks(len(asked)))

    def _nothing_comes_back(self, placements: list[Obj]) -> str:
        where = f"of the workspace {workspace_name(self._hub)}"
        if any(map(brings_back, placements)):
            return f"the EdgePlacements {where} that bring something back lead nowhere"
        return f"no EdgePlacement {where} brings anything back: spec.upsync says what does"

    async def _there(self, leading: Mapping[str, Way]) -> dict[str, Way]:
        """Mailboxes that are made already, as far as that can be seen."""
        try:
            workspaces = await self._hub.root.workspace(self._hub.provider).list(WORKSPACES)
        except (NotFound, Forbidden):
            return dict(leading)
        names = set(map(fields.name_of, workspaces))
        return {name: way for name, way in leading.items() if name in names}

    async def _resource(self, mailboxes: Iterable[str]) -> Resource:
        """What is meant, by the words of the workspace or else of a mailbox."""
        hidden = ""
        for client in (self._hub.workspace, *map(self._mailbox, list(mailboxes)[:ASKED])):
            try:
                found = find_resource(await discover(client), self._question.kind)
            except Forbidden as error:
                found, hidden = None, f", as far as you may see: {error}"
            if found is not None:
                return found
        raise click.ClickException(
            f"neither the workspace {workspace_name(self._hub)} nor a mailbox of its placements serves "
            f"{self._question.kind}{hidden}"
        )

    def _mailbox(self, name: str) -> Client:
        return self._hub.root.workspace(f"{self._hub.provider}:{name}")

    async def _look(self, mailbox: str, way: Way, resource: Resource) -> list[Obj]:
        async with self._turns:
            try:
                objects = await self._listed(self._mailbox(mailbox), resource)
            except Forbidden as error:
                self._hidden[mailbox] = error
                return []
        kind = Kind(resource.collection.group, resource.collection.plural)
        return [_item(mailbox, way.place, one) for one in objects if is_upsynced(one) and way.brings(_part(kind, one))]

    async def _listed(self, mailbox: Client, resource: Resource) -> list[Obj]:
        """In another version, if the mailbox does not have this one; nothing, if it has none."""
        selection = Selection(self._question.namespace if resource.namespaced else "", self._question.labels)
        try:
            return await mailbox.list(resource.collection, selection)
        except NotFound:
            other = (await discover(mailbox)).find(resource.collection.group, resource.collection.plural)
        if other is None or other.collection == resource.collection:
            return []
        return await self._listed(mailbox, replace(other, namespaced=resource.namespaced))

    def _remarks(self, asked: int) -> list[str]:
        if not self._hidden:
            return []
        first = self._hidden[min(self._hidden)]
        if len(self._hidden) == asked:
            raise click.ClickException(f"you may not see what is in the mailboxes of these placements: {first}")
        return [f"{len(self._hidden)} of {asked} mailboxes cannot be seen, and are left out: {first}"]


def _part(kind: Kind, obj: Obj) -> Part:
    return Part(kind, fields.text(obj, "metadata", "namespace"), fields.name_of(obj))


def _item(mailbox: str, place: Route, obj: Obj) -> Obj:
    return {
        "location": place.location,
        "otherLocations": list(place.others),
        "syncTarget": place.target,
        "mailbox": mailbox,
        "object": obj,
    }


# --- for people -----------------------------------------------------------------------------------


def printed(answer: Obj, output: str, now: datetime) -> str:
    if output != TABLE:
        return machine_readable(answer, output)
    remarks = [f"remark: {fields.line(one, 1000)}" for one in answer["remarks"]]
    if not answer["items"]:
        return "\n".join([f"Nothing of {answer['kind']} came back from an edge.", *remarks])
    return "\n".join([table(_rows(answer["items"], now)), *remarks])


def _rows(items: Iterable[Obj], now: datetime) -> Iterator[list[str]]:
    yield ["NAMESPACE", "NAME", "LOCATION", "SYNCTARGET", "AGE"]
    for one in items:
        metadata = one["object"]["metadata"]
        locations = ",".join([one["location"], *one["otherLocations"]])
        age = times.age(fields.text(metadata, "creationTimestamp"), now)
        yield [metadata.get("namespace") or NONE, metadata["name"], locations, one["syncTarget"], age]


class Way(NamedTuple):
    """How objects come back from one place."""

    place: Route
    wanted: SyncScope  #: by the placements that lead there

    def may_bring(self, resource: Kind) -> bool:
        return self.wanted.may_bring(resource)

    def brings(self, part: Part) -> bool:
        return self.wanted.brings(*part)


def brings_back(placement: Obj) -> bool:
    """Whether it says that something comes back."""
    return bool(parse_workload_selector(placement).upsync)


def ways(placements: Iterable[Obj], slices: Iterable[Obj]) -> dict[str, Way]:
    """By mailbox, for placements that bring something back."""
    leading: dict[str, set[Destination]] = {}
    for one in slices:
        for owner in owners(one):
            leading.setdefault(fields.text(owner, "uid"), set()).update(destinations_of(one))
    sets: dict[str, set[UpsyncSet]] = {}
    destinations: set[Destination] = set()
    for placement in filter(brings_back, placements):
        found = leading.get(fields.text(placement, "metadata", "uid"), set())
        destinations |= found
        for mailbox in set(map(mailbox_of, found)):
            sets.setdefault(mailbox, set()).update(parse_workload_selector(placement).upsync)
    understood = {some: _understood(some) for some in set(map(frozenset, sets.values()))}
    return {
        mailbox: Way(place, understood[frozenset(sets[mailbox])])
        for mailbox, place in sorted(places_of(destinations).items())
    }


def _understood(sets: frozenset[UpsyncSet]) -> SyncScope:
    return wanted.read_scope([{"spec": SyncerSpec(upsync=sets).spec()}], lambda _group, _kind: None)
