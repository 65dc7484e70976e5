"""The rules of custom resources at work, with the texts that a kube-apiserver was recorded to give."""

from __future__ import annotations

from typing import Any

import pytest

from farflung.machinery.cel.crd import compile_validations
from farflung.machinery.cel.validation import Validations


def rules(*texts: str, **more: Any) -> list[dict[str, Any]]:
    return [{"rule": text, **more} for text in texts]


def of_spec(properties: dict[str, Any], *validations: dict[str, Any], **more: Any) -> Validations:
    """The rules of a schema whose spec has these properties and rules."""
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": list(validations), **more}
    return compiled({"type": "object", "properties": {"spec": spec}})


def compiled(schema: dict[str, Any]) -> Validations:
    tree, errors = compile_validations(schema, "schema")
    assert errors == []
    assert tree is not None
    return Validations(tree)


def check(validations: Validations, spec: Any, old: Any = None, **more: Any) -> list[str]:
    before = None if old is None else {"metadata": {"name": "a"}, "spec": old}
    return [str(error) for error in validations.check({"metadata": {"name": "a"}, "spec": spec}, before, **more)]


TEXT = {"type": "string", "maxLength": 50}
NUMBER = {"type": "integer"}


# --- what is said ---------------------------------------------------------------------------------


def test_a_rule_that_does_not_hold_gives_its_message() -> None:
    rule = {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "message": "min must not be greater"}
    validations = of_spec({"min": NUMBER, "max": NUMBER}, rule)
    assert check(validations, {"min": 2, "max": 1}) == ['spec: Invalid value: "object": min must not be greater']
    assert check(validations, {"min": 1, "max": 2}) == []
    assert check(validations, {"min": 1}) == []


def test_without_a_message_the_rule_itself_is_quoted() -> None:
    validations = of_spec({"a": {**TEXT, "x-kubernetes-validations": rules("self.startsWith('a')")}})
    assert check(validations, {"a": "b"}) == ["spec.a: Invalid value: \"string\": failed rule: self.startsWith('a')"]


def test_a_message_expression_is_evaluated_and_the_error_has_the_field_path() -> None:
    rule = {
        "rule": "!has(self.mx) || size(self.mx) < 3",
        "messageExpression": "'mx is ' + self.mx + ', too long'",
        "fieldPath": ".mx",
        "reason": "FieldValueForbidden",
    }
    assert check(of_spec({"mx": TEXT}, rule), {"mx": "abc"}) == ["spec.mx: Forbidden: mx is abc, too long"]


@pytest.mark.parametrize(
    "expression",
    ["string(1 / self.zero)", "''", "'  '", "'two\\nlines'", "'long'.replace('', self.a).replace('', self.a)"],
)
def test_a_message_expression_that_fails_or_says_nothing_useful_gives_way_to_the_message(expression: str) -> None:
    rule = {"rule": "self.a == ''", "messageExpression": expression, "message": "plain"}
    validations = of_spec({"a": TEXT, "zero": NUMBER}, rule)
    assert check(validations, {"a": "b" * 50, "zero": 0}) == ['spec: Invalid value: "object": plain']


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("FieldValueInvalid", 'spec.a: Invalid value: "string": m'),
        ("FieldValueForbidden", "spec.a: Forbidden: m"),
        ("FieldValueRequired", "spec.a: Required value: m"),
        ("FieldValueDuplicate", 'spec.a: Duplicate value: "string"'),
    ],
)
def test_a_reason_gives_its_kind_of_error(reason: str, said: str) -> None:
    rule = rules("self != 'x'", reason=reason, message="m")
    assert check(of_spec({"a": {**TEXT, "x-kubernetes-validations": rule}}), {"a": "x"}) == [said]


def test_a_rule_of_the_object_itself_has_no_path() -> None:
    schema = {"type": "object", "x-kubernetes-validations": rules("self.metadata.name.size() < 10", message="too long")}
    errors = compiled(schema).check({"metadata": {"name": "a-name-that-is-too-long"}})
    assert [str(error) for error in errors] == ['<nil>: Invalid value: "object": too long']


def test_an_int_or_string_has_no_type_to_show() -> None:
    rule = rules("type(self) == int ? self > 0 : self.endsWith('%')", message="positive or percent")
    validations = of_spec({"p": {"x-kubernetes-int-or-string": True, "x-kubernetes-validations": rule}})
    assert check(validations, {"p": 0}) == ['spec.p: Invalid value: "": positive or percent']
    assert check(validations, {"p": "5"}) == ['spec.p: Invalid value: "": positive or percent']
    assert check(validations, {"p": "5%"}) == check(validations, {"p": 3}) == []


def test_an_error_of_the_evaluation_is_an_error_of_the_field() -> None:
    validations = of_spec({"a": {**NUMBER, "x-kubernetes-validations": rules("10 / self > 1")}})
    assert check(validations, {"a": 0}) == [
        'spec.a: Invalid value: "integer": division by zero evaluating rule: 10 / self > 1'
    ]


def test_a_value_of_a_type_that_only_the_object_tells_may_not_fit() -> None:
    rule = rules("self.endsWith('%')", message="percent")
    validations = of_spec({"p": {"x-kubernetes-int-or-string": True, "x-kubernetes-validations": rule}})
    assert check(validations, {"p": 1}) == [
        "spec.p: Invalid value: \"\": 'no such overload: endsWith(int, string)': call arguments did not match a "
        "supported operator, function or macro signature for rule: percent"
    ]


# --- where rules are ------------------------------------------------------------------------------


def test_rules_of_items_and_of_additional_properties_name_index_and_key() -> None:
    item = {**TEXT, "x-kubernetes-validations": rules("self != 'bad'", message="no bad")}
    unique = rules("self.all(x, self.exists_one(y, x == y))", message="unique")
    validations = of_spec(
        {
            "list": {"type": "array", "maxItems": 10, "items": item, "x-kubernetes-validations": unique},
            "map": {"type": "object", "maxProperties": 10, "additionalProperties": item},
        }
    )
    assert check(validations, {"list": ["a", "bad"], "map": {"k.y": "bad", "l": "good"}}) == [
        'spec.list[1]: Invalid value: "string": no bad',
        'spec.map[k.y]: Invalid value: "string": no bad',
    ]
    assert check(validations, {"list": ["a", "a"]}) == ['spec.list: Invalid value: "array": unique']


def test_null_is_not_validated_and_not_there() -> None:
    validations = of_spec(
        {"a": {**TEXT, "nullable": True, "x-kubernetes-validations": rules("self == 'x'")}}, *rules("!has(self.a)")
    )
    assert check(validations, {"a": None}) == []


def test_declared_formats_are_types() -> None:
    validations = of_spec(
        {
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "span": {"type": "string", "format": "duration"},
            "data": {"type": "string", "format": "byte", "maxLength": 100},
            "share": {"type": "number"},
            "times": {"type": "array", "maxItems": 5, "items": {"type": "string", "format": "date-time"}},
        },
        *rules(
            "self.at > timestamp('2020-01-01T00:00:00Z')",
            "self.day.getFullYear() == 2021",
            "self.span < duration('1h')",
            "self.data == b'hello'",
            "self.share + 0.5 == 1.5 && type(self.share) == double",
            "self.times.max() == self.at",
            "dyn(self).times[0] == self.at",
        ),
    )
    spec = {
        "at": "2021-01-01T00:00:00Z",
        "day": "2021-05-05",
        "span": "90s",
        "data": "aGVsbG8=",
        "share": 1,
        "times": ["2021-01-01T01:00:00+01:00", "2020-06-01T00:00:00Z"],
    }
    assert check(validations, spec) == []
    wrong = check(validations, {**spec, "at": "2019-01-01T00:00:00Z"})
    assert wrong[0].endswith("failed rule: self.at > timestamp('2020-01-01T00:00:00Z')")


def test_names_that_cel_cannot_write_are_escaped() -> None:
    validations = of_spec(
        {"a-b": TEXT, "a.b": TEXT, "namespace": TEXT, "x__y": TEXT},
        *rules(
            "self.a__dash__b == '1' && self.a__dot__b == '2'",
            "self.__namespace__ == '3' && self.x__underscores__y == '4'",
            "has(self.a__dash__b) && self.?a__dash__b.orValue('') == '1'",
        ),
    )
    assert check(validations, {"a-b": "1", "a.b": "2", "namespace": "3", "x__y": "4"}) == []


def test_sets_and_lists_with_keys_are_equal_in_any_order() -> None:
    items = {"type": "object", "properties": {"name": TEXT, "at": {"type": "string", "format": "date-time"}}}
    equal = rules("self == oldSelf", message="changed")
    validations = of_spec(
        {
            "set": {
                "type": "array",
                "maxItems": 5,
                "items": TEXT,
                "x-kubernetes-list-type": "set",
                "x-kubernetes-validations": equal,
            },
            "keyed": {
                "type": "array",
                "maxItems": 5,
                "items": {**items, "required": ["name"]},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-validations": equal,
            },
            "plain": {"type": "array", "maxItems": 5, "items": TEXT, "x-kubernetes-validations": equal},
        }
    )
    old = {
        "set": ["a", "b"],
        "keyed": [{"name": "a", "at": "2020-01-01T00:00:00Z"}, {"name": "b"}],
        "plain": ["a", "b"],
    }
    new = {"set": ["b", "a"], "keyed": [{"name": "b"}, {"name": "a", "at": "2020-01-01T01:00:00+01:00"}]}
    assert check(validations, new, old) == []
    assert check(validations, {"plain": ["b", "a"]}, old) == ['spec.plain: Invalid value: "array": changed']
    assert check(validations, {"keyed": [{"name": "b"}, {"name": "c"}]}, old) != []


def test_union_of_sets_and_merge_of_lists_with_keys() -> None:
    keyed = {
        "type": "array",
        "maxItems": 5,
        "items": {"type": "object", "properties": {"name": TEXT, "v": NUMBER}, "required": ["name"]},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    plain_set = {"type": "array", "maxItems": 5, "items": TEXT, "x-kubernetes-list-type": "set"}
    validations = of_spec(
        {"a": keyed, "b": keyed, "s": plain_set, "t": plain_set},
        *rules("(self.s + self.t).size() == 3", "(self.a + self.b)[0].v == 2 && size(self.a + self.b) == 2"),
    )
    spec = {
        "a": [{"name": "x", "v": 1}],
        "b": [{"name": "x", "v": 2}, {"name": "y", "v": 3}],
        "s": ["a", "b"],
        "t": ["b", "c"],
    }
    assert check(validations, spec) == []


# --- changes --------------------------------------------------------------------------------------

IMMUTABLE = {**TEXT, "x-kubernetes-validations": rules("self == oldSelf", message="immutable")}


def test_a_transition_rule_needs_an_old_value() -> None:
    validations = of_spec({"fixed": IMMUTABLE})
    assert check(validations, {"fixed": "b"}, {"fixed": "a"}) == ['spec.fixed: Invalid value: "string": immutable']
    assert check(validations, {"fixed": "a"}, {"fixed": "a"}) == []
    assert check(validations, {"fixed": "a"}) == []
    assert check(validations, {}, {"fixed": "a"}) == []
    assert check(validations, {"fixed": "b"}, {}) == []


def test_an_optional_old_value_is_asked_for_on_creation_too() -> None:
    rule = rules("!oldSelf.hasValue() || oldSelf.value() == self", optionalOldSelf=True, message="set once")
    created = rules("oldSelf.hasValue() || self != 'x'", optionalOldSelf=True, message="not at first")
    validations = of_spec({"opt": {**TEXT, "x-kubernetes-validations": [*rule, *created]}})
    assert check(validations, {"opt": "a"}) == []
    assert check(validations, {"opt": "x"}) == ['spec.opt: Invalid value: "string": not at first']
    assert check(validations, {"opt": "p"}, {"opt": "o"}) == ['spec.opt: Invalid value: "string": set once']


def test_fields_of_an_optional_old_object_are_found_and_adapted() -> None:
    rule = {
        "rule": "!oldSelf.hasValue() || oldSelf.?a__dash__t.orValue(self.a__dash__t) <= self.a__dash__t",
        "optionalOldSelf": True,
        "message": "back in time",
    }
    validations = of_spec({"a-t": {"type": "string", "format": "date-time"}}, rule)
    late, early = {"a-t": "2021-01-01T00:00:00Z"}, {"a-t": "2020-01-01T00:00:00Z"}
    assert check(validations, late) == check(validations, late, early) == []
    assert check(validations, early, late) == ['spec: Invalid value: "object": back in time']


def test_items_with_keys_meet_their_old_selves_wherever_they_are() -> None:
    item = {"type": "object", "properties": {"name": TEXT, "v": NUMBER}, "required": ["name"]}
    validations = of_spec(
        {
            "keyed": {
                "type": "array",
                "maxItems": 5,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {**item, "x-kubernetes-validations": rules("self.v >= oldSelf.v", message="only up")},
            },
        }
    )
    old = {"keyed": [{"name": "a", "v": 1}, {"name": "b", "v": 5}]}
    assert check(validations, {"keyed": [{"name": "b", "v": 5}, {"name": "a", "v": 2}]}, old) == []
    assert check(validations, {"keyed": [{"name": "b", "v": 4}, {"name": "n", "v": 0}]}, old) == [
        'spec.keyed[0]: Invalid value: "object": only up'
    ]


def test_values_of_additional_properties_meet_the_ones_of_the_same_key() -> None:
    validations = of_spec({"map": {"type": "object", "maxProperties": 9, "additionalProperties": IMMUTABLE}})
    old = {"map": {"a": "1", "b": "2"}}
    assert check(validations, {"map": {"b": "3", "c": "4"}}, old) == ['spec.map[b]: Invalid value: "string": immutable']


def test_an_unchanged_value_is_forgiven_by_a_rule_that_looks_at_it_alone() -> None:
    validations = of_spec(
        {"a": {**TEXT, "x-kubernetes-validations": rules("self != 'bad'", message="no bad")}, "b": TEXT},
        *rules("!has(self.b) || self.b != 'worse'", message="no worse"),
    )
    warnings: list[str] = []
    assert check(validations, {"a": "bad", "b": "x"}, {"a": "bad"}, warnings=warnings) == []
    assert warnings == ['spec.a: Invalid value: "string": no bad']
    assert check(validations, {"a": "bad"}, {"a": "good"}) == ['spec.a: Invalid value: "string": no bad']
    assert check(validations, {"a": "bad"}, {}) == ['spec.a: Invalid value: "string": no bad']
    changed = check(validations, {"a": "c", "b": "worse"}, {"a": "b", "b": "worse"})
    assert changed == ['spec: Invalid value: "object": no worse']


def test_a_transition_rule_forgives_nothing() -> None:
    validations = of_spec({"n": {**NUMBER, "x-kubernetes-validations": rules("self > oldSelf")}})
    assert check(validations, {"n": 1}, {"n": 1}) == ['spec.n: Invalid value: "integer": failed rule: self > oldSelf']


def test_an_item_without_identity_is_forgiven_if_the_whole_list_has_not_changed() -> None:
    item = {**TEXT, "x-kubernetes-validations": rules("self != 'bad'", message="no bad")}
    validations = of_spec({"list": {"type": "array", "maxItems": 9, "items": item}, "b": TEXT})
    assert check(validations, {"list": ["bad"], "b": "y"}, {"list": ["bad"], "b": "x"}) == []
    assert check(validations, {"list": ["bad", "c"]}, {"list": ["bad"]}) == [
        'spec.list[0]: Invalid value: "string": no bad'
    ]


def test_a_long_list_is_compared_once_however_many_of_its_items_are_to_be_forgiven() -> None:
    item = {**TEXT, "x-kubernetes-validations": rules("self != 'bad'", message="no bad")}
    items = {"type": "array", "maxItems": 50_000, "items": item}
    validations = of_spec({"one": items, "two": items, "three": items})
    bad, warnings = ["bad"] * 20_000, list[str]()
    new, old = {"one": bad, "two": ["bad"], "three": bad}, {"one": bad, "two": [], "three": bad}
    assert check(validations, new, old, warnings=warnings) == ['spec.two[0]: Invalid value: "string": no bad']
    assert len(warnings) == 40_000


def test_an_item_that_only_changed_its_place_is_forgiven() -> None:
    item = {"type": "object", "properties": {"name": TEXT, "v": TEXT}, "required": ["name"]}
    keyed = {
        "type": "array",
        "maxItems": 9,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {**item, "x-kubernetes-validations": rules("self.v != 'bad'", message="no bad")},
        "x-kubernetes-validations": rules("self.all(x, x.v != 'bad')", message="none bad"),
    }
    validations = of_spec({"list": keyed})
    bad, good = {"name": "a", "v": "bad"}, {"name": "b", "v": "good"}
    assert check(validations, {"list": [good, bad]}, {"list": [bad, good]}) == []
    assert check(validations, {"list": [good, bad]}, {"list": [bad]}) == ['spec.list: Invalid value: "array": none bad']


# --- budgets --------------------------------------------------------------------------------------


def test_an_object_that_uses_up_its_budget_is_refused_and_no_further_rule_is_run() -> None:
    costly = rules("self.all(x, self.all(y, x == y || true))")
    validations = of_spec(
        {
            "a": {"type": "array", "maxItems": 100, "items": NUMBER, "x-kubernetes-validations": costly},
            "b": {**TEXT, "x-kubernetes-validations": rules("self == 'x'")},
        }
    )
    assert check(validations, {"a": list(range(100)), "b": "y"}, budget=1000) == [
        'spec.a: Invalid value: "array": validation failed due to running out of cost budget, no further validation '
        "rules will be run"
    ]
    assert check(validations, {"b": "y"}, budget=0) == [
        'spec.b: Invalid value: "string": validation failed due to running out of cost budget, no further validation '
        "rules will be run"
    ]


def test_a_single_rule_may_not_use_up_more_than_the_limit_of_a_call() -> None:
    costly = rules("self.all(x, self.all(y, x == y || true))")
    validations = of_spec(
        {
            "a": {"type": "array", "maxItems": 900, "items": NUMBER, "x-kubernetes-validations": costly},
            "b": {**TEXT, "x-kubernetes-validations": rules("self == 'x'")},
        }
    )
    (said,) = check(validations, {"a": list(range(900)), "b": "y"})
    assert said == (
        "spec.a: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation "
        "rules will be run due to call cost exceeds limit for rule: self.all(x, self.all(y, x == y || true))"
    )


def test_a_message_may_not_cost_more_than_is_left() -> None:
    rule = {"rule": "self.a == 'y'", "messageExpression": "self.a + self.a + self.a", "message": "no y"}
    assert check(of_spec({"a": TEXT}, rule), {"a": "x" * 50}, budget=10) == [
        'spec: Invalid value: "object": messageExpression evaluation failed due to running out of cost budget, no '
        "further validation rules will be run"
    ]


def test_data_that_breaks_its_schema_is_an_error_and_no_crash() -> None:
    validations = of_spec(
        {
            "n": {**NUMBER, "x-kubernetes-validations": rules("self + 1 > oldSelf")},
            "o": {"type": "object", "properties": {"p": TEXT}, "x-kubernetes-validations": rules("self.p.size() > 0")},
            "t": {"type": "string", "format": "date-time", "x-kubernetes-validations": rules("self == oldSelf")},
        }
    )
    errors = check(validations, {"n": "x", "o": [1], "t": 5}, {"n": [], "o": {}, "t": {}})
    assert [error.partition(":")[0] for error in errors] == ["spec.n", "spec.o", "spec.t"]


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("self == oldSelf", "a", "b"),
        ("self.name == oldSelf.name", {"name": "a"}, {"name": "b"}),
        ("has(self.name) == has(oldSelf.name)", {"name": "x"}, {}),
        (
            "(has(self.all) && self.all) != (has(self.sel) && size(self.sel) > 0)",
            {"all": True},
            {"all": True, "sel": ["a"]},
        ),
    ],
)
def test_the_rules_of_the_seed_hold_or_not(rule: str, good: Any, bad: Any) -> None:
    of = {
        "type": "object",
        "properties": {
            "name": TEXT,
            "all": {"type": "boolean"},
            "sel": {"type": "array", "maxItems": 9, "items": TEXT},
        },
    }
    schema = TEXT if isinstance(good, str) else of
    validations = of_spec({"v": {**schema, "x-kubernetes-validations": rules(rule)}})
    old = {"v": "a"} if isinstance(good, str) else {"v": {"name": "a"}}
    assert check(validations, {"v": good}, old) == []
    assert check(validations, {"v": bad}, old) != []
