"""What generated functions do with values: fields, keys, indices, and their presence.

Objects are dicts by property name, and a null property counts as absent.
"""

from __future__ import annotations

from typing import Any, Final

from farflung.machinery.cel.adapt import Adapter
from farflung.machinery.cel.language.budget import MAX_WORK, Meter
from farflung.machinery.cel.language.equality import has_key
from farflung.machinery.cel.language.values import (
    LISTS,
    NONE,
    NUMBERS,
    EvaluationError,
    OptionalValue,
    UInt,
    no_such_key,
    no_such_overload,
    shown_key,
)
from farflung.machinery.cel.library.operators import index, index_list
from farflung.machinery.turns import TurnAllowance


class Run(Meter):
    """One evaluation: the values of the variables, and its cost so far."""

    __slots__ = ("_forgiven", "_full_limit", "_worked_before", "slots")

    def __init__(self, slots: list[Any], limit: int, worked: int = 0, most_work: int = MAX_WORK) -> None:
        super().__init__(limit, worked, most_work)
        self.slots = slots
        self._worked_before = worked
        self._full_limit = limit
        self._forgiven = 0

    def narrow(self, allowance: TurnAllowance) -> bool:
        """Limit the evaluation to the allowance of its turn.  Returns whether it may take less than without."""
        self.limit = min(self._full_limit, max(allowance.cost, 0))
        most_work = min(self.most_work, self.worked + max(allowance.work, 0))
        narrowed = self.limit < self._full_limit or most_work < self.most_work
        self.most_work = most_work
        return narrowed

    def charge(self, allowance: TurnAllowance) -> None:
        """Take what the evaluation took from the allowance of its turn."""
        allowance.cost -= self.spent - self._forgiven
        allowance.work -= self.worked - self._worked_before

    def forgive(self, cost: int) -> None:
        self._forgiven += cost
        self.limit = min(self._full_limit, self.limit + cost)


ABSENT: Final = object()
NOTHING: Final[dict[str, Any]] = {}  #: the fields of null
KEYS: Final = frozenset({str, int, UInt, bool})  #: the types of keys in map literals


def found_field(value: Any, name: str) -> Any:
    """A selection from a value of any type; from an optional the result is optional."""
    if type(value) is dict:
        return value.get(name, ABSENT)
    if type(value) is OptionalValue:
        return NONE if value is NONE else optional(found_field(value.value, name))
    return ABSENT


def optional(found: Any) -> OptionalValue:
    return NONE if found is ABSENT else OptionalValue(found)


def has_field(value: Any, name: str) -> bool:
    if type(value) is OptionalValue:
        return value is not NONE and found_field(value.value, name) is not ABSENT
    return found_field(value, name) is not ABSENT


def optional_field(meter: Meter, value: Any, name: str, of_object: bool, adapter: Adapter | None) -> OptionalValue:
    """`value.?name`; a null property of an object counts as missing."""
    if type(value) is OptionalValue:
        if value is NONE:
            return NONE
        value = value.value
    found = found_field(value, name)
    if found is ABSENT or (found is None and of_object):
        return NONE
    if type(found) is OptionalValue:
        return found
    return OptionalValue(found if adapter is None or found is None else adapter(meter, found))


def optional_at(value: Any, key: Any) -> OptionalValue:
    """`value[?key]`."""
    if type(value) is OptionalValue:
        if value is NONE:
            return NONE
        value = value.value
    return optional(_found_at(value, key))


def _found_at(value: Any, key: Any) -> Any:
    if type(value) is dict:
        return value[key] if has_key(value, key) else ABSENT
    if type(value) in LISTS:
        if type(key) not in NUMBERS:
            return index_list(value, key)
        return value[int(key)] if 0 <= key < len(value) and key % 1 == 0 else ABSENT
    raise no_such_overload()


def indexed(value: Any, key: Any) -> Any:
    """`value[key]`."""
    if type(value) is dict and type(key) is str:
        found = value.get(key, ABSENT)
        if found is ABSENT:
            raise no_such_key(key)
        return found
    if type(value) is list and type(key) is int:
        if not 0 <= key < len(value):
            raise EvaluationError(f"index out of bounds: {key}")
        return value[key]
    if type(value) is OptionalValue:
        return NONE if value is NONE else optional(_found_at(value.value, key))
    return index(value, key)


def insert(built: dict[Any, Any], entries: dict[Any, Any]) -> None:
    if type(entries) is not dict:
        raise no_such_overload()
    for key, value in entries.items():
        if has_key(built, key):
            raise EvaluationError(f"insert failed: key {shown_key(key)} already exists")
        built[key] = value
