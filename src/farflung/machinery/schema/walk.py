"""The walk that makes a new object from another: it converts each value by the type of its field.

Go types (`conform.py`) and structural schemas (`structural/structural.py`) are compiled to the same objects, lists and
maps.  They differ in the fields that a new object gets, in the values of unset fields, and in the result for a value of
another type: Go refuses it, and a structural schema leaves it to validation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any, Final, NamedTuple

from farflung.machinery.errors import Obj, go_quote

#: the path above and a step: a field, a key of a map or an index
Path = tuple["Path", "str | int"] | None
Problems = list[tuple[Path, str]]  #: unknown fields: the path of an object, and a name in it
Convert = Callable[[Any, Path, Problems], Any]  #: the conversion of a value that is not null
Make = Callable[[], Any]  #: makes the value of an unset field

MAX_PROBLEMS: Final = 100  #: that are described …
MAX_PROBLEM_TEXT: Final = 256 * 1024  #: … until they have so many characters together
MAX_PLANS: Final = 512  #: of one type …
LARGEST_PLAN: Final = 64  #: … with so many fields: clients choose which fields they set, and must not fill the memory


class MapKey(str):
    """A step into a map.  Go's messages omit it, unlike a field."""

    __slots__ = ()


class Mismatch(Exception):
    """A value that does not fit the Go type of its field."""

    def __init__(self, what: str, go: str, path: Path) -> None:
        self.what = what
        self.go = go
        self.path = path
        self.struct = ""  #: the struct that has the field

    def __str__(self) -> str:
        fields = [step for step in steps_of(self.path) if type(step) is str]
        where = f"struct field {self.struct}.{'.'.join(fields)}" if fields else "value"
        return f"json: cannot unmarshal {self.what} into Go {where} of type {self.go}"


class FieldWalk(NamedTuple):
    """A field of a new object."""

    name: str
    exact: type | None  #: values of this Python type need no conversion
    keep: bool  #: empty values are written
    unset: Make | None  #: None: an unset field is omitted
    convert: Convert


class ObjectWalk:
    """An object with named fields.  Objects have few different sets of names; each set has a plan."""

    __slots__ = ("_misfit", "_name", "_plans")

    def __init__(self, misfit: Convert, name: str = "") -> None:
        """`misfit` converts values that are no objects; `name` is that of a Go struct."""
        self._misfit = misfit
        self._name = name
        self._plans: dict[tuple[str, ...], Sequence[FieldWalk]] = {}

    def known(self) -> Set[str]:
        """The declared names."""
        raise NotImplementedError

    def closed(self) -> bool:
        """Whether other fields are dropped, and reported."""
        raise NotImplementedError

    def fields(self, names: tuple[str, ...]) -> Sequence[FieldWalk]:
        """The fields of the new object for one with these names."""
        raise NotImplementedError

    def convert(self, value: Any, path: Path, problems: Problems) -> Any:
        if type(value) is not dict:
            return self._misfit(value, path, problems)
        names = tuple(value)
        plan = self._plans.get(names)
        if plan is None:
            plan = self._plan(names, path, problems)
        converted: Obj = {}
        try:
            for name, exact, keep, unset, convert in plan:
                item = value.get(name)
                if item is not None and type(item) is not exact:
                    item = convert(item, (path, name), problems)
                if item or (keep and item is not None):
                    converted[name] = item
                elif unset is not None:
                    converted[name] = unset()
        except Mismatch as mismatch:
            mismatch.struct = mismatch.struct or self._name
            raise
        return converted

    def _plan(self, names: tuple[str, ...], path: Path, problems: Problems) -> Sequence[FieldWalk]:
        """Only plans of declared names are kept: other names can be any text."""
        plan = self.fields(names)
        known = self.known()
        unknown = [name for name in names if name not in known]
        if unknown and self.closed():
            problems += [(path, name) for name in unknown]
        elif not unknown and len(self._plans) < MAX_PLANS and len(names) <= LARGEST_PLAN:
            self._plans[names] = plan
        return plan


class Items(NamedTuple):
    """The items of a list, or the values of a map."""

    exact: type | None
    convert: Convert
    unset: Make | None  #: replaces nulls; None: a list keeps them, and a map drops their keys


def list_walk(items: Items, misfit: Convert) -> Convert:
    exact, convert_item, unset = {items.exact}, items.convert, items.unset

    def convert(value: Any, path: Path, problems: Problems) -> Any:
        if type(value) is not list:
            return misfit(value, path, problems)
        if set(map(type, value)) <= exact:
            return value
        return [
            convert_item(one, (path, index), problems) if one is not None else unset() if unset is not None else None
            for index, one in enumerate(value)
        ]

    return convert


def map_walk(values: Items, misfit: Convert, *, sort: bool) -> Convert:
    exact, convert_value, unset = {values.exact}, values.convert, values.unset

    def convert(value: Any, path: Path, problems: Problems) -> Any:
        if type(value) is not dict:
            return misfit(value, path, problems)
        if sort and len(value) > 1:
            keys = sorted(value)
            if keys != list(value):
                value = {key: value[key] for key in keys}
        if set(map(type, value.values())) <= exact:
            return value
        converted: Obj = {}
        for key, one in value.items():
            if one is not None:
                converted[key] = convert_value(one, (path, MapKey(key)), problems)
            elif unset is not None:
                converted[key] = unset()
        return converted

    return convert


def unchanged(value: Any, path: Path, problems: Problems) -> Any:
    return value


def unknown_fields(problems: Sequence[tuple[Path, str]]) -> list[str]:
    """`unknown field "spec.x"`: the first ones, each once."""
    found: dict[str, None] = {}
    described = 0
    for path, name in problems:
        problem = f"unknown field {go_quote(path_text((*steps_of(path), name)))}"
        found[problem] = None
        described += len(problem)
        if len(found) == MAX_PROBLEMS or described > MAX_PROBLEM_TEXT:
            break
    return list(found)


def steps_of(path: Path) -> list[str | int]:
    steps: list[str | int] = []
    while path is not None:
        path, step = path
        steps.append(step)
    steps.reverse()
    return steps


def path_text(steps: Sequence[str | int]) -> str:
    """`spec.containers[0].image`"""
    return "".join(f"[{step}]" if type(step) is int else f".{step}" for step in steps).removeprefix(".")
