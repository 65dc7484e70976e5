"""Sets and removes the delivery label of bound machines when the SyncTarget of their Cluster changes.

The scheduler's EdgePlacements select machines by this label.  A binding to a Cluster with a SyncTarget sets it; this
controller handles later changes.  Of several machines with the same namespace and name one is delivered: by the Cluster
that uses the SyncTarget first, then the one already delivered, then the oldest.
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
LABEL_RETRY: Final = 1.0  #: seconds until the path of a SyncTarget may be resolved


class _LabelProblem(NamedTuple):
    """The delivery label of a bound machine is wrong."""

    site: SiteKey
    is_clearing: bool  #: it has the label and must not
    is_displaced: bool  #: it is not delivered, because of a name conflict


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
        self._waiting: dict[
            tuple[str, str], set[SchedulingSubject]
        ] = {}  #: machines in a name conflict, by namespace and name
        self.controller: Controller[SchedulingSubject] = context.controller(LABEL_CONTROLLER, self.reconcile)

    def is_clearing(self, delivery: Delivery) -> bool:
        """Whether machines of the workspace still have a wrong label.  Other workspaces have EdgePlacements of their
        own."""
        return delivery in self._clearing

    def displaced(self, site: SiteKey) -> set[SchedulingSubject]:
        """Machines at the site that a name conflict keeps from delivery."""
        return self._displaced.get(site, set())

    # --- triggers -------------------------------------------------------------------------------------

    def hear(self, subject: SchedulingSubject, seen: ObservedSubject | None) -> None:
        if subject.kind != POD:
            return
        site = None if seen is None else seen.site
        may_be_wrong = seen is not None and site is not None and (seen.mark or self._state.is_led(site))
        if may_be_wrong or self._states:
            self._check_all(subject, site)

    def look_at(self, site: SiteKey) -> None:
        """The SyncTarget of the site changed."""
        for subject in self._state.machines(site):
            self._check_all(subject, site)

    def _check_all(self, subject: SchedulingSubject, site: SiteKey | None) -> None:
        """Check the machine and those that may be in a name conflict with it."""
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

    # --- decisions ------------------------------------------------------------------------------------

    def _wanted(self, subject: SchedulingSubject, seen: ObservedSubject, site: SiteKey) -> str:
        """The label that it must have.  A finished machine is not run again elsewhere."""
        target = self._clusters.key_of_target(site)
        if target is None:
            return "" if self._clusters.is_inventory(site) else seen.mark
        if seen.ended_at is not None and not (seen.mark and seen.returned_from == target.name):
            return ""
        return statuses.delivery_label(site) if self._first(subject, site) == subject else ""

    def _first(self, subject: SchedulingSubject, site: SiteKey) -> SchedulingSubject | None:
        """The machine of this name that is delivered."""
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

    # --- writes ---------------------------------------------------------------------------------------

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
