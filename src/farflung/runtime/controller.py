"""Reconcile keys from a work queue, and retry those that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from farflung.client.errors import AlreadyExists, ClientError, Unreachable, UpdateConflict
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.lib.workqueue import WorkQueue

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class ReconcileCounts:
    successes: int = 0
    failures: int = 0


class Controller(Generic[K]):
    """`reconcile(key, worker)` brings the cluster to the desired state, or raises.  It returns the seconds after which
    the key is reconciled again, or None."""

    verbosity = 0  #: of the log lines about start and stop

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K, int], Awaitable[float | None]],
        *,
        queue: WorkQueue[K],
        workers: int,
        backoff: Backoff,
        log: Logger,
    ) -> None:
        self.name = name
        self.queue = queue
        self.tally = ReconcileCounts()
        self.started = workers == 0  #: without workers there is nothing to start
        self._reconcile = reconcile
        self._workers = workers
        self._backoff = backoff
        self._log = log
        self._failures: dict[K, int] = {}
        self._unreached: set[K] = set()  #: keys whose last failure was an unreachable server

    def retry_unreached(self) -> None:
        """A server is reachable again: reconcile the keys that failed with Unreachable, without backoff.  A key that a
        worker has just now is reconciled once more afterwards."""
        for key in self._unreached:
            self._failures.pop(key, None)
            self.queue.add(key)
        self._unreached.clear()

    async def run(self) -> None:
        """Until cancelled."""
        self.started = True
        self._log.info("starting controller", v=self.verbosity, controller=self.name)
        try:
            async with asyncio.TaskGroup() as workers:
                for number in range(self._workers):
                    workers.create_task(self._work(number), name=f"{self.name} {number}")
        finally:
            self._log.info("shutting down controller", v=self.verbosity, controller=self.name)

    async def _work(self, number: int) -> None:
        while True:
            async with self.queue.next() as key:
                await self._process(key, number)
            await asyncio.sleep(0)  # other tasks run between keys that need no request

    async def _process(self, key: K, worker: int) -> None:
        try:
            again = await self._reconcile(key, worker)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            self._retry(key, error, None)
        except ClientError as error:
            self._retry(key, error, error.retry_after)
        except Exception as error:  # a bug with one key must not stop the others
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
            self._log.info("conflict with another writer", v=3, controller=self.name, key=str(key))
        else:
            cause = (
                error
                if isinstance(error, ClientError)
                else RuntimeError(f"{type(error).__name__} at {position(error)}")
            )
            self._log.error(cause, f"{self.name} controller didn't sync", controller=self.name, key=str(key))
        self.queue.add_after(key, self._backoff.delay(failures, at_least))


def _is_cancelled() -> bool:
    """Whether this task is cancelled; otherwise only something that it awaited was."""
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
