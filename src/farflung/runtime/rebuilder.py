"""Rebuild an engine from the informers' caches after one of its methods failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final, TypeVar

from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.lib.workqueue import WorkQueue
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.controller import Controller, position
from farflung.runtime.environment import Environment

T = TypeVar("T")
Listener = Callable[[CacheChange[T]], None]
REBUILD: Final = "rebuild"  #: the only key of the queue
MAX_BACKOFF_SECONDS: Final = 600.0  #: seconds: the longest backoff, and the time after which failures are forgotten


class Rebuilder(Controller[str]):
    """Keeps workers from using an engine that missed a change.

    After a failure the engine is dirty: it gets no more changes, workers wait for `clean`, and this controller makes a
    new engine from the caches.  If the same object fails again, the engine is used without it, and the rebuild is
    repeated with backoff: one bad object does not stop the controller.
    """

    verbosity = 4  # it is a part of the controller whose engine it rebuilds

    def __init__(
        self,
        name: str,
        rebuild: Callable[[], None],
        env: Environment,
        log: Logger,
        *,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`rebuild` makes a new engine and calls `replay` for every cache; `prepare` brings the caches up to date
        before, while the engine gets no changes."""
        super().__init__(
            f"{name}-engine", self._reconcile, workers=1, backoff=env.backoff, queue=WorkQueue(env.monotonic), log=log
        )
        self.clean = asyncio.Event()
        self.clean.set()
        self.failed_calls = 0
        self.failing: set[Hashable] = set()  #: objects that the engine may lack, or have an earlier version of
        self._rebuild = rebuild
        self._prepare = prepare
        self._monotonic = env.monotonic
        self._repeats = Backoff(env.backoff.first, MAX_BACKOFF_SECONDS, env.random)
        self._last = 0.0  #: when a method failed
        self._suspects: set[Hashable] = set()  #: objects with which methods failed recently
        self._rebuilds = 0  #: recent ones

    def guarded(self, kind: str, listener: Listener[T], cluster: str = "") -> Listener[T]:
        """A listener whose failure makes the engine dirty.  `kind`: of its objects; `cluster`: where they are, if their
        keys do not have it."""
        return lambda change: self.attempt((kind, _in_cluster(change.key, cluster)), lambda: listener(change))

    def attempt(self, subject: Hashable, call: Callable[[], None]) -> None:
        """Call the engine, unless it is dirty.  `subject`: the object concerned."""
        if self.clean.is_set():
            try:
                call()
            except Exception as error:
                self.failed(subject, error)

    def failed(self, subject: Hashable, error: BaseException) -> None:
        """A method of the engine failed."""
        self.failed_calls += 1
        self.failing.add(subject)
        now, last = self._monotonic(), self._last
        if now - last > MAX_BACKOFF_SECONDS:
            self._suspects.clear()
            self._rebuilds = 0
        self._last = now
        cause = RuntimeError(f"{type(error).__name__} at {position(error)}")
        self._log.error(cause, "engine failed and will be rebuilt", controller=self.name, object=str(subject))
        if subject in self._suspects:
            self.queue.add_after(REBUILD, self._repeats.delay(max(1, self._rebuilds)))
        else:
            self._suspects.add(subject)
            self.clean.clear()
            self.queue.add(REBUILD)

    def replay(self, kind: str, cache: Mapping[Key, T], listener: Listener[T], cluster: str = "") -> None:
        """Deliver all objects of a cache to the new engine, except those that fail."""
        for key, value in list(cache.items()):
            try:
                listener(CacheChange(key, None, value))
            except Exception as error:
                # the new engine is used without this object until the next rebuild
                subject = kind, _in_cluster(key, cluster)
                self._suspects.add(subject)
                self.failed(subject, error)

    async def _reconcile(self, key: str, worker: int) -> None:
        self._rebuilds += 1
        self.clean.clear()
        if self._prepare is not None:
            await self._prepare()
        self.failing.clear()
        self._rebuild()
        self.clean.set()
        self._log.info("engine was rebuilt", controller=self.name)


def _in_cluster(key: Key, cluster: str) -> Key:
    return key if key.cluster else key._replace(cluster=cluster)
