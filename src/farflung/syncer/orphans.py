"""What stays at the edge although its copy is gone, because nobody withdrew it; and whether somebody says that it may
go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from farflung.lib.words import count
from farflung.machinery.errors import Obj
from farflung.syncer.journal import Journal
from farflung.syncer.report import Condition
from farflung.syncer.serving import SUSPICION

RELEASE: Final = "edge.kcp.io/release-orphans"  #: annotation of `the-one`: so many orphans may go
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

    def condition(self) -> Condition:
        """Whether the hub has all that it had."""
        orphaned = self.count()
        if not orphaned:
            return Condition("HubUnchanged", True, "AsBefore")
        reason, _, message = self._journal.get_fact(SUSPICION).partition(": ")
        stays = f"{count(orphaned, 'object')} {'stays' if orphaned == 1 else 'stay'} at the edge"
        kept = _why_kept(release(self._the_one() or {}), self._journal.get_fact(RELEASED), orphaned)
        told = f"{message or 'copies are gone, and nobody withdrew them'}; {stays}{kept}"
        return Condition("HubUnchanged", False, reason or "Orphans", told)


def release(config: Obj) -> str:
    """The number of orphans that a configuration says may go; empty if it says nothing of them."""
    annotations = (config.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(RELEASE) or "")


def _why_kept(said: str, released: str, orphaned: int) -> str:
    """What is wrong with a number of orphans that somebody says may go, of those that are left."""
    if said and said != str(orphaned):
        return f"; {RELEASE} does not say their number, but {said[:16]!r}"
    if said and said == released:
        return f"; {RELEASE} was said of others, and has to be removed before it is said of these"
    return ""
