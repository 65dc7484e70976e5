"""Exponential backoff with jitter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MOST_ASKED: Final = 4  #: times the longest pause, that somebody else may ask for


@dataclass(frozen=True, slots=True)
class Backoff:
    """Twice as long each time, up to a limit, and never two clients at the same moment."""

    first: float  #: seconds
    longest: float
    random: Callable[[], float]  #: between 0 and 1

    def delay(self, failures: int, asked: float | None = None) -> float:
        """After so many failures in a row, one at least: between half of it and all of it.  `asked`: what the other
        side wants at least, if that can be waited for."""
        whole = min(self.longest, self.first * 2.0 ** min(failures - 1, 32))
        return max(whole * (0.5 + self.random() / 2), min(asked or 0.0, self.longest * MOST_ASKED))
