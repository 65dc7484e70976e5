"""Upsync: copy objects that were created at the edge to the mailbox, and keep the copies current."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import orjson

from farflung.apis import names
from farflung.apis.edge.names import UPSYNCED
from farflung.apis.names import Collection
from farflung.client.errors import AlreadyExists, ClientError, NotFound
from farflung.client.rest import PatchType
from farflung.lib.workqueue import WorkQueue
from farflung.machinery.errors import Obj
from farflung.placement.names import DEFINITIONS, NAMESPACES, GroupResource, ObjectRef, is_system
from farflung.syncer.context import SyncerContext
from farflung.syncer.conversion import for_mailbox, is_downsynced, is_upsynced, returned_status, updated_upsync
from farflung.syncer.downsync import RECHECK_SECONDS, NotServedError
from farflung.syncer.edge import ignore_absence
from farflung.syncer.informers import KindInformers
from farflung.syncer.report import Direction, Problems, describe_error
from farflung.syncer.sync_scope import SyncScope


class Upsync:
    def __init__(
        self,
        context: SyncerContext,
        copies: KindInformers[Obj],
        objects: KindInformers[Obj],
        scope: Callable[[], SyncScope],
        copy_definition: Callable[[str], Awaitable[None]],
        problems: Problems,
    ) -> None:
        """`copies`: in the mailbox; `objects`: at the edge; `copy_definition`: of the upsynced kind with that
        definition."""
        self.queue: WorkQueue[ObjectRef] = WorkQueue(context.env.monotonic)
        self._mailbox = context.options.mailbox
        self._edge = context.options.edge
        self._copies = copies
        self._objects = objects
        self._kinds = context.kinds
        self._journal = context.journal
        self._scope = scope
        self._copy_definition = copy_definition
        self._problems = problems
        self._now = context.options.now
        self._log = context.log

    # --- events -----------------------------------------------------------------------------------

    def on_change(self, ref: ObjectRef, cluster: str, obj: Obj | None) -> None:
        """Of either side."""
        self.queue.add(ref)

    def enqueue_all(self) -> None:
        """After a change of the scope, or a list."""
        for side in (self._copies, self._objects):
            for resource in side.kinds():
                for ref in side.of(resource):
                    self.on_change(ref, "", None)

    def count(self) -> int:
        every = (copy for resource in self._copies.kinds() for copy in self._copies.of(resource).values())
        return sum(map(is_upsynced, every))

    # --- one object -------------------------------------------------------------------------------

    async def reconcile(self, ref: ObjectRef, worker: int) -> float | None:
        try:
            if ref.resource == DEFINITIONS and not self._scope().upsyncs(*ref):
                await self._copy_definition(ref.name)
                self._problems.clear(ref, Direction.UP)
            return await self._reconcile(ref)
        except ClientError as error:
            self._report(ref, *describe_error(ref, error))
            raise

    async def _reconcile(self, ref: ObjectRef) -> float | None:
        collection = self._copies.collection(ref.resource)
        if collection is None:
            if self._scope().upsyncs(*ref) and self._objects.get(ref) is not None:
                raise NotServedError(f"the mailbox does not serve {ref.resource.resource}")
            return None
        is_selected = self._scope().upsyncs(*ref)
        if not self._copies.is_listed(ref.resource) or (is_selected and not self._objects.is_listed(ref.resource)):
            return None
        obj, copy = self._objects.get(ref), self._copies.get(ref)
        if is_selected and obj is not None and _originates_at_edge(ref, obj):
            await self._upsert(ref, collection, obj, copy)
        elif copy is not None and is_upsynced(copy):
            if ref.resource == NAMESPACES and self._has_downsynced(ref.name):
                sentence = f"{ref} is not selected any more and stays in the mailbox: it contains copies for the edge"
                self._report(ref, "NotEmpty", sentence)
                return RECHECK_SECONDS
            await self._withdraw(ref, collection, copy)
        else:
            self._problems.clear(ref, Direction.UP)
        return None

    async def _upsert(self, ref: ObjectRef, collection: Collection, obj: Obj, copy: Obj | None) -> None:
        desired = for_mailbox(obj)
        if copy is None:
            copy = await self._create(ref, collection, desired)
        elif not is_upsynced(copy):
            self._report(ref, "NotManaged", f"{ref} already exists in the mailbox and was not upsynced")
            return
        elif (updated := updated_upsync(copy, desired)) is not None:
            copy = await self._mailbox.update(collection, updated)
            self._copies.assume(ref.resource, copy)
        await self._write_status(ref, collection, obj, copy)
        self._problems.clear(ref, Direction.UP)

    async def _create(self, ref: ObjectRef, collection: Collection, desired: Obj) -> Obj:
        fresh = {name: section for name, section in desired.items() if name != "status"}
        try:
            made = await self._mailbox.create(collection, fresh, ref.namespace)
        except NotFound:
            if not ref.namespace:
                raise
            await self._make_namespace(ref.namespace)
            made = await self._mailbox.create(collection, fresh, ref.namespace)
        self._copies.assume(ref.resource, made)
        self._log.info("upsynced", v=2, object=str(ref))
        return made

    async def _make_namespace(self, name: str) -> None:
        annotations = {UPSYNCED: f"Namespace/{name}"}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}}
        with contextlib.suppress(AlreadyExists):
            await self._mailbox.create(names.NAMESPACES, namespace)

    async def _write_status(self, ref: ObjectRef, collection: Collection, obj: Obj, copy: Obj) -> None:
        status = returned_status(obj)
        if not status or status == copy.get("status"):
            return
        subresource = "status" if self._kinds.has_status(ref.resource, collection.version) else ""
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": copy["metadata"].get("uid")},
            {"op": "add", "path": "/status", "value": status},
        ]
        answer = await self._mailbox.patch(collection, ref.name, patch, ref.namespace, subresource, how=PatchType.JSON)
        self._copies.assume(ref.resource, answer)

    async def _withdraw(self, ref: ObjectRef, collection: Collection, copy: Obj) -> None:
        """Delete the copy of an object that is not selected any more, or that the edge's server says does not
        exist.  Its absence from the informer is not enough."""
        if self._scope().upsyncs(*ref):
            at_edge = self._objects.collection(ref.resource)
            if at_edge is None:
                return
            with ignore_absence(ref):
                found = await self._edge.get(at_edge, ref.name, ref.namespace)
                if not is_downsynced(found):
                    return  # it exists again, and its event will arrive
        with ignore_absence(ref):
            await self._mailbox.delete(collection, ref.name, ref.namespace, uid=copy["metadata"]["uid"])
        self._problems.clear(ref, Direction.UP)
        self._log.info("withdrew from the mailbox", v=2, object=str(ref))

    def _has_downsynced(self, namespace: str) -> bool:
        return any(ref.namespace == namespace for ref in self._journal.refs())

    def _report(self, ref: ObjectRef, reason: str, message: str) -> None:
        if self._problems.put(ref, Direction.UP, reason, message, self._now()):
            self._log.warning("cannot sync", object=str(ref), direction=Direction.UP.value, reason=reason)


def _originates_at_edge(ref: ObjectRef, obj: Obj) -> bool:
    """Whether the syncer did not apply it, and it is not one that every cluster creates for itself."""
    return not is_downsynced(obj) and not is_system(ref.resource, obj)


def read_object(resource: GroupResource, document: bytes) -> Obj:
    """An object without managedFields."""
    obj: Obj = orjson.loads(document)
    obj["metadata"].pop("managedFields", None)
    return obj
