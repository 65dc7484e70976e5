"""Exponential backoff with jitter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MAX_RETRY_AFTER: Final = 4  #: longest Retry-After that is obeyed, in multiples of the longest delay


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles the delay with each failure, up to a limit, with jitter."""

    first: float  #: seconds
    longest: float
    random: Callable[[], float]  #: between 0 and 1

    def delay(self, failures: int, retry_after: float | None = None) -> float:
        """The delay after so many failures in a row, at least one: between half of the backoff and all of it.
        `retry_after`: the server's Retry-After, obeyed up to MAX_RETRY_AFTER times the longest delay."""
        whole = min(self.longest, self.first * 2.0 ** min(failures - 1, 32))
        return max(whole * (0.5 + self.random() / 2), min(retry_after or 0.0, self.longest * MAX_RETRY_AFTER))
