"""The status of a pod and its containers, and the restart policy, as in kubelet.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from farflung.apis.names import POD_SCHEDULED
from farflung.edge.runtimes.base import ContainerExit, StartedContainer
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds

STAND_IN: Final = "farflung.io/StandIn"
FINISHED: Final = ("Succeeded", "Failed")
UNKNOWN_EXIT_CODE: Final = 137  #: of a container that ended while the agent was not running
FIRST_DELAY: Final = 10.0  #: seconds
MAX_DELAY: Final = 300.0  #: seconds
BACKOFF_RESET: Final = 600.0  #: a container that ran for so many seconds starts without delay again


@dataclass(frozen=True, slots=True)
class PodState:
    """What the status of a pod is computed from."""

    init: tuple[Obj, ...]  #: as in initContainerStatuses
    containers: tuple[Obj, ...]
    mounted: bool  #: all volumes are mounted
    initialized: bool  #: all init containers succeeded
    finished: bool  #: no container runs or will be started
    stand_ins: tuple[str, ...] = ()
    reason: str = ""  #: why the whole pod has failed
    message: str = ""


# --- one container --------------------------------------------------------------------------------


def waiting(reason: str, message: str = "") -> Obj:
    return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}


def terminated(finished: ContainerExit, started: str, id: str) -> Obj:
    fields: Obj = {"exitCode": finished.exit_code, "reason": finished.reason}
    if finished.exit_code > 128 and finished.exit_code - 128 < 65 and finished.reason == "Error":
        fields["signal"] = finished.exit_code - 128
    if finished.message:
        fields["message"] = finished.message
    fields |= {"startedAt": started or None, "finishedAt": format_seconds(finished.at), "containerID": id}
    return {"terminated": {name: value for name, value in fields.items() if value not in (None, "")}}


def unknown_exit(status: Obj, now: str) -> Obj:
    """The state of a container that was running when the previous process ended."""
    fields = {
        "exitCode": UNKNOWN_EXIT_CODE,
        "reason": "ContainerStatusUnknown",
        "message": "The container ended with the process that ran it.",
        "startedAt": status["state"]["running"].get("startedAt"),
        "finishedAt": now,
        "containerID": status.get("containerID"),
    }
    return {"terminated": {name: value for name, value in fields.items() if value is not None}}


# --- the pod --------------------------------------------------------------------------------------


def pod_status(pod: Obj, state: PodState, address: str, now: str) -> Obj:
    """The whole status.  Fields of other writers are kept."""
    before: Mapping[str, Any] = pod.get("status") or {}
    phase = phase_of(state, before.get("phase", ""))
    status = {
        **before,
        "phase": phase,
        "hostIP": address,
        "hostIPs": [{"ip": address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": before.get("startTime") or now,
        "containerStatuses": list(state.containers),
        "conditions": _conditions(pod, state, phase, now),
    }
    if state.init:
        status["initContainerStatuses"] = list(state.init)
    if "generation" in pod["metadata"]:
        status["observedGeneration"] = pod["metadata"]["generation"]
    if state.reason:
        status |= {"reason": state.reason, "message": state.message}
    return status


def phase_of(state: PodState, before: str) -> str:
    """Succeeded and Failed are final."""
    if before in FINISHED:
        return before
    codes = [_exit_code(one) for one in state.containers]
    if state.finished:
        return "Succeeded" if not state.reason and all(code == 0 for code in codes) else "Failed"
    begun = all(
        "running" in one["state"] or code is not None for one, code in zip(state.containers, codes, strict=True)
    )
    return "Running" if begun and state.initialized else "Pending"


def _exit_code(container: Obj) -> int | None:
    """The last exit code; None if it is running or has never run."""
    state = container["state"]
    if "running" in state:
        return None
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated")
    return None if ended is None else int(ended.get("exitCode", 0))


# --- conditions -----------------------------------------------------------------------------------


def _conditions(pod: Obj, state: PodState, phase: str, now: str) -> list[Obj]:
    before = {one.get("type"): one for one in (pod.get("status") or {}).get("conditions") or ()}
    ours = [
        _condition("PodReadyToStartContainers", state.mounted and not state.finished),
        _initialized(state, phase),
        _ready(pod, state, phase, before),
        _containers_ready(state, phase),
        _condition(POD_SCHEDULED, True),
    ]
    if state.stand_ins:
        ours.append(_condition(STAND_IN, True, "NotTheImage", " ".join(f"{one}." for one in state.stand_ins)))
    elif STAND_IN in before:
        ours.append(before[STAND_IN])
    types = {one["type"] for one in ours}
    others = [one for one in before.values() if one.get("type") not in types]
    return [*others, *(_dated(one, before.get(one["type"]), now) for one in ours)]


def _condition(type: str, true: bool, reason: str = "", message: str = "") -> Obj:
    condition = {"type": type, "status": "True" if true else "False"}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _dated(condition: Obj, before: Obj | None, now: str) -> Obj:
    unchanged = before is not None and before.get("status") == condition["status"]
    since = before.get("lastTransitionTime") if before is not None and unchanged else None
    return condition | {"lastProbeTime": None, "lastTransitionTime": since or now}


def _initialized(state: PodState, phase: str) -> Obj:
    if phase == "Succeeded":
        return _condition("Initialized", True, "PodCompleted")
    if state.initialized:
        return _condition("Initialized", True)
    incomplete = [one["name"] for one in state.init if not one.get("ready")]
    return _condition(
        "Initialized", False, "ContainersNotInitialized", f"containers with incomplete status: {_listed(incomplete)}"
    )


def _containers_ready(state: PodState, phase: str, type: str = "ContainersReady") -> Obj:
    if phase == "Succeeded":
        return _condition(type, False, "PodCompleted")
    if phase == "Failed":
        return _condition(type, False, "PodFailed")
    unready = [one["name"] for one in state.containers if not one.get("ready")]
    if unready or phase != "Running":
        return _condition(type, False, "ContainersNotReady", f"containers with unready status: {_listed(unready)}")
    return _condition(type, True)


def _ready(pod: Obj, state: PodState, phase: str, before: Mapping[Any, Obj]) -> Obj:
    ready = _containers_ready(state, phase, "Ready")
    if ready["status"] != "True":
        return ready
    gates = [one.get("conditionType", "") for one in pod["spec"].get("readinessGates") or ()]
    found = {gate: (before.get(gate) or {}).get("status", "False") for gate in gates}
    closed = [
        f'the status of pod readiness gate "{gate}" is not "True", but {status}'
        for gate, status in found.items()
        if status != "True"
    ]
    return _condition("Ready", False, "ReadinessGatesNotReady", ", ".join(closed)) if closed else ready


def _listed(names: Sequence[str]) -> str:
    return f"[{' '.join(names)}]"


# --- comparison -----------------------------------------------------------------------------------


def is_same_status(one: Any, other: Any) -> bool:
    """Whether two statuses are equal; null equals a missing field."""
    return bool(_without_nulls(one) == _without_nulls(other))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def deduplicate(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for one in sentences if one))


class ContainerRole(StrEnum):
    INIT = "init"  #: runs to completion before the others start
    SIDECAR = "sidecar"  #: starts before the others and stops after them
    MAIN = "main"


@dataclass(slots=True)
class ContainerStatus:
    name: str
    image: str
    role: ContainerRole
    state: Obj = field(default_factory=lambda: waiting("ContainerCreating"))
    last_state: Obj = field(default_factory=dict)
    restarts: int = 0
    image_id: str = ""
    container_id: str = ""
    started: bool = False
    passing: bool = False  #: its readiness probe
    stand_in: str = ""

    @classmethod
    def of(cls, container: Obj, role: ContainerRole, former: Obj | None, now: str) -> ContainerStatus:
        """`former`: the status that the previous process wrote.  Its containers are not running any more."""
        status = cls(container["name"], container.get("image", ""), role)
        if former is None:
            return status
        status.restarts = former.get("restartCount", 0)
        status.last_state = former.get("lastState") or {}
        status.image_id, status.container_id = former.get("imageID", ""), former.get("containerID", "")
        state = former.get("state") or {}
        if "running" in state:
            state = unknown_exit(former, now)
        elif "terminated" not in state:
            state = status.last_state
        if "terminated" in state:
            status.state = state
        return status

    @property
    def exit_code(self) -> int | None:
        """None unless the current state is terminated."""
        ended = self.state.get("terminated")
        return None if ended is None else int(ended.get("exitCode", 0))

    @property
    def attempt(self) -> int:
        """The number of the next start."""
        has_run = "terminated" in self.state or "terminated" in self.last_state
        return self.restarts + 1 if has_run else self.restarts

    def should_restart(self, policy: str) -> bool:
        code = self.exit_code
        if code is None or self.role is ContainerRole.SIDECAR:
            return True
        if self.role is ContainerRole.INIT and policy == "Always":
            policy = "OnFailure"
        return policy == "Always" or (policy == "OnFailure" and code != 0)

    # --- transitions ------------------------------------------------------------------------------

    def wait(self, reason: str, message: str = "") -> None:
        if "terminated" in self.state:
            self.last_state = self.state
        self.state = waiting(reason, message)

    def run(self, started: StartedContainer, image: str, now: str, attempt: int) -> None:
        if "terminated" in self.state:
            self.last_state = self.state
        self.state = {"running": {"startedAt": now}}
        self.restarts = attempt
        self.image, self.image_id, self.container_id = image, started.image_id, started.id
        self.started = self.passing = False
        self.stand_in = started.stand_in

    def end(self, finished: ContainerExit) -> None:
        since = (self.state.get("running") or {}).get("startedAt", "")
        self.state = terminated(finished, since, self.container_id)
        self.started = self.passing = False

    def finish(self) -> None:
        """It will not be started again: show how it terminated, not what it waited for."""
        if "waiting" in self.state and "terminated" in self.last_state:
            self.state, self.last_state = self.last_state, {}

    @property
    def done(self) -> bool:
        """An init container that succeeded, or a started sidecar."""
        return self.started if self.role is ContainerRole.SIDECAR else self.exit_code == 0

    def to_object(self) -> Obj:
        """An entry of containerStatuses."""
        running = "running" in self.state
        ready = self.done if self.role is ContainerRole.INIT else running and self.started and self.passing
        return {
            "name": self.name,
            "state": self.state,
            "lastState": self.last_state,
            "ready": ready,
            "restartCount": self.restarts,
            "image": self.image,
            "imageID": self.image_id,
            "started": running and (self.started or self.role is ContainerRole.INIT),
            **({"containerID": self.container_id} if self.container_id else {}),
        }


def restart_delay(failures: int) -> float:
    """Seconds before the next start after so many failures, at least one: 10, 20, 40, … 300."""
    return min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(failures - 1, 16))


@dataclass(frozen=True, slots=True)
class CrashBackoff:
    """Counts exits in a row of a container that did not run for BACKOFF_RESET seconds."""

    count: int = 0

    def after_exit(self, seconds: float) -> CrashBackoff:
        """`seconds`: how long it ran."""
        return CrashBackoff(1 if seconds >= BACKOFF_RESET else self.count + 1)

    @property
    def delay(self) -> float:
        """Seconds before the next start: 0, 10, 20, 40, … 300."""
        return restart_delay(self.count - 1) if self.count > 1 else 0.0
