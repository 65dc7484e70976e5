"""Which sites the author of a machine or an Allocation may use.

A site without a SyncTarget is open to all.  Another one needs the verb `place` on a Location that selects its
SyncTarget.  The scheduler's own EdgePlacements have its rights, so it checks those of the authors before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from farflung.apis.edge.authors import Author
from farflung.controllers.placing_rights.controller import PlacingRights
from farflung.controllers.placing_rights.decide import RightKey
from farflung.machinery.selectors import Labels
from farflung.machines.engine.values import SiteKey
from farflung.machines.subjects import SchedulingSubject
from farflung.placement.types import Location, PlacingRight
from farflung.runtime.cache import CacheChange, Key

NOT_ALLOWED: Final = "closed to its author"
NO_AUTHOR: Final = "closed, because its author is not recorded"
REVIEWING: Final = "waiting for a review of its author's rights"
NOT_REVIEWED: Final = "closed, because the rights of its author cannot be reviewed"


def closing_reason(right: PlacingRight, locations: Mapping[str, Location], labels: Labels) -> str:
    """Why a site is closed to an author with this right; empty: it is open.  `locations`: of the workspace of its
    SyncTarget, by name; `labels`: of the SyncTarget."""
    named = (location for name in right.names if (location := locations.get(name)) is not None)
    selects = any(one.instances is not None and one.instances.matches(labels) for one in named)
    return "" if right.everywhere or selects else NOT_ALLOWED


class SiteRights:
    def __init__(
        self,
        rights: PlacingRights,
        targets: Callable[[], Iterable[tuple[SiteKey, Key]]],
        labels: Callable[[Key], Labels],
    ) -> None:
        """`targets`: sites with their SyncTargets; `labels`: of a SyncTarget."""
        self._rights = rights
        self._targets = targets
        self._labels = labels
        self._locations: dict[str, dict[str, Location]] = {}  #: by workspace and name
        self._subjects: dict[Author, set[SchedulingSubject]] = {}
        self._known: dict[Author, dict[str, PlacingRight]] = {}  #: of authors with subjects, by workspace
        self._closed: dict[Author | None, Mapping[SiteKey, str]] = {}

    # --- queries ----------------------------------------------------------------------------------

    def closed(self, author: Author | None) -> Mapping[SiteKey, str]:
        """The sites that are not available to an author, with the reason."""
        found = self._closed.get(author)
        if found is None:
            reasons = [(site, self._reason(author, target)) for site, target in self._targets()]
            found = self._closed[author] = {site: reason for site, reason in reasons if reason}
        return found

    def may_use(self, author: Author | None, target: Key) -> bool | None:
        """None: not known."""
        reason = self._reason(author, target)
        return not reason if reason in ("", NOT_ALLOWED) else None

    def _reason(self, author: Author | None, target: Key) -> str:
        if author is None:
            return NO_AUTHOR
        key = RightKey(author, target.cluster)
        if (right := self.known(key)) is None:
            self._rights.want(key)  # it may call `put`
            right = self.known(key)
        if right is None:
            return NOT_REVIEWED if self._rights.is_failing(key) else REVIEWING
        return closing_reason(right, self._locations.get(target.cluster, {}), self._labels(target))

    def known(self, key: RightKey) -> PlacingRight | None:
        return self._known.get(key.author, {}).get(key.cluster)

    def has_subjects(self, author: Author) -> bool:
        return author in self._subjects

    def subjects(self, *authors: Author) -> list[SchedulingSubject]:
        """By default those of all authors."""
        found = [self._subjects.get(author, set()) for author in authors or self._subjects]
        return sorted(set().union(*found))

    # --- changes ----------------------------------------------------------------------------------

    def put_subject(self, subject: SchedulingSubject, before: Author | None, after: Author | None) -> None:
        if before is not None and before != after:
            self._subjects[before].discard(subject)
            if not self._subjects[before]:
                for known in (self._subjects, self._known, self._closed):
                    known.pop(before, None)
        if after is not None:
            self._subjects.setdefault(after, set()).add(subject)

    def put(self, key: RightKey, right: PlacingRight) -> None:
        self._known.setdefault(key.author, {})[key.cluster] = right
        self._closed.pop(key.author, None)

    def forget(self, key: RightKey) -> None:
        """The right is being reviewed again, or cannot be reviewed."""
        self._known.get(key.author, {}).pop(key.cluster, None)
        self._closed.pop(key.author, None)

    def on_site(self) -> None:
        """A site has another SyncTarget."""
        self._closed.clear()

    def on_location(self, change: CacheChange[Location]) -> list[SchedulingSubject]:
        """As `on_selection`."""
        cluster, name = change.key.cluster, change.key.name
        if change.new is None:
            self._locations.get(cluster, {}).pop(name, None)
        else:
            self._locations.setdefault(cluster, {})[name] = change.new
        return self.on_selection(cluster)

    def on_selection(self, cluster: str) -> list[SchedulingSubject]:
        """Locations of a workspace may select other SyncTargets.  Returns the subjects for which other sites may be
        closed: only rights to single Locations depend on what these select."""
        authors = [author for author, rights in self._known.items() if cluster in rights and rights[cluster].names]
        for author in authors:
            self._closed.pop(author, None)
        return self.subjects(*authors) if authors else []
