"""`farflung explain placement`: what becomes of each Location and why, and whether the scheduler has got that far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import click

from farflung.apis.edge.names import PROJECTED
from farflung.apis.kcp.names import WORKSPACES
from farflung.apis.names import Collection
from farflung.cli import inventory
from farflung.cli.connection import Hub, placement_of, workspace_name
from farflung.cli.inventory import Inventory
from farflung.cli.output import NONE, TABLE, machine_readable, pairs, table
from farflung.cli.placement_model import seen
from farflung.client.discovery import discover
from farflung.client.errors import Forbidden, NotFound
from farflung.client.rest import Client, Selection
from farflung.controllers.edge_scheduler import decide
from farflung.lib.words import count
from farflung.machinery.errors import Obj
from farflung.placement import resolve
from farflung.placement.feeds import travelling
from farflung.placement.names import Kind, Part, PlacementKey
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

ASKED: Final = 50  #: mailboxes of a Location that are asked what is being withdrawn from them
BEHIND: Final = "the scheduler is behind, or does not run"


async def explain(hub: Hub, name: str, location: str = "") -> Obj:
    """All that can be said, as it is printed for programs.  `location`: a name, or a cluster and a name as
    `CLUSTER:NAME`, of those that the answer is about."""
    document = await placement_of(hub, name)
    if document is None:
        raise click.ClickException(f"there is no EdgePlacement {name} in the workspace {workspace_name(hub)}")
    known = await inventory.read(hub.root)
    seen = Seen(document, parse_placement(document), known, await inventory.slices_of(hub.workspace, name))
    locations = list(seen.locations(location))
    if location and not locations and not seen.resolution.problem:
        raise click.ClickException(f"there is no Location {location}")
    if location:
        await _add_withdrawn(hub, seen, locations)
    return {
        "placement": {"workspace": workspace_name(hub), "name": name, "generation": seen.placement.generation},
        **({"problem": seen.resolution.problem} if seen.resolution.problem else {}),
        "locations": locations,
        "summary": seen.summary(),
        "now": seen.now(),
    }


async def _add_withdrawn(hub: Hub, seen: Seen, locations: Iterable[Obj]) -> None:
    """What was made for the placement and is not gone yet at the clusters of these Locations, those that a Location
    selects first; of very many not all are asked."""
    for one in locations:
        selected = {target["name"] for target in one["inventory"] if target["selected"]}
        targets = sorted(seen.targets_of(one["cluster"]), key=lambda target: target.key.name not in selected)
        names = {f"{one['cluster']}-mb-{target.uid}": target.key.name for target in targets[:ASKED]}
        found = await being_withdrawn(hub, names, PlacementKey(*seen.placement.key))
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


class Seen:
    """One placement and everything that it depends on, as they were read."""

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
        """What the API says, and whether that is what the scheduler would write."""
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
    """As slices have them."""
    return [
        {"cluster": cluster, "locationName": location, "syncTargetName": target, "syncTargetUID": uid}
        for cluster, location, target, uid in sorted(destinations)
    ]


# --- for people -----------------------------------------------------------------------------------


def printed(answer: Obj, output: str, *, detailed: bool = False) -> str:
    if output != TABLE:
        return machine_readable(answer, output)
    parts: list[str] = []
    if detailed:
        parts += map(_detailed, answer["locations"])
    elif answer["locations"]:
        parts.append(table(_rows(answer["locations"])))
    parts.append("\n".join([*_summary(answer), *_now(answer["now"])]))
    return "\n\n".join(parts)


def _rows(locations: Iterable[Obj]) -> Iterator[list[str]]:
    yield ["CLUSTER", "LOCATION", "SYNCTARGET", "CHOSEN", "REASON"]
    for location in locations:
        head = [location["cluster"], location["name"]]
        targets, reason = location["syncTargets"], location.get("reason", "")
        if reason and [one.get("reason") for one in targets] != [reason]:
            yield [*head, NONE, "no", reason]
        for target in targets:
            yield [*head, target["name"], _yes(target["chosen"]), target.get("reason", "")]


def _detailed(location: Obj) -> str:
    facts = [
        ("Location", location["name"]),
        ("Cluster", location["cluster"]),
        ("Labels", pairs(location["labels"].items())),
        ("Taints", ",".join(location["taints"]) or NONE),
        ("Chosen", "yes" if location["chosen"] else f"no: {location['reason']}"),
    ]
    if spread := location["spread"]:
        facts.append(("Spread by", pairs((key, NONE if value is None else value) for key, value in spread.items())))
    text = table([f"{name}:", value] for name, value in facts)
    selectors = [[one["path"], _yes(one["matches"]), one.get("reason", "")] for one in location["selectors"]]
    if selectors:
        text += f"\n\n{table([['SELECTOR', 'MATCHES', 'REASON'], *selectors])}"
    if location["inventory"]:
        text += f"\n\n{table(_target_rows(location))}"
    if gone := location.get("beingWithdrawn"):
        rows = [[one["syncTarget"], str(_part(one))] for one in gone]
        text += f"\n\n{table([['SYNCTARGET', 'BEING WITHDRAWN'], *rows])}"
    if number := location.get("notAsked"):
        text += (
            f"\n\n{count(number, 'SyncTarget')} more may have something that is being withdrawn, and were not asked."
        )
    return text


def _part(one: Obj) -> Part:
    return Part(Kind(one["group"], one["resource"]), one["namespace"], one["name"])


def _target_rows(location: Obj) -> Iterator[list[str]]:
    yield ["SYNCTARGET", "LABELS", "TAINTS", "CHOSEN", "REASON"]
    known = {one["name"]: one for one in location["syncTargets"]}
    for target in location["inventory"]:
        found = known.get(target["name"], {"chosen": False})
        reason = found.get("reason", "")
        if not target["selected"]:
            reason = "the Location's spec.instanceSelector does not select it"
        elif not found["chosen"] and not reason:
            reason = location.get("reason", "")
        taints = ",".join(target["taints"]) or NONE
        yield [target["name"], pairs(target["labels"].items()), taints, _yes(found["chosen"]), reason]


def _summary(answer: Obj) -> Iterator[str]:
    name, summary = answer["placement"]["name"], answer["summary"]
    if problem := answer.get("problem"):
        yield f"EdgePlacement {name} cannot be understood, and its slices stay as they are: {problem}"
        return
    chosen = f"{summary['chosen']} of {count(summary['locations'], 'Location')} chosen"
    destinations = count(summary["destinations"], "destination")
    wanted = f", {summary['wanted']} wanted" if "wanted" in summary else ""
    yield f"EdgePlacement {name}: {chosen}, {summary['matching']} matching{wanted}; {destinations}."


def _now(now: Obj) -> Iterator[str]:
    if now.get("deleted"):
        yield "It is being deleted, and the scheduler leaves it alone."
        return
    yield f"Status now: {_status(now['status'])}{_behind(now['statusIsCurrent'])}"
    destinations = sum(one["destinations"] for one in now["slices"])
    slices = f"{count(destinations, 'destination')} in {count(len(now['slices']), 'slice')}"
    yield f"Slices now: {slices if now['slices'] else NONE}{_behind(now['slicesAreCurrent'])}"
    yield from changes(("+", now["missing"]), ("-", now["surplus"]))


def _status(status: Mapping[str, Any]) -> str:
    if not status:
        return NONE
    conditions = [one for one in status.get("conditions") or () if one.get("type") == decide.READY]
    ready = conditions[0] if conditions else {}
    said = [f"Ready={ready.get('status', 'Unknown')}", *([f"({ready['reason']})"] if ready.get("reason") else [])]
    matching = f"{status.get('matchingLocationCount', 0)} matching, of generation {status.get('specGeneration', 0)}"
    return f"{' '.join(said)}, {matching}"


def _behind(current: bool) -> str:
    return "; up to date" if current else f"; {BEHIND}"


def changes(*kinds: tuple[str, Iterable[Obj]]) -> list[str]:
    """A line for each destination: `+ cluster location syncTarget`.  `kinds`: a sign, and those that it is for."""
    rows = [
        [f"{sign} {one['cluster']}", one["locationName"], one["syncTargetName"]] for sign, some in kinds for one in some
    ]
    return table(rows).splitlines() if rows else []


def _yes(value: bool) -> str:
    return "yes" if value else "no"


COPIES: Final = Selection(labels=f"{PROJECTED}={YES}")


async def being_withdrawn(hub: Hub, mailboxes: Iterable[str], key: PlacementKey) -> dict[str, list[Part]]:
    """Of what was made for a placement, sorted, by mailbox; nothing of mailboxes that the asker may not see."""
    try:
        there = {one["metadata"]["name"] for one in await hub.root.workspace(hub.provider).list(WORKSPACES)}
    except (NotFound, Forbidden):
        return {}
    found = {name: await _going(hub.root.workspace(f"{hub.provider}:{name}"), key) for name in {*mailboxes} & there}
    return {name: found[name] for name in sorted(found) if found[name]}


async def _going(mailbox: Client, key: PlacementKey) -> list[Part]:
    try:
        kinds = travelling((await discover(mailbox)).resources())
    except (NotFound, Forbidden):
        return []
    found: list[Part] = []
    for kind, resource in kinds.items():
        for obj in await _listed(mailbox, resource.collection):
            metadata = obj["metadata"]
            if metadata.get("deletionTimestamp") and key in seen(kind, obj).placements:
                found.append(Part(kind, metadata.get("namespace") or "", metadata["name"]))
    return sorted(found)


async def _listed(mailbox: Client, collection: Collection) -> list[Obj]:
    try:
        return await mailbox.list(collection, COPIES)
    except (NotFound, Forbidden):
        return []
