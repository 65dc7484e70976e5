"""Resolve EdgePlacements to destinations: an index of Locations, SyncTargets and EdgePlacements.

A placement gets only destinations on whose Location its author may place.  While that is not known, it keeps its
current destinations there and gets no new ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
import orjson
from pyroaring import BitMap

from farflung.apis.edge.authors import Author
from farflung.machinery.errors import go_quote
from farflung.machinery.label_index import LabelIndex, SelectorIndex
from farflung.machinery.selectors import Labels, LabelSelector, Requirement
from farflung.machinery.turns import TurnOver, spend
from farflung.placement.names import ObjectKey
from farflung.placement.select import COST_WORK, WhereFilter, WhereResult, most_cost
from farflung.placement.types import (
    UNSCHEDULABLE,
    Destination,
    Effect,
    Location,
    Placement,
    PlacingRight,
    Taint,
    TargetForScheduling,
    Toleration,
)


class Resolution(msgspec.Struct, frozen=True):
    destinations: tuple[Destination, ...] = ()  #: sorted
    matching: int = 0  #: Locations that the selectors match, whether chosen or not, except those left out
    chosen: int = 0  #: Locations that are in `destinations`
    left_out: int = 0  #: Locations that the selectors match, and on which the author may not place
    undecided: int = 0  #: Locations in `matching` of which that is not known
    problem: str = ""  #: why it cannot be resolved; then all fields but `lost` are empty, unless there are lost ones
    lost: frozenset[Destination] = frozenset()  #: current ones that a placement with a problem must not keep
    failing: tuple[str, ...] = ()  #: objects of current destinations that could not be taken into account


class Refusal(NamedTuple):
    target: str
    reason: str


class Explanation(msgspec.Struct, frozen=True):
    """Why a placement uses or does not use one Location."""

    location: ObjectKey
    destinations: tuple[Destination, ...] = ()  #: of this Location
    reason: str = ""  #: why there are no destinations
    refused: tuple[Refusal, ...] = ()  #: SyncTargets of the Location that are not used
    left_out: bool = False  #: the author may not place on it


NOT_ALLOWED: Final = "the author may not place on it"
NOT_KNOWN: Final = "it is not known whether the author may place on it"
NO_AUTHOR: Final = "no author is recorded, so there are no new destinations"
MAX_SELECTORS: Final = 3  #: that are named in a reason


def untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Iterator[Taint]:
    for taint in taints:
        if not any(toleration.tolerates(taint) for toleration in tolerations):
            yield taint


def refusal(
    location: Location, target: TargetForScheduling, tolerations: Sequence[Toleration], *, is_current: bool
) -> str:
    """The taint that excludes a target; empty if none does.  `is_current`: it is a destination already, which only
    NoExecute excludes."""
    for whose, taints in (("the Location", location.taints), ("the SyncTarget", target.taints)):
        for taint in untolerated(taints, tolerations):
            if taint.effect is Effect.NO_EXECUTE or (taint.effect is Effect.NO_SCHEDULE and not is_current):
                if taint is UNSCHEDULABLE:
                    return "the SyncTarget takes no new work (spec.unschedulable)"
                return f"{whose} has the taint {taint}, which is not tolerated"
    return ""


def prefers_no_schedule(location: Location, target: TargetForScheduling, tolerations: Sequence[Toleration]) -> bool:
    """Whether a PreferNoSchedule taint is not tolerated."""
    taints = (*location.taints, *target.taints)
    return any(taint.effect is Effect.PREFER_NO_SCHEDULE for taint in untolerated(taints, tolerations))


def mismatch(placement: Placement, labels: Labels) -> str:
    """Why none of the placement's selectors matches."""
    if not placement.selectors:
        return "spec.locationSelectors is empty"
    reasons = [
        f"spec.locationSelectors[{at}]: {unmet(selector, labels)}"
        for at, selector in enumerate(placement.selectors[:MAX_SELECTORS])
    ]
    if (more := len(placement.selectors) - MAX_SELECTORS) > 0:
        reasons.append(f"and so for {more} more")
    return "; ".join(reasons)


def unmet(selector: LabelSelector, labels: Labels) -> str:
    """Why a selector does not match the labels of a Location; empty if it does."""
    for one in selector.requirements:
        if not LabelSelector((one,)).matches(labels):
            return _describe_requirement(one, labels.get(one.key))
    return ""


def _describe_requirement(requirement: Requirement, value: str | None) -> str:
    if value is None:
        return f"the Location has no label {requirement.key}"
    has = f"the label {requirement.key} of the Location is {go_quote(value)}"
    match requirement.operator:
        case "in":
            named = ", ".join(map(go_quote, requirement.values))
            return f"{has}, not {named}" if len(requirement.values) == 1 else f"{has}, none of {named}"
        case "notin":
            return f"{has}, which it must not be"
        case "!":
            return f"{has}, and should not be there"
        case "gt":
            return f"{has}, not more than {requirement.values[0]}"
        case _:
            return f"{has}, not less than {requirement.values[0]}"


Group: TypeAlias = tuple[str | None, ...]  #: values of labels; None for a missing label


class LocationCandidate(NamedTuple):
    key: ObjectKey
    group: Group = ()
    is_current: bool = False  #: it is a destination already
    prefers_no_schedule: bool = False  #: choose it only if no other is left


def choose(candidates: Iterable[LocationCandidate], number: int) -> set[ObjectKey]:
    """At most `number` Locations, spread over the groups as evenly as possible.  Within a group, current destinations
    are preferred, then the order is by name.  Reluctant candidates come last, unless they are destinations already.

    The order of the candidates does not matter.  A larger number adds to the choice of a smaller one, and choosing
    again from the result changes nothing.
    """
    return set(islice(_order(candidates), number))


def _order(candidates: Iterable[LocationCandidate]) -> Iterator[ObjectKey]:
    willing: list[LocationCandidate] = []
    avoided: list[LocationCandidate] = []
    for candidate in candidates:
        (avoided if candidate.prefers_no_schedule and not candidate.is_current else willing).append(candidate)
    taken: Counter[Group] = Counter()
    for some in (willing, avoided):
        yield from _in_turn(some, taken)


def _in_turn(candidates: Iterable[LocationCandidate], taken: Counter[Group]) -> Iterator[ObjectKey]:
    """The group with the fewest chosen Locations is next."""
    waiting: dict[Group, list[tuple[bool, ObjectKey]]] = {}  #: by group; the next one is last
    for one in candidates:
        waiting.setdefault(one.group, []).append((not one.is_current, one.key))
    turns: list[tuple[int, tuple[bool, ObjectKey], Group]] = []
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


T = TypeVar("T", Location, TargetForScheduling, Placement)


class Numbered(Generic[T]):
    """Values by key and by number.  Numbers are small and reused."""

    __slots__ = ("_free", "_number", "_values")

    def __init__(self) -> None:
        self._values: list[T | None] = []
        self._number: dict[ObjectKey, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._number)

    def __getitem__(self, number: int) -> T:
        value = self._values[number]
        assert value is not None
        return value

    def __iter__(self) -> Iterator[int]:
        return iter(self._number.values())

    def number(self, key: ObjectKey) -> int | None:
        return self._number.get(key)

    def put(self, value: T) -> int:
        number = self._number.get(value.key)
        if number is None:
            number = self._free.pop() if self._free else len(self._values)
            self._number[value.key] = number
            if number == len(self._values):
                self._values.append(None)
        self._values[number] = value
        return number

    def pop(self, key: ObjectKey) -> tuple[int, T] | None:
        number = self._number.pop(key, None)
        if number is None:
            return None
        value = self[number]
        self._values[number] = None
        self._free.append(number)
        return number, value


PAIR: Final = 1_000  #: work of the allowance of a turn, for a Location and a SyncTarget
COST_EXCEEDED: Final = "spec.where: costs too much with all Locations and SyncTargets together"


class LocationTargets:
    """A Location and the SyncTargets that it selects, sorted by name."""

    __slots__ = ("destinations", "location", "order", "tainted", "targets")

    def __init__(self, location: Location, targets: tuple[TargetForScheduling, ...]) -> None:
        self.location = location
        self.targets = targets
        cluster, name = location.key
        self.destinations = tuple([Destination(cluster, name, target.key.name, target.uid) for target in targets])
        self.order = f"{cluster}\0{name}"  #: sorts as the key does, and faster
        self.tainted = bool(location.taints) or any(target.taints for target in targets)

    def limited(self, destinations: Set[Destination]) -> LocationTargets:
        """Only those of these destinations."""
        there = zip(self.destinations, self.targets, strict=True)
        return LocationTargets(
            self.location, tuple([target for destination, target in there if destination in destinations])
        )


class _CachedResult(NamedTuple):
    location: bytes
    target: bytes
    result: WhereResult


ResultCache: TypeAlias = Mapping[
    tuple[ObjectKey, str], _CachedResult
]  #: (location, target) → the result for their documents


class _UsableLocation(NamedTuple):
    """The usable and the refused SyncTargets of one Location."""

    pairs: LocationTargets
    destinations: tuple[Destination, ...]
    refused: tuple[Refusal, ...]
    prefers_no_schedule: bool


class _CostExceededError(Exception):
    pass


class ResolutionRun:
    """Resolves one placement once.  `known`: cached results of its expression; afterwards, the results that were
    used.  Raises TurnOver if the current task has an allowance that is too small."""

    def __init__(self, placement: Placement, previous: Set[Destination], known: ResultCache) -> None:
        self._placement = placement
        self._previous = previous
        self._before = known
        self._cost = 0
        self._most_cost = 0
        self.known: dict[tuple[ObjectKey, str], _CachedResult] = {}

    def resolve(self, matched: Sequence[LocationTargets]) -> Resolution:
        """`matched` is sorted."""
        if self._placement.number is None and self._placement.where is None:
            return self._all(matched)
        try:
            found = [one for one in self._all_usable(matched) if one.destinations]
        except _CostExceededError:
            return Resolution(problem=COST_EXCEEDED)
        chosen = self._chosen(found)
        destinations = [
            destination for one in found if one.pairs.location.key in chosen for destination in one.destinations
        ]
        return Resolution(tuple(destinations), len(matched), len(chosen))

    def _all(self, matched: Sequence[LocationTargets]) -> Resolution:
        """Without a number and an expression, only taints exclude targets."""
        destinations: list[Destination] = []
        chosen = 0
        for pairs in matched:
            usable = self._usable(pairs).destinations if pairs.tainted else pairs.destinations
            if usable:
                chosen += 1
                destinations += usable
        return Resolution(tuple(destinations), len(matched), chosen)

    def explain(self, matched: Sequence[LocationTargets]) -> Iterator[Explanation]:
        try:
            found = self._all_usable(matched)
        except _CostExceededError:
            yield from (Explanation(pairs.location.key, reason=COST_EXCEEDED) for pairs in matched)
            return
        chosen = self._chosen([one for one in found if one.destinations])
        for one in found:
            key = one.pairs.location.key
            if key in chosen:
                yield Explanation(key, one.destinations, refused=one.refused)
            else:
                yield Explanation(key, reason=self._reason(one), refused=one.refused)

    def _reason(self, found: _UsableLocation) -> str:
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

    def _chosen(self, found: Sequence[_UsableLocation]) -> set[ObjectKey]:
        if self._placement.number is None:
            return {one.pairs.location.key for one in found}
        return choose(map(self._candidate, found), self._placement.number)

    def _candidate(self, found: _UsableLocation) -> LocationCandidate:
        location = found.pairs.location
        group = tuple(map(location.labels.get, self._placement.spread_by))
        return LocationCandidate(
            location.key, group, not self._previous.isdisjoint(found.destinations), found.prefers_no_schedule
        )

    def _all_usable(self, matched: Sequence[LocationTargets]) -> list[_UsableLocation]:
        self._most_cost = most_cost(sum(len(pairs.targets) for pairs in matched))
        return [self._usable(pairs) for pairs in matched]

    def _usable(self, pairs: LocationTargets) -> _UsableLocation:
        where = self._placement.where
        if where is None and not pairs.tainted:
            return _UsableLocation(pairs, pairs.destinations, (), False)
        documents = _Documents(pairs.location)
        good: list[Destination] = []
        refused: list[Refusal] = []
        avoided = True
        for destination, target in zip(pairs.destinations, pairs.targets, strict=True):
            reason = self._taint_refusal(pairs, destination, target)
            if not reason and where is not None:
                reason = self._evaluate(where, documents, target)
            if reason:
                refused.append(Refusal(target.key.name, reason))
                continue
            good.append(destination)
            if not pairs.tainted or not prefers_no_schedule(pairs.location, target, self._placement.tolerations):
                avoided = False
        return _UsableLocation(pairs, tuple(good), tuple(refused), avoided)

    def _taint_refusal(self, pairs: LocationTargets, destination: Destination, target: TargetForScheduling) -> str:
        if not pairs.tainted:
            return ""
        is_current = destination in self._previous
        return refusal(pairs.location, target, self._placement.tolerations, is_current=is_current)

    def _evaluate(self, where: WhereFilter, documents: _Documents, target: TargetForScheduling) -> str:
        """Why the expression excludes a pair; empty if it does not.  Cached results cost the same, so that the outcome
        does not depend on the cache."""
        location = documents.location
        key = (location.key, target.key.name)
        cached = self._before.get(key)
        if cached is None or cached.location is not location.document or cached.target is not target.document:
            result = where.evaluate(documents.value, orjson.loads(target.document))
            cached = self.known[key] = _CachedResult(location.document, target.document, result)
            spend(PAIR + COST_WORK * result.cost)
        else:
            self.known[key] = cached
        self._cost += cached.result.cost
        if self._cost > self._most_cost:
            raise _CostExceededError
        return cached.result.refusal


class _Documents:
    """The document of a Location, decoded at its first use."""

    __slots__ = ("_value", "location")

    def __init__(self, location: Location) -> None:
        self.location = location
        self._value: Any = None

    @property
    def value(self) -> Any:
        if self._value is None:
            self._value = orjson.loads(self.location.document)
        return self._value


NO_PLACEMENTS: Final[frozenset[ObjectKey]] = frozenset()
LOOKED_UP_ONE_BY_ONE: Final = 32  #: Locations whose placements are looked up one by one


class _Inventory:
    """The SyncTargets of one workspace, and its Locations with their selectors."""

    __slots__ = ("locations", "selectors", "targets")

    def __init__(self) -> None:
        self.targets = LabelIndex()
        self.locations = BitMap()
        self.selectors = SelectorIndex()  #: of Locations


class _Permissions:
    """On which Locations one author may place."""

    __slots__ = ("allowed", "doubted", "known", "placements", "rights")

    def __init__(self) -> None:
        self.placements = BitMap()  #: of the author
        self.rights: dict[str, PlacingRight] = {}  #: by workspace
        self.doubted: set[str] = set()  #: workspaces whose right is being reviewed again
        self.known = BitMap()  #: Locations whose right is known and not doubted
        self.allowed = BitMap()  #: Locations on which the author may place, or might before a doubt

    def add(self, number: int, location: ObjectKey) -> None:
        right = self.rights.get(location.cluster)
        _mark(self.known, number, right is not None and location.cluster not in self.doubted)
        _mark(self.allowed, number, right is not None and right.allows(location.name))

    def put(self, cluster: str, right: PlacingRight, locations: BitMap, named: BitMap) -> BitMap:
        """Set the right in a workspace with these Locations; `named`: those that the right names.  Returns the
        Locations that it changes."""
        before = self.allowed & locations
        is_new = cluster not in self.rights
        self.rights[cluster] = right
        self.doubted.discard(cluster)
        self.known |= locations
        self.allowed -= locations
        self.allowed |= locations if right.everywhere else named
        return locations if is_new else before ^ (self.allowed & locations)

    def doubt(self, cluster: str, locations: BitMap) -> None:
        self.doubted.add(cluster)
        self.known -= locations

    def remove(self, number: int) -> None:
        self.known.discard(number)
        self.allowed.discard(number)

    @property
    def may(self) -> BitMap:
        return self.allowed & self.known


class Resolver:
    def __init__(self) -> None:
        self._locations: Numbered[Location] = Numbered()
        self._targets: Numbered[TargetForScheduling] = Numbered()
        self._placements: Numbered[Placement] = Numbered()
        self._labels = LabelIndex()  #: of locations
        self._selectors = SelectorIndex()  #: of placements
        self._owners: list[int] = []  #: selector → placement
        self._unowned: list[int] = []  #: free selector ids
        self._selectors_of: dict[int, tuple[int, ...]] = {}  #: placement → selectors
        self._matched: dict[int, BitMap] = {}  #: placement → locations
        self._inventories: dict[str, _Inventory] = {}
        self._spreading = BitMap()  #: placements that use further labels of Locations
        self._filtering = BitMap()  #: placements with an expression
        self._pairs: list[LocationTargets | None] = []  #: location → its pairs, if computed
        self._tainted = BitMap()  #: locations whose pairs have taints
        self._vacant = BitMap()  #: locations without SyncTargets
        self._known: dict[int, ResultCache] = {}  #: placement → results of its expression
        self._permissions: dict[Author | None, _Permissions] = {}  #: of authors with placements
        self._unresolved = BitMap()  #: placements whose last resolution has a problem

    # --- queries ----------------------------------------------------------------------------------

    def placement(self, key: ObjectKey) -> Placement | None:
        number = self._placements.number(key)
        return None if number is None else self._placements[number]

    def location(self, key: ObjectKey) -> Location | None:
        number = self._locations.number(key)
        return None if number is None else self._locations[number]

    def target(self, key: ObjectKey) -> TargetForScheduling | None:
        number = self._targets.number(key)
        return None if number is None else self._targets[number]

    def placements(self) -> Iterator[Placement]:
        return map(self._placements.__getitem__, self._placements)

    # --- permissions ------------------------------------------------------------------------------

    def put_right(self, author: Author, cluster: str, right: PlacingRight) -> frozenset[ObjectKey]:
        """Set the right of an author with placements; it is no longer doubted.  Returns the placements that it changes,
        compared with the last known right."""
        found = self._permissions.get(author)
        if found is None:
            return NO_PLACEMENTS
        locations = self._locations_of(cluster)
        numbers = (self._locations.number(ObjectKey(cluster, name)) for name in right.names)
        named = BitMap([number for number in numbers if number is not None])
        changed = found.put(cluster, right, locations, named)
        concerned = BitMap([one for one in found.placements if self._matched[one].intersect(changed)])
        return self._keys(concerned | (found.placements & self._unresolved if changed else BitMap()))

    def doubt_right(self, author: Author, cluster: str) -> None:
        """The right is being reviewed again: until then the author gets no new destinations in this workspace, and
        keeps the others."""
        if author in self._permissions:
            self._permissions[author].doubt(cluster, self._locations_of(cluster))

    def _locations_of(self, cluster: str) -> BitMap:
        inventory = self._inventories.get(cluster)
        return BitMap() if inventory is None else inventory.locations

    def needs_right(self, author: Author, cluster: str) -> bool:
        """Whether the author has placements, and the workspace Locations."""
        return author in self._permissions and bool(self._locations_of(cluster))

    def undecided(self, key: ObjectKey, kept: Set[Destination] = frozenset()) -> frozenset[str]:
        """Workspaces with Locations that the placement selects, in which the right of its author is not known.  `kept`:
        destinations that it may keep because of a problem, likewise."""
        number = self._placements.number(key)
        if number is None or self._placements[number].author is None:
            return frozenset()
        found = (self._locations.number(ObjectKey(one.cluster, one.location)) for one in kept)
        wanted = self._matched[number] | BitMap([one for one in found if one is not None])
        missing = wanted - self._permissions[self._placements[number].author].known
        return frozenset([self._locations[one].key.cluster for one in missing])

    # --- placements -------------------------------------------------------------------------------

    def put_placement(self, placement: Placement) -> frozenset[ObjectKey]:
        before = self.placement(placement.key)
        if before == placement:
            return NO_PLACEMENTS
        number = self._placements.put(placement)
        if before is None or before.author != placement.author:
            if before is not None:
                self._disown(number, before.author)
            self._permissions.setdefault(placement.author, _Permissions()).placements.add(number)
        if before is None or before.selectors != placement.selectors:
            self._index_selectors(number, placement)
        if before is None or before.where != placement.where:
            self._known.pop(number, None)
        _mark(self._spreading, number, placement.number is not None and bool(placement.spread_by))
        _mark(self._filtering, number, placement.where is not None)
        return frozenset((placement.key,))

    def remove_placement(self, key: ObjectKey) -> frozenset[ObjectKey]:
        found = self._placements.pop(key)
        if found is None:
            return NO_PLACEMENTS
        number, placement = found
        self._unfile(number)
        self._disown(number, placement.author)
        self._matched.pop(number)
        self._known.pop(number, None)
        self._spreading.discard(number)
        self._filtering.discard(number)
        self._unresolved.discard(number)
        return frozenset((key,))

    def _disown(self, number: int, author: Author | None) -> None:
        found = self._permissions[author]
        found.placements.discard(number)
        if not found.placements:
            del self._permissions[author]

    def _index_selectors(self, number: int, placement: Placement) -> None:
        self._unfile(number)
        found: list[BitMap] = []
        ids: list[int] = []
        for selector in dict.fromkeys(placement.selectors):
            if self._unowned:
                id = self._unowned.pop()
                self._owners[id] = number
            else:
                id = len(self._owners)
                self._owners.append(number)
            self._selectors.put(id, selector)
            ids.append(id)
            found.append(self._labels.select(selector))
        self._selectors_of[number] = tuple(ids)
        self._matched[number] = matched = BitMap.union(*found) if found else BitMap()
        matched.run_optimize()

    def _unfile(self, number: int) -> None:
        for id in self._selectors_of.pop(number, ()):
            self._selectors.remove(id)
            self._unowned.append(id)

    # --- locations --------------------------------------------------------------------------------

    def put_location(self, location: Location) -> frozenset[ObjectKey]:
        before = self.location(location.key)
        if before == location:
            return NO_PLACEMENTS
        number = self._locations.put(location)
        self._select_targets(number, location)
        if number == len(self._pairs):
            self._pairs.append(None)
        if before is None:
            self._inventory(location.key.cluster).locations.add(number)
            for permissions in self._permissions.values():
                permissions.add(number, location.key)
            selecting = self._selecting(location.labels)
            self._labels.put(number, location.labels)
            for placement in selecting:
                self._matched[placement].add(number)
            return self._keys(selecting)
        self._pairs[number] = None
        all_matching = before.instances != location.instances or before.taints != location.taints
        return self._keys(self._relabel(number, before, location, all_matching=all_matching))

    def _relabel(self, number: int, before: Location, location: Location, *, all_matching: bool) -> BitMap:
        """The placements to resolve again.  `all_matching`: all that match, not only those that use further labels or
        documents."""
        if before.labels == location.labels:
            concerned = self._selecting(location.labels)
            return concerned if all_matching else concerned & self._filtering
        self._labels.put(number, location.labels)
        old, new = self._selecting(before.labels), self._selecting(location.labels)
        for placement in old - new:
            self._matched[placement].discard(number)
        for placement in new - old:
            self._matched[placement].add(number)
        if all_matching:
            return old | new
        return (old ^ new) | ((old & new) & (self._spreading | self._filtering))

    def remove_location(self, key: ObjectKey) -> frozenset[ObjectKey]:
        found = self._locations.pop(key)
        if found is None:
            return NO_PLACEMENTS
        number, location = found
        self._labels.remove(number)
        self._pairs[number] = None
        self._inventories[key.cluster].locations.discard(number)
        for permissions in self._permissions.values():
            permissions.remove(number)
        self._select_no_targets(number, key.cluster)
        concerned = self._selecting(location.labels)
        for placement in concerned:
            self._matched[placement].discard(number)
        return self._keys(concerned | self._unresolved)

    def _select_targets(self, number: int, location: Location) -> None:
        if location.instances is None:
            self._select_no_targets(number, location.key.cluster)
        else:
            self._inventory(location.key.cluster).selectors.put(number, location.instances)

    def _select_no_targets(self, number: int, cluster: str) -> None:
        """Also removes the inventory of a workspace without SyncTargets and selectors."""
        if cluster in self._inventories:
            self._inventories[cluster].selectors.remove(number)
            self._forget_empty(cluster)

    # --- targets ----------------------------------------------------------------------------------

    def put_target(self, target: TargetForScheduling) -> frozenset[ObjectKey]:
        before = self.target(target.key)
        if before == target:
            return NO_PLACEMENTS
        inventory = self._inventory(target.key.cluster)
        number = self._targets.put(target)
        inventory.targets.put(number, target.labels)
        new = inventory.selectors.matching(target.labels)
        if before is None:
            return self._keys(self._invalidate_placements(new))
        if before.uid != target.uid or before.taints != target.taints:
            return self._keys(self._invalidate_placements(new | inventory.selectors.matching(before.labels)))
        old = new if before.labels == target.labels else inventory.selectors.matching(before.labels)
        concerned = self._invalidate_placements(old ^ new)
        staying = self._invalidate(old & new)
        if self._filtering:
            concerned |= self._placements_at(staying) & self._filtering
        return self._keys(concerned)

    def remove_target(self, key: ObjectKey) -> frozenset[ObjectKey]:
        found = self._targets.pop(key)
        if found is None:
            return NO_PLACEMENTS
        number, target = found
        inventory = self._inventories[key.cluster]
        inventory.targets.remove(number)
        concerned = self._invalidate_placements(inventory.selectors.matching(target.labels))
        self._forget_empty(key.cluster)
        return self._keys(concerned)

    def _invalidate_placements(self, locations: BitMap) -> BitMap:
        """The SyncTargets of these Locations changed.  Returns the placements to resolve again."""
        return self._placements_at(self._invalidate(locations))

    def _invalidate(self, locations: BitMap) -> BitMap:
        """Invalidate the pairs of these Locations."""
        for number in locations:
            self._pairs[number] = None
        return locations

    def _placements_at(self, locations: BitMap) -> BitMap:
        if not self._matched or not locations:
            return BitMap()
        if len(locations) > LOOKED_UP_ONE_BY_ONE:
            return BitMap([number for number, matched in self._matched.items() if matched.intersect(locations)])
        found = [self._selectors.matching(self._locations[number].labels) for number in locations]
        return self._owning(BitMap.union(*found))

    # --- affected placements ----------------------------------------------------------------------

    def _selecting(self, labels: Labels) -> BitMap:
        """Placements that select a Location with these labels."""
        return self._owning(self._selectors.matching(labels))

    def _owning(self, selectors: BitMap) -> BitMap:
        owners = self._owners
        return BitMap([owners[selector] for selector in selectors])

    def _keys(self, placements: BitMap) -> frozenset[ObjectKey]:
        return frozenset([self._placements[number].key for number in placements])

    def _inventory(self, cluster: str) -> _Inventory:
        found = self._inventories.get(cluster)
        if found is None:
            found = self._inventories[cluster] = _Inventory()
        return found

    def _forget_empty(self, cluster: str) -> None:
        inventory = self._inventories[cluster]
        if not inventory.targets and not inventory.locations:
            del self._inventories[cluster]

    # --- resolving --------------------------------------------------------------------------------

    def resolve(self, key: ObjectKey, previous: Set[Destination] = frozenset()) -> Resolution:
        """`previous`: its current destinations, which are preferred.  Raises KeyError if the placement does not
        exist, and TurnOver if the current task has an allowance that is too small: the next call continues."""
        number = self._placements.number(key)
        if number is None:
            raise KeyError(key)
        placement = self._placements[number]
        if problem := placement.find_problem():
            return self._with_problem(number, problem, previous)
        self._unresolved.discard(number)
        permissions, selected = self._permissions[placement.author], self._matched[number]
        matched, undecided = selected & permissions.may, selected - permissions.known
        left_out = len(selected) - len(matched) - len(undecided)
        pairs = self._sorted_pairs(matched)
        if undecided:
            pairs = sorted([*pairs, *self._kept(undecided, previous)], key=attrgetter("order"))
        elif placement.number is None and placement.where is None and not matched.intersect(self._tainted):
            destinations = tuple(chain.from_iterable([one.destinations for one in pairs]))
            chosen = len(matched) - matched.intersection_cardinality(self._vacant)
            return Resolution(destinations, len(matched), chosen, left_out)
        run = self._run(number, placement, previous)
        try:
            resolution = run.resolve(pairs)
        except TurnOver:
            self._known[number] = {**self._known.get(number, {}), **run.known}
            raise
        if placement.where is not None:
            self._known[number] = run.known
        if resolution.problem:
            return self._with_problem(number, resolution.problem, previous)
        matching = len(selected) - left_out
        return msgspec.structs.replace(resolution, matching=matching, left_out=left_out, undecided=len(undecided))

    def _with_problem(self, number: int, problem: str, previous: Set[Destination]) -> Resolution:
        """Current destinations stay, except those at deleted Locations and at those on which the author may not place:
        otherwise tenants could keep clusters by an invalid spec."""
        self._unresolved.add(number)
        permissions = self._permissions[self._placements[number].author]
        denied = permissions.known - permissions.allowed
        found = {one: self._locations.number(ObjectKey(one.cluster, one.location)) for one in previous}
        lost = frozenset([one for one, location in found.items() if location is None or location in denied])
        return Resolution(tuple(sorted(previous - lost)) if lost else (), problem=problem, lost=lost)

    def _kept(self, locations: BitMap, previous: Set[Destination]) -> Iterator[LocationTargets]:
        """Current destinations at Locations of which it is not known whether the author may place on them."""
        for pairs in self._sorted_pairs(locations):
            kept = pairs.limited(previous)
            if kept.targets:
                yield kept

    def explain(self, key: ObjectKey, previous: Set[Destination] = frozenset()) -> Iterator[Explanation]:
        """One for each Location, sorted; none if the placement has a problem.  Raises KeyError if it does not exist."""
        number = self._placements.number(key)
        if number is None:
            raise KeyError(key)
        placement = self._placements[number]
        if placement.find_problem():
            return iter(())
        return self._explained(number, placement, previous)

    def _explained(self, number: int, placement: Placement, previous: Set[Destination]) -> Iterator[Explanation]:
        permissions, selected = self._permissions[placement.author], self._matched[number]
        undecided = selected - permissions.known
        pairs = [*self._sorted_pairs(selected & permissions.may), *self._kept(undecided, previous)]
        run = self._run(number, placement, previous)
        explained = {one.location: one for one in run.explain(sorted(pairs, key=attrgetter("order")))}
        for location in sorted(self._locations, key=lambda one: self._locations[one].key):
            key, labels = self._locations[location].key, self._locations[location].labels
            if key in explained:
                yield explained[key]
            elif location in undecided:
                yield Explanation(key, reason=NO_AUTHOR if placement.author is None else NOT_KNOWN)
            elif location in selected:
                yield Explanation(key, reason=NOT_ALLOWED, left_out=True)
            else:
                yield Explanation(key, reason=mismatch(placement, labels))

    def _run(self, number: int, placement: Placement, previous: Set[Destination]) -> ResolutionRun:
        return ResolutionRun(placement, previous, self._known.get(number, {}))

    def _sorted_pairs(self, locations: Iterable[int]) -> list[LocationTargets]:
        known = self._pairs
        found = [known[number] or self._pair(number) for number in locations]
        found.sort(key=attrgetter("order"))
        return found

    def _pair(self, number: int) -> LocationTargets:
        location = self._locations[number]
        targets: list[TargetForScheduling] = []
        if location.instances is not None:
            inventory = self._inventories[location.key.cluster]
            targets = [self._targets[target] for target in inventory.targets.select(location.instances)]
            if len(targets) > 1:
                targets.sort(key=attrgetter("key.name"))
        pairs = self._pairs[number] = LocationTargets(location, tuple(targets))
        _mark(self._tainted, number, pairs.tainted)
        _mark(self._vacant, number, not targets)
        return pairs


def _mark(numbers: BitMap, number: int, marked: bool) -> None:
    if marked:
        numbers.add(number)
    else:
        numbers.discard(number)
