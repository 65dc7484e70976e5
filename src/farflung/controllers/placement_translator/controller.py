"""The placement translator: one key per copy, SyncerConfig and discovery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, Final

from farflung.controllers.placement_translator.writers import (
    Copier,
    StatusWriter,
    SyncerConfigWriter,
    TranslatorContext,
)
from farflung.lib.workqueue import WorkQueue
from farflung.placement.feeds import DiscoveryCache, PlacementFeed
from farflung.placement.index import ConfigKey, CopyKey, SelectionKey
from farflung.placement.names import THE_ONE, PlacementKey
from farflung.placement.state import DiscoveryKey, PlacementState, StatusKey, WorkKey
from farflung.runtime.cache import CacheChange
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer
from farflung.runtime.recorder import Recorder

NAME: Final = "placement-translator"
STATUS_DELAY: Final = 0.1  #: seconds between the first problem of a placement and the write of its status
MAX_STATUS_DELAY: Final = 2.0  #: seconds after which it is written although keys are queued


class PlacementTranslator:
    def __init__(
        self, feed: PlacementFeed, recorder: Recorder, now: Callable[[], datetime], *, workers: int = 16
    ) -> None:
        env, log = feed.env, feed.log
        self._feed = feed
        self._env = env
        self._recorder = recorder
        self._now = now
        self._caught_up = False  #: all keys were reconciled since the start, or since the engine was rebuilt
        self._due: dict[PlacementKey, float] = {}  #: latest time at which a status is written
        self._discovery = DiscoveryCache(feed.views.of(NAME).everywhere.workspace)
        self.controller: Controller[WorkKey] = Controller(
            NAME, self.reconcile, workers=workers, backoff=env.backoff, queue=WorkQueue(env.monotonic), log=log
        )
        self.controller.queue.share(self._workspace_of)  # copies and customizations of one may be many and expensive
        self._statuses: Controller[StatusKey] = Controller(
            f"{NAME}-status",
            self._write_status,
            workers=2,
            backoff=env.backoff,
            queue=WorkQueue(env.monotonic),
            log=log,
        )
        feed.configs.subscribe(self._on_config)
        feed.add(self)

    @property
    def name(self) -> str:
        return NAME

    @property
    def controllers(self) -> Sequence[Controller[Any]]:
        return [self.controller, self._statuses]

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return []

    @property
    def idle(self) -> bool:
        """Whether no key is queued or being reconciled."""
        return self._feed.synced and self.controller.queue.idle and not len(self._statuses.queue)

    async def work(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run(), name="events")
            group.create_task(self.controller.run(), name=NAME)
            group.create_task(self._statuses.run(), name=self._statuses.name)

    # --- changes ----------------------------------------------------------------------------------

    def reset(self, known: PlacementState) -> None:
        feed = self._feed
        context = TranslatorContext(
            known, feed.views.of(NAME), self._now, self._env.monotonic, feed.log, feed.failing_objects
        )
        self._known = known
        self._caught_up = False
        self._status_writer = StatusWriter(context, feed.placements, self._recorder, self._enqueue_status)
        report = self._status_writer.report
        self._copier = Copier(
            context, feed.feeds, self._discovery, report, lambda affected: self.notify(affected, None)
        )
        self._config_writer = SyncerConfigWriter(context, self._discovery, feed.configs)

    def notify(self, affected: AbstractSet[WorkKey], assumed: CopyKey | None) -> None:
        """An own write needs no reconcile; other changes of the copy have their own events."""
        keys = [work for work in affected if work != assumed and not isinstance(work, StatusKey | SelectionKey)]
        if any(isinstance(work, ConfigKey) for work in keys):
            self._config_writer.forget()
        if keys:
            self.controller.queue.add_all(keys)
        for work in affected:
            if isinstance(work, StatusKey):
                self._on_status(work)
            elif isinstance(work, SelectionKey):
                self._enqueue_status(StatusKey(work.placement))

    def _workspace_of(self, work: WorkKey) -> str:
        """Of one source of a copy; empty: the work of no workspace."""
        match work:
            case CopyKey():
                try:
                    request = next(iter(self._known.selections.requests(work.mailbox, work.ref)), None)
                except Exception:  # writing the copy fails in the same way, and has the engine rebuilt
                    return ""
                return "" if request is None else request.placement.cluster
            case DiscoveryKey():
                return work.cluster
        return ""

    def _on_status(self, status: StatusKey) -> None:
        if status.placement in self._known.placements:
            self._enqueue_status(status)
            return
        self._status_writer.forget(status.placement)
        if status.placement.cluster not in self._known.selections.source_workspaces():
            self._discovery.forget(status.placement.cluster)

    def _enqueue_status(self, status: StatusKey) -> None:
        self._due.setdefault(status.placement, self._env.monotonic() + MAX_STATUS_DELAY)
        self._statuses.queue.add_after(status, STATUS_DELAY)

    def _on_config(self, change: CacheChange[bytes]) -> None:
        mailbox = self._known.mailbox_of(change.key.cluster)
        if mailbox is not None and change.key.name == THE_ONE:
            self.controller.queue.add(ConfigKey(mailbox))

    # --- reconciling ------------------------------------------------------------------------------

    async def reconcile(self, work: WorkKey, worker: int) -> float | None:
        await self._feed.rebuilder.clean.wait()
        match work:
            case CopyKey():
                return await self._copier.copy(work)
            case ConfigKey():
                return await self._config_writer.configure(work.mailbox)
            case DiscoveryKey():
                await self._discover(work.cluster)
        return None

    async def _discover(self, cluster: str) -> None:
        if cluster not in self._known.selections.source_workspaces():
            return
        await self._discovery.ask(cluster)
        keys = [key for key in self._known.placements if key.cluster == cluster]
        self._config_writer.forget()
        self.controller.queue.add_all(
            ConfigKey(mailbox) for key in keys for mailbox in self._known.selections.destinations(key)
        )

    async def _write_status(self, status: StatusKey, worker: int) -> float | None:
        """Write the status when no other key is queued: short problems are not reported.  At the start, and after the
        engine was rebuilt, all copies are reconciled first."""
        await self._feed.rebuilder.clean.wait()
        key = status.placement
        if self.controller.queue.idle:
            self._caught_up = True
        elif not self._caught_up or self._env.monotonic() < self._due.get(key, 0.0):
            return STATUS_DELAY
        self._due.pop(key, None)
        return await self._status_writer.write(key)
