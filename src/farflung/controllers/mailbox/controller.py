"""The mailbox controller: one key per mailbox."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from farflung.apis.edge.names import SYNC_TARGET_NAME, SYNCER_CONFIGS
from farflung.apis.kcp.names import API_BINDINGS, SYNC_TARGETS, WORKSPACES
from farflung.apis.names import Collection
from farflung.client.errors import AlreadyExists, Forbidden, NotFound
from farflung.client.rest import Client
from farflung.controllers.mailbox.decide import MailboxStep, decide_binding, decide_workspace, mailbox_objects
from farflung.controllers.mailbox.releaser import Releaser
from farflung.controllers.mailbox.reporter import MailboxCaches, TargetReporter
from farflung.controllers.mailbox.triggers import Mailboxes
from farflung.lib.klog import Logger
from farflung.lib.workqueue import WorkQueue
from farflung.machinery.errors import Obj
from farflung.placement.names import BINDING, THE_ONE, cluster_of
from farflung.placement.syncer_config import parse_heartbeat
from farflung.placement.types import ApiBinding, SyncTarget, Workspace
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer, SharedInformers
from farflung.runtime.manager import Manager
from farflung.runtime.rebuilder import Rebuilder

T = TypeVar("T")
REREAD_SECONDS: Final = 1.0  #: seconds until a binding that is not ready is read again
NAME: Final = "mailbox-controller"


@dataclass(frozen=True, slots=True)
class MailboxSetting:
    """The APIs of the controller."""

    server: Client  #: a client for all workspaces
    root: Client  #: a client for the views of the root's exports
    provider: str  #: path of the provider workspace, with the mailboxes below it
    edge_view: str  #: URL of the view with the edge API
    workload_view: str  #: URL of the view with SyncTargets
    bindings: Client | None = None  #: where APIBindings are watched, if not in the view of the edge API


class MailboxController:
    def __init__(self, setting: MailboxSetting, informers: SharedInformers, log: Logger, *, workers: int = 4) -> None:
        env = informers.env
        self._setting = setting
        self._log = log
        self._mailboxes = Mailboxes()
        server = setting.server
        self._provider = server.workspace(setting.provider)
        edge = replace(server.view(setting.edge_view), lenient=True)  # kcp serves it after the first binding

        def informer(client: Client, collection: Collection, decode: Callable[[bytes], T]) -> Informer[T]:
            return informers.informer(client, collection, decode, self._trouble)

        view = setting.root.view(setting.workload_view)
        self._targets = informer(view, SYNC_TARGETS, msgspec.json.Decoder(SyncTarget).decode)
        self._workspaces = informer(self._provider, WORKSPACES, msgspec.json.Decoder(Workspace).decode)
        self._bindings = informer(setting.bindings or edge, API_BINDINGS, msgspec.json.Decoder(ApiBinding).decode)
        self._configs = informer(edge, SYNCER_CONFIGS, parse_heartbeat)
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, workers=workers, backoff=env.backoff, queue=WorkQueue(env.monotonic), log=log
        )
        self.rebuilder = Rebuilder(NAME, self._rebuild, env, log)
        self._sources: list[tuple[str, Informer[Any], Callable[[CacheChange[Any]], Iterable[str]]]] = [
            ("SyncTarget", self._targets, self._mailboxes.on_target),
            ("Workspace", self._workspaces, self._mailboxes.on_workspace),
            ("APIBinding", self._bindings, self._mailboxes.on_binding),
            ("SyncerConfig", self._configs, self._mailboxes.on_config),
        ]
        for kind, source, trigger in self._sources:
            source.subscribe(self.rebuilder.guarded(kind, self._enqueuing(trigger)))
        caches = MailboxCaches(self._mailboxes, self._targets, self._workspaces, self._configs)
        self._reporter = TargetReporter(setting.root, setting.workload_view, caches, env, log)
        self._releaser = Releaser(server, caches, env, log)

    def join(self, manager: Manager) -> None:
        """The mailboxes do not wait for the informers of other controllers, which may wait for the first binding."""
        informers: list[Informer[Any]] = [self._targets, self._workspaces, self._bindings, self._configs]
        own = Manager(self._log)
        for controller in (self.controller, self._reporter.controller, self._releaser.controller):
            own.add(controller, informers, synced_verbosity=1)
        own.add(self.rebuilder, [])
        manager.adopt(own)

    def _enqueuing(self, trigger: Callable[[CacheChange[T]], Iterable[str]]) -> Callable[[CacheChange[T]], None]:
        def listener(change: CacheChange[T]) -> None:
            self.controller.queue.add_all(trigger(change))

        return listener

    def _rebuild(self) -> None:
        self._mailboxes.clear()
        for kind, source, trigger in self._sources:
            self.rebuilder.replay(kind, source.cache, self._enqueuing(trigger))
        for controller in (self._reporter.controller, self._releaser.controller):
            controller.queue.add_all(self._mailboxes.names())

    def _trouble(self, what: str, error: Exception) -> None:
        self._log.error(error, what, controller=NAME)

    # --- one mailbox ------------------------------------------------------------------------------

    async def reconcile(self, name: str, worker: int) -> float | None:
        await self.rebuilder.clean.wait()
        log = self._log.bind(worker=worker, mbwsName=name)
        target = _found(self._targets, self._mailboxes.target(name))
        workspace = _found(self._workspaces, self._mailboxes.workspace(name))
        step = decide_workspace(target, workspace)
        if step is MailboxStep.CREATE:
            assert target is not None
            await self._create(name, target.metadata.name, log)
        elif step is MailboxStep.DELETE:
            assert workspace is not None
            await self._delete(name, workspace, log)
        elif step is MailboxStep.MARK:
            assert target is not None
            marked = {"metadata": {"annotations": {SYNC_TARGET_NAME: target.metadata.name}}}
            self._workspaces.assume(await self._provider.patch(WORKSPACES, name, marked))
            log.info("Marked mailbox workspace", v=2)
        elif step is MailboxStep.LEAVE:
            log.info("Ignoring workspace that is not marked as a mailbox", v=3)
        elif step is MailboxStep.WAIT:
            log.info("Mailbox workspace is not ready yet", v=3)
        elif workspace is not None and target is not None:
            return await self._set_up(name, target.metadata.name, workspace.cluster, log)
        return None

    async def _create(self, name: str, target: str, log: Logger) -> None:
        created = await self._provider.create(
            WORKSPACES, mailbox_objects(name, target, self._setting.provider).workspace
        )
        log.info("Created missing workspace", v=2)
        self._workspaces.assume(created)

    async def _delete(self, name: str, workspace: Workspace, log: Logger) -> None:
        """The cache has no SyncTarget.  The server is asked before its mailbox is deleted with all copies."""
        if await self._still_there(name, workspace.target_name):
            log.warning("SyncTarget is there, but not in the view: its mailbox is kept")
            return
        try:
            await self._provider.delete(WORKSPACES, name, uid=workspace.metadata.uid)
        except NotFound:
            return
        log.info("Deleted unwanted workspace", v=2)

    async def _still_there(self, name: str, target: str) -> bool:
        """A Forbidden answer also means that the workspace of the SyncTarget does not exist."""
        view = self._setting.root.view(self._setting.workload_view, cluster_of(name))
        try:
            found = await view.get(SYNC_TARGETS, target)
        except (NotFound, Forbidden):
            return False
        return name.endswith(f"-mb-{found['metadata'].get('uid')}") and "deletionTimestamp" not in found["metadata"]

    # --- its objects ------------------------------------------------------------------------------

    async def _set_up(self, name: str, target: str, cluster: str, log: Logger) -> float | None:
        log = log.bind(mbwsCluster=cluster)
        mailbox = self._setting.server.workspace(cluster)
        objects = mailbox_objects(name, target, self._setting.provider)
        binding = self._bindings.cache.get(Key(cluster, "", BINDING))
        configured = Key(cluster, "", THE_ONE) in self._configs.cache
        step = decide_binding(binding, self._setting.provider)
        if step is MailboxStep.CREATE:
            binding, configured = await self._bind(mailbox, objects.binding, log), False
            step = decide_binding(binding, self._setting.provider)
        if step is MailboxStep.DELETE:
            await mailbox.delete(API_BINDINGS, BINDING)
            log.info("Deleted APIBinding of another export", v=2, bindingName=BINDING)
        if step is not MailboxStep.NOTHING:
            return REREAD_SECONDS
        if not configured:
            await self._configure(mailbox, objects.config, log)
        return None

    async def _bind(self, mailbox: Client, wanted: Obj, log: Logger) -> ApiBinding:
        """The cache may lack a binding of this name: a view has only bindings of its export."""
        try:
            binding = await mailbox.create(API_BINDINGS, wanted)
        except AlreadyExists:
            binding = await mailbox.get(API_BINDINGS, BINDING)
        else:
            version = binding["metadata"]["resourceVersion"]
            log.info("Created APIBinding", v=2, bindingName=BINDING, resourceVersion=version)
            self._bindings.assume(binding)
        return msgspec.convert(binding, ApiBinding)

    async def _configure(self, mailbox: Client, wanted: Obj, log: Logger) -> None:
        try:
            config = await mailbox.create(SYNCER_CONFIGS, wanted)
        except AlreadyExists:
            return
        log.info("Created SyncerConfig", v=2, syncerConfig=THE_ONE)
        self._configs.assume(config)


def _found(informer: Informer[T], key: Key | None) -> T | None:
    return None if key is None else informer.cache.get(key)
