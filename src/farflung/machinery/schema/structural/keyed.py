"""The keys of lists of type map."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from farflung.machinery.schema.structural.identity import identical

Key = tuple[str | bytes | None, ...]


def key_of(item: Any, names: Sequence[str]) -> Key:
    """Two items of a list have the same key if and only if they have the same values of the named fields."""
    if type(item) is not dict:
        return (None,) * len(names)
    return tuple(identical(item[name]) if name in item else None for name in names)


def by_key(items: Iterable[Any], names: Sequence[str]) -> dict[Key, Any]:
    """Items by their keys; of two with the same one, the first."""
    index: dict[Key, Any] = {}
    for item in items:
        index.setdefault(key_of(item, names), item)
    return index
