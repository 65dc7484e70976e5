"""The informers, indexes and writes that the workload controllers share."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

import orjson

from farflung.apis.names import (
    CLAIMS,
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Collection,
)
from farflung.client.errors import AlreadyExists, ClientError, Forbidden, NotFound, Refused, UpdateConflict
from farflung.client.rest import Client
from farflung.controllers.workload.model.ownership import ChildIndex, OwnerIndex, controller_reference
from farflung.controllers.workload.model.steps import EventText, WriteStep
from farflung.lib.klog import Logger
from farflung.lib.workqueue import WorkQueue
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.controller import Controller
from farflung.runtime.environment import Environment
from farflung.runtime.informer import Informer
from farflung.runtime.manager import Manager
from farflung.runtime.plan import Create, Delete, Update, UpdateStatus, Write
from farflung.runtime.recorder import InvolvedObject, Recorder

WORKERS: Final = 2
ASSUMED_FOR: Final = timedelta(seconds=30)  #: a write that no watch event confirms is forgotten after this time
SERVER_ERROR: Final = 500


class WorkloadCache:
    """The objects of one kind, indexed by owner."""

    def __init__(self, informer: Informer[Obj]) -> None:
        self.informer = informer
        self.children = ChildIndex()
        self.owners = OwnerIndex(informer.cache.get)
        self._written: dict[str, tuple[Obj, datetime]] = {}  #: by uid: an assumed object, and until when
        informer.subscribe(self.children.on_change)
        informer.subscribe(self.owners.on_change)

    @property
    def collection(self) -> Collection:
        return self.informer.collection

    def get(self, key: Key) -> Obj | None:
        return self.informer.cache.get(key)

    def assume(self, written: Obj, until: datetime) -> None:
        """Keep a written object until the informer has seen its resourceVersion: a list that was requested before the
        write does not contain it."""
        self.informer.assume(written)
        self._written[written["metadata"]["uid"]] = written, until

    def children_of(self, uid: str, now: datetime) -> list[Obj]:
        """The objects that this owner controls, assumed writes included."""
        keys = self.children.keys_of(uid)
        found = {obj["metadata"]["uid"]: obj for key in keys if (obj := self.get(key)) is not None}
        for own, (obj, until) in list(self._written.items()):
            if until < now or int(obj["metadata"]["resourceVersion"]) <= self.informer.cache.delivered:
                del self._written[own]
                continue
            found.pop(own, None)
            reference = controller_reference(obj)
            if reference is not None and reference.get("uid") == uid:
                found[own] = obj
        return sorted(found.values(), key=lambda obj: str(obj["metadata"]["name"]))

    def all(self) -> Iterator[Obj]:
        yield from self.informer.cache.values()


class WorkloadClient:
    """Performs writes one after the other, and applies them to the caches before the watch confirms them.

    A deleted object is shown as terminating.  A write whose outcome is unknown is looked up before its owner is
    reconciled again.
    """

    def __init__(
        self,
        client: Client,
        env: Environment,
        recorder: Recorder,
        now: Callable[[], datetime],
        suffix: Callable[[], str],
        log: Logger,
    ) -> None:
        self.api = client
        self.now = now
        self.suffix = suffix
        self.log = log
        self._env = env
        self._recorder = recorder
        self._caches: dict[Collection, WorkloadCache] = {}
        self._deleted: dict[str, datetime] = {}  #: by uid: deleted objects, and until when they are assumed to be
        self._unknown: dict[str, list[Create | Delete]] = {}  #: by owner uid: writes whose outcome is unknown
        self.pods = self._add_cache(PODS)
        self.nodes = self._add_cache(NODES)
        self.claims = self._add_cache(CLAIMS)
        self.replica_sets = self._add_cache(REPLICA_SETS)
        self.deployments = self._add_cache(DEPLOYMENTS)
        self.stateful_sets = self._add_cache(STATEFUL_SETS)
        self.daemon_sets = self._add_cache(DAEMON_SETS)
        self.revisions = self._add_cache(CONTROLLER_REVISIONS)
        self.jobs = self._add_cache(JOBS)

    def _add_cache(self, collection: Collection) -> WorkloadCache:
        informer: Informer[Obj] = Informer(self.api, collection, orjson.loads, self._env, self._log_error)
        informer.subscribe(self._on_change)
        cache = self._caches[collection] = WorkloadCache(informer)
        return cache

    def _log_error(self, what: str, error: Exception) -> None:
        self.log.error(error, what)

    def _on_change(self, change: CacheChange[Obj]) -> None:
        if change.old is not None and change.new is None:
            self._deleted.pop(change.old["metadata"]["uid"], None)

    # --- controllers ------------------------------------------------------------------------------

    def controller(
        self, name: str, reconcile: Callable[[Key, int], Awaitable[float | None]], *, workers: int = WORKERS
    ) -> Controller[Key]:
        env = self._env
        return Controller(
            name, reconcile, workers=workers, backoff=env.backoff, queue=WorkQueue(env.monotonic), log=self.log
        )

    def join(self, manager: Manager, controller: Controller[Key]) -> None:
        manager.add(controller, [cache.informer for cache in self._caches.values()])

    # --- reading ----------------------------------------------------------------------------------

    def children_of(self, uid: str, cache: WorkloadCache) -> list[Obj]:
        """The objects that this owner controls."""
        return [self._with_deletion(obj) for obj in cache.children_of(uid, self.now())]

    def candidates(self, owner: Obj, children: WorkloadCache) -> Iterator[Obj]:
        """The objects of one kind that the owner controls, and the orphans of its namespace."""
        metadata = owner["metadata"]
        yield from self.children_of(metadata["uid"], children)
        for key in children.children.orphans(metadata["namespace"]):
            if (obj := children.get(key)) is not None:
                yield self._with_deletion(obj)

    def _with_deletion(self, obj: Obj) -> Obj:
        """The object with a deletionTimestamp, if this client deleted it."""
        metadata = obj["metadata"]
        until = self._deleted.get(metadata["uid"])
        if until is None or "deletionTimestamp" in metadata:
            return obj
        if until < self.now():
            del self._deleted[metadata["uid"]]
            return obj
        return {**obj, "metadata": {**metadata, "deletionTimestamp": format_seconds(self.now())}}

    # --- writing ----------------------------------------------------------------------------------

    async def resolve_unknown_writes(self, owner_uid: str) -> None:
        """Look up the owner's writes whose responses were lost."""
        while unknown := self._unknown.get(owner_uid):
            write = unknown[0]
            if isinstance(write, Delete):
                await self._delete(write)
            else:
                with contextlib.suppress(NotFound):
                    found = await self.api.get(write.collection, write.name, write.namespace)
                    self._assume(write, found)
            unknown.pop(0)
        self._unknown.pop(owner_uid, None)

    async def perform(self, component: str, owner: Obj, collection: Collection, steps: Iterable[WriteStep]) -> None:
        """Stop at a step whose object does not exist, or whose namespace is terminating.  Raises ClientError if a step
        failed."""
        for step in steps:
            try:
                await self._write(step, owner["metadata"]["uid"])
            except NotFound:
                return
            except ClientError as error:
                if _is_namespace_terminating(error):
                    return
                if step.failed is not None and not isinstance(error, UpdateConflict):
                    self.record_event(component, owner, collection, step.failed, str(error))
                raise
            if step.done is not None:
                self.record_event(component, owner, collection, step.done)

    def record_event(self, component: str, owner: Obj, collection: Collection, text: EventText, more: str = "") -> None:
        metadata = owner["metadata"]
        namespace = metadata.get("namespace", "")
        about = InvolvedObject(
            "", collection.api_version, collection.kind, metadata["name"], namespace, metadata["uid"]
        )
        self._recorder.record(about, text.type, text.reason, text.message + more, component=component)

    async def _write(self, step: WriteStep, owner_uid: str) -> None:
        write = step.write
        try:
            match write:
                case Create():
                    self._assume(write, await self.api.create(write.collection, dict(write.object), write.namespace))
                case Update():
                    self._assume(write, await self.api.update(write.collection, dict(write.object)))
                case UpdateStatus():
                    self._assume(write, await self.api.update(write.collection, dict(write.object), "status"))
                case Delete():
                    await self._delete(write, step.propagation)
        except ClientError as error:
            if isinstance(write, Create | Delete) and (_is_outcome_unknown(error) or isinstance(error, AlreadyExists)):
                self._unknown.setdefault(owner_uid, []).append(write)
            raise

    def _assume(self, write: Write, answer: Obj) -> None:
        self._caches[write.collection].assume(answer, self.now() + ASSUMED_FOR)

    async def _delete(self, write: Delete, propagation: str = "") -> None:
        self._deleted[write.uid] = self.now() + ASSUMED_FOR
        try:
            await self.api.delete(write.collection, write.name, write.namespace, uid=write.uid, propagation=propagation)
        except (NotFound, UpdateConflict):
            pass  # the object does not exist, or another one has its name
        except ClientError as error:
            if not _is_outcome_unknown(error):
                self._deleted.pop(write.uid, None)
            raise


def _is_outcome_unknown(error: ClientError) -> bool:
    """Whether the server may have performed the write although the response is an error."""
    return not isinstance(error, Refused) or error.status >= SERVER_ERROR


def _is_namespace_terminating(error: ClientError) -> bool:
    """Whether a create was refused for this reason."""
    causes = error.details.get("causes") if isinstance(error, Forbidden) else None
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == "NamespaceTerminating" for cause in causes
    )
