"""A syncer at work: its parts put together, who is told what is heard, and how it starts, goes on and ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from farflung.apis.edge.names import PROJECTED
from farflung.client.errors import ClientError, Expired, NotFound, Refused
from farflung.client.rest import Client, ListOptions
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.runtime.controller import Controller
from farflung.runtime.reflector import Environment
from farflung.syncer import copies as copying
from farflung.syncer.configuration import REPORTED, ConfigInformers
from farflung.syncer.copies import MailboxCopy
from farflung.syncer.discovery import DiscoveryCache, ServedKinds, Side
from farflung.syncer.downsync import Downsync
from farflung.syncer.edge import EdgeClient, EdgeProbe
from farflung.syncer.informers import KINDS, CopyInformers, KindInformers
from farflung.syncer.journal import SUSPICION, Journal, JournalError
from farflung.syncer.mailbox import MailboxClient, MailboxIdentity, MailboxLease
from farflung.syncer.nodes import NodeCapacity
from farflung.syncer.reachability import Reachability
from farflung.syncer.report import (
    BEAT,
    PAUSE,
    Direction,
    Problems,
    Progress,
    StatusReporter,
    all_of,
    describe_error,
    without_secrets,
)
from farflung.syncer.status import Orphans, StatusComposer
from farflung.syncer.types import Adopt, Part, Resource
from farflung.syncer.upsync import Upsync, read_object
from farflung.syncer.watch_plan import UPSYNCED, DownsyncWatches, UpsyncWatches

OURS: Final = ListOptions(labels=f"{PROJECTED}=yes")
WORKERS: Final = 8
FLUSH: Final = 0.5  #: seconds between two looks at what is to be kept on disk
MISSING: Final = Backoff(first=0.2, longest=60.0, random=lambda: 1.0)  #: until a side is asked again for a kind
RUNNING: Final = "running"  #: facts of the journal: whoever wrote it has not ended in good order yet
HEARTBEAT: Final = "heartbeat"  #: the last one that we wrote
BEGAN: Final = "began"  #: when whoever may have written later ones did
SERVED: Final = "served"  #: the uid of the cluster in our last report


@dataclass(frozen=True, slots=True)
class SyncerOptions:
    mailbox: Client
    edge: Client
    name: str  #: of the SyncTarget
    uid: str
    now: Callable[[], datetime]
    adopt: Adopt = Adopt.IF_IDENTICAL
    beat: float = BEAT
    pause: float = PAUSE


class Syncer:
    """Made of a journal, which it does not close."""

    def __init__(self, setting: SyncerOptions, journal: Journal, env: Environment, log: Logger) -> None:
        self._mailbox_reachability = Reachability(setting.mailbox, env, self._retry)
        self._edge_reachability = Reachability(setting.edge, env, self._retry)
        setting = replace(setting, mailbox=self._mailbox_reachability.client, edge=self._edge_reachability.client)
        self._setting = setting
        self._journal = journal
        self._env = env
        self._log = log.bind(syncTargetName=setting.name)
        self._started = setting.now()
        self._kinds = ServedKinds()
        self._remembered_kinds: list[str] = []  #: which kinds the journal names on disk
        self._doubtful = False  #: whether the hub is to be listened to as if nothing had been heard
        self._replan = asyncio.Event()
        self._planning = False
        self._misses = 0  #: plans in a row that lacked something
        self._discovering = DiscoveryCache(
            setting.mailbox, setting.edge, self._kinds, self._edge_reachability.env, self._log, self._replan.set
        )
        self._configuration = ConfigInformers(
            setting.mailbox,
            self._kinds,
            self._mailbox_reachability.env,
            self._log,
            counts=self._counts,
            news=self._replan.set,
        )
        self._orphans = Orphans(journal, lambda: self._configuration.the_one)
        self.troubles = Problems()
        self.progress = Progress()
        backoff = Backoff(env.backoff.first, 60.0, env.backoff.random)
        self._listen()
        self.downsync = Downsync(
            MailboxClient(setting.mailbox, self._kinds, self._copies.feeds),
            EdgeClient(setting.edge, self._kinds, self._objects),
            journal,
            self.troubles,
            self.progress,
            lambda part: self._configuration.wanted.covers(part),
            setting.now,
            env,
            self._log,
            setting.adopt,
        )
        self.upsync = Upsync(
            setting.mailbox,
            setting.edge,
            self._upsynced,
            self._born,
            self._kinds,
            lambda: self._configuration.wanted,
            lambda namespace: any(part.namespace == namespace for part in journal.parts()),
            self.troubles,
            setting.now,
            self._log,
        )
        self._downsync_kinds = DownsyncWatches(self._kinds, journal, self._copies, self._objects, self.downsync)
        self._upsync_kinds = UpsyncWatches(self._kinds, journal, self._upsynced, self._born, self.troubles, setting.now)

        def controller(name: str, reconcile: Callable[[Part, int], Any]) -> Controller[Part]:
            async def reported(part: Part, worker: int) -> float | None:
                await self._serving.allowed.wait()
                try:
                    again: float | None = await reconcile(part, worker)
                    return again
                except ClientError as error:
                    raise without_secrets(part, error) from None
                finally:
                    self._reporter.look()

            return Controller(name, reported, workers=WORKERS, backoff=backoff, monotonic=env.monotonic, log=self._log)

        self.controllers = [
            controller("downsync", self.downsync.bring),
            controller("status", self.downsync.give_back),
            controller("upsync", self.upsync.bring),
        ]
        self.downsync.down, self.downsync.back, self.upsync.queue = [one.queue for one in self.controllers]
        self._reporter = StatusReporter(
            setting.mailbox,
            self._know_mailbox,
            lambda before: self.summary.status(before),
            setting.now,
            self._mailbox_reachability.env,
            self._log,
            beat=setting.beat,
            pause=setting.pause,
        )
        self._reporter.heartbeat, self._reporter.edge = journal.get_fact(HEARTBEAT), journal.get_fact(SERVED)
        self._reporter.began = journal.get_fact(BEGAN)
        self._reporter.found, self._reporter.doubt = self._learn, self._doubt_hub
        self._edge = EdgeProbe(
            setting.edge,
            setting.beat / 2,
            self._edge_reachability.env,
            self._log,
            uid=self._reporter.edge,
            news=self._reporter.look,
            replaced=self._doubt_edge,
        )
        self._nodes = NodeCapacity(setting.edge, self._edge_reachability.env, self._log, self._reporter.look)
        self._serving = MailboxLease(
            setting.name,
            setting.mailbox,
            self._edge,
            self._reporter,
            journal,
            env,
            self._log,
            beat=setting.beat,
            lost=self._leave_hub,
        )
        self._incarnation = MailboxIdentity(setting.mailbox, setting.uid, self._serving, journal, self._log)
        self.summary = StatusComposer(
            self._started,
            setting.now,
            journal,
            self.troubles,
            self.progress,
            self.downsync,
            self.upsync,
            self._orphans,
            self._edge,
            self._nodes,
            self._has_heard_all,
        )
        for resource in journal.resources():
            self.progress.reached(resource, max(entry.revision for entry in journal.entries_of(resource)))

    def _listen(self) -> None:
        mailbox, mailbox_env = self._setting.mailbox, self._mailbox_reachability.env
        edge, edge_env = self._setting.edge, self._edge_reachability.env
        self._copies = CopyInformers(
            mailbox,
            self._journal,
            mailbox_env,
            self._log,
            heard=self._hear_copy,
            listed=self._listed_copies,
            relisted=self._relisted_copies,
            trouble=self._mailbox_troubled,
        )
        self._objects: KindInformers[Obj] = KindInformers(
            edge,
            copying.read_edge_object,
            self._hear_object,
            edge_env,
            self._edge_troubled,
            selection=OURS,
            listed=self._listed,
        )
        self._upsynced: KindInformers[Obj] = KindInformers(
            mailbox, read_object, self._hear_upsynced, mailbox_env, self._mailbox_troubled, listed=self._listed_upsynced
        )
        self._born: KindInformers[Obj] = KindInformers(
            edge, read_object, self._hear_born, edge_env, self._edge_troubled, listed=self._listed_up
        )

    # --- what is heard ----------------------------------------------------------------------------

    def _hear_copy(self, part: Part, cluster: str, copy: MailboxCopy | None) -> None:
        if copy is not None and not self._is_ours(cluster):
            return
        self.downsync.hear_copy(part, cluster, copy)
        if not self._downsync_kinds.has_brought(part.resource) and self._journal.get(part) is not None:
            self._replan.set()
        self._reporter.look()

    def _hear_object(self, part: Part, cluster: str, obj: Obj | None) -> None:
        self.downsync.hear_object(part, cluster, obj)

    def _hear_upsynced(self, part: Part, cluster: str, obj: Obj | None) -> None:
        if obj is None or self._is_ours(cluster):
            self.upsync.hear(part, cluster, obj)

    def _hear_born(self, part: Part, cluster: str, obj: Obj | None) -> None:
        self.upsync.hear(part, cluster, obj)

    def _listed_copies(self, resource: Resource) -> None:
        self.troubles.clear(all_of(resource), Direction.DOWN)
        self.downsync.hear_list(resource)
        self.downsync.look_at(resource)  # copies that did not change since the journal was written have no event
        if self._copies.is_earlier(resource):
            self._replan.set()  # its watch may end
        self._consider_release()

    def _relisted_copies(self) -> None:
        """The hub cannot resume a watch, so it may have been restored from a backup.  The backup may hold copies with
        our finalizer, of kinds that are not watched any more."""
        self._copies.doubt()
        self._replan.set()

    def _consider_release(self) -> None:
        if self._orphans.is_told_to_release and self._is_complete:
            self._replan.set()

    def _listed(self, resource: Resource) -> None:
        self.downsync.look_at(resource)

    def _listed_upsynced(self, resource: Resource) -> None:
        self.troubles.clear(all_of(resource), Direction.DOWN)
        self.upsync.look_again()

    def _listed_up(self, resource: Resource) -> None:
        self.upsync.look_again()

    def _counts(self, part: Part, cluster: str, config: Obj) -> bool:
        """Whether what a configuration says does."""
        if not self._is_ours(cluster):
            return False
        if part == REPORTED:
            if not self._serving.may(config):
                return False
            self._reporter.recall(config)
            self._incarnation.meet(cluster, self._forget_mailbox)
        return True

    def _forget_mailbox(self) -> None:
        """Another one is in its place, which may serve other kinds."""
        self._discovering.doubt("mailbox")
        self._copies.list_all_again()
        self.downsync.keep_released()

    def _learn(self, said: Obj) -> None:
        if not self._incarnation.remembered:
            self._copies.learn(said)

    # --- which mailbox it is ----------------------------------------------------------------------

    async def _know_mailbox(self) -> None:
        """Raises ClientError as long as it is not ours."""
        if await self._incarnation.find():
            self._replan.set()

    def _is_ours(self, cluster: str) -> bool:
        """Whether what is said to be in this cluster counts.  If not, nothing more is heard until it is known whose
        mailbox that is."""
        if cluster == self._incarnation.cluster:
            return True
        if self._incarnation.cluster is not None:
            self._log.info("another mailbox is heard", v=2, before=self._incarnation.cluster, now=cluster)
            self._start_anew()
        return False

    def _doubt_hub(self, config: Obj) -> None:
        """It does not have what we last wrote there, so it went back to a copy; or somebody else wrote there."""
        if not self._serving.may(config):
            return
        self._log.warning("the hub does not have our last report")
        if not self._journal.get_fact(SUSPICION):
            self._journal.set_fact(SUSPICION, "WentBack: the hub does not have our last report any more")
        self._leave_hub()

    def _leave_hub(self) -> None:
        """Until it is asked again."""
        self._doubtful, self._incarnation.cluster = True, None
        self._replan.set()

    def _start_anew(self) -> None:
        """Whoever goes on from a version that a hub has reached for the second time misses what happened until then."""
        self._doubtful, self._incarnation.cluster = False, None
        self._discovering.doubt("mailbox")
        self._copies.list_all_again()
        self._upsynced.stop_all()
        self._configuration.start_anew()

    def _doubt_edge(self) -> None:
        """It is another cluster than before."""
        self._log.warning("the edge was replaced", uid=str(self._edge.said.get("uid")))
        for feed in (self._objects, self._born):
            feed.stop_all()
        self._nodes.start_anew()
        self._discovering.doubt("edge")

    def _mailbox_troubled(self, resource: Resource, error: Exception) -> None:
        if isinstance(error, NotFound):
            self._discovering.doubt("mailbox")
        elif isinstance(error, Refused) and not isinstance(error, Expired):
            if resource in self._kinds_to_bring():
                reason, message = describe_error(all_of(resource), error)
                self.troubles.put(all_of(resource), Direction.DOWN, reason, message, self._setting.now())
                self._reporter.look()
            self._consider_release()
        self._log.info("cannot listen to the mailbox", v=2, resource=str(resource), error=str(error))

    def _edge_troubled(self, resource: Resource, error: Exception) -> None:
        if isinstance(error, NotFound):
            self._discovering.doubt("edge")
        elif isinstance(error, Refused):
            self.downsync.look_at(resource)
        self._log.info("cannot listen to the edge", v=2, resource=str(resource), error=str(error))

    # --- going on from before ---------------------------------------------------------------------

    async def _remember(self) -> None:
        """Until cancelled: what is known, on disk."""
        while True:
            await self._env.sleep(FLUSH)
            self.note()
            if not self._journal.is_dirty:
                continue
            try:
                await asyncio.to_thread(self._journal.flush)
            except JournalError as error:
                self._log.error(error, "cannot remember")

    def _flush(self) -> None:
        """Before anything else happens.  If that fails, `_remember` tries again and logs the error."""
        with contextlib.suppress(JournalError):
            self._journal.flush()

    def note(self) -> None:
        """How far the mailbox was heard, and what it was told."""
        for resource in self._copies.note():
            self.troubles.clear(all_of(resource), Direction.DOWN)
        self._journal.set_fact(HEARTBEAT, self._reporter.heartbeat)
        self._journal.set_fact(SERVED, self._reporter.edge)

    # --- what is to be listened to ----------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        if self._journal.damage:
            self._log.warning("what was remembered is lost", damage=self._journal.damage)
        self._log.info("starting syncer", objects=len(self._journal))
        if self._journal.get_fact(RUNNING):
            self.downsync.doubt()
            self._copies.doubt()
        self._journal.set_fact(RUNNING, "yes")
        self._journal.set_fact(BEGAN, format_seconds(self._started))
        self._flush()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._discovering.run(), name="informer of definitions")
                for controller in self.controllers:
                    group.create_task(controller.run(), name=controller.name)
                group.create_task(self._remember(), name="journal")
                group.create_task(self._reporter.run(), name="report")
                group.create_task(self._edge.run(), name="edge")
                group.create_task(self._mailbox_reachability.run(), name="reachability of the mailbox")
                group.create_task(self._edge_reachability.run(), name="reachability of the edge")
                group.create_task(self._nodes.run(), name="nodes")
                await self._follow(group)
        finally:
            self.note()
            self._journal.set_fact(RUNNING, "")
            self._journal.flush()
            self._log.info("stopped syncer")

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        while True:
            self._replan.clear()
            self._planning = True
            lacking = await self._plan(group)
            self._planning = False
            self._misses = self._misses + 1 if lacking else 0
            try:
                async with asyncio.timeout(MISSING.delay(self._misses) if lacking else None):
                    await self._replan.wait()
            except TimeoutError:
                self._discovering.doubt(*lacking)

    def _retry(self) -> None:
        """A side answers again."""
        for controller in self.controllers:
            controller.retry_unreached()
        self._misses = 0
        self._replan.set()

    async def _plan(self, group: asyncio.TaskGroup) -> set[Side]:
        """Listen to what is wanted, as far as it is known.  The sides that lack something."""
        if self._doubtful:
            self._start_anew()
        before = self._kinds.edge
        lacking: set[Side] = set() if await self._discovering.ask("edge") else {"edge"}
        if self._kinds.edge != before:
            for resource in self._journal.resources():
                self.downsync.look_at(resource)
        if not await self._ask_mailbox(group):
            lacking.add("mailbox")
        self._read_configs()
        self._reconsider()
        wanted, is_known = self._configuration.wanted, self._configuration.is_known
        lacking |= self._downsync_kinds.plan(group, wanted, is_known=is_known)
        self._release_orphans()
        is_met = self._incarnation.cluster is not None
        if self._upsync_kinds.plan(group, wanted, is_known=is_known, is_met=is_met):
            lacking.add("mailbox")
        self.troubles.keep_kinds(self._kinds_to_bring(), Direction.DOWN)
        self._remember_kinds()
        self._reporter.look()
        return lacking

    def _kinds_to_bring(self) -> set[Resource]:
        """Kinds that are wanted, or of which something was brought.  Others are watched to withdraw what was brought
        before; if the mailbox does not let the syncer, that is no problem to report."""
        wanted = self._configuration.wanted
        return {*wanted.resources, *self._journal.resources(), *self._upsync_kinds.wanted}

    def _remember_kinds(self) -> None:
        """On disk, before the first event of a feed that was started just now."""
        self._copies.remember_kinds()
        kinds = [self._journal.get_fact(KINDS), self._journal.get_fact(UPSYNCED)]
        if kinds != self._remembered_kinds:
            self._remembered_kinds = kinds
            self._flush()

    def _read_configs(self) -> None:
        """What is wanted now."""
        if not self._configuration.is_known:
            return
        self._copies.configure(self._configuration.digest())
        if self._configuration.update_scope():
            self.upsync.look_again()

    def _reconsider(self) -> None:
        """Copies that were not wanted before may be now."""
        copies = self._copies.feeds
        for resource in copies.resources():
            for part, copy in list(copies.of(resource).items()):
                if self._journal.get(part) is None:
                    self.downsync.hear_copy(part, self._incarnation.remembered, copy)
        known = copies.resources()
        if known and all(map(copies.is_known, known)) and not self._orphans.count():
            self._journal.set_fact(SUSPICION, "")

    def _release_orphans(self) -> None:
        """A number counts if it is right as soon as all was heard, or never."""
        if self._orphans.is_told_to_release and self._is_complete and self._orphans.may_go():
            released = self.downsync.release_orphans(self._incarnation.remembered)
            self._log.warning("orphans are released", number=released)

    @property
    def _is_complete(self) -> bool:
        """All was heard of which there may be copies."""
        return self._configuration.is_known and self._downsync_kinds.is_complete(self._configuration.wanted)

    async def _ask_mailbox(self, group: asyncio.TaskGroup) -> bool:
        """What is wanted, and what it serves, if it is ours.  Whether that is known."""
        try:
            await self._know_mailbox()
        except ClientError as error:
            self._log.info("cannot ask whose mailbox it is", v=2, error=str(error))
            return False
        self._configuration.listen(group)
        return await self._discovering.ask("mailbox")

    # --- what is said -----------------------------------------------------------------------------

    @property
    def obstacle(self) -> str:
        """Who serves the mailbox in our place, as a sentence; empty if we do."""
        return self._serving.obstacle

    @property
    def plans(self) -> bool:
        """Whether what is to be listened to, or to be released, is still to be found out."""
        return self._planning or self._replan.is_set() or self._orphans.is_told_to_release

    @property
    def configured(self) -> bool:
        """Whether it is known what is wanted, and all of that is listened to at the edge; or was, before the hub was
        gone.  Not if somebody else serves the mailbox."""
        known = self._configuration.is_known or len(self._journal) > 0
        return self._kinds.edge.groups != () and known and self._serving.allowed.is_set()

    def _has_heard_all(self) -> bool:
        return self._configuration.is_known and self._downsync_kinds.has_heard_all(self._configuration.wanted)


def is_idle(syncer: Syncer) -> bool:
    """Nothing is to be done now, as far as is known."""
    return not syncer.plans and all(controller.queue.idle for controller in syncer.controllers)
