"""One loop: a key is taken, looked at as a whole, and looked at again if that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from farflung.client.errors import AlreadyExists, ClientError, Unreachable, UpdateConflict
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.runtime.workqueue import WorkQueue

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class ReconcileCounts:
    """What a controller did so far."""

    successes: int = 0
    failures: int = 0


class Controller(Generic[K]):
    """`reconcile(key, worker)` makes things as they should be, or raises.  It returns the number of seconds after which
    it wants to look again; None: when something changes."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K, int], Awaitable[float | None]],
        *,
        workers: int,
        backoff: Backoff,
        monotonic: Callable[[], float],
        log: Logger,
    ) -> None:
        self.name = name
        self.queue: WorkQueue[K] = WorkQueue(monotonic)
        self.tally = ReconcileCounts()
        self._reconcile = reconcile
        self._workers = workers
        self._backoff = backoff
        self._log = log
        self._failures: dict[K, int] = {}
        self._unreached: set[K] = set()  #: keys that failed last because a server did not answer

    def retry_unreached(self) -> None:
        """A server answers again: look at once at the keys that failed because it did not, as if for the first time.
        One that a worker has may still wait for the server in vain, and is looked at again right after that."""
        for key in self._unreached:
            self._failures.pop(key, None)
            self.queue.add(key)
        self._unreached.clear()

    async def run(self) -> None:
        """Until cancelled."""
        self._log.info("starting controller", controller=self.name)
        try:
            async with asyncio.TaskGroup() as workers:
                for number in range(self._workers):
                    workers.create_task(self._work(number), name=f"{self.name} {number}")
        finally:
            self._log.info("shutting down controller", controller=self.name)

    async def _work(self, number: int) -> None:
        while True:
            async with self.queue.next() as key:
                await self._look_at(key, number)
            await asyncio.sleep(0)  # keys that need nothing must not keep everything else from its turn

    async def _look_at(self, key: K, worker: int) -> None:
        try:
            again = await self._reconcile(key, worker)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            self._retry(key, error, None)
        except ClientError as error:
            self._retry(key, error, error.retry_after)
        except Exception as error:  # a mistake of ours about one key must not keep the others from being looked at
            self._retry(key, error, None)
        else:
            self.tally.successes += 1
            self._failures.pop(key, None)
            self._unreached.discard(key)
            if again is not None:
                self.queue.add_after(key, again)

    def _retry(self, key: K, error: BaseException, at_least: float | None) -> None:
        self.tally.failures += 1
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if isinstance(error, Unreachable):
            self._unreached.add(key)
        else:
            self._unreached.discard(key)
        if isinstance(error, UpdateConflict | AlreadyExists):
            self._log.info("somebody else wrote first", v=3, controller=self.name, key=str(key))
        else:
            said = (
                error
                if isinstance(error, ClientError)
                else RuntimeError(f"{type(error).__name__} at {position(error)}")
            )
            self._log.error(said, f"{self.name} controller didn't sync", controller=self.name, key=str(key))
        self.queue.add_after(key, self._backoff.delay(failures, at_least))


def _is_cancelled() -> bool:
    """Whether somebody ended us, or something that we waited for was ended and said so in the wrong place."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def position(error: BaseException) -> str:
    """File, line and function that raised it.  Logs do not quote its text, which may contain values of objects."""
    trace = error.__traceback__
    if trace is None:
        return "?"
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{code.co_filename}:{trace.tb_lineno} in {code.co_qualname}"
