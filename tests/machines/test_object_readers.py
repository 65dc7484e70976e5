"""Values from objects, with what is wrong told by its path, and back again once they are bound."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.client.errors import DECODE_ERRORS
from farflung.machinery.errors import Obj
from farflung.machines import statuses
from farflung.machines.engine.claims import compute_claim
from farflung.machines.engine.values import (
    UNSCHEDULABLE,
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
    PlacedReplica,
    Point,
    Preference,
    RegionChoice,
    Reservation,
    ResourceClaim,
    Site,
    SiteKey,
    SiteSelector,
    SiteTaint,
    Spot,
)
from farflung.machines.inventory import decode_cluster
from farflung.machines.object_readers import InvalidRequestError, SubjectDecoder, read_request
from farflung.machines.subjects import ObservedSubject
from farflung.runtime.cache import Key

SHOP = {"kcp.io/cluster": "shop"}
CATALOGUE = {"small": Flavor("small", 1, 2048), "large": Flavor("large", 8, 16384)}
SELECTOR: Obj = {
    "geoLocation": {"country": "US", "area": "NW-1", "province": "Washington", "city": "Bellevue"},
    "regions": [{"region": "NW-1", "availablityZone": ["az1"], "availabilityZone": ["az2", "az1"]}, {"region": "NE-1"}],
    "operator": "chinatelecom",
    "siteID": "NW-1--az1",
    "strategy": {"localStrategy": "spread"},
    "minClusters": 1,
    "maxClusters": 3,
    "clusterAffinity": {
        "required": [{"key": "gpu", "operator": "exists"}, {"key": "old", "operator": "!"}],
        "preferred": [{"weight": 7, "requirements": [{"key": "tier", "operator": "in", "values": ["gold", "silver"]}]}],
    },
    "stackAffinity": [{"key": "app", "operator": "==", "values": ["web"]}],
    "stackAntiAffinity": [{"key": "load", "operator": "gt", "values": ["5"]}],
    "near": {"latitude": 47.6, "longitude": -122.2},
}
SELECTED = SiteSelector(
    Geo("US", "NW-1", "Washington", "Bellevue"),
    (RegionChoice("NW-1", ("az2", "az1")), RegionChoice("NE-1")),
    "chinatelecom",
    "NW-1--az1",
    LocalStrategy.SPREAD,
    False,
    1,
    3,
    (LabelRule("gpu", "exists"), LabelRule("old", "!")),
    (Preference(7, (LabelRule("tier", "in", ("gold", "silver")),)),),
    (LabelRule("app", "==", ("web",)),),
    (LabelRule("load", "gt", ("5",)),),
    Point(47.6, -122.2),
)


def pod(machine: Any = None, **spec: Any) -> Obj:
    machine = {"flavors": [{"flavorID": "small"}]} if machine is None else machine
    metadata = {"name": "vm", "namespace": "default", "uid": "u1", "labels": {"app": "web"}, "annotations": SHOP}
    return {"kind": "Pod", "metadata": metadata, "spec": {"virtualMachine": machine, **spec}}


def allocation(*resources: Any, **spec: Any) -> Obj:
    group = {"name": "group", "labels": {"app": "shop"}, "resources": list(resources)}
    metadata = {"name": "a1", "uid": "u2", "labels": {"app": "web", "tier": "gold"}, "annotations": SHOP}
    return {"kind": "Allocation", "metadata": metadata, "spec": {"resource_group": group, **spec}}


def request_of(obj: Any) -> MachineRequest:
    return read_request(orjson.dumps(obj))


def held_by(obj: Any) -> tuple[Reservation, ...]:
    decoder = SubjectDecoder(CATALOGUE)
    document = orjson.dumps(obj)
    return (decoder.allocation if obj["kind"] == "Allocation" else decoder.pod)(document).reservations


# --- requests -------------------------------------------------------------------------------------


def test_a_pod_is_a_stack_of_machines_that_are_alike() -> None:
    machine = {
        "flavors": [{"flavorID": "small"}, {"flavorID": "large", "spot": {"maxPrice": 1.5, "spotDurationHours": 2}}],
        "needEIP": True,
        "resourceCommonInfo": {"count": 3, "selector": SELECTOR},
    }
    tolerations = [
        {"operator": "Exists"},
        {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 300},
    ]
    found = request_of(pod(machine, priority=-5, tolerations=tolerations, nodeSelector={"disk": "ssd"}))
    assert found == MachineRequest(
        "u1",
        (Item((FlavorChoice("small"), FlavorChoice("large", Spot(1.5, 2))), 3, (), True),),
        replace(
            SELECTED,
            required=(LabelRule("disk", "in", ("ssd",)), *SELECTED.required),
            tolerations=(MachineToleration(operator="Exists"), MachineToleration("a", "Equal", "b", "NoExecute", 300)),
        ),
        tenant="shop",
        labels={"app": "web"},
        priority=-5,
    )


def test_an_allocation_is_replicas_of_a_stack() -> None:
    resources = (
        {
            "name": "web",
            "flavors": [{"flavor_id": "small", "spot": {}}],
            "storage": {"ssd": 10, "sata": 0, "sas": 5},
            "need_eip": True,
            "count": 2,
        },
        {"flavors": [{"flavor_id": "large", "spot": {"max_price": "1.5", "interruption_policy": "delay"}}]},
    )
    selector = {"strategy": {"location_strategy": "discrete", "region_strategy": "alone"}, "site_id": "az1"}
    found = request_of(allocation(*resources, selector=selector, replicas=4, priority=9))
    assert found == MachineRequest(
        "u2",
        (
            Item((FlavorChoice("small"),), 2, (("sas", 5), ("ssd", 10)), True),
            Item((FlavorChoice("large", Spot(1.5, policy="delay")),)),
        ),
        SiteSelector(strategy=LocalStrategy.DISCRETE, region_alone=True, site="az1"),
        replicas=4,
        tenant="shop",
        labels={"app": "shop", "tier": "gold"},
        priority=9,
        numbered=True,
    )


def test_what_says_nothing_may_go_anywhere_as_centrally_as_can_be() -> None:
    assert request_of(pod()).selector == SiteSelector()
    blank: Obj = {"strategy": {"localStrategy": ""}, "regions": []}
    machine = {"flavors": [{"flavorID": "a"}], "resourceCommonInfo": {"selector": blank}}
    assert request_of(pod(machine)).selector == SiteSelector()


SNAKES = {
    "geoLocation": "geo_location",
    "siteID": "site_id",
    "localStrategy": "location_strategy",
    "minClusters": "min_clusters",
    "maxClusters": "max_clusters",
    "clusterAffinity": "cluster_affinity",
    "stackAffinity": "stack_affinity",
    "stackAntiAffinity": "stack_antiaffinity",
    "availabilityZone": "availability_zone",
}


def in_snake_case(value: Any) -> Any:
    if isinstance(value, dict):
        return {SNAKES.get(name, name): in_snake_case(one) for name, one in value.items()}
    return [in_snake_case(one) for one in value] if isinstance(value, list) else value


def test_pods_and_allocations_select_clusters_alike() -> None:
    selector = {**SELECTOR, "regions": [{"region": "NW-1", "availabilityZone": ["az2", "az1"]}, {"region": "NE-1"}]}
    machine = {"flavors": [{"flavorID": "a"}], "resourceCommonInfo": {"selector": selector}}
    assert request_of(pod(machine)).selector == SELECTED
    found = request_of(allocation({"flavors": [{"flavor_id": "a"}]}, selector=in_snake_case(selector)))
    assert found.selector == SELECTED


def selecting(**selector: Any) -> Obj:
    machine = {"flavors": [{"flavorID": "a"}], "resourceCommonInfo": {"selector": selector}}
    return pod(machine)


MACHINE = {"flavors": [{"flavor_id": "a"}]}
SELECTORS = "spec.virtualMachine.resourceCommonInfo.selector"
WRONG: list[tuple[Obj, str]] = [
    (pod({"flavors": []}), "spec.virtualMachine: Expected `array` of length >= 1 - at `$.flavors`"),
    (pod({}), "spec.virtualMachine: Object missing required field `flavors`"),
    (pod(tolerations=[{"value": "a"}]), "spec.tolerations[0].operator: must be Exists without a key"),
    (pod(tolerations=[{"key": 7}]), "spec.tolerations: Expected `str`, got `int`"),
    (selecting(minClusters=3, maxClusters=2), f"{SELECTORS}.maxClusters: must not be less than the minimum"),
    (
        selecting(stackAntiAffinity=[{"key": "a", "operator": "in"}]),
        f"{SELECTORS}.stackAntiAffinity[0].values: must have an entry for the operator in",
    ),
    (
        selecting(clusterAffinity={"required": [{"key": "a", "operator": "exists", "values": ["x"]}]}),
        f"{SELECTORS}.clusterAffinity.required[0].values: must have no entries for the operator exists",
    ),
    (allocation(), "spec: Expected `array` of length >= 1 - at `$.resource_group.resources`"),
    (allocation(MACHINE, replicas=0), "spec: Expected `int` >= 1 - at `$.replicas`"),
    (
        allocation(MACHINE, selector={"min_clusters": 3, "max_clusters": 2}),
        "spec.selector.max_clusters: must not be less",
    ),
    (
        allocation(MACHINE, selector={"stack_affinity": [{"key": "a", "operator": "gt", "values": ["x"]}]}),
        "spec.selector.stack_affinity[0].values: must be a whole number for the operator gt",
    ),
    (
        allocation(
            MACHINE,
            selector={
                "cluster_affinity": {"preferred": [{"weight": 1, "requirements": [{"key": "-", "operator": "exists"}]}]}
            },
        ),
        "spec.selector.cluster_affinity.preferred[0].requirements[0].key: name part must consist of",
    ),
    (
        allocation({"flavors": [{"flavor_id": "a", "spot": {"max_price": "nan"}}]}),
        "spec: Expected `float` >= 0.0 - at `$.resource_group.resources[0].flavors[0].spot.max_price`",
    ),
]


@pytest.mark.parametrize(("obj", "why"), WRONG)
def test_an_invalid_value_is_reported_with_its_path(obj: Obj, why: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        request_of(obj)
    assert any(error.startswith(why) for error in raised.value.errors), raised.value.errors


def test_all_rules_that_are_broken_are_told_at_once() -> None:
    obj = selecting(minClusters=3, maxClusters=2, stackAffinity=[{"key": "-", "operator": "exists"}])
    obj["spec"]["tolerations"] = [{"value": "a"}]
    with pytest.raises(InvalidRequestError) as raised:
        request_of(obj)
    assert [error.partition(":")[0] for error in raised.value.errors] == [
        f"{SELECTORS}.maxClusters",
        f"{SELECTORS}.stackAffinity[0].key",
        "spec.tolerations[0].operator",
    ]


# --- clusters -------------------------------------------------------------------------------------


def site_of(obj: Obj) -> Site:
    return decode_cluster(orjson.dumps(obj)).site


def test_a_cluster_is_a_site() -> None:
    spec = {
        "geolocation": {"city": "Bellevue", "province": "Washington", "area": "NW-1", "country": "US"},
        "region": {"region": "region1", "availabilityzone": "az1"},
        "operator": {"operator": "globalscheduler"},
        "flavors": [
            {"flavorid": "42", "totalcapacity": 1000},
            {"flavorid": "42", "totalcapacity": 5},
            {"flavorid": "1"},
        ],
        "storage": [{"typeid": "sas", "storagecapacity": 256}, {"typeid": "sas", "storagecapacity": 4}],
        "eipcapacity": 0,
        "cpucapacity": 0,
        "memcapacity": 256,
        "serverprice": 10,
        "unschedulable": True,
        "taints": [
            {"key": "gone", "effect": "NoExecute", "timeAdded": "2024-05-01T12:00:00Z"},
        ],
        "exclusivetenants": ["shop", ""],
        "coordinates": {"latitude": 47.6, "longitude": -122.2},
    }
    annotations = {"kcp.io/cluster": "clouds"}
    metadata = {
        "name": "az1",
        "namespace": "default",
        "uid": "u3",
        "labels": {"gpu": "yes"},
        "annotations": annotations,
    }
    deleted = {**metadata, "deletionTimestamp": "2024-05-01T12:00:00Z"}
    found = site_of({"metadata": deleted, "spec": spec, "status": {"phase": "Sellout"}})
    assert found == Site(
        SiteKey("clouds", "default", "az1"),
        "u3",
        Geo("US", "NW-1", "Washington", "Bellevue"),
        "region1",
        "az1",
        "globalscheduler",
        Health.SELLOUT,
        {"gpu": "yes"},
        (UNSCHEDULABLE, SiteTaint("gone", "", "NoExecute", "2024-05-01T12:00:00Z")),
        frozenset({"shop"}),
        Capacity({"42": 1005, "1": 0}, None, 256, {"sas": 260}, 0),
        price=10.0,
        point=Point(47.6, -122.2),
        leaving=True,
    )


@pytest.mark.parametrize(
    ("status", "health"),
    [({}, Health.READY), ({"stacks": 1}, Health.READY), ({"phase": "Created"}, Health.UNKNOWN)],
)
def test_a_cluster_without_a_phase_is_ready(status: Obj, health: Health) -> None:
    assert site_of({"metadata": {"name": "a"}, "spec": {}, "status": status}).health is health


@pytest.mark.parametrize("spec", [7, [], {"flavors": 7}, {"cpucapacity": -1}])
def test_a_cluster_that_makes_no_sense_takes_nothing(spec: Any) -> None:
    found = site_of({"metadata": {"name": "a"}, "spec": spec})
    assert (found.key.name, found.taints, found.capacity) == ("a", (UNSCHEDULABLE,), Capacity())


# --- and back again -------------------------------------------------------------------------------

FLAVORS = st.sampled_from(["small", "large", "unheard-of"])
SITES = st.builds(SiteKey, st.sampled_from(["", "clouds"]), st.sampled_from(["", "default"]), st.just("az1"))
SPOTS = st.sampled_from(
    [
        {},
        {"spot": {"max_price": "1.5", "spot_duration_hours": 2, "interruption_policy": "delay"}},
        {"spot": {"max_price": 3}},
    ]
)
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["a", "b"]))


def bound(pod: Obj, chosen: PlacedReplica) -> Obj:
    """As a Binding leaves it."""
    key, site = Key("shop", "default", "vm"), Site(chosen.site, region="r", zone="z")
    binding = statuses.binding(key, ObservedSubject("u1", "7"), chosen, site, {})
    metadata = {**pod["metadata"], "annotations": {**SHOP, **binding["metadata"]["annotations"]}}
    spec = {**pod["spec"], "nodeName": chosen.site.name, "clusterName": chosen.site.name}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def chosen_for(request: MachineRequest, flavors: tuple[str, ...], site: SiteKey) -> PlacedReplica:
    return PlacedReplica(site, flavors, 61.25, compute_claim(request.items, flavors, CATALOGUE))


@given(st.lists(FLAVORS, min_size=1, max_size=3), st.integers(1, 5), st.booleans(), LABELS, SITES, st.data())
@settings(max_examples=examples(40))
def test_what_a_binding_wrote_is_what_the_pod_holds(
    wished: list[str], count: int, eip: bool, labels: dict[str, str], site: SiteKey, data: st.DataObject
) -> None:
    flavors = [{"flavorID": one} for one in wished]
    obj = pod({"flavors": flavors, "needEIP": eip, "resourceCommonInfo": {"count": count}})
    obj["metadata"]["labels"] = labels
    request = request_of(obj)
    chosen = chosen_for(request, (data.draw(st.sampled_from(wished)),), site)
    assert held_by(obj) == ()
    labelled = tuple(sorted(request.labels.items()))
    assert held_by(bound(obj, chosen)) == (Reservation("u1", site, chosen.claim, "shop", labelled),)


@given(
    st.lists(st.tuples(FLAVORS, FLAVORS, st.integers(1, 3), st.integers(0, 9)), min_size=1, max_size=3),
    st.lists(st.tuples(SITES, st.booleans()), min_size=1, max_size=4),
    LABELS,
    SPOTS,
)
@settings(max_examples=examples(40))
def test_what_was_placed_is_what_an_allocation_holds(
    resources: list[tuple[str, str, int, int]], replicas: list[tuple[SiteKey, bool]], labels: dict[str, str], spot: Obj
) -> None:
    """Whatever it asks for by now."""
    obj = allocation(
        *(
            {"flavors": [{"flavor_id": one, **spot}, {"flavor_id": two}], "count": count, "storage": {"ssd": size}}
            for one, two, count, size in resources
        ),
        replicas=len(replicas),
    )
    obj["metadata"]["labels"] = labels
    request = request_of(obj)
    chosen = [
        chosen_for(request, tuple(one if first else two for one, two, _, _ in resources), site)
        for site, first in replicas
    ]
    obj["status"] = {"placements": [statuses.placement(number, one) for number, one in enumerate(chosen)]}
    held = tuple(
        Reservation(f"u2/{number}", one.site, one.claim, "shop", tuple(sorted(request.labels.items())))
        for number, one in enumerate(chosen)
    )
    assert held_by(obj) == held
    obj["status"]["resources"] = [statuses.resource(item) for item in request.items]
    assert held_by(obj) == held
    obj["spec"]["resource_group"]["resources"] = [{"flavors": [{"flavor_id": "other"}], "count": 999}]
    assert held_by(obj) == held
    assert request_of(obj).current == tuple(site for site, _ in replicas)


def test_what_was_bound_by_hand_has_its_first_flavor_where_its_spec_says() -> None:
    claim = ResourceClaim((("small", 1),), 1, 2048)
    held = Reservation("u1", SiteKey("", "", "az9"), claim, "shop", (("app", "web"),))
    assert held_by(pod(nodeName="az9")) == (held,)
    moved = pod(clusterName="az9")
    moved["metadata"]["annotations"] = SHOP | {"globalscheduler.com/cluster": "clouds|default/az1"}
    assert held_by(moved) == (held,)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_what_has_ended_holds_nothing(phase: str) -> None:
    assert held_by({**pod(nodeName="az1"), "status": {"phase": phase}}) == ()
    status = {"phase": phase, "placements": [{"replica": 0, "cluster": {"name": "az1"}}]}
    assert held_by({**allocation(), "status": status}) == ()


# --- anything at all ------------------------------------------------------------------------------

KNOWN = """
metadata spec status name uid labels annotations virtualMachine resourceCommonInfo resource_group resources flavors
flavorID spot max_price count storage selector regions availabilityZone strategy near latitude tolerations nodeSelector
required nodeName placements replica cluster taints phase region flavorid totalcapacity
"""
NAMES = st.sampled_from(KNOWN.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("az1"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def mutilated(draw: st.DrawFn, whole: Obj) -> Any:
    """An object with anything at one of its places."""

    def cut(value: Any) -> Any:
        if draw(st.integers(0, 5)) == 0:
            return draw(JSON)
        if isinstance(value, dict) and value:
            name = draw(st.sampled_from(sorted(value)))
            return {**value, name: cut(value[name])}
        if isinstance(value, list) and value:
            return [cut(value[0]), *value[1:]]
        return draw(JSON)

    return cut(whole)


WHOLE = [
    pod({"flavors": [{"flavorID": "a"}], "resourceCommonInfo": {"selector": SELECTOR}}, nodeName="az1"),
    {
        **allocation({"flavors": [{"flavor_id": "a"}], "storage": {"ssd": 1}}, selector=SELECTOR),
        "status": {"placements": [{"replica": 0, "cluster": {"name": "az1"}, "flavors": ["a"]}]},
    },
]


@given(st.one_of(*(mutilated(one) for one in WHOLE), st.dictionaries(NAMES, JSON, max_size=3)))
@settings(max_examples=examples(150))
def test_whatever_comes_is_read_or_refused(obj: Any) -> None:
    decoder = SubjectDecoder(CATALOGUE)
    for kind, read in (("Pod", decoder.pod), ("Allocation", decoder.allocation), ("Cluster", decode_cluster)):
        document = orjson.dumps({**(obj if isinstance(obj, dict) else {}), "kind": kind})
        with suppress(*DECODE_ERRORS):
            read(document)
        try:
            request = read_request(document)
        except InvalidRequestError as error:
            assert error.errors
            assert all(": " in one for one in error.errors)
        except DECODE_ERRORS:
            continue
        else:
            assert all(item.flavors and item.number >= 1 for item in request.items)
            hash((request.items, request.selector))


# --- the Cluster in annotations -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "site"),
    [
        ("clouds|default/az1", SiteKey("clouds", "default", "az1")),
        ("az1", SiteKey("", "", "az1")),
        ("|/az1", SiteKey("", "", "az1")),  # as earlier versions wrote the site of a file
        ("", None),
        ("|", None),
        ("clouds|default/", None),
        ("default/az1", None),
    ],
)
def test_the_cluster_of_a_binding_is_read_from_its_annotation(text: str, site: SiteKey | None) -> None:
    assert SiteKey.parse(text) == site
    assert site is None or SiteKey.parse(site.annotation) == site
