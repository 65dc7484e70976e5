"""Standard output and standard error that never block the event loop.

A pipe without a reader is full after 64 KiB, and the next write would block.  Therefore a thread writes, from a bounded
queue.  Lines beyond the bound are dropped and counted, and a line in their place reports how many.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MOST: Final = 8 << 20  #: bytes that wait for a reader
WHOLE: Final = select.PIPE_BUF  #: bytes that no other process that writes to the same pipe can cut in two
PAUSE: Final = 0.1  #: seconds in which lines gather after some were written
PATIENCE: Final = 2.0  #: seconds without any progress that the end waits for a reader

DEFERRED: Final = 256  #: bytes that a line counts for until it is formatted

Notice = Callable[[int], str]  #: the line, without its end, that reports the number of lost lines


class Outlet(io.BufferedIOBase):
    """The raw stream below a text stream, instead of a file."""

    def __init__(self, descriptor: int, notice: Notice) -> None:
        self.name = descriptor  #: as files that were opened by a number have it
        self._notice = notice
        self._waiting: deque[bytes | Callable[[], bytes]] = deque()
        self._size = 0
        self._lost = 0
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

    def defer(self, line: Callable[[], bytes]) -> None:
        """Write a line that the thread of the outlet formats.  Never blocks.  An empty result is no line."""
        self._append(line, DEFERRED, 1)

    def _append(self, item: bytes | Callable[[], bytes], size: int, lines: int) -> None:
        with self._changed:
            if self._lost or self._size + size > MOST:
                self._lost += lines
            else:
                self._waiting.append(item)
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
                self._changed.wait(PATIENCE)
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
        lines = [item if isinstance(item, bytes) else format_line(item) for item in items]
        written = all(map(self._put, joined(lines)))
        with self._changed:
            if not written:
                self._lost += reported or sum(line.count(b"\n") for line in lines)
            self._busy = bool(self._waiting) or (self._lost > 0 and (written or not reported))
            self._steps += 1
            self._changed.notify_all()
            return self._busy

    def _next(self) -> tuple[list[bytes | Callable[[], bytes]], int]:
        """Some lines, and the number of lost ones that they report."""
        if not self._waiting:
            reported, self._lost = self._lost, 0
            return [f"{self._notice(reported)}\n".encode()] if reported else [], reported
        items: list[bytes | Callable[[], bytes]] = []
        size = 0
        while self._waiting and (not items or size + size_of(self._waiting[0]) <= WHOLE):
            item = self._waiting.popleft()
            items.append(item)
            size += size_of(item)
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


def format_line(line: Callable[[], bytes]) -> bytes:
    """A line that cannot be formatted must not end the thread that writes all others."""
    try:
        return line()
    except Exception as error:
        return f"cannot format a log line: {type(error).__name__}\n".encode()


def size_of(item: bytes | Callable[[], bytes]) -> int:
    return len(item) if isinstance(item, bytes) else DEFERRED


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
