"""Whatever a definition says, looking at it comes to an end, and says something short."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.apis.apiextensions import kinds
from farflung.apis.apiextensions.conditions import with_status
from farflung.apis.apiextensions.kinds import RESOURCES
from farflung.apis.apiextensions.validation import GROUP, KIND, RULES
from farflung.hub.catalog.kinds import shape_of
from farflung.machinery.errors import Malformed, Obj, invalid

RULES_OF_DEFINITIONS = RULES[GROUP, KIND]
CONFORMER = shape_of(RESOURCES[0]).conformer


def told(schema: Any, **members: Any) -> str:
    """The message of what is wrong; empty if nothing is."""
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **members}
    return message({"group": "example.com", "scope": "Cluster", "names": NAMES, "versions": [version]})


def message(spec: Any) -> str:
    obj = CONFORMER.conform({"metadata": {"name": "things.example.com"}, "spec": spec}).obj
    before = copy.deepcopy(obj)
    RULES_OF_DEFINITIONS.default(obj)
    RULES_OF_DEFINITIONS.prepare_create(obj)
    errors = RULES_OF_DEFINITIONS.validate_create(obj)
    RULES_OF_DEFINITIONS.warnings(obj, None)
    RULES_OF_DEFINITIONS.default(before)
    RULES_OF_DEFINITIONS.prepare_update(before, obj)
    RULES_OF_DEFINITIONS.validate_update(before, obj)
    if errors:
        return str(json.dumps(invalid(GROUP, KIND, "x", errors).status()))
    obj["status"] = with_status(obj, [], "2024-01-01T00:00:00Z")
    for resource in kinds.resources_of(obj):
        assert len(resource.printer.columns) >= 1
    return ""


NAMES = {"plural": "things", "kind": "Thing"}


def nested(levels: int) -> Obj:
    schema: Obj = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def test_depth_has_a_limit() -> None:
    assert told(nested(99)) == ""
    assert "nest more than 100 levels deep" in told(nested(100))


def test_size_has_a_limit() -> None:
    many = {f"p{index}": {"type": "string"} for index in range(30_000)}
    assert "schemas of more than 30000 parts are not supported" in told({"type": "object", "properties": many})


def test_defaults_within_each_other_have_a_limit() -> None:
    schema: Obj = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(10_000)}}
    for _ in range(30):
        schema = {"type": "object", "default": {}, "properties": {"a": schema}}
    assert "defaults that are so many" in told(schema)


def test_names_and_rules_have_a_limit() -> None:
    assert "more than 1000 characters" in told({"type": "object", "properties": {"x" * 1001: {"type": "string"}}})
    rules = [{"rule": "true"}] * 1001
    assert "more than 1000 x-kubernetes-validations" in told({"type": "object", "x-kubernetes-validations": rules})
    long = [{"rule": "true" + " " * 200_000}]
    assert "of more than 200000 characters" in told({"type": "object", "x-kubernetes-validations": long})


def test_there_are_not_too_many_versions_and_columns() -> None:
    versions = [{"name": f"v{index}", "schema": {"openAPIV3Schema": {"type": "object"}}} for index in range(101)]
    spec = {"group": "example.com", "scope": "Cluster", "names": NAMES, "versions": versions}
    assert "spec.versions: Too many: 101: must have at most 100 items" in message(spec)
    columns = [{"name": "a", "type": "string", "jsonPath": ".a"}] * 201
    assert "Too many: 201: must have at most 200 items" in told({"type": "object"}, additionalPrinterColumns=columns)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {f"p{index}": {"type": "foo"} for index in range(25_000)}},
        {"type": "object", "properties": {"x" * 1_000: {"properties": {f"p{n}": {} for n in range(20_000)}}}},
        {"type": "object", "anyOf": [{"type": "x", "title": "y", "description": "z"}] * 20_000},
        {
            "type": "object",
            "properties": {
                "a": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": [f"k{index}" for index in range(20_000)],
                    "items": {"type": "object"},
                }
            },
        },
        {"type": "object", "properties": {f"p{n}": {"type": "string", "default": n} for n in range(4_000)}},
    ],
)
def test_thousands_of_mistakes_make_no_long_answer(schema: Obj) -> None:
    assert 0 < len(told(schema)) < 8 * 1024 * 1024


# --- anything -------------------------------------------------------------------------------------

TEXTS = st.sampled_from(["", "a", "k", "object", "array", "string", "integer", "set", "map", "atomic", "(", "metadata"])
RULES_SAID = st.sampled_from(["", "true", "self", "self == oldSelf", "self.a > 1", "has(self.a", "size(self) < 3"])
SCALARS = st.none() | st.booleans() | st.integers(-1, 3) | TEXTS


def schemas(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(TEXTS, below, max_size=2)
    several = st.lists(below, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TEXTS,
            "default": SCALARS | st.just({"a": {"b": 1}}),
            "properties": named,
            "items": below | several | SCALARS,
            "additionalProperties": below | SCALARS,
            "additionalItems": below | SCALARS,
            "not": below,
            "allOf": several,
            "anyOf": several,
            "oneOf": several,
            "definitions": named,
            "dependencies": st.dictionaries(TEXTS, below | st.lists(TEXTS), max_size=2),
            "patternProperties": named,
            "pattern": TEXTS,
            "format": TEXTS,
            "nullable": st.booleans(),
            "required": st.lists(TEXTS, max_size=2),
            "enum": st.lists(SCALARS, max_size=2),
            "$ref": TEXTS,
            "x-kubernetes-list-type": TEXTS,
            "x-kubernetes-list-map-keys": st.lists(TEXTS, max_size=2),
            "x-kubernetes-map-type": TEXTS,
            "x-kubernetes-preserve-unknown-fields": st.booleans(),
            "x-kubernetes-embedded-resource": st.booleans(),
            "x-kubernetes-int-or-string": st.booleans(),
            "x-kubernetes-validations": st.lists(
                st.none()
                | st.fixed_dictionaries({}, optional={"rule": RULES_SAID, "message": TEXTS, "fieldPath": TEXTS}),
                max_size=2,
            ),
        },
    )


anything = st.recursive(schemas(st.just({})), schemas, max_leaves=8)
versions = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXTS,
        "served": st.booleans(),
        "storage": st.booleans(),
        "deprecated": st.booleans(),
        "deprecationWarning": TEXTS,
        "schema": st.just({}) | st.builds(lambda schema: {"openAPIV3Schema": schema}, anything),
        "subresources": st.sampled_from(
            [{}, {"status": {}}, {"scale": {}}, {"scale": {"specReplicasPath": ".spec.x"}}]
        ),
        "additionalPrinterColumns": st.lists(
            st.fixed_dictionaries({}, optional={"name": TEXTS, "type": TEXTS, "jsonPath": TEXTS}), max_size=2
        ),
        "selectableFields": st.lists(st.fixed_dictionaries({}, optional={"jsonPath": TEXTS}), max_size=2),
    },
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "group": st.sampled_from(["example.com", "x.k8s.io", "", "a"]),
        "scope": st.sampled_from(["Cluster", "Namespaced", ""]),
        "names": st.just(NAMES)
        | st.fixed_dictionaries({}, optional={"plural": TEXTS, "kind": TEXTS, "shortNames": st.lists(TEXTS)}),
        "versions": st.lists(versions | st.none(), max_size=3),
        "conversion": st.sampled_from(
            [None, {}, {"strategy": "Webhook"}, {"strategy": "Webhook", "webhook": {"clientConfig": {"url": ":"}}}]
        ),
        "preserveUnknownFields": st.booleans(),
    },
)


@settings(max_examples=examples(120))
@given(specs)
def test_no_definition_breaks_the_rules(spec: Obj) -> None:
    with suppress(Malformed):
        message(spec)


@settings(max_examples=examples(80))
@given(anything)
def test_no_schema_breaks_the_rules(schema: Obj) -> None:
    with suppress(Malformed):
        told(schema)
