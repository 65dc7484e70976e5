"""The garbage collector: deletes objects whose owners were deleted, and executes the decisions of `owner_graph`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Final

from farflung.apis.resource import Resource
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import cluster_in
from farflung.hub.controllers.loopback import LoopbackClient, collection_path, object_path
from farflung.hub.controllers.owner_graph import (
    Action,
    DeleteDependent,
    DependentsSummary,
    NoAction,
    OwnerEdge,
    OwnerGraph,
    OwnerNode,
    OwnerReference,
    OwnershipMetadata,
    OwnerState,
    RemoveFinalizer,
    RemoveOwners,
    Unblock,
    decide,
    ownership_of,
)
from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.hub.controllers.stored_kinds import KindsChange, StoredKinds, StoredKindsWatch
from farflung.machinery.errors import ApiError, Obj
from farflung.machinery.names import FOREGROUND, ORPHAN
from farflung.machinery.times import format_seconds
from farflung.store.base import Change, Entry, Store

WORKERS: Final = 8
LONGEST_PATH: Final = 1000  #: owners of owners that are searched for a circle
EVENTS: Final = "/core/events/"
NAMESPACES: Final = "/core/namespaces/"
NOT_COLLECTED: Final = frozenset({EVENTS})  #: kinds without owners, with thousands of short-lived objects
COMPONENT: Final = "garbage-collector-controller"
REASON: Final = "OwnerRefInvalidNamespace"
DEFAULT_NAMESPACE: Final = "default"  #: the namespace of Events about cluster-scoped objects

log = logging.getLogger(__name__)


class GarbageCollector:
    def __init__(self, store: Store, kinds: StoredKinds, client: LoopbackClient, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._kinds = kinds
        self._client = client
        self._graph = OwnerGraph()
        self._marked: dict[str, str] = {}  #: key → the finalizer with which the object is being deleted
        self._events = OwnerNamespaceEvents(store, kinds, client, clock)
        self._unchecked: set[str] = set()  #: dependents whose owners' namespaces are not checked yet
        self._unclear: set[str] = set()  #: dependents with an owner whose kind is not served
        self._watch = StoredKindsWatch(store, kinds, self._on_changes, without=NOT_COLLECTED)
        kinds.listen(self._on_kinds)
        self.queue: ReconcileQueue[str] = ReconcileQueue("garbage-collector", self._reconcile, workers=WORKERS)

    def start(self) -> None:
        self._watch.start()
        for prefix in self._kinds.prefixes - NOT_COLLECTED:
            self._enqueue_all(prefix)

    def _enqueue_all(self, prefix: str) -> None:
        for entry in self._store.list(prefix).entries:
            if objects.may_be_collected(entry):
                self._update(entry)
                self.queue.add(entry.key)

    def stop(self) -> None:
        self._watch.stop()

    # --- changes ----------------------------------------------------------------------------------

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            entry = change.entry
            if entry is None:
                self._forget(change)
            elif objects.may_be_collected(entry) or (change.previous is not None and change.key in self._graph):
                self._update(entry)

    def _on_kinds(self, change: KindsChange) -> None:
        """Objects of a new kind may have owners, and may be owners."""
        cluster = change.cluster
        for prefix in change.added - NOT_COLLECTED:
            self._enqueue_all(f"{prefix}{cluster}/")
        for key in [key for key in self._unclear if cluster_in(key) == cluster]:
            if entry := self._store.get(key):
                self._update(entry)
                self.queue.add(key)

    def _update(self, entry: Entry) -> None:
        """Update the graph, and enqueue the objects that a write concerns."""
        key, metadata = entry.key, ownership_of(entry)
        owners = self._graph.owners(key)
        if self._graph.set(key, self._edges(key, metadata)):
            self._unchecked.add(key)
            self.queue.add(key)
            self._enqueue_marked(owners)
        mark, before = metadata.mark, self._marked.get(key, "")
        if mark:
            self._marked[key] = mark
            self.queue.add(key)
        elif before:
            del self._marked[key]
        if mark and mark != before:
            self._enqueue_dependents(OwnerNode(key, metadata.uid))

    def _forget(self, change: Change) -> None:
        assert change.previous is not None, "a deletion has a previous entry"
        key = change.key
        self._marked.pop(key, None)
        self._unclear.discard(key)
        self._unchecked.discard(key)
        self._enqueue_dependents(OwnerNode(key, objects.uid_of(change.previous)))
        if key in self._graph:
            owners = self._graph.owners(key)
            self._graph.set(key, ())
            self._enqueue_marked(owners)

    def _enqueue_marked(self, owners: Collection[OwnerNode]) -> None:
        for owner in owners:
            if owner.key in self._marked:
                self.queue.add(owner.key)

    def _enqueue_dependents(self, owner: OwnerNode) -> None:
        for key in self._graph.dependents(owner):
            self.queue.add(key)

    # --- owners -----------------------------------------------------------------------------------

    def _edges(self, key: str, metadata: OwnershipMetadata) -> list[OwnerEdge]:
        edges = [OwnerEdge(self._owner_node(key, one), bool(one.blockOwnerDeletion)) for one in metadata.references]
        if any(not edge.owner.key for edge in edges):
            self._unclear.add(key)
        else:
            self._unclear.discard(key)
        return edges

    def _owner_node(self, key: str, reference: OwnerReference) -> OwnerNode:
        """The owner in the object's namespace or cluster.  If its kind is no longer served, the node that the graph
        has, or else a node without a key.  A namespaced object cannot own a cluster-scoped one."""
        resource = self._kinds.of_type(cluster_in(key), reference.apiVersion, reference.kind)
        namespace = objects.name_in(key)[0] if resource is not None and resource.namespaced else ""
        if resource is not None and (namespace or not resource.namespaced):
            return OwnerNode(objects.key(resource, cluster_in(key), namespace, reference.name), reference.uid)
        group = reference.apiVersion.rpartition("/")[0] or "core"
        for known in self._graph.owners(key):
            if known.uid == reference.uid and known.key.startswith(f"/{group}/"):
                return known
        return OwnerNode("", reference.uid)

    def _owner_state(self, key: str, reference: OwnerReference) -> OwnerState:
        owner = self._owner_node(key, reference)
        if not owner.key:
            return OwnerState.UNCLEAR
        entry = self._store.get(owner.key)
        if entry is None or objects.uid_of(entry) != owner.uid:
            return OwnerState.ABSENT
        if not objects.may_be_collected(entry):
            return OwnerState.PRESENT
        states = {ORPHAN: OwnerState.ORPHANING, FOREGROUND: OwnerState.WAITING}
        return states.get(ownership_of(entry).mark, OwnerState.PRESENT)

    def _summarize(self, key: str, metadata: OwnershipMetadata) -> DependentsSummary:
        node = OwnerNode(key, metadata.uid)
        return DependentsSummary(
            any=bool(self._graph.dependents(node)),
            blocking=self._graph.is_blocked(node),
            circular=self._is_circular(key),
        )

    def _is_circular(self, key: str) -> bool:
        """Whether an object blocks itself, over owners that are deleted in the foreground."""
        seen: set[str] = set()
        ahead = self._graph.blocked_by(key)
        while ahead and len(seen) < LONGEST_PATH:
            owner = ahead.pop()
            if owner == key:
                return True
            if owner not in seen and self._marked.get(owner) == FOREGROUND:
                seen.add(owner)
                ahead += self._graph.blocked_by(owner)
        return False

    def is_behind(self, prefix: str) -> bool:
        """Whether an owner under a prefix was deleted, and a dependent of it is not even marked as deleted."""
        return any(
            self._is_untouched(key)
            for owner in self._graph.owners_under(prefix)
            if self._store.get(owner.key) is None
            for key in self._graph.dependents(owner)
        )

    def _is_untouched(self, key: str) -> bool:
        """An object with finalizers counts as dealt with once it is marked as deleted."""
        entry = self._store.get(key)
        if entry is None or objects.is_terminating(entry):
            return False
        references = ownership_of(entry).references
        return all(self._owner_state(key, one) is not OwnerState.UNCLEAR for one in references)

    # --- reconciling ------------------------------------------------------------------------------

    async def _reconcile(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            return
        metadata = ownership_of(entry)
        owners = [self._owner_state(key, reference) for reference in metadata.references]
        if key in self._unchecked:
            self._unchecked.discard(key)
            if OwnerState.ABSENT in owners or OwnerState.UNCLEAR in owners:
                await self._events.report(entry, metadata)
                self.queue.add(key)  # with the state after these requests
                return
        action = decide(metadata, owners, self._summarize(key, metadata))
        if not isinstance(action, NoAction):
            log.debug("%s: %s", key, action)
            await self._act(entry, metadata.uid, action)

    async def _act(self, entry: Entry, uid: str, action: Action) -> None:
        resource = self._kinds.of_key(entry.key)
        if resource is None:
            return  # its kind is being deleted with all objects
        path = object_path(resource, entry.key)
        if isinstance(action, DeleteDependent):
            await self._client.delete(path, policy=action.policy, uid=uid, revision=entry.revision)
            return
        metadata = changed_metadata(objects.decode(entry)["metadata"], action)
        await self._client.patch(path, {"metadata": metadata}, uid=uid, revision=entry.revision)


def changed_metadata(metadata: Obj, action: Action) -> Obj:
    """The metadata fields that an action changes, as a merge patch."""
    match action:
        case RemoveOwners(uids):
            left = [one for one in metadata["ownerReferences"] if one["uid"] not in uids]
            return {"ownerReferences": left or None}
        case Unblock():
            return {"ownerReferences": [one | {"blockOwnerDeletion": False} for one in metadata["ownerReferences"]]}
        case RemoveFinalizer(finalizer):
            return {"finalizers": [one for one in metadata["finalizers"] if one != finalizer] or None}
    raise AssertionError(action)


TOGETHER: Final = 256  #: namespaces that are searched in a turn of the event loop


class OwnerNamespaceEvents:
    """Events about owner references to objects in another namespace, which have no effect."""

    def __init__(self, store: Store, kinds: StoredKinds, client: LoopbackClient, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._kinds = kinds
        self._client = client
        self._clock = clock
        self._events = kinds.builtin(EVENTS)

    async def report(self, entry: Entry, metadata: OwnershipMetadata) -> None:
        """Create an Event for each owner in another namespace."""
        for reference in metadata.references:
            if await self._is_in_another_namespace(entry.key, reference):
                await self._create(entry, metadata, reference)

    async def _is_in_another_namespace(self, key: str, reference: OwnerReference) -> bool:
        cluster = cluster_in(key)
        resource = self._kinds.of_type(cluster, reference.apiVersion, reference.kind)
        if resource is None or not resource.namespaced:
            return False
        own = objects.name_in(key)[0]
        for number, entry in enumerate(self._store.list(f"{NAMESPACES}{cluster}/").entries):
            if number % TOGETHER == 0:
                await asyncio.sleep(0)
            namespace = objects.name_in(entry.key)[1]
            if namespace == own:
                continue
            owner = self._store.get(objects.key(resource, cluster, namespace, reference.name))
            if owner is not None and objects.uid_of(owner) == reference.uid:
                return True
        return False

    async def _create(self, entry: Entry, metadata: OwnershipMetadata, reference: OwnerReference) -> None:
        resource = self._kinds.of_key(entry.key)
        if resource is None:
            return
        namespace, name = objects.name_in(entry.key)
        path = collection_path(self._events, cluster_in(entry.key), namespace or DEFAULT_NAMESPACE)
        try:
            await self._client.request("POST", path, self._event(resource, namespace, name, metadata.uid, reference))
        except ApiError as error:
            log.debug("cannot create an Event about the owners of %s: %s", entry.key, error.reason)

    def _event(self, resource: Resource, namespace: str, name: str, uid: str, reference: OwnerReference) -> Obj:
        now = self._clock()
        involved = {"kind": resource.kind, "apiVersion": resource.api_version, "name": name, "uid": uid}
        if namespace:
            involved["namespace"] = namespace
        owner = (
            f"[{reference.apiVersion}/{reference.kind}, namespace: {namespace}, name: {reference.name}, "
            f"uid: {reference.uid}]"
        )
        return {
            "metadata": {"name": f"{name}.{int(now.timestamp() * 1e9):x}", "namespace": namespace or DEFAULT_NAMESPACE},
            "involvedObject": involved,
            "reason": REASON,
            "message": f'ownerRef {owner} does not exist in namespace "{namespace}"',
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "firstTimestamp": format_seconds(now),
            "lastTimestamp": format_seconds(now),
            "count": 1,
            "type": "Warning",
        }
