"""SyncTargets and Locations.

SyncTarget  gets its key label, its syncer's URLs, and conditions that depend on heartbeats
Location    counts its SyncTargets and the available ones
workspace   gets the export `kubernetes`, its binding, and the Location `default` with its first SyncTarget.  An
            annotation of the export records that, so these objects can be deleted for good.

Targets and locations are indexed by labels and selectors: the cost of a change depends on the objects it concerns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import orjson
from pyroaring import BitMap

from farflung.apis.edge.names import EDGE_REACHABLE, STALE_AFTER
from farflung.apis.kcp.names import (
    APIS_GROUP,
    COMPUTE_ANNOTATION,
    DEFAULTS_CREATED,
    HEARTBEAT_HEALTHY,
    KEY_LABEL,
    LABELS_ANNOTATION,
    SCHEDULING_GROUP,
    WORKLOAD_GROUP,
)
from farflung.apis.resource import Resource
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import cluster_in, name_in
from farflung.hub.controllers.loopback import LoopbackClient, collection_path, object_path
from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.hub.tenancy.hashes import sync_target_key
from farflung.hub.tenancy.status import READY_CONDITION, ConditionState, is_condition_true, merge_conditions
from farflung.machinery import times
from farflung.machinery.errors import ApiError, Obj
from farflung.machinery.label_index import LabelIndex, SelectorIndex
from farflung.machinery.selectors import LabelSelector, selector_of
from farflung.store.base import Change, Entry, Store, Subscription, resource_prefix

WORKERS: Final = 8
LONGEST_SLEEP: Final = 60.0  #: seconds; the clock may be set meanwhile
EXPORT: Final = "kubernetes"  #: the name of the export, and of the binding to it
LOCATION: Final = "default"
EXPORTS: Final = Resource(APIS_GROUP, "v1alpha1", "apiexports", "APIExport", False, "")
BINDINGS: Final = Resource(APIS_GROUP, "v1alpha1", "apibindings", "APIBinding", False, "")
SYNC_TARGETS: Final = Resource(WORKLOAD_GROUP, "v1alpha1", "synctargets", "SyncTarget", False, "")
LOCATIONS: Final = Resource(SCHEDULING_GROUP, "v1alpha1", "locations", "Location", False, "")


class DefaultObject(NamedTuple):
    """An object that a workspace gets with its first SyncTarget."""

    resource: Resource
    body: Obj


class SyncTargetController:
    def __init__(
        self,
        store: Store,
        client: LoopbackClient,
        clock: Callable[[], datetime],
        url: str,
        stale_after: float,
    ) -> None:
        """`url`: the hub's address for clients; `stale_after`: seconds without a heartbeat."""
        self._store = store
        self._client = client
        self._clock = clock
        self._url = url

        self._seconds = stale_after
        self._reconcilers = {
            SYNC_TARGETS.storage_prefix: self._reconcile_target,
            LOCATIONS.storage_prefix: self._reconcile_location,
            EXPORTS.storage_prefix: self._reconcile_defaults,
        }
        self._workspaces: dict[str, SyncTargetIndex] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._subscriptions: list[Subscription] = []
        self.queue: ReconcileQueue[str] = ReconcileQueue("inventory", self._reconcile, workers=WORKERS)

    def start(self) -> None:
        targets, locations = SYNC_TARGETS.storage_prefix, LOCATIONS.storage_prefix
        self._subscriptions = [
            self._store.subscribe(targets, self._on_targets),
            self._store.subscribe(locations, self._on_locations),
        ]
        for entry in self._store.list(targets).entries:
            self._update_target_index(entry.key, entry)
            self.queue.add(defaults_key(entry.key))
        for entry in self._store.list(locations).entries:
            self._update_location_index(entry.key, entry)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # --- changes ----------------------------------------------------------------------------------

    def _on_targets(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._update_target_index(change.key, change.entry)
            if change.previous is None:
                self.queue.add(defaults_key(change.key))

    def _on_locations(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._update_location_index(change.key, change.entry)

    def _update_target_index(self, key: str, entry: Entry | None) -> None:
        cluster, (_, name) = cluster_in(key), name_in(key)
        workspace = self._workspaces.setdefault(cluster, SyncTargetIndex())
        target = None if entry is None else target_of(orjson.loads(entry.value))
        for location in workspace.set_target(name, target):
            self.queue.add(objects.key(LOCATIONS, cluster, "", location))
        self.queue.add(key)
        self._drop_if_empty(cluster, workspace)

    def _update_location_index(self, key: str, entry: Entry | None) -> None:
        cluster, (_, name) = cluster_in(key), name_in(key)
        workspace = self._workspaces.setdefault(cluster, SyncTargetIndex())
        workspace.set_location(name, None if entry is None else orjson.loads(entry.value))
        if entry is not None:
            self.queue.add(key)
        self._drop_if_empty(cluster, workspace)

    def _drop_if_empty(self, cluster: str, workspace: SyncTargetIndex) -> None:
        if workspace.is_empty:
            del self._workspaces[cluster]

    # --- reconciling ------------------------------------------------------------------------------

    async def _reconcile(self, key: str) -> None:
        await self._reconcilers[resource_prefix(key)](key)

    async def _reconcile_target(self, key: str) -> None:
        self._cancel_timer(key)
        entry, target = self._found(key)
        if entry is None or "deletionTimestamp" in target["metadata"]:
            return
        uid, path = target["metadata"]["uid"], object_path(SYNC_TARGETS, key)
        label = key_of(cluster_in(key), target)
        if (target["metadata"].get("labels") or {}).get(KEY_LABEL) != label:
            change = {"metadata": {"labels": {KEY_LABEL: label}}}
            await self._client.patch(path, change, uid=uid, revision=entry.revision)
            return  # the write triggers the next reconcile
        status = target_status(self._url, cluster_in(key), target, self._clock(), self._seconds)
        if not has_status(target, status):
            await self._client.patch(f"{path}/status", {"status": status}, uid=uid, revision=entry.revision)
        self._set_heartbeat_timer(key, target)

    async def _reconcile_location(self, key: str) -> None:
        entry, location = self._found(key)
        workspace = self._workspaces.get(cluster_in(key))
        if entry is None or workspace is None or "deletionTimestamp" in location["metadata"]:
            return
        uid, path = location["metadata"]["uid"], object_path(LOCATIONS, key)
        labels = shown_labels(location)
        if (location["metadata"].get("annotations") or {}).get(LABELS_ANNOTATION) != labels:
            change = {"metadata": {"annotations": {LABELS_ANNOTATION: labels}}}
            await self._client.patch(path, change, uid=uid, revision=entry.revision)
            return  # the write triggers the next reconcile
        status = workspace.count(name_in(key)[1]).status()
        if not has_status(location, status):
            await self._client.patch(f"{path}/status", {"status": status}, uid=uid, revision=entry.revision)

    def _found(self, key: str) -> tuple[Entry | None, Obj]:
        entry = self._store.get(key)
        return entry, {} if entry is None else objects.decode(entry)

    # --- heartbeats -------------------------------------------------------------------------------

    def _set_heartbeat_timer(self, key: str, target: Obj) -> None:
        """Reconcile again when the last heartbeat is too old."""
        heartbeat, now = last_heartbeat(target), self._clock()
        if heartbeat is None or heartbeat_condition(heartbeat, now, self._seconds).reason:
            return
        left = self._seconds - (now - heartbeat).total_seconds()
        delay = min(left + 0.001, LONGEST_SLEEP)
        self._timers[key] = asyncio.get_running_loop().call_later(delay, self.queue.add, key)

    def _cancel_timer(self, key: str) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()

    # --- default objects --------------------------------------------------------------------------

    async def _reconcile_defaults(self, key: str) -> None:
        """The annotation is written last, so a crash before it repeats the creation."""
        cluster = cluster_in(key)
        if not self._has_targets(cluster):
            return
        if self._store.get(key) is None:
            await self._make(cluster, DefaultObject(EXPORTS, default_export()))
        if is_done(self._found(key)[1]):
            return
        await self._make(cluster, DefaultObject(LOCATIONS, default_location()))
        await self._make(cluster, DefaultObject(BINDINGS, default_binding()))
        entry, export = self._found(key)
        if entry is not None and not is_done(export):
            change = {"metadata": {"annotations": {DEFAULTS_CREATED: "true"}}}
            uid = export["metadata"]["uid"]
            await self._client.patch(object_path(EXPORTS, key), change, uid=uid, revision=entry.revision)

    def _has_targets(self, cluster: str) -> bool:
        workspace = self._workspaces.get(cluster)
        return workspace is not None and bool(workspace.targets)

    async def _make(self, cluster: str, default: DefaultObject) -> None:
        """Create an object unless it exists or the workspace does not serve its kind."""
        resource, name = default.resource, default.body["metadata"]["name"]
        if self._store.get(objects.key(resource, cluster, "", name)) is not None:
            return
        try:
            await self._client.request("POST", collection_path(resource, cluster), default.body)
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def has_status(obj: Obj, status: Obj) -> bool:
    """Whether an object's status contains these fields."""
    present = obj.get("status") or {}
    return all(present.get(part) == value for part, value in status.items())


def defaults_key(key: str) -> str:
    """The key of the export that records whether a target's workspace has its default objects."""
    return objects.key(EXPORTS, cluster_in(key), "", EXPORT)


def is_done(export: Obj) -> bool:
    return ((export.get("metadata") or {}).get("annotations") or {}).get(DEFAULTS_CREATED) == "true"


def default_export() -> Obj:
    metadata = {"name": EXPORT, "annotations": {COMPUTE_ANNOTATION: "true"}}
    return {"apiVersion": EXPORTS.api_version, "kind": EXPORTS.kind, "metadata": metadata, "spec": {}}


def default_location() -> Obj:
    resource = {"group": WORKLOAD_GROUP, "version": "v1alpha1", "resource": "synctargets"}
    spec = {"resource": resource, "instanceSelector": {}}
    return {"apiVersion": LOCATIONS.api_version, "kind": "Location", "metadata": {"name": LOCATION}, "spec": spec}


def default_binding() -> Obj:
    spec = {"reference": {"export": {"name": EXPORT}}}
    return {"apiVersion": BINDINGS.api_version, "kind": BINDINGS.kind, "metadata": {"name": EXPORT}, "spec": spec}


class IndexedTarget(NamedTuple):
    labels: Mapping[str, str]
    is_available: bool


class TargetCount(NamedTuple):
    instances: int
    available: int

    def status(self) -> Obj:
        return {"instances": self.instances, "availableInstances": self.available}


NONE: Final = TargetCount(0, 0)


def target_of(obj: Obj) -> IndexedTarget:
    is_schedulable = not (obj.get("spec") or {}).get("unschedulable")
    return IndexedTarget(
        obj["metadata"].get("labels") or {}, is_schedulable and is_condition_true(obj, READY_CONDITION)
    )


def instance_selector(location: Obj) -> LabelSelector | None:
    """None for a missing or invalid selector, which selects nothing."""
    written = (location.get("spec") or {}).get("instanceSelector")
    if written is None:
        return None
    try:
        return selector_of(written)
    except KeyError:
        return None


class SyncTargetIndex:
    """The SyncTargets and Locations of one workspace, with the counts of each Location."""

    def __init__(self) -> None:
        self.targets: dict[str, IndexedTarget] = {}
        self._target_numbers = Numbers()
        self._labels = LabelIndex()  #: of targets
        self._available = BitMap()  #: targets
        self._location_numbers = Numbers()
        self._selectors: dict[str, LabelSelector | None] = {}
        self._index = SelectorIndex()  #: of locations
        self._counts: dict[str, TargetCount] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.targets or self._selectors)

    def count(self, location: str) -> TargetCount:
        return self._counts.get(location, NONE)

    def set_target(self, name: str, new: IndexedTarget | None) -> list[str]:
        """Add, replace or (None) remove a target.  Returns the locations whose counts change."""
        old = self.targets.pop(name, None)
        if new is not None:
            self.targets[name] = new
        if new == old:
            return []
        self._update_target(name, new)
        before = BitMap() if old is None else self._index.matching(old.labels)
        after = BitMap() if new is None else self._index.matching(new.labels)
        lost = NONE if old is None else TargetCount(1, int(old.is_available))
        gained = NONE if new is None else TargetCount(1, int(new.is_available))
        changed = before ^ after if lost == gained else before | after
        for number in changed:
            location = self._location_numbers.name(number)
            instances, available = self._counts[location]
            if number in before:
                instances, available = instances - lost.instances, available - lost.available
            if number in after:
                instances, available = instances + gained.instances, available + gained.available
            self._counts[location] = TargetCount(instances, available)
        return [self._location_numbers.name(number) for number in changed]

    def _update_target(self, name: str, target: IndexedTarget | None) -> None:
        if target is None:
            number = self._target_numbers.forget(name)
            self._labels.remove(number)
            self._available.discard(number)
            return
        number = self._target_numbers.of(name)
        self._labels.put(number, target.labels)
        if target.is_available:
            self._available.add(number)
        else:
            self._available.discard(number)

    def set_location(self, name: str, location: Obj | None) -> None:
        """Add, replace or (None) remove a location."""
        if location is None:
            if name in self._selectors:
                del self._selectors[name], self._counts[name]
                self._index.remove(self._location_numbers.forget(name))
            return
        selector = instance_selector(location)
        if name in self._selectors and selector == self._selectors[name]:
            return
        self._selectors[name] = selector
        number = self._location_numbers.of(name)
        if selector is None:
            self._index.remove(number)
            self._counts[name] = NONE
        else:
            self._index.put(number, selector)
            found = self._labels.select(selector)
            self._counts[name] = TargetCount(len(found), found.intersection_cardinality(self._available))


# --- status ---------------------------------------------------------------------------------------


def shown_labels(location: Obj) -> str | None:
    """The value of a location's labels annotation; None without labels."""
    labels = location["metadata"].get("labels") or {}
    return " ".join(f"{name}={value}" for name, value in sorted(labels.items())) or None


def key_of(cluster: str, target: Obj) -> str:
    return sync_target_key(cluster, target["metadata"]["name"])


def last_heartbeat(target: Obj) -> datetime | None:
    text = (target.get("status") or {}).get("lastSyncerHeartbeatTime")
    try:
        return times.parse(text) if text else None
    except times.TimeError:
        return None


def heartbeat_condition(heartbeat: datetime | None, now: datetime, seconds: float = STALE_AFTER) -> ConditionState:
    if heartbeat is None:
        return ConditionState(HEARTBEAT_HEALTHY, "ErrorHeartbeat", "No heartbeat yet seen", "Warning")
    if now - heartbeat > timedelta(seconds=seconds):
        shown = f"{heartbeat.astimezone(UTC):%Y-%m-%d %H:%M:%S} +0000 UTC"
        return ConditionState(HEARTBEAT_HEALTHY, "ErrorHeartbeat", f"No heartbeat since {shown}", "Warning")
    return ConditionState(HEARTBEAT_HEALTHY)


def ready_condition(conditions: Iterable[Obj], heartbeat: ConditionState) -> ConditionState:
    """A target is ready if its heartbeat is healthy and its syncer does not report EdgeReachable=False."""
    found = next(
        (one for one in conditions if one.get("type") == EDGE_REACHABLE and one.get("status") == "False"), None
    )
    if found is None or not heartbeat.is_true:
        return heartbeat._replace(type=READY_CONDITION)
    reason, severity = found.get("reason") or "EdgeUnreachable", found.get("severity") or "Error"
    return ConditionState(
        READY_CONDITION, reason, found.get("message") or "The cluster cannot be reached by its syncer", severity
    )


def target_status(url: str, cluster: str, target: Obj, now: datetime, seconds: float = STALE_AFTER) -> Obj:
    """The fields of a SyncTarget's status that the hub writes.  `url`: the hub's."""
    metadata, status = target["metadata"], target.get("status") or {}
    verdict = heartbeat_condition(last_heartbeat(target), now, seconds)
    present = status.get("conditions") or ()
    conditions = merge_conditions(present, (verdict, ready_condition(present, verdict)), times.format_seconds(now))
    path = f"{cluster}/{metadata['name']}/{metadata['uid']}"
    urls = {"syncerURL": f"{url}/services/syncer/{path}", "upsyncerURL": f"{url}/services/upsyncer/{path}"}
    return {"conditions": conditions, "virtualWorkspaces": [urls]}


# --- Numbers of names -----------------------------------------------------------------------------


class Numbers:
    """Small integers for names, as ids in an index.  Numbers of forgotten names are reused."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._free: list[int] = []

    def name(self, number: int) -> str:
        return self._names[number]

    def of(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._free.pop() if self._free else len(self._names)
            self._numbers[name] = number
            if number == len(self._names):
                self._names.append(name)
            else:
                self._names[number] = name
        return number

    def forget(self, name: str) -> int:
        number = self._numbers.pop(name)
        self._free.append(number)
        return number
