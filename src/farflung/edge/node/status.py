"""The status of a pod, told from its containers, as kubelet tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from farflung.apis.names import POD_SCHEDULED
from farflung.edge.runtimes.base import Finished
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds

STAND_IN: Final = "farflung.io/StandIn"
FINISHED: Final = ("Succeeded", "Failed")
LOST: Final = 137  #: the exit code of a container that nobody saw end


@dataclass(frozen=True, slots=True)
class Facts:
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


def terminated(finished: Finished, started: str, id: str) -> Obj:
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


def pod_status(pod: Obj, facts: Facts, address: str, now: str) -> Obj:
    """The whole status.  What others wrote into it stays."""
    before: Mapping[str, Any] = pod.get("status") or {}
    phase = phase_of(facts, before.get("phase", ""))
    status = {
        **before,
        "phase": phase,
        "hostIP": address,
        "hostIPs": [{"ip": address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": before.get("startTime") or now,
        "containerStatuses": list(facts.containers),
        "conditions": _conditions(pod, facts, phase, now),
    }
    if facts.init:
        status["initContainerStatuses"] = list(facts.init)
    if "generation" in pod["metadata"]:
        status["observedGeneration"] = pod["metadata"]["generation"]
    if facts.reason:
        status |= {"reason": facts.reason, "message": facts.message}
    return status


def phase_of(facts: Facts, before: str) -> str:
    """What has ended for good stays so."""
    if before in FINISHED:
        return before
    codes = [_exit_code(one) for one in facts.containers]
    if facts.over:
        return "Succeeded" if not facts.reason and all(code == 0 for code in codes) else "Failed"
    begun = all(
        "running" in one["state"] or code is not None for one, code in zip(facts.containers, codes, strict=True)
    )
    return "Running" if begun and facts.initialized else "Pending"


def _exit_code(container: Obj) -> int | None:
    """Of the last time that it ended, if it does not run now."""
    state = container["state"]
    if "running" in state:
        return None
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated")
    return None if ended is None else int(ended.get("exitCode", 0))


# --- conditions -----------------------------------------------------------------------------------


def _conditions(pod: Obj, facts: Facts, phase: str, now: str) -> list[Obj]:
    before = {one.get("type"): one for one in (pod.get("status") or {}).get("conditions") or ()}
    ours = [
        _condition("PodReadyToStartContainers", facts.mounted and not facts.over),
        _initialized(facts, phase),
        _ready(pod, facts, phase, before),
        _containers_ready(facts, phase),
        _condition(POD_SCHEDULED, True),
    ]
    if facts.stand_ins:
        ours.append(_condition(STAND_IN, True, "NotTheImage", " ".join(f"{one}." for one in facts.stand_ins)))
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


def _initialized(facts: Facts, phase: str) -> Obj:
    if phase == "Succeeded":
        return _condition("Initialized", True, "PodCompleted")
    if facts.initialized:
        return _condition("Initialized", True)
    incomplete = [one["name"] for one in facts.init if not one.get("ready")]
    return _condition(
        "Initialized", False, "ContainersNotInitialized", f"containers with incomplete status: {_listed(incomplete)}"
    )


def _containers_ready(facts: Facts, phase: str, type: str = "ContainersReady") -> Obj:
    if phase == "Succeeded":
        return _condition(type, False, "PodCompleted")
    if phase == "Failed":
        return _condition(type, False, "PodFailed")
    unready = [one["name"] for one in facts.containers if not one.get("ready")]
    if unready or phase != "Running":
        return _condition(type, False, "ContainersNotReady", f"containers with unready status: {_listed(unready)}")
    return _condition(type, True)


def _ready(pod: Obj, facts: Facts, phase: str, before: Mapping[Any, Obj]) -> Obj:
    ready = _containers_ready(facts, phase, "Ready")
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


def alike(one: Any, other: Any) -> bool:
    """Whether two statuses say the same, nothing being as good as null."""
    return bool(_bare(one) == _bare(other))


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _bare(part) for name, part in value.items() if part is not None}
    return [_bare(part) for part in value] if isinstance(value, list) else value


def unique(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for one in sentences if one))
