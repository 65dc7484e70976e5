"""Fields of objects as they came: in any of three spellings, and with any value.

`flavorID`, `flavor_id` and `flavorid` are one field.  What is null is not there.  What makes no sense is noted with its
path, and read as if it were not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import isfinite
from typing import Any, Final

ALIASES: Final = {"availablityzone": "availabilityzone"}
LONGEST_NAME: Final = 64  #: of a field that may be one of ours
MOST_ERRORS: Final = 100
MOST_DIGITS: Final = 40  #: of a number that is a text


@lru_cache(1024)
def plain(name: str) -> str:
    """A field's name without its spelling."""
    bare = name.replace("_", "").lower()
    return ALIASES.get(bare, bare)


class Problems:
    """What is wrong, in the order in which it was met."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def note(self, path: str, why: str) -> None:
        if len(self.found) < MOST_ERRORS:
            self.found.append(f"{path}: {why}")


class Part:
    """One object within an object."""

    __slots__ = ("_also", "_fields", "_problems", "path")

    def __init__(self, value: Any, path: str, problems: Problems) -> None:
        self.path = path
        self._problems = problems
        self._fields: dict[str, tuple[str, Any]] = {}  #: plain name → as it is spelled, and what it is
        self._also: dict[str, list[tuple[str, Any]]] = {}  #: in other spellings
        if value is None:
            return
        if type(value) is not dict:
            problems.note(path, "must be an object")
            return
        for name, one in value.items():
            if one is not None:
                self._add(plain(name) if len(name) <= LONGEST_NAME else name, name, one)

    def _add(self, known: str, name: str, value: Any) -> None:
        if known in self._fields:
            first, *others = sorted([self._fields[known], *self._also.get(known, ()), (name, value)], key=_spelled)
            self._fields[known], self._also[known] = first, others
        else:
            self._fields[known] = (name, value)

    def has(self, name: str) -> bool:
        return name in self._fields

    def note(self, name: str, why: str) -> None:
        self._problems.note(self._at(name), why)

    def _at(self, name: str) -> str:
        return f"{self.path}.{self._fields[name][0] if name in self._fields else name}"

    def _value(self, name: str) -> Any:
        found = self._fields.get(name)
        return None if found is None else found[1]

    # --- values -----------------------------------------------------------------------------------

    def text(self, name: str) -> str:
        value = self._value(name)
        if value is None or isinstance(value, str):
            return value or ""
        self.note(name, "must be a text")
        return ""

    def flag(self, name: str) -> bool:
        value = self._value(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.note(name, "must be true or false")
        return False

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        value = self._value(name)
        if value is None:
            return default
        if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
            self.note(name, "must be a whole number")
            return default
        if not least <= value <= most:
            self.note(name, f"must be from {least} to {most}")
            return default
        return int(value)

    def number(self, name: str, least: float, most: float) -> float | None:
        """A number, or a text that is one."""
        value = self._value(name)
        if value is None:
            return None
        if isinstance(value, str):
            value = _number_in(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.note(name, "must be a number")
            return None
        if not least <= value <= most:  # which nan is not, either
            self.note(name, f"must be from {least:g} to {most:g}")
            return None
        return float(value)

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        """The first of what is allowed, if it is not there."""
        value = self.text(name) or allowed[0]
        if value in allowed:
            return value
        self.note(name, f"must be one of {', '.join(filter(None, allowed))}")
        return allowed[0]

    # --- what is within -----------------------------------------------------------------------------

    def part(self, name: str) -> Part:
        found = self._fields.get(name)
        if found is None:
            return Part(None, f"{self.path}.{name}", self._problems)
        return Part(found[1], f"{self.path}.{found[0]}", self._problems)

    def parts(self, name: str, most: int) -> Iterator[Part]:
        for path, value in self._entries(name, most):
            yield Part({} if value is None else value, path, self._problems)

    def texts(self, name: str, most: int) -> Iterator[str]:
        for path, value in self._entries(name, most):
            if isinstance(value, str):
                yield value
            else:
                self._problems.note(path, "must be a text")

    def texts_by_name(self, name: str, most: int) -> dict[str, str]:
        """What may have any names, which are not spelled in several ways."""
        found = {}
        for key, value in self._mapped(name, most):
            if isinstance(value, str):
                found[key] = value
            else:
                self._problems.note(f"{self._at(name)}[{key[:64]}]", "must be a text")
        return found

    def wholes_by_name(self, name: str, most: int, largest: int) -> dict[str, int]:
        found = {}
        for key, value in self._mapped(name, most):
            if type(value) is int and 0 <= value <= largest:
                found[key] = value
            else:
                self._problems.note(f"{self._at(name)}[{key[:64]}]", f"must be a whole number from 0 to {largest}")
        return found

    def _mapped(self, name: str, most: int) -> list[tuple[str, Any]]:
        value = self._value(name)
        if value is None:
            return []
        if not isinstance(value, dict):
            self.note(name, "must be an object")
            return []
        if len(value) > most:
            self.note(name, f"must have at most {most} fields")
            return []
        return sorted((key, one) for key, one in value.items() if one is not None)

    def _entries(self, name: str, most: int) -> Iterator[tuple[str, Any]]:
        """Of all fields that are this one in some spelling."""
        if name not in self._fields:
            return
        for spelled, value in (self._fields[name], *self._also.get(name, ())):
            path = f"{self.path}.{spelled}"
            if not isinstance(value, list):
                self._problems.note(path, "must be a list")
            elif len(value) > most:
                self._problems.note(path, f"must have at most {most} entries")
            else:
                for at, one in enumerate(value):
                    yield f"{path}[{at}]", one


def _spelled(field: tuple[str, Any]) -> str:
    return field[0]


def _number_in(text: str) -> float | None:
    if len(text) > MOST_DIGITS:
        return None
    try:
        found = float(text)
    except ValueError:
        return None
    return found if isfinite(found) else None
