"""How long to wait before trying again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Twice as long each time, up to a limit, and never two clients at the same moment."""

    first: float  #: seconds
    longest: float
    random: Callable[[], float]  #: between 0 and 1

    def delay(self, failures: int) -> float:
        """After so many failures in a row, one at least: between half of it and all of it."""
        whole = min(self.longest, self.first * 2.0 ** min(failures - 1, 32))
        return whole * (0.5 + self.random() / 2)
