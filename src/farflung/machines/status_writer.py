"""Writes conditions and Events of machines that are not placed or not delivered, limited in rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from farflung.apis.globalscheduler.names import DELIVERED
from farflung.apis.names import POD_SCHEDULED
from farflung.client.errors import NotFound
from farflung.controllers.status_summarizer.health import CopyProblem, parse_syncer_report
from farflung.machinery import times
from farflung.machines import statuses
from farflung.machines.binder import MachineBinder, event_object
from farflung.machines.context import SchedulerContext
from farflung.machines.delivery import Delivery, DeliveryController, SiteMailboxes
from farflung.machines.engine.values import SiteKey
from farflung.machines.failover import MachineRefusal
from farflung.machines.statuses import find_condition
from farflung.machines.subjects import POD, ObservedSubject, SchedulingSubject
from farflung.placement.names import (
    KIND_IN_USE,
    NAME_IN_USE,
    NAMESPACE_IN_USE,
    NAMESPACE_RESERVED,
    PLACING_NOT_ALLOWED,
    PODS,
    THE_ONE,
    ObjectRef,
)
from farflung.placement.syncer_config import ANY
from farflung.runtime.cache import Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer
from farflung.runtime.recorder import Recorder

STATUS_CONTROLLER: Final = "global-scheduler-status"
WRITE_PAUSE: Final = 5.0  #: seconds between two writes to the same object; doubles each time
MAX_WRITE_PAUSE: Final = 60.0
MAX_MESSAGE: Final = 1024
DELIVERY_STATUS_CONTROLLER: Final = "global-scheduler-delivery-status"
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
ALL_PODS: Final = ObjectRef(PODS, "", ANY)
REFUSED_BY_CLUSTER: Final = "the Cluster refused it"
#: reasons for which a machine without a copy is bound elsewhere, and why it is evicted
WITHOUT_COPY: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (NAME_IN_USE, NAMESPACE_IN_USE, NAMESPACE_RESERVED, KIND_IN_USE), "its name or namespace is in use there"
    ),
    PLACING_NOT_ALLOWED: "its author may not place there",
}

RefusedParts = Mapping[ObjectRef, CopyProblem]


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
    return {ref: cause for ref, cause in parse_syncer_report(document).refused.items() if ref.resource == PODS}


class DeliveryProblem(NamedTuple):
    """Why a bound machine is not delivered."""

    site: SiteKey
    reason: str
    message: str
    is_refused: bool = False  #: it is bound elsewhere if that lasts
    by_cluster: bool = False  #: its cluster refuses it
    why: str = ""  #: it is evicted


@dataclass(frozen=True, slots=True)
class DeliverySources:
    """Where the problems of bound machines are found."""

    configs: Informer[RefusedParts]
    mailboxes: SiteMailboxes
    deliveries: DeliveryController


class DeliveryStatusWriter:
    """Reports machines that are not delivered, and has those evicted that are refused."""

    def __init__(
        self, context: SchedulerContext, binder: MachineBinder, recorder: Recorder, sources: DeliverySources
    ) -> None:
        self._state = context.state
        self._binder = binder
        self._recorder = recorder
        self._sources = sources
        self._monotonic = context.env.monotonic
        self._now = context.now
        self._reported: dict[SchedulingSubject, DeliveryProblem] = {}
        self.controller: Controller[SchedulingSubject] = context.controller(DELIVERY_STATUS_CONTROLLER, self.reconcile)

    # --- triggers -------------------------------------------------------------------------------------

    def on_machine(self, subject: SchedulingSubject, observed: ObservedSubject | None) -> None:
        """A machine changed or was deleted.  Its status may be outdated, unless it is being bound."""
        self._check(subject)
        is_outdated = observed is not None and observed.status_outdated and subject not in self._reported
        if is_outdated and observed is not None and not self._state.is_in_progress(observed.uid):
            self.controller.queue.add(subject)

    def on_delivery(self, delivery: Delivery) -> None:
        """The problems of an EdgePlacement changed."""
        for subject in self._state.machines(delivery.site):
            if subject.key.cluster == delivery.workspace:
                self._check(subject)

    def on_site(self, site: SiteKey) -> None:
        """The SyncTarget, the mailbox or the report of the syncer changed."""
        for subject in self._state.machines(site):
            self._check(subject)

    def _check(self, subject: SchedulingSubject) -> None:
        observed = self._state.observed(subject)
        site = None if observed is None or observed.finished_at is not None else observed.site
        problem = None if site is None else self._find_problem(subject.key, site)
        if problem is not None and problem.is_refused:
            refusal = MachineRefusal(problem.site, self._monotonic(), problem.by_cluster, problem.why)
            self._state.refuse(subject, refusal)
        else:
            self._state.accept(subject)
        if problem == self._reported.get(subject):
            return
        if problem is None:
            del self._reported[subject]
        else:
            self._reported[subject] = problem
        self.controller.queue.add(subject)

    def _find_problem(self, key: Key, site: SiteKey) -> DeliveryProblem | None:
        if not self._state.has_target(site):
            return None
        mailbox = self._sources.mailboxes.cluster(site)
        reported = self._sources.configs.cache.get(Key(mailbox, "", THE_ONE)) or {}
        if cause := reported.get(ObjectRef(PODS, key.namespace, key.name)):
            refused = is_refusal(cause)
            return DeliveryProblem(site, cause.reason, _message(cause, site), refused, refused, REFUSED_BY_CLUSTER)
        if cause := self._sources.deliveries.problem(key, site):
            why = WITHOUT_COPY.get(cause.reason, "")
            return DeliveryProblem(site, cause.reason, cause.message, bool(why), why=why)
        if cause := reported.get(ALL_PODS):  # the mailbox serves none: existing machines stay
            return DeliveryProblem(site, cause.reason, _message(cause, site))
        return None

    # --- writes ---------------------------------------------------------------------------------------

    async def reconcile(self, subject: SchedulingSubject, worker: int) -> float | None:
        problem = self._reported.get(subject)
        if self._state.observed(subject) is None:
            return None
        try:
            found = await self._binder.fetch(subject)
        except NotFound:
            return None
        reason, message = ("", "") if problem is None else (problem.reason, problem.message)
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


def is_refusal(cause: CopyProblem) -> bool:
    """Whether the cluster refuses the machine.  Kubernetes answers 500 without a reason for unknown fields."""
    return cause.reason not in TRANSIENT_REASONS or UNDECLARED in cause.message


def _message(cause: CopyProblem, site: SiteKey) -> str:
    message = cause.message
    known = f"the cluster supports no virtual machines: {message}" if UNDECLARED in message else message
    return f"the syncer cannot apply it to {site.name}{f': {known}' if known else ''}"
