"""The inventory of workspaces: what becomes of SyncTargets and Locations.

a target    gets its key, the addresses for its syncer, and conditions that follow its heartbeats
a location  shows how many targets it has, and how many of them can be used
a workspace with its first target gets the export `kubernetes`, the Location `default` and a binding, once and
            for all: the export is marked when they are made, so whoever deletes them is rid of them
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import orjson

from farflung.apis.resource import Resource
from farflung.hub import objects
from farflung.hub.controllers.loopback import Inside, collection_path, object_path
from farflung.hub.controllers.reconcile_queue import Work
from farflung.hub.objects import cluster_in, home_of, name_in
from farflung.hub.tenancy import census
from farflung.machinery.errors import ApiError, Obj
from farflung.store.base import Change, Entry, Store, Subscription
from farflung.store.keys import resource_prefix

WORKERS: Final = 8
LONGEST_SLEEP: Final = 60.0  #: seconds; the clock may be set meanwhile
APIS: Final = "apis.kcp.io"
EXPORT: Final = "kubernetes"  #: the name of the export, and of the binding to it
LOCATION: Final = "default"
COMPUTE: Final = "extra.apis.kcp.io/compute.workload.kcp.io"
DONE: Final = "workload.kcp.io/skip-default-object-creation"


class Default(NamedTuple):
    """Something that a workspace with targets has from the start."""

    resource: Resource
    body: Obj


EXPORTS: Final = Resource(APIS, "v1alpha1", "apiexports", "APIExport", False, "")
BINDINGS: Final = Resource(APIS, "v1alpha1", "apibindings", "APIBinding", False, "")


class Inventory:
    def __init__(
        self,
        store: Store,
        inside: Inside,
        clock: Callable[[], datetime],
        url: str,
        *,
        sync_targets: Resource,
        locations: Resource,
        heartbeat_seconds: float = census.SECONDS,
    ) -> None:
        """`url`: where clients reach the hub; the resources: those that root exports, and no others of the name."""
        self._store = store
        self._inside = inside
        self._clock = clock
        self._url = url
        self._targets = sync_targets
        self._locations = locations
        self._seconds = heartbeat_seconds
        self._looks = {
            home_of(sync_targets): self._look_at_target,
            home_of(locations): self._look_at_location,
            home_of(EXPORTS): self._look_at_defaults,
        }
        self._workspaces: dict[str, census.Workspace] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._subscriptions: list[Subscription] = []
        self.work: Work[str] = Work("inventory", self._look, workers=WORKERS)

    def start(self) -> None:
        targets, locations = home_of(self._targets), home_of(self._locations)
        self._subscriptions = [
            self._store.subscribe(targets, self._hear_targets),
            self._store.subscribe(locations, self._hear_locations),
        ]
        for entry in self._store.list(targets).entries:
            self._follow_target(entry.key, entry)
            self.work.add(defaults_key(entry.key))
        for entry in self._store.list(locations).entries:
            self._follow_location(entry.key, entry)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # --- listening --------------------------------------------------------------------------------

    def _hear_targets(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._follow_target(change.key, change.entry)
            if change.previous is None:
                self.work.add(defaults_key(change.key))

    def _hear_locations(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._follow_location(change.key, change.entry)

    def _follow_target(self, key: str, entry: Entry | None) -> None:
        cluster, (_, name) = cluster_in(key), name_in(key)
        workspace = self._workspaces.setdefault(cluster, census.Workspace())
        target = None if entry is None else census.target_of(orjson.loads(entry.value))
        for location in workspace.set_target(name, target):
            self.work.add(objects.key(self._locations, cluster, "", location))
        self.work.add(key)
        self._leave_if_empty(cluster, workspace)

    def _follow_location(self, key: str, entry: Entry | None) -> None:
        cluster, (_, name) = cluster_in(key), name_in(key)
        workspace = self._workspaces.setdefault(cluster, census.Workspace())
        workspace.set_location(name, None if entry is None else orjson.loads(entry.value))
        if entry is not None:
            self.work.add(key)
        self._leave_if_empty(cluster, workspace)

    def _leave_if_empty(self, cluster: str, workspace: census.Workspace) -> None:
        if workspace.is_empty:
            del self._workspaces[cluster]

    # --- mending ----------------------------------------------------------------------------------

    async def _look(self, key: str) -> None:
        await self._looks[resource_prefix(key)](key)

    async def _look_at_target(self, key: str) -> None:
        self._forget_timer(key)
        entry, target = self._found(key)
        if entry is None or "deletionTimestamp" in target["metadata"]:
            return
        uid, path = target["metadata"]["uid"], object_path(self._targets, key)
        label = census.key_of(cluster_in(key), target)
        if (target["metadata"].get("labels") or {}).get(census.KEY_LABEL) != label:
            change = {"metadata": {"labels": {census.KEY_LABEL: label}}}
            await self._inside.patch(path, change, uid=uid, revision=entry.revision)
            return  # which is heard, and looked at
        status = census.target_status(self._url, cluster_in(key), target, self._clock(), self._seconds)
        if not says(target, status):
            await self._inside.patch(f"{path}/status", {"status": status}, uid=uid, revision=entry.revision)
        self._wait_for_heartbeat(key, target)

    async def _look_at_location(self, key: str) -> None:
        entry, location = self._found(key)
        workspace = self._workspaces.get(cluster_in(key))
        if entry is None or workspace is None or "deletionTimestamp" in location["metadata"]:
            return
        uid, path = location["metadata"]["uid"], object_path(self._locations, key)
        labels = census.shown_labels(location)
        if (location["metadata"].get("annotations") or {}).get(census.LABELS) != labels:
            change = {"metadata": {"annotations": {census.LABELS: labels}}}
            await self._inside.patch(path, change, uid=uid, revision=entry.revision)
            return  # which is heard, and looked at
        status = workspace.count(name_in(key)[1]).status()
        if not says(location, status):
            await self._inside.patch(f"{path}/status", {"status": status}, uid=uid, revision=entry.revision)

    def _found(self, key: str) -> tuple[Entry | None, Obj]:
        entry = self._store.get(key)
        return entry, {} if entry is None else objects.decode(entry)

    # --- heartbeats -------------------------------------------------------------------------------

    def _wait_for_heartbeat(self, key: str, target: Obj) -> None:
        """Look again when the last heartbeat is too long ago; another one is heard before that."""
        heartbeat, now = census.last_heartbeat(target), self._clock()
        if heartbeat is None or census.heartbeat_verdict(heartbeat, now, self._seconds).reason:
            return
        left = self._seconds - (now - heartbeat).total_seconds()
        delay = min(left + 0.001, LONGEST_SLEEP)
        self._timers[key] = asyncio.get_running_loop().call_later(delay, self.work.add, key)

    def _forget_timer(self, key: str) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()

    # --- what a workspace with targets has --------------------------------------------------------

    async def _look_at_defaults(self, key: str) -> None:
        """In this order: what is found undone after a crash is done again, and what is marked is never touched."""
        cluster = cluster_in(key)
        if not self._has_targets(cluster):
            return
        if self._store.get(key) is None:
            await self._make(cluster, Default(EXPORTS, default_export()))
        if is_done(self._found(key)[1]):
            return
        await self._make(cluster, Default(self._locations, default_location(self._locations)))
        await self._make(cluster, Default(BINDINGS, default_binding()))
        entry, export = self._found(key)
        if entry is not None and not is_done(export):
            change = {"metadata": {"annotations": {DONE: "true"}}}
            uid = export["metadata"]["uid"]
            await self._inside.patch(object_path(EXPORTS, key), change, uid=uid, revision=entry.revision)

    def _has_targets(self, cluster: str) -> bool:
        workspace = self._workspaces.get(cluster)
        return workspace is not None and bool(workspace.targets)

    async def _make(self, cluster: str, default: Default) -> None:
        """Unless it is there, or the workspace does not serve such things at all."""
        resource, name = default.resource, default.body["metadata"]["name"]
        if self._store.get(objects.key(resource, cluster, "", name)) is not None:
            return
        try:
            await self._inside.request("POST", collection_path(resource, cluster), default.body)
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def says(obj: Obj, status: Obj) -> bool:
    """Whether an object's status has these parts."""
    present = obj.get("status") or {}
    return all(present.get(part) == value for part, value in status.items())


def defaults_key(key: str) -> str:
    """Of a target: of the export that says whether its workspace has what it has from the start."""
    return objects.key(EXPORTS, cluster_in(key), "", EXPORT)


def is_done(export: Obj) -> bool:
    return ((export.get("metadata") or {}).get("annotations") or {}).get(DONE) == "true"


def default_export() -> Obj:
    metadata = {"name": EXPORT, "annotations": {COMPUTE: "true"}}
    return {"apiVersion": EXPORTS.api_version, "kind": EXPORTS.kind, "metadata": metadata, "spec": {}}


def default_location(locations: Resource) -> Obj:
    resource = {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}
    spec = {"resource": resource, "instanceSelector": {}}
    return {"apiVersion": locations.api_version, "kind": "Location", "metadata": {"name": LOCATION}, "spec": spec}


def default_binding() -> Obj:
    spec = {"reference": {"export": {"name": EXPORT}}}
    return {"apiVersion": BINDINGS.api_version, "kind": BINDINGS.kind, "metadata": {"name": EXPORT}, "spec": spec}
