"""Background processes of the demo, listed in a file so that a later command can stop them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from farflung.lib.files import write_private

GRACE: Final = 15.0  #: seconds between SIGTERM and SIGKILL
POLL: Final = 0.02


class Process(msgspec.Struct, frozen=True):
    """`began`: the start time of the process, because process ids are reused."""

    name: str
    pid: int
    began: str

    @property
    def is_alive(self) -> bool:
        return _began(self.pid) == self.began

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.is_alive:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def _began(pid: int) -> str:
    """Empty if it does not exist or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]


class Background:
    """The processes that a file lists."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def processes(self) -> list[Process]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[Process])
        except (OSError, msgspec.MsgspecError):
            return []

    def start(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
        """The process outlives this one."""
        with log.open("ab") as output:
            child = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(environment),
            )
        child.returncode = 0  # it is not waited for
        process = Process(name, child.pid, _began(child.pid))
        write_private(self._file, msgspec.json.encode([*self.processes(), process]))
        return process

    def stop(self) -> list[str]:
        """Stop all processes, the last one first; the names of those that were running."""
        ended = []
        for process in reversed(self.processes()):
            if process.is_alive:
                ended.append(process.name)
                process.signal(signal.SIGTERM)
                self._wait(process, GRACE)
                process.signal(signal.SIGKILL)
                self._wait(process, GRACE)
        self._file.unlink(missing_ok=True)
        return ended

    def _wait(self, process: Process, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while process.is_alive and time.monotonic() < deadline:
            time.sleep(POLL)
