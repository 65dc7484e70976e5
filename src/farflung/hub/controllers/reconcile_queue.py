"""Work by key: whatever happens becomes the key of something to look at, and looking is what mends it.

A key is never in the hands of two workers; a key added while it is being looked at is looked at again.  A look that
fails is repeated, later each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from farflung.machinery.errors import ApiError
from farflung.store.base import StoreError

K = TypeVar("K", bound=Hashable)

FIRST_DELAY: Final = 0.01  #: seconds before a failed look is repeated; doubled with each failure …
LONGEST_DELAY: Final = 60.0  #: … up to this
OVERTAKEN: Final = (404, 409)  #: somebody else was faster: nothing is wrong, look again

QUOTING: Final = (400, 422)  #: the codes of errors whose messages quote what was sent

log = logging.getLogger(__name__)


class Unfinished(Exception):
    """Not everything could be done; the text says why."""


def delay_after(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return min(FIRST_DELAY * (1 << min(failures - 1, 30)), LONGEST_DELAY)


class Work(Generic[K]):
    """Keys that wait to be looked at, and the workers that look.  Between two looks a worker lets the loop go on."""

    def __init__(self, name: str, look: Callable[[K], Awaitable[None]], *, workers: int) -> None:
        self._name = name
        self._look = look
        self._workers = workers
        self._waiting: asyncio.Queue[K] = asyncio.Queue()
        self._queued: set[K] = set()  #: in `_waiting`, or to be once it is given back
        self._active: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._finished = asyncio.Event()
        self._finished.set()

    def add(self, key: K) -> None:
        """Look at it as soon as a worker is free."""
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if key not in self._queued:
            self._queued.add(key)
            self._finished.clear()
            if key not in self._active:
                self._waiting.put_nowait(key)

    def add_later(self, key: K, delay: float) -> None:
        """Look at it after some seconds, unless it is looked at anyway before that."""
        if delay <= 0:
            self.add(key)
        elif key not in self._timers and key not in self._queued:
            self._finished.clear()
            self._timers[key] = asyncio.get_running_loop().call_later(delay, self.add, key)

    def forget(self, key: K) -> None:
        """Do not look at it later: there is nothing left to look at."""
        if timer := self._timers.pop(key, None):
            timer.cancel()
            self._finish()

    @property
    def is_busy(self) -> bool:
        return not self._finished.is_set()

    async def finished(self) -> None:
        """Until nothing waits, is looked at or will be repeated."""
        await self._finished.wait()

    def start(self, group: asyncio.TaskGroup) -> None:
        for number in range(self._workers):
            group.create_task(self._work(), name=f"{self._name}-{number}")

    def stop(self) -> None:
        """Nothing comes back by itself any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def _work(self) -> None:
        while True:
            key = await self._waiting.get()
            self._queued.discard(key)
            self._active.add(key)
            try:
                await self._look_at(key)
            finally:
                self._give_back(key)
            await asyncio.sleep(0)

    async def _look_at(self, key: K) -> None:
        try:
            await self._look(key)
        except Exception as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            if isinstance(error, ApiError) and error.code in OVERTAKEN:
                log.debug("%s: %s was overtaken: %s", self._name, key, told(error))
            else:
                why = told(error)
                log.warning("%s: %s failed, and is tried again: %s", self._name, key, why, exc_info=is_ours(error))
            self.add_later(key, delay_after(failures))
        else:
            self._failures.pop(key, None)

    def _give_back(self, key: K) -> None:
        self._active.discard(key)
        if key in self._queued:
            self._waiting.put_nowait(key)
        else:
            self._finish()

    def _finish(self) -> None:
        if not (self._queued or self._active or self._timers):
            self._finished.set()


def told(error: Exception) -> str:
    """What the log says of a failure.  What is wrong with an object may quote it: only that something is."""
    if isinstance(error, ApiError) and error.code in QUOTING:
        return f"{error.code} {error.reason}"
    return "" if is_ours(error) else str(error)


def is_ours(error: Exception) -> bool:
    """A mistake of the program: where it happened matters more than what it says."""
    return not isinstance(error, ApiError | StoreError | Unfinished)
