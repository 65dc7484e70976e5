"""What a report says of a syncer: how far it is, what it has, and what does not work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from farflung import __version__
from farflung.lib.words import count
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.syncer.downsync import Downsync
from farflung.syncer.edge_watch import EdgeWatch
from farflung.syncer.journal import Journal
from farflung.syncer.nodes import Nodes
from farflung.syncer.orphans import Orphans
from farflung.syncer.report import Condition, with_conditions
from farflung.syncer.troubles import Progress, Troubles
from farflung.syncer.upsync import Upsync


@dataclass(frozen=True, slots=True)
class Summary:
    """Reads what the others know, and changes nothing."""

    started: datetime
    now: Callable[[], datetime]
    journal: Journal
    troubles: Troubles
    progress: Progress
    downsync: Downsync
    upsync: Upsync
    orphans: Orphans
    edge: EdgeWatch
    nodes: Nodes
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

    def _synced(self, failing: int) -> Condition:
        if failing:
            return Condition("Synced", False, "Failing", f"{count(failing, 'object')} cannot be synced")
        if self.progress.pending:
            return Condition("Synced", False, "Pending", "changes are on their way")
        if not self.has_heard_all():
            return Condition("Synced", False, "Pending", "what is wanted is still being read")
        return Condition("Synced", True, "AllSynced")
