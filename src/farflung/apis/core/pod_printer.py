"""What `kubectl get pods` shows.  The status of a pod is told from its phase, its conditions and all its containers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from farflung.apis.printing import (
    NOTHING,
    age_of,
    condition_status,
    deleting,
    described,
    moment,
    name_of,
    part,
)
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Column, Printer

FINISHED: Final = {
    "Succeeded": [
        {
            "type": "Completed",
            "status": "True",
            "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        }
    ],
    "Failed": [{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}],
}


@dataclass(slots=True)
class Summary:
    """What the containers of a pod add up to."""

    reason: str
    ready: int = 0
    restarts: int = 0
    last_restart: datetime | None = None

    def count_restarts(self, container: Obj) -> None:
        self.restarts += container.get("restartCount", 0)
        finished = moment(part(container, "lastState", "terminated").get("finishedAt"))
        if finished and (self.last_restart is None or finished > self.last_restart):
            self.last_restart = finished

    def restarts_text(self, now: datetime) -> str:
        if self.restarts and self.last_restart:
            return f"{self.restarts} ({times.human(now - self.last_restart)} ago)"
        return str(self.restarts)


def pod_cells(pod: Obj, now: datetime) -> list[Any]:
    spec, status = part(pod, "spec"), part(pod, "status")
    sidecars = sidecar_names(spec)
    summary = summarize(pod, sidecars)
    addresses = status.get("podIPs") or [{"ip": status.get("podIP")}]
    return [
        name_of(pod),
        f"{summary.ready}/{len(spec.get('containers') or ()) + len(sidecars)}",
        summary.reason,
        summary.restarts_text(now),
        age_of(pod, now),
        addresses[0].get("ip") or NOTHING,
        spec.get("nodeName") or NOTHING,
        status.get("nominatedNodeName") or NOTHING,
        readiness_gates(spec, status),
    ]


def sidecar_names(spec: Obj) -> frozenset[str]:
    """The init containers that keep running."""
    containers = spec.get("initContainers") or ()
    return frozenset(one.get("name", "") for one in containers if one.get("restartPolicy") == "Always")


def summarize(pod: Obj, sidecars: frozenset[str]) -> Summary:
    status = part(pod, "status")
    summary = initialization(pod, sidecars)
    if not summary.reason or condition_status(status.get("conditions"), "Initialized") == "True":
        started = summary.ready
        summary = running(status, summary.reason or phase_reason(status), sidecars)
        summary.ready += started
    if deleting(pod):
        if status.get("reason") == "NodeLost":
            summary.reason = "Unknown"
        elif status.get("phase") not in FINISHED:
            summary.reason = "Terminating"
    return summary


def phase_reason(status: Obj) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            return "SchedulingGated"
    reason: str = status.get("reason") or status.get("phase", "")
    return reason


def initialization(pod: Obj, sidecars: frozenset[str]) -> Summary:
    """What holds up the init containers; without a reason if nothing does."""
    summary = Summary("")
    for index, container in enumerate(part(pod, "status").get("initContainerStatuses") or ()):
        summary.count_restarts(container)
        state = part(container, "state")
        terminated = state.get("terminated")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            summary.ready += bool(container.get("ready"))
            continue
        waiting = part(state, "waiting").get("reason")
        if terminated is not None:
            summary.reason = f"Init:{end_of(terminated)}"
        elif waiting and waiting != "PodInitializing":
            summary.reason = f"Init:{waiting}"
        else:
            summary.reason = f"Init:{index}/{len(part(pod, 'spec').get('initContainers') or ())}"
        break
    return summary


def end_of(terminated: Obj) -> str:
    reason: str = terminated.get("reason", "")
    if reason:
        return reason
    signal = terminated.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"


def running(status: Obj, reason: str, sidecars: frozenset[str]) -> Summary:
    """What the containers say once the pod is initialized; the first container has the last word."""
    summary = Summary(reason)
    count_all_restarts(summary, status.get("initContainerStatuses") or (), sidecars)
    for container in reversed(status.get("containerStatuses") or ()):
        summary.count_restarts(container)
        state = part(container, "state")
        waiting, terminated = part(state, "waiting").get("reason"), state.get("terminated")
        if waiting:
            summary.reason = waiting
        elif terminated is not None:
            summary.reason = end_of(terminated)
        elif container.get("ready") and state.get("running") is not None:
            summary.ready += 1
    if summary.reason == "Completed" and summary.ready:
        ready = condition_status(status.get("conditions"), "Ready") == "True"
        summary.reason = "Running" if ready else "NotReady"
    return summary


def count_all_restarts(summary: Summary, containers: Iterable[Obj], names: frozenset[str]) -> None:
    for container in containers:
        if container.get("name") in names:
            summary.count_restarts(container)


def readiness_gates(spec: Obj, status: Obj) -> str:
    gates = spec.get("readinessGates")
    if not gates:
        return NOTHING
    conditions = status.get("conditions")
    passed = [gate for gate in gates if condition_status(conditions, gate.get("conditionType", "")) == "True"]
    return f"{len(passed)}/{len(gates)}"


def finished(pod: Obj) -> list[Obj] | None:
    return FINISHED.get(part(pod, "status").get("phase", ""))


PODS: Final = Printer(
    (
        NAME,
        Column("Ready", description="The aggregate readiness state of this pod for accepting traffic."),
        Column("Status", description="The aggregate status of the containers in this pod."),
        Column(
            "Restarts",
            description=(
                "The number of times the containers in this pod have been restarted and when the last container in "
                "this pod has restarted."
            ),
        ),
        AGE,
        described("IP", "core.v1.PodStatus.podIP", priority=1),
        described("Node", "core.v1.PodSpec.nodeName", priority=1),
        described("Nominated Node", "core.v1.PodStatus.nominatedNodeName", priority=1),
        described("Readiness Gates", "core.v1.PodSpec.readinessGates", priority=1),
    ),
    pod_cells,
    finished,
)
