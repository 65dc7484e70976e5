"""Forgetting: history is kept for a while, so that who was away can resume, and then it goes.

Revisions carry no time, so a store notes now and then at what moment it was where (a mark).  History older than the
newest mark of that age may go.  Marks are durable: after a restart the store still knows how old its history is.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from farflung.store.base import FIRST, Revision, StoreError

PER_SECOND = 1_000_000  #: more writes a second than any store accepts
KEEP: Final = 3600.0  #: seconds of history
Clock = Callable[[], float]  #: seconds since the epoch: marks outlive the process

log = logging.getLogger(__name__)


class Marks:
    """At which moment the store stood at which revision."""

    def __init__(self, marks: Iterable[tuple[Revision, float]] = ()) -> None:
        self._revisions: list[Revision] = []
        self._moments: list[float] = []
        for revision, moment in marks:
            self.add(revision, moment)

    @property
    def newest(self) -> Revision:
        return self._revisions[-1] if self._revisions else FIRST

    def add(self, revision: Revision, moment: float) -> None:
        self._revisions.append(revision)
        self._moments.append(moment)

    def revision_at(self, moment: float) -> Revision:
        """The newest revision known to be as old as that moment; FIRST if none is.  Moments need not ascend:
        a wall clock can be set back."""
        old = (revision for revision, marked in zip(self._revisions, self._moments, strict=True) if marked <= moment)
        return max(old, default=FIRST)

    def forget(self, before: Revision) -> None:
        gone = bisect_left(self._revisions, before)
        del self._revisions[:gone], self._moments[:gone]


class CompactableStore(Protocol):
    """A store that knows how old its history is."""

    async def mark(self, moment: float) -> None:
        """Note, durably, that the present revision is that of this moment."""

    def revision_at(self, moment: float) -> Revision:
        """The newest revision known to be as old as that moment."""

    async def compact(self, before: Revision) -> None: ...


async def compact_older(store: CompactableStore, *, now: float, keep: float) -> None:
    """Compact what was superseded more than `keep` seconds ago."""
    await store.mark(now)
    await store.compact(store.revision_at(now - keep))


async def compact_periodically(store: CompactableStore, *, keep: float, clock: Clock) -> None:
    """Do so for ever, sixty times per `keep`."""
    while True:
        try:
            await compact_older(store, now=clock(), keep=keep)
        except StoreError as error:
            log.warning("history is not compacted: %s", error)
        await asyncio.sleep(keep / 60)


# --- gaps -----------------------------------------------------------------------------------------


def first_revision(last: Revision, now: float) -> Revision:
    """Where a store continues after `last`.  `now`: seconds since the epoch.  No gap if the clock was set back."""
    return last if last == FIRST else max(last, int(now * PER_SECOND))


class Gaps:
    def __init__(self, gaps: Iterable[tuple[Revision, Revision]] = ()) -> None:
        """Each from the last revision before a gap to the first one after it, in ascending order."""
        self._lasts: list[Revision] = []
        self._firsts: list[Revision] = []
        for last, first in gaps:
            self.add(last, first)

    def add(self, last: Revision, first: Revision) -> None:
        self._lasts.append(last)
        self._firsts.append(first)

    def end(self, revision: Revision) -> Revision:
        """The first revision after the gap that this one is in; the same one if it is in no gap."""
        at = bisect_left(self._lasts, revision) - 1
        return revision if at < 0 else max(revision, self._firsts[at])

    def forget(self, before: Revision) -> None:
        gone = bisect_left(self._firsts, before)
        del self._lasts[:gone], self._firsts[:gone]
