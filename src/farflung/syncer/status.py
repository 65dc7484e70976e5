"""The status of `the-one`: orphans and their release, counts and conditions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from farflung.apis.edge.names import ORPHANS_PRESENT, RELEASE_ORPHANS, TRANSLATES_GENERATIONS
from farflung.lib.version import __version__
from farflung.lib.words import count
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.syncer.downsync import Downsync
from farflung.syncer.edge import EdgeProbe
from farflung.syncer.journal import ORPHAN_CAUSE, Journal
from farflung.syncer.nodes import NodeCapacity
from farflung.syncer.report import Problems, Progress, ReportCondition, with_conditions
from farflung.syncer.upsync import Upsync

RELEASED: Final = "released"  #: fact of the journal: the last value of the annotation RELEASE_ORPHANS that was handled


class Orphans:
    def __init__(self, journal: Journal, the_one: Callable[[], Obj | None]) -> None:
        """`the_one`: the SyncerConfig as observed; None if it is unknown."""
        self._journal = journal
        self._the_one = the_one

    def count(self) -> int:
        return sum(entry.orphaned for entry in self._journal.entries())

    @property
    def has_release_request(self) -> bool:
        """Whether the annotation RELEASE_ORPHANS was set, changed or removed, and not handled yet."""
        config = self._the_one()
        return config is not None and requested_release(config) != self._journal.get_fact(RELEASED)

    def accept_release(self) -> bool:
        """Whether the annotation states the number of orphans.  Each value is handled once, because it is not meant for
        later orphans."""
        requested = requested_release(self._the_one() or {})
        self._journal.set_fact(RELEASED, requested)
        return bool(requested) and requested == str(self.count())

    def condition(self) -> ReportCondition:
        orphaned = self.count()
        if not orphaned:
            return ReportCondition(ORPHANS_PRESENT, False, "NoOrphans")
        reason, _, message = self._journal.get_fact(ORPHAN_CAUSE).partition(": ")
        stays = f"{count(orphaned, 'object')} {'stays' if orphaned == 1 else 'stay'} at the edge"
        kept = _why_kept(requested_release(self._the_one() or {}), self._journal.get_fact(RELEASED), orphaned)
        text = f"{message or 'copies disappeared without being withdrawn'}; {stays}{kept}"
        return ReportCondition(ORPHANS_PRESENT, True, reason or "CopiesMissing", text)


def requested_release(config: Obj) -> str:
    """The number of orphans to delete, from the annotation of a SyncerConfig; empty without it."""
    annotations = (config.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(RELEASE_ORPHANS) or "")


def _why_kept(requested: str, released: str, orphaned: int) -> str:
    if requested and requested != str(orphaned):
        return f"; {RELEASE_ORPHANS} is {requested[:16]!r} and not their number"
    if requested and requested == released:
        return f"; {RELEASE_ORPHANS} was used for others: remove it, then set it for these"
    return ""


@dataclass(frozen=True, slots=True)
class StatusComposer:
    """Reads the state of the other parts, and changes nothing."""

    started: datetime
    now: Callable[[], datetime]
    journal: Journal
    problems: Problems
    progress: Progress
    downsync: Downsync
    upsync: Upsync
    orphans: Orphans
    edge: EdgeProbe
    nodes: NodeCapacity
    is_scope_listed: Callable[[], bool]  #: whether every kind of the SyncerConfigs was listed

    def counts(self) -> dict[str, int]:
        """Numbers of objects, by state."""
        return {
            "synced": sum(bool(entry.applied) and not entry.withdrawn for entry in self.journal.entries()),
            "pending": self.progress.pending,
            "failing": len(self.problems),
            "orphaned": self.orphans.count(),
            "upsynced": self.upsync.count(),
        }

    def status(self, before: Obj) -> Obj:
        """The status of `the-one` without the heartbeat.  `before`: the last one."""
        counts = self.counts()
        capacity, withheld = self.nodes.status(before if self._is_about_edge(before) else {})
        status: Obj = {
            "syncer": {"version": __version__, "started": format_seconds(self.started), TRANSLATES_GENERATIONS: True},
            "edge": dict(self.edge.info),
            "syncedThrough": self.progress.synced_through(),
            "objects": counts,
            "driftCorrected": self.downsync.writes.drift,
            "problems": self.problems.listed(),
            "problemsOmitted": self.problems.omitted,
            **capacity,
        }
        synced = self._synced(counts["failing"])
        conditions = [self.edge.condition(), self.orphans.condition(), synced, *withheld]
        return with_conditions(status, conditions, before, self.now())

    def _is_about_edge(self, report: Obj) -> bool:
        """Whether a report does not name another cluster."""
        reported, edge = report.get("edge"), self.edge.info.get("uid")
        return not edge or not isinstance(reported, dict) or reported.get("uid") in (None, edge)

    def _synced(self, failing: int) -> ReportCondition:
        if failing:
            return ReportCondition("Synced", False, "Failing", f"{count(failing, 'object')} cannot be synced")
        if self.progress.pending:
            return ReportCondition("Synced", False, "Pending", "changes are being applied")
        if not self.is_scope_listed():
            return ReportCondition("Synced", False, "Pending", "the mailbox is being listed")
        return ReportCondition("Synced", True, "AllSynced")
