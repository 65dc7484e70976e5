"""What a Deployment says of itself.  Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from farflung.controllers.workload.deployment.rollout import Rollout, counted, deadline, replicas, tolerated, total
from farflung.controllers.workload.objects import found, moment, put, without
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds

AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
FAILURE: Final = "ReplicaFailure"
COMPLETE: Final = "NewReplicaSetAvailable"
TIMED_OUT: Final = "ProgressDeadlineExceeded"


def condition(type: str, status: str, reason: str, message: str, now: datetime) -> Obj:
    stamp = format_seconds(now)
    return {
        "type": type,
        "status": status,
        "lastUpdateTime": stamp,
        "lastTransitionTime": stamp,
        "reason": reason,
        "message": message,
    }


def counts(rollout: Rollout, now: datetime) -> Obj:
    """All but what is said of its progress."""
    deployment, every = rollout.deployment, rollout.all
    before: Obj = deployment.get("status") or {}
    available = sum(counted(one, "availableReplicas") for one in every)
    numbers = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": sum(counted(one, "replicas") for one in every),
        "updatedReplicas": counted(rollout.new, "replicas") if rollout.new is not None else 0,
        "readyReplicas": sum(counted(one, "readyReplicas") for one in every),
        "availableReplicas": available,
        "unavailableReplicas": max(0, total(every) - available),
    }
    status: Obj = {name: number for name, number in numbers.items() if number}
    if "collisionCount" in before:
        status["collisionCount"] = before["collisionCount"]
    enough = available >= replicas(deployment) - tolerated(deployment)
    status["conditions"] = put(before.get("conditions") or [], _availability(enough, now))
    return status


def _availability(enough: bool, now: datetime) -> Obj:
    if enough:
        return condition(AVAILABLE, "True", "MinimumReplicasAvailable", "Deployment has minimum availability.", now)
    message = "Deployment does not have minimum availability."
    return condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now)


def progress(rollout: Rollout, now: datetime) -> Obj:
    """The whole status, while a template is rolled out and afterwards."""
    deployment, status = rollout.deployment, counts(rollout, now)
    before: Obj = deployment.get("status") or {}
    current = found(before, PROGRESSING)
    conditions: list[Obj] = status["conditions"]
    if deadline(deployment) is None:
        conditions = without(conditions, PROGRESSING)
    elif not _was_complete(status, current):
        conditions = _moved(rollout, status, conditions, now)
    status["conditions"] = _with_failure(rollout, conditions)
    return status


def _was_complete(status: Obj, current: Obj | None) -> bool:
    settled = status.get("replicas", 0) == status.get("updatedReplicas", 0)
    return settled and current is not None and current.get("reason") == COMPLETE


def _moved(rollout: Rollout, status: Obj, conditions: list[Obj], now: datetime) -> list[Obj]:
    deployment = rollout.deployment
    current = found(deployment.get("status"), PROGRESSING)
    if is_complete(deployment, status):
        return put(conditions, _progressing(rollout, "True", COMPLETE, "has successfully progressed.", now))
    if _has_moved(deployment.get("status") or {}, status):
        new = _progressing(rollout, "True", "ReplicaSetUpdated", "is progressing.", now)
        if current is not None and current.get("status") == "True":
            new["lastTransitionTime"] = current.get("lastTransitionTime", new["lastTransitionTime"])
        return [*without(conditions, PROGRESSING), new]
    if _is_late(deployment, current, now):
        return put(conditions, _progressing(rollout, "False", TIMED_OUT, "has timed out progressing.", now))
    return conditions


def _progressing(rollout: Rollout, status: str, reason: str, what: str, now: datetime) -> Obj:
    kind, one = ("Deployment", rollout.deployment) if rollout.new is None else ("ReplicaSet", rollout.new)
    return condition(PROGRESSING, status, reason, f'{kind} "{one["metadata"]["name"]}" {what}', now)


def is_complete(deployment: Obj, status: Obj) -> bool:
    desired, seen = replicas(deployment), status.get("observedGeneration", 0)
    reached = all(status.get(name, 0) == desired for name in ("updatedReplicas", "replicas", "availableReplicas"))
    return reached and seen >= deployment["metadata"].get("generation", 0)


def _has_moved(before: Obj, after: Obj) -> bool:
    def left(status: Obj) -> int:
        return int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))

    more = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return left(after) < left(before) or any(after.get(name, 0) > before.get(name, 0) for name in more)


def _is_late(deployment: Obj, current: Obj | None, now: datetime) -> bool:
    if current is None or current.get("reason") == COMPLETE:
        return False
    left = patience(deployment, current, now)
    return current.get("reason") == TIMED_OUT or (left is not None and left < 0)


def patience(deployment: Obj, current: Obj, now: datetime) -> float | None:
    """Seconds until it is too late; None if it never is."""
    seconds = deadline(deployment)
    if seconds is None:
        return None
    return (moment(current.get("lastUpdateTime")) + timedelta(seconds=seconds) - now).total_seconds()


def next_look(deployment: Obj, status: Obj, now: datetime) -> float | None:
    """When it may have become too late."""
    current = found(status, PROGRESSING)
    if current is None or is_complete(deployment, status) or current.get("reason") == TIMED_OUT:
        return None
    left = patience(deployment, current, now)
    return None if left is None else max(left, 0) + 1


def _with_failure(rollout: Rollout, conditions: list[Obj]) -> list[Obj]:
    """What keeps ReplicaSets from making pods, the new one first."""
    newest = (*((rollout.new,) if rollout.new is not None else ()), *rollout.old)
    for replica_set in newest:
        if (failed := found(replica_set.get("status"), FAILURE)) is not None and failed.get("status") == "True":
            return put(conditions, {**failed, "lastUpdateTime": failed.get("lastTransitionTime")})
    return without(conditions, FAILURE)
