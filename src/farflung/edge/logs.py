"""Reads the logs of containers for the hub."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

from farflung.edge.runtimes.log_files import log_file, rotated
from farflung.hub.endpoints.logs import LogOptions
from farflung.machinery import times

BLOCK: Final = 64 * 1024
POLL_INTERVAL: Final = 0.1  #: seconds, for following a log
PARTIAL: Final = b"P"


class NodeLogs:
    """The hub's access to its only node."""

    def __init__(self, directory: Path) -> None:
        """`directory`: of the node."""
        self._directory = directory

    async def logs(self, node: str, wanted: LogOptions, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
        log_filter = LogFilter(wanted.since, wanted.limit, timestamps=wanted.timestamps)
        path = log_file(self._directory, wanted.pod_uid, wanted.container, wanted.attempt)
        with LogReader(path) as log:
            if wanted.tail is not None:
                log.skip_to_last(wanted.tail)
            while not log_filter.full:
                last = not wanted.follow or ended()  # evaluated before reading, so that all output is read
                for block in log.read_new():
                    if shown := log_filter.feed(block):
                        yield shown
                    await asyncio.sleep(0)
                    if log_filter.full:
                        return
                if last:
                    break
                await asyncio.sleep(POLL_INTERVAL)
            if rest := log_filter.end():
                yield rest


class LogReader:
    """Reads a log file and follows its rotation.  A context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: list[BinaryIO] = []  #: the last one is the current file
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
        """Skip all but the last lines."""
        for file in reversed(self._open):
            lines -= seek_last(file, lines)

    def read_new(self) -> Iterator[bytes]:
        while self._open:
            for file in self._open:
                while block := file.read(BLOCK):
                    yield block
            del self._open[:-1]
            if not self._is_rotated():
                return
            self._add(self._path)
        self._add(self._path)
        if self._open:
            yield from self.read_new()

    def _is_rotated(self) -> bool:
        """Whether the file was rotated, so that all its content has been read."""
        try:
            present = self._path.stat()
        except FileNotFoundError:
            return False
        return not os.path.samestat(present, os.fstat(self._open[-1].fileno()))


def seek_last(file: BinaryIO, lines: int) -> int:
    """Seek to the beginning of the last lines, and return how many there are, at most `lines`."""
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
                continue  # no line begins after the last newline
            found += 1
            if found == lines:
                file.seek(start + position + 1)
                return lines
    file.seek(0)
    return found + (1 if end else 0)


class LogFilter:
    """Converts log entries in CRI format to the output of `kubectl logs`.  Accepts data in any chunks."""

    def __init__(self, since: datetime | None, limit: int | None, *, timestamps: bool) -> None:
        self._since = since
        self._left = limit  #: bytes
        self._timestamps = timestamps
        self._rest = b""
        self._at_line_start = True

    @property
    def full(self) -> bool:
        """The limit is reached."""
        return self._left is not None and self._left <= 0

    def feed(self, data: bytes) -> bytes:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return self._limited(b"".join(map(self._shown, lines)))

    def end(self) -> bytes:
        """The rest of the data, which may be an incomplete line."""
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
        """Times increase, so all entries after the first wanted one are wanted."""
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
