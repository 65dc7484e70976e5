"""The history that a store keeps: marks date revisions, gaps separate the runs of a store.

History is kept for some time, so that clients can resume watches, and is then compacted.  A revision has no time, so
the store regularly records a mark: the current revision and the time.  Compaction deletes history up to the newest mark
that is old enough.  Marks are durable.

A store that is opened again continues at a revision that no earlier run can have reached.  If its file was restored
from a backup, a client may remember a revision from after the backup.  Without a gap the restored store would reach
that number again, and the client would resume a watch in a history that it never saw.  The number is in a gap, so the
store refuses it as compacted, and the client lists again.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from farflung.store.base import FIRST, Revision, StoreError

PER_SECOND = 1_000_000  #: more writes per second than any store accepts
KEEP: Final = 3600.0  #: seconds of history
Clock = Callable[[], float]  #: seconds since the epoch, because marks outlive the process

log = logging.getLogger(__name__)


class Marks:
    """Revisions of the store with the time at which each was the newest."""

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
        """The newest revision with a mark at or before a time; FIRST without such a mark.  Times may descend: a clock
        can be set back."""
        old = (revision for revision, marked in zip(self._revisions, self._moments, strict=True) if marked <= moment)
        return max(old, default=FIRST)

    def forget(self, before: Revision) -> None:
        expired = bisect_left(self._revisions, before)
        del self._revisions[:expired], self._moments[:expired]


class CompactableStore(Protocol):
    """A store with marks."""

    async def mark(self, moment: float) -> None:
        """Record durably that the current revision was the newest at this time."""

    def revision_at(self, moment: float) -> Revision:
        """The newest revision with a mark at or before a time."""

    async def compact(self, before: Revision) -> None: ...


async def compact_older(store: CompactableStore, *, now: float, keep: float) -> None:
    """Compact history that is older than `keep` seconds."""
    await store.mark(now)
    await store.compact(store.revision_at(now - keep))


async def compact_periodically(store: CompactableStore, *, keep: float, clock: Clock) -> None:
    """Compact forever, sixty times per `keep`."""
    while True:
        try:
            await compact_older(store, now=clock(), keep=keep)
        except StoreError as error:
            log.warning("history is not compacted: %s", error)
        await asyncio.sleep(keep / 60)


# --- gaps -----------------------------------------------------------------------------------------


def first_revision(last: Revision, now: float) -> Revision:
    """The revision at which a store continues after `last`.  `now`: seconds since the epoch.  Without a gap if the
    clock was set back."""
    return last if last == FIRST else max(last, int(now * PER_SECOND))


class Gaps:
    def __init__(self, gaps: Iterable[tuple[Revision, Revision]] = ()) -> None:
        """`gaps`: last revision before each gap and first revision after it, ascending."""
        self._lasts: list[Revision] = []
        self._firsts: list[Revision] = []
        for last, first in gaps:
            self.add(last, first)

    def add(self, last: Revision, first: Revision) -> None:
        self._lasts.append(last)
        self._firsts.append(first)

    def end(self, revision: Revision) -> Revision:
        """The first revision after the gap that contains this one; the same revision if it is in no gap."""
        at = bisect_left(self._lasts, revision) - 1
        return revision if at < 0 else max(revision, self._firsts[at])

    def forget(self, before: Revision) -> None:
        expired = bisect_left(self._firsts, before)
        del self._lasts[:expired], self._firsts[:expired]
