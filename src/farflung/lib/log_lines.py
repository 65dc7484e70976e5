"""The hub's log format."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Final, TextIO

from farflung.lib.outlet import Outlet

log = logging.getLogger(__name__)

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

    def write(self, line: Callable[[], str], size: int) -> None:
        """`line` returns the text, or nothing for no line.  If the stream is an outlet, its thread calls it."""
        if self._silent:
            return
        formatted = partial(self._formatted, time.time(), line)
        outlet = getattr(self._stream, "buffer", None)
        if isinstance(outlet, Outlet):
            outlet.defer(formatted, size)
        else:
            self._stream.write(formatted().decode())

    @property
    def lost(self) -> int:
        """Lines of all writers of the stream that were lost."""
        outlet = getattr(self._stream, "buffer", None)
        return outlet.lost if isinstance(outlet, Outlet) else 0

    def drain(self) -> None:
        """Waits until everything is written, or until the reader has read nothing for too long."""
        outlet = getattr(self._stream, "buffer", None)
        if isinstance(outlet, Outlet):
            outlet.drain()

    def _formatted(self, now: float, line: Callable[[], str]) -> bytes:
        text = line()
        if not text:
            return b""
        second = int(now)
        if second != self._second:
            self._second = second
            self._stamp = time.strftime(TIME, time.localtime(second))
        return f"{self._stamp},{int((now - second) * 1000):03d} INFO {text}\n".encode(errors="backslashreplace")


class EventLines(LogLines):
    """A writer of lines of JSON."""

    def _formatted(self, now: float, line: Callable[[], str]) -> bytes:
        text = line()
        return f"{text}\n".encode() if text else b""


def lost_events(number: int) -> str:
    """Called for lost audit events.  The line is one of the log, not of the audit log."""
    log.warning("%d audit events were lost, because the audit log could not be written, or too slowly", number)
    return ""
