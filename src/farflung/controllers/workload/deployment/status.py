"""The status of a Deployment.  Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from farflung.controllers.workload.deployment.rollout import (
    Rollout,
    max_unavailable,
    progress_deadline,
    replicas,
    status_count,
    total_replicas,
)
from farflung.controllers.workload.model.objects import find_condition, parse_time, set_condition, without_condition
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


def count_status(rollout: Rollout, now: datetime) -> Obj:
    """The status without changes of the Progressing condition."""
    deployment, every = rollout.deployment, rollout.all
    before: Obj = deployment.get("status") or {}
    available = sum(status_count(one, "availableReplicas") for one in every)
    numbers = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": sum(status_count(one, "replicas") for one in every),
        "updatedReplicas": status_count(rollout.new, "replicas") if rollout.new is not None else 0,
        "readyReplicas": sum(status_count(one, "readyReplicas") for one in every),
        "availableReplicas": available,
        "unavailableReplicas": max(0, total_replicas(every) - available),
    }
    status: Obj = {name: number for name, number in numbers.items() if number}
    if "collisionCount" in before:
        status["collisionCount"] = before["collisionCount"]
    enough = available >= replicas(deployment) - max_unavailable(deployment)
    status["conditions"] = set_condition(before.get("conditions") or [], _availability(enough, now))
    return status


def _availability(enough: bool, now: datetime) -> Obj:
    if enough:
        return condition(AVAILABLE, "True", "MinimumReplicasAvailable", "Deployment has minimum availability.", now)
    message = "Deployment does not have minimum availability."
    return condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now)


def progress_status(rollout: Rollout, now: datetime) -> Obj:
    """The whole status."""
    deployment, status = rollout.deployment, count_status(rollout, now)
    before: Obj = deployment.get("status") or {}
    current = find_condition(before, PROGRESSING)
    conditions: list[Obj] = status["conditions"]
    if progress_deadline(deployment) is None:
        conditions = without_condition(conditions, PROGRESSING)
    elif not _was_complete(status, current):
        conditions = _progress_conditions(rollout, status, conditions, now)
    status["conditions"] = _with_failure(rollout, conditions)
    return status


def _was_complete(status: Obj, current: Obj | None) -> bool:
    settled = status.get("replicas", 0) == status.get("updatedReplicas", 0)
    return settled and current is not None and current.get("reason") == COMPLETE


def _progress_conditions(rollout: Rollout, status: Obj, conditions: list[Obj], now: datetime) -> list[Obj]:
    deployment = rollout.deployment
    current = find_condition(deployment.get("status"), PROGRESSING)
    if is_complete(deployment, status):
        return set_condition(conditions, _progressing(rollout, "True", COMPLETE, "has successfully progressed.", now))
    if _has_progressed(deployment.get("status") or {}, status):
        new = _progressing(rollout, "True", "ReplicaSetUpdated", "is progressing.", now)
        if current is not None and current.get("status") == "True":
            new["lastTransitionTime"] = current.get("lastTransitionTime", new["lastTransitionTime"])
        return [*without_condition(conditions, PROGRESSING), new]
    if _is_late(deployment, current, now):
        return set_condition(conditions, _progressing(rollout, "False", TIMED_OUT, "has timed out progressing.", now))
    return conditions


def _progressing(rollout: Rollout, status: str, reason: str, what: str, now: datetime) -> Obj:
    kind, one = ("Deployment", rollout.deployment) if rollout.new is None else ("ReplicaSet", rollout.new)
    return condition(PROGRESSING, status, reason, f'{kind} "{one["metadata"]["name"]}" {what}', now)


def is_complete(deployment: Obj, status: Obj) -> bool:
    desired, seen = replicas(deployment), status.get("observedGeneration", 0)
    reached = all(status.get(name, 0) == desired for name in ("updatedReplicas", "replicas", "availableReplicas"))
    return reached and seen >= deployment["metadata"].get("generation", 0)


def _has_progressed(before: Obj, after: Obj) -> bool:
    def left(status: Obj) -> int:
        return int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))

    more = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return left(after) < left(before) or any(after.get(name, 0) > before.get(name, 0) for name in more)


def _is_late(deployment: Obj, current: Obj | None, now: datetime) -> bool:
    if current is None or current.get("reason") == COMPLETE:
        return False
    left = seconds_until_timeout(deployment, current, now)
    return current.get("reason") == TIMED_OUT or (left is not None and left < 0)


def seconds_until_timeout(deployment: Obj, current: Obj, now: datetime) -> float | None:
    """Seconds until the progress deadline; None: no deadline."""
    seconds = progress_deadline(deployment)
    if seconds is None:
        return None
    return (parse_time(current.get("lastUpdateTime")) + timedelta(seconds=seconds) - now).total_seconds()


def requeue_after(deployment: Obj, status: Obj, now: datetime) -> float | None:
    """Seconds until the progress deadline may have passed."""
    current = find_condition(status, PROGRESSING)
    if current is None or is_complete(deployment, status) or current.get("reason") == TIMED_OUT:
        return None
    left = seconds_until_timeout(deployment, current, now)
    return None if left is None else max(left, 0) + 1


def _with_failure(rollout: Rollout, conditions: list[Obj]) -> list[Obj]:
    """Copy the ReplicaFailure condition of the first ReplicaSet that has one, the new one first."""
    newest = (*((rollout.new,) if rollout.new is not None else ()), *rollout.old)
    for replica_set in newest:
        if (failed := find_condition(replica_set.get("status"), FAILURE)) is not None and failed.get(
            "status"
        ) == "True":
            return set_condition(conditions, {**failed, "lastUpdateTime": failed.get("lastTransitionTime")})
    return without_condition(conditions, FAILURE)
