"""Measures how long the event loop lets its timers wait.

A timer fires PERIOD after the last one, or later if a turn of the loop takes longer.  Its delay is the *lag* that every
client feels.  On a loaded machine another process may cause it, so a turn counts as *long* only if the thread of the
loop also used as much CPU time.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from typing import Final

PERIOD: Final = 0.025  #: seconds between two measurements
LONG: Final = 0.05  #: seconds of CPU time that no turn of the loop may take
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  #: upper bounds, in seconds

Clock = Callable[[], float]


class LoopProbe:
    def __init__(self, clock: Clock = time.monotonic, cpu_clock: Clock = time.thread_time) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._counts = [0] * (len(BUCKETS) + 1)
        self._due = 0.0
        self._used = 0.0  #: CPU time at the last measurement
        self._timer: asyncio.TimerHandle | None = None
        self.sum = 0.0  #: of all lags
        self.longest = 0.0  #: most CPU time that one turn surely took
        self.long_turns = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._begin()
        self._timer = loop.call_later(PERIOD, self._tick, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._due = self._clock() + PERIOD
        self._used = self._cpu_clock()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._measure()
        self.start(loop)

    def _measure(self) -> None:
        lag = max(self._clock() - self._due, 0.0)
        busy = min(lag, self._cpu_clock() - self._used)
        self._counts[bisect_left(BUCKETS, lag)] += 1
        self.sum += lag
        self.longest = max(self.longest, busy)
        if busy > LONG:
            self.long_turns += 1

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound, as in a histogram of Prometheus."""
        return list(zip([*map(str, BUCKETS), "+Inf"], accumulate(self._counts), strict=True))
