"""What evaluations cost, and that none runs away, whatever the expression and the data."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from cel_expressions import PIECES, WORDS
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.machinery.cel.adapt import Adapters
from farflung.machinery.cel.compiler import Program
from farflung.machinery.cel.environment import ExpressionEnvironment
from farflung.machinery.cel.errors import CompileError
from farflung.machinery.cel.language.budget import MAX_WORK, OverBudget
from farflung.machinery.cel.language.types import DYN, INT, STRING, Type, list_of, map_of
from farflung.machinery.cel.language.values import EvaluationError
from farflung.machinery.cel.library import KUBERNETES

VARIABLES: dict[str, Type] = {
    "s": STRING,
    "i": INT,
    "texts": list_of(STRING),
    "ints": list_of(INT),
    "m": map_of(STRING, INT),
    "any": DYN,
}
ENVIRONMENT = ExpressionEnvironment(VARIABLES, KUBERNETES, homogeneous=False)
DATA: dict[str, Any] = {
    "s": "0123456789",
    "i": 1,
    "texts": ["a", "bb"],
    "ints": [1, 2, 3],
    "m": {"a": 1},
    "any": {"a": [1]},
}


def program(text: str) -> Program:
    return Program(ENVIRONMENT.compile(text).tree, VARIABLES, Adapters())


def cost(text: str, data: dict[str, Any] = DATA) -> int:
    compiled = program(text)
    run = compiled.start(data)
    compiled.evaluate(run)
    return run.spent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2", 1),
        ("i", 1),
        ("i + i", 3),
        ("m.a", 2),
        ("has(m.a)", 1),
        ("m['a']", 2),
        ("ints[0]", 2),
        ("any.a[0]", 3),
        ("i > 0 && i < 5", 4),
        ("i > 0 ? i : 0", 3),
        ("!(i > 0)", 3),
        ("s == '01234'", 2),
        ("s.contains('0')", 2),
        ("s.startsWith('0123')", 2),
        ("s.size()", 2),
        ("s.matches('[0-9]+')", 1 + 2 * 2),
        ("s + s", 2 + 2),
        ("i in [1, 2, 3]", 1),
        ("i in ints", 2 + 3),
        ("[i]", 11),
        ("[1]", 0),
        ("{'a': i}", 31),
        ("timestamp('2020-01-01T00:00:00Z').getHours()", 1),
        ("type(i) == int", 3),
        ("ints.all(x, x > 0)", 1 + 3 * (2 + 1 + 2) + 1),
        ("ints.exists(x, x == 3)", 1 + 3 * (3 + 1 + 2) + 1),
        ("ints.map(x, x)", 1 + 3 * (1 + 1 + 10 + 1) + 1),
        ("ints.filter(x, x > 1)", 1 + 3 * 2 + 2 * (1 + 1 + 10 + 1) + 1 + 1),
        ("texts.join(',')", 1 + 1),
        ("s.replace('0', '1')", 1 + 2),
        ("s.lowerAscii()", 1 + 1),
        ("ints.sum()", 1 + 3),
        ("ints.isSorted()", 1 + 3),
        ("quantity(s).isGreaterThan(quantity('1'))", 1 + 1 + 1 + 1),
        ("sets.contains(ints, [1])", 1 + 3 + 1),
        ("url('https://h').getHost()", 1 + 1),
    ],
)
def test_costs_are_those_of_cel_go(text: str, expected: int) -> None:
    assert cost(text) == expected


def test_a_search_that_ends_early_costs_less() -> None:
    assert cost("ints.exists(x, x == 1)") < cost("ints.exists(x, x == 3)")


def test_an_evaluation_over_its_limit_ends_even_where_an_error_would_be_absorbed() -> None:
    compiled = program("ints.all(x, ints.all(y, x + y > 0)) || true")
    with pytest.raises(OverBudget):
        compiled.evaluate(compiled.start(DATA, limit=20))


def _deep(inner: str, around: str, times: int) -> str:
    for level in range(times):
        inner = around.format(inner=inner, level=level)
    return inner


HOSTILE = {
    "text that doubles": _deep("size(v)", "['x'].map(v, v + v).map(v, v + v).map(v, {inner})[0]", 12),
    "list that doubles": _deep("size(v)", "[[1, 1]].map(v, v + v).map(v, {inner})[0]", 40),
    "tree of shared lists": _deep("v == v", "[[1]].map(v, [v, v]).map(v, [v, v]).all(v, {inner})", 30),
    "replace that explodes": _deep("s", "{inner}.replace('', s)", 4) + ".size()",
    "long format": "'%s%s%s'.format([texts, texts, texts]).replace('', s).replace('', s).size()",
    "split into characters": "texts.map(t, s.split('')).map(l, l.map(c, s.split(''))).size()",
    "join with a long separator": "s.split('').join(s).split('').join(s).size()",
    "loops in loops": _deep("a > 0", "s.split('').map(c, 1).all(a, {inner})", 4),
    "large range": "lists.range(10000000).map(x, lists.range(10000000)).size()",
    "range of ranges": "lists.range(1000).map(x, lists.range(1000).map(y, x * y)).flatten().distinct().size()",
    "sort": "lists.range(100000).map(x, -x).sort().size()",
    "distinct lists": "lists.range(3000).map(x, [x]).distinct().size()",
    "regular expression": "s.matches('([0-9a-z]*){1000}([0-9a-z]*x){1000}$')",
    "matches everywhere": "s.findAll('').size()",
    "nested flatten": "[[[s.split('')]]].flatten(1000000000).size()",
    "map of maps": _deep("v", "{{'a': {inner}, 'b': {inner}}}", 3).replace("v", "s"),
    "error in every step": "lists.range(100000).all(x, 1 / 0 > x)",
    "set": "sets.equivalent(s.split(''), s.split('').reverse())",
    "url": "url('http://h/' + s).getQuery().size()",
    "quote": "strings.quote(s).size()",
    "text compared": "lists.range(20000).all(x, s == s)",
    "precision": "'%.1000f'.format([1e308]).replace('', s).size()",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
@pytest.mark.parametrize("length", [10, 20_000])
def test_a_hostile_expression_ends_without_taking_much_memory(text: str, length: int) -> None:
    data = {**DATA, "s": "0123456789" * (length // 10), "texts": ["a" * length, "b" * length]}
    try:
        compiled = program(text)
    except CompileError:
        return
    run = compiled.start(data)
    tracemalloc.start()
    try:
        with suppress(OverBudget, EvaluationError):
            compiled.evaluate(run)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 8 * MAX_WORK


def test_deep_data_is_an_error_and_no_crash() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    compiled = program("any == any && any.a == any")
    with pytest.raises((EvaluationError, OverBudget)):
        compiled.evaluate(compiled.start({**DATA, "any": deep}))
    while isinstance(deep, list):
        deep = deep.pop()


# --- anything at all ------------------------------------------------------------------------------


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12), st.integers(0, 200))
def test_any_expression_ends_within_a_small_budget_with_a_value_or_an_error(words: list[str], limit: int) -> None:
    try:
        compiled = program(" ".join(words))
    except CompileError:
        return
    run = compiled.start(DATA, limit)
    try:
        compiled.evaluate(run)
    except EvaluationError:
        assert run.spent <= limit
    except OverBudget:
        pass
    else:
        assert run.spent <= limit


@settings(max_examples=examples(300))
@given(
    PIECES,
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=3)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
        ),
        max_leaves=5,
    ),
)
def test_values_of_the_wrong_type_are_errors_of_the_evaluation(text: str, anything: Any) -> None:
    """Data may break its schema: an unchanged value that was invalid before is let through."""
    try:
        compiled = program(f"[dyn(1)].map(x, {text})")
    except CompileError:
        return
    run = compiled.start(dict.fromkeys(VARIABLES, anything))
    with suppress(EvaluationError, OverBudget):
        compiled.evaluate(run)
