"""Lower and upper bounds of a size or a cost.  Numbers saturate at 2**64 - 1, as in Go."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

INFINITE: Final = 2**64 - 1

TRAVERSAL: Final = 0.1  #: the cost of one character
REGEX: Final = 0.25  #: factor of one character of a regular expression


class Bounds(NamedTuple):
    low: int
    high: int

    def plus(self, other: Bounds) -> Bounds:
        return Bounds(min(self.low + other.low, INFINITE), min(self.high + other.high, INFINITE))

    def times(self, other: Bounds) -> Bounds:
        return Bounds(min(self.low * other.low, INFINITE), min(self.high * other.high, INFINITE))

    def scaled(self, factor: float) -> Bounds:
        """Rounded up."""
        return Bounds(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: Bounds) -> Bounds:
        return Bounds(min(self.low, other.low), max(self.high, other.high))


def _scaled(number: int, factor: float) -> int:
    product = math.ceil(float(number) * factor)
    return INFINITE if product >= 2**64 else product


def exactly(number: int) -> Bounds:
    return Bounds(number, number)


UNKNOWN: Final = Bounds(0, INFINITE)
NOTHING: Final = Bounds(0, 0)
ONE: Final = Bounds(1, 1)
IMPOSSIBLE: Final = Bounds(INFINITE, 0)  #: the start of a union
