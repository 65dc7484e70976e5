"""Whatever came and went before: an answer is what plain Python says of the copies that are there."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.controllers.status_summarizer.collector_results import CollectorResult
from farflung.controllers.status_summarizer.collectors import parse_query
from farflung.controllers.status_summarizer.health import DestinationRow
from farflung.machinery.errors import Obj
from farflung.placement.types import CopyDestination

Given = dict[str, Any]


class WrongError(Exception):
    """What a twin of an expression raises instead of having a value."""


class Asked(NamedTuple):
    """A question, and its expressions as functions."""

    spec: Obj
    counts: Callable[[Given], bool]
    columns: dict[str, Callable[[Given], Any]]  #: in the order of `asked`
    groups: int = 0


# --- expressions in Python ------------------------------------------------------------------------


def member(value: Any, *path: str) -> Any:
    for name in path:
        if not isinstance(value, dict) or name not in value:
            raise WrongError(f"no such key: {name}")
        value = value[name]
    return value


def ready(given: Given) -> Any:
    return member(given, "returned", "status", "ready")


def a_number(given: Given) -> Any:
    return required(ready(given), (int, float), "a number")


def ordered(given: Given) -> Any:
    return required(ready(given), (int, float, str), "a number, a string, a timestamp or a duration")


def required(value: Any, kinds: tuple[type, ...], words: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, kinds):
        name = {bool: "bool", int: "number", float: "number", str: "string", type(None): "null", list: "list"}[
            type(value)
        ]
        raise WrongError(f"must be {words}, not {name}")
    return value


def well(given: Given) -> bool:
    found = member(given, "returned", "status", "well")
    if not isinstance(found, bool):
        raise WrongError("must be bool, not string")
    return found


QUESTIONS = [
    Asked(
        {
            "filter": "has(returned.status)",
            "select": [
                {"name": "what", "def": "returned.status.ready"},
                {"name": "env", "def": "inventory.labels.env"},
            ],
            "limit": 4,
        },
        lambda given: "status" in given["returned"],
        {"what": ready, "env": lambda given: given["inventory"]["labels"]["env"]},
    ),
    Asked(
        {
            "combinedFields": [
                {"name": "least", "type": "MIN", "subject": "returned.status.ready"},
                {"name": "count", "type": "COUNT"},
                {"name": "greatest", "type": "MAX", "subject": "returned.status.ready"},
            ]
        },
        lambda _: True,
        {"least": ordered, "greatest": ordered},
    ),
    Asked(
        {
            "filter": "returned.status.well",
            "groupBy": [{"name": "env", "def": "inventory.labels.env"}, {"name": "stale", "def": "propagation.stale"}],
            "combinedFields": [
                {"name": "sum", "type": "SUM", "subject": "returned.status.ready"},
                {"name": "count", "type": "COUNT"},
                {"name": "average", "type": "AVG", "subject": "returned.status.ready"},
            ],
            "limit": 2,
        },
        well,
        {
            "env": lambda given: given["inventory"]["labels"]["env"],
            "stale": lambda given: given["propagation"]["stale"],
            "sum": a_number,
            "average": a_number,
        },
        groups=2,
    ),
]


# --- answers in Python ----------------------------------------------------------------------------


KINDS = [type(None), bool, int | float | Fraction, str, list]


def order(value: Any) -> Any:
    return next((rank, value) for rank, kind in enumerate(KINDS) if isinstance(value, kind))


def shown(value: Any) -> Obj:
    if value is None:
        return {"type": "Null"}
    if isinstance(value, bool):
        return {"type": "Bool", "bool": value}
    if isinstance(value, str):
        return {"type": "String", "string": value}
    if isinstance(value, list):
        return {"type": "Array", "array": value}
    return {"type": "Number", "float": written(Fraction(value))}


def written(number: Fraction) -> str:
    for candidate in (number, Fraction(float(number))):
        if candidate.denominator == 1 and abs(candidate) < 2**64:
            return str(candidate)
    return repr(float(number))


def combined(kind: str, numbers: list[Any]) -> Any:
    match kind:
        case "COUNT":
            return len(numbers)
        case "SUM":
            return sum(map(Fraction, numbers), Fraction())
        case "AVG":
            return sum(map(Fraction, numbers), Fraction()) / len(numbers) if numbers else None
        case "MIN":
            return min(numbers, key=order, default=None)
    return max(numbers, key=order, default=None)


def from_scratch(asked: Asked, rows: dict[str, DestinationRow]) -> Obj:
    found: list[tuple[list[Any], CopyDestination, str]] = []
    errors: list[Obj] = []
    for mailbox, row in sorted(rows.items(), key=lambda item: (item[1].destination, item[0])):
        values: list[Any] = []
        failed: list[tuple[str, str]] = []
        try:
            if not asked.counts(dict(row.given)):
                continue
        except WrongError as error:
            failed.append(("filter", str(error)))
        else:
            for name, column in asked.columns.items():
                try:
                    values.append(column(dict(row.given)))
                except WrongError as error:
                    failed.append((name, str(error)))
        place = {"cluster": row.destination.cluster, "syncTargetName": row.destination.target}
        errors += [{**place, "columnName": name, "message": message} for name, message in failed]
        if not failed:
            found.append((values, row.destination, mailbox))
    table = sorted(table_of(asked, found), key=lambda values: list(map(order, values)))
    return framed(asked, table, errors)


def table_of(asked: Asked, found: list[tuple[list[Any], CopyDestination, str]]) -> list[list[Any]]:
    fields = asked.spec.get("combinedFields")
    if not fields:
        return [values for values, _, _ in found]
    groups: dict[tuple[Any, ...], list[list[Any]]] = {} if asked.groups else {(): []}
    for values, _, _ in found:
        groups.setdefault(tuple(values[: asked.groups]), []).append(values)
    subjects = list(asked.columns)
    table = []
    for group, members in groups.items():
        row = list(group)
        for field in fields:
            at = subjects.index(field["name"]) if field["name"] in subjects else None
            row.append(combined(field["type"], [0 if at is None else values[at] for values in members]))
        table.append(row)
    return table


def framed(asked: Asked, table: list[list[Any]], errors: list[Obj]) -> Obj:
    spec, limit = asked.spec, asked.spec.get("limit", 20)
    names = [each["name"] for part in ("select", "groupBy", "combinedFields") for each in spec.get(part, [])]
    answer: Obj = {"name": "it", "columnNames": names}
    answer["rows"] = [{"columns": [shown(value) for value in row]} for row in table[:limit]]
    if len(table) > limit:
        answer["rowsLeftOut"] = len(table) - limit
    if errors:
        answer["errors"] = errors[:20]
    if len(errors) > 20:
        answer["errorsLeftOut"] = len(errors) - 20
    return answer


# --- histories ------------------------------------------------------------------------------------

NUMBERS = st.sampled_from([0, 1, 2, 2.0, -7, 0.1, 0.2, 0.5, 1e300, -1e300, 1e16, 2**53 + 1, 5e-324])
USUAL = st.fixed_dictionaries({"ready": NUMBERS, "well": st.just(True)})
ODD = st.sampled_from(["a", "b", True, None, [1]])
UNUSUAL = st.fixed_dictionaries({}, optional={"ready": NUMBERS | ODD, "well": st.sampled_from([True, False, "yes"])})
RETURNED = st.builds(dict, status=USUAL) | st.builds(dict, status=USUAL | UNUSUAL) | st.just({})
PLACES = st.builds(
    CopyDestination, st.sampled_from(["c1", "c2"]), st.sampled_from(["l1", "l2"]), st.sampled_from(["t1", "t2"])
)


@st.composite
def rows(draw: st.DrawFn) -> DestinationRow:
    inventory = {"labels": {"env": draw(st.sampled_from(["dev", "prod"]))}}
    given = {
        "inventory": inventory,
        "obj": {},
        "returned": draw(RETURNED),
        "propagation": {"stale": draw(st.booleans())},
    }
    return DestinationRow(draw(PLACES), given)


MAILBOXES = st.sampled_from([f"m{at}" for at in range(6)])
EVENTS = st.tuples(MAILBOXES, rows() | rows() | st.none())
HISTORIES = st.lists(EVENTS, min_size=15, max_size=25)  #: each begins with shorter ones


@settings(max_examples=examples(70))
@given(st.sampled_from(QUESTIONS), HISTORIES)
def test_any_history_ends_with_what_plain_python_says(
    asked: Asked, history: list[tuple[str, DestinationRow | None]]
) -> None:
    answering = CollectorResult("it", parse_query(asked.spec))
    there: dict[str, DestinationRow] = {}
    before = from_scratch(asked, there)
    for mailbox, row in history:
        if row is None:
            there.pop(mailbox, None)
            changed = answering.remove(mailbox)
        else:
            there[mailbox] = row
            changed = answering.put(mailbox, row)
        after = from_scratch(asked, there)
        assert answering.body() == after
        assert changed or after == before
        before = after


@settings(max_examples=examples(50))
@given(st.sampled_from(QUESTIONS), st.dictionaries(MAILBOXES, rows()), st.randoms(use_true_random=False))
def test_the_order_in_which_copies_come_does_not_matter(
    asked: Asked, there: dict[str, DestinationRow], random: Any
) -> None:
    answers = []
    for _ in range(2):
        answering = CollectorResult("it", parse_query(asked.spec))
        shuffled = list(there.items())
        random.shuffle(shuffled)
        for mailbox, row in shuffled:
            answering.put(mailbox, row)
        answers.append(answering.body())
    assert answers[0] == answers[1]
