from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery.patch import merge

values = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def test_objects_merge_and_null_deletes() -> None:
    document = {"data": {"x": "1", "y": "2"}, "list": [1, 2]}
    patch = {"data": {"x": "9", "y": None, "z": "3", "nope": None}, "list": [3]}
    assert merge.apply(document, patch) == {"data": {"x": "9", "z": "3"}, "list": [3]}


def test_nulls_inside_what_is_new_are_dropped() -> None:
    assert merge.apply({}, {"a": {"b": None, "c": {"d": None}}}) == {"a": {"c": {}}}


@given(values, values)
def test_merging_a_document_without_nulls_twice_changes_nothing(document: Any, patch: Any) -> None:
    once = merge.apply(document, patch)
    assert merge.apply(once, patch) == once


@given(st.dictionaries(st.sampled_from("abc"), values, max_size=3))
def test_deleting_every_key_leaves_nothing(document: dict[str, Any]) -> None:
    assert merge.apply(document, dict.fromkeys(document)) == {}
