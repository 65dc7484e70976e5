"""What has to be done next about one Job.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from farflung.controllers.workload.job.pods import dropped, index_of, is_tracked, made, pause, released
from farflung.controllers.workload.job.progress import (
    COMPLETE,
    FAILED,
    FAILURE,
    SUCCESS,
    Counts,
    Verdict,
    counted,
    is_indexed,
    is_over,
    life_left,
    releasing,
    stored,
    time_left,
    verdict,
)
from farflung.controllers.workload.objects import JOBS, found, is_terminating, put
from farflung.controllers.workload.pods import (
    MOST_AT_ONCE,
    creation,
    first_to_go,
    is_active,
    is_finished,
    is_ready,
    removal,
)
from farflung.controllers.workload.steps import (
    NORMAL,
    NOTHING,
    WARNING,
    Plan,
    Said,
    Step,
    delete,
    sooner,
    update_status,
)
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds

MANAGER: Final = "kubernetes.io/job-controller"
SUSPENDED: Final = "Suspended"


@dataclass(frozen=True, slots=True)
class Whole:
    job: Obj
    pods: tuple[Obj, ...]
    now: datetime

    @property
    def active(self) -> list[Obj]:
        return [pod for pod in self.pods if is_active(pod)]

    @property
    def going(self) -> list[Obj]:
        return [pod for pod in self.pods if is_terminating(pod) and not is_finished(pod)]

    @property
    def suspended(self) -> bool:
        return bool(self.job["spec"].get("suspend"))


def decide(job: Obj, pods: Sequence[Obj], suffix: Callable[[], str], now: datetime) -> Plan:
    """Each look does one thing: counts, lets counted pods go, makes or deletes pods, or says how it stands."""
    if (job["spec"].get("managedBy") or MANAGER) != MANAGER:
        return NOTHING
    if is_terminating(job):
        return Plan(tuple(released(pod) for pod in pods if is_tracked(pod)))
    whole = Whole(job, tuple(pods), now)
    if is_over(job):
        return _about_rest(whole)
    ended = verdict(job, stored(job), whole.active, now)
    counts = counted(job, pods, over=ended is not None and ended.type == FAILED)
    if counts != stored(job) or _is_new(whole):
        return Plan((_status(whole, counts, None),))
    if steps := releasing(job, pods) or _about_pods(whole, counts, ended, suffix):
        return Plan(steps)
    step = _status(whole, counts, ended)
    again = sooner(time_left(job, now), _next_pod(whole, counts, ended))
    return Plan((), again) if _is_same(job, step) else Plan((step,), again)


def _is_new(whole: Whole) -> bool:
    """It says that it has begun before it has pods, because they may be refused."""
    return not whole.suspended and not (whole.job.get("status") or {}).get("startTime")


def _is_same(job: Obj, step: Step) -> bool:
    return bool(step.write.object["status"] == job.get("status"))  # type: ignore[union-attr]


# --- pods -----------------------------------------------------------------------------------------


def _about_pods(whole: Whole, counts: Counts, ended: Verdict | None, suffix: Callable[[], str]) -> tuple[Step, ...]:
    active = whole.active
    if ended is not None:
        return tuple(removal(pod) for pod in active)
    if whole.suspended:
        return tuple(step for pod in active for step in dropped(pod))
    surplus = _surplus(whole, counts)
    if surplus:
        return tuple(step for pod in surplus for step in dropped(pod))
    missing = _missing(whole, counts)
    if not missing or pause(whole.pods, whole.now) > 0:
        return ()
    return tuple(creation(made(whole.job, index, suffix())) for index in missing)


def _wanted(whole: Whole, counts: Counts) -> int:
    """How many pods there should be at work."""
    spec, active = whole.job["spec"], len(whole.active)
    parallelism = 1 if spec.get("parallelism") is None else int(spec["parallelism"])
    completions = spec.get("completions")
    if completions is None:
        return min(active, parallelism) if counts.all_succeeded else parallelism
    return max(0, min(parallelism, int(completions) - counts.all_succeeded))


def _surplus(whole: Whole, counts: Counts) -> list[Obj]:
    """Pods of an index that another has, or that nobody wants; and as many others as there are too many."""
    useless = _useless(whole, counts) if is_indexed(whole.job) else []
    others = [pod for pod in whole.active if pod not in useless]
    more = max(0, len(others) - _wanted(whole, counts))
    return [*useless, *first_to_go(others)[:more]]


def _useless(whole: Whole, counts: Counts) -> list[Obj]:
    completions, seen = whole.job["spec"].get("completions") or 0, set(counts.completed)
    found = []
    for pod in reversed(first_to_go(whole.active)):
        index = index_of(pod)
        if index in seen or not 0 <= index < completions:
            found.append(pod)
        seen.add(index)
    return found


def _missing(whole: Whole, counts: Counts) -> list[int | None]:
    """The indexes of pods that are to be made now; None of a Job without."""
    busy = [*whole.active, *(whole.going if whole.job["spec"].get("podReplacementPolicy") == "Failed" else ())]
    number = min(max(0, _wanted(whole, counts) - len(busy)), MOST_AT_ONCE)
    if not is_indexed(whole.job):
        return [None] * number
    taken = {*counts.completed, *(index_of(pod) for pod in busy)}
    free = (index for index in range(whole.job["spec"].get("completions") or 0) if index not in taken)
    return [index for _, index in zip(range(number), free, strict=False)]


def _next_pod(whole: Whole, counts: Counts, ended: Verdict | None) -> float | None:
    if ended is not None or whole.suspended or not _missing(whole, counts):
        return None
    return pause(whole.pods, whole.now)


# --- status ---------------------------------------------------------------------------------------


def _status(whole: Whole, counts: Counts, ended: Verdict | None) -> Step:
    job, before = whole.job, whole.job.get("status") or {}
    status: Obj = counts.members(indexed=is_indexed(job))
    if whole.active:
        status["active"] = len(whole.active)
    status |= {"ready": sum(is_ready(pod) for pod in whole.active), "terminating": len(whole.going)}
    if before.get("startTime"):
        status["startTime"] = before["startTime"]
    elif not whole.suspended:
        status["startTime"] = format_seconds(whole.now)
    conditions: list[Obj] = list(before.get("conditions") or ())
    said = None
    if ended is not None:
        conditions, said = _concluded(whole, counts, ended, conditions)
    else:
        conditions, said = _paused(whole, status, conditions)
    if found({"conditions": conditions}, COMPLETE) is not None:
        status["completionTime"] = format_seconds(whole.now)
    if conditions:
        status["conditions"] = conditions
    return Step(update_status(JOBS, job, status), said)


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


def _concluded(whole: Whole, counts: Counts, ended: Verdict, conditions: list[Obj]) -> tuple[list[Obj], Said | None]:
    """First what it will come to; and when all pods have ended and are counted, that it has."""
    mark = SUCCESS if ended.type == COMPLETE else FAILURE
    conditions = put(conditions, _condition(mark, "True", ended.reason, ended.message, whole.now))
    left = whole.active or whole.going or any(is_tracked(pod) for pod in whole.pods)
    if left or not counts.is_settled:
        return conditions, None
    conditions = put(conditions, _condition(ended.type, "True", ended.reason, ended.message, whole.now))
    if ended.type == COMPLETE:
        return conditions, Said(NORMAL, "Completed", "Job completed")
    return conditions, Said(WARNING, ended.reason, ended.message)


def _paused(whole: Whole, status: Obj, conditions: list[Obj]) -> tuple[list[Obj], Said | None]:
    """A Job that goes on begins anew, as far as time is concerned."""
    noted = found({"conditions": conditions}, SUSPENDED)
    was = noted is not None and noted.get("status") == "True"
    if whole.suspended == was:
        return conditions, None
    if whole.suspended:
        said = _condition(SUSPENDED, "True", "JobSuspended", "Job suspended", whole.now)
        return put(conditions, said), Said(NORMAL, "Suspended", "Job suspended")
    status["startTime"] = format_seconds(whole.now)
    said = _condition(SUSPENDED, "False", "JobResumed", "Job resumed", whole.now)
    return put(conditions, said), Said(NORMAL, "Resumed", "Job resumed")


# --- afterwards -----------------------------------------------------------------------------------


def _about_rest(whole: Whole) -> Plan:
    steps = tuple(released(pod) for pod in whole.pods if is_tracked(pod))
    if steps:
        return Plan(steps)
    left = life_left(whole.job, whole.now)
    if left is not None and left <= 0:
        return Plan((Step(delete(JOBS, whole.job), propagation="Foreground"),))
    return Plan((), left)
