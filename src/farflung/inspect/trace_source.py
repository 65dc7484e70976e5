"""The source of a traced object: its workspace, the placements that select it, and the desired copies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from farflung.apis.edge.names import CUSTOMIZERS, EDGE_PLACEMENTS, SINGLE_PLACEMENT_SLICES, WORKLOAD_PROJECTED
from farflung.apis.globalscheduler.names import DELIVERED
from farflung.apis.names import NAMESPACES as NAMESPACE_COLLECTION
from farflung.apis.names import POD_SCHEDULED, Collection
from farflung.client.errors import NotFound
from farflung.client.rest import Client
from farflung.inspect import fields
from farflung.inspect.placement_model import Locations, PlacementModel, mailbox_of, observed_object, slices_by_owner
from farflung.inspect.results import Result
from farflung.inspect.scheduler_model import kind_of
from farflung.inspect.trace_steps import Conclusion, HiddenObject, ObservedDestination, StepState, written_to
from farflung.machinery.errors import Obj
from farflung.machines.statuses import PLACED
from farflung.machines.subjects import POD
from farflung.placement import names
from farflung.placement.index import CopyKey
from farflung.placement.name_owners import owned_scope
from farflung.placement.names import DEFINITIONS, NAMESPACES, Category, GroupResource, ObjectRef, PlacementKey, category
from farflung.placement.select import WorkloadSelector, parse_workload_selector
from farflung.placement.types import destinations_of

_AND_MORE: Final = re.compile(f"{names.SEPARATOR}and [0-9]+ more$")


class FalseCondition(Result, frozen=True):
    """A condition that is False."""

    type: str
    reason: str
    message: str
    since: str
    concerns: bool = True  #: it is about the traced object


class PlacementObstacle(NamedTuple):
    """Why no placement selects an object, and what to do about it."""

    message: str
    advice: str


class TracedPlacement(Result, frozen=True):
    name: str
    selects: bool
    clauses: list[str]  #: paths of the fields that select the object
    changed: str
    destinations: int
    problems: list[FalseCondition]
    problem: str | UnsetType = UNSET  #: why it is invalid


@dataclass(slots=True)
class _Source:
    object: Obj | None = None
    namespace: Obj | None = None
    placements: dict[str, Obj] = field(default_factory=dict)
    slices: dict[str, list[Obj]] = field(default_factory=dict)  #: by the uid of their placement


class TraceSources:
    """One or several workspaces with sources of the same copy."""

    def __init__(self, ref: ObjectRef, collection: Collection, locations: Locations) -> None:
        self._ref = ref
        self._collection = collection
        self._imagined = PlacementModel(locations)
        self._locations = locations
        self._known: dict[str, _Source] = {}
        self._hidden: set[str] = set()

    # --- reads ----------------------------------------------------------------------------------------

    async def read(self, client: Client, cluster: str = "") -> str:
        """Returns the logical cluster of the workspace, from its objects.  Raises ClientError."""
        ref = self._ref
        obj, namespace, placements, slices = await asyncio.gather(
            _read(client, self._collection, ref.name, ref.namespace),
            _read(client, NAMESPACE_COLLECTION, ref.namespace),
            client.list(EDGE_PLACEMENTS),
            client.list(SINGLE_PLACEMENT_SLICES),
        )
        anything = [one for one in (obj, namespace, *placements) if one is not None]
        cluster = cluster or next(filter(None, map(fields.cluster_of, anything)), "")
        source = _Source(obj, namespace, {one["metadata"]["name"]: one for one in placements}, slices_by_owner(slices))
        self._known[cluster] = source
        await self._imagine(client, cluster, source)
        return cluster

    async def _imagine(self, client: Client, cluster: str, source: _Source) -> None:
        if source.namespace is not None:
            namespace = ObjectRef(NAMESPACES, "", self._ref.namespace)
            self._imagined.put_object(cluster, namespace, observed_object(NAMESPACES, source.namespace))
        if source.object is not None:
            found = observed_object(self._ref.resource, source.object)
            self._imagined.put_object(cluster, self._ref, found)
            if found.customizer:
                space, _, name = found.customizer.partition("/")
                document = await _read(client, CUSTOMIZERS, name, space)
                self._imagined.put_customizer(cluster, found.customizer, document)
        for name, placement in source.placements.items():
            key = PlacementKey(cluster, name)
            self._imagined.put_placement(key, placement)
            destinations = [one for some in self._slices_of(cluster, name) for one in destinations_of(some)]
            self._imagined.put_destinations(key, destinations)

    def hide(self, cluster: str) -> None:
        """The workspace is not visible."""
        self._hidden.add(cluster)

    # --- placements -----------------------------------------------------------------------------------

    def object(self, cluster: str) -> Obj | None:
        return self._known[cluster].object

    def why_not_placed(self, cluster: str) -> PlacementObstacle | None:
        """Why no placement selects the object; None: one does."""
        source, resource = self._known[cluster], self._ref.resource
        found = self._imagined.get(cluster, self._ref)
        if category(resource) is Category.NOWHERE:
            return PlacementObstacle(
                f"objects of the kind {resource} are never placed", "trace one of the objects that are placed"
            )
        if found is not None and found.ours:
            return PlacementObstacle("it is a copy itself", "trace its source, in the workspace with the EdgePlacement")
        if found is not None and found.system:
            return PlacementObstacle(
                "every cluster has its own", "create an object of another name if the clusters need this one"
            )
        if found is not None and found.is_terminating:
            return PlacementObstacle(
                "it is being deleted", "wait for its finalizers, and create it again if you need it"
            )
        if any(True for _ in self.selecting(cluster)):
            return None
        number = len(source.placements)
        if number == 0:
            return PlacementObstacle(
                "its workspace has no EdgePlacement", "create one that selects it; `farflung plan` shows the effect"
            )
        none = f"none of {number} EdgePlacements selects" if number > 1 else "the only EdgePlacement does not select"
        return PlacementObstacle(f"{none} it", "compare the spec with the labels of the object and of its Namespace")

    def changed(self, cluster: str) -> str:
        """When the object, its namespace or a placement was last changed."""
        source = self._known[cluster]
        there = [one for one in (source.object, source.namespace, *source.placements.values()) if one is not None]
        deleted = [_metadata(one).get("deletionTimestamp") or "" for one in there]
        return max([*map(written_to, there), *deleted], default="")

    def selecting(self, cluster: str) -> Iterator[tuple[PlacementKey, Obj, list[Obj]]]:
        """Placements that select the object, with their slices."""
        source, selections = self._known[cluster], self._imagined.selections
        for name in sorted(source.placements):
            key = PlacementKey(cluster, name)
            is_whole = self._ref.resource == NAMESPACES and self._ref.name in selections.whole_namespaces(key)
            if is_whole or self._ref in selections.selected(key):
                yield key, source.placements[name], self._slices_of(cluster, name)

    def _slices_of(self, cluster: str, name: str) -> list[Obj]:
        source = self._known[cluster]
        return source.slices.get(_metadata(source.placements[name]).get("uid", ""), [])

    def placements(self, cluster: str) -> list[TracedPlacement]:
        """Placements that select the object or are invalid."""
        source, selecting = self._known[cluster], {key.name for key, _, _ in self.selecting(cluster)}
        found = []
        for name, document in sorted(source.placements.items()):
            what = parse_workload_selector(document)
            if name in selecting or what.problem:
                destinations = self._imagined.selections.destinations(PlacementKey(cluster, name))
                found.append(
                    TracedPlacement(
                        name,
                        name in selecting,
                        self._clauses(source, document, what) if name in selecting else [],
                        written_to(document),
                        len(destinations),
                        [self._about(one) for one in _problems(document)],
                        what.problem or UNSET,
                    )
                )
        return found

    def _about(self, problem: FalseCondition) -> FalseCondition:
        """Whether the problem is about the object; problems of copies name them."""
        concerns = f"{self._ref} in " in problem.message or "-mb-" not in problem.message
        return msgspec.structs.replace(problem, concerns=concerns)

    def _clauses(self, source: _Source, document: Obj, what: WorkloadSelector) -> list[str]:
        """Paths of the fields of a placement that select the object."""
        ref, labels = self._ref, _labels(source.object)
        around, namespaced = _labels(source.namespace), bool(self._ref.namespace)
        first = len(what.alternatives) - len((document.get("spec") or {}).get("downsync") or ())
        found = ["spec.namespaceSelector"] if ref.resource == NAMESPACES and what.selects_namespace(labels) else []
        for at, one in enumerate(what.alternatives):
            if one.fits_kind(ref.resource, namespaced=namespaced) and one.fits(ref, labels, around):
                others = "spec.namespaceSelector" if one.selected.whole_namespace else "spec.nonNamespacedObjects"
                found.append(others if at < first else f"spec.downsync[{at - first}]")
        return list(dict.fromkeys(found))

    # --- copies ---------------------------------------------------------------------------------------

    def destinations(self, cluster: str) -> list[ObservedDestination]:
        """Destinations of the object by slices, with their times."""
        found: dict[str, ObservedDestination] = {}
        changed = self.changed(cluster)
        for key, _, slices in self.selecting(cluster):
            listing = _listing(slices)
            for mailbox, destination in self._imagined.selections.destinations(key).items():
                before = found.get(mailbox) or ObservedDestination(destination, mailbox, slices={}, changed=changed)
                names = (*before.placements, key.name)
                found[mailbox] = replace(before, placements=names, slices={**(before.slices or {}), **listing[mailbox]})
        return list(found.values())

    def with_desired_copy(self, facts: ObservedDestination, cluster: str) -> ObservedDestination:
        """With the desired copy, and the problems that placements report."""
        copy = CopyKey(facts.mailbox, self._ref)
        wanted = self._imagined.selections.reasons(*copy)
        desired = self._imagined.compute_copy(copy)
        recorded = recorded_placements(self._ref.resource, facts.copy)
        along = []
        if self._ref.resource in (NAMESPACES, DEFINITIONS) and not facts.placements:
            along = sorted(
                key.name for key in recorded if key.cluster == cluster and key.name in self._known[cluster].placements
            )
        hidden = sorted({key.cluster for key in recorded} & self._hidden)
        doubt = f"the workspace {hidden[0]} is another source of it, and is not visible" if hidden else ""
        if not doubt and not self._locations and self._is_special(cluster):
            doubt = "whether it is current is unknown, because Locations are not visible"
        listing = _listing(one for name in along for one in self._slices_of(cluster, name))
        return replace(
            facts,
            placements=facts.placements or tuple(along),
            slices=facts.slices if facts.slices is not None else listing.get(facts.mailbox),
            changed=facts.changed or self.changed(cluster),
            desired=desired,
            doubt=doubt,
            along=bool(along),
            needed=bool(wanted) and all(one.selected is None for one in wanted),
            complaints=self._complaints(copy, cluster),
            unlisted=self._with_unlisted_problems(cluster),
            held=self._held(recorded),
        )

    def _is_special(self, cluster: str) -> bool:
        found = self._imagined.get(cluster, self._ref)
        return found is not None and (bool(found.customizer) or found.expands)

    def _held(self, keys: Iterable[PlacementKey]) -> str:
        """Why a withdrawal from these placements is held; empty if none is."""
        documents = [self._known[key.cluster].placements.get(key.name) for key in keys if key.cluster in self._known]
        problems = [one for document in documents if document is not None for one in _problems(document)]
        return next((one.message for one in problems if one.reason == names.WITHDRAWAL_HELD), "")

    def _with_unlisted_problems(self, cluster: str) -> str:
        for key, document, _ in self.selecting(cluster):
            if any(one.type == WORKLOAD_PROJECTED and _AND_MORE.search(one.message) for one in _problems(document)):
                return key.name
        return ""

    def _complaints(self, copy: CopyKey, cluster: str) -> tuple[str, ...]:
        """Problems of this copy in conditions of placements."""
        heads = tuple(f"{ref} in {copy.mailbox}: " for ref in (copy.ref, owned_scope(copy.ref)))
        return tuple(
            dict.fromkeys(
                message.removeprefix(heads[0])
                for document in self._known[cluster].placements.values()
                for one in _problems(document)
                if one.type == WORKLOAD_PROJECTED and one.reason not in names.HARMLESS
                for message in one.message.split("; ")
                if message.startswith(heads)
            )
        )


def _problems(document: Obj) -> Iterator[FalseCondition]:
    """Conditions that are False."""
    for one in fields.objects(document, "status", "conditions"):
        if one.get("status") == "False":
            type, reason, message, since = (
                fields.text(one, name) for name in ("type", "reason", "message", "lastTransitionTime")
            )
            yield FalseCondition(type, reason, message, since)


def recorded_placements(resource: GroupResource, copy: Obj | HiddenObject | None) -> frozenset[PlacementKey]:
    """The placements that a copy names as its sources."""
    return observed_object(resource, copy).placements if isinstance(copy, dict) else frozenset()


def _listing(slices: Iterable[Obj]) -> dict[str, dict[str, str]]:
    """By mailbox: slices with that destination, and when they were written."""
    found: dict[str, dict[str, str]] = {}
    for one in slices:
        for destination in destinations_of(one):
            found.setdefault(mailbox_of(destination), {})[_metadata(one)["name"]] = written_to(one)
    return found


def _metadata(obj: Mapping[str, Any]) -> Obj:
    found: Obj = obj["metadata"]
    return found


def _labels(obj: Obj | None) -> dict[str, str]:
    return {} if obj is None else _metadata(obj).get("labels") or {}


async def _read(client: Client, collection: Collection, name: str, namespace: str = "") -> Obj | None:
    """None if not found."""
    if name:
        with suppress(NotFound):
            return await client.get(collection, name, namespace)
    return None


def machine_conclusion(obj: Obj) -> Conclusion | None:
    """As for placed objects; None: it is no machine."""
    kind = kind_of(obj)
    if not kind:
        return None
    namespace = fields.text(obj, "metadata", "namespace")
    where = f" -n {namespace}" if namespace not in ("", "default") else ""
    advice = f"`farflung explain {kind.lower()} {fields.name_of(obj)}{where}` explains why"
    bound, why = _bound(obj), _refusal(obj, POD_SCHEDULED if kind == POD else PLACED)
    if not bound:
        message = f"Not bound to a Cluster{f': {why}' if why else '.'}"
    elif undelivered := _refusal(obj, DELIVERED):
        message = f"Bound to {bound} and not delivered: {undelivered}"
    elif why:
        message = f"Bound to {bound} for an earlier spec: {why}"
    else:
        return Conclusion(StepState.DONE, message=f"Bound to {bound}; {advice}.")
    return Conclusion(StepState.STUCK, message=message, advice=advice)


def _refusal(obj: Obj, type: str) -> str:
    found = fields.condition(obj, type)
    return fields.text(found, "message") if found.get("status") == "False" else ""


def _bound(obj: Obj) -> str:
    alone = fields.text(obj, "spec", "nodeName") or fields.text(obj, "spec", "clusterName")
    found = fields.at(obj, "status", "cluster_names")
    names = [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
    return ", ".join(dict.fromkeys(filter(None, [alone, *names])))
