"""A work queue: each key is queued once, and has at most one worker."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from farflung.lib.fair_queue import FairQueue

K = TypeVar("K", bound=Hashable)


class FairKeys(Generic[K]):
    """Keys in the order of the time that their groups used: a group with one key waits for one key of each other."""

    def __init__(self, group_of: Callable[[K], str]) -> None:
        self._group_of = group_of
        self._queue: FairQueue[K] = FairQueue({})
        self._groups: dict[K, str] = {}  #: of keys that are queued, or were not charged yet

    def __len__(self) -> int:
        return len(self._queue)

    def append(self, key: K) -> None:
        group = self._groups[key] = self._group_of(key)
        self._queue.push((group,), key)

    def popleft(self) -> K:
        return self._queue.pop()

    def charge(self, key: K, seconds: float) -> None:
        self._queue.charge((self._groups.get(key, ""),), seconds)

    def forget(self, key: K) -> None:
        """The key was charged, and is not queued again."""
        self._groups.pop(key, None)


class WorkQueue(Generic[K]):
    """A key that is added while a worker has it is handed out again afterwards.  `add` hands out a delayed key at
    once."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waiting: deque[K] | FairKeys[K] = deque()
        self._fair: FairKeys[K] | None = None  #: `_waiting`, if groups take turns
        self._wanted: set[K] = set()  #: queued, or to be queued when its worker is done
        self._held: set[K] = set()  #: being reconciled
        self._later: list[tuple[float, int, K]] = []  #: a heap by time
        self._due: dict[K, float] = {}  #: due time of delayed keys; other entries of the heap are obsolete
        self._order = 0
        self._sleeping: dict[asyncio.Future[None], None] = {}  #: idle workers, in order

    def share(self, group_of: Callable[[K], str]) -> None:
        """Groups of keys take fair turns.  Called before a key is queued."""
        self._waiting = self._fair = FairKeys(group_of)

    def __len__(self) -> int:
        """Queued and delayed keys."""
        return len(self._wanted) + len(self._due)

    @property
    def idle(self) -> bool:
        """Whether no key is queued or being reconciled; keys may be delayed."""
        return not self._wanted and not self._held

    def add(self, key: K) -> None:
        self.forget(key)
        if key in self._wanted:
            return
        self._wanted.add(key)
        if key not in self._held:
            self._waiting.append(key)
            self._wake()

    def add_all(self, keys: Iterable[K]) -> None:
        for key in keys:
            self.add(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Queue the key after so many seconds, unless it is queued earlier."""
        when = self._monotonic() + seconds
        if key in self._wanted or self._due.get(key, when) < when:
            return
        self._due[key] = when
        self._order += 1
        heapq.heappush(self._later, (when, self._order, key))
        self._wake()

    def forget(self, key: K) -> None:
        """Cancel the delayed addition of a key."""
        if self._due.pop(key, None) is not None and len(self._later) > 2 * len(self._due):
            self._later = [entry for entry in self._later if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._later)

    @asynccontextmanager
    async def next(self) -> AsyncIterator[K]:
        """Wait for a key, and hold it until the block ends."""
        key = await self._take()
        began = 0.0 if self._fair is None else self._monotonic()
        try:
            yield key
        finally:
            if self._fair is not None:
                self._fair.charge(key, self._monotonic() - began)
                self._fair.forget(key)
            self._held.discard(key)
            if key in self._wanted:
                self._waiting.append(key)
                self._wake()

    async def _take(self) -> K:
        while True:
            pause = self._ripen()
            if self._waiting:
                key = self._waiting.popleft()
                self._wanted.discard(key)
                self._held.add(key)
                if self._later:
                    self._wake()  # another worker waits for the delayed keys
                return key
            await self._sleep(pause)

    async def _sleep(self, pause: float | None) -> None:
        """Until `_wake`, or so many seconds have passed."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping[waiter] = None
        try:
            async with asyncio.timeout(pause):
                await waiter
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self._wake()  # let another worker take the key
            raise
        finally:
            del self._sleeping[waiter]

    def _wake(self) -> None:
        """Wake one worker for one key."""
        for waiter in self._sleeping:
            if not waiter.done():
                waiter.set_result(None)
                return

    def _ripen(self) -> float | None:
        """Queue the due keys; seconds until the next one is due."""
        now = self._monotonic()
        while self._later:
            when, _, key = self._later[0]
            if self._due.get(key) != when:
                heapq.heappop(self._later)
            elif when <= now:
                heapq.heappop(self._later)
                self.add(key)
            else:
                return when - now
        return None
