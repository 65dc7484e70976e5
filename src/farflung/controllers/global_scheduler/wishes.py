"""What Pods and Allocations wish for: machines, and where they may go.  Pods and Allocations say it alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from farflung.apis.globalscheduler.selection import (
    MOST_COPIES,
    MOST_FLAVORS,
    MOST_REGIONS,
    MOST_REQUIREMENTS,
    MOST_RESOURCES,
    MOST_VALUES,
)
from farflung.controllers.global_scheduler.parts import Part
from farflung.machinery import names
from farflung.scheduling.values import (
    FlavorChoice,
    Geo,
    Item,
    LabelRule,
    LocalStrategy,
    Point,
    Preference,
    RegionChoice,
    SiteSelector,
    Spot,
    Toleration,
)

MOST_TOLERATIONS: Final = 64
LARGEST: Final = 2**53
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
#: how Kubernetes spells what we have in lower case
OPERATORS: Final = {"doesnotexist": "!"}
VALUES: Final = {"exists": 0, "!": 0, "=": 1, "==": 1, "!=": 1, "gt": 1, "lt": 1, "in": None, "notin": None}


def resources(group: Part) -> tuple[Item, ...]:
    items = []
    for at, one in enumerate(group.parts("resources", MOST_RESOURCES)):
        number = one.whole("count", 1, 1, MOST_COPIES)
        items.append(machine(one.text("name") or f"resource-{at}", one, number))
    if not items and not group.has("resources"):
        group.note("resources", "is missing")
    elif not items:
        group.note("resources", "must have at least one entry that can be understood")
    return tuple(items)


def machine(name: str, machine: Part, number: int) -> Item:
    flavors = []
    for one in machine.parts("flavors", MOST_FLAVORS):
        if flavor := one.text("flavorid"):
            flavors.append(FlavorChoice(flavor, _spot(one.part("spot")) if one.has("spot") else None))
        elif not one.has("flavorid"):
            one.note("flavorid", "is missing")
    if not flavors:
        machine.note("flavors", "must name at least one flavor")
    storage = machine.wholes_by_name("storage", MOST_FLAVORS, LARGEST)
    return Item(
        name,
        tuple(flavors),
        number,
        tuple((kind, size) for kind, size in storage.items() if size),
        machine.flag("needeip"),
    )


def _spot(spot: Part) -> Spot | None:
    """One that says nothing is none: the original's clients send it with every flavor."""
    found = Spot(
        spot.number("maxprice", 0, LARGEST) or 0.0,
        spot.whole("spotdurationhours", 0, 0, MOST_COPIES),
        spot.whole("spotdurationcount", 0, 0, MOST_COPIES),
        spot.one_of("interruptionpolicy", ("", "immediate", "delay")),
    )
    return None if found == Spot() else found


# --- where they may go ------------------------------------------------------------------------------


def selector(selector: Part, spec: Part) -> SiteSelector:
    strategy = selector.part("strategy")
    local = "locationstrategy" if strategy.has("locationstrategy") else "localstrategy"
    affinity = selector.part("clusteraffinity")
    nodes = spec.texts_by_name("nodeselector", MOST_REQUIREMENTS)
    least = selector.whole("minclusters", 0, 0, MOST_COPIES)
    most = selector.whole("maxclusters", 0, 0, MOST_COPIES)
    if 0 < most < least:
        selector.note("maxclusters", "must not be less than the minimum")
    return SiteSelector(
        geo(selector.part("geolocation")),
        tuple(_regions(selector)),
        selector.text("operator"),
        selector.text("siteid"),
        LocalStrategy(strategy.one_of(local, tuple(LocalStrategy))),
        strategy.one_of("regionstrategy", ("", "alone")) == "alone",
        least,
        most,
        (
            *(LabelRule(key, "in", (value,)) for key, value in nodes.items()),
            *_requirements(affinity, "required"),
        ),
        tuple(_preferences(affinity)),
        tuple(_requirements(selector, "stackaffinity")),
        tuple(_requirements(selector, "stackantiaffinity")),
        point(selector.part("near")) if selector.has("near") else None,
        tuple(_tolerations(spec)),
    )


def geo(part: Part) -> Geo:
    return Geo(part.text("country"), part.text("area"), part.text("province"), part.text("city"))


def _regions(selector: Part) -> Iterator[RegionChoice]:
    for one in selector.parts("regions", MOST_REGIONS):
        zones = (zone for zone in one.texts("availabilityzone", MOST_VALUES) if zone)
        yield RegionChoice(one.text("region"), tuple(dict.fromkeys(zones)))


def point(part: Part) -> Point | None:
    latitude, longitude = part.number("latitude", -90, 90), part.number("longitude", -180, 180)
    for name in ("latitude", "longitude"):
        if not part.has(name):
            part.note(name, "is missing")
    return None if latitude is None or longitude is None else Point(latitude, longitude)


def _preferences(affinity: Part) -> Iterator[Preference]:
    for one in affinity.parts("preferred", MOST_FLAVORS):
        yield Preference(one.whole("weight", 1, 1, 100), tuple(_requirements(one, "requirements")))


def _requirements(part: Part, name: str) -> Iterator[LabelRule]:
    for one in part.parts(name, MOST_REQUIREMENTS):
        key, said = one.text("key"), one.text("operator").lower()
        operator = OPERATORS.get(said, said)
        values = tuple(one.texts("values", MOST_VALUES))
        if wrong := names.qualified_name(key):
            one.note("key", wrong[0])
        elif operator not in VALUES:
            one.note("operator", f"must be one of {', '.join(VALUES)}")
        elif why := _misfit(operator, values):
            one.note("values", why)
        else:
            yield LabelRule(key, operator, values)


def _misfit(operator: str, values: tuple[str, ...]) -> str:
    """What is wrong with the values of a requirement."""
    wanted = VALUES[operator]
    if wanted is None:
        return "" if values else f"must have an entry for the operator {operator}"
    if len(values) != wanted:
        return f"must have {wanted or 'no'} {'entry' if wanted == 1 else 'entries'} for the operator {operator}"
    if operator in ("gt", "lt") and not (values[0].removeprefix("-").isdecimal() and len(values[0]) < 20):
        return f"must be a whole number for the operator {operator}"
    return ""


def _tolerations(spec: Part) -> Iterator[Toleration]:
    for one in spec.parts("tolerations", MOST_TOLERATIONS):
        found = Toleration(
            one.text("key"),
            one.one_of("operator", ("Equal", "Exists")),
            one.text("value"),
            one.one_of("effect", ("", *EFFECTS)),
            one.whole("tolerationseconds", 0, -LARGEST, LARGEST) if one.has("tolerationseconds") else None,
        )
        if not found.key and found.operator != "Exists":
            one.note("operator", "must be Exists without a key")
        yield found
