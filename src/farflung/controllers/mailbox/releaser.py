"""Remove the syncer's finalizers from objects in terminating mailboxes, whose syncer may not run any more."""

from __future__ import annotations

from typing import Final

import msgspec

from farflung.apis.edge.names import SYNCER_FINALIZER
from farflung.apis.names import Collection
from farflung.client.discovery import discover
from farflung.client.errors import (
    DECODE_ERRORS,
    ClientError,
    Forbidden,
    Invalid,
    InvalidResponse,
    NotFound,
    UpdateConflict,
)
from farflung.client.rest import Client, PatchType
from farflung.controllers.mailbox.decide import is_ending
from farflung.controllers.mailbox.reporter import MailboxCaches
from farflung.lib.klog import Logger
from farflung.lib.workqueue import WorkQueue
from farflung.placement.names import is_mailbox_name
from farflung.placement.types import Workspace
from farflung.runtime.cache import CacheChange
from farflung.runtime.controller import Controller
from farflung.runtime.environment import Environment

NAME: Final = "mailbox-releaser"
WORKERS: Final = 2
VERBS: Final = frozenset({"list", "patch"})


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    finalizers: list[str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


_OBJECT: Final = msgspec.json.Decoder(_Object)


class Releaser:
    def __init__(
        self,
        server: Client,
        caches: MailboxCaches,
        env: Environment,
        log: Logger,
    ) -> None:
        self._server = server
        self._mailboxes = caches.mailboxes
        self._targets = caches.targets
        self._workspaces = caches.workspaces
        self._backoff = env.backoff
        self._log = log
        self._looks: dict[str, int] = {}  #: reconciles since the deletion of a mailbox
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, workers=WORKERS, backoff=env.backoff, queue=WorkQueue(env.monotonic), log=log
        )
        self._workspaces.subscribe(self._on_workspace)

    def _on_workspace(self, change: CacheChange[Workspace]) -> None:
        if is_mailbox_name(change.key.name) and (change.new is None or change.new.is_terminating):
            self.controller.queue.add(change.key.name)

    async def reconcile(self, name: str, worker: int) -> float | None:
        """Repeated until the mailbox is deleted: a running syncer may still add finalizers."""
        workspace = self._ending(name)
        if workspace is None:
            self._looks.pop(name, None)
            return None
        log = self._log.bind(worker=worker, mbwsName=name, mbwsCluster=workspace.cluster)
        try:
            await self._release(self._server.workspace(workspace.cluster), log)
        except (NotFound, Forbidden):
            log.info("Mailbox workspace cannot be entered any more", v=3)
        looks = self._looks[name] = self._looks.get(name, 0) + 1
        return self._backoff.delay(looks)

    def _ending(self, name: str) -> Workspace | None:
        key, target = self._mailboxes.workspace(name), self._mailboxes.target(name)
        workspace = None if key is None else self._workspaces.cache.get(key)
        if workspace is None or not workspace.cluster:
            return None
        return workspace if is_ending(self._targets.cache.get(target) if target else None, workspace) else None

    async def _release(self, mailbox: Client, log: Logger) -> None:
        """A kind that cannot be listed or patched does not stop the others."""
        failure: ClientError | None = None
        for resource in (await discover(mailbox)).resources():
            if not resource.verbs >= VERBS:
                continue
            try:
                await self._release_kind(mailbox, resource.collection, log)
            except NotFound:
                pass  # its definition was deleted
            except ClientError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def _release_kind(self, mailbox: Client, collection: Collection, log: Logger) -> None:
        async for page in mailbox.pages(collection):
            for document in page.documents():
                held = _metadata(document)
                if SYNCER_FINALIZER in (held.finalizers or ()):
                    await self._release_object(mailbox, collection, held)
                    log.info("Released object", v=3, resource=collection.plural, group=collection.group, name=held.name)

    async def _release_object(self, mailbox: Client, collection: Collection, held: _Metadata) -> None:
        """Only if uid and position of the finalizer did not change; otherwise the next reconcile finds it."""
        where = f"/metadata/finalizers/{(held.finalizers or []).index(SYNCER_FINALIZER)}"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": held.uid},
            {"op": "test", "path": where, "value": SYNCER_FINALIZER},
            {"op": "remove", "path": where},
        ]
        try:
            await mailbox.patch(collection, held.name, patch, held.namespace, how=PatchType.JSON)
        except (NotFound, UpdateConflict, Invalid):
            return


def _metadata(document: bytes) -> _Metadata:
    try:
        return _OBJECT.decode(document).metadata
    except DECODE_ERRORS as error:
        raise InvalidResponse(f"not an object: {error}") from None
