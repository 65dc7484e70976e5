"""What a stack takes of the site that it lands in, depending on the flavor that each of its items gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, nsmallest
from typing import Final, NamedTuple

from farflung.scheduling.values import Claim, Flavor, FlavorWish, Item, Spot, SpotPool

MOST_COMBINATIONS: Final = 256  #: of flavors that are tried, the best liked ones
MOST_ITEMS: Final = 2048  #: in all combinations, of which each site is asked for each: fewer are tried of large stacks
LIKED_MOST: Final = 10  #: the weight of the first flavor of an item; the next ones have 5, 3, 2, 2, 1, …


class Combination(NamedTuple):
    """One flavor for each item of a stack."""

    flavors: tuple[str, ...]
    claim: Claim
    liking: float  #: 0 to 100, which is the first choice for each item
    max_price: float = 0.0  #: of spot machines; 0: any


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """What the items of a request take, whichever the request is."""

    combinations: tuple[Combination, ...]  #: the best liked first
    storage: tuple[tuple[str, int], ...]
    eips: int

    @property
    def beside_flavors(self) -> bool:
        return bool(self.storage or self.eips)


def need_of(items: Sequence[Item], catalogue: Mapping[str, Flavor]) -> Need:
    return Need(tuple(_combinations(items, catalogue)), _storage(items), _eips(items))


def claim_of(items: Sequence[Item], flavors: Sequence[str], catalogue: Mapping[str, Flavor]) -> Claim:
    """What a stack takes that got these flavors, one for each item.

    A flavor that its item does not wish for (any longer) is taken as it is, not as a spot machine.  What the catalogue
    does not know takes neither vcpus nor memory.
    """
    wishes = []
    for item, flavor in zip(items, flavors, strict=False):
        wishes.append(next((wish for wish in item.flavors if wish.id == flavor), FlavorWish(flavor)))
    return _claim(items, wishes, catalogue)


def recounted(claim: Claim, catalogue: Mapping[str, Flavor]) -> Claim:
    """The same, as it would be counted with this catalogue."""
    vcpus, memory = _size(claim.flavors, catalogue)
    return claim if (vcpus, memory) == (claim.vcpus, claim.memory) else claim._replace(vcpus=vcpus, memory=memory)


def pool_of(flavor: str, spot: Spot) -> SpotPool:
    return SpotPool(flavor, spot.policy == "delay", spot.hours * max(1, spot.periods) if spot.hours > 0 else 0)


def _claim(items: Sequence[Item], wishes: Sequence[FlavorWish], catalogue: Mapping[str, Flavor]) -> Claim:
    flavors: Counter[str] = Counter()
    pools: Counter[SpotPool] = Counter()
    for item, wish in zip(items, wishes, strict=False):
        number = _number(item)
        if wish.spot is not None:
            pools[pool_of(wish.id, wish.spot)] += number
        else:
            flavors[wish.id] += number
    named = tuple(sorted(flavors.items()))
    return Claim(named, *_size(named, catalogue), _storage(items), _eips(items), tuple(sorted(pools.items())))


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


def _combinations(items: Sequence[Item], catalogue: Mapping[str, Flavor]) -> Iterator[Combination]:
    """By how they are liked, then the first items keep their first choice longest."""
    if not items or not all(item.flavors for item in items):
        return
    for weight, indexes in _best_first([len(item.flavors) for item in items]):
        wishes = [item.flavors[index] for item, index in zip(items, indexes, strict=True)]
        claim = _claim(items, wishes, catalogue)
        liking = 100.0 * weight / (LIKED_MOST * len(items))
        yield Combination(tuple(wish.id for wish in wishes), claim, liking, _max_price(wishes))


def _max_price(wishes: Sequence[FlavorWish]) -> float:
    return min((wish.spot.max_price for wish in wishes if wish.spot and wish.spot.max_price > 0), default=0.0)


def _best_first(lengths: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The best ones of all products of indexes with their weights, without looking at most of the others.

    Each but the first comes from one that is better: the last index that is not 0 is one less there.
    """
    heap: list[tuple[int, tuple[int, ...], int]] = [(-LIKED_MOST * len(lengths), (0,) * len(lengths), 0)]
    for _ in range(min(MOST_COMBINATIONS, MOST_ITEMS // len(lengths))):
        if not heap:
            return
        minus_weight, indexes, last = heappop(heap)
        yield -minus_weight, indexes
        for place in range(last, len(lengths)):
            index = indexes[place]
            if index + 1 < lengths[place]:
                loss = LIKED_MOST // (index + 1) - LIKED_MOST // (index + 2)
                more = (*indexes[:place], index + 1, *indexes[place + 1 :])
                heappush(heap, (minus_weight + loss, more, place))
        if len(heap) > 4 * MOST_COMBINATIONS:
            heap = nsmallest(MOST_COMBINATIONS, heap)
            heapify(heap)
