"""Structural schemas against dumb twins: JSON schema's own validator, and Kubernetes' steps one after the other."""

import copy
import gc
import weakref
from typing import Any

import jsonschema
import orjson
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from structural_strategies import around, cases, values

from farflung.apis.metadata import OBJECT_META
from farflung.machinery.errors import Malformed
from farflung.machinery.schema.structural.structural import compile_structural, compiling_steps
from farflung.machinery.turns import INDIVISIBLE

CHECKER = jsonschema.Draft4Validator.TYPE_CHECKER.redefine(
    "integer",
    lambda _, value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
)
Twin = jsonschema.validators.extend(jsonschema.Draft4Validator, type_checker=CHECKER)


def as_json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The same without Kubernetes' keywords: null is nothing special there."""
    plain = {key: value for key, value in schema.items() if not key.startswith("x-") and key != "nullable"}
    if schema.get("x-kubernetes-int-or-string"):
        plain["type"] = ["integer", "string"]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in plain:
            plain[key] = [as_json_schema(one) for one in plain[key]]
    for key in ("items", "additionalProperties", "not"):
        if key in plain:
            plain[key] = as_json_schema(plain[key])
    if "properties" in plain:
        plain["properties"] = {name: as_json_schema(one) for name, one in plain["properties"].items()}
    allowed = (schema.get("nullable") or "type" not in plain) and None in schema.get("enum", [None])
    present = {"allOf": [{"not": {"enum": [None]}}, plain]}
    return {"anyOf": [{"enum": [None]}, present]} if allowed else present


@given(cases())
@settings(max_examples=examples(50))
def test_what_fits_is_what_json_schema_says(case: tuple[dict[str, Any], Any]) -> None:
    schema, value = case
    structural = compile_structural(around(schema), OBJECT_META)
    errors = structural.validate({"spec": value})
    assert (not errors) == Twin(as_json_schema(schema)).is_valid(value), errors


@given(cases())
@settings(max_examples=examples(50))
def test_every_refusal_has_a_text_and_a_field(case: tuple[dict[str, Any], Any]) -> None:
    schema, value = case
    for error in compile_structural(around(schema), OBJECT_META).validate({"spec": value}):
        assert error.field.startswith("spec") or error.field == "<nil>"
        assert error.cause()["message"]


@given(cases())
@settings(max_examples=examples(50))
def test_an_update_that_changes_nothing_is_never_refused(case: tuple[dict[str, Any], Any]) -> None:
    schema, value = case
    structural = compile_structural(around(schema), OBJECT_META)
    assert structural.validate({"spec": value}, {"spec": copy.deepcopy(value)}) == []


@given(cases(), st.data())
@settings(max_examples=examples(50))
def test_an_update_is_refused_for_nothing_that_a_creation_is_not(
    case: tuple[dict[str, Any], Any], data: st.DataObject
) -> None:
    schema, new = case
    old = data.draw(values(schema))
    structural = compile_structural(around(schema), OBJECT_META)
    if not structural.validate({"spec": new}):
        assert structural.validate({"spec": new}, {"spec": old}) == []


# --- pruning, nulls, defaults -----------------------------------------------------------------------


def is_of_type(value: Any, schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        return False
    return kind is None or kind == {dict: "object", list: "array"}.get(type(value))


def prune(value: Any, schema: dict[str, Any] | None, path: str, unknown: list[str], kept: bool = False) -> None:
    if schema is not None and not is_of_type(value, schema):
        return
    kept = kept or bool(schema and schema.get("x-kubernetes-preserve-unknown-fields"))
    if isinstance(value, dict):
        for name in list(value):
            inner = f"{path}.{name}"
            if schema is not None and name in schema.get("properties", {}):
                prune(value[name], schema["properties"][name], inner, unknown)
            elif schema is not None and "additionalProperties" in schema:
                prune(value[name], schema["additionalProperties"], inner, unknown)
            elif not kept:
                del value[name]
                unknown.append(inner)
    elif isinstance(value, list) and not (kept and (schema is None or "items" not in schema)):
        for index, item in enumerate(value):
            prune(item, (schema or {}).get("items"), f"{path}[{index}]", unknown, kept)


def below(schema: dict[str, Any], name: str) -> dict[str, Any] | None:
    return schema.get("properties", {}).get(name, schema.get("additionalProperties"))


def drop_nulls(value: Any, schema: dict[str, Any] | None) -> None:
    if schema is None or not is_of_type(value, schema):
        return
    if isinstance(value, dict):
        for name, item in list(value.items()):
            inner = below(schema, name)
            if item is None and inner is not None and not inner.get("nullable") and "default" not in inner:
                del value[name]
            else:
                drop_nulls(item, inner)
    elif isinstance(value, list):
        for item in value:
            drop_nulls(item, schema.get("items"))


def default(value: Any, schema: dict[str, Any] | None) -> None:
    if schema is None or not is_of_type(value, schema):
        return
    if isinstance(value, dict):
        for name, one in schema.get("properties", {}).items():
            missing = name not in value or (value[name] is None and not one.get("nullable"))
            if "default" in one and missing:
                value[name] = copy.deepcopy(one["default"])
        for name, item in list(value.items()):
            inner = below(schema, name)
            if item is None and inner is not None and not inner.get("nullable") and "default" in inner:
                value[name] = copy.deepcopy(inner["default"])
            default(value[name], inner)
    elif isinstance(value, list):
        items = schema.get("items")
        for index, item in enumerate(value):
            if item is None and items is not None and not items.get("nullable") and "default" in items:
                value[index] = copy.deepcopy(items["default"])
            default(value[index], items)


def with_pruned_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """A definition whose defaults have unknown fields is not admitted."""
    schema = dict(schema)
    if "properties" in schema:
        schema["properties"] = {name: with_pruned_defaults(one) for name, one in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in schema:
            schema[key] = with_pruned_defaults(schema[key])
    if "default" in schema:
        schema["default"] = copy.deepcopy(schema["default"])
        prune(schema["default"], schema, "", [])
        drop_nulls(schema["default"], schema)
    return schema


def whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: whole(item) for name, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@given(cases())
@settings(max_examples=examples(50))
def test_conforming_is_pruning_then_dropping_nulls_then_defaulting(case: tuple[dict[str, Any], Any]) -> None:
    schema, value = case
    schema = around(with_pruned_defaults(schema))
    expected, actual = {"spec": copy.deepcopy(value)}, {"spec": copy.deepcopy(value)}
    unknown: list[str] = []
    prune(expected, schema, "", unknown)
    drop_nulls(expected, schema)
    default(expected, schema)

    problems = compile_structural(schema, OBJECT_META).conform(actual)

    assert orjson.dumps(whole(actual), option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        whole(expected), option=orjson.OPT_SORT_KEYS
    )
    assert problems == [f'unknown field "{path.removeprefix(".")}"' for path in sorted(unknown)]


@given(cases())
@settings(max_examples=examples(50))
def test_conforming_twice_changes_nothing_more(case: tuple[dict[str, Any], Any]) -> None:
    schema, value = case
    structural = compile_structural(around(with_pruned_defaults(schema)), OBJECT_META)
    obj = {"spec": value}
    structural.conform(obj)
    once = copy.deepcopy(obj)
    assert structural.conform(obj) == []
    assert obj == once


# --- anything ---------------------------------------------------------------------------------------

KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "items",
        "additionalProperties",
        "required",
        "enum",
        "pattern",
        "format",
        "minimum",
        "maxLength",
        "minItems",
        "multipleOf",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "nullable",
        "default",
        "a",
        "metadata",
        "kind",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-int-or-string",
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["object", "array", "string", "integer", "set", "map", "date-time", "(", "email"])
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4), max_leaves=25
)


@given(st.dictionaries(KEYWORDS, JSON, max_size=5), JSON, JSON)
@settings(max_examples=examples(50))
def test_no_schema_and_no_object_makes_it_fail(schema: Any, new: Any, old: Any) -> None:
    structural = compile_structural({**schema, "properties": {"spec": schema, "status": schema}}, OBJECT_META)
    obj = {"spec": new, "status": new, "metadata": {}}
    before = {"spec": old, "status": old}
    try:
        structural.conform(obj)
    except Malformed:
        return
    for error in [*structural.validate(obj, before), *structural.validate_status(obj, before)]:
        error.cause()


def test_a_turn_has_room_for_each_step_of_compiling_the_largest_schema() -> None:
    text = {"type": "string", "pattern": "^[a-z]+$"}
    fields = {f"f{number}": text for number in range(14_000)}
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": fields}, **fields}}
    assert max(compiling_steps(schema, OBJECT_META)) < INDIVISIBLE


def test_a_compiled_schema_is_freed_without_the_garbage_collector() -> None:
    text = {"type": "string", "default": "x"}
    inner = {"type": "object", "properties": {"a": text, "l": {"type": "array", "items": {"type": "object"}}}}
    schema = {"type": "object", "properties": {"spec": inner, "status": {**inner, "default": {"a": "b"}}}}
    gc.disable()
    try:
        structural = compile_structural(schema, OBJECT_META)
        structural.conform({"spec": {"l": [{}]}})
        structural.prune({"spec": {"b": 1}})
        freed = weakref.ref(structural._node)
        del structural
        assert freed() is None
    finally:
        gc.enable()
