"""Workspaces and LogicalClusters: scheduling, status and deletion.

    Workspace       gets a cluster, has the phase of its LogicalCluster, and is deleted after it
    LogicalCluster  is ready when its initializers are done, and is deleted when its cluster is empty
    cluster         without a Workspace or LogicalCluster is deleted: an interrupted creation or deletion

Deleting a workspace deletes everything in it:

    child workspaces              first, each with its own content
    objects with finalizers       are marked as deleted; until they are deleted, namespaces, definitions, bindings and
                                  roles that their finalizers' controllers need are kept
    everything else               in an order that may be interrupted anywhere

Finalizers of the hub itself do not hold an object here.  Only deletionTimestamps record a deletion, and the content is
listed each time, so a deletion resumes at the next start.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from farflung.apis.apiextensions.conditions import mark_deleted as mark_definition
from farflung.apis.kcp.names import (
    API_BINDING_FINALIZER,
    LOGICAL_CLUSTER_FINALIZER,
    PHASE_LABEL,
    SHARED_CLUSTER,
    WORKSPACE_CONTENT_DELETED,
    WORKSPACE_FINALIZER,
)
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import cluster_in
from farflung.hub.controllers.api_bindings import APIBindingController
from farflung.hub.controllers.cluster_roles import RoleSource
from farflung.hub.controllers.custom_resource_definitions import CRDController
from farflung.hub.controllers.garbage_collector import GarbageCollector
from farflung.hub.controllers.loopback import LoopbackClient
from farflung.hub.controllers.manager import HubController, ManagerOptions, default_objects
from farflung.hub.controllers.owner_graph import ownership_of
from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.hub.controllers.sync_targets import SyncTargetController
from farflung.hub.controllers.workspace_quotas import WorkspaceQuotaController
from farflung.hub.registry.call import StorageLimits
from farflung.hub.tenancy import status as states
from farflung.hub.tenancy.controller_roles import controller_roles
from farflung.hub.tenancy.direct_writes import encode_stored, gather_writes
from farflung.hub.tenancy.hashes import NAME_LENGTH
from farflung.hub.tenancy.paths import (
    LOGICAL_CLUSTERS,
    PROVIDER,
    ROOT,
    WORKSPACES,
    logical_cluster_key,
    workspace_key,
)
from farflung.hub.tenancy.platform import WorkspaceServices
from farflung.hub.tenancy.workspaces import Tenancy
from farflung.machinery.errors import Obj
from farflung.machinery.names import FOREGROUND, ORPHAN
from farflung.store.base import Change, Conflict, Entry, Store, Subscription, resource_prefix

HASH: Final = re.compile(f"[0-9a-z]{{1,{NAME_LENGTH}}}", re.ASCII)
WORKERS: Final = 32  #: deletions share commits
BATCH: Final = 512  #: concurrent writes
ROUNDS: Final = 2  #: consecutive writes of one request
RECHECK_SECONDS: Final = 0.05  #: seconds before a cluster is checked again after an object with finalizers was deleted
NAMESPACES: Final = "/core/namespaces/"
ROLES: Final = (
    "/rbac.authorization.k8s.io/clusterroles/",
    "/rbac.authorization.k8s.io/clusterrolebindings/",
)
DEFINITIONS: Final = "/apiextensions.k8s.io/customresourcedefinitions/"
APIS: Final = "/apis.kcp.io/"
HUB_FINALIZERS: Final = frozenset(
    {
        FOREGROUND,
        ORPHAN,
        WORKSPACE_FINALIZER,
        LOGICAL_CLUSTER_FINALIZER,
        API_BINDING_FINALIZER,
        "customresourcecleanup.apiextensions.k8s.io",
        "kubernetes.io/pv-protection",
        "kubernetes.io/pvc-protection",
    }
)
_FINALIZERS: Final = b'"finalizers":['


class WorkspaceController:
    """Reconciles keys of Workspaces and names of clusters."""

    def __init__(self, store: Store, tenancy: Tenancy) -> None:
        self._store = store
        self._tenancy = tenancy
        self._abandoned: set[str] = set()  #: clusters without a Workspace or LogicalCluster
        self._owners: dict[str, str] = {}  #: cluster whose LogicalCluster was deleted → its Workspace's key
        self._waiting: set[str] = set()  #: clusters that wait for the deletion of child workspaces
        self._held: dict[str, list[Subscription]] = {}  #: cluster → subscriptions to objects with finalizers
        self._subscriptions: list[Subscription] = []
        self.queue: ReconcileQueue[str] = ReconcileQueue("workspaces", self._reconcile, workers=WORKERS)

    def start(self) -> None:
        self._tenancy.on_abandoned = self._abandon
        self._subscriptions = [
            self._store.subscribe(WORKSPACES, self._on_workspaces),
            self._store.subscribe(LOGICAL_CLUSTERS, self._on_clusters),
        ]
        claimed: set[str] = set()
        for entry in self._store.list(WORKSPACES).entries:
            self.queue.add(entry.key)
            claimed.add(self._tenancy.clusters.child(cluster_in(entry.key), objects.name_in(entry.key)[1]))
        clusters = {cluster_in(entry.key) for entry in self._store.list(LOGICAL_CLUSTERS).entries}
        for cluster in clusters:  # no creation is under way at the start
            found = self._tenancy.clusters.read(cluster)
            if found is not None and found.owner is not None and cluster not in claimed:
                self._abandon(cluster)
            self.queue.add(cluster)
        prefixes = self._store.storage_prefixes()
        stored = {cluster_in(entry.key) for prefix in prefixes for entry in self._store.list(prefix).entries}
        for cluster in stored - clusters:
            self._abandon(cluster)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()
        for cluster in tuple(self._held):
            self._stop_waiting(cluster)

    def _abandon(self, cluster: str) -> None:
        if is_deletable(cluster):
            self._abandoned.add(cluster)
            self.queue.add(cluster)

    # --- changes ----------------------------------------------------------------------------------

    def _on_workspaces(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is not None:
                if change.previous is not None or not is_ready(change.entry):
                    self.queue.add(change.key)
                continue
            self._on_child_deleted(cluster_in(change.key))
            if change.previous is not None:
                self._on_workspace_deleted(change.key, objects.decode(change.previous))

    def _on_workspace_deleted(self, key: str, workspace: Obj) -> None:
        """Delete the cluster of a Workspace whose finalizer a client removed."""
        cluster = workspace.get("spec", {}).get("cluster", "")
        logical_cluster = self._store.get(logical_cluster_key(cluster)) if cluster else None
        if logical_cluster is not None and owner_key(objects.decode(logical_cluster)) == key:
            self._abandon(cluster)

    def _on_child_deleted(self, parent: str) -> None:
        """Resume the deletion of a cluster after its last child workspace."""
        if parent in self._waiting and not self._store.list(f"{WORKSPACES}{parent}/", limit=1).entries:
            self._waiting.discard(parent)
            self.queue.add(parent)

    def _on_clusters(self, changes: Sequence[Change]) -> None:
        for change in changes:
            cluster = cluster_in(change.key)
            if change.entry is not None:
                if change.previous is not None:
                    self.queue.add(cluster)
                    if owner := owner_key(objects.decode(change.entry)):
                        self.queue.add(owner)
            elif change.previous is not None:
                owner = owner_key(objects.decode(change.previous))
                if owner:
                    self._owners[cluster] = owner
                self._abandon(cluster)

    # --- reconciling ------------------------------------------------------------------------------

    async def _reconcile(self, key: str) -> None:
        try:
            if key.startswith("/"):
                await self._reconcile_workspace(key)
            else:
                await self._reconcile_cluster(key)
        except Conflict:
            self.queue.add(key)  # another client wrote the object

    async def _reconcile_workspace(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            return
        workspace = objects.decode(entry)
        cluster = workspace.get("spec", {}).get("cluster", "")
        logical_cluster = self._store.get(logical_cluster_key(cluster)) if cluster else None
        if objects.is_terminating(entry):
            await self._finalize_workspace(entry, workspace, cluster if logical_cluster else "")
        elif not cluster:
            await self._schedule(entry, workspace)
        elif logical_cluster is None:
            states.mark_deleted(workspace, self._tenancy.context.now())
            await self._write(entry, workspace)
        else:
            states.update_workspace_status(workspace, objects.decode(logical_cluster), self._tenancy.context.now())
            await self._write(entry, workspace)

    async def _finalize_workspace(self, entry: Entry, workspace: Obj, cluster: str) -> None:
        """Delete a Workspace after its cluster."""
        metadata = workspace["metadata"]
        others = [one for one in metadata.get("finalizers") or () if one != WORKSPACE_FINALIZER]
        if cluster:
            states.set_phase_label(workspace)
            await self._write(entry, workspace)
            self.queue.add(cluster)
        elif others:
            metadata["finalizers"] = others
            states.set_phase_label(workspace)
            await self._write(entry, workspace)
        else:
            await self._store.delete(entry.key, expect=entry.revision)

    async def _schedule(self, entry: Entry, workspace: Obj) -> None:
        await self._tenancy.create_cluster(cluster_in(entry.key), workspace)
        try:
            await self._write(entry, workspace)
        except BaseException:
            self._tenancy.abandon(workspace)
            raise

    async def _write(self, entry: Entry, obj: Obj) -> None:
        """Write an object if it changed."""
        if obj != objects.decode(entry):
            await self._store.put(entry.key, encode_stored(obj), expect=entry.revision)

    async def _reconcile_cluster(self, cluster: str) -> None:
        if not is_deletable(cluster):
            return
        entry = self._store.get(logical_cluster_key(cluster))
        if entry is None:
            if cluster in self._abandoned:
                await self._delete_remains(cluster)
            return
        logical_cluster = objects.decode(entry)
        if self._is_deleted(cluster, entry):
            await self._delete_content(cluster, entry, logical_cluster)
        else:
            states.update_cluster_status(logical_cluster, self._tenancy.context.now())
            await self._write(entry, logical_cluster)

    def _is_deleted(self, cluster: str, entry: Entry) -> bool:
        if objects.is_terminating(entry) or cluster in self._abandoned:
            return True
        owner = self._tenancy.clusters.owner_of(cluster)
        workspace = None if owner is None else self._store.get(workspace_key(owner.cluster, owner.name))
        return workspace is not None and objects.is_terminating(workspace)

    async def _delete_content(self, cluster: str, entry: Entry, logical_cluster: Obj) -> None:
        plan = plan_deletion(self._store, cluster)
        if plan.held and not objects.is_terminating(entry):
            # controllers with finalizers must be able to tell that the whole workspace is deleted
            states.mark_deleted(logical_cluster, self._tenancy.context.now())
            await self._write(entry, logical_cluster)
            self.queue.add(cluster)
            return
        await self._mark_deleted(plan)
        if plan.is_complete:
            await self._delete(plan.free)
            await self._delete([*plan.last, entry])
            self._stop_waiting(cluster)
            return
        await self._delete(plan.free)
        self._wait_for_finalizers(cluster, plan)
        await self._report(entry, logical_cluster, plan)

    async def _mark_deleted(self, plan: DeletionPlan) -> None:
        """Set the deletionTimestamp of objects that must wait."""
        waiting = [*(entry for entry in plan.workspaces if not objects.is_terminating(entry)), *plan.unmarked()]
        for start in range(0, len(waiting), BATCH):
            await gather_writes(self._mark_entry(entry) for entry in waiting[start : start + BATCH])

    async def _mark_entry(self, entry: Entry) -> None:
        obj = objects.decode(entry)
        states.mark_deleted(obj, self._tenancy.context.now())
        prefix = resource_prefix(entry.key)
        if prefix == NAMESPACES:
            del obj["metadata"]["deletionGracePeriodSeconds"]
            obj.setdefault("status", {})["phase"] = "Terminating"
        elif prefix == WORKSPACES:
            if not obj["metadata"].get("finalizers"):
                await self._store.delete(entry.key, expect=entry.revision)
                return
            states.set_phase_label(obj)
        elif prefix == DEFINITIONS:
            mark_definition(obj)
        await self._store.put(entry.key, encode_stored(obj), expect=entry.revision)

    async def _delete(self, entries: Sequence[Entry]) -> None:

        for start in range(0, len(entries), BATCH):
            chunk = entries[start : start + BATCH]
            await gather_writes(map(self._delete_one, chunk))

    async def _delete_one(self, entry: Entry) -> None:
        """Delete an object at its latest revision, even if a client keeps writing it."""
        latest: Entry | None = entry
        while latest is not None:
            try:
                await self._store.delete(latest.key, expect=latest.revision)
            except Conflict:
                latest = self._store.get(entry.key)
                if latest is not None and is_held(latest):
                    raise
            else:
                return

    def _wait_for_finalizers(self, cluster: str, plan: DeletionPlan) -> None:
        """Reconcile the cluster when an object that holds it is deleted, or was deleted meanwhile."""
        self._stop_waiting(cluster)
        if plan.workspaces:
            self._waiting.add(cluster)
            self._on_child_deleted(cluster)
            return

        def on_changes(changes: Sequence[Change]) -> None:
            if any(change.entry is None for change in changes):
                self.queue.add_later(cluster, RECHECK_SECONDS)

        prefixes = {resource_prefix(entry.key) for entry in plan.held}
        self._held[cluster] = [self._store.subscribe(f"{prefix}{cluster}/", on_changes) for prefix in prefixes]
        if any(self._store.get(entry.key) is None for entry in plan.held):
            self.queue.add(cluster)

    def _stop_waiting(self, cluster: str) -> None:
        self._waiting.discard(cluster)
        for subscription in self._held.pop(cluster, ()):
            subscription.cancel()

    async def _report(self, entry: Entry, logical_cluster: Obj, plan: DeletionPlan) -> None:
        now = self._tenancy.context.now()
        if not objects.is_terminating(entry):
            states.mark_deleted(logical_cluster, now)
        remaining = states.remaining_condition(plan.remaining())
        states.set_condition(logical_cluster.setdefault("status", {}), WORKSPACE_CONTENT_DELETED, remaining, now)
        states.set_phase_label(logical_cluster)
        await self._write(entry, logical_cluster)

    async def _delete_remains(self, cluster: str) -> None:
        """Delete the content of a cluster without LogicalCluster, and what late writes add.  A home workspace that was
        created again meanwhile may be incomplete, and is deleted too."""
        while await self._delete_remains_once(cluster):
            pass
        if self._tenancy.clusters.exists(cluster):
            self.queue.add(cluster)
            return
        self._abandoned.discard(cluster)
        self._stop_waiting(cluster)
        owner = self._owners.pop(cluster, "")
        if owner:
            self.queue.add(owner)

    async def _delete_remains_once(self, cluster: str) -> bool:
        """Whether there was content.  A request that began before the LogicalCluster was deleted may still write."""
        for _ in range(ROUNDS):
            if found := sorted(content(self._store, cluster), key=lambda part: deletion_rank(part[0])):
                await self._delete([entry for _, entries in found for entry in entries])
                return True
            await self._store.wait_for_writes()
        return any(True for _ in content(self._store, cluster))


def is_deletable(cluster: str) -> bool:
    """Whether a cluster is that of a workspace, whose name is a short hash.  Root and system clusters are kept."""
    return cluster != ROOT and HASH.fullmatch(cluster) is not None


def is_ready(entry: Entry) -> bool:

    return objects.labels_of(entry).get(PHASE_LABEL) == states.READY


def owner_key(logical_cluster: Obj) -> str:
    """The key of a LogicalCluster's Workspace; empty if it has none."""
    owner = (logical_cluster.get("spec") or {}).get("owner") or {}
    cluster, name = owner.get("cluster", ""), owner.get("name", "")
    return workspace_key(cluster, name) if cluster and name else ""


def deletion_rank(prefix: str) -> int:
    """Deletion order; lower rank first.  Controllers add default objects to a namespace as long as it exists."""
    if prefix == NAMESPACES:
        return 0
    if prefix == DEFINITIONS or prefix.startswith(APIS):
        return 2
    return 3 if prefix in ROLES else 1


def is_held(entry: Entry) -> bool:
    """Whether an object has finalizers of other controllers."""
    if _FINALIZERS not in entry.value:
        return False
    return not HUB_FINALIZERS.issuperset(ownership_of(entry).finalizers or ())


@dataclass(slots=True)
class DeletionPlan:
    workspaces: Sequence[Entry] = ()
    held: list[Entry] = field(default_factory=list)
    namespaces: list[Entry] = field(default_factory=list)
    free: list[Entry] = field(default_factory=list)  #: may be deleted now, in this order
    last: list[Entry] = field(default_factory=list)  #: may be deleted after those: watches of them depend on it

    @property
    def is_complete(self) -> bool:
        """Whether `free` and `last` are the whole content."""
        return not self.workspaces and not self.held

    def unmarked(self) -> list[Entry]:
        """Objects that must wait and are not marked as deleted."""
        return [entry for entry in (*self.held, *self.namespaces) if not objects.is_terminating(entry)]

    def remaining(self) -> Counter[tuple[str, str]]:
        """(plural, group) → number of objects that hold the cluster.  Namespaces stand for the objects in them."""
        counts: Counter[tuple[str, str]] = Counter()
        cluster_scoped = (entry for entry in self.held if entry.key.count("/") == 4)
        for entry in (*self.workspaces, *{*self.namespaces, *cluster_scoped}):
            _, group, plural, _ = resource_prefix(entry.key).split("/")
            counts[plural.partition(":")[0], "" if group == "core" else group] += 1
        return counts


def content(store: Store, cluster: str) -> Iterable[tuple[str, Sequence[Entry]]]:
    """Everything in a cluster but its LogicalCluster, by storage prefix."""
    for prefix in store.storage_prefixes():
        if prefix != LOGICAL_CLUSTERS:
            entries = store.list(f"{prefix}{cluster}/").entries
            if entries:
                yield prefix, entries


def plan_deletion(store: Store, cluster: str) -> DeletionPlan:

    found = DeletionPlan()
    free: list[list[Entry]] = [[], [], [], []]
    for prefix, entries in content(store, cluster):
        if prefix == WORKSPACES:
            found.workspaces = entries
            continue
        for entry in entries:
            (found.held if is_held(entry) else free[deletion_rank(prefix)]).append(entry)
    if found.workspaces:
        return DeletionPlan(found.workspaces)
    if found.held:
        found.namespaces, found.free = free[0], free[1]
    else:
        found.free, found.last = free[0] + free[1], free[2] + free[3]
    return found


def with_workspaces(
    options: ManagerOptions,
    store: Store,
    clock: Callable[[], datetime],
    workspaces: WorkspaceServices,
    stale_after: float,
    limits: StorageLimits,
) -> ManagerOptions:
    """Add the controllers of workspaces.  Workspaces share the default roles of one cluster, and are created with their
    own namespaces.  `stale_after`: seconds without a heartbeat, after which a SyncTarget is not ready."""

    def extra_controllers(
        client: LoopbackClient, collector: GarbageCollector, definitions: CRDController
    ) -> Sequence[HubController]:
        return (
            WorkspaceController(store, workspaces.tenancy),
            WorkspaceQuotaController(store, clock, limits),
            SyncTargetController(store, client, clock, workspaces.url, stale_after),
            APIBindingController(workspaces, store, client, clock, collector, definitions.release_names),
        )

    def roles() -> Iterable[tuple[str, Iterable[Obj]]]:
        yield SHARED_CLUSTER, default_objects()
        yield from controller_roles(workspaces.tenancy.clusters)

    source = RoleSource(roles, changes=workspace_key(ROOT, PROVIDER))  # users create it in a hub with --bare
    return replace(options, clusters=(), roles=source, extra_controllers=extra_controllers)
