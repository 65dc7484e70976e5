"""The end of Events: each goes a while after it was last written.

The time of a write is not stored.  For what was there before the start it is taken from the Event itself: nothing that
an Event tells of is later than its last write, if its author's clock is right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

import msgspec

from farflung.hub.controllers.reconcile_queue import Work
from farflung.machinery import times
from farflung.store.base import Change, Conflict, Entry, Store, Subscription

HOME: Final = "/core/events/"
HOUR: Final = 3600.0
TOGETHER: Final = 64  #: events that are deleted at a time, in shared commits
LONGEST_SLEEP: Final = 60.0  #: seconds; the clock may be set meanwhile


class Events:
    def __init__(self, store: Store, clock: Callable[[], datetime], seconds: float) -> None:
        """`seconds`: how long an Event stays after its last write."""
        self._store = store
        self._clock = clock
        self._stay = timedelta(seconds=seconds)
        self._ends: dict[str, datetime] = {}  #: key → when it goes, the next one first
        self._subscription: Subscription | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.work: Work[str] = Work("events", self._look, workers=1)

    def start(self) -> None:
        self._subscription = self._store.subscribe(HOME, self._hear)
        now = self._clock()
        ends = {entry.key: min(last_time(entry), now) + self._stay for entry in self._store.list(HOME).entries}
        self._ends = dict(sorted(ends.items(), key=lambda item: item[1]))
        self.work.add(HOME)

    def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()
        self._sleep(None)

    def _hear(self, changes: Sequence[Change]) -> None:
        end = self._clock() + self._stay
        for change in changes:
            self._ends.pop(change.key, None)
            if change.entry is not None:
                self._ends[change.key] = end
        if self._timer is None and self._ends:
            self._sleep(self._stay)

    def _sleep(self, time: timedelta | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if time is not None:
            seconds = min(max(time.total_seconds(), 0), LONGEST_SLEEP)
            self._timer = asyncio.get_running_loop().call_later(seconds, self.work.add, HOME)

    async def _look(self, _: str) -> None:
        """Delete what is due, and sleep until something is."""
        self._sleep(None)
        while due := self._due(self._clock()):
            await asyncio.gather(*map(self._delete, due))
        if self._ends:
            self._sleep(next(iter(self._ends.values())) - self._clock())

    def _due(self, now: datetime) -> list[str]:
        return [key for key, end in islice(self._ends.items(), TOGETHER) if end <= now]

    async def _delete(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            self._ends.pop(key, None)
            return
        try:
            await self._store.delete(key, expect=entry.revision)
        except Conflict:
            return  # it was written just now, which is heard


class _Metadata(msgspec.Struct, gc=False):
    creationTimestamp: str | None = None


class _Series(msgspec.Struct, gc=False):
    lastObservedTime: str | None = None


class _Event(msgspec.Struct, gc=False):
    metadata: _Metadata
    lastTimestamp: str | None = None
    eventTime: str | None = None
    series: _Series | None = None


_decode = msgspec.json.Decoder(_Event).decode


def last_time(entry: Entry) -> datetime:
    """The latest moment that a stored Event tells of."""
    event = _decode(entry.value)
    observed = event.series.lastObservedTime if event.series is not None else None
    told = (event.metadata.creationTimestamp, event.lastTimestamp, event.eventTime, observed)
    return max(times.parse(text) for text in told if text)
