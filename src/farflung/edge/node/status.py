"""The status of a pod, told from its containers, as kubelet tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from farflung.edge.runtimes.base import ContainerExit, StartedContainer
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds

STAND_IN: Final = "farflung.io/StandIn"
FINISHED: Final = ("Succeeded", "Failed")
LOST: Final = 137  #: the exit code of a container that nobody saw end
FIRST: Final = 10.0  #: seconds of the first pause; the restart before it is at once
LONGEST: Final = 300.0
FORGIVEN: Final = 600.0  #: seconds that it has to run until what was before does not count


@dataclass(frozen=True, slots=True)
class PodState:
    """What a node knows of a pod."""

    init: tuple[Obj, ...]  #: as in initContainerStatuses
    containers: tuple[Obj, ...]
    mounted: bool  #: all its volumes are there
    initialized: bool  #: the init containers have done their work
    over: bool  #: nothing of it is started any more
    stand_ins: tuple[str, ...] = ()
    reason: str = ""  #: why the whole pod has failed
    message: str = ""


# --- one container --------------------------------------------------------------------------------


def waiting(reason: str, message: str = "") -> Obj:
    return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}


def terminated(finished: ContainerExit, started: str, id: str) -> Obj:
    said: Obj = {"exitCode": finished.exit_code, "reason": finished.reason}
    if finished.exit_code > 128 and finished.exit_code - 128 < 65 and finished.reason == "Error":
        said["signal"] = finished.exit_code - 128
    if finished.message:
        said["message"] = finished.message
    said |= {"startedAt": started or None, "finishedAt": format_seconds(finished.at), "containerID": id}
    return {"terminated": {name: value for name, value in said.items() if value not in (None, "")}}


def lost(status: Obj, now: str) -> Obj:
    """The state of a container that was running when we were last there."""
    said = {
        "exitCode": LOST,
        "reason": "ContainerStatusUnknown",
        "message": "The container ended with the process that ran it.",
        "startedAt": status["state"]["running"].get("startedAt"),
        "finishedAt": now,
        "containerID": status.get("containerID"),
    }
    return {"terminated": {name: value for name, value in said.items() if value is not None}}


# --- the pod --------------------------------------------------------------------------------------


def pod_status(pod: Obj, state: PodState, address: str, now: str) -> Obj:
    """The whole status.  What others wrote into it stays."""
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
    """What has ended for good stays so."""
    if before in FINISHED:
        return before
    codes = [_exit_code(one) for one in state.containers]
    if state.over:
        return "Succeeded" if not state.reason and all(code == 0 for code in codes) else "Failed"
    begun = all(
        "running" in one["state"] or code is not None for one, code in zip(state.containers, codes, strict=True)
    )
    return "Running" if begun and state.initialized else "Pending"


def _exit_code(container: Obj) -> int | None:
    """Of the last time that it ended, if it does not run now."""
    state = container["state"]
    if "running" in state:
        return None
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated")
    return None if ended is None else int(ended.get("exitCode", 0))


# --- conditions -----------------------------------------------------------------------------------


def _conditions(pod: Obj, state: PodState, phase: str, now: str) -> list[Obj]:
    before = {one.get("type"): one for one in (pod.get("status") or {}).get("conditions") or ()}
    ours = [
        _condition("PodReadyToStartContainers", state.mounted and not state.over),
        _initialized(state, phase),
        _ready(pod, state, phase, before),
        _containers_ready(state, phase),
        _condition("PodScheduled", True),
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
        f'the status of pod readiness gate "{gate}" is not "True", but {said}'
        for gate, said in found.items()
        if said != "True"
    ]
    return _condition("Ready", False, "ReadinessGatesNotReady", ", ".join(closed)) if closed else ready


def _listed(names: Sequence[str]) -> str:
    return f"[{' '.join(names)}]"


# --- comparing ------------------------------------------------------------------------------------


def is_same_status(one: Any, other: Any) -> bool:
    """Whether two statuses say the same, nothing being as good as null."""
    return bool(_bare(one) == _bare(other))


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _bare(part) for name, part in value.items() if part is not None}
    return [_bare(part) for part in value] if isinstance(value, list) else value


def deduplicate(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for one in sentences if one))


class ContainerRole(StrEnum):
    INIT = "init"  #: does its work before the others start
    SIDECAR = "sidecar"  #: starts before the others and ends after them
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
        """`former`: what was told when we were last there.  Whatever ran then has ended since."""
        made = cls(container["name"], container.get("image", ""), role)
        if former is None:
            return made
        made.restarts = former.get("restartCount", 0)
        made.last_state = former.get("lastState") or {}
        made.image_id, made.container_id = former.get("imageID", ""), former.get("containerID", "")
        state = former.get("state") or {}
        if "running" in state:
            state = lost(former, now)
        elif "terminated" not in state:
            state = made.last_state
        if "terminated" in state:
            made.state = state
        return made

    @property
    def exit_code(self) -> int | None:
        """If it has ended, and nothing was done about that yet."""
        ended = self.state.get("terminated")
        return None if ended is None else int(ended.get("exitCode", 0))

    @property
    def attempt(self) -> int:
        """The number of the next one."""
        has_run = "terminated" in self.state or "terminated" in self.last_state
        return self.restarts + 1 if has_run else self.restarts

    def should_restart(self, policy: str) -> bool:
        """Whether it is to be started once more."""
        code = self.exit_code
        if code is None or self.role is ContainerRole.SIDECAR:
            return True
        if self.role is ContainerRole.INIT and policy == "Always":
            policy = "OnFailure"
        return restarts(policy, code)

    # --- what happens -----------------------------------------------------------------------------

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
        """It is not started any more: what it waited for does not matter, but how it ended."""
        if "waiting" in self.state and "terminated" in self.last_state:
            self.state, self.last_state = self.last_state, {}

    @property
    def done(self) -> bool:
        """An init container that did its work, or a sidecar that is up."""
        return self.started if self.role is ContainerRole.SIDECAR else self.exit_code == 0

    def to_object(self) -> Obj:
        """As in the status of the pod."""
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


def restarts(policy: str, exit_code: int) -> bool:
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def restart_delay(failures: int) -> float:
    """Seconds before the next try, after so many that failed, one at least: 10, 20, 40, … 300."""
    return min(LONGEST, FIRST * 2.0 ** min(failures - 1, 16))


@dataclass(frozen=True, slots=True)
class CrashBackoff:
    """How often a container ended in a row without having run for long."""

    count: int = 0

    def ended(self, seconds: float) -> CrashBackoff:
        """After it ran for so long."""
        return CrashBackoff(1 if seconds >= FORGIVEN else self.count + 1)

    @property
    def delay(self) -> float:
        """Seconds until it may be started again: 0, 10, 20, 40, … 300."""
        return restart_delay(self.count - 1) if self.count > 1 else 0.0
