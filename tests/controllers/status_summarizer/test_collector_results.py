"""What is found: expressions one by one, then rows, groups, and what bounds them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hub_harness import LocalHub

from farflung.apis.edge.summaries import STATUS_SUMMARY
from farflung.controllers.status_summarizer.collector_results import LARGEST_RESULT, CollectorResult
from farflung.controllers.status_summarizer.collectors import parse_query
from farflung.controllers.status_summarizer.health import DestinationRow
from farflung.machinery.errors import Obj
from farflung.placement.types import CopyDestination

OVER = "operation cancelled: actual cost limit exceeded"
NO_TIME = 'parsing time "Running" as "2006-01-02T15:04:05Z07:00": cannot parse "Running" as "2006"'
NO_COUNT = "error parsing regexp: invalid repeat count: `{9}`"
GREATEST = 2**63 - 1
STATUS: Obj = {
    "phase": "Running",
    "ready": 3,
    "ratio": 0.25,
    "nothing": None,
    "healthy": True,
    "pattern": "(((((a*)*)*)*)*)*$",
    "long": "a" * 5000,
    "conditions": [{"type": "Available", "status": "True"}, {"type": "Progressing", "status": "False"}],
}


def row(
    name: str = "florin", status: Any = STATUS, *, cluster: str = "c1", at: str = "2026-11-16T09:00:00Z"
) -> DestinationRow:
    given = {
        "inventory": {"name": name, "location": f"l-{name}", "cluster": cluster, "labels": {"env": "prod"}},
        "obj": {"kind": "Deployment", "metadata": {"name": "commond"}, "spec": {"replicas": 4}},
        "returned": {} if status is None else {"status": status},
        "propagation": {"lastReturnedUpdateTimestamp": at, "stale": False},
    }
    return DestinationRow(CopyDestination(cluster, f"l-{name}", name), given)


def answer_of(spec: dict[str, Any], *rows: DestinationRow) -> Obj:
    answering = CollectorResult("asked", parse_query(spec))
    for each in rows:
        assert answering.put(f"{each.destination.cluster}-mb-{each.destination.target}", each) in (True, False)
    return answering.body()


def selecting(*texts: str, **rest: Any) -> dict[str, Any]:
    return {"select": [{"name": f"c{at}", "def": text} for at, text in enumerate(texts)], **rest}


def combining(*fields: tuple[str, ...], **rest: Any) -> dict[str, Any]:
    names = ("type", "subject")
    return {
        "combinedFields": [
            {"name": f"c{at}", **dict(zip(names, each, strict=False))} for at, each in enumerate(fields)
        ],
        **rest,
    }


def shown(answer: Obj) -> list[list[Any]]:
    """The rows, with nothing of a cell but its value."""
    return [
        [next((cell[key] for key in cell if key != "type"), None) for cell in row["columns"]] for row in answer["rows"]
    ]


def complaints(answer: Obj) -> list[tuple[str, str, str]]:
    return [(each["syncTargetName"], each["columnName"], each["message"]) for each in answer.get("errors", [])]


# --- expressions ----------------------------------------------------------------------------------


def string(value: str) -> Obj:
    return {"type": "String", "string": value}


def number(value: str) -> Obj:
    return {"type": "Number", "float": value}


def truth(value: bool) -> Obj:
    return {"type": "Bool", "bool": value}


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("returned.status.phase", string("Running")),
        ("returned.status.ready", number("3")),
        ("returned.status.ratio", number("0.25")),
        ("returned.status.nothing", {"type": "Null"}),
        ("returned.status.healthy", truth(True)),
        ("!returned.status.healthy", truth(False)),
        ("returned.status.conditions[1]", {"type": "Object", "object": {"status": "False", "type": "Progressing"}}),
        ("returned.status.conditions.map(c, c.type)", {"type": "Array", "array": ["Available", "Progressing"]}),
        ("returned.status.conditions.exists(c, c.type == 'Available' && c.status == 'True')", truth(True)),
        ("has(returned.status.absent)", truth(False)),
        ("has(returned.status.absent) ? returned.status.absent : 0", number("0")),
        ("returned.?status.?ready", number("3")),
        ("returned.?status.?absent", {"type": "Null"}),
        ("returned.status.?absent.orValue('none')", string("none")),
        ("obj.spec.replicas - returned.status.ready", number("1")),
        ("inventory.name + '/' + inventory.location + '/' + inventory.cluster", string("florin/l-florin/c1")),
        ("inventory.labels.env", string("prod")),
        ("propagation.stale", truth(False)),
        ("propagation.lastReturnedUpdateTimestamp", string("2026-11-16T09:00:00Z")),
        ("propagation.lastReturnedUpdateTimestamp < timestamp('2026-11-16T09:00:01Z')", truth(True)),
        ("timestamp(propagation.lastReturnedUpdateTimestamp).getFullYear()", number("2026")),
        ("propagation.lastReturnedUpdateTimestamp - timestamp('2026-11-16T08:00:00Z')", string("3600s")),
        ("1.0", number("1")),
        ("-0.0", number("0")),
        ("0.1 + 0.2", number("0.30000000000000004")),
        ("1e300", number("1e+300")),
        ("1e17", number("100000000000000000")),
        ("9223372036854775807", number("9223372036854775807")),
        ("18446744073709551615u", number("18446744073709551615")),
        ("[1e19, -1e19, 1e300]", {"type": "Array", "array": [1e19, -1e19, 1e300]}),
        ("[18446744073709551615u]", {"type": "Array", "array": [18446744073709551615]}),
        ("[1.0, 2.5, 3.0]", {"type": "Array", "array": [1, 2.5, 3]}),
        ("{'b': dyn([]), 'a': dyn({'c': null})}", {"type": "Object", "object": {"a": {"c": None}, "b": []}}),
        ("{2: 'b', 1: 'a'}", {"type": "Object", "object": {"1": "a", "2": "b"}}),
        ("[optional.of(1), optional.none()]", {"type": "Array", "array": [1, None]}),
        ("[timestamp('2026-01-01T00:00:00Z')]", {"type": "Array", "array": ["2026-01-01T00:00:00Z"]}),
        ("quantity('2Ki').asInteger()", number("2048")),
        ("'" + "é" * 1024 + "'", string("é" * 1024)),
        ("'aaaa'.matches(returned.status.pattern)", truth(True)),
    ],
)
def test_what_an_expression_finds_is_shown(text: str, cell: Obj) -> None:
    answer = answer_of(selecting(text), row())
    assert answer == {"name": "asked", "columnNames": ["c0"], "rows": [{"columns": [cell]}]}


_NESTED = "[0,1,2,3,4,5,6,7,8,9]"
_BOMB = "".join(f"{_NESTED}.all({name}, " for name in "abcdef") + "true" + ")" * 6
_SHARED = "cel.bind(a, ['x', 'x'], " + "".join(
    f"cel.bind({new}, [{old}, {old}], " for old, new in zip("abcdefghijklmnopqrst", "bcdefghijklmnopqrstu", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("returned.status.absent", "no such key: absent"),
        ("returned.status.phase.deeper", "no such key: deeper"),
        ("returned.status.conditions[2].type", "index out of bounds: 2"),
        ("returned.status.ready / (obj.spec.replicas - 4)", "division by zero"),
        ("returned.status.ready % 0", "modulus by zero"),
        ("returned.status.ready + returned.status.phase", "no such overload"),
        ("returned.status.ready * 9223372036854775807", "integer overflow"),
        ("returned.status.ready * 2.0", "no such overload"),
        ("int(returned.status.phase)", "type conversion error from 'string' to 'int'"),
        ("timestamp(returned.status.phase)", NO_TIME),
        ("returned.status.phase ? 1 : 2", "no such overload"),
        ("double('NaN')", "is no finite number"),
        ("returned.status.ratio / 0.0", "is no finite number"),
        ("[-1.0 / 0.0]", "is no finite number"),
        ("dyn(b'a')", "must be a JSON value, not bytes"),
        ("[dyn(b'a')]", "must be a JSON value, not bytes"),
        ("dyn(quantity('1'))", "must be a JSON value, not kubernetes.Quantity"),
        ("dyn(type(1))", "must be a JSON value, not type"),
        ("dyn(optional.of(optional.of(1)))", "must be a JSON value, not optional_type"),
        ("returned.status.long", "is a string of 5000 characters, of which 1024 are allowed"),
        ("[returned.status.long]", "has more than 4096 bytes as JSON"),
        ("{returned.status.long: 1}", "has more than 4096 bytes as JSON"),
        ("['" + "\\u0001" * 1000 + "']", "has more than 4096 bytes as JSON"),
        ("[" * 35 + "1" + "]" * 35, "has more than 32 levels"),
        (_SHARED + "u" + ")" * 21, "has more than 4096 bytes as JSON"),
        (_BOMB, OVER),
        ("returned.status.long.replace('a', returned.status.long)", OVER),
        ("'a'.matches(returned.status.phase + '(((a{9}){9}){9}){9}')", NO_COUNT),
        ("returned.status.long.matches('(a|aa)+b{1000}$') && returned.status.long.matches('([a-z]{1,900}){1}c')", OVER),
    ],
)
def test_the_error_of_an_expression_is_reported(text: str, message: str) -> None:
    answer = answer_of(selecting(text), row())
    error = {"cluster": "c1", "syncTargetName": "florin", "columnName": "c0", "message": message}
    assert answer == {"name": "asked", "columnNames": ["c0"], "rows": [], "errors": [error]}


def test_a_copy_without_a_status_has_an_empty_returned_and_perhaps_no_time() -> None:
    spec = selecting("has(returned.status)", "has(propagation.lastReturnedUpdateTimestamp)")
    assert shown(answer_of(spec, row(status=None, at=""))) == [[False, False]]


def test_one_expensive_column_does_not_touch_those_before_it_and_all_of_a_copy_share_a_budget() -> None:
    answer = answer_of(selecting("inventory.name", _BOMB, "returned.status.ready", "1"), row())
    assert complaints(answer) == [("florin", "c1", OVER), ("florin", "c2", OVER)]


def test_a_row_is_limited_as_a_whole() -> None:
    text = "returned.status.long.substring(0, 1000)"
    assert len(answer_of(selecting(*[text] * 8), row())["rows"]) == 1
    answer = answer_of(selecting(*[text] * 9), row())
    assert complaints(answer) == [("florin", "c8", "makes the row larger than 8192 bytes")]


def test_long_messages_are_cut() -> None:
    ((_, _, message),) = complaints(answer_of(selecting("{'a': 1}[returned.status.long]"), row()))
    assert len(message) == 256
    assert message.startswith("no such key: aaa")


# --- filters --------------------------------------------------------------------------------------


def test_a_filter_leaves_copies_out() -> None:
    rows = [row("a", {"ready": 1}), row("b", {"ready": 0}), row("c", None)]
    answer = answer_of(selecting("inventory.name", filter="has(returned.status) && returned.status.ready > 0"), *rows)
    assert shown(answer) == [["a"]]
    assert "errors" not in answer


def test_a_filter_that_fails_or_is_no_truth_value_is_an_error() -> None:
    rows = [row("a", {"ok": True}), row("b", {"ok": False}), row("c", {"ok": "yes"}), row("d", {})]
    answer = answer_of(selecting("returned.none", filter="returned.status.ok"), *rows)
    assert shown(answer) == []
    assert complaints(answer) == [
        ("a", "c0", "no such key: none"),
        ("c", "filter", "must be bool, not string"),
        ("d", "filter", "no such key: ok"),
    ]


# --- rows -----------------------------------------------------------------------------------------


def test_rows_are_sorted_by_their_cells_and_then_by_their_places() -> None:
    found: list[Any] = [{"a": 1}, "b", "a", 10, 9, 9.5, True, False, None, [2], [1]]
    rows = [row(f"t{at:02}", {"x": x}) for at, x in enumerate(found)]
    answer = answer_of(selecting("returned.status.x"), *rows, row("z", cluster="c0", status={"x": 9}))
    assert shown(answer) == [
        [None],
        [False],
        [True],
        ["9"],
        ["9"],
        ["9.5"],
        ["10"],
        ["a"],
        ["b"],
        [[1]],
        [[2]],
        [{"a": 1}],
    ]
    tied = answer_of(selecting("'same'", "inventory.name", limit=1), row("a", cluster="c2"), row("b", cluster="c1"))
    assert shown(tied) == [["same", "a"]]


def test_the_limit_is_enforced_and_what_is_left_out_is_counted() -> None:
    rows = [row(f"t{at:02}") for at in range(30)]
    answer = answer_of(selecting("inventory.name", limit=2), *reversed(rows))
    assert shown(answer) == [["t00"], ["t01"]]
    assert answer["rowsLeftOut"] == 28
    assert len(answer_of(selecting("inventory.name"), *rows)["rows"]) == 20


def test_failures_are_sorted_limited_and_counted() -> None:
    rows = [row(f"t{at:02}", {}, cluster=f"c{at % 2}") for at in range(15)]
    answer = answer_of(selecting("returned.status.x", "1", "returned.status.y"), *rows)
    assert answer["errorsLeftOut"] == 10
    places = [(error["cluster"], error["syncTargetName"], error["columnName"]) for error in answer["errors"]]
    assert places == sorted(places)
    assert len(places) == 20


def test_an_answer_is_limited_in_bytes() -> None:
    text = "returned.status.long.substring(0, 1000)"
    answer = answer_of(selecting("inventory.name", *[text] * 7, limit=1000), *(row(f"t{at:03}") for at in range(60)))
    assert 30 < len(answer["rows"]) < 40
    assert answer["rowsLeftOut"] == 60 - len(answer["rows"])
    assert len(orjson.dumps(answer["rows"])) < LARGEST_RESULT


# --- groups ---------------------------------------------------------------------------------------

ALL = (("COUNT",), *((kind, "returned.status.x") for kind in ("SUM", "AVG", "MIN", "MAX")))


def test_numbers_of_nothing_are_a_row_all_the_same() -> None:
    assert shown(answer_of(combining(*ALL))) == [["0", "0", None, None, None]]
    assert shown(answer_of(combining(*ALL, filter="false"), row())) == [["0", "0", None, None, None]]
    assert shown(answer_of(combining(*ALL, groupBy=[{"name": "g", "def": "1"}]))) == []


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([1, 2, 4], ["3", "7", "2.3333333333333335", "1", "4"]),
        ([0.1, 0.2, 0.3], ["3", "0.6", "0.2", "0.1", "0.3"]),
        ([1e300, 1, -1e300], ["3", "1", "0.3333333333333333", "-1e+300", "1e+300"]),
        ([1.7e308, 1.7e308], ["2", "3.3999999999999999e+308", "1.7e+308", "1.7e+308", "1.7e+308"]),
        ([GREATEST] * 3, ["3", "2.7670116110564327e+19", *[str(GREATEST)] * 3]),
        ([5e-324, 0], ["2", "5e-324", "0", "0", "5e-324"]),
    ],
)
def test_numbers_over_all_copies_are_exact_before_they_are_rounded(numbers: list[Any], expected: list[str]) -> None:
    rows = [row(f"t{at}", {"x": x}) for at, x in enumerate(numbers)]
    assert shown(answer_of(combining(*ALL), *rows)) == [expected]
    assert shown(answer_of(combining(*ALL), *reversed(rows))) == [expected]


def test_what_is_no_number_is_in_no_sum() -> None:
    rows = [row("a", {"x": 1}), row("b", {"x": "2"}), row("c", {"x": None}), row("d", {})]
    answer = answer_of(combining(("COUNT",), ("SUM", "returned.status.x")), *rows)
    assert shown(answer) == [["1", "1"]]
    assert complaints(answer) == [
        ("b", "c1", "must be a number, not string"),
        ("c", "c1", "must be a number, not null"),
        ("d", "c1", "no such key: x"),
    ]


def test_the_least_and_the_greatest_may_be_times_and_texts() -> None:
    rows = [row("a", {"x": "b"}, at="2026-11-16T09:00:00Z"), row("b", {"x": "a"}, at="2026-11-16T09:00:00.5Z")]
    when = "propagation.lastReturnedUpdateTimestamp"
    asked = combining(("MIN", when), ("MAX", when), ("MIN", "returned.status.x"), ("MAX", "returned.status.x"))
    assert shown(answer_of(asked, *rows)) == [["2026-11-16T09:00:00Z", "2026-11-16T09:00:00.5Z", "a", "b"]]
    mixed = [*rows, row("c", {"x": 5}), row("d", {"x": True})]
    answer = answer_of(combining(("MIN", "returned.status.x"), ("MAX", "returned.status.x")), *mixed)
    assert shown(answer) == [["5", "b"]]
    words = "must be a number, a string, a timestamp or a duration, not bool"
    assert complaints(answer) == [("d", "c0", words), ("d", "c1", words)]


def test_groups_are_sorted_and_limited() -> None:
    phases = ["Running", "Failed", "Running", "Pending"]
    rows = [row(f"t{at}", {"phase": phase, "x": at}) for at, phase in enumerate(phases)]
    group = [{"name": "phase", "def": "returned.status.phase"}]
    answer = answer_of(combining(("COUNT",), ("MAX", "returned.status.x"), groupBy=group, limit=2), *rows)
    assert answer["columnNames"] == ["phase", "c0", "c1"]
    assert shown(answer) == [["Failed", "1", "1"], ["Pending", "1", "3"]]
    assert answer["rowsLeftOut"] == 1


def test_equal_numbers_are_one_group_whatever_their_type() -> None:
    found = [1, 1.0, 1e17, 10**17, True, "1"]
    rows = [row(f"t{at}", {"x": x}) for at, x in enumerate(found)]
    answer = answer_of(combining(("COUNT",), groupBy=[{"name": "g", "def": "returned.status.x"}]), *rows)
    assert shown(answer) == [[True, "1"], ["1", "2"], ["100000000000000000", "2"], ["1", "1"]]


# --- events ---------------------------------------------------------------------------------------


def test_an_event_says_whether_the_answer_may_be_another_one() -> None:
    answering = CollectorResult("asked", parse_query(selecting("returned.status.x", filter="returned.status.counts")))
    counts = row("a", {"counts": True, "x": 1})
    assert answering.put("m", counts)
    assert not answering.put("m", row("a", {"counts": True, "x": 1, "y": 2}))
    assert answering.put("m", row("a", {"counts": True, "x": 2}))
    assert answering.put("m", row("a", {"counts": False}))
    assert not answering.put("m", row("a", {"counts": False, "x": 3}))
    assert not answering.remove("m")
    assert answering.put("m", row("a", {}))
    assert not answering.put("m", row("a", {"x": 1}))
    assert answering.remove("m")
    assert not answering.remove("m")
    assert answering.body() == {"name": "asked", "columnNames": ["c0"], "rows": []}


def test_what_was_given_stays_as_it_was() -> None:
    given = row()
    before = orjson.dumps(given.given)
    answer_of(selecting("propagation", "returned.status.conditions"), given)
    assert orjson.dumps(given.given) == before


# --- the wire -------------------------------------------------------------------------------------


async def test_answers_are_what_a_summary_may_have() -> None:
    found: list[Any] = [{"a": {"b": [None, 1.5]}}, "b", 10, True, None, [{"x": None}, [], 1, "y", None], {}]
    rows = [row(f"t{at}", {"x": x}) for at, x in enumerate(found)]
    many = [row(f"t{at:02}", {}) for at in range(30)]
    answers = [
        answer_of(selecting("returned.status.x", "{'y': returned.status.x}", "[returned.status.x]", limit=5), *rows),
        {**answer_of(combining(*ALL), *rows), "name": "numbers"},
        {**answer_of(combining(*ALL)), "name": "nothing"},
        {**answer_of(selecting("returned.status.x"), *many), "name": "failures"},
    ]
    hub = await LocalHub.in_memory().furnish()
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await hub.request("POST", definitions, STATUS_SUMMARY.definition())).status == 201
    count = dict.fromkeys(("expected", "reporting", "missing", "stale", "broken"), 0)
    summary = {
        "apiVersion": "edge.kcp.io/v1alpha1",
        "kind": "StatusSummary",
        "metadata": {"name": "summary"},
        "subject": {"version": "v1", "kind": "Pod", "resource": "pods", "name": "a"},
        "destinations": count,
        "collected": answers,
    }
    summaries = "/apis/edge.kcp.io/v1alpha1/namespaces/default/statussummaries"
    made = await hub.request("POST", summaries, summary, query={"fieldValidation": "Strict"})
    assert made.status == 201, made.body
    assert made.json["collected"] == answers
