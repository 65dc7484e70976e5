"""The logs of containers, read from where the node has them written."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

from farflung.edge.runtimes.log_files import log_file, rotated
from farflung.hub.nodes import LogsWanted
from farflung.machinery import times

BLOCK: Final = 64 * 1024
LOOK: Final = 0.1  #: seconds between two looks at a log that is followed
PARTIAL: Final = b"P"


class NodeLogs:
    """What the hub is given as its `Nodes`.  There is one node, so its name says nothing."""

    def __init__(self, directory: Path) -> None:
        """`directory`: the node's."""
        self._directory = directory

    async def logs(self, node: str, wanted: LogsWanted, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
        cut = LogFilter(wanted.since, wanted.limit, timestamps=wanted.timestamps)
        path = log_file(self._directory, wanted.pod_uid, wanted.container, wanted.attempt)
        with LogReader(path) as log:
            if wanted.tail is not None:
                log.skip_to_last(wanted.tail)
            while not cut.full:
                over = not wanted.follow or ended()  # asked first: what it printed until then is read after it
                for block in log.news():
                    if shown := cut.feed(block):
                        yield shown
                    await asyncio.sleep(0)
                    if cut.full:
                        return
                if over:
                    break
                await asyncio.sleep(LOOK)
            if rest := cut.end():
                yield rest


class LogReader:
    """A log, and what it goes on with when it has become long.  Use it as a context."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: list[BinaryIO] = []  #: the last one is still written to
        self._stack = ExitStack()

    def __enter__(self) -> LogReader:
        for path in (rotated(self._path), self._path):
            self._add(path)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _add(self, path: Path) -> None:
        try:
            self._open.append(self._stack.enter_context(path.open("rb")))
        except FileNotFoundError:
            return

    def skip_to_last(self, lines: int) -> None:
        """So many lines of all that is there are left to be read."""
        for file in reversed(self._open):
            lines -= seek_last(file, lines)

    def news(self) -> Iterator[bytes]:
        """What was not read before."""
        while self._open:
            for file in self._open:
                while block := file.read(BLOCK):
                    yield block
            del self._open[:-1]
            if not self._has_moved():
                return
            self._add(self._path)
        self._add(self._path)
        if self._open:
            yield from self.news()

    def _has_moved(self) -> bool:
        """What is written from now on goes elsewhere, and all that was written before is read."""
        try:
            present = self._path.stat()
        except FileNotFoundError:
            return False
        return not os.path.samestat(present, os.fstat(self._open[-1].fileno()))


def seek_last(file: BinaryIO, lines: int) -> int:
    """Go to where the last lines begin.  How many they are, if there are not as many as wanted."""
    end = file.seek(0, os.SEEK_END)
    if lines <= 0:
        return 0
    found, start = 0, end
    while start > 0:
        size = min(BLOCK, start)
        start -= size
        file.seek(start)
        block = file.read(size)
        position = len(block)
        while (position := block.rfind(b"\n", 0, position)) >= 0:
            if start + position + 1 == end:
                continue  # the end of the last line begins none
            found += 1
            if found == lines:
                file.seek(start + position + 1)
                return lines
    file.seek(0)
    return found + (1 if end else 0)


class LogFilter:
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
