"""Random expressions have the same value here as in Google's own runtime, or are an error in both."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings
from cel_expressions import DATA, SOME_DATA, VARIABLES, expressions
from examples import examples
from hypothesis import example, given, settings

from farflung.machinery.cel.adapt import Adapters
from farflung.machinery.cel.compiler import Program
from farflung.machinery.cel.environment import ExpressionEnvironment
from farflung.machinery.cel.errors import CompileError
from farflung.machinery.cel.language.values import Duration, EvaluationError, Timestamp
from farflung.machinery.cel.library import KUBERNETES

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


@settings(max_examples=examples(400))
@given(expressions(), DATA)
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
