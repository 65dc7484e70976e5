"""Values that have small numbers, so that sets of them are small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from farflung.controllers.edge_scheduler.values import Key, Location, Placement, Target

T = TypeVar("T", Location, Target, Placement)


class Numbered(Generic[T]):
    """Values by key and by number.  Numbers are small, and used again."""

    __slots__ = ("_free", "_number", "_values")

    def __init__(self) -> None:
        self._values: list[T | None] = []
        self._number: dict[Key, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._number)

    def __getitem__(self, number: int) -> T:
        value = self._values[number]
        assert value is not None
        return value

    def __iter__(self) -> Iterator[int]:
        return iter(self._number.values())

    def number(self, key: Key) -> int | None:
        return self._number.get(key)

    def put(self, value: T) -> int:
        number = self._number.get(value.key)
        if number is None:
            number = self._free.pop() if self._free else len(self._values)
            self._number[value.key] = number
            if number == len(self._values):
                self._values.append(None)
        self._values[number] = value
        return number

    def pop(self, key: Key) -> tuple[int, T] | None:
        number = self._number.pop(key, None)
        if number is None:
            return None
        value = self[number]
        self._values[number] = None
        self._free.append(number)
        return number, value
