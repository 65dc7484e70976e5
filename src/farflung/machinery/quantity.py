"""Quantities: `100m`, `1536Mi`, `12e6`.

Values are exact: a whole number of nanos, the finest grain Kubernetes keeps.  A quantity remembers which of the three
notations it was written in and is written in the same one again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

DECIMAL: Final = "DecimalSI"
BINARY: Final = "BinarySI"
EXPONENT: Final = "DecimalExponent"

FORMAT_WRONG: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_WRONG: Final = "unable to parse quantity's suffix"

MAX_TEXT: Final = 256  #: characters; beyond it a text is refused before any arithmetic
LARGEST_EXPONENT: Final = 1000
NANO: Final = -9
BEYOND: Final = 10 ** (LARGEST_EXPONENT + 2 - NANO)  #: nanos; the canonical form of more may have a larger exponent
ONE: Final = 10**9  #: one, in nanos
LARGEST_BINARY: Final = 2**63 - 1  #: binary quantities stop here, silently

DECIMAL_SUFFIXES: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
SUFFIX_OF_POWER: Final = {power: suffix for suffix, power in DECIMAL_SUFFIXES.items()}
SUFFIX_OF_SHIFT: Final = {0: ""} | {shift: suffix for suffix, shift in BINARY_SUFFIXES.items()}

GRAMMAR: Final = re.compile(
    r"(?P<sign>[+-]?)0*+(?P<whole>[0-9]*+)(?:\.(?P<fraction>[0-9]*+))?(?P<suffix>[eEinumkKMGTP]*+[-+]?[0-9]*+)"
)


class QuantityError(ValueError):
    """A text that is no quantity; its message is the one Kubernetes gives."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    nanos: int
    notation: str = DECIMAL

    def __str__(self) -> str:
        return written(self.nanos, self.notation)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: Quantity) -> bool:
        return self.nanos <= other.nanos

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos + other.nanos, self._notation_with(other))

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self._notation_with(other))

    def _notation_with(self, other: Quantity) -> str:
        """A sum is written like its first part, unless that is zero."""
        return self.notation if self.nanos else other.notation

    def rounded_up(self, power: int) -> Quantity:
        """The nearest multiple of 10**power that is not nearer to zero (`power` -3: whole millis)."""
        unit = _ten_to(power - NANO)
        return Quantity(_away_from_zero(self.nanos, unit) * unit, self.notation)

    @property
    def whole(self) -> int:
        """Rounded away from zero to a whole number."""
        return _away_from_zero(self.nanos, ONE)

    @property
    def milli(self) -> int:
        """In thousandths, rounded away from zero."""
        return _away_from_zero(self.nanos, 10**6)


ZERO: Final = Quantity(0)


@lru_cache(maxsize=4096)
def parse(text: str) -> Quantity:
    """Raises QuantityError."""
    return _read(text).quantity


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The text as the API gives it back: `1000m` → `1`, `0.5` → `500m`, `1.5Gi` → `1536Mi`.  Raises QuantityError.

    As in Kubernetes, some texts stay as they are, for example `+1` and `1.025`.
    """
    read = _read(text)
    return text if read.keep else str(read.quantity)


@dataclass(frozen=True, slots=True)
class _Read:
    quantity: Quantity
    keep: bool = False  #: the text stays as it is


def _read(text: str) -> _Read:
    if not text or len(text) > MAX_TEXT:
        raise QuantityError(FORMAT_WRONG)
    match = GRAMMAR.fullmatch(text)
    if match is None:
        raise QuantityError(FORMAT_WRONG)
    sign, whole, fraction, suffix = match.group("sign", "whole", "fraction", "suffix")
    digits = (whole or "0") + (fraction or "")
    negative = sign == "-"
    if (shift := BINARY_SUFFIXES.get(suffix)) is not None:
        return _binary(int(digits), len(fraction or ""), shift, negative)
    power, notation = _power(suffix)
    power -= len(fraction or "")
    nanos = _scaled(int(digits), power)
    if nanos >= BEYOND:
        raise QuantityError(SUFFIX_WRONG)
    quantity = Quantity(-nanos if negative else nanos, notation)
    tidy = power >= NANO and power % 3 == 0 and len(digits) <= 18 and digits[0] != "0" and digits[-3:] != "000"
    return _Read(quantity, keep=tidy)


def _power(suffix: str) -> tuple[int, str]:
    power = DECIMAL_SUFFIXES.get(suffix)
    if power is not None:
        return power, DECIMAL
    if len(suffix) < 2 or suffix[0] not in "eE":
        raise QuantityError(SUFFIX_WRONG)
    try:
        power = int(suffix[1:])
    except ValueError:
        raise QuantityError(SUFFIX_WRONG) from None
    if abs(power) > LARGEST_EXPONENT:
        raise QuantityError(SUFFIX_WRONG)
    return power, EXPONENT


def _ten_to(power: int) -> int:
    return int(10**power)


def _scaled(number: int, power: int) -> int:
    """number * 10**power in nanos, rounded up."""
    if power >= NANO:
        return number * _ten_to(power - NANO)
    return -(-number // _ten_to(NANO - power))


def _binary(number: int, places: int, shift: int, negative: bool) -> _Read:
    nanos = min(_scaled(number << shift, -places), LARGEST_BINARY * ONE)
    notation = DECIMAL if 0 < nanos < ONE else BINARY
    fast = not places and 15 - len(str(number)) - shift * 3 // 10 - 1 >= 0
    return _Read(Quantity(-nanos if negative else nanos, notation), keep=fast and number & 7 != 0)


def _away_from_zero(number: int, unit: int) -> int:
    return -(-number // unit) if number > 0 else number // unit


def written(nanos: int, notation: str) -> str:
    """The canonical text: no fraction, the largest suffix that loses nothing."""
    if nanos == 0:
        return "0"
    if notation == BINARY and abs(nanos) >= 1024 * ONE and nanos % ONE == 0:
        number = nanos // ONE
        shift = 0
        while shift < 60 and number % 1024 == 0:
            number //= 1024
            shift += 10
        return f"{number}{SUFFIX_OF_SHIFT[shift]}"
    return _written_decimal(nanos, notation)


def _written_decimal(nanos: int, notation: str) -> str:
    number, power = nanos, NANO
    while number % 1000 == 0:
        number //= 1000
        power += 3
    if notation == EXPONENT:
        return f"{number}e{power}" if power else str(number)
    suffix = SUFFIX_OF_POWER.get(power)
    return f"{number}e{power}" if suffix is None else f"{number}{suffix}"
