"""Expiry of Events: each is deleted some time after its last write.

The store does not keep the time of a write.  For Events that are older than the process, it is the latest time that
the Event contains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

import msgspec

from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.machinery import times
from farflung.store.base import Change, Conflict, Entry, Store, Subscription

EVENTS: Final = "/core/events/"
DEFAULT_TTL_SECONDS: Final = 3600.0
BATCH: Final = 64  #: events that are deleted in shared commits
LONGEST_SLEEP: Final = 60.0  #: seconds; the clock may be set meanwhile


class EventTTLController:
    def __init__(self, store: Store, clock: Callable[[], datetime], seconds: float) -> None:
        """`seconds`: how long an Event is kept after its last write."""
        self._store = store
        self._clock = clock
        self._ttl = timedelta(seconds=seconds)
        self._expiry: dict[str, datetime] = {}  #: key → expiry, earliest first
        self._subscription: Subscription | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.queue: ReconcileQueue[str] = ReconcileQueue("events", self._reconcile, workers=1)

    def start(self) -> None:
        self._subscription = self._store.subscribe(EVENTS, self._on_changes)
        now = self._clock()
        expiry = {entry.key: min(last_time(entry), now) + self._ttl for entry in self._store.list(EVENTS).entries}
        self._expiry = dict(sorted(expiry.items(), key=lambda item: item[1]))
        self.queue.add(EVENTS)

    def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()
        self._sleep(None)

    def _on_changes(self, changes: Sequence[Change]) -> None:
        expiry = self._clock() + self._ttl
        for change in changes:
            self._expiry.pop(change.key, None)
            if change.entry is not None:
                self._expiry[change.key] = expiry
        if self._timer is None and self._expiry:
            self._sleep(self._ttl)

    def _sleep(self, time: timedelta | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if time is not None:
            seconds = min(max(time.total_seconds(), 0), LONGEST_SLEEP)
            self._timer = asyncio.get_running_loop().call_later(seconds, self.queue.add, EVENTS)

    async def _reconcile(self, _: str) -> None:
        """Delete expired Events, and sleep until the next one expires."""
        self._sleep(None)
        while expired := self._expired(self._clock()):
            await asyncio.gather(*map(self._delete, expired))
        if self._expiry:
            self._sleep(next(iter(self._expiry.values())) - self._clock())

    def _expired(self, now: datetime) -> list[str]:
        return [key for key, expiry in islice(self._expiry.items(), BATCH) if expiry <= now]

    async def _delete(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            self._expiry.pop(key, None)
            return
        try:
            await self._store.delete(key, expect=entry.revision)
        except Conflict:
            return  # a newer write has set another expiry


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
    """The latest time in a stored Event."""
    event = _decode(entry.value)
    observed = event.series.lastObservedTime if event.series is not None else None
    found = (event.metadata.creationTimestamp, event.lastTimestamp, event.eventTime, observed)
    return max(times.parse(text) for text in found if text)
