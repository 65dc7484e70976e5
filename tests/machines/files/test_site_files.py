from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from farflung.machines.engine.values import Geo, Health, Site, SiteKey
from farflung.machines.files.catalogue import CatalogueError
from farflung.machines.files.site_files import FILES, SiteFiles, SiteFileSettings, read_settings, read_site_files

POLICY = "scheduler_policy_file: policy.yaml\n"


def place(region: str = "region1", zone: str = "az1", **more: Any) -> dict[str, Any]:
    return {"region": region, "availability_zone": zone, **more}


def flavor(region: str = "region1", **specs: str) -> dict[str, Any]:
    return {"region": region, "id": "c6", "vcpus": "2", "ram": 10, "os_extra_specs": specs}


def host(vcpus: int, memory: int, used_vcpus: int = 0, used_memory: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "total_vcpus": vcpus,
        "total_mem": memory,
        "used_vcpus": used_vcpus,
        "used_mem": used_memory,
        **more,
    }


def pool(size: int, used: int = 0, cached: int = 0, **more: Any) -> dict[str, Any]:
    return {"size": size, "used": used, "cached": cached, "status": "active", **more}


def volumes(kind: str, total: Any, provisioned: Any = 0, ratio: Any = None, zone: str = "az1") -> dict[str, Any]:
    capabilities = {"volume_type": kind, "total_capacity_gb": total, "provisioned_capacity_gb": provisioned}
    if ratio is not None:
        capabilities["max_over_subscription_ratio"] = ratio
    return {"availability_zone": zone, "capabilities": capabilities}


def base(**lists: Any) -> SiteFiles:
    """From lists by the names of their files, without `.json`."""
    return read_site_files(
        {"conf.yaml": POLICY, **{f"{name}.json": json.dumps({name: one}) for name, one in lists.items()}}
    )


def only_site(**lists: Any) -> Site:
    [site] = base(**{"site_infos": [place()], **lists}).sites
    return site


def names(*places: dict[str, Any]) -> list[str]:
    return [str(site.key) for site in base(site_infos=list(places)).sites]


# --- settings ---------------------------------------------------------------------------------------


def test_settings_have_the_defaults_of_the_original() -> None:
    assert read_settings(POLICY) == SiteFileSettings("policy.yaml", spot_fake=False, qos_weight=0.5)


def test_settings_are_read_and_others_ignored() -> None:
    text = """
        master: https://127.0.0.1:6443
        kubeconfig: /var/run/kubernetes/admin.kubeconfig
        scheduler_policy: edgecloud
        scheduler_policy_file: /etc/policy.yaml
        spot_fake: true
        qos_weight: "0.25"
        flavor_interval: 5
        port: 13443
        something_else: [1, 2]
    """
    assert read_settings(text) == SiteFileSettings(
        "/etc/policy.yaml",
        master="https://127.0.0.1:6443",
        kubeconfig="/var/run/kubernetes/admin.kubeconfig",
        spot_fake=True,
        qos_weight=0.25,
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "conf.yaml: scheduler_policy_file is missing; it names the file with predicates and priorities."),
        ("scheduler_policy_file: ''", "conf.yaml: scheduler_policy_file is missing"),
        ("scheduler_policy_file: [1]", "conf.yaml: scheduler_policy_file must be a printable text"),
        (POLICY + "spot_fake: perhaps", "conf.yaml: spot_fake must be true or false, not 'perhaps'."),
        (POLICY + "qos_weight: -1", "conf.yaml: qos_weight must be a number from 0 to 1e+12, not -1."),
        (POLICY + "master: {}", "conf.yaml: master must be"),
    ],
)
def test_what_is_wrong_with_settings_is_told_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(CatalogueError, match=re.escape(sentence)):
        read_settings(text)


def test_without_settings_there_is_nothing() -> None:
    with pytest.raises(CatalogueError, match=r"conf\.yaml is missing\."):
        read_site_files({"site_infos.json": "{}"})


# --- sites ------------------------------------------------------------------------------------------


def test_settings_alone_have_no_sites() -> None:
    assert base() == SiteFiles(read_settings(POLICY))


def test_a_site_is_where_its_entry_says() -> None:
    site = only_site(
        site_infos=[
            place(
                site_id="site1",
                country="china",
                area="huanan",
                province="guangdong",
                city="shenzhen",
                status="active",
                operator={"id": "opera1", "name": "unicom", "sa": ""},
                site_attributes=[{"id": "1", "site_attr": "key1", "site_attr_value": "value1"}],
            )
        ]
    )
    assert (site.key, site.uid) == (SiteKey("", "", "az1"), "site1")
    assert (site.region, site.zone, site.operator) == ("region1", "az1", "unicom")
    assert site.geo == Geo("china", "huanan", "guangdong", "shenzhen")
    assert (site.health, site.labels, site.tenants) == (Health.READY, {"key1": "value1"}, frozenset())


@pytest.mark.parametrize(
    ("operator", "expected"), [(None, ""), ("unicom", "unicom"), ({"id": "o1"}, "o1"), ({"id": "o1", "name": "n"}, "n")]
)
def test_an_operator_is_a_name_or_has_one(operator: Any, expected: str) -> None:
    assert only_site(site_infos=[place(operator=operator)]).operator == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("active", Health.READY),
        ("Sellout", Health.SELLOUT),
        ("offline", Health.OFFLINE),
        ("DOWN", Health.DOWN),
        ("", Health.UNKNOWN),
        ("whatever", Health.UNKNOWN),
    ],
)
def test_the_status_of_a_site_is_its_health(status: str, expected: Health) -> None:
    assert only_site(site_infos=[place(status=status)]).health is expected


def test_the_domains_of_an_exclusive_site_are_its_tenants() -> None:
    attributes = [{"site_attr": "exclusive_domains", "site_attr_value": "one, two,"}]
    site = only_site(site_infos=[place(site_attributes=attributes)])
    assert (site.tenants, site.labels) == (frozenset({"one", "two"}), {})


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([("r1", "az1")], ["az1"]),
        ([("r2", "az2"), ("r1", "az1")], ["az1", "az2"]),
        ([("r1", "az1"), ("r2", "az1"), ("r1", "az2")], ["az2", "r1--az1", "r2--az1"]),
        ([("NW-1", "Production-AZ"), ("NW-2", "production-az")], ["nw-1--production-az", "nw-2--production-az"]),
    ],
)
def test_a_site_is_called_like_its_zone_or_its_region_and_zone(
    places: list[tuple[str, str]], expected: list[str]
) -> None:
    assert names(*(place(*one) for one in places)) == expected


# --- room -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([host(10, 1000)], 5),
        ([host(1000, 55)], 5),
        ([host(10, 1000, 4, 0)], 3),
        ([host(10, 1000, 0, 995)], 0),
        ([host(10, 1000, 11, 0)], 0),
        ([host(10, 1000, cpu_allocation_ratio="2.0")], 10),
        ([host(10, 1000, cpu_allocation_ratio="")], 5),
        ([host(3, 1000, cpu_allocation_ratio="1.5"), host(3, 1000, cpu_allocation_ratio=1.5)], 4),
        ([host(10, 20), host(0, 30)], 5),
        ([host(10, 1000, resource_type="gpu")], None),
        ([host(10, 1000, resource_type="gpu||vm")], 5),
        ([host(10, 1000, resource_type="gpu||vm"), host(4, 1000), host(100, 1000, resource_type="gpu")], 7),
        ([], None),
    ],
)
def test_the_room_of_hosts_says_how_many_of_a_flavor_there_are(
    hosts: list[dict[str, Any]], expected: int | None
) -> None:
    site = only_site(flavors=[flavor()], site_resources=[place(hosts=hosts)])
    assert site.capacity.flavors == ({} if expected is None else {"c6": expected})


def test_a_site_has_what_all_its_hosts_have_and_others_use() -> None:
    hosts = [host(10, 100, 1, 2, cpu_allocation_ratio="2"), host(3, 50, 4, 5, resource_type="gpu")]
    site = only_site(site_resources=[place(hosts=hosts)])
    assert (site.capacity.vcpus, site.capacity.memory) == (23, 150)
    assert site.used_elsewhere == {"vcpus": 5, "memory": 7}


def test_hosts_are_found_by_the_id_of_their_site_too() -> None:
    site = only_site(flavors=[flavor()], site_resources=[{"site_id": "region1|az1", "hosts": [host(10, 1000)]}])
    assert site.capacity.flavors == {"c6": 5}


@pytest.mark.parametrize(
    ("one", "is_offered"),
    [
        (flavor(), True),
        (flavor(region="region2"), False),
        (flavor(**{"cond:operation:az": "az1(sellout)"}), False),
        (flavor(**{"cond:operation:status": "abandon"}), False),
        (flavor(**{"cond:operation:status": "abandon", "cond:operation:az": "az1(normal)"}), True),
    ],
)
def test_a_site_offers_what_its_region_sells_there(one: dict[str, Any], is_offered: bool) -> None:
    site = only_site(flavors=[one], site_resources=[place(hosts=[host(10, 1000)])])
    assert ("c6" in site.capacity.flavors) is is_offered


# --- public addresses -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "pools", "expected"),
    [
        ("", [pool(20, 2, 1)], 17),
        ("", [pool(20, 2, 1), pool(5)], 22),
        ("", [pool(3, 2, 2)], 0),
        ("", [pool(20) | {"status": "down"}], 0),
        ("type1", [pool(20, type="type1"), pool(5, type="type2")], 20),
        ("pool2", [pool(20, name="pool1"), pool(5, name="pool2")], 5),
        ("eip_type_name", [pool(20, 2, 1, name="common_pool1", type="type1")], 17),
        ("", [], 0),
    ],
)
def test_addresses_are_those_of_the_pools_of_the_region(wish: str, pools: list[dict[str, Any]], expected: int) -> None:
    site = only_site(
        site_infos=[place(eip_type_name=wish)],
        eip_pools=[{"region": "region1", "common_pools": pools}, {"region": "region2", "common_pools": [pool(99)]}],
    )
    assert site.capacity.eips == expected


def test_without_a_file_of_pools_nobody_has_said_how_many_addresses_there_are() -> None:
    assert only_site().capacity.eips is None


def test_the_sites_of_a_region_share_its_addresses() -> None:
    sites = base(
        site_infos=[place(zone="az3"), place(zone="az1"), place(zone="az2"), place("region2", "az4")],
        eip_pools=[{"region": "region1", "common_pools": [pool(17), pool(3)]}],
    ).sites
    assert [site.capacity.eips for site in sites] == [7, 7, 6, 0]


# --- volumes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ([volumes("SAS", 2000)], {"sas": 2000}),
        ([volumes("sas", 2000, 500), volumes("sas", 10, 0)], {"sas": 1510}),
        ([volumes("sas", 100, 10, 1.5)], {"sas": 140}),
        ([volumes("sas", 100, 0, 0)], {"sas": 100}),
        ([volumes("sas", "100.5", 0.6, "2")], {"sas": 200}),
        ([volumes("sas", 100, 300), volumes("ssd", 5)], {"sas": 0, "ssd": 5}),
        ([volumes("sas", 100, zone="az2")], {}),
    ],
)
def test_volumes_are_those_of_the_pools_of_the_zone(pools: list[dict[str, Any]], expected: dict[str, int]) -> None:
    assert only_site(volume_pools=[{"region": "region1", "pools": pools}]).capacity.storage == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ({"id": "sas"}, {}),
        ({"id": "17", "name": "SAS"}, {}),
        ({"id": "sas", "region": "region2"}, {"sas": 9}),
        ({"id": "ssd"}, {"sas": 9}),
    ],
)
def test_a_type_of_volumes_that_is_sold_out_in_a_zone_is_not_there(
    kind: dict[str, str], expected: dict[str, int]
) -> None:
    site = only_site(
        volume_pools=[{"region": "region1", "pools": [volumes("sas", 9)]}],
        volume_types=[{"region": "region1", "os-vender-extended:sold_out_availability_zones": "az0, az1", **kind}],
    )
    assert site.capacity.storage == expected


# --- what can be wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lists", "sentence"),
    [
        (
            {"site_infos": [{"region": "r"}]},
            "site_infos.json: site_infos[0].availability_zone must be a printable text",
        ),
        ({"site_infos": [place("r", "a"), place("r", "a")]}, "the zone 'a' of the region 'r' is a duplicate"),
        ({"site_infos": [place("r", "A"), place("r", "a")]}, "a site that would be called 'r--a' is a duplicate"),
        ({"site_infos": [place("r", "a/b")]}, "site_infos[0].availability_zone must be of letters, digits and hyphens"),
        ({"site_infos": [place(operator=[])]}, "site_infos[0].operator must be"),
        (
            {"site_resources": [place("r", "a")]},
            "site_resources.json: site_resources[0] is of 'r--a', which site_infos.json does not have.",
        ),
        (
            {"site_infos": [place()], "site_resources": [place(hosts=[host(1, 1, cpu_allocation_ratio="x")])]},
            "site_resources[0].hosts[0].cpu_allocation_ratio must be a number from 0 to 10000, not 'x'.",
        ),
        (
            {"site_infos": [place()], "site_resources": [place(hosts=[host(-1, 1)])]},
            "site_resources[0].hosts[0].total_vcpus must be a whole number from 0 to 1000000000000, not -1.",
        ),
        (
            {"eip_pools": [{"region": "r", "common_pools": [{"size": "many"}]}]},
            "eip_pools.json: eip_pools[0].common_pools[0].size must be a whole number",
        ),
        (
            {"volume_pools": [{"region": "r", "pools": [volumes("sas", "infinite")]}]},
            "volume_pools.json: volume_pools[0].pools[0].capabilities.total_capacity_gb must be a number",
        ),
        ({"volume_types": ["sas"]}, "volume_types.json: volume_types[0] must be an object, not 'sas'."),
    ],
)
def test_what_is_wrong_with_a_file_is_told_in_a_sentence(lists: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CatalogueError, match=re.escape(sentence)):
        base(**lists)


KEYS = [
    *("region", "availability_zone", "site_id", "hosts", "resource_type", "total_vcpus", "cpu_allocation_ratio"),
    *("common_pools", "size", "pools", "capabilities", "volume_type", "total_capacity_gb", "operator", "status"),
    *("site_attributes", "site_attr", "eip_type_name", "os-vender-extended:sold_out_availability_zones"),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["region1", "az1", "9", "1.5", "", "\0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=15,
)
ENTRIES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6).map(lambda one: place() | one)


@given(st.sampled_from(FILES), ENTRIES | VALUES, ENTRIES | VALUES)
def test_any_content_is_a_base_or_wrong(file: str, one: Any, other: Any) -> None:
    name, _, suffix = file.partition(".")
    content = {name: [one, other], "flavors": {"flavor_0": one}, "scheduler_policy_file": other, "spot_fake": one}
    text = json.dumps(content) if suffix == "json" else yaml.safe_dump(content)
    files = {"conf.yaml": POLICY, "site_infos.json": json.dumps({"site_infos": [place()]})}
    try:
        assert isinstance(read_site_files({**files, file: text}), SiteFiles)
    except CatalogueError as error:
        assert str(error).startswith(file)


@given(st.sampled_from(FILES), st.text())
def test_any_text_is_a_base_or_wrong(file: str, text: str) -> None:
    try:
        assert isinstance(read_site_files({"conf.yaml": POLICY, file: text}), SiteFiles)
    except CatalogueError as error:
        assert str(error).startswith(file)
