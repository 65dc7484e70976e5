"""Plans the pods and the status of one ReplicaSet.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from farflung.apis.names import REPLICA_FAILURE, REPLICA_SETS
from farflung.controllers.workload.model.objects import find_condition, is_terminating, labels, without_condition
from farflung.controllers.workload.model.pods import (
    BURST_REPLICAS,
    create_pod_step,
    delete_pod_step,
    is_active,
    is_available,
    is_ready,
    pod_from_template,
    random_name,
    rank_for_deletion,
    seconds_until_available,
)
from farflung.controllers.workload.model.steps import WorkloadPlan, WriteStep, status_plan
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds


def plan_pods(replica_set: Obj, pods: Iterable[Obj], suffix: Callable[[], str]) -> tuple[WriteStep, ...]:
    """`pods`: all that it controls."""
    if is_terminating(replica_set):
        return ()
    active = [pod for pod in pods if is_active(pod)]
    missing = _replicas(replica_set) - len(active)
    if missing < 0:
        return tuple(delete_pod_step(pod) for pod in rank_for_deletion(active)[:-missing])
    name, template = replica_set["metadata"]["name"], replica_set["spec"]["template"]
    return tuple(
        create_pod_step(pod_from_template(replica_set, REPLICA_SETS, template, random_name(f"{name}-", suffix())))
        for _ in range(min(missing, BURST_REPLICAS))
    )


def plan_status(replica_set: Obj, pods: Iterable[Obj], failure: str, now: datetime) -> WorkloadPlan:
    """`failure`: the error of creating or deleting pods."""
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
    again = seconds_until_available(active, wait, now)
    return status_plan(REPLICA_SETS, replica_set, status, again)


def _conditions(replica_set: Obj, active: int, failure: str, now: datetime) -> list[Obj]:
    status = replica_set.get("status") or {}
    conditions = status.get("conditions") or []
    if not failure:
        return without_condition(conditions, REPLICA_FAILURE)
    if find_condition(status, REPLICA_FAILURE) is not None:
        return list(conditions)
    failed: Obj = {
        "type": REPLICA_FAILURE,
        "status": "True",
        "lastTransitionTime": format_seconds(now),
        "reason": "FailedCreate" if active < _replicas(replica_set) else "FailedDelete",
        "message": failure,
    }
    return [*conditions, failed]


def _replicas(replica_set: Obj) -> int:
    replicas = replica_set["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)
