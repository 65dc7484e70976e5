"""What controllers of workloads share: informers, who belongs to whom, and how steps are done."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import orjson

from farflung.client.errors import AlreadyExists, ClientError, Conflict, Forbidden, NotFound, Refused
from farflung.client.resource import Collection
from farflung.client.rest import Client
from farflung.controllers.workload.objects import (
    CLAIMS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    REVISIONS,
    STATEFUL_SETS,
)
from farflung.controllers.workload.ownership import Claimed, Offspring, Owners, claim, controller_of
from farflung.controllers.workload.steps import Said, Step, collided
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.runtime.cache import Change, Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer
from farflung.runtime.manager import Manager
from farflung.runtime.plan import Create, Delete, Update, UpdateStatus, Write
from farflung.runtime.recorder import About, Recorder
from farflung.runtime.reflector import Environment

WORKERS: Final = 2
HEARD_BY_THEN: Final = timedelta(seconds=30)  #: what we deleted; if it is still there, something is odd: look anew
SERVER_ERROR: Final = 500


class Shelf:
    """The objects of one kind, and who belongs to whom among them."""

    def __init__(self, informer: Informer[Obj]) -> None:
        self.informer = informer
        self.children = Offspring()
        self.owners = Owners(informer.cache.get)
        self._written: dict[str, tuple[Obj, datetime]] = {}  #: by uid: until when it counts if it is not heard of
        informer.subscribe(self.children.hear)
        informer.subscribe(self.owners.hear)

    @property
    def collection(self) -> Collection:
        return self.informer.collection

    def get(self, key: Key) -> Obj | None:
        return self.informer.cache.get(key)

    def assume(self, written: Obj, until: datetime) -> None:
        """What we wrote.  A list that was asked for before, and comes after, knows nothing of it: until then."""
        self.informer.assume(written)
        self._written[written["metadata"]["uid"]] = written, until

    def of(self, uid: str, now: datetime) -> list[Obj]:
        """What this owner controls, by what was heard and by what was written since."""
        found = {obj["metadata"]["uid"]: obj for key in self.children.of(uid) if (obj := self.get(key)) is not None}
        for own, (obj, until) in list(self._written.items()):
            if until < now or int(obj["metadata"]["resourceVersion"]) <= self.informer.cache.heard:
                del self._written[own]
                continue
            found.pop(own, None)
            reference = controller_of(obj)
            if reference is not None and reference.get("uid") == uid:
                found[own] = obj
        return sorted(found.values(), key=lambda obj: str(obj["metadata"]["name"]))

    def all(self) -> Iterator[Obj]:
        yield from self.informer.cache.values()


class Workshop:
    """Writes are done one after the other.  What was done counts before it is heard of: what was written is assumed,
    what was deleted is seen as going, and what may have been created is asked for before anything else is."""

    def __init__(
        self,
        client: Client,
        env: Environment,
        recorder: Recorder,
        now: Callable[[], datetime],
        suffix: Callable[[], str],
        log: Logger,
    ) -> None:
        self.client = client
        self.now = now
        self.suffix = suffix
        self.log = log
        self._env = env
        self._recorder = recorder
        self._shelves: dict[Collection, Shelf] = {}
        self._going: dict[str, datetime] = {}  #: uids that we deleted, and until when we believe that
        self._unsure: dict[str, list[Create | Delete]] = {}  #: by owner: what may have been done
        self.pods = self._shelf(PODS)
        self.nodes = self._shelf(NODES)
        self.claims = self._shelf(CLAIMS)
        self.replica_sets = self._shelf(REPLICA_SETS)
        self.deployments = self._shelf(DEPLOYMENTS)
        self.stateful_sets = self._shelf(STATEFUL_SETS)
        self.daemon_sets = self._shelf(DAEMON_SETS)
        self.revisions = self._shelf(REVISIONS)
        self.jobs = self._shelf(JOBS)

    def _shelf(self, collection: Collection) -> Shelf:
        informer: Informer[Obj] = Informer(self.client, collection, _decoded, self._env, self._trouble)
        informer.subscribe(self._hear)
        shelf = self._shelves[collection] = Shelf(informer)
        return shelf

    def _trouble(self, what: str, error: Exception) -> None:
        self.log.error(error, what)

    def _hear(self, change: Change[Obj]) -> None:
        if change.old is not None and change.new is None:
            self._going.pop(change.old["metadata"]["uid"], None)

    # --- controllers ------------------------------------------------------------------------------

    def controller(
        self, name: str, reconcile: Callable[[Key, int], Awaitable[float | None]], *, workers: int = WORKERS
    ) -> Controller[Key]:
        env = self._env
        return Controller(name, reconcile, workers=workers, backoff=env.backoff, monotonic=env.monotonic, log=self.log)

    def own(self, controller: Controller[Key], owners: Shelf, *children: Shelf) -> None:
        """Look at owners when they change, and when their children do."""
        owners.informer.subscribe(lambda change: controller.queue.add(change.key))

        def listener(change: Change[Obj]) -> None:
            for key in owners.owners.concerned(change):
                controller.queue.add(key)

        for shelf in children:
            shelf.informer.subscribe(listener)

    def join(self, manager: Manager, controller: Controller[Key]) -> None:
        manager.add(controller, [shelf.informer for shelf in self._shelves.values()])

    # --- reading ----------------------------------------------------------------------------------

    def of(self, uid: str, shelf: Shelf) -> list[Obj]:
        """What this owner controls."""
        return [self._seen(obj) for obj in shelf.of(uid, self.now())]

    def claimed(
        self, owner: Obj, owners: Shelf, shelf: Shelf, belongs: Callable[[Obj], bool] = lambda child: True
    ) -> Claimed:
        """What is the owner's among the children of one kind, or will be.  `belongs`: what else is asked of them than
        that the selector selects them."""
        metadata = owner["metadata"]
        orphans = (shelf.get(key) for key in shelf.children.orphans(metadata["namespace"]))
        candidates = (*self.of(metadata["uid"], shelf), *(self._seen(obj) for obj in orphans if obj is not None))
        return claim(owner, owners.collection, shelf.collection, candidates, belongs)

    def _seen(self, obj: Obj) -> Obj:
        """Deleted, if that is what we did."""
        metadata = obj["metadata"]
        until = self._going.get(metadata["uid"])
        if until is None or "deletionTimestamp" in metadata:
            return obj
        if until < self.now():
            del self._going[metadata["uid"]]
            return obj
        return {**obj, "metadata": {**metadata, "deletionTimestamp": format_seconds(self.now())}}

    # --- writing ----------------------------------------------------------------------------------

    async def settle(self, owner_uid: str) -> None:
        """Find out what became of that owner's writes whose answers were lost."""
        while unsure := self._unsure.get(owner_uid):
            write = unsure[0]
            if isinstance(write, Delete):
                await self._delete(write)
            else:
                with contextlib.suppress(NotFound):
                    found = await self.client.get(write.collection, write.name, write.namespace)
                    self._assume(write, found)
            unsure.pop(0)
        self._unsure.pop(owner_uid, None)

    async def perform(self, component: str, owner: Obj, collection: Collection, steps: Iterable[Step]) -> bool:
        """False if it was given up because something is gone, or is going; that will be heard of.  Raises ClientError
        if a step failed."""
        for step in steps:
            try:
                await self._do(step, owner["metadata"]["uid"])
            except NotFound:
                return False
            except ClientError as error:
                if _is_ending(error):
                    return False
                if step.failed is not None and not isinstance(error, Conflict):
                    self.say(component, owner, collection, step.failed, str(error))
                raise
            if step.done is not None:
                self.say(component, owner, collection, step.done)
        return True

    async def perform_naming(
        self, component: str, owner: Obj, collection: Collection, steps: Sequence[Step], same: Callable[[Obj], bool]
    ) -> bool:
        """As `perform`; the first step creates something whose name is made of a hash.  If that is there, it may be our
        own, from a write whose answer was lost, or somebody else's: then it gets another name next time."""
        try:
            return await self.perform(component, owner, collection, steps)
        except AlreadyExists:
            write = steps[0].write
            found = await self.client.get(write.collection, write.name, write.namespace)
            reference = controller_of(found)
            ours = reference is not None and reference.get("uid") == owner["metadata"]["uid"]
            if not ours or not same(found):
                await self.perform(component, owner, collection, [collided(collection, owner)])
            raise

    def say(self, component: str, owner: Obj, collection: Collection, said: Said, more: str = "") -> None:
        metadata = owner["metadata"]
        namespace = metadata.get("namespace", "")
        about = About("", collection.api_version, collection.kind, metadata["name"], namespace, metadata["uid"])
        self._recorder.record(about, said.type, said.reason, said.message + more, component=component)

    async def _do(self, step: Step, owner_uid: str) -> None:
        write = step.write
        try:
            match write:
                case Create():
                    self._assume(write, await self.client.create(write.collection, dict(write.object), write.namespace))
                case Update():
                    self._assume(write, await self.client.update(write.collection, dict(write.object)))
                case UpdateStatus():
                    self._assume(write, await self.client.update(write.collection, dict(write.object), "status"))
                case Delete():
                    await self._delete(write, step.propagation)
        except ClientError as error:
            if isinstance(write, Create | Delete) and (_is_unsure(error) or isinstance(error, AlreadyExists)):
                self._unsure.setdefault(owner_uid, []).append(write)
            raise

    def _assume(self, write: Write, answer: Obj) -> None:
        self._shelves[write.collection].assume(answer, self.now() + HEARD_BY_THEN)

    async def _delete(self, write: Delete, propagation: str = "") -> None:
        self._going[write.uid] = self.now() + HEARD_BY_THEN
        try:
            await self.client.delete(
                write.collection, write.name, write.namespace, uid=write.uid, propagation=propagation
            )
        except (NotFound, Conflict):
            pass  # it is gone; and if there is another one in its place, that is not the one we meant
        except ClientError as error:
            if not _is_unsure(error):
                self._going.pop(write.uid, None)
            raise


def _is_unsure(error: ClientError) -> bool:
    """It may have been done, whatever the answer was."""
    return not isinstance(error, Refused) or error.status >= SERVER_ERROR


def _is_ending(error: ClientError) -> bool:
    """In a namespace that is going nothing is created any more."""
    causes = error.details.get("causes") if isinstance(error, Forbidden) else None
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == "NamespaceTerminating" for cause in causes
    )


def _decoded(raw: bytes) -> Obj:
    obj: Obj = orjson.loads(raw)
    return obj
