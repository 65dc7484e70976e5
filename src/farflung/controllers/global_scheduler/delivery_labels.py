"""Mark what is bound as something that is to be brought there, whenever a SyncTarget comes to stand for its Cluster,
and take the mark away from what is not.

EdgePlacements of ours select by this label.  Who binds a machine to a Cluster that names a SyncTarget puts it on; here
is done what comes later.  Of several machines that have the same namespace and name one is brought to a SyncTarget: one
of the Cluster that has the SyncTarget, then one that is there already, then the oldest.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from farflung.client.errors import NotFound
from farflung.controllers.global_scheduler import statuses
from farflung.controllers.global_scheduler.binder import MachineBinder
from farflung.controllers.global_scheduler.clusters import ClusterController
from farflung.controllers.global_scheduler.context import SchedulerContext
from farflung.controllers.global_scheduler.state import discard_from
from farflung.controllers.global_scheduler.subjects import POD, Delivery, ObservedSubject, SchedulingSubject
from farflung.runtime.controller import Controller
from farflung.scheduling.values import SiteKey

LABEL_CONTROLLER: Final = "global-scheduler-marking"
LABEL_RETRY: Final = 1.0  #: seconds after which somebody may have found out where a SyncTarget is


class _LabelProblem(NamedTuple):
    """What is wrong with one that is bound there."""

    site: SiteKey
    is_clearing: bool  #: it is marked, and is not to be
    is_displaced: bool  #: it is not brought there, because another one has its name


class DeliveryLabels:
    def __init__(
        self,
        context: SchedulerContext,
        clusters: ClusterController,
        binder: MachineBinder,
        tell: Callable[[SiteKey], None],
    ) -> None:
        """`tell`: called when the machines to deliver to a site change."""
        self._state = context.state
        self._clusters = clusters
        self._binder = binder
        self._tell = tell
        self._states: dict[SchedulingSubject, _LabelProblem] = {}
        self._clearing: dict[Delivery, set[SchedulingSubject]] = {}
        self._displaced: dict[SiteKey, set[SchedulingSubject]] = {}
        self._waiting: dict[tuple[str, str], set[SchedulingSubject]] = {}  #: for a name, by namespace and name
        self.controller: Controller[SchedulingSubject] = context.controller(LABEL_CONTROLLER, self.reconcile)

    def is_clearing(self, delivery: Delivery) -> bool:
        """Whether something of a workspace is marked that is not to be brought there.  What others have there is led by
        EdgePlacements of their own, and does not wait for it."""
        return delivery in self._clearing

    def displaced(self, site: SiteKey) -> set[SchedulingSubject]:
        """What is bound there, and is not brought there, because another one has its name."""
        return self._displaced.get(site, set())

    # --- hearing ----------------------------------------------------------------------------------

    def hear(self, subject: SchedulingSubject, seen: ObservedSubject | None) -> None:
        if subject.kind != POD:
            return
        site = None if seen is None else seen.site
        may_be_wrong = seen is not None and site is not None and (seen.mark or self._state.is_led(site))
        if may_be_wrong or self._states:
            self._check_all(subject, site)

    def look_at(self, site: SiteKey) -> None:
        """It has another SyncTarget, or none any more."""
        for subject in self._state.machines(site):
            self._check_all(subject, site)

    def _check_all(self, subject: SchedulingSubject, site: SiteKey | None) -> None:
        """It, and those that may have to give way to it, or may go now where it was."""
        namesakes = [] if site is None else self._state.together(subject, site)
        waiting = self._waiting.get((subject.key.namespace, subject.key.name), set())
        for one in sorted({subject, *namesakes, *waiting}):
            self._check(one)

    def _check(self, subject: SchedulingSubject) -> None:
        seen = self._state.seen(subject)
        site = None if seen is None else seen.site
        if seen is None or site is None:
            self._note(subject, None)
            return
        wanted = self._wanted(subject, seen, site)
        is_displaced = not wanted and seen.ended_at is None and self._state.is_led(site)
        clearing = bool(seen.mark) and not wanted
        self._note(subject, _LabelProblem(site, clearing, is_displaced) if clearing or is_displaced else None)
        if wanted != seen.mark:
            self.controller.queue.add(subject)

    def _note(self, subject: SchedulingSubject, state: _LabelProblem | None) -> None:
        before, name = self._states.get(subject), (subject.key.namespace, subject.key.name)
        if state == before:
            return
        if before is not None:
            del self._states[subject]
            discard_from(self._clearing, Delivery(subject.key.cluster, before.site), subject)
            discard_from(self._displaced, before.site, subject)
            discard_from(self._waiting, name, subject)
        if state is not None:
            self._states[subject] = state
            if state.is_clearing:
                self._clearing.setdefault(Delivery(subject.key.cluster, state.site), set()).add(subject)
            if state.is_displaced:
                self._displaced.setdefault(state.site, set()).add(subject)
                self._waiting.setdefault(name, set()).add(subject)
        for site in sorted({one.site for one in (before, state) if one is not None}):
            self._tell(site)

    # --- deciding ---------------------------------------------------------------------------------

    def _wanted(self, subject: SchedulingSubject, seen: ObservedSubject, site: SiteKey) -> str:
        """The mark that it should have.  What has ended is run nowhere else, and not again."""
        target = self._clusters.key_of_target(site)
        if target is None:
            return "" if self._clusters.is_inventory(site) else seen.mark
        if seen.ended_at is not None and not (seen.mark and seen.returned_from == target.name):
            return ""
        return statuses.delivery_label(site) if self._first(subject, site) == subject else ""

    def _first(self, subject: SchedulingSubject, site: SiteKey) -> SchedulingSubject | None:
        """Which of the machines of this name is brought to the SyncTarget."""
        found = self._state.together(subject, site)
        if found == [subject]:
            return subject
        ranked = [(self._rank(one), one) for one in found if self._counts(one)]
        return min(ranked)[1] if ranked else None

    def _counts(self, subject: SchedulingSubject) -> bool:
        seen = self._state.seen(subject)
        return seen is not None and seen.site is not None and (seen.ended_at is None or bool(seen.mark))

    def _rank(self, subject: SchedulingSubject) -> tuple[int, bool, str]:
        seen = self._state.seen(subject)
        assert seen is not None and seen.site is not None
        target = self._clusters.key_of_target(seen.site)
        users = [] if target is None else self._clusters.users_of(target)
        place = users.index(seen.site) if seen.site in users else len(users)
        return place, seen.mark != statuses.delivery_label(seen.site), seen.created

    # --- doing ------------------------------------------------------------------------------------

    async def reconcile(self, subject: SchedulingSubject, worker: int) -> float | None:
        seen = self._state.seen(subject)
        site = None if seen is None else seen.site
        if seen is None or site is None or self._state.is_under_way(seen.uid):
            return None
        if not self._clusters.is_found(site):
            return LABEL_RETRY
        wanted = self._wanted(subject, seen, site)
        if wanted == seen.mark:
            return None
        if wanted and any(self._is_marked(one) for one in self._state.together(subject, site) if one != subject):
            return LABEL_RETRY
        with suppress(NotFound):
            await self._binder.mark(subject, seen, wanted or None)
        return None

    def _is_marked(self, subject: SchedulingSubject) -> bool:
        seen = self._state.seen(subject)
        return seen is not None and bool(seen.mark)
