"""`farflung explain pod` and `farflung explain allocation`: the Cluster of a virtual machine or of each replica, why
not the others, and whether the object agrees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import orjson
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from farflung.apis.globalscheduler.names import DELIVERED
from farflung.apis.kcp.names import CLUSTER_ANNOTATION, COMPUTE
from farflung.apis.names import POD_SCHEDULED
from farflung.client.errors import NotFound
from farflung.inspect import scheduler_model
from farflung.inspect.hub import HiddenError, HubClient, workspace_name
from farflung.inspect.results import InspectError, Result
from farflung.inspect.scheduler_model import (
    KINDS,
    BoundReplica,
    MachineDecision,
    RequestSummary,
    SchedulerSnapshot,
    UnwellCluster,
    bound_replica,
    kind_of,
    read,
    site_name,
    summarize_decision,
    summarize_request,
)
from farflung.machinery.errors import Obj
from farflung.machines.engine.evaluation import SchedulingExplanation, SiteVerdict
from farflung.machines.engine.values import MachineRequest, Reservation, SchedulingDecision
from farflung.machines.failover import add_refusal_reason
from farflung.machines.files.configuration import SchedulerConfiguration
from farflung.machines.object_readers import FINISHED_PHASES, SCHEDULER_NAMES, InvalidRequestError, read_request
from farflung.machines.statuses import PLACED, SCORE, find_condition
from farflung.machines.subjects import ALLOCATION, POD, ObservedSubject, SchedulingSubject
from farflung.runtime.cache import Key

BINDINGS: Final = {POD: f"{COMPUTE}:kubernetes", ALLOCATION: f"{COMPUTE}:globalscheduler.com"}


class MachineName(Result, frozen=True):
    kind: str
    workspace: str
    namespace: str
    name: str


class MissingAmount(Result, frozen=True):
    needed: int
    left: int


class ClusterVerdict(Result, frozen=True):
    """Whether a machine fits a Cluster, or why not."""

    workspace: str
    namespace: str
    name: str
    region: str
    zone: str
    fits: bool
    reason: str | UnsetType = UNSET
    shortage: MissingAmount | UnsetType = UNSET
    replicas: int | UnsetType = UNSET  #: that are placed there
    room: int | UnsetType = UNSET  #: for so many replicas
    flavors: list[str] | UnsetType = UNSET
    score: float | UnsetType = UNSET
    scores: dict[str, float] | UnsetType = UNSET  #: by plugin


class MachineState(Result, frozen=True):
    """The current binding and condition."""

    bound: list[BoundReplica]
    condition: Obj
    score: str | UnsetType = UNSET
    undelivered: Obj | UnsetType = UNSET  #: the condition
    ignored_because: str | UnsetType = msgspec.field(
        default=UNSET, name="leftAlone"
    )  #: why the scheduler ignores the object
    waits: bool | UnsetType = UNSET
    agrees: bool | None = None  #: the scheduler would write the same; None: it ignores the object
    unwell: list[UnwellCluster] = []


class MachineExplanation(Result, frozen=True, kw_only=True):
    object: MachineName
    problem: str | UnsetType = UNSET  #: why the request is invalid
    asks: RequestSummary | UnsetType = UNSET
    unknown_sizes: list[str] | UnsetType = UNSET  #: flavors that are not in the catalogue
    weights: dict[str, int] | UnsetType = UNSET  #: of scoring plugins
    indifferent: dict[str, float] | UnsetType = UNSET  #: plugins that give every Cluster the same score
    clusters: list[ClusterVerdict] = []
    decision: MachineDecision | UnsetType = UNSET
    now: MachineState
    remarks: list[str]


async def explain(
    hub: HubClient, kind: str, name: str, namespace: str, configured: SchedulerConfiguration
) -> MachineExplanation:
    """`kind`: POD or ALLOCATION."""
    document = await _object(hub, kind, name, namespace)
    if kind == POD and not kind_of({**document, "apiVersion": "v1", "kind": POD}):
        raise InspectError(f"the Pod {namespace}/{name} has no spec.virtualMachine: the global scheduler ignores it")
    try:
        known = await read(hub, configured)
    except HiddenError as error:
        command = f"farflung trace {kind.lower()}/{name} -n {namespace}"
        raise HiddenError(f"{error.sentence}; try `{command}`, which needs only the {kind}") from None
    cluster = str((document["metadata"].get("annotations") or {}).get(CLUSTER_ANNOTATION, ""))
    subject = SchedulingSubject(kind, Key(cluster, namespace, name))
    seen = known.observed(kind, orjson.dumps(document))
    known.state.observe(subject, seen, 0.0)
    held = known.state.reservations(seen.uid)
    head = MachineName(kind, workspace_name(hub), namespace, name)
    try:
        request, problem = read_request(orjson.dumps({**document, "kind": kind})), ""
    except InvalidRequestError as error:
        request, problem = None, str(error)
    await known.review(seen.author)
    excluded = {} if request is None else known.state.excluded(request, 0.0)
    known.state.observe(subject, None, 0.0)  # it must not compete with itself
    remarks = [*await scheduler_model.remarks(hub.root, configured), *known.rights.remarks]
    if request is None:
        now = _now(document, kind, seen, held, None, _unwell(known, seen, held))
        return MachineExplanation(object=head, problem=problem, now=now, remarks=remarks)
    explanation = known.state.engine.explain(request, excluded=excluded)
    return MachineExplanation(
        object=head,
        asks=summarize_request(request, configured.policy),
        unknown_sizes=_unknown_sizes(known, explanation, request, configured) or UNSET,
        weights=dict(explanation.weights),
        indifferent=dict(explanation.indifferent),
        clusters=[_cluster(known, explanation, verdict) for verdict in explanation.verdicts],
        decision=summarize_decision(explanation.decision),
        now=_now(document, kind, seen, held, explanation.decision, _unwell(known, seen, held)),
        remarks=remarks,
    )


async def _object(hub: HubClient, kind: str, name: str, namespace: str) -> Obj:
    try:
        return await hub.workspace.get(KINDS[kind], name, namespace)
    except NotFound as error:
        if not error.details:
            raise InspectError(
                f"the workspace {workspace_name(hub)} has no {kind}s: bind them with "
                f"`kubectl kcp bind apiexport {BINDINGS[kind]}` in that workspace"
            ) from None
    raise InspectError(f"{kind} {namespace}/{name} not found in the workspace {workspace_name(hub)}")


def _unknown_sizes(
    known: SchedulerSnapshot,
    explanation: SchedulingExplanation,
    request: MachineRequest,
    configured: SchedulerConfiguration,
) -> list[str]:
    """Requested flavors that are not in the catalogue, and so count without vcpus and memory, if a fitting Cluster
    limits these."""
    fitting = [known.state.engine.site(verdict.site) for verdict in explanation.verdicts if not verdict.refusal]
    if not any(site and (site.capacity.vcpus, site.capacity.memory) != (None, None) for site in fitting):
        return []
    wishes = {wish.id for item in request.items for wish in item.flavors if wish.spot is None}
    return sorted(wishes - configured.flavors.keys())


def _cluster(known: SchedulerSnapshot, explanation: SchedulingExplanation, verdict: SiteVerdict) -> ClusterVerdict:
    site = known.state.engine.site(verdict.site)
    assert site is not None
    refused = ClusterVerdict(
        *site_name(verdict.site),
        site.region,
        site.zone,
        not verdict.refusal,
        verdict.refusal or UNSET,
        UNSET if verdict.shortage is None else MissingAmount(*verdict.shortage),
    )
    if verdict.refusal:
        return refused
    return replace(
        refused,
        shortage=UNSET,
        replicas=sum(chosen.site == verdict.site for chosen in explanation.decision.chosen),
        room=verdict.number,
        flavors=list(verdict.flavors),
        score=verdict.total,
        scores={name: round(score, 3) for name, score in verdict.scores.items()},
    )


# --- current state --------------------------------------------------------------------------------


def _now(
    document: Obj,
    kind: str,
    seen: ObservedSubject,
    held: Iterable[Reservation],
    decision: SchedulingDecision | None,
    unwell: list[UnwellCluster],
) -> MachineState:
    status = document.get("status")
    status = status if isinstance(status, dict) else {}
    condition = find_condition(status, POD_SCHEDULED if kind == POD else PLACED)
    bound = [bound_replica(number, one.site, one.claim) for number, one in enumerate(held)]
    state = MachineState(bound, condition, unwell=unwell)
    if kind == POD:
        score = (document["metadata"].get("annotations") or {}).get(SCORE, "")
        state = replace(state, score=score, undelivered=find_condition(status, DELIVERED) or UNSET)
    if why := _why_ignored(document, kind):
        return replace(state, ignored_because=why)
    if seen.problem:
        return replace(state, agrees=_has_reason(condition, "Invalid", seen.problem))
    if decision is None:
        return state
    if not seen.pending:
        would = sorted((one.site for one in decision.chosen), key=str)
        return replace(state, agrees=would == sorted((one.site for one in held), key=str))
    message = add_refusal_reason(decision.message, decision.reasons, seen.refusal)
    agrees = not decision.is_placed and _has_reason(condition, "Unschedulable", message)
    return replace(state, waits=True, agrees=agrees)


def _unwell(known: SchedulerSnapshot, seen: ObservedSubject, held: Iterable[Reservation]) -> list[UnwellCluster]:
    sites = dict.fromkeys(one.site for one in held)
    return [found for site in sites if (found := known.health(site, seen.tolerations)) is not None]


def _has_reason(condition: Mapping[str, Any], reason: str, message: str) -> bool:
    actual = (condition.get("status"), condition.get("reason"), condition.get("message"))
    return actual == ("False", reason, message)


def _why_ignored(document: Obj, kind: str) -> str:
    """Why the scheduler ignores it; empty if it does not."""
    metadata, spec = document["metadata"], document["spec"]
    status = document.get("status") or {}
    phase = status.get("phase") if isinstance(status, dict) else ""
    if metadata.get("deletionTimestamp"):
        return "it is being deleted"
    if phase in FINISHED_PHASES:
        return f"it is finished: {phase}"
    if kind == POD and not (spec.get("nodeName") or spec.get("clusterName")):
        if spec.get("schedulingGates"):
            return "it has spec.schedulingGates"
        if spec.get("schedulerName") not in (None, *SCHEDULER_NAMES):
            return f"its spec.schedulerName is {spec['schedulerName']}"
    return ""
