"""A syncer at work: what it listens to, what it does about it, what it remembers and what it says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson

from farflung.client.errors import ClientError, Expired, Forbidden, NotFound, Refused
from farflung.client.resource import Collection
from farflung.client.rest import Client, Selection
from farflung.informer.informer import Informer
from farflung.informer.reflector import Surroundings
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.runtime.controller import Controller
from farflung.syncer import copies as copying
from farflung.syncer.configuration import REPORTED, Configuration
from farflung.syncer.copies import Copy
from farflung.syncer.discovering import Discovering, Side
from farflung.syncer.downsync import Downsync
from farflung.syncer.edge_watch import EdgeWatch
from farflung.syncer.feeds import Feeds
from farflung.syncer.incarnation import Incarnation
from farflung.syncer.journal import Journal, JournalError
from farflung.syncer.kinds import Kinds
from farflung.syncer.nodes import Nodes
from farflung.syncer.orphans import Orphans
from farflung.syncer.report import BEAT, PAUSE, Reporter
from farflung.syncer.serving import SUSPICION, Serving
from farflung.syncer.sides import DEFINITIONS, Edge, Mailbox
from farflung.syncer.summary import Summary
from farflung.syncer.troubles import Direction, Progress, Troubles, quotable, told
from farflung.syncer.upsync import Upsync, whole
from farflung.syncer.values import PROJECTED, Adopt, Part, Resource
from farflung.syncer.wanted import ANY

OURS: Final = Selection(labels=f"{PROJECTED}=yes")
WORKERS: Final = 8
RUNNING: Final = "running"  #: fact of the journal: whoever wrote it has not ended in good order yet
FLUSH: Final = 0.5  #: seconds between two looks at what is to be kept on disk
MISSING: Final = Backoff(first=0.2, longest=60.0, random=lambda: 1.0)  #: until a side is asked again for a kind
CONFIGURED: Final = "configured"  #: facts of the journal: what was wanted when we last heard of the mailbox
UPSYNCED: Final = "upsynced"  #: the kinds that we may have put into the mailbox
HEARTBEAT: Final = "heartbeat"  #: the last one that we wrote
BEGAN: Final = "began"  #: when whoever may have written later ones did
EARLIER: Final = "earlier"  #: kinds that somebody who was forgotten may have brought
SERVED: Final = "served"  #: the uid of the cluster in our last report


@dataclass(frozen=True, slots=True)
class Setting:
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

    def __init__(self, setting: Setting, journal: Journal, outside: Surroundings, log: Logger) -> None:
        self._setting = setting
        self._journal = journal
        self._outside = outside
        self._log = log.bind(syncTargetName=setting.name)
        self._started = setting.now()
        self._kinds = Kinds()
        self._discovering = Discovering(setting.mailbox, setting.edge, self._kinds, self._log)
        self._doubtful = False  #: whether the hub is to be listened to as if nothing had been heard
        self._replan = asyncio.Event()
        self._planning = False
        self._resumed: set[Resource] = set()
        self._configuration = Configuration(
            setting.mailbox, self._kinds, outside, self._log, counts=self._counts, news=self._replan.set
        )
        self._orphans = Orphans(journal, lambda: self._configuration.the_one)
        self._brought: frozenset[Resource] = frozenset()  #: kinds that there was something to bring of, as of the plan
        self.troubles = Troubles()
        self.progress = Progress()
        backoff = Backoff(outside.backoff.first, 60.0, outside.backoff.random)
        self._listen()
        self.downsync = Downsync(
            Mailbox(setting.mailbox, self._kinds, self._copies),
            Edge(setting.edge, self._kinds, self._objects),
            journal,
            self.troubles,
            self.progress,
            lambda part: self._configuration.wanted.covers(part),
            setting.now,
            outside,
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

        def controller(name: str, reconcile: Callable[[Part, int], Any]) -> Controller[Part]:
            async def reported(part: Part, worker: int) -> float | None:
                await self._serving.allowed.wait()
                try:
                    again: float | None = await reconcile(part, worker)
                    return again
                except ClientError as error:
                    raise quotable(part, error) from None
                finally:
                    self._reporter.look()

            return Controller(
                name, reported, workers=WORKERS, backoff=backoff, monotonic=outside.monotonic, log=self._log
            )

        self.controllers = [
            controller("downsync", self.downsync.bring),
            controller("status", self.downsync.give_back),
            controller("upsync", self.upsync.bring),
        ]
        self.downsync.down, self.downsync.back, self.upsync.queue = [one.queue for one in self.controllers]
        self._reporter = Reporter(
            setting.mailbox,
            self._know_mailbox,
            lambda before: self.summary.status(before),
            setting.now,
            outside,
            self._log,
            beat=setting.beat,
            pause=setting.pause,
        )
        self._reporter.heartbeat, self._reporter.edge = journal.get_fact(HEARTBEAT), journal.get_fact(SERVED)
        self._reporter.began = journal.get_fact(BEGAN)
        self._reporter.found, self._reporter.doubt = self._learn, self._doubt_hub
        self._edge = EdgeWatch(
            setting.edge,
            setting.beat / 2,
            outside,
            self._log,
            uid=self._reporter.edge,
            news=self._reporter.look,
            replaced=self._doubt_edge,
        )
        self._nodes = Nodes(setting.edge, outside, self._log, self._reporter.look)
        self._serving = Serving(
            setting.name,
            setting.mailbox,
            self._edge,
            self._reporter,
            journal,
            outside,
            self._log,
            beat=setting.beat,
            lost=self._leave_hub,
        )
        self._incarnation = Incarnation(setting.mailbox, setting.uid, self._serving, journal, self._log)
        self.summary = Summary(
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
        mailbox, edge, outside = self._setting.mailbox, self._setting.edge, self._outside
        self._copies: Feeds[Copy] = Feeds(
            mailbox,
            copying.read,
            self._hear_copy,
            outside,
            self._mailbox_troubled,
            resume=self._resume,
            listed=self._listed_copies,
        )
        self._objects: Feeds[Obj] = Feeds(
            edge, copying.slim, self._hear_object, outside, self._edge_troubled, selection=OURS, listed=self._listed
        )
        self._upsynced: Feeds[Obj] = Feeds(
            mailbox, whole, self._hear_upsynced, outside, self._mailbox_troubled, listed=self._listed_up
        )
        self._born: Feeds[Obj] = Feeds(
            edge, whole, self._hear_born, outside, self._edge_troubled, listed=self._listed_up
        )

        def quiet_edge(what: str, error: Exception) -> None:
            self._log.info(what, v=2, side="edge", error=str(error))

        self._definitions: Informer[str] = Informer(edge, DEFINITIONS, _settled, outside, quiet_edge)
        self._definitions.subscribe(lambda change: self._ask_again("edge") if change.old != change.new else None)

    # --- what is heard ----------------------------------------------------------------------------

    def _hear_copy(self, part: Part, cluster: str, copy: Copy | None) -> None:
        if copy is not None and not self._is_ours(cluster):
            return
        self.downsync.hear_copy(part, cluster, copy)
        if part.resource not in self._brought and self._journal.get(part) is not None:
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
        self.troubles.clear(_all_of(resource), Direction.DOWN)
        self.downsync.hear_list(resource)
        self._consider_release()

    def _consider_release(self) -> None:
        if self._orphans.is_told_to_release and self._is_complete:
            self._replan.set()

    def _listed(self, resource: Resource) -> None:
        self.downsync.look_at(resource)

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
            if self._incarnation.meet(cluster):
                self._list_again([*self._journal.heard(), *self._copies.resources()])
        return True

    def _learn(self, said: Obj) -> None:
        """Whoever remembers nothing hears from the last report of which kinds there may be copies that wait for us."""
        if self._incarnation.remembered:
            return
        kinds = {
            (one.get("group"), one.get("resource")) for one in said.get("syncedThrough") or () if isinstance(one, dict)
        }
        known = sorted(one for one in kinds if all(isinstance(text, str) for text in one))
        self._journal.set_fact(EARLIER, orjson.dumps(known).decode())

    def _earlier(self) -> list[Resource]:
        """Of these, those that were not listed yet."""
        told = [Resource(*one) for one in orjson.loads(self._journal.get_fact(EARLIER) or "[]")]
        left = [one for one in told if not self._copies.is_known(one)]
        if left != told:
            self._journal.set_fact(EARLIER, orjson.dumps(list(map(list, left))).decode())
        return [one for one in left if self._kinds.in_mailbox(one, "") is not None]

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
            self._ask_again("mailbox")
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
        self._list_again([*self._journal.heard(), *self._copies.resources()])
        self._upsynced.stop_all()
        self._configuration.start_anew()

    def _doubt_edge(self) -> None:
        """It is another cluster than before."""
        self._log.warning("the edge was replaced", uid=str(self._edge.said.get("uid")))
        for feed in (self._objects, self._born):
            feed.stop_all()
        self._nodes.start_anew()
        self._ask_again("edge")

    def _ask_again(self, *sides: Side) -> None:
        self._discovering.doubt(sides)
        self._replan.set()

    def _mailbox_troubled(self, resource: Resource, error: Exception) -> None:
        if isinstance(error, NotFound):
            self._ask_again("mailbox")
        elif isinstance(error, Refused) and not isinstance(error, Expired):
            reason, message = told(_all_of(resource), error)
            self.troubles.put(_all_of(resource), Direction.DOWN, reason, message, self._setting.now())
            self._reporter.look()
            self._consider_release()
        self._log.info("cannot listen to the mailbox", v=2, resource=str(resource), error=str(error))

    def _edge_troubled(self, resource: Resource, error: Exception) -> None:
        if isinstance(error, NotFound):
            self._ask_again("edge")
        elif isinstance(error, Refused):
            self.downsync.look_at(resource)
        self._log.info("cannot listen to the edge", v=2, resource=str(resource), error=str(error))

    # --- going on from before ---------------------------------------------------------------------

    def _resume(self, resource: Resource, collection: Collection, informer: Informer[Copy]) -> None:
        heard = self._journal.heard().get(resource)
        entries = list(self._journal.entries_of(resource))
        if heard is None or heard.version != collection.version or not heard.revision:
            return
        if any(entry.orphaned for entry in entries):
            return  # perhaps not all was said that there was
        remembered = list(map(copying.remembered, entries))
        informer.resume(remembered, int(heard.revision))
        self._resumed.add(resource)

    def _list_again(self, resources: list[Resource]) -> None:
        for resource in resources:
            self._journal.set_revision(resource, "", "")
            if self._copies.collection(resource) is not None:
                self._copies.stop(resource)
        self._resumed.difference_update(resources)

    async def _remember(self) -> None:
        """Until cancelled: what is known, on disk."""
        while True:
            await self._outside.sleep(FLUSH)
            self.note()
            if not self._journal.is_dirty:
                continue
            try:
                await asyncio.to_thread(self._journal.flush)
            except JournalError as error:
                self._log.error(error, "cannot remember")

    def note(self) -> None:
        """How far the mailbox was heard; a version that goes back is a hub that was restored."""
        for resource, collection, version in self._copies.heard():
            before = self._journal.revision_of(resource)
            if before and version < int(before):
                self._log.warning("the hub went back", before=before, now=version)
                self._journal.set_fact(SUSPICION, f"WentBack: the hub was at {before} and is at {version} again")
            if before != str(version):
                self.troubles.clear(_all_of(resource), Direction.DOWN)
            self._journal.set_revision(resource, collection.version, str(version))
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
        self._journal.set_fact(RUNNING, "yes")
        self._journal.set_fact(BEGAN, format_seconds(self._started))
        with contextlib.suppress(JournalError):  # it is tried and told again
            self._journal.flush()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._definitions.run(), name="informer of definitions")
                for controller in self.controllers:
                    group.create_task(controller.run(), name=controller.name)
                group.create_task(self._remember(), name="journal")
                group.create_task(self._reporter.run(), name="report")
                group.create_task(self._edge.run(), name="edge")
                group.create_task(self._nodes.run(), name="nodes")
                await self._follow(group)
        finally:
            self.note()
            self._journal.set_fact(RUNNING, "")
            self._journal.flush()
            self._log.info("stopped syncer")

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        misses = 0
        while True:
            self._replan.clear()
            self._planning = True
            lacking = await self._plan(group)
            self._planning = False
            misses = misses + 1 if lacking else 0
            try:
                async with asyncio.timeout(MISSING.delay(misses) if lacking else None):
                    await self._replan.wait()
            except TimeoutError:
                self._discovering.doubt(lacking)

    async def _plan(self, group: asyncio.TaskGroup) -> set[Side]:
        """Listen to what is wanted, as far as both sides have it, and at the edge only to kinds that there is something
        to bring of.  The sides that lack something."""
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
        self._brought = frozenset(self._journal.resources())
        down = {
            **dict.fromkeys([*self._earlier(), *self._journal.resources()], ""),
            **self._configuration.wanted.resources,
        }
        for resource in self._journal.resources():
            entry = next(iter(self._journal.entries_of(resource)))
            down[resource] = down[resource] or entry.version
        copies = {resource: self._kinds.in_mailbox(resource, version) for resource, version in down.items()}
        versions = {one: found.version if found else down[one] for one, found in copies.items()}
        objects = {one: self._kinds.at_edge(one, version) for one, version in versions.items() if one in self._brought}
        served_before = {one for one in down if self._objects.collection(one) is not None}
        if self._configuration.is_known:
            self._copies.want(group, _found(copies))
            self._lose_kinds([resource for resource, found in copies.items() if found is None])
        self._release_orphans()
        self._objects.want(group, _found(objects))
        for resource in objects:
            if objects[resource] is None and resource in served_before:
                self.downsync.look_at(resource)
        lacking |= self._plan_upsync(group)
        self._reporter.look()
        if None in copies.values() or self._configuration.wanted.unknown:
            lacking.add("mailbox")
        if None in objects.values() or self._configuration.wanted.unknown:
            lacking.add("edge")
        return lacking

    def _lose_kinds(self, resources: list[Resource]) -> None:
        """With its definition every copy of a kind goes.  If it comes back, it is listed."""
        for resource in resources:
            self._journal.set_revision(resource, "", "")
            self.downsync.hear_list(resource)

    def _plan_upsync(self, group: asyncio.TaskGroup) -> set[Side]:
        """A kind that the edge does not have is waited for without asking: its definition will be heard of."""
        wanted: set[Resource] = set()
        for one in self._configuration.wanted.upsync:
            for plural in one.resources:
                wanted |= set(self._kinds.of_group(one.group)) if plural == ANY else {Resource(one.group, plural)}
        before = {Resource(*one) for one in orjson.loads(self._journal.get_fact(UPSYNCED) or "[]")}
        kept = {one for one in before - wanted if not self._upsynced.is_known(one) or self._has_upsynced(one)}
        if self._configuration.is_known:
            self._journal.set_fact(UPSYNCED, orjson.dumps(list(map(list, sorted(wanted | kept)))).decode())
        every = wanted | before if not self._configuration.is_known else wanted | kept
        copies = {one: self._kinds.in_mailbox(one, "") for one in every}
        born = {one: self._kinds.at_edge(one, found.version) if found else None for one, found in copies.items()}
        if self._incarnation.cluster is not None and self._configuration.is_known:
            self._upsynced.want(group, _found(copies))
        self._born.want(group, _found(born))
        lacking = {one for one in wanted if copies[one] is None and self._kinds.at_edge(one) is not None}
        for resource in sorted(wanted):
            if resource in lacking and self._configuration.is_known:
                sentence = f"the mailbox does not serve {resource.plural}: what there is of them stays at the edge"
                self.troubles.put(_all_of(resource), Direction.UP, "NotServed", sentence, self._setting.now())
            else:
                self.troubles.clear(_all_of(resource), Direction.UP)
        return {"mailbox"} if lacking else set()

    def _has_upsynced(self, resource: Resource) -> bool:
        return any(self.upsync.has_copies(part) for part in self._upsynced.of(resource))

    def _read_configs(self) -> None:
        """What is wanted now.  Who went on from before knows only what was wanted then."""
        if not self._configuration.is_known:
            return
        configured = self._configuration.digest()
        if configured != self._journal.get_fact(CONFIGURED):
            self._list_again(list(self._resumed) if self._copies.resources() else list(self._journal.heard()))
            self._journal.set_fact(CONFIGURED, configured)
        if self._configuration.read():
            self.upsync.look_again()

    def _reconsider(self) -> None:
        """Copies that were not wanted before may be now."""
        for resource in self._copies.resources():
            for part, copy in list(self._copies.of(resource).items()):
                if self._journal.get(part) is None:
                    self.downsync.hear_copy(part, self._incarnation.remembered, copy)
        known = self._copies.resources()
        if known and all(map(self._copies.is_known, known)) and not self._orphans.count():
            self._journal.set_fact(SUSPICION, "")

    def _release_orphans(self) -> None:
        """A number counts if it is right as soon as all was heard, or never."""
        if self._orphans.is_told_to_release and self._is_complete and self._orphans.may_go():
            released = self.downsync.release_orphans(self._incarnation.remembered)
            self._log.warning("orphans are released", number=released)

    @property
    def _is_complete(self) -> bool:
        """There was a list of every kind of which there may be copies, as far as the mailbox has it and lets us."""
        kinds = {*self._copies.resources(), *self._journal.resources(), *self._configuration.wanted.resources}
        served = [one for one in kinds if self._kinds.in_mailbox(one, "") is not None]
        unheard = [one for one in served if not self._copies.is_known(one)]
        return self._configuration.is_known and all(isinstance(self._copies.error(one), Forbidden) for one in unheard)

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
        """Of whatever is wanted, as far as the mailbox has it and lets us."""
        served = {one for one in self._configuration.wanted.resources if self._kinds.in_mailbox(one, "") is not None}
        unheard = [one for one in served | {*self._copies.resources()} if not self._copies.is_known(one)]
        return self._configuration.is_known and all(self._copies.error(one) is not None for one in unheard)


def _all_of(resource: Resource) -> Part:
    return Part(resource, "", ANY)


def _found(collections: dict[Resource, Collection | None]) -> dict[Resource, Collection]:
    return {resource: found for resource, found in collections.items() if found is not None}


def _settled(document: bytes) -> str:
    """Of a definition, what changes which kinds are served."""
    obj = orjson.loads(document)
    established = [one.get("status") for one in (obj.get("status") or {}).get("conditions") or ()]
    return f"{(obj.get('metadata') or {}).get('generation')}{established}"


def is_idle(syncer: Syncer) -> bool:
    """Nothing is to be done now, as far as is known."""
    return not syncer.plans and all(controller.queue.idle for controller in syncer.controllers)
