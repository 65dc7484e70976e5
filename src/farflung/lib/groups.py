"""Sets and counts by key, in dicts that have no empty ones."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
M = TypeVar("M")


def discard_from(groups: dict[K, set[M]], key: K, member: M) -> None:
    """Remove a member of a set.  Neither needs to be there."""
    members = groups.get(key, set())
    members.discard(member)
    if not members:
        groups.pop(key, None)


def subtract_one(counts: dict[K, int], key: K) -> None:
    """The key must have a count."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
