"""Say why something is not placed: a condition and an Event, not too often, and only if it is something else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from farflung.client.errors import NotFound
from farflung.controllers.global_scheduler import statuses
from farflung.controllers.global_scheduler.binding import ALLOCATIONS, PODS, Binder
from farflung.controllers.global_scheduler.subjects import POD, Seen, Subject
from farflung.controllers.global_scheduler.world import World
from farflung.lib.klog import Logger
from farflung.machinery import times
from farflung.runtime.controller import Controller
from farflung.runtime.recorder import About, Recorder
from farflung.runtime.reflector import Environment

NAME: Final = "global-scheduler-telling"
FIRST_PAUSE: Final = 5.0  #: seconds between two writes about the same; twice as many each time
LONGEST_PAUSE: Final = 60.0
LONGEST_MESSAGE: Final = 1024
COMPONENT: Final = "global-scheduler"


class _Told(NamedTuple):
    at: float
    pause: float


class Telling:
    def __init__(
        self,
        world: World,
        binder: Binder,
        recorder: Recorder,
        env: Environment,
        now: Callable[[], datetime],
        log: Logger,
        *,
        workers: int,
    ) -> None:
        self._world = world
        self._binder = binder
        self._recorder = recorder
        self._monotonic = env.monotonic
        self._now = now
        self._wanted: dict[Subject, tuple[str, str]] = {}  #: reason and message
        self._told: dict[Subject, _Told] = {}
        self.controller: Controller[Subject] = Controller(
            NAME, self.reconcile, workers=workers, backoff=env.backoff, monotonic=env.monotonic, log=log
        )

    def say(self, subject: Subject, seen: Seen, reason: str, message: str) -> None:
        """It is not placed."""
        message = message[:LONGEST_MESSAGE]
        if statuses.says(seen.status, reason, message, _condition(subject)):
            self._wanted.pop(subject, None)
            return
        self._wanted[subject] = reason, message
        told = self._told.get(subject)
        if told is None:
            self.controller.queue.add(subject)
        else:
            self.controller.queue.add_after(subject, max(0.0, told.at + told.pause - self._monotonic()))

    def forget(self, subject: Subject) -> None:
        """It is placed, or gone."""
        self._wanted.pop(subject, None)
        self._told.pop(subject, None)

    def placed(self, subject: Subject, seen: Seen, message: str) -> None:
        self._recorder.record(about(subject, seen), "Normal", "Scheduled", message)

    def left(self, subject: Subject, seen: Seen, message: str) -> None:
        self._recorder.record(about(subject, seen), "Warning", "LeftCluster", message)

    async def reconcile(self, subject: Subject, worker: int) -> float | None:
        wanted, seen = self._wanted.get(subject), self._world.seen(subject)
        if wanted is None or seen is None or not seen.asks or self._world.is_under_way(seen.uid):
            return None
        reason, message = wanted
        if not statuses.says(seen.status, reason, message, _condition(subject)):
            now = times.format_seconds(self._now())
            if subject.kind == POD:
                status = {"conditions": statuses.pod_conditions(seen.status, "False", reason, message, now)}
            else:
                status = statuses.refused_allocation(seen, reason, message, now)
            try:
                await self._binder.write_status(subject, seen, status)
            except NotFound:
                return None
            self._recorder.record(about(subject, seen), "Warning", "FailedScheduling", message)
            before = self._told.get(subject)
            pause = FIRST_PAUSE if before is None else min(LONGEST_PAUSE, 2 * before.pause)
            self._told[subject] = _Told(self._monotonic(), pause)
        if self._wanted.get(subject) == wanted:
            del self._wanted[subject]
        return None


def _condition(subject: Subject) -> str:
    return statuses.SCHEDULED if subject.kind == POD else statuses.PLACED


def about(subject: Subject, seen: Seen) -> About:
    collection = PODS if subject.kind == POD else ALLOCATIONS
    key = subject.key
    return About(key.cluster, collection.api_version, collection.kind, key.name, key.namespace, seen.uid)
