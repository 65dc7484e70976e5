"""Plans the pods and the status of one Job.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from farflung.apis.names import JOB_FINALIZER, JOB_INDEX, JOBS, PODS
from farflung.controllers.workload.model.objects import (
    annotations_of,
    creation_time,
    find_condition,
    is_condition_true,
    is_terminating,
    labels,
    parse_time,
    set_condition,
)
from farflung.controllers.workload.model.pods import (
    BURST_REPLICAS,
    create_pod_step,
    delete_pod_step,
    is_active,
    is_finished,
    is_ready,
    phase,
    pod_from_template,
    random_name,
    rank_for_deletion,
    restart_count,
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
    status_plan,
    update,
)
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds

MANAGER: Final = "kubernetes.io/job-controller"
SUSPENDED: Final = "Suspended"
MAX_UNCOUNTED: Final = 500  #: most uids in uncountedTerminatedPods
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
SUCCESS: Final = "SuccessCriteriaMet"
FAILURE: Final = "FailureTarget"
INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
BACKOFF_BASE: Final = timedelta(seconds=10)
BACKOFF_MAX: Final = timedelta(minutes=10)


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
    state = JobState(job, tuple(pods), now)
    if is_job_finished(job):
        return _plan_finished(state)
    outcome = find_outcome(job, stored_counts(job), state.active, now)
    counts = next_counts(job, pods, over=outcome is not None and outcome.type == FAILED)
    # the start time is written before pods are created, because the server may refuse them
    is_new = not state.suspended and not (job.get("status") or {}).get("startTime")
    if counts != stored_counts(job) or is_new:
        return _status_plan(state, counts, None)
    if steps := release_steps(job, pods) or _pod_steps(state, counts, outcome, suffix):
        return WorkloadPlan(steps)
    again = soonest(seconds_until_deadline(job, now), _next_pod(state, counts, outcome))
    return _status_plan(state, counts, outcome, again)


# --- pods -----------------------------------------------------------------------------------------


def _pod_steps(
    state: JobState, counts: JobCounts, outcome: JobOutcome | None, suffix: Callable[[], str]
) -> tuple[WriteStep, ...]:
    active = state.active
    if outcome is not None:
        return tuple(delete_pod_step(pod) for pod in active)
    if state.suspended:
        return tuple(step for pod in active for step in drop_steps(pod))
    if surplus := _surplus_pods(state, counts):
        return tuple(step for pod in surplus for step in drop_steps(pod))
    missing = _missing_indexes(state, counts)
    if not missing or backoff_remaining(state.pods, state.now) > 0:
        return ()
    return tuple(create_pod_step(new_pod(state.job, index, suffix())) for index in missing)


def _wanted_active(state: JobState, counts: JobCounts) -> int:
    spec, active = state.job["spec"], len(state.active)
    parallelism = 1 if spec.get("parallelism") is None else int(spec["parallelism"])
    completions = spec.get("completions")
    if completions is None:
        return min(active, parallelism) if counts.all_succeeded else parallelism
    return max(0, min(parallelism, int(completions) - counts.all_succeeded))


def _surplus_pods(state: JobState, counts: JobCounts) -> list[Obj]:
    """Pods with a duplicate or invalid index, and pods beyond the wanted number."""
    useless = _invalid_index_pods(state, counts) if is_indexed(state.job) else []
    others = [pod for pod in state.active if pod not in useless]
    more = max(0, len(others) - _wanted_active(state, counts))
    return [*useless, *rank_for_deletion(others)[:more]]


def _invalid_index_pods(state: JobState, counts: JobCounts) -> list[Obj]:
    completions, seen = state.job["spec"].get("completions") or 0, set(counts.completed)
    found = []
    for pod in reversed(rank_for_deletion(state.active)):
        index = index_of(pod)
        if index in seen or not 0 <= index < completions:
            found.append(pod)
        seen.add(index)
    return found


def _missing_indexes(state: JobState, counts: JobCounts) -> list[int | None]:
    """Indexes of the pods to create; None for each pod of a non-indexed Job."""
    busy = [*state.active, *(state.terminating if state.job["spec"].get("podReplacementPolicy") == "Failed" else ())]
    number = min(max(0, _wanted_active(state, counts) - len(busy)), BURST_REPLICAS)
    if not is_indexed(state.job):
        return [None] * number
    taken = {*counts.completed, *(index_of(pod) for pod in busy)}
    free = (index for index in range(state.job["spec"].get("completions") or 0) if index not in taken)
    return [index for _, index in zip(range(number), free, strict=False)]


def _next_pod(state: JobState, counts: JobCounts, outcome: JobOutcome | None) -> float | None:
    if outcome is not None or state.suspended or not _missing_indexes(state, counts):
        return None
    return backoff_remaining(state.pods, state.now)


# --- status ---------------------------------------------------------------------------------------


def _status_plan(
    state: JobState, counts: JobCounts, outcome: JobOutcome | None, again: float | None = None
) -> WorkloadPlan:
    job, before = state.job, state.job.get("status") or {}
    status: Obj = counts.members(indexed=is_indexed(job))
    if state.active:
        status["active"] = len(state.active)
    status |= {"ready": sum(is_ready(pod) for pod in state.active), "terminating": len(state.terminating)}
    if before.get("startTime"):
        status["startTime"] = before["startTime"]
    elif not state.suspended:
        status["startTime"] = format_seconds(state.now)
    conditions: list[Obj] = list(before.get("conditions") or ())
    if outcome is not None:
        conditions, event = _finished_conditions(state, counts, outcome, conditions)
    else:
        conditions, event = _suspended_conditions(state, status, conditions)
    if find_condition({"conditions": conditions}, COMPLETE) is not None:
        status["completionTime"] = format_seconds(state.now)
    if conditions:
        status["conditions"] = conditions
    return status_plan(JOBS, job, status, again, event)


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
    state: JobState, counts: JobCounts, outcome: JobOutcome, conditions: list[Obj]
) -> tuple[list[Obj], EventText | None]:
    """First SuccessCriteriaMet or FailureTarget; after all pods are finished and counted, Complete or Failed."""
    mark = SUCCESS if outcome.type == COMPLETE else FAILURE
    conditions = set_condition(conditions, _condition(mark, "True", outcome.reason, outcome.message, state.now))
    left = state.active or state.terminating or any(is_tracked(pod) for pod in state.pods)
    if left or not counts.is_fully_counted:
        return conditions, None
    conditions = set_condition(conditions, _condition(outcome.type, "True", outcome.reason, outcome.message, state.now))
    if outcome.type == COMPLETE:
        return conditions, EventText(NORMAL, "Completed", "Job completed")
    return conditions, EventText(WARNING, outcome.reason, outcome.message)


def _suspended_conditions(state: JobState, status: Obj, conditions: list[Obj]) -> tuple[list[Obj], EventText | None]:
    """A resumed Job gets a new start time."""
    was = is_condition_true({"conditions": conditions}, SUSPENDED)
    if state.suspended == was:
        return conditions, None
    if state.suspended:
        new = _condition(SUSPENDED, "True", "JobSuspended", "Job suspended", state.now)
        return set_condition(conditions, new), EventText(NORMAL, "Suspended", "Job suspended")
    status["startTime"] = format_seconds(state.now)
    new = _condition(SUSPENDED, "False", "JobResumed", "Job resumed", state.now)
    return set_condition(conditions, new), EventText(NORMAL, "Resumed", "Job resumed")


# --- finished Jobs --------------------------------------------------------------------------------


def _plan_finished(state: JobState) -> WorkloadPlan:
    steps = tuple(release_step(pod) for pod in state.pods if is_tracked(pod))
    if steps:
        return WorkloadPlan(steps)
    left = seconds_until_ttl(state.job, state.now)
    if left is not None and left <= 0:
        return WorkloadPlan((WriteStep(delete(JOBS, state.job), propagation="Foreground"),))
    return WorkloadPlan((), left)


# --- counters, completion indexes and outcome -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Counters, and uids of finished pods that still have, or may have, their finalizers."""

    succeeded: int
    failed: int
    uncounted_succeeded: tuple[str, ...]
    uncounted_failed: tuple[str, ...]
    completed: frozenset[int]  #: indexes

    @property
    def all_succeeded(self) -> int:
        return self.succeeded + len(self.uncounted_succeeded)

    @property
    def all_failed(self) -> int:
        return self.failed + len(self.uncounted_failed)

    @property
    def is_fully_counted(self) -> bool:
        return not self.uncounted_succeeded and not self.uncounted_failed

    def members(self, *, indexed: bool) -> Obj:
        """Fields of the Job's status."""
        waiting = {"succeeded": list(self.uncounted_succeeded), "failed": list(self.uncounted_failed)}
        status: Obj = {"uncountedTerminatedPods": {name: uids for name, uids in waiting.items() if uids}}
        if self.succeeded:
            status["succeeded"] = self.succeeded
        if self.failed:
            status["failed"] = self.failed
        if indexed and self.completed:
            status["completedIndexes"] = format_indexes(self.completed)
        return status


def is_indexed(job: Obj) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def stored_counts(job: Obj) -> JobCounts:
    """The counters in the Job's status."""
    status: Obj = job.get("status") or {}
    waiting: Obj = status.get("uncountedTerminatedPods") or {}
    limit = job["spec"].get("completions") or 0
    return JobCounts(
        status.get("succeeded") or 0,
        status.get("failed") or 0,
        tuple(waiting.get("succeeded") or ()),
        tuple(waiting.get("failed") or ()),
        frozenset(parse_indexes(status.get("completedIndexes") or "", limit)) if is_indexed(job) else frozenset(),
    )


def next_counts(job: Obj, pods: Sequence[Obj], *, over: bool) -> JobCounts:
    """The next counters: pods without finalizer are counted, finished pods are listed as uncounted.  `over`: the Job
    has failed, and so has every pod that has not succeeded."""
    before, indexed = stored_counts(job), is_indexed(job)
    tracked = {pod["metadata"]["uid"]: pod for pod in pods if is_tracked(pod)}
    succeeded = [uid for uid in before.uncounted_succeeded if uid in tracked]
    failed = [uid for uid in before.uncounted_failed if uid in tracked]
    completed = set(before.completed)
    known = {*succeeded, *failed}
    for uid, pod in tracked.items():
        if uid in known or len(succeeded) + len(failed) >= MAX_UNCOUNTED:
            continue
        if phase(pod) == "Succeeded" and indexed:
            completed |= {index_of(pod)} if _has_valid_index(job, pod) else set()
        elif phase(pod) == "Succeeded":
            succeeded.append(uid)
        elif over or has_failed(job, pod):
            failed.append(uid)
    return JobCounts(
        len(completed) if indexed else before.succeeded + _count_untracked(before.uncounted_succeeded, tracked),
        before.failed + _count_untracked(before.uncounted_failed, tracked),
        tuple(succeeded),
        tuple(failed),
        frozenset(completed),
    )


def _count_untracked(uids: Sequence[str], tracked: Mapping[str, Obj]) -> int:
    return sum(uid not in tracked for uid in uids)


def release_steps(job: Obj, pods: Sequence[Obj]) -> tuple[WriteStep, ...]:
    """Remove the finalizers of pods that the status accounts for."""
    now = stored_counts(job)
    named = {*now.uncounted_succeeded, *now.uncounted_failed}
    indexed = is_indexed(job)
    return tuple(
        release_step(pod)
        for pod in pods
        if is_tracked(pod) and (pod["metadata"]["uid"] in named or (indexed and _is_counted(job, pod, now)))
    )


def _is_counted(job: Obj, pod: Obj, now: JobCounts) -> bool:
    return phase(pod) == "Succeeded" and (index_of(pod) in now.completed or not _has_valid_index(job, pod))


def _has_valid_index(job: Obj, pod: Obj) -> bool:
    return 0 <= index_of(pod) < (job["spec"].get("completions") or 0)


def parse_indexes(text: str, limit: int) -> set[int]:
    """Indexes of `1,3-5,7`.  Malformed parts and indexes from `limit` on are omitted."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found.update(range(int(first), min(int(last or first), limit - 1) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """Runs of three or more use a dash."""
    runs: list[list[int]] = []
    for index in sorted(set(indexes)):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The condition that a Job gets after all its pods have finished."""

    type: str  #: COMPLETE or FAILED
    reason: str
    message: str


def is_job_finished(job: Obj) -> bool:
    return is_condition_true(job.get("status"), COMPLETE) or is_condition_true(job.get("status"), FAILED)


def find_outcome(job: Obj, counts: JobCounts, active: list[Obj], now: datetime) -> JobOutcome | None:
    status: Obj = job.get("status") or {}
    for mark, type in ((FAILURE, FAILED), (SUCCESS, COMPLETE)):
        if (target := find_condition(status, mark)) is not None and target.get("status") == "True":
            return JobOutcome(type, target.get("reason") or "", target.get("message") or "")
    if _exceeds_backoff_limit(job, counts, active):
        return JobOutcome(FAILED, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left = seconds_until_deadline(job, now)
    if left is not None and left <= 0:
        return JobOutcome(FAILED, "DeadlineExceeded", "Job was active longer than specified deadline")
    if _has_completed(job, counts) and not active:
        return JobOutcome(COMPLETE, "CompletionsReached", "Reached expected number of succeeded pods")
    return None


def _has_completed(job: Obj, counts: JobCounts) -> bool:
    """Without `completions`, one succeeded pod completes the Job."""
    completions = job["spec"].get("completions")
    return counts.all_succeeded > 0 if completions is None else counts.all_succeeded >= completions


def _exceeds_backoff_limit(job: Obj, counts: JobCounts, active: list[Obj]) -> bool:
    limit = job["spec"].get("backoffLimit")
    limit = 6 if limit is None else limit
    if counts.all_failed > limit:
        return True
    if (job["spec"]["template"].get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    again = sum(restart_count(pod) for pod in active if phase(pod) in ("Running", "Pending"))
    return again >= limit if limit else again > 0


def seconds_until_deadline(job: Obj, now: datetime) -> float | None:
    """None without a deadline, before the start, and while suspended."""
    seconds, started = job["spec"].get("activeDeadlineSeconds"), (job.get("status") or {}).get("startTime")
    if seconds is None or not started or job["spec"].get("suspend"):
        return None
    return (parse_time(started) + timedelta(seconds=seconds) - now).total_seconds()


def seconds_until_ttl(job: Obj, now: datetime) -> float | None:
    """None if the Job is not finished or has no TTL."""
    seconds = job["spec"].get("ttlSecondsAfterFinished")
    status: Obj = job.get("status") or {}
    ends = [
        one
        for name in (COMPLETE, FAILED)
        if (one := find_condition(status, name)) is not None and one["status"] == "True"
    ]
    if seconds is None or not ends:
        return None
    return (parse_time(ends[0].get("lastTransitionTime")) + timedelta(seconds=seconds) - now).total_seconds()


# --- pods of a Job --------------------------------------------------------------------------------


def new_pod(job: Obj, index: int | None, suffix: str) -> Obj:
    prefix = f"{job['metadata']['name']}-" if index is None else f"{job['metadata']['name']}-{index}-"
    pod = pod_from_template(job, JOBS, job["spec"]["template"], random_name(prefix, suffix), prefix)
    metadata = pod["metadata"]
    metadata["finalizers"] = [*metadata.get("finalizers", ()), JOB_FINALIZER]
    if index is not None:
        metadata["annotations"] = {**annotations_of(pod), JOB_INDEX: str(index)}
        metadata["labels"] = {**labels(pod), JOB_INDEX: str(index)}
        pod["spec"].setdefault("hostname", f"{job['metadata']['name']}-{index}")
        for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
            variables = container.get("env") or []
            if all(one.get("name") != INDEX_VARIABLE for one in variables):
                source: Obj = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{JOB_INDEX}']"}}
                container["env"] = [*variables, {"name": INDEX_VARIABLE, "valueFrom": source}]
    return pod


def index_of(pod: Obj) -> int:
    """-1: none."""
    text = annotations_of(pod).get(JOB_INDEX, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def is_tracked(pod: Obj) -> bool:
    return JOB_FINALIZER in (pod["metadata"].get("finalizers") or ())


def release_step(pod: Obj) -> WriteStep:
    """Remove the finalizer."""
    metadata = dict(pod["metadata"])
    left = [one for one in metadata.pop("finalizers", ()) if one != JOB_FINALIZER]
    return WriteStep(update(PODS, {**pod, "metadata": {**metadata, "finalizers": left} if left else metadata}))


def drop_steps(pod: Obj) -> tuple[WriteStep, ...]:
    """Delete a pod without counting it."""
    return (release_step(pod), delete_pod_step(pod)) if is_tracked(pod) else (delete_pod_step(pod),)


def has_failed(job: Obj, pod: Obj) -> bool:
    """A terminating pod counts as failed at once, unless podReplacementPolicy is Failed."""
    if phase(pod) == "Failed":
        return True
    waits = job["spec"].get("podReplacementPolicy") == "Failed"
    return not waits and is_terminating(pod) and phase(pod) != "Succeeded"


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
