"""What is still to be looked at: each key once, in the hands of one worker at most."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """A key is never in the hands of two workers.  One that is added while a worker has it is handed out again
    afterwards.  One that waits for its time is handed out earlier if it is added without one."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waiting: deque[K] = deque()
        self._wanted: set[K] = set()  #: waiting, or to be handed out again
        self._held: set[K] = set()  #: in the hands of a worker
        self._later: list[tuple[float, int, K]] = []  #: a heap by time
        self._due: dict[K, float] = {}  #: when; what the heap says beside it does not count
        self._order = 0
        self._sleeping: dict[asyncio.Future[None], None] = {}  #: workers that have nothing to do, the first one first

    def __len__(self) -> int:
        """How many are waiting, for a worker or for their time."""
        return len(self._wanted) + len(self._due)

    @property
    def idle(self) -> bool:
        """Nothing is to be done now; some keys may wait for their time."""
        return not self._wanted and not self._held

    def add(self, key: K) -> None:
        self._due.pop(key, None)
        if key in self._wanted:
            return
        self._wanted.add(key)
        if key not in self._held:
            self._waiting.append(key)
            self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Not before so many seconds, unless it is added otherwise."""
        when = self._monotonic() + seconds
        if key in self._wanted or self._due.get(key, when) < when:
            return
        self._due[key] = when
        self._order += 1
        heapq.heappush(self._later, (when, self._order, key))
        self._wake()

    @asynccontextmanager
    async def next(self) -> AsyncIterator[K]:
        """Lend one key; leaving the block gives it back."""
        key = await self._take()
        try:
            yield key
        finally:
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
                    self._wake()  # whoever looks at the clock in our place
                return key
            await self._sleep(pause)

    async def _sleep(self, pause: float | None) -> None:
        """Until somebody wakes us, or so many seconds have passed."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping[waiter] = None
        try:
            async with asyncio.timeout(pause):
                await waiter
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self._wake()  # what we were woken for is left to others
            raise
        finally:
            del self._sleeping[waiter]

    def _wake(self) -> None:
        """One worker, for one key: the others would look and find nothing."""
        for waiter in self._sleeping:
            if not waiter.done():
                waiter.set_result(None)
                return

    def _ripen(self) -> float | None:
        """Hand out what is due; seconds until the next one is."""
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
