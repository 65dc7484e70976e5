"""Small reusable integers for names, for use as ids in an index."""

from __future__ import annotations


class Numbers:
    """Numbers of forgotten names are reused."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._free: list[int] = []

    def name(self, number: int) -> str:
        return self._names[number]

    def of(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._free.pop() if self._free else len(self._names)
            self._numbers[name] = number
            if number == len(self._names):
                self._names.append(name)
            else:
                self._names[number] = name
        return number

    def forget(self, name: str) -> int:
        number = self._numbers.pop(name)
        self._free.append(number)
        return number
