"""All placements, locations and targets, indexed: what a change concerns, and where a placement leads.

    engine = Engine()
    engine.put_location(location)           ─► the placements for which something may be different now
    engine.put_target(target)
    engine.put_placement(placement)
    engine.resolve(placement.key, before)   ─► Resolution
    engine.explain(placement.key, before)   ─► an Explanation for each Location

Kept up to date: the Locations that each placement's selectors match, as a set of numbers.  The pairs of a Location and
its targets are made when somebody first asks for them, and forgotten when one of the two changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import chain
from operator import attrgetter
from typing import Final

from pyroaring import BitMap

from farflung.controllers.edge_scheduler import fitness
from farflung.controllers.edge_scheduler.numbered import Numbered
from farflung.controllers.edge_scheduler.resolving import Known, Pairs, Resolver
from farflung.controllers.edge_scheduler.values import (
    Destination,
    Explanation,
    Key,
    Location,
    Placement,
    Resolution,
    Target,
)
from farflung.machinery.label_index import LabelIndex, SelectorIndex
from farflung.machinery.selectors import Labels

NOBODY: Final[frozenset[Key]] = frozenset()
FEW: Final = 32  #: Locations whose placements are looked for one by one


class _Inventory:
    """What one workspace has."""

    __slots__ = ("selectors", "targets")

    def __init__(self) -> None:
        self.targets = LabelIndex()
        self.selectors = SelectorIndex()  #: which targets the locations select


class Engine:
    def __init__(self) -> None:
        self._locations: Numbered[Location] = Numbered()
        self._targets: Numbered[Target] = Numbered()
        self._placements: Numbered[Placement] = Numbered()
        self._labels = LabelIndex()  #: of locations
        self._selectors = SelectorIndex()  #: of placements
        self._owners: list[int] = []  #: selector → placement
        self._unowned: list[int] = []  #: selectors that can be used again
        self._selectors_of: dict[int, tuple[int, ...]] = {}  #: placement → selectors
        self._matched: dict[int, BitMap] = {}  #: placement → locations
        self._inventories: dict[str, _Inventory] = {}
        self._spreading = BitMap()  #: placements that look at other labels of locations than they select by
        self._asking = BitMap()  #: placements with an expression
        self._pairs: list[Pairs | None] = []  #: location → its pairs, if known
        self._tainted = BitMap()  #: locations whose known pairs need to be looked at one by one
        self._vacant = BitMap()  #: locations that are known to have none
        self._known: dict[int, Known] = {}  #: placement → what its expression said

    # --- what there is ----------------------------------------------------------------------------

    def placement(self, key: Key) -> Placement | None:
        number = self._placements.number(key)
        return None if number is None else self._placements[number]

    def location(self, key: Key) -> Location | None:
        number = self._locations.number(key)
        return None if number is None else self._locations[number]

    def target(self, key: Key) -> Target | None:
        number = self._targets.number(key)
        return None if number is None else self._targets[number]

    def placements(self) -> Iterator[Placement]:
        return map(self._placements.__getitem__, self._placements)

    # --- placements -------------------------------------------------------------------------------

    def put_placement(self, placement: Placement) -> frozenset[Key]:
        before = self.placement(placement.key)
        if before == placement:
            return NOBODY
        number = self._placements.put(placement)
        if before is None or before.selectors != placement.selectors:
            self._file(number, placement)
        if before is None or before.where != placement.where:
            self._known.pop(number, None)
        _mark(self._spreading, number, placement.number is not None and bool(placement.spread_by))
        _mark(self._asking, number, placement.where is not None)
        return frozenset((placement.key,))

    def remove_placement(self, key: Key) -> frozenset[Key]:
        found = self._placements.pop(key)
        if found is None:
            return NOBODY
        number = found[0]
        self._unfile(number)
        self._matched.pop(number)
        self._known.pop(number, None)
        self._spreading.discard(number)
        self._asking.discard(number)
        return frozenset((key,))

    def _file(self, number: int, placement: Placement) -> None:
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

    def put_location(self, location: Location) -> frozenset[Key]:
        before = self.location(location.key)
        if before == location:
            return NOBODY
        number = self._locations.put(location)
        self._select_targets(number, location)
        if number == len(self._pairs):
            self._pairs.append(None)
        if before is None:
            came = self._selecting(location.labels)
            self._labels.put(number, location.labels)
            for placement in came:
                self._matched[placement].add(number)
            return self._keys(came)
        self._pairs[number] = None
        everybody = before.instances != location.instances or before.taints != location.taints
        return self._keys(self._relabel(number, before, location, everybody=everybody))

    def _relabel(self, number: int, before: Location, location: Location, *, everybody: bool) -> BitMap:
        """The placements that have to look again.  `everybody`: all that match, not only those that see labels and
        documents."""
        if before.labels == location.labels:
            concerned = self._selecting(location.labels)
            return concerned if everybody else concerned & self._asking
        self._labels.put(number, location.labels)
        old, new = self._selecting(before.labels), self._selecting(location.labels)
        for placement in old - new:
            self._matched[placement].discard(number)
        for placement in new - old:
            self._matched[placement].add(number)
        if everybody:
            return old | new
        return (old ^ new) | ((old & new) & (self._spreading | self._asking))

    def remove_location(self, key: Key) -> frozenset[Key]:
        found = self._locations.pop(key)
        if found is None:
            return NOBODY
        number, location = found
        self._labels.remove(number)
        self._pairs[number] = None
        self._select_no_targets(number, key.cluster)
        concerned = self._selecting(location.labels)
        for placement in concerned:
            self._matched[placement].discard(number)
        return self._keys(concerned)

    def _select_targets(self, number: int, location: Location) -> None:
        if location.instances is None:
            self._select_no_targets(number, location.key.cluster)
        else:
            self._inventory(location.key.cluster).selectors.put(number, location.instances)

    def _select_no_targets(self, number: int, cluster: str) -> None:
        """A workspace whose Locations select nothing, and that has no SyncTargets, has no inventory."""
        if cluster in self._inventories:
            self._inventories[cluster].selectors.remove(number)
            self._forget_empty(cluster)

    # --- targets ----------------------------------------------------------------------------------

    def put_target(self, target: Target) -> frozenset[Key]:
        before = self.target(target.key)
        if before == target:
            return NOBODY
        inventory = self._inventory(target.key.cluster)
        number = self._targets.put(target)
        inventory.targets.put(number, target.labels)
        new = inventory.selectors.matching(target.labels)
        if before is None:
            return self._keys(self._repair(new))
        if before.uid != target.uid or before.taints != target.taints:
            return self._keys(self._repair(new | inventory.selectors.matching(before.labels)))
        old = new if before.labels == target.labels else inventory.selectors.matching(before.labels)
        concerned = self._repair(old ^ new)
        staying = self._renew(old & new)
        if self._asking:
            concerned |= self._placements_at(staying) & self._asking
        return self._keys(concerned)

    def remove_target(self, key: Key) -> frozenset[Key]:
        found = self._targets.pop(key)
        if found is None:
            return NOBODY
        number, target = found
        inventory = self._inventories[key.cluster]
        inventory.targets.remove(number)
        concerned = self._repair(inventory.selectors.matching(target.labels))
        self._forget_empty(key.cluster)
        return self._keys(concerned)

    def _repair(self, locations: BitMap) -> BitMap:
        """These locations have other targets now: which placements care."""
        return self._placements_at(self._renew(locations))

    def _renew(self, locations: BitMap) -> BitMap:
        """Forget the pairs of these locations."""
        for number in locations:
            self._pairs[number] = None
        return locations

    def _placements_at(self, locations: BitMap) -> BitMap:
        if not self._matched or not locations:
            return BitMap()
        if len(locations) > FEW:
            return BitMap([number for number, matched in self._matched.items() if matched.intersect(locations)])
        found = [self._selectors.matching(self._locations[number].labels) for number in locations]
        return self._owning(BitMap.union(*found))

    # --- who is concerned -------------------------------------------------------------------------

    def _selecting(self, labels: Labels) -> BitMap:
        """Placements that select a location with such labels."""
        return self._owning(self._selectors.matching(labels))

    def _owning(self, selectors: BitMap) -> BitMap:
        owners = self._owners
        return BitMap([owners[selector] for selector in selectors])

    def _keys(self, placements: BitMap) -> frozenset[Key]:
        return frozenset([self._placements[number].key for number in placements])

    def _inventory(self, cluster: str) -> _Inventory:
        found = self._inventories.get(cluster)
        if found is None:
            found = self._inventories[cluster] = _Inventory()
        return found

    def _forget_empty(self, cluster: str) -> None:
        inventory = self._inventories[cluster]
        if not inventory.targets and not inventory.selectors:
            del self._inventories[cluster]

    # --- where a placement leads ------------------------------------------------------------------

    def resolve(self, key: Key, previous: Set[Destination] = frozenset()) -> Resolution:
        """`previous`: where it led before, which may matter to what can be chosen.  KeyError if there is no such
        placement."""
        number = self._placements.number(key)
        if number is None:
            raise KeyError(key)
        placement = self._placements[number]
        if placement.problem:
            return Resolution(problem=placement.problem)
        matched = self._matched[number]
        pairs = self._sorted_pairs(matched)
        if placement.number is None and placement.where is None and not matched.intersect(self._tainted):
            destinations = tuple(chain.from_iterable([one.destinations for one in pairs]))
            matching = len(matched)
            return Resolution(destinations, matching, matching - matched.intersection_cardinality(self._vacant))
        resolver = self._resolver(number, placement, previous)
        resolution = resolver.resolve(pairs)
        if placement.where is not None:
            self._known[number] = resolver.known
        return resolution

    def explain(self, key: Key, previous: Set[Destination] = frozenset()) -> Iterator[Explanation]:
        """What became of each Location, sorted; nothing if the placement has a problem.  KeyError if there is no such
        placement."""
        number = self._placements.number(key)
        if number is None:
            raise KeyError(key)
        placement = self._placements[number]
        if placement.problem:
            return iter(())
        return self._explained(number, placement, previous)

    def _explained(self, number: int, placement: Placement, previous: Set[Destination]) -> Iterator[Explanation]:
        matched = self._matched[number]
        resolver = self._resolver(number, placement, previous)
        explained = {one.location: one for one in resolver.explain(self._sorted_pairs(matched))}
        for key in sorted(self._locations[location].key for location in self._locations):
            found = explained.get(key)
            if found is None:
                location = self.location(key)
                assert location is not None
                found = Explanation(key, reason=fitness.mismatch(placement, location.labels))
            yield found

    def _resolver(self, number: int, placement: Placement, previous: Set[Destination]) -> Resolver:
        return Resolver(placement, previous, self._known.get(number, {}))

    def _sorted_pairs(self, locations: Iterable[int]) -> list[Pairs]:
        known = self._pairs
        found = [known[number] or self._pair(number) for number in locations]
        found.sort(key=attrgetter("order"))
        return found

    def _pair(self, number: int) -> Pairs:
        location = self._locations[number]
        targets: list[Target] = []
        if location.instances is not None:
            inventory = self._inventories[location.key.cluster]
            targets = [self._targets[target] for target in inventory.targets.select(location.instances)]
            if len(targets) > 1:
                targets.sort(key=attrgetter("key.name"))
        pairs = self._pairs[number] = Pairs(location, tuple(targets))
        _mark(self._tainted, number, pairs.tainted)
        _mark(self._vacant, number, not targets)
        return pairs


def _mark(numbers: BitMap, number: int, marked: bool) -> None:
    if marked:
        numbers.add(number)
    else:
        numbers.discard(number)
