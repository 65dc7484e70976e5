"""Kubernetes' JSONPath."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery import jsonpath
from farflung.machinery.jsonpath import PathError

OBJECT: dict[str, Any] = {
    "metadata": {"name": "x", "labels": {"a.b/c": "dotted", "plain": "p"}},
    "spec": {"n": [1, 2, 3], "parts": [{"name": "left", "size": 1}, {"name": "right", "size": 2}, {"size": 3}]},
    "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}], "ok": True},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".metadata.name", ["x"]),
        ("metadata", None),
        ("$.metadata.name", ["x"]),
        ("@.metadata.name", ["x"]),
        (".nothing.here", []),
        (".metadata.name.further", []),
        (r".metadata.labels.a\.b/c", ["dotted"]),
        (r".metadata.labels['a\.b/c']", ["dotted"]),
        (".metadata.labels['plain']", ["p"]),
        ("['metadata']['name']", ["x"]),
        (".metadata.labels.*", ["dotted", "p"]),
        (".spec.n[0]", [1]),
        (".spec.n[-1]", [3]),
        (".spec.n[]", [1]),
        (".spec.n[*]", [1, 2, 3]),
        (".spec.n[1:]", [2, 3]),
        (".spec.n[:2]", [1, 2]),
        (".spec.n[-2:]", [2, 3]),
        (".spec.n[::2]", [1, 3]),
        (".spec.n[1:1]", []),
        (".spec.n[0,2]", [1, 3]),
        (".spec.n[0, -1]", [1, 3]),
        (".spec.parts[*].name", ["left", "right"]),
        (".spec.parts[*]['name','size']", ["left", "right", 1, 2, 3]),
        ("..name", ["x", "left", "right"]),
        (".spec..size", [1, 2, 3]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Ready')].status", ["True"]),
        ('.status.conditions[?(@.type!="Ready")].status', ["False"]),
        (".spec.parts[?(@.size>1)].name", ["right"]),
        (".spec.parts[?(@.size<=2)].name", ["left", "right"]),
        (".spec.parts[?(@.name)].size", [1, 2]),
        ('.spec.parts[?(@.name==")")].size', []),
        (".status.ok", [True]),
        ("", [OBJECT]),
    ],
)
def test_a_path_finds_values_in_their_order(path: str, found: list[Any] | None) -> None:
    if found is None:
        with pytest.raises(PathError, match="unrecognized identifier"):
            jsonpath.compile(path)
    else:
        assert jsonpath.compile(path).find(OBJECT) == found


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".spec[", "unterminated array"),
        (".spec[a]", "invalid array index a"),
        (".spec[1e]", "invalid array index 1e"),
        (f".spec[{'9' * 30}]", "is not a number"),
        ("....a", "invalid multiple recursive descent"),
        ("{.a}", "unrecognized character in action"),
        (".a\n", "unclosed action"),
        ("'a", "unterminated quoted string"),
        (r"'\q'", "unquote string"),
        (".a[?(@.b]", "unterminated filter"),
        (".a[?(@.b)", "unclosed array expect"),
        (".a[?(@.b=={)]", "unrecognized character"),
        ("1.2.3", "cannot parse number"),
        (".a" * 200, "too many steps"),
        (".a[" + "0," * 200 + "0]", "too many steps"),
    ],
)
def test_what_is_no_path_says_why(path: str, why: str) -> None:
    with pytest.raises(PathError, match=re.escape(why)):
        jsonpath.compile(path)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".spec.n[3]", "array index out of bounds: index 3, length 3"),
        (".spec.n[0:9]", "array index out of bounds: index 8, length 3"),
        (".spec.n[2:1]", "starting index 2 is greater than ending index 1"),
        (".spec.n[::0]", "step must be > 0"),
        (".metadata[0]", "not array or slice"),
        (".metadata[?(@.x)]", "cannot be filtered"),
        (".spec.parts[?(@.size==1.5)]", "incompatible types for comparison"),
        (".spec.parts[?(@.size=='1')]", "incompatible types for comparison"),
        (".spec.parts[?(@<1)]", "invalid type for comparison"),
        (".spec.parts[?(@.size=<1)]", "unrecognized filter operator =<"),
        (".spec.parts[?(@.*==1)]", "can only compare one element at a time"),
    ],
)
def test_what_cannot_be_followed_says_why(path: str, why: str) -> None:
    with pytest.raises(PathError, match=re.escape(why)):
        jsonpath.compile(path).find(OBJECT)


@pytest.mark.parametrize(
    "path", ["[*,*]" * 40, "..*" * 9 + "..a", "[*]" + "[?(@[*,*,*,*][*,*,*,*])]" * 30, "[?(@..x==@..x)]" * 50]
)
def test_the_evaluation_of_a_path_with_exponentially_many_results_ends(path: str) -> None:
    value: Any = 1
    for _ in range(30):
        value = [value, value, {"x": value}] if isinstance(value, int) else [value, 1]
    with suppress(PathError):
        assert isinstance(jsonpath.compile(path).find([value] * 50), list)


class Counted(str):
    """Counts the characters that are copied or searched."""

    read = 0

    def __getitem__(self, key: Any) -> str:
        found = super().__getitem__(key)
        self.read += len(found)
        return found

    def find(self, sub: str, *limits: Any) -> int:
        found = super().find(sub, *limits)
        self.read += (found if found >= 0 else len(self)) - limits[0]
        return found


@pytest.mark.parametrize("ending", ["", '"', '\n"'])
def test_a_string_of_many_escapes_is_read_once(ending: str) -> None:
    text = Counted('"' + '\\"' * 1_000 + ending)
    try:
        assert jsonpath.compile(text).find({}) == ['"' * 1_000]
    except PathError as refused:
        assert ending != '"'
        assert str(refused) == "unterminated quoted string"
    assert text.read < 10 * len(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (None, "<no value>"),
        (True, "true"),
        (7, "7"),
        (1.5, "1.5"),
        (2.0, "2"),
        (123456.0, "123456"),
        (1234567.0, "1.234567e+06"),
        (1e21, "1e+21"),
        (0.0001, "0.0001"),
        (-0.00001, "-1e-05"),
        ({"b": ["<"], "a": None}, '{"a":null,"b":["\\u003c"]}'),
    ],
)
def test_values_print_as_go_prints_them(value: Any, text: str) -> None:
    assert jsonpath.printed(value) == text


def test_paths_that_consist_of_names_only_are_recognized() -> None:
    assert jsonpath.member_names(".spec.a-b") == ("spec", "a-b")
    for path in ("spec", ".spec[0]", r".a\.b", ".a..b", ".*", ".a.*", ".", "", ".a b"):
        assert jsonpath.member_names(path) is None


# --- the same, naively ------------------------------------------------------------------------------

NAMES = ("a", "b", "c")
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", "y"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(NAMES), below, max_size=3),
    max_leaves=12,
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("name"), st.sampled_from(NAMES)),
        st.tuples(st.just("key"), st.sampled_from(NAMES)),
        st.tuples(st.just("index"), st.integers(-3, 3)),
        st.tuples(st.just("all"), st.none()),
        st.tuples(st.just("deep"), st.sampled_from(NAMES)),
        st.tuples(st.just("where"), st.tuples(st.sampled_from(NAMES), st.sampled_from(["x", "y"]))),
    ),
    max_size=4,
)


class Refused(Exception):
    pass


def written(kind: str, what: Any) -> str:
    return {
        "name": f".{what}",
        "key": f"['{what}']",
        "index": f"[{what}]",
        "all": "[*]",
        "deep": f"..{what}",
        "where": f'[?(@.{what[0]}=="{what[1]}")]' if kind == "where" else "",
    }[kind]


def naive(kind: str, what: Any, value: Any) -> list[Any]:
    if kind in ("name", "key"):
        return [value[what]] if isinstance(value, dict) and what in value else []
    if kind == "deep":
        below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        return naive("name", what, value) + [found for one in below for found in naive("deep", what, one)]
    if value is None and kind != "where":
        return []
    if not isinstance(value, list):
        raise Refused
    if kind == "all":
        return list(value)
    if kind == "index":
        if not -len(value) <= what < len(value):
            raise Refused
        return [value[what]]
    return [one for one in value if passes(one, *what)]


def passes(item: Any, name: str, text: str) -> bool:
    if not isinstance(item, dict) or name not in item:
        return False
    if not isinstance(item[name], str):
        raise Refused
    return bool(item[name] == text)


@given(values, steps)
def test_a_path_finds_what_a_naive_walk_finds(value: Any, path: list[tuple[str, Any]]) -> None:
    expected: list[Any] | None = [value]
    try:
        for kind, what in path:
            expected = [found for one in expected or [] for found in naive(kind, what, one)]
    except Refused:
        expected = None
    compiled = jsonpath.compile("".join(written(kind, what) for kind, what in path))
    if expected is None:
        with pytest.raises(PathError):
            compiled.find(value)
    else:
        assert compiled.find(value) == expected


@given(st.text(alphabet=".[]?()@$*:,'\"\\ab01=<!-{} \n"), values)
def test_no_text_does_anything_but_find_or_refuse(text: str, value: Any) -> None:
    with suppress(PathError):
        assert isinstance(jsonpath.compile(text).find(value), list)
