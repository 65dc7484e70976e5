"""The hub's log format."""

from __future__ import annotations

import logging
import os
import time
import traceback
from collections.abc import Callable
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Final, TextIO

from farflung.lib import klog
from farflung.lib.outlet import Outlet

log = logging.getLogger(__name__)

TIME: Final = "%m%d %H:%M:%S"
AUDIT: Final = "audit.py:1"  #: where its lines come from


class KlogFormatter(logging.Formatter):
    """Logs the place and type of an exception, not its text, which may quote a client's data."""

    def format(self, record: logging.LogRecord) -> str:
        level = klog.INFO if record.levelno < logging.WARNING else klog.WARNING
        if record.levelno >= logging.ERROR:
            level = klog.ERROR
        where = f"{record.filename}:{record.lineno}"
        return klog.unquoted(level, datetime.fromtimestamp(record.created), where, super().format(record))

    def formatException(
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        kind, _, place = ei
        lines = traceback.format_tb(place)
        return "".join([*lines, kind.__name__ if kind is not None else ""])


def configure(stream: TextIO, *, verbose: bool) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(KlogFormatter())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])


class LogLines:
    """A fast writer of the lines of the audit."""

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
            self._stamp = klog.INFO + time.strftime(TIME, time.localtime(second))
        fraction = int((now - second) * 1_000_000)
        whole = f"{self._stamp}.{fraction:06d} {os.getpid():7} {AUDIT}] {text}\n"
        return whole.encode(errors="backslashreplace")


class EventLines(LogLines):
    """A writer of lines of JSON."""

    def _formatted(self, now: float, line: Callable[[], str]) -> bytes:
        text = line()
        return f"{text}\n".encode() if text else b""


def lost_events(number: int) -> str:
    """Called for lost audit events.  The line is one of the log, not of the audit log."""
    log.warning("%d audit events were lost, because the audit log could not be written, or too slowly", number)
    return ""
