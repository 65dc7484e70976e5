"""All copies of one object, kept up to date one by one.  Pure.

What one copy costs depends on what it says and hardly on how many there are, and what a body costs on what is in it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

from farflung.controllers.status_summarizer.counting import Counted, Statistics, Table
from farflung.controllers.status_summarizer.values import Digest, Report, Verdict
from farflung.machinery.errors import Obj

BROKEN: Final = 20  #: destinations that are told of one by one
NUMBERS: Final = 64
CONDITIONS: Final = 32
TEXTS: Final = 16

_NOTHING: Final = Digest()

Rank = tuple[str, str, str, str]  #: cluster, Location, SyncTarget and mailbox, as destinations are sorted


class Tally:
    """What a StatusSummary says, beside its subject and what was collected.  The order of what happened is of no
    influence: equal reports, equal bodies."""

    def __init__(self) -> None:
        self._reports: dict[str, Report] = {}
        self._reporting = 0
        self._missing = 0
        self._stale = 0
        self._observed: Counted[str] = Counted()
        self._numbers: Table[int | float] = Table(Statistics, NUMBERS)
        self._conditions: Table[str] = Table(Counted, CONDITIONS)
        self._texts: Table[str] = Table(Counted, TEXTS)
        self._verdicts: dict[Rank, Verdict] = {}
        self._broken: list[Rank] = []

    def __len__(self) -> int:
        return len(self._reports)

    def __contains__(self, mailbox: object) -> bool:
        return mailbox in self._reports

    def put(self, mailbox: str, report: Report) -> bool:
        """Whether it says anything else than before."""
        old = self._reports.get(mailbox)
        if old == report:
            return False
        self._reports[mailbox] = report
        self._replace(mailbox, old, report)
        return True

    def remove(self, mailbox: str) -> bool:
        """Whether it was there."""
        old = self._reports.pop(mailbox, None)
        if old is None:
            return False
        self._replace(mailbox, old, None)
        return True

    def body(self) -> Obj:
        """What there is nothing of is left out, but for the numbers of destinations."""
        body: Obj = {"destinations": self._destinations()}
        if self._observed:
            body["observedAt"] = self._observed.greatest()
        for name, table in (("aggregates", self._numbers), ("conditions", self._conditions), ("values", self._texts)):
            if table:
                body[name] = table.body()
        if self._broken:
            body["broken"] = [_entry(rank, self._verdicts[rank]) for rank in self._broken[:BROKEN]]
        if len(self._broken) > BROKEN:
            body["brokenTruncated"] = len(self._broken) - BROKEN
        return body

    def _destinations(self) -> Obj:
        return {
            "expected": len(self._reports),
            "reporting": self._reporting,
            "missing": self._missing,
            "stale": self._stale,
            "broken": len(self._broken),
        }

    def _replace(self, mailbox: str, old: Report | None, new: Report | None) -> None:
        before = old.digest or _NOTHING if old is not None else _NOTHING
        after = new.digest or _NOTHING if new is not None else _NOTHING
        self._numbers.replace(before.numbers, after.numbers)
        self._conditions.replace(before.conditions, after.conditions)
        self._texts.replace(before.texts, after.texts)
        self._reporting += after.reporting - before.reporting
        self._missing += _is_missing(new) - _is_missing(old)
        self._stale += _is_stale(new) - _is_stale(old)
        if before.observed:
            self._observed.remove(before.observed)
        if after.observed:
            self._observed.add(after.observed)
        if old is not None:
            self._mend(_rank(mailbox, old))
        if new is not None and (verdict := _verdict(new)) is not None:
            self._break(_rank(mailbox, new), verdict)

    def _break(self, rank: Rank, verdict: Verdict) -> None:
        self._verdicts[rank] = verdict
        insort(self._broken, rank)

    def _mend(self, rank: Rank) -> None:
        if self._verdicts.pop(rank, None) is not None:
            del self._broken[bisect_left(self._broken, rank)]


def _is_missing(report: Report | None) -> bool:
    return report is not None and report.digest is None


def _is_stale(report: Report | None) -> bool:
    return report is not None and report.stale is not None


def _verdict(report: Report) -> Verdict | None:
    """What does not arrive is broken whatever was said before.  What is not there yet is missing, and not broken."""
    if report.digest is None:
        return None
    return report.refused or report.digest.verdict or report.stale


def _rank(mailbox: str, report: Report) -> Rank:
    return report.place.cluster, report.place.location, report.place.target, mailbox


def _entry(rank: Rank, verdict: Verdict) -> Obj:
    cluster, location, target, _ = rank
    told = {"locationName": location, "message": verdict.message, "since": verdict.since}
    return {
        "cluster": cluster,
        "syncTargetName": target,
        "reason": verdict.reason,
        **{name: text for name, text in told.items() if text},
    }
