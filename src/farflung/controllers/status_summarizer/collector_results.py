"""Results of StatusCollectors: tables that are updated copy by copy.  Pure."""

from __future__ import annotations

import contextlib
import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple

import orjson

from farflung.controllers.status_summarizer.collectors import (
    NULL,
    AggregateColumn,
    Aggregation,
    CollectorQuery,
    Form,
    InvalidValueError,
    QueryColumn,
    QueryValue,
    RowBudget,
    cell,
    number,
)
from farflung.controllers.status_summarizer.health import DestinationRow
from farflung.machinery.cel.language.budget import MAX_WORK, OverBudget
from farflung.machinery.cel.language.values import EvaluationError
from farflung.machinery.cel.library.moments import timestamp_of
from farflung.machinery.errors import Obj
from farflung.placement.types import CopyDestination

MAX_COST: Final = 10_000  #: of all expressions for one copy, some milliseconds
COPY_WORK: Final = 1 << 18  #: bytes of intermediate values for one copy
LARGEST_RESULT: Final = 1 << 18  #: bytes of all rows
MAX_ERRORS: Final = 20  #: that are listed
LONGEST_MESSAGE: Final = 256  #: characters
FILTER: Final = "filter"  #: the column name of failures of the filter
RETURNED_AT: Final = "lastReturnedUpdateTimestamp"
Values = tuple[QueryValue, ...]


class CollectorResult:
    def __init__(self, name: str, query: CollectorQuery) -> None:
        self.name = name
        self.query = query
        self._copies: dict[str, _CopyValues] = {}  #: by mailbox; without copies that the filter excludes
        self._rows: _RowList | _GroupedRows = _GroupedRows(query) if query.combined else _RowList()
        self._failures: list[tuple[CopyDestination, str, int, _Failure]] = []  #: sorted

    def put(self, mailbox: str, row: DestinationRow) -> bool:
        evaluation = _evaluate(self.query, row.given)
        copy = None if evaluation is None else _CopyValues(row.destination, evaluation)
        if self._copies.get(mailbox) == copy:
            return False
        self.remove(mailbox)
        if copy is not None:
            self._add(mailbox, copy)
        return True

    def remove(self, mailbox: str) -> bool:
        copy = self._copies.pop(mailbox, None)
        if copy is None:
            return False
        if copy.evaluation.values is not None:
            self._rows.remove(copy.destination, mailbox, copy.evaluation.values)
        for entry in _entries(mailbox, copy):
            del self._failures[bisect_left(self._failures, entry)]
        return True

    def _add(self, mailbox: str, copy: _CopyValues) -> None:
        self._copies[mailbox] = copy
        if copy.evaluation.values is not None:
            self._rows.add(copy.destination, mailbox, copy.evaluation.values)
        for entry in _entries(mailbox, copy):
            insort(self._failures, entry)

    def body(self) -> Obj:
        """Empty fields are omitted, except the rows."""
        rows = _fitting(self._rows.first(self.query.limit))
        errors = [
            {
                "cluster": destination.cluster,
                "syncTargetName": destination.target,
                "columnName": column,
                "message": message,
            }
            for destination, _, _, (column, message) in self._failures[:MAX_ERRORS]
        ]
        further = {
            "rowsLeftOut": len(self._rows) - len(rows),
            "errors": errors,
            "errorsLeftOut": len(self._failures) - len(errors),
        }
        return {
            "name": self.name,
            "columnNames": list(self.query.headings),
            "rows": rows,
            **{name: value for name, value in further.items() if value},
        }


def _fitting(rows: Iterable[Values]) -> list[Obj]:
    fitting: list[Obj] = []
    left = LARGEST_RESULT
    for values in rows:
        row = {"columns": list(map(cell, values))}
        left -= len(orjson.dumps(row))
        if left < 0:
            break
        fitting.append(row)
    return fitting


# --- one copy -------------------------------------------------------------------------------------


class _Failure(NamedTuple):
    column: str
    message: str


class _Evaluation(NamedTuple):
    values: Values | None  #: None if anything failed
    failures: tuple[_Failure, ...] = ()


class _CopyValues(NamedTuple):
    destination: CopyDestination
    evaluation: _Evaluation


def _entries(mailbox: str, copy: _CopyValues) -> Iterable[tuple[CopyDestination, str, int, _Failure]]:
    return ((copy.destination, mailbox, at, failure) for at, failure in enumerate(copy.evaluation.failures))


def _evaluate(query: CollectorQuery, given: Mapping[str, Any]) -> _Evaluation | None:
    """None if the filter excludes the copy.  Deterministic, with limited cost."""
    evaluator = _Evaluator(given)
    counts = None if query.filter is None else evaluator.value(query.filter)
    if isinstance(counts, _Failure):
        return _Evaluation(None, (counts._replace(column=FILTER),))
    if counts == QueryValue(Form.BOOL, False):
        return None
    found = [evaluator.value(column) for column in query.evaluated]
    failures = tuple(each for each in found if isinstance(each, _Failure))
    if failures:
        return _Evaluation(None, failures)
    return _Evaluation(tuple(each for each in found if isinstance(each, QueryValue)))


class _Evaluator:
    """Evaluates the expressions of a query for one copy, with one budget for all of them."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = _with_times(given)
        self._cost = MAX_COST
        self._work = COPY_WORK
        self._row_budget = RowBudget()

    def value(self, column: QueryColumn) -> QueryValue | _Failure:
        try:
            value = self._row_budget.value_of(self._evaluated(column))
            if value.form not in column.expected.forms:
                raise InvalidValueError(f"must be {column.expected.words}, not {value.form.words}")
        except (EvaluationError, OverBudget, InvalidValueError) as error:
            message = str(error)
            short = message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…"
            return _Failure(column.name, short)
        return value

    def _evaluated(self, column: QueryColumn) -> Any:
        run = column.program.start(self._given, self._cost)
        run.worked = MAX_WORK - self._work
        try:
            return column.program.evaluate(run)
        finally:
            self._cost = max(self._cost - run.spent, 0)
            self._work = max(MAX_WORK - run.worked, 0)


def _with_times(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the timestamp of `propagation` as a CEL timestamp; without it if it is unknown."""
    propagation = dict(given.get("propagation") or {})
    written = propagation.pop(RETURNED_AT, None)
    with contextlib.suppress(EvaluationError):
        propagation[RETURNED_AT] = timestamp_of(written or "")
    return {**given, "propagation": propagation}


# --- all copies -----------------------------------------------------------------------------------


class _RowList:
    """A row for each copy, sorted by its values."""

    def __init__(self) -> None:
        self._rows: list[tuple[Values, CopyDestination, str]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, destination: CopyDestination, mailbox: str, values: Values) -> None:
        insort(self._rows, (values, destination, mailbox))

    def remove(self, destination: CopyDestination, mailbox: str, values: Values) -> None:
        del self._rows[bisect_left(self._rows, (values, destination, mailbox))]

    def first(self, limit: int) -> Iterable[Values]:
        return (values for values, _, _ in self._rows[:limit])


class _GroupedRows:
    """A row for each group, sorted by the values of groupBy; without groupBy there is always one row."""

    def __init__(self, query: CollectorQuery) -> None:
        self._combined = query.combined
        self._shared = len(query.group_by)
        self._groups: dict[Values, _Group] = {} if self._shared else {(): _Group(self._combined)}

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, _: CopyDestination, mailbox: str, values: Values) -> None:
        shared, subjects = values[: self._shared], values[self._shared :]
        self._groups.setdefault(shared, _Group(self._combined)).add(mailbox, subjects)

    def remove(self, _: CopyDestination, mailbox: str, values: Values) -> None:
        shared = values[: self._shared]
        group = self._groups[shared]
        group.remove(mailbox)
        if shared and not group.members:
            del self._groups[shared]

    def first(self, limit: int) -> Iterable[Values]:
        return ((*shared, *self._groups[shared].row()) for shared in heapq.nsmallest(limit, self._groups))


class _Group:
    """Sums are exact, so values can be added and removed in any order."""

    def __init__(self, combined: tuple[AggregateColumn, ...]) -> None:
        self._combined = combined
        self._summed = [
            each.kind in (Aggregation.SUM, Aggregation.AVG) for each in combined if each.subject is not None
        ]
        self._sums: list[int | Fraction] = [0] * len(self._summed)
        self.members: dict[str, Values] = {}  #: values to aggregate, by mailbox

    def add(self, mailbox: str, subjects: Values) -> None:
        self.members[mailbox] = subjects
        self._sum(subjects, 1)

    def remove(self, mailbox: str) -> None:
        self._sum(self.members.pop(mailbox), -1)

    def _sum(self, subjects: Values, sign: int) -> None:
        for at, (_, content) in enumerate(subjects):
            if self._summed[at]:
                self._sums[at] += sign * (Fraction(content) if type(content) is float else content)

    def row(self) -> Iterable[QueryValue]:
        at = 0
        for combined in self._combined:
            yield self._value(combined.kind, at)
            at += combined.subject is not None

    def _value(self, kind: Aggregation, at: int) -> QueryValue:
        count = len(self.members)
        match kind:
            case Aggregation.COUNT:
                return number(count)
            case Aggregation.SUM:
                return number(self._sums[at])
            case Aggregation.AVG:
                return number(Fraction(self._sums[at], count)) if count else NULL
            case Aggregation.MIN:
                return min((subjects[at] for subjects in self.members.values()), default=NULL)
            case Aggregation.MAX:
                return max((subjects[at] for subjects in self.members.values()), default=NULL)
