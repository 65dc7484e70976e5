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
from farflung.placement.names import DEFINITIONS, NAMESPACES, GroupResource, Part, is_system
from farflung.syncer.context import SyncerContext
from farflung.syncer.conversion import for_mailbox, is_downsynced, is_upsynced, returned_status, updated_upsync
from farflung.syncer.downsync import STRANGERS, NotServedError
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
        self.queue: WorkQueue[Part] | None = None
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

    def on_change(self, part: Part, cluster: str, obj: Obj | None) -> None:
        """Of either side."""
        if self.queue is not None:
            self.queue.add(part)

    def enqueue_all(self) -> None:
        """After a change of the scope, or a list."""
        for side in (self._copies, self._objects):
            for resource in side.kinds():
                for part in side.of(resource):
                    self.on_change(part, "", None)

    def count(self) -> int:
        every = (copy for resource in self._copies.kinds() for copy in self._copies.of(resource).values())
        return sum(map(is_upsynced, every))

    # --- one object -------------------------------------------------------------------------------

    async def reconcile(self, part: Part, worker: int) -> float | None:
        try:
            if part.resource == DEFINITIONS and not self._scope().upsyncs(*part):
                await self._copy_definition(part.name)
                self._problems.clear(part, Direction.UP)
            return await self._reconcile(part)
        except ClientError as error:
            self._report(part, *describe_error(part, error))
            raise

    async def _reconcile(self, part: Part) -> float | None:
        collection = self._copies.collection(part.resource)
        if collection is None:
            if self._scope().upsyncs(*part) and self._objects.get(part) is not None:
                raise NotServedError(f"the mailbox does not serve {part.resource.resource}")
            return None
        is_selected = self._scope().upsyncs(*part)
        if not self._copies.is_listed(part.resource) or (is_selected and not self._objects.is_listed(part.resource)):
            return None
        obj, copy = self._objects.get(part), self._copies.get(part)
        if is_selected and obj is not None and _originates_at_edge(part, obj):
            await self._upsert(part, collection, obj, copy)
        elif copy is not None and is_upsynced(copy):
            if part.resource == NAMESPACES and self._has_downsynced(part.name):
                sentence = f"{part} is not selected any more and stays in the mailbox: it contains copies for the edge"
                self._report(part, "NotEmpty", sentence)
                return STRANGERS
            await self._withdraw(part, collection, copy)
        else:
            self._problems.clear(part, Direction.UP)
        return None

    async def _upsert(self, part: Part, collection: Collection, obj: Obj, copy: Obj | None) -> None:
        desired = for_mailbox(obj)
        if copy is None:
            copy = await self._create(part, collection, desired)
        elif not is_upsynced(copy):
            self._report(part, "NotManaged", f"{part} already exists in the mailbox and was not upsynced")
            return
        elif (updated := updated_upsync(copy, desired)) is not None:
            copy = await self._mailbox.update(collection, updated)
            self._copies.assume(part.resource, copy)
        await self._write_status(part, collection, obj, copy)
        self._problems.clear(part, Direction.UP)

    async def _create(self, part: Part, collection: Collection, desired: Obj) -> Obj:
        fresh = {name: section for name, section in desired.items() if name != "status"}
        try:
            made = await self._mailbox.create(collection, fresh, part.namespace)
        except NotFound:
            if not part.namespace:
                raise
            await self._make_namespace(part.namespace)
            made = await self._mailbox.create(collection, fresh, part.namespace)
        self._copies.assume(part.resource, made)
        self._log.info("upsynced", v=2, object=str(part))
        return made

    async def _make_namespace(self, name: str) -> None:
        annotations = {UPSYNCED: f"Namespace/{name}"}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}}
        with contextlib.suppress(AlreadyExists):
            await self._mailbox.create(names.NAMESPACES, namespace)

    async def _write_status(self, part: Part, collection: Collection, obj: Obj, copy: Obj) -> None:
        status = returned_status(obj)
        if not status or status == copy.get("status"):
            return
        subresource = "status" if self._kinds.has_status(part.resource, collection.version) else ""
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": copy["metadata"].get("uid")},
            {"op": "add", "path": "/status", "value": status},
        ]
        answer = await self._mailbox.patch(
            collection, part.name, patch, part.namespace, subresource, how=PatchType.JSON
        )
        self._copies.assume(part.resource, answer)

    async def _withdraw(self, part: Part, collection: Collection, copy: Obj) -> None:
        """Delete the copy of an object that is not selected any more, or that the edge's server says does not
        exist.  Its absence from the informer is not enough."""
        if self._scope().upsyncs(*part):
            at_edge = self._objects.collection(part.resource)
            if at_edge is None:
                return
            with ignore_absence(part):
                found = await self._edge.get(at_edge, part.name, part.namespace)
                if not is_downsynced(found):
                    return  # it exists again, and its event will arrive
        with ignore_absence(part):
            await self._mailbox.delete(collection, part.name, part.namespace, uid=copy["metadata"]["uid"])
        self._problems.clear(part, Direction.UP)
        self._log.info("withdrew from the mailbox", v=2, object=str(part))

    def _has_downsynced(self, namespace: str) -> bool:
        return any(part.namespace == namespace for part in self._journal.parts())

    def _report(self, part: Part, reason: str, message: str) -> None:
        if self._problems.put(part, Direction.UP, reason, message, self._now()):
            self._log.warning("cannot sync", object=str(part), direction=Direction.UP.value, reason=reason)


def _originates_at_edge(part: Part, obj: Obj) -> bool:
    """Whether the syncer did not apply it, and it is not one that every cluster creates for itself."""
    return not is_downsynced(obj) and not is_system(part.resource, obj)


def read_object(resource: GroupResource, document: bytes) -> Obj:
    """An object without managedFields."""
    obj: Obj = orjson.loads(document)
    obj["metadata"].pop("managedFields", None)
    return obj
