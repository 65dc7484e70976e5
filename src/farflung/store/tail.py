"""The newest changes in memory, from which most watches resume and most lists continue."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter

from farflung.store.base import Change, Entry, Revision

LINES = 20_000
BYTES = 32 * 1024 * 1024  #: of previous values, which only the tail references

revision_of = attrgetter("revision")


class Tail:
    """Every change after `floor`, in order."""

    def __init__(
        self, floor: Revision, changes: Iterable[Change] = (), *, lines: int = LINES, size: int = BYTES
    ) -> None:
        self.floor = floor
        self._lines = lines
        self._size = size
        self._changes: list[Change] = []
        self._weight = 0
        for change in changes:
            self.append(change)

    def append(self, change: Change) -> None:
        self._changes.append(change)
        if change.previous is not None:
            self._weight += len(change.previous.value)
        if len(self._changes) > self._lines or self._weight > self._size:
            self._shorten()

    def _shorten(self) -> None:
        """Drop the oldest changes, down to three quarters of the limits, so that this is rare."""
        lines, size = self._lines * 3 // 4, self._size * 3 // 4
        dropped = 0
        for change in self._changes:
            if len(self._changes) - dropped <= lines and self._weight <= size:
                break
            self._weight -= len(change.previous.value) if change.previous is not None else 0
            dropped += 1
        self._drop(dropped)

    def forget(self, before: Revision) -> None:
        """Drop the changes up to and including a revision."""
        dropped = bisect_right(self._changes, before, key=revision_of)
        for change in self._changes[:dropped]:
            self._weight -= len(change.previous.value) if change.previous is not None else 0
        self._drop(dropped)
        self.floor = max(self.floor, before)

    def _drop(self, count: int) -> None:
        if count:
            self.floor = self._changes[count - 1].revision
            del self._changes[:count]

    def changes(self, prefix: str, *, since: Revision, until: Revision) -> list[Change]:
        """The changes under a prefix after `since` (at least `floor`), up to and including `until`."""
        start = bisect_right(self._changes, since, key=revision_of)
        end = bisect_right(self._changes, until, key=revision_of)
        return [change for change in self._changes[start:end] if change.key.startswith(prefix)]

    def undone(self, prefix: str, revision: Revision) -> dict[str, Entry | None]:
        """The entries at a revision (at least `floor`) of all keys that changed after it."""
        past: dict[str, Entry | None] = {}
        for change in self.changes(prefix, since=revision, until=self.newest):
            past.setdefault(change.key, change.previous)
        return past

    @property
    def newest(self) -> Revision:
        return self._changes[-1].revision if self._changes else self.floor
