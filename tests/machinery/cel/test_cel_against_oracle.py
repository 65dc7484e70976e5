"""Random expressions have the same value here as in Google's own runtime, or are an error in both."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings
from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from farflung.machinery.cel.adapt import Adapters
from farflung.machinery.cel.compiler import Program
from farflung.machinery.cel.environment import ExpressionEnvironment
from farflung.machinery.cel.errors import CompileError
from farflung.machinery.cel.language.types import BOOL, DOUBLE, DYN, INT, STRING, Type, list_of, map_of
from farflung.machinery.cel.language.values import Duration, EvaluationError, Timestamp
from farflung.machinery.cel.library import KUBERNETES

VARIABLES: dict[str, Type] = {
    "i": INT,
    "j": INT,
    "s": STRING,
    "b": BOOL,
    "f": DOUBLE,
    "ints": list_of(INT),
    "texts": list_of(STRING),
    "m": map_of(STRING, INT),
    "any": DYN,
}
ERROR = "an error"
REFUSED = "refused"

_environment = ExpressionEnvironment(VARIABLES, KUBERNETES, homogeneous=False)
_oracle = cel.NewEnv(
    variables={
        "i": cel.Type.INT,
        "j": cel.Type.INT,
        "s": cel.Type.STRING,
        "b": cel.Type.BOOL,
        "f": cel.Type.DOUBLE,
        "ints": cel.Type.List(cel.Type.INT),
        "texts": cel.Type.List(cel.Type.STRING),
        "m": cel.Type.Map(cel.Type.STRING, cel.Type.INT),
        "any": cel.Type.DYN,
    },
    extensions=[ext_strings.ExtStrings(2), ext_optional.ExtOptional()],
)


def ours(text: str, data: dict[str, Any]) -> Any:
    try:
        checked = _environment.compile(text)
    except CompileError:
        return REFUSED
    program = Program(checked.tree, VARIABLES, Adapters())
    try:
        return _normal(program.evaluate(program.start(data)))
    except EvaluationError:
        return ERROR


def theirs(text: str, data: dict[str, Any]) -> Any:
    try:
        compiled = _oracle.compile(text)
    except RuntimeError:
        return REFUSED
    value = compiled.eval(data=data)
    return ERROR if value.type() == cel.Type.ERROR else _normal(value.plain_value())


def _normal(value: Any) -> Any:
    """What can be compared: numbers with whether they are doubles, maps without order."""
    match value:
        case bool() | str() | None:
            return value
        case float():
            return "NaN" if math.isnan(value) else ("double", value)
        case int():
            return int(value)
        case bytes() | bytearray():
            return bytes(value)
        case list():
            return [_normal(each) for each in value]
        case dict():
            return {(type(key) is bool, key): _normal(each) for key, each in value.items()}
        case Timestamp():
            return ("timestamp", value.nanos // 1000)
        case datetime():
            return ("timestamp", (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
        case Duration():
            return ("duration", value.nanos // 1000)
        case timedelta():
            return ("duration", value // timedelta(microseconds=1))
    raise AssertionError(value)


# --- expressions ----------------------------------------------------------------------------------

numbers = st.one_of(
    st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63) + 1, 2**62, -(2**62), 2**32, 3037000500, 10**18])
)
letters = st.text(st.sampled_from("abA-. é€😀"), max_size=6)
doubles = st.floats(-1e6, 1e6).map(lambda number: f"({number!r})") | st.sampled_from(
    ["0.0", "1.5", "-2.25", "1e300", "double('NaN')"]
)
separators = st.sampled_from(["'a'", "'-'", "'é'", "'aa'"])  #: no empty one: C++ splits '' by '' into one text
quoted = letters.map(lambda text: f"'{text}'")


def _in(template: str, **parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.fixed_dictionaries(parts).map(lambda found: template.format(**found))


def _grow(children: dict[str, st.SearchStrategy[str]]) -> dict[str, st.SearchStrategy[str]]:
    """Expressions of each type around expressions of all types."""
    n, t, q, d, li, ls, m, x = (
        children[name] for name in ("int", "text", "bool", "double", "ints", "texts", "map", "any")
    )
    moment, span = children["moment"], children["span"]
    arithmetic = st.sampled_from("+-*/%")
    comparison = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    return {
        "int": st.one_of(
            _in("({a} {o} {b})", a=n, o=arithmetic, b=n),
            _in("(-({a}))", a=n),
            _in("size({a})", a=st.one_of(t, li, ls, m)),
            _in("{a}.size()", a=st.one_of(t, li, ls, m)),
            _in("{a}[{b}]", a=li, b=n),
            _in("{a}[{b}]", a=m, b=t),
            _in("int({a})", a=st.one_of(d, n, t)),
            _in("({q} ? {a} : {b})", q=q, a=n, b=n),
            _in("{a}.indexOf({b})", a=t, b=t),
            _in("{a}.lastIndexOf({b})", a=t, b=t),
            _in("int({a})", a=moment),
            _in(
                "{a}.{g}({z})",
                a=moment,
                g=st.sampled_from(
                    ["getFullYear", "getMonth", "getDate", "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes"]
                ),
                z=st.sampled_from(["", "'America/New_York'", "'+05:30'", "'Asia/Tokyo'", "'nowhere'"]),
            ),
            _in("{a}.{g}()", a=span, g=st.sampled_from(["getHours", "getMinutes", "getSeconds"])),
        ),
        "double": st.one_of(
            _in("({a} {o} {b})", a=d, o=st.sampled_from("+-*/"), b=d),
            _in("(-({a}))", a=d),
            _in("double({a})", a=st.one_of(n, t)),
        ),
        "text": st.one_of(
            _in("({a} + {b})", a=t, b=t),
            _in("string({a})", a=st.one_of(n, q, t)),
            _in("{a}.substring({b})", a=t, b=n),
            _in("{a}.charAt({b})", a=t, b=n),
            _in("{a}.replace({b}, {c})", a=t, b=t, c=t),
            _in("{a}.lowerAscii()", a=t),
            _in("{a}.upperAscii()", a=t),
            _in("{a}.trim()", a=t),
            _in("{a}.join({b})", a=ls, b=t),
            _in("{a}[{b}]", a=ls, b=n),
            _in("({q} ? {a} : {b})", q=q, a=t, b=t),
        ),
        "bool": st.one_of(
            _in("({a} {o} {b})", a=n, o=comparison, b=n),
            _in("({a} {o} {b})", a=t, o=comparison, b=t),
            _in("({a} {o} {b})", a=d, o=comparison, b=d),
            _in("({a} {o} {b})", a=moment, o=comparison, b=moment),
            _in("({a} {o} {b})", a=span, o=comparison, b=span),
            _in("({a} {o} {b})", a=li, o=st.sampled_from(["==", "!="]), b=li),
            _in("({a} {o} {b})", a=m, o=st.sampled_from(["==", "!="]), b=m),
            _in("({a} == {b})", a=x, b=st.one_of(x, n, t, li, d)),
            _in("({a} {o} {b})", a=q, o=st.sampled_from(["&&", "||", "==", "!="]), b=q),
            _in("(!{a})", a=q),
            _in("({a} in {b})", a=n, b=li),
            _in("({a} in {b})", a=t, b=st.one_of(ls, m)),
            _in("{a}.contains({b})", a=t, b=t),
            _in("{a}.startsWith({b})", a=t, b=t),
            _in("{a}.endsWith({b})", a=t, b=t),
            _in("{a}.matches({b})", a=t, b=st.sampled_from(["'a+'", "'^a.b$'", "'[a' + 'b'", "'é|x'", "''"])),
            _in(
                "{a}.{k}(e, {t})",
                a=li,
                k=st.sampled_from(["all", "exists", "exists_one"]),
                t=st.sampled_from(["e > 0", "10 / e > 1", "e == i", "e in ints", "e * e > 5", "1 / 0 > e"]),
            ),
            _in("bool({a})", a=t),
            _in("has({a}.a)", a=m),
            st.sampled_from(["any.a == any.b", "'a' in any", "type(any) == int"]),
        ),
        "ints": st.one_of(
            _in("[{a}, {b}]", a=n, b=n),
            _in("({a} + {b})", a=li, b=li),
            _in("{a}.map(e, {t})", a=li, t=st.sampled_from(["e * 2", "e + i", "10 / e", "size(ints)", "ints[e]"])),
            _in("{a}.map(e, e > 0, e - 1)", a=li),
            _in("{a}.filter(e, {t})", a=li, t=st.sampled_from(["e > 0", "e % 2 == 0", "ints.exists(o, o < e)"])),
        ),
        "texts": st.one_of(
            _in("[{a}, {b}]", a=t, b=t),
            _in("{a}.split({b})", a=t, b=separators),
            _in("{a}.split({b}, {c})", a=t, b=separators, c=st.sampled_from(["-1", "0", "1", "2"])),
            _in("({a} + {b})", a=ls, b=ls),
            _in("{a}.map(e, e + s)", a=ls),
        ),
        "map": st.one_of(_in("{{{a}: {b}}}", a=t, b=n), st.just("m")),
        "any": st.one_of(_in("dyn({a})", a=st.one_of(n, t, li, m, d)), st.just("any")),
        "moment": st.one_of(
            _in("({a} + {b})", a=moment, b=span),
            _in("({a} - {b})", a=moment, b=span),
            _in("timestamp({a})", a=n),
        ),
        "span": st.one_of(_in("({a} - {b})", a=moment, b=moment), _in("({a} + {b})", a=span, b=span)),
    }


LEAVES: dict[str, st.SearchStrategy[str]] = {
    "int": numbers.map(lambda number: f"({number})") | st.sampled_from(["i", "j"]),
    "double": doubles | st.just("f"),
    "text": quoted | st.just("s"),
    "bool": st.sampled_from(["true", "false", "b"]),
    "ints": st.lists(numbers, max_size=3).map(str) | st.just("ints"),
    "texts": st.lists(quoted, max_size=3).map(lambda parts: f"[{', '.join(parts)}]") | st.just("texts"),
    "map": st.just("m"),
    "any": st.just("any"),
    "moment": st.sampled_from(
        ["timestamp('2020-02-29T12:30:00Z')", "timestamp('1969-12-31T23:59:59+14:00')", "timestamp(s)"]
    ),
    "span": st.sampled_from(["duration('1h')", "duration('-90m')", "duration('1.5s')", "duration(s)"]),
}


def _expressions() -> st.SearchStrategy[str]:
    level = LEAVES
    for _ in range(3):
        deeper = _grow(level)
        level = {name: st.one_of(LEAVES[name], level[name], deeper[name]) for name in LEAVES}
    return st.one_of(*(level[name] for name in LEAVES if name != "any"))


DATA = st.fixed_dictionaries(
    {
        "i": numbers,
        "j": numbers,
        "s": letters,
        "b": st.booleans(),
        "f": st.floats(-1e3, 1e3),
        "ints": st.lists(numbers, max_size=4),
        "texts": st.lists(letters, max_size=3),
        "m": st.dictionaries(letters, numbers, max_size=3),
        "any": st.one_of(
            numbers,
            letters,
            st.lists(numbers, max_size=2),
            st.dictionaries(st.sampled_from("abc"), st.one_of(numbers, letters, st.none()), max_size=3),
        ),
    }
)
SOME_DATA: dict[str, Any] = {
    "i": 3, "j": 0, "s": "ab", "b": True, "f": 1.5, "ints": [1, 0, 2], "texts": ["a"], "m": {"a": 1}, "any": {"a": 1},
}  # fmt: skip


@settings(max_examples=examples(400))
@given(_expressions(), DATA)
@example("[1, 0].all(e, 10 / e > 1)", SOME_DATA)
@example("ints.all(e, 10 / e > 4)", SOME_DATA)
@example("(-9223372036854775807 - 1) / -1", SOME_DATA)
def test_values_are_those_of_the_oracle(text: str, data: dict[str, Any]) -> None:
    expected = theirs(text, data)
    if expected == REFUSED:
        return
    assert ours(text, data) == expected, text


@pytest.mark.parametrize(
    "text",
    [
        "1 + 2 * 3 - 4 / 2 % 3",
        "-7 / 2",
        "-7 % 3",
        "7 % -3",
        "18446744073709551615u + 1u",
        "2u - 3u",
        "7u / 2u",
        "1u / 0u",
        "1 / 0",
        "1 % 0",
        "1.0 / 0.0",
        "-1.0 / 0.0",
        "0.0 / 0.0 == 0.0 / 0.0",
        "dyn(1) == dyn(1.0)",
        "dyn(1) == dyn(1u)",
        "dyn(1) == dyn(true)",
        "dyn(1) < dyn(1.5)",
        "dyn([1, 2]) == dyn([1.0, 2u])",
        "dyn({'a': 1}) == dyn({'a': 1.0})",
        "dyn('a') == dyn(b'a')",
        "b'abc' + b'd'",
        "bytes('é')",
        "string(b'\\xff')",
        "size('😀é')",
        "'a' < 'b' && b'a' < b'b' && false < true",
        "[1, 2, 3][1]",
        "[1, 2, 3][3]",
        "[1][-1]",
        "{1: 'a'}[1]",
        "{1: 'a'}[2]",
        "{true: 'a'}[true]",
        "{'a': {'b': 1}}.a.b",
        "{'a': 1}.b",
        "has({'a': 1}.a)",
        "has({'a': 1}.b)",
        "true || 1 / 0 > 1",
        "1 / 0 > 1 || true",
        "false && 1 / 0 > 1",
        "1 / 0 > 1 && false",
        "1 / 0 > 1 && true",
        "false ? 1 / 0 : 3",
        "int(1e19)",
        "int(9.99)",
        "int(-9.99)",
        "uint(-1)",
        "uint('18446744073709551615')",
        "uint(1.9)",
        "double('1e3')",
        "double('abc')",
        "int('9223372036854775808')",
        "int('-5')",
        "bool('yes')",
        "string(-5)",
        "string(true)",
        "duration('1h1m1s1ms')",
        "string(duration('1h'))",
        "timestamp('2020-01-01T00:00:00Z') + duration('24h')",
        "timestamp('9999-12-31T23:59:59Z') + duration('1s')",
        "timestamp('2020-02-30' + 'T00:00:00Z')",
        "timestamp(0).getDayOfWeek()",
        "timestamp('2009-02-13T23:31:30Z').getMilliseconds()",
        "duration('3723s').getMinutes()",
        "[1, 2].map(x, [x].map(y, y + x))",
        "{'a': 1, 'b': 2}.all(k, k < 'c')",
        "{'a': 1, 'b': 2}.exists(k, k == 'b')",
        "[[1, 2], [3]].exists_one(l, size(l) == 1)",
        "[1, 2, 3].exists(x, x / 0 == 1 || x == 2)",
        "type(1) == int && type('') == string && type([]) == list && type({}) == map && type(null) == null_type",
        "'%d %s %x %o %b'.format([255, 'a', 255, 8, 5])",
        "'100%%'.format([])",
        "'%d'.format(['a'])",
        "'abc'.replace('', '-')",
        "'aaaa'.replace('a', 'b', 2)",
        "'abc'.split('')",
        "'a,b,c'.split(',', 2)",
        "' \\t a \\n'.trim()",
        "'ÀBC'.lowerAscii()",
        "[].join(',')",
        "'abcabc'.lastIndexOf('bc')",
        "'abcabc'.indexOf('c', 3)",
        "strings.quote('a\"b\\n')",
        "{'a': 1}.?b.orValue(5)",
        "{'a': 1}[?'a'].value()",
        "[1, 2][?5].hasValue()",
        "optional.of(1).optMap(x, x + 1).value()",
        "optional.none().orValue(2)",
        "[?{'a': 1}[?'a'], ?{'a': 1}[?'b'], 3]",
        "{?'a': {'x': 1}[?'x'], ?'b': {'x': 1}[?'y']}",
    ],
)
def test_known_expressions_have_the_value_of_the_oracle(text: str) -> None:
    assert ours(text, SOME_DATA) == theirs(text, SOME_DATA)
