"""Values that may be missing: `optional.of(x)`, `a.?b.orValue('c')`; and the insertion that the map macros need.

`or` and `orValue` do not need their argument if there is a value, so the evaluator implements them.
"""

from __future__ import annotations

from typing import Any, Final

from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.budget import Meter, Metered
from farflung.machinery.cel.language.declarations import Function, overload
from farflung.machinery.cel.language.equality import has_key
from farflung.machinery.cel.language.values import NONE, Duration, EvaluationError, OptionalValue, Timestamp, shown_key

OR: Final = "optional_or_optional"
OR_VALUE: Final = "optional_orValue_value"
_EPOCH: Final = Timestamp(0)
_NOTHING: Final = Duration(0)


def of_non_zero(value: Any) -> OptionalValue:
    """None of the value that its type begins with."""
    missing = value is None or value in (_EPOCH, _NOTHING) or not value
    return NONE if missing else OptionalValue(value)


def value_of(optional: OptionalValue) -> Any:
    if optional is NONE:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def unwrap(optionals: list[OptionalValue]) -> list[Any]:
    return [optional.value for optional in optionals if optional is not NONE]


def first(elements: list[Any]) -> OptionalValue:
    return OptionalValue(elements[0]) if elements else NONE


def last(elements: list[Any]) -> OptionalValue:
    return OptionalValue(elements[-1]) if elements else NONE


def insert(meter: Meter, mapping: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    if has_key(mapping, key):
        raise EvaluationError(f"insert failed: key {shown_key(key)} already exists")
    meter.work(100 * len(mapping))
    return {**mapping, key: value}


def insert_all(meter: Meter, mapping: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
    for key, value in other.items():
        mapping = insert(meter, mapping, key, value)
    return mapping


LIBRARY: Final[tuple[Function, ...]] = (
    overload("optional.of", "optional_of", "A -> optional_type(A)", OptionalValue),
    overload("optional.ofNonZeroValue", "optional_ofNonZeroValue", "A -> optional_type(A)", of_non_zero),
    overload("optional.none", "optional_none", "-> optional_type(A)", lambda: NONE),
    overload("optional.unwrap", "optional_unwrap", "list(optional_type(A)) -> list(A)", unwrap),
    overload(".unwrapOpt", "optional_unwrapOpt", "list(optional_type(A)) -> list(A)", unwrap),
    overload(".hasValue", "optional_hasValue", "optional_type(A) -> bool", lambda optional: optional is not NONE),
    overload(".value", "optional_value", "optional_type(A) -> A", value_of),
    overload(".or", OR, "optional_type(A), optional_type(A) -> optional_type(A)"),
    overload(".orValue", OR_VALUE, "optional_type(A), A -> A"),
    overload(".first", "list_first", "list(A) -> optional_type(A)", first),
    overload(".last", "list_last", "list(A) -> optional_type(A)", last),
    overload(ast.MAP_INSERT, "@mapInsert_map_map", "map(A, B), map(A, B) -> map(A, B)", Metered(insert_all)),
    overload(ast.MAP_INSERT, "@mapInsert_map_key_value", "map(A, B), A, B -> map(A, B)", Metered(insert)),
)
