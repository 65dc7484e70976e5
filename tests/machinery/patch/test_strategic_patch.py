import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.definitions import schema
from farflung.machinery.errors import ApiError
from farflung.machinery.patch import strategic

POD_SPEC = schema("io.k8s.api.core.v1.PodSpec")
OBJECT_META = schema("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
SPEC: dict[str, Any] = {
    "containers": [
        {"name": "c1", "image": "i1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "args": ["x"]},
        {"name": "c2", "image": "i2"},
    ],
    "tolerations": [{"key": "k"}],
    "volumes": [{"name": "v", "emptyDir": {}}],
}


def patched(patch: dict[str, Any], document: dict[str, Any] = SPEC, of: Any = POD_SPEC) -> Any:
    return strategic.apply(copy.deepcopy(document), copy.deepcopy(patch), of)


def names(spec: dict[str, Any]) -> list[str]:
    return [container["name"] for container in spec["containers"]]


def test_a_container_is_merged_by_its_name() -> None:
    first = patched({"containers": [{"name": "c1", "image": "new"}]})["containers"][0]
    assert first == {**SPEC["containers"][0], "image": "new"}


def test_a_new_container_is_first() -> None:
    assert names(patched({"containers": [{"name": "c3", "image": "i3"}]})) == ["c3", "c1", "c2"]


def test_nested_lists_merge_by_their_own_keys() -> None:
    patch = {"containers": [{"name": "c1", "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]}]}
    env = patched(patch)["containers"][0]["env"]
    assert env == [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}, {"name": "C", "value": "4"}]


def test_an_atomic_list_is_replaced() -> None:
    assert patched({"tolerations": [{"key": "k2"}]})["tolerations"] == [{"key": "k2"}]


def test_an_item_is_deleted_by_directive() -> None:
    assert names(patched({"containers": [{"name": "c1", "$patch": "delete"}]})) == ["c2"]


def test_a_list_is_replaced_by_directive() -> None:
    assert patched({"containers": [{"name": "n"}, {"$patch": "replace"}]})["containers"] == [{"name": "n"}]


def test_the_element_order_is_set() -> None:
    patch = {
        "$setElementOrder/containers": [{"name": "c2"}, {"name": "c4"}, {"name": "c1"}],
        "containers": [{"name": "c4"}],
    }
    assert names(patched(patch)) == ["c2", "c4", "c1"]


def test_what_the_element_order_does_not_name_keeps_its_place_among_the_rest() -> None:
    assert names(patched({"$setElementOrder/containers": [{"name": "c2"}]})) == ["c1", "c2"]


def test_only_retained_keys_stay() -> None:
    patch = {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}
    assert patched(patch)["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


def test_scalars_merge_as_a_set_and_are_deleted_by_name() -> None:
    document = {"finalizers": ["a", "b"]}
    assert patched({"finalizers": ["c"]}, document, OBJECT_META) == {"finalizers": ["c", "a", "b"]}
    assert patched({"$deleteFromPrimitiveList/finalizers": ["a"]}, document, OBJECT_META) == {"finalizers": ["b"]}


def test_a_map_is_replaced_or_emptied_by_directive() -> None:
    document = {"labels": {"a": "1", "b": "2"}}
    assert patched({"labels": {"$patch": "replace", "z": "1"}}, document, OBJECT_META) == {"labels": {"z": "1"}}
    assert patched({"labels": {"$patch": "delete"}}, document, OBJECT_META) == {"labels": {}}


def test_null_deletes() -> None:
    assert "tolerations" not in patched({"tolerations": None})


@pytest.mark.parametrize(
    "patch",
    [
        {"containers": [{"image": "x"}]},
        {"containers": [{"$patch": "delete"}]},
        {"containers": [{"name": "c1", "$patch": "foo"}]},
        {"$setElementOrder/containers": "x"},
        {"$setElementOrder/nope": []},
        {"$retainKeys": "x"},
        {"$retainKeys": ["a"], "b": 1},
    ],
)
def test_a_patch_that_makes_no_sense_is_a_400(patch: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        patched(patch)
    assert refused.value.code == 400


containers = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abcde")}, optional={"image": st.sampled_from("xyz")}),
    max_size=4,
    unique_by=lambda container: container["name"],
)


@given(containers, containers)
def test_a_merged_list_has_every_name_once_and_the_patch_wins(server: list[Any], patch: list[Any]) -> None:
    result = patched({"containers": patch}, {"containers": server})["containers"]
    expected = {one["name"]: one for one in server}
    for one in patch:
        expected[one["name"]] = expected.get(one["name"], {}) | one
    assert {one["name"]: one for one in result} == expected
    assert len(result) == len(expected)


@given(containers, containers)
def test_the_same_patch_again_changes_nothing(server: list[Any], patch: list[Any]) -> None:
    once = patched({"containers": patch}, {"containers": server})
    assert patched({"containers": patch}, once)["containers"] == once["containers"]
