"""JSON values in custom resources: their types, equality and keys, and numbers as Go writes them.

Kubernetes distinguishes 64-bit integers from floats.  In Python, 1 equals 1.0 and True.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeGuard

import orjson

LEAST: Final = -(2**63)
MAX_INTEGER: Final = 2**63 - 1
SAFE: Final = 2**53 - 1  #: integers up to here are exact as floats
TOLERANCE: Final = 1e-9


def is_integer(value: Any) -> bool:
    """Whether the API takes a value for an integer: also `1.0`, but no number of more than 64 bits."""
    if type(value) is int:
        return LEAST <= value <= MAX_INTEGER
    return type(value) is float and is_whole(value)


def is_number(value: Any) -> TypeGuard[int | float]:
    return type(value) is int or type(value) is float


def is_whole(number: float) -> bool:
    """Whether a float is nearly an integer, and small enough to be exact."""
    if not -SAFE <= number <= SAFE:
        return False
    whole = float(int(number))
    distance = abs(number - whole)
    return not distance or distance / (abs(number) + abs(whole)) < TOLERANCE


def is_multiple(value: int | float, factor: int | float) -> bool:
    if type(value) is int and float(factor).is_integer():
        return value % int(factor) == 0
    try:
        return is_whole(1 / factor * value if factor < 1 else value / factor)
    except OverflowError:
        return False


def kind_of(value: Any) -> str:
    """The JSON type of a value, as messages call it."""
    if type(value) is int:
        return "integer" if LEAST <= value <= MAX_INTEGER else "number"
    return KINDS[type(value)]


KINDS: Final = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    float: "number",
    type(None): "null",
}


def _of_class(exact: type) -> Callable[[Any], bool]:
    return lambda value: value.__class__ is exact


#: the name of a type → whether a value is of it
OF_TYPE: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": _of_class(dict),
    "array": _of_class(list),
    "string": _of_class(str),
    "boolean": _of_class(bool),
    "integer": is_integer,
    "number": is_number,
}


def limit_text(limit: int | float, value: int | float) -> str:
    """A limit as error messages show it: as an integer for integer values, if it is whole."""
    if type(value) is int and float(limit).is_integer():
        return str(int(limit))
    return float_text(float(limit))


def float_text(number: float) -> str:
    """Go's %v: the shortest digits, and an exponent from a million on."""
    if number == 0:
        return "0"
    mantissa, _, exponent = f"{number!r}".partition("e")
    if not exponent and 1e-4 <= abs(number) < 1e21:
        digits = mantissa.removesuffix(".0")
        if abs(number) < 1e6:
            return digits
        mantissa, exponent = _scientific(number)
    elif not exponent:
        mantissa, exponent = _scientific(number)
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+03d}"


def _scientific(number: float) -> tuple[str, str]:
    digits = f"{number!r}".lstrip("-").replace(".", "").strip("0")
    mantissa, _, exponent = f"{number:.{max(len(digits) - 1, 0)}e}".partition("e")
    return mantissa, exponent


def plain(value: Any) -> Any:
    """A number in messages: whole floats without a fraction."""
    return int(value) if type(value) is float and value.is_integer() and abs(value) < 1e6 else value


def canonicalize_numbers(value: Any) -> None:
    """Numbers in an object or a list as Go writes them, in place."""
    rest = [value]
    for container in rest:
        for place, item in container.items() if type(container) is dict else enumerate(container):
            if type(item) is float or type(item) is int:
                container[place] = canonical_number(item)
            elif type(item) is dict or type(item) is list:
                rest.append(item)


def canonical_number(number: int | float) -> int | float:
    """1.0 is written as 1, because clients may decode an integer.  Integers of more than 64 bits are floats."""
    if type(number) is int:
        return number if LEAST <= number <= MAX_INTEGER else canonical_number(float(number))
    if not float(number).is_integer() or not -(2.0**63) <= number < 2.0**64:
        return number
    whole = int(Decimal(repr(number)))
    return whole if whole >= LEAST else number  # the smallest float is written with other last digits


# --- equality and keys ----------------------------------------------------------------------------


def identical(value: Any) -> str | bytes:
    """A hashable key, equal for equal values only; 1 and 1.0 are different."""
    if type(value) is str:
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):  # an integer beyond 64 bits, or nested too deeply
        pass
    try:
        return repr(value).encode("utf-8", "surrogatepass")
    except RecursionError:
        return b"%d" % id(value)


def unchanged(old: Any, new: Any) -> bool:
    """Whether two values are identical JSON."""
    return old is new or (old == new and identical(old) == identical(new))


def same(value: Any, other: Any) -> bool:
    """Equal, numbers by their value."""
    if is_number(value) and is_number(other):
        return bool(value == other)
    return type(value) is type(other) and unchanged(value, other)


Key = tuple[str | bytes | None, ...]


def key_of(item: Any, names: Sequence[str]) -> Key:
    """Two items of a list have the same key if and only if they have the same values of the named fields."""
    if type(item) is not dict:
        return (None,) * len(names)
    return tuple(identical(item[name]) if name in item else None for name in names)


def by_key(items: Iterable[Any], names: Sequence[str]) -> dict[Key, Any]:
    """Items by key; of duplicates, the first."""
    index: dict[Key, Any] = {}
    for item in items:
        index.setdefault(key_of(item, names), item)
    return index
