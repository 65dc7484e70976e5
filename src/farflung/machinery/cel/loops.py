"""Code of comprehensions: loops over lists and maps.

Comprehensions of macros are recognized: they run without an accumulator that grows by being copied, and end early.
Each step has the cost of its full evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from farflung.machinery.cel.language.budget import OverBudget
from farflung.machinery.cel.language.equality import has_key
from farflung.machinery.cel.language.values import LISTS, EvaluationError, no_such_overload, shown_key
from farflung.machinery.cel.selection import Code, Run


class Variables:
    """The slots of a loop's variables; `second` is None if it has only one."""

    __slots__ = ("first", "second")

    def __init__(self, first: int, second: int | None) -> None:
        self.first = first
        self.second = second

    def elements(self, collection: Any) -> Iterable[Any]:
        """The values of the loop: elements or keys, or pairs of index or key and value for two variables."""
        if type(collection) in LISTS:
            return collection if self.second is None else enumerate(collection)
        if type(collection) is dict:
            return collection if self.second is None else collection.items()
        raise no_such_overload()

    def set(self, run: Run, element: Any) -> None:
        if self.second is None:
            run.slots[self.first] = element
        else:
            run.slots[self.first], run.slots[self.second] = element


def bind(value: Code, slot: int, then: Code) -> Code:
    def bound(run: Run) -> Any:
        run.slots[slot] = value(run)
        return then(run)

    return bound


def search(collection: Code, variables: Variables, test: Code, *, decisive: bool) -> Code:
    """`all`, which a false test decides, and `exists`, which a true one does; errors matter only if none does."""
    asking = 3 if decisive else 2  #: cost of the condition before each element, with `!accumulator`

    def searched(run: Run) -> bool:
        elements = variables.elements(collection(run))
        error: EvaluationError | None = None
        run.spent += 1
        for element in elements:
            variables.set(run, element)
            run.spent += asking + 1
            if run.spent > run.limit:
                raise OverBudget
            try:
                outcome: object = test(run)
            except EvaluationError as raised:
                error = error or raised
                continue
            if outcome is decisive:
                return decisive
            if type(outcome) is not bool:
                error = error or no_such_overload()
        if error is not None:
            raise error
        return not decisive

    return searched


def build_list(collection: Code, variables: Variables, test: Code | None, element_of: Code, creation: int) -> Code:
    """`map` and `filter`.  `creation`: the cost of the list with one element that each step adds."""
    adding = 2 + creation

    def build(run: Run) -> list[Any]:
        built: list[Any] = []
        run.spent += 1
        for element in variables.elements(collection(run)):
            variables.set(run, element)
            if run.spent > run.limit:
                raise OverBudget
            if test is not None and not passes(test, run):
                continue
            built.append(element_of(run))
            run.spent += adding
        return built

    return build


def passes(test: Code, run: Run) -> bool:
    """A filtered element costs one read of the unchanged accumulator."""
    outcome = test(run)
    if outcome is True:
        return True
    run.spent += 1
    if outcome is not False:
        raise no_such_overload()
    return False


def build_map(collection: Code, variables: Variables, test: Code | None, key_of: Code | None, value_of: Code) -> Code:
    """`transformMap`, and, without a key, `transformMapEntry`, whose values are maps of the entries to add."""

    def build(run: Run) -> dict[Any, Any]:
        built: dict[Any, Any] = {}
        run.spent += 1
        for element in variables.elements(collection(run)):
            variables.set(run, element)
            if run.spent > run.limit:
                raise OverBudget
            if test is not None and not passes(test, run):
                continue
            run.spent += 2
            entries = value_of(run) if key_of is None else {key_of(run): value_of(run)}
            if type(entries) is not dict:
                raise no_such_overload()
            insert(built, entries)
        return built

    return build


def insert(built: dict[Any, Any], entries: dict[Any, Any]) -> None:
    for key, value in entries.items():
        if has_key(built, key):
            raise EvaluationError(f"insert failed: key {shown_key(key)} already exists")
        built[key] = value


def fold(
    collection: Code,
    variables: Variables,
    slot: int,
    init: Code,
    condition: Code,
    step: Code,
    result: Code,
) -> Code:
    """Any other comprehension."""

    def folded(run: Run) -> Any:
        elements = variables.elements(collection(run))
        run.slots[slot] = init(run)
        for element in elements:
            variables.set(run, element)
            if condition(run) is False:
                break
            run.slots[slot] = step(run)
            if run.spent > run.limit:
                raise OverBudget
        return result(run)

    return folded
