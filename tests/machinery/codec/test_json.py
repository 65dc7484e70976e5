from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery.codec.json import DEEPEST, check_syntax, parse, parse_object
from farflung.machinery.errors import Malformed


def why(body: bytes) -> str:
    with pytest.raises(Malformed) as refused:
        parse(body)
    return refused.value.why


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "unexpected end of JSON input"),
        (b"hello", "invalid character 'h' looking for beginning of value"),
        (b'{"apiVersion":"v1",', "unexpected end of JSON input"),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (b"{'a':1}", r"invalid character '\'' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"[1,]", "invalid character ']' looking for beginning of value"),
        (b"{}x", "invalid character 'x' after top-level value"),
        (b'"a\nb"', r"invalid character '\n' in string literal"),
        (b'"\\x"', "invalid character 'x' in string escape code"),
        (b'"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
        (b'"abc', "unexpected end of JSON input"),
        (b"-x", "invalid character 'x' in numeric literal"),
        (b"1.x", "invalid character 'x' after decimal point in numeric literal"),
        (b"1ex", "invalid character 'x' in exponent of numeric literal"),
        (b"01", "invalid character '1' after top-level value"),
        (b"trux", "invalid character 'x' in literal true (expecting 'e')"),
        (b"tru", "invalid character ' ' in literal true (expecting 'e')"),
        (b"NaN", "invalid character 'N' looking for beginning of value"),
        (b"\xef\xbb\xbf{}", "invalid character 'ï' looking for beginning of value"),
        (b"\x00", r"invalid character '\x00' looking for beginning of value"),
        (b'{"a":1e400}', "json: cannot unmarshal number 1e400 into Go value of type float64"),
    ],
)
def test_what_is_no_json_is_refused_with_the_words_of_go(body: bytes, expected: str) -> None:
    assert why(body) == expected


def test_bytes_that_are_no_characters_are_refused() -> None:
    assert why(b'"a\xffb"') == "invalid UTF-8 at offset 2"
    assert why(b'{"a":"\xc0\xaf"}') == "invalid UTF-8 at offset 6"


def test_half_characters_are_replaced() -> None:
    assert parse(rb'"\ud800x"').value == "\ufffdx"
    assert parse(rb'"\udc00\ud83d\ude00\\ud800"').value == "\ufffd\U0001f600\\ud800"


def test_numbers_beyond_64_bits_become_floats() -> None:
    assert parse(b"[18446744073709551615,18446744073709551616]").value == [2**64 - 1, float(2**64)]


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_what_is_too_deep_is_refused(opening: bytes) -> None:
    for depth in (DEEPEST + 1, 1000, 100_000):
        closing = opening.translate(bytes.maketrans(b"[{", b"]}"), b'"a:')[::-1]
        body = opening * depth + b"1" + closing * depth
        assert why(body) == "exceeded max depth"
        assert why(b" " + body) == "exceeded max depth"


def test_what_is_just_not_too_deep_is_read() -> None:
    body = b"[" * DEEPEST + b"]" * DEEPEST
    assert orjson.dumps(parse(body).value) == body


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        (b'{"data":{"a":"1","a":"2"},"data":{"b":"1"}}', ["data.a", "data"]),
        (b'{"a":1,"a":2,"a":3}', ["a"]),
        (b'{"l":[{"x":1},{"x":1,"x":2}]}', ["l[1].x"]),
        (b'{"a":{"b":1},"a":{"b":1}}', ["a"]),
        (b'{"a" : 1, "a" : 2}', ["a"]),
        (b'{"a\\\\":":","a\\\\":1}', ["a\\\\"]),
        (b'{"a":"\\":","\\u0061":1}', ["a"]),
        (b'{"a":":80","b":"x\\":"}', []),
        (b'{"a":"\\u003c"}', []),
        (b'{ "a": [ { "b": 1 }, { "b": 2 } ] }', []),
    ],
)
def test_fields_that_are_there_twice_are_reported_in_their_order(body: bytes, problems: list[str]) -> None:
    assert parse(body).problems == [f'duplicate field "{path}"' for path in problems]


def test_objects_that_are_there_twice_are_merged_as_go_fills_structs() -> None:
    body = b'{"data":{"a":"1","a":"2"},"data":{"b":"1"}}'
    assert parse(body).value == {"data": {"a": "2", "b": "1"}}
    assert parse(body, typed=False).value == {"data": {"b": "1"}}


@pytest.mark.parametrize(("body", "name"), [(b"[]", "array"), (b'"x"', "string"), (b"1", "number"), (b"true", "bool")])
def test_a_patch_must_be_an_object(body: bytes, name: str) -> None:
    with pytest.raises(Malformed) as refused:
        parse_object(body)
    assert refused.value.why == f"json: cannot unmarshal {name} into Go value of type map[string]interface {{}}"
    assert parse_object(b"null").value is None


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=15,
)
separators = st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :\n")])


@given(values, separators, st.booleans())
def test_json_without_duplicates_is_read_as_it_is(value: Any, separator: tuple[str, str], ascii_only: bool) -> None:
    body = json.dumps(value, separators=separator, ensure_ascii=ascii_only).encode("utf-8", "replace")
    parsed = parse(body)
    assert parsed.value == json.loads(body)
    assert parsed.problems == []


class Twin:
    """The dumb way to find duplicates: a parser that keeps every pair."""

    def __init__(self, body: bytes) -> None:
        self.found = False
        self.value = json.loads(body, object_pairs_hook=self._pairs)

    def _pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        self.found |= len({name for name, _ in pairs}) < len(pairs)
        return dict(pairs)


@st.composite
def texts_with_pairs(draw: st.DrawFn, depth: int = 0) -> str:
    """JSON whose objects have few different keys, so that duplicates are common."""
    if depth == 3 or draw(st.booleans()):
        return draw(st.sampled_from(["1", "null", '":"', '"x\\":"', '"\\\\"', "[]", "{}"]))
    space = draw(st.sampled_from(["", " "]))
    keys = draw(st.lists(st.sampled_from(['"a"', '"b"', '"\\u0061"', '"c\\\\"', '":"', '"\\""']), max_size=3))
    return "{" + ",".join(f"{key}{space}:{draw(texts_with_pairs(depth + 1))}" for key in keys) + "}"


@given(texts_with_pairs())
def test_duplicates_are_found_just_when_there_are_any(text: str) -> None:
    body = text.encode()
    twin = Twin(body)
    parsed = parse(body, typed=False)
    assert bool(parsed.problems) == twin.found
    assert parsed.value == twin.value


@pytest.mark.parametrize("depth", [300, 500, 1000, 100_000])
def test_a_duplicate_may_hide_any_depth(depth: int) -> None:
    """The value that replaces it is shallow."""
    body = b'{"a":%b%b,"a":1}' % (b"[" * depth, b"]" * depth)
    try:
        assert parse(body).value == {"a": 1}
    except Malformed as refused:
        assert refused.why == "exceeded max depth"


def test_the_first_duplicates_are_described_and_not_at_any_length() -> None:
    few = b",".join(b'"k%d":1,"k%d":2' % (at, at) for at in range(5_000))
    assert parse(b'{"a":{%b}}' % few).problems == [f'duplicate field "a.k{at}"' for at in range(100)]
    problems = parse(b'{"%b":{%b}}' % (b"k" * 50_000, few)).problems
    assert len(problems) == 6
    assert problems[0].endswith('k.k0"')


def test_many_duplicates_of_a_large_object_cost_as_much_as_the_text_is_long() -> None:
    """If each copied the object, this would take an hour."""
    large = b",".join(b'"k%d":1' % at for at in range(100_000))
    value = parse(b'{"a":{%b}%b,"a":{"k0":2}}' % (large, b',"a":{}' * 200_000)).value
    assert len(value["a"]) == 100_000
    assert value["a"]["k0"] == 2


@given(st.binary() | st.text(alphabet='{}[]:,"\\u0123aetrufalsn .-+eE').map(str.encode))
def test_any_bytes_are_json_or_refused(body: bytes) -> None:
    try:
        value = parse(body).value
    except Malformed:
        return
    orjson.dumps(value)


@given(values)
def test_the_syntax_of_json_is_right(value: Any) -> None:
    check_syntax(json.dumps(value).encode())
