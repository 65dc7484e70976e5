"""`sets.contains` and its like: lists as sets, with the equality of CEL."""

from __future__ import annotations

from typing import Any, Final

from farflung.machinery.cel.language.budget import STEP, Meter, Metered
from farflung.machinery.cel.language.declarations import Function, overload
from farflung.machinery.cel.language.equality import is_member
from farflung.machinery.cel.library import costs


def contains(meter: Meter, elements: list[Any], others: list[Any]) -> bool:
    """Whether the elements contain all others."""
    for other in others:
        meter.work(STEP + 8 * len(elements))
        if not is_member(meter, other, elements):
            return False
    return True


def equivalent(meter: Meter, elements: list[Any], others: list[Any]) -> bool:
    return contains(meter, elements, others) and contains(meter, others, elements)


def intersects(meter: Meter, elements: list[Any], others: list[Any]) -> bool:
    for other in others:
        meter.work(STEP + 8 * len(elements))
        if is_member(meter, other, elements):
            return True
    return False


LIBRARY: Final[tuple[Function, ...]] = (
    overload("sets.contains", "list_sets_contains_list", "list(A), list(A) -> bool", Metered(contains), costs.of_sets),
    overload(
        "sets.equivalent",
        "list_sets_equivalent_list",
        "list(A), list(A) -> bool",
        Metered(equivalent),
        costs.of_sets_both_ways,
    ),
    overload(
        "sets.intersects", "list_sets_intersects_list", "list(A), list(A) -> bool", Metered(intersects), costs.of_sets
    ),
)
