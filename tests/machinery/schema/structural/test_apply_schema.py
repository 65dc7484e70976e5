"""Server-side apply of custom resources: lists and maps merge as their schema says."""

from typing import Any

import pytest

from farflung.apis import definitions
from farflung.machinery.errors import ApiError, Obj
from farflung.machinery.patch.apply import apply
from farflung.machinery.schema.structural.structural import apply_schema

STRING = {"type": "string"}
SPEC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "set": {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
        "atomic": {"type": "array", "items": STRING},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {
                "type": "object",
                "required": ["port"],
                "properties": {
                    "port": {"type": "integer"},
                    "protocol": {"type": "string", "default": "TCP"},
                    "name": STRING,
                },
            },
        },
        "map": {"type": "object", "additionalProperties": STRING},
        "whole": {"type": "object", "additionalProperties": STRING, "x-kubernetes-map-type": "atomic"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
SCHEMA = apply_schema({"type": "object", "properties": {"spec": SPEC}}, definitions.schema)


def applied(live: Obj | None, spec: Obj, manager: str, *, force: bool = False) -> Obj:
    obj = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec}
    now = "2020-01-01T00:00:00Z"
    return apply(live, obj, SCHEMA, manager=manager, force=force, api_version="example.com/v1", now=now)


def owned(obj: Obj, manager: str) -> Obj:
    [entry] = [one for one in obj["metadata"]["managedFields"] if one["manager"] == manager]
    spec: Obj = entry["fieldsV1"]["f:spec"]
    return spec


def test_items_of_a_set_are_owned_one_by_one() -> None:
    one = applied(None, {"set": ["a", "b"]}, "one")
    both = applied(one, {"set": ["b", "c"]}, "two")
    assert both["spec"]["set"] == ["a", "b", "c"]
    assert owned(both, "two") == {"f:set": {'v:"b"': {}, 'v:"c"': {}}}
    assert applied(both, {"set": []}, "one")["spec"]["set"] == ["b", "c"]


def test_items_of_a_list_map_are_identified_by_keys_and_their_defaults() -> None:
    one = applied(None, {"ports": [{"port": 80, "name": "web"}]}, "one")
    both = applied(one, {"ports": [{"port": 80, "protocol": "UDP", "name": "dns"}]}, "two")
    assert {port["name"] for port in both["spec"]["ports"]} == {"web", "dns"}
    with pytest.raises(ApiError, match="conflict"):
        applied(both, {"ports": [{"port": 80, "protocol": "TCP", "name": "other"}]}, "two")


def test_other_lists_and_atomic_maps_are_owned_as_a_whole() -> None:
    one = applied(None, {"atomic": ["a"], "whole": {"a": "1"}}, "one")
    assert owned(one, "one") == {"f:atomic": {}, "f:whole": {}}
    with pytest.raises(ApiError, match="2 conflicts"):
        applied(one, {"atomic": ["b"], "whole": {"b": "1"}}, "two")
    assert applied(one, {"whole": {"b": "1"}}, "two", force=True)["spec"]["whole"] == {"b": "1"}


def test_maps_and_free_objects_are_owned_by_key() -> None:
    one = applied(None, {"map": {"a": "1"}, "free": {"x": {"y": 1}}}, "one")
    both = applied(one, {"map": {"b": "2"}, "free": {"x": {"z": [1]}}}, "two")
    assert both["spec"] == {"map": {"a": "1", "b": "2"}, "free": {"x": {"y": 1, "z": [1]}}}


def test_an_unknown_field_cannot_be_applied() -> None:
    with pytest.raises(ApiError, match="field not declared in schema"):
        applied(None, {"zzz": 1}, "one")


def test_metadata_is_object_meta_even_if_the_schema_declares_another_type() -> None:
    name = {"type": "object", "properties": {"name": {"type": "string"}}}
    schema = apply_schema({"type": "object", "properties": {"metadata": name}}, definitions.schema)
    metadata = schema.member("metadata")
    assert metadata is not None and "labels" in metadata.property_names


@pytest.mark.parametrize("schema", [None, {}, {"type": "object"}, {"properties": []}, 5])
def test_a_schema_that_says_nothing_still_has_metadata(schema: Any) -> None:
    assert apply_schema(schema, definitions.schema).property_names == {"apiVersion", "kind", "metadata"}
