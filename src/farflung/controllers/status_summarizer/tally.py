"""The numbers and problems of all copies of one object.  Pure."""

from __future__ import annotations

import sys
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final, Generic, Protocol, TypeVar

from farflung.controllers.status_summarizer.health import (
    MAX_CONDITIONS,
    MAX_NUMBERS,
    MAX_TEXTS,
    CopyProblem,
    CopyReport,
    CopyStatus,
)
from farflung.machinery.errors import Obj

VALUES: Final = 16  #: distinct values in a summary
_INTEGERS: Final = 2**63  #: whole numbers from its negative to below it are integers on the wire


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=_Ordered)
V = TypeVar("V")
Value = TypeVar("Value", contravariant=True)


class Aggregate(Protocol[Value]):
    """An aggregate of values that does not depend on their order."""

    def __bool__(self) -> bool: ...

    def add(self, value: Value) -> None: ...

    def remove(self, value: Value) -> None:
        """Remove a value that was added."""

    def body(self) -> Obj: ...


class SortedCounter(Generic[K]):
    """Counts of sorted values."""

    __slots__ = ("_counts", "_order")

    def __init__(self) -> None:
        self._counts: dict[K, int] = {}
        self._order: list[K] = []

    def __bool__(self) -> bool:
        return bool(self._order)

    def add(self, value: K) -> None:
        count = self._counts.get(value, 0)
        self._counts[value] = count + 1
        if not count:
            insort(self._order, value)

    def remove(self, value: K) -> None:
        count = self._counts[value] - 1
        if count:
            self._counts[value] = count
        else:
            del self._counts[value]
            del self._order[bisect_left(self._order, value)]

    def least(self) -> K:
        return self._order[0]

    def greatest(self) -> K:
        return self._order[-1]

    def body(self) -> dict[K, int]:
        return {value: self._counts[value] for value in self._order[:VALUES]}


class Statistics:
    """Sum, minimum and maximum of numbers.  The sum is exact, so it does not depend on the history."""

    __slots__ = ("_count", "_floats", "_integers", "_values")

    def __init__(self) -> None:
        self._values: SortedCounter[int | float] = SortedCounter()
        self._count = 0
        self._integers = 0  #: sum of the integers
        self._floats = Fraction()  #: sum of the floats

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, value: int | float) -> None:
        self._values.add(_plain(value))
        self._sum(value, 1)

    def remove(self, value: int | float) -> None:
        self._values.remove(_plain(value))
        self._sum(value, -1)

    def _sum(self, number: int | float, times: int) -> None:
        self._count += times
        if isinstance(number, int):
            self._integers += times * number
        else:
            self._floats += times * Fraction(number)

    def body(self) -> Obj:
        return {
            "count": self._count,
            "sum": _plain(self._integers + self._floats if self._floats else self._integers),
            "min": self._values.least(),
            "max": self._values.greatest(),
        }


def _plain(number: int | float | Fraction) -> int | float:
    """The number as JSON has it, or the nearest one."""
    if number == int(number) and -_INTEGERS <= number < _INTEGERS:
        return int(number)
    nearest = _float(number)
    return int(nearest) if nearest.is_integer() and abs(nearest) < _INTEGERS else nearest


def _float(number: int | float | Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return sys.float_info.max if number > 0 else -sys.float_info.max


class AggregateTable(Generic[V]):
    """Aggregates by name; a summary has the first of them."""

    __slots__ = ("_column", "_columns", "_limit", "_order")

    def __init__(self, column: Callable[[], Aggregate[V]], limit: int) -> None:
        self._column = column
        self._limit = limit
        self._columns: dict[str, Aggregate[V]] = {}
        self._order: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._order)

    def replace(self, old: Mapping[str, V], new: Mapping[str, V]) -> None:
        """Replace the values of a copy; equal values are skipped."""
        for name, value in old.items():
            if new.get(name) != value:
                self._remove(name, value)
        for name, value in new.items():
            if old.get(name) != value:
                self._add(name, value)

    def _add(self, name: str, value: V) -> None:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._column()
            insort(self._order, name)
        column.add(value)

    def _remove(self, name: str, value: V) -> None:
        column = self._columns[name]
        column.remove(value)
        if not column:
            del self._columns[name]
            del self._order[bisect_left(self._order, name)]

    def body(self) -> Obj:
        return {name: self._columns[name].body() for name in self._order[: self._limit]}


MAX_LISTED_BROKEN: Final = 20  #: destinations that are listed one by one
_NOTHING: Final = CopyStatus()
Rank = tuple[str, str, str, str]  #: cluster, Location, SyncTarget and mailbox, as destinations are sorted


class Tally:
    """The content of a StatusSummary except its subject and collected results.  Equal reports give equal bodies, in any
    order."""

    def __init__(self) -> None:
        self._reports: dict[str, CopyReport] = {}
        self._reporting = 0
        self._missing = 0
        self._stale = 0
        self._progressing = 0
        self._observed: SortedCounter[str] = SortedCounter()
        self._numbers: AggregateTable[int | float] = AggregateTable(Statistics, MAX_NUMBERS)
        self._conditions: AggregateTable[str] = AggregateTable(SortedCounter, MAX_CONDITIONS)
        self._texts: AggregateTable[str] = AggregateTable(SortedCounter, MAX_TEXTS)
        self._problems: dict[Rank, CopyProblem] = {}
        self._broken: list[Rank] = []

    def __len__(self) -> int:
        return len(self._reports)

    def __contains__(self, mailbox: object) -> bool:
        return mailbox in self._reports

    def put(self, mailbox: str, report: CopyReport) -> bool:
        """Whether the body changes."""
        old = self._reports.get(mailbox)
        if old == report:
            return False
        self._reports[mailbox] = report
        self._replace(mailbox, old, report)
        return True

    def remove(self, mailbox: str) -> bool:
        """Whether the mailbox had a report."""
        old = self._reports.pop(mailbox, None)
        if old is None:
            return False
        self._replace(mailbox, old, None)
        return True

    def body(self) -> Obj:
        """Empty fields are omitted, except `destinations`."""
        body: Obj = {"destinations": self._destinations()}
        if self._observed:
            body["observedAt"] = self._observed.greatest()
        for name, table in (("aggregates", self._numbers), ("conditions", self._conditions), ("values", self._texts)):
            if table:
                body[name] = table.body()
        if self._broken:
            body["broken"] = [_entry(rank, self._problems[rank]) for rank in self._broken[:MAX_LISTED_BROKEN]]
        if len(self._broken) > MAX_LISTED_BROKEN:
            body["brokenTruncated"] = len(self._broken) - MAX_LISTED_BROKEN
        return body

    def _destinations(self) -> Obj:
        return {
            "expected": len(self._reports),
            "reporting": self._reporting,
            "missing": self._missing,
            "stale": self._stale,
            "broken": len(self._broken),
            **({"progressing": self._progressing} if self._progressing else {}),
        }

    def _replace(self, mailbox: str, old: CopyReport | None, new: CopyReport | None) -> None:
        before = old.copy_status or _NOTHING if old is not None else _NOTHING
        after = new.copy_status or _NOTHING if new is not None else _NOTHING
        self._numbers.replace(before.numbers, after.numbers)
        self._conditions.replace(before.conditions, after.conditions)
        self._texts.replace(before.texts, after.texts)
        self._reporting += after.reporting - before.reporting
        self._missing += _is_missing(new) - _is_missing(old)
        self._stale += _is_stale(new) - _is_stale(old)
        self._progressing += _is_progressing(new) - _is_progressing(old)
        if before.observed:
            self._observed.remove(before.observed)
        if after.observed:
            self._observed.add(after.observed)
        if old is not None:
            self._remove_problem(_rank(mailbox, old))
        if new is not None and (problem := _problem(new)) is not None:
            self._add_problem(_rank(mailbox, new), problem)

    def _add_problem(self, rank: Rank, problem: CopyProblem) -> None:
        self._problems[rank] = problem
        insort(self._broken, rank)

    def _remove_problem(self, rank: Rank) -> None:
        if self._problems.pop(rank, None) is not None:
            del self._broken[bisect_left(self._broken, rank)]


def _is_missing(report: CopyReport | None) -> bool:
    return report is not None and report.copy_status is None


def _is_stale(report: CopyReport | None) -> bool:
    return report is not None and report.stale is not None


def _is_progressing(report: CopyReport | None) -> bool:
    """A broken copy, or one that is missing, makes no progress."""
    return (
        report is not None and report.copy_status is not None and report.progress is not None and not _problem(report)
    )


def _problem(report: CopyReport) -> CopyProblem | None:
    """A refused object is broken, whatever its last status.  A copy that does not exist yet is missing, not broken."""
    if report.copy_status is None:
        return None
    return report.refused or report.copy_status.problem or report.stale


def _rank(mailbox: str, report: CopyReport) -> Rank:
    return report.destination.cluster, report.destination.location, report.destination.target, mailbox


def _entry(rank: Rank, problem: CopyProblem) -> Obj:
    cluster, location, target, _ = rank
    optional = {"locationName": location, "message": problem.message, "since": problem.since}
    return {
        "cluster": cluster,
        "syncTargetName": target,
        "reason": problem.reason,
        **{name: text for name, text in optional.items() if text},
    }
