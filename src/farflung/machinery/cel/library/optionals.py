"""Values that may be missing: `optional.of(x)`, `a.?b.orValue('c')`; and the insertion that the map macros need.

`or` and `orValue` do not need their argument if there is a value, so the evaluator implements them.
"""

from __future__ import annotations

from typing import Any, Final

from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.budget import Meter, Metered
from farflung.machinery.cel.language.declarations import Function, Overload
from farflung.machinery.cel.language.equality import has_key
from farflung.machinery.cel.language.types import BOOL, LIST_OF_A, MAP_OF_A_TO_B, OPTIONAL_OF_A, A, B, list_of
from farflung.machinery.cel.language.values import NONE, Duration, EvaluationError, OptionalValue, Timestamp, shown_key

OR: Final = "optional_or_optional"
OR_VALUE: Final = "optional_orValue_value"
_EPOCH: Final = Timestamp(0)
_NOTHING: Final = Duration(0)


def of_non_zero(value: Any) -> OptionalValue:
    """None of the value that its type begins with."""
    missing = value is None or value in (_EPOCH, _NOTHING) or not value
    return NONE if missing else OptionalValue(value)


def has_value(optional: OptionalValue) -> bool:
    return optional is not NONE


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
    Function("optional.of", (Overload("optional_of", (A,), OPTIONAL_OF_A, False, OptionalValue),)),
    Function(
        "optional.ofNonZeroValue", (Overload("optional_ofNonZeroValue", (A,), OPTIONAL_OF_A, False, of_non_zero),)
    ),
    Function("optional.none", (Overload("optional_none", (), OPTIONAL_OF_A, False, lambda: NONE),)),
    Function("optional.unwrap", (Overload("optional_unwrap", (list_of(OPTIONAL_OF_A),), LIST_OF_A, False, unwrap),)),
    Function("unwrapOpt", (Overload("optional_unwrapOpt", (list_of(OPTIONAL_OF_A),), LIST_OF_A, True, unwrap),)),
    Function("hasValue", (Overload("optional_hasValue", (OPTIONAL_OF_A,), BOOL, True, has_value),)),
    Function("value", (Overload("optional_value", (OPTIONAL_OF_A,), A, True, value_of),)),
    Function("or", (Overload(OR, (OPTIONAL_OF_A, OPTIONAL_OF_A), OPTIONAL_OF_A, True),)),
    Function("orValue", (Overload(OR_VALUE, (OPTIONAL_OF_A, A), A, True),)),
    Function("first", (Overload("list_first", (LIST_OF_A,), OPTIONAL_OF_A, True, first),)),
    Function("last", (Overload("list_last", (LIST_OF_A,), OPTIONAL_OF_A, True, last),)),
    Function(
        ast.MAP_INSERT,
        (
            Overload("@mapInsert_map_map", (MAP_OF_A_TO_B, MAP_OF_A_TO_B), MAP_OF_A_TO_B, False, Metered(insert_all)),
            Overload("@mapInsert_map_key_value", (MAP_OF_A_TO_B, A, B), MAP_OF_A_TO_B, False, Metered(insert)),
        ),
    ),
)
