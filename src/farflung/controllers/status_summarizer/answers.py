"""Answers to StatusCollectors: tables that are kept up to date row by row.  Pure."""

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
    CollectorQuery,
    Combined,
    Combining,
    Form,
    QueryColumn,
    QueryValue,
    Room,
    UnfitError,
    cell,
    number,
)
from farflung.controllers.status_summarizer.health import Row
from farflung.machinery.cel.language.budget import MOST_WORK, OverBudget
from farflung.machinery.cel.language.values import EvaluationError
from farflung.machinery.cel.library.moments import timestamp_of
from farflung.machinery.errors import Obj
from farflung.placement.types import Route

MOST_COST: Final = 10_000  #: of asking about one copy, which takes some milliseconds then
COPY_WORK: Final = 1 << 18  #: bytes that asking about one copy may make on its way
LARGEST_ANSWER: Final = 1 << 18  #: bytes of all rows of an answer
MOST_ERRORS: Final = 20  #: that are told
LONGEST_MESSAGE: Final = 256  #: characters
FILTER: Final = "filter"  #: stands where a failure has its heading
RETURNED_AT: Final = "lastReturnedUpdateTimestamp"
Values = tuple[QueryValue, ...]


class CollectorAnswer:
    def __init__(self, name: str, question: CollectorQuery) -> None:
        self.name = name
        self.question = question
        self._known: dict[str, _Known] = {}  #: by mailbox; copies that the filter leaves out are not there
        self._rows: _Listed | _Grouped = _Grouped(question) if question.combined else _Listed()
        self._failures: list[tuple[Route, str, int, _Failure]] = []  #: sorted

    def put(self, mailbox: str, row: Row) -> bool:
        finding = _ask(self.question, row.given)
        known = None if finding is None else _Known(row.place, finding)
        if self._known.get(mailbox) == known:
            return False
        self.remove(mailbox)
        if known is not None:
            self._add(mailbox, known)
        return True

    def remove(self, mailbox: str) -> bool:
        known = self._known.pop(mailbox, None)
        if known is None:
            return False
        if known.finding.values is not None:
            self._rows.remove(known.place, mailbox, known.finding.values)
        for entry in _entries(mailbox, known):
            del self._failures[bisect_left(self._failures, entry)]
        return True

    def _add(self, mailbox: str, known: _Known) -> None:
        self._known[mailbox] = known
        if known.finding.values is not None:
            self._rows.add(known.place, mailbox, known.finding.values)
        for entry in _entries(mailbox, known):
            insort(self._failures, entry)

    def answer(self) -> Obj:
        """What is empty is left out, but for the rows."""
        rows = _fitting(self._rows.first(self.question.limit))
        errors = [
            {"cluster": place.cluster, "syncTargetName": place.target, "columnName": column, "message": message}
            for place, _, _, (column, message) in self._failures[:MOST_ERRORS]
        ]
        further = {
            "rowsLeftOut": len(self._rows) - len(rows),
            "errors": errors,
            "errorsLeftOut": len(self._failures) - len(errors),
        }
        return {
            "name": self.name,
            "columnNames": list(self.question.headings),
            "rows": rows,
            **{name: value for name, value in further.items() if value},
        }


def _fitting(rows: Iterable[Values]) -> list[Obj]:
    fitting: list[Obj] = []
    room = LARGEST_ANSWER
    for values in rows:
        row = {"columns": list(map(cell, values))}
        room -= len(orjson.dumps(row))
        if room < 0:
            break
        fitting.append(row)
    return fitting


# --- one copy -------------------------------------------------------------------------------------


class _Failure(NamedTuple):
    column: str
    message: str


class _Finding(NamedTuple):
    values: Values | None  #: None if anything failed
    failures: tuple[_Failure, ...] = ()


class _Known(NamedTuple):
    place: Route
    finding: _Finding


def _entries(mailbox: str, known: _Known) -> Iterable[tuple[Route, str, int, _Failure]]:
    return ((known.place, mailbox, at, failure) for at, failure in enumerate(known.finding.failures))


def _ask(question: CollectorQuery, given: Mapping[str, Any]) -> _Finding | None:
    """None if the filter leaves the copy out.  The same for the same documents, and it ends soon."""
    asking = _Asking(given)
    counts = None if question.filter is None else asking.value(question.filter)
    if isinstance(counts, _Failure):
        return _Finding(None, (counts._replace(column=FILTER),))
    if counts == QueryValue(Form.BOOL, False):
        return None
    found = [asking.value(column) for column in question.asked]
    failures = tuple(each for each in found if isinstance(each, _Failure))
    if failures:
        return _Finding(None, failures)
    return _Finding(tuple(each for each in found if isinstance(each, QueryValue)))


class _Asking:
    """What all expressions of a question may cost for one copy, the first ones first."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = _with_times(given)
        self._cost = MOST_COST
        self._work = COPY_WORK
        self._room = Room()

    def value(self, column: QueryColumn) -> QueryValue | _Failure:
        try:
            value = self._room.value_of(self._evaluated(column))
            if value.form not in column.wanted.forms:
                raise UnfitError(f"must be {column.wanted.words}, not {value.form.words}")
        except (EvaluationError, OverBudget, UnfitError) as error:
            message = str(error)
            short = message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…"
            return _Failure(column.name, short)
        return value

    def _evaluated(self, column: QueryColumn) -> Any:
        run = column.program.start(self._given, self._cost)
        run.worked = MOST_WORK - self._work
        try:
            return column.program.evaluate(run)
        finally:
            self._cost = max(self._cost - run.spent, 0)
            self._work = max(MOST_WORK - run.worked, 0)


def _with_times(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """With a timestamp where one is written in `propagation`; one that nobody knows is not there."""
    propagation = dict(given.get("propagation") or {})
    written = propagation.pop(RETURNED_AT, None)
    with contextlib.suppress(EvaluationError):
        propagation[RETURNED_AT] = timestamp_of(written or "")
    return {**given, "propagation": propagation}


# --- all copies -----------------------------------------------------------------------------------


class _Listed:
    """A row for each copy, in the order of their values."""

    def __init__(self) -> None:
        self._rows: list[tuple[Values, Route, str]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, place: Route, mailbox: str, values: Values) -> None:
        insort(self._rows, (values, place, mailbox))

    def remove(self, place: Route, mailbox: str, values: Values) -> None:
        del self._rows[bisect_left(self._rows, (values, place, mailbox))]

    def first(self, limit: int) -> Iterable[Values]:
        return (values for values, _, _ in self._rows[:limit])


class _Grouped:
    """A row for each group, in the order of what they have in common; without groupBy there is always one."""

    def __init__(self, question: CollectorQuery) -> None:
        self._combined = question.combined
        self._shared = len(question.group_by)
        self._groups: dict[Values, _Group] = {} if self._shared else {(): _Group(self._combined)}

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, _: Route, mailbox: str, values: Values) -> None:
        shared, subjects = values[: self._shared], values[self._shared :]
        self._groups.setdefault(shared, _Group(self._combined)).add(mailbox, subjects)

    def remove(self, _: Route, mailbox: str, values: Values) -> None:
        shared = values[: self._shared]
        group = self._groups[shared]
        group.remove(mailbox)
        if shared and not group.members:
            del self._groups[shared]

    def first(self, limit: int) -> Iterable[Values]:
        return ((*shared, *self._groups[shared].row()) for shared in heapq.nsmallest(limit, self._groups))


class _Group:
    """Sums are exact, so they can be kept: what was added and taken away again leaves no trace."""

    def __init__(self, combined: tuple[Combined, ...]) -> None:
        self._combined = combined
        self._summed = [each.kind in (Combining.SUM, Combining.AVG) for each in combined if each.subject is not None]
        self._sums: list[int | Fraction] = [0] * len(self._summed)
        self.members: dict[str, Values] = {}  #: what is combined, by mailbox

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

    def _value(self, kind: Combining, at: int) -> QueryValue:
        count = len(self.members)
        match kind:
            case Combining.COUNT:
                return number(count)
            case Combining.SUM:
                return number(self._sums[at])
            case Combining.AVG:
                return number(Fraction(self._sums[at], count)) if count else NULL
            case Combining.MIN:
                return min((subjects[at] for subjects in self.members.values()), default=NULL)
            case Combining.MAX:
                return max((subjects[at] for subjects in self.members.values()), default=NULL)
