from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from farflung.machines.engine.values import Flavor
from farflung.machines.files.catalogue import (
    CatalogueError,
    RegionFlavor,
    merge_flavors,
    read_flavor_config,
    read_flavors,
)

NANO = {"id": "42", "name": "m1.nano", "vcpus": "1", "ram": 128, "disk": "3"}
LARGE = {"region": "region1", "id": "c6.large.2", "vcpus": "2", "ram": 4096}


def config(*flavors: Any, number: Any = None) -> str:
    table = {f"flavor_{index}": flavor for index, flavor in enumerate(flavors)}
    return yaml.safe_dump({"flavors": table} | ({} if number is None else {"flavor_number": number}))


def listed(*flavors: Any) -> str:
    return json.dumps({"flavors": flavors})


def sold(**specs: str) -> RegionFlavor:
    return read_flavors(
        listed(LARGE | {"os_extra_specs": {key.replace("_", ":"): text for key, text in specs.items()}})
    )[0]


def test_a_flavor_has_its_disk() -> None:
    assert read_flavor_config(config(NANO)) == {"42": Flavor("42", vcpus=1, memory=128, disk=3, name="m1.nano")}


def test_numbers_need_no_quotes() -> None:
    assert read_flavor_config(config({"id": 42, "vcpus": 1, "ram": "128"})) == {
        "42": Flavor("42", vcpus=1, memory=128, name="42")
    }


@pytest.mark.parametrize(("number", "expected"), [(None, ["42", "1"]), (2, ["42", "1"]), ("1", ["42"]), (0, [])])
def test_the_number_of_flavors_says_how_many_count(number: Any, expected: list[str]) -> None:
    assert list(read_flavor_config(config(NANO, NANO | {"id": "1"}, number=number))) == expected


def test_no_text_has_no_flavors() -> None:
    assert read_flavor_config("") == {}
    assert read_flavor_config("# nothing\n") == {}
    assert read_flavors("{}") == []


def test_a_flavor_of_a_region_says_what_it_runs_on() -> None:
    text = listed(
        LARGE | {"os_extra_specs": {"resource_type": "general", "cond:spot:operation:az": "az1"}, "links": [1]}
    )
    [one] = read_flavors(text)
    assert one.region == "region1"
    assert one.flavor == Flavor("c6.large.2", vcpus=2, memory=4096, name="c6.large.2", kind="general")


def test_region_and_id_can_come_from_one_name() -> None:
    [one] = read_flavors(listed({"region_flavor_id": "region1|c6.large.2", "vcpus": "2", "ram": 2}))
    assert (one.region, one.flavor.id, one.flavor.kind) == ("region1", "c6.large.2", "vm")


@pytest.mark.parametrize(
    ("status", "zones", "expected"),
    [
        ("", "", True),
        ("status1", "az1", True),
        ("normal", "az1(normal)", True),
        ("normal", "az2(sellout)", True),
        ("normal", "az1(sellout)", False),
        ("normal", "az2(normal), az1( Abandon )", False),
        ("abandon", "", False),
        ("abandon", "az2(normal)", False),
        ("abandon", "az1(normal)", True),
        ("abandon", "az1(obt)", True),
        ("abandon", "az1", True),
        ("Sellout", "az2(normal)", False),
        ("normal", ",(),((,az1(sellout", False),
    ],
)
def test_a_flavor_is_sold_in_a_zone_unless_its_state_there_forbids_it(status: str, zones: str, expected: bool) -> None:
    assert sold(cond_operation_status=status, cond_operation_az=zones).is_sold_in("az1") is expected


def test_a_flavor_is_as_large_as_in_the_region_where_it_is_largest() -> None:
    regional = read_flavors(
        listed(
            LARGE | {"vcpus": 4}, LARGE | {"region": "region2", "ram": 8192, "disk": 9}, LARGE | {"region": "region3"}
        )
    )
    everywhere = {"c6.large.2": Flavor("c6.large.2", vcpus=99), "42": Flavor("42", vcpus=1)}
    catalogue = merge_flavors(everywhere, regional)
    assert catalogue["c6.large.2"] == Flavor("c6.large.2", vcpus=4, memory=8192, disk=9, name="c6.large.2")
    assert catalogue["42"] == Flavor("42", vcpus=1)


def test_flavors_are_known_by_a_name_too_that_is_no_other_ones_name_or_id() -> None:
    everywhere = read_flavor_config(
        config(NANO, NANO | {"id": "1", "name": "small"}, NANO | {"id": "2", "name": "1", "vcpus": 7})
    )
    regional = read_flavors(
        listed(
            LARGE | {"name": "large"},
            LARGE | {"name": "grand", "region": "region2", "vcpus": 4},
            LARGE | {"id": "c6.small", "name": "small"},
        )
    )
    catalogue = merge_flavors(everywhere, regional)
    assert set(catalogue) == {"42", "m1.nano", "1", "2", "c6.large.2", "large", "grand", "c6.small"}
    assert catalogue["m1.nano"] == catalogue["42"]
    assert catalogue["1"].vcpus == 1
    assert catalogue["large"] == catalogue["grand"] == catalogue["c6.large.2"]
    assert catalogue["large"].vcpus == 4


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- 1\n", "flavor_config.yaml must have an object, not [1]."),
        ("a: [", "flavor_config.yaml cannot be read: yaml: "),
        ("a: 1\na: 2\n", 'flavor_config.yaml: line 2: key "a" already set in map.'),
        (config(number=1), "flavor_config.yaml: flavor_number is 1, but there is no flavors.flavor_0."),
        (config(NANO, number=10**11), "flavor_number is 100000000000, but there is no flavors.flavor_1."),
        (config(NANO, number=-1), "flavor_number must be a whole number from 0 to 1000000000000, not -1."),
        (config(NANO, number=True), "flavor_number must be a whole number from 0 to 1000000000000, not True."),
        (config(7), "flavors.flavor_0 must be an object, not 7."),
        (config(NANO, NANO), "the flavor '42' is a duplicate, at flavors.flavor_1."),
        (
            config(NANO | {"vcpus": "two"}),
            "flavors.flavor_0.vcpus must be a whole number from 1 to 1000000000000, not 'two'.",
        ),
        (config(NANO | {"vcpus": 0}), "flavors.flavor_0.vcpus must be a whole number from 1 to"),
        (config(NANO | {"vcpus": "\uff19"}), "flavors.flavor_0.vcpus must be a whole number"),
        (config(NANO | {"ram": 10**13}), "flavors.flavor_0.ram must be"),
        (config(NANO | {"ram": "9" * 9999}), "flavors.flavor_0.ram must be"),
        (config(NANO | {"ram": 1.5}), "flavors.flavor_0.ram must be a whole number from 1 to 1000000000000, not 1.5."),
        (config(NANO | {"disk": []}), "flavors.flavor_0.disk must be"),
        (
            config({"vcpus": 1, "ram": 1}),
            "flavors.flavor_0.id must be a printable text of at most 4096 characters, not nothing.",
        ),
        (config(NANO | {"id": ""}), "flavors.flavor_0.id must be"),
        (
            config(NANO | {"id": "a\nb"}),
            "flavors.flavor_0.id must be a printable text of at most 4096 characters, not 'a\\nb'.",
        ),
        (config(NANO | {"name": "x" * 5000}), "flavors.flavor_0.name must be"),
        (yaml.safe_dump({"flavors": [NANO]}), "flavors must be an object, not [{"),
    ],
)
def test_what_is_wrong_with_the_table_of_flavors_is_told_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(CatalogueError, match=re.escape(sentence)) as raised:
        read_flavor_config(text)
    assert str(raised.value).startswith("flavor_config.yaml")
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "flavors.json cannot be read: unexpected end of JSON input."),
        ("{'flavors': []}", "flavors.json cannot be read: "),
        ("[]", "flavors.json must have an object, not []."),
        ('{"flavors": {}}', "flavors.json: flavors must be a list, not {}."),
        ('{"flavors": [], "flavors": []}', 'flavors.json: duplicate field "flavors".'),
        (listed("x"), "flavors.json: flavors[0] must be an object, not 'x'."),
        (
            listed(LARGE, LARGE),
            "the flavor 'c6.large.2' of the region 'region1' is a duplicate, at flavors[1].",
        ),
        (listed({"id": "a", "vcpus": 1, "ram": 1}), "flavors[0].region must be the name of a region, not nothing."),
        (listed({"region": "r", "vcpus": 1, "ram": 1}), "flavors[0].id must be a printable text"),
        (listed(LARGE | {"os_extra_specs": 5}), "flavors[0].os_extra_specs must be an object, not 5."),
        (listed(LARGE | {"os_extra_specs": {"resource_type": {}}}), "flavors[0].os_extra_specs.resource_type must be"),
        ('{"flavors": ' + "[" * 9999, "flavors.json cannot be read: "),
    ],
)
def test_what_is_wrong_with_flavors_of_regions_is_told_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(CatalogueError, match=re.escape(sentence)):
        read_flavors(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("1"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "vcpus", "ram", "disk", "region", "os_extra_specs", "flavor_0"]), inner
        )
    ),
    max_leaves=12,
)


@given(
    JSON | st.builds(lambda one: {"flavors": [one]}, JSON) | st.builds(lambda one: {"flavors": {"flavor_0": one}}, JSON)
)
def test_anything_is_flavors_or_wrong(content: Any) -> None:
    for read, text in ((read_flavor_config, yaml.safe_dump(content)), (read_flavors, json.dumps(content))):
        try:
            assert read(text) is not None
        except CatalogueError as error:
            assert str(error).endswith(".")


@given(st.text())
def test_any_text_is_flavors_or_wrong(text: str) -> None:
    for read in (read_flavor_config, read_flavors):
        try:
            assert read(text) is not None
        except CatalogueError as error:
            assert len(str(error)) < 500
