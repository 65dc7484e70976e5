"""Ownership and server-side apply, done the slow way: objects are flat tables of paths, owners are plain sets of them.

A path is a tuple of elements as they go over the wire (`f:spec`, `k:{"name":"c"}`, `v:"x"`).  Every step follows
structured-merge-diff literally and recomputes everything; nothing is shared with the code under test, the description
of the types included.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Path = tuple[str, ...]
Paths = frozenset[Path]
Flat = dict[Path, Any]  #: leaves with their values, and CONTAINER for what has (or could have) something inside
Obj = dict[str, Any]

CONTAINER = object()
EMPTY: Paths = frozenset()


# --- types ----------------------------------------------------------------------------------------


class Leaf:
    """Scalars, and whatever is replaced as a whole."""


class SetOf:
    pass


@dataclass(frozen=True)
class Free:
    """Any JSON: objects are maps of it, the rest leaves."""


@dataclass(frozen=True)
class MapOf:
    values: Any


@dataclass(frozen=True)
class Struct:
    fields: dict[str, Any]


@dataclass(frozen=True)
class ListBy:
    keys: tuple[tuple[str, Any], ...]  #: names, and the values they have when left out
    items: Struct


LEAF, SET, FREE = Leaf(), SetOf(), Free()
METADATA = Struct({"name": LEAF, "labels": MapOf(LEAF), "annotations": MapOf(LEAF), "finalizers": SET})
STRIPPED: Paths = frozenset({("f:metadata",), ("f:metadata", "f:name")})  #: never shown as owned


def flat(value: Any, kind: Any, at: Path = ()) -> Flat:
    """Null is a leaf."""
    match kind:
        case Free():
            if isinstance(value, dict):
                return flat(value, MapOf(FREE), at)
        case Struct(fields) if value is not None:
            table: Flat = {at: CONTAINER}
            for name, inner in fields.items():
                if name in value:
                    table |= flat(value[name], inner, (*at, f"f:{name}"))
            return table
        case MapOf(values) if value is not None:
            table = {at: CONTAINER}
            for name, item in value.items():
                table |= flat(item, values, (*at, f"f:{name}"))
            return table
        case SetOf() if value is not None:
            return {at: CONTAINER, **{(*at, f"v:{wire(item)}"): item for item in value}}
        case ListBy(keys, items) if value is not None:
            table = {at: CONTAINER}
            for item in value:
                names = {name: item.get(name, default) for name, default in keys}
                table |= flat(item, items, (*at, f"k:{wire(names)}"))
            return table
    return {at: value}


def wire(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def kind_at(kind: Any, path: Path) -> Any:
    for element in path:
        match kind:
            case Struct(fields):
                kind = fields[element[2:]]
            case MapOf(values):
                kind = values
            case Free():
                kind = FREE
            case ListBy(_, items):
                kind = items
            case _:
                kind = LEAF
    return kind


def is_named(kind: Any, path: Path) -> bool:
    """Whether the path ends with the field of a struct."""
    return bool(path) and isinstance(kind_at(kind, path[:-1]), Struct)


def inside(table: Flat, path: Path) -> list[Path]:
    return [other for other in table if len(other) > len(path) and other[: len(path)] == path]


# --- sets of paths --------------------------------------------------------------------------------


def claimed(table: Flat, kind: Any) -> Paths:
    """What an applier owns: leaves, items, entries of maps, and empty maps."""
    found = set()
    for path, value in table.items():
        empty_map = not inside(table, path) and not isinstance(kind_at(kind, path), SetOf | ListBy)
        if value is not CONTAINER or empty_map or (path and not is_named(kind, path)):
            found.add(path)
    return frozenset(found - {()})


@dataclass
class Comparison:
    taken: Paths  #: added or given another value
    removed: Paths


def compared(old: Flat, new: Flat) -> Comparison:
    changed = {path for path in old.keys() & new.keys() if differs(path, old, new)}
    return Comparison(frozenset(new.keys() - old.keys() | changed), frozenset(old.keys() - new.keys()))


def differs(path: Path, old: Flat, new: Flat) -> bool:
    before, after = old[path], new[path]
    if before is CONTAINER and after is CONTAINER:
        return False
    if (before is CONTAINER and after is None) or (before is None and after is CONTAINER):
        return not inside(old, path) and not inside(new, path)
    return bool(before != after)


def with_named(paths: Paths, kind: Any) -> Paths:
    """Fields of structs count as members as soon as something in them does."""
    prefixes = {path[:length] for path in paths for length in range(1, len(path) + 1)}
    return paths | {path for path in prefixes if is_named(kind, path)}


def without(table: Flat, gone: Paths) -> Flat:
    """The object without these paths and all that is in them; what is emptied by this becomes null."""
    left = {
        path: value
        for path, value in table.items()
        if not any(path[:length] in gone for length in range(1, len(path) + 1))
    }
    for path in sorted(left, key=len, reverse=True):
        touched = any(len(one) > len(path) and one[: len(path)] == path for one in gone)
        if path and left[path] is CONTAINER and touched and not inside(left, path):
            left[path] = None
    return left


# --- owners ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Owner:
    manager: str
    operation: str

    def __str__(self) -> str:
        return json.dumps(self.manager) + ("" if self.operation == "Apply" else " using {version}")


class Conflict(Exception):
    def __init__(self, found: dict[Owner, Paths]) -> None:
        super().__init__()
        self.found = found


@dataclass
class Twin:
    """One object and its owners."""

    kind: Struct
    empty: Obj
    table: Flat | None = None
    owners: dict[Owner, Paths] = field(default_factory=dict)
    times: dict[Owner, str] = field(default_factory=dict)

    def update(self, obj: Obj, manager: str, now: str) -> None:
        """A create, update or patch that leads to this object."""
        before, after = self.table, flat(obj, self.kind)
        self.table = after
        if before is not None and not self.owners:
            return
        self._take(flat(self.empty, self.kind) if before is None else before, after, manager, now)

    def _take(self, before: Flat, after: Flat, manager: str, now: str) -> None:
        changes = compared(before, after)
        for owner in self.owners:
            self.owners[owner] -= changes.taken | changes.removed
        author = Owner(manager, "Update")
        taken = changes.taken - STRIPPED - {()}
        if taken:
            self.owners[author] = self.owners.get(author, EMPTY) | taken
            self.times[author] = now
        self._settle()

    def forget(self, obj: Obj) -> None:
        """An update that empties the list of owners."""
        self.table, self.owners, self.times = flat(obj, self.kind), {}, {}

    def apply(self, obj: Obj, manager: str, now: str, *, force: bool) -> None:
        """Conflict, and nothing has happened, if others own what would change."""
        saved = dict(self.owners), dict(self.times)
        try:
            self._apply(obj, manager, now, force)
        except Conflict:
            self.owners, self.times = saved
            raise

    def _apply(self, obj: Obj, manager: str, now: str, force: bool) -> None:
        applied, author = flat(obj, self.kind), Owner(manager, "Apply")
        if self.table is not None and not self.owners:
            self._take(flat(self.empty, self.kind), self.table, "before-first-apply", now)
        live = flat(self.empty, self.kind) if self.table is None else self.table
        merged = dict(applied) if self.table is None else self._merged(live, applied)
        last = self.owners.get(author, EMPTY)
        self.owners[author] = claimed(applied, self.kind)
        result = self._pruned(merged, last)
        changes = compared(live, result)
        others = {owner: paths for owner, paths in self.owners.items() if owner != author}
        conflicts = {owner: paths & changes.taken for owner, paths in others.items() if paths & changes.taken}
        if conflicts and not force:
            raise Conflict(conflicts)
        for owner, paths in others.items():
            self.owners[owner] = paths - changes.taken - changes.removed
        if self.table is None or without_nulls(result) != without_nulls(live):
            self.times[author] = now
        self.owners[author] -= STRIPPED
        self._settle()
        self.table = without_nulls(result)

    def _merged(self, live: Flat, applied: Flat) -> Flat:
        both = dict(live)
        for path, value in applied.items():
            if value is not CONTAINER:
                for other in inside(both, path):
                    del both[other]
            both[path] = value
        return both

    def _pruned(self, merged: Flat, last: Paths) -> Flat:
        if not last:
            return merged
        was = with_named(last, self.kind)
        everything = with_named(claimed(merged, self.kind), self.kind)
        owned = with_named(frozenset().union(*self.owners.values()), self.kind)
        first = without(merged, was)
        kept = with_named(claimed(first, self.kind), self.kind) | owned
        second = without(merged, everything - kept)
        remaining = with_named(claimed(second, self.kind), self.kind)
        return without(merged, (everything - remaining) & was)

    def _settle(self) -> None:
        self.owners = {owner: paths for owner, paths in self.owners.items() if paths}
        self.times = {owner: time for owner, time in self.times.items() if owner in self.owners}

    def fields(self) -> dict[tuple[str, str], tuple[Obj, str]]:
        """(manager, operation) → what `managedFields` has of it: fieldsV1 and time."""
        return {
            (owner.manager, owner.operation): (nested(paths), self.times.get(owner, ""))
            for owner, paths in self.owners.items()
        }


def without_nulls(table: Flat) -> Flat:
    return {path: value for path, value in table.items() if value is not None}


# --- as it is written -----------------------------------------------------------------------------


def nested(paths: Paths) -> Obj:
    """fieldsV1."""
    tree: Obj = {}
    for path in paths:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        if any(other[: len(path)] == path and len(other) > len(path) for other in paths):
            node["."] = {}
    return tree


def text(path: Path) -> str:
    """As conflicts name it: `.spec.ports[port=80].name`."""
    parts = []
    for element in path:
        kind, rest = element[0], element[2:]
        if kind == "f":
            parts.append(f".{rest}")
        elif kind == "v":
            parts.append(f"[={rest}]")
        else:
            parts.append("[" + ",".join(f"{name}={wire(value)}" for name, value in json.loads(rest).items()) + "]")
    return "".join(parts)
