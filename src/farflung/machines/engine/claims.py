"""The resources that a stack uses, depending on the flavors of its items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, nsmallest
from typing import Final, NamedTuple

from farflung.machines.engine.values import Flavor, FlavorChoice, Item, ResourceClaim, Spot, SpotPool

MAX_COMBINATIONS: Final = 256  #: combinations of flavors that are tried
MAX_ITEMS: Final = 2048  #: over all combinations: large stacks try fewer
FIRST_CHOICE_WEIGHT: Final = 10  #: weight of an item's first flavor; the next ones have 5, 3, 2, 2, 1, …


class FlavorCombination(NamedTuple):
    """One flavor for each item of a stack."""

    flavors: tuple[str, ...]
    claim: ResourceClaim
    preference: float  #: 0 to 100; 100 is the first choice for each item
    max_price: float = 0.0  #: of spot machines; 0: any


@dataclass(frozen=True, slots=True, eq=False)
class ResourceNeed:
    """What the items of a request use."""

    combinations: tuple[FlavorCombination, ...]  #: the preferred first
    storage: tuple[tuple[str, int], ...]
    eips: int

    @property
    def beside_flavors(self) -> bool:
        return bool(self.storage or self.eips)


def compute_need(items: Sequence[Item], catalogue: Mapping[str, Flavor]) -> ResourceNeed:
    return ResourceNeed(tuple(_combinations(items, catalogue)), _storage(items), _eips(items))


def compute_claim(items: Sequence[Item], flavors: Sequence[str], catalogue: Mapping[str, Flavor]) -> ResourceClaim:
    """The resources of a stack with these flavors, one per item.

    A flavor that its item does not list is not a spot machine.  Unknown flavors use neither vcpus nor memory.
    """
    choices = []
    for item, flavor in zip(items, flavors, strict=False):
        choices.append(next((choice for choice in item.flavors if choice.id == flavor), FlavorChoice(flavor)))
    return _claim(items, choices, catalogue)


def recount(claim: ResourceClaim, catalogue: Mapping[str, Flavor]) -> ResourceClaim:
    """The claim with the sizes of this catalogue."""
    vcpus, memory = _size(claim.flavors, catalogue)
    return claim if (vcpus, memory) == (claim.vcpus, claim.memory) else claim._replace(vcpus=vcpus, memory=memory)


def spot_pool(flavor: str, spot: Spot) -> SpotPool:
    return SpotPool(flavor, spot.policy == "delay", spot.hours * max(1, spot.periods) if spot.hours > 0 else 0)


def _claim(items: Sequence[Item], choices: Sequence[FlavorChoice], catalogue: Mapping[str, Flavor]) -> ResourceClaim:
    flavors: Counter[str] = Counter()
    pools: Counter[SpotPool] = Counter()
    for item, choice in zip(items, choices, strict=False):
        number = _number(item)
        if choice.spot is not None:
            pools[spot_pool(choice.id, choice.spot)] += number
        else:
            flavors[choice.id] += number
    named = tuple(sorted(flavors.items()))
    return ResourceClaim(named, *_size(named, catalogue), _storage(items), _eips(items), tuple(sorted(pools.items())))


def _size(flavors: Iterable[tuple[str, int]], catalogue: Mapping[str, Flavor]) -> tuple[int, int]:
    """Virtual CPUs and memory."""
    vcpus = memory = 0
    for flavor, number in flavors:
        if known := catalogue.get(flavor):
            vcpus += max(0, known.vcpus) * number
            memory += max(0, known.memory) * number
    return vcpus, memory


def _number(item: Item) -> int:
    return max(1, item.number)


def _storage(items: Sequence[Item]) -> tuple[tuple[str, int], ...]:
    needed: Counter[str] = Counter()
    for item in items:
        for kind, size in item.storage:
            needed[kind] += max(0, size) * _number(item)
    return tuple(sorted((kind, size) for kind, size in needed.items() if size > 0))


def _eips(items: Sequence[Item]) -> int:
    return sum(_number(item) for item in items if item.eip)


def _combinations(items: Sequence[Item], catalogue: Mapping[str, Flavor]) -> Iterator[FlavorCombination]:
    """By preference; earlier items keep their first choice longer."""
    if not items or not all(item.flavors for item in items):
        return
    for weight, indexes in _best_first([len(item.flavors) for item in items]):
        choices = [item.flavors[index] for item, index in zip(items, indexes, strict=True)]
        claim = _claim(items, choices, catalogue)
        preference = 100.0 * weight / (FIRST_CHOICE_WEIGHT * len(items))
        yield FlavorCombination(tuple(choice.id for choice in choices), claim, preference, _max_price(choices))


def _max_price(choices: Sequence[FlavorChoice]) -> float:
    return min((choice.spot.max_price for choice in choices if choice.spot and choice.spot.max_price > 0), default=0.0)


def _best_first(lengths: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The best index combinations with their weights, found without enumerating all.

    Each combination but the first derives from a better one, whose last nonzero index is one less.
    """
    heap: list[tuple[int, tuple[int, ...], int]] = [(-FIRST_CHOICE_WEIGHT * len(lengths), (0,) * len(lengths), 0)]
    for _ in range(min(MAX_COMBINATIONS, MAX_ITEMS // len(lengths))):
        if not heap:
            return
        minus_weight, indexes, last = heappop(heap)
        yield -minus_weight, indexes
        for place in range(last, len(lengths)):
            index = indexes[place]
            if index + 1 < lengths[place]:
                loss = FIRST_CHOICE_WEIGHT // (index + 1) - FIRST_CHOICE_WEIGHT // (index + 2)
                more = (*indexes[:place], index + 1, *indexes[place + 1 :])
                heappush(heap, (minus_weight + loss, more, place))
        if len(heap) > 4 * MAX_COMBINATIONS:
            heap = nsmallest(MAX_COMBINATIONS, heap)
            heapify(heap)
