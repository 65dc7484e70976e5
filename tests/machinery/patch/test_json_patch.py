import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery.errors import ApiError
from farflung.machinery.patch import json as json_patch

DOCUMENT = {"data": {"x": "1", "y": "2"}, "list": ["a", "b", "c"], "a/b": {"m~n": 1}}


def patched(*operations: dict[str, Any]) -> Any:
    return json_patch.apply(copy.deepcopy(DOCUMENT), list(operations))


@pytest.mark.parametrize(
    ("operation", "path", "result"),
    [
        ({"op": "add", "path": "/data/z", "value": "3"}, "data", {"x": "1", "y": "2", "z": "3"}),
        ({"op": "replace", "path": "/data/x", "value": "9"}, "data", {"x": "9", "y": "2"}),
        ({"op": "replace", "path": "/data/new", "value": "9"}, "data", {"x": "1", "y": "2", "new": "9"}),
        ({"op": "remove", "path": "/data/x"}, "data", {"y": "2"}),
        ({"op": "move", "from": "/data/x", "path": "/data/z"}, "data", {"y": "2", "z": "1"}),
        ({"op": "copy", "from": "/data/x", "path": "/data/z"}, "data", {"x": "1", "y": "2", "z": "1"}),
        ({"op": "copy", "from": "/data/no", "path": "/data/z"}, "data", {"x": "1", "y": "2", "z": None}),
        ({"op": "add", "path": "/list/-", "value": "d"}, "list", ["a", "b", "c", "d"]),
        ({"op": "add", "path": "/list/1", "value": "d"}, "list", ["a", "d", "b", "c"]),
        ({"op": "remove", "path": "/list/-1"}, "list", ["a", "b"]),
        ({"op": "add", "path": "/a~1b/m~0n", "value": 2}, "a/b", {"m~n": 2}),
        ({"op": "test", "path": "/data/nope", "value": None}, "data", {"x": "1", "y": "2"}),
    ],
)
def test_an_operation_does_what_kubernetes_does(operation: dict[str, Any], path: str, result: Any) -> None:
    assert patched(operation)[path] == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/x", "value": "no"},
        {"op": "remove", "path": "/data/never"},
        {"op": "move", "from": "/data/never", "path": "/data/c"},
        {"op": "add", "path": "/nope/a", "value": 1},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "foo", "path": "/data/x"},
        {"path": "/data/x"},
        {"op": "add", "value": "9"},
        {"op": "remove", "path": ""},
        {"op": "add", "path": 5},
        {"op": "add", "path": "/data/x/deeper/still", "value": 1},
        "no operation",
    ],
)
def test_an_operation_that_cannot_be_applied_is_a_422(operation: Any) -> None:
    with pytest.raises(ApiError) as refused:
        patched(operation)
    assert refused.value.code == 422


def test_a_patch_that_is_no_list_is_a_400() -> None:
    with pytest.raises(ApiError) as refused:
        json_patch.check({"op": "add"})
    assert refused.value.code == 400


def test_a_patch_has_at_most_ten_thousand_operations() -> None:
    json_patch.check([{}] * 10_000)
    with pytest.raises(ApiError) as refused:
        json_patch.check([{}] * 10_001)
    assert refused.value.code == 413


def test_unknown_fields_of_an_operation_are_named() -> None:
    assert json_patch.check([{"op": "add", "foo": 1}]) == ['json patch unknown field "[0].foo"']


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c/d"]), inner, max_size=3),
    max_leaves=8,
)


@given(documents, documents)
def test_the_patch_between_two_documents_leads_from_one_to_the_other(before: Any, after: Any) -> None:
    operations = jsonpatch.make_patch(before, after).patch
    assert json_patch.apply(copy.deepcopy(before), operations) == after


@given(
    documents,
    st.lists(
        st.fixed_dictionaries(
            {"op": st.sampled_from(["add", "remove", "move", "copy", "test"]), "path": st.text("/ab01-~", max_size=6)},
            optional={"from": st.text("/ab0", max_size=4), "value": documents},
        ),
        max_size=4,
    ),
)
def test_any_operations_are_applied_or_refused(document: Any, operations: list[Any]) -> None:
    try:
        json_patch.apply(copy.deepcopy(document), operations)
    except ApiError as refused:
        assert refused.code == 422
