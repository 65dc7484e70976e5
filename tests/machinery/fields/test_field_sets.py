"""Sets of paths against a twin that is a plain set of tuples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery.errors import ApiError
from farflung.machinery.fields import sets

Path = tuple[str, ...]

ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', "v:1"])
PATHS = st.sets(st.lists(ELEMENTS, min_size=1, max_size=4).map(tuple), max_size=12)


def tree(paths: set[Path]) -> sets.Fields:
    result: sets.Fields = {}
    for first in {path[0] for path in paths}:
        below = tree({path[1:] for path in paths if path[0] == first and len(path) > 1})
        if below and (first,) in paths:
            below["."] = {}
        result[first] = below
    return result


def plain(fields: sets.Fields) -> set[Path]:
    result: set[Path] = set()
    for key, node in fields.items():
        if not node or "." in node:
            result.add((key,))
        result |= {(key, *rest) for rest in plain({name: below for name, below in node.items() if name != "."})}
    return result


@given(PATHS)
def test_the_twin_says_the_same_as_the_tree(paths: set[Path]) -> None:
    assert plain(tree(paths)) == paths


@given(PATHS, PATHS)
def test_operations_agree_with_a_set_of_paths(first: set[Path], second: set[Path]) -> None:
    a, b = tree(first), tree(second)
    assert sets.union(a, b) == tree(first | second)
    assert sets.difference(a, b) == tree(first - second)
    assert sets.intersection(a, b) == tree(first & second)
    assert (a, b) == (tree(first), tree(second)), "an operand was changed"


@given(PATHS, PATHS)
def test_taking_trees_takes_everything_below_too(first: set[Path], second: set[Path]) -> None:
    left = {path for path in first if not any(path[: len(top)] == top for top in second)}
    assert sets.without_trees(tree(first), tree(second)) == tree(left)


@given(PATHS, PATHS)
def test_an_operation_that_changes_nothing_returns_its_operand(first: set[Path], second: set[Path]) -> None:
    a, b = tree(first), tree(second)
    assert (sets.difference(a, b) is a) == (first.isdisjoint(second))
    assert (sets.union(a, b) is a) == (second <= first)


@given(PATHS)
def test_what_was_written_is_read(paths: set[Path]) -> None:
    assert sets.parse(tree(paths)) == tree(paths)


def test_keys_are_read_in_normal_form() -> None:
    sent: sets.Fields = {"f:ports": {'k:{"protocol": "TCP", "port": 80}': {".": {}}, "v: 1": {}}}
    assert sets.parse(sent) == {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {}, "v:1": {}}}


def test_keys_that_are_the_same_in_normal_form_are_joined() -> None:
    sent: sets.Fields = {'k:{"a":1,"b":2}': {"f:x": {}}, 'k:{"b":2,"a":1}': {}}
    assert sets.parse(sent) == {'k:{"a":1,"b":2}': {".": {}, "f:x": {}}}


def test_elements_of_an_unknown_kind_are_passed_over() -> None:
    assert sets.parse({"f:a": {}, "z:future": {}}) == {"f:a": {}}


def test_no_fields_are_the_empty_set() -> None:
    assert sets.parse(None) == {}


@pytest.mark.parametrize(
    "garbage",
    [
        "text",
        ["f:a"],
        {"f:a": 1},
        {"f:a": {"f:b": None}},
        {"nonsense": {}},
        {"": {}},
        {"k:": {}},
        {"k:[]": {}},
        {'k:{"a":{}}': {}},
        {"v:": {}},
        {"v:[1]": {}},
        {"i:x": {}},
        {"i:true": {}},
    ],
)
def test_garbage_is_refused(garbage: object) -> None:
    with pytest.raises(ApiError):
        sets.parse(garbage)


def test_endless_nesting_is_refused() -> None:
    deep: sets.Fields = {}
    for _ in range(5000):
        deep = {"f:a": deep}
    with pytest.raises(ApiError, match="deeply"):
        sets.parse(deep)


def test_paths_read_as_people_write_them_level_by_level() -> None:
    fields = {
        "f:spec": {
            "f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:name": {}}},
            "f:replicas": {},
        },
        "f:finalizers": {'v:"a/b"': {}, "i:3": {}},
        "f:data": {".": {}, "f:x.y": {}},
    }
    assert list(sets.paths(fields)) == [
        ".data",
        ".data.x.y",
        '.finalizers[="a/b"]',
        ".finalizers[3]",
        ".spec.replicas",
        '.spec.ports[port=80,protocol="TCP"]',
        '.spec.ports[port=80,protocol="TCP"].name',
    ]


def test_one_path_of_names() -> None:
    replicas = sets.path("spec", "replicas")
    assert replicas == {"f:spec": {"f:replicas": {}}}
    assert sets.has({"f:spec": {"f:replicas": {}, "f:x": {}}}, replicas)
    assert not sets.has({"f:spec": {}}, replicas)
    assert not sets.has({"f:spec": {"f:replicas": {"f:deeper": {}}}}, replicas)
