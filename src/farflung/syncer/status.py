"""What stays at the edge although its copy is gone, because nobody withdrew it; and whether somebody says that it may
go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from farflung.apis.edge.names import RELEASE_ORPHANS
from farflung.lib.version import __version__
from farflung.lib.words import count
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.syncer.downsync import Downsync
from farflung.syncer.edge import EdgeProbe
from farflung.syncer.journal import SUSPICION, Journal
from farflung.syncer.nodes import NodeCapacity
from farflung.syncer.report import Problems, Progress, ReportCondition, with_conditions
from farflung.syncer.upsync import Upsync

RELEASED: Final = "released"  #: fact of the journal: the number that was let go, as long as it stays in its annotation


class Orphans:
    def __init__(self, journal: Journal, the_one: Callable[[], Obj | None]) -> None:
        """`the_one`: as it is in the mailbox; None if that is not known."""
        self._journal = journal
        self._the_one = the_one

    def count(self) -> int:
        return sum(entry.orphaned for entry in self._journal.entries())

    @property
    def is_told_to_release(self) -> bool:
        """Or that nothing is to be released any more."""
        config = self._the_one()
        return config is not None and release(config) != self._journal.get_fact(RELEASED)

    def may_go(self) -> bool:
        """If somebody says so, and how many there are; once, because what is said of these need not be meant of
        others."""
        said = release(self._the_one() or {})
        self._journal.set_fact(RELEASED, said)
        return bool(said) and said == str(self.count())

    def condition(self) -> ReportCondition:
        """Whether the hub has all that it had."""
        orphaned = self.count()
        if not orphaned:
            return ReportCondition("HubUnchanged", True, "AsBefore")
        reason, _, message = self._journal.get_fact(SUSPICION).partition(": ")
        stays = f"{count(orphaned, 'object')} {'stays' if orphaned == 1 else 'stay'} at the edge"
        kept = _why_kept(release(self._the_one() or {}), self._journal.get_fact(RELEASED), orphaned)
        told = f"{message or 'copies are gone, and nobody withdrew them'}; {stays}{kept}"
        return ReportCondition("HubUnchanged", False, reason or "Orphans", told)


def release(config: Obj) -> str:
    """The number of orphans that a configuration says may go; empty if it says nothing of them."""
    annotations = (config.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(RELEASE_ORPHANS) or "")


def _why_kept(said: str, released: str, orphaned: int) -> str:
    """What is wrong with a number of orphans that somebody says may go, of those that are left."""
    if said and said != str(orphaned):
        return f"; {RELEASE_ORPHANS} does not say their number, but {said[:16]!r}"
    if said and said == released:
        return f"; {RELEASE_ORPHANS} was said of others, and has to be removed before it is said of these"
    return ""


@dataclass(frozen=True, slots=True)
class StatusComposer:
    """Reads what the others know, and changes nothing."""

    started: datetime
    now: Callable[[], datetime]
    journal: Journal
    troubles: Problems
    progress: Progress
    downsync: Downsync
    upsync: Upsync
    orphans: Orphans
    edge: EdgeProbe
    nodes: NodeCapacity
    has_heard_all: Callable[[], bool]  #: of whatever is wanted

    def counts(self) -> dict[str, int]:
        """Of objects, by how they are."""
        return {
            "synced": sum(bool(entry.applied) and not entry.withdrawn for entry in self.journal.entries()),
            "pending": self.progress.pending,
            "failing": len(self.troubles),
            "orphaned": self.orphans.count(),
            "upsynced": self.upsync.count(),
        }

    def status(self, before: Obj) -> Obj:
        """Of `the-one`, given the one before, without the heartbeat."""
        counts = self.counts()
        capacity, withheld = self.nodes.told(before if self._is_about_edge(before) else {})
        status: Obj = {
            "syncer": {"version": __version__, "started": format_seconds(self.started)},
            "edge": dict(self.edge.said),
            "syncedThrough": self.progress.through(),
            "objects": counts,
            "driftCorrected": self.downsync.tally.drift,
            "problems": self.troubles.listed(),
            "problemsOmitted": self.troubles.omitted,
            **capacity,
        }
        synced = self._synced(counts["failing"])
        conditions = [self.edge.condition(), self.orphans.condition(), synced, *withheld]
        return with_conditions(status, conditions, before, self.now())

    def _is_about_edge(self, report: Obj) -> bool:
        """Or may be: nobody says that it is about another cluster than ours."""
        said, edge = report.get("edge"), self.edge.said.get("uid")
        return not edge or not isinstance(said, dict) or said.get("uid") in (None, edge)

    def _synced(self, failing: int) -> ReportCondition:
        if failing:
            return ReportCondition("Synced", False, "Failing", f"{count(failing, 'object')} cannot be synced")
        if self.progress.pending:
            return ReportCondition("Synced", False, "Pending", "changes are on their way")
        if not self.has_heard_all():
            return ReportCondition("Synced", False, "Pending", "what is wanted is still being read")
        return ReportCondition("Synced", True, "AllSynced")
