"""Which pods of a Job are counted, and which are about to be.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from farflung.controllers.workload.job.indexes import parse, written
from farflung.controllers.workload.job.pods import has_failed, index_of, is_tracked, released
from farflung.controllers.workload.pods import phase
from farflung.controllers.workload.steps import Step
from farflung.machinery.errors import Obj

MOST: Final = 500  #: pods that are about to be counted at once


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
