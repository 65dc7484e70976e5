"""Chooses a node for a pod, or explains why no node fits.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from farflung.apis.names import NO_EXECUTE, NO_SCHEDULE, UNSCHEDULABLE_TAINT
from farflung.controllers.workload.model.node_fitness import (
    PODS,
    Amounts,
    HostPort,
    add_amounts,
    allocatable,
    find_untolerated_taint,
    host_ports,
    matches_node_affinity,
    pod_capacity,
    requests,
)
from farflung.controllers.workload.model.objects import creation_time, is_terminating
from farflung.controllers.workload.model.pods import is_finished
from farflung.machinery.errors import Obj

SCHEDULER: Final = "default-scheduler"
NO_NODES: Final = "no nodes available to schedule pods"
UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"


def is_waiting(pod: Obj) -> bool:
    """Whether the pod needs a node from this scheduler."""
    spec = pod["spec"]
    mine = (spec.get("schedulerName") or SCHEDULER) == SCHEDULER
    free = not spec.get("nodeName") and not spec.get("schedulingGates")
    return mine and free and not is_finished(pod) and not is_terminating(pod)


def occupies_node(pod: Obj) -> bool:
    return bool(pod["spec"].get("nodeName")) and not is_finished(pod)


def queue_order(pod: Obj) -> tuple[Any, ...]:
    metadata = pod["metadata"]
    return (-(pod["spec"].get("priority") or 0), creation_time(pod), metadata["namespace"], metadata["name"])


@dataclass(slots=True)
class NodeInfo:
    """A node, and the resources that its pods use."""

    node: Obj
    taken: Amounts = field(default_factory=dict)
    ports: list[HostPort] = field(default_factory=list)
    pods: int = 0

    @property
    def name(self) -> str:
        return str(self.node["metadata"]["name"])

    def take(self, pod: Obj) -> None:
        self.taken = add_amounts(self.taken, requests(pod))
        self.ports += host_ports(pod)
        self.pods += 1


def node_infos(nodes: Iterable[Obj], pods: Iterable[Obj]) -> list[NodeInfo]:
    found = {info.name: info for info in map(NodeInfo, nodes) if not is_terminating(info.node)}
    for pod in pods:
        if occupies_node(pod) and (info := found.get(pod["spec"]["nodeName"])) is not None:
            info.take(pod)
    return [found[name] for name in sorted(found)]


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """A node, or a message that explains why no node fits."""

    node: str = ""
    why: str = ""


def choose(pod: Obj, nodes: Sequence[NodeInfo], unbound: str = "") -> NodeChoice:
    """The fitting node with the fewest pods.  `unbound`: the problem with the pod's claims."""
    if not nodes:
        return NodeChoice(why=NO_NODES)
    if unbound:
        return NodeChoice(why=f"0/{len(nodes)} nodes are available: {unbound}.")
    reasons = [list(node_problems(pod, info)) for info in nodes]
    fitting = [info for info, why in zip(nodes, reasons, strict=True) if not why]
    if fitting:
        return NodeChoice(min(fitting, key=lambda info: info.pods).name)
    counts: dict[str, int] = {}
    for why in reasons:
        for reason in why:
            counts[reason] = counts.get(reason, 0) + 1
    summary = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return NodeChoice(why=f"0/{len(nodes)} nodes are available: {summary}.")


def node_problems(pod: Obj, info: NodeInfo) -> Iterator[str]:
    """Why the node does not fit: the first mismatch, or all insufficient resources."""
    reason = _first_problem(pod, info)
    if reason:
        yield reason
        return
    limit, most = allocatable(info.node), pod_capacity(info.node)
    if most is not None and info.pods + 1 > most:
        yield "Too many pods"
    for name, amount in sorted(requests(pod).items()):
        if name != PODS and amount + info.taken.get(name, 0) > limit.get(name, 0):
            yield f"Insufficient {name}"


def _first_problem(pod: Obj, info: NodeInfo) -> str:
    spec, node = pod["spec"], info.node
    taint = find_untolerated_taint(node, spec.get("tolerations") or (), (NO_SCHEDULE, NO_EXECUTE))
    if taint is not None and taint.get("key") == UNSCHEDULABLE_TAINT:
        return "node(s) were unschedulable"
    if taint is not None:
        return f"node(s) had untolerated taint {{{taint.get('key')}: {taint.get('value') or ''}}}"
    if not matches_node_affinity(spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    if any(port.conflicts(taken) for port in host_ports(pod) for taken in info.ports):
        return "node(s) didn't have free ports for the requested pod ports"
    return ""


def claim_names(pod: Obj) -> list[str]:
    """Names of the PersistentVolumeClaims that the pod uses."""
    found = []
    for volume in pod["spec"].get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            found.append(claim["claimName"])
        elif "ephemeral" in volume:
            found.append(f"{pod['metadata']['name']}-{volume['name']}")
    return found


def find_claim_problem(names: Iterable[str], phases: Mapping[str, str]) -> str:
    """The first claim that is missing or unbound, as a message.  `phases`: by claim name."""
    for name in names:
        if name not in phases:
            return f'persistentvolumeclaim "{name}" not found'
        if phases[name] != "Bound":
            return UNBOUND
    return ""
