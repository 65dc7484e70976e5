"""Log lines in the format of klog, as Kubernetes' programs write them:

    I0321 06:25:23.108443    9071 controller.go:201] "starting controller" controller="edge-scheduler"

A level, the month and day, the time, the process, where in the code it is, the message, and what it is about.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final, TextIO

import orjson

INFO: Final = "I"
WARNING: Final = "W"
ERROR: Final = "E"
LONGEST_ERROR: Final = 4096  #: characters; a server may quote a whole request


class Bare(str):
    """A value that is printed without quotes, on one line."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Logger:
    """Prints messages with a level of at most `verbosity`."""

    stream: TextIO
    verbosity: int = 0
    now: Callable[[], datetime] = datetime.now
    values: tuple[tuple[str, object], ...] = ()

    def bind(self, **values: object) -> Logger:
        """A logger that adds these values to every line, before its own."""
        return replace(self, values=(*self.values, *values.items()))

    def enabled(self, v: int) -> bool:
        return v <= self.verbosity

    def info(self, message: str, *, v: int = 0, **values: object) -> None:
        if v <= self.verbosity:
            self._print(INFO, message, values)

    def plain(self, message: str, *, v: int = 0) -> None:
        """A message without quotes and values."""
        if v <= self.verbosity:
            self._print(INFO, Bare(message), {})

    def warning(self, message: str, **values: object) -> None:
        self._print(WARNING, message, values)

    def error(self, error: BaseException | None, message: str, **values: object) -> None:
        values_of_error = {} if error is None else {"err": _shortened(f"{error}") or type(error).__name__}
        self._print(ERROR, message, {**values_of_error, **values})

    def _print(self, level: str, message: str, values: dict[str, object]) -> None:
        frame = sys._getframe(2)
        where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        line = _line(level, self.now(), where, message, (*self.values, *values.items()))
        try:
            self.stream.write(f"{line}\n")
            self.stream.flush()
        except (OSError, ValueError):
            pass  # the reader closed the pipe


def unquoted(level: str, now: datetime, where: str, message: str) -> str:
    """A line with a message as it is.  `where`: the file and line that logs it."""
    return _line(level, now, where, Bare(message), ())


def lost(number: int) -> str:
    """The line in the place of dropped lines."""
    return _line(WARNING, datetime.now(), "klog.py:1", f"{number} lines were lost, because the reader was too slow", ())


def _line(level: str, now: datetime, where: str, message: str, values: Iterable[tuple[str, object]]) -> str:
    fields = "".join(f" {name}={shown(value)}" for name, value in values)
    head = message if isinstance(message, Bare) else quoted(message)
    return f"{level}{now.strftime('%m%d %H:%M:%S.%f')} {os.getpid():7} {where}] {head}{fields}"


def _shortened(text: str) -> str:
    left_out = len(text) - LONGEST_ERROR
    return text if left_out <= 0 else f"{text[:LONGEST_ERROR]}… ({left_out} more characters)"


def shown(value: object) -> str:
    """A text in quotes, a long one indented; numbers and truth values as they are; other things as JSON."""
    if isinstance(value, Bare):
        return _visible(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if value is None:
        return "<nil>"
    if isinstance(value, dict | list) or (isinstance(value, tuple) and not hasattr(value, "_fields")):
        return orjson.dumps(value, default=str).decode()
    text = str(value)
    if "\n" in text:
        lines = text.removesuffix("\n").split("\n")
        return "<\n" + "".join(f"\t{_visible(line)}\n" for line in lines) + " >"
    return quoted(text)


def quoted(text: str) -> str:
    """A text as Go quotes it."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _visible(line: str) -> str:
    """Nothing in it moves the cursor of a terminal, so that no line looks like another."""
    if line.isprintable():
        return line
    return "".join(one if one == "\t" or one.isprintable() else _escaped(one) for one in line)


_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\a": "\\a", "\b": "\\b"}


def _escaped(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
