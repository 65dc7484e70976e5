from __future__ import annotations

import datetime

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from farflung.lib import yaml_loader
from farflung.lib.yaml_loader import DEEPEST, load

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(VALUES)
def test_what_pyyaml_writes_is_read_as_its_own_loader_reads_it(value: object) -> None:
    text = yaml.safe_dump(value)
    assert load(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: 1\na: 2\n", {"a": 2}),
        ("n: n\n", {"n": "n"}),
        ("on: yes\n", {True: True}),
        ("2024-01-02", datetime.date(2024, 1, 2)),
        ("one: &one {a: 1}\ntwo: {<<: *one, b: 2}\n", {"one": {"a": 1}, "two": {"a": 1, "b": 2}}),
        ("ä: ö\n".encode(), {"ä": "ö"}),
    ],
)
def test_values_are_those_of_yaml_1_1(text: str | bytes, value: object) -> None:
    assert load(text) == value


@pytest.mark.parametrize(
    "text",
    ["{", "a: b: c", "a: 1\n---\nb: 2\n", "!!python/object:os.system {}", "2024-13-45", b"\xff\xfe\xff", "\0"],
)
def test_what_is_not_one_safe_document_is_an_error_of_yaml(text: str | bytes) -> None:
    with pytest.raises(yaml.YAMLError):
        load(text)


@pytest.mark.parametrize("text", ["!!bool maybe", "!!int ''", "!!float ''", "!!float x", "!!timestamp yesterday"])
def test_a_text_that_is_not_what_its_tag_says_is_an_error_of_yaml(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load(text)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_nesting_is_bounded(opening: str) -> None:
    """The loader in C crashes the process where Python's would raise RecursionError."""
    with pytest.raises(yaml.YAMLError, match="nested"):
        load(opening * 200_000)
    assert load("[" * DEEPEST + "]" * DEEPEST)


def test_libyaml_is_used() -> None:
    assert yaml_loader.LOADER is yaml.CSafeLoader
