"""Which sites will do for a request by what they are; what they have left is up to room.py.

Each filter looks at the request once, and gives a check for sites: a short reason why a site will not do, or nothing.
No check at all: it has nothing against any site.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from farflung.scheduling.labels import selector_of, untolerated
from farflung.scheduling.room import shortened
from farflung.scheduling.values import UNSCHEDULABLE, Health, RegionWish, Selector, Site, SiteKey

Check: TypeAlias = Callable[[Site], str]
REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})


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


def taint_toleration(asked: Asked) -> Check | None:
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
    "TaintToleration": taint_toleration,
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
