"""Equality of JSON values, and keys of items in lists of type map.  In Python's `==`, 1 equals True."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson


def identical(value: Any) -> str | bytes:
    """A hashable key, equal for equal values only; 1 and 1.0 are different."""
    if type(value) is str:
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):  # an integer beyond 64 bits, nested too deeply
        return _spelt(value)


def _spelt(value: Any) -> bytes:
    try:
        return repr(value).encode("utf-8", "surrogatepass")
    except RecursionError:
        return b"%d" % id(value)


def unchanged(old: Any, new: Any) -> bool:
    """Whether two values are identical JSON."""
    return old is new or (old == new and identical(old) == identical(new))


def same(value: Any, other: Any) -> bool:
    """Equal, numbers by their value."""
    if _is_number(value) and _is_number(other):
        return bool(value == other)
    return type(value) is type(other) and unchanged(value, other)


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


Key = tuple[str | bytes | None, ...]


def key_of(item: Any, names: Sequence[str]) -> Key:
    """Two items of a list have the same key if and only if they have the same values of the named fields."""
    if type(item) is not dict:
        return (None,) * len(names)
    return tuple(identical(item[name]) if name in item else None for name in names)


def by_key(items: Iterable[Any], names: Sequence[str]) -> dict[Key, Any]:
    """Items by key; of duplicates, the first."""
    index: dict[Key, Any] = {}
    for item in items:
        index.setdefault(key_of(item, names), item)
    return index
