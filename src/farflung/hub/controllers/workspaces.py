"""Workspaces from their creation to their end.

    a Workspace         says what its LogicalCluster says; has a cluster, if it can have one; goes when that is gone
    a LogicalCluster    is ready once its initializers are done; goes when nothing is left in its cluster
    a cluster           that nobody can reach is removed: what a crash left of a creation or a removal

A Workspace's deletion is noted in the Workspace, that of a cluster in its LogicalCluster, and whatever hangs below is
found by looking; so a removal that was stopped anywhere goes on at the next start.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from farflung.hub import objects
from farflung.hub.admission.definitions.conditions import mark_deleted as mark_definition
from farflung.hub.controllers.api_bindings import Bindings
from farflung.hub.controllers.custom_resource_definitions import Definitions
from farflung.hub.controllers.garbage_collector import Collector
from farflung.hub.controllers.loopback import Inside
from farflung.hub.controllers.manager import Household, Part
from farflung.hub.controllers.owner_graph import identity_of
from farflung.hub.controllers.reconcile_queue import Work
from farflung.hub.controllers.sync_targets import Inventory
from farflung.hub.namespaces import is_terminating
from farflung.hub.objects import cluster_in
from farflung.hub.tenancy import status as states
from farflung.hub.tenancy.direct_writes import all_of, kind, rewritten
from farflung.hub.tenancy.hashes import NAME_LENGTH
from farflung.hub.tenancy.paths import (
    LOGICAL_CLUSTERS,
    ROOT,
    WORKSPACES,
    logical_cluster_key,
    workspace_key,
)
from farflung.hub.tenancy.platform import Platform
from farflung.hub.tenancy.status import CLUSTER_FINALIZER, FINALIZER
from farflung.hub.tenancy.workspace_authorizer import SHARED
from farflung.hub.tenancy.workspaces import Tenancy
from farflung.machinery.errors import Obj
from farflung.machinery.names import FOREGROUND, ORPHAN
from farflung.store.base import Change, Conflict, Entry, Store, Subscription
from farflung.store.keys import resource_prefix

HASH: Final = re.compile(f"[0-9a-z]{{1,{NAME_LENGTH}}}", re.ASCII)
WORKERS: Final = 32  #: removals share commits
TOGETHER: Final = 512  #: writes at a time
ROUNDS: Final = 2  #: writes of one request that follow each other
AGAIN: Final = 0.05  #: seconds before a cluster is looked at again in which something went that held it
NAMESPACES: Final = "/core/namespaces/"
ROLES: Final = (
    "/rbac.authorization.k8s.io/clusterroles/",
    "/rbac.authorization.k8s.io/clusterrolebindings/",
)
DEFINITIONS: Final = "/apiextensions.k8s.io/customresourcedefinitions/"
APIS: Final = "/apis.kcp.io/"
OURS: Final = frozenset(
    {
        FOREGROUND,
        ORPHAN,
        FINALIZER,
        CLUSTER_FINALIZER,
        "apis.kcp.io/apibinding-finalizer",
        "customresourcecleanup.apiextensions.k8s.io",
        "kubernetes.io/pv-protection",
        "kubernetes.io/pvc-protection",
    }
)
_FINALIZERS: Final = b'"finalizers":['


class Workspaces:
    """Looks at keys of Workspaces, and at names of clusters."""

    def __init__(self, store: Store, tenancy: Tenancy) -> None:
        self._store = store
        self._tenancy = tenancy
        self._abandoned: set[str] = set()  #: clusters that nobody has, or will have
        self._owners: dict[str, str] = {}  #: cluster whose LogicalCluster went → its Workspace's key
        self._waiting: set[str] = set()  #: clusters that wait for the workspaces in them
        self._held: dict[str, list[Subscription]] = {}  #: cluster → where to hear that something let it go
        self._subscriptions: list[Subscription] = []
        self.work: Work[str] = Work("workspaces", self._look, workers=WORKERS)

    def start(self) -> None:
        self._tenancy.abandoned = self._abandon
        self._subscriptions = [
            self._store.subscribe(WORKSPACES, self._hear_workspaces),
            self._store.subscribe(LOGICAL_CLUSTERS, self._hear_clusters),
        ]
        claimed: set[str] = set()
        for entry in self._store.list(WORKSPACES).entries:
            self.work.add(entry.key)
            claimed.add(self._tenancy.clusters.child(cluster_in(entry.key), objects.name_in(entry.key)[1]))
        clusters = {cluster_in(entry.key) for entry in self._store.list(LOGICAL_CLUSTERS).entries}
        for cluster in clusters:
            self._check_claimed(cluster, claimed)
        for cluster in self._stored() - clusters:
            self._abandon(cluster)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()
        for cluster in tuple(self._held):
            self._let_go(cluster)

    def _stored(self) -> set[str]:
        """Clusters of which anything is there at all."""
        return {cluster_in(entry.key) for home in self._store.homes() for entry in self._store.list(home).entries}

    def _check_claimed(self, cluster: str, claimed: Container[str]) -> None:
        """At the start nothing is under way: a cluster that was made for a Workspace, and that none has, never will
        be anybody's."""
        found = self._tenancy.clusters.read(cluster)
        if found is not None and found.owner is not None and cluster not in claimed:
            self._abandon(cluster)
        self.work.add(cluster)

    def _abandon(self, cluster: str) -> None:
        if may_go(cluster):
            self._abandoned.add(cluster)
            self.work.add(cluster)

    # --- what happens -----------------------------------------------------------------------------

    def _hear_workspaces(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is not None:
                if change.previous is not None or not is_ready(change.entry):
                    self.work.add(change.key)
                continue
            self._hear_gone(cluster_in(change.key))
            if change.previous is not None:
                self._hear_left(change.key, objects.decode(change.previous))

    def _hear_left(self, key: str, workspace: Obj) -> None:
        """A Workspace that somebody else made go leaves its cluster to nobody."""
        cluster = workspace.get("spec", {}).get("cluster", "")
        left = self._store.get(logical_cluster_key(cluster)) if cluster else None
        if left is not None and owner_key(objects.decode(left)) == key:
            self._abandon(cluster)

    def _hear_gone(self, parent: str) -> None:
        """The last of the workspaces in a cluster that waits lets it go on."""
        if parent in self._waiting and not self._store.list(f"{WORKSPACES}{parent}/", limit=1).entries:
            self._waiting.discard(parent)
            self.work.add(parent)

    def _hear_clusters(self, changes: Sequence[Change]) -> None:
        for change in changes:
            cluster = cluster_in(change.key)
            if change.entry is not None:
                if change.previous is not None:
                    self.work.add(cluster)
                    self._look_at_owner(change.entry)
            elif change.previous is not None:
                owner = owner_key(objects.decode(change.previous))
                if owner:
                    self._owners[cluster] = owner
                self._abandon(cluster)

    def _look_at_owner(self, entry: Entry) -> None:
        owner = owner_key(objects.decode(entry))
        if owner:
            self.work.add(owner)

    # --- what is done about it --------------------------------------------------------------------

    async def _look(self, what: str) -> None:
        try:
            if what.startswith("/"):
                await self._look_at_workspace(what)
            else:
                await self._look_at_cluster(what)
        except Conflict:
            self.work.add(what)  # somebody else was faster

    async def _look_at_workspace(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            return
        workspace = objects.decode(entry)
        cluster = workspace.get("spec", {}).get("cluster", "")
        logical_cluster = self._store.get(logical_cluster_key(cluster)) if cluster else None
        if is_terminating(entry):
            await self._finish(entry, workspace, cluster if logical_cluster else "")
        elif not cluster:
            await self._schedule(entry, workspace)
        elif logical_cluster is None:
            states.mark_deleted(workspace, self._tenancy.now())
            await self._write(entry, workspace)
        else:
            states.settle_workspace(workspace, objects.decode(logical_cluster), self._tenancy.now())
            await self._write(entry, workspace)

    async def _finish(self, entry: Entry, workspace: Obj, cluster: str) -> None:
        """The end of a Workspace, once it has no cluster any more."""
        metadata = workspace["metadata"]
        others = [one for one in metadata.get("finalizers") or () if one != states.FINALIZER]
        if cluster:
            states.label(workspace)
            await self._write(entry, workspace)
            self.work.add(cluster)
        elif others:
            metadata["finalizers"] = others
            states.label(workspace)
            await self._write(entry, workspace)
        else:
            await self._store.delete(entry.key, expect=entry.revision)

    async def _schedule(self, entry: Entry, workspace: Obj) -> None:
        await self._tenancy.open(cluster_in(entry.key), workspace)
        try:
            await self._write(entry, workspace)
        except BaseException:
            self._tenancy.abandon(workspace)
            raise

    async def _write(self, entry: Entry, obj: Obj) -> None:
        """Unless nothing changed."""
        if obj != objects.decode(entry):
            await self._store.put(entry.key, rewritten(obj), expect=entry.revision)

    async def _look_at_cluster(self, cluster: str) -> None:
        if not may_go(cluster):
            return
        entry = self._store.get(logical_cluster_key(cluster))
        if entry is None:
            if cluster in self._abandoned:
                await self._sweep(cluster)
            return
        logical_cluster = objects.decode(entry)
        if self._is_doomed(cluster, entry):
            await self._clear(cluster, entry, logical_cluster)
        else:
            states.settle_cluster(logical_cluster, self._tenancy.now())
            await self._write(entry, logical_cluster)

    def _is_doomed(self, cluster: str, entry: Entry) -> bool:
        if is_terminating(entry) or cluster in self._abandoned:
            return True
        owner = self._tenancy.clusters.owner_of(cluster)
        workspace = None if owner is None else self._store.get(workspace_key(owner.cluster, owner.name))
        return workspace is not None and is_terminating(workspace)

    async def _clear(self, cluster: str, entry: Entry, logical_cluster: Obj) -> None:
        plan = clearance(self._store, cluster)
        if plan.held and not is_terminating(entry):
            # whoever holds something in it must be able to tell the end of the object from the end of everything
            states.mark_deleted(logical_cluster, self._tenancy.now())
            await self._write(entry, logical_cluster)
            self.work.add(cluster)
            return
        await self._mark(plan)
        if plan.is_clear:
            await self._delete(plan.free)
            await self._delete([*plan.last, entry])
            self._let_go(cluster)
            return
        await self._delete(plan.free)
        self._wait(cluster, plan)
        await self._tell(entry, logical_cluster, plan)

    async def _mark(self, plan: Clearance) -> None:
        """Whatever must wait is deleted as far as it can be."""
        waiting = [*(entry for entry in plan.workspaces if not is_terminating(entry)), *plan.unmarked()]
        for start in range(0, len(waiting), TOGETHER):
            await all_of(self._mark_one(entry) for entry in waiting[start : start + TOGETHER])

    async def _mark_one(self, entry: Entry) -> None:
        obj = objects.decode(entry)
        states.mark_deleted(obj, self._tenancy.now())
        home = resource_prefix(entry.key)
        if home == NAMESPACES:
            del obj["metadata"]["deletionGracePeriodSeconds"]
            obj.setdefault("status", {})["phase"] = "Terminating"
        elif home == WORKSPACES:
            if not obj["metadata"].get("finalizers"):
                await self._store.delete(entry.key, expect=entry.revision)
                return
            states.label(obj)
        elif home == DEFINITIONS:
            mark_definition(obj)
        await self._store.put(entry.key, rewritten(obj), expect=entry.revision)

    async def _delete(self, entries: Sequence[Entry]) -> None:
        """In their order: what is deleted later goes later."""
        for start in range(0, len(entries), TOGETHER):
            chunk = entries[start : start + TOGETHER]
            await all_of(map(self._delete_one, chunk))

    async def _delete_one(self, entry: Entry) -> None:
        """As it is now: whoever goes on writing to it does not keep it."""
        now: Entry | None = entry
        while now is not None:
            try:
                await self._store.delete(now.key, expect=now.revision)
            except Conflict:
                now = self._store.get(entry.key)
                if now is not None and is_held(now):
                    raise
            else:
                return

    def _wait(self, cluster: str, plan: Clearance) -> None:
        """Until something that holds the cluster goes.  What went meanwhile is heard of no more, so look."""
        self._let_go(cluster)
        if plan.workspaces:
            self._waiting.add(cluster)
            self._hear_gone(cluster)
            return

        def hear(changes: Sequence[Change]) -> None:
            if any(change.entry is None for change in changes):
                self.work.add_later(cluster, AGAIN)

        homes = {resource_prefix(entry.key) for entry in plan.held}
        self._held[cluster] = [self._store.subscribe(f"{home}{cluster}/", hear) for home in homes]
        if any(self._store.get(entry.key) is None for entry in plan.held):
            self.work.add(cluster)

    def _let_go(self, cluster: str) -> None:
        self._waiting.discard(cluster)
        for subscription in self._held.pop(cluster, ()):
            subscription.cancel()

    async def _tell(self, entry: Entry, logical_cluster: Obj, plan: Clearance) -> None:
        now = self._tenancy.now()
        if not is_terminating(entry):
            states.mark_deleted(logical_cluster, now)
        remaining = states.content_remains(plan.remaining())
        states.set_condition(logical_cluster.setdefault("status", {}), states.CONTENT_DELETED, remaining, now)
        states.label(logical_cluster)
        await self._write(entry, logical_cluster)

    async def _sweep(self, cluster: str) -> None:
        """Nobody can reach it: whatever is there goes, also what came at the last moment.  A home that was made again
        meanwhile may lack some of it, and goes as well."""
        while await self._sweep_once(cluster):
            pass
        if self._tenancy.clusters.exists(cluster):
            self.work.add(cluster)
            return
        self._abandoned.discard(cluster)
        self._let_go(cluster)
        owner = self._owners.pop(cluster, "")
        if owner:
            self.work.add(owner)

    async def _sweep_once(self, cluster: str) -> bool:
        """Whether there was anything.  A write that was begun while there was a LogicalCluster may be under way, and
        may be the first of two."""
        for _ in range(ROUNDS):
            if found := sorted(content(self._store, cluster), key=lambda part: rank(part[0])):
                await self._delete([entry for _, entries in found for entry in entries])
                return True
            await self._store.settled()
        return any(True for _ in content(self._store, cluster))


def may_go(cluster: str) -> bool:
    """Of workspaces and homes, whose names are short hashes.  The root, and what the hub keeps for itself, stay."""
    return cluster != ROOT and HASH.fullmatch(cluster) is not None


def is_ready(entry: Entry) -> bool:
    """Of a Workspace that was just made: nothing is left to do."""
    return objects.labels_of(entry).get(states.PHASE) == states.READY


def owner_key(logical_cluster: Obj) -> str:
    """Of the Workspace that a cluster belongs to; empty if it is nobody's."""
    owner = (logical_cluster.get("spec") or {}).get("owner") or {}
    cluster, name = owner.get("cluster", ""), owner.get("name", "")
    return workspace_key(cluster, name) if cluster and name else ""


def rank(home: str) -> int:
    """What goes later has the higher one.  Namespaces go first: while one is there, it is given what it lacks."""
    if home == NAMESPACES:
        return 0
    if home == DEFINITIONS or home.startswith(APIS):
        return 2
    return 3 if home in ROLES else 1


def is_held(entry: Entry) -> bool:
    """Whether somebody else must be done with an object before it goes."""
    if _FINALIZERS not in entry.value:
        return False
    return not OURS.issuperset(identity_of(entry).finalizers or ())


@dataclass(slots=True)
class Clearance:
    workspaces: Sequence[Entry] = ()
    held: list[Entry] = field(default_factory=list)
    namespaces: list[Entry] = field(default_factory=list)
    free: list[Entry] = field(default_factory=list)  #: may go now, in this order
    last: list[Entry] = field(default_factory=list)  #: may go when those are gone: without it nobody hears of their end

    @property
    def is_clear(self) -> bool:
        """Once `free` and `last` are gone, nothing is left."""
        return not self.workspaces and not self.held

    def unmarked(self) -> list[Entry]:
        """Those that wait, and do not say so yet."""
        return [entry for entry in (*self.held, *self.namespaces) if not is_terminating(entry)]

    def remaining(self) -> Counter[tuple[str, str]]:
        """(plural, group) → how many keep the cluster; those in namespaces are told as their namespaces."""
        kept = {*self.namespaces, *(entry for entry in self.held if entry.key.count("/") == 4)}
        return Counter(told(resource_prefix(entry.key)) for entry in (*self.workspaces, *kept))


def told(home: str) -> tuple[str, str]:
    """(plural, group) of a home."""
    _, group, plural, _ = home.split("/")
    return plural.partition(":")[0], "" if group == "core" else group


def content(store: Store, cluster: str) -> Iterable[tuple[str, Sequence[Entry]]]:
    """Everything in a cluster but its LogicalCluster, home by home."""
    for home in store.homes():
        if home != LOGICAL_CLUSTERS:
            entries = store.list(f"{home}{cluster}/").entries
            if entries:
                yield home, entries


def clearance(store: Store, cluster: str) -> Clearance:
    """What is to be done, as things are now."""
    found = Clearance()
    free: list[list[Entry]] = [[], [], [], []]
    for home, entries in content(store, cluster):
        if home == WORKSPACES:
            found.workspaces = entries
            continue
        for entry in entries:
            (found.held if is_held(entry) else free[rank(home)]).append(entry)
    if found.workspaces:
        return Clearance(found.workspaces)
    if found.held:
        found.namespaces, found.free = free[0], free[1]
    else:
        found.free, found.last = free[0] + free[1], free[2] + free[3]
    return found


SYNC_TARGETS: Final = kind("workload.kcp.io", "v1alpha1", "synctargets", "SyncTarget")
LOCATIONS: Final = kind("scheduling.kcp.io", "v1alpha1", "locations", "Location")


def household_of(store: Store, clock: Callable[[], datetime], workspaces: Platform) -> Household:
    """The default roles are in one place, and every workspace brings its own namespaces."""

    def further(inside: Inside, collector: Collector, definitions: Definitions) -> Sequence[Part]:
        reconsider = definitions.reconsider
        apis, binder, exporter = workspaces.apis, workspaces.binder, workspaces.exporter
        return (
            Workspaces(store, workspaces.tenancy),
            Inventory(store, inside, clock, workspaces.url, sync_targets=SYNC_TARGETS, locations=LOCATIONS),
            Bindings(store, apis, binder, exporter, inside, clock, collector, reconsider),
        )

    return Household(clusters=(), roles_in=SHARED, further=further)
