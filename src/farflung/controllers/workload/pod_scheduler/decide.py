"""Which node a pod gets, or why none.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from farflung.controllers.workload.node_fitness import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PODS,
    UNSCHEDULABLE,
    Amounts,
    Port,
    added,
    allocatable,
    host_ports,
    is_chosen,
    requests,
    room_for_pods,
    untolerated,
)
from farflung.controllers.workload.objects import created, is_terminating
from farflung.controllers.workload.pods import is_finished
from farflung.machinery.errors import Obj

SCHEDULER: Final = "default-scheduler"
NO_NODES: Final = "no nodes available to schedule pods"
UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"


def is_waiting(pod: Obj) -> bool:
    """For us to give it a node."""
    spec = pod["spec"]
    mine = (spec.get("schedulerName") or SCHEDULER) == SCHEDULER
    free = not spec.get("nodeName") and not spec.get("schedulingGates")
    return mine and free and not is_finished(pod) and not is_terminating(pod)


def occupies(pod: Obj) -> bool:
    """Room on its node."""
    return bool(pod["spec"].get("nodeName")) and not is_finished(pod)


def order(pod: Obj) -> tuple[Any, ...]:
    metadata = pod["metadata"]
    return (-(pod["spec"].get("priority") or 0), created(pod), metadata["namespace"], metadata["name"])


@dataclass(slots=True)
class Room:
    """A node, and what is taken of it."""

    node: Obj
    taken: Amounts = field(default_factory=dict)
    ports: list[Port] = field(default_factory=list)
    pods: int = 0

    @property
    def name(self) -> str:
        return str(self.node["metadata"]["name"])

    def take(self, pod: Obj) -> None:
        self.taken = added(self.taken, requests(pod))
        self.ports += host_ports(pod)
        self.pods += 1


def rooms(nodes: Iterable[Obj], pods: Iterable[Obj]) -> list[Room]:
    """`pods`: all there are."""
    found = {room.name: room for room in map(Room, nodes) if not is_terminating(room.node)}
    for pod in pods:
        if occupies(pod) and (room := found.get(pod["spec"]["nodeName"])) is not None:
            room.take(pod)
    return [found[name] for name in sorted(found)]


@dataclass(frozen=True, slots=True)
class Choice:
    """A node, or a sentence that says why there is none."""

    node: str = ""
    why: str = ""


def choose(pod: Obj, rooms: Sequence[Room], unbound: str = "") -> Choice:
    """The node with the fewest pods of those that fit.  `unbound`: what is wrong with the pod's claims."""
    if not rooms:
        return Choice(why=NO_NODES)
    if unbound:
        return Choice(why=f"0/{len(rooms)} nodes are available: {unbound}.")
    reasons = [list(misfits(pod, room)) for room in rooms]
    fitting = [room for room, why in zip(rooms, reasons, strict=True) if not why]
    if fitting:
        return Choice(min(fitting, key=lambda room: room.pods).name)
    counts: dict[str, int] = {}
    for why in reasons:
        for reason in why:
            counts[reason] = counts.get(reason, 0) + 1
    said = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return Choice(why=f"0/{len(rooms)} nodes are available: {said}.")


def misfits(pod: Obj, room: Room) -> Iterator[str]:
    """Why the node does not fit: the first thing that is wrong, or everything there is too little of."""
    reason = _refusal(pod, room)
    if reason:
        yield reason
        return
    limit, most = allocatable(room.node), room_for_pods(room.node)
    if most is not None and room.pods + 1 > most:
        yield "Too many pods"
    for name, amount in sorted(requests(pod).items()):
        if name != PODS and amount + room.taken.get(name, 0) > limit.get(name, 0):
            yield f"Insufficient {name}"


def _refusal(pod: Obj, room: Room) -> str:
    spec, node = pod["spec"], room.node
    taint = untolerated(node, spec.get("tolerations") or (), (NO_SCHEDULE, NO_EXECUTE))
    if taint is not None and taint.get("key") == UNSCHEDULABLE:
        return "node(s) were unschedulable"
    if taint is not None:
        return f"node(s) had untolerated taint {{{taint.get('key')}: {taint.get('value') or ''}}}"
    if not is_chosen(spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    if any(port.clashes(taken) for port in host_ports(pod) for taken in room.ports):
        return "node(s) didn't have free ports for the requested pod ports"
    return ""


def claim_names(pod: Obj) -> list[str]:
    """Of the PersistentVolumeClaims that it needs."""
    found = []
    for volume in pod["spec"].get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            found.append(claim["claimName"])
        elif "ephemeral" in volume:
            found.append(f"{pod['metadata']['name']}-{volume['name']}")
    return found


def wrong_claims(names: Iterable[str], phases: Mapping[str, str]) -> str:
    """What a pod that needs them has to wait for.  `phases`: of the claims of its namespace, by name."""
    for name in names:
        if name not in phases:
            return f'persistentvolumeclaim "{name}" not found'
        if phases[name] != "Bound":
            return UNBOUND
    return ""
