"""Log files of containers, in CRI format: `2026-11-16T06:30:00.000000000Z stdout F text`.

    <directory>/pods/<pod uid>/logs/<container>/<attempt>.log      the current log
    <directory>/pods/<pod uid>/logs/<container>/<attempt>.log.1    the rotated log

`F` is the end of a line, `P` a part of a long line.  A log is rotated at half of its size limit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

MAX_LOG: Final = 10 * 1024 * 1024  #: bytes, with the rotated log
MAX_PART: Final = 16 * 1024  #: bytes of text in one entry
PREVIOUS: Final = 1  #: earlier attempts whose logs are kept


def rotated(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def log_line(moment: datetime, stream: str, text: bytes, *, whole: bool = True) -> bytes:
    time = moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return b"%s000Z %s %s %s\n" % (time.encode(), stream.encode(), b"F" if whole else b"P", text)


class LogWriter:
    """Never raises: a full disk does not stop a container."""

    def __init__(self, path: Path, now: Callable[[], datetime], limit: int = MAX_LOG) -> None:
        self._path = path
        self._now = now
        self._limit = limit
        self._rests: dict[str, bytes] = {}  #: unfinished lines by stream
        self._file: BinaryIO | None = None
        self._size = 0

    def feed(self, stream: str, data: bytes) -> None:
        """`stream`: stdout or stderr."""
        moment = self._now()
        *lines, rest = (self._rests.pop(stream, b"") + data).split(b"\n")
        written = [part for line in lines for part in _parts(moment, stream, line)]
        while len(rest) >= MAX_PART:
            written.append(log_line(moment, stream, rest[:MAX_PART], whole=False))
            rest = rest[MAX_PART:]
        if rest:
            self._rests[stream] = rest
        for line in written:
            self._write(line)
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.flush()

    def close(self) -> None:
        """Unfinished lines are written as lines."""
        for stream, rest in sorted(self._rests.items()):
            self._write(log_line(self._now(), stream, rest))
        self._rests.clear()
        self._close()

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(OSError):
            file = self._opened(len(line))
            file.write(line)
            self._size += len(line)

    def _opened(self, more: int) -> BinaryIO:
        if self._file is not None and self._size + more > self._limit // 2:
            self._close()
            self._path.replace(rotated(self._path))
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab")
            self._size = self._file.tell()
        return self._file

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()


def _parts(moment: datetime, stream: str, line: bytes) -> list[bytes]:
    starts = range(0, max(len(line), 1), MAX_PART)
    return [
        log_line(moment, stream, line[start : start + MAX_PART], whole=start + MAX_PART >= len(line))
        for start in starts
    ]


def pods_directory(directory: Path) -> Path:
    return directory / "pods"


def logs_directory(directory: Path, pod_uid: str, container: str) -> Path:
    return pods_directory(directory) / pod_uid / "logs" / container


def log_file(directory: Path, pod_uid: str, container: str, attempt: int) -> Path:
    return logs_directory(directory, pod_uid, container) / f"{attempt}.log"


def remove_old_logs(directory: Path, pod_uid: str, container: str, attempt: int) -> None:
    """Delete logs of attempts before the previous one."""
    for path in logs_directory(directory, pod_uid, container).glob("*.log*"):
        number = path.name.partition(".")[0]
        if number.isdecimal() and int(number) < attempt - PREVIOUS:
            path.unlink(missing_ok=True)
