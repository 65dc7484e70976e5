"""`farflung trace`: one object through placement, slice, mailbox and edge, and its status back.

The engines of the scheduler and of the translator compute what should exist; the rest is read, a few mailboxes at a
time.  Nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias, TypeVar

import orjson
from msgspec import UNSET, UnsetType

from farflung.apis.edge.names import EDGE_PLACEMENTS, SYNC_TARGET_NAME, SYNCER_CONFIGS
from farflung.apis.kcp.names import WORKSPACES
from farflung.apis.names import Collection
from farflung.client.discovery import DiscoveredResource, discover
from farflung.client.errors import ClientError, Forbidden, NotFound
from farflung.client.rest import Client
from farflung.controllers.status_summarizer.health import read_copy_status
from farflung.inspect import fields, placement_model, trace_steps
from farflung.inspect.explain import ExplainedPlacement
from farflung.inspect.hub import (
    HiddenError,
    HubClient,
    Inventory,
    everywhere,
    find_resource,
    get_placement,
    read_inventory,
    workspace_name,
)
from farflung.inspect.placing_rights import ReviewedRights
from farflung.inspect.results import InspectError, Result
from farflung.inspect.trace_source import (
    PlacementObstacle,
    TracedPlacement,
    TraceSources,
    machine_conclusion,
    recorded_placements,
)
from farflung.inspect.trace_steps import (
    Conclusion,
    HiddenObject,
    ObservedDestination,
    StepState,
    TracedDestination,
    TracedObject,
)
from farflung.machinery.errors import Obj
from farflung.placement.names import THE_ONE, Category, GroupResource, ObjectRef, category, cluster_of, is_mailbox_name
from farflung.placement.types import CopyDestination, parse_placement, previous
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


class ObjectState(Result, frozen=True):
    """The traced object."""

    workspace: str
    group: str
    version: str
    resource: str
    kind: str
    namespace: str
    name: str
    exists: bool
    generation: int
    changed: str | None
    deleted: str | UnsetType = UNSET  #: its deletionTimestamp


class StateCounts(Result, frozen=True):
    """Numbers of destinations by state."""

    destinations: int
    stuck: int
    unknown: int
    waiting: int
    done: int


class Trace(Result, frozen=True):
    object: ObjectState
    placements: list[TracedPlacement]
    destinations: list[TracedDestination]
    left_out: StateCounts
    summary: StateCounts
    remarks: list[str]
    conclusion: Conclusion

    @property
    def is_stuck(self) -> bool:
        return self.conclusion.state is StepState.STUCK


async def trace(
    hub: HubClient, request: TraceRequest, now: datetime, progress: Progress = lambda number: nullcontext()
) -> Trace:
    """`progress`: shown while this number of mailboxes is read."""
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
        discovered: DiscoveredResource,
        now: datetime,
        progress: Progress,
    ) -> None:
        self._hub = hub
        self._progress = progress
        self._request = request
        self._collection = discovered.collection
        self._now = now
        resource = GroupResource(discovered.collection.group, discovered.collection.plural)
        namespace = request.namespace if discovered.namespaced else ""
        self._ref = ObjectRef(resource, namespace, request.name)
        has_status = "status" in discovered.subresources and takes_status(resource)
        self._subject = TracedObject(self._ref, category(resource) is Category.EDGE, has_status)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._remarks: list[str] = []

    async def traced(self) -> Trace:
        known = await self._inventory()
        locations = placement_model.locations_of(known.locations) if known else {}
        sources = TraceSources(self._ref, self._collection, locations)
        cluster = await sources.read(self._hub.workspace)
        facts = await self._facts(sources, cluster, known)
        if sources.object(cluster) is None and not facts:
            raise InspectError(f"{self._ref} not found in the workspace {workspace_name(self._hub)}")
        findings = sorted((trace_steps.find(self._subject, one, self._now) for one in facts), key=lambda one: one.rank)
        placements = sources.placements(cluster)
        conclusion = _conclusion(sources.object(cluster), sources.why_not_placed(cluster), placements, findings)
        return self._result(sources.object(cluster), placements, findings, conclusion)

    async def machine(self) -> Trace | None:
        """The result in a workspace without placements; None: the object is no machine."""
        obj = await _read(self._hub.workspace, self._collection, self._ref.name, self._ref.namespace)
        conclusion = machine_conclusion(obj) if isinstance(obj, dict) else None
        if not isinstance(obj, dict) or conclusion is None:
            return None
        return self._result(obj, [], [], conclusion)

    async def _inventory(self) -> Inventory | None:
        try:
            return await read_inventory(self._hub.root)
        except HiddenError as error:
            self._remarks.append(f"pending work of the scheduler is unknown: {error}")
            return None

    # --- destinations ---------------------------------------------------------------------------------

    async def _facts(self, sources: TraceSources, cluster: str, known: Inventory | None) -> list[ObservedDestination]:
        facts = {one.mailbox: one for one in sources.destinations(cluster)}
        if known is not None:
            await self._add_undecided(facts, sources, cluster, known)
        workspaces = await self._workspaces()
        left = self._left_over(facts, workspaces)
        if self._request.destination and not any(self._is_meant(one.destination) for one in [*facts.values(), *left]):
            raise InspectError(f"destination {self._request.destination} not found")
        asked = [one for one in [*facts.values(), *left] if self._is_meant(one.destination)]
        conditions = _conditions(known)
        with self._progress(len(asked)):
            reports = await self._reports() if len(asked) >= MANY else None
            found = await asyncio.gather(*(self._read_destination(one, workspaces, reports) for one in asked))
        kept = [one for one in found if one.placements or cluster in _source_clusters(self._ref.resource, one.copy)]
        await self._read_others(sources, kept, cluster)
        return [
            replace(
                sources.with_desired_copy(one, cluster),
                conditions=None if known is None else conditions.get(one.target_uid, ()),
                copy_status=read_copy_status(self._ref.resource, orjson.dumps(one.copy))
                if isinstance(one.copy, dict)
                else None,
            )
            for one in kept
        ]

    def _is_meant(self, destination: CopyDestination) -> bool:
        return self._request.destination in ("", destination.target, *destination.locations)

    async def _add_undecided(
        self, facts: dict[str, ObservedDestination], sources: TraceSources, cluster: str, known: Inventory
    ) -> None:
        """Destinations that the scheduler has not written yet."""
        rights, resolver = ReviewedRights(self._hub, known.locations), known.resolver()
        for key, document, slices in sources.selecting(cluster):
            placement = parse_placement(document)
            placement = await rights.put(resolver, placement, previous(placement, slices))
            resolved = ExplainedPlacement(document, placement, known, resolver, slices).resolution
            for mailbox, destination in placement_model.destinations_by_mailbox(resolved.destinations).items():
                if mailbox not in facts:
                    facts[mailbox] = ObservedDestination(
                        destination, mailbox, (key.name,), changed=sources.changed(cluster)
                    )

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
            ObservedDestination(CopyDestination(cluster_of(name), "", targets[name].get(SYNC_TARGET_NAME, "")), name)
            for name in names[:LEFT_OVER]
        ]

    async def _reports(self) -> dict[str, Obj] | None:
        """Of all syncers at once, by the logical cluster of the mailbox; None if they must be read one by one."""
        try:
            found = await everywhere(self._hub.root.workspace(self._hub.provider), SYNCER_CONFIGS, orjson.loads)
        except HiddenError:
            return None
        return {fields.cluster_of(one): one for one in found if fields.name_of(one) == THE_ONE}

    async def _read_destination(
        self, facts: ObservedDestination, workspaces: dict[str, Obj] | HiddenObject, reports: dict[str, Obj] | None
    ) -> ObservedDestination:
        workspace = workspaces if isinstance(workspaces, HiddenObject) else workspaces.get(facts.mailbox)
        if workspace is None or (facts.placements and facts.slices is None):
            return replace(facts, workspace=workspace)
        client = self._hub.mailbox(facts.mailbox)
        ref = self._ref
        async with self._turns:
            copy = await _read(client, self._collection, ref.name, ref.namespace)
            if copy is None and not facts.placements:
                return facts
            config = (
                await _read(client, SYNCER_CONFIGS, THE_ONE)
                if reports is None
                else reports.get(fields.text(workspace, "spec", "cluster"))
            )
        served = copy is not NOT_SERVED
        there = copy if served else None
        return replace(facts, workspace=workspace, copy=there, served=served, config=config)

    async def _read_others(self, sources: TraceSources, facts: Iterable[ObservedDestination], cluster: str) -> None:
        """Read other workspaces with sources of the same copy."""
        for other in sorted(
            {one for some in facts for one in _source_clusters(self._ref.resource, some.copy)} - {cluster}
        ):
            try:
                await sources.read(self._hub.root.workspace(other), other)
            except ClientError as error:
                sources.hide(other)
                self._remarks.append(f"the workspace {other} is another source of it, and is not visible: {error}")

    # --- result ---------------------------------------------------------------------------------------

    def _result(
        self,
        obj: Obj | None,
        placements: list[TracedPlacement],
        findings: Sequence[TracedDestination],
        conclusion: Conclusion,
    ) -> Trace:
        shown = findings[: self._request.limit] if self._request.limit else findings
        return Trace(
            self._object(obj),
            placements,
            list(shown),
            _counted(findings[len(shown) :]),
            _counted(findings),
            sorted(set(self._remarks)),
            conclusion,
        )

    def _object(self, obj: Obj | None) -> ObjectState:
        resource, namespace, name = self._ref
        metadata = (obj or {}).get("metadata") or {}
        return ObjectState(
            workspace_name(self._hub),
            resource.group,
            self._collection.version,
            resource.resource,
            self._collection.kind,
            namespace,
            name,
            obj is not None,
            metadata.get("generation") or 0,
            trace_steps.written_to(obj) if obj else None,
            metadata.get("deletionTimestamp") or UNSET,
        )


def _counted(findings: Sequence[TracedDestination]) -> StateCounts:
    return StateCounts(len(findings), *(sum(one.state is state for one in findings) for state in StepState))


def _conclusion(
    obj: Obj | None,
    refusal: PlacementObstacle | None,
    placements: Sequence[TracedPlacement],
    findings: Sequence[TracedDestination],
) -> Conclusion:
    """`refusal`: why no placement selects the object; None: one does."""
    if findings:
        return trace_steps.conclude(findings)
    if refusal is None:
        names = ", ".join(one.name for one in placements if one.selects)
        advice = f"`farflung explain placement {names.partition(',')[0]}` explains why"
        message = f"Not placed: EdgePlacement {names} has no destination."
        return Conclusion(StepState.STUCK, message=message, advice=advice)
    nowhere = Conclusion(StepState.STUCK, message=f"Not placed: {refusal.message}.", advice=refusal.advice)
    return (machine_conclusion(obj) if obj else None) or nowhere


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


def _source_clusters(resource: GroupResource, copy: Obj | HiddenObject | None) -> set[str]:
    return {key.cluster for key in recorded_placements(resource, copy)}


def _conditions(known: Inventory | None) -> dict[str, Sequence[Any]]:
    """Conditions of SyncTargets by uid."""
    targets = known.targets if known else ()
    return {one.uid: list(fields.objects(orjson.loads(one.document), "status", "conditions")) for one in targets}
