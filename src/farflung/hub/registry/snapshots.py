"""Snapshots: entries of one revision, which clients read at their own speed.

A snapshot references stored values, so it costs eight bytes per object.  A value that is replaced or deleted while a
client reads stays in memory for that client; then it is counted.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from farflung.http.messages import ComputedPiece, Holder, Piece, Pieces
from farflung.hub.catalog.objects import ObjectSelection
from farflung.store.base import Change, Entry, Store

LARGE: Final = 128 * 1024  #: bytes of stored values that are copied at once
DECODED: Final = 512 * 1024  #: … or decoded
SELECTED: Final = 256  #: entries that a selection looks at before other requests get a turn
REFERENCE: Final = 8  #: bytes

KEY: Final = attrgetter("key")


def portions(entries: Sequence[Entry], most: int, size: int = LARGE) -> Iterator[Sequence[Entry]]:
    """Parts of a sequence: up to `most` values with up to `size` bytes, or one larger value."""
    start = total = 0
    for at, entry in enumerate(entries):
        length = len(entry.value)
        if at - start >= most or (total and total + length > size):
            yield entries[start:at]
            start, total = at, 0
        total += length
    if start < len(entries):
        yield entries[start:]


async def selected(entries: Sequence[Entry], selection: ObjectSelection, limit: int = 0) -> list[Entry]:
    """The entries that match, in turns with other requests; with a limit, up to one more."""
    matching: list[Entry] = []
    for number, portion in enumerate(portions(entries, SELECTED, DECODED)):
        if number:
            await asyncio.sleep(0)
        matching += [entry for entry in portion if selection.matches(entry)]
        if limit and len(matching) > limit:
            return matching[: limit + 1]
    return matching


class Snapshot:
    """Entries under a prefix, ordered by key."""

    def __init__(self, store: Store, prefix: str, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.size = sum([len(entry.value) for entry in entries])  #: bytes of all values
        self._store = store
        self._prefix = prefix

    def encoded(self, encode: Callable[[], Iterable[Piece | ComputedPiece]]) -> Pieces:
        """Pieces that `encode` makes from the entries."""

        def pieces(holder: Holder) -> Iterator[Piece | ComputedPiece]:
            subscription = self._store.subscribe(self._prefix, self._count_replaced(holder))
            try:
                holder.hold(self.entries, REFERENCE * len(self.entries))
                for entry in self.entries:
                    if self._store.get(entry.key) is not entry:
                        holder.hold(entry.value, len(entry.value))
                yield from encode()
            finally:
                subscription.cancel()

        return pieces

    def _count_replaced(self, holder: Holder) -> Callable[[Sequence[Change]], None]:
        entries = self.entries

        def on_changes(changes: Sequence[Change]) -> None:
            for change in changes:
                if change.previous is not None:
                    at = bisect_left(entries, change.key, key=KEY)
                    if at < len(entries) and entries[at] is change.previous:
                        holder.hold(change.previous.value, len(change.previous.value))

        return on_changes
