"""The global scheduler: wiring, the decision loop, and the workers that bind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from farflung.apis.names import Collection
from farflung.client.rest import Client
from farflung.controllers.global_scheduler import statuses
from farflung.controllers.global_scheduler.binder import ALLOCATIONS, PODS, Evictor, MachineBinder
from farflung.controllers.global_scheduler.cluster_health import FailoverOptions
from farflung.controllers.global_scheduler.clusters import CLUSTERS, ClusterController, ClusterHooks
from farflung.controllers.global_scheduler.context import SchedulerContext
from farflung.controllers.global_scheduler.delivery import (
    PLACEMENTS,
    DeliveryController,
    DeliveryHooks,
    ExistingPlacement,
    MailboxSetup,
    decode_binding_phase,
    decode_placement,
)
from farflung.controllers.global_scheduler.delivery_labels import DeliveryLabels
from farflung.controllers.global_scheduler.inventory import decode_cluster, decode_target
from farflung.controllers.global_scheduler.metrics import SchedulerMetrics
from farflung.controllers.global_scheduler.object_readers import SubjectDecoder
from farflung.controllers.global_scheduler.refusals import add_refusal_reason
from farflung.controllers.global_scheduler.state import SchedulerState
from farflung.controllers.global_scheduler.status_writer import (
    DeliverySources,
    DeliveryStatusWriter,
    RefusedParts,
    SchedulingStatusWriter,
    decode_refusals,
)
from farflung.controllers.global_scheduler.subjects import (
    ALLOCATION,
    POD,
    ObservedSubject,
    PlacedSubject,
    SchedulingSubject,
    UnplacedSubject,
)
from farflung.controllers.global_scheduler.terminating_copies import TerminatingCopies
from farflung.controllers.mailbox.triggers import Mailboxes
from farflung.lib.klog import Logger
from farflung.placement.names import API_BINDINGS, CONFIG, CONFIGS, WORKSPACES, mailbox_name
from farflung.placement.types import Workspace
from farflung.runtime.cache import Change, Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer
from farflung.runtime.manager import Manager
from farflung.runtime.recorder import Recorder
from farflung.runtime.reflector import Environment
from farflung.scheduling.engine import SchedulingEngine
from farflung.scheduling.policy import SchedulerPolicy, default_policy
from farflung.scheduling.values import Flavor, Site, SiteKey

T = TypeVar("T")

NAME: Final = "global-scheduler"
SYNC_TARGETS: Final = Collection("workload.kcp.io", "v1alpha1", "synctargets", "SyncTarget")
DECISION_SLICE: Final = 0.004  #: seconds of decisions before other tasks run
WAKE_PAUSE: Final = 0.05  #: seconds between two wake-ups of waiting requests
WAKE_SHARE: Final = 0.1  #: largest share of time for wake-ups
BIND_WORKERS: Final = 32  #: concurrent bindings
STATUS_WORKERS: Final = 8  #: workers that write conditions of unplaced machines
FEW_WAITING: Final = 64  #: with more pending requests, no Events are recorded and status writes wait


@dataclass(frozen=True, slots=True)
class GlobalSchedulerSetting:
    """The servers, views and configuration of the scheduler."""

    everywhere: Client  #: all workspaces, with full access
    provider: Client  #: the provider workspace, with the mailboxes below it
    root: Client  #: a workspace with access to the views of root and root:compute
    pods_view: str  #: URL of the view with Pods
    scheduler_view: str  #: with Clusters and Allocations
    workload_view: str  #: with SyncTargets
    edge_view: str  #: with EdgePlacements
    now: Callable[[], datetime]
    policy: SchedulerPolicy = field(default_factory=default_policy)
    catalogue: Mapping[str, Flavor] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()  #: sites from files
    patience: FailoverOptions = field(default_factory=FailoverOptions)


class GlobalScheduler:
    def __init__(
        self,
        setting: GlobalSchedulerSetting,
        recorder: Recorder,
        env: Environment,
        log: Logger,
        *,
        workers: int = BIND_WORKERS,
    ) -> None:
        self._setting = setting
        self._recorder = recorder
        self._env = env
        self._log = log
        self._workers = workers
        self._clients: dict[tuple[str, str], Client] = {}
        self._news = asyncio.Event()
        self._placed: asyncio.Queue[PlacedSubject] = asyncio.Queue(workers)
        self._busy = 0  #: bindings in progress
        self._wakes_at = 0.0
        self._synced = False
        self.figures = SchedulerMetrics()
        engine = SchedulingEngine(setting.policy, setting.catalogue)
        self.state = SchedulerState(engine, setting.patience)
        seeing = SubjectDecoder(setting.catalogue, self.state.expected)
        scheduling, root = setting.root.view(setting.scheduler_view), setting.root
        self.pods = self._informer(root.view(setting.pods_view), PODS, seeing.pod)
        self.allocations = self._informer(scheduling, ALLOCATIONS, seeing.allocation)
        self._clusters = self._informer(scheduling, CLUSTERS, decode_cluster)
        self._targets = self._informer(root.view(setting.workload_view), SYNC_TARGETS, decode_target)
        edge = setting.provider.view(setting.edge_view)
        self._placements = self._informer(edge, PLACEMENTS, decode_placement)
        self._configs = self._informer(edge, CONFIGS, decode_refusals)
        self._bindings = self._informer(edge, API_BINDINGS, decode_binding_phase)
        self._workspaces = self._informer(setting.provider, WORKSPACES, msgspec.json.Decoder(Workspace).decode)
        context = SchedulerContext(self.state, env, setting.now, log, STATUS_WORKERS)
        self.clusters = ClusterController(
            context,
            self._clusters,
            self._targets,
            ClusterHooks(
                client_of=lambda cluster: self._client(setting.scheduler_view, cluster),
                workspace_of=setting.everywhere.workspace,
                is_busy=lambda: len(self.state.queue) > FEW_WAITING,
                on_change=self._news.set,
                on_target=self._lead,
            ),
        )
        self._binder = MachineBinder(context, self.pods, self.allocations, self._client_of, self.clusters.has_target)
        self._telling = SchedulingStatusWriter(context, self._binder, recorder)
        self.moving = Evictor(context, self._binder, recorder, self._news.set, self.clusters.refuse)
        self._marking = DeliveryLabels(context, self.clusters, self._binder, self._bring)
        self._delivering = DeliveryController(
            context,
            self._placements,
            self.clusters,
            MailboxSetup(setting.everywhere.workspace, env.monotonic),
            DeliveryHooks(
                view=lambda cluster: setting.provider.view(setting.edge_view, cluster),
                mailbox_of=lambda site: self._cluster_of(self._mailbox_of(site)),
                is_clearing=self._marking.is_clearing,
                on_served=lambda site: self._undelivered.look_at(site),
            ),
        )
        self._undelivered = DeliveryStatusWriter(
            context,
            self._binder,
            recorder,
            self._configs,
            DeliverySources(
                mailbox_of=self._mailbox_of,
                cluster_of=self._cluster_of,
                target_of=self.clusters.target_of,
                unserved=self._delivering.unserved,
                displaced=self._marking.displaced,
            ),
        )
        self._lingering = TerminatingCopies(
            context,
            self.pods,
            lambda cluster: self._mailboxes.of_cluster(cluster) is not None,
            lambda site: self._cluster_of(self._mailbox_of(site)),
            self._news.set,
            longest=setting.patience.tolerated,
        )
        self._mailboxes = Mailboxes()
        self._subscribe()
        for site in setting.sites:
            self.state.put_site(site, env.monotonic())

    def _informer(self, client: Client, collection: Collection, decode: Callable[[bytes], T]) -> Informer[T]:
        return Informer(client, collection, decode, self._env, self._trouble)

    def _subscribe(self) -> None:
        self.pods.subscribe(lambda change: self._on_subject(SchedulingSubject(POD, change.key), change))
        self.allocations.subscribe(lambda change: self._on_subject(SchedulingSubject(ALLOCATION, change.key), change))
        self._clusters.subscribe(self._on_cluster)
        self._targets.subscribe(self._on_target)
        self._placements.subscribe(self._on_placement)
        self._workspaces.subscribe(self._on_workspace)
        self._configs.subscribe(self._on_config)
        self._bindings.subscribe(self._on_binding)

    def _trouble(self, what: str, error: Exception) -> None:
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
        several = (self._telling, self.clusters, self._marking, self._delivering, self._undelivered, self._lingering)
        return [one.controller for one in several]

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """Mailboxes first: Pods in them are copies."""
        asked: list[Informer[Any]] = [self.pods, self.allocations, self._clusters, self._targets]
        return [self._workspaces, *asked, self._placements, self._configs, self._bindings]

    @property
    def synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self.informers)

    @property
    def idle(self) -> bool:
        """Whether no work is pending."""
        counts = self.state.queue.counts()
        deciding = counts.ready or counts.held or self.state.has_news or self._busy or not self._placed.empty()
        return self.synced and not deciding and all(one.queue.idle for one in self.controllers)

    def configure(self, policy: SchedulerPolicy, catalogue: Mapping[str, Flavor], sites: Iterable[Site]) -> None:
        """Replace policy, catalogue and sites.  Bindings stay."""
        self.state.configure(policy, catalogue, sites, self._env.monotonic())
        self._news.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        self._log.info("starting controller", controller=NAME)
        try:
            await self._run()
        finally:
            self._log.info("shutting down controller", controller=NAME)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run(), name=f"informer of {informer.collection.plural}")
                if informer is self._workspaces:
                    await informer.synced.wait()
            await asyncio.gather(*(informer.synced.wait() for informer in self.informers))
            self._lingering.look_at_all()
            for controller in self.controllers:
                group.create_task(controller.run(), name=controller.name)
            for number in range(self._workers):
                group.create_task(self._bind(), name=f"{NAME} bind {number}")
            group.create_task(self._recorder.run(), name=f"{NAME} events")
            group.create_task(self.moving.run(), name=f"{NAME} failover")
            group.create_task(self._decide(), name=NAME)

    # --- triggers -------------------------------------------------------------------------------------

    def _mailbox_of(self, site: SiteKey) -> str:
        """The name of the site's mailbox; empty: none."""
        target = self.clusters.target_of(site)
        key = None if target is None else Key(target.cluster, "", target.name)
        seen = None if key is None else self._targets.cache.get(key)
        return "" if key is None or seen is None else mailbox_name(key.cluster, seen.uid)

    def _cluster_of(self, mailbox: str) -> str:
        """The logical cluster of a mailbox; empty: none."""
        key = self._mailboxes.workspace(mailbox)
        workspace = None if key is None else self._workspaces.cache.get(key)
        return "" if workspace is None else workspace.cluster

    def _on_workspace(self, change: Change[Workspace]) -> None:
        for name in self._mailboxes.on_workspace(change):
            cluster = self._cluster_of(name)
            if cluster and (change.old is None or change.old.cluster != cluster):
                self._leave_out(cluster)
            self._undelivered.look_into(name)
            for site in self._undelivered.sites_of(name):
                self._delivering.look_at(site)

    def _leave_out(self, mailbox: str) -> None:
        """Pods in a mailbox are copies and are not scheduled."""
        for key in [one for one in self.pods.cache if one.cluster == mailbox]:
            self.state.hear(SchedulingSubject(POD, key), None, self._env.monotonic())

    def _on_config(self, change: Change[RefusedParts]) -> None:
        name = self._mailboxes.of_cluster(change.key.cluster)
        if name is not None and change.key.name == CONFIG and (change.old or {}) != (change.new or {}):
            self._undelivered.look_into(name)

    def _on_binding(self, change: Change[bool]) -> None:
        if change.new and not change.old:
            self._delivering.hear_of_api(change.key.cluster)

    def _on_subject(self, subject: SchedulingSubject, change: Change[ObservedSubject]) -> None:
        seen = change.new if change.new is not None and change.new.uid else None
        if self._mailboxes.of_cluster(subject.key.cluster) is not None:
            self._lingering.hear(subject.key, seen)
            return
        before = self.state.seen(subject)
        left = None if before is None or subject.kind != POD else before.site
        self.state.hear(subject, seen, self._env.monotonic())
        if left is not None and self.state.is_led(left) and (seen is None or seen.site != left):
            self._lingering.leave(subject.key, left)
        if subject.kind == POD and seen is not None and seen.site is not None:
            self._lingering.come(subject.key, seen.site)
        if seen is None or not seen.asks:
            self._telling.forget(subject)
        elif seen.problem:
            self._telling.say(subject, seen, statuses.INVALID, seen.problem)
        self._marking.hear(subject, seen)
        self._undelivered.hear(subject, seen)
        self._news.set()

    def _on_cluster(self, change: Change[Any]) -> None:
        self.clusters.on_cluster(change)
        self._news.set()

    def _on_target(self, change: Change[Any]) -> None:
        self.clusters.on_target(change)
        for site in self.clusters.users_of(change.key):
            self._undelivered.look_at(site)
        self._news.set()

    def _on_placement(self, change: Change[ExistingPlacement]) -> None:
        for one in (change.old, change.new):
            if one is not None and one.owner:
                self._delivering.hear(change.key, one)

    # --- decisions ------------------------------------------------------------------------------------

    async def _decide(self) -> None:
        """Decides about one request after the other, until cancelled.  Does no I/O."""
        monotonic = self._env.monotonic
        while True:
            self._news.clear()
            now = monotonic()
            self._wake(now)
            self._spread_word()
            until = now + DECISION_SLICE
            while now < until:
                found = self.state.next(now)
                if found is None:
                    break
                self.figures.decided(monotonic() - now)
                if isinstance(found, PlacedSubject):
                    self.figures.waited(now - found.asked)
                    await self._placed.put(found)
                else:
                    self._refuse(found)
                now = monotonic()
            else:
                await asyncio.sleep(0)
                continue
            await self._pause(monotonic())

    def _wake(self, now: float) -> None:
        if self.state.has_news and self._wakes_at <= now:
            self.state.wake(now)
            spent = self._env.monotonic() - now
            self._wakes_at = now + max(WAKE_PAUSE, spent / WAKE_SHARE)

    def _lead(self, site: SiteKey) -> None:
        """The SyncTarget of the site is known or has changed."""
        self._marking.look_at(site)
        self._lingering.look_at(site)

    def _bring(self, site: SiteKey) -> None:
        """The machines to deliver to the site changed."""
        self._delivering.look_at(site)
        self._undelivered.look_at(site)

    def _spread_word(self) -> None:
        touched, self.state.touched = self.state.touched, {}
        for key in touched:
            self.clusters.hear(key)
            self._bring(key)

    async def _pause(self, now: float) -> None:
        """Until a change, or until the next request is due."""
        next_at = self.state.queue.next_at()
        if self.state.has_news:
            next_at = min(self._wakes_at, next_at if next_at is not None else self._wakes_at)
        if next_at is None:
            await self._news.wait()
            return
        either = {
            asyncio.create_task(self._news.wait()),
            asyncio.ensure_future(self._env.sleep(max(0.0, next_at - now))),
        }
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in either:
                one.cancel()

    def _refuse(self, refused: UnplacedSubject) -> None:
        self.figures.refused(refused.reasons)
        self._log.info("not placed", v=3, key=str(refused.subject.key), reason=refused.message)
        if refused.seen.asks:
            message = add_refusal_reason(refused.message, refused.reasons, refused.seen.refusal)
            self._telling.say(refused.subject, refused.seen, statuses.UNSCHEDULABLE, message)
            self._undelivered.hear(refused.subject, refused.seen)

    # --- bindings -------------------------------------------------------------------------------------

    async def _bind(self) -> None:
        while True:
            placed = await self._placed.get()
            self._busy += 1
            try:
                began = self._env.monotonic()
                if await self._binder.bind(placed):
                    now = self._env.monotonic()
                    self.figures.bound(now - began, now - placed.asked)
                    self._tell(placed)
                else:
                    self.figures.failed()
            except Exception as error:  # a bug that concerns one machine must not stop the others
                self.figures.failed()
                self.state.failed(placed.request.uid, self._env.monotonic())
                self._trouble(f"cannot bind {placed.subject.key}", error)
            finally:
                self._busy -= 1
                self._news.set()

    def _tell(self, placed: PlacedSubject) -> None:
        names = sorted({str(chosen.site) for chosen in placed.decision.chosen})
        self._log.info("placed", v=3, key=str(placed.subject.key), clusters=",".join(names))
        self._telling.forget(placed.subject)
        if len(self.state.queue) <= FEW_WAITING:
            message = f"Successfully assigned {placed.subject.key.namespace}/{placed.subject.key.name} to "
            self._telling.placed(placed.subject, placed.seen, message + ", ".join(names))
