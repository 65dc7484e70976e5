"""Decisions from bytes: a fuzzer that changes the bytes changes the value that is built of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")

NUMBERS = (0, 1, -1, 2, 80, 2**31, 2**63 - 1, -(2**63), 2**64 - 1, 0.5, 1e300)


class Choices:
    """Reads a byte per decision.  After the last byte every decision is the first choice."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def below(self, count: int) -> int:
        value = self._data[self._at] if self._at < len(self._data) else 0
        self._at += 1
        return value % count

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def text(self, most: int = 16) -> str:
        size = self.below(most + 1)
        found = self._data[self._at : self._at + size]
        self._at += size
        return found.decode("utf-8", "replace")

    def rest(self) -> bytes:
        return self._data[self._at :]

    def json(self, names: Sequence[str], texts: Sequence[str] = (), depth: int = 5) -> Any:
        """Any JSON value.  Its keys are from `names`, and most of its texts from `texts`."""
        match self.below(9 if depth else 6):
            case 0 if texts:
                return self.pick(texts)
            case 1:
                return self.text()
            case 2:
                return self.pick(NUMBERS)
            case 3:
                return self.pick((True, False))
            case 4:
                return None
            case 5:
                return self.below(256) - 128
            case 6:
                return [self.json(names, texts, depth - 1) for _ in range(self.below(5))]
            case 7 | 8:
                return {self.pick(names): self.json(names, texts, depth - 1) for _ in range(self.below(6))}
            case _:
                return ""
