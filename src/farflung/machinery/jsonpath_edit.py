"""JSONPath for assignments: paths that select where in a document to write a value.

    path = parse("$.spec.template.spec.containers[*].image")
    after, places = path.assigned(document, "nginx:1.27", Allowance())

A path selects values of the document before the assignment.  If a selected value contains another one,
only the outer one is replaced, and the assigned value is not searched.

A path of names and single indexes (or lists of them) is definite: missing names at its end are added.  Other paths
change only existing values.  Indexes count from 0; those beyond the end select nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from farflung.machinery.jsonpath import PathError

T = TypeVar("T")

MAX_PATH: Final = 8192  #: characters of a path
MAX_STEPS: Final = 100  #: of one path
MAX_CHOICES: Final = 100  #: of one list


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
    """The values of a map or the items of a list."""


@dataclass(frozen=True, slots=True)
class Descent:
    """The value and all values in it."""


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
    """Raises PathError with the position and the reason."""
    return tuple(_Parser(text).steps())


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def steps(self) -> list[Step]:
        if len(self._text) > MAX_PATH:
            raise PathError(f"it has more than {MAX_PATH} characters")
        if not self._takes("$"):
            raise self._wrong("a path begins with $")
        steps: list[Step] = []
        while self._at < len(self._text):
            steps += self._selector()
            if len(steps) > MAX_STEPS:
                raise PathError(f"it has more than {MAX_STEPS} steps")
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
            if len(found) >= MAX_CHOICES:
                raise PathError(f"a list has more than {MAX_CHOICES} entries")

    def _numbers(self) -> Step:
        start = self._at
        first = self._index() if _DIGITS.match(self._text, self._at) else None
        self._space()
        if self._takes(":"):
            return self._range(first or 0)
        self._at = start
        return Indexes(tuple(self._listed(self._index)))

    def _range(self, start: int) -> Step:
        """A range of one item is an index."""
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


MAX_WORK: Final = 200_000  #: values visited in one document
MAX_BYTES: Final = 3 << 20  #: that are added to one document; servers refuse larger ones
DEEPEST: Final = 254  #: levels of a document


class Allowance:
    """The remaining work and size for one document, so that no path takes long or makes it huge."""

    __slots__ = ("_bytes", "_work")

    def __init__(self, work: int = MAX_WORK, size: int = MAX_BYTES) -> None:
        self._work = work
        self._bytes = size

    def spend(self, values: int) -> None:
        self._work -= values
        if self._work < 0:
            raise PathError("it takes too long to find all of it")

    def grow(self, size: int) -> None:
        self._bytes -= size
        if self._bytes < 0:
            raise PathError(f"the object would become larger than {MAX_BYTES >> 20} MiB")


class Assigned(NamedTuple):
    document: Any
    places: int  #: number of changed values


class AssignmentPath:
    """A parsed path."""

    __slots__ = ("_adds", "_descents", "steps", "text")

    def __init__(self, text: str, steps: tuple[Step, ...]) -> None:
        self.text = text
        self.steps = steps
        self._adds = _adding(steps)
        self._descents = sum(1 << at for at, step in enumerate(steps) if isinstance(step, Descent))

    @property
    def is_root(self) -> bool:
        """Whether it selects the whole document."""
        return not self.steps

    def assigned(self, document: Any, value: Any, allowance: Allowance, size: int = 0) -> Assigned:
        """The document with this value at every selected position.  The result shares its other parts with the
        document, and the value between all positions: neither may be changed afterwards.  `size`: of the value, in
        bytes.  Raises PathError."""
        editing = _Editing(self.steps, self._adds, self._descents, value, allowance, size)
        return Assigned(editing.edited(document, 1, 0), editing.places)


def parse(text: str) -> AssignmentPath:
    """Raises PathError with the position and the reason."""
    return AssignmentPath(text, steps_of(text))


# --- assigning ------------------------------------------------------------------------------------


class _Editing:
    """One walk through a document.  `states`: the next steps at a value, bit i for step i; the bit after the last step
    marks a selected value.  The walk follows a set of states and not each way to a value, so its time is proportional
    to the size of the document."""

    __slots__ = ("_adds", "_allowance", "_depth", "_descents", "_found", "_size", "_steps", "_value", "places")

    def __init__(
        self, steps: tuple[Step, ...], adds: Sequence[bool], descents: int, value: Any, allowance: Allowance, size: int
    ) -> None:
        self.places = 0
        self._steps = steps
        self._adds = adds
        self._descents = descents
        self._value = value
        self._allowance = allowance
        self._size = size
        self._depth = depth(value)
        self._found = 1 << len(steps)

    def edited(self, node: Any, states: int, level: int) -> Any:
        if level > DEEPEST:
            raise PathError(f"the object has more than {DEEPEST} levels")
        states |= (states & self._descents) << 1  # the step after a `..` also applies to the value at which it begins
        if states & self._found:
            self._put(1, level)
            return self._value
        self._allowance.spend(states.bit_count())
        if type(node) is dict:
            return self._map(node, states, level)
        if type(node) is list:
            return self._list(node, states, level)
        # null is a missing map
        if node is None:
            for at in _bits(states):
                if self._adds[at]:
                    return self._made(at, level)
        return node

    def _map(self, node: dict[str, Any], states: int, level: int) -> dict[str, Any]:
        everywhere, named, added = self._in_map(states)
        keys: Iterable[str] = node if everywhere else named
        if everywhere:
            self._allowance.spend(len(node))
        changed: dict[str, Any] = {}
        for key in keys:
            if key in node:
                before = node[key]
                after = self.edited(before, everywhere | named.get(key, 0), level + 1)
                if after is not before:
                    changed[key] = after
        for key in added:
            if key not in node:
                changed[key] = self._made(added[key], level + 1)
        if not changed:
            return node
        self._allowance.spend(len(node) >> 4)
        return {**node, **changed}

    def _in_map(self, states: int) -> tuple[int, dict[str, int], dict[str, int]]:
        """The states of all members, those that single ones have besides, and of those that can be added the step that
        follows."""
        everywhere, named, added = 0, dict[str, int](), dict[str, int]()
        for at in _bits(states):
            match self._steps[at]:
                case Children():
                    everywhere |= 1 << (at + 1)
                case Descent():
                    everywhere |= 1 << at
                case Members(names):
                    for name in names:
                        named[name] = named.get(name, 0) | 1 << (at + 1)
                    if self._adds[at]:
                        added = dict.fromkeys(names, at + 1)
        return everywhere, named, added

    def _list(self, node: list[Any], states: int, level: int) -> list[Any]:
        everywhere, indexed = self._in_list(states, len(node))
        indexes: Iterable[int] = range(len(node)) if everywhere else indexed
        self._allowance.spend(len(node) if everywhere else len(indexed))
        changed: list[Any] | None = None
        for index in indexes:
            before = node[index]
            after = self.edited(before, everywhere | indexed.get(index, 0), level + 1)
            if after is not before:
                if changed is None:
                    self._allowance.spend(len(node) >> 4)
                    changed = list(node)
                changed[index] = after
        return node if changed is None else changed

    def _in_list(self, states: int, length: int) -> tuple[int, dict[int, int]]:
        everywhere, indexed = 0, dict[int, int]()
        for at in _bits(states):
            indexes: Iterable[int] = ()
            match self._steps[at]:
                case Children():
                    everywhere |= 1 << (at + 1)
                case Descent():
                    everywhere |= 1 << at
                case Indexes(choices):
                    indexes = [index for index in choices if index < length]
                case Range(start, end, step):
                    indexes = range(start, length if end is None else min(end, length), step)
                    self._allowance.spend(len(indexes))
            for index in indexes:
                indexed[index] = indexed.get(index, 0) | 1 << (at + 1)
        return everywhere, indexed

    def _made(self, at: int, level: int) -> Any:
        """The new value for the steps from this one on, which are all names."""
        places = 1
        for step in self._steps[at:]:
            assert isinstance(step, Members)
            places *= len(step.names)
        self._put(places, level + len(self._steps) - at)
        made = self._value
        for step in reversed(self._steps[at:]):
            assert isinstance(step, Members)
            made = dict.fromkeys(step.names, made)
        return made

    def _put(self, places: int, level: int) -> None:
        if level + self._depth > DEEPEST:
            raise PathError(f"the object would have more than {DEEPEST} levels")
        self._allowance.spend(places)
        self._allowance.grow(places * (self._size + 1))
        self.places += places


def _bits(states: int) -> Iterator[int]:
    while states:
        lowest = states & -states
        yield lowest.bit_length() - 1
        states ^= lowest


def _adding(steps: tuple[Step, ...]) -> tuple[bool, ...]:
    """For each step whether missing values are added: all steps before it are names or indexes, and all from it on are
    names."""
    definite = next((at for at, step in enumerate(steps) if not isinstance(step, Members | Indexes)), len(steps))
    others = [at for at, step in enumerate(steps) if not isinstance(step, Members)]
    names_from = others[-1] + 1 if others else 0
    return tuple(names_from <= at <= definite for at in range(len(steps)))


def depth(value: Any) -> int:
    """The number of nested maps and lists."""
    levels, inside = 0, [value]
    while inside := [one for one in inside if type(one) is dict or type(one) is list]:
        levels += 1
        inside = [item for one in inside for item in (one.values() if type(one) is dict else one)]
    return levels
