"""Pods of a Job.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from farflung.controllers.workload.objects import JOBS, PODS, created, found, is_terminating, labels, moment, notes
from farflung.controllers.workload.pods import is_finished, phase, pod_of, random_name, removal
from farflung.controllers.workload.steps import Step, update
from farflung.machinery.errors import Obj

FINALIZER: Final = "batch.kubernetes.io/job-tracking"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
FIRST_PAUSE: Final = timedelta(seconds=10)
LONGEST_PAUSE: Final = timedelta(minutes=10)


def made(job: Obj, index: int | None, suffix: str) -> Obj:
    prefix = f"{job['metadata']['name']}-" if index is None else f"{job['metadata']['name']}-{index}-"
    pod = pod_of(job, JOBS, job["spec"]["template"], random_name(prefix, suffix), prefix)
    metadata = pod["metadata"]
    metadata["finalizers"] = [*metadata.get("finalizers", ()), FINALIZER]
    if index is not None:
        metadata["annotations"] = {**notes(pod), INDEX: str(index)}
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
    """-1 if it has none."""
    text = notes(pod).get(INDEX, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def is_tracked(pod: Obj) -> bool:
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def released(pod: Obj) -> Step:
    """Without the finalizer."""
    metadata = dict(pod["metadata"])
    left = [one for one in metadata.pop("finalizers", ()) if one != FINALIZER]
    return Step(update(PODS, {**pod, "metadata": {**metadata, "finalizers": left} if left else metadata}))


def dropped(pod: Obj) -> tuple[Step, ...]:
    """Deleted without being counted."""
    return (released(pod), removal(pod)) if is_tracked(pod) else (removal(pod),)


def has_failed(job: Obj, pod: Obj) -> bool:
    """One that is deleted before it ends counts as failed at once, unless only those are replaced that really have."""
    if phase(pod) == "Failed":
        return True
    patient = job["spec"].get("podReplacementPolicy") == "Failed"
    return not patient and is_terminating(pod) and phase(pod) != "Succeeded"


def finished_at(pod: Obj) -> datetime:
    """When its last container ended, as far as anybody says."""
    status: Obj = pod.get("status") or {}
    ended = [
        moment(terminated.get("finishedAt"))
        for container in status.get("containerStatuses") or ()
        if (terminated := (container.get("state") or {}).get("terminated"))
    ]
    if ended:
        return max(ended)
    ready = found(status, "Ready")
    return created(pod) if ready is None else moment(ready.get("lastTransitionTime"))


def pause(pods: Iterable[Obj], now: datetime) -> float:
    """Seconds until another pod may be made, longer with each that failed since the last that succeeded."""
    ended = sorted((finished_at(pod), pod["metadata"]["name"], phase(pod)) for pod in pods if is_finished(pod))
    failures, last = 0, now
    for at, _, how in ended:
        failures = 0 if how == "Succeeded" else failures + 1
        last = at
    if not failures:
        return 0.0
    wait = min(FIRST_PAUSE * (1 << min(failures - 1, 10)), LONGEST_PAUSE)
    return max(0.0, (last + wait - now).total_seconds())
