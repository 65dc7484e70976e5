"""What an expression found, as something that has an order and can be shown.

    room = Room()                       once for a row
    value = room.value_of(found)        UnfitError if it cannot be shown, or is too large for it
    cell(value)                         as a StatusSummary has it

Two values are equal if CEL says so, whatever they were computed from: 1, 1u and 1.0 are the same number.
"""

from __future__ import annotations

import enum
import math
from decimal import Decimal
from fractions import Fraction
from types import NoneType
from typing import Any, Final, NamedTuple

import orjson

from farflung.machinery.cel.library.moments import written_duration, written_timestamp
from farflung.machinery.cel.values import (
    LISTS,
    MOST_INT,
    NONE,
    NUMBERS,
    Duration,
    OptionalValue,
    Timestamp,
    shown_key,
    type_name,
)
from farflung.machinery.errors import Obj

LONGEST_TEXT: Final = 1024  #: characters
LARGEST: Final = 4096  #: bytes of a list or a map as JSON
LARGEST_ROW: Final = 8192  #: bytes of all values of a row
DEEPEST: Final = 32  #: levels of a list or a map

_SMALL: Final = 8  #: bytes that anything else takes
_WHOLE: Final = 1 << 64  #: whole numbers below this are written with all their digits


class Form(enum.IntEnum):
    """What a value is.  Values of different forms have the order of their forms."""

    NULL = enum.auto()
    BOOL = enum.auto()
    NUMBER = enum.auto()
    TIMESTAMP = enum.auto()
    DURATION = enum.auto()
    STRING = enum.auto()
    LIST = enum.auto()
    MAP = enum.auto()

    @property
    def words(self) -> str:
        return self.name.lower()


class Value(NamedTuple):
    form: Form
    content: Any  #: of the same type for the same form, so that it has an order; JSON with sorted keys of LIST and MAP


NULL: Final = Value(Form.NULL, None)


MOMENTS: Final = frozenset({Form.TIMESTAMP, Form.DURATION})


class Wanted(NamedTuple):
    """What values have to be, and how to say so."""

    forms: frozenset[Form]
    words: str


ANYTHING: Final = Wanted(frozenset(Form), "something that JSON has")
TRUTH: Final = Wanted(frozenset({Form.BOOL}), "bool")
NUMBER: Final = Wanted(frozenset({Form.NUMBER}), "a number")
ORDERED: Final = Wanted(
    frozenset({Form.NUMBER, Form.TIMESTAMP, Form.DURATION, Form.STRING}),
    "a number, a string, a timestamp or a duration",
)


class UnfitError(ValueError):
    pass


# --- values ---------------------------------------------------------------------------------------


class Room:
    """What may be kept of one row.  What does not fit takes its part as well, so trying has an end, too."""

    def __init__(self) -> None:
        self._left = LARGEST_ROW

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise UnfitError(f"makes the row larger than {LARGEST_ROW} bytes")

    def value_of(self, found: Any) -> Value:
        """Of a value of CEL.  An optional stands for what is in it, or for null."""
        found = _unwrapped(found)
        if type(found) is str:
            return Value(Form.STRING, self._text(found))
        if type(found) in LISTS:
            return Value(Form.LIST, self._json(found))
        if type(found) is dict:
            return Value(Form.MAP, self._json(found))
        self.take(_SMALL)
        return _small(found)

    def _text(self, found: str) -> str:
        if len(found) > LONGEST_TEXT:
            raise UnfitError(f"is a string of {len(found)} characters, of which {LONGEST_TEXT} are allowed")
        self.take(len(found))
        return found

    def _json(self, found: Any) -> bytes:
        written = orjson.dumps(_Plain(self).of(found), option=orjson.OPT_SORT_KEYS)
        if len(written) > LARGEST:
            raise _too_large()
        return written


class _Plain:
    """Lists and maps as JSON has them.  Parts may be shared, so what they are in the end may be far larger than what
    was computed: it ends when it is sure that they are too large."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._left = LARGEST + 1

    def of(self, found: Any, level: int = 0) -> Any:
        if level > DEEPEST:
            raise UnfitError(f"has more than {DEEPEST} levels")
        self._take(2)  # with a comma or brackets; one too many altogether
        found = _unwrapped(found)
        if type(found) in LISTS:
            return [self.of(each, level + 1) for each in found]
        if type(found) is dict:
            return {self._text(shown_key(key)): self.of(each, level + 1) for key, each in found.items()}
        if type(found) is str:
            return self._text(found)
        value = _small(found)
        return written_moment(value) if value.form in MOMENTS else value.content

    def _text(self, text: str) -> str:
        self._take(len(text))
        return text

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _too_large()
        self._room.take(size)


def _too_large() -> UnfitError:
    return UnfitError(f"has more than {LARGEST} bytes as JSON")


def _unwrapped(found: Any) -> Any:
    if type(found) is not OptionalValue:
        return found
    return None if found is NONE else found.value


def _small(found: Any) -> Value:
    kind = type(found)
    if kind is NoneType:
        return NULL
    if kind is bool:
        return Value(Form.BOOL, found)
    if kind in NUMBERS:
        return number(_number(found))
    if kind is Timestamp:
        return Value(Form.TIMESTAMP, found.nanos)
    if kind is Duration:
        return Value(Form.DURATION, found.nanos)
    raise UnfitError(f"must be {ANYTHING.words}, not {type_name(found)}")


def number(content: int | float | Fraction) -> Value:
    return Value(Form.NUMBER, content)


def _number(found: int | float) -> int | float:
    if type(found) is not float:
        return int(found)
    if not math.isfinite(found):
        raise UnfitError("is no finite number")
    return int(found) if found.is_integer() and abs(found) < MOST_INT else found


# --- cells ----------------------------------------------------------------------------------------


def cell(value: Value) -> Obj:
    match value.form:
        case Form.NULL:
            return {"type": "Null"}
        case Form.BOOL:
            return {"type": "Bool", "bool": value.content}
        case Form.NUMBER:
            return {"type": "Number", "float": written_number(value.content)}
        case Form.TIMESTAMP | Form.DURATION:
            return {"type": "String", "string": written_moment(value)}
        case Form.STRING:
            return {"type": "String", "string": value.content}
        case Form.LIST:
            return {"type": "Array", "array": orjson.loads(value.content)}
        case Form.MAP:
            return {"type": "Object", "object": orjson.loads(value.content)}


def written_moment(value: Value) -> str:
    nanos = value.content
    return written_timestamp(Timestamp(nanos)) if value.form is Form.TIMESTAMP else written_duration(Duration(nanos))


def written_number(number: int | float | Fraction) -> str:
    """As few digits as tell its nearest double apart, and all of them if it is whole and not huge."""
    whole = int(number)
    if whole == number and abs(whole) < _WHOLE:
        return str(whole)
    try:
        nearest = float(number)
    except OverflowError:
        return f"{Decimal(whole):.16e}"
    return str(int(nearest)) if nearest.is_integer() and abs(nearest) < _WHOLE else repr(nearest)
