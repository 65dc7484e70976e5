"""Counters, completion indexes and outcome of a Job.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from farflung.controllers.workload.job.pods import has_failed, index_of, is_tracked, release_step
from farflung.controllers.workload.model.objects import find_condition, is_condition_true, parse_time
from farflung.controllers.workload.model.pods import phase, restart_count
from farflung.controllers.workload.model.steps import WriteStep
from farflung.machinery.errors import Obj

MAX_UNCOUNTED: Final = 500  #: most uids in uncountedTerminatedPods
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
SUCCESS: Final = "SuccessCriteriaMet"
FAILURE: Final = "FailureTarget"


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
        len(completed) if indexed else before.succeeded + _gone(before.uncounted_succeeded, tracked),
        before.failed + _gone(before.uncounted_failed, tracked),
        tuple(succeeded),
        tuple(failed),
        frozenset(completed),
    )


def _gone(uids: Sequence[str], tracked: Mapping[str, Obj]) -> int:
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
