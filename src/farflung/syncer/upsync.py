"""Bring what is born at the edge into the mailbox, and keep it there as it is at the edge."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime

import orjson

from farflung.apis.edge.names import UPSYNCED
from farflung.apis.names import NAMESPACES, Collection
from farflung.client.errors import AlreadyExists, ClientError, NotFound
from farflung.client.rest import Client, PatchType
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.placement.names import Kind, is_system
from farflung.runtime.workqueue import WorkQueue
from farflung.syncer.conversion import for_mailbox, is_downsynced, is_upsynced, returned_status, updated_upsync
from farflung.syncer.discovery import ServedKinds
from farflung.syncer.downsync import STRANGERS, NotServedError
from farflung.syncer.edge import ignore_absence
from farflung.syncer.informers import KindInformers
from farflung.syncer.report import Direction, Problems, describe_error
from farflung.syncer.types import Part, Resource
from farflung.syncer.wanted import NAMESPACES as ROOMS
from farflung.syncer.wanted import SyncScope


class Upsync:
    def __init__(
        self,
        mailbox: Client,
        edge: Client,
        copies: KindInformers[Obj],
        objects: KindInformers[Obj],
        kinds: ServedKinds,
        wanted: Callable[[], SyncScope],
        holds: Callable[[str], bool],
        troubles: Problems,
        now: Callable[[], datetime],
        log: Logger,
    ) -> None:
        """`copies`: all of the kinds in the mailbox; `objects`: all of them at the edge; `holds`: whether something in
        a namespace goes to the edge."""
        self.queue: WorkQueue[Part] | None = None
        self._mailbox = mailbox
        self._edge = edge
        self._copies = copies
        self._objects = objects
        self._kinds = kinds
        self._wanted = wanted
        self._holds = holds
        self._troubles = troubles
        self._now = now
        self._log = log

    # --- what is heard ----------------------------------------------------------------------------

    def hear(self, part: Part, cluster: str, obj: Obj | None) -> None:
        """From either side."""
        if self.queue is not None:
            self.queue.add(part)

    def look_again(self) -> None:
        """At everything: what is wanted has changed."""
        for side in (self._copies, self._objects):
            for resource in side.resources():
                for part in side.of(resource):
                    self.hear(part, "", None)

    def count(self) -> int:
        """How many copies there are."""
        every = (copy for resource in self._copies.resources() for copy in self._copies.of(resource).values())
        return sum(map(is_upsynced, every))

    # --- one object -------------------------------------------------------------------------------

    async def bring(self, part: Part, worker: int) -> float | None:
        try:
            return await self._bring(part)
        except ClientError as error:
            self._report(part, *describe_error(part, error))
            raise

    async def _bring(self, part: Part) -> float | None:
        collection = self._copies.collection(part.resource)
        if collection is None:
            if self._wanted().brings(*part) and self._objects.get(part) is not None:
                raise NotServedError(f"the mailbox does not serve {part.resource.plural}")
            return None
        is_wanted = self._wanted().brings(*part)
        if not self._copies.is_known(part.resource) or (is_wanted and not self._objects.is_known(part.resource)):
            return None
        obj, copy = self._objects.get(part), self._copies.get(part)
        if is_wanted and obj is not None and _was_born_there(part, obj):
            await self._keep(part, collection, obj, copy)
        elif copy is not None and is_upsynced(copy):
            if part.resource == ROOMS and self._holds(part.name):
                sentence = f"{part} is not wanted any more and stays in the mailbox: it holds what goes to the edge"
                self._report(part, "NotEmpty", sentence)
                return STRANGERS
            await self._withdraw(part, collection, copy)
        else:
            self._troubles.clear(part, Direction.UP)
        return None

    async def _keep(self, part: Part, collection: Collection, obj: Obj, copy: Obj | None) -> None:
        desired = for_mailbox(obj)
        if copy is None:
            copy = await self._create(part, collection, desired)
        elif not is_upsynced(copy):
            self._report(part, "NotOurs", f"{part} is in the mailbox already and did not come from the edge")
            return
        elif (updated := updated_upsync(copy, desired)) is not None:
            copy = await self._mailbox.update(collection, updated)
            self._copies.assume(part.resource, copy)
        await self._give_status(part, collection, obj, copy)
        self._troubles.clear(part, Direction.UP)

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
        metadata = {"name": name, "annotations": {UPSYNCED: f"Namespace/{name}"}}
        with contextlib.suppress(AlreadyExists):
            await self._mailbox.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    async def _give_status(self, part: Part, collection: Collection, obj: Obj, copy: Obj) -> None:
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
        """It is not wanted any more, or the edge itself says that it is gone; that it is not heard of is not enough."""
        if self._wanted().brings(*part):
            at_edge = self._objects.collection(part.resource)
            if at_edge is None:
                return
            with ignore_absence(part):
                found = await self._edge.get(at_edge, part.name, part.namespace)
                if not is_downsynced(found):
                    return  # it is there again, and will be heard of
        with ignore_absence(part):
            await self._mailbox.delete(collection, part.name, part.namespace, uid=copy["metadata"]["uid"])
        self._troubles.clear(part, Direction.UP)
        self._log.info("withdrew from the mailbox", v=2, object=str(part))

    def _report(self, part: Part, reason: str, message: str) -> None:
        if self._troubles.put(part, Direction.UP, reason, message, self._now()):
            self._log.warning("cannot sync", object=str(part), direction=Direction.UP.value, reason=reason)


def _was_born_there(part: Part, obj: Obj) -> bool:
    """Not if we brought it, nor if every cluster makes one for itself: the mailbox has its own then."""
    return not is_downsynced(obj) and not is_system(Kind(*part.resource), obj)


def read_object(resource: Resource, document: bytes) -> Obj:
    """An object without what only its server needs."""
    obj: Obj = orjson.loads(document)
    obj["metadata"].pop("managedFields", None)
    return obj
