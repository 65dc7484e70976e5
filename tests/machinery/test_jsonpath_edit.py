"""Paths that say where in a document something is put."""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from farflung.machinery.jsonpath_edit import (
    DEEPEST,
    MAX_BYTES,
    MAX_PATH,
    Allowance,
    Children,
    Descent,
    Indexes,
    Members,
    PathError,
    Range,
    Step,
    parse,
    steps_of,
)

DOCUMENT = {"abc": {"abc": {"def": 3, "ghi": 4}}, "def": ["a", "b", "c", "d", "e"]}
ROWS = [{"ab": 1}, {"ab": 2}, {"ab": 3}, {"ab": 4}, {"ab": 5}]


def assigned(text: str, document: Any, value: Any = 47) -> Any:
    return parse(text).assigned(document, value, Allowance()).document


# --- the grammar ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("$", []),
        ("$.a[1]", [Members(("a",)), Indexes((1,))]),
        ("$.a[1:4]", [Members(("a",)), Range(1, 4, 1)]),
        ("$.a[:4]", [Members(("a",)), Range(0, 4, 1)]),
        ("$[1:4:9]", [Range(1, 4, 9)]),
        ("$[1::9]", [Range(1, None, 9)]),
        ("$[:4:9]", [Range(0, 4, 9)]),
        ("$[::9]", [Range(0, None, 9)]),
        ("$[::]", [Range(0, None, 1)]),
        ("$[:]", [Range(0, None, 1)]),
        ("$[2:3]", [Indexes((2,))]),
        ("$.1", [Indexes((1,))]),
        ("$.0.1", [Indexes((0,)), Indexes((1,))]),
        ("$.*", [Children()]),
        ("$[*]", [Children()]),
        ("$..*", [Descent(), Children()]),
        ("$..a", [Descent(), Members(("a",))]),
        ("$...a", [Descent(), Members(("a",))]),
        ("$..0", [Descent(), Indexes((0,))]),
        ("$..[1,2]", [Descent(), Indexes((1, 2))]),
        ("$[1,2,1]", [Indexes((1, 2))]),
        ("$['a', \"b\",'a']", [Members(("a", "b"))]),
        ("$[ 'a' ]", [Members(("a",))]),
        ("$[ 1 : 7 ]", [Range(1, 7, 1)]),
        ("$.i_k.$x.Größe", [Members(("i_k",)), Members(("$x",)), Members(("Größe",))]),
        (
            "$.abc[*]..xyz['foo\\'bar']",
            [Members(("abc",)), Children(), Descent(), Members(("xyz",)), Members(("foo'bar",))],
        ),
    ],
)
def test_a_path_is_a_list_of_steps(text: str, steps: list[Step]) -> None:
    assert list(steps_of(text)) == steps


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (r"'ab\\cd'", "ab\\cd"),
        (r"'it\'s'", "it's"),
        (r'"\"\'"', "\"'"),
        (r"'\b\f\n\r\t\v\0'", "\b\f\n\r\t\v\0"),
        (r"'\x41\u0042\u{43}\u{1F600}'", "ABC😀"),
        (r"'\ud83d\ude00'", "😀"),
        (r"'\d\/'", "d/"),
        ("'a.b[0]/c-d \"'", 'a.b[0]/c-d "'),
        ("''", ""),
    ],
)
def test_strings_have_the_escapes_of_javascript(written: str, name: str) -> None:
    assert steps_of(f"$[{written}]") == (Members((name,)),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "at its end: a path begins with $"),
        ("a", "at character 1: a path begins with $"),
        ("$a", "at character 2: expected . or [ here"),
        ("$.a-b", "at character 4: expected . or [ here; names with other characters than letters, digits"),
        ("$.", "at its end: expected a name, a number or * here"),
        ("$.a.", "at its end: expected a name, a number or * here"),
        ("$.-1", "at character 3: expected a name, a number or * here"),
        ("$.0a", "at character 3: a name cannot begin with a digit, unless it is written ['like-this']"),
        ("$..", "at its end: expected a name, a number or * here"),
        ("$....a", "at character 4: one .. cannot follow another"),
        ("$[", "at its end: expected a string, a number that is not negative, : or"),
        ("$[]", "at character 3: expected a string"),
        ("$[a]", "at character 3: expected a string"),
        ("$[-1]", "at character 3: expected a string, a number that is not negative"),
        ("$[1:-1]", "at character 5: expected ] here"),
        ("$[1,2:3]", "at character 6: expected ] here"),
        ("$[1,'a']", "at character 5: expected a string, a number"),
        ("$['a',1]", "at character 7: expected a string here"),
        ("$['a'", "at its end: expected ] here"),
        ("$['xyz", "at character 3: this string does not end"),
        ("$['ab\\", "at character 3: this string does not end"),
        ("$['a\nb']", "at character 3: this string does not end"),
        (r"$['\u12']", "at character 3: this string has an escape that stands for no character"),
        (r"$['\u{110000}']", "at character 3: this string has an escape that stands for no character"),
        (r"$['\ud83d']", "at character 3: this string has an escape that stands for no character"),
        ("$[::0]", "at character 5: the step of a range cannot be 0"),
        ("$[?(@.a)]", "at character 3: expected a string"),
        (f"$[{'9' * 19}]", "at character 3: no list is that long"),
        (f"$[{'9' * 5000}]", "at character 3: no list is that long"),
        (f"$.{'a' * MAX_PATH}", "it has more than 8192 characters"),
        (f"${'.a' * 101}", "it has more than 100 steps"),
        (f"$[{','.join(map(str, range(101)))}]", "a list has more than 100 entries"),
    ],
)
def test_what_is_no_path_says_where_and_why(text: str, problem: str) -> None:
    with pytest.raises(PathError) as error:
        parse(text)
    assert problem in str(error.value)


@given(st.text(alphabet="$.[]'\",:*01ab \\u-", max_size=20))
def test_any_text_is_a_path_or_a_problem(text: str) -> None:
    try:
        parse(f"${text}").assigned(deepcopy(DOCUMENT), 1, Allowance())
    except PathError as error:
        assert str(error)


# --- what is put where ----------------------------------------------------------------------------


def after(**changes: Any) -> dict[str, Any]:
    return {**DOCUMENT, **changes}


@pytest.mark.parametrize(
    ("text", "document", "expected"),
    [
        ("$..def", DOCUMENT, {"abc": {"abc": {"def": 47, "ghi": 4}}, "def": 47}),
        ("$..abc", DOCUMENT, after(abc=47)),
        ("$.def[1]", DOCUMENT, after(**{"def": ["a", 47, "c", "d", "e"]})),
        ("$.def.1", DOCUMENT, after(**{"def": ["a", 47, "c", "d", "e"]})),
        ("$.def[2::2]", DOCUMENT, after(**{"def": ["a", "b", 47, "d", 47]})),
        ("$.def[1:3]", DOCUMENT, after(**{"def": ["a", 47, 47, "d", "e"]})),
        ("$.def[0,4,9]", DOCUMENT, after(**{"def": [47, "b", "c", "d", 47]})),
        ("$.def[*]", DOCUMENT, after(**{"def": [47] * 5})),
        ("$.*", DOCUMENT, {"abc": 47, "def": 47}),
        ("$..*", DOCUMENT, {"abc": 47, "def": 47}),
        ("$.abc.*.*", DOCUMENT, after(abc={"abc": {"def": 47, "ghi": 47}})),
        ("$..[0]", DOCUMENT, after(**{"def": [47, "b", "c", "d", "e"]})),
        ("$", DOCUMENT, 47),
        ("$[2::2].ab", ROWS, [{"ab": 1}, {"ab": 2}, {"ab": 47}, {"ab": 4}, {"ab": 47}]),
        ("$[2].xy", ROWS, [{"ab": 1}, {"ab": 2}, {"ab": 3, "xy": 47}, {"ab": 4}, {"ab": 5}]),
        ("$[2:3].xy", ROWS, [{"ab": 1}, {"ab": 2}, {"ab": 3, "xy": 47}, {"ab": 4}, {"ab": 5}]),
        ("$[2:4].xy", ROWS, ROWS),
        ("$[*].xy", ROWS, ROWS),
        ("$..xy", ROWS, ROWS),
        ("$[7].ab", ROWS, ROWS),
        ("$[999999999999999999].ab", ROWS, ROWS),
    ],
)
def test_a_value_is_put_where_a_path_leads(text: str, document: Any, expected: Any) -> None:
    before = deepcopy(document)
    assert assigned(text, document) == expected
    assert document == before


@pytest.mark.parametrize(
    ("text", "document", "expected"),
    [
        ("$.a", {}, {"a": 47}),
        ("$.a.b.c", {}, {"a": {"b": {"c": 47}}}),
        ("$.a.b.c", {"a": {"x": 1}}, {"a": {"x": 1, "b": {"c": 47}}}),
        ("$['a','b'].c", {"b": {"d": 1}}, {"b": {"d": 1, "c": 47}, "a": {"c": 47}}),
        ("$.a['b','c']", {}, {"a": {"b": 47, "c": 47}}),
        ("$.a.b", {"a": None}, {"a": {"b": 47}}),
        ("$.a.b", {"a": {"b": None}}, {"a": {"b": 47}}),
        ("$.a[0].b.c", {"a": [{}]}, {"a": [{"b": {"c": 47}}]}),
        ("$.a[0].b", {"a": [None]}, {"a": [{"b": 47}]}),
    ],
)
def test_a_definite_path_adds_what_is_missing(text: str, document: Any, expected: Any) -> None:
    assert assigned(text, document) == expected


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("$.a.b", {"a": 1}),
        ("$.a.b", {"a": "text"}),
        ("$.a.b", {"a": []}),
        ("$.a[0]", {"a": {"0": 1}}),
        ("$.a[0].b", {}),
        ("$.a[0].b", {"a": None}),
        ("$.a.*", {}),
        ("$.a..b", {}),
        ("$.*.b", {"a": {}}),
        ("$.*.b", {"a": None}),
        ("$.a[0]", {"a": []}),
    ],
)
def test_nothing_is_added_where_a_path_leads_nowhere(text: str, document: Any) -> None:
    found = parse(text).assigned(document, 47, Allowance())
    assert found.places == 0
    assert found.document is document


def test_it_tells_how_many_places_there_are() -> None:
    assert parse("$..def").assigned(DOCUMENT, 1, Allowance()).places == 2
    assert parse("$['a','b']['c','d']").assigned({}, 1, Allowance()).places == 4


def test_what_is_put_there_is_not_searched() -> None:
    assert assigned("$..def", {"def": 1}, {"def": {"def": 2}}) == {"def": {"def": {"def": 2}}}


def test_what_is_not_changed_is_the_same_object() -> None:
    document: Any = {"a": {"x": [1]}, "b": {"y": {"z": 1}, "w": {}}}
    found = assigned("$.b.y.z", document)
    assert found["a"] is document["a"]
    assert found["b"]["w"] is document["b"]["w"]


# --- a naive twin ---------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "c"])
DOCUMENTS = st.recursive(
    st.none() | st.integers(0, 3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.lists(KEYS, min_size=1, max_size=2, unique=True).map(lambda names: Members(tuple(names))),
    st.lists(st.integers(0, 4), min_size=1, max_size=2, unique=True).map(lambda some: Indexes(tuple(some))),
    st.builds(Range, st.integers(0, 3), st.none() | st.integers(0, 5), st.integers(1, 3)).filter(
        lambda one: one.end != one.start + 1
    ),
    st.just(Children()),
    st.just(Descent()),
)


def is_path(steps: list[Step]) -> bool:
    """Without `..` before another one, or at the end."""
    return not any(one == other == Descent() for one, other in pairwise([*steps, Descent()]))


def written(step: Step) -> str:
    match step:
        case Members(names):
            return f"[{','.join(map(repr, names))}]"
        case Indexes(indexes):
            return f"[{','.join(map(str, indexes))}]"
        case Range(start, end, stride):
            return f"[{start}:{'' if end is None else end}:{stride}]"
        case Children():
            return ".*"
        case Descent():
            return ".."


Place = tuple[str | int, ...]


def at(document: Any, place: Place) -> Any:
    for part in place:
        document = document[part]
    return document


def contents(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []


def everything(document: Any, place: Place) -> list[Place]:
    inside = [everything(document, (*place, part)) for part in contents(at(document, place))]
    return [place, *(one for some in inside for one in some)]


def following(document: Any, place: Place, step: Step) -> list[Place]:
    value = at(document, place)
    match step:
        case Descent():
            return everything(document, place)
        case Children():
            return [(*place, part) for part in contents(value)]
        case Members(names):
            return [(*place, name) for name in names if isinstance(value, dict) and name in value]
        case Indexes(indexes):
            return [(*place, one) for one in indexes if isinstance(value, list) and one < len(value)]
        case Range(start, end, stride):
            return [(*place, one) for one in range(len(value))[start:end:stride]] if isinstance(value, list) else []


def furnished(document: Any, place: Place, steps: list[Step]) -> None:
    """Make what a definite path can make, in place, with a mark at its end."""
    if not steps:
        return
    value, rest = at(document, place), steps[1:]
    if not all(isinstance(step, Members) for step in steps):
        if isinstance(steps[0], Members | Indexes):
            for one in following(document, place, steps[0]):
                furnished(document, one, rest)
        return
    if value is None and place:
        at(document, place[:-1])[place[-1]] = {}  # type: ignore[index]
        value = at(document, place)
    if isinstance(value, dict):
        for name in steps[0].names:  # type: ignore[union-attr]
            value.setdefault(name, None)
            furnished(document, (*place, name), rest)


def naively(document: Any, steps: list[Step], value: Any) -> Any:
    document = deepcopy(document)
    if document is not None:
        furnished(document, (), steps)
    elif steps and all(isinstance(step, Members) for step in steps):
        document = {}
        furnished(document, (), steps)
    places: list[Place] = [()]
    for step in steps:
        places = [one for place in places for one in following(document, place, step)]
    outermost = {one for one in places if not any(one[:length] in places for length in range(len(one)))}
    for place in outermost:
        if not place:
            return value
        at(document, place[:-1])[place[-1]] = value  # type: ignore[index]
    return document


@given(DOCUMENTS, st.lists(STEPS, max_size=4).filter(is_path))
@example({"a": None}, [Members(("a",)), Members(("b", "c"))])
@example({"a": {"a": {"b": 1}}}, [Descent(), Members(("a",)), Descent(), Members(("b",))])
def test_it_does_what_going_every_single_way_does(document: Any, steps: list[Step]) -> None:
    path = parse("$" + "".join(map(written, steps)))
    assert list(path.steps) == steps
    before = json.dumps(document)
    assert path.assigned(document, "new", Allowance()).document == naively(document, steps, "new")
    assert json.dumps(document) == before


# --- hostile paths and documents ------------------------------------------------------------------


def nested(levels: int, inside: Any = 1) -> Any:
    for _ in range(levels):
        inside = {"a": inside}
    return inside


def test_many_ways_to_the_same_place_are_one() -> None:
    document = nested(200)
    path = parse("$" + "..a" * 50)
    assert path.assigned(document, 0, Allowance()).places == 1
    assert parse("$" + "..a" * 49 + ".x").assigned(document, 0, Allowance()).places == 0


def test_a_list_of_names_cannot_multiply_without_end() -> None:
    with pytest.raises(PathError, match="it takes too long"):
        parse("$" + "['a','b']" * 90).assigned({}, 1, Allowance())


def test_a_document_cannot_become_too_large() -> None:
    document = {"a": [0] * 1000}
    text = "x" * 10_000
    with pytest.raises(PathError, match="the object would become larger than 3 MiB"):
        parse("$.a[*]").assigned(document, text, Allowance(), len(text))


def test_doubling_a_document_again_and_again_ends() -> None:
    allowance, document, path = Allowance(), {"a": [0, 0]}, parse("$..[0,1]")
    with pytest.raises(PathError):
        for _ in range(MAX_BYTES):
            document = path.assigned(document, [0, 0], allowance, 5).document


def test_a_document_cannot_become_too_deep() -> None:
    path = parse("$" + ".a" * 99)
    document = path.assigned({}, nested(100), Allowance()).document
    with pytest.raises(PathError, match=f"would have more than {DEEPEST} levels"):
        parse("$.a.b").assigned(document, nested(DEEPEST), Allowance())
    with pytest.raises(PathError, match=f"has more than {DEEPEST} levels"):
        parse("$..b").assigned(nested(DEEPEST + 1), 1, Allowance())
    assert parse("$..b").assigned(nested(DEEPEST), 1, Allowance()).places == 0


def test_work_adds_up_over_the_paths_for_one_document() -> None:
    allowance, document = Allowance(), {"a": [{}] * 10_000}
    with pytest.raises(PathError, match="it takes too long"):
        for _ in range(100):
            parse("$..b").assigned(document, 1, allowance)
