"""Standard output and standard error that never block the event loop.

A pipe without a reader is full after 64 KiB, and the next write would block.  Therefore a thread writes, from a bounded
queue.  Lines beyond the bound are dropped and counted, and a line in their place reports how many.
"""

from __future__ import annotations

import atexit
import calendar
import contextlib
import errno
import io
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MAX_WAITING_BYTES: Final = 8 << 20  #: bytes that wait for a reader
WHOLE: Final = select.PIPE_BUF  #: bytes that no other process that writes to the same pipe can cut in two
PAUSE: Final = 0.1  #: seconds in which lines gather after some were written
STALL_SECONDS: Final = 2.0  #: seconds without any progress that the end waits for a reader

DEFERRED: Final = 256  #: bytes that a line counts for until it is formatted
MEGABYTE: Final = 1 << 20
DAY: Final = 86400.0  #: seconds
TIMESTAMP: Final = "%Y-%m-%dT%H-%M-%S"  #: in the names of rotated files, before the milliseconds

#: the line, without its end, that reports the number of lost lines; empty for none
Notice = Callable[[int], str]
Item = tuple[bytes | Callable[[], bytes], int]  #: lines, and their size in bytes until they are written


class Outlet(io.BufferedIOBase):
    """The raw stream below a text stream, instead of a file."""

    def __init__(self, descriptor: int, notice: Notice) -> None:
        self.name = descriptor  #: as files that were opened by a number have it
        self._notice = notice
        self._waiting: deque[Item] = deque()
        self._size = 0
        self._lost = 0  #: lines that are not reported yet
        self.lost = 0  #: lines, since the start
        self._steps = 0
        self._busy = False
        self._changed = threading.Condition()
        self._news = threading.Event()
        self._hurry = threading.Event()
        threading.Thread(target=self._run, name="outlet", daemon=True).start()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.name

    def isatty(self) -> bool:
        return os.isatty(self.name)

    def write(self, data: ReadableBuffer, /) -> int:
        """Never blocks."""
        lines = bytes(data)
        self._append(lines, len(lines), lines.count(b"\n"))
        return len(lines)

    def defer(self, line: Callable[[], bytes], size: int = DEFERRED) -> None:
        """Write a line that the thread of the outlet formats.  Never blocks.  An empty result is no line."""
        self._append(line, size, 1)

    def _append(self, item: bytes | Callable[[], bytes], size: int, lines: int) -> None:
        with self._changed:
            if self._lost or self._size + size > MAX_WAITING_BYTES:
                self._lost += lines
                self.lost += lines
            else:
                self._waiting.append((item, size))
                self._size += size
            self._busy = True
        if not self._news.is_set():
            self._news.set()

    def drain(self) -> None:
        """Waits until everything is written, or until the reader has read nothing for too long."""
        self._hurry.set()
        with self._changed:
            while self._busy:
                steps = self._steps
                self._changed.wait(STALL_SECONDS)
                if self._steps == steps:
                    break
        self._hurry.clear()

    def _run(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            while self._step():
                pass
            self._hurry.wait(PAUSE)

    def _step(self) -> bool:
        """Write queued lines, or report lost ones.  False if the queue is empty."""
        with self._changed:
            items, reported = self._next()
        lines = [item if isinstance(item, bytes) else format_line(item) for item, _ in items]
        written = all(map(self._put, joined(lines)))
        with self._changed:
            if not written:
                lost = 0 if reported else sum(line.count(b"\n") for line in lines)
                self._lost += reported or lost
                self.lost += lost
            self._busy = bool(self._waiting) or (self._lost > 0 and (written or not reported))
            self._steps += 1
            self._changed.notify_all()
            return self._busy

    def _next(self) -> tuple[list[Item], int]:
        """Some lines, and the number of lost ones that they report."""
        if not self._waiting:
            reported, self._lost = self._lost, 0
            notice = self._notice(reported).encode() if reported else b""
            return [(notice + b"\n", 0)] if notice else [], reported
        items: list[Item] = []
        size = 0
        while self._waiting and (not items or size + self._waiting[0][1] <= WHOLE):
            items.append(self._waiting.popleft())
            size += items[-1][1]
        self._size -= size
        return items, 0

    def _put(self, lines: bytes) -> bool:
        left = memoryview(lines)
        try:
            while left:
                left = left[self._take(left) :]
        except OSError:  # the disk is full, or the reader closed the pipe
            return False
        return True

    def _take(self, lines: memoryview) -> int:
        """The number of written bytes.  Another process with the same file may have made it non-blocking."""
        while True:
            try:
                return os.write(self.name, lines)
            except BlockingIOError:
                select.select((), (self.name,), ())


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a file is replaced, and how many of its predecessors are kept."""

    megabytes: int = 100
    backups: int = 0  #: kept files; 0: all of them
    days: int = 0  #: that a file is kept; 0: forever


class RotatedFile(Outlet):
    """A file that is renamed when it is full: `audit.log` to `audit-2026-11-19T06-40-57.123.log`, in UTC."""

    def __init__(self, path: Path, rotation: Rotation, notice: Notice) -> None:
        """Raises OSError."""
        self._path, self._rotation = path, rotation
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "not a regular file", str(path))  # a FIFO would block, a device not rotate
        descriptor = self._open()
        self._written = os.fstat(descriptor).st_size
        super().__init__(descriptor, notice)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _put(self, lines: bytes) -> bool:
        if self._written and self._written + len(lines) > self._rotation.megabytes * MEGABYTE:
            self._rotate(time.time())
        if super()._put(lines):
            self._written += len(lines)
            return True
        with contextlib.suppress(OSError):
            os.ftruncate(self.name, self._written)  # no half of a line remains
        return False

    def _rotate(self, now: float) -> None:
        """If it fails, the file grows, and the next line tries again."""
        moment = time.strftime(TIMESTAMP, time.gmtime(now))
        backup = self._path.with_name(f"{self._path.stem}-{moment}.{int(now % 1 * 1000):03d}{self._path.suffix}")
        try:
            if backup.exists():
                return
            self._path.rename(backup)
            descriptor = self._open()
            os.dup2(descriptor, self.name, inheritable=False)
            os.close(descriptor)
            self._written = 0
            for old in expired_backups(self._path, self._rotation, now):
                old.unlink(missing_ok=True)
        except OSError:
            return


def expired_backups(path: Path, rotation: Rotation, now: float) -> list[Path]:
    """Rotated files that are to be deleted.  Files whose names have no time are not touched."""
    found: list[tuple[float, Path]] = []
    for one in path.parent.iterdir():
        if one.name.startswith(f"{path.stem}-") and one.name.endswith(path.suffix):
            moment, _, millis = one.name[len(path.stem) + 1 : len(one.name) - len(path.suffix)].partition(".")
            with contextlib.suppress(ValueError):
                found.append((calendar.timegm(time.strptime(moment, TIMESTAMP)) + int(millis) / 1000, one))
    found.sort(reverse=True)
    kept = rotation.backups or len(found)
    oldest = now - rotation.days * DAY if rotation.days else 0.0
    return [one for number, (moment, one) in enumerate(found) if number >= kept or moment < oldest]


def format_line(line: Callable[[], bytes]) -> bytes:
    """A line that cannot be formatted must not end the thread that writes all others."""
    try:
        return line()
    except Exception as error:
        return f"cannot format a log line: {type(error).__name__}\n".encode()


def joined(lines: Sequence[bytes]) -> Iterator[bytes]:
    """As many whole lines at once as no other process can cut in two."""
    together = b""
    for line in lines:
        if together and len(together) + len(line) > WHOLE:
            yield together
            together = b""
        together += line
    if together:
        yield together


def unblock(notice: Notice) -> None:
    """From now on, until the process ends, which waits for what is not written.  Two names of one file are one."""
    sys.stdout, sys.stderr = _present(sys.stdout), _present(sys.stderr)
    sys.stdout.flush()
    first, second = _descriptor(sys.stdout), _descriptor(sys.stderr)
    together = first is not None and second is not None and os.path.sameopenfile(first, second)
    sys.stderr = _unblocked(sys.stderr, notice)
    sys.stdout = sys.stderr if together else _unblocked(sys.stdout, notice)


def drain() -> None:
    """For callers of os._exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(outlet := getattr(stream, "buffer", None), Outlet):
            outlet.drain()


def _present(stream: TextIO | None) -> TextIO:
    """None if it was closed before the process began: then something else would get its number, and our lines."""
    if stream is not None:
        return stream
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)


def _unblocked(stream: TextIO, notice: Notice) -> TextIO:
    descriptor = _descriptor(stream)
    if descriptor is None:
        return stream
    outlet = Outlet(descriptor, notice)
    atexit.register(outlet.drain)
    return io.TextIOWrapper(outlet, stream.encoding, "backslashreplace", line_buffering=True)


def _descriptor(stream: TextIO) -> int | None:
    """None for memory, which never blocks."""
    try:
        return stream.fileno()
    except io.UnsupportedOperation:
        return None
