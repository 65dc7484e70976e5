"""Which sites will do for a request by what they are; what they have left is up to room.py.

Each filter looks at the request once, and gives a check for sites: a short reason why a site will not do, or nothing.
No check at all: it has nothing against any site.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from farflung.scheduling.claims import Combination
from farflung.scheduling.fit import shortened
from farflung.scheduling.sites import Standing, Usage
from farflung.scheduling.values import (
    UNSCHEDULABLE,
    Claim,
    Health,
    Point,
    RegionWish,
    Selector,
    Site,
    SiteKey,
    selector_of,
    untolerated,
)

Check: TypeAlias = Callable[[Site], str]
REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
EARTH_RADIUS: Final = 6371.0  #: km
HALFWAY: Final = 500.0  #: km at which a site is worth half of one that is there
MEMORY, VCPUS, STORAGE, EIPS = 10, 10, 5, 1  #: weights of what is left

OfSite: TypeAlias = Callable[[Site], float]
OfStacks: TypeAlias = Callable[[Usage], float]
OfRoom: TypeAlias = Callable[[Standing, Combination], float]


@dataclass(frozen=True, slots=True)
class Asked:
    """What matters of a request, when sites are looked at, apart from what it takes of them."""

    selector: Selector = field(default_factory=Selector)
    tenant: str = ""
    current: frozenset[SiteKey] = frozenset()


Filter: TypeAlias = Callable[[Asked], Check | None]


def availability(asked: Asked) -> Check | None:
    reasons = {
        Health.SELLOUT: "sold out",
        Health.OFFLINE: "not ready",
        Health.DOWN: "not ready",
        Health.UNREACHABLE: "not ready",
    }
    return lambda site: reasons.get(site.health, "")


def staying(asked: Asked) -> Check | None:
    return lambda site: "being deleted" if site.leaving else ""


def named(asked: Asked) -> Check | None:
    wish = asked.selector.site
    if not wish:
        return None

    def check(site: Site) -> str:
        zone = f"{site.region}--{site.zone}"
        is_it = wish in (site.key.name, str(site.key), zone) or (wish == f"{site.region}--" and site.region)
        return "" if is_it else "not the one asked for"

    return check


def location_and_operator(asked: Asked) -> Check | None:
    wishes = [(index, name) for index, name in enumerate(asked.selector.geo._fields) if asked.selector.geo[index]]
    geo, operator = asked.selector.geo, asked.selector.operator
    if not wishes and not operator:
        return None

    def check(site: Site) -> str:
        for index, name in wishes:
            if site.geo[index] != geo[index]:
                return f"wrong {name}"
        return "wrong operator" if operator and site.operator != operator else ""

    return check


def region_and_zone(asked: Asked) -> Check | None:
    if not asked.selector.regions:
        return None
    zones: dict[str, frozenset[str] | None] = {}  #: region → what will do there; None: all
    for wish in asked.selector.regions:
        zones[wish.region] = _either(zones.get(wish.region, frozenset()), wish)
    anywhere = zones.get("", frozenset())

    def check(site: Site) -> str:
        there = zones.get(site.region, frozenset())
        if there is None or anywhere is None or site.zone in there or site.zone in anywhere:
            return ""
        return "wrong zone" if there or anywhere else "wrong region"

    return check


def _either(zones: frozenset[str] | None, wish: RegionWish) -> frozenset[str] | None:
    return None if zones is None or not wish.zones else zones.union(wish.zones)


def exclusive_site(asked: Asked) -> Check | None:
    tenant = asked.tenant
    return lambda site: "kept for other tenants" if site.tenants and tenant not in site.tenants else ""


def filter_taints(asked: Asked) -> Check | None:
    tolerations = asked.selector.tolerations

    def check(site: Site) -> str:
        for taint in untolerated(site.taints, tolerations, REPELLING) if site.taints else ():
            is_closed = taint.key == UNSCHEDULABLE.key
            return "unschedulable" if is_closed else f"taint {shortened(taint.key)} not tolerated"
        return ""

    return check


def cluster_affinity(asked: Asked) -> Check | None:
    if not asked.selector.required:
        return None
    selector = selector_of(asked.selector.required)
    return lambda site: "" if selector.matches(site.labels) else "wrong labels"


#: what policy files turn on by naming it
CHOSEN: Final[Mapping[str, Filter]] = {
    "SiteAvailability": availability,
    "LocationAndOperator": location_and_operator,
    "regionandaz": region_and_zone,
}
#: what always holds: files may name these as well, but the original has no input for them that they could turn off
ALWAYS: Final[Mapping[str, Filter]] = {
    "ExclusiveSite": exclusive_site,
    "TaintToleration": filter_taints,
    "ClusterAffinity": cluster_affinity,
}
#: room.py, which always holds too: what a stack takes must be there
ABOUT_ROOM: Final = frozenset({"Flavor", "Volume", "EipAvailability", "SiteResourcesFit"})


def checks_for(asked: Asked, names: tuple[str, ...]) -> list[Check]:
    """In the order in which the policy names them."""
    filters: list[Filter] = [staying, named]
    filters += [CHOSEN.get(name) or ALWAYS[name] for name in names if name not in ABOUT_ROOM]
    filters += [one for name, one in ALWAYS.items() if name not in names]
    return [check for one in filters if (check := one(asked)) is not None]


# --- what a site is -------------------------------------------------------------------------------


def price(asked: Asked, cheapest: float | None) -> OfSite | None:
    """100 for the cheapest of all, 50 for one that is twice as dear, 0 if nobody has said."""
    if cheapest is None:
        return None

    def score(site: Site) -> float:
        if site.price is None or not math.isfinite(site.price):
            return 0.0
        return 100.0 if site.price <= 0 else 100.0 * max(0.0, cheapest) / site.price

    return score


def steady(asked: Asked, cheapest: float | None) -> OfSite | None:
    """100 where a replica is already."""
    if not asked.current:
        return None
    return lambda site: 100.0 if site.key in asked.current else 0.0


def distance(asked: Asked, cheapest: float | None) -> OfSite | None:
    """100 at the place that is asked for, 50 at 500 km, 33 at 1000 km; 0 if nobody knows where a site is."""
    near = asked.selector.near
    if near is None or not _is_place(near):
        return None

    def score(site: Site) -> float:
        if site.point is None or not _is_place(site.point):
            return 0.0
        return 100.0 / (1.0 + kilometres(near, site.point) / HALFWAY)

    return score


def preferred_affinity(asked: Asked, cheapest: float | None) -> OfSite | None:
    """The share of preferences that its labels meet, by weight."""
    preferred = [(max(0, one.weight), selector_of(one.requirements)) for one in asked.selector.preferred]
    total = sum(weight for weight, _ in preferred)
    if not total:
        return None
    return lambda site: 100.0 * sum(weight for weight, one in preferred if one.matches(site.labels)) / total


def score_taints(asked: Asked, cheapest: float | None) -> OfSite | None:
    """100 without taints that say PreferNoSchedule and are not tolerated, 50 with one, 33 with two."""
    tolerations = asked.selector.tolerations
    effects = frozenset({"PreferNoSchedule"})
    return lambda site: 100.0 / (1 + len(untolerated(site.taints, tolerations, effects))) if site.taints else 100.0


def kilometres(one: Point, other: Point) -> float:
    """Along a great circle, by the haversine formula."""
    latitude, other_latitude = math.radians(one.latitude), math.radians(other.latitude)
    half_chord = (
        math.sin((other_latitude - latitude) / 2) ** 2
        + math.cos(latitude)
        * math.cos(other_latitude)
        * math.sin(math.radians(other.longitude - one.longitude) / 2) ** 2
    )
    return 2 * EARTH_RADIUS * math.asin(math.sqrt(min(1.0, half_chord)))


def _is_place(point: Point) -> bool:
    return abs(point.latitude) <= 90 and abs(point.longitude) <= 360


# --- the stacks that are there --------------------------------------------------------------------


def stack_affinity(asked: Asked) -> OfStacks | float:
    """Half of it if a stack is there that meets the affinity, half of it if none is there that meets the antiaffinity.

    Stacks of other tenants do not count: nobody learns of them.  A number: it is the same for all sites.
    """
    wanted, unwanted = selector_of(asked.selector.affinity), selector_of(asked.selector.antiaffinity)
    if not wanted and not unwanted:
        return 50.0

    def score(usage: Usage) -> float:
        kin = [dict(labels) for tenant, labels in usage.kin if tenant == asked.tenant]
        attracted = bool(wanted) and any(wanted.matches(labels) for labels in kin)
        repelled = bool(unwanted) and any(unwanted.matches(labels) for labels in kin)
        return 50.0 * attracted + 50.0 * (not repelled)

    return score


# --- what a site has left -------------------------------------------------------------------------


def flavor(standing: Standing, combination: Combination) -> float:
    return combination.liking


def least_allocated(standing: Standing, combination: Combination) -> float:
    """How much is left of memory, vcpus, storage and public addresses, by the weights 10, 10, 5 and 1.

    What nobody has counted, or the stack does not take, is left out; for vcpus and memory the share of the flavor that
    is left stands in.
    """
    claim, capacity, usage = combination.claim, standing.site.capacity, standing.usage
    weights = by_flavor = 0
    total = 0.0
    if claim.memory and capacity.memory is not None:
        weights += MEMORY
        total += MEMORY * _left_share(capacity.memory, standing.memory_used + claim.memory)
    else:
        by_flavor += MEMORY
    if claim.vcpus and capacity.vcpus is not None:
        weights += VCPUS
        total += VCPUS * _left_share(capacity.vcpus, standing.vcpus_used + claim.vcpus)
    else:
        by_flavor += VCPUS
    if by_flavor and claim.flavors:
        weights += by_flavor
        total += by_flavor * _left_of_flavors(standing, claim)
    if claim.storage:
        weights += STORAGE
        offered = sum(capacity.storage.get(kind, 0) for kind, _ in claim.storage)
        total += STORAGE * _left_share(offered, sum(usage.storage.get(kind, 0) + size for kind, size in claim.storage))
    if claim.eips and capacity.eips is not None:
        weights += EIPS
        total += EIPS * _left_share(capacity.eips, usage.eips + claim.eips)
    return 100.0 * total / weights if weights else 0.0


def most_allocated(standing: Standing, combination: Combination) -> float:
    return 100.0 - least_allocated(standing, combination)


def volume(standing: Standing, combination: Combination) -> float:
    """How much is left of all storage."""
    used = sum(standing.usage.storage.values()) + sum(size for _, size in combination.claim.storage)
    return 100.0 * _left_share(sum(standing.site.capacity.storage.values()), used)


def _left_of_flavors(standing: Standing, claim: Claim) -> float:
    offered, used = standing.site.capacity.flavors, standing.usage.flavors
    return min(_left_share(offered.get(id, 0), used.get(id, 0) + number) for id, number in claim.flavors)


def _left_share(total: int, used: int) -> float:
    """The share of it."""
    return (total - used) / total if 0 <= used < total else 0.0


OF_SITES: Final[Mapping[str, Callable[[Asked, float | None], OfSite | None]]] = {
    "Price": price,
    "Steady": steady,
    "Distance": distance,
    "PreferredAffinity": preferred_affinity,
    "TaintToleration": score_taints,
}
OF_STACKS: Final[Mapping[str, Callable[[Asked], OfStacks | float]]] = {"StackAffinity": stack_affinity}
OF_ROOM: Final[Mapping[str, OfRoom]] = {
    "Flavor": flavor,
    "SiteResourcesLeastAllocated": least_allocated,
    "SiteResourcesMostAllocated": most_allocated,
    "Volume": volume,
}
