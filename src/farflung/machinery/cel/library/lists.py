"""Functions of lists: Kubernetes' own, and cel-go's lists extension in version 3.

`sets.contains` and its like compare lists as sets, with the equality of CEL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

from farflung.machinery.cel.language.budget import STEP, Meter, Metered
from farflung.machinery.cel.language.declarations import Function, overload
from farflung.machinery.cel.language.equality import ORDERED, compare, equal, is_member
from farflung.machinery.cel.language.values import LISTS, Duration, EvaluationError, no_such_overload
from farflung.machinery.cel.library import costs
from farflung.machinery.cel.library.operators import add_durations, checked_int, checked_uint

COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
#: the names of cel-go's types in the ids of its extension
_GO_NAMES: Final = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}
_MAX_OF_RANGE: Final = 10_000_000


def walked(meter: Meter, elements: list[Any]) -> None:
    """Counts the content of a list, because empty and short texts cost nothing."""
    todo = [elements]
    while todo:
        inner = todo.pop()
        meter.work(STEP * (len(inner) + 1))
        for element in inner:
            if type(element) in LISTS:
                todo.append(element)
            elif type(element) is dict:
                todo.append(list(element.values()))


def _counted(implementation: Callable[[list[Any]], Any]) -> Metered:
    def counted(meter: Meter, elements: list[Any]) -> Any:
        walked(meter, elements)
        return implementation(elements)

    return Metered(counted)


def _is_sorted(elements: list[Any]) -> bool:
    return all(compare(one, next_one) <= 0 for one, next_one in pairwise(elements))


def smallest(elements: list[Any]) -> Any:
    return _extreme("min", elements, 1)


def largest(elements: list[Any]) -> Any:
    return _extreme("max", elements, -1)


def _extreme(name: str, elements: list[Any], worse: int) -> Any:
    if not elements:
        raise EvaluationError(f"{name} called on empty list")
    best = elements[0]
    for element in elements[1:]:
        if compare(best, element) == worse:
            best = element
    return best


def sum_of_ints(elements: list[int]) -> int:
    total = 0
    for element in elements:
        total = checked_int(total + element)
    return total


def sum_of_doubles(elements: list[float]) -> float:
    total = 0.0
    for element in elements:
        total += element
    return total


def sum_of_durations(elements: list[Duration]) -> Duration:
    total = Duration(0)
    for element in elements:
        total = add_durations(total, element)
    return total


_SUMS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "int": sum_of_ints,
    "uint": lambda elements: checked_uint(sum(elements)),
    "double": sum_of_doubles,
    "duration": sum_of_durations,
}


def index_of(meter: Meter, elements: list[Any], value: Any) -> int:
    walked(meter, elements)
    return next((index for index, element in enumerate(elements) if equal(meter, element, value)), -1)


def last_index_of(meter: Meter, elements: list[Any], value: Any) -> int:
    walked(meter, elements)
    backwards = range(len(elements) - 1, -1, -1)
    return next((index for index in backwards if equal(meter, elements[index], value)), -1)


def slice_of(meter: Meter, elements: list[Any], start: int, end: int) -> list[Any]:
    call = f"cannot slice({start}, {end})"
    if start < 0 or end < 0:
        raise EvaluationError(f"{call}, negative indexes not supported")
    if start > end:
        raise EvaluationError(f"{call}, start index must be less than or equal to end index")
    if len(elements) < end:
        raise EvaluationError(f"{call}, list is length {len(elements)}")
    meter.work(8 * (end - start))
    return list(elements[start:end])


def flatten(meter: Meter, elements: list[Any], depth: int) -> list[Any]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    meter.work(STEP * len(elements))
    flat: list[Any] = []
    for element in elements:
        if type(element) not in LISTS or depth == 0:
            flat.append(element)
        else:
            flat.extend(flatten(meter, element, depth - 1))
            meter.work(8 * len(element))
    return flat


def sort(meter: Meter, elements: list[Any]) -> list[Any]:
    return sort_by_keys(meter, elements, elements)


def sort_by_keys(meter: Meter, elements: list[Any], keys: list[Any]) -> list[Any]:
    """The elements in the order of their keys."""
    if not elements:
        return elements
    kind = type(keys[0])
    if kind not in ORDERED:
        raise EvaluationError("list elements must be comparable")
    if any(type(key) is not kind for key in keys):
        raise EvaluationError("list elements must have the same type")
    meter.work(STEP * len(elements))
    order = sorted(range(len(elements)), key=keys.__getitem__)
    return [elements[index] for index in order]


def distinct(meter: Meter, elements: list[Any]) -> list[Any]:
    """The first occurrence of each element."""
    if all(type(element) is str for element in elements):
        return list(dict.fromkeys(elements))
    different: list[Any] = []
    for element in elements:
        meter.work(STEP * len(different))
        if not any(equal(meter, element, other) for other in different):
            different.append(element)
    return different


def reverse(meter: Meter, elements: list[Any]) -> list[Any]:
    meter.work(8 * len(elements))
    return list(elements[::-1])


def range_of(meter: Meter, size: int) -> list[int]:
    if size < 0:
        raise EvaluationError(f"lists.range: size must be non-negative, got {size}")
    if size > _MAX_OF_RANGE:
        raise EvaluationError(f"lists.range: size {size} exceeds maximum allowed ({_MAX_OF_RANGE})")
    meter.work(40 * size)
    return list(range(size))


def _flatten_list(meter: Meter, elements: Any, depth: int = 1) -> list[Any]:
    """The checker accepts a list without lists if its type is dyn."""
    if type(elements) not in LISTS:
        raise no_such_overload()
    return flatten(meter, elements, depth)


_FLATTEN: Final = Metered(_flatten_list)


def _of_comparable(name: str, id: str, result: str, implementation: Callable[..., Any]) -> Iterator[Function]:
    """`{0}` is the name of the type of the elements."""
    for of in COMPARABLE:
        signature = f"list({of}) -> {result.format(of)}"
        yield overload(name, id.format(of), signature, _counted(implementation), costs.of_tree)


LIBRARY: Final[tuple[Function, ...]] = (
    *_of_comparable(".isSorted", "list_{0}_is_sorted_bool", "bool", _is_sorted),
    *_of_comparable(".max", "list_{0}_max_{0}", "{0}", largest),
    *_of_comparable(".min", "list_{0}_min_{0}", "{0}", smallest),
    *(
        overload(".sum", f"list_{of}_sum_{of}", f"list({of}) -> {of}", _counted(total), costs.of_tree)
        for of, total in _SUMS.items()
    ),
    overload(".indexOf", "list_a_index_of_int", "list(A), A -> int", Metered(index_of), costs.of_tree),
    overload(".lastIndexOf", "list_a_last_index_of_int", "list(A), A -> int", Metered(last_index_of), costs.of_tree),
)


def _sorted(name: str, suffix: str, signature: str, implementation: Metered, cost: Any) -> Iterator[Function]:
    for of in COMPARABLE:
        yield overload(name, f"list_{_GO_NAMES.get(of, of)}_{suffix}", signature.format(of), implementation, cost)


EXTENSION: Final[tuple[Function, ...]] = (
    overload(".slice", "list_slice", "list(A), int, int -> list(A)", Metered(slice_of), costs.of_new_list),
    overload(".flatten", "list_flatten", "list(list(A)) -> list(A)", _FLATTEN, costs.of_flattened),
    overload(".flatten", "list_flatten_int", "list(dyn), int -> list(dyn)", _FLATTEN, costs.of_flattened),
    *_sorted(".sort", "sort", "list({0}) -> list({0})", Metered(sort), costs.of_sorted),
    *_sorted(
        ".@sortByAssociatedKeys",
        "sortByAssociatedKeys",
        "list(A), list({0}) -> list(A)",
        Metered(sort_by_keys),
        costs.of_sorted_by_keys,
    ),
    overload("lists.range", "lists_range", "int -> list(int)", Metered(range_of), costs.of_new_list),
    overload(".reverse", "list_reverse", "list(A) -> list(A)", Metered(reverse), costs.of_new_list),
    overload(".distinct", "list_distinct", "list(A) -> list(A)", Metered(distinct), costs.of_sorted),
)


# --- Lists as sets --------------------------------------------------------------------------------


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


SETS: Final[tuple[Function, ...]] = (
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
