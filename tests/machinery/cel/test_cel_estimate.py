"""What rules are estimated to cost: the numbers of a kube-apiserver for the same schemas and rules."""

from __future__ import annotations

from typing import Any

import pytest

from farflung.machinery.cel.environment import ExpressionEnvironment
from farflung.machinery.cel.estimate import estimate
from farflung.machinery.cel.library import KUBERNETES
from farflung.machinery.cel.schema_types import Declarations

Schema = dict[str, Any]

SOME: Schema = {"type": "object", "required": ["required"]}
SOME["properties"] = {"required": {"type": "string"}, "optional": {"type": "string"}}
NUMBERS: Schema = {"type": "array", "items": {"type": "number"}}
MAP_OF_NUMBERS: Schema = {"type": "object", "additionalProperties": {"type": "number"}}


def scalar(kind: str) -> Schema:
    if kind == "int-or-string":
        return {"x-kubernetes-int-or-string": True}
    return {"type": "string", "format": kind} if kind in ("duration", "date", "date-time") else {"type": kind}


def limited(schema: Schema, limit: int | None) -> Schema:
    names = {"array": "maxItems", "object": "maxProperties", "string": "maxLength"}
    return schema if limit is None else {**schema, names[schema["type"]]: limit}


def array(items: Schema, limit: int | None) -> Schema:
    return limited({"type": "array", "items": items}, limit)


def mapping(values: Schema, limit: int | None) -> Schema:
    return limited({"type": "object", "additionalProperties": values}, limit)


def cost(schema: Schema, rule: str) -> int:
    declared = Declarations({"type": "object", "properties": {"x": schema}}).of(schema, "x")
    assert declared is not None
    environment = ExpressionEnvironment({"self": declared.type, "oldSelf": declared.type}, KUBERNETES)
    return estimate(environment.compile(rule), declared.type).high


@pytest.mark.parametrize(
    ("kind", "rule", "unlimited", "limit", "with_limit"),
    [
        ("number", "self.all(x, true)", 4718591, 10, 32),
        ("string", "self.all(x, true)", 3145727, 20, 62),
        ("boolean", "self.all(x, true)", 1887437, 5, 17),
        ("int-or-string", "self.all(x, true)", 4718591, 10, 32),
        ("duration", "self.all(x, true)", 2359295, 5, 17),
        ("date", "self.all(x, true)", 725936, 15, 47),
        ("date-time", "self.all(x, true)", 428963, 25, 77),
        ("number", "self[1] == 0.0", 2, 5000, 2),
        ("string", "self[1] == self[1]", 314577, 8, 314577),
        ("int-or-string", "self[0] == 5", 3, 10, 3),
        ("boolean", "self[0] == false", 2, 25, 2),
        ("duration", "self[0].getHours() == 2", 4, 525, 4),
        ("date", "self[2].getDayOfMonth() == 13", 4, 42, 4),
        ("date-time", "self[2].getMinutes() == 45", 4, 99, 4),
        ("number", "self[3] == 0.0", 2, 0, 2),
        ("number", "self.all(x, x == 0.0)", 6291454, 3 * 1024 * 2048, 25165826),
        ("number", "self.all(x, self.all(y, true))", None, 10, 352),
        ("number", "self.all(x, self.all(y, self.all(z, true)))", None, 10, 3552),
    ],
)
def test_rules_of_arrays_cost_what_kubernetes_says(
    kind: str, rule: str, unlimited: int | None, limit: int, with_limit: int
) -> None:
    without = cost(array(scalar(kind), None), rule)
    assert without == unlimited if unlimited is not None else without > 10_000_000
    assert cost(array(scalar(kind), limit), rule) == with_limit


@pytest.mark.parametrize(
    ("kind", "rule", "unlimited", "limit", "with_limit"),
    [
        ("number", "self.all(x, true)", 1348169, 10, 32),
        ("string", "self.all(x, true)", 1179647, 3, 11),
        ("boolean", "self.all(x, true)", 943718, 100, 302),
        ("int-or-string", "self.all(x, true)", 1348169, 15, 47),
        ("duration", "self.all(x, true)", 1048577, 5, 17),
        ("date", "self.all(x, true)", 524288, 10, 32),
        ("date-time", "self.all(x, true)", 349526, 25, 77),
        ("number", "has(self.x)", 1, 100, 1),
        ("number", 'self["x"] == 0.0', 2, 0, 2),
        ("integer", "oldSelf.size() == self.size()", 5, 10, 5),
        ("date-time", 'self["a"] == self["b"]', 8, 7, 8),
        ("duration", 'self["c"] == self["d"]', 8, 42, 8),
    ],
)
def test_rules_of_maps_cost_what_kubernetes_says(
    kind: str, rule: str, unlimited: int, limit: int, with_limit: int
) -> None:
    assert cost(mapping(scalar(kind), None), rule) == unlimited
    assert cost(mapping(scalar(kind), limit), rule) == with_limit


@pytest.mark.parametrize(
    ("rule", "unlimited", "limit", "with_limit"),
    [
        ("self.contains('test')", 314574, 10, 5),
        ("self.startsWith('test')", 2, 15, 2),
        ("self.endsWith('test')", 2, 30, 2),
        ('size(self + "hello") > size("hello")', 314578, 4, 7),
        ('self.matches("x")', 314574, 50, 22),
        ('"".matches("(((((((((())))))))))[0-9]")', 7, 10, 7),
        ('self.matches("")', 1, 100, 1),
        ('self == "x"', 2, 0, 1),
        ("self.find('[0-9]+') == ''", 629147, 10, 11),
        ("self.lowerAscii() == 'lower!'", 314575, 10, 6),
    ],
)
def test_rules_of_strings_cost_what_kubernetes_says(rule: str, unlimited: int, limit: int, with_limit: int) -> None:
    assert cost(scalar("string"), rule) == unlimited
    assert cost(limited(scalar("string"), limit), rule) == with_limit


@pytest.mark.parametrize(
    ("schema", "rule", "expected"),
    [
        (array(NUMBERS, None), "self.all(x, true)", 3145727),
        (array(NUMBERS, 100), "self.all(x, true)", 302),
        (array(NUMBERS, None), "self[0][0] == -1.0", 3),
        (array(SOME, None), "self.all(x, true)", 555128),
        (array(SOME, 50), "self.all(x, true)", 152),
        (array(SOME, None), "self[0] == null", 2),
        (array(MAP_OF_NUMBERS, None), "self.all(x, x.y == 25.2)", 6291452),
        (array(MAP_OF_NUMBERS, 12), "self.all(x, x.y == 25.2)", 74),
        (array(MAP_OF_NUMBERS, None), "self[0].x > 2.0", 4),
        (mapping(SOME, None), "self.all(x, true)", 428963),
        (mapping(MAP_OF_NUMBERS, None), "self.all(x, true)", 1179647),
        (mapping(NUMBERS, 25), "self.all(x, true)", 77),
        (mapping(scalar("string"), None), "self.all(x, x.contains(self[x]))", 2752507),
        (mapping(limited(scalar("string"), 10), 10), "self.all(x, x.contains(self[x]))", 72),
        (array(mapping(SOME, None), None), 'self.all(x, x["y"].required == "z")', 7340027),
        (array(mapping(SOME, 10), 10), 'self.all(x, x["y"].required == "z")', 72),
        (array(scalar("string"), None), "self.join(' ') == 'aa bb'", 329853068905),
        (array(limited(scalar("string"), 10), 10), "self.join(' ') == 'aa bb'", 43),
        (array(scalar("string"), None), "self.isSorted() == true", 329854432052),
        (array(limited(scalar("string"), 10), 10), "self.isSorted() == true", 52),
        ({"type": "string", "format": "byte", "maxLength": 0}, 'self == b"x"', 1),
        ({"type": "string", "enum": ["A", "B", "LongValue"]}, "self.contains('A')", 2),
        ({"type": "string", "enum": ["A", "B"], "maxLength": 1000}, "self.contains('A')", 401),
    ],
)
def test_rules_of_nested_schemas_cost_what_kubernetes_says(schema: Schema, rule: str, expected: int) -> None:
    assert cost(schema, rule) == expected


@pytest.mark.parametrize(("limit", "expected"), [(None, 629154), (4, 12)])
def test_what_a_replacement_makes_longer_is_looked_at_in_full(limit: int | None, expected: int) -> None:
    text = scalar("string")
    properties = {"str": limited(text, limit), "before": limited(text, 2), "after": limited(text, 4)}
    rule = "self.str.replace(self.before, self.after) == 'does not matter'"
    assert cost({"type": "object", "properties": properties}, rule) == expected


@pytest.mark.parametrize(("limit", "expected"), [(None, 629160), (10, 22)])
def test_a_split_text_has_as_many_parts_as_characters(limit: int | None, expected: int) -> None:
    text = limited(scalar("string"), limit)
    rule = "self.str.split(self.separator) == []"
    assert cost({"type": "object", "properties": {"str": text, "separator": text}}, rule) == expected
