"""Copy heartbeat, capacity and conditions of syncers to the status of SyncTargets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from farflung.apis.kcp.names import SYNC_TARGETS
from farflung.client.errors import NotFound
from farflung.client.rest import Client
from farflung.controllers.mailbox.decide import Reports
from farflung.controllers.mailbox.triggers import Mailboxes
from farflung.lib.klog import Logger
from farflung.lib.workqueue import WorkQueue
from farflung.machinery.errors import Obj
from farflung.placement.names import THE_ONE, is_mailbox_name, mailbox_name
from farflung.placement.syncer_config import SyncerHeartbeat
from farflung.placement.types import SyncTarget, Workspace
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.controller import Controller
from farflung.runtime.environment import Environment
from farflung.runtime.informer import Informer

NAME: Final = "mailbox-reporter"
WORKERS: Final = 8


@dataclass(frozen=True, slots=True)
class MailboxCaches:
    """What the controllers of mailboxes share."""

    mailboxes: Mailboxes
    targets: Informer[SyncTarget]
    workspaces: Informer[Workspace]
    configs: Informer[SyncerHeartbeat]


class TargetReporter:
    """Has its own queue, so that reports and the setup of mailboxes do not wait for each other."""

    def __init__(
        self,
        root: Client,
        view: str,
        caches: MailboxCaches,
        env: Environment,
        log: Logger,
    ) -> None:
        """`view`: the URL of the view with SyncTargets."""
        self._root = root
        self._view = view
        self._mailboxes = caches.mailboxes
        self._targets = caches.targets
        self._workspaces = caches.workspaces
        self._configs = caches.configs
        self._monotonic = env.monotonic
        self._log = log
        self._reports = Reports()
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, workers=WORKERS, backoff=env.backoff, queue=WorkQueue(env.monotonic), log=log
        )
        self._targets.subscribe(self._on_target)
        self._workspaces.subscribe(self._on_workspace)
        self._configs.subscribe(self._on_config)

    def _on_target(self, change: CacheChange[SyncTarget]) -> None:
        for one, other in ((change.old, change.new), (change.new, change.old)):
            if one is not None and (other is None or one.status != other.status):
                self.controller.queue.add(mailbox_name(change.key.cluster, one.metadata.uid))

    def _on_workspace(self, change: CacheChange[Workspace]) -> None:
        if is_mailbox_name(change.key.name):
            self.controller.queue.add(change.key.name)

    def _on_config(self, change: CacheChange[SyncerHeartbeat]) -> None:
        if change.key.name != THE_ONE or change.old == change.new:
            return
        name = self._mailboxes.of_cluster(change.key.cluster)
        if name is not None:
            self.controller.queue.add(name)

    async def reconcile(self, name: str, worker: int) -> float | None:
        key = self._mailboxes.target(name)
        target = None if key is None else self._targets.cache.get(key)
        config = self._config(name)
        if key is None or target is None or target.is_terminating:
            self._reports.forget(name)
            return None
        if config is None:
            return None
        decision = self._reports.decide(name, target, config, self._monotonic())
        if decision.status:
            await self._write(key, target.metadata.uid, decision.status)
            self._log.info("Updated status of SyncTarget", v=5, worker=worker, mbwsName=name, syncTarget=str(key))
        return decision.again

    def _config(self, name: str) -> SyncerHeartbeat | None:
        key = self._mailboxes.workspace(name)
        workspace = None if key is None else self._workspaces.cache.get(key)
        if workspace is None or workspace.is_terminating:
            return None
        return self._configs.cache.get(Key(workspace.cluster, "", THE_ONE))

    async def _write(self, key: Key, uid: str, status: Obj) -> None:
        """Only to the SyncTarget with this uid.  Conditions need its resourceVersion, because other controllers write
        conditions too."""
        identity = {"uid": uid}
        if "conditions" in status:
            identity["resourceVersion"] = str(self._targets.cache.version(key))
        change = {"metadata": identity, "status": status}
        view = self._root.view(self._view, key.cluster)
        try:
            written = await view.patch(SYNC_TARGETS, key.name, change, subresource="status")
        except NotFound:
            return
        self._targets.assume(written)
