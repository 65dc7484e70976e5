"""Where the logs of containers are.

    <directory>/pods/<pod uid>/logs/<container>/<attempt>.log      what it prints now
    <directory>/pods/<pod uid>/logs/<container>/<attempt>.log.1    what it printed before, if that was much

The lines are as container runtimes write them: `2026-11-16T06:30:00.000000000Z stdout F text`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

PREVIOUS: Final = 1  #: attempts whose logs are kept beside those of the present one


def pods_directory(directory: Path) -> Path:
    return directory / "pods"


def logs_directory(directory: Path, pod_uid: str, container: str) -> Path:
    return pods_directory(directory) / pod_uid / "logs" / container


def log_file(directory: Path, pod_uid: str, container: str, attempt: int) -> Path:
    return logs_directory(directory, pod_uid, container) / f"{attempt}.log"


def drop_old(directory: Path, pod_uid: str, container: str, attempt: int) -> None:
    """Forget what attempts long before this one printed."""
    for path in logs_directory(directory, pod_uid, container).glob("*.log*"):
        number = path.name.partition(".")[0]
        if number.isdecimal() and int(number) < attempt - PREVIOUS:
            path.unlink(missing_ok=True)
