"""Closures that select parts of values: fields, keys, indices, and their presence.

Every function takes the code of an operand and returns the code of the selection.  Objects are dicts by property name,
and a null property counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from farflung.machinery.cel.adapt import Adapter
from farflung.machinery.cel.language.budget import Meter
from farflung.machinery.cel.language.equality import has_key
from farflung.machinery.cel.language.values import (
    LISTS,
    NONE,
    NUMBERS,
    EvaluationError,
    OptionalValue,
    no_such_key,
    no_such_overload,
)
from farflung.machinery.cel.library.operators import index, index_list


class Run(Meter):
    """One evaluation: the values of the variables, and its cost so far."""

    __slots__ = ("slots",)

    def __init__(self, slots: list[Any], limit: int) -> None:
        self.limit = limit
        self.spent = 0
        self.worked = 0
        self.slots = slots


Code = Callable[[Run], Any]

ABSENT: Final = object()
NOTHING: Final[dict[str, Any]] = {}  #: the fields of null


def variable(slot: int) -> Code:
    def load(run: Run) -> Any:
        run.spent += 1
        return run.slots[slot]

    return load


def adapted(code: Code, adapter: Adapter | None) -> Code:
    if adapter is None:
        return code

    def adapt(run: Run) -> Any:
        value = code(run)
        return None if value is None else adapter(run, value)

    return adapt


# --- fields ---------------------------------------------------------------------------------------


def fields_of_variable(slot: int, path: tuple[tuple[str, str], ...]) -> Code:
    """Fields of fields of a variable that is an object or null, each by its property and its name in CEL."""
    cost = 1 + len(path)
    if len(path) == 1:
        ((property, name),) = path

        def field(run: Run) -> Any:
            run.spent += 2
            value = (run.slots[slot] or NOTHING).get(property)
            if value is None:
                raise no_such_key(name)
            return value

        return field

    def fields(run: Run) -> Any:
        run.spent += cost
        value = run.slots[slot] or NOTHING
        for property, name in path:
            value = value.get(property)
            if value is None:
                raise no_such_key(name)
        return value

    return fields


def field_of_object(operand: Code, property: str, name: str) -> Code:
    def field(run: Run) -> Any:
        value = operand(run).get(property)
        run.spent += 1
        if value is None:
            raise no_such_key(name)
        return value

    return field


def key_of_map(operand: Code, key: str) -> Code:
    def value_of_key(run: Run) -> Any:
        value = operand(run).get(key, ABSENT)
        run.spent += 1
        if value is ABSENT:
            raise no_such_key(key)
        return value

    return value_of_key


def field_of_anything(operand: Code, name: str) -> Code:
    def field(run: Run) -> Any:
        value = found_field(operand(run), name)
        run.spent += 1
        if value is ABSENT:
            raise no_such_key(name)
        return value

    return field


def found_field(value: Any, name: str) -> Any:
    """A selection from a value of any type; from an optional the result is optional."""
    if type(value) is dict:
        return value.get(name, ABSENT)
    if type(value) is OptionalValue:
        return NONE if value is NONE else optional(found_field(value.value, name))
    return ABSENT


def optional(found: Any) -> OptionalValue:
    return NONE if found is ABSENT else OptionalValue(found)


# --- presence -------------------------------------------------------------------------------------


def has_fields_of_variable(slot: int, path: tuple[tuple[str, str], ...], last: str) -> Code:
    cost = 1 + len(path)

    def has(run: Run) -> bool:
        run.spent += cost
        value = run.slots[slot] or NOTHING
        for property, name in path:
            value = value.get(property)
            if value is None:
                raise no_such_key(name)
        return value.get(last) is not None

    return has


def has_field_of_object(operand: Code, property: str) -> Code:
    return lambda run: operand(run).get(property) is not None


def has_field_of_anything(operand: Code, name: str) -> Code:
    def has(run: Run) -> bool:
        value = operand(run)
        if type(value) is OptionalValue:
            return value is not NONE and found_field(value.value, name) is not ABSENT
        return found_field(value, name) is not ABSENT

    return has


# --- optional parts -------------------------------------------------------------------------------


def optional_field(operand: Code, name: str, of_object: bool, adapter: Adapter | None) -> Code:
    """`operand.?name`; a null property of an object counts as missing."""

    def find(run: Run) -> OptionalValue:
        value = operand(run)
        run.spent += 1
        if type(value) is OptionalValue:
            if value is NONE:
                return NONE
            value = value.value
        found = found_field(value, name)
        if found is ABSENT or (found is None and of_object):
            return NONE
        if type(found) is OptionalValue:
            return found
        return OptionalValue(found if adapter is None or found is None else adapter(run, found))

    return find


def optional_index(operand: Code, key: Code) -> Code:
    def find(run: Run) -> OptionalValue:
        value = operand(run)
        wanted = key(run)
        run.spent += 1
        if type(value) is OptionalValue:
            if value is NONE:
                return NONE
            value = value.value
        return optional(_found_at(value, wanted))

    return find


def _found_at(value: Any, key: Any) -> Any:
    if type(value) is dict:
        return value[key] if has_key(value, key) else ABSENT
    if type(value) in LISTS:
        if type(key) not in NUMBERS:
            return index_list(value, key)
        return value[int(key)] if 0 <= key < len(value) and key % 1 == 0 else ABSENT
    raise no_such_overload()


# --- indices --------------------------------------------------------------------------------------


def index_of(operand: Code, key: Code, cost: int) -> Code:
    """`operand[key]`; the cost is that of the index itself."""

    def element(run: Run) -> Any:
        value = operand(run)
        wanted = key(run)
        run.spent += cost
        if type(value) is dict and type(wanted) is str:
            found = value.get(wanted, ABSENT)
            if found is ABSENT:
                raise no_such_key(wanted)
            return found
        if type(value) is list and type(wanted) is int:
            if not 0 <= wanted < len(value):
                raise EvaluationError(f"index out of bounds: {wanted}")
            return value[wanted]
        if type(value) is OptionalValue:
            return NONE if value is NONE else optional(_found_at(value.value, wanted))
        return index(value, wanted)

    return element
