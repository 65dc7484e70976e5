"""What the hub logs, and where: lines on a stream, each with its time and its level."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import traceback
from collections import deque
from types import TracebackType
from typing import Final, TextIO

FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"
PAUSE: Final = 0.1  #: seconds in which lines gather
MOST: Final = 100_000  #: lines that wait for a stream that nobody reads; further ones are lost, and counted
PATIENCE: Final = 2.0  #: seconds that the end waits for such a stream


class DiscreetFormatter(logging.Formatter):
    """Says of an exception where it happened and of which type it is.  Its text may quote what a client sent."""

    def formatException(
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        kind, _, place = ei
        lines = traceback.format_tb(place)
        return "".join([*lines, kind.__name__ if kind is not None else ""])


def configure(stream: TextIO, *, verbose: bool) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(DiscreetFormatter(FORMAT))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])


class Lines:
    """Lines at INFO, by the thousand: they are written by a thread, those of a moment together.  `close` it."""

    def __init__(self, stream: TextIO, *, silent: bool = False) -> None:
        """`silent`: nothing is written before `begin`."""
        self._stream = stream
        self._silent = silent
        self._waiting: deque[str] = deque()
        self._lost = 0
        self._news = threading.Event()
        self._closed = threading.Event()
        self._second = 0
        self._stamp = ""
        self._thread = threading.Thread(target=self._run, name="log-lines", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        self._silent = False

    def write(self, line: str) -> None:
        """Never blocks."""
        if self._silent:
            return
        if len(self._waiting) >= MOST:
            self._lost += 1
            return
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        self._waiting.append(f"{self._stamp},{int((now - second) * 1000):03d} INFO {line}\n")
        if not self._news.is_set():
            self._news.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._news.wait()
            self._closed.wait(PAUSE)
            self._news.clear()
            self._flush()
        self._flush()

    def _flush(self) -> None:
        text = "".join(self._waiting.popleft() for _ in range(len(self._waiting)))
        if self._lost:
            text += f"{self._stamp},000 WARNING {self._lost} lines were lost, because nobody read them\n"
            self._lost = 0
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            self._stream.write(text)
            self._stream.flush()

    def close(self) -> None:
        """What was written is on the stream when it returns, if somebody reads it."""
        self._closed.set()
        self._news.set()
        self._thread.join(PATIENCE)
