"""Feeds of objects from all workspaces, shared by the controllers of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec
import orjson

from farflung.apis.edge.names import CUSTOMIZERS, EDGE_PLACEMENTS, SINGLE_PLACEMENT_SLICES, SYNCER_CONFIGS
from farflung.apis.kcp.names import LOCATIONS, LOGICAL_CLUSTERS, WORKSPACES
from farflung.apis.names import Collection
from farflung.client.discovery import DiscoveredResource, ServedResources, discover
from farflung.client.errors import ClientError
from farflung.client.rest import Client
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.placement import guard
from farflung.placement.customize import parse_customizer
from farflung.placement.index import CopyKey, kinds_from
from farflung.placement.name_owners import parse_parent
from farflung.placement.names import (
    BINDINGS,
    DEFINITIONS,
    Category,
    GroupResource,
    ObjectRef,
    PlacementKey,
    WatchedCollection,
    category,
)
from farflung.placement.state import PlacementState, WorkKey
from farflung.placement.types import (
    Location,
    ObservedObject,
    Placement,
    PlacementSlice,
    Workspace,
    parse_location,
    parse_object,
    parse_placement,
    parse_slice,
)
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer, SharedInformers
from farflung.runtime.manager import Manager
from farflung.runtime.rebuilder import Rebuilder

TICK: Final = 0.01  #: seconds
FAILURES_UNTIL_START: Final = 5  #: failures after which the start no longer waits for the list of a kind
ObjectListener = Callable[[str, ObjectRef, ObservedObject | None], None]


class ObjectFeeds:
    """One informer per needed collection."""

    def __init__(
        self,
        everywhere: Client,
        notify: ObjectListener,
        changed: Callable[[WatchedCollection], None],
        informers: SharedInformers,
        rebuilder: Rebuilder,
        trouble: Callable[[str, Exception], None],
    ) -> None:
        """`everywhere`: all workspaces; `notify` is called for every change, guarded by the rebuilder; `changed` when a
        collection has its first list, and when it is stopped."""
        self._everywhere = everywhere
        self._notify = notify
        self._changed = changed
        self._shared = informers
        self._rebuilder = rebuilder
        self._trouble = trouble
        self.is_assuming = False  #: the change being delivered is an own write
        self._informers: dict[WatchedCollection, Informer[ObservedObject]] = {}
        self._running: dict[WatchedCollection, asyncio.Task[None]] = {}

    def want(self, group: asyncio.TaskGroup, collections: Iterable[WatchedCollection]) -> None:
        """Start and stop informers, so that there is one for each of these collections."""
        wanted = set(collections)
        for watched in self._informers.keys() - wanted:
            self._stop(watched)
        for watched in sorted(wanted - self._informers.keys()):
            informer = self._informers[watched] = self._informer(watched)
            running = self._run(watched, informer)
            try:
                self._running[watched] = group.create_task(running, name=f"informer of {watched.resource}")
            except RuntimeError:  # the group is shutting down
                running.close()
                raise

    async def _run(self, watched: WatchedCollection, informer: Informer[ObservedObject]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            await informer.synced.wait()
            self._changed(watched)

    def _informer(self, watched: WatchedCollection) -> Informer[ObservedObject]:
        client = self._everywhere.workspace(watched.cluster) if watched.cluster else self._everywhere

        def decode(document: bytes) -> ObservedObject:
            return parse_object(watched.resource, watched.version, document)

        informer: Informer[ObservedObject] = self._shared.informer(client, watched.collection(), decode, self._trouble)
        informer.subscribe(self._rebuilder.guarded(str(watched.resource), self._listener(watched), watched.cluster))
        return informer

    def _listener(self, watched: WatchedCollection) -> Callable[[CacheChange[ObservedObject]], None]:
        def listener(change: CacheChange[ObservedObject]) -> None:
            ref = ObjectRef(watched.resource, change.key.namespace, change.key.name)
            self._notify(change.key.cluster or watched.cluster, ref, change.new)

        return listener

    def replay(self) -> None:
        """Deliver all objects in the caches to a new engine."""
        for watched, informer in list(self._informers.items()):
            self._rebuilder.replay(str(watched.resource), informer.cache, self._listener(watched), watched.cluster)

    def _stop(self, watched: WatchedCollection) -> None:
        self._running.pop(watched).cancel()
        informer = self._informers.pop(watched)
        informer.stop()
        listener = self._rebuilder.guarded(str(watched.resource), self._listener(watched), watched.cluster)
        for key, seen in informer.cache.items():
            listener(CacheChange(key, seen, None))
        self._changed(watched)

    # --- caches -----------------------------------------------------------------------------------

    def is_known(self, watched: WatchedCollection) -> bool:
        """Whether the informer of a collection has a list."""
        informer = self._informers.get(watched)
        return informer is not None and informer.synced.is_set()

    def informers(self) -> Sequence[Informer[Any]]:
        return list(self._informers.values())

    async def synced(self, collections: Iterable[WatchedCollection]) -> None:
        """Wait for the lists of these collections."""
        await asyncio.gather(*(self._informers[watched].synced.wait() for watched in collections))

    async def settled(self) -> None:
        """Wait for the lists of all collections, except those that failed repeatedly: a kind that cannot be listed must
        not delay the others."""
        while any(not one.synced.is_set() and one.troubles < FAILURES_UNTIL_START for one in self._informers.values()):
            await self._shared.env.sleep(TICK)

    # --- own writes -------------------------------------------------------------------------------

    def assume(self, watched: WatchedCollection, written: Obj) -> None:
        if informer := self._informers.get(watched):
            self.is_assuming = True
            try:
                informer.assume(written)
            finally:
                self.is_assuming = False

    def forget(self, watched: WatchedCollection, key: Key, version: int) -> None:
        """Remove a deleted object from the cache.  `version`: the deleted one."""
        if informer := self._informers.get(watched):
            informer.forget(key, version)


class DiscoveredKinds(NamedTuple):
    namespaced: dict[GroupResource, str]  #: versions of the namespaced kinds that can be copied
    versions: dict[GroupResource, tuple[str, ...]]  #: of all kinds that can be copied, the preferred version first


class DiscoveryCache:
    def __init__(self, workspace: Callable[[str], Client]) -> None:
        self._workspace = workspace
        self._known: dict[str, DiscoveredKinds] = {}

    def namespaced(self, cluster: str) -> Mapping[GroupResource, str] | None:
        """The versions of namespaced kinds; None if the discovery was not read yet."""
        known = self._known.get(cluster)
        return None if known is None else known.namespaced

    def forget(self, cluster: str) -> None:
        self._known.pop(cluster, None)

    async def ask(self, cluster: str) -> DiscoveredKinds:
        """Raises ClientError."""
        served = await discover(self._workspace(cluster))
        found = copied_kinds(served.resources())
        kinds = self._known[cluster] = DiscoveredKinds(
            {resource: one.collection.version for resource, one in found.items() if one.namespaced},
            {resource: tuple(_versions(served, resource)) for resource in found},
        )
        return kinds

    async def versions(self, cluster: str, resource: GroupResource) -> tuple[str, ...]:
        """Raises ClientError."""
        known = self._known.get(cluster) or await self.ask(cluster)
        return known.versions.get(resource, ())


def _versions(served: ServedResources, resource: GroupResource) -> Iterable[str]:
    for group in served.groups:
        if group.name == resource.group:
            for version in group.versions:
                if any(one.collection.plural == resource.resource for one in version.resources):
                    yield version.name


def copied_kinds(resources: Iterable[DiscoveredResource]) -> dict[GroupResource, DiscoveredResource]:
    """Kinds that can be watched and copied."""
    found = {
        GroupResource(one.collection.group, one.collection.plural): one
        for one in resources
        if {"list", "watch"} <= one.verbs
    }
    return {resource: one for resource, one in found.items() if category(resource) is not Category.NOWHERE}


def is_builtin(resource: GroupResource) -> bool:
    """Whether the group is one of those that a workspace may serve without a binding."""
    return resource == BINDINGS or "." not in resource.group or resource.group.endswith(".k8s.io")


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FeedViews:
    """The APIs that the feed reads."""

    everywhere: Client  #: all workspaces, with full access
    provider: Client  #: the provider workspace
    root: Client  #: the root workspace
    edge: str  #: URL of the view with the edge API
    scheduling: str  #: URL of the view with Locations
    own: Mapping[str, FeedViews] = field(default_factory=dict)  #: of controllers that are users of their own

    def of(self, controller: str) -> FeedViews:
        """The APIs as a controller writes to them."""
        return self.own.get(controller, self)

    def edge_of(self, cluster: str) -> Client:
        """The edge API of a workspace."""
        return self.provider.view(self.edge, cluster)


class Subscriber(Protocol):
    """A controller that uses the state of the feed."""

    @property
    def name(self) -> str: ...

    @property
    def controllers(self) -> Sequence[Controller[Any]]: ...

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """Further informers, which run with those of the feed."""

    def reset(self, known: PlacementState) -> None:
        """Use this state, and forget everything derived from an earlier one."""

    def notify(self, affected: AbstractSet[WorkKey], assumed: CopyKey | None) -> None:
        """Reconcile these keys.  `assumed`: a copy with the desired content: the translator just wrote it, or only its
        status changed."""

    async def work(self) -> None:
        """Reconcile until cancelled; called when the state is complete."""


class PlacementFeed:
    def __init__(
        self, views: FeedViews, limits: guard.WithdrawalLimits, informers: SharedInformers, log: Logger
    ) -> None:
        self.views = views
        self.env = informers.env
        self._shared = informers
        self.log = log
        self._limits = limits
        self.rebuilder = Rebuilder("placement-feed", self._rebuild, informers.env, log)
        self.rebuilder.clean.clear()  # until `run` builds the first state
        self._builtin: dict[GroupResource, str] = {}
        self._subscribers: list[Subscriber] = []
        self._object_listeners: list[Callable[[str, ObjectRef, ObservedObject | None], None]] = []
        self._listeners: list[tuple[Informer[Any], Callable[[CacheChange[Any]], None]]] = []
        self._group: asyncio.TaskGroup | None = None
        self._started = False
        edge = views.provider.view(views.edge)
        self.placements = self.informer(edge, EDGE_PLACEMENTS, parse_placement, self._on_placement)
        self.configs: Informer[bytes] = informers.informer(edge, SYNCER_CONFIGS, bytes, self.trouble)
        self._slices = self.informer(edge, SINGLE_PLACEMENT_SLICES, parse_slice, self._on_slice)
        self._customizers = self.informer(edge, CUSTOMIZERS, orjson.loads, self._on_customizer)
        self._clusters = self.informer(views.everywhere, LOGICAL_CLUSTERS, parse_parent, self._on_logical_cluster)
        locations = views.root.view(views.scheduling)
        self.locations = self.informer(locations, LOCATIONS, parse_location, self._on_location)
        workspace = msgspec.json.Decoder(Workspace).decode
        self._workspaces = self.informer(views.provider, WORKSPACES, workspace, self._on_workspace)
        self.feeds = ObjectFeeds(
            views.everywhere, self._on_object, self._on_collection, informers, self.rebuilder, self.trouble
        )
        self._listened: frozenset[WatchedCollection] = frozenset()
        self.known = self._empty_state()

    def add(self, subscriber: Subscriber) -> None:
        """Add a subscriber, before the feed runs."""
        self._subscribers.append(subscriber)
        subscriber.reset(self.known)

    def add_object_listener(self, listener: ObjectListener) -> None:
        """Call this for every changed object, with its cluster, after the state has it."""
        self._object_listeners.append(listener)

    def _empty_state(self) -> PlacementState:
        return PlacementState(self._builtin, self._limits, self.feeds.is_known)

    def _rebuild(self) -> None:
        """Make a new state from the caches."""
        self.known = self._empty_state()
        for one in self._subscribers:
            one.reset(self.known)
        for informer, listener in self._listeners:
            self.rebuilder.replay(informer.collection.kind, informer.cache, listener)
        self.feeds.replay()
        self.rebuilder.clean.set()
        if self._started:
            self.rebuilder.attempt("begin", lambda: self._notify(self.known.begin()))
            self._update_informers()

    def failing_objects(self, cluster: str | None = None) -> list[str]:
        """The objects of one workspace or of all that the state may lack, because the engine fails with them.  Their
        copies, or those that they select, then seem to be unwanted."""
        found: set[str] = set()
        for subject in self.rebuilder.failing:
            match subject:
                case (str() as kind, Key() as key) if cluster in (key.cluster, None):
                    found.add(f"{kind} {key.namespace}/{key.name}" if key.namespace else f"{kind} {key.name}")
        return sorted(found)

    def informer(
        self,
        client: Client,
        collection: Collection,
        decode: Callable[[bytes], T],
        listener: Callable[[CacheChange[T]], None],
    ) -> Informer[T]:
        """An informer with a listener that updates the state, also when it is rebuilt."""
        informer = self._shared.informer(client, collection, decode, self.trouble)
        informer.subscribe(self.rebuilder.guarded(collection.kind, listener))
        self._listeners.append((informer, listener))
        return informer

    @property
    def name(self) -> str:
        return self._subscribers[0].name

    def trouble(self, what: str, error: Exception) -> None:
        self.log.error(error, what, controller=self.name)

    # --- running ----------------------------------------------------------------------------------

    def join(self, manager: Manager) -> None:
        manager.adopt(self)

    @property
    def synced(self) -> bool:
        """Whether the subscribers work."""
        return self._started

    @property
    def controllers(self) -> Sequence[Controller[Any]]:
        return [*(controller for one in self._subscribers for controller in one.controllers), self.rebuilder]

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return [*self._static(), *self.feeds.informers()]

    async def run(self) -> None:
        """Until cancelled.  Subscribers start to work when all informers have a list."""
        self._builtin = await self._builtin_kinds()
        self._rebuild()
        static = self._static()
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self.rebuilder.run(), name=self.rebuilder.name)
            for informer in static:
                group.create_task(informer.run(), name=f"informer of {informer.collection.plural}")
            self.log.plain(f"Waiting for caches to sync for {self.name}")
            await asyncio.gather(*(informer.synced.wait() for informer in static))
            builtin = frozenset(self.known.served_kinds.builtin())
            self.feeds.want(group, builtin)
            await self.feeds.synced(builtin)
            self._update_informers()  # for kinds of bindings and definitions
            await self.feeds.settled()
            self._started = True
            self._update_informers()  # for kinds that were added meanwhile
            self.rebuilder.attempt("begin", lambda: self._notify(self.known.begin()))
            self.log.plain(f"Caches are synced for {self.name}")
            for one in self._subscribers:
                group.create_task(one.work(), name=one.name)

    def _static(self) -> list[Informer[Any]]:
        """Informers that do not depend on the kinds of workspaces."""
        ours: tuple[Informer[Any], ...] = (
            self.placements,
            self._slices,
            self.configs,
            self._customizers,
            self._clusters,
            self.locations,
            self._workspaces,
        )
        return [*ours, *(informer for one in self._subscribers for informer in one.informers)]

    async def _builtin_kinds(self) -> dict[GroupResource, str]:
        """The kinds that every workspace serves without bindings and definitions: those of the root workspace."""
        failures = 0
        while True:
            try:
                return await self._kinds_of_root()
            except ClientError as error:
                failures += 1
                self.trouble("cannot discover the kinds of the root workspace", error)
                await self.env.sleep(self.env.backoff.delay(failures))

    async def _kinds_of_root(self) -> dict[GroupResource, str]:
        root = self.views.root
        served = await discover(root)
        found = {resource: one for resource, one in copied_kinds(served.resources()).items() if is_builtin(resource)}
        own: set[GroupResource] = set()
        for resource in {BINDINGS, DEFINITIONS} & found.keys():
            for obj in await root.list(found[resource].collection):
                seen = parse_object(resource, "", orjson.dumps(obj))
                own |= {
                    watched.resource
                    for watched in kinds_from("root", ObjectRef(resource, "", obj["metadata"]["name"]), seen)
                }
        return {resource: one.collection.version for resource, one in found.items() if resource not in own}

    def _update_informers(self) -> None:
        """Start and stop informers after the needed collections changed."""
        wanted = self.known.collections.keys()
        if self._group is not None and wanted != self._listened and self.rebuilder.clean.is_set():
            self._listened = frozenset(wanted)
            self.feeds.want(self._group, {*self.known.served_kinds.builtin(), *wanted})

    def _notify(self, affected: AbstractSet[WorkKey], assumed: CopyKey | None = None) -> None:
        for one in self._subscribers:
            one.notify(affected, assumed)

    # --- changes ----------------------------------------------------------------------------------

    def _on_object(self, cluster: str, ref: ObjectRef, after: ObservedObject | None) -> None:
        before = self.known.objects.get(cluster, ref)
        affected = self.known.on_object(cluster, ref, after)
        copy = CopyKey(self.known.mailbox_of(cluster) or "", ref)
        reports = (
            before is not None and after is not None and before.differs_only_in_status(after) and affected == {copy}
        )
        self._notify(affected, copy if reports or self.feeds.is_assuming else None)
        for listener in self._object_listeners:
            listener(cluster, ref, after)
        if ref.resource in (BINDINGS, DEFINITIONS) and self._started:
            self._update_informers()

    def _on_collection(self, watched: WatchedCollection) -> None:
        """A collection has its first list, or was stopped."""
        if self._started:  # `begin` enqueues everything anyway
            self.rebuilder.attempt(watched, lambda: self._notify(self.known.on_collection(watched)))

    def _on_placement(self, change: CacheChange[Placement]) -> None:
        self._notify(self.known.on_placement(PlacementKey(change.key.cluster, change.key.name), change.new))
        if self._started:
            self._update_informers()

    def _on_slice(self, change: CacheChange[PlacementSlice]) -> None:
        self._notify(self.known.on_slice(change.key.cluster, change.key.name, change.old, change.new))

    def _on_customizer(self, change: CacheChange[Obj]) -> None:
        customizer = None if change.new is None else parse_customizer(change.new)
        name = f"{change.key.namespace}/{change.key.name}"
        self._notify(self.known.on_customizer(change.key.cluster, name, customizer))

    def _on_logical_cluster(self, change: CacheChange[str]) -> None:
        self._notify(self.known.on_logical_cluster(change.key.cluster, change.new))

    def _on_location(self, change: CacheChange[Location]) -> None:
        self._notify(self.known.on_location(change.key.cluster, change.key.name, change.new))

    def _on_workspace(self, change: CacheChange[Workspace]) -> None:
        self._notify(self.known.on_workspace(change.key.name, change.new))
        if self._started:
            self._update_informers()
