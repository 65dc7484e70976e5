"""Validation rules of custom resources: how schemas become types, and what is said of rules that are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from farflung.machinery.cel.crd import RuleNode, compile_validations, resolve_field_path
from farflung.machinery.cel.schema_types import Declarations, escape

Schema = dict[str, Any]

PATH = "spec.validation.openAPIV3Schema"
SPEC = f"{PATH}.properties[spec]"
RULE = f"{SPEC}.x-kubernetes-validations[0].rule"
HINT = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)
SHORT: Schema = {"type": "string", "maxLength": 5}


def resource(spec: Schema, *rules: Schema) -> Schema:
    root: Schema = {"type": "object", "properties": {"spec": spec}}
    return {**root, "x-kubernetes-validations": list(rules)} if rules else root


def ruled(schema: Schema, *rules: str | Schema) -> Schema:
    listed = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    return {**schema, "x-kubernetes-validations": listed}


def errors(schema: Schema) -> list[str]:
    validations, found = compile_validations(schema, PATH)
    assert (validations is None) or not found
    return [str(error) for error in found]


def compiled(schema: Schema) -> RuleNode:
    validations, found = compile_validations(schema, PATH)
    assert [str(error) for error in found] == []
    assert validations is not None
    return validations


def shown(rule: str, message_expression: str = "") -> str:
    return (
        f'{{"Rule":"{rule}","Message":"","MessageExpression":"{message_expression}","Reason":null,'
        '"FieldPath":"","OptionalOldSelf":null}'
    )


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            ruled({"type": "string"}, "self + 'x'"),
            [f"{RULE}: Invalid value: " + shown("self + 'x'") + ": cel expression must evaluate to a bool"],
        ),
        (
            ruled({"type": "integer"}, "self > nope & 1"),
            [
                f"{RULE}: Invalid value: " + shown("self \\u003e nope \\u0026 1") + ": compilation failed: "
                "ERROR: <input>:1:13: Syntax error: token recognition error at: '& '\n"
                " | self > nope & 1\n | ............^\n"
                "ERROR: <input>:1:15: Syntax error: extraneous input '1' expecting <EOF>\n"
                " | self > nope & 1\n | ..............^"
            ],
        ),
        (
            ruled({"type": "object", "properties": {"x": SHORT}}, "self.y == 'x'"),
            [
                f"{RULE}: Invalid value: "
                + shown("self.y == 'x'")
                + ": compilation failed: ERROR: <input>:1:5: undefined field 'y'\n | self.y == 'x'\n | ....^"
            ],
        ),
        (
            ruled(SHORT, " ", {"rule": "true", "message": "a\nb"}, {"rule": "true", "reason": "Foo"}),
            [
                f"{RULE}: Required value: rule is not specified",
                f'{SPEC}.x-kubernetes-validations[1].message: Invalid value: "a\\nb": must not contain line breaks',
                f'{SPEC}.x-kubernetes-validations[2].reason: Unsupported value: "Foo": supported values: '
                '"FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"',
            ],
        ),
        (
            ruled(SHORT, {"rule": "true\n", "message": " "}, "true ||\nfalse", {"rule": "true", "fieldPath": " "}),
            [
                f'{SPEC}.x-kubernetes-validations[0].message: Invalid value: " ": must be non-empty if specified',
                f"{SPEC}.x-kubernetes-validations[1].message: Required value: "
                "must be specified if rule contains line breaks",
                f'{SPEC}.x-kubernetes-validations[2].fieldPath: Invalid value: " ": must be non-empty if specified',
                f'{SPEC}.x-kubernetes-validations[2].fieldPath: Invalid value: " ": must be a valid path',
            ],
        ),
        (
            ruled(SHORT, {"rule": "true", "messageExpression": "1"}),
            [
                f"{SPEC}.x-kubernetes-validations[0].messageExpression: Invalid value: {shown('true', '1')}: "
                "messageExpression must evaluate to a string"
            ],
        ),
        (
            ruled(SHORT, {"rule": "true", "messageExpression": "1 +"}),
            [
                f"{SPEC}.x-kubernetes-validations[0].messageExpression: Invalid value: {shown('true', '1 +')}: "
                "messageExpression compilation failed: ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' "
                "expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, "
                "STRING, BYTES, IDENTIFIER}\n | 1 +\n | ...^"
            ],
        ),
        (
            ruled({"type": "object", "properties": {"x": SHORT}}, {"rule": "true", "fieldPath": ".y"}),
            [f'{SPEC}.x-kubernetes-validations[0].fieldPath: Invalid value: ".y": must be a valid path'],
        ),
        (
            {"type": "array", "maxItems": 5, "items": ruled(SHORT, "self == oldSelf")},
            [
                f'{SPEC}.items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": '
                f"oldSelf cannot be used on the uncorrelatable portion of the schema within {SPEC}"
            ],
        ),
        (
            ruled(SHORT, {"rule": "true", "optionalOldSelf": True}),
            [
                f"{SPEC}.x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: "
                "may not be set if oldSelf is not used in rule"
            ],
        ),
        (
            ruled({"type": "array", "maxItems": 100_000, "items": {"type": "integer"}}, "self.all(x, x in self)"),
            [
                f"{RULE}: Forbidden: estimated rule cost exceeds budget by factor of more than 100x {HINT}",
                f"{RULE}: Forbidden: "
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
                f"{PATH}: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema "
                f"exceeds budget by factor of more than 100x {HINT}",
            ],
        ),
        (
            ruled({"type": "array", "maxItems": 5_000_000, "items": {"type": "integer"}}, "self.all(x, true)"),
            [f"{RULE}: Forbidden: estimated rule cost exceeds budget by factor of 1.5x {HINT}"],
        ),
        (
            ruled({"type": "array", "maxItems": 4_000_000, "items": {"type": "integer"}}, "self.all(x, true)"),
            [f"{RULE}: Forbidden: estimated rule cost exceeds budget by factor of 1.200000x {HINT}"],
        ),
        (
            ruled({"x-kubernetes-preserve-unknown-fields": True}, "true"),
            [
                f"{SPEC}.x-kubernetes-validations: Internal error: internal error: "
                "failed to construct type information for x-kubernetes-validations rules: "
                "unable to convert structural schema to CEL declarations"
            ],
        ),
    ],
)
def test_what_is_wrong_with_a_rule_is_said_as_kubernetes_says_it(spec: Schema, said: list[str]) -> None:
    assert errors(resource(spec)) == said


def test_a_rule_below_bounded_lists_and_maps_costs_as_often_as_it_can_run() -> None:
    def nested(items: int, properties: int) -> Schema:
        values = {
            "type": "object",
            "maxProperties": properties,
            "additionalProperties": ruled(SHORT, "self == 'abcde'"),
        }
        return resource({"type": "array", "maxItems": items, "items": values})

    assert errors(nested(1_000, 5_000)) == []
    [error] = errors(nested(10_000, 5_000))
    assert error.startswith(f"{SPEC}.items.additionalProperties.x-kubernetes-validations[0].rule: Forbidden: ")
    assert "by factor of 10.0x" in error


def test_without_a_bound_a_rule_can_run_as_often_as_a_request_has_room_for_its_values() -> None:
    assert errors(resource({"type": "array", "items": ruled(SHORT, "self == 'abcde'")})) == []
    assert len(errors(resource({"type": "array", "items": ruled({"type": "string"}, "self == self")}))) == 3


def test_errors_of_form_keep_expressions_of_the_nodes_above_from_being_compiled() -> None:
    spec = {"type": "object", "properties": {"a": ruled(SHORT, "")}}
    assert errors(resource(ruled(spec, "nope"))) == [
        f"{SPEC}.properties[a].x-kubernetes-validations[0].rule: Required value: rule is not specified"
    ]


def test_only_the_four_most_expensive_rules_are_named() -> None:
    big = {"type": "array", "maxItems": 3_000_000, "items": {"type": "integer"}}
    properties = {f"p{i}": ruled({**big, "maxItems": big["maxItems"] + i}, "self.all(x, true)") for i in range(20)}
    found = errors(resource({"type": "object", "properties": properties}))
    named = [error.split(".x-kub")[0] for error in found if "contributed" in error]
    assert named == [f"{SPEC}.properties[p{i}]" for i in (19, 18, 17, 16)]


def test_a_schema_without_rules_has_no_validations() -> None:
    assert compile_validations(resource({"type": "object", "properties": {"a": SHORT}}), PATH) == (None, [])


def test_a_schema_of_any_depth_is_compiled_or_refused() -> None:
    schema = ruled(SHORT, "self != ''")
    for _ in range(900):
        schema = {"type": "object", "properties": {"a": schema}}
    assert errors(schema) == [f"{PATH}: Internal error: the schema is nested too deeply"]


def test_rules_are_left_where_they_apply() -> None:
    tree = compiled(
        resource(
            {
                "type": "object",
                "properties": {
                    "plain": SHORT,
                    "ports": {
                        "type": "array",
                        "maxItems": 10,
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": ruled(
                            {"type": "object", "properties": {"name": SHORT, "a-b": SHORT}},
                            {
                                "rule": "self.name == oldSelf.name",
                                "message": " the same ",
                                "messageExpression": "'was ' + self.name",
                                "reason": "FieldValueForbidden",
                                "fieldPath": "['a-b']",
                            },
                            {"rule": "!oldSelf.hasValue()", "optionalOldSelf": True},
                        ),
                    },
                    "labels": {
                        "type": "object",
                        "maxProperties": 3,
                        "additionalProperties": ruled(SHORT, "self != ''"),
                    },
                },
            },
            {"rule": "self.metadata.name.size() < 10"},
        )
    )
    assert [rule.program.text for rule in tree.rules] == ["self.metadata.name.size() < 10"]
    assert set(tree.properties) == {"spec"}
    spec = tree.properties["spec"]
    assert (spec.rules, set(spec.properties), spec.schema_type) == ((), {"ports", "labels"}, "object")
    ports = spec.properties["ports"]
    assert ports.list_keys == ("name",)
    assert ports.items is not None
    first, second = ports.items.rules
    assert (first.message, first.reason, first.field_path) == ("the same", "FieldValueForbidden", "a-b")
    assert first.message_expression is not None
    assert first.message_expression.text == "'was ' + self.name"
    assert (first.uses_old_self, first.optional_old_self) == (True, False)
    assert (second.reason, second.optional_old_self) == ("FieldValueInvalid", True)
    assert spec.properties["labels"].additional is not None


@pytest.mark.parametrize(
    ("schema", "of"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "timestamp"),
        ({"type": "string", "format": "duration"}, "duration"),
        ({"type": "string", "format": "byte"}, "bytes"),
        ({"type": "string", "format": "email"}, "string"),
        ({"type": "integer", "format": "int32"}, "int"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "bool"),
        ({"x-kubernetes-int-or-string": True}, "dyn"),
        ({"type": "array", "items": {"type": "number"}}, "list(double)"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map(string, int)"),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, "x"),
        ({"x-kubernetes-preserve-unknown-fields": True}, None),
        ({"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}}, None),
        ({"type": "array"}, None),
    ],
)
def test_a_schema_has_a_type_if_its_values_can_be_seen(schema: Schema, of: str | None) -> None:
    declared = Declarations({"type": "object", "properties": {"y": schema}}).of(schema, "x")
    assert (str(declared.type) if declared else None) == (of if of != "x" else "selfType.y")


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("plain", "plain"),
        ("a-b", "a__dash__b"),
        ("a.b/c", "a__dot__b__slash__c"),
        ("a__b", "a__underscores__b"),
        ("a___b", "a__underscores___b"),
        ("namespace", "__namespace__"),
        ("in", "__in__"),
        ("_a", "_a"),
        ("-a", "__dash__a"),
        ("int", "int"),
        ("1a", None),
        ("a b", None),
        ("é", None),
        ("", None),
    ],
)
def test_names_of_properties_are_escaped(name: str, escaped: str | None) -> None:
    assert escape(name) == escaped


def test_properties_are_reached_by_their_escaped_names_and_those_that_cannot_be_are_not_there() -> None:
    properties = {
        "a-b": SHORT,
        "namespace": SHORT,
        "1": SHORT,
        "anything": {"x-kubernetes-preserve-unknown-fields": True},
    }
    spec = {"type": "object", "properties": properties}
    compiled(resource(ruled(spec, "self.a__dash__b == '' && self.__namespace__ == ''")))
    assert "undefined field 'anything'" in errors(resource(ruled(spec, "has(self.anything)")))[0]


def test_resources_have_names_and_kinds_even_if_their_schema_does_not_say_so() -> None:
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True}
    compiled(resource(ruled(embedded, "self.kind == 'A' && self.metadata.generateName == ''")))
    assert "undefined field 'labels'" in errors(resource(ruled(embedded, "self.metadata.labels.size() == 0")))[0]
    assert "undefined field 'kind'" in errors(resource(ruled({"type": "object"}, "self.kind == ''")))[0]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (".a", "a"),
        (".a.b", "a.b"),
        ("['a'].b", "a.b"),
        (".m.any-key", "m[any-key]"),
        (".m['x.y']", "m[x.y]"),
        (".m['it\\'s']", "m[it's]"),
        ("a", None),
        (".a.c", None),
        (".l[0]", None),
        (".a.", None),
        ("[a]", None),
        (".a.b.c", None),
    ],
)
def test_a_field_path_leads_somewhere_or_nowhere(text: str, path: str | None) -> None:
    schema: Schema = {
        "type": "object",
        "properties": {
            "a": {"type": "object", "properties": {"b": SHORT}},
            "m": {"type": "object", "additionalProperties": SHORT},
            "l": {"type": "array", "items": SHORT},
        },
    }
    assert resolve_field_path(text, schema) == path
