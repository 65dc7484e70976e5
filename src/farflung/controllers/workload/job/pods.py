"""Pods of a Job.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from farflung.controllers.workload.model.objects import (
    JOBS,
    PODS,
    annotations_of,
    creation_time,
    find_condition,
    is_terminating,
    labels,
    parse_time,
)
from farflung.controllers.workload.model.pods import delete_pod_step, is_finished, phase, pod_from_template, random_name
from farflung.controllers.workload.model.steps import WriteStep, update
from farflung.machinery.errors import Obj

FINALIZER: Final = "batch.kubernetes.io/job-tracking"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
BACKOFF_BASE: Final = timedelta(seconds=10)
BACKOFF_MAX: Final = timedelta(minutes=10)


def new_pod(job: Obj, index: int | None, suffix: str) -> Obj:
    prefix = f"{job['metadata']['name']}-" if index is None else f"{job['metadata']['name']}-{index}-"
    pod = pod_from_template(job, JOBS, job["spec"]["template"], random_name(prefix, suffix), prefix)
    metadata = pod["metadata"]
    metadata["finalizers"] = [*metadata.get("finalizers", ()), FINALIZER]
    if index is not None:
        metadata["annotations"] = {**annotations_of(pod), INDEX: str(index)}
        metadata["labels"] = {**labels(pod), INDEX: str(index)}
        pod["spec"].setdefault("hostname", f"{job['metadata']['name']}-{index}")
        for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
            _tell_index(container)
    return pod


def _tell_index(container: Obj) -> None:
    variables = container.get("env") or []
    if all(one.get("name") != INDEX_VARIABLE for one in variables):
        source: Obj = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
        container["env"] = [*variables, {"name": INDEX_VARIABLE, "valueFrom": source}]


def index_of(pod: Obj) -> int:
    """-1: none."""
    text = annotations_of(pod).get(INDEX, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def is_tracked(pod: Obj) -> bool:
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def release_step(pod: Obj) -> WriteStep:
    """Remove the finalizer."""
    metadata = dict(pod["metadata"])
    left = [one for one in metadata.pop("finalizers", ()) if one != FINALIZER]
    return WriteStep(update(PODS, {**pod, "metadata": {**metadata, "finalizers": left} if left else metadata}))


def drop_steps(pod: Obj) -> tuple[WriteStep, ...]:
    """Delete a pod without counting it."""
    return (release_step(pod), delete_pod_step(pod)) if is_tracked(pod) else (delete_pod_step(pod),)


def has_failed(job: Obj, pod: Obj) -> bool:
    """A terminating pod counts as failed at once, unless podReplacementPolicy is Failed."""
    if phase(pod) == "Failed":
        return True
    patient = job["spec"].get("podReplacementPolicy") == "Failed"
    return not patient and is_terminating(pod) and phase(pod) != "Succeeded"


def finished_at(pod: Obj) -> datetime:
    """The end of its last container, else the last change of readiness, else its creation."""
    status: Obj = pod.get("status") or {}
    ended = [
        parse_time(terminated.get("finishedAt"))
        for container in status.get("containerStatuses") or ()
        if (terminated := (container.get("state") or {}).get("terminated"))
    ]
    if ended:
        return max(ended)
    ready = find_condition(status, "Ready")
    return creation_time(pod) if ready is None else parse_time(ready.get("lastTransitionTime"))


def backoff_remaining(pods: Iterable[Obj], now: datetime) -> float:
    """Seconds until another pod may be created; doubles with each failure since the last success."""
    ended = sorted((finished_at(pod), pod["metadata"]["name"], phase(pod)) for pod in pods if is_finished(pod))
    failures, last = 0, now
    for at, _, how in ended:
        failures = 0 if how == "Succeeded" else failures + 1
        last = at
    if not failures:
        return 0.0
    wait = min(BACKOFF_BASE * (1 << min(failures - 1, 10)), BACKOFF_MAX)
    return max(0.0, (last + wait - now).total_seconds())
