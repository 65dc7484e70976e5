"""The hub's log format."""

from __future__ import annotations

import logging
import time
import traceback
from functools import partial
from types import TracebackType
from typing import Final, TextIO

from farflung.lib.outlet import Outlet

FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"
TIME: Final = "%Y-%m-%d %H:%M:%S"


class DiscreetFormatter(logging.Formatter):
    """Logs the place and type of an exception, not its text, which may quote a client's data."""

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


def lost(number: int) -> str:
    """The line that replaces lost ones."""
    return f"{time.strftime(TIME)},000 WARNING {number} lines were lost, because the reader was too slow"


class LogLines:
    """A fast writer of INFO lines."""

    def __init__(self, stream: TextIO, *, silent: bool = False) -> None:
        """`silent`: until `begin`."""
        self._stream = stream
        self._silent = silent
        self._second = 0
        self._stamp = ""

    def begin(self) -> None:
        self._silent = False

    def write(self, line: object) -> None:
        """`str(line)` is the text, or empty for no line.  If the stream is an outlet, its thread formats the line."""
        if self._silent:
            return
        outlet = getattr(self._stream, "buffer", None)
        if isinstance(outlet, Outlet):
            outlet.defer(partial(self._formatted, time.time(), line))
        else:
            self._stream.write(self._formatted(time.time(), line).decode())

    def _formatted(self, now: float, line: object) -> bytes:
        text = str(line)
        if not text:
            return b""
        second = int(now)
        if second != self._second:
            self._second = second
            self._stamp = time.strftime(TIME, time.localtime(second))
        return f"{self._stamp},{int((now - second) * 1000):03d} INFO {text}\n".encode(errors="backslashreplace")
