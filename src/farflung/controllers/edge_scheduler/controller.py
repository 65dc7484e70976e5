"""The edge scheduler: one key per EdgePlacement.  Workspaces take fair turns, and a turn is short: a placement whose
`spec.where` takes longer is continued in its next turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import orjson

from farflung.apis.edge.names import EDGE_PLACEMENTS, SINGLE_PLACEMENT_SLICES
from farflung.apis.kcp.names import LOCATIONS, SYNC_TARGETS
from farflung.apis.names import Collection
from farflung.client.rest import Client
from farflung.controllers.edge_scheduler import decide
from farflung.controllers.edge_scheduler.observe import log_change
from farflung.controllers.edge_scheduler.triggers import (
    MAX_TRIGGERS,
    ParsedSlice,
    Trigger,
    Triggers,
    location_triggers,
)
from farflung.controllers.placing_rights.controller import PlacingRights
from farflung.controllers.placing_rights.decide import RightKey, workspace_author
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Bare, Logger
from farflung.lib.workqueue import WorkQueue
from farflung.machinery.errors import Obj
from farflung.machinery.turns import ALLOWANCE, TurnAllowance, TurnOver
from farflung.placement.names import ObjectKey
from farflung.placement.resolve import Resolution, Resolver
from farflung.placement.types import (
    Destination,
    Placement,
    PlacingRight,
    parse_location,
    parse_placement,
    parse_target,
    placements_of,
    previous,
)
from farflung.runtime import cache
from farflung.runtime.cache import CacheChange
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer, SharedInformers
from farflung.runtime.manager import Manager
from farflung.runtime.plan import Create, Delete, Update, UpdateStatus, Write, apply
from farflung.runtime.rebuilder import Rebuilder

#: Seconds for each destination before slices are written again: many changes in a row become few writes.
SECONDS_PER_DESTINATION: Final = 20e-6
REVERT_MEMORY: Final = 300.0  #: seconds after which the reverts of slices are no longer counted


class _Reverts(NamedTuple):
    times: int
    at: float


class WritePace:
    """Limits the rate of writes.  Reverting slices that another client changes again and again has a backoff: two
    writers that disagree would write without end."""

    def __init__(self, monotonic: Callable[[], float], backoff: Backoff) -> None:
        self._monotonic = monotonic
        self._backoff = backoff
        self._not_before: dict[ObjectKey, float] = {}
        self._reverted: dict[ObjectKey, _Reverts] = {}
        self._not_reverted_before: dict[ObjectKey, float] = {}

    def wait(self, key: ObjectKey, *, reverting: bool = False) -> float:
        """Seconds until slices may be written; `reverting`: back to the last decision."""
        times = self._not_reverted_before if reverting else self._not_before
        return times.get(key, 0.0) - self._monotonic()

    def note(self, key: ObjectKey, destinations: int, *, reverting: bool) -> None:
        """Slices are written now."""
        now = self._monotonic()
        self._not_before[key] = now + SECONDS_PER_DESTINATION * destinations
        if reverting:
            before = self._reverted.get(key)
            times = before.times + 1 if before is not None and now - before.at < REVERT_MEMORY else 1
            self._reverted[key] = _Reverts(times, now)
            self._not_reverted_before[key] = now + self._backoff.delay(times)

    def forget(self, key: ObjectKey) -> None:
        for known in (self._not_before, self._reverted, self._not_reverted_before):
            known.pop(key, None)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EdgeSchedulerSetting:
    """The APIs of the scheduler."""

    provider: Client  #: a client for the view of the edge API
    root: Client  #: a client for the views of the root's exports
    edge_view: str  #: URL of the view with the edge API
    scheduling_view: str  #: with Locations
    workload_view: str  #: with SyncTargets
    rights: PlacingRights
    now: Callable[[], datetime]


class Decided(NamedTuple):
    """The last destinations of a placement, and the versions of its slices at that time."""

    uid: str
    destinations: tuple[Destination, ...]
    slices: tuple[tuple[cache.Key, int], ...]


class EdgeScheduler:
    def __init__(
        self, setting: EdgeSchedulerSetting, name: str, informers: SharedInformers, log: Logger, *, workers: int = 4
    ) -> None:
        env = informers.env
        self._setting = setting
        self._name = name
        self._log = log
        self._resolver = Resolver()
        self._triggers = Triggers(self._resolver)
        self._decided: dict[ObjectKey, Decided] = {}
        self._pace = WritePace(env.monotonic, env.backoff)

        def informer(client: Client, collection: Collection, decode: Callable[[bytes], T]) -> Informer[T]:
            return informers.informer(client, collection, decode, self._trouble)

        edge = setting.provider.view(setting.edge_view)
        parse = parse_by_workspace if setting.rights.by_workspace else parse_placement
        self._placements = informer(edge, EDGE_PLACEMENTS, parse)
        self._slices = informer(edge, SINGLE_PLACEMENT_SLICES, decode_slice)
        self._locations = informer(setting.root.view(setting.scheduling_view), LOCATIONS, parse_location)
        self._targets = informer(setting.root.view(setting.workload_view), SYNC_TARGETS, parse_target)
        self.controller: Controller[ObjectKey] = Controller(
            name, self.reconcile, workers=workers, backoff=env.backoff, queue=WorkQueue(env.monotonic), log=log
        )
        self.controller.queue.share(attrgetter("cluster"))
        self.rebuilder = Rebuilder(name, self._rebuild, env, log)
        self._sources: list[tuple[str, Informer[Any], Callable[[Triggers, CacheChange[Any]], Iterable[ObjectKey]]]] = [
            ("Location", self._locations, Triggers.on_location),
            ("SyncTarget", self._targets, Triggers.on_target),
            ("SinglePlacementSlice", self._slices, Triggers.on_slice),
            ("EdgePlacement", self._placements, Triggers.on_placement),
        ]
        for kind, source, trigger in self._sources:
            source.subscribe(self.rebuilder.guarded(kind, self._enqueuing(kind, trigger)))
        self._placements.subscribe(self._log_placement)
        setting.rights.subscribe(self)

    def join(self, manager: Manager) -> None:
        manager.add(self.controller, [self._placements, self._slices, self._locations, self._targets])
        manager.add(self.rebuilder, [])

    def _enqueuing(
        self, kind: str, trigger: Callable[[Triggers, CacheChange[T]], Iterable[ObjectKey]]
    ) -> Callable[[CacheChange[T]], None]:
        def listener(change: CacheChange[T]) -> None:
            self._log.info(f"queueing {kind}", v=3, controller=self._name, key=change.key)
            self.controller.queue.add_all(trigger(self._triggers, change))

        return listener

    def _rebuild(self) -> None:
        self._resolver = Resolver()
        self._triggers = Triggers(self._resolver)
        for kind, source, trigger in self._sources:
            self.rebuilder.replay(kind, source.cache, self._enqueuing(kind, trigger))

    def _log_placement(self, change: CacheChange[Placement]) -> None:
        """As the first version of this scheduler, whose readers wait for these lines."""
        v = 2 if change.old is None or change.new is None else 4
        if self._log.enabled(v):
            old, new = (None if one is None else orjson.loads(one.document) for one in (change.old, change.new))
            log_change(self._log, old, new, v=v)

    # --- rights -----------------------------------------------------------------------------------

    def needs_right(self, key: RightKey) -> bool:
        return self._resolver.needs_right(*key)

    def doubt_right(self, key: RightKey) -> None:
        self.rebuilder.attempt(key, lambda: self._resolver.doubt_right(*key))

    def put_right(self, key: RightKey, right: PlacingRight) -> None:
        self.rebuilder.attempt(key, lambda: self.controller.queue.add_all(self._triggers.on_right(key, right)))

    def fail_right(self, key: RightKey) -> None:
        self.controller.queue.add_all(self._triggers.waiting(key))

    def _waits_for_rights(self, placement: Placement) -> bool:
        """Whether rights of the author are being reviewed, on which its destinations depend."""
        may_have_problem = placement.problem or placement.where is not None
        kept = self._previous(placement) if may_have_problem else frozenset()
        for key in self._triggers.missing_rights(placement, kept):
            self._setting.rights.want(key)
        missing = self._triggers.missing_rights(placement, kept)
        return not all(map(self._setting.rights.is_failing, missing))

    def _trouble(self, what: str, error: Exception) -> None:
        self._log.error(error, what, controller=self._name)

    # --- one placement ----------------------------------------------------------------------------

    async def reconcile(self, key: ObjectKey, worker: int) -> float | None:
        await self.rebuilder.clean.wait()
        if not self._begin():
            return 0.0
        placement = self._placements.cache.get(cache.Key(key.cluster, "", key.name))
        if placement is None:
            self._log.info("EdgePlacement not found", v=1, controller=self._name, edgePlacement=key.name)
            self._decided.pop(key, None)
            self._pace.forget(key)
            return None
        if placement.is_terminating:
            return None
        if (wait := self._pace.wait(key)) > 0:
            return wait
        if self._waits_for_rights(placement):
            return None  # enqueued again when they are known
        try:
            resolution = self._resolve(placement)
        except TurnOver:
            return 0.0  # other workspaces have their turns
        if (writes := self._writes(placement, resolution)) and (wait := self._hold(placement, resolution)) > 0:
            return wait
        trigger, *others = self._triggers.take(key)
        if writes and key not in self._decided:
            others += islice(location_triggers(resolution), MAX_TRIGGERS)
        others = others if writes else []
        while writes:
            await self._apply(writes, trigger)
            writes = self._writes(placement, resolution)
        for one in others:
            self._log_slice("updated", key.cluster, key.name, one, v=2)
        if not resolution.problem or resolution.lost:
            self._decided[key] = Decided(placement.uid, resolution.destinations, self._versions(key))
        document = orjson.loads(placement.document)
        now = self._setting.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        await self._apply(decide.plan_status(placement, document, resolution, now), trigger)
        return None

    def _resolve(self, placement: Placement) -> Resolution:
        """Raises TurnOver if an expression takes longer than a turn.  The next call continues."""
        before = self._previous(placement)
        token = ALLOWANCE.set(TurnAllowance())
        try:
            return self._with_failing(self._resolver.resolve(placement.key, before), before)
        finally:
            ALLOWANCE.reset(token)

    def _begin(self) -> bool:
        """Whether the engine is complete."""
        if not self._triggers.has_begun:
            self.rebuilder.attempt("begin", self._triggers.begin)
        return self.rebuilder.clean.is_set()

    def _writes(self, placement: Placement, resolution: Resolution) -> list[Write]:
        wanted = decide.desired(placement, resolution)
        return decide.plan(placement, wanted, self._observed(placement.key, wanted or ()))

    def _hold(self, placement: Placement, resolution: Resolution) -> float:
        """Seconds until slices may be written; 0 if they are written now."""
        decided = self._decided.get(placement.key)
        found = (placement.uid, resolution.destinations)
        reverting = decided is not None and (decided.uid, decided.destinations) == found
        if reverting and (wait := self._pace.wait(placement.key, reverting=True)) > 0:
            return wait
        self._pace.note(placement.key, len(resolution.destinations), reverting=reverting)
        return 0.0

    def _observed(self, key: ObjectKey, wanted: Iterable[Obj] = ()) -> list[Obj]:
        """The placement's slices, also those that lost their owner reference."""
        named = (cache.Key(key.cluster, "", obj["metadata"]["name"]) for obj in wanted)
        found = map(self._slices.cache.get, sorted({*self._triggers.slices(key), *named}))
        return [orjson.loads(one.document) for one in found if one is not None]

    def _versions(self, key: ObjectKey) -> tuple[tuple[cache.Key, int], ...]:
        return tuple([(one, self._slices.cache.version(one)) for one in self._triggers.slices(key)])

    def _previous(self, placement: Placement) -> frozenset[Destination]:
        """The last decision, and the destinations of the slices: another scheduler may have written them, and two that
        insist on their own choice would write without end."""
        decided = self._decided.get(placement.key)
        if decided is None or decided.uid != placement.uid:
            return previous(placement, self._observed(placement.key))
        destinations = frozenset(decided.destinations)
        if decided.slices == self._versions(placement.key):
            return destinations
        return destinations | previous(placement, self._observed(placement.key))

    def _with_failing(self, resolution: Resolution, before: frozenset[Destination]) -> Resolution:
        """Keep destinations that the engine may lack only because it fails with their Location or SyncTarget."""
        failing: set[tuple[str, str]] = set()
        kept = set(resolution.destinations)
        may_lose = not resolution.problem or resolution.lost
        for one in before if self.rebuilder.failing and may_lose else ():
            for kind, name in (("Location", one.location), ("SyncTarget", one.target)):
                if (kind, cache.Key(one.cluster, "", name)) in self.rebuilder.failing:
                    failing.add((kind, name))
                    kept.add(one)
        if len(kept) == len(resolution.destinations):
            return resolution
        names = tuple(f"{kind} {name}" for kind, name in sorted(failing))
        lost = resolution.lost - kept
        return msgspec.structs.replace(resolution, destinations=tuple(sorted(kept)), failing=names, lost=lost)

    # --- writing ----------------------------------------------------------------------------------

    async def _apply(self, writes: list[Write], trigger: Trigger) -> None:
        known = {write.name: self._slices.cache.version(_place(write)) for write in writes if isinstance(write, Delete)}

        def client_of(cluster: str) -> Client:
            return self._setting.provider.view(self._setting.edge_view, cluster)

        def written(write: Write, answer: Obj | None) -> None:
            if done := {Create: "created", Update: "updated", Delete: "deleted"}.get(type(write)):
                self._log_slice(done, write.cluster, write.name, trigger, v=1)
            else:
                self._log.info("updated status", v=3, controller=self._name, edgePlacement=write.name)
            if answer is None:
                self._slices.forget(_place(write), known[write.name])
            elif isinstance(write, UpdateStatus):
                self._placements.assume(answer)
            else:
                self._slices.assume(answer)

        await apply(client_of, writes, written)

    def _log_slice(self, done: str, cluster: str, name: str, trigger: Trigger, *, v: int) -> None:
        values = {"triggeringKind": Bare(trigger.kind), "key": trigger.key}
        if trigger.kind in WORDS:
            workspace, what = WORDS[trigger.kind]
            values[workspace], _, values[what] = trigger.key.partition("|")
        values |= {"workloadWorkspace": cluster, "singlePlacementSlice": name}
        self._log.info(f"{done} SinglePlacementSlice", v=v, controller=self._name, **values)


def _place(write: Write) -> cache.Key:
    return cache.Key(write.cluster, write.namespace, write.name)


#: keys of log lines: the workspace and the name of the object that changed
WORDS: Final = {
    "EdgePlacement": ("workspace", "edgePlacement"),
    "Location": ("locationWorkspace", "location"),
    "SyncTarget": ("syncTargetWorkspace", "syncTarget"),
}


def parse_by_workspace(document: bytes) -> Placement:
    """Of a server that records no authors."""
    placement = parse_placement(document)
    return msgspec.structs.replace(placement, author=workspace_author(placement.key.cluster))


def decode_slice(document: bytes) -> ParsedSlice:
    return ParsedSlice(document, placements_of(orjson.loads(document)))
