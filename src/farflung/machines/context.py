"""Dependencies that all parts of the global scheduler share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from farflung.lib.klog import Logger
from farflung.machines.decide import SchedulerState
from farflung.runtime.controller import Controller
from farflung.runtime.reflector import Environment

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class SchedulerContext:
    state: SchedulerState
    env: Environment
    now: Callable[[], datetime]
    log: Logger
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
            monotonic=env.monotonic,
            log=self.log,
        )
