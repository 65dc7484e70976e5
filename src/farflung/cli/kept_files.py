"""A copy of the files of the global scheduler as they were when they last made sense.

A process that is started again while they do not goes on with it: what is wrong with a file of one controller must not
keep all of them away.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from farflung.cli.scheduler_configuration import Configuration
from farflung.cli.scheduler_files import ConfigurationError, Files
from farflung.lib.files import write_private


class Reading(NamedTuple):
    """What files say."""

    configured: Configuration
    when: datetime  #: they said so
    problem: str = ""  #: what is wrong with them now, if that was before


class _Copy(msgspec.Struct):
    when: datetime
    texts: dict[str, str]  #: by absolute paths


@dataclass(frozen=True, slots=True)
class KeptFiles:
    path: str = ""  #: of the copy; empty: nothing is kept

    def keep(self, files: Files, now: datetime) -> None:
        """As they were read last.  Raises OSError, and UnicodeEncodeError if a path is no text."""
        if self.path and not ((kept := self._copy()) and kept.texts == files.texts):
            write_private(Path(self.path), msgspec.json.encode(_Copy(now, files.texts)))

    def read(self, files: Files, now: datetime) -> Reading:
        """What they say, or else what they said when they were kept.  Raises ConfigurationError."""
        try:
            return Reading(files.read(), now)
        except ConfigurationError as error:
            if not (kept := self._copy()):
                raise
            try:
                return Reading(files.read_from(kept.texts), kept.when, str(error))
            except ConfigurationError:  # the copy is of other files
                raise error from None

    def _copy(self) -> _Copy | None:
        try:
            return msgspec.json.decode(Path(self.path).read_bytes(), type=_Copy) if self.path else None
        except (OSError, msgspec.MsgspecError):
            return None
