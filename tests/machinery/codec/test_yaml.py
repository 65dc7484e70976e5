from __future__ import annotations

from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery.codec import json
from farflung.machinery.codec.yaml import parse
from farflung.machinery.errors import Malformed


def read(text: str) -> Any:
    return parse(text.encode()).value


def why(text: str) -> str:
    with pytest.raises(Malformed) as refused:
        parse(text.encode())
    return refused.value.why


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0x10", 16),
        ("010", 8),
        ("0o17", 15),
        ("-0b11", -3),
        ("+12", 12),
        ("1_000", 1000),
        ("08", 8),
        ("1e3", 1000),
        ("1.0", 1),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ("1e400", "1e400"),
        ("yes", True),
        ("Off", False),
        ("y", True),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ('"yes"', "yes"),
        ("!!str 1", "1"),
        ("!!float 2", 2),
        ("!!binary aGk=", "hi"),
        ("!mine 1", "1"),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", float(2**64)),
        pytest.param("9" * 308, float(10**308), id="a number of 308 digits"),
        pytest.param("9" * 309, "9" * 309, id="a number of 309 digits"),
        pytest.param("-" + "9" * 399, "-" + "9" * 399, id="a number of 399 digits"),
        pytest.param("0x" + "f" * 300, "0x" + "f" * 300, id="a number of 300 hexadecimal digits"),
        ("|\n  a\n  b", "a\nb\n"),
    ],
)
def test_scalars_mean_what_they_mean_to_kubernetes(text: str, expected: Any) -> None:
    value = read(f"a: {text}\n")["a"]
    assert value == expected
    assert type(value) is type(expected)


def test_keys_become_strings() -> None:
    assert read("1: a\n1.5: b\nn: c\n0x10: d\n") == {"1": "a", "1.5": "b", "false": "c", "16": "d"}


def test_an_empty_body_is_null() -> None:
    assert read("") is None
    assert read("# nothing\n") is None


def test_keys_that_are_there_twice_are_reported_with_their_lines_and_the_last_wins() -> None:
    parsed = parse(b"data:\n  n: a\n  n: b\n  x: 1\nfoo:\n  x: 1\n  x: 2\n")
    assert parsed.problems == ["line 3: key false already set in map", 'line 7: key "x" already set in map']
    assert parsed.value == {"data": {"false": "b", "x": 1}, "foo": {"x": 2}}
    assert parse(b'{"a": 1, "a": 2}').problems == ['line 1: key "a" already set in map']


def test_aliases_are_copies_and_merge_keys_give_way_to_what_is_there() -> None:
    value = read("a: &x {b: 1, c: [2]}\nd: *x\ne: {b: 5, <<: *x}\nf: {<<: [{g: 1}, {g: 2, h: 3}]}\n")
    assert value == {
        "a": {"b": 1, "c": [2]},
        "d": {"b": 1, "c": [2]},
        "e": {"b": 5, "c": [2]},
        "f": {"g": 1, "h": 3},
    }
    assert value["d"]["c"] is not value["a"]["c"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("a:\n\t- b", "yaml: line 2: found character that cannot start any token"),
        ("a: *q", "yaml: unknown anchor 'q' referenced"),
        ("a: &a [*a]", "yaml: anchor 'a' value contains itself"),
        ("a: !!int abc", "yaml: cannot decode !!str `abc` as a !!int"),
        ("a: !!binary '***'", "yaml: !!binary value contains invalid base64 data"),
        ("a: .inf", "json: unsupported value: +Inf"),
        ("<<: 1", "yaml: map merge requires map or sequence of maps as the value"),
        ("? [a]\n: b", "yaml: line 1: invalid map key"),
        ("~: b", "yaml: line 1: invalid map key"),
        ("x: &x {}\n*x : b", "yaml: line 2: invalid map key"),
        ("a: 1\n---\nb: 2", "yaml: there must be one document only"),
    ],
)
def test_what_cannot_be_json_is_refused(text: str, expected: str) -> None:
    assert why(text) == expected


def bomb() -> str:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for above, name in zip("abcdefghijk", "bcdefghijkl", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{above}'] * 10)}]")
    return "\n".join(lines)


def test_aliases_do_not_explode() -> None:
    assert why(bomb()) == "yaml: document contains excessive aliasing"


@pytest.mark.parametrize("alias", ["*a", "{*a : 1}", "[{b: *a}]"])
def test_aliases_of_a_long_text_do_not_explode(alias: str) -> None:
    text = f"a: &a {'x' * 10_000}\nb: [{f'{alias}, ' * 1_000}]"
    assert why(text) == "yaml: document contains excessive aliasing"
    assert len(read(text.replace(f"{alias}, " * 999, ""))["a"]) == 10_000


def test_many_directives_are_refused() -> None:
    """The parser in C compares each with all others, which takes a minute for the largest body."""
    many = "".join(f"%TAG !a{at}! tag:b\n" for at in range(50_000))
    for text in (f"{many}---\na: 1", f"a: 1\n...\n{many}---\nb: 1"):
        assert why(text) == "yaml: document has more than 100 %TAG directives"
    with pytest.raises(Malformed, match="more than 100 %TAG"):
        parse(f"{many}---\na: 1".encode("utf-16"))
    assert read("%TAG !a! tag:b\n---\na: |\n" + "  %TAG !a! b\n" * 200) == {"a": "%TAG !a! b\n" * 200}


@pytest.mark.parametrize("opening", ["[", "- ", "{a: ", "a: &a [", "? - "])
def test_what_is_too_deep_is_refused(opening: str) -> None:
    with pytest.raises(Malformed):
        parse((opening * 100_000).encode())


def test_many_merges_are_one_mapping() -> None:
    value = read("\n".join(f"<<: {{k{index}: 1}}" for index in range(20_000)))
    assert len(value) == 20_000


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abyn01~<.: ", max_size=4), inner, max_size=4),
    max_leaves=15,
)


@given(values)
def test_what_is_written_as_yaml_or_as_json_is_read_alike(value: Any) -> None:
    body = orjson.dumps(value)
    assert parse(body).value == json.parse(body).value == value
    assert parse(b"- " + body).value == [value]


@given(values)
def test_yaml_written_by_others_is_read_back(value: Any) -> None:
    text = yaml.safe_dump(value, default_style='"', allow_unicode=True)
    assert parse(text.encode()).value == value


@given(st.binary() | st.text("ab:-[]{}&*!?|>'\" \n\t#,%<1.e~", max_size=40).map(str.encode))
def test_any_bytes_are_yaml_or_refused(body: bytes) -> None:
    try:
        value = parse(body).value
    except Malformed:
        return
    orjson.dumps(value)
