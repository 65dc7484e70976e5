"""Functions of lists: Kubernetes' own, and cel-go's lists extension in version 3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

from farflung.machinery.cel.language.budget import STEP, Meter, Metered
from farflung.machinery.cel.language.declarations import Function, Overload
from farflung.machinery.cel.language.equality import ORDERED, compare, equal
from farflung.machinery.cel.language.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    LIST_OF_A,
    LIST_OF_DYN,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    Type,
    list_of,
)
from farflung.machinery.cel.language.values import LISTS, Duration, EvaluationError, UInt, no_such_overload
from farflung.machinery.cel.library import costs
from farflung.machinery.cel.library.operators import add_durations, checked_int, checked_uint

COMPARABLE: Final[tuple[tuple[str, Type], ...]] = (
    ("int", INT),
    ("uint", UINT),
    ("double", DOUBLE),
    ("bool", BOOL),
    ("duration", DURATION),
    ("timestamp", TIMESTAMP),
    ("string", STRING),
    ("bytes", BYTES),
)
#: the names of cel-go's types in the ids of its extension
_GO_NAMES: Final = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}
_MOST_OF_RANGE: Final = 10_000_000

LIST_OF_INT: Final = list_of(INT)


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


def is_sorted(elements: list[Any]) -> bool:
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


def sum_of_uints(elements: list[int]) -> UInt:
    return checked_uint(sum(elements))


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
    "uint": sum_of_uints,
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


def flatten(meter: Meter, elements: list[Any]) -> list[Any]:
    return flatten_deep(meter, elements, 1)


def flatten_deep(meter: Meter, elements: list[Any], depth: int) -> list[Any]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    meter.work(STEP * len(elements))
    flat: list[Any] = []
    for element in elements:
        if type(element) not in LISTS or depth == 0:
            flat.append(element)
        else:
            flat.extend(flatten_deep(meter, element, depth - 1))
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
    if size > _MOST_OF_RANGE:
        raise EvaluationError(f"lists.range: size {size} exceeds maximum allowed ({_MOST_OF_RANGE})")
    meter.work(40 * size)
    return list(range(size))


def _only_lists(implementation: Callable[..., Any]) -> Metered:
    """The checker accepts a list without lists if its type is dyn."""

    def flattened(meter: Meter, elements: Any, *depth: int) -> Any:
        if type(elements) not in LISTS:
            raise no_such_overload()
        return implementation(meter, elements, *depth)

    return Metered(flattened)


def _of_comparable(name: str, id: str, result: Type | None, implementation: Callable[..., Any]) -> Function:
    return Function(
        name,
        tuple(
            Overload(id.format(label), (list_of(of),), result or of, True, _counted(implementation), costs.of_tree)
            for label, of in COMPARABLE
        ),
    )


def _declared() -> Iterator[Function]:
    yield _of_comparable("isSorted", "list_{0}_is_sorted_bool", BOOL, is_sorted)
    yield _of_comparable("max", "list_{0}_max_{0}", None, largest)
    yield _of_comparable("min", "list_{0}_min_{0}", None, smallest)
    types = dict(COMPARABLE)
    yield Function(
        "sum",
        tuple(
            Overload(
                f"list_{label}_sum_{label}",
                (list_of(types[label]),),
                types[label],
                True,
                _counted(total),
                costs.of_tree,
            )
            for label, total in _SUMS.items()
        ),
    )
    for name, id, found in (
        ("indexOf", "list_a_index_of_int", index_of),
        ("lastIndexOf", "list_a_last_index_of_int", last_index_of),
    ):
        yield Function(name, (Overload(id, (LIST_OF_A, A), INT, True, Metered(found), costs.of_tree),))


LIBRARY: Final[tuple[Function, ...]] = tuple(_declared())


def _declared_in_extension() -> Iterator[Function]:
    two = (LIST_OF_A, INT, INT)
    yield Function("slice", (Overload("list_slice", two, LIST_OF_A, True, Metered(slice_of), costs.of_new_list),))
    yield Function(
        "flatten",
        (
            Overload("list_flatten", (list_of(LIST_OF_A),), LIST_OF_A, True, _only_lists(flatten), costs.of_flattened),
            Overload(
                "list_flatten_int",
                (LIST_OF_DYN, INT),
                LIST_OF_DYN,
                True,
                _only_lists(flatten_deep),
                costs.of_flattened,
            ),
        ),
    )
    yield Function(
        "sort",
        tuple(
            Overload(
                f"list_{_GO_NAMES.get(label, label)}_sort",
                (list_of(of),),
                list_of(of),
                True,
                Metered(sort),
                costs.of_sorted,
            )
            for label, of in COMPARABLE
        ),
    )
    yield Function(
        "@sortByAssociatedKeys",
        tuple(
            Overload(
                f"list_{_GO_NAMES.get(label, label)}_sortByAssociatedKeys",
                (LIST_OF_A, list_of(of)),
                LIST_OF_A,
                True,
                Metered(sort_by_keys),
                costs.of_sorted_by_keys,
            )
            for label, of in COMPARABLE
        ),
    )
    yield Function(
        "lists.range", (Overload("lists_range", (INT,), LIST_OF_INT, False, Metered(range_of), costs.of_new_list),)
    )
    yield Function(
        "reverse", (Overload("list_reverse", (LIST_OF_A,), LIST_OF_A, True, Metered(reverse), costs.of_new_list),)
    )
    yield Function(
        "distinct", (Overload("list_distinct", (LIST_OF_A,), LIST_OF_A, True, Metered(distinct), costs.of_sorted),)
    )


EXTENSION: Final[tuple[Function, ...]] = tuple(_declared_in_extension())
