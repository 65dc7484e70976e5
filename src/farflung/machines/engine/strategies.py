"""Strategies that distribute replicas over sites.

A strategy gets the capacity of each site in replicas, the best site first, and places all replicas or none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias, TypeVar

from farflung.machines.engine.values import LocalStrategy

K = TypeVar("K", bound=Hashable)
Capacities: TypeAlias = Sequence[tuple[K, int]]  #: (site, replicas), the best site first; all positive
Shares: TypeAlias = list[tuple[K, int]]  #: the best site first


class ClusterBounds(NamedTuple):
    """Limits of the number of clusters."""

    least: int = 0
    most: int = 0  #: 0: any

    def most_of(self, sites: int, replicas: int) -> int:
        return min(sites, replicas, self.most or replicas)


ANY_NUMBER: Final = ClusterBounds()


def divide(
    strategy: LocalStrategy, sites: Capacities[K], replicas: int, bounds: ClusterBounds = ANY_NUMBER
) -> Shares[K]:
    """Empty if not all replicas can be placed."""
    most = bounds.most_of(len(sites), replicas)
    if replicas < 1 or most < max(1, bounds.least) or placeable(sites, replicas, bounds) < replicas:
        return []
    return STRATEGIES[strategy](sites, replicas, max(1, bounds.least), most)


def placeable(sites: Capacities[K], replicas: int, bounds: ClusterBounds = ANY_NUMBER) -> int:
    """How many of the replicas can be placed."""
    most = bounds.most_of(len(sites), replicas)
    if most < bounds.least:
        return 0
    return min(replicas, sum(sorted((capacity for _, capacity in sites), reverse=True)[:most]))


def group_by_region(sites: Iterable[tuple[K, str, int]]) -> list[list[tuple[K, int]]]:
    """Sites by region; the region with the largest capacity first, then the one with the best site."""
    regions: dict[str, list[tuple[K, int]]] = {}
    for key, region, capacity in sites:
        regions.setdefault(region, []).append((key, capacity))
    return sorted(regions.values(), key=lambda ones: -sum(capacity for _, capacity in ones))


# --- the strategies -------------------------------------------------------------------------------


def _centralize(sites: Capacities[K], replicas: int, least: int, most: int) -> Shares[K]:
    """Fill as few sites as possible, the best ones first."""
    largest = sorted((capacity for _, capacity in sites), reverse=True)
    fewest = next(number for number, total in enumerate(accumulate(largest), 1) if total >= replicas)
    shares = []
    chosen = _best(sites, replicas, max(fewest, least))
    for number, (key, capacity) in enumerate(chosen, 1):
        share = min(capacity, replicas - (len(chosen) - number))
        replicas -= share
        shares.append((key, share))
    return shares


def _discrete(sites: Capacities[K], replicas: int, least: int, most: int) -> Shares[K]:
    """In proportion to capacity, over the best sites that cover all replicas; by largest remainders."""
    allowed = sites if most >= min(len(sites), replicas) else _best(sites, replicas, most)
    total = sum(capacity for _, capacity in allowed)
    chosen: list[tuple[K, int]] = []
    covered = 0
    for key, capacity in allowed:
        if covered >= replicas and len(chosen) >= least:
            break
        covered += min(capacity, max(1, (2 * replicas * capacity + total) // (2 * total)))
        chosen.append((key, capacity))
    return _in_proportion(chosen, replicas)


def _spread(sites: Capacities[K], replicas: int, least: int, most: int) -> Shares[K]:
    """As evenly as possible over as many sites as possible; the best sites get the rest."""
    chosen = _best(sites, replicas, most)

    def filled(level: int) -> int:
        return sum(min(capacity, level) for _, capacity in chosen)

    level = bisect_right(range(replicas + 1), replicas, key=filled) - 1
    left_over = replicas - filled(level)
    shares = []
    for key, capacity in chosen:
        more = 1 if left_over and capacity > level else 0
        shares.append((key, min(capacity, level) + more))
        left_over -= more
    return shares


STRATEGIES: Final[Mapping[LocalStrategy, Callable[[Capacities[K], int, int, int], Shares[K]]]] = {
    LocalStrategy.CENTRALIZE: _centralize,
    LocalStrategy.DISCRETE: _discrete,
    LocalStrategy.SPREAD: _spread,
}


def _best(sites: Capacities[K], replicas: int, number: int) -> Shares[K]:
    """`number` sites that fit all replicas: the lexicographically best set.

    A site is skipped if even the largest other sites would not suffice next to it.
    """
    first = list(sites[:number])
    if sum(capacity for _, capacity in first) >= replicas:
        return first
    rest = sorted((capacity for _, capacity in sites), reverse=True)
    chosen: list[tuple[K, int]] = []
    largest = sum(rest[:number])
    for key, capacity in sites:
        # the largest total with this site: it is among the largest, or replaces the smallest of them
        smallest = rest[number - 1]
        if largest - smallest + min(capacity, smallest) >= replicas:
            chosen.append((key, capacity))
            rest.remove(capacity)
            replicas, number = replicas - capacity, number - 1
            if not number:
                break
            largest = sum(rest[:number])
    return chosen


def _in_proportion(sites: Capacities[K], replicas: int) -> Shares[K]:
    """By largest remainders, at least one per site."""
    one_each: set[K] = set()
    while True:
        larger = [(key, capacity) for key, capacity in sites if key not in one_each]
        number = replicas - len(one_each)
        total = sum(capacity for _, capacity in larger)
        smaller = {key for key, capacity in larger if number * capacity < total}
        if not smaller:
            break
        one_each |= smaller
    shares = {key: number * capacity // total for key, capacity in larger}
    by_remainder = sorted(larger, key=lambda site: -(number * site[1] % total))
    for key, _ in by_remainder[: number - sum(shares.values())]:
        shares[key] += 1
    return [(key, shares.get(key, 1)) for key, _ in sites]
