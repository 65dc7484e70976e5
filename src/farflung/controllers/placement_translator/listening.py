"""Hear of everything that goes somewhere, and of where it is: once in a process, whoever makes something of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import msgspec
import orjson

from farflung.apis.names import Collection
from farflung.client.discovery import discover
from farflung.client.errors import ClientError
from farflung.client.rest import Client
from farflung.controllers.mailbox.decide import Workspace
from farflung.controllers.placement_translator import guard
from farflung.controllers.placement_translator.configurer import CONFIGS
from farflung.controllers.placement_translator.customizing import parse_customizer
from farflung.controllers.placement_translator.engine import Copy
from farflung.controllers.placement_translator.feeds import Feeds
from farflung.controllers.placement_translator.knowledge import Knowledge, Work
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
from farflung.controllers.placement_translator.serving import is_builtin, travelling
from farflung.controllers.placement_translator.telling import PLACEMENTS
from farflung.controllers.placement_translator.values import Kind, Part, Source
from farflung.controllers.placement_translator.world import DEFINITIONS, PlacementKey, Seen
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Change
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer
from farflung.runtime.manager import Manager
from farflung.runtime.reflector import Environment

T = TypeVar("T")

SLICES: Final = Collection("edge.kcp.io", "v1alpha1", "singleplacementslices", "SinglePlacementSlice")
CUSTOMIZERS: Final = Collection("edge.kcp.io", "v1alpha1", "customizers", "Customizer")
LOCATIONS: Final = Collection("scheduling.kcp.io", "v1alpha1", "locations", "Location")
WORKSPACES: Final = Collection("tenancy.kcp.io", "v1alpha1", "workspaces", "Workspace")


@dataclass(frozen=True, slots=True)
class Views:
    """Where things are found."""

    everywhere: Client  #: all workspaces at once, as somebody who may do everything in them
    provider: Client  #: the provider's workspace
    root: Client  #: the root workspace
    edge: str  #: the URL of the view of the edge API
    scheduling: str  #: of the one that shows Locations

    def edge_of(self, cluster: str) -> Client:
        """The edge API of a workspace."""
        return self.provider.view(self.edge, cluster)


class Attendant(Protocol):
    """Who makes something of what is heard."""

    @property
    def name(self) -> str: ...

    @property
    def controllers(self) -> Sequence[Controller[Any]]: ...

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """Those that it needs beside ours.  They run with ours."""

    def meet(self, known: Knowledge) -> None:
        """Whatever was known before does not count: this is what is known from now on."""

    def hear(self, works: AbstractSet[Work], assumed: Copy | None) -> None:
        """What is to be looked at.  `assumed`: one that is as it was put there, because we did so just now, or because
        only its status is another."""

    async def work(self) -> None:
        """Everything was heard of.  Until cancelled."""


class Listening:
    def __init__(self, views: Views, limits: guard.Limits, env: Environment, log: Logger) -> None:
        self.views = views
        self.env = env
        self.log = log
        self._limits = limits
        self._attendants: list[Attendant] = []
        self._witnesses: list[Callable[[str, Part, Seen | None], None]] = []
        self._group: asyncio.TaskGroup | None = None
        self._started = False
        edge = views.provider.view(views.edge)
        self.placements = self.informer(edge, PLACEMENTS, seen_placement, self._on_placement)
        self.configs: Informer[bytes] = Informer(edge, CONFIGS, bytes, env, self.trouble)
        self._slices = self.informer(edge, SLICES, seen_slice, self._on_slice)
        self._customizers = self.informer(edge, CUSTOMIZERS, orjson.loads, self._on_customizer)
        locations = views.root.view(views.scheduling)
        self.locations = self.informer(locations, LOCATIONS, seen_location, self._on_location)
        workspace = msgspec.json.Decoder(Workspace).decode
        self._workspaces = self.informer(views.provider, WORKSPACES, workspace, self._on_workspace)
        self.feeds = Feeds(views.everywhere, seen_object, self._on_object, self._on_source, env, self.trouble)
        self._listened: frozenset[Source] = frozenset()
        self.known = self._nothing_known({})

    def attend(self, attendant: Attendant) -> None:
        """Before it runs."""
        self._attendants.append(attendant)
        attendant.meet(self.known)

    def witness(self, heard: Callable[[str, Part, Seen | None], None]) -> None:
        """Tell of every object, with its cluster, after it is known."""
        self._witnesses.append(heard)

    def _nothing_known(self, builtin: dict[Kind, str]) -> Knowledge:
        return Knowledge(builtin, self._limits, self.feeds.is_known)

    def informer(
        self,
        client: Client,
        collection: Collection,
        decode: Callable[[bytes], T],
        listener: Callable[[Change[T]], None],
    ) -> Informer[T]:
        """One that is told of in the same way."""
        informer = Informer(client, collection, decode, self.env, self.trouble)
        informer.subscribe(listener)
        return informer

    @property
    def name(self) -> str:
        return self._attendants[0].name

    def trouble(self, what: str, error: Exception) -> None:
        self.log.error(error, what, controller=self.name)

    # --- running ----------------------------------------------------------------------------------

    def join(self, manager: Manager) -> None:
        manager.adopt(self)

    @property
    def synced(self) -> bool:
        """There was a whole list of everything that mattered at the start."""
        return self._started

    @property
    def controllers(self) -> Sequence[Controller[Any]]:
        return [controller for one in self._attendants for controller in one.controllers]

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return [*self._static(), *self.feeds.informers()]

    async def run(self) -> None:
        """Until cancelled.  Nobody works before everything was heard of."""
        self.known = self._nothing_known(await self._builtin_kinds())
        for one in self._attendants:
            one.meet(self.known)
        static = self._static()
        async with asyncio.TaskGroup() as group:
            self._group = group
            for informer in static:
                group.create_task(informer.run(), name=f"informer of {informer.collection.plural}")
            self.log.plain(f"Waiting for caches to sync for {self.name}")
            await asyncio.gather(*(informer.synced.wait() for informer in static))
            builtin = frozenset(self.known.offers.builtin())
            self.feeds.want(group, builtin)
            await self.feeds.synced(builtin)
            self._listen()  # to what bindings and definitions bring, which are known only now
            await self.feeds.settled()
            self._started = True
            self._listen()  # to what came meanwhile
            self._tell(self.known.begin())
            self.log.plain(f"Caches are synced for {self.name}")
            for one in self._attendants:
                group.create_task(one.work(), name=one.name)

    def _static(self) -> list[Informer[Any]]:
        """What there is whatever the workspaces have."""
        ours: tuple[Informer[Any], ...] = (
            self.placements,
            self._slices,
            self.configs,
            self._customizers,
            self.locations,
            self._workspaces,
        )
        return [*ours, *(informer for one in self._attendants for informer in one.informers)]

    async def _builtin_kinds(self) -> dict[Kind, str]:
        """What every workspace has: what the root has by itself."""
        failures = 0
        while True:
            try:
                return await self._kinds_of_root()
            except ClientError as error:
                failures += 1
                self.trouble("cannot discover the kinds of the root workspace", error)
                await self.env.sleep(self.env.backoff.delay(failures))

    async def _kinds_of_root(self) -> dict[Kind, str]:
        root = self.views.root
        served = await discover(root)
        found = {kind: one for kind, one in travelling(served.resources()).items() if is_builtin(kind)}
        own: set[Kind] = set()
        for kind in {BINDINGS, DEFINITIONS} & found.keys():
            for obj in await root.list(found[kind].collection):
                seen = seen_object(kind, "", orjson.dumps(obj))
                own |= {source.kind for source in brought_by("root", Part(kind, "", obj["metadata"]["name"]), seen)}
        return {kind: one.collection.version for kind, one in found.items() if kind not in own}

    def _listen(self) -> None:
        """To what matters, if that is something else than before."""
        wanted = self.known.sources.keys()
        if self._group is not None and wanted != self._listened:
            self._listened = frozenset(wanted)
            self.feeds.want(self._group, {*self.known.offers.builtin(), *wanted})

    def _tell(self, works: AbstractSet[Work], assumed: Copy | None = None) -> None:
        for one in self._attendants:
            one.hear(works, assumed)

    # --- hearing ----------------------------------------------------------------------------------

    def _on_object(self, cluster: str, part: Part, after: Seen | None) -> None:
        before = self.known.world.get(cluster, part)
        works = self.known.on_object(cluster, part, after)
        copy = Copy(self.known.mailbox_of(cluster) or "", part)
        reports = before is not None and after is not None and before.says_the_same(after) and works == {copy}
        self._tell(works, copy if reports or self.feeds.is_assuming else None)
        for heard in self._witnesses:
            heard(cluster, part, after)
        if part.kind in (BINDINGS, DEFINITIONS) and self._started:
            self._listen()

    def _on_source(self, source: Source) -> None:
        """A kind is known from now on, or no longer."""
        if self._started:  # until then everything is looked at anyway
            self._tell(self.known.on_source(source))

    def _on_placement(self, change: Change[SeenPlacement]) -> None:
        self._tell(self.known.on_placement(PlacementKey(change.key.cluster, change.key.name), change.new))
        if self._started:
            self._listen()

    def _on_slice(self, change: Change[SeenSlice]) -> None:
        self._tell(self.known.on_slice(change.key.cluster, change.key.name, change.old, change.new))

    def _on_customizer(self, change: Change[Obj]) -> None:
        customizer = None if change.new is None else parse_customizer(change.new)
        name = f"{change.key.namespace}/{change.key.name}"
        self._tell(self.known.on_customizer(change.key.cluster, name, customizer))

    def _on_location(self, change: Change[SeenLocation]) -> None:
        self._tell(self.known.on_location(change.key.cluster, change.key.name, change.new))

    def _on_workspace(self, change: Change[Workspace]) -> None:
        self._tell(self.known.on_workspace(change.key.name, change.new))
        if self._started:
            self._listen()
