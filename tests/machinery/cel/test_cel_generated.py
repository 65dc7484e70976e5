"""Generated functions have the values, costs and errors of the closures that are their oracle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from cel_closures import ClosureProgram
from cel_expressions import DATA, PIECES, SOME_DATA, VARIABLES, WORDS, expressions
from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from farflung.machinery.cel.adapt import Adapters
from farflung.machinery.cel.compiler import Program
from farflung.machinery.cel.environment import ExpressionEnvironment
from farflung.machinery.cel.errors import CompileError
from farflung.machinery.cel.language.budget import OverBudget
from farflung.machinery.cel.language.types import (
    BOOL,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    TypeField,
    TypeKind,
    list_of,
    map_of,
    object_type,
    optional_of,
)
from farflung.machinery.cel.language.values import NO_SUCH_OVERLOAD, EvaluationError, OptionalValue
from farflung.machinery.cel.library import KUBERNETES

ANY = ExpressionEnvironment(VARIABLES, KUBERNETES, homogeneous=False)
ITEM = object_type(
    "item",
    {
        "name": TypeField(STRING, "name"),
        "n": TypeField(INT, "n"),
        "at": TypeField(TIMESTAMP, "at"),
        "share": TypeField(DOUBLE, "share"),
        "on": TypeField(BOOL, "on"),
    },
)
SELF = object_type(
    "self",
    {
        "name": TypeField(STRING, "name"),
        "n": TypeField(INT, "n"),
        "on": TypeField(BOOL, "on"),
        "item": TypeField(ITEM, "item"),
        "items": TypeField(list_of(ITEM), "items"),
        "by_name": TypeField(map_of(STRING, ITEM), "byName"),
        "texts": TypeField(list_of(STRING), "texts"),
        "set": TypeField(Type(TypeKind.LIST, "list", (STRING,), list_type="set"), "set"),
    },
)
SCHEMA = {"self": SELF, "oldSelf": optional_of(SELF)}
TYPED = ExpressionEnvironment(SCHEMA, KUBERNETES)


def outcome(program: Any, data: Mapping[str, Any], limit: int) -> tuple[Any, int, int]:
    run = program.start(data, limit)
    try:
        value = shown(program.evaluate(run))
    except OverBudget:
        value = "over budget"
    except EvaluationError as error:
        value = f"error: {error}"
    return value, run.spent, run.worked


def shown(value: Any) -> Any:
    """Comparable by `==`, with types."""
    match value:
        case list():
            return [type(value).__name__, *map(shown, value)]
        case dict():
            return {(type(key), key): shown(each) for key, each in value.items()}
        case OptionalValue():
            return "optional", repr(value)
        case float() if math.isnan(value):
            return "NaN"
    return type(value), value


def assert_same(
    environment: ExpressionEnvironment, variables: Mapping[str, Type], text: str, data: Mapping[str, Any], limit: int
) -> None:
    try:
        tree = environment.compile(text).tree
    except CompileError:
        return
    adapters = Adapters()
    expected = outcome(ClosureProgram(tree, variables, adapters), data, limit)
    found = outcome(Program(tree, variables, adapters), data, limit)
    if expected[0] == f"error: {NO_SUCH_OVERLOAD}":  # a value that violates its schema may end an evaluation anywhere
        assert found[0] == expected[0], text
    else:
        assert found == expected, text


LIMITS = st.one_of(st.just(1_000_000), st.integers(0, 60))


@settings(max_examples=examples(400))
@given(expressions(), DATA, LIMITS)
def test_expressions_have_the_same_value_cost_and_error(text: str, data: dict[str, Any], limit: int) -> None:
    assert_same(ANY, VARIABLES, text, data, limit)


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12), LIMITS)
def test_random_words_have_the_same_value_cost_and_error(words: list[str], limit: int) -> None:
    assert_same(ANY, VARIABLES, " ".join(words), SOME_DATA, limit)


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=5,
)


@settings(max_examples=examples(300))
@given(PIECES, ANYTHING, LIMITS)
def test_values_of_the_wrong_type_are_the_same_errors(text: str, anything: Any, limit: int) -> None:
    for whole in (text, f"[dyn(1)].map(x, {text})"):
        assert_same(ANY, VARIABLES, whole, dict.fromkeys(VARIABLES, anything), limit)


# --- rules of schemas -----------------------------------------------------------------------------

INTS = ["self.n", "self.item.n", "e.n", "o.n", "self.items.size()", "size(e.name)", "3", "0", "self.items[0].n"]
TEXTS = ["self.name", "e.name", "o.name", "self.texts[0]", "self.item.name", "'a'", "self.by_name['a'].name"]
BOOLS = ["self.on", "e.on", "has(self.item)", "has(self.item.n)", "has(self.by_name.a)", "'a' in self.by_name"]
SPANS = ["e.at", "self.item.at", "timestamp('2020-01-01T00:00:00Z')"]
ROOMS = ["e.share", "self.item.share", "1.5"]


def joined(template: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda found: template.format(*found))


def rules() -> st.SearchStrategy[str]:
    n, t, m, d = (st.sampled_from(some) for some in (INTS, TEXTS, SPANS, ROOMS))
    order = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    n = st.one_of(n, joined("({} {} {})", n, st.sampled_from("+-*/%"), n), joined("[{}, {}].max()", n, n))
    t = st.one_of(t, joined("({} + {})", t, t), joined("oldSelf.?name.orValue({})", t), joined("string({})", n))
    tests: st.SearchStrategy[str] = st.one_of(
        st.sampled_from(BOOLS),
        joined("{} {} {}", n, order, n),
        joined("{} {} {}", t, order, t),
        joined("{} {} {}", m, order, m),
        joined("{} {} {}", d, order, d),
        joined("{}.{}({})", t, st.sampled_from(["startsWith", "contains", "endsWith", "matches"]), t),
        joined("{}.matches('^[a-c]+$')", t),
        joined("{} in ['a', 'b']", t),
        joined("{} in [1, 2]", n),
        joined("{} in self.set", t),
        joined("{} in self.texts", t),
        joined("self.texts == [{}, {}]", t, t),
        st.just("oldSelf.hasValue()"),
        joined("oldSelf.optMap(e, {} > {}).orValue(self.on)", n, n),
    )

    def around(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        quantifier = st.sampled_from(["all", "exists", "exists_one"])
        return st.one_of(
            joined("({} && {})", inner, inner),
            joined("({} || {})", inner, inner),
            joined("!({})", inner),
            joined("({} ? {} : {})", inner, inner, inner),
            joined("self.items.{}(e, {})", quantifier, inner),
            joined("self.items.{}(i, e, {})", quantifier, inner),
            joined("self.items.{}(o, {})", quantifier, inner),
            joined("self.items.filter(e, {}).size() < {}", inner, n),
            joined("self.items.map(e, {}, {}).sum() < {}", inner, n, n),
            joined("self.items.map(e, {}) == self.texts", t),
            joined("self.by_name.all(k, self.by_name.exists(o, {}))", inner),
            joined("self.by_name.transformMap(k, e, {}, {}).all(k, {})", inner, n, inner),
            joined("self.items.transformMapEntry(i, e, {{{}: {}}}).size() == {}", t, n, n),
            joined("cel.bind(e, self.items[0], {})", inner),
            joined("cel.bind(o, self.item, cel.bind(e, o, {}))", inner),
        )

    return st.recursive(tests, around, max_leaves=10)


def objects(complete: bool) -> st.SearchStrategy[dict[str, Any]]:
    moments = st.sampled_from(["2020-01-01T00:00:00Z", "2021-06-01T00:00:00+02:00"])
    fields = {
        "name": st.text("abc", max_size=12),
        "n": st.integers(-3, 3) | st.just(2**63 - 1),
        "at": moments,
        "share": st.sampled_from([0.5, 1, 2]),
        "on": st.booleans(),
    }
    items = st.fixed_dictionaries({}, optional=fields) if not complete else st.fixed_dictionaries(fields)
    whole = {
        **{name: fields[name] for name in ("name", "n", "on")},
        "item": items,
        "items": st.lists(items, max_size=4),
        "byName": st.dictionaries(st.sampled_from("abc"), items, max_size=3),
        "texts": st.lists(fields["name"], max_size=3),
        "set": st.lists(fields["name"], max_size=3, unique=True),
    }
    return st.fixed_dictionaries(whole) if complete else st.fixed_dictionaries({}, optional=whole)


@settings(max_examples=examples(600))
@given(rules(), st.booleans().flatmap(objects), st.none() | objects(True), LIMITS)
def test_rules_of_schemas_have_the_same_value_cost_and_error(
    text: str, new: dict[str, Any], old: dict[str, Any] | None, limit: int
) -> None:
    data = {"self": new, "oldSelf": None if old is None else OptionalValue(old)}
    assert_same(TYPED, SCHEMA, text, data, limit)


@settings(max_examples=examples(100))
@given(rules(), ANYTHING, LIMITS)
@example("self.items.all(e, self.on || e.on)", {"items": [{"on": 1}], "on": []}, 1000)
def test_objects_that_violate_their_schema_are_the_same_errors(text: str, anything: Any, limit: int) -> None:
    assert_same(TYPED, SCHEMA, text, {"self": anything, "oldSelf": None}, limit)
    values = dict.fromkeys(("name", "n", "on", "item", "items", "byName", "texts", "set"), anything)
    assert_same(TYPED, SCHEMA, text, {"self": values, "oldSelf": None}, limit)


# --- depth ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "around", "times"),
    [
        ("self.on", "({} && self.on)", 90),
        ("self.on", "(self.on ? {} : self.on)", 90),
        ("self.on", "(self.on == {} || self.n > 1 / 0)", 45),
        ("self.on", "self.items.all(e, {})", 24),
        ("size(self.items.map(e, 1)) > 0", "cel.bind(v, self.on, {})", 24),
        ("self.n", "[{}, self.n].max()", 24),
        ("self.name", "optional.of({}).optMap(v, v + v).orValue('')", 12),
        ("self.items", "self.items.filter(e, size({}) > 0)", 20),
    ],
)
def test_deeply_nested_expressions_are_the_same(inner: str, around: str, times: int) -> None:
    for _ in range(times):
        inner = around.format(inner)
    item = {"name": "a", "n": 1, "at": "2020-01-01T00:00:00Z", "share": 1, "on": True}
    data = {"self": {**item, "item": item, "items": [item]}, "oldSelf": None}
    text = f"({inner}) == ({inner})"
    TYPED.compile(inner)
    assert_same(TYPED, SCHEMA, text if len(text) < 3000 else inner, data, 1_000_000)


def test_names_and_constants_of_an_expression_are_no_source() -> None:
    quote = '"\'\\n"); import os #'
    field = "'); raise SystemExit #"
    data = {name: {field: quote} if name == "any" else None for name in VARIABLES}
    assert_same(ANY, VARIABLES, f"any[{field!r}] + {quote!r} == {quote!r} || has(any.__class__)", data, 1000)
