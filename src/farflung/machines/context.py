"""Dependencies that all parts of the global scheduler share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import TypeVar

from farflung.lib.klog import Logger
from farflung.lib.workqueue import WorkQueue
from farflung.machines.decide import SchedulerState
from farflung.runtime.controller import Controller
from farflung.runtime.environment import Environment
from farflung.runtime.rebuilder import Rebuilder

K = TypeVar("K", bound=Hashable)


class WriteRate:
    """Spreads writes that only inform users: so many at once, and then so many per second."""

    def __init__(self, burst: int, per_second: float) -> None:
        self._interval = 1.0 / per_second
        self._window = (burst - 1) * self._interval
        self._next = -inf  #: when the next write starts if there is no burst

    def is_free(self, now: float) -> bool:
        return self._next - self._window <= now

    def take(self, now: float) -> float:
        """Reserve a write.  Returns when it may start."""
        start = max(now, self._next - self._window)
        self._next = max(now, self._next) + self._interval
        return start


@dataclass(frozen=True, slots=True)
class SchedulerContext:
    state: SchedulerState
    env: Environment
    now: Callable[[], datetime]
    log: Logger
    rebuilder: Rebuilder
    workers: int  #: per controller

    def controller(
        self, name: str, reconcile: Callable[[K, int], Awaitable[float | None]], *, workers: int | None = None
    ) -> Controller[K]:
        env = self.env
        return Controller(
            name,
            reconcile,
            workers=self.workers if workers is None else workers,
            backoff=env.backoff,
            queue=WorkQueue(env.monotonic),
            log=self.log,
        )
