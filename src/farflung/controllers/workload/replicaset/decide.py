"""What has to be done about one ReplicaSet.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from farflung.controllers.workload.objects import REPLICA_SETS, found, is_terminating, labels, without
from farflung.controllers.workload.pods import (
    MOST_AT_ONCE,
    creation,
    first_to_go,
    is_active,
    is_available,
    is_ready,
    next_available,
    pod_of,
    random_name,
    removal,
)
from farflung.controllers.workload.steps import Plan, Step, update_status
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds

FAILURE = "ReplicaFailure"


def about_pods(replica_set: Obj, pods: Iterable[Obj], suffix: Callable[[], str]) -> tuple[Step, ...]:
    """`pods`: all that it controls.  As many are made or deleted as are missing or too many, a lot at a time."""
    if is_terminating(replica_set):
        return ()
    active = [pod for pod in pods if is_active(pod)]
    missing = _replicas(replica_set) - len(active)
    if missing < 0:
        return tuple(removal(pod) for pod in first_to_go(active)[:-missing])
    name, template = replica_set["metadata"]["name"], replica_set["spec"]["template"]
    return tuple(
        creation(pod_of(replica_set, REPLICA_SETS, template, random_name(f"{name}-", suffix())))
        for _ in range(min(missing, MOST_AT_ONCE))
    )


def about_status(replica_set: Obj, pods: Iterable[Obj], failure: str, now: datetime) -> Plan:
    """`failure`: what kept us from making or deleting pods."""
    active = [pod for pod in pods if is_active(pod)]
    wait = replica_set["spec"].get("minReadySeconds") or 0
    template = (replica_set["spec"]["template"].get("metadata") or {}).get("labels") or {}
    counts = {
        "fullyLabeledReplicas": sum(template.items() <= labels(pod).items() for pod in active),
        "readyReplicas": sum(is_ready(pod) for pod in active),
        "availableReplicas": sum(is_available(pod, wait, now) for pod in active),
        "observedGeneration": replica_set["metadata"].get("generation", 0),
    }
    status: Obj = {"replicas": len(active)} | {name: count for name, count in counts.items() if count}
    if conditions := _conditions(replica_set, len(active), failure, now):
        status["conditions"] = conditions
    again = next_available(active, wait, now)
    if status == replica_set.get("status"):
        return Plan((), again)
    return Plan((Step(update_status(REPLICA_SETS, replica_set, status)),), again)


def _conditions(replica_set: Obj, active: int, failure: str, now: datetime) -> list[Obj]:
    status = replica_set.get("status") or {}
    conditions = status.get("conditions") or []
    if not failure:
        return without(conditions, FAILURE)
    if found(status, FAILURE) is not None:
        return list(conditions)
    failed: Obj = {
        "type": FAILURE,
        "status": "True",
        "lastTransitionTime": format_seconds(now),
        "reason": "FailedCreate" if active < _replicas(replica_set) else "FailedDelete",
        "message": failure,
    }
    return [*conditions, failed]


def _replicas(replica_set: Obj) -> int:
    replicas = replica_set["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)
