"""Fields that are not what they should be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from farflung.inspect import fields

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
NONSENSE: list[Any] = [None, True, -1, 1.5, "x", [], [1], {}, {"a": 1}, [[]]]


@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_nonsense_is_read_as_nothing(value: Any) -> None:
    for obj in (value, {"status": value}, {"status": {"conditions": value}}, {"metadata": {"annotations": value}}):
        assert fields.condition(obj, "Ready") == {}
        assert fields.number(obj, "status", "objects", "synced") == 0
        assert fields.moment(obj, "status") is None
        assert fields.cluster_of(obj) == ""
        assert fields.name_of(obj) == ""


def test_what_is_there_is_found() -> None:
    obj = {
        "metadata": {"name": "n", "annotations": {"kcp.io/cluster": "c", "odd": 3}},
        "status": {"objects": {"synced": 7}, "conditions": [None, {"type": "Ready", "status": "True"}]},
    }
    assert (fields.name_of(obj), fields.cluster_of(obj)) == ("n", "c")
    assert fields.texts(obj, "metadata", "annotations") == {"kcp.io/cluster": "c"}
    assert fields.condition(obj, "Ready") == {"type": "Ready", "status": "True"}
    assert fields.number(obj, "status", "objects", "synced") == 7


def test_words_of_others_do_no_harm_to_a_terminal() -> None:
    assert fields.line("a\x1b[31mred\r\nline\u2028\tb") == "a [31mred line b"
    assert fields.line("x" * 100_000, 10) == f"{'x' * 9}…"
    assert fields.line("") == ""


def test_an_age_is_never_negative() -> None:
    assert fields.ago(NOW - timedelta(minutes=14), NOW) == "14m"
    assert fields.ago(NOW + timedelta(days=400), NOW) == "0s"
    assert fields.ago(None, NOW) == ""
