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
        on_change: Callable[[SiteKey], None],
    ) -> None:
        """`on_change`: called when the machines to deliver to a site change."""
        self._state = context.state
        self._clusters = clusters
        self._binder = binder
        self._on_change = on_change
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

    def on_subject(self, subject: SchedulingSubject, observed: ObservedSubject | None) -> None:
        if subject.kind != POD:
            return
        site = None if observed is None else observed.site
        may_be_wrong = observed is not None and site is not None and (observed.label or self._state.has_target(site))
        if may_be_wrong or self._states:
            self._check_all(subject, site)

    def on_target(self, site: SiteKey) -> None:
        """The SyncTarget of the site changed."""
        for subject in self._state.machines(site):
            self._check_all(subject, site)

    def _check_all(self, subject: SchedulingSubject, site: SiteKey | None) -> None:
        """Check the machine and those that may be in a name conflict with it."""
        namesakes = [] if site is None else self._state.namesakes(subject, site)
        waiting = self._waiting.get((subject.key.namespace, subject.key.name), set())
        for one in sorted({subject, *namesakes, *waiting}):
            self._check(one)

    def _check(self, subject: SchedulingSubject) -> None:
        observed = self._state.observed(subject)
        site = None if observed is None else observed.site
        if observed is None or site is None:
            self._note(subject, None)
            return
        wanted = self._desired_label(subject, observed, site)
        is_displaced = not wanted and observed.finished_at is None and self._state.has_target(site)
        clearing = bool(observed.label) and not wanted
        self._note(subject, _LabelProblem(site, clearing, is_displaced) if clearing or is_displaced else None)
        if wanted != observed.label:
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
            self._on_change(site)

    # --- decisions ------------------------------------------------------------------------------------

    def _desired_label(self, subject: SchedulingSubject, observed: ObservedSubject, site: SiteKey) -> str:
        """The label that it must have.  A finished machine is not run again elsewhere."""
        target = self._clusters.target_key(site)
        if target is None:
            return "" if self._clusters.names_no_target(site) else observed.label
        if observed.finished_at is not None and not (observed.label and observed.returned_from == target.name):
            return ""
        return statuses.delivery_label(site) if self._first(subject, site) == subject else ""

    def _first(self, subject: SchedulingSubject, site: SiteKey) -> SchedulingSubject | None:
        """The machine of this name that is delivered."""
        found = self._state.namesakes(subject, site)
        if found == [subject]:
            return subject
        ranked = [(self._rank(one), one) for one in found if self._may_be_delivered(one)]
        return min(ranked)[1] if ranked else None

    def _may_be_delivered(self, subject: SchedulingSubject) -> bool:
        observed = self._state.observed(subject)
        return (
            observed is not None
            and observed.site is not None
            and (observed.finished_at is None or bool(observed.label))
        )

    def _rank(self, subject: SchedulingSubject) -> tuple[int, bool, str]:
        observed = self._state.observed(subject)
        assert observed is not None and observed.site is not None
        target = self._clusters.target_key(observed.site)
        users = [] if target is None else self._clusters.users_of(target)
        place = users.index(observed.site) if observed.site in users else len(users)
        return place, observed.label != statuses.delivery_label(observed.site), observed.created

    # --- writes ---------------------------------------------------------------------------------------

    async def reconcile(self, subject: SchedulingSubject, worker: int) -> float | None:
        observed = self._state.observed(subject)
        site = None if observed is None else observed.site
        if observed is None or site is None or self._state.is_in_progress(observed.uid):
            return None
        if not self._clusters.is_target_resolved(site):
            return LABEL_RETRY
        wanted = self._desired_label(subject, observed, site)
        if wanted == observed.label:
            return None
        if wanted and any(self._is_labeled(one) for one in self._state.namesakes(subject, site) if one != subject):
            return LABEL_RETRY
        with suppress(NotFound):
            await self._binder.set_label(subject, observed, wanted or None)
        return None

    def _is_labeled(self, subject: SchedulingSubject) -> bool:
        observed = self._state.observed(subject)
        return observed is not None and bool(observed.label)
