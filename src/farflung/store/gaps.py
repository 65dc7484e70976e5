"""Gaps between the revisions of one run of a store and those of the next.

A store that is opened again continues with a revision that no earlier run can have reached.  If its file was restored
from a backup, a client may remember a revision from after the backup.  Without a gap the restored store would reach
that number again, and the client would resume a watch in a history that it never saw.  The number is in a gap, so the
store refuses it as compacted, and the client lists again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from farflung.store.base import FIRST, Revision

PER_SECOND = 1_000_000  #: more writes a second than any store accepts


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
