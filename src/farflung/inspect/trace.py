"""`farflung trace`: one object through placement, slice, mailbox and edge, and its status back.

The engines of the scheduler and of the translator compute what should exist; the rest is read, a few mailboxes at a
time.  Nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias, TypeVar

import orjson

from farflung.apis.edge.names import EDGE_PLACEMENTS, SYNC_TARGET_NAME, SYNCER_CONFIGS
from farflung.apis.kcp.names import WORKSPACES
from farflung.apis.names import Collection
from farflung.client.discovery import DiscoveredResource, discover
from farflung.client.errors import ClientError, Forbidden, NotFound
from farflung.client.rest import Client
from farflung.controllers.status_summarizer.health import digest_of
from farflung.inspect import fields, inventory, placement_model, trace_steps
from farflung.inspect.errors import InspectError
from farflung.inspect.explain import ExplainedPlacement
from farflung.inspect.hub import HubClient, find_resource, get_placement, workspace_name
from farflung.inspect.inventory import HiddenError, Inventory
from farflung.inspect.trace_source import TraceSources, machine_conclusion
from farflung.inspect.trace_steps import DestinationTrace, HiddenObject, ObservedDestination, StepState, TracedObject
from farflung.machinery.errors import Obj
from farflung.placement.names import CONFIG, Category, GroupResource, Part, category, cluster_of, is_mailbox_name
from farflung.placement.types import Route, parse_placement
from farflung.syncer.conversion import takes_status

T = TypeVar("T")
Progress: TypeAlias = Callable[[int], AbstractContextManager[None]]

AT_ONCE: Final = 16  #: mailboxes that are read concurrently
LEFT_OVER: Final = 1_000  #: most mailboxes beside the destinations that are checked for old copies
MANY: Final = 100  #: mailboxes whose reports are read at once


@dataclass(frozen=True, slots=True)
class TraceRequest:
    kind: str  #: as in kubectl
    name: str
    namespace: str = "default"  #: of namespaced objects
    destination: str = ""  #: only Locations and SyncTargets of this name
    limit: int = 20  #: destinations to print; 0: all


async def trace(
    hub: HubClient, request: TraceRequest, now: datetime, progress: Progress = lambda number: nullcontext()
) -> Obj:
    """The result for JSON and YAML.  `progress`: shown while this number of mailboxes is read."""
    served = await discover(hub.workspace)
    resource = find_resource(served, request.kind)
    has_placements = served.find_kind(EDGE_PLACEMENTS.group, EDGE_PLACEMENTS.version, EDGE_PLACEMENTS.kind) is not None
    tracer = None if resource is None else Tracer(hub, request, resource, now, progress)
    if tracer is not None and not has_placements and (answer := await tracer.machine()) is not None:
        return answer
    await get_placement(hub, "-")  # fails if the workspace has no edge API
    if tracer is None:
        raise InspectError(f"the workspace {workspace_name(hub)} does not serve {request.kind}")
    return await tracer.traced()


class Tracer:
    def __init__(
        self,
        hub: HubClient,
        request: TraceRequest,
        resource: DiscoveredResource,
        now: datetime,
        progress: Progress,
    ) -> None:
        self._hub = hub
        self._progress = progress
        self._request = request
        self._collection = resource.collection
        self._now = now
        kind = GroupResource(resource.collection.group, resource.collection.plural)
        namespace = request.namespace if resource.namespaced else ""
        self._part = Part(kind, namespace, request.name)
        has_status = "status" in resource.subresources and takes_status(kind)
        self._subject = TracedObject(self._part, category(kind) is Category.EDGE, has_status)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._remarks: list[str] = []

    async def traced(self) -> Obj:
        known = await self._inventory()
        locations = placement_model.locations_of(known.locations) if known else {}
        sources = TraceSources(self._part, self._collection, locations)
        cluster = await sources.read(self._hub.workspace)
        facts = await self._facts(sources, cluster, known)
        if sources.object(cluster) is None and not facts:
            raise InspectError(f"{self._part} not found in the workspace {workspace_name(self._hub)}")
        findings = sorted((trace_steps.find(self._subject, one, self._now) for one in facts), key=lambda one: one.rank)
        placements = sources.placements(cluster)
        return {
            "object": self._object(sources.object(cluster)),
            "placements": placements,
            **self._result(findings),
            "remarks": sorted(set(self._remarks)),
            **_conclusion(sources.object(cluster), sources.why_not_placed(cluster), placements, findings),
        }

    async def machine(self) -> Obj | None:
        """The result in a workspace without placements; None: the object is no machine."""
        obj = await _read(self._hub.workspace, self._collection, self._part.name, self._part.namespace)
        about = machine_conclusion(obj) if isinstance(obj, dict) else None
        if not isinstance(obj, dict) or about is None:
            return None
        conclusion = _concluded(*about)
        return {"object": self._object(obj), "placements": [], **self._result([]), "remarks": [], **conclusion}

    async def _inventory(self) -> Inventory | None:
        try:
            return await inventory.read(self._hub.root)
        except HiddenError as error:
            self._remarks.append(f"pending work of the scheduler is unknown: {error}")
            return None

    # --- destinations ---------------------------------------------------------------------------------

    async def _facts(self, sources: TraceSources, cluster: str, known: Inventory | None) -> list[ObservedDestination]:
        facts = {one.mailbox: one for one in sources.destinations(cluster)}
        if known is not None:
            self._add_undecided(facts, sources, cluster, known)
        workspaces = await self._workspaces()
        left = self._left_over(facts, workspaces)
        if self._request.destination and not any(self._is_meant(one.place) for one in [*facts.values(), *left]):
            raise InspectError(f"destination {self._request.destination} not found")
        asked = [one for one in [*facts.values(), *left] if self._is_meant(one.place)]
        conditions = _conditions(known)
        with self._progress(len(asked)):
            reports = await self._reports() if len(asked) >= MANY else None
            found = await asyncio.gather(*(self._read_destination(one, workspaces, reports) for one in asked))
        kept = [one for one in found if one.placements or _is_of(one.copy, cluster, self._part.kind)]
        await self._read_others(sources, kept, cluster)
        return [
            replace(
                sources.with_desired_copy(one, cluster),
                conditions=None if known is None else conditions.get(_target_of(one.mailbox), ()),
                digest=digest_of(self._part.kind, orjson.dumps(one.copy)) if isinstance(one.copy, dict) else None,
            )
            for one in kept
        ]

    def _is_meant(self, place: Route) -> bool:
        return self._request.destination in ("", place.target, *place.locations)

    def _add_undecided(
        self, facts: dict[str, ObservedDestination], sources: TraceSources, cluster: str, known: Inventory
    ) -> None:
        """Destinations that the scheduler has not written yet."""
        for key, document, slices in sources.selecting(cluster):
            resolved = ExplainedPlacement(document, parse_placement(document), known, slices).resolution
            for mailbox, place in placement_model.places_of(resolved.destinations).items():
                if mailbox not in facts:
                    facts[mailbox] = ObservedDestination(place, mailbox, (key.name,), changed=sources.changed(cluster))

    async def _workspaces(self) -> dict[str, Obj] | HiddenObject:
        """Workspaces below the provider's, by name."""
        try:
            found = await self._hub.root.workspace(self._hub.provider).list(WORKSPACES)
        except (Forbidden, NotFound) as error:
            return HiddenObject(str(error))
        return {one["metadata"]["name"]: one for one in found}

    def _left_over(
        self, facts: dict[str, ObservedDestination], workspaces: dict[str, Obj] | HiddenObject
    ) -> list[ObservedDestination]:
        """Mailboxes that may still have an old copy."""
        if isinstance(workspaces, HiddenObject):
            return []
        names = sorted(name for name in workspaces if is_mailbox_name(name) and name not in facts)
        if more := names[LEFT_OVER:]:
            some = "1 mailbox was" if len(more) == 1 else f"{len(more)} mailboxes were"
            self._remarks.append(f"{some} not checked for old copies")
        targets = {name: workspaces[name]["metadata"].get("annotations") or {} for name in names}
        return [
            ObservedDestination(Route(cluster_of(name), "", targets[name].get(SYNC_TARGET_NAME, "")), name)
            for name in names[:LEFT_OVER]
        ]

    async def _reports(self) -> dict[str, Obj] | None:
        """Of all syncers at once, by the logical cluster of the mailbox; None if they must be read one by one."""
        try:
            found = await inventory.everywhere(
                self._hub.root.workspace(self._hub.provider), SYNCER_CONFIGS, orjson.loads
            )
        except HiddenError:
            return None
        return {fields.cluster_of(one): one for one in found if fields.name_of(one) == CONFIG}

    async def _read_destination(
        self, facts: ObservedDestination, workspaces: dict[str, Obj] | HiddenObject, reports: dict[str, Obj] | None
    ) -> ObservedDestination:
        workspace = workspaces if isinstance(workspaces, HiddenObject) else workspaces.get(facts.mailbox)
        if workspace is None or (facts.placements and facts.slices is None):
            return replace(facts, workspace=workspace)
        client = self._hub.root.workspace(f"{self._hub.provider}:{facts.mailbox}")
        part = self._part
        async with self._turns:
            copy = await _read(client, self._collection, part.name, part.namespace)
            if copy is None and not facts.placements:
                return facts
            config = (
                await _read(client, SYNCER_CONFIGS, CONFIG)
                if reports is None
                else reports.get(fields.text(workspace, "spec", "cluster"))
            )
        served = copy is not NOT_SERVED
        there = copy if served else None
        return replace(facts, workspace=workspace, copy=there, served=served, config=config)

    async def _read_others(self, sources: TraceSources, facts: Iterable[ObservedDestination], cluster: str) -> None:
        """Read other workspaces with sources of the same copy."""
        for other in sorted({one for some in facts for one in _origins(some.copy, self._part.kind)} - {cluster}):
            try:
                await sources.read(self._hub.root.workspace(other), other)
            except ClientError as error:
                sources.hide(other)
                self._remarks.append(f"the workspace {other} is another source of it, and is not visible: {error}")

    # --- result ---------------------------------------------------------------------------------------

    def _object(self, obj: Obj | None) -> Obj:
        kind, namespace, name = self._part
        metadata = (obj or {}).get("metadata") or {}
        return {
            "workspace": workspace_name(self._hub),
            "group": kind.group,
            "version": self._collection.version,
            "resource": kind.resource,
            "kind": self._collection.kind,
            "namespace": namespace,
            "name": name,
            "exists": obj is not None,
            "generation": metadata.get("generation") or 0,
            "changed": trace_steps.written_to(obj) if obj else None,
            **({"deleted": metadata["deletionTimestamp"]} if metadata.get("deletionTimestamp") else {}),
        }

    def _result(self, findings: Sequence[DestinationTrace]) -> Obj:
        shown = findings[: self._request.limit] if self._request.limit else findings
        return {
            "destinations": [_destination(one) for one in shown],
            "leftOut": _counted(findings[len(shown) :]),
            "summary": _counted(findings),
        }


def _destination(one: DestinationTrace) -> Obj:
    names = {"cluster": one.place.cluster, "locationName": one.place.location, "syncTargetName": one.place.target}
    return {
        **names,
        "syncTargetUID": _target_of(one.mailbox),
        **({"furtherLocationNames": list(one.place.others)} if one.place.others else {}),
        "mailbox": one.mailbox,
        "placements": list(one.placements),
        "state": one.state.value,
        "steps": [_step(step) for step in one.steps],
    }


def _step(step: trace_steps.TraceStep) -> Obj:
    step_fields = {"step": step.name, "state": step.state.value, "time": step.time or None, "message": step.message}
    return {**step_fields, **({"advice": step.advice} if step.advice and step.state is StepState.STUCK else {})}


def _counted(findings: Sequence[DestinationTrace]) -> Obj:
    states = {state.value: sum(one.state is state for one in findings) for state in StepState}
    return {"destinations": len(findings), **states}


def _conclusion(obj: Obj | None, going: str, placements: Sequence[Obj], findings: Sequence[DestinationTrace]) -> Obj:
    """`going`: why no placement selects the object; empty: one does."""
    if findings:
        at = {"destination": findings[0].name, "step": findings[0].culprit.name}
        return _concluded(*trace_steps.conclude(findings), at)
    if not going:
        names = ", ".join(one["name"] for one in placements if one["selects"])
        advice = f"`farflung explain placement {names.partition(',')[0]}` explains why"
        return _concluded(StepState.STUCK, f"Not placed: EdgePlacement {names} has no destination.", advice)
    nowhere = StepState.STUCK, f"Not placed: {going}.", ""
    return _concluded(*((machine_conclusion(obj) if obj else None) or nowhere))


def _concluded(state: StepState, message: str, advice: str, at: Mapping[str, str] | None = None) -> Obj:
    """`at`: the destination and step, unless everything is done."""
    where = at if at and state is not StepState.DONE else {}
    return {"conclusion": {"state": state.value, **where, "message": message, "advice": advice}}


def is_stuck(answer: Obj) -> bool:
    return bool(answer["conclusion"]["state"] == StepState.STUCK)


# --- reading --------------------------------------------------------------------------------------

NOT_SERVED: Final[Obj] = {}  #: the kind is not served


async def _read(client: Client, collection: Collection, name: str, namespace: str = "") -> Obj | HiddenObject | None:
    """None if not found."""
    try:
        return await client.get(collection, name, namespace)
    except NotFound as error:
        return None if error.is_about(name) or error.details.get("kind") == "namespaces" else NOT_SERVED
    except Forbidden as error:
        return HiddenObject(str(error))


def _origins(copy: Obj | HiddenObject | None, kind: GroupResource) -> set[str]:
    """Logical clusters of its sources."""
    return (
        {key.cluster for key in placement_model.observed_object(kind, copy).placements}
        if isinstance(copy, dict)
        else set()
    )


def _is_of(copy: Obj | HiddenObject | None, cluster: str, kind: GroupResource) -> bool:
    return cluster in _origins(copy, kind)


def _target_of(mailbox: str) -> str:
    return mailbox.rpartition("-mb-")[2]


def _conditions(known: Inventory | None) -> dict[str, Sequence[Any]]:
    """Conditions of SyncTargets by uid."""
    targets = known.targets if known else ()
    return {one.uid: list(fields.objects(orjson.loads(one.document), "status", "conditions")) for one in targets}
