"""An event loop in which waiting takes no time: its clock jumps to the next timer when nothing else can happen.

A test waits as long as the program does, in seconds of the loop, and takes no longer than what the program computes.
Which of two timers ends first does not depend on the machine.

The clock jumps only if nothing outside of the loop can happen.  While a thread works for the loop, the clock stands
still, so that no timer depends on how fast the thread is.  While a file descriptor is watched, time passes as it does
on the wall.  What reads another clock than the loop's does not see it jump.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from shuffled_loop import ShuffledLoop

from farflung.lib.backoff import Backoff
from farflung.runtime.environment import Environment

PATIENCE: Final = 60.0  #: seconds of the wall after which a condition will not come true any more
SIMULATED_PATIENCE: Final = 1200.0  #: the same in seconds of a SimulatedLoop
LONGER: Final = 35.0  #: seconds; longer than any controller pauses before it tries again what failed
TURN: Final = 1e-5  #: seconds that a turn of the loop takes, so that a task that only yields sees time pass


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self, *arguments: Any) -> None:
        self._began, self._elapsed = datetime.now(UTC), 0.0
        self._threads = 0  #: calls that run in threads
        super().__init__(*arguments)
        self._own = len(self._watched)  #: the loop wakes itself by a file descriptor

    @property
    def _watched(self) -> Any:
        return self._selector.get_map()  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._elapsed

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self._elapsed)

    def run_in_executor(self, *arguments: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future: asyncio.Future[Any] = super().run_in_executor(*arguments)
        self._threads += 1
        future.add_done_callback(self._end_thread)
        return future

    def _end_thread(self, _: asyncio.Future[Any]) -> None:
        self._threads -= 1

    def _run_once(self) -> None:
        self._elapsed += TURN
        began = time.monotonic()
        watches = len(self._watched) > self._own
        jumps = not watches and not self._threads and not self._is_busy()
        if jumps and (timers := self._scheduled):  # type: ignore[attr-defined]
            self._elapsed = max(self._elapsed, timers[0].when())
        super()._run_once()  # type: ignore[misc]
        if watches:
            self._elapsed += time.monotonic() - began

    def _is_busy(self) -> bool:
        """There is something to do now."""
        return bool(self._ready)  # type: ignore[attr-defined]


class ShuffledSimulatedLoop(SimulatedLoop, ShuffledLoop):
    """Takes the seed."""

    def _is_busy(self) -> bool:
        return bool(self._kept) or super()._is_busy()


def pytest_asyncio_loop_factories(config: pytest.Config) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The conftest.py of a folder imports this if its tests shall run in simulated time."""
    seed = config.getoption("--shuffle")
    return {"simulated": SimulatedLoop if seed is None else lambda: ShuffledSimulatedLoop(seed)}


def factories_of_marked_tests(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Only tests that are marked so run in simulated time."""
    if item.get_closest_marker("simulated_time"):
        return pytest_asyncio_loop_factories(config)
    return {"asyncio": asyncio.new_event_loop}


def monotonic() -> float:
    """The clock of the running loop."""
    return asyncio.get_running_loop().time()


def simulated_environment() -> Environment:
    """Pauses as long as in a real process, without randomness."""
    return Environment(monotonic, asyncio.sleep, lambda: 0.5, Backoff(0.05, 30.0, lambda: 0.5))


def now() -> datetime:
    """The time of day in the running loop."""
    loop = asyncio.get_running_loop()
    return loop.now() if isinstance(loop, SimulatedLoop) else datetime.now(UTC)


async def poll(condition: Callable[[], Any]) -> Any:
    """What the condition, perhaps a coroutine function, returns as soon as that is true; None if that takes too long.
    It is called less often the longer it takes."""
    began = monotonic()
    patience = SIMULATED_PATIENCE if isinstance(asyncio.get_running_loop(), SimulatedLoop) else PATIENCE
    while (waited := monotonic() - began) < patience:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        await asyncio.sleep(min(max(0.001, waited / 10), 1.0))
    return None
