"""Plans the pods and the status of one DaemonSet.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from farflung.apis.names import (
    DAEMON_SETS,
    NO_EXECUTE,
    NO_SCHEDULE,
    NOT_READY_TAINT,
    UNREACHABLE_TAINT,
    UNSCHEDULABLE_TAINT,
)
from farflung.controllers.workload.model.node_fitness import find_untolerated_taint, matches_node_affinity
from farflung.controllers.workload.model.objects import (
    annotations_of,
    is_terminating,
    labels,
    oldest_first,
    resolve_int_or_percent,
)
from farflung.controllers.workload.model.pods import (
    create_pod_step,
    delete_pod_step,
    is_available,
    is_finished,
    is_ready,
    pod_from_template,
    random_name,
    seconds_until_available,
    seconds_until_replacement,
)
from farflung.controllers.workload.model.steps import WorkloadPlan, WriteStep, soonest, status_plan
from farflung.machinery.errors import Obj

REVISION: Final = "controller-revision-hash"
GENERATION: Final = "pod-template-generation"
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
ALWAYS_TOLERATED: Final = (
    (NOT_READY_TAINT, NO_EXECUTE),
    (UNREACHABLE_TAINT, NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    (UNSCHEDULABLE_TAINT, NO_SCHEDULE),
)
NO_NETWORK: Final = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE)
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
NODE_NAME: Final = "metadata.name"


def target_node(pod: Obj) -> str:
    """The node that it is bound to, or that its node affinity names."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == NODE_NAME and field.get("operator") == "In" and field.get("values"):
                return str(field["values"][0])
    return ""


def should_run(daemon_set: Obj, node: Obj) -> bool:
    return _fits(daemon_set, node, (NO_SCHEDULE, NO_EXECUTE))


def should_continue_running(daemon_set: Obj, node: Obj) -> bool:
    """A running pod is deleted only for a NoExecute taint."""
    return _fits(daemon_set, node, (NO_EXECUTE,))


def _fits(daemon_set: Obj, node: Obj, effects: tuple[str, ...]) -> bool:
    """By name, node affinity and taints.  Pods of DaemonSets also run on nodes that are not ready."""
    spec = daemon_set["spec"]["template"].get("spec") or {}
    if spec.get("nodeName") not in (None, "", node["metadata"]["name"]) or not matches_node_affinity(spec, node):
        return False
    return find_untolerated_taint(node, _tolerations(spec), effects, states=False) is None


def _tolerations(spec: Obj) -> list[Obj]:
    given = list(spec.get("tolerations") or ())
    always = (*ALWAYS_TOLERATED, NO_NETWORK) if spec.get("hostNetwork") else ALWAYS_TOLERATED
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in always]
    return [*given, *(one for one in added if one not in given)]


def new_pod(daemon_set: Obj, node: str, hashed: str, suffix: str) -> Obj:
    name = random_name(f"{daemon_set['metadata']['name']}-", suffix)
    pod = pod_from_template(daemon_set, DAEMON_SETS, daemon_set["spec"]["template"], name)
    marks = {REVISION: hashed}
    if generation := annotations_of(daemon_set).get(TEMPLATE_GENERATION):
        marks[GENERATION] = generation
    pod["metadata"]["labels"] = {**labels(pod), **marks}
    spec = pod["spec"]
    spec["tolerations"] = _tolerations(spec)
    affinity = dict(spec.get("affinity") or {})
    bound = {"nodeSelectorTerms": [{"matchFields": [{"key": NODE_NAME, "operator": "In", "values": [node]}]}]}
    affinity["nodeAffinity"] = {**(affinity.get("nodeAffinity") or {}), REQUIRED: bound}
    spec["affinity"] = affinity
    return pod


def has_revision(pod: Obj, hashed: str) -> bool:
    return labels(pod).get(REVISION) == hashed


@dataclass(frozen=True, slots=True)
class NodePods:
    """A node, and the DaemonSet's pods on it, oldest first."""

    node: Obj
    pods: tuple[Obj, ...]
    starts: bool  #: a pod should run here
    stays: bool  #: a running pod may continue

    @property
    def running(self) -> tuple[Obj, ...]:
        return tuple(pod for pod in self.pods if not is_finished(pod) and not is_terminating(pod))


@dataclass(frozen=True, slots=True)
class DaemonSetState:
    owner: Obj
    nodes: tuple[NodePods, ...]
    elsewhere: tuple[Obj, ...]  #: pods on unknown nodes
    hashed: str  #: revision hash of the current template
    now: datetime

    @property
    def min_ready_seconds(self) -> int:
        return int(self.owner["spec"].get("minReadySeconds") or 0)

    @property
    def desired(self) -> int:
        return sum(entry.starts for entry in self.nodes)

    def is_available(self, pod: Obj) -> bool:
        return is_available(pod, self.min_ready_seconds, self.now)

    def allowed(self, what: str) -> int:
        """`maxSurge` or `maxUnavailable`."""
        rolling = (self.owner["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
        return resolve_int_or_percent(rolling.get(what), self.desired, round_up=True)

    @property
    def rolls(self) -> bool:
        return bool((self.owner["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate")


def observe(owner: Obj, pods: Iterable[Obj], nodes: Iterable[Obj], hashed: str, now: datetime) -> DaemonSetState:
    by_node: dict[str, list[Obj]] = {}
    for pod in oldest_first(pods):
        by_node.setdefault(target_node(pod), []).append(pod)
    entries = tuple(
        NodePods(
            node,
            tuple(by_node.pop(node["metadata"]["name"], ())),
            should_run(owner, node),
            should_continue_running(owner, node),
        )
        for node in sorted(nodes, key=lambda node: str(node["metadata"]["name"]))
    )
    return DaemonSetState(owner, entries, tuple(pod for left in by_node.values() for pod in left), hashed, now)


# --- pods -----------------------------------------------------------------------------------------


def plan_pods(state: DaemonSetState, suffix: Callable[[], str]) -> tuple[WriteStep, ...]:
    """First every node gets its pod; then old pods are updated."""
    lost = [pod for pod in state.elsewhere if not is_terminating(pod) and pod["spec"].get("nodeName")]
    steps = [delete_pod_step(pod) for pod in lost]
    for entry in state.nodes:
        steps += _node_steps(state, entry, suffix)
    if steps or not state.rolls:
        return tuple(steps)
    return tuple(_surge_steps(state, suffix) if state.allowed("maxSurge") else _replace_steps(state))


def _node_steps(state: DaemonSetState, entry: NodePods, suffix: Callable[[], str]) -> list[WriteStep]:
    staying = [pod for pod in entry.pods if not is_terminating(pod)]
    if not entry.stays:
        return [delete_pod_step(pod) for pod in staying]
    if entry.starts and not entry.pods:
        return [_create_step(state, entry, suffix)]
    ended = [pod for pod in staying if is_finished(pod) and seconds_until_replacement(pod, state.now) <= 0]
    return [delete_pod_step(pod) for pod in (*ended, *_excess_pods(state, entry))]


def _create_step(state: DaemonSetState, entry: NodePods, suffix: Callable[[], str]) -> WriteStep:
    return create_pod_step(new_pod(state.owner, entry.node["metadata"]["name"], state.hashed, suffix()))


def _excess_pods(state: DaemonSetState, entry: NodePods) -> Sequence[Obj]:
    """All but the oldest; with maxSurge, all but the oldest of each revision."""
    running = entry.running
    if not state.allowed("maxSurge"):
        return running[1:]
    new = [pod for pod in running if has_revision(pod, state.hashed)]
    old = [pod for pod in running if not has_revision(pod, state.hashed)]
    replaced = bool(new) and (state.is_available(new[0]) or not (old and state.is_available(old[0])))
    return (*new[1:], *(old if replaced else old[1:]))


def _replace_steps(state: DaemonSetState) -> list[WriteStep]:
    """Delete unavailable old pods at once, and available ones within maxUnavailable."""
    left = state.allowed("maxUnavailable")
    broken: list[Obj] = []
    candidates: list[Obj] = []
    for entry in state.nodes:
        if not entry.starts:
            continue
        running = entry.running
        if not running or not state.is_available(running[0]):
            left -= 1
        if running and not has_revision(running[0], state.hashed):
            (candidates if state.is_available(running[0]) else broken).append(running[0])
    return [delete_pod_step(pod) for pod in (*broken, *candidates[: max(0, left)])]


def _surge_steps(state: DaemonSetState, suffix: Callable[[], str]) -> list[WriteStep]:
    """Create new pods next to old ones within maxSurge."""
    left = state.allowed("maxSurge")
    broken: list[NodePods] = []
    candidates: list[NodePods] = []
    for entry in state.nodes:
        running = entry.running
        if not entry.starts or not running:
            continue
        fresh = [pod for pod in running if has_revision(pod, state.hashed)]
        if fresh and len(running) > 1:
            left -= 1
        if not fresh:
            (candidates if state.is_available(running[0]) else broken).append(entry)
    return [_create_step(state, entry, suffix) for entry in (*broken, *candidates[: max(0, left)])]


# --- status ---------------------------------------------------------------------------------------


def plan_status(state: DaemonSetState) -> WorkloadPlan:
    owner = state.owner
    desired = [entry for entry in state.nodes if entry.starts]
    first = [entry.pods[0] for entry in desired if entry.pods]
    ready = [pod for pod in first if is_ready(pod)]
    available = sum(state.is_available(pod) for pod in ready)
    counts = {
        "observedGeneration": owner["metadata"].get("generation", 0),
        "updatedNumberScheduled": sum(has_revision(pod, state.hashed) for pod in first),
        "numberAvailable": available,
        "numberUnavailable": len(desired) - available,
        "collisionCount": (owner.get("status") or {}).get("collisionCount") or 0,
    }
    status: Obj = {
        "currentNumberScheduled": len(first),
        "numberMisscheduled": sum(bool(entry.pods) for entry in state.nodes if not entry.starts),
        "desiredNumberScheduled": len(desired),
        "numberReady": len(ready),
    } | {name: count for name, count in counts.items() if count}
    ended = [pod for entry in state.nodes for pod in entry.pods if is_finished(pod) and not is_terminating(pod)]
    again = soonest(
        seconds_until_available(ready, state.min_ready_seconds, state.now),
        *(max(0, seconds_until_replacement(pod, state.now)) for pod in ended),
    )
    return status_plan(DAEMON_SETS, owner, status, again)


def revisions_in_use(state: DaemonSetState, revisions: Iterable[Obj]) -> frozenset[str]:
    hashes = {state.hashed, *(labels(pod).get(REVISION, "") for entry in state.nodes for pod in entry.pods)}
    return frozenset(one["metadata"]["name"] for one in revisions if labels(one).get(REVISION) in hashes)
