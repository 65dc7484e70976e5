"""Writes conditions and Events of machines that are not placed or not delivered, limited in rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple

from farflung.apis.globalscheduler.names import DELIVERED
from farflung.apis.names import POD_SCHEDULED
from farflung.client.errors import NotFound
from farflung.controllers.status_summarizer.health import ANY, CopyProblem, parse_syncer_report
from farflung.machinery import times
from farflung.machines import statuses
from farflung.machines.binder import MachineBinder, event_object
from farflung.machines.context import SchedulerContext
from farflung.machines.engine.values import SiteKey
from farflung.machines.statuses import find_condition
from farflung.machines.subjects import POD, ObservedSubject, SchedulingSubject, SyncTargetKey
from farflung.placement.names import THE_ONE, GroupResource, Part
from farflung.runtime.cache import Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer
from farflung.runtime.recorder import Recorder

STATUS_CONTROLLER: Final = "global-scheduler-status"
WRITE_PAUSE: Final = 5.0  #: seconds between two writes to the same object; doubles each time
MAX_WRITE_PAUSE: Final = 60.0
MAX_MESSAGE: Final = 1024
COMPONENT: Final = "global-scheduler"
DELIVERY_STATUS_CONTROLLER: Final = "global-scheduler-delivery-status"
POD_KIND: Final = GroupResource("", "pods")
#: reasons of syncers that are temporary, or that do not concern the machine
TRANSIENT_REASONS: Final = frozenset(
    {
        "Conflict",
        "Contested",
        "Garbled",
        "InternalError",
        "KubeconfigError",
        "Refused",
        "ServerTimeout",
        "ServiceUnavailable",
        "Timeout",
        "TooManyRequests",
        "Unauthorized",
        "Unreachable",
    }
)
UNDECLARED: Final = "field not declared in schema"  #: in the message of a cluster without virtual machines
NO_EDGE_API: Final = CopyProblem(
    "NoEdgeAPI",
    "the workspace has no edge API, so its machines are not delivered; "
    "run `kubectl kcp bind apiexport root:espw:edge.kcp.io` in it",
)
NAME_TAKEN: Final = CopyProblem(
    "NameTaken", "a machine of another workspace has the same namespace and name at the SyncTarget"
)

RefusedParts = Mapping[Part, CopyProblem]


class _LastWrite(NamedTuple):
    at: float
    pause: float


class SchedulingStatusWriter:
    def __init__(
        self,
        context: SchedulerContext,
        binder: MachineBinder,
        recorder: Recorder,
    ) -> None:
        self._state = context.state
        self._binder = binder
        self._recorder = recorder
        self._monotonic = context.env.monotonic
        self._now = context.now
        self._wanted: dict[SchedulingSubject, tuple[str, str]] = {}  #: reason and message
        self._reported: dict[SchedulingSubject, _LastWrite] = {}
        self.controller: Controller[SchedulingSubject] = context.controller(STATUS_CONTROLLER, self.reconcile)

    def report(self, subject: SchedulingSubject, observed: ObservedSubject, reason: str, message: str) -> None:
        """Record that it is not placed."""
        message = message[:MAX_MESSAGE]
        if statuses.has_condition(observed.status, reason, message, _condition(subject)):
            self._wanted.pop(subject, None)
            return
        self._wanted[subject] = reason, message
        reported = self._reported.get(subject)
        if reported is None:
            self.controller.queue.add(subject)
        else:
            self.controller.queue.add_after(subject, max(0.0, reported.at + reported.pause - self._monotonic()))

    def forget(self, subject: SchedulingSubject) -> None:
        """It is placed or deleted."""
        self._wanted.pop(subject, None)
        self._reported.pop(subject, None)

    def record_scheduled(self, subject: SchedulingSubject, observed: ObservedSubject, message: str) -> None:
        self._recorder.record(event_object(subject, observed), "Normal", "Scheduled", message)

    async def reconcile(self, subject: SchedulingSubject, worker: int) -> float | None:
        wanted, observed = self._wanted.get(subject), self._state.observed(subject)
        if wanted is None or observed is None or not observed.pending or self._state.is_in_progress(observed.uid):
            return None
        reason, message = wanted
        if not statuses.has_condition(observed.status, reason, message, _condition(subject)):
            now = times.format_seconds(self._now())
            if subject.kind == POD:
                status = {"conditions": statuses.pod_conditions(observed.status, "False", reason, message, now)}
            else:
                status = statuses.unplaced_allocation_status(observed, reason, message, now)
            try:
                await self._binder.write_status(subject, observed, status)
            except NotFound:
                return None
            self._recorder.record(event_object(subject, observed), "Warning", "FailedScheduling", message)
            before = self._reported.get(subject)
            pause = WRITE_PAUSE if before is None else min(MAX_WRITE_PAUSE, 2 * before.pause)
            self._reported[subject] = _LastWrite(self._monotonic(), pause)
        if self._wanted.get(subject) == wanted:
            del self._wanted[subject]
        return None


def _condition(subject: SchedulingSubject) -> str:
    return POD_SCHEDULED if subject.kind == POD else statuses.PLACED


def decode_refusals(document: bytes) -> RefusedParts:
    """Problems of Pods in a syncer's report."""
    return {part: cause for part, cause in parse_syncer_report(document).refused.items() if part.kind == POD_KIND}


class DeliveryProblem(NamedTuple):
    site: SiteKey
    cause: CopyProblem


@dataclass(frozen=True, slots=True)
class DeliverySources:
    mailbox_of: Callable[[SiteKey], str]  #: the name of a site's mailbox; empty: none
    cluster_of: Callable[[str], str]  #: the logical cluster of a mailbox
    target_of: Callable[[SiteKey], SyncTargetKey | None]
    unserved: Callable[[SiteKey], AbstractSet[str]]  #: workspaces with machines on a site and without the edge API
    displaced: Callable[[SiteKey], AbstractSet[SchedulingSubject]]  #: machines that lost a name conflict


class DeliveryStatusWriter:
    def __init__(
        self,
        context: SchedulerContext,
        binder: MachineBinder,
        recorder: Recorder,
        configs: Informer[RefusedParts],
        sources: DeliverySources,
    ) -> None:
        self._state = context.state
        self._configs = configs
        self._binder = binder
        self._recorder = recorder
        self._sources = sources
        self._monotonic = context.env.monotonic
        self._now = context.now
        self._sites: dict[str, set[SiteKey]] = {}  #: by mailbox
        self._problems: dict[SiteKey, dict[SchedulingSubject, CopyProblem]] = {}
        self._reported: dict[SchedulingSubject, DeliveryProblem] = {}
        self.controller: Controller[SchedulingSubject] = context.controller(DELIVERY_STATUS_CONTROLLER, self.reconcile)

    # --- triggers -------------------------------------------------------------------------------------

    def on_subject(self, subject: SchedulingSubject, observed: ObservedSubject | None) -> None:
        """Enqueue a machine with an outdated status, unless it is being bound."""
        if observed is None or not observed.status_outdated or self._state.is_in_progress(observed.uid):
            return
        if subject not in self._reported:
            self.controller.queue.add(subject)

    def sites_of(self, mailbox: str) -> list[SiteKey]:
        return sorted(self._sites.get(mailbox, ()))

    def update_mailbox(self, mailbox: str) -> None:
        """The report of the mailbox's syncer changed."""
        for site in self.sites_of(mailbox):
            self.update_site(site)

    def update_site(self, site: SiteKey) -> None:
        """The machines of the site or their problems changed."""
        target, before = self._sources.target_of(site), self._problems.get(site, {})
        if target is None and not before:
            return
        now, after = self._monotonic(), {} if target is None else self._find_problems(site)
        for subject in before.keys() - after.keys():
            self._state.accept(subject, site)
            self._reported.pop(subject, None)
            self.controller.queue.add(subject)
        refused = self._refused_at(site) if after else {}
        for subject, cause in after.items():
            if cause == NAME_TAKEN or (_part(subject.key) in refused and is_refusal(cause)):
                self._state.refuse(subject, site, now)
            if self._reported.get(subject) != DeliveryProblem(site, cause):
                self._reported[subject] = DeliveryProblem(site, cause)
                self.controller.queue.add(subject)
        if after:
            self._problems[site] = after
        else:
            self._problems.pop(site, None)

    def _find_problems(self, site: SiteKey) -> dict[SchedulingSubject, CopyProblem]:
        refused, unserved = self._refused_at(site), self._sources.unserved(site)
        found: dict[SchedulingSubject, CopyProblem] = dict.fromkeys(sorted(self._sources.displaced(site)), NAME_TAKEN)
        for subject in self._state.subjects_at(site) if refused or unserved else ():
            if subject.kind != POD or subject in found:
                continue
            if subject.key.cluster in unserved:
                found[subject] = NO_EDGE_API
            elif (cause := _find_problem(refused, subject.key)) is not None:
                found[subject] = cause
        return found

    def _refused_at(self, site: SiteKey) -> RefusedParts:
        name = self._sources.mailbox_of(site)
        self._sites.setdefault(name, set()).add(site)
        return self._configs.cache.get(Key(self._sources.cluster_of(name), "", THE_ONE)) or {}

    # --- writes ---------------------------------------------------------------------------------------

    async def reconcile(self, subject: SchedulingSubject, worker: int) -> float | None:
        problem = self._reported.get(subject)
        if self._state.observed(subject) is None:
            return None
        try:
            found = await self._binder.fetch(subject)
        except NotFound:
            return None
        reason, message = ("", "") if problem is None else (problem.cause.reason, _message(problem))
        now = times.format_seconds(self._now())
        status = statuses.bound_pod_status(found, reason, message, now)
        if status is None:
            return None
        metadata = found["metadata"]
        as_found = ObservedSubject(metadata["uid"], metadata["resourceVersion"])
        try:
            await self._binder.write_status(subject, as_found, status)
        except NotFound:
            return None
        if reason and reason != find_condition(found.get("status") or {}, DELIVERED).get("reason"):
            self._recorder.record(event_object(subject, as_found), "Warning", "FailedDelivery", message)
        return None


def _find_problem(refused: RefusedParts, key: Key) -> CopyProblem | None:
    """The problem of one machine, or of all Pods: then the mailbox serves no Pods, and existing machines stay."""
    return refused.get(_part(key)) or refused.get(Part(POD_KIND, "", ANY))


def is_refusal(cause: CopyProblem) -> bool:
    """Whether the cluster refuses the machine.  Kubernetes answers 500 without a reason for unknown fields."""
    return cause != NO_EDGE_API and (cause.reason not in TRANSIENT_REASONS or UNDECLARED in cause.message)


def _part(key: Key) -> Part:
    return Part(POD_KIND, key.namespace, key.name)


def _message(problem: DeliveryProblem) -> str:
    if problem.cause in (NO_EDGE_API, NAME_TAKEN):
        return problem.cause.message
    message = problem.cause.message
    known = f"the cluster supports no virtual machines: {message}" if UNDECLARED in message else message
    return f"the syncer cannot apply it to {problem.site.name}{f': {known}' if known else ''}"
