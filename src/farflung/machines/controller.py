"""The global scheduler: wiring, the decision loop, and the workers that bind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from farflung.apis.edge.names import EDGE_PLACEMENTS, SYNCER_CONFIGS
from farflung.apis.globalscheduler.names import ALLOCATIONS, CLUSTERS
from farflung.apis.kcp.names import API_BINDINGS, LOCATIONS, SYNC_TARGETS, WORKSPACES
from farflung.apis.names import PODS, Collection
from farflung.client.rest import Client
from farflung.controllers.placing_rights.controller import PlacingRights
from farflung.controllers.placing_rights.decide import RightKey
from farflung.lib.klog import Logger
from farflung.machinery.selectors import Labels
from farflung.machines import statuses
from farflung.machines.binder import Evictor, MachineBinder
from farflung.machines.clusters import ClusterController, ClusterHooks
from farflung.machines.context import SchedulerContext, WriteRate
from farflung.machines.decide import SchedulerState
from farflung.machines.delivery import (
    DeliveryController,
    DeliveryLabels,
    SiteMailboxes,
    TerminatingCopies,
    decode_binding_phase,
    decode_placement,
)
from farflung.machines.engine.engine import SchedulingEngine
from farflung.machines.engine.policy import SchedulerPolicy, default_policy
from farflung.machines.engine.values import Flavor, Site, SiteKey
from farflung.machines.failover import FailoverOptions, add_refusal_reason
from farflung.machines.inventory import decode_cluster, decode_target
from farflung.machines.metrics import SchedulerMetrics
from farflung.machines.object_readers import SubjectDecoder
from farflung.machines.rights import REVIEWING, SiteRights
from farflung.machines.status_writer import (
    DeliverySources,
    DeliveryStatusWriter,
    RefusedParts,
    SchedulingStatusWriter,
    decode_refusals,
)
from farflung.machines.subjects import (
    ALLOCATION,
    POD,
    ObservedSubject,
    PlacedSubject,
    SchedulingSubject,
    UnplacedSubject,
)
from farflung.placement.names import THE_ONE
from farflung.placement.types import Location, PlacingRight, Workspace, parse_location
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer, SharedInformers
from farflung.runtime.manager import Manager
from farflung.runtime.rebuilder import Rebuilder
from farflung.runtime.recorder import Recorder

T = TypeVar("T")

NAME: Final = "global-scheduler"
DECISION_SLICE: Final = 0.004  #: seconds of decisions before other tasks run
WAKE_PAUSE: Final = 0.05  #: seconds between two wake-ups of waiting requests
WAKE_SHARE: Final = 0.1  #: largest share of time for wake-ups
FAILURE_PAUSE: Final = 1.0  #: seconds after a decision that failed
BIND_WORKERS: Final = 32  #: concurrent bindings
STATUS_WORKERS: Final = 8  #: workers that write conditions of unplaced machines
EVENT_BURST: Final = 100  #: Events about placed machines at once, and per second; others are dropped
EVENT_RATE: Final = 20.0


@dataclass(frozen=True, slots=True)
class GlobalSchedulerSetting:
    """The servers, views and configuration of the scheduler."""

    everywhere: Client  #: all workspaces, with full access
    provider: Client  #: the provider workspace, with the mailboxes below it
    root: Client  #: a workspace with access to the views of root and root:compute
    pods_view: str  #: URL of the view with Pods, which exists before a workspace binds the export
    scheduler_view: str  #: with Clusters and Allocations
    workload_view: str  #: with SyncTargets
    scheduling_view: str  #: with Locations
    edge_view: str  #: with EdgePlacements
    rights: PlacingRights
    now: Callable[[], datetime]
    policy: SchedulerPolicy = field(default_factory=default_policy)
    catalogue: Mapping[str, Flavor] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()  #: sites from files
    failover: FailoverOptions = field(default_factory=FailoverOptions)


class GlobalScheduler:
    def __init__(
        self,
        setting: GlobalSchedulerSetting,
        recorder: Recorder,
        informers: SharedInformers,
        log: Logger,
        *,
        workers: int = BIND_WORKERS,
    ) -> None:
        self._setting = setting
        self._recorder = recorder
        self._shared = informers
        self._env = env = informers.env
        self._log = log
        self._workers = workers
        self._clients: dict[tuple[str, str], Client] = {}
        self._wakeup = asyncio.Event()
        self._placed: asyncio.Queue[PlacedSubject] = asyncio.Queue(workers)
        self._busy = 0  #: bindings in progress
        self._event_rate = WriteRate(EVENT_BURST, EVENT_RATE)
        self._next_wake = 0.0
        self.figures = SchedulerMetrics()
        self._configuration = setting.policy, setting.catalogue, setting.sites
        self._work: asyncio.Task[None] | None = None
        self.rebuilder = Rebuilder(NAME, self._rebuild, env, log, prepare=self._settle)
        decoder = SubjectDecoder(setting.catalogue, by_workspace=setting.rights.by_workspace)
        scheduling, root = setting.root.view(setting.scheduler_view), setting.root
        self.pods = self._informer(root.view(setting.pods_view), PODS, decoder.pod)
        self.allocations = self._informer(scheduling, ALLOCATIONS, decoder.allocation)
        self._clusters = self._informer(scheduling, CLUSTERS, decode_cluster)
        self._targets = self._informer(root.view(setting.workload_view), SYNC_TARGETS, decode_target)
        self._locations = self._informer(root.view(setting.scheduling_view), LOCATIONS, parse_location)
        edge = setting.provider.view(setting.edge_view)
        self._placements = self._informer(edge, EDGE_PLACEMENTS, decode_placement)
        self._configs = self._informer(edge, SYNCER_CONFIGS, decode_refusals)
        self._bindings = self._informer(setting.everywhere, API_BINDINGS, decode_binding_phase)
        self._workspaces = self._informer(setting.provider, WORKSPACES, msgspec.json.Decoder(Workspace).decode)
        self._sources: list[tuple[str, Informer[Any], Callable[[CacheChange[Any]], None]]] = [
            ("Workspace", self._workspaces, self._on_workspace),
            ("Cluster", self._clusters, self._on_cluster),
            ("SyncTarget", self._targets, self._on_target),
            ("Location", self._locations, self._on_location),
            (POD, self.pods, lambda change: self._on_subject(SchedulingSubject(POD, change.key), change)),
            (
                ALLOCATION,
                self.allocations,
                lambda change: self._on_subject(SchedulingSubject(ALLOCATION, change.key), change),
            ),
            ("EdgePlacement", self._placements, lambda change: self._deliveries.on_placement(change)),
            ("SyncerConfig", self._configs, self._on_config),
            ("APIBinding", self._bindings, self._on_binding),
        ]
        self._build()
        for kind, informer, listener in self._sources:
            informer.subscribe(self.rebuilder.guarded(kind, listener))

    def _build(self) -> None:
        """A new engine, and the controllers that use it."""
        setting, env = self._setting, self._env
        policy, catalogue, sites = self._configuration
        self._rights = SiteRights(setting.rights, lambda: self.state.targets(), self._labels_of)
        self.state = SchedulerState(SchedulingEngine(policy, catalogue), setting.failover, self._rights.closed)
        context = SchedulerContext(self.state, env, setting.now, self._log, self.rebuilder, STATUS_WORKERS)
        self.clusters = ClusterController(
            context,
            self._clusters,
            self._targets,
            ClusterHooks(
                client_of=lambda cluster: self._client(setting.scheduler_view, cluster),
                workspace_of=setting.everywhere.workspace,
                on_change=self._wakeup.set,
                on_target=self._on_site,
            ),
        )
        self._mailboxes = SiteMailboxes(self.clusters, self._workspaces)
        self._binder = MachineBinder(context, self.pods, self.allocations, self._client_of, self.clusters.names_target)
        self._status_writer = SchedulingStatusWriter(context, self._binder, self._recorder)
        self.evictor = Evictor(context, self._binder, self._recorder, self._wakeup.set, self.clusters.refuse)
        self._labels = DeliveryLabels(context, self.clusters, self._binder, self._rights)
        self._deliveries = DeliveryController(
            context,
            self._placements,
            self.clusters,
            self._labels,
            lambda cluster: setting.provider.view(setting.edge_view, cluster),
            lambda delivery: self._delivery_status.on_delivery(delivery),
        )
        sources = DeliverySources(self._configs, self._mailboxes, self._deliveries)
        self._delivery_status = DeliveryStatusWriter(context, self._binder, self._recorder, sources)
        self._terminating_copies = TerminatingCopies(
            context, self.pods, self._mailboxes, self._wakeup.set, longest=setting.failover.tolerated
        )
        self._engine_controllers: list[Controller[Any]] = [
            self._status_writer.controller,
            self.clusters.controller,
            self._labels.controller,
            self._deliveries.controller,
            self._delivery_status.controller,
            self._terminating_copies.controller,
        ]
        for site in sites:
            self.state.put_site(site, env.monotonic())

    def _rebuild(self) -> None:
        """The new engine keeps the reservations of bindings that no watch event has confirmed: the caches do not have
        them, and it would give their resources to other machines."""
        unconfirmed = self.state.in_progress
        self._build()
        for kind, informer, listener in self._sources:
            self.rebuilder.replay(kind, informer.cache, listener)
        for one in unconfirmed:
            cached = (self.pods if one.subject.kind == POD else self.allocations).cache.get(one.subject.key)
            if cached is not None and cached.uid == one.uid:
                self.state.resume(one, self._env.monotonic())

    async def _settle(self) -> None:
        """Stop using the engine, and wait for writes of bindings."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])
        await self._placed.join()

    def _informer(self, client: Client, collection: Collection, decode: Callable[[bytes], T]) -> Informer[T]:
        return self._shared.informer(client, collection, decode, self._log_error)

    def _log_error(self, what: str, error: Exception) -> None:
        self._log.error(error, what, controller=NAME)

    def _client(self, view: str, cluster: str) -> Client:
        found = self._clients.get((view, cluster))
        if found is None:
            found = self._clients[view, cluster] = self._setting.root.view(view, cluster)
        return found

    def _client_of(self, subject: SchedulingSubject) -> Client:
        """Pods are written with full access to their workspace: the view of an export serves no Bindings."""
        cluster = subject.key.cluster
        if subject.kind == ALLOCATION:
            return self._client(self._setting.scheduler_view, cluster)
        found = self._clients.get(("", cluster))
        if found is None:
            found = self._clients["", cluster] = self._setting.everywhere.workspace(cluster)
        return found

    # --- loop -----------------------------------------------------------------------------------------

    def join(self, manager: Manager) -> None:
        manager.adopt(self)

    @property
    def controllers(self) -> Sequence[Controller[Any]]:
        return [self.rebuilder, *self._engine_controllers]

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """Mailboxes first: Pods in them are copies."""
        return [informer for _, informer, _ in self._sources]

    @property
    def synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self.informers)

    @property
    def idle(self) -> bool:
        """Whether no work is pending."""
        counts = self.state.queue.counts()
        deciding = counts.ready or counts.held or self.state.has_changes or self._busy or not self._placed.empty()
        return (
            self.synced
            and self.rebuilder.clean.is_set()
            and not deciding
            and all(one.queue.idle for one in [*self.controllers, self._setting.rights])
        )

    def configure(self, policy: SchedulerPolicy, catalogue: Mapping[str, Flavor], sites: Iterable[Site]) -> None:
        """Replace policy, catalogue and sites.  Bindings stay."""
        self._configuration = policy, catalogue, (sites := tuple(sites))
        self.rebuilder.attempt(
            "configuration", lambda: self.state.configure(policy, catalogue, sites, self._env.monotonic())
        )
        self._wakeup.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        self._log.info("starting controller", controller=NAME)
        try:
            with self._setting.rights.used_by(self):
                await self._run()
        finally:
            for informer in self.informers:
                informer.stop()  # also those that have not run yet: the next term has its own
            self._log.info("shutting down controller", controller=NAME)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run(), name=f"informer of {informer.collection.plural}")
                if informer is self._workspaces:
                    await informer.synced.wait()
            await asyncio.gather(*(informer.synced.wait() for informer in self.informers))
            group.create_task(self.rebuilder.run(), name=self.rebuilder.name)
            for number in range(self._workers):
                group.create_task(self._bind(), name=f"{NAME} bind {number}")
            group.create_task(self._recorder.run(), name=f"{NAME} events")
            while True:
                await self.rebuilder.clean.wait()
                self._work = group.create_task(self._use_engine(), name=NAME)
                await asyncio.wait([self._work])

    async def _use_engine(self) -> None:
        """Runs until cancelled, before the engine is rebuilt."""
        self.rebuilder.attempt("copies", self._terminating_copies.check_all)
        self.rebuilder.attempt("rights", lambda: self._check_rights(self._rights.subjects()))
        async with asyncio.TaskGroup() as group:
            for controller in self._engine_controllers:
                group.create_task(controller.run(), name=controller.name)
            group.create_task(self.evictor.run(), name=f"{NAME} failover")
            group.create_task(self._decide(), name=NAME)

    # --- triggers -------------------------------------------------------------------------------------

    def _on_workspace(self, change: CacheChange[Workspace]) -> None:
        sites = self._mailboxes.on_workspace(change)
        cluster = "" if change.new is None else change.new.cluster
        if self._mailboxes.is_mailbox(cluster) and (change.old is None or change.old.cluster != cluster):
            self._ignore_copies(cluster)
        for site in sites:
            self._on_site(site)

    def _ignore_copies(self, mailbox: str) -> None:
        """Pods in a mailbox are copies and are not scheduled."""
        for key in [one for one in self.pods.cache if one.cluster == mailbox]:
            self.state.observe(SchedulingSubject(POD, key), None, self._env.monotonic())

    def _on_config(self, change: CacheChange[RefusedParts]) -> None:
        if change.key.name == THE_ONE and (change.old or {}) != (change.new or {}):
            for site in self._mailboxes.sites(change.key.cluster):
                self._delivery_status.on_site(site)

    def _on_binding(self, change: CacheChange[bool]) -> None:
        if change.new and not change.old:
            self._deliveries.on_edge_api(change.key.cluster)

    def _on_subject(self, subject: SchedulingSubject, change: CacheChange[ObservedSubject]) -> None:
        observed = change.new if change.new is not None and change.new.uid else None
        if self._mailboxes.is_mailbox(subject.key.cluster):
            self._terminating_copies.on_copy(subject.key, observed)
            return
        before = self.state.observed(subject)
        authors = [None if one is None else one.author for one in (before, observed)]
        self._rights.put_subject(subject, *authors)
        try:
            self.state.observe(subject, observed, self._env.monotonic())
        except Exception:
            if observed is not None:  # the engine may be used without the machine, but its resources are not free
                self.state.reserve(subject, observed)
            raise
        if observed is None or not observed.pending:
            self._status_writer.forget(subject)
        elif observed.problem:
            self._status_writer.report(subject, observed, statuses.INVALID, observed.problem)
        if subject.kind == POD:
            self._on_machine(subject, before, observed)
        self._wakeup.set()

    def _on_machine(
        self, subject: SchedulingSubject, before: ObservedSubject | None, observed: ObservedSubject | None
    ) -> None:
        sites = {one.site for one in (before, observed) if one is not None and one.site is not None}
        for site in sorted(sites):
            if observed is not None and observed.site == site:
                self._labels.on_machine(subject, observed, site)
            if self.state.has_target(site):
                self._terminating_copies.on_machine(subject.key, site)
            self._deliveries.on_machine(subject.key.cluster, site)
        self._delivery_status.on_machine(subject, observed)

    def _on_cluster(self, change: CacheChange[Any]) -> None:
        self.clusters.on_cluster(change)
        self._wakeup.set()

    def _on_target(self, change: CacheChange[Any]) -> None:
        self.clusters.on_target(change)
        if change.old is None or change.new is None:
            for site in self.clusters.users_of(change.key):
                self._on_site(site)
        if change.old is None or change.new is None or change.old.labels != change.new.labels:
            self._check_rights(self._rights.on_selection(change.key.cluster))
        self._wakeup.set()

    def _on_site(self, site: SiteKey) -> None:
        """The SyncTarget or the mailbox of the site is known, has changed or was deleted."""
        self._rights.on_site()
        self._labels.on_target(site)
        self._terminating_copies.on_target(site)
        self._deliveries.on_target(site)
        self._delivery_status.on_site(site)

    # --- rights of authors ----------------------------------------------------------------------------

    def needs_right(self, key: RightKey) -> bool:
        return self._rights.has_subjects(key.author)

    def doubt_right(self, key: RightKey) -> None:
        self.rebuilder.attempt(key, lambda: self._rights.forget(key))

    def put_right(self, key: RightKey, right: PlacingRight) -> None:
        self.rebuilder.attempt(key, lambda: self._change_right(key, right))

    def fail_right(self, key: RightKey) -> None:
        self.rebuilder.attempt(key, lambda: self._change_right(key, None))

    def _change_right(self, key: RightKey, right: PlacingRight | None) -> None:
        if not self._rights.has_subjects(key.author) or (right is not None and right == self._rights.known(key)):
            return
        if right is None:
            self._rights.forget(key)
        else:
            self._rights.put(key, right)
        self._check_rights(self._rights.subjects(key.author))

    def _check_rights(self, subjects: Sequence[SchedulingSubject]) -> None:
        if not subjects:
            return
        for subject in subjects:
            observed = self.state.observed(subject)
            if subject.kind == POD and observed is not None and observed.site is not None:
                self._on_machine(subject, observed, observed)
        self.state.change_rights()
        self._wakeup.set()

    def _on_location(self, change: CacheChange[Location]) -> None:
        self._check_rights(self._rights.on_location(change))

    def _labels_of(self, target: Key) -> Labels:
        found = self._targets.cache.get(target)
        return {} if found is None else found.labels

    # --- decisions ------------------------------------------------------------------------------------

    async def _decide(self) -> None:
        """Decides about one request after the other, until cancelled.  Does no I/O."""
        while True:
            self._wakeup.clear()
            await self.rebuilder.clean.wait()
            try:
                if await self._decide_some():
                    await asyncio.sleep(0)
                else:
                    await self._pause(self._env.monotonic())
            except Exception as error:
                self.rebuilder.failed("decisions", error)
                await self._env.sleep(FAILURE_PAUSE)

    async def _decide_some(self) -> bool:
        """False: no request is due."""
        monotonic = self._env.monotonic
        now = monotonic()
        self._wake(now)
        self._handle_touched()
        until = now + DECISION_SLICE
        while now < until and self.rebuilder.clean.is_set():
            found = self.state.next(now)
            if found is None:
                return False
            self.figures.decided(monotonic() - now)
            if isinstance(found, PlacedSubject):
                self.figures.waited(now - found.queued_at)
                await self._placed.put(found)
            else:
                self._report_unplaced(found)
            now = monotonic()
        return True

    def _wake(self, now: float) -> None:
        if self.state.has_changes and self._next_wake <= now:
            self.state.wake(now)
            spent = self._env.monotonic() - now
            self._next_wake = now + max(WAKE_PAUSE, spent / WAKE_SHARE)

    def _handle_touched(self) -> None:
        touched, self.state.touched = self.state.touched, {}
        for key in touched:
            self.clusters.on_usage(key)

    async def _pause(self, now: float) -> None:
        """Until a change, or until the next request is due."""
        next_at = self.state.queue.next_at()
        if self.state.has_changes:
            next_at = min(self._next_wake, next_at if next_at is not None else self._next_wake)
        if next_at is None:
            await self._wakeup.wait()
            return
        either = {
            asyncio.create_task(self._wakeup.wait()),
            asyncio.ensure_future(self._env.sleep(max(0.0, next_at - now))),
        }
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in either:
                one.cancel()

    def _report_unplaced(self, refused: UnplacedSubject) -> None:
        self.figures.refused(refused.reasons)
        self._log.info("not placed", v=3, key=str(refused.subject.key), reason=refused.message)
        if refused.observed.pending and REVIEWING not in refused.reasons:
            message = add_refusal_reason(refused.message, refused.reasons, refused.observed.refusal)
            self._status_writer.report(refused.subject, refused.observed, statuses.UNSCHEDULABLE, message)
            if refused.subject.kind == POD:
                self._delivery_status.on_machine(refused.subject, refused.observed)

    # --- bindings -------------------------------------------------------------------------------------

    async def _bind(self) -> None:
        while True:
            placed = await self._placed.get()
            self._busy += 1
            try:
                began = self._env.monotonic()
                if not self.rebuilder.clean.is_set():
                    continue  # decided again by the new engine
                if await self._binder.bind(placed):
                    now = self._env.monotonic()
                    self.figures.bound(now - began, now - placed.queued_at)
                    self._report_placed(placed)
                else:
                    self.figures.failed()
            except Exception as error:  # a bug that concerns one machine must not stop the others
                self.figures.failed()
                self.rebuilder.failed((placed.subject.kind, placed.subject.key), error)
            finally:
                self._placed.task_done()
                self._busy -= 1
                self._wakeup.set()

    def _report_placed(self, placed: PlacedSubject) -> None:
        names = sorted({str(chosen.site) for chosen in placed.decision.chosen})
        self._log.info("placed", v=3, key=str(placed.subject.key), clusters=",".join(names))
        self._status_writer.forget(placed.subject)
        if self._event_rate.is_free(now := self._env.monotonic()):
            self._event_rate.take(now)
            message = f"Successfully assigned {placed.subject.key.namespace}/{placed.subject.key.name} to "
            self._status_writer.record_scheduled(placed.subject, placed.observed, message + ", ".join(names))
