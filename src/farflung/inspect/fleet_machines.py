"""Clusters, virtual machines and stacks in `farflung status`.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from farflung.apis.globalscheduler.names import DELIVERED, TAKES_MACHINES
from farflung.apis.names import POD_SCHEDULED
from farflung.inspect import fields
from farflung.inspect.results import Result
from farflung.inspect.scheduler_lease import SchedulerStatus
from farflung.machinery.errors import Obj
from farflung.machines.failover import HEALTH_TAINTS, remove_refusal_reason
from farflung.machines.inventory import TARGET
from farflung.machines.statuses import PLACED

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
