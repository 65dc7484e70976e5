"""Writes bindings, and evicts machines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import orjson

from farflung.apis.globalscheduler.names import ALLOCATIONS
from farflung.apis.names import PODS
from farflung.client.errors import ClientError, Refused, TooMany
from farflung.client.rest import Client
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.machines import statuses
from farflung.machines.context import SchedulerContext
from farflung.machines.engine.values import Site, SiteKey
from farflung.machines.failover import MachineRef
from farflung.machines.object_readers import InvalidRequestError, SubjectDecoder, read_request
from farflung.machines.subjects import ALLOCATION, BOUND_CLUSTER, POD, ObservedSubject, PlacedSubject, SchedulingSubject
from farflung.runtime.informer import Informer
from farflung.runtime.recorder import InvolvedObject, Recorder

EVICTION_PERIOD: Final = 1.0  #: seconds between two rounds of evictions


class MachineBinder:
    """`client_of`: the API of a subject's workspace; `delivers`: whether machines at a site are delivered to a
    SyncTarget."""

    def __init__(
        self,
        context: SchedulerContext,
        pods: Informer[ObservedSubject],
        allocations: Informer[ObservedSubject],
        client_of: Callable[[SchedulingSubject], Client],
        delivers: Callable[[SiteKey], bool | None],
    ) -> None:
        self._state = context.state
        self._informers = {True: pods, False: allocations}
        self._client_of = client_of
        self._delivers = delivers
        self._rebuilder = context.rebuilder
        self._env = context.env
        self._now = context.now
        self._log = context.log

    def _informer(self, subject: SchedulingSubject) -> Informer[ObservedSubject]:
        return self._informers[subject.kind == POD]

    async def bind(self, placed: PlacedSubject) -> bool:
        """Whether it is bound.  An error that leaves the result open is retried: until then the reservation stays.  A
        rebuild of the engine waits for one attempt only, and the new engine keeps the reservation."""
        failures, uid = 0, placed.request.uid
        while self._state.is_in_progress(uid):
            self._state.begin_write(uid)
            try:
                await self._write(placed)
            except ClientError as error:
                if _is_final(error):
                    self._log.info("not bound", v=2, key=str(placed.subject.key), err=str(error))
                    await self.verify(placed.subject, uid)
                    return False
                failures += 1
                self._log_error(placed.subject, error)
                if not self._rebuilder.clean.is_set():
                    return False
                await self._env.sleep(self._env.backoff.delay(failures, error.retry_after))
                continue
            self._state.end_write(uid, self._env.monotonic())
            return True
        return False

    async def verify(self, subject: SchedulingSubject, uid: str) -> None:
        """Read the object after an unclear write: the cache gets its binding, or the write counts as failed.  If the
        object cannot be read, its reservation stays until the next attempt."""
        try:
            self._informer(subject).assume(await self.fetch(subject))
        except ClientError as error:
            if not _is_final(error):
                self._log_error(subject, error)
                self._state.end_write(uid, self._env.monotonic())
                return
        self._state.fail_write(uid, self._env.monotonic())

    async def fetch(self, subject: SchedulingSubject) -> Obj:
        collection = PODS if subject.kind == POD else ALLOCATIONS
        return await self._client_of(subject).get(collection, subject.key.name, subject.key.namespace)

    async def unbind(self, subject: SchedulingSubject, found: Obj, refused_by: SiteKey | None) -> None:
        """Unbind the Pod if it is unchanged.  `refused_by`: the Cluster that refused it."""
        patch = statuses.unbind_patch(found, refused_by, self._now())
        client = self._client_of(subject)
        self._informer(subject).assume(await client.patch(PODS, subject.key.name, patch, subject.key.namespace))

    # --- writes -----------------------------------------------------------------------------------

    async def _write(self, placed: PlacedSubject) -> None:
        if placed.subject.kind == POD:
            await self._bind_pod(placed)
        else:
            await self._bind_allocation(placed)

    async def _bind_pod(self, placed: PlacedSubject) -> None:
        subject, chosen = placed.subject, placed.decision.chosen[0]
        site = self._state.engine.site(chosen.site) or Site(chosen.site)
        labels = statuses.delivery_labels(chosen.site) if self._delivers(chosen.site) else {}
        binding = statuses.binding(subject.key, self._latest(placed), chosen, site, labels)
        await self._client_of(subject).create(PODS, binding, subject.key.namespace, "binding")

    def _latest(self, placed: PlacedSubject) -> ObservedSubject:
        """The latest observation, unless the request changed: then the old resourceVersion lets the server refuse the
        write."""
        observed = self._state.observed(placed.subject)
        if observed is None or observed.request is None or observed.uid != placed.observed.uid:
            return placed.observed
        same = (observed.request.items, observed.request.selector) == (placed.request.items, placed.request.selector)
        return observed if same else placed.observed

    async def set_label(self, subject: SchedulingSubject, observed: ObservedSubject, label: str | None) -> None:
        """Set the delivery label if the Pod is unchanged; None removes it."""
        patch = {
            "metadata": {"uid": observed.uid, "resourceVersion": observed.version, "labels": {BOUND_CLUSTER: label}}
        }
        client, key = self._client_of(subject), subject.key
        self._informer(subject).assume(await client.patch(PODS, key.name, patch, key.namespace))

    async def _bind_allocation(self, placed: PlacedSubject) -> None:
        subject = placed.subject
        status = statuses.bound_allocation_status(placed, times.format_seconds(self._now()))
        await self.write_status(subject, placed.observed, status)

    async def write_status(self, subject: SchedulingSubject, observed: ObservedSubject, status: Obj) -> None:
        """Raises Conflict if the object changed."""
        collection = PODS if subject.kind == POD else ALLOCATIONS
        patch = {"metadata": {"uid": observed.uid, "resourceVersion": observed.version}, "status": status}
        client = self._client_of(subject)
        written = await client.patch(collection, subject.key.name, patch, subject.key.namespace, "status")
        self._informer(subject).assume(written)

    def _log_error(self, subject: SchedulingSubject, error: ClientError) -> None:
        self._log.error(error, "cannot bind", key=str(subject.key))


def _is_final(error: ClientError) -> bool:
    """Whether the server definitely refused the request, so that a retry is useless."""
    return isinstance(error, Refused) and error.status < 500 and not isinstance(error, TooMany)


def event_object(subject: SchedulingSubject, observed: ObservedSubject) -> InvolvedObject:
    collection = PODS if subject.kind == POD else ALLOCATIONS
    key = subject.key
    return InvolvedObject(key.cluster, collection.api_version, collection.kind, key.name, key.namespace, observed.uid)


class Evictor:
    """`wake`: wakes the decision loop; `refuse`: records that a site refused a machine."""

    def __init__(
        self,
        context: SchedulerContext,
        binder: MachineBinder,
        recorder: Recorder,
        wake: Callable[[], None],
        refuse: Callable[[SiteKey, MachineRef], Awaitable[None]],
    ) -> None:
        self._state = context.state
        self._binder = binder
        self._recorder = recorder
        self._wake = wake
        self._refuse = refuse
        self._decoder = SubjectDecoder({})
        self._rebuilder = context.rebuilder
        self._env = context.env
        self._log = context.log

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._env.sleep(EVICTION_PERIOD)
            await self._rebuilder.clean.wait()
            try:
                await self._evict_due(self._env.monotonic())
            except Exception as error:
                self._rebuilder.failed("evictions", error)

    async def _evict_due(self, now: float) -> None:
        for subject in self._state.unconfirmed(now):
            observed = self._state.observed(subject)
            if observed is not None:
                await self._binder.verify(subject, observed.uid)
                self._wake()
        if not self._state.may_evict or self._rebuilder.failing:  # a Cluster that the engine lacks may be healthy
            return
        for subject, site in self._state.due_evictions(now):
            try:
                await self.evict(subject, site)
            except ClientError as error:
                self._log.error(error, f"cannot evict {subject.key}")
        self._wake()

    async def evict(self, subject: SchedulingSubject, site: SiteKey) -> None:
        """Evict a machine from that site, if it is still there and due."""
        observed, now = self._state.observed(subject), self._env.monotonic()
        if observed is None or not self._state.is_eviction_due(subject, site, now):
            return
        if subject.kind != ALLOCATION:
            await self._evict_pod(subject, observed, site, now)
        elif observed.request is not None:
            self._state.reschedule(observed.request, now)

    async def _evict_pod(
        self, subject: SchedulingSubject, observed: ObservedSubject, site: SiteKey, now: float
    ) -> None:
        """Unbind the Pod if it fits elsewhere, or its Cluster was deleted or refuses it."""
        try:
            found = await self._binder.fetch(subject)
            document = orjson.dumps(found)
            request, current = read_request(document), self._decoder.pod(document)
        except (Refused, InvalidRequestError):
            return
        is_there = current.uid == observed.uid and any(one.site == site for one in current.reservations)
        if not is_there or not self._state.is_eviction_due(subject, site, now):
            return  # one of them changed in the meantime
        refusal, deleted = self._state.refusal(subject, site), self._state.engine.site(site) is None
        if refusal or deleted or self._state.fits_elsewhere(request, site, now):
            if refusal and refusal.by_cluster:
                await self._refuse(site, MachineRef(subject.key.cluster, observed.uid))
            await self._binder.unbind(subject, found, site if refusal else None)
            self._log.info("evicted", v=1, key=str(subject.key), cluster=str(site))
            why = "the Cluster was deleted" if deleted else "the Cluster is unhealthy"
            if refusal:
                why = refusal.why
            self._recorder.record(event_object(subject, observed), "Warning", "Evicted", f"Evicted from {site}: {why}")
