"""The operators, `size`, `in` and `type`: of every CEL.

The evaluator implements the logical ones itself.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, Final

from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.budget import Meter, Metered
from farflung.machinery.cel.language.declarations import Function, overload
from farflung.machinery.cel.language.equality import equal, has_key, hashable, is_member
from farflung.machinery.cel.language.values import (
    LEAST_INT,
    LISTS,
    MAX_INT,
    MAX_UINT,
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
    if LEAST_INT <= number <= MAX_INT:
        return number
    raise overflow()


def overflow() -> EvaluationError:
    return EvaluationError("integer overflow")


def checked_uint(number: int) -> UInt:
    if 0 <= number <= MAX_UINT:
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


def divide_uint(left: int, right: int) -> UInt:
    if right == 0:
        raise EvaluationError("division by zero")
    return UInt(left // right)


def modulo_uint(left: int, right: int) -> UInt:
    if right == 0:
        raise EvaluationError("modulus by zero")
    return UInt(left % right)


def divide_double(left: float, right: float) -> float:
    """Division by IEEE 754: by zero the result is infinite or NaN."""
    if right:
        return left / right
    if left == 0 or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _moved(one: Timestamp | Duration, other: Timestamp | Duration) -> Timestamp:
    return checked_timestamp(one.nanos + other.nanos)


def _difference(left: Timestamp | Duration, right: Timestamp | Duration) -> Duration:
    return checked_duration(left.nanos - right.nanos)


def add_durations(left: Duration, right: Duration) -> Duration:
    return checked_duration(left.nanos + right.nanos)


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


# --- the table ------------------------------------------------------------------------------------

#: types in the ids of comparisons
_ORDERED: Final = {
    "bool": "bool",
    "int64": "int",
    "uint64": "uint",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "timestamp": "timestamp",
    "duration": "duration",
}
_CROSSED: Final = (
    ("int64", "double"),
    ("int64", "uint64"),
    ("uint64", "double"),
    ("uint64", "int64"),
    ("double", "int64"),
    ("double", "uint64"),
)
_SIZED: Final = {"string": "string", "bytes": "bytes", "list": "list(A)", "map": "map(A, B)"}


def _comparison(prefix: str, name: str, implementation: Callable[[Any, Any], bool]) -> Iterator[Function]:
    for suffix, of in _ORDERED.items():
        cost = costs.of_smaller if of in ("string", "bytes") else None
        yield overload(name, f"{prefix}_{suffix}", f"{of}, {of} -> bool", implementation, cost)
    for left, right in _CROSSED:
        signature = f"{_ORDERED[left]}, {_ORDERED[right]} -> bool"
        yield overload(name, f"{prefix}_{left}_{right}", signature, implementation)


LIBRARY: Final[tuple[Function, ...]] = (
    overload(ast.CONDITIONAL, "conditional", "bool, A, A -> A"),
    overload(ast.AND, "logical_and", "bool, bool -> bool"),
    overload(ast.OR, "logical_or", "bool, bool -> bool"),
    overload(ast.NOT, "logical_not", "bool -> bool"),
    overload(ast.NOT_STRICTLY_FALSE, "not_strictly_false", "bool -> bool"),
    overload(ast.EQUAL, "equals", "A, A -> bool", Metered(equal), costs.of_equality),
    overload(
        ast.NOT_EQUAL,
        "not_equals",
        "A, A -> bool",
        Metered(lambda meter, left, right: not equal(meter, left, right)),
        costs.of_equality,
    ),
    *_comparison("less", ast.LESS, operator.lt),
    *_comparison("less_equals", ast.LESS_EQUAL, operator.le),
    *_comparison("greater", ast.GREATER, operator.gt),
    *_comparison("greater_equals", ast.GREATER_EQUAL, operator.ge),
    overload(ast.ADD, "add_bytes", "bytes, bytes -> bytes", Metered(concatenate), costs.of_both),
    overload(ast.ADD, "add_double", "double, double -> double", operator.add),
    overload(ast.ADD, "add_duration_duration", "duration, duration -> duration", add_durations),
    overload(ast.ADD, "add_duration_timestamp", "duration, timestamp -> timestamp", _moved),
    overload(ast.ADD, "add_timestamp_duration", "timestamp, duration -> timestamp", _moved),
    overload(ast.ADD, "add_int64", "int, int -> int", add_int),
    overload(ast.ADD, "add_list", "list(A), list(A) -> list(A)", Metered(concatenate_lists)),
    overload(ast.ADD, "add_string", "string, string -> string", Metered(concatenate), costs.of_both),
    overload(ast.ADD, "add_uint64", "uint, uint -> uint", lambda left, right: checked_uint(left + right)),
    overload(ast.SUBTRACT, "subtract_double", "double, double -> double", operator.sub),
    overload(ast.SUBTRACT, "subtract_duration_duration", "duration, duration -> duration", _difference),
    overload(ast.SUBTRACT, "subtract_int64", "int, int -> int", subtract_int),
    overload(
        ast.SUBTRACT,
        "subtract_timestamp_duration",
        "timestamp, duration -> timestamp",
        lambda moment, span: checked_timestamp(moment.nanos - span.nanos),
    ),
    overload(ast.SUBTRACT, "subtract_timestamp_timestamp", "timestamp, timestamp -> duration", _difference),
    overload(ast.SUBTRACT, "subtract_uint64", "uint, uint -> uint", lambda left, right: checked_uint(left - right)),
    overload(ast.MULTIPLY, "multiply_double", "double, double -> double", operator.mul),
    overload(ast.MULTIPLY, "multiply_int64", "int, int -> int", multiply_int),
    overload(ast.MULTIPLY, "multiply_uint64", "uint, uint -> uint", lambda left, right: checked_uint(left * right)),
    overload(ast.DIVIDE, "divide_double", "double, double -> double", divide_double),
    overload(ast.DIVIDE, "divide_int64", "int, int -> int", divide_int),
    overload(ast.DIVIDE, "divide_uint64", "uint, uint -> uint", divide_uint),
    overload(ast.MODULO, "modulo_int64", "int, int -> int", modulo_int),
    overload(ast.MODULO, "modulo_uint64", "uint, uint -> uint", modulo_uint),
    overload(ast.NEGATE, "negate_double", "double -> double", operator.neg),
    overload(ast.NEGATE, "negate_int64", "int -> int", lambda number: checked_int(-number)),
    overload(ast.INDEX, "index_list", "list(A), int -> A", index_list),
    overload(ast.INDEX, "index_map", "map(A, B), A -> B", index_map),
    overload(ast.INDEX, "optional_list_index_int", "optional_type(list(A)), int -> optional_type(A)"),
    overload(ast.INDEX, "optional_map_index_value", "optional_type(map(A, B)), A -> optional_type(B)"),
    overload(ast.OPTIONAL_INDEX, "list_optindex_optional_int", "list(A), int -> optional_type(A)"),
    overload(
        ast.OPTIONAL_INDEX, "optional_list_optindex_optional_int", "optional_type(list(A)), int -> optional_type(A)"
    ),
    overload(ast.OPTIONAL_INDEX, "map_optindex_optional_value", "map(A, B), A -> optional_type(B)"),
    overload(
        ast.OPTIONAL_INDEX, "optional_map_optindex_optional_value", "optional_type(map(A, B)), A -> optional_type(B)"
    ),
    overload(ast.OPTIONAL_SELECT, "select_optional_field", "dyn, string -> optional_type(dyn)"),
    overload(ast.IN, "in_list", "A, list(A) -> bool", Metered(is_member), costs.of_second),
    overload(ast.IN, "in_map", "A, map(A, B) -> bool", Metered(lambda _, key, mapping: has_key(mapping, key))),
    *(overload("size", f"size_{name}", f"{of} -> int", len) for name, of in _SIZED.items()),
    *(overload(".size", f"{name}_size", f"{of} -> int", len) for name, of in _SIZED.items()),
    overload("type", "type", "A -> type(A)", lambda value: TypeValue(type_name(value))),
)
