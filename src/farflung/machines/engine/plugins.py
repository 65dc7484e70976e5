"""Filters and scorers of sites.

A filter reads the criteria once and returns a check, which returns a short refusal or an empty text; None: no check is
needed.  A scorer gives 0 to 100.  Site scorers use the site, fit scorers its free capacity after placing the stack, and
StackAffinity the stacks on the site.  A scorer without input is inactive.  Capacity itself is checked in fit.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from msgspec.structs import asdict

from farflung.machines.engine.claims import FlavorCombination
from farflung.machines.engine.fit import shortened
from farflung.machines.engine.sites import SiteState, SiteUsage
from farflung.machines.engine.values import (
    UNSCHEDULABLE,
    Health,
    Point,
    RegionChoice,
    ResourceClaim,
    Site,
    SiteKey,
    SiteSelector,
    find_untolerated,
    label_selector,
)

Check: TypeAlias = Callable[[Site], str]
REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
EARTH_RADIUS: Final = 6371.0  #: km
HALFWAY: Final = 500.0  #: km at which the score is 50
MEMORY, VCPUS, STORAGE, EIPS = 10, 10, 5, 1  #: weights of free shares

SiteScorer: TypeAlias = Callable[[Site], float]
StackScorer: TypeAlias = Callable[[SiteUsage], float]
FitScorer: TypeAlias = Callable[[SiteState, FlavorCombination], float]


@dataclass(frozen=True, slots=True)
class Criteria:
    """The parts of a request that filters and scorers use."""

    selector: SiteSelector = field(default_factory=SiteSelector)
    tenant: str = ""
    current: frozenset[SiteKey] = frozenset()


Filter: TypeAlias = Callable[[Criteria], Check | None]


def filter_availability(criteria: Criteria) -> Check | None:
    reasons = {
        Health.SELLOUT: "sold out",
        Health.OFFLINE: "not ready",
        Health.DOWN: "not ready",
        Health.UNREACHABLE: "not ready",
    }
    return lambda site: reasons.get(site.health, "")


def filter_terminating(criteria: Criteria) -> Check | None:
    return lambda site: "being deleted" if site.leaving else ""


def filter_name(criteria: Criteria) -> Check | None:
    choice = criteria.selector.site
    if not choice:
        return None

    def check(site: Site) -> str:
        zone = f"{site.region}--{site.zone}"
        is_it = choice in (site.key.name, str(site.key), zone) or (choice == f"{site.region}--" and site.region)
        return "" if is_it else "not the one asked for"

    return check


def filter_location_and_operator(criteria: Criteria) -> Check | None:
    choices = [(name, wanted) for name, wanted in asdict(criteria.selector.geo).items() if wanted]
    operator = criteria.selector.operator
    if not choices and not operator:
        return None

    def check(site: Site) -> str:
        for name, wanted in choices:
            if getattr(site.geo, name) != wanted:
                return f"wrong {name}"
        return "wrong operator" if operator and site.operator != operator else ""

    return check


def filter_region_and_zone(criteria: Criteria) -> Check | None:
    if not criteria.selector.regions:
        return None
    zones: dict[str, frozenset[str] | None] = {}  #: region → zones; None: all
    for choice in criteria.selector.regions:
        zones[choice.region] = _add_zones(zones.get(choice.region, frozenset()), choice)
    anywhere = zones.get("", frozenset())

    def check(site: Site) -> str:
        there = zones.get(site.region, frozenset())
        if there is None or anywhere is None or site.zone in there or site.zone in anywhere:
            return ""
        return "wrong zone" if there or anywhere else "wrong region"

    return check


def _add_zones(zones: frozenset[str] | None, choice: RegionChoice) -> frozenset[str] | None:
    return None if zones is None or not choice.zones else zones.union(choice.zones)


def filter_tenant(criteria: Criteria) -> Check | None:
    tenant = criteria.tenant
    return lambda site: "kept for other tenants" if site.tenants and tenant not in site.tenants else ""


def filter_taints(criteria: Criteria) -> Check | None:
    tolerations = criteria.selector.tolerations

    def check(site: Site) -> str:
        for taint in find_untolerated(site.taints, tolerations, REPELLING) if site.taints else ():
            is_closed = taint.key == UNSCHEDULABLE.key
            return "unschedulable" if is_closed else f"taint {shortened(taint.key)} not tolerated"
        return ""

    return check


def filter_labels(criteria: Criteria) -> Check | None:
    if not criteria.selector.required:
        return None
    selector = label_selector(criteria.selector.required)
    return lambda site: "" if selector.matches(site.labels) else "wrong labels"


#: active if the policy names them
OPTIONAL_FILTERS: Final[Mapping[str, Filter]] = {
    "SiteAvailability": filter_availability,
    "LocationAndOperator": filter_location_and_operator,
    "regionandaz": filter_region_and_zone,
}
#: always active; a policy may name them
REQUIRED_FILTERS: Final[Mapping[str, Filter]] = {
    "ExclusiveSite": filter_tenant,
    "TaintToleration": filter_taints,
    "ClusterAffinity": filter_labels,
}
#: always active, in fit.py
FIT_FILTERS: Final = frozenset({"Flavor", "Volume", "EipAvailability", "SiteResourcesFit"})


def checks_for(criteria: Criteria, names: tuple[str, ...]) -> list[Check]:
    """In the order of the policy."""
    filters: list[Filter] = [filter_terminating, filter_name]
    filters += [OPTIONAL_FILTERS.get(name) or REQUIRED_FILTERS[name] for name in names if name not in FIT_FILTERS]
    filters += [one for name, one in REQUIRED_FILTERS.items() if name not in names]
    return [check for one in filters if (check := one(criteria)) is not None]


# --- site scorers ---------------------------------------------------------------------------------


def score_price(criteria: Criteria, cheapest: float | None) -> SiteScorer | None:
    """100 for the cheapest site, 50 at twice its price, 0 without a price."""
    if cheapest is None:
        return None

    def score(site: Site) -> float:
        if site.price is None or not math.isfinite(site.price):
            return 0.0
        return 100.0 if site.price <= 0 else 100.0 * max(0.0, cheapest) / site.price

    return score


def score_steady(criteria: Criteria, cheapest: float | None) -> SiteScorer | None:
    """100 where a replica already is."""
    if not criteria.current:
        return None
    return lambda site: 100.0 if site.key in criteria.current else 0.0


def score_distance(criteria: Criteria, cheapest: float | None) -> SiteScorer | None:
    """100 at the wanted point, 50 at 500 km, 33 at 1000 km, 0 without coordinates."""
    near = criteria.selector.near
    if near is None or not _is_valid(near):
        return None

    def score(site: Site) -> float:
        if site.point is None or not _is_valid(site.point):
            return 0.0
        return 100.0 / (1.0 + kilometres(near, site.point) / HALFWAY)

    return score


def score_preferences(criteria: Criteria, cheapest: float | None) -> SiteScorer | None:
    """The weighted share of preferences that match its labels."""
    preferred = [(max(0, one.weight), label_selector(one.requirements)) for one in criteria.selector.preferred]
    total = sum(weight for weight, _ in preferred)
    if not total:
        return None
    return lambda site: 100.0 * sum(weight for weight, one in preferred if one.matches(site.labels)) / total


def score_taints(criteria: Criteria, cheapest: float | None) -> SiteScorer | None:
    """100 without untolerated PreferNoSchedule taints, 50 with one, 33 with two."""
    tolerations = criteria.selector.tolerations
    effects = frozenset({"PreferNoSchedule"})
    return lambda site: 100.0 / (1 + len(find_untolerated(site.taints, tolerations, effects))) if site.taints else 100.0


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


def _is_valid(point: Point) -> bool:
    return abs(point.latitude) <= 90 and abs(point.longitude) <= 360


# --- stack scorers --------------------------------------------------------------------------------


def score_stack_affinity(criteria: Criteria) -> StackScorer | float:
    """50 if a stack matches the affinity, plus 50 if none matches the antiaffinity.

    Stacks of other tenants do not count.  A number: the score of every site.
    """
    wanted, unwanted = label_selector(criteria.selector.affinity), label_selector(criteria.selector.antiaffinity)
    if not wanted and not unwanted:
        return 50.0

    def score(usage: SiteUsage) -> float:
        labels_of_tenant = [dict(labels) for tenant, labels in usage.stack_labels if tenant == criteria.tenant]
        attracted = bool(wanted) and any(wanted.matches(labels) for labels in labels_of_tenant)
        repelled = bool(unwanted) and any(unwanted.matches(labels) for labels in labels_of_tenant)
        return 50.0 * attracted + 50.0 * (not repelled)

    return score


# --- fit scorers ----------------------------------------------------------------------------------


def score_flavor(state: SiteState, combination: FlavorCombination) -> float:
    return combination.preference


def score_least_allocated(state: SiteState, combination: FlavorCombination) -> float:
    """The free share of memory, vcpus, storage and public addresses, weighted 10, 10, 5 and 1.

    Unlimited or unused resources are omitted; for vcpus and memory the free share of the flavor replaces them.
    """
    claim, capacity, usage = combination.claim, state.site.capacity, state.usage
    weights = by_flavor = 0
    total = 0.0
    if claim.memory and capacity.memory is not None:
        weights += MEMORY
        total += MEMORY * _free_share(capacity.memory, state.memory_used + claim.memory)
    else:
        by_flavor += MEMORY
    if claim.vcpus and capacity.vcpus is not None:
        weights += VCPUS
        total += VCPUS * _free_share(capacity.vcpus, state.vcpus_used + claim.vcpus)
    else:
        by_flavor += VCPUS
    if by_flavor and claim.flavors:
        weights += by_flavor
        total += by_flavor * _free_share_of_flavors(state, claim)
    if claim.storage:
        weights += STORAGE
        offered = sum(capacity.storage.get(kind, 0) for kind, _ in claim.storage)
        total += STORAGE * _free_share(offered, sum(usage.storage.get(kind, 0) + size for kind, size in claim.storage))
    if claim.eips and capacity.eips is not None:
        weights += EIPS
        total += EIPS * _free_share(capacity.eips, usage.eips + claim.eips)
    return 100.0 * total / weights if weights else 0.0


def score_most_allocated(state: SiteState, combination: FlavorCombination) -> float:
    return 100.0 - score_least_allocated(state, combination)


def score_volume(state: SiteState, combination: FlavorCombination) -> float:
    """The free share of all storage."""
    used = sum(state.usage.storage.values()) + sum(size for _, size in combination.claim.storage)
    return 100.0 * _free_share(sum(state.site.capacity.storage.values()), used)


def _free_share_of_flavors(state: SiteState, claim: ResourceClaim) -> float:
    offered, used = state.site.capacity.flavors, state.usage.flavors
    return min(_free_share(offered.get(id, 0), used.get(id, 0) + number) for id, number in claim.flavors)


def _free_share(total: int, used: int) -> float:
    return (total - used) / total if 0 <= used < total else 0.0


SITE_SCORERS: Final[Mapping[str, Callable[[Criteria, float | None], SiteScorer | None]]] = {
    "Price": score_price,
    "Steady": score_steady,
    "Distance": score_distance,
    "PreferredAffinity": score_preferences,
    "TaintToleration": score_taints,
}
STACK_SCORERS: Final[Mapping[str, Callable[[Criteria], StackScorer | float]]] = {"StackAffinity": score_stack_affinity}
FIT_SCORERS: Final[Mapping[str, FitScorer]] = {
    "Flavor": score_flavor,
    "SiteResourcesLeastAllocated": score_least_allocated,
    "SiteResourcesMostAllocated": score_most_allocated,
    "Volume": score_volume,
}
