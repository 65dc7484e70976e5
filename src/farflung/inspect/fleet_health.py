"""The health of a fleet from its objects: edges, placements, copies, Clusters and virtual machines.  Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from farflung.apis.edge.names import (
    CONFIRM_WITHDRAWAL,
    EDGE_PLACEMENTS,
    EDGE_REACHABLE,
    ORPHANS_PRESENT,
    SELECTED_COUNT,
    STALE_AFTER,
    SUMMARY_PLACEMENT,
    WORKLOAD_PROJECTED,
)
from farflung.apis.globalscheduler.names import DELIVERED, TAKES_MACHINES
from farflung.apis.kcp.names import HEARTBEAT_HEALTHY
from farflung.apis.names import POD_SCHEDULED
from farflung.controllers.edge_scheduler.decide import READY
from farflung.inspect import fields
from farflung.inspect.results import Result
from farflung.inspect.scheduler_model import SchedulerStatus
from farflung.lib.words import count
from farflung.machinery.errors import Obj
from farflung.machinery.label_index import SelectorIndex
from farflung.machinery.times import format_seconds
from farflung.machines.failover import HEALTH_TAINTS, remove_refusal_reason
from farflung.machines.inventory import TARGET
from farflung.machines.statuses import PLACED
from farflung.placement.names import GroupResource, ObjectRef, mailbox_name
from farflung.placement.types import parse_location


class EdgeHealth(StrEnum):
    """The worst first."""

    STALE = "stale"  #: the last heartbeat is too old
    UNREACHABLE = "unreachable"  #: the syncer does not reach its cluster
    NOT_READY = "not ready"  #: for a reason that the SyncTarget has
    OFFLINE = "offline"  #: no heartbeat yet
    READY = "ready"


class ObjectCounts(Result, frozen=True):
    """Objects at an edge."""

    synced: int
    pending: int
    failing: int
    orphaned: int
    upsynced: int


class Edge(Result, frozen=True):
    """None: not visible."""

    name: str
    cluster: str
    uid: str
    mailbox: str
    locations: list[str] | None
    state: EdgeHealth
    heard: str | None
    objects: ObjectCounts | None
    problems: list[str]
    remarks: list[str]
    workspace: str = ""

    @property
    def is_well(self) -> bool:
        return self.state is EdgeHealth.READY and not self.problems


#: without a heartbeat in a mailbox, after which its syncer counts as offline
HEARTBEAT_PERIOD: Final = timedelta(seconds=STALE_AFTER)
RANKS: Final = {state: rank for rank, state in enumerate(EdgeHealth)}


def state_of(target: Obj) -> EdgeHealth:
    """As the hub determined it with its own clock."""
    if fields.condition(target, "Ready").get("status") == "True":
        return EdgeHealth.READY
    if fields.moment(target, "status", "lastSyncerHeartbeatTime") is None:
        return EdgeHealth.OFFLINE
    if fields.condition(target, HEARTBEAT_HEALTHY).get("status") == "False":
        return EdgeHealth.STALE
    if fields.condition(target, EDGE_REACHABLE).get("status") == "False":
        return EdgeHealth.UNREACHABLE
    return EdgeHealth.NOT_READY


def edges(
    targets: Iterable[Obj],
    locations: Iterable[Obj] | None,
    mailboxes: Mapping[str, str] | None,
    reports: Mapping[str, Obj] | None,
    now: datetime,
) -> list[Edge]:
    """The worst first.  `mailboxes`: name → logical cluster; `reports`: SyncerConfigs by logical
    cluster; None: not visible."""
    selecting = None if locations is None else LocationIndex(locations)
    found = [_edge(one, selecting, mailboxes, reports, now) for one in targets]
    return sorted(found, key=lambda one: (RANKS[one.state], not one.problems, one.cluster, one.name))


class LocationIndex:
    """The Locations that select a SyncTarget."""

    def __init__(self, locations: Iterable[Obj]) -> None:
        self._names: dict[str, list[str]] = {}
        self._indexes: dict[str, SelectorIndex] = {}
        for one in locations:
            try:
                location = parse_location(one)
            except msgspec.MsgspecError:
                continue
            names = self._names.setdefault(location.key.cluster, [])
            if location.instances is not None:
                index = self._indexes.setdefault(location.key.cluster, SelectorIndex())
                index.put(len(names), location.instances)
            names.append(location.key.name)

    def locations_of(self, target: Obj) -> list[str]:
        cluster = fields.cluster_of(target)
        if cluster not in self._indexes:
            return []
        found = self._indexes[cluster].matching(fields.texts(target, "metadata", "labels"))
        return sorted(self._names[cluster][at] for at in found)


def _edge(
    target: Obj,
    selecting: LocationIndex | None,
    mailboxes: Mapping[str, str] | None,
    reports: Mapping[str, Obj] | None,
    now: datetime,
) -> Edge:
    cluster, uid, state = fields.cluster_of(target), fields.text(target, "metadata", "uid"), state_of(target)
    mailbox = mailbox_name(cluster, uid)
    inside = (mailboxes or {}).get(mailbox, "")
    report = (reports or {}).get(inside) if inside else None
    heard = fields.moment(target, "status", "lastSyncerHeartbeatTime")
    beat = fields.moment(report, "status", "lastSyncerHeartbeatTime")
    source, remarks = target, []
    if report is not None and beat is not None and _is_uncopied(state, heard, beat, now):
        source, heard, state = report, beat, EdgeHealth.READY
        if fields.condition(report, EDGE_REACHABLE).get("status") == "False":
            state = EdgeHealth.UNREACHABLE
        remarks = ["the SyncTarget lacks this report; is the mailbox controller running?"]
    missing = [] if mailboxes is None or mailbox in mailboxes else ["it has no mailbox yet"]
    return Edge(
        fields.name_of(target),
        cluster,
        uid,
        mailbox,
        None if selecting is None else selecting.locations_of(target),
        state,
        None if heard is None else format_seconds(heard),
        _objects(report),
        [*_why(source, state), *missing, *_reported(report)],
        [*remarks, *_remarks(target, now)],
    )


def _is_uncopied(state: EdgeHealth, heard: datetime | None, beat: datetime, now: datetime) -> bool:
    """Whether only the SyncTarget lacks heartbeats, because nothing copies them from the mailbox."""
    lacks_heartbeats = state in (EdgeHealth.OFFLINE, EdgeHealth.STALE)
    return lacks_heartbeats and (heard is None or heard < beat) and now - beat < HEARTBEAT_PERIOD


def _objects(report: Obj | None) -> ObjectCounts | None:
    """None if there is no report."""
    if not isinstance(fields.at(report, "status", "objects"), dict):
        return None
    names = ObjectCounts.__struct_fields__
    return ObjectCounts(*(fields.number(report, "status", "objects", name) for name in names))


def _why(source: Obj, state: EdgeHealth) -> Iterator[str]:
    """`source`: the SyncTarget or the report that has the conditions."""
    if state is EdgeHealth.OFFLINE:
        yield "no syncer has reported yet"
    elif state in (EdgeHealth.UNREACHABLE, EdgeHealth.NOT_READY):
        ready = fields.condition(source, "Ready") or fields.condition(source, EDGE_REACHABLE)
        yield describe(ready) or "no reason in its conditions"


def describe(condition: Obj) -> str:
    """`Reason: message`"""
    return describe_reason(fields.text(condition, "reason"), fields.text(condition, "message"))


def describe_reason(reason: str, message: str) -> str:
    return fields.line(": ".join(filter(None, (reason, message))))


def _reported(report: Obj | None) -> Iterator[str]:
    if failing := fields.number(report, "status", "objects", "failing"):
        first = next(fields.objects(report, "status", "problems"), None)
        example = "" if first is None else f"; {_ref(first)}: {describe(first)}"
        yield f"{count(failing, 'object')} failing{fields.line(example)}"
    if orphaned := fields.number(report, "status", "objects", "orphaned"):
        yield f"{count(orphaned, 'object')} orphaned"
    for name, problem in ((ORPHANS_PRESENT, "True"), ("HubUnchanged", "False")):  # earlier syncers report the second
        condition = fields.condition(report, name)
        if condition.get("status") == problem:
            yield describe(condition)


def _ref(problem: Obj) -> ObjectRef:
    resource = GroupResource(fields.text(problem, "group"), fields.text(problem, "resource"))
    return ObjectRef(resource, fields.text(problem, "namespace"), fields.text(problem, "name"))


def _remarks(target: Obj, now: datetime) -> Iterator[str]:
    """Requested states."""
    if fields.at(target, "spec", "unschedulable") is True:
        yield "unschedulable"
    evicted = fields.moment(target, "spec", "evictAfter")
    if evicted is not None and evicted <= now:
        yield "evicting"
    if fields.text(target, "metadata", "deletionTimestamp"):
        yield "being deleted"


BEHIND: Final = "NotLookedAt"
_CONFIRMATION: Final = re.compile(re.escape(CONFIRM_WITHDRAWAL) + r': "([0-9]{1,10}/[0-9]{1,10})"')


class ConditionProblem(Result, frozen=True):
    """A condition that is False, or that a controller has not written yet."""

    type: str
    severity: str
    reason: str
    message: str
    since: str


class PlacementHealth(Result, frozen=True):
    name: str
    cluster: str
    matching_locations: int
    selected_objects: int | None  #: None: not counted yet
    problems: list[ConditionProblem]
    confirmation: str  #: of a held withdrawal
    left_out: str = ""  #: why it is ready without some matching Locations
    workspace: str = ""
    confirm_with: str = ""  #: the command that confirms it


class BrokenCopy(Result, frozen=True):
    cluster: str
    location_name: str
    sync_target_name: str
    reason: str
    message: str
    since: str


class CopiesHealth(Result, frozen=True):
    """A StatusSummary: numbers of copies of one object."""

    name: str
    cluster: str
    namespace: str
    placement: str
    kind: str
    object: str
    expected: int
    reporting: int
    broken: int
    missing: int
    stale: int
    progressing: int
    first: BrokenCopy | None
    workspace: str = ""

    @property
    def has_problems(self) -> bool:
        return bool(self.broken or self.missing or self.stale)


# --- placements -----------------------------------------------------------------------------------


def placements(documents: Iterable[Obj]) -> list[PlacementHealth]:
    """Held withdrawals first, then other problems."""
    return sorted(
        map(_placement, documents), key=lambda one: (not one.confirmation, not one.problems, one.cluster, one.name)
    )


def _placement(document: Obj) -> PlacementHealth:
    problems = list(_problems(document))
    held = (_CONFIRMATION.search(one.message) for one in problems)
    return PlacementHealth(
        fields.name_of(document),
        fields.cluster_of(document),
        fields.number(document, "status", "matchingLocationCount"),
        selected if isinstance(selected := fields.at(document, "status", SELECTED_COUNT), int) else None,
        problems,
        next((one[1] for one in held if one), ""),
        _left_out(document),
    )


def _left_out(document: Obj) -> str:
    ready = fields.condition(document, READY)
    return fields.text(ready, "message") if ready.get("status") == "True" else ""


def _problems(document: Obj) -> Iterator[ConditionProblem]:
    for one in fields.objects(document, "status", "conditions"):
        if one.get("status") == "False":
            severity = fields.text(one, "severity") or "Error"
            reason, message = fields.text(one, "reason"), fields.text(one, "message")
            yield ConditionProblem(
                fields.text(one, "type"), severity, reason, message, fields.text(one, "lastTransitionTime")
            )
    if fields.text(document, "metadata", "deletionTimestamp"):
        return
    seen = fields.number(document, "status", "specGeneration")
    if not fields.condition(document, READY) or seen != fields.number(document, "metadata", "generation"):
        message = "the scheduler has not processed it yet; is it running?"
        yield ConditionProblem(READY, "Warning", BEHIND, message, "")
    elif not fields.condition(document, WORKLOAD_PROJECTED):
        message = "the placement translator has not processed it yet; is it running?"
        yield ConditionProblem(WORKLOAD_PROJECTED, "Warning", BEHIND, message, "")


# --- copies ---------------------------------------------------------------------------------------


def summaries(documents: Iterable[Obj]) -> list[CopiesHealth]:
    """The worst first."""
    return sorted(
        map(_summary, documents),
        key=lambda one: (-one.broken, -one.missing, -one.stale, one.cluster, one.namespace, one.name),
    )


def _summary(document: Obj) -> CopiesHealth:
    names = ("expected", "reporting", "broken", "missing", "stale", "progressing")
    expected, reporting, broken, missing, stale, progressing = (
        fields.number(document, "destinations", name) for name in names
    )
    return CopiesHealth(
        fields.name_of(document),
        fields.cluster_of(document),
        fields.text(document, "metadata", "namespace"),
        _owner(document),
        fields.text(document, "subject", "kind"),
        "/".join(filter(None, (fields.text(document, "subject", key) for key in ("namespace", "name")))),
        expected,
        reporting,
        broken,
        missing,
        stale,
        progressing,
        next(map(_copy, fields.objects(document, "broken")), None),
    )


def _owner(summary: Obj) -> str:
    """The placement.  The label may truncate its name; the owner reference does not."""
    named = (
        fields.text(one, "name")
        for one in fields.objects(summary, "metadata", "ownerReferences")
        if one.get("kind") == EDGE_PLACEMENTS.kind
    )
    return next(named, "") or fields.texts(summary, "metadata", "labels").get(SUMMARY_PLACEMENT, "")


def _copy(broken: Obj) -> BrokenCopy:
    keys = ("cluster", "locationName", "syncTargetName", "reason", "message", "since")
    return BrokenCopy(*(fields.text(broken, key) for key in keys))


UNWELL: Final = frozenset(health.value for health in HEALTH_TAINTS)
UNKNOWN: Final = "Unknown"
FAILED: Final = "Failed"
BOUND: Final = "bound"
WAITING: Final = "waiting"
OUTDATED: Final = "outdated"  #: bound for an earlier spec; the current one does not fit
STATES: Final = (BOUND, "undelivered", OUTDATED, WAITING, "failed", "ended")
WRONG: Final = ("undelivered", OUTDATED, WAITING)


class ClusterSummary(Result, frozen=True):
    """A Cluster of the global scheduler."""

    cluster: str
    namespace: str
    name: str
    phase: str
    stacks: int
    why: str
    workspace: str = ""

    @property
    def is_well(self) -> bool:
        return self.phase not in UNWELL and not self.why


class MachineHealth(Result, frozen=True):
    """A virtual machine or an Allocation."""

    kind: str
    cluster: str
    namespace: str
    name: str
    state: str
    bound_to: list[str]  #: names of Clusters
    why: str
    workspace: str = ""

    @property
    def is_well(self) -> bool:
        return self.state not in WRONG


class ClustersHealth(Result, frozen=True):
    all: int
    phases: dict[str, int]
    unwell: list[str]
    listed: list[ClusterSummary]


class MachinesHealth(Result, frozen=True):
    all: int
    states: dict[str, int]
    listed: list[MachineHealth]


class CommonReason(Result, frozen=True):
    state: str
    message: str
    number: int


class SchedulingHealth(Result, frozen=True):
    clusters: ClustersHealth
    machines: MachinesHealth
    reasons: list[CommonReason]
    scheduler: SchedulerStatus | None  #: None: not visible

    @property
    def is_well(self) -> bool:
        if self.scheduler is not None and not self.scheduler.is_well:
            return False
        return not self.clusters.unwell and not any(self.machines.states[state] for state in WRONG)

    def without_healthy(self) -> SchedulingHealth:
        clusters = [one for one in self.clusters.listed if not one.is_well]
        machines = [one for one in self.machines.listed if not one.is_well]
        return replace(
            self, clusters=replace(self.clusters, listed=clusters), machines=replace(self.machines, listed=machines)
        )


def machines(
    clusters: Iterable[Obj],
    pods: Iterable[Obj],
    allocations: Iterable[Obj],
    scheduler: SchedulerStatus | None = None,
) -> SchedulingHealth | None:
    """Everything, without workspace paths.  None: no Clusters, machines or files."""
    there = sorted(map(_cluster, clusters), key=_order)
    found = [_machine(one, "Pod", *_pod(one)) for one in pods if _is_machine(one)]
    found += [_machine(one, "Allocation", *_allocation(one)) for one in allocations]
    if not there and not found and not (scheduler and scheduler.files):
        return None
    states = Counter(one.state for one in found)
    return SchedulingHealth(
        ClustersHealth(
            len(there),
            dict(sorted(Counter(one.phase for one in there).items())),
            sorted({one.name for one in there if not one.is_well}),
            there,
        ),
        MachinesHealth(
            len(found),
            {state: states[state] for state in STATES},
            sorted(found, key=lambda one: (one.is_well, *_order(one))),
        ),
        _reasons(found),
        scheduler,
    )


def _reasons(found: Iterable[MachineHealth]) -> list[CommonReason]:
    """Reasons of problems, the most frequent first.  Reasons that differ only in the machine's name count as one."""
    alike: dict[tuple[str, str], list[MachineHealth]] = {}
    for one in found:
        if not one.is_well and one.why:
            why = remove_refusal_reason(one.why)
            message = why.replace(f'"{one.name}"', "NAME") if one.name else why
            alike.setdefault((one.state, message), []).append(one)
    common = sorted(alike.items(), key=lambda each: (-len(each[1]), each[0]))
    return [
        CommonReason(state, some[0].why if len(some) == 1 else message, len(some)) for (state, message), some in common
    ]


def _order(one: ClusterSummary | MachineHealth) -> tuple[str, str, str]:
    return one.cluster, one.namespace, one.name


def _key(obj: Obj) -> tuple[str, str, str]:
    return fields.cluster_of(obj), fields.text(obj, "metadata", "namespace"), fields.name_of(obj)


def _cluster(obj: Obj) -> ClusterSummary:
    phase = fields.text(obj, "status", "phase") or UNKNOWN
    why = _message(obj, TARGET) or _message(obj, TAKES_MACHINES)
    return ClusterSummary(*_key(obj), phase, fields.number(obj, "status", "stacks"), why)


def _is_machine(pod: Obj) -> bool:
    return isinstance(fields.at(pod, "spec", "virtualMachine"), dict)


def _machine(obj: Obj, kind: str, state: str, why: str) -> MachineHealth:
    return MachineHealth(kind, *_key(obj), state, _places(obj), why)


def _places(obj: Obj) -> list[str]:
    """Names of the Clusters of its replicas."""
    at = fields.text(obj, "spec", "nodeName") or fields.text(obj, "spec", "clusterName")
    placements = fields.objects(obj, "status", "placements")
    return [at] if at else [name for one in placements if (name := fields.text(one, "cluster", "name"))]


def _pod(pod: Obj) -> tuple[str, str]:
    """State and reason."""
    phase = fields.text(pod, "status", "phase")
    if phase in (FAILED, "Succeeded"):
        return ("failed" if phase == FAILED else "ended"), ""
    if not (fields.text(pod, "spec", "nodeName") or fields.text(pod, "spec", "clusterName")):
        return WAITING, _message(pod, POD_SCHEDULED)
    why = _message(pod, DELIVERED)
    return ("undelivered" if why else BOUND), why


def _allocation(allocation: Obj) -> tuple[str, str]:
    if fields.text(allocation, "status", "phase") == FAILED:
        return "failed", ""
    is_bound = any(fields.objects(allocation, "status", "placements"))
    if is_bound and fields.condition(allocation, PLACED).get("status") != "False":
        return BOUND, ""
    return (OUTDATED if is_bound else WAITING), _message(allocation, PLACED)


def _message(obj: Obj, type: str) -> str:
    condition = fields.condition(obj, type)
    return fields.line(fields.text(condition, "message")) if condition.get("status") == "False" else ""
