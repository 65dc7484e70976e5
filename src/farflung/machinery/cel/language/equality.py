"""Equality and order of values.

Numbers of different types are equal if they are the same number; other values of different types are not equal, which
is no error.  Unlike in Python, a bool is no number.
"""

from __future__ import annotations

from typing import Any, Final

from farflung.machinery.cel.language.budget import STEP, Meter
from farflung.machinery.cel.language.values import (
    LISTS,
    NONE,
    NUMBERS,
    Duration,
    EvaluationError,
    MapList,
    OptionalValue,
    SetList,
    Timestamp,
    UInt,
    no_such_overload,
)

#: types whose values Python compares like CEL with values of the same type
SCALARS: Final = frozenset({bool, int, float, str, bytes, type(None)})
LONG: Final = 1000  #: characters of a text whose comparison counts
ORDERED: Final = frozenset({bool, int, UInt, float, str, bytes, Timestamp, Duration})


def equal(meter: Meter, left: Any, right: Any) -> bool:
    kind, other = type(left), type(right)
    if kind is other and kind in SCALARS:
        if kind is str and len(left) > LONG:
            meter.work(len(left))
        return bool(left == right)
    if kind in NUMBERS and other in NUMBERS:
        return bool(left == right)
    if kind in LISTS:
        return other in LISTS and len(left) == len(right) and _equal_lists(meter, left, right)
    if kind is dict:
        return other is dict and len(left) == len(right) and _equal_maps(meter, left, right)
    if kind is OptionalValue:
        if other is not OptionalValue or left is NONE or right is NONE:
            return left is right
        return equal(meter, left.value, right.value)
    return kind is other and bool(left == right)


def _equal_lists(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    meter.work(STEP * (len(left) + 1))
    if type(left) is SetList:
        members = {(type(element), element) for element in hashable(left)}
        return all((type(element), element) in members for element in hashable(right))
    if type(left) is MapList:
        return _equal_by_key(meter, left, right)
    return all(equal(meter, one, other) for one, other in zip(left, right, strict=True))


def _equal_by_key(meter: Meter, left: MapList, right: list[Any]) -> bool:
    by_key = dict(zip(hashable([left.key_of(element) for element in left]), left, strict=True))
    for element in right:
        key = left.key_of(element)
        hashable([key])
        if key not in by_key or not equal(meter, by_key[key], element):
            return False
    return True


def hashable(values: list[Any]) -> list[Any]:
    """The same values.  Raises EvaluationError if one cannot be the key of a dict."""
    try:
        for value in values:
            hash(value)
    except TypeError:
        raise no_such_overload() from None
    return values


def _equal_maps(meter: Meter, left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    meter.work(STEP * (len(left) + 1))
    return all(has_key(right, key) and equal(meter, value, right[key]) for key, value in left.items())


def has_key(mapping: dict[Any, Any], key: Any) -> bool:
    """In Python `true` and 1 are the same key, in CEL they are not.  The keys of a map have one type."""
    kind = type(key)
    if kind is str:
        return key in mapping
    if kind is not bool and kind not in NUMBERS:
        return False
    return key in mapping and (kind is bool) is (type(next(iter(mapping))) is bool)


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1.  Raises EvaluationError if the values have no order; NaN has no order with any number."""
    kind, other = type(left), type(right)
    if kind not in ORDERED or (kind is not other and not (kind in NUMBERS and other in NUMBERS)):
        raise no_such_overload()
    if left < right:
        return -1
    if right < left:
        return 1
    if left != right:
        raise EvaluationError("NaN values cannot be ordered")
    return 0


def is_member(meter: Meter, value: Any, elements: list[Any]) -> bool:
    """`value in elements`."""
    kind = type(value)
    if kind is str:
        return value in elements
    return any(equal(meter, element, value) for element in elements)
