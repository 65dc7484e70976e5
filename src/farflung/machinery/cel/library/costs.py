"""Costs of calls, from their arguments and results, as in Kubernetes 1.34 and cel-go."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Final

from farflung.machinery.cel.language.budget import PER_CALL
from farflung.machinery.cel.language.values import LISTS

Arguments = tuple[Any, ...]

TRAVERSAL: Final = 0.1  #: of one character
REGEX: Final = 0.25  #: of one character of a pattern
LIST_CREATION: Final = 10
MAP_CREATION: Final = 30
COST_OF_CHECK: Final = 350_000  #: of asking for a permission

_SIZED: Final = frozenset({str, bytes, dict}) | LISTS


def size(value: Any) -> int:
    """The number of characters, bytes, elements or entries; the `size` of Kubernetes' own values."""
    if type(value) in _SIZED:
        return len(value)
    return int(getattr(value, "size", 1))


def traversal(value: Any, times: int = 1) -> int:
    return ceil(size(value) * times * TRAVERSAL)


def of_text(arguments: Arguments, _: Any) -> int:
    """One traversal of the first argument."""
    return traversal(arguments[0])


def of_text_twice(arguments: Arguments, _: Any) -> int:
    return traversal(arguments[0], 2)


def of_smaller(arguments: Arguments, _: Any) -> int:
    """A comparison ends with the shorter argument."""
    return ceil(min(size(arguments[0]), size(arguments[1])) * TRAVERSAL)


def of_equality(arguments: Arguments, _: Any) -> int:
    left, right = arguments
    if type(left) in _SIZED and type(right) in _SIZED:
        return ceil(min(len(left), len(right)) * TRAVERSAL)
    return 1


def of_both(arguments: Arguments, _: Any) -> int:
    return ceil((size(arguments[0]) + size(arguments[1])) * TRAVERSAL)


def of_product(arguments: Arguments, _: Any) -> int:
    return traversal(arguments[0]) * traversal(arguments[1])


def of_match(arguments: Arguments, _: Any) -> int:
    return regex(size(arguments[0]), size(arguments[1]))


def regex(text: int, pattern: int) -> int:
    return ceil((1 + text) * TRAVERSAL) * ceil(pattern * REGEX)


def of_second(arguments: Arguments, _: Any) -> int:
    """`in` visits every element."""
    return size(arguments[1])


def of_joined(_: Arguments, result: Any) -> int:
    return traversal(result, 2)


def of_tree(arguments: Arguments, _: Any) -> int:
    """A walk over the whole first argument; it ends when it exceeds every budget."""
    cost = 0
    todo = [arguments[0]]
    while todo and cost <= PER_CALL:
        value = todo.pop()
        if type(value) is str or type(value) is bytes:
            cost += int(len(value) * TRAVERSAL)
        elif type(value) in LISTS:
            todo.extend(value)
        elif type(value) is dict:
            todo.extend(value)
            todo.extend(value.values())
        else:
            cost += 1
    return cost


def of_new_list(_: Arguments, result: Any) -> int:
    return allocation(len(result))


def of_flattened(arguments: Arguments, _: Any) -> int:
    depth = arguments[1] if len(arguments) == 2 else 1
    return allocation(len(arguments[0]) * depth)


def of_sorted(arguments: Arguments, _: Any) -> int:
    return _of_self_comparison(arguments[0])


def of_sorted_by_keys(arguments: Arguments, _: Any) -> int:
    return _of_self_comparison(arguments[1])


def _of_self_comparison(elements: list[Any]) -> int:
    textual = bool(elements) and type(elements[0]) in (str, bytes)
    return allocation(int(len(elements) ** 2 * (2 + TRAVERSAL * textual)))


def of_authorization(_: Arguments, __: Any) -> int:
    return COST_OF_CHECK


#: costs that depend on the result, or are forgiven by the call; all others are paid in advance
AFTERWARDS: Final = frozenset({of_joined, of_new_list, of_authorization})
#: work of calls that take much longer than their cost, by overload; 60 for a microsecond
SLOW_CALLS: Final[Mapping[str, int]] = {
    "string_to_timestamp": 150,
    "timestamp_to_string": 150,
    "string_to_duration": 100,
    "duration_to_string": 60,
    "double_to_string": 80,
    **{
        f"timestamp_to_{part}{zone}": 200
        for part in (
            *("year", "month", "day_of_year", "day_of_month", "day_of_month_1_based", "day_of_week"),
            *("hours", "minutes", "seconds", "milliseconds"),
        )
        for zone in ("", "_with_tz")
    },
    "string_to_ip": 120,
    "is_ip": 150,
    "ip_is_canonical": 150,
    "string_to_cidr": 200,
    "is_cidr": 200,
    "cidr_masked": 100,
    "cidr_contains_ip_string": 200,
    "cidr_contains_cidr_string": 300,
    "string_to_url": 250,
    "is_url_string": 60,
}


def allocation(elements: int) -> int:
    return elements + 1 + LIST_CREATION


def of_sets(arguments: Arguments, _: Any) -> int:
    """Every element of one is compared with every one of the other."""
    return 1 + size(arguments[0]) * size(arguments[1])


def of_sets_both_ways(arguments: Arguments, _: Any) -> int:
    return 1 + 2 * size(arguments[0]) * size(arguments[1])
