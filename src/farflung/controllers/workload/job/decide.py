"""Plans the pods and the status of one Job.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from farflung.controllers.workload.job.pods import (
    backoff_remaining,
    drop_steps,
    index_of,
    is_tracked,
    new_pod,
    release_step,
)
from farflung.controllers.workload.job.progress import (
    COMPLETE,
    FAILED,
    FAILURE,
    SUCCESS,
    JobCounts,
    JobOutcome,
    find_outcome,
    is_indexed,
    is_job_finished,
    next_counts,
    release_steps,
    seconds_until_deadline,
    seconds_until_ttl,
    stored_counts,
)
from farflung.controllers.workload.model.objects import JOBS, find_condition, is_terminating, set_condition
from farflung.controllers.workload.model.pods import (
    BURST_REPLICAS,
    create_pod_step,
    delete_pod_step,
    is_active,
    is_finished,
    is_ready,
    rank_for_deletion,
)
from farflung.controllers.workload.model.steps import (
    NO_WRITES,
    NORMAL,
    WARNING,
    EventText,
    WorkloadPlan,
    WriteStep,
    delete,
    soonest,
    update_status,
)
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds

MANAGER: Final = "kubernetes.io/job-controller"
SUSPENDED: Final = "Suspended"


@dataclass(frozen=True, slots=True)
class JobState:
    job: Obj
    pods: tuple[Obj, ...]
    now: datetime

    @property
    def active(self) -> list[Obj]:
        return [pod for pod in self.pods if is_active(pod)]

    @property
    def terminating(self) -> list[Obj]:
        return [pod for pod in self.pods if is_terminating(pod) and not is_finished(pod)]

    @property
    def suspended(self) -> bool:
        return bool(self.job["spec"].get("suspend"))


def decide(job: Obj, pods: Sequence[Obj], suffix: Callable[[], str], now: datetime) -> WorkloadPlan:
    """Plan one step: count pods, release counted pods, create or delete pods, or write the status."""
    if (job["spec"].get("managedBy") or MANAGER) != MANAGER:
        return NO_WRITES
    if is_terminating(job):
        return WorkloadPlan(tuple(release_step(pod) for pod in pods if is_tracked(pod)))
    whole = JobState(job, tuple(pods), now)
    if is_job_finished(job):
        return _plan_finished(whole)
    ended = find_outcome(job, stored_counts(job), whole.active, now)
    counts = next_counts(job, pods, over=ended is not None and ended.type == FAILED)
    if counts != stored_counts(job) or _is_new(whole):
        return WorkloadPlan((_status_step(whole, counts, None),))
    if steps := release_steps(job, pods) or _pod_steps(whole, counts, ended, suffix):
        return WorkloadPlan(steps)
    step = _status_step(whole, counts, ended)
    again = soonest(seconds_until_deadline(job, now), _next_pod(whole, counts, ended))
    return WorkloadPlan((), again) if _is_same(job, step) else WorkloadPlan((step,), again)


def _is_new(whole: JobState) -> bool:
    """The start time is written before pods are created, because the server may refuse them."""
    return not whole.suspended and not (whole.job.get("status") or {}).get("startTime")


def _is_same(job: Obj, step: WriteStep) -> bool:
    return bool(step.write.object["status"] == job.get("status"))  # type: ignore[union-attr]


# --- pods -----------------------------------------------------------------------------------------


def _pod_steps(
    whole: JobState, counts: JobCounts, ended: JobOutcome | None, suffix: Callable[[], str]
) -> tuple[WriteStep, ...]:
    active = whole.active
    if ended is not None:
        return tuple(delete_pod_step(pod) for pod in active)
    if whole.suspended:
        return tuple(step for pod in active for step in drop_steps(pod))
    surplus = _surplus_pods(whole, counts)
    if surplus:
        return tuple(step for pod in surplus for step in drop_steps(pod))
    missing = _missing_indexes(whole, counts)
    if not missing or backoff_remaining(whole.pods, whole.now) > 0:
        return ()
    return tuple(create_pod_step(new_pod(whole.job, index, suffix())) for index in missing)


def _wanted_active(whole: JobState, counts: JobCounts) -> int:
    spec, active = whole.job["spec"], len(whole.active)
    parallelism = 1 if spec.get("parallelism") is None else int(spec["parallelism"])
    completions = spec.get("completions")
    if completions is None:
        return min(active, parallelism) if counts.all_succeeded else parallelism
    return max(0, min(parallelism, int(completions) - counts.all_succeeded))


def _surplus_pods(whole: JobState, counts: JobCounts) -> list[Obj]:
    """Pods with a duplicate or invalid index, and pods beyond the wanted number."""
    useless = _invalid_index_pods(whole, counts) if is_indexed(whole.job) else []
    others = [pod for pod in whole.active if pod not in useless]
    more = max(0, len(others) - _wanted_active(whole, counts))
    return [*useless, *rank_for_deletion(others)[:more]]


def _invalid_index_pods(whole: JobState, counts: JobCounts) -> list[Obj]:
    completions, seen = whole.job["spec"].get("completions") or 0, set(counts.completed)
    found = []
    for pod in reversed(rank_for_deletion(whole.active)):
        index = index_of(pod)
        if index in seen or not 0 <= index < completions:
            found.append(pod)
        seen.add(index)
    return found


def _missing_indexes(whole: JobState, counts: JobCounts) -> list[int | None]:
    """Indexes of the pods to create; None for each pod of a non-indexed Job."""
    busy = [*whole.active, *(whole.terminating if whole.job["spec"].get("podReplacementPolicy") == "Failed" else ())]
    number = min(max(0, _wanted_active(whole, counts) - len(busy)), BURST_REPLICAS)
    if not is_indexed(whole.job):
        return [None] * number
    taken = {*counts.completed, *(index_of(pod) for pod in busy)}
    free = (index for index in range(whole.job["spec"].get("completions") or 0) if index not in taken)
    return [index for _, index in zip(range(number), free, strict=False)]


def _next_pod(whole: JobState, counts: JobCounts, ended: JobOutcome | None) -> float | None:
    if ended is not None or whole.suspended or not _missing_indexes(whole, counts):
        return None
    return backoff_remaining(whole.pods, whole.now)


# --- status ---------------------------------------------------------------------------------------


def _status_step(whole: JobState, counts: JobCounts, ended: JobOutcome | None) -> WriteStep:
    job, before = whole.job, whole.job.get("status") or {}
    status: Obj = counts.members(indexed=is_indexed(job))
    if whole.active:
        status["active"] = len(whole.active)
    status |= {"ready": sum(is_ready(pod) for pod in whole.active), "terminating": len(whole.terminating)}
    if before.get("startTime"):
        status["startTime"] = before["startTime"]
    elif not whole.suspended:
        status["startTime"] = format_seconds(whole.now)
    conditions: list[Obj] = list(before.get("conditions") or ())
    said = None
    if ended is not None:
        conditions, said = _finished_conditions(whole, counts, ended, conditions)
    else:
        conditions, said = _suspended_conditions(whole, status, conditions)
    if find_condition({"conditions": conditions}, COMPLETE) is not None:
        status["completionTime"] = format_seconds(whole.now)
    if conditions:
        status["conditions"] = conditions
    return WriteStep(update_status(JOBS, job, status), said)


def _condition(type: str, status: str, reason: str, message: str, now: datetime) -> Obj:
    stamp = format_seconds(now)
    return {
        "type": type,
        "status": status,
        "lastProbeTime": stamp,
        "lastTransitionTime": stamp,
        "reason": reason,
        "message": message,
    }


def _finished_conditions(
    whole: JobState, counts: JobCounts, ended: JobOutcome, conditions: list[Obj]
) -> tuple[list[Obj], EventText | None]:
    """First SuccessCriteriaMet or FailureTarget; after all pods are finished and counted, Complete or Failed."""
    mark = SUCCESS if ended.type == COMPLETE else FAILURE
    conditions = set_condition(conditions, _condition(mark, "True", ended.reason, ended.message, whole.now))
    left = whole.active or whole.terminating or any(is_tracked(pod) for pod in whole.pods)
    if left or not counts.is_fully_counted:
        return conditions, None
    conditions = set_condition(conditions, _condition(ended.type, "True", ended.reason, ended.message, whole.now))
    if ended.type == COMPLETE:
        return conditions, EventText(NORMAL, "Completed", "Job completed")
    return conditions, EventText(WARNING, ended.reason, ended.message)


def _suspended_conditions(whole: JobState, status: Obj, conditions: list[Obj]) -> tuple[list[Obj], EventText | None]:
    """A resumed Job gets a new start time."""
    noted = find_condition({"conditions": conditions}, SUSPENDED)
    was = noted is not None and noted.get("status") == "True"
    if whole.suspended == was:
        return conditions, None
    if whole.suspended:
        said = _condition(SUSPENDED, "True", "JobSuspended", "Job suspended", whole.now)
        return set_condition(conditions, said), EventText(NORMAL, "Suspended", "Job suspended")
    status["startTime"] = format_seconds(whole.now)
    said = _condition(SUSPENDED, "False", "JobResumed", "Job resumed", whole.now)
    return set_condition(conditions, said), EventText(NORMAL, "Resumed", "Job resumed")


# --- afterwards -----------------------------------------------------------------------------------


def _plan_finished(whole: JobState) -> WorkloadPlan:
    steps = tuple(release_step(pod) for pod in whole.pods if is_tracked(pod))
    if steps:
        return WorkloadPlan(steps)
    left = seconds_until_ttl(whole.job, whole.now)
    if left is not None and left <= 0:
        return WorkloadPlan((WriteStep(delete(JOBS, whole.job), propagation="Foreground"),))
    return WorkloadPlan((), left)
