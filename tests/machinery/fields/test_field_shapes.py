"""How values are cut into fields, merged and pruned."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.definitions import schema
from farflung.machinery.fields.sets import MAX_DEPTH, Fields, paths
from farflung.machinery.fields.shapes import (
    MAX_PLANS,
    Changes,
    ObjectShape,
    Root,
    StructShape,
    Unkeyed,
    no_reference,
    shape_of,
)
from farflung.machinery.schema.model import Schema

NAMED_ITEMS = {
    "type": "array",
    "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}}},
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}
THING = Schema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "half": {
                        "type": "object",
                        "properties": {"known": {"type": "object", "properties": {"x": {"type": "string"}}}},
                        "x-kubernetes-preserve-unknown-fields": True,
                    },
                    "list": NAMED_ITEMS,
                    "plain": {"type": "array", "items": {"type": "string"}},
                    "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                    "whole": {
                        "type": "object",
                        "properties": {"x": {"type": "string"}},
                        "x-kubernetes-map-type": "atomic",
                    },
                    "ports": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "port": {"type": "integer"},
                                "protocol": {"type": "string", "default": "TCP"},
                            },
                        },
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["protocol", "port"],
                    },
                    "embedded": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {}},
                    "things": {
                        "type": "object",
                        "additionalProperties": {"type": "object", "properties": {"x": {"type": "string"}}},
                    },
                },
            }
        },
    },
    no_reference,
)


def thing(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "e/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec}


def changes(old: dict[str, Any], new: dict[str, Any]) -> Changes:
    """Below `spec` only."""
    taken, removed = shape_of(THING).changes(thing(**old), thing(**new))
    return Changes((taken or {}).get("f:spec"), (removed or {}).get("f:spec"))


def claimed(**spec: Any) -> Fields:
    claims = shape_of(THING).claimed(thing(**spec))
    assert claims is not None
    below: Fields = claims["f:spec"]
    return below


# --- what changes ---------------------------------------------------------------------------------

JSON = st.recursive(
    st.sampled_from(["1", "2"]), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)


def all_paths(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found = {path: value}
    if isinstance(value, dict):
        for name, item in value.items():
            found |= all_paths(item, (*path, name))
    return found


def as_paths(fields: Fields | None) -> set[str]:
    return set(paths(fields or {}))


@given(st.dictionaries(st.sampled_from("abc"), JSON), st.dictionaries(st.sampled_from("abc"), JSON))
def test_changes_agree_with_a_comparison_path_by_path(old: dict[str, Any], new: dict[str, Any]) -> None:
    before, after = all_paths({"free": old}), all_paths({"free": new})
    taken = {path for path in after if path not in before}
    for path in before.keys() & after.keys():
        one, other = before[path], after[path]
        if one != other and not (isinstance(one, dict) and isinstance(other, dict)):
            taken.add(path)
    removed = {path for path in before if path not in after}
    found = changes({"free": old}, {"free": new})
    assert as_paths(found.taken) == {"." + ".".join(path) for path in taken}
    assert as_paths(found.removed) == {"." + ".".join(path) for path in removed}


def test_what_is_replaced_as_a_whole_is_one_field() -> None:
    assert changes({"whole": {"x": "1"}, "plain": ["a"]}, {"whole": {"x": "2"}, "plain": ["a", "b"]}).taken == {
        "f:whole": {},
        "f:plain": {},
    }


def test_items_of_lists_are_fields_by_key_and_by_value() -> None:
    found = changes(
        {"list": [{"name": "a", "value": "1"}, {"name": "b"}], "set": ["x", "y"]},
        {"list": [{"name": "c"}, {"name": "a", "value": "2"}], "set": ["z", "y"]},
    )
    assert found.taken == {
        "f:list": {'k:{"name":"a"}': {"f:value": {}}, 'k:{"name":"c"}': {".": {}, "f:name": {}}},
        "f:set": {'v:"z"': {}},
    }
    assert found.removed == {
        "f:list": {'k:{"name":"b"}': {".": {}, "f:name": {}}},
        "f:set": {'v:"x"': {}},
    }


def test_another_order_is_no_change() -> None:
    one = {"list": [{"name": "a"}, {"name": "b"}], "set": ["x", "y"]}
    other = {"list": [{"name": "b"}, {"name": "a"}], "set": ["y", "x"]}
    assert changes(one, other) == (None, None)


def test_empty_and_absent_containers_are_different() -> None:
    assert changes({}, {"list": [], "things": {}}).taken == {"f:list": {}, "f:things": {}}
    assert changes({"things": {"a": {}}}, {"things": {}}) == (None, {"f:things": {"f:a": {}}})
    assert changes({"things": None}, {"things": {"a": {"x": "1"}}}).taken == {"f:things": {"f:a": {".": {}, "f:x": {}}}}


def test_items_that_share_a_key_are_one_field_together() -> None:
    single = {"list": [{"name": "a", "value": "1"}]}
    double = {"list": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]}
    other = {"list": [{"name": "a", "value": "1"}, {"name": "a", "value": "3"}]}
    item: Fields = {".": {}, "f:name": {}, "f:value": {}}
    assert changes({}, double).taken == {"f:list": {".": {}, 'k:{"name":"a"}': {}}}
    assert changes(single, double) == ({"f:list": {'k:{"name":"a"}': {}}}, {"f:list": {'k:{"name":"a"}': item}})
    assert changes(double, single) == ({"f:list": {'k:{"name":"a"}': item}}, {"f:list": {'k:{"name":"a"}': {}}})
    assert changes(double, other) == ({"f:list": {'k:{"name":"a"}': {}}}, None)
    assert changes(double, double) == (None, None)


def test_keys_have_the_defaults_of_their_schema_and_one_order() -> None:
    assert changes({}, {"ports": [{"port": 80}]}).taken == {
        "f:ports": {".": {}, 'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}
    }


@pytest.mark.parametrize(
    "item", [{"value": "1"}, None, "text", {"name": {"a": 1}}, {"name": [1]}], ids=lambda item: str(item)
)
def test_an_item_without_its_key_cannot_be_named(item: Any) -> None:
    with pytest.raises(Unkeyed):
        changes({}, {"list": [item]})


@pytest.mark.parametrize("item", [{}, [], None])
def test_a_set_holds_scalars(item: Any) -> None:
    with pytest.raises(Unkeyed):
        changes({}, {"set": [item]})


def test_declared_and_free_fields_live_side_by_side() -> None:
    found = changes({}, {"half": {"known": {"x": "1"}, "other": {"y": [1]}}})
    assert found.taken == {"f:half": {".": {}, "f:known": {".": {}, "f:x": {}}, "f:other": {".": {}, "f:y": {}}}}


def test_the_metadata_of_an_embedded_object_is_cut_like_any() -> None:
    embedded = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n", "labels": {"a": "b"}}}
    assert changes({}, {"embedded": embedded}).taken == {
        "f:embedded": {
            ".": {},
            "f:apiVersion": {},
            "f:kind": {},
            "f:metadata": {".": {}, "f:name": {}, "f:labels": {".": {}, "f:a": {}}},
        }
    }


def test_the_depths_are_owned_as_a_whole() -> None:
    deep: Any = "bottom"
    for _ in range(MAX_DEPTH + 50):
        deep = {"a": deep}
    taken = changes({}, {"free": deep}).taken
    assert taken is not None
    depth = 0
    while taken:
        taken = next(node for key, node in taken.items() if key != ".")
        depth += 1
    assert depth < MAX_DEPTH + 3


# --- what is claimed ------------------------------------------------------------------------------


def test_claims_are_leaves_and_items_not_the_containers_around_them() -> None:
    fields = claimed(
        list=[{"name": "a", "value": "1"}],
        set=["x"],
        plain=[],
        whole={},
        things={"a": {"x": "1"}, "b": {}},
        free={"a": {"b": 1}},
    )
    assert fields == {
        "f:list": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:value": {}}},
        "f:set": {'v:"x"': {}},
        "f:plain": {},
        "f:whole": {},
        "f:things": {"f:a": {".": {}, "f:x": {}}, "f:b": {}},
        "f:free": {"f:a": {".": {}, "f:b": {}}},
    }


def test_nulls_and_empty_objects_are_claimed_and_empty_lists_are_not() -> None:
    assert claimed(things={}, list=[], set=None) == {"f:things": {}, "f:set": {}}


def test_fields_that_the_server_sets_have_no_manager() -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "b", "uid": "c", "labels": {"x": "y"}, "generateName": "a-"},
    }
    owned: Fields = {"f:metadata": {"f:labels": {"f:x": {}}, "f:generateName": {}}}
    assert shape_of(schema("io.k8s.api.core.v1.ConfigMap")).claimed(obj) == owned
    assert shape_of(THING).claimed(obj) == owned


# --- merging --------------------------------------------------------------------------------------


def merged(live: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = shape_of(THING).merged(thing(**live), thing(**applied))["spec"]
    return result


@pytest.mark.parametrize(
    ("live", "applied", "result"),
    [
        ("ab", "cd", "abcd"),
        ("ab", "ba", "ba"),
        ("axb", "ba", "xba"),
        ("axb", "ab", "axb"),
        ("axb", "acb", "axcb"),
        ("abc", "cx", "abcx"),
        ("abc", "xa", "xabc"),
        ("xaby", "bca", "xbyca"),
        ("", "ab", "ab"),
        ("ab", "", "ab"),
    ],
)
def test_applied_items_keep_their_order_and_the_others_their_neighbours(live: str, applied: str, result: str) -> None:
    assert merged({"set": list(live)}, {"set": list(applied)})["set"] == list(result)


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.lists(st.sampled_from("abcdef"), unique=True))
def test_merged_lists_hold_all_items_once_the_applied_ones_in_order(live: list[str], applied: list[str]) -> None:
    result = merged({"set": live}, {"set": applied})["set"]
    assert sorted(result) == sorted({*live, *applied})
    assert [item for item in result if item in applied] == applied
    only_live = [item for item in live if item not in applied]
    assert [item for item in result if item not in applied] == only_live


def test_merging_recurses_into_structs_maps_and_items() -> None:
    live = {
        "list": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}],
        "things": {"a": {"x": "1"}},
        "plain": ["1", "2"],
        "whole": {"x": "1"},
    }
    applied = {"list": [{"name": "b", "value": "3"}], "things": {"b": {"x": "2"}}, "plain": ["3"], "whole": {}}
    assert merged(live, applied) == {
        "list": [{"name": "a", "value": "1"}, {"name": "b", "value": "3"}],
        "things": {"a": {"x": "1"}, "b": {"x": "2"}},
        "plain": ["3"],
        "whole": {},
    }


def test_null_replaces_a_leaf_and_leaves_a_container() -> None:
    live = {"things": {"a": {}}, "list": [{"name": "a"}], "plain": ["x"]}
    assert merged(live, {"things": None, "list": None, "plain": None}) == {**live, "plain": None}


def test_live_duplicates_give_way_to_the_applied_item_and_stay_otherwise() -> None:
    twice = [{"name": "a", "value": "1"}, {"name": "b"}, {"name": "a", "value": "2"}, {"name": "b"}]
    assert merged({"list": twice}, {"list": [{"name": "a", "value": "3"}]})["list"] == [
        {"name": "a", "value": "3"},
        {"name": "b"},
        {"name": "b"},
    ]


# --- built-in types -------------------------------------------------------------------------------


def test_a_new_object_is_compared_with_the_empty_value_of_its_go_type() -> None:
    empty = shape_of(schema("io.k8s.api.apps.v1.Deployment")).empty
    template = {"metadata": {}, "spec": {"containers": None}}
    assert empty["spec"] == {"selector": {}, "template": template, "strategy": {}}
    assert empty["metadata"] == {}
    event = shape_of(schema("io.k8s.api.core.v1.Event")).empty
    assert event["source"] == {}
    assert event["reportingComponent"] == ""
    assert shape_of(THING).empty == {"metadata": {}}


SMALL = st.sampled_from([None, "", "x", 0, 1, True, [], {}, {"name": "x"}, {"app": "x"}, [{"name": "x"}]])
PARTS = st.recursive(
    SMALL,
    lambda inner: st.dictionaries(
        st.sampled_from(("labels", "name", "selector", "template", "spec", "strategy", "containers", "source")), inner
    ),
    max_leaves=6,
)
MEMBERS = ("metadata", "spec", "status", "data", "source", "eventTime", "reportingComponent", "unheard-of")


@given(
    st.sampled_from(("apps.v1.Deployment", "core.v1.Event", "core.v1.ConfigMap")),
    st.dictionaries(st.sampled_from(MEMBERS), PARTS),
)
def test_a_new_object_takes_what_differs_from_the_empty_one(kind: str, new: dict[str, Any]) -> None:
    shape = shape_of(schema(f"io.k8s.api.{kind}"))
    assert shape.created(new) == shape.changes(shape.empty, new).taken
    for _ in range(2):  # with a new plan, and with a known one
        assert orjson.dumps(shape.created(new)) == orjson.dumps(created_field_by_field(shape, new))


def created_field_by_field(shape: Root, new: dict[str, Any]) -> Fields | None:
    """`created` without plans, in the order of the object."""
    taken: Fields = {}
    for name, item in new.items():
        field = shape.field(name)
        if field is not None:
            known = name in shape.empty
            node = field.shape.changes(shape.empty[name], item).taken if known else field.shape.added(item)
            if node is not None:
                taken[f"f:{name}"] = node
    return taken or None


@given(st.lists(st.sampled_from("abc")), st.booleans())
def test_fields_of_new_items_are_those_of_a_comparison_with_no_items(names: list[str], has_values: bool) -> None:
    shape = shape_of(THING).child("spec").child("list")  # type: ignore[attr-defined]
    items = [{"name": name, **({"value": "x"} if has_values else {})} for name in names]
    below = {key: node for key, node in shape.added(items).items() if key != "."}
    assert below == (shape.changes([], items).taken or {})


NAMES = st.sampled_from(("free", "half", "known", "list", "plain", "set", "whole", "ports", "things", "x", "unknown"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.sampled_from(("", "a")),
    lambda inner: st.dictionaries(NAMES, inner, max_size=4) | st.lists(st.sampled_from(("a", "b")), unique=True),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=6), min_size=1, max_size=4))
def test_plans_of_structs_add_the_fields_that_a_look_at_each_name_adds(specs: list[dict[str, Any]]) -> None:
    spec = shape_of(THING).child("spec")
    assert isinstance(spec, StructShape)
    for value in specs:
        try:
            expected = ObjectShape.added(spec, value)
        except Unkeyed:
            continue
        assert spec.added(value) == expected
        assert list(spec.added(value)) == list(expected)


def test_plans_have_only_declared_names_and_are_few() -> None:
    """Where unknown fields are kept, clients choose any number of names of any length."""
    half = shape_of(THING).child("spec").child("half")
    assert isinstance(half, StructShape)
    for number in range(3):
        value = {"known": {"x": "1"}, **{f"{number}-{name}": name for name in range(1000)}}
        assert len(half.added(value)) == 1002
    assert not half._plans
    assert half.added({"known": {"x": "1"}}) == {".": {}, "f:known": {".": {}, "f:x": {}}}
    assert list(half._plans) == [("known",)]
    declared = {f"field{number:02}": {"type": "string"} for number in range(12)}
    wide = shape_of(
        Schema({"type": "object", "properties": {"spec": {"properties": declared, "type": "object"}}}, no_reference)
    )
    spec = wide.child("spec")
    assert isinstance(spec, StructShape)
    for number in range(1, 4096):
        chosen = [name for at, name in enumerate(declared) if number >> at & 1]
        assert spec.added(dict.fromkeys(chosen, "")) == {".": {}, **{f"f:{name}": {} for name in chosen}}
    assert len(spec._plans) == MAX_PLANS


def test_new_objects_with_undeclared_fields_leave_no_plan() -> None:
    root = shape_of(Schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, no_reference))
    assert root.created({"metadata": {"labels": {"a": "b"}}, "any": {"text": 1}}) == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:any": {".": {}, "f:text": {}},
    }
    assert not root._new._plans
    root.created({"metadata": {}})
    assert list(root._new._plans) == [("metadata",)]
