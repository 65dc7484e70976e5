"""What a reader wants of a container's log: `2026-11-16T06:30:00.000000000Z stdout F text`."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from farflung.machinery import times

PARTIAL: Final = b"P"


class Cut:
    """Turns lines of a log into what is shown of them.  Feed it in any pieces."""

    def __init__(self, since: datetime | None, limit: int | None, *, timestamps: bool) -> None:
        self._since = since
        self._left = limit  #: bytes
        self._timestamps = timestamps
        self._rest = b""
        self._at_line_start = True

    @property
    def full(self) -> bool:
        """Nothing that comes is shown any more."""
        return self._left is not None and self._left <= 0

    def feed(self, data: bytes) -> bytes:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return self._limited(b"".join(map(self._shown, lines)))

    def end(self) -> bytes:
        """The last line may have been written in part only."""
        rest, self._rest = self._rest, b""
        return self._limited(self._shown(rest))

    def _shown(self, line: bytes) -> bytes:
        time, _, line = line.partition(b" ")
        _, _, line = line.partition(b" ")
        tag, space, text = line.partition(b" ")
        if not space or not self._is_wanted(time):
            return b""
        head = time + b" " if self._timestamps and self._at_line_start else b""
        self._at_line_start = tag != PARTIAL
        return head + text + (b"\n" if self._at_line_start else b"")

    def _is_wanted(self, time: bytes) -> bool:
        """A log goes forward: nothing after the first wanted line is too old."""
        if self._since is None:
            return True
        try:
            wanted = times.parse(time.decode()) >= self._since
        except ValueError:
            return False
        if wanted:
            self._since = None
        return wanted

    def _limited(self, shown: bytes) -> bytes:
        if self._left is None:
            return shown
        shown = shown[: max(self._left, 0)]
        self._left -= len(shown)
        return shown
