"""What can be asked, and what is said of what cannot."""

from __future__ import annotations

from typing import Any

import pytest

from farflung.controllers.status_summarizer.collectors import (
    LONGEST_ERROR,
    MAX_EXPRESSION,
    InvalidQueryError,
    parse_query,
)


def one(text: Any, name: Any = "a") -> dict[str, Any]:
    return {"select": [{"name": name, "def": text}]}


def combined(kind: Any, subject: Any = None) -> dict[str, Any]:
    return {"combinedFields": [{"name": "a", "type": kind, **({} if subject is None else {"subject": subject})}]}


def errors_of(spec: Any) -> list[str]:
    with pytest.raises(InvalidQueryError) as raised:
        parse_query(spec)
    return raised.value.errors


@pytest.mark.parametrize(
    "spec",
    [
        one("1"),
        one("returned"),
        one("returned.?status.?phase"),
        one("obj.metadata.labels['app.kubernetes.io/name'] + '-' + inventory.name"),
        one("returned.status.conditions.filter(c, c.status == 'False').map(c, c.type)"),
        one("{'ready': returned.status.readyReplicas, 'of': obj.spec.replicas}"),
        one("propagation.lastReturnedUpdateTimestamp < timestamp('2026-01-01T00:00:00Z')"),
        {**one("1"), "filter": "has(returned.status)"},
        {**one("1"), "filter": "returned.status.healthy"},
        {**one("1"), "filter": "returned.?status.?healthy"},
        {**one("1"), "filter": "", "groupBy": [], "combinedFields": [], "limit": 1000},
        {**one("1"), "filter": None, "groupBy": None, "combinedFields": None, "limit": None},
        combined("COUNT"),
        combined("COUNT", ""),
        combined("SUM", "returned.status.replicas"),
        combined("AVG", "1u"),
        combined("MIN", "'a'"),
        combined("MAX", "propagation.lastReturnedUpdateTimestamp"),
        {**combined("COUNT"), "groupBy": [{"name": "b", "def": "returned.status.phase"}]},
    ],
)
def test_what_can_be_asked_is_understood(spec: dict[str, Any]) -> None:
    assert parse_query(spec) == parse_query(spec)


NO_COLUMN = "spec: must have select or combinedFields"
NO_NAME = "spec.select[0].name: must be a string that is not empty"
NO_DEF = "spec.select[0].def: must be an expression"
NO_LIMIT = "spec.limit: must be a whole number from 1 to 1000"
NO_TYPE = "spec.combinedFields[0].type: must be one of COUNT, SUM, AVG, MIN, MAX"
SELECTED = "spec.select[0].def: must evaluate to a JSON value, not "
COUNTED = "spec.combinedFields[0].subject: must be empty for COUNT, which counts copies; use a filter"
SUMMED = "spec.combinedFields[0].subject: must evaluate to a number, not "
ORDERED = "spec.combinedFields[0].subject: must evaluate to a number, a string, a timestamp or a duration, not "


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, [NO_COLUMN]),
        ({"filter": "true"}, [NO_COLUMN]),
        ({"groupBy": [{"name": "a", "def": "1"}]}, [NO_COLUMN, "spec.groupBy: needs combinedFields"]),
        ({**one("1"), "groupBy": [{"name": "b", "def": "1"}]}, ["spec.groupBy: needs combinedFields"]),
        (
            {**one("1", "b"), **combined("COUNT")},
            ["spec: select and combinedFields exclude each other"],
        ),
        ({"select": {"name": "a"}}, ["spec.select: must be a list"]),
        ({"select": "a"}, ["spec.select: must be a list"]),
        ({"select": [1]}, ["spec.select[0]: must be an object"]),
        ({"select": [{}]}, [NO_NAME, NO_DEF]),
        (one(1), [NO_DEF]),
        (one(""), [NO_DEF]),
        (one("1", ""), [NO_NAME]),
        (one("1", "a" * 254), ["spec.select[0].name: may not be more than 253 characters long"]),
        ({**one("1"), "filter": 1}, ["spec.filter: must be an expression"]),
        ({**one("1"), "filter": "'true'"}, ["spec.filter: must evaluate to bool, not string"]),
        ({**one("1"), "limit": 0}, [NO_LIMIT]),
        ({**one("1"), "limit": 1001}, [NO_LIMIT]),
        ({**one("1"), "limit": True}, [NO_LIMIT]),
        ({**one("1"), "limit": "3"}, [NO_LIMIT]),
        (one("b'abc'"), [SELECTED + "bytes"]),
        (one("type(1)"), [SELECTED + "type(int)"]),
        (one("quantity('1')"), [SELECTED + "kubernetes.Quantity"]),
        (combined("MEDIAN", "1"), [NO_TYPE]),
        (combined(["SUM"], "1"), [NO_TYPE]),
        (combined("COUNT", "1"), [COUNTED]),
        (combined("SUM"), ["spec.combinedFields[0].subject: must be an expression"]),
        (combined("SUM", "'1'"), [SUMMED + "string"]),
        (combined("AVG", "optional.of('1')"), [SUMMED + "optional_type(string)"]),
        (
            combined("MAX", "[1]"),
            [ORDERED + "list(int)"],
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(spec: dict[str, Any], expected: list[str]) -> None:
    assert errors_of(spec) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("unknown.x", "undeclared reference to 'unknown'"),
        ("1 +", "Syntax error"),
        ("1 + 'a'", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("nothing(1)", "undeclared reference to 'nothing'"),
        ("[1, 'a']", "expected type 'int' but found 'string'"),
        ("'a'.matches('(')", "invalid matches argument"),
        ("timestamp('never')", "invalid timestamp argument"),
        ("1 +" * 300 + "1", "max recursion depth exceeded"),
        ("(" * 150 + "1" + ")" * 150, "expression recursion limit exceeded"),
    ],
)
def test_a_text_that_is_no_expression_is_refused_with_the_words_of_kubernetes(text: str, complaint: str) -> None:
    (error,) = errors_of(one(text))
    assert error.startswith("spec.select[0].def: compilation failed: ERROR: <input>:")
    assert complaint in error


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_fields() -> None:
    spec = {
        "filter": "nobody",
        "groupBy": [{"name": "a", "def": "1"}, {"name": "b", "def": "nothing"}],
        "combinedFields": [{"name": "a", "type": "COUNT"}, {"name": "c", "type": "SUM"}],
        "limit": -1,
    }
    assert [error.split(":")[0] for error in errors_of(spec)] == [
        "spec.filter",
        "spec.groupBy[1].def",
        "spec.combinedFields[0].name",
        "spec.combinedFields[1].subject",
        "spec.limit",
    ]
    assert 'spec.combinedFields[0].name: duplicate column "a"' in errors_of(spec)


def test_expressions_are_limited_one_by_one_and_together() -> None:
    assert errors_of(one("'" + "a" * MAX_EXPRESSION + "'")) == [
        f"spec.select[0].def: may not be more than {MAX_EXPRESSION} characters long"
    ]
    long = "'" + "a" * (MAX_EXPRESSION - 2) + "'"
    full = {**one(long), "filter": "true" + " " * (MAX_EXPRESSION - 4)}
    parse_query(full)
    assert errors_of({**full, "select": [*full["select"], {"name": "b", "def": "1"}]}) == [
        "spec: all expressions together may not be more than 20480 characters long"
    ]
    columns = [{"name": str(at), "def": "1"} for at in range(17)]
    parse_query({"select": columns[:16]})
    assert errors_of({"select": columns}) == ["spec: may not have more than 16 columns"]
    assert errors_of({"groupBy": columns[:16], **combined("COUNT")}) == ["spec: may not have more than 16 columns"]


def test_the_message_about_a_mistake_is_limited() -> None:
    (error,) = errors_of(one("x + " * 200 + "x"))
    assert len(error) == LONGEST_ERROR


def test_questions_are_equal_if_they_say_the_same() -> None:
    question = parse_query({**one("1"), "filter": "true"})
    assert question == parse_query({**one("1"), "filter": "true", "limit": 20, "groupBy": []})
    assert hash(question) == hash(parse_query({**one("1"), "filter": "true"}))
    others: list[dict[str, Any]] = [one("1"), {**one("2"), "filter": "true"}, {**one("1", "b"), "filter": "true"}]
    others += [{**one("1"), "filter": "false"}, {**one("1"), "filter": "true", "limit": 21}]
    assert all(parse_query(other) != question for other in others)
    assert parse_query(combined("MIN", "1")) != parse_query(combined("MAX", "1"))
