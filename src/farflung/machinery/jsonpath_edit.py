"""Paths that say where in a document something is put.

    path = parse("$.spec.template.spec.containers[*].image")
    after, places = path.assigned(document, "nginx:1.27", Allowance())

What a path leads to is what it leads to in the document as it is: of two places of which one is in the other the outer
one counts, and what is put there is not searched.

A path of names and single indexes (or lists of them) is definite: names that are missing at its end are added.  All
others change only what is there.  Indexes count from 0, and beyond the end there is nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from farflung.machinery.jsonpath_steps import Children, Descent, Indexes, Members, PathError, Range, Step, steps_of

MOST_WORK: Final = 200_000  #: values looked at for one document
MOST_BYTES: Final = 3 << 20  #: that are added to one document; no server takes more
DEEPEST: Final = 254  #: levels of a document


class Allowance:
    """What may still be done to one document, so that no path takes long and none makes it huge."""

    __slots__ = ("_bytes", "_work")

    def __init__(self, work: int = MOST_WORK, size: int = MOST_BYTES) -> None:
        self._work = work
        self._bytes = size

    def spend(self, values: int) -> None:
        self._work -= values
        if self._work < 0:
            raise PathError("it takes too long to find all of it")

    def grow(self, size: int) -> None:
        self._bytes -= size
        if self._bytes < 0:
            raise PathError(f"the object would become larger than {MOST_BYTES >> 20} MiB")


class Assigned(NamedTuple):
    document: Any
    places: int  #: how many were written to


class AssignmentPath:
    """A path that was understood."""

    __slots__ = ("_adds", "_descents", "steps", "text")

    def __init__(self, text: str, steps: tuple[Step, ...]) -> None:
        self.text = text
        self.steps = steps
        self._adds = _adding(steps)
        self._descents = sum(1 << at for at, step in enumerate(steps) if isinstance(step, Descent))

    @property
    def is_root(self) -> bool:
        """Whether it stands for the document as a whole."""
        return not self.steps

    def assigned(self, document: Any, value: Any, allowance: Allowance, size: int = 0) -> Assigned:
        """The document with this value in every place that the path leads to.  What is not changed is shared with the
        document, and the value with all places: neither may be changed afterwards.  `size`: of the value, in bytes.
        Raises PathError."""
        editing = _Editing(self.steps, self._adds, self._descents, value, allowance, size)
        return Assigned(editing.edited(document, 1, 0), editing.places)


def parse(text: str) -> AssignmentPath:
    """Raises PathError, which says where the text ceases to be a path, and why."""
    return AssignmentPath(text, steps_of(text))


# --- assigning ------------------------------------------------------------------------------------


class _Editing:
    """One walk through a document.  `states`: which steps are to be taken at a value, bit i for the step i; the bit
    after the last step is for a place that was found.  As a set of states is followed and not each way to a value, the
    walk takes no longer than the document is large, however many ways there are."""

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
        states |= (states & self._descents) << 1  # the step after a `..` is taken where that begins, too
        if states & self._found:
            self._put(1, level)
            return self._value
        self._allowance.spend(states.bit_count())
        if type(node) is dict:
            return self._map(node, states, level)
        if type(node) is list:
            return self._list(node, states, level)
        return self._absent(node, states, level)

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

    def _absent(self, node: Any, states: int, level: int) -> Any:
        """null is a map that is not there."""
        if node is None:
            for at in _bits(states):
                if self._adds[at]:
                    return self._made(at, level)
        return node

    def _made(self, at: int, level: int) -> Any:
        """What the steps from this one on, which are all names, make out of nothing."""
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
    """For each step whether what is missing there is added: before it there is nothing but names and indexes, and from
    it on nothing but names."""
    definite = next((at for at, step in enumerate(steps) if not isinstance(step, Members | Indexes)), len(steps))
    others = [at for at, step in enumerate(steps) if not isinstance(step, Members)]
    names_from = others[-1] + 1 if others else 0
    return tuple(names_from <= at <= definite for at in range(len(steps)))


def depth(value: Any) -> int:
    """How many maps and lists are in one another."""
    levels, inside = 0, [value]
    while inside := [one for one in inside if type(one) is dict or type(one) is list]:
        levels += 1
        inside = [item for one in inside for item in (one.values() if type(one) is dict else one)]
    return levels
