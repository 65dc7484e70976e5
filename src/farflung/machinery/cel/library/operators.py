"""The operators, `size`, `in` and `type`: of every CEL.

The evaluator implements the logical ones itself.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.budget import Meter, Metered
from farflung.machinery.cel.language.declarations import Function, Overload
from farflung.machinery.cel.language.equality import equal, has_key, hashable, is_member
from farflung.machinery.cel.language.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    LIST_OF_A,
    MAP_OF_A_TO_B,
    OPTIONAL_OF_A,
    STRING,
    TIMESTAMP,
    TYPE_OF_A,
    UINT,
    A,
    B,
    Type,
    optional_of,
)
from farflung.machinery.cel.language.values import (
    LEAST_INT,
    LISTS,
    MOST_INT,
    MOST_UINT,
    NUMBERS,
    Duration,
    EvaluationError,
    MapList,
    SetList,
    Timestamp,
    TypeValue,
    UInt,
    checked_duration,
    checked_timestamp,
    no_such_key,
    no_such_overload,
    shown_key,
    type_name,
)
from farflung.machinery.cel.library import costs

# --- arithmetic -----------------------------------------------------------------------------------


def checked_int(number: int) -> int:
    if LEAST_INT <= number <= MOST_INT:
        return number
    raise overflow()


def overflow() -> EvaluationError:
    return EvaluationError("integer overflow")


def checked_uint(number: int) -> UInt:
    if 0 <= number <= MOST_UINT:
        return UInt(number)
    raise EvaluationError("unsigned integer overflow")


def add_int(left: int, right: int) -> int:
    return checked_int(left + right)


def subtract_int(left: int, right: int) -> int:
    return checked_int(left - right)


def multiply_int(left: int, right: int) -> int:
    return checked_int(left * right)


def divide_int(left: int, right: int) -> int:
    """Towards zero, unlike Python's."""
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return checked_int(quotient if (left < 0) == (right < 0) else -quotient)


def modulo_int(left: int, right: int) -> int:
    """The sign is the dividend's."""
    if right == 0:
        raise EvaluationError("modulus by zero")
    if left == LEAST_INT and right == -1:
        raise overflow()
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def negate_int(number: int) -> int:
    return checked_int(-number)


def add_uint(left: int, right: int) -> UInt:
    return checked_uint(left + right)


def subtract_uint(left: int, right: int) -> UInt:
    return checked_uint(left - right)


def multiply_uint(left: int, right: int) -> UInt:
    return checked_uint(left * right)


def divide_uint(left: int, right: int) -> UInt:
    if right == 0:
        raise EvaluationError("division by zero")
    return UInt(left // right)


def modulo_uint(left: int, right: int) -> UInt:
    if right == 0:
        raise EvaluationError("modulus by zero")
    return UInt(left % right)


def add_double(left: float, right: float) -> float:
    return left + right


def subtract_double(left: float, right: float) -> float:
    return left - right


def multiply_double(left: float, right: float) -> float:
    return left * right


def divide_double(left: float, right: float) -> float:
    """Division by IEEE 754: by zero the result is infinite or NaN."""
    if right:
        return left / right
    if left == 0 or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def negate_double(number: float) -> float:
    return -number


def add_timestamp_duration(moment: Timestamp, span: Duration) -> Timestamp:
    return checked_timestamp(moment.nanos + span.nanos)


def add_duration_timestamp(span: Duration, moment: Timestamp) -> Timestamp:
    return checked_timestamp(moment.nanos + span.nanos)


def add_durations(left: Duration, right: Duration) -> Duration:
    return checked_duration(left.nanos + right.nanos)


def subtract_durations(left: Duration, right: Duration) -> Duration:
    return checked_duration(left.nanos - right.nanos)


def subtract_timestamps(left: Timestamp, right: Timestamp) -> Duration:
    return checked_duration(left.nanos - right.nanos)


def subtract_timestamp_duration(moment: Timestamp, span: Duration) -> Timestamp:
    return checked_timestamp(moment.nanos - span.nanos)


# --- texts and lists ------------------------------------------------------------------------------


def concatenate(meter: Meter, left: Any, right: Any) -> Any:
    meter.work(len(left) + len(right))
    return left + right


def concatenate_lists(meter: Meter, left: list[Any], right: list[Any]) -> list[Any]:
    """A set gets its missing elements; in a map list, elements of the right side replace those with the same keys."""
    meter.work(8 * (len(left) + len(right)))
    if type(left) is SetList:
        members = {(type(element), element) for element in hashable(left)}
        added = {(type(element), element): element for element in hashable(right)}
        return SetList(left + [element for key, element in added.items() if key not in members])
    if type(left) is MapList:
        merged = {hashable([left.key_of(element)])[0]: element for element in left}
        merged.update({hashable([left.key_of(element)])[0]: element for element in right})
        return MapList(merged.values(), left.keys)
    return [*left, *right]


def contains_key(_: Meter, key: Any, mapping: dict[Any, Any]) -> bool:
    return has_key(mapping, key)


def index_list(elements: list[Any], index: Any) -> Any:
    if type(index) not in NUMBERS or index % 1 != 0:
        raise EvaluationError(f"unsupported index type '{type_name(index)}' in list")
    if not 0 <= index < len(elements):
        raise EvaluationError(f"index out of bounds: {shown_key(index)}")
    return elements[int(index)]


def index_map(mapping: dict[Any, Any], key: Any) -> Any:
    if not has_key(mapping, key):
        raise no_such_key(key)
    return mapping[key]


def index(container: Any, key: Any) -> Any:
    """`container[key]` if the type of the container is only known at run time."""
    if type(container) is dict:
        return index_map(container, key)
    if type(container) in LISTS:
        return index_list(container, key)
    raise no_such_overload()


def not_equal(meter: Meter, left: Any, right: Any) -> bool:
    return not equal(meter, left, right)


def type_of(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


# --- order ----------------------------------------------------------------------------------------


#: the names of types in the ids of comparisons
_ORDERED: Final = (
    ("bool", BOOL),
    ("int64", INT),
    ("uint64", UINT),
    ("double", DOUBLE),
    ("string", STRING),
    ("bytes", BYTES),
    ("timestamp", TIMESTAMP),
    ("duration", DURATION),
)
_CROSSED: Final = (
    ("int64", INT, "double", DOUBLE),
    ("int64", INT, "uint64", UINT),
    ("uint64", UINT, "double", DOUBLE),
    ("uint64", UINT, "int64", INT),
    ("double", DOUBLE, "int64", INT),
    ("double", DOUBLE, "uint64", UINT),
)


def _comparison(prefix: str, name: str, implementation: Callable[[Any, Any], bool]) -> Function:
    overloads = []
    for suffix, of in _ORDERED:
        cost = costs.of_smaller if of in (STRING, BYTES) else None
        overloads.append(Overload(f"{prefix}_{suffix}", (of, of), BOOL, False, implementation, cost))
    for left_name, left, right_name, right in _CROSSED:
        overloads.append(Overload(f"{prefix}_{left_name}_{right_name}", (left, right), BOOL, False, implementation))
    return Function(name, tuple(overloads))


# --- the table ------------------------------------------------------------------------------------


def _binary(id: str, of: Type, implementation: Callable[..., Any], cost: Any = None) -> Overload:
    return Overload(id, (of, of), of, False, implementation, cost)


def _sizes() -> Iterable[Overload]:
    for of, name in ((STRING, "string"), (BYTES, "bytes"), (LIST_OF_A, "list"), (MAP_OF_A_TO_B, "map")):
        yield Overload(f"size_{name}", (of,), INT, False, len)
    for of, name in ((STRING, "string"), (BYTES, "bytes"), (LIST_OF_A, "list"), (MAP_OF_A_TO_B, "map")):
        yield Overload(f"{name}_size", (of,), INT, True, len)


_ADD: Final = (
    Overload("add_bytes", (BYTES, BYTES), BYTES, False, Metered(concatenate), costs.of_both),
    _binary("add_double", DOUBLE, add_double),
    _binary("add_duration_duration", DURATION, add_durations),
    Overload("add_duration_timestamp", (DURATION, TIMESTAMP), TIMESTAMP, False, add_duration_timestamp),
    Overload("add_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, False, add_timestamp_duration),
    _binary("add_int64", INT, add_int),
    Overload("add_list", (LIST_OF_A, LIST_OF_A), LIST_OF_A, False, Metered(concatenate_lists)),
    Overload("add_string", (STRING, STRING), STRING, False, Metered(concatenate), costs.of_both),
    _binary("add_uint64", UINT, add_uint),
)
_SUBTRACT: Final = (
    _binary("subtract_double", DOUBLE, subtract_double),
    _binary("subtract_duration_duration", DURATION, subtract_durations),
    _binary("subtract_int64", INT, subtract_int),
    Overload("subtract_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, False, subtract_timestamp_duration),
    Overload("subtract_timestamp_timestamp", (TIMESTAMP, TIMESTAMP), DURATION, False, subtract_timestamps),
    _binary("subtract_uint64", UINT, subtract_uint),
)
_NEGATE: Final = (
    Overload("negate_double", (DOUBLE,), DOUBLE, False, negate_double),
    Overload("negate_int64", (INT,), INT, False, negate_int),
)
_INDEX: Final = (
    Overload("index_list", (LIST_OF_A, INT), A, False, index_list),
    Overload("index_map", (MAP_OF_A_TO_B, A), B, False, index_map),
    Overload("optional_list_index_int", (optional_of(LIST_OF_A), INT), OPTIONAL_OF_A),
    Overload("optional_map_index_value", (optional_of(MAP_OF_A_TO_B), A), optional_of(B)),
)
_OPTIONAL_INDEX: Final = (
    Overload("list_optindex_optional_int", (LIST_OF_A, INT), OPTIONAL_OF_A),
    Overload("optional_list_optindex_optional_int", (optional_of(LIST_OF_A), INT), OPTIONAL_OF_A),
    Overload("map_optindex_optional_value", (MAP_OF_A_TO_B, A), optional_of(B)),
    Overload("optional_map_optindex_optional_value", (optional_of(MAP_OF_A_TO_B), A), optional_of(B)),
)
_IN: Final = (
    Overload("in_list", (A, LIST_OF_A), BOOL, False, Metered(is_member), costs.of_second),
    Overload("in_map", (A, MAP_OF_A_TO_B), BOOL, False, Metered(contains_key)),
)

LIBRARY: Final[tuple[Function, ...]] = (
    Function(ast.CONDITIONAL, (Overload("conditional", (BOOL, A, A), A),)),
    Function(ast.AND, (Overload("logical_and", (BOOL, BOOL), BOOL),)),
    Function(ast.OR, (Overload("logical_or", (BOOL, BOOL), BOOL),)),
    Function(ast.NOT, (Overload("logical_not", (BOOL,), BOOL),)),
    Function(ast.NOT_STRICTLY_FALSE, (Overload("not_strictly_false", (BOOL,), BOOL),)),
    Function(ast.EQUAL, (Overload("equals", (A, A), BOOL, False, Metered(equal), costs.of_equality),)),
    Function(ast.NOT_EQUAL, (Overload("not_equals", (A, A), BOOL, False, Metered(not_equal), costs.of_equality),)),
    _comparison("less", ast.LESS, operator.lt),
    _comparison("less_equals", ast.LESS_EQUAL, operator.le),
    _comparison("greater", ast.GREATER, operator.gt),
    _comparison("greater_equals", ast.GREATER_EQUAL, operator.ge),
    Function(ast.ADD, _ADD),
    Function(ast.SUBTRACT, _SUBTRACT),
    Function(
        ast.MULTIPLY,
        (
            _binary("multiply_double", DOUBLE, multiply_double),
            _binary("multiply_int64", INT, multiply_int),
            _binary("multiply_uint64", UINT, multiply_uint),
        ),
    ),
    Function(
        ast.DIVIDE,
        (
            _binary("divide_double", DOUBLE, divide_double),
            _binary("divide_int64", INT, divide_int),
            _binary("divide_uint64", UINT, divide_uint),
        ),
    ),
    Function(ast.MODULO, (_binary("modulo_int64", INT, modulo_int), _binary("modulo_uint64", UINT, modulo_uint))),
    Function(ast.NEGATE, _NEGATE),
    Function(ast.INDEX, _INDEX),
    Function(ast.OPTIONAL_INDEX, _OPTIONAL_INDEX),
    Function(ast.OPTIONAL_SELECT, (Overload("select_optional_field", (DYN, STRING), optional_of(DYN)),)),
    Function(ast.IN, _IN),
    Function("size", tuple(_sizes())),
    Function("type", (Overload("type", (A,), TYPE_OF_A, False, type_of),)),
)
