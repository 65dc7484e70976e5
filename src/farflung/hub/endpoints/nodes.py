"""What the hub asks of whatever runs the pods it has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LogsWanted:
    """Which lines of what one container of a pod has printed."""

    pod_uid: str
    container: str
    attempt: int  #: how often the container was started before
    follow: bool = False
    tail: int | None = None  #: the last so many lines that are there
    since: datetime | None = None
    timestamps: bool = False
    limit: int | None = None  #: bytes


class Nodes(Protocol):
    def logs(self, node: str, wanted: LogsWanted, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
        """The lines, in pieces of any size; none if there are none.  With `follow` those that come later as well, until
        `ended` says that the container has printed its last."""
