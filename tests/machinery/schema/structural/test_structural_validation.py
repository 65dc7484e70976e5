"""What a schema refuses, in Kubernetes' words: learnt from a real API server."""

from typing import Any

import pytest

from farflung.apis.metadata import OBJECT_META
from farflung.machinery.errors import FieldError
from farflung.machinery.schema.structural.structural import Structural, compile_structural

STRING = {"type": "string"}
FIELDS: dict[str, Any] = {
    "str": STRING,
    "int": {"type": "integer"},
    "num": {"type": "number"},
    "bool": {"type": "boolean"},
    "arr": {"type": "array", "items": {"type": "integer"}},
    "ob": {"type": "object", "properties": {"x": STRING}},
    "minLength": {"type": "string", "minLength": 3},
    "maxLength": {"type": "string", "maxLength": 3},
    "pattern": {"type": "string", "pattern": "^[a-z]+$"},
    "broken": {"type": "string", "pattern": "("},
    "enum": {"type": "string", "enum": ["a", "b"]},
    "enumInt": {"type": "integer", "enum": [1, 2]},
    "minimum": {"type": "integer", "minimum": 2},
    "exclMin": {"type": "integer", "minimum": 2, "exclusiveMinimum": True},
    "maximum": {"type": "number", "maximum": 2.5},
    "exclMax": {"type": "integer", "maximum": 2, "exclusiveMaximum": True},
    "large": {"type": "number", "maximum": 5000000.0},
    "multipleOf": {"type": "integer", "multipleOf": 5},
    "minItems": {"type": "array", "minItems": 2, "items": STRING},
    "maxItems": {"type": "array", "maxItems": 1, "items": STRING},
    "unique": {"type": "array", "uniqueItems": True, "items": STRING},
    "minProps": {"type": "object", "minProperties": 2, "additionalProperties": STRING},
    "maxProps": {"type": "object", "maxProperties": 1, "additionalProperties": STRING},
    "req": {"type": "object", "required": ["x", "y"], "properties": {"x": STRING, "y": STRING}},
    "addl": {"type": "object", "additionalProperties": {"type": "integer"}},
    "ios": {"x-kubernetes-int-or-string": True},
    "iosp": {"x-kubernetes-int-or-string": True, "pattern": "^x"},
    "nul": {"type": "string", "nullable": True},
    "dt": {"type": "string", "format": "date-time"},
    "i32": {"type": "integer", "format": "int32"},
    "other": {"type": "string", "format": "foo"},
    "ip": {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": STRING},
    "map": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": STRING, "v": STRING}},
    },
    "map2": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k", "p"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": STRING, "p": {"type": "integer"}}},
    },
    "oneOf": {
        "type": "object",
        "properties": {"a": STRING, "b": STRING},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "anyOf": {"type": "string", "anyOf": [{"pattern": "^a"}, {"pattern": "b$"}]},
    "allOf": {"type": "string", "allOf": [{"minLength": 2}, {"pattern": "^x"}]},
    "not": {"type": "string", "not": {"enum": ["z"]}},
    "emb": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
}


@pytest.fixture(scope="module")
def structural() -> Structural:
    spec = {"type": "object", "properties": FIELDS}
    return compile_structural({"type": "object", "properties": {"spec": spec}}, OBJECT_META)


def wrong_type(field: str, expected: str, actual: str) -> str:
    return f'{field}: Invalid value: "{actual}": {field} in body must be of type {expected}: "{actual}"'


REFUSED: list[tuple[str, Any, list[str]]] = [
    ("str", 1, [wrong_type("spec.str", "string", "integer")]),
    ("str", ["x"], [wrong_type("spec.str", "string", "array")]),
    ("int", "x", [wrong_type("spec.int", "integer", "string")]),
    ("int", 1.5, [wrong_type("spec.int", "integer", "number")]),
    ("int", 2**63, [wrong_type("spec.int", "integer", "number")]),
    ("num", "x", [wrong_type("spec.num", "number", "string")]),
    ("bool", 1, [wrong_type("spec.bool", "boolean", "integer")]),
    ("arr", "x", [wrong_type("spec.arr", "array", "string")]),
    (
        "arr",
        ["x", 2, None],
        [wrong_type("spec.arr[0]", "integer", "string"), wrong_type("spec.arr[2]", "integer", "null")],
    ),
    ("ob", [], [wrong_type("spec.ob", "object", "array")]),
    (
        "minLength",
        "éé",
        ['spec.minLength: Invalid value: "éé": spec.minLength in body should be at least 3 chars long'],
    ),
    ("maxLength", "abcd", ["spec.maxLength: Too long: may not be more than 3 bytes"]),
    ("pattern", "A1", ["spec.pattern: Invalid value: \"A1\": spec.pattern in body should match '^[a-z]+$'"]),
    (
        "broken",
        "x",
        [
            'spec.broken: Invalid value: "x": spec.broken in body should match \'(, but pattern is invalid: '
            "missing ): ('"
        ],
    ),
    ("enum", "c", ['spec.enum: Unsupported value: "c": supported values: "a", "b"']),
    ("enumInt", 3, ['spec.enumInt: Unsupported value: 3: supported values: "1", "2"']),
    ("minimum", 1, ["spec.minimum: Invalid value: 1: spec.minimum in body should be greater than or equal to 2"]),
    ("exclMin", 2, ["spec.exclMin: Invalid value: 2: spec.exclMin in body should be greater than 2"]),
    ("maximum", 2.6, ["spec.maximum: Invalid value: 2.6: spec.maximum in body should be less than or equal to 2.5"]),
    ("exclMax", 2, ["spec.exclMax: Invalid value: 2: spec.exclMax in body should be less than 2"]),
    (
        "large",
        5000000.5,
        ["spec.large: Invalid value: 5000000.5: spec.large in body should be less than or equal to 5e+06"],
    ),
    ("multipleOf", 7, ["spec.multipleOf: Invalid value: 7: spec.multipleOf in body should be a multiple of 5"]),
    ("minItems", ["a"], ["spec.minItems: Invalid value: 1: spec.minItems in body should have at least 2 items"]),
    ("maxItems", ["a", "b"], ["spec.maxItems: Too many: 2: must have at most 1 item"]),
    ("unique", ["a", "a"], ['spec.unique: Invalid value: "": spec.unique in body shouldn\'t contain duplicates']),
    (
        "minProps",
        {"a": "b"},
        ["spec.minProps: Invalid value: 1: spec.minProps in body should have at least 2 properties"],
    ),
    ("maxProps", {"a": "b", "c": "d"}, ["spec.maxProps: Too many: 2: must have at most 1 item"]),
    ("req", {}, ["spec.req.x: Required value", "spec.req.y: Required value"]),
    ("addl", {"a": 1, "b": "x"}, [wrong_type("spec.addl.b", "integer", "string")]),
    ("ios", 1.5, [wrong_type("spec.ios", "integer,string", "number")]),
    ("ios", True, [wrong_type("spec.ios", "integer,string", "boolean")]),
    ("iosp", "y", ["spec.iosp: Invalid value: \"y\": spec.iosp in body should match '^x'"]),
    ("dt", "yesterday", [wrong_type("spec.dt", "date-time", "yesterday")]),
    ("dt", 5, [wrong_type("spec.dt", "date-time", "int64")]),
    (
        "ip",
        "nowhere",
        [
            '<nil>: Invalid value: "": "spec.ip" must validate at least one schema (anyOf)',
            wrong_type("spec.ip", "ipv4", "nowhere"),
        ],
    ),
    ("set", ["a", "b", "a", "a"], ['spec.set[2]: Duplicate value: "a"']),
    ("map", [{"k": "a"}, {"k": "b"}, {"k": "a"}], ['spec.map[2]: Duplicate value: {"k":"a"}']),
    ("map", [{"v": "a"}], ["spec.map[0].k: Required value"]),
    ("map2", [{"k": "a", "p": 1}, {"p": 1, "k": "a"}], ['spec.map2[1]: Duplicate value: {"k":"a","p":1}']),
    (
        "oneOf",
        {},
        [
            '<nil>: Invalid value: "": "spec.oneOf" must validate one and only one schema (oneOf). Found none valid',
            "spec.oneOf.a: Required value",
        ],
    ),
    (
        "oneOf",
        {"a": "1", "b": "2"},
        [
            '<nil>: Invalid value: "": "spec.oneOf" must validate one and only one schema (oneOf). '
            "Found 2 valid alternatives"
        ],
    ),
    (
        "anyOf",
        "xx",
        [
            '<nil>: Invalid value: "": "spec.anyOf" must validate at least one schema (anyOf)',
            "spec.anyOf: Invalid value: \"xx\": spec.anyOf in body should match '^a'",
        ],
    ),
    (
        "allOf",
        "y",
        [
            'spec.allOf: Invalid value: "y": spec.allOf in body should be at least 2 chars long',
            "spec.allOf: Invalid value: \"y\": spec.allOf in body should match '^x'",
            '<nil>: Invalid value: "": "spec.allOf" must validate all the schemas (allOf). None validated',
        ],
    ),
    ("not", "z", ['<nil>: Invalid value: "": "spec.not" must not validate the schema (not)']),
    ("emb", {}, ["spec.emb.apiVersion: Required value", "spec.emb.kind: Required value"]),
    (
        "emb",
        {"apiVersion": "a/b/c", "kind": ""},
        [
            'spec.emb.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
            "spec.emb.kind: Required value",
        ],
    ),
]


@pytest.mark.parametrize(("field", "value", "expected"), REFUSED)
def test_a_value_is_refused_with_the_words_of_kubernetes(
    structural: Structural, field: str, value: Any, expected: list[str]
) -> None:
    assert [str(error) for error in structural.validate({"spec": {field: value}})] == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("int", 1.0),
        ("int", 2**63 - 1),
        ("num", 1),
        ("ios", 5),
        ("ios", "5%"),
        ("nul", None),
        ("dt", "2020-01-01T00:00:00Z"),
        ("i32", 3000000000),
        ("other", "anything"),
        ("ip", "::1"),
        ("set", ["a", "b"]),
        ("map", [{"k": "a"}, {"k": "b"}]),
        ("oneOf", {"a": "1"}),
        ("anyOf", "ax"),
        ("allOf", "xy"),
        ("emb", {"apiVersion": "v1", "kind": "Foo", "metadata": {"name": "x"}}),
    ],
)
def test_a_value_that_fits_is_fine(structural: Structural, field: str, value: Any) -> None:
    assert structural.validate({"spec": {field: value}}) == []


def test_types_and_missing_values_have_reasons_of_their_own(structural: Structural) -> None:
    errors = structural.validate({"spec": {"str": 1, "req": {"x": "1"}, "enum": "c", "maxLength": "abcd"}})
    assert {error.field: error.cause()["reason"] for error in errors} == {
        "spec.str": "FieldValueTypeInvalid",
        "spec.req.y": "FieldValueRequired",
        "spec.enum": "FieldValueNotSupported",
        "spec.maxLength": "FieldValueTooLong",
    }


def test_the_labels_of_an_embedded_object_are_checked(structural: Structural) -> None:
    metadata = {"name": "x", "labels": {"a b": "c"}}
    [error] = structural.validate({"spec": {"emb": {"apiVersion": "v1", "kind": "Foo", "metadata": metadata}}})
    assert error.field == "spec.emb.metadata.labels"


def test_the_schema_may_restrict_names() -> None:
    metadata = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}
    structural = compile_structural({"type": "object", "properties": {"metadata": metadata}}, OBJECT_META)
    assert fields(structural.validate({"metadata": {"name": "long-name"}})) == ["metadata.name"]


def test_errors_of_a_status_update_have_paths_that_begin_with_status() -> None:
    status = {"type": "object", "properties": {"phase": STRING}}
    spec = {"type": "object", "required": ["a"]}
    structural = compile_structural({"type": "object", "properties": {"status": status, "spec": spec}}, OBJECT_META)
    errors = structural.validate_status({"spec": {}, "status": {"phase": 1}}, {"spec": {}})
    assert [str(error) for error in errors] == [
        'status.phase: Invalid value: "integer": phase in body must be of type string: "integer"'
    ]


# --- ratcheting -------------------------------------------------------------------------------------


def test_what_was_wrong_before_may_stay_while_something_else_changes(structural: Structural) -> None:
    old = {"spec": {"enum": "c", "str": "x"}}
    assert structural.validate({"spec": {"enum": "c", "str": "y"}}, old) == []
    assert fields(structural.validate({"spec": {"enum": "d", "str": "x"}}, old)) == ["spec.enum"]


def test_items_of_a_list_map_are_compared_by_their_keys(structural: Structural) -> None:
    old = {"spec": {"map": [{"k": "a", "v": 1}, {"k": "b"}]}}
    assert structural.validate({"spec": {"map": [{"k": "b", "v": "2"}, {"k": "a", "v": 1}]}}, old) == []
    new = {"spec": {"map": [{"k": "c", "v": 1}]}}
    assert fields(structural.validate(new, old)) == ["spec.map[0].v"]


def test_items_of_another_list_stand_and_fall_together(structural: Structural) -> None:
    old = {"spec": {"arr": ["x", 1]}}
    assert structural.validate({"spec": {"arr": ["x", 1], "str": "y"}}, old) == []
    assert fields(structural.validate({"spec": {"arr": ["x", 2]}}, old)) == ["spec.arr[0]"]


def test_a_number_that_becomes_a_truth_has_changed(structural: Structural) -> None:
    assert fields(structural.validate({"spec": {"int": True}}, {"spec": {"int": 1}})) == ["spec.int"]


def test_duplicates_that_were_there_may_stay(structural: Structural) -> None:
    old = {"spec": {"set": ["a", "a"]}}
    assert structural.validate({"spec": {"set": ["a", "a", "b"]}}, old) == []
    assert fields(structural.validate({"spec": {"set": ["b", "b"]}}, {"spec": {"set": ["a"]}})) == ["spec.set[1]"]


# --- hostile objects --------------------------------------------------------------------------------


def test_a_huge_list_is_checked_for_duplicates_in_linear_time(structural: Structural) -> None:
    items = [{"k": str(number)} for number in range(100_000)]
    assert structural.validate({"spec": {"map": items}}) == []
    assert fields(structural.validate({"spec": {"map": [*items, {"k": "7"}]}})) == ["spec.map[100000]"]


def test_a_hostile_object_gets_a_bounded_answer(structural: Structural) -> None:
    assert len(structural.validate({"spec": {"arr": ["x"] * 100_000}})) < 2000
    assert len(structural.validate({"spec": {"addl": {str(number): "x" for number in range(100_000)}}})) < 2000


def test_a_schema_may_be_nested_deeper_than_any_stack() -> None:
    schema: dict[str, Any] = {"type": "string"}
    value: Any = "x"
    for _ in range(400):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
        value = {"a": value}
    structural = compile_structural(schema, OBJECT_META)
    assert structural.conform(value) == []
    assert structural.validate(value) == []
    assert structural.validate({"a": {}}) != []


def fields(errors: list[FieldError]) -> list[str]:
    return [error.field for error in errors]
