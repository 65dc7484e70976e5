"""CustomResourceDefinitions: accepts names that become free, and deletes the objects of a deleted definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from farflung.apis.apiextensions.conditions import (
    CLEANUP,
    ESTABLISHED,
    IN_PROGRESS,
    NAMES_ACCEPTED,
    condition_is,
    terminating,
    with_status,
)
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import cluster_in
from farflung.hub.controllers.garbage_collector import GarbageCollector
from farflung.hub.controllers.loopback import LoopbackClient, collection_path, object_path
from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.hub.controllers.stored_kinds import StoredKinds, StoredKindsWatch
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.store.base import Change, Entry, Store, Subscription

WORKERS: Final = 2
RECHECK_SECONDS: Final = 0.05  #: seconds to wait for the garbage collector
DEFINITIONS: Final = "/apiextensions.k8s.io/customresourcedefinitions/"


class CRDController:
    def __init__(
        self,
        store: Store,
        kinds: StoredKinds,
        client: LoopbackClient,
        clock: Callable[[], datetime],
        collector: GarbageCollector,
        bound: Callable[[str, str], list[Obj]] = lambda cluster, group: [],
    ) -> None:
        """`collector`: must handle the dependents of deleted objects while their kind is served.  `bound`: (cluster,
        group) → definitions of the group that the cluster has bound."""
        self._store = store
        self._kinds = kinds
        self._client = client
        self._clock = clock
        self._collector = collector
        self._bound = bound
        self._resource = kinds.builtin(DEFINITIONS)
        self._waiting: dict[str, str] = {}  #: prefix of a kind's objects → key of its deleted definition
        self._subscription: Subscription | None = None
        self._content = StoredKindsWatch(store, kinds, self._on_content)
        self.queue: ReconcileQueue[str] = ReconcileQueue("definitions", self._reconcile, workers=WORKERS)

    def start(self) -> None:
        self._subscription = self._store.subscribe(DEFINITIONS, self._on_changes)
        for entry in self._store.list(DEFINITIONS).entries:
            if objects.is_terminating(entry) or not is_established(objects.decode(entry)):
                self.queue.add(entry.key)

    def stop(self) -> None:
        self._content.stop()
        if self._subscription is not None:
            self._subscription.cancel()

    # --- changes ----------------------------------------------------------------------------------

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is not None and objects.is_terminating(change.entry):
                self.queue.add(change.key)
            elif change.previous is not None:
                self._enqueue_unaccepted(change.key)
                if change.entry is None:
                    self._wait_no_more(prefix_of(change.key))  # a client removed the finalizer
                elif not is_established(objects.decode(change.entry)):
                    self.queue.add(change.key)

    def release_names(self, cluster: str, group: str) -> None:
        """Called when names of the group become free in a cluster."""
        self._enqueue_unaccepted(f"{DEFINITIONS}{cluster}/.{group}")

    def _enqueue_unaccepted(self, key: str) -> None:
        """Other definitions may want the names of one that was deleted or renamed."""
        for entry in self._siblings(key):
            if not condition_is(objects.decode(entry), NAMES_ACCEPTED):
                self.queue.add(entry.key)

    def _wait_no_more(self, prefix: str) -> None:
        self._waiting.pop(prefix, None)
        if not self._waiting:
            self._content.stop()

    def _on_content(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is None:
                _, group, plural, cluster, _ = change.key.split("/", 4)
                if waiting := self._waiting.get(f"/{group}/{plural}/{cluster}/"):
                    self.queue.add(waiting)

    # --- reconciling ------------------------------------------------------------------------------

    async def _reconcile(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            return
        definition = objects.decode(entry)
        if not objects.is_terminating(entry):
            await self._accept_names(entry, definition)
        elif CLEANUP in (definition["metadata"].get("finalizers") or ()):
            await self._finalize(entry, definition)

    async def _accept_names(self, entry: Entry, definition: Obj) -> None:
        others = [objects.decode(other) for other in self._siblings(entry.key)]
        others += self._bound(cluster_in(entry.key), definition["spec"]["group"])
        status = with_status(definition, others, format_seconds(self._clock()))
        if status != definition.get("status"):
            await self._patch(entry, definition, {"status": status}, "/status")

    def _siblings(self, key: str) -> list[Entry]:
        """The other definitions of its group in its cluster."""
        end = "." + objects.name_in(key)[1].partition(".")[2]
        entries = self._store.list(f"{DEFINITIONS}{cluster_in(key)}/").entries
        return [entry for entry in entries if entry.key.endswith(end) and entry.key != key]

    async def _finalize(self, entry: Entry, definition: Obj) -> None:
        key = entry.key
        status = terminating(definition, IN_PROGRESS, format_seconds(self._clock()))
        if status != definition.get("status"):
            # once it is written, every object is visible whose creation began before the deletion
            await self._patch(entry, definition, {"status": status}, "/status")
            return  # the write triggers the next reconcile
        prefix = prefix_of(key)
        if self._kinds.is_builtin(prefix):
            await self._release(entry, definition)
            return
        self._waiting[prefix] = key
        self._content.start()
        await self._delete_all(prefix)
        if self._store.list(prefix, limit=1).entries:
            return
        if self._collector.is_behind(prefix):
            self.queue.add_later(key, RECHECK_SECONDS)
            return
        self._wait_no_more(prefix)
        await self._release(entry, definition)

    async def _release(self, entry: Entry, definition: Obj) -> None:
        finalizers = [one for one in definition["metadata"]["finalizers"] if one != CLEANUP]
        await self._patch(entry, definition, {"metadata": {"finalizers": finalizers or None}})

    async def _patch(self, entry: Entry, definition: Obj, change: Obj, subresource: str = "") -> None:
        path = object_path(self._resource, entry.key) + subresource
        await self._client.patch(path, change, uid=definition["metadata"]["uid"], revision=entry.revision)

    async def _delete_all(self, prefix: str) -> None:
        resource = self._kinds.of_key(prefix)
        entries = self._store.list(prefix).entries
        if resource is None:
            for entry in entries:  # of versions that are not served, so no request can delete them
                if not objects.decode(entry)["metadata"].get("finalizers"):
                    await self._store.delete(entry.key, expect=entry.revision)
            return
        for namespace in {objects.name_in(entry.key)[0] for entry in entries if not objects.is_terminating(entry)}:
            await self._client.delete_all(collection_path(resource, cluster_in(prefix), namespace))


def prefix_of(key: str) -> str:
    """The prefix of the objects of the definition at a key."""
    plural, _, group = objects.name_in(key)[1].partition(".")
    return f"/{group}/{plural}/{cluster_in(key)}/"


def is_established(definition: Obj) -> bool:
    """Whether it is served under the names of its spec, according to its status."""
    accepted = (definition.get("status") or {}).get("acceptedNames")
    is_served = condition_is(definition, NAMES_ACCEPTED) and condition_is(definition, ESTABLISHED)
    return is_served and accepted == definition["spec"]["names"]
