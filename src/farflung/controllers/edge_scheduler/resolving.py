"""Where one placement leads, given the Locations that it matches and the targets of each.

A Location passes if one of its targets does: no taint is in the way, and the expression holds.  Of those that pass, as
many are chosen as are wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from farflung.controllers.edge_scheduler import fitness
from farflung.controllers.edge_scheduler.choice import Candidate, choose
from farflung.controllers.edge_scheduler.values import (
    Destination,
    Explanation,
    Key,
    Location,
    Placement,
    Refusal,
    Resolution,
    Target,
)
from farflung.controllers.edge_scheduler.where import Answer, Where, most_cost

TOO_DEAR: Final = "spec.where: costs too much with all Locations and SyncTargets together"


class Pairs:
    """A Location and the targets that it selects, sorted by name."""

    __slots__ = ("destinations", "location", "order", "tainted", "targets")

    def __init__(self, location: Location, targets: tuple[Target, ...]) -> None:
        self.location = location
        self.targets = targets
        cluster, name = location.key
        self.destinations = tuple([Destination(cluster, name, target.key.name, target.uid) for target in targets])
        self.order = f"{cluster}\0{name}"  #: sorts as the key does, and faster
        self.tainted = bool(location.taints) or any(target.taints for target in targets)


class _Asked(NamedTuple):
    location: bytes
    target: bytes
    answer: Answer


Known: TypeAlias = Mapping[tuple[Key, str], _Asked]  #: (location, target) → what an expression said of their documents


class _Found(NamedTuple):
    """What can be used of one Location."""

    pairs: Pairs
    destinations: tuple[Destination, ...]
    refused: tuple[Refusal, ...]
    reluctant: bool


class _TooDearError(Exception):
    pass


class Resolver:
    """One placement at one moment.  `known` is what its expression said before; it is exchanged for what was needed."""

    def __init__(self, placement: Placement, previous: Set[Destination], known: Known) -> None:
        self._placement = placement
        self._previous = previous
        self._before = known
        self._cost = 0
        self._most_cost = 0
        self.known: dict[tuple[Key, str], _Asked] = {}

    def resolve(self, matched: Sequence[Pairs]) -> Resolution:
        """`matched` is sorted."""
        if self._placement.number is None and self._placement.where is None:
            return self._all(matched)
        try:
            found = [one for one in self._all_usable(matched) if one.destinations]
        except _TooDearError:
            return Resolution(problem=TOO_DEAR)
        chosen = self._chosen(found)
        destinations = [
            destination for one in found if one.pairs.location.key in chosen for destination in one.destinations
        ]
        return Resolution(tuple(destinations), len(matched), len(chosen))

    def _all(self, matched: Sequence[Pairs]) -> Resolution:
        """If only taints matter."""
        destinations: list[Destination] = []
        chosen = 0
        for pairs in matched:
            usable = self._usable(pairs).destinations if pairs.tainted else pairs.destinations
            if usable:
                chosen += 1
                destinations += usable
        return Resolution(tuple(destinations), len(matched), chosen)

    def explain(self, matched: Sequence[Pairs]) -> Iterator[Explanation]:
        try:
            found = self._all_usable(matched)
        except _TooDearError:
            yield from (Explanation(pairs.location.key, reason=TOO_DEAR) for pairs in matched)
            return
        chosen = self._chosen([one for one in found if one.destinations])
        for one in found:
            key = one.pairs.location.key
            if key in chosen:
                yield Explanation(key, one.destinations, refused=one.refused)
            else:
                yield Explanation(key, reason=self._reason(one), refused=one.refused)

    def _reason(self, found: _Found) -> str:
        location = found.pairs.location
        if found.destinations:
            number = self._placement.number
            return f"spec.numberOfLocations is {number}, and other Locations come first"
        if location.instances is None:
            return location.problem
        if not found.pairs.targets:
            return "its instanceSelector selects no SyncTarget"
        if len(found.refused) == 1:
            return found.refused[0].reason
        return f"none of its {len(found.refused)} SyncTargets can be used"

    def _chosen(self, found: Sequence[_Found]) -> set[Key]:
        if self._placement.number is None:
            return {one.pairs.location.key for one in found}
        return choose(map(self._candidate, found), self._placement.number)

    def _candidate(self, found: _Found) -> Candidate:
        location = found.pairs.location
        group = tuple(map(location.labels.get, self._placement.spread_by))
        return Candidate(location.key, group, not self._previous.isdisjoint(found.destinations), found.reluctant)

    def _all_usable(self, matched: Sequence[Pairs]) -> list[_Found]:
        self._most_cost = most_cost(sum(len(pairs.targets) for pairs in matched))
        return [self._usable(pairs) for pairs in matched]

    def _usable(self, pairs: Pairs) -> _Found:
        where = self._placement.where
        if where is None and not pairs.tainted:
            return _Found(pairs, pairs.destinations, (), False)
        documents = _Documents(pairs.location)
        good: list[Destination] = []
        refused: list[Refusal] = []
        reluctant = True
        for destination, target in zip(pairs.destinations, pairs.targets, strict=True):
            reason = self._hindrance(pairs, destination, target)
            if not reason and where is not None:
                reason = self._ask(where, documents, target)
            if reason:
                refused.append(Refusal(target.key.name, reason))
                continue
            good.append(destination)
            if not pairs.tainted or not fitness.is_reluctant(pairs.location, target, self._placement.tolerations):
                reluctant = False
        return _Found(pairs, tuple(good), tuple(refused), reluctant)

    def _hindrance(self, pairs: Pairs, destination: Destination, target: Target) -> str:
        if not pairs.tainted:
            return ""
        settled = destination in self._previous
        return fitness.refusal(pairs.location, target, self._placement.tolerations, settled=settled)

    def _ask(self, where: Where, documents: _Documents, target: Target) -> str:
        """Why the expression is against a pair.  What it costs is counted whether it is asked or known, so that the
        same answer comes of the same values, whatever was before."""
        location = documents.location
        key = (location.key, target.key.name)
        asked = self._before.get(key)
        if asked is None or asked.location is not location.document or asked.target is not target.document:
            answer = where.ask(documents.value, orjson.loads(target.document))
            asked = _Asked(location.document, target.document, answer)
        self.known[key] = asked
        self._cost += asked.answer.cost
        if self._cost > self._most_cost:
            raise _TooDearError
        return asked.answer.refusal


class _Documents:
    """The document of a location, read when it is first needed."""

    __slots__ = ("_value", "location")

    def __init__(self, location: Location) -> None:
        self.location = location
        self._value: Any = None

    @property
    def value(self) -> Any:
        if self._value is None:
            self._value = orjson.loads(self.location.document)
        return self._value
