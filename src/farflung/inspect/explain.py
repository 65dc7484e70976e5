"""`farflung explain placement`: why each Location is chosen or not, and whether the scheduler is up to date."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from farflung.apis.edge.names import PROJECTED
from farflung.apis.kcp.names import WORKSPACES
from farflung.apis.names import Collection
from farflung.client.discovery import discover
from farflung.client.errors import Forbidden, NotFound
from farflung.client.rest import Client, ListOptions
from farflung.controllers.edge_scheduler import decide
from farflung.inspect import inventory
from farflung.inspect.errors import InspectError
from farflung.inspect.hub import HubClient, get_placement, workspace_name
from farflung.inspect.inventory import Inventory
from farflung.inspect.placement_model import observed_object
from farflung.machinery.errors import Obj
from farflung.placement import resolve
from farflung.placement.feeds import travelling
from farflung.placement.names import Part, PlacementKey
from farflung.placement.resolve import Explanation, Resolution, Resolver
from farflung.placement.types import (
    YES,
    Destination,
    Placement,
    ScheduledTarget,
    destinations_of,
    parse_placement,
    previous,
)

ASKED: Final = 50  #: mailboxes per Location that are checked for withdrawals


async def explain(hub: HubClient, name: str, location: str = "") -> Obj:
    """The result for JSON and YAML.  `location`: restricts it to NAME or CLUSTER:NAME."""
    document = await get_placement(hub, name)
    if document is None:
        raise InspectError(f"EdgePlacement {name} not found in the workspace {workspace_name(hub)}")
    known = await inventory.read(hub.root)
    explained = ExplainedPlacement(
        document, parse_placement(document), known, await inventory.slices_of(hub.workspace, name)
    )
    locations = list(explained.locations(location))
    if location and not locations and not explained.resolution.problem:
        raise InspectError(f"Location {location} not found")
    if location:
        await _add_withdrawn(hub, explained, locations)
    return {
        "placement": {"workspace": workspace_name(hub), "name": name, "generation": explained.placement.generation},
        **({"problem": explained.resolution.problem} if explained.resolution.problem else {}),
        "locations": locations,
        "summary": explained.summary(),
        "now": explained.now(),
    }


async def _add_withdrawn(hub: HubClient, explained: ExplainedPlacement, locations: Iterable[Obj]) -> None:
    """Copies that are being withdrawn from these Locations; selected SyncTargets first, limited in number."""
    for one in locations:
        selected = {target["name"] for target in one["inventory"] if target["selected"]}
        targets = sorted(explained.targets_of(one["cluster"]), key=lambda target: target.key.name not in selected)
        names = {f"{one['cluster']}-mb-{target.uid}": target.key.name for target in targets[:ASKED]}
        found = await being_withdrawn(hub, names, PlacementKey(*explained.placement.key))
        one["beingWithdrawn"] = [
            {
                "syncTarget": names[mailbox],
                "group": part.kind.group,
                "resource": part.kind.resource,
                "namespace": part.namespace,
                "name": part.name,
            }
            for mailbox in sorted(found, key=lambda name: names[name])
            for part in found[mailbox]
        ]
        one["notAsked"] = len(targets[ASKED:])


class ExplainedPlacement:
    """A placement and the objects that it depends on."""

    def __init__(self, document: Obj, placement: Placement, known: Inventory, observed: Sequence[Obj]) -> None:
        self.placement = placement
        self._document = document
        self._inventory = known
        self._observed = observed
        self._engine: Resolver = known.engine()
        self._engine.put_placement(placement)
        self._previous = previous(placement, observed)
        self.resolution: Resolution = self._engine.resolve(placement.key, self._previous)

    def targets_of(self, cluster: str) -> list[ScheduledTarget]:
        return self._inventory.targets_of(cluster)

    def locations(self, wanted: str = "") -> Iterator[Obj]:
        cluster, _, name = wanted.rpartition(":")
        for one in self._engine.explain(self.placement.key, self._previous):
            if name in ("", one.location.name) and cluster in ("", one.location.cluster):
                yield self._location(one) | (self._details(one) if wanted else {})

    def _location(self, one: Explanation) -> Obj:
        chosen = [{"name": to.target, "uid": to.uid, "chosen": True} for to in one.destinations]
        refused = [{"name": target, "chosen": False, "reason": reason} for target, reason in one.refused]
        return {
            "cluster": one.location.cluster,
            "name": one.location.name,
            "chosen": bool(one.destinations),
            **({"reason": one.reason} if one.reason else {}),
            "syncTargets": sorted([*chosen, *refused], key=lambda target: target["name"]),
        }

    def _details(self, one: Explanation) -> Obj:
        location = self._engine.location(one.location)
        assert location is not None
        selectors = [
            {"path": f"spec.locationSelectors[{at}]", "matches": not reason, **({"reason": reason} if reason else {})}
            for at, selector in enumerate(self.placement.selectors)
            for reason in [resolve.unmet(selector, location.labels)]
        ]
        targets = [
            {
                "name": target.key.name,
                "labels": dict(target.labels),
                "taints": list(map(str, target.taints)),
                "selected": location.instances is not None and location.instances.matches(target.labels),
            }
            for target in self.targets_of(one.location.cluster)
        ]
        return {
            "labels": dict(location.labels),
            "taints": list(map(str, location.taints)),
            "selectors": selectors,
            "spread": {key: location.labels.get(key) for key in self.placement.spread_by},
            "inventory": targets,
        }

    def summary(self) -> Obj:
        return {
            "locations": len(self._inventory.locations),
            "matching": self.resolution.matching,
            **({} if self.placement.number is None else {"wanted": self.placement.number}),
            "chosen": self.resolution.chosen,
            "destinations": len(self.resolution.destinations),
        }

    def now(self) -> Obj:
        """The current status and slices, and whether the scheduler would write the same."""
        wanted = decide.desired(self.placement, self.resolution)
        before = {destination for obj in self._observed for destination in destinations_of(obj)}
        after = before if self.resolution.problem else set(self.resolution.destinations)
        status = self._document.get("status")
        return {
            "status": status or {},
            "statusIsCurrent": decide.status(self.placement, self.resolution, status, "") is None,
            "slices": [
                {"name": obj["metadata"]["name"], "destinations": len(obj.get("destinations") or ())}
                for obj in self._observed
            ],
            "slicesAreCurrent": not decide.plan(self.placement, wanted, self._observed),
            "missing": entries(after - before),
            "surplus": entries(before - after),
            **({"deleted": True} if self._document["metadata"].get("deletionTimestamp") else {}),
        }


def entries(destinations: Iterable[Destination]) -> list[Obj]:
    """In the format of slices."""
    return [
        {"cluster": cluster, "locationName": location, "syncTargetName": target, "syncTargetUID": uid}
        for cluster, location, target, uid in sorted(destinations)
    ]


COPIES: Final = ListOptions(labels=f"{PROJECTED}={YES}")


async def being_withdrawn(hub: HubClient, mailboxes: Iterable[str], key: PlacementKey) -> dict[str, list[Part]]:
    """Copies of a placement that are being deleted, by mailbox; mailboxes that the user cannot see are omitted."""
    try:
        there = {one["metadata"]["name"] for one in await hub.root.workspace(hub.provider).list(WORKSPACES)}
    except (NotFound, Forbidden):
        return {}
    found = {
        name: await _find_terminating(hub.root.workspace(f"{hub.provider}:{name}"), key)
        for name in {*mailboxes} & there
    }
    return {name: found[name] for name in sorted(found) if found[name]}


async def _find_terminating(mailbox: Client, key: PlacementKey) -> list[Part]:
    try:
        kinds = travelling((await discover(mailbox)).resources())
    except (NotFound, Forbidden):
        return []
    found: list[Part] = []
    for kind, resource in kinds.items():
        for obj in await _listed(mailbox, resource.collection):
            metadata = obj["metadata"]
            if metadata.get("deletionTimestamp") and key in observed_object(kind, obj).placements:
                found.append(Part(kind, metadata.get("namespace") or "", metadata["name"]))
    return sorted(found)


async def _listed(mailbox: Client, collection: Collection) -> list[Obj]:
    try:
        return await mailbox.list(collection, COPIES)
    except (NotFound, Forbidden):
        return []
