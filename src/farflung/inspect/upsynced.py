"""`farflung list-upsynced`: objects created at edges that the placements of a workspace upsync.

Slices have the destinations; the objects are in their mailboxes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from farflung.apis.edge.names import EDGE_PLACEMENTS, SINGLE_PLACEMENT_SLICES
from farflung.client.discovery import DiscoveredResource, discover
from farflung.client.errors import Forbidden, NotFound
from farflung.client.rest import Client, ListOptions
from farflung.inspect import fields
from farflung.inspect.hub import HubClient, find_resource, get_placement, workspace_name
from farflung.inspect.placement_model import destinations_by_mailbox, mailbox_of, ref_of, slices_by_owner
from farflung.inspect.results import InspectError, Result
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource
from farflung.placement.select import UpsyncSet, parse_workload_selector
from farflung.placement.syncer_config import SyncerSpec
from farflung.placement.types import CopyDestination, Destination, destinations_of
from farflung.syncer import sync_scope
from farflung.syncer.conversion import is_upsynced
from farflung.syncer.sync_scope import SyncScope

AT_ONCE: Final = 8  #: mailboxes that are read concurrently
ASKED: Final = 20  #: mailboxes that are asked for the kind, if the workspace does not serve it


@dataclass(frozen=True, slots=True)
class UpsyncQuery:
    kind: str  #: as in kubectl
    namespace: str = ""  #: empty: all
    labels: str = ""  #: selector


class UpsyncedObject(Result, frozen=True):
    location: str
    other_locations: list[str]
    sync_target: str
    mailbox: str
    object: Obj

    @property
    def order(self) -> tuple[str, ...]:
        metadata = self.object["metadata"]
        return metadata.get("namespace") or "", metadata["name"], self.location, self.sync_target, self.mailbox


class UpsyncedObjects(Result, frozen=True):
    workspace: str
    kind: str
    items: list[UpsyncedObject]
    remarks: list[str]


async def upsynced(hub: HubClient, query: UpsyncQuery) -> UpsyncedObjects:
    await get_placement(hub, "-")  # fails if the workspace has no edge API
    items, remarks = await UpsyncReader(hub, query).read()
    return UpsyncedObjects(workspace_name(hub), query.kind, sorted(items, key=lambda one: one.order), remarks)


class UpsyncReader:
    def __init__(self, hub: HubClient, query: UpsyncQuery) -> None:
        self._hub = hub
        self._query = query
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._hidden: dict[str, Forbidden] = {}  #: by mailbox

    async def read(self) -> tuple[list[UpsyncedObject], list[str]]:
        """The objects, and remarks."""
        placements, slices = await asyncio.gather(
            *(self._hub.workspace.list(one) for one in (EDGE_PLACEMENTS, SINGLE_PLACEMENT_SLICES))
        )
        routes = upsync_routes(placements, slices)
        if not routes:
            return [], [self._explain_nothing(placements)]
        names = await self._hub.mailboxes()
        there = {name: route for name, route in routes.items() if names is None or name in names}
        discovered = await self._resource(there)
        resource = GroupResource(discovered.collection.group, discovered.collection.plural)
        asked = {name: route for name, route in there.items() if route.wanted.may_upsync(resource)}
        if not asked:
            reason = f"no EdgePlacement of the workspace {workspace_name(self._hub)} upsyncs {resource} (spec.upsync)"
            return [], [reason]
        lists = await asyncio.gather(*(self._read_mailbox(name, route, discovered) for name, route in asked.items()))
        return [item for some in lists for item in some], self._remarks(len(asked))

    def _explain_nothing(self, placements: list[Obj]) -> str:
        where = f"of the workspace {workspace_name(self._hub)}"
        if any(map(has_upsync, placements)):
            return f"the EdgePlacements {where} with spec.upsync have no destination"
        return f"no EdgePlacement {where} has spec.upsync"

    async def _resource(self, mailboxes: Iterable[str]) -> DiscoveredResource:
        """The kind as the workspace serves it, or else a mailbox."""
        hidden = ""
        for client in (self._hub.workspace, *map(self._hub.mailbox, list(mailboxes)[:ASKED])):
            try:
                found = find_resource(await discover(client), self._query.kind)
            except Forbidden as error:
                found, hidden = None, f", as far as you may see: {error}"
            if found is not None:
                return found
        raise InspectError(
            f"neither the workspace {workspace_name(self._hub)} nor a mailbox of its placements serves "
            f"{self._query.kind}{hidden}"
        )

    async def _read_mailbox(
        self, mailbox: str, route: UpsyncRoute, discovered: DiscoveredResource
    ) -> list[UpsyncedObject]:
        async with self._turns:
            try:
                objects = await self._listed(self._hub.mailbox(mailbox), discovered)
            except Forbidden as error:
                self._hidden[mailbox] = error
                return []
        resource = GroupResource(discovered.collection.group, discovered.collection.plural)
        destination = route.destination
        return [
            UpsyncedObject(destination.location, list(destination.others), destination.target, mailbox, one)
            for one in objects
            if is_upsynced(one) and route.wanted.upsyncs(*ref_of(resource, one))
        ]

    async def _listed(self, mailbox: Client, discovered: DiscoveredResource) -> list[Obj]:
        """In the version that the mailbox serves; empty, if none."""
        selection = ListOptions(self._query.namespace if discovered.namespaced else "", self._query.labels)
        try:
            return await mailbox.list(discovered.collection, selection)
        except NotFound:
            other = (await discover(mailbox)).find(discovered.collection.group, discovered.collection.plural)
        if other is None or other.collection == discovered.collection:
            return []
        return await self._listed(mailbox, replace(other, namespaced=discovered.namespaced))

    def _remarks(self, asked: int) -> list[str]:
        if not self._hidden:
            return []
        first = self._hidden[min(self._hidden)]
        if len(self._hidden) == asked:
            raise InspectError(f"you may not read the mailboxes of these placements: {first}")
        return [f"{len(self._hidden)} of {asked} mailboxes are not visible and are ignored: {first}"]


class UpsyncRoute(NamedTuple):
    """The upsync of one destination."""

    destination: CopyDestination
    wanted: SyncScope  #: of the placements with this destination


def has_upsync(placement: Obj) -> bool:
    """Whether it has spec.upsync."""
    return bool(parse_workload_selector(placement).upsync)


def upsync_routes(placements: Iterable[Obj], slices: Iterable[Obj]) -> dict[str, UpsyncRoute]:
    """By mailbox, for placements with spec.upsync."""
    owned = slices_by_owner(slices)
    sets: dict[str, set[UpsyncSet]] = {}
    destinations: set[Destination] = set()
    for placement in filter(has_upsync, placements):
        own = owned.get(fields.text(placement, "metadata", "uid"), ())
        found = {destination for one in own for destination in destinations_of(one)}
        destinations |= found
        for mailbox in set(map(mailbox_of, found)):
            sets.setdefault(mailbox, set()).update(parse_workload_selector(placement).upsync)
    scopes = {some: _upsync_scope(some) for some in set(map(frozenset, sets.values()))}
    return {
        mailbox: UpsyncRoute(destination, scopes[frozenset(sets[mailbox])])
        for mailbox, destination in sorted(destinations_by_mailbox(destinations).items())
    }


def _upsync_scope(sets: frozenset[UpsyncSet]) -> SyncScope:
    return sync_scope.read_scope([{"spec": SyncerSpec(upsync=sets).spec()}], lambda _group, _kind: None)
