"""Values from objects: in all spellings, with what is wrong told by its path, and back again once they are bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

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
from farflung.machines.object_readers import (
    InvalidRequestError,
    read_allocation_request,
    read_allocation_reservations,
    read_pod_request,
    read_pod_reservation,
    read_site,
)
from farflung.machines.subjects import ObservedSubject
from farflung.runtime.cache import Key

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
        "required": [{"key": "gpu", "operator": "exists"}, {"key": "old", "operator": "DoesNotExist"}],
        "preferred": [{"weight": 7, "requirements": [{"key": "tier", "operator": "In", "values": ["gold", "silver"]}]}],
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
    metadata = {"name": "vm", "namespace": "default", "uid": "u1", "labels": {"app": "web"}}
    return {"metadata": metadata, "spec": {"virtualMachine": machine, **spec}}


def allocation(*resources: Any, **spec: Any) -> Obj:
    group = {"name": "group", "labels": {"app": "shop"}, "resources": list(resources)}
    metadata = {"name": "a1", "uid": "u2", "labels": {"app": "web", "tier": "gold"}}
    return {"metadata": metadata, "spec": {"resource_group": group, **spec}}


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
    found = read_pod_request(pod(machine, priority=-5, tolerations=tolerations, nodeSelector={"disk": "ssd"}), "shop")
    assert found == MachineRequest(
        "u1",
        (Item("vm", (FlavorChoice("small"), FlavorChoice("large", Spot(1.5, 2))), 3, (), True),),
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
    found = read_allocation_request(allocation(*resources, selector=selector, replicas=4, priority=9), "shop")
    assert found == MachineRequest(
        "u2",
        (
            Item("web", (FlavorChoice("small"),), 2, (("sas", 5), ("ssd", 10)), True),
            Item("resource-1", (FlavorChoice("large", Spot(1.5, policy="delay")),)),
        ),
        SiteSelector(strategy=LocalStrategy.DISCRETE, region_alone=True, site="az1"),
        replicas=4,
        tenant="shop",
        labels={"app": "shop", "tier": "gold"},
        priority=9,
        numbered=True,
    )


def test_what_says_nothing_may_go_anywhere_as_centrally_as_can_be() -> None:
    assert read_pod_request(pod(), "").selector == SiteSelector()
    blank: Obj = {"strategy": {"localStrategy": ""}, "regions": [], "geoLocation": None}
    assert read_pod_request(
        pod({"flavors": [{"flavorID": "a"}], "resourceCommonInfo": {"selector": blank}}), ""
    ).selector == (SiteSelector())


SNAKES = {
    "geoLocation": "geo_location",
    "siteID": "site_id",
    "localStrategy": "location_strategy",
    "minClusters": "min_clusters",
    "maxClusters": "max_clusters",
    "clusterAffinity": "cluster_affinity",
    "stackAffinity": "stack_affinity",
    "stackAntiAffinity": "stack_antiaffinity",
    "availablityZone": "availability_zone",
    "flavorID": "flavor_id",
}


def respelled(value: Any, spell: Any) -> Any:
    if isinstance(value, dict):
        return {spell(name): respelled(one, spell) for name, one in value.items()}
    return [respelled(one, spell) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("spell", [str, str.lower, lambda name: SNAKES.get(name, name)])
def test_pods_and_allocations_understand_all_spellings(spell: Any) -> None:
    selector = {**SELECTOR, "regions": [{"region": "NW-1", "availablityZone": ["az2", "az1"]}, {"region": "NE-1"}]}
    machine = {"flavors": [{"flavorID": "a"}], "resourceCommonInfo": {"selector": selector}}
    assert read_pod_request(pod(respelled(machine, spell)), "").selector == SELECTED
    resource = respelled({"flavors": [{"flavorID": "a"}]}, spell)
    assert read_allocation_request(allocation(resource, selector=respelled(selector, spell)), "").selector == SELECTED


WRONG: list[tuple[Obj, str]] = [
    (pod(7), "spec.virtualMachine: must be an object"),
    (pod({}), "spec.virtualMachine.flavors: must name at least one flavor"),
    (pod({"flavors": {}}), "spec.virtualMachine.flavors: must be a list"),
    (pod({"flavors": [{}]}), "spec.virtualMachine.flavors[0].flavorid: is missing"),
    (pod({"flavors": [{"flavor_id": 7}]}), "spec.virtualMachine.flavors[0].flavor_id: must be a string"),
    (pod({"flavors": [{"flavorID": "a"}] * 17}), "spec.virtualMachine.flavors: must have at most 16 entries"),
    (pod(priority=2**31), "spec.priority: must be from -2147483648 to 2147483647"),
    (pod(priority=True), "spec.priority: must be a whole number"),
    (pod(tolerations=[{"value": "a"}]), "spec.tolerations[0].operator: must be Exists without a key"),
    (pod(tolerations=[{"key": "a", "operator": "Like"}]), "spec.tolerations[0].operator: must be one of Equal, Exists"),
    (pod(nodeSelector={"a": 7}), "spec.nodeSelector[a]: must be a string"),
    ({"metadata": {"name": "vm"}, "spec": pod()["spec"]}, "metadata.uid: is missing"),
    (allocation(), "spec.resource_group.resources: must have at least one entry"),
    (allocation(replicas=0), "spec.replicas: must be from 1 to 10000"),
    (allocation(replicas="3"), "spec.replicas: must be a whole number"),
    (allocation({"count": 0}), "spec.resource_group.resources[0].count: must be from 1 to 10000"),
    (allocation({"storage": {"ssd": -1}}), "spec.resource_group.resources[0].storage[ssd]: must be a whole number"),
    (allocation({"need_eip": "yes"}), "spec.resource_group.resources[0].need_eip: must be true or false"),
    (
        allocation(selector={"strategy": {"location_strategy": "x"}}),
        "spec.selector.strategy.location_strategy: must be",
    ),
    (
        allocation(selector={"strategy": {"region_strategy": "x"}}),
        "spec.selector.strategy.region_strategy: must be one",
    ),
    (allocation(selector={"near": {"latitude": 91}}), "spec.selector.near.latitude: must be from -90 to 90"),
    (allocation(selector={"near": {"latitude": 1}}), "spec.selector.near.longitude: is missing"),
    (allocation(selector={"min_clusters": 3, "max_clusters": 2}), "spec.selector.max_clusters: must not be less"),
    (
        allocation(selector={"stack_affinity": [{"key": "a"}]}),
        "spec.selector.stack_affinity[0].operator: must be one of",
    ),
    (
        allocation(selector={"stack_affinity": [{"key": "a", "operator": "gt", "values": ["x"]}]}),
        "spec.selector.stack_affinity[0].values: must be a whole number for the operator gt",
    ),
    (
        allocation(selector={"stack_affinity": [{"key": "a", "operator": "in"}]}),
        "spec.selector.stack_affinity[0].values: must have an entry for the operator in",
    ),
    (
        allocation(selector={"stack_affinity": [{"key": "-", "operator": "exists"}]}),
        "spec.selector.stack_affinity[0].key: name part must consist of",
    ),
]


@pytest.mark.parametrize(("obj", "why"), WRONG)
def test_what_nobody_understands_is_told_by_its_path(obj: Obj, why: str) -> None:
    read = read_pod_request if "virtualMachine" in obj["spec"] else read_allocation_request
    with pytest.raises(InvalidRequestError) as raised:
        read(obj, "")
    assert any(error.startswith(why) for error in raised.value.errors), raised.value.errors


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        read_pod_request(pod({"needEIP": 1, "flavors": [{"flavorID": "a", "spot": 3}]}, priority="x"), "")
    assert [error.partition(":")[0] for error in raised.value.errors] == [
        "spec.virtualMachine.flavors[0].spot",
        "spec.virtualMachine.needEIP",
        "spec.priority",
    ]


def test_names_without_end_are_nobodys() -> None:
    machine = {"flavors": [{"flavorID": "a"}], f"need{'_' * 1000}EIP": True}
    assert not read_pod_request(pod(machine), "").items[0].eip


# --- clusters -------------------------------------------------------------------------------------


def test_a_cluster_is_a_site() -> None:
    spec = {
        "geolocation": {"city": "Bellevue", "province": "Washington", "area": "NW-1", "country": "US"},
        "region": {"region": "region1", "availabilityzone": "az1"},
        "operator": {"operator": "globalscheduler"},
        "flavors": [
            {"flavorid": "42", "totalcapacity": 1000},
            {"flavorid": "42", "totalcapacity": 5},
            {"flavorid": "1", "totalcapacity": -7},
            {"flavorid": 7, "totalcapacity": 7},
        ],
        "storage": [{"typeid": "sas", "storagecapacity": 256}, {"typeid": "sas", "storagecapacity": 4}],
        "eipcapacity": 0,
        "cpucapacity": 0,
        "memcapacity": 256,
        "serverprice": 10,
        "unschedulable": True,
        "taints": [
            {"key": "gone", "effect": "NoExecute", "timeAdded": "2024-05-01T12:00:00Z"},
            {"key": "what", "effect": "Nothing"},
        ],
        "exclusivetenants": ["shop", ""],
        "coordinates": {"latitude": 47.6, "longitude": -122.2},
    }
    metadata = {"name": "az1", "namespace": "default", "uid": "u3", "labels": {"gpu": "yes"}}
    deleted = {**metadata, "deletionTimestamp": "2024-05-01T12:00:00Z"}
    found = read_site({"metadata": deleted, "spec": spec, "status": {"phase": "Sellout"}}, "clouds")
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
    [
        (None, Health.READY),
        ({"stacks": 1}, Health.READY),
        ("Ready", Health.READY),
        ("Created", Health.UNKNOWN),
        ({"phase": "Down"}, Health.DOWN),
        ({"phase": ["Down"]}, Health.UNKNOWN),
        ([7], Health.UNKNOWN),
    ],
)
def test_a_status_may_be_the_phase_itself(status: Any, health: Health) -> None:
    assert read_site({"metadata": {"name": "a"}, "spec": {}, "status": status}, "").health is health


@pytest.mark.parametrize("spec", [None, 7, []])
def test_a_cluster_that_makes_no_sense_takes_nothing(spec: Any) -> None:
    found = read_site({"metadata": {"name": "a"}, "spec": spec}, "clouds")
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
    metadata = {**pod["metadata"], "annotations": {"a": "b", **binding["metadata"]["annotations"]}}
    spec = {**pod["spec"], "nodeName": chosen.site.name, "clusterName": chosen.site.name}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


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
    request = read_pod_request(obj, "shop")
    chosen = chosen_for(request, (data.draw(st.sampled_from(wished)),), site)
    assert read_pod_reservation(obj, "shop", CATALOGUE) is None
    assert read_pod_reservation(bound(obj, chosen), "shop", CATALOGUE) == Reservation(
        "u1", site, chosen.claim, "shop", tuple(sorted(request.labels.items()))
    )


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
    request = read_allocation_request(obj, "shop")
    chosen = [
        chosen_for(request, tuple(one if first else two for one, two, _, _ in resources), site)
        for site, first in replicas
    ]
    obj["status"] = {"placements": [statuses.placement(number, one) for number, one in enumerate(chosen)]}
    held = [
        Reservation(f"u2/{number}", one.site, one.claim, "shop", tuple(sorted(request.labels.items())))
        for number, one in enumerate(chosen)
    ]
    assert read_allocation_reservations(obj, "shop", CATALOGUE) == held
    obj["status"]["resources"] = [statuses.resource(item) for item in request.items]
    assert read_allocation_reservations(obj, "shop", CATALOGUE) == held
    obj["spec"]["resource_group"]["resources"] = [{"flavors": [{"flavor_id": "other"}], "count": 999}]
    assert read_allocation_reservations(obj, "shop", CATALOGUE) == held
    assert read_allocation_request(obj, "shop").current == tuple(site for site, _ in replicas)


def test_what_was_bound_by_hand_has_its_first_flavor_where_its_spec_says() -> None:
    claim = ResourceClaim((("small", 1),), 1, 2048)
    held = Reservation("u1", SiteKey("", "", "az9"), claim, "shop", (("app", "web"),))
    assert read_pod_reservation(pod(nodeName="az9"), "shop", CATALOGUE) == held
    moved = pod(clusterName="az9")
    moved["metadata"]["annotations"] = {"globalscheduler.com/cluster": "clouds|default/az1"}
    assert read_pod_reservation(moved, "shop", CATALOGUE) == held


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_what_has_ended_holds_nothing(phase: str) -> None:
    assert read_pod_reservation({**pod(nodeName="az1"), "status": {"phase": phase}}, "", CATALOGUE) is None
    status = {"phase": phase, "placements": [{"replica": 0, "cluster": {"name": "az1"}}]}
    assert read_allocation_reservations({**allocation(), "status": status}, "", CATALOGUE) == []


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
    obj = obj if isinstance(obj, dict) else {}
    for read in (read_pod_request, read_allocation_request):
        try:
            request = read(obj, "shop")
        except InvalidRequestError as error:
            assert error.errors
            assert all(": " in one for one in error.errors)
        else:
            assert request.uid
            assert all(item.flavors and item.number >= 1 for item in request.items)
            hash((request.items, request.selector))
    site = read_site(obj, "clouds")
    assert all(amount >= 0 for amount in (*site.capacity.flavors.values(), *site.capacity.storage.values()))
    held = read_pod_reservation(obj, "shop", CATALOGUE)
    numbers = [one.uid for one in read_allocation_reservations(obj, "shop", CATALOGUE)]
    assert held is None or held.site.name
    assert len(set(numbers)) == len(numbers)
