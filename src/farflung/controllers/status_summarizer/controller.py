"""The status summarizer: one key per summary, returned status and StatusCollector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Any, Final

from farflung.apis.edge.names import STALE_AFTER, STATUS_COLLECTORS, STATUS_SUMMARIES, SYNCER_CONFIGS
from farflung.apis.kcp.names import LOCATIONS
from farflung.client.errors import ClientError, NotFound
from farflung.controllers.status_summarizer.collectors import ParsedCollector, parse_collector
from farflung.controllers.status_summarizer.decide import CollectorKey, Summaries
from farflung.controllers.status_summarizer.health import NOTHING, SummarySubject, parse_syncer_report, stale
from farflung.controllers.status_summarizer.status_return import StatusReturner, WorkspaceObject
from farflung.controllers.status_summarizer.status_writer import (
    CollectorStatusWriter,
    StoredSummary,
    SummaryWriter,
    parse_summary,
)
from farflung.lib.workqueue import FairKeys, WorkQueue
from farflung.placement import state
from farflung.placement.feeds import PlacementFeed
from farflung.placement.index import CopyKey
from farflung.placement.names import THE_ONE, ObjectRef, WatchedCollection
from farflung.placement.state import PlacementState, StatusKey
from farflung.placement.types import Location, ObservedObject
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer
from farflung.runtime.recorder import Recorder
from farflung.runtime.server_clock import ServerClock

NAME: Final = "status-summarizer"
WRITE_DELAY: Final = 0.05  #: seconds between the first change and the write
PAUSE: Final = 1.0  #: seconds between two writes of the same object
MAX_WRITE_DELAY: Final = 1.0  #: seconds for which a write waits for queued copies
LONGEST_SLEEP: Final = 30.0  #: seconds; the clock may be changed meanwhile
AT_ONCE: Final = 200  #: copies that are digested before other tasks run
TURN: Final = 0.02  #: seconds for which copies are digested: the queries about one copy may take some milliseconds


Work = SummarySubject | WorkspaceObject | CollectorKey | Key  #: a Key: of a superfluous summary


class CopyQueue:
    """Copies to observe, each once, in the order of the time that their workspaces used: the queries of one workspace
    may be expensive."""

    def __init__(self, workspace_of: Callable[[CopyKey], str]) -> None:
        self._copies: set[CopyKey] = set()
        self._turns: FairKeys[CopyKey] = FairKeys(workspace_of)

    def __len__(self) -> int:
        return len(self._copies)

    def add(self, copy: CopyKey) -> None:
        if copy not in self._copies:
            self._copies.add(copy)
            self._turns.append(copy)

    def pop(self) -> CopyKey:
        copy = self._turns.popleft()
        self._copies.remove(copy)
        return copy

    def charge(self, copy: CopyKey, seconds: float) -> None:
        """The time that a popped copy took."""
        self._turns.charge(copy, seconds)
        if copy not in self._copies:
            self._turns.forget(copy)


class StatusSummarizer:
    def __init__(
        self,
        feed: PlacementFeed,
        recorder: Recorder,
        now: Callable[[], datetime],
        *,
        stale_after: float = STALE_AFTER,
        pause: float = PAUSE,
        workers: int = 8,
    ) -> None:
        self._feed = feed
        self._recorder = recorder
        self._now = now
        self._clock = ServerClock(feed.views.of(NAME).provider, now, feed.env.monotonic)  #: of heartbeats
        self._stale_after = timedelta(seconds=stale_after)
        self._pause = pause
        self._monotonic = feed.env.monotonic
        self._dirty = CopyQueue(self._workspace_of)
        self._news = asyncio.Event()
        self._caught_up = False  #: all copies of the start were digested
        self._written: dict[Work, float] = {}  #: time of the last write or comparison
        self._due: dict[Work, float] = {}  #: latest time of the write
        edge = feed.views.provider.view(feed.views.edge)
        self._existing = feed.informer(edge, STATUS_SUMMARIES, parse_summary, self._on_summary)
        self._collectors = feed.informer(edge, STATUS_COLLECTORS, parse_collector, self._on_collector)
        self.controller: Controller[Work] = Controller(
            NAME,
            self.reconcile,
            workers=workers,
            backoff=feed.env.backoff,
            queue=WorkQueue(feed.env.monotonic),
            log=feed.log,
        )
        self._ages: Controller[str] = Controller(
            f"{NAME}-ages",
            self._check_age,
            workers=1,
            backoff=feed.env.backoff,
            queue=WorkQueue(feed.env.monotonic),
            log=feed.log,
        )  #: by logical cluster of the mailbox
        feed.configs.subscribe(feed.rebuilder.guarded(SYNCER_CONFIGS.kind, self._on_config))
        feed.locations.subscribe(feed.rebuilder.guarded(LOCATIONS.kind, self._on_location))
        feed.add_object_listener(self._on_object)
        feed.add(self)

    # --- running ----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return NAME

    @property
    def controllers(self) -> Sequence[Controller[Any]]:
        return [self.controller, self._ages]

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return [self._existing, self._collectors]

    @property
    def idle(self) -> bool:
        """Whether no copy or key is queued or being processed."""
        queue = self.controller.queue
        return self._caught_up and not self._dirty and queue.idle and not len(queue) and self._ages.queue.idle

    async def work(self) -> None:
        await self._set_clock()  # before anything is written
        async with asyncio.TaskGroup() as group:
            group.create_task(self._digest_copies(), name=f"{NAME} copies")
            group.create_task(self._find_returned(), name=f"{NAME} marks")
            group.create_task(self.controller.run(), name=NAME)
            group.create_task(self._ages.run(), name=self._ages.name)
            group.create_task(self._recorder.run(), name=f"{NAME} events")

    async def _digest_copies(self) -> None:
        """Until cancelled.  Other tasks run between batches."""
        while True:
            await self._feed.rebuilder.clean.wait()
            self._news.clear()
            began = self._monotonic()
            until = began + TURN
            for _ in range(min(AT_ONCE, len(self._dirty))):
                copy = self._dirty.pop()
                self._observe(copy)
                now = self._monotonic()
                self._dirty.charge(copy, now - began)
                began = now
                if now > until:
                    break
            if self._dirty:
                await asyncio.sleep(0)
            else:
                self._caught_up = True
                await self._news.wait()

    def _observe(self, copy: CopyKey) -> None:
        try:
            affected: list[Work] = [*self._summaries.observe_copy(copy), *self._returner.affected(copy)]
        except Exception as error:
            self._feed.rebuilder.failed(copy, error)
            return
        for one in affected:
            self._schedule(one)

    async def _find_returned(self) -> None:
        """Find objects with returned status whose placements were deleted while no summarizer ran.  A kind that
        cannot be listed does not delay the others."""
        env, failures = self._feed.env, 0
        left = self._returner.unwatched()
        while left := [watched for watched in left if not await self._find_returned_of(watched)]:
            failures += 1
            await env.sleep(env.backoff.delay(failures))

    async def _find_returned_of(self, watched: WatchedCollection) -> bool:
        """Whether the list succeeded."""
        try:
            found = await self._returner.find(watched)
        except NotFound:
            return True  # the kind was deleted with its objects
        except ClientError as error:
            self._feed.trouble(f"cannot find {watched.resource} with returned status", error)
            return False
        for one in found:
            self._schedule(one)
        return True

    def _schedule(self, key: Work) -> None:
        """Enqueue after WRITE_DELAY, and not more often than every PAUSE."""
        if key in self._due:
            return  # already enqueued
        now = self._monotonic()
        last = self._written.get(key)
        wait = max(WRITE_DELAY, 0.0 if last is None else last + self._pause - now)
        self._due[key] = now + wait + MAX_WRITE_DELAY
        self.controller.queue.add_after(key, wait)

    # --- changes ----------------------------------------------------------------------------------

    def reset(self, known: PlacementState) -> None:
        views, log = self._feed.views.of(NAME), self._feed.log
        self._known = known
        self._summaries = Summaries(known)
        self._summary_writer = SummaryWriter(self._summaries, self._existing, views, log)
        self._collector_writer = CollectorStatusWriter(self._collectors, views.edge_of, self._now, log)
        self._returner = StatusReturner(known, views.everywhere, self._recorder, log)
        self._caught_up = False
        self._news.set()
        rebuilder = self._feed.rebuilder
        rebuilder.replay(SYNCER_CONFIGS.kind, self._feed.configs.cache, self._on_config)

    def notify(self, affected: AbstractSet[state.WorkKey], assumed: CopyKey | None) -> None:
        for work in affected:
            if isinstance(work, CopyKey):
                self._enqueue_copies([work])
            elif isinstance(work, StatusKey):
                self._enqueue_copies(self._summaries.on_placement(work.placement))
                for one in self._returner.requested_by(work.placement):
                    self._schedule(one)

    def _enqueue_copies(self, copies: Iterable[CopyKey]) -> None:
        for copy in copies:
            self._dirty.add(copy)
        if self._dirty:
            self._news.set()

    def _workspace_of(self, copy: CopyKey) -> str:
        """Of one of its sources."""
        try:
            request = next(iter(self._known.selections.requests(copy.mailbox, copy.ref)), None)
        except Exception:  # digesting the copy fails in the same way, and has the engine rebuilt
            return ""
        return "" if request is None else request.placement.cluster

    def _on_object(self, cluster: str, ref: ObjectRef, after: ObservedObject | None) -> None:
        """An object in a workspace changed, perhaps its returned status."""
        for one in self._returner.on_object(cluster, ref, after):
            self._schedule(one)

    def _on_config(self, change: CacheChange[bytes]) -> None:
        if change.key.name != THE_ONE:
            return
        cluster = change.key.cluster
        report = NOTHING if change.new is None else parse_syncer_report(change.new)
        self._enqueue_copies(self._summaries.on_report(cluster, report))
        self._follow_age(cluster)  # before summaries with an unknown age are written

    def _on_location(self, change: CacheChange[Location]) -> None:
        self._enqueue_copies(self._summaries.on_location(change.key.cluster, change.key.name))

    def _on_collector(self, change: CacheChange[ParsedCollector]) -> None:
        key = CollectorKey(change.key.cluster, change.key.name)
        if change.new is None:
            self._enqueue_copies(self._summaries.on_query_deleted(key))
        else:
            self._enqueue_copies(self._summaries.on_query(key, change.new.query))
            self.controller.queue.add(key)

    def _on_summary(self, change: CacheChange[StoredSummary]) -> None:
        """Another client may have changed or deleted it, or its object was deleted."""
        subject = self._summaries.called(change.key)
        if subject is not None or change.new is not None:
            self._schedule(subject or change.key)

    # --- reconciling ------------------------------------------------------------------------------

    async def reconcile(self, key: Work, worker: int) -> float | None:
        await self._feed.rebuilder.clean.wait()
        if isinstance(key, CollectorKey):
            await self._collector_writer.write(key)
            return None
        if not self._caught_up or (self._dirty and self._monotonic() < self._due.get(key, 0.0)):
            return WRITE_DELAY
        if self._is_too_early(key):
            return MAX_WRITE_DELAY
        self._due.pop(key, None)
        self._written[key] = self._monotonic()
        there = False
        match key:
            case SummarySubject():
                there = await self._summary_writer.write(key)
            case WorkspaceObject():
                there = await self._returner.reconcile(key)
            case Key():
                await self._summary_writer.clear(key)
        if not there:
            self._written.pop(key, None)
        return None

    def _is_too_early(self, key: SummarySubject | WorkspaceObject | Key) -> bool:
        """Whether the kind of the object was not listed yet."""
        if isinstance(key, Key):
            found = self._existing.cache.get(key)
            return found is not None and self._known.is_unlisted(key.cluster, found.resource)
        cluster = key.cluster if isinstance(key, WorkspaceObject) else key.placement.cluster
        return self._known.is_unlisted(cluster, key.ref.resource)

    async def _check_age(self, cluster: str, worker: int) -> float | None:
        await self._set_clock()
        return self._note_age(cluster)

    async def _set_clock(self) -> None:
        """Heartbeats have the time of the server."""
        if await self._clock.ask():
            for cluster in self._summaries.reporting_clusters():
                self._follow_age(cluster)

    def _follow_age(self, cluster: str) -> None:
        again = self._note_age(cluster)
        if again is not None:
            self._ages.queue.add_after(cluster, again)

    def _note_age(self, cluster: str) -> float | None:
        """Seconds until the age is checked again."""
        problem, again = stale(self._summaries.report(cluster), self._clock.now(), self._stale_after)
        self._feed.rebuilder.attempt(
            ("age", cluster), lambda: self._enqueue_copies(self._summaries.set_stale(cluster, problem))
        )
        return None if again is None else min(again, LONGEST_SLEEP)
