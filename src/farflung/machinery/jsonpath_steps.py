"""The steps of paths that say where in a document something is put.

path     = "$" { selector }
selector = "." name | "." index | ".*" | "[" list "]" | "[" range "]" | "[*]" | ".." following
list     = string { "," string } | index { "," index }      strings in ' or ", with JavaScript's escapes
range    = [index] ":" [index] [":" [index]]                from the first on, before the second, in such steps
following = name | index | "*" | selector                   any but another ".."
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

LONGEST: Final = 8192  #: characters of a path
MOST_STEPS: Final = 100  #: of one path
MOST_CHOICES: Final = 100  #: of one list


class PathError(ValueError):
    """A text that is no path, or one that asks for too much."""


@dataclass(frozen=True, slots=True)
class Members:
    """Members of a map; missing ones can be added."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Indexes:
    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Range:
    start: int
    end: int | None  #: not included
    step: int


@dataclass(frozen=True, slots=True)
class Children:
    """Everything that is directly in a map or a list."""


@dataclass(frozen=True, slots=True)
class Descent:
    """The value itself, and everything in it."""


Step = Members | Indexes | Range | Children | Descent


# --- parsing --------------------------------------------------------------------------------------

_NAME: Final = re.compile(r"[\w$]+")
_DIGITS: Final = re.compile(r"[0-9]+")
_SPACE: Final = re.compile(r"[ \t]*")
_ESCAPE: Final = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([^ux\n])|)", re.DOTALL)
_QUOTED: Final = {quote: re.compile(rf"{quote}((?:[^{quote}\\\n]|\\.)*){quote}") for quote in "'\""}
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_LONGEST_INDEX: Final = 18  #: digits


def steps_of(text: str) -> tuple[Step, ...]:
    """Raises PathError, which says where the text ceases to be a path, and why."""
    return tuple(_Parser(text).steps())


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def steps(self) -> list[Step]:
        if len(self._text) > LONGEST:
            raise PathError(f"it has more than {LONGEST} characters")
        if not self._takes("$"):
            raise self._wrong("a path begins with $")
        steps: list[Step] = []
        while self._at < len(self._text):
            steps += self._selector()
            if len(steps) > MOST_STEPS:
                raise PathError(f"it has more than {MOST_STEPS} steps")
        return steps

    def _selector(self) -> list[Step]:
        if not self._takes(".."):
            return [self._child()]
        if self._text.startswith("..", self._at):
            raise self._wrong("one .. cannot follow another")
        following = self._text[self._at : self._at + 1]
        return [Descent(), self._child() if following in (".", "[") else self._named()]

    def _child(self) -> Step:
        if self._takes("."):
            return self._named()
        if self._takes("["):
            return self._bracketed()
        raise self._wrong(
            "expected . or [ here; names with other characters than letters, digits, _ and $ are written ['like-this']"
        )

    def _named(self) -> Step:
        if self._takes("*"):
            return Children()
        found = _NAME.match(self._text, self._at)
        if found is None:
            raise self._wrong("expected a name, a number or * here")
        if _DIGITS.match(found[0]):
            if not _DIGITS.fullmatch(found[0]):
                raise self._wrong("a name cannot begin with a digit, unless it is written ['like-this']")
            return Indexes((self._index(),))
        self._at = found.end()
        return Members((found[0],))

    # --- brackets ---------------------------------------------------------------------------------

    def _bracketed(self) -> Step:
        self._space()
        if self._takes("*"):
            step: Step = Children()
        elif self._text[self._at : self._at + 1] in ("'", '"'):
            step = Members(tuple(self._listed(self._string)))
        else:
            step = self._numbers()
        self._space()
        if not self._takes("]"):
            raise self._wrong("expected ] here")
        return step

    def _listed(self, one: Callable[[], T]) -> dict[T, None]:
        """Each once."""
        found: dict[T, None] = {}
        while True:
            self._space()
            found[one()] = None
            self._space()
            if not self._takes(","):
                return found
            if len(found) >= MOST_CHOICES:
                raise PathError(f"a list has more than {MOST_CHOICES} entries")

    def _numbers(self) -> Step:
        start = self._at
        first = self._index() if _DIGITS.match(self._text, self._at) else None
        self._space()
        if self._takes(":"):
            return self._range(first or 0)
        self._at = start
        return Indexes(tuple(self._listed(self._index)))

    def _range(self, start: int) -> Step:
        """A range of one is an index."""
        end, step = self._optional(), None
        if self._takes(":"):
            step_at = self._at
            step = self._optional()
            if step == 0:
                self._at = step_at
                raise self._wrong("the step of a range cannot be 0")
        if end == start + 1:
            return Indexes((start,))
        return Range(start, end, 1 if step is None else step)

    def _optional(self) -> int | None:
        self._space()
        number = self._index() if _DIGITS.match(self._text, self._at) else None
        self._space()
        return number

    def _index(self) -> int:
        found = _DIGITS.match(self._text, self._at)
        if found is None:
            raise self._wrong("expected a string, a number that is not negative, : or * here")
        if len(found[0]) > _LONGEST_INDEX:
            raise self._wrong("no list is that long")
        self._at = found.end()
        return int(found[0])

    def _string(self) -> str:
        quote = self._text[self._at : self._at + 1]
        found = _QUOTED[quote].match(self._text, self._at) if quote in _QUOTED else None
        if found is None:
            raise self._wrong("this string does not end" if quote in _QUOTED else "expected a string here")
        try:
            text = _ESCAPE.sub(_unescaped, found[1]).encode("utf-16", "surrogatepass").decode("utf-16")
        except ValueError:
            raise self._wrong("this string has an escape that stands for no character") from None
        self._at = found.end()
        return text

    # --- characters -------------------------------------------------------------------------------

    def _takes(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _wrong(self, why: str) -> PathError:
        where = "at its end" if self._at >= len(self._text) else f"at character {self._at + 1}"
        return PathError(f"{where}: {why}")


def _unescaped(found: re.Match[str]) -> str:
    point, four, two, letter = found.groups()
    if letter is not None:
        return _LETTERS.get(letter, letter)
    digits = point or four or two
    if digits is None:
        raise ValueError("an escape that is none")
    return chr(int(digits, 16))
