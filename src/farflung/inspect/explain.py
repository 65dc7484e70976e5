"""`farflung explain placement`: why each Location is chosen or not, and whether the scheduler is up to date."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from farflung.apis.edge.authors import Author
from farflung.apis.edge.names import PROJECTED, SELECTED_COUNT
from farflung.apis.names import Collection
from farflung.client.discovery import discover
from farflung.client.errors import Forbidden, NotFound
from farflung.client.rest import Client, ListOptions
from farflung.controllers.edge_scheduler import decide
from farflung.inspect.hub import HubClient, Inventory, get_placement, read_inventory, slices_of, workspace_name
from farflung.inspect.placement_model import observed_object, paths_of
from farflung.inspect.placing_rights import ReviewedRights
from farflung.inspect.results import InspectError, Result
from farflung.machinery.errors import Obj
from farflung.placement import resolve
from farflung.placement.feeds import copied_kinds
from farflung.placement.names import ObjectRef, PlacementKey, mailbox_name
from farflung.placement.resolve import Explanation, Resolution, Resolver
from farflung.placement.types import (
    YES,
    Destination,
    Placement,
    TargetForScheduling,
    destinations_of,
    parse_placement,
    previous,
)


class TargetVerdict(Result, frozen=True):
    """Whether a destination has this SyncTarget, or why not."""

    name: str
    uid: str | UnsetType = UNSET
    chosen: bool = False
    reason: str | UnsetType = UNSET


class SelectorVerdict(Result, frozen=True):
    path: str
    matches: bool
    reason: str | UnsetType = UNSET


class InventoryTarget(Result, frozen=True):
    name: str
    labels: dict[str, str]
    taints: list[str]
    selected: bool  #: by the Location


class WithdrawnCopy(Result, frozen=True):
    sync_target: str
    group: str
    resource: str
    namespace: str
    name: str


class LocationVerdict(Result, frozen=True):
    """Whether a Location is chosen, or why not.  The last fields are set if one Location is explained."""

    cluster: str
    name: str
    chosen: bool
    left_out: bool  #: it matches, and the author may not place on it
    reason: str | UnsetType
    sync_targets: list[TargetVerdict]
    workspace: str = ""  #: its path, or the logical cluster if it is unknown
    labels: dict[str, str] | UnsetType = UNSET
    taints: list[str] | UnsetType = UNSET
    selectors: list[SelectorVerdict] | UnsetType = UNSET
    spread: dict[str, str | None] | UnsetType = UNSET
    inventory: list[InventoryTarget] | UnsetType = UNSET
    being_withdrawn: list[WithdrawnCopy] | UnsetType = UNSET
    not_asked: int | UnsetType = UNSET  #: SyncTargets that were not checked for withdrawals


class PlacementAuthor(Result, frozen=True):
    """The user who last wrote the spec."""

    user: str
    groups: list[str]
    workspace: str | UnsetType  #: the only logical cluster where the user has permissions


class PlacementName(Result, frozen=True):
    workspace: str
    name: str
    generation: int
    author: PlacementAuthor | UnsetType  #: unset: not recorded
    claim_with: str | UnsetType  #: the command that makes its user the author, if the hub recorded none


class PlacementSummary(Result, frozen=True):
    locations: int
    matching: int
    wanted: int | UnsetType
    chosen: int
    left_out: int  #: Locations that match, and on which the author may not place
    destinations: int
    selected: int | UnsetType  #: objects, as the translator counted them; unset: not yet


class SliceSummary(Result, frozen=True):
    name: str
    destinations: int


class DestinationEntry(Result, frozen=True):
    """As in slices."""

    cluster: str
    location_name: str
    sync_target_name: str
    uid: str = msgspec.field(name="syncTargetUID")
    workspace: str = ""  #: its path, or the logical cluster if it is unknown


class WrittenState(Result, frozen=True):
    """The status and the slices, and whether the scheduler would write the same."""

    status: Obj
    status_is_current: bool
    slices: list[SliceSummary]
    slices_are_current: bool
    missing: list[DestinationEntry]
    surplus: list[DestinationEntry]
    deleted: bool | UnsetType = UNSET  #: the placement is being deleted


class PlacementExplanation(Result, frozen=True):
    placement: PlacementName
    problem: str | UnsetType
    locations: list[LocationVerdict]
    summary: PlacementSummary
    now: WrittenState
    remarks: list[str]


ASKED: Final = 50  #: mailboxes per Location that are checked for withdrawals


async def explain(hub: HubClient, name: str, location: str = "") -> PlacementExplanation:
    """`location`: restricts it to NAME or WORKSPACE:NAME."""
    document = await get_placement(hub, name)
    if document is None:
        raise InspectError(f"EdgePlacement {name} not found in the workspace {workspace_name(hub)}")
    known = await read_inventory(hub.root)
    rights = ReviewedRights(hub, known.locations)
    resolver = known.resolver()
    observed, placement = await slices_of(hub.workspace, name), parse_placement(document)
    placement = await rights.put(resolver, placement, previous(placement, observed))
    explained = ExplainedPlacement(document, placement, known, resolver, observed)
    locations = list(explained.locations(location))
    if location and not locations and not explained.resolution.problem:
        raise InspectError(f"Location {location} not found")
    if location:
        locations = [await _with_withdrawn(hub, explained, one) for one in locations]
    return PlacementExplanation(
        PlacementName(
            workspace_name(hub),
            name,
            placement.generation,
            _author(placement.author),
            decide.claim(name) if placement.author is None else UNSET,
        ),
        explained.resolution.problem or UNSET,
        locations,
        explained.summary(),
        explained.now(),
        rights.remarks,
    )


def _author(author: Author | None) -> PlacementAuthor | UnsetType:
    if author is None or not author.user:
        return UNSET
    return PlacementAuthor(author.user, list(author.groups), author.cluster or UNSET)


async def _with_withdrawn(hub: HubClient, explained: ExplainedPlacement, one: LocationVerdict) -> LocationVerdict:
    """With the copies that are being withdrawn from it; selected SyncTargets first, limited in number."""
    selected = {target.name for target in one.inventory or () if target.selected}
    targets = sorted(explained.targets_of(one.cluster), key=lambda target: target.key.name not in selected)
    names = {mailbox_name(one.cluster, target.uid): target.key.name for target in targets[:ASKED]}
    found = await being_withdrawn(hub, names, PlacementKey(*explained.placement.key))
    copies = [
        WithdrawnCopy(names[mailbox], *ref.resource, ref.namespace, ref.name)
        for mailbox in sorted(found, key=lambda name: names[name])
        for ref in found[mailbox]
    ]
    return replace(one, being_withdrawn=copies, not_asked=len(targets[ASKED:]))


class ExplainedPlacement:
    """A placement and the objects that it depends on.  `resolver` has the placement and the rights of its author."""

    def __init__(
        self, document: Obj, placement: Placement, known: Inventory, resolver: Resolver, observed: Sequence[Obj]
    ) -> None:
        self.placement = placement
        self._document = document
        self._inventory = known
        self._observed = observed
        self._resolver = resolver
        self._paths = paths_of(known.locations)
        self._previous = previous(placement, observed)
        self.resolution: Resolution = self._resolver.resolve(placement.key, self._previous)

    def targets_of(self, cluster: str) -> list[TargetForScheduling]:
        return self._inventory.targets_of(cluster)

    def locations(self, wanted: str = "") -> Iterator[LocationVerdict]:
        cluster, _, name = wanted.rpartition(":")
        for one in self._resolver.explain(self.placement.key, self._previous):
            path = self._paths.get(one.location.cluster, "")
            if name in ("", one.location.name) and cluster in ("", one.location.cluster, path):
                verdict = self._location(one)
                yield self._detailed(one, verdict) if wanted else verdict

    def _location(self, one: Explanation) -> LocationVerdict:
        chosen = [TargetVerdict(to.target, to.uid, chosen=True) for to in one.destinations]
        refused = [TargetVerdict(target, reason=reason) for target, reason in one.refused]
        return LocationVerdict(
            one.location.cluster,
            one.location.name,
            bool(one.destinations),
            one.left_out,
            one.reason or UNSET,
            sorted([*chosen, *refused], key=lambda target: target.name),
            self._paths.get(one.location.cluster, one.location.cluster),
        )

    def _detailed(self, one: Explanation, verdict: LocationVerdict) -> LocationVerdict:
        location = self._resolver.location(one.location)
        assert location is not None
        reasons = [resolve.unmet(selector, location.labels) for selector in self.placement.selectors]
        return replace(
            verdict,
            labels=dict(location.labels),
            taints=list(map(str, location.taints)),
            selectors=[
                SelectorVerdict(f"spec.locationSelectors[{at}]", not reason, reason or UNSET)
                for at, reason in enumerate(reasons)
            ],
            spread={key: location.labels.get(key) for key in self.placement.spread_by},
            inventory=[
                InventoryTarget(
                    target.key.name,
                    dict(target.labels),
                    list(map(str, target.taints)),
                    location.instances is not None and location.instances.matches(target.labels),
                )
                for target in self.targets_of(one.location.cluster)
            ],
        )

    def summary(self) -> PlacementSummary:
        return PlacementSummary(
            len(self._inventory.locations),
            self.resolution.matching,
            UNSET if self.placement.number is None else self.placement.number,
            self.resolution.chosen,
            self.resolution.left_out,
            len(self.resolution.destinations),
            (self._document.get("status") or {}).get(SELECTED_COUNT, UNSET),
        )

    def now(self) -> WrittenState:
        wanted = decide.desired(self.placement, self.resolution)
        before = {destination for obj in self._observed for destination in destinations_of(obj)}
        after = before - self.resolution.lost if self.resolution.problem else set(self.resolution.destinations)
        status = self._document.get("status")
        return WrittenState(
            status or {},
            decide.status(self.placement, self.resolution, status, "") is None,
            [SliceSummary(one["metadata"]["name"], len(one.get("destinations") or ())) for one in self._observed],
            not decide.plan(self.placement, wanted, self._observed),
            entries(after - before, self._paths),
            entries(before - after, self._paths),
            bool(self._document["metadata"].get("deletionTimestamp")) or UNSET,
        )


def entries(destinations: Iterable[Destination], paths: Mapping[str, str]) -> list[DestinationEntry]:
    """`paths`: of workspaces, by logical cluster."""
    return [DestinationEntry(*one, paths.get(one.cluster, one.cluster)) for one in sorted(destinations)]


COPIES: Final = ListOptions(labels=f"{PROJECTED}={YES}")


async def being_withdrawn(hub: HubClient, mailboxes: Iterable[str], key: PlacementKey) -> dict[str, list[ObjectRef]]:
    """Copies of a placement that are being deleted, by mailbox; mailboxes that the user cannot see are omitted."""
    there = await hub.mailboxes() or {}
    found = {name: await _find_terminating(hub.mailbox(name), key) for name in mailboxes if name in there}
    return {name: found[name] for name in sorted(found) if found[name]}


async def _find_terminating(mailbox: Client, key: PlacementKey) -> list[ObjectRef]:
    try:
        resources = copied_kinds((await discover(mailbox)).resources())
    except (NotFound, Forbidden):
        return []
    found: list[ObjectRef] = []
    for resource, discovered in resources.items():
        for obj in await _listed(mailbox, discovered.collection):
            metadata = obj["metadata"]
            if metadata.get("deletionTimestamp") and key in observed_object(resource, obj).placements:
                found.append(ObjectRef(resource, metadata.get("namespace") or "", metadata["name"]))
    return sorted(found)


async def _listed(mailbox: Client, collection: Collection) -> list[Obj]:
    try:
        return await mailbox.list(collection, COPIES)
    except (NotFound, Forbidden):
        return []
