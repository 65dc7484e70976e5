"""Which Locations are taken if a placement wants some of them only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import NamedTuple, TypeAlias

from farflung.controllers.edge_scheduler.values import Key

Group: TypeAlias = tuple[str | None, ...]  #: values of labels; None for a label that is not there


class Candidate(NamedTuple):
    key: Key
    group: Group = ()
    settled: bool = False  #: it was taken before
    reluctant: bool = False  #: it is only to be taken if there is nothing better


def choose(candidates: Iterable[Candidate], number: int) -> set[Key]:
    """As many as are wanted, or all.  They are spread over the groups as evenly as can be; then those that were taken
    before come first, then others by name.  Reluctant ones come after all that are not, unless taken before.

    The order of the candidates does not matter; who wants more gets the same and more; and taking again what was taken
    before changes nothing.
    """
    return set(islice(_order(candidates), number))


def _order(candidates: Iterable[Candidate]) -> Iterator[Key]:
    willing: list[Candidate] = []
    reluctant: list[Candidate] = []
    for candidate in candidates:
        (reluctant if candidate.reluctant and not candidate.settled else willing).append(candidate)
    taken: Counter[Group] = Counter()
    for some in (willing, reluctant):
        yield from _in_turn(some, taken)


def _in_turn(candidates: Iterable[Candidate], taken: Counter[Group]) -> Iterator[Key]:
    """The group that has fewest comes next."""
    waiting: dict[Group, list[tuple[bool, Key]]] = {}  #: the next one last
    for one in candidates:
        waiting.setdefault(one.group, []).append((not one.settled, one.key))
    turns: list[tuple[int, tuple[bool, Key], Group]] = []
    for group, ones in waiting.items():
        ones.sort(reverse=True)
        turns.append((taken[group], ones.pop(), group))
    heapify(turns)
    while turns:
        _, (_, key), group = heappop(turns)
        taken[group] += 1
        if waiting[group]:
            heappush(turns, (taken[group], waiting[group].pop(), group))
        yield key
