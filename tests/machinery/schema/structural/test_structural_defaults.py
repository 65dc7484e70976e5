"""Which defaults a CustomResourceDefinition may have."""

from typing import Any

from farflung.apis.metadata import OBJECT_META
from farflung.machinery.schema.structural.defaults import check_defaults


def wrong(schema: dict[str, Any]) -> list[str]:
    root = {"type": "object", "properties": {"a": schema}}
    found = [str(error) for error in check_defaults(root, "schema", OBJECT_META)]
    return [text.removeprefix("schema.properties[a].") for text in found]


def test_a_default_has_the_type_of_its_field() -> None:
    assert wrong({"type": "integer", "default": "x"}) == [
        'default: Invalid value: "string":  in body must be of type integer: "string"'
    ]


def test_a_default_has_no_unknown_fields() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}, "default": {"y": 1}}
    assert wrong(schema) == ['default: Invalid value: {"y":1}: must not have unknown fields']


def test_a_default_keeps_the_limits() -> None:
    assert wrong({"type": "string", "default": "abc", "maxLength": 2}) == [
        "default: Too long: may not be more than 2 bytes"
    ]


def test_what_is_wrong_within_a_default_is_named() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}, "default": {"x": 1}}
    assert wrong(schema) == ['default.x: Invalid value: "integer": x in body must be of type string: "integer"']


def test_defaults_of_items_and_of_nested_fields_are_looked_at() -> None:
    bad = {"type": "integer", "default": "x"}
    schema = {"type": "array", "items": {"type": "object", "properties": {"b": bad}}}
    assert [text.partition(":")[0] for text in wrong(schema)] == ["items.properties[b].default"]


def test_good_defaults_are_fine() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "default": "y"}}, "default": {"x": "z"}}
    assert wrong(schema) == []


def test_the_default_of_an_embedded_object_is_an_object() -> None:
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    assert wrong({**embedded, "default": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}}}) == []
    assert wrong({**embedded, "default": {"apiVersion": "v1"}}) == ["default.kind: Required value"]
    assert wrong({**embedded, "default": {"apiVersion": "v1", "kind": 5}}) == [
        "default.kind: Invalid value: 5: must be a string"
    ]


def test_a_default_within_an_embedded_objects_metadata_makes_valid_metadata() -> None:
    metadata = {"type": "object", "properties": {"name": {"type": "string", "default": "a/b"}}}
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"metadata": metadata}}
    assert wrong(embedded) == [
        'properties[metadata].properties[name].default: Invalid value: "a/b": must result in valid metadata: '
        "metadata.name: Invalid value: \"a/b\": may not contain '/'"
    ]
