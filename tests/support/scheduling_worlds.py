"""Sites and requests for properties of the engine of the global scheduler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import strategies as st

from farflung.machines.engine.policy import default_policy
from farflung.machines.engine.values import (
    Capacity,
    Flavor,
    FlavorChoice,
    Geo,
    Health,
    Item,
    LabelRule,
    LocalStrategy,
    MachineRequest,
    MachineToleration,
    Preference,
    RegionChoice,
    Site,
    SiteKey,
    SiteSelector,
    SiteTaint,
)

CATALOGUE = {"small": Flavor("small", 1, 2), "large": Flavor("large", 4, 8)}  # nobody knows "odd"
CHEAP = replace(default_policy(), scorers=(*default_policy().scorers, ("Price", 1)))
KEYS = [SiteKey("w", "default", f"site-{number}") for number in range(6)]
T = TypeVar("T")

few = st.sampled_from([9, 6, 4, 3, 1, 0])
more = st.sampled_from([None, 40, 25, 9, 2])


def mostly(usual: T, *others: T) -> st.SearchStrategy[T]:
    """So that most sites fit most requests: else there would be nothing to decide."""
    return st.sampled_from([usual] * 4 * len(others) + list(others))


def some_fields(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """At most three of them."""
    pairs = [st.tuples(st.just(name), values) for name, values in fields.items()]
    return st.lists(st.one_of(pairs), max_size=3).map(dict)


capacities = st.builds(
    Capacity,
    flavors=st.fixed_dictionaries({"small": few, "large": few}, optional={"odd": few}),
    vcpus=more,
    memory=more.map(lambda vcpus: vcpus and 2 * vcpus),
    storage=st.sampled_from([{"ssd": 40, "sas": 21}, {"ssd": 12}, {"ssd": 2, "sas": 2}]),
    eips=st.none() | few,
    spot=st.just({}),
)
sites = st.builds(
    Site,
    key=st.sampled_from(KEYS),
    uid=st.just(""),
    point=st.none(),
    geo=st.sampled_from([Geo("no", "", "", "oslo"), Geo("fi", "", "", "turku"), Geo("fi", "", "", "oslo")]),
    region=st.sampled_from(["north", "south"]),
    zone=st.sampled_from(["a", "b"]),
    operator=st.sampled_from(["telenor", "elisa"]),
    health=mostly(Health.READY, Health.UNKNOWN, Health.SELLOUT, Health.DOWN),
    labels=st.sampled_from([{}, {"tier": "gold"}, {"tier": "tin"}]),
    taints=mostly((), (SiteTaint("full"),), (SiteTaint("dear", "", "PreferNoSchedule"), SiteTaint("x", "", "Other"))),
    tenants=mostly(frozenset[str](), frozenset({"us"}), frozenset({"them", ""})),
    capacity=capacities,
    used_elsewhere=mostly(dict[str, int](), {"vcpus": 2}, {"memory": 3, "vcpus": 30}),
    price=st.none() | st.sampled_from([1.0, 2.0, 4.0]),
    leaving=mostly(False, False, False, True),
)
wishes = st.lists(st.sampled_from(["small", "large", "odd"]), min_size=1, max_size=3, unique=True)
items = st.builds(
    Item,
    flavors=wishes.map(lambda ids: tuple(FlavorChoice(id) for id in ids)),
    number=mostly(1, 2),
    storage=mostly((), (("ssd", 3),), (("sas", 2), ("ssd", 5))),
    eip=mostly(False, True),
)
gold = LabelRule("tier", "in", ("gold",))
stacks = st.sampled_from([(LabelRule("app", "in", ("web",)),), (LabelRule("app", "notin", ("web",)),)])
wishes_of_places = some_fields(
    geo=st.sampled_from([Geo(country="no"), Geo("fi", "", "", "turku")]),
    regions=st.sampled_from(
        [(RegionChoice("north"),), (RegionChoice("north", ("a",)), RegionChoice("south")), (RegionChoice("", ("b",)),)]
    ),
    operator=st.just("elisa"),
    site=st.sampled_from(["site-1", "north--a"]),
    min_clusters=st.integers(1, 3),
    max_clusters=st.integers(1, 3),
    region_alone=st.just(True),
    required=st.just((gold,)),
    preferred=st.just((Preference(3, (gold,)), Preference(1, (LabelRule("tier", "notin", ("tin",)),)))),
    affinity=stacks,
    antiaffinity=stacks,
    tolerations=st.just((MachineToleration("full", "Exists"), MachineToleration("dear", "Exists"))),
)
selectors = st.builds(
    lambda fields, strategy: SiteSelector(**fields, strategy=strategy), wishes_of_places, st.sampled_from(LocalStrategy)
)
requests = st.builds(
    MachineRequest,
    uid=st.just(""),
    priority=st.just(0),
    numbered=st.booleans(),
    items=st.lists(items, min_size=1, max_size=2).map(tuple),
    selector=st.just(SiteSelector()) | selectors,
    replicas=st.sampled_from([1, 1, 2, 3, 5, 8]),
    tenant=st.sampled_from(["us", "them", "nobody", ""]),
    labels=st.sampled_from([{}, {"app": "web"}, {"app": "db"}]),
    current=mostly((), (KEYS[0],), (KEYS[1], KEYS[2])),
)
