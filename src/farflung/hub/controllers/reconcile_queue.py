"""A work queue of the hub's controllers, with its workers.  A failed reconcile is retried with exponential backoff."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from farflung.lib.workqueue import WorkQueue
from farflung.machinery.errors import ApiError
from farflung.store.base import StoreError

K = TypeVar("K", bound=Hashable)

FIRST_DELAY: Final = 0.01  #: seconds before the first retry; doubled with each failure …
LONGEST_DELAY: Final = 60.0  #: … up to this
STALE: Final = (404, 409)  #: another client wrote or deleted the object first: retry

QUOTING: Final = (400, 422)  #: codes of errors whose messages quote the object

log = logging.getLogger(__name__)


class Unfinished(Exception):
    """A reconcile that is only partly done, and why."""


def delay_after(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return min(FIRST_DELAY * (1 << min(failures - 1, 30)), LONGEST_DELAY)


class ReconcileQueue(Generic[K]):
    """Workers yield to the event loop between two keys."""

    def __init__(self, name: str, reconcile: Callable[[K], Awaitable[None]], *, workers: int) -> None:
        self._name = name
        self._reconcile = reconcile
        self._workers = workers
        self._keys: WorkQueue[K] = WorkQueue(lambda: asyncio.get_running_loop().time())
        self._failures: dict[K, int] = {}
        self._finished = asyncio.Event()
        self._finished.set()

    def add(self, key: K) -> None:
        self._finished.clear()
        self._keys.add(key)

    def add_later(self, key: K, delay: float) -> None:
        """Add a key after some seconds, unless it is added earlier."""
        self._finished.clear()
        self._keys.add_after(key, delay)

    def forget(self, key: K) -> None:
        """Cancel the delayed addition of a key."""
        self._keys.forget(key)
        self._finish()

    @property
    def is_busy(self) -> bool:
        return not self._finished.is_set()

    async def finished(self) -> None:
        """Wait until no key is queued, active or delayed."""
        await self._finished.wait()

    def start(self, group: asyncio.TaskGroup) -> None:
        for number in range(self._workers):
            group.create_task(self._work(), name=f"{self._name}-{number}")

    async def _work(self) -> None:
        while True:
            async with self._keys.next() as key:
                await self._try(key)
            self._finish()
            await asyncio.sleep(0)

    async def _try(self, key: K) -> None:
        try:
            await self._reconcile(key)
        except Exception as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            if isinstance(error, ApiError) and error.code in STALE:
                log.debug("%s: %s was stale: %s", self._name, key, _describe(error))
            else:
                is_bug = not isinstance(error, ApiError | StoreError | Unfinished)
                message = "" if is_bug else _describe(error)
                log.warning("%s: %s failed, retrying: %s", self._name, key, message, exc_info=is_bug)
            self.add_later(key, delay_after(failures))
        else:
            self._failures.pop(key, None)

    def _finish(self) -> None:
        if self._keys.idle and not len(self._keys):
            self._finished.set()


def _describe(error: Exception) -> str:
    """An error for the log.  Messages that may quote the object are left out."""
    if isinstance(error, ApiError) and error.code in QUOTING:
        return f"{error.code} {error.reason}"
    return str(error)
