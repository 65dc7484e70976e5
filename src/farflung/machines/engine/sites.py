"""Reservations, free capacity and an index of sites."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from typing import Final, TypeAlias, TypeVar

from msgspec.structs import asdict

from farflung.lib.groups import subtract_one
from farflung.machines.engine.values import Capacity, Reservation, ResourceClaim, Site, SiteKey, SiteSelector, SpotPool

K = TypeVar("K", bound=Hashable)
StackLabels: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]  #: tenant and labels
Order: TypeAlias = tuple[str, str, str]
NO_SITES: Final[frozenset[SiteKey]] = frozenset()


class SiteUsage:
    """The resources that all stacks on one site use."""

    __slots__ = ("eips", "flavors", "memory", "spot", "stack_labels", "stacks", "storage", "vcpus")

    def __init__(self) -> None:
        self.flavors: dict[str, int] = {}
        self.vcpus = 0
        self.memory = 0
        self.storage: dict[str, int] = {}
        self.eips = 0
        self.spot: dict[SpotPool, int] = {}
        self.stacks: dict[str, Reservation] = {}
        self.stack_labels: Counter[StackLabels] = Counter()  #: number of stacks per tenant and labels

    def add(self, claim: ResourceClaim, times: int = 1) -> None:
        """A negative `times` subtracts."""
        self.vcpus += claim.vcpus * times
        self.memory += claim.memory * times
        self.eips += claim.eips * times
        _add(self.flavors, claim.flavors, times)
        if claim.storage:
            _add(self.storage, claim.storage, times)
        if claim.spot:
            _add(self.spot, claim.spot, times)

    def plus(self, claim: ResourceClaim, times: int) -> SiteUsage:
        """A copy with more usage, without the stacks."""
        usage = SiteUsage()
        usage.flavors, usage.storage, usage.spot = dict(self.flavors), dict(self.storage), dict(self.spot)
        usage.vcpus, usage.memory, usage.eips = self.vcpus, self.memory, self.eips
        usage.add(claim, times)
        return usage

    def enter(self, reservation: Reservation) -> None:
        self.stacks[reservation.uid] = reservation
        self.stack_labels[reservation.tenant, reservation.labels] += 1
        self.add(reservation.claim)

    def leave(self, reservation: Reservation) -> None:
        del self.stacks[reservation.uid]
        self.add(reservation.claim, -1)
        labels_of_tenant = reservation.tenant, reservation.labels
        subtract_one(self.stack_labels, labels_of_tenant)


def _add(totals: dict[K, int], amounts: tuple[tuple[K, int], ...], times: int) -> None:
    for key, amount in amounts:
        total = totals.get(key, 0) + amount * times
        if total:
            totals[key] = total
        else:
            totals.pop(key, None)


class ReservationLedger:
    """Reservations by uid and by site key; the site need not exist."""

    def __init__(self) -> None:
        self._held: dict[str, Reservation] = {}
        self._usage: dict[SiteKey, SiteUsage] = {}

    def get(self, uid: str) -> Reservation | None:
        return self._held.get(uid)

    def reservations(self) -> list[Reservation]:
        return list(self._held.values())

    def usage(self, key: SiteKey) -> SiteUsage:
        """Read-only; get it again after each change."""
        return self._usage.get(key) or SiteUsage()

    def reserve(self, reservation: Reservation) -> Reservation | None:
        """Replace and return the former reservation of its uid."""
        before = self._held.get(reservation.uid)
        if before == reservation:
            return before
        self.release(reservation.uid)
        self._held[reservation.uid] = reservation
        usage = self._usage.get(reservation.site)
        if usage is None:
            usage = self._usage[reservation.site] = SiteUsage()
        usage.enter(reservation)
        return before

    def release(self, uid: str) -> Reservation | None:
        reservation = self._held.pop(uid, None)
        if reservation is not None:
            usage = self._usage[reservation.site]
            usage.leave(reservation)
            if not usage.stacks:
                del self._usage[reservation.site]
        return reservation


class SiteState:
    """An immutable snapshot of a site and its usage; each change makes a new version.

    Free amounts are never negative, even if a site is overcommitted.  None: no limit.
    """

    __slots__ = ("eips", "memory", "memory_used", "order", "site", "usage", "vcpus", "vcpus_used", "version")

    def __init__(self, site: Site, usage: SiteUsage, version: int = 0) -> None:
        capacity, elsewhere = site.capacity, site.used_elsewhere
        self.site = site
        self.usage = usage
        self.version = version
        #: breaks ties by name
        self.order: Order = (site.key.name, site.key.namespace, site.key.cluster)
        self.vcpus_used = usage.vcpus + max(0, elsewhere.get("vcpus", 0))
        self.memory_used = usage.memory + max(0, elsewhere.get("memory", 0))
        self.vcpus = _remaining(capacity.vcpus, self.vcpus_used)
        self.memory = _remaining(capacity.memory, self.memory_used)
        self.eips = _remaining(capacity.eips, usage.eips)

    def flavor(self, flavor: str) -> int:
        return max(0, self.site.capacity.flavors.get(flavor, 0) - self.usage.flavors.get(flavor, 0))

    def storage(self, kind: str) -> int:
        return max(0, self.site.capacity.storage.get(kind, 0) - self.usage.storage.get(kind, 0))

    def free(self) -> Capacity:
        capacity = self.site.capacity
        return Capacity(
            {flavor: self.flavor(flavor) for flavor in capacity.flavors},
            self.vcpus,
            self.memory,
            {kind: self.storage(kind) for kind in capacity.storage},
            self.eips,
            capacity.spot,
        )


def _remaining(total: int | None, used: int) -> int | None:
    return None if total is None else max(0, total - used)


class SiteIndex:
    def __init__(self) -> None:
        self._sites: dict[tuple[str, str], set[SiteKey]] = {}  #: (attribute, value) → sites
        self._prices: list[float] = []  #: sorted

    def add(self, site: Site) -> None:
        for place in _index_keys(site):
            self._sites.setdefault(place, set()).add(site.key)
        if (price := price_of(site)) is not None:
            insort(self._prices, price)

    def remove(self, site: Site) -> None:
        for place in _index_keys(site):
            there = self._sites[place]
            there.discard(site.key)
            if not there:
                del self._sites[place]
        if (price := price_of(site)) is not None:
            del self._prices[bisect_left(self._prices, price)]

    @property
    def cheapest(self) -> float | None:
        return self._prices[0] if self._prices else None

    def possible(self, selector: SiteSelector, filters: Collection[str]) -> Collection[SiteKey] | None:
        """A superset of the sites that pass the filters; None: all sites."""
        found = [self._at("site", selector.site)] if selector.site else []
        if "regionandaz" in filters and selector.regions and all(choice.region for choice in selector.regions):
            found.append(NO_SITES.union(*(self._at("region", choice.region) for choice in selector.regions)))
        if "LocationAndOperator" in filters:
            choices = {**asdict(selector.geo), "operator": selector.operator}
            found += [self._at(what, value) for what, value in choices.items() if value]
        return min(found, key=len, default=None)

    def _at(self, what: str, value: str) -> Collection[SiteKey]:
        return self._sites.get((what, value), NO_SITES)


def price_of(site: Site) -> float | None:
    return site.price if site.price is not None and math.isfinite(site.price) else None


def _index_keys(site: Site) -> Iterator[tuple[str, str]]:
    yield "region", site.region
    yield "operator", site.operator
    yield from asdict(site.geo).items()
    for name in {site.key.name, str(site.key), f"{site.region}--{site.zone}", f"{site.region}--"}:
        yield "site", name
