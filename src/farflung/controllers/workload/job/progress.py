"""Which pods of a Job are counted, and which are about to be.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from farflung.controllers.workload.job.pods import has_failed, index_of, is_tracked, released
from farflung.controllers.workload.objects import found, is_true, moment
from farflung.controllers.workload.pods import phase, restarts
from farflung.controllers.workload.steps import Step
from farflung.machinery.errors import Obj

MOST: Final = 500  #: pods that are about to be counted at once
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
SUCCESS: Final = "SuccessCriteriaMet"
FAILURE: Final = "FailureTarget"


@dataclass(frozen=True, slots=True)
class Counts:
    """What a Job has come to.  Uids of pods that ended and still have, or may have, their finalizers."""

    succeeded: int
    failed: int
    uncounted_succeeded: tuple[str, ...]
    uncounted_failed: tuple[str, ...]
    completed: frozenset[int]  #: indexes, of an indexed Job

    @property
    def all_succeeded(self) -> int:
        return self.succeeded + len(self.uncounted_succeeded)

    @property
    def all_failed(self) -> int:
        return self.failed + len(self.uncounted_failed)

    @property
    def is_settled(self) -> bool:
        return not self.uncounted_succeeded and not self.uncounted_failed

    def members(self, *, indexed: bool) -> Obj:
        """Of the status."""
        waiting = {"succeeded": list(self.uncounted_succeeded), "failed": list(self.uncounted_failed)}
        status: Obj = {"uncountedTerminatedPods": {name: uids for name, uids in waiting.items() if uids}}
        if self.succeeded:
            status["succeeded"] = self.succeeded
        if self.failed:
            status["failed"] = self.failed
        if indexed and self.completed:
            status["completedIndexes"] = written(self.completed)
        return status


def is_indexed(job: Obj) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def stored(job: Obj) -> Counts:
    """As the status has them."""
    status: Obj = job.get("status") or {}
    waiting: Obj = status.get("uncountedTerminatedPods") or {}
    limit = job["spec"].get("completions") or 0
    return Counts(
        status.get("succeeded") or 0,
        status.get("failed") or 0,
        tuple(waiting.get("succeeded") or ()),
        tuple(waiting.get("failed") or ()),
        frozenset(parse(status.get("completedIndexes") or "", limit)) if is_indexed(job) else frozenset(),
    )


def counted(job: Obj, pods: Sequence[Obj], *, over: bool) -> Counts:
    """As they should be next: who lost the finalizer becomes a number, and who ended is named.  `over`: the Job has
    failed, and so has every pod that has not succeeded."""
    before, indexed = stored(job), is_indexed(job)
    tracked = {pod["metadata"]["uid"]: pod for pod in pods if is_tracked(pod)}
    succeeded = [uid for uid in before.uncounted_succeeded if uid in tracked]
    failed = [uid for uid in before.uncounted_failed if uid in tracked]
    completed = set(before.completed)
    known = {*succeeded, *failed}
    for uid, pod in tracked.items():
        if uid in known or len(succeeded) + len(failed) >= MOST:
            continue
        if phase(pod) == "Succeeded" and indexed:
            completed |= {index_of(pod)} if _is_meant(job, pod) else set()
        elif phase(pod) == "Succeeded":
            succeeded.append(uid)
        elif over or has_failed(job, pod):
            failed.append(uid)
    return Counts(
        len(completed) if indexed else before.succeeded + _gone(before.uncounted_succeeded, tracked),
        before.failed + _gone(before.uncounted_failed, tracked),
        tuple(succeeded),
        tuple(failed),
        frozenset(completed),
    )


def _gone(uids: Sequence[str], tracked: Mapping[str, Obj]) -> int:
    return sum(uid not in tracked for uid in uids)


def releasing(job: Obj, pods: Sequence[Obj]) -> tuple[Step, ...]:
    """The finalizers of pods that the status accounts for."""
    now = stored(job)
    named = {*now.uncounted_succeeded, *now.uncounted_failed}
    indexed = is_indexed(job)
    return tuple(
        released(pod)
        for pod in pods
        if is_tracked(pod) and (pod["metadata"]["uid"] in named or (indexed and _is_noted(job, pod, now)))
    )


def _is_noted(job: Obj, pod: Obj, now: Counts) -> bool:
    """An index is enough to know that its pod is not counted again."""
    return phase(pod) == "Succeeded" and (index_of(pod) in now.completed or not _is_meant(job, pod))


def _is_meant(job: Obj, pod: Obj) -> bool:
    """Its index is one of those that the Job has."""
    return 0 <= index_of(pod) < (job["spec"].get("completions") or 0)


def parse(text: str, limit: int) -> set[int]:
    """What is not below the limit, or cannot be understood, is left out."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found.update(range(int(first), min(int(last or first), limit - 1) + 1))
    return found


def written(indexes: Iterable[int]) -> str:
    """Two neighbours are written with a comma, more with a dash."""
    runs: list[list[int]] = []
    for index in sorted(set(indexes)):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a Job comes to, once all its pods have ended."""

    type: str  #: COMPLETE or FAILED
    reason: str
    message: str


def is_over(job: Obj) -> bool:
    """Whether it has ended for good."""
    return is_true(job.get("status"), COMPLETE) or is_true(job.get("status"), FAILED)


def verdict(job: Obj, counts: Counts, active: list[Obj], now: datetime) -> Verdict | None:
    status: Obj = job.get("status") or {}
    for mark, type in ((FAILURE, FAILED), (SUCCESS, COMPLETE)):
        if (target := found(status, mark)) is not None and target.get("status") == "True":
            return Verdict(type, target.get("reason") or "", target.get("message") or "")
    if _is_exhausted(job, counts, active):
        return Verdict(FAILED, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left = time_left(job, now)
    if left is not None and left <= 0:
        return Verdict(FAILED, "DeadlineExceeded", "Job was active longer than specified deadline")
    if _is_reached(job, counts) and not active:
        return Verdict(COMPLETE, "CompletionsReached", "Reached expected number of succeeded pods")
    return None


def _is_reached(job: Obj, counts: Counts) -> bool:
    """Without a number of completions, one pod that succeeds says that all is done."""
    completions = job["spec"].get("completions")
    return counts.all_succeeded > 0 if completions is None else counts.all_succeeded >= completions


def _is_exhausted(job: Obj, counts: Counts, active: list[Obj]) -> bool:
    limit = job["spec"].get("backoffLimit")
    limit = 6 if limit is None else limit
    if counts.all_failed > limit:
        return True
    if (job["spec"]["template"].get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    again = sum(restarts(pod) for pod in active if phase(pod) in ("Running", "Pending"))
    return again >= limit if limit else again > 0


def time_left(job: Obj, now: datetime) -> float | None:
    """Seconds until its deadline; None if it has none, or if the time does not run."""
    seconds, started = job["spec"].get("activeDeadlineSeconds"), (job.get("status") or {}).get("startTime")
    if seconds is None or not started or job["spec"].get("suspend"):
        return None
    return (moment(started) + timedelta(seconds=seconds) - now).total_seconds()


def life_left(job: Obj, now: datetime) -> float | None:
    """Seconds until a Job that has ended is deleted; None if it never is."""
    seconds = job["spec"].get("ttlSecondsAfterFinished")
    status: Obj = job.get("status") or {}
    ends = [one for name in (COMPLETE, FAILED) if (one := found(status, name)) is not None and one["status"] == "True"]
    if seconds is None or not ends:
        return None
    return (moment(ends[0].get("lastTransitionTime")) + timedelta(seconds=seconds) - now).total_seconds()
