"""Kill processes by an environment variable.

Also a program, to be run in the user namespace of rootless podman, where processes of all its users are visible.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path


def kill(mark: str) -> None:
    """`mark`: `NAME=value`."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and mark.encode() in _environment(process):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(process.name), signal.SIGKILL)


def _environment(process: Path) -> list[bytes]:
    """Empty if the process has ended or is not readable."""
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


if __name__ == "__main__":
    kill(sys.argv[1])
