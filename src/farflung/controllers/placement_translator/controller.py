"""The placement translator at work: one key is one object of one mailbox, or what its syncer is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
import orjson

from farflung.client.discovery import discover
from farflung.client.errors import ClientError
from farflung.client.resource import Collection
from farflung.client.rest import Client
from farflung.controllers.mailbox.decide import Workspace
from farflung.controllers.placement_translator import guard
from farflung.controllers.placement_translator.configurer import CONFIGS, Configurer
from farflung.controllers.placement_translator.copier import Copier
from farflung.controllers.placement_translator.customizing import parse_customizer
from farflung.controllers.placement_translator.engine import Config, Copy
from farflung.controllers.placement_translator.feeds import Feeds
from farflung.controllers.placement_translator.gathering import Gathering
from farflung.controllers.placement_translator.knowledge import Discover, Knowledge, Status, Work
from farflung.controllers.placement_translator.offers import BINDINGS, brought_by
from farflung.controllers.placement_translator.reading import (
    SeenLocation,
    SeenPlacement,
    SeenSlice,
    seen_location,
    seen_object,
    seen_placement,
    seen_slice,
)
from farflung.controllers.placement_translator.serving import Serving, is_builtin, travelling
from farflung.controllers.placement_translator.syncer_config import THE_ONE
from farflung.controllers.placement_translator.telling import PLACEMENTS, Telling
from farflung.controllers.placement_translator.values import Kind, Part, Source
from farflung.controllers.placement_translator.world import DEFINITIONS, PlacementKey, Seen
from farflung.informer.cache import Change
from farflung.informer.informer import Informer
from farflung.informer.reflector import Surroundings
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.controller import Controller
from farflung.runtime.manager import Manager
from farflung.runtime.recorder import Recorder

T = TypeVar("T")

NAME: Final = "placement-translator"
SLICES: Final = Collection("edge.kcp.io", "v1alpha1", "singleplacementslices", "SinglePlacementSlice")
CUSTOMIZERS: Final = Collection("edge.kcp.io", "v1alpha1", "customizers", "Customizer")
LOCATIONS: Final = Collection("scheduling.kcp.io", "v1alpha1", "locations", "Location")
WORKSPACES: Final = Collection("tenancy.kcp.io", "v1alpha1", "workspaces", "Workspace")
SOON: Final = 0.1  #: seconds in which problems of a placement gather before its status is written
LATEST: Final = 2.0  #: seconds after which it is written although there is still something to be done


@dataclass(frozen=True, slots=True)
class Setting:
    """Where the translator finds and puts things."""

    everywhere: Client  #: all workspaces at once, as somebody who may do everything in them
    provider: Client  #: the provider's workspace
    root: Client  #: the root workspace
    edge_view: str  #: the URL of the view of the edge API
    scheduling_view: str  #: of the one that shows Locations
    now: Callable[[], datetime]
    limits: guard.Limits


class PlacementTranslator:
    def __init__(
        self, setting: Setting, outside: Surroundings, recorder: Recorder, log: Logger, *, workers: int = 16
    ) -> None:
        self._setting = setting
        self._outside = outside
        self._recorder = recorder
        self._log = log
        self._group: asyncio.TaskGroup | None = None
        self._started = False
        self._caught_up = False  #: all that was found at the start was looked at
        self._due: dict[PlacementKey, float] = {}  #: when a status is written at the latest
        self.controller: Controller[Work] = Controller(
            NAME, self.reconcile, workers=workers, backoff=outside.backoff, monotonic=outside.monotonic, log=log
        )
        self._statuses: Controller[Status] = Controller(
            f"{NAME}-status", self._say, workers=2, backoff=outside.backoff, monotonic=outside.monotonic, log=log
        )
        edge = setting.provider.view(setting.edge_view)
        self._placements = self._informer(edge, PLACEMENTS, seen_placement, self._on_placement)
        self._slices = self._informer(edge, SLICES, seen_slice, self._on_slice)
        self._configs = self._informer(edge, CONFIGS, bytes, self._on_config)
        self._customizers = self._informer(edge, CUSTOMIZERS, orjson.loads, self._on_customizer)
        locations = setting.root.view(setting.scheduling_view)
        self._locations = self._informer(locations, LOCATIONS, seen_location, self._on_location)
        workspace = msgspec.json.Decoder(Workspace).decode
        self._workspaces = self._informer(setting.provider, WORKSPACES, workspace, self._on_workspace)
        self._feeds = Feeds(setting.everywhere, seen_object, self._on_object, self._on_source, outside, self._trouble)
        self._serving = Serving(setting.everywhere.workspace)
        self._listened: frozenset[Source] = frozenset()
        self._know({})

    def _know(self, builtin: dict[Kind, str]) -> None:
        """From the beginning."""
        setting, log = self._setting, self._log
        known = self._known = Knowledge(builtin, setting.limits, self._feeds.is_known)
        self._telling = Telling(known, self._placements, self._view, self._recorder, self._soon, setting.now, log)
        gathering = Gathering(self._serving, setting.everywhere)
        report = self._telling.report
        self._copier = Copier(known, self._feeds, gathering, setting.everywhere, report, setting.now, log)
        self._configurer = Configurer(known, self._serving, self._configs, self._view, log)

    def _view(self, cluster: str) -> Client:
        """The edge API of a workspace."""
        return self._setting.provider.view(self._setting.edge_view, cluster)

    def _informer(
        self,
        client: Client,
        collection: Collection,
        decode: Callable[[bytes], T],
        listener: Callable[[Change[T]], None],
    ) -> Informer[T]:
        informer = Informer(client, collection, decode, self._outside, self._trouble)
        informer.subscribe(listener)
        return informer

    def _trouble(self, what: str, error: Exception) -> None:
        self._log.error(error, what, controller=NAME)

    # --- running ----------------------------------------------------------------------------------

    def join(self, manager: Manager) -> None:
        manager.adopt(self)

    @property
    def synced(self) -> bool:
        """There was a whole list of everything that mattered at the start."""
        return self._started

    @property
    def controllers(self) -> Sequence[Controller[Any]]:
        return [self.controller, self._statuses]

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return [*self._static(), *self._feeds.informers()]

    @property
    def idle(self) -> bool:
        """Nothing is to be done now, as far as is known."""
        return self._started and self.controller.queue.idle and not len(self._statuses.queue)

    async def run(self) -> None:
        """Until cancelled.  Nothing is written before everything was heard of."""
        self._know(await self._builtin_kinds())
        static = self._static()
        async with asyncio.TaskGroup() as group:
            self._group = group
            for informer in static:
                group.create_task(informer.run(), name=f"informer of {informer.collection.plural}")
            group.create_task(self._recorder.run(), name="events")
            self._log.plain("Waiting for caches to sync for placement-translator")
            await asyncio.gather(*(informer.synced.wait() for informer in static))
            builtin = frozenset(self._known.offers.builtin())
            self._feeds.want(group, builtin)
            await self._feeds.synced(builtin)
            self._listen()  # to what bindings and definitions bring, which are known only now
            await self._feeds.settled()
            self._started = True
            self._listen()  # to what came meanwhile
            self._add(self._known.begin())
            self._log.plain("Caches are synced for placement-translator")
            group.create_task(self.controller.run(), name=NAME)
            group.create_task(self._statuses.run(), name=self._statuses.name)

    def _static(self) -> list[Informer[Any]]:
        """What there is whatever the workspaces have."""
        return [
            self._placements,
            self._slices,
            self._configs,
            self._customizers,
            self._locations,
            self._workspaces,
        ]

    async def _builtin_kinds(self) -> dict[Kind, str]:
        """What every workspace has: what the root has by itself."""
        failures = 0
        while True:
            try:
                return await self._kinds_of_root()
            except ClientError as error:
                failures += 1
                self._trouble("cannot discover the kinds of the root workspace", error)
                await self._outside.sleep(self._outside.backoff.delay(failures))

    async def _kinds_of_root(self) -> dict[Kind, str]:
        served = await discover(self._setting.root)
        found = {kind: one for kind, one in travelling(served.resources()).items() if is_builtin(kind)}
        own: set[Kind] = set()
        for kind in {BINDINGS, DEFINITIONS} & found.keys():
            for obj in await self._setting.root.list(found[kind].collection):
                seen = seen_object(kind, "", orjson.dumps(obj))
                own |= {source.kind for source in brought_by("root", Part(kind, "", obj["metadata"]["name"]), seen)}
        return {kind: one.collection.version for kind, one in found.items() if kind not in own}

    def _listen(self) -> None:
        """To what matters, if that is something else than before."""
        wanted = self._known.sources.keys()
        if self._group is not None and wanted != self._listened:
            self._listened = frozenset(wanted)
            self._feeds.want(self._group, {*self._known.offers.builtin(), *wanted})

    def _add(self, works: Iterable[Work]) -> None:
        for work in works:
            if isinstance(work, Status):
                self._soon(work)
                continue
            if isinstance(work, Config):
                self._configurer.forget()
            self.controller.queue.add(work)

    def _soon(self, status: Status) -> None:
        self._due.setdefault(status.placement, self._outside.monotonic() + LATEST)
        self._statuses.queue.add_after(status, SOON)

    # --- hearing ----------------------------------------------------------------------------------

    def _on_object(self, cluster: str, part: Part, after: Seen | None) -> None:
        works = self._known.on_object(cluster, part, after)
        if self._feeds.is_assuming:  # a copy that was just written; what happened meanwhile is heard by itself
            works.discard(Copy(self._known.mailbox_of(cluster) or "", part))
        self._add(works)
        if part.kind in (BINDINGS, DEFINITIONS) and self._started:
            self._listen()

    def _on_source(self, source: Source) -> None:
        """A kind is known from now on, or no longer."""
        if self._started:  # until then everything is looked at anyway
            self._add(self._known.on_source(source))

    def _on_placement(self, change: Change[SeenPlacement]) -> None:
        key = PlacementKey(change.key.cluster, change.key.name)
        self._add(self._known.on_placement(key, change.new))
        if key not in self._known.placements:
            self._telling.forget(key)
        if key.cluster not in self._known.engine.sources():
            self._serving.forget(key.cluster)
        if self._started:
            self._listen()

    def _on_slice(self, change: Change[SeenSlice]) -> None:
        self._add(self._known.on_slice(change.key.cluster, change.key.name, change.old, change.new))

    def _on_config(self, change: Change[bytes]) -> None:
        mailbox = self._known.mailbox_of(change.key.cluster)
        if mailbox is not None and change.key.name == THE_ONE:
            self.controller.queue.add(Config(mailbox))

    def _on_customizer(self, change: Change[Obj]) -> None:
        customizer = None if change.new is None else parse_customizer(change.new)
        name = f"{change.key.namespace}/{change.key.name}"
        self._add(self._known.on_customizer(change.key.cluster, name, customizer))

    def _on_location(self, change: Change[SeenLocation]) -> None:
        self._add(self._known.on_location(change.key.cluster, change.key.name, change.new))

    def _on_workspace(self, change: Change[Workspace]) -> None:
        self._add(self._known.on_workspace(change.key.name, change.new))
        if self._started:
            self._listen()

    # --- doing ------------------------------------------------------------------------------------

    async def reconcile(self, work: Work, worker: int) -> float | None:
        match work:
            case Copy():
                return await self._copier.copy(work)
            case Config():
                await self._configurer.configure(work.mailbox)
            case Discover():
                await self._discover(work.cluster)
        return None

    async def _discover(self, cluster: str) -> None:
        if cluster not in self._known.engine.sources():
            return
        await self._serving.ask(cluster)
        keys = [key for key in self._known.placements if key.cluster == cluster]
        self._add(Config(mailbox) for key in keys for mailbox in self._known.engine.places(key))

    async def _say(self, status: Status, worker: int) -> float | None:
        """When there is nothing else to be done: what is wrong for a moment only need not be said.  What was found at
        the start has to be looked at before anybody knows what is to be said."""
        key = status.placement
        if self.controller.queue.idle:
            self._caught_up = True
        elif not self._caught_up or self._outside.monotonic() < self._due.get(key, 0.0):
            return SOON
        self._due.pop(key, None)
        await self._telling.say(key)
        return None
