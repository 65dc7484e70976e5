"""One syncer: its parts, the handlers of their events, the plan of its watches, start and stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from farflung.apis.edge.names import PROJECTED
from farflung.client.errors import ClientError, Expired, NotFound, Refused
from farflung.client.rest import ListOptions
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.lib.workqueue import WorkQueue
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.placement.names import GroupResource, ObjectRef
from farflung.runtime.controller import Controller
from farflung.runtime.environment import Environment
from farflung.syncer.configuration import REPORTED, ConfigInformers
from farflung.syncer.context import SyncerContext, SyncerOptions
from farflung.syncer.copies import MailboxCopy, read_edge_object
from farflung.syncer.definitions import UpsyncedDefinitions
from farflung.syncer.discovery import SharedKinds, Side, SideDiscovery
from farflung.syncer.downsync import Downsync
from farflung.syncer.edge import EdgeClient, EdgeProbe
from farflung.syncer.informers import KINDS, CopyInformers, InformerHandlers, KindInformers
from farflung.syncer.journal import ORPHAN_CAUSE, Journal, JournalError
from farflung.syncer.mailbox import MailboxClient, MailboxIdentity, MailboxLease
from farflung.syncer.nodes import NodeCapacity
from farflung.syncer.reachability import Reachability
from farflung.syncer.report import (
    Direction,
    LastReport,
    Problems,
    Progress,
    ReportHandlers,
    StatusReporter,
    all_of,
    describe_error,
    without_secrets,
)
from farflung.syncer.status import Orphans, StatusComposer
from farflung.syncer.upsync import Upsync, read_object
from farflung.syncer.watch_plan import UPSYNCED, DownsyncWatches, UpsyncWatches

OURS: Final = ListOptions(labels=f"{PROJECTED}=yes")
WORKERS: Final = 8
FLUSH: Final = 0.5  #: seconds between two flushes of the journal
RUNNING: Final = "running"  #: fact of the journal: the process that wrote it did not stop cleanly
HEARTBEAT: Final = "heartbeat"  #: fact: the last heartbeat of this syncer
STARTED: Final = "began"  #: fact: when the process started that may have written later ones
REPORTED_CLUSTER: Final = "served"  #: fact: the uid of the cluster in the last report


class Syncer:
    """The caller closes the journal."""

    def __init__(self, options: SyncerOptions, journal: Journal, env: Environment, log: Logger) -> None:
        self._mailbox_reachability = Reachability(options.mailbox, env, self._retry)
        self._edge_reachability = Reachability(options.edge, env, self._retry)
        self._options = replace(options, mailbox=self._mailbox_reachability.client, edge=self._edge_reachability.client)
        self._journal = journal
        self._env = env
        self._log = log.bind(syncTargetName=options.name)
        self._started = options.now()
        self._kinds = SharedKinds()
        self._remembered_kinds: list[str] = []  #: the kinds that the journal has on disk
        self._is_hub_distrusted = False  #: whether to list everything in the hub again
        self._replan = asyncio.Event()
        self._planning = False
        self.problems = Problems()
        self.progress = Progress()
        context = SyncerContext(
            self._options,
            journal,
            self._kinds,
            self._log,
            env,
            self._mailbox_reachability.env,
            self._edge_reachability.env,
        )
        self._discovery = SideDiscovery(
            self._options.mailbox, self._options.edge, self._kinds, context.edge_env, self._log, self._replan.set
        )
        self._configuration = ConfigInformers(context, self._accepts, self._replan.set)
        self._orphans = Orphans(journal, lambda: self._configuration.the_one)
        self._create_informers(context)
        self.downsync = Downsync(
            context,
            MailboxClient(self._options.mailbox, self._kinds, self._copies.informers),
            EdgeClient(self._options.edge, self._kinds, self._downsynced),
            self.problems,
            self.progress,
            lambda ref: self._configuration.scope.covers(ref),
        )
        self._definitions = UpsyncedDefinitions(context, self._discovery.definition_state, self._on_definition)
        self.upsync = Upsync(
            context,
            self._upsynced,
            self._edge_objects,
            lambda: self._configuration.scope,
            self._definitions.copy,
            self.problems,
        )
        self._downsync_watches = DownsyncWatches(context, self._copies, self._downsynced, self.downsync)
        self._upsync_watches = UpsyncWatches(context, self._upsynced, self._edge_objects, self.problems)
        self.controllers = [
            self._controller("downsync", self.downsync.reconcile, self.downsync.queue),
            self._controller("status", self.downsync.return_status, self.downsync.status_queue),
            self._controller("upsync", self.upsync.reconcile, self.upsync.queue),
        ]
        last = LastReport(journal.get_fact(HEARTBEAT), journal.get_fact(REPORTED_CLUSTER), journal.get_fact(STARTED))
        handlers = ReportHandlers(
            self._identify_mailbox,
            lambda before: self.summary.status(before),
            self._read_last_report,
            self._suspect_restore,
        )
        self._reporter = StatusReporter(context, last, handlers)
        self._edge = EdgeProbe(context, self._reporter.edge_uid, self._reporter.notify, self._replace_edge)
        self._nodes = NodeCapacity(self._options.edge, context.edge_env, self._log, self._reporter.notify)
        self._lease = MailboxLease(context, self._edge, self._reporter, self._distrust_hub)
        self._identity = MailboxIdentity(context, self._lease)
        self.summary = StatusComposer(
            self._started,
            options.now,
            journal,
            self.problems,
            self.progress,
            self.downsync,
            self.upsync,
            self._orphans,
            self._edge,
            self._nodes,
            self._is_scope_listed,
        )
        for resource in journal.kinds():
            self.progress.advance(resource, max(entry.revision for entry in journal.entries_of(resource)))

    def _create_informers(self, context: SyncerContext) -> None:
        mailbox, edge = context.options.mailbox, context.options.edge
        self._copies = CopyInformers(
            context,
            InformerHandlers(self._on_copy, self._on_mailbox_error, self._on_copies_listed, self._on_copies_relisted),
        )
        self._downsynced: KindInformers[Obj] = KindInformers(
            edge,
            context.edge_env,
            read_edge_object,
            InformerHandlers(
                self._on_object, self._on_edge_error, lambda resource: self.downsync.enqueue_kind(resource)
            ),
            OURS,
        )
        self._upsynced: KindInformers[Obj] = KindInformers(
            mailbox,
            context.mailbox_env,
            read_object,
            InformerHandlers(self._on_upsynced, self._on_mailbox_error, self._on_upsynced_listed),
        )
        self._edge_objects: KindInformers[Obj] = KindInformers(
            edge,
            context.edge_env,
            read_object,
            InformerHandlers(self._on_edge_object, self._on_edge_error, lambda resource: self.upsync.enqueue_all()),
        )

    def _controller(
        self, name: str, reconcile: Callable[[ObjectRef, int], Any], queue: WorkQueue[ObjectRef]
    ) -> Controller[ObjectRef]:
        async def reconcile_and_report(ref: ObjectRef, worker: int) -> float | None:
            await self._lease.held.wait()
            try:
                again: float | None = await reconcile(ref, worker)
                return again
            except ClientError as error:
                raise without_secrets(ref, error) from None
            finally:
                self._reporter.notify()

        return Controller(
            name,
            reconcile_and_report,
            workers=WORKERS,
            backoff=Backoff(self._env.backoff.first, 60.0, self._env.backoff.random),
            queue=queue,
            log=self._log,
        )

    # --- events -----------------------------------------------------------------------------------

    def _on_copy(self, ref: ObjectRef, cluster: str, copy: MailboxCopy | None) -> None:
        if copy is not None and not self._is_ours(cluster):
            return
        self.downsync.on_copy(ref, cluster, copy)
        if not self._downsync_watches.has_entries(ref.resource) and self._journal.get(ref) is not None:
            self._replan.set()
        self._reporter.notify()

    def _on_object(self, ref: ObjectRef, cluster: str, obj: Obj | None) -> None:
        self.downsync.on_object(ref, cluster, obj)

    def _on_edge_object(self, ref: ObjectRef, cluster: str, obj: Obj | None) -> None:
        self.upsync.on_change(ref, cluster, obj)

    def _on_upsynced(self, ref: ObjectRef, cluster: str, obj: Obj | None) -> None:
        if obj is None or self._is_ours(cluster):
            self.upsync.on_change(ref, cluster, obj)

    def _on_definition(self) -> None:
        """The mailbox has another definition, which may not prune fields any more."""
        self._discovery.rediscover("mailbox")
        self.upsync.enqueue_all()

    def _on_copies_listed(self, resource: GroupResource) -> None:
        self.problems.clear(all_of(resource), Direction.DOWN)
        self.downsync.on_list(resource)
        self.downsync.enqueue_kind(resource)  # copies that did not change since the journal was written have no event
        if self._copies.awaits_list(resource):
            self._replan.set()  # the plan may end its watch
        self._consider_release()

    def _on_copies_relisted(self) -> None:
        """The hub cannot resume a watch, so it may have been restored from a backup.  The backup may hold copies with
        our finalizer, of kinds that are not watched any more."""
        self._copies.list_all_again()
        self._replan.set()

    def _consider_release(self) -> None:
        if self._orphans.has_release_request and self._is_complete:
            self._replan.set()

    def _on_upsynced_listed(self, resource: GroupResource) -> None:
        self.problems.clear(all_of(resource), Direction.DOWN)
        self.upsync.enqueue_all()

    def _accepts(self, ref: ObjectRef, cluster: str, config: Obj) -> bool:
        """Whether a configuration counts: it is in our mailbox, and no other syncer serves it."""
        if not self._is_ours(cluster):
            return False
        if ref == REPORTED:
            if not self._lease.check(config):
                return False
            self._reporter.load_last(config)
            self._identity.enter(cluster, self._forget_mailbox)
        return True

    def _forget_mailbox(self) -> None:
        """The mailbox was replaced, and the new one may serve other kinds."""
        self._discovery.rediscover("mailbox")
        self._copies.relist_all()
        self.downsync.restore_released()

    def _read_last_report(self, status: Obj) -> None:
        if not self._identity.last_cluster:
            self._copies.read_last_report(status)

    # --- identity of both sides -------------------------------------------------------------------

    async def _identify_mailbox(self) -> None:
        """Raises ClientError as long as the mailbox is not identified."""
        if await self._identity.identify():
            self._replan.set()

    def _is_ours(self, cluster: str) -> bool:
        """Whether events of this logical cluster count.  If not, all watches stop until the mailbox is identified."""
        if cluster == self._identity.cluster:
            return True
        if self._identity.cluster is not None:
            self._log.info("events of another mailbox", v=2, before=self._identity.cluster, now=cluster)
            self._restart_watches()
        return False

    def _suspect_restore(self, config: Obj) -> None:
        """The hub does not have our last report: it was restored from a backup, or another syncer reported."""
        if not self._lease.check(config):
            return
        self._log.warning("the hub does not have our last report")
        if not self._journal.get_fact(ORPHAN_CAUSE):
            self._journal.set_fact(ORPHAN_CAUSE, "HubRestored: the hub does not have the syncer's last report")
        self._distrust_hub()

    def _distrust_hub(self) -> None:
        """Identify the mailbox again, and list everything."""
        self._is_hub_distrusted, self._identity.cluster = True, None
        self._replan.set()

    def _restart_watches(self) -> None:
        """List everything again.  A watch that resumes from a resourceVersion that a restored hub reached for the
        second time misses the changes before."""
        self._is_hub_distrusted, self._identity.cluster = False, None
        self._discovery.rediscover("mailbox")
        self._copies.relist_all()
        self._upsynced.stop_all()
        self._configuration.reset()

    def _replace_edge(self) -> None:
        """The edge is another cluster than before."""
        self._log.warning("the edge was replaced", uid=str(self._edge.info.get("uid")))
        for feed in (self._downsynced, self._edge_objects):
            feed.stop_all()
        self._nodes.reset()
        self._discovery.rediscover("edge")

    def _on_mailbox_error(self, resource: GroupResource, error: Exception) -> None:
        if isinstance(error, NotFound):
            self._discovery.rediscover("mailbox")
        elif isinstance(error, Refused) and not isinstance(error, Expired):
            if resource in self._synced_kinds():
                reason, message = describe_error(all_of(resource), error)
                self.problems.put(all_of(resource), Direction.DOWN, reason, message, self._options.now())
                self._reporter.notify()
            self._consider_release()
        self._log.info("cannot watch the mailbox", v=2, resource=str(resource), error=str(error))

    def _on_edge_error(self, resource: GroupResource, error: Exception) -> None:
        if isinstance(error, NotFound):
            self._discovery.rediscover("edge")
        elif isinstance(error, Refused):
            self.downsync.enqueue_kind(resource)
        self._log.info("cannot watch the edge", v=2, resource=str(resource), error=str(error))

    # --- the journal ------------------------------------------------------------------------------

    async def _remember(self) -> None:
        """Flush the journal periodically, until cancelled."""
        while True:
            await self._env.sleep(FLUSH)
            self.record_positions()
            if not self._journal.is_dirty:
                continue
            try:
                await asyncio.to_thread(self._journal.flush)
            except JournalError as error:
                self._log.error(error, "cannot write the journal")

    def _flush(self) -> None:
        """At once.  If that fails, `_remember` retries and logs the error."""
        with contextlib.suppress(JournalError):
            self._journal.flush()

    def record_positions(self) -> None:
        """Record positions of watches and the last heartbeat in the journal."""
        for resource in self._copies.record_positions():
            self.problems.clear(all_of(resource), Direction.DOWN)
        self._journal.set_fact(HEARTBEAT, self._reporter.heartbeat)
        self._journal.set_fact(REPORTED_CLUSTER, self._reporter.edge_uid)

    # --- the plan ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        if self._journal.damage:
            self._log.warning("the journal is lost", damage=self._journal.damage)
        self._log.info("starting syncer", objects=len(self._journal))
        if self._journal.get_fact(RUNNING):
            self.downsync.reapply_all()
            self._copies.list_all_again()
        self._journal.set_fact(RUNNING, "yes")
        self._journal.set_fact(STARTED, format_seconds(self._started))
        self._flush()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._discovery.run(), name="informer of definitions")
                for controller in self.controllers:
                    group.create_task(controller.run(), name=controller.name)
                group.create_task(self._remember(), name="journal")
                group.create_task(self._reporter.run(), name="report")
                group.create_task(self._edge.run(), name="edge")
                group.create_task(self._mailbox_reachability.run(), name="reachability of the mailbox")
                group.create_task(self._edge_reachability.run(), name="reachability of the edge")
                group.create_task(self._nodes.run(), name="nodes")
                await self._follow_plan(group)
        finally:
            self.record_positions()
            self._journal.set_fact(RUNNING, "")
            self._journal.flush()
            self._log.info("stopped syncer")

    async def _follow_plan(self, group: asyncio.TaskGroup) -> None:
        while True:
            self._replan.clear()
            self._planning = True
            lacking = await self._plan(group)
            self._planning = False
            try:
                async with asyncio.timeout(self._discovery.pause(lacking)):
                    await self._replan.wait()
            except TimeoutError:
                self._discovery.rediscover(*lacking)

    def _retry(self) -> None:
        """A side is reachable again."""
        for controller in self.controllers:
            controller.retry_unreached()
        self._discovery.reset_pause()
        self._replan.set()

    async def _plan(self, group: asyncio.TaskGroup) -> set[Side]:
        """Watch the kinds that the SyncerConfigs select.  Returns the sides that lack a kind, or did not answer."""
        if self._is_hub_distrusted:
            self._restart_watches()
        before = self._kinds.edge
        lacking: set[Side] = set() if await self._discovery.discover("edge") else {"edge"}
        if self._kinds.edge != before:
            for resource in self._journal.kinds():
                self.downsync.enqueue_kind(resource)
        if not await self._ask_mailbox(group):
            lacking.add("mailbox")
        self._read_configs()
        self._enter_new_copies()
        wanted, is_known = self._configuration.scope, self._configuration.is_known
        lacking |= self._downsync_watches.plan(group, wanted, is_known=is_known)
        self._release_orphans()
        is_mailbox_known = self._identity.cluster is not None
        unlisted = self._discovery.unlisted()
        lacking |= self._upsync_watches.plan(
            group, wanted, unlisted, is_known=is_known, is_mailbox_known=is_mailbox_known
        )
        if is_known and is_mailbox_known:
            for ref in self._definitions.plan(self._upsync_watches.named):
                self.upsync.on_change(ref, "", None)
        self.problems.keep_kinds(self._synced_kinds(), Direction.DOWN)
        self._remember_kinds()
        self._reporter.notify()
        return lacking

    def _synced_kinds(self) -> set[GroupResource]:
        """Kinds that are selected or have journal entries.  Others are watched only to release earlier copies; if the
        mailbox forbids that, it is not a problem to report."""
        wanted = self._configuration.scope
        return {*wanted.resources, *self._journal.kinds(), *self._upsync_watches.named}

    def _remember_kinds(self) -> None:
        """On disk, before the first event of an informer that was started just now."""
        self._copies.remember_kinds()
        kinds = [self._journal.get_fact(KINDS), self._journal.get_fact(UPSYNCED)]
        if kinds != self._remembered_kinds:
            self._remembered_kinds = kinds
            self._flush()

    def _read_configs(self) -> None:
        if not self._configuration.is_known:
            return
        self._copies.configure(self._configuration.content_hash())
        if self._configuration.update_scope():
            self.upsync.enqueue_all()

    def _enter_new_copies(self) -> None:
        """Copies that were not selected before may be now."""
        copies = self._copies.informers
        for resource in copies.kinds():
            for ref, copy in list(copies.of(resource).items()):
                if self._journal.get(ref) is None:
                    self.downsync.on_copy(ref, self._identity.last_cluster, copy)
        known = copies.kinds()
        if known and all(map(copies.is_listed, known)) and not self._orphans.count():
            self._journal.set_fact(ORPHAN_CAUSE, "")

    def _release_orphans(self) -> None:
        """The number in the annotation is compared once, when every kind is listed."""
        if self._orphans.has_release_request and self._is_complete and self._orphans.accept_release():
            released = self.downsync.release_orphans(self._identity.last_cluster)
            self._log.warning("releasing orphans", number=released)

    @property
    def _is_complete(self) -> bool:
        """Whether every kind was listed of which the mailbox may hold copies."""
        return self._configuration.is_known and self._downsync_watches.is_complete(self._configuration.scope)

    async def _ask_mailbox(self, group: asyncio.TaskGroup) -> bool:
        """Identify the mailbox, watch its configurations, and discover its kinds.  Returns whether that succeeded."""
        try:
            await self._identify_mailbox()
        except ClientError as error:
            self._log.info("cannot identify the mailbox", v=2, error=str(error))
            return False
        self._configuration.watch(group)
        return await self._discovery.discover("mailbox")

    # --- state ------------------------------------------------------------------------------------

    @property
    def standby_reason(self) -> str:
        """A sentence about the syncer that serves the mailbox; empty if this one does."""
        return self._lease.standby_reason

    @property
    def is_planning(self) -> bool:
        """Whether a plan or a release of orphans is pending."""
        return self._planning or self._replan.is_set() or self._orphans.has_release_request

    @property
    def configured(self) -> bool:
        """Whether the syncer works: it knows the SyncerConfigs or has a journal, knows the kinds of the edge, and
        serves the mailbox."""
        known = self._configuration.is_known or len(self._journal) > 0
        return self._kinds.edge.groups != () and known and self._lease.held.is_set()

    def _is_scope_listed(self) -> bool:
        return self._configuration.is_known and self._downsync_watches.is_listed(self._configuration.scope)


def is_idle(syncer: Syncer) -> bool:
    """Whether no plan is pending and all queues are empty."""
    return not syncer.is_planning and all(controller.queue.idle for controller in syncer.controllers)
