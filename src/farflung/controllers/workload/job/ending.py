"""Whether a Job has ended, and how.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from farflung.controllers.workload.conditions import found, is_true
from farflung.controllers.workload.job.counting import Counts
from farflung.controllers.workload.pods import moment, phase, restarts
from farflung.machinery.errors import Obj

COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
SUCCESS: Final = "SuccessCriteriaMet"
FAILURE: Final = "FailureTarget"


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
