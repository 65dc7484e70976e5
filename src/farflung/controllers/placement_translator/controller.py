"""The placement translator at work: one key is one object of one mailbox, or what its syncer is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
import orjson

from farflung.client.discovery import Resource, discover
from farflung.client.errors import AlreadyExists, ClientError
from farflung.client.resource import Collection
from farflung.client.rest import Client
from farflung.controllers.mailbox.decide import Workspace
from farflung.controllers.placement_translator import guard, projecting
from farflung.controllers.placement_translator.customizing import Customizer, parse_customizer
from farflung.controllers.placement_translator.desired import Desired, desired
from farflung.controllers.placement_translator.engine import Config, Copy, Place, Wanted
from farflung.controllers.placement_translator.feeds import Feeds
from farflung.controllers.placement_translator.kinds import Category, category
from farflung.controllers.placement_translator.knowledge import Discover, Knowledge, Status, Work
from farflung.controllers.placement_translator.merging import Offer, agreed
from farflung.controllers.placement_translator.merging import Source as Merging
from farflung.controllers.placement_translator.offers import BINDINGS
from farflung.controllers.placement_translator.problems import Problem, Problems, condition, with_condition
from farflung.controllers.placement_translator.reading import (
    SeenConfig,
    SeenLocation,
    SeenPlacement,
    SeenSlice,
    seen_config,
    seen_location,
    seen_object,
    seen_placement,
    seen_slice,
)
from farflung.controllers.placement_translator.syncer_config import THE_ONE, spec_of
from farflung.controllers.placement_translator.values import Kind, Part, Source
from farflung.controllers.placement_translator.what import UpsyncSet
from farflung.controllers.placement_translator.world import DEFINITIONS, NAMESPACES, PlacementKey, Seen
from farflung.informer.cache import Change, Key
from farflung.informer.informer import Informer
from farflung.informer.reflector import Surroundings
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.controller import Controller
from farflung.runtime.manager import Manager
from farflung.runtime.recorder import About, Recorder

T = TypeVar("T")

NAME: Final = "placement-translator"
EDGE: Final = "edge.kcp.io"
PLACEMENTS: Final = Collection(EDGE, "v1alpha1", "edgeplacements", "EdgePlacement")
SLICES: Final = Collection(EDGE, "v1alpha1", "singleplacementslices", "SinglePlacementSlice")
CONFIGS: Final = Collection(EDGE, "v1alpha1", "syncerconfigs", "SyncerConfig")
CUSTOMIZERS: Final = Collection(EDGE, "v1alpha1", "customizers", "Customizer")
LOCATIONS: Final = Collection("scheduling.kcp.io", "v1alpha1", "locations", "Location")
WORKSPACES: Final = Collection("tenancy.kcp.io", "v1alpha1", "workspaces", "Workspace")
SOON: Final = 0.1  #: seconds in which problems of a placement gather before its status is written
REMEMBERED: Final = 20_000  #: objects whose stripped form is remembered
#: what every cluster puts into each namespace by itself
OF_EVERY_NAMESPACE: Final = frozenset(
    {(Kind("", "configmaps"), "kube-root-ca.crt"), (Kind("", "serviceaccounts"), "default")}
)


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
        self._known = Knowledge({}, setting.limits)
        self._problems = Problems()
        self._served: dict[str, dict[Kind, Resource]] = {}  #: by workspace with placements
        self._agreed: dict[tuple[str, Kind], str] = {}  #: versions, by mailbox
        self._stripped: dict[tuple[str, Part], tuple[int, Obj]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._started = False
        self.controller: Controller[Work] = Controller(
            NAME, self.reconcile, workers=workers, backoff=outside.backoff, monotonic=outside.monotonic, log=log
        )
        edge = setting.provider.view(setting.edge_view)
        self._placements = self._informer(edge, PLACEMENTS, seen_placement, self._on_placement)
        self._slices = self._informer(edge, SLICES, seen_slice, self._on_slice)
        self._configs = self._informer(edge, CONFIGS, seen_config, self._on_config)
        self._customizers = self._informer(edge, CUSTOMIZERS, orjson.loads, self._on_customizer)
        locations = setting.root.view(setting.scheduling_view)
        self._locations = self._informer(locations, LOCATIONS, seen_location, self._on_location)
        workspace = msgspec.json.Decoder(Workspace).decode
        self._workspaces = self._informer(setting.provider, WORKSPACES, workspace, self._on_workspace)
        self._feeds = Feeds(setting.everywhere, seen_object, self._on_object, self._on_source, outside, self._trouble)

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
    def informers(self) -> Sequence[Informer[Any]]:
        return [*self._static(), *self._feeds.informers()]

    @property
    def idle(self) -> bool:
        """Nothing is to be done now, as far as is known."""
        return self._started and self.controller.queue.idle

    async def run(self) -> None:
        """Until cancelled.  Nothing is written before everything was heard of."""
        self._known = Knowledge(await self._builtin_kinds(), self._setting.limits)
        static = self._static()
        async with asyncio.TaskGroup() as group:
            self._group = group
            for informer in static:
                group.create_task(informer.run(), name=f"informer of {informer.collection.plural}")
            group.create_task(self._recorder.run(), name="events")
            self._log.plain("Waiting for caches to sync for placement-translator")
            await asyncio.gather(*(informer.synced.wait() for informer in static))
            self._listen()
            await self._feeds.synced()
            self._listen()  # to what bindings and definitions bring, which are known only now
            await self._feeds.synced()
            self._started = True
            self._log.plain("Caches are synced for placement-translator")
            group.create_task(self.controller.run(), name=NAME)

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
        """What every workspace has: what the root has without any binding."""
        failures = 0
        while True:
            try:
                served = await discover(self._setting.root)
            except ClientError as error:
                failures += 1
                self._trouble("cannot discover the kinds of the root workspace", error)
                await self._outside.sleep(self._outside.backoff.delay(failures))
                continue
            found = travelling(served.resources())
            return {kind: one.collection.version for kind, one in found.items() if is_builtin(kind)}

    def _listen(self) -> None:
        if self._group is not None:
            self._feeds.want(self._group, self._known.sources())

    def _add(self, works: Iterable[Work]) -> None:
        for work in works:
            if isinstance(work, Status):
                self.controller.queue.add_after(work, SOON)
            else:
                self.controller.queue.add(work)

    # --- hearing ----------------------------------------------------------------------------------

    def _on_object(self, cluster: str, part: Part, before: Seen | None, after: Seen | None) -> None:
        self._add(self._known.on_object(cluster, part, after))
        if part.kind in (BINDINGS, DEFINITIONS) and self._started:
            self._listen()

    def _on_source(self, source: Source) -> None:
        """A kind is known from now on, or no longer."""
        for mailbox, cluster in self._known.mailboxes.items():
            if self._known.offers.source(cluster, source.kind) == source:
                parts = self._known.engine.parts_at(mailbox)
                self._add(Copy(mailbox, part) for part in parts if part.kind == source.kind)

    def _on_placement(self, change: Change[SeenPlacement]) -> None:
        key = PlacementKey(change.key.cluster, change.key.name)
        self._add(self._known.on_placement(key, change.new))
        if change.new is None:
            self._problems.forget(key)
        self._listen()

    def _on_slice(self, change: Change[SeenSlice]) -> None:
        self._add(self._known.on_slice(change.key.cluster, change.key.name, change.old, change.new))

    def _on_config(self, change: Change[SeenConfig]) -> None:
        mailbox = self._known.mailbox_of(change.key.cluster)
        if mailbox is not None and change.key.name == THE_ONE:
            self._add({Config(mailbox)})

    def _on_customizer(self, change: Change[Obj]) -> None:
        customizer = None if change.new is None else parse_customizer(change.new)
        name = f"{change.key.namespace}/{change.key.name}"
        self._add(self._known.on_customizer(change.key.cluster, name, customizer))

    def _on_location(self, change: Change[SeenLocation]) -> None:
        self._add(self._known.on_location(change.key.cluster, change.key.name, change.new))

    def _on_workspace(self, change: Change[Workspace]) -> None:
        self._add(self._known.on_workspace(change.key.name, change.new))
        self._listen()

    # --- doing ------------------------------------------------------------------------------------

    async def reconcile(self, work: Work, worker: int) -> float | None:
        match work:
            case Copy():
                await self._copy(work)
            case Config():
                await self._configure(work.mailbox)
            case Discover():
                await self._discover(work.cluster)
            case Status():
                await self._say(work.placement)
        return None

    # --- one object of one mailbox ----------------------------------------------------------------

    async def _copy(self, copy: Copy) -> None:
        cluster = self._known.mailboxes.get(copy.mailbox)
        if cluster is None:
            return
        wanted = self._known.engine.wanted(*copy)
        want = await self._desired(copy, wanted)
        observed = self._known.world.get(cluster, copy.part)
        if want.problem:
            self._report(copy, wanted, [Problem("CustomizationFailed", f"{_at(copy)}: {want.problem}")])
        elif want.obj is None:
            await self._withdraw(copy, cluster, observed)
        elif self._known.offers.source(cluster, copy.part.kind) is None:
            self._report(
                copy, wanted, [Problem("NotServed", f"{_at(copy)}: the mailbox does not serve {copy.part.kind}")]
            )
        elif observed is not None and not observed.ours:
            theirs = "there is one already that no placement brought, and it is left alone"
            self._report(copy, wanted, [Problem("Conflict", f"{_at(copy)}: {theirs}")])
        else:
            await self._put(copy, cluster, want, observed)
            conflicts = [Problem("Conflict", f"{_at(copy)}: {one}") for one in want.conflicts]
            self._report(copy, wanted, conflicts)

    async def _desired(self, copy: Copy, wanted: list[Wanted]) -> Desired:
        known = self._known

        def customizer_of(cluster: str) -> Callable[[str], Customizer | None]:
            return lambda name: known.customizers.get((cluster, name))

        def location(place: Place) -> SeenLocation | None:
            return known.locations.get((place.cluster, place.location))

        sources = await self._sources(copy, wanted)
        return desired(copy.part, wanted, sources, customizer_of, location)

    async def _sources(self, copy: Copy, wanted: list[Wanted]) -> list[Merging]:
        """All in the same version of the API."""
        clusters = sorted({one.placement.cluster for one in wanted})
        found = [(cluster, seen) for cluster in clusters if (seen := self._known.world.get(cluster, copy.part))]
        alive = [(cluster, seen) for cluster, seen in found if seen.alive and not seen.ours]
        if len({seen.api_version for _, seen in alive}) > 1:
            return await self._in_one_version(copy, alive)
        return [Merging(cluster, seen.version, self._bare(cluster, copy.part, seen)) for cluster, seen in alive]

    async def _in_one_version(self, copy: Copy, alive: list[tuple[str, Seen]]) -> list[Merging]:
        key = copy.mailbox, copy.part.kind
        offers = [Offer(cluster, (seen.api_version,), seen.api_version) for cluster, seen in alive]
        agreement = agreed(offers, self._agreed.get(key))
        self._agreed[key] = agreement.version
        return [
            Merging(cluster, seen.version, self._bare(cluster, copy.part, seen))
            for cluster, seen in alive
            if seen.api_version == agreement.version
        ]

    def _bare(self, cluster: str, part: Part, seen: Seen) -> Obj:
        """What of an object goes anywhere, worked out once for all mailboxes."""
        remembered = self._stripped.get((cluster, part))
        if remembered is not None and remembered[0] == seen.version:
            return remembered[1]
        if len(self._stripped) >= REMEMBERED:
            self._stripped.clear()
        bare = projecting.stripped(orjson.loads(seen.document))
        self._stripped[cluster, part] = seen.version, bare
        return bare

    async def _put(self, copy: Copy, cluster: str, want: Desired, observed: Seen | None) -> None:
        assert want.obj is not None
        client, informer, collection = self._at(cluster, copy.part.kind)
        if observed is None:
            await self._ensure_namespace(copy, cluster)
            try:
                answer = await client.create(collection, want.obj, copy.part.namespace)
            except AlreadyExists:
                return  # which is heard, and looked at
            self._log.info("Created object in mailbox workspace", v=3, mbwsName=copy.mailbox, object=str(copy.part))
        else:
            changed = projecting.updated(orjson.loads(observed.document), want.obj)
            if changed is None:
                return
            answer = await client.update(collection, changed)
            self._log.info("Updated object in mailbox workspace", v=3, mbwsName=copy.mailbox, object=str(copy.part))
        if informer is not None:
            informer.assume(answer)

    async def _ensure_namespace(self, copy: Copy, cluster: str) -> None:
        namespace = Part(NAMESPACES, "", copy.part.namespace)
        if copy.part.namespace and self._known.world.get(cluster, namespace) is None:
            await self._copy(Copy(copy.mailbox, namespace))

    def _at(self, cluster: str, kind: Kind) -> tuple[Client, Informer[Seen] | None, Collection]:
        source = self._known.offers.source(cluster, kind)
        assert source is not None
        collection = Collection(kind.group, source.version, kind.resource, "")
        return self._setting.everywhere.workspace(cluster), self._feeds.informer(source), collection

    # --- what should not be there -----------------------------------------------------------------

    async def _withdraw(self, copy: Copy, cluster: str, observed: Seen | None) -> None:
        self._report(copy, [], [])
        if observed is None or not observed.ours or not observed.alive or self._stays(copy, cluster, observed):
            return
        client, informer, collection = self._at(cluster, copy.part.kind)
        await client.delete(
            collection, copy.part.name, copy.part.namespace, uid=observed.uid, version=str(observed.version)
        )
        self._log.info("Deleted object in mailbox workspace", v=3, mbwsName=copy.mailbox, object=str(copy.part))
        if informer is not None:
            informer.forget(Key(cluster, copy.part.namespace, copy.part.name))

    def _stays(self, copy: Copy, cluster: str, observed: Seen) -> bool:
        if copy.part.kind == NAMESPACES and self._is_occupied(cluster, copy.part.name):
            return True
        for key in observed.placements:
            source = self._known.offers.source(key.cluster, copy.part.kind)
            unheard = source is not None and not self._feeds.is_known(source)
            if unheard or self._known.is_undecided(key) or self._is_held(key, copy):
                return True
        return False

    def _is_occupied(self, cluster: str, namespace: str) -> bool:
        inside = self._known.world.inside(cluster, namespace)
        return any((part.kind, part.name) not in OF_EVERY_NAMESPACE for part in inside)

    def _is_held(self, key: PlacementKey, copy: Copy) -> bool:
        seen = self._known.placements.get(key)
        if seen is None:
            return False
        verdict = self._known.verdict(key)
        held = copy.part in verdict.held.get(copy.mailbox, ())
        problems = [Problem("WithdrawalHeld", verdict.message(seen.generation))] if verdict.held else []
        self._tell(key, "withdrawal", problems)
        return held

    # --- what the syncer is told ------------------------------------------------------------------

    async def _configure(self, mailbox: str) -> None:
        cluster = self._known.mailboxes.get(mailbox)
        placements = self._known.engine.placements_at(mailbox)
        if cluster is None or any(key.cluster not in self._served for key in placements):
            return  # what the workspaces serve is being asked for, and then we look again
        wanted = self._spec(mailbox)
        view = self._setting.provider.view(self._setting.edge_view, cluster)
        observed = self._configs.cache.get(Key(cluster, "", THE_ONE))
        if observed is None:
            body = {
                "apiVersion": CONFIGS.api_version,
                "kind": CONFIGS.kind,
                "metadata": {"name": THE_ONE},
                "spec": wanted,
            }
            try:
                answer = await view.create(CONFIGS, body)
            except AlreadyExists:
                return  # which is heard, and looked at
            self._log.info("Created SyncerConfig", v=2, mbwsName=mailbox, syncerConfig=THE_ONE)
        else:
            before = orjson.loads(observed.document)
            if before.get("spec") == wanted:
                return
            answer = await view.update(CONFIGS, before | {"spec": wanted})
            self._log.info(
                "Updated SyncerConfig",
                v=2,
                mbwsName=mailbox,
                syncerConfig=THE_ONE,
                resourceVersionOld=before["metadata"]["resourceVersion"],
                resourceVersionNew=answer["metadata"]["resourceVersion"],
            )
        self._configs.assume(answer)

    def _spec(self, mailbox: str) -> Obj:
        engine = self._known.engine
        namespaces: set[str] = set()
        parts: set[Part] = set()
        kinds: dict[Kind, str] = {}
        upsync: list[UpsyncSet] = []
        for key in engine.placements_at(mailbox):
            what = engine.what(key)
            if what is None:
                continue
            upsync += what.upsync
            whole = engine.whole_namespaces(key)
            namespaces |= whole
            served = self._served.get(key.cluster, {})
            if whole:
                kinds |= {kind: one.collection.version for kind, one in served.items() if one.namespaced}
            for part, selected in engine.selected(key).items():
                if not selected.whole_namespace:
                    parts.add(part)
            parts |= set(self._definitions(key))
        versions = {part.kind: self._version(mailbox, part.kind) for part in parts} | kinds
        known = {kind: version for kind, version in versions.items() if version}
        return spec_of(namespaces=namespaces, kinds=kinds, parts=parts, versions=known, upsync=upsync)

    def _definitions(self, key: PlacementKey) -> Iterable[Part]:
        """Those that go along with what is selected."""
        kinds = {part.kind for part in self._known.engine.selected(key)}
        for kind in kinds:
            definition = Part(DEFINITIONS, "", f"{kind.resource}.{kind.group}")
            if self._known.world.get(key.cluster, definition) is not None:
                yield definition

    def _version(self, mailbox: str, kind: Kind) -> str:
        """In which objects of a kind are in a mailbox; empty if it does not serve them."""
        source = self._known.offers.source(self._known.mailboxes[mailbox], kind)
        return "" if source is None else source.version

    async def _discover(self, cluster: str) -> None:
        if cluster not in self._known.engine.sources():
            self._served.pop(cluster, None)
            return
        served = await discover(self._setting.everywhere.workspace(cluster))
        self._served[cluster] = travelling(served.resources())
        self._listen()
        keys = [key for key in self._known.placements if key.cluster == cluster]
        self._add(Config(mailbox) for key in keys for mailbox in self._known.engine.places(key))

    # --- what is said of placements ---------------------------------------------------------------

    def _report(self, copy: Copy, wanted: list[Wanted], problems: list[Problem]) -> None:
        keys = {one.placement for one in wanted}
        for key in keys:
            self._tell(key, copy, problems)
        for key in self._problems.about(copy):
            if key not in keys:
                self._tell(key, copy, [])

    def _tell(self, key: PlacementKey, about: object, problems: list[Problem]) -> None:
        new = self._problems.put(key, about, problems)
        if new is None:
            return
        self._add({Status(key)})
        seen = self._known.placements.get(key)
        for problem in new if seen is not None else ():
            self._log.info("Problem with EdgePlacement", v=1, edgePlacement=str(key), reason=problem.reason)
            whom = About(key.cluster, PLACEMENTS.api_version, PLACEMENTS.kind, key.name, "", seen.uid if seen else "")
            self._recorder.record(whom, "Warning", problem.reason, problem.message)

    async def _say(self, key: PlacementKey) -> None:
        seen = self._known.placements.get(key)
        if seen is None:
            return
        invalid = [Problem("InvalidSpec", seen.what.problem)] if seen.what.problem else []
        self._tell(key, "spec", invalid)
        obj = orjson.loads(seen.document)
        now = self._setting.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        status = with_condition(obj.get("status"), condition(self._problems.of(key)), now)
        if status is None:
            return
        view = self._setting.provider.view(self._setting.edge_view, key.cluster)
        self._placements.assume(await view.update(PLACEMENTS, obj | {"status": status}, "status"))


def _at(copy: Copy) -> str:
    return f"{copy.part} in {copy.mailbox}"


def travelling(resources: Iterable[Resource]) -> dict[Kind, Resource]:
    """Kinds whose objects can be followed and go somewhere."""
    found = {
        Kind(one.collection.group, one.collection.plural): one for one in resources if {"list", "watch"} <= one.verbs
    }
    return {kind: one for kind, one in found.items() if category(kind) is not Category.NOWHERE}


def is_builtin(kind: Kind) -> bool:
    return kind == BINDINGS or "." not in kind.group or kind.group.endswith(".k8s.io")
