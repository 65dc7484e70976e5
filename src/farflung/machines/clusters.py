"""Follows Clusters and their SyncTargets, and writes the status of Clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from farflung.apis.globalscheduler.names import CLUSTERS
from farflung.apis.kcp.names import CLUSTER_ANNOTATION, LOGICAL_CLUSTERS
from farflung.client.errors import Forbidden, NotFound
from farflung.client.rest import Client
from farflung.machinery.errors import Obj
from farflung.machines.context import SchedulerContext, WriteRate
from farflung.machines.engine.values import Site, SiteKey
from farflung.machines.failover import MachineRef, RefusalRecord, add_cluster_refusal
from farflung.machines.inventory import (
    ObservedCluster,
    ObservedTarget,
    TargetCondition,
    TargetShare,
    cause_ages,
    merge_target,
    plan_status,
    refusal_age,
    target_condition,
    unresolved_site,
)
from farflung.machines.triggers import ClusterTargets, target_path
from farflung.placement.names import mailbox_name
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer

NAME: Final = "global-scheduler-clusters"
LOOKUP_RETRY: Final = 60.0  #: seconds between two lookups of a workspace path whose SyncTarget does not exist
WRITE_PAUSE: Final = 1.0  #: seconds between two writes to the same Cluster
USAGE: Final = frozenset({"stacks", "used"})  #: fields of the status that change with each machine
USAGE_BURST: Final = 100  #: writes of these fields alone at once, and per second: users read them, and no controller
USAGE_RATE: Final = 20.0


@dataclass(frozen=True, slots=True)
class ClusterHooks:
    client_of: Callable[[str], Client]  #: the API of Clusters in a logical cluster
    workspace_of: Callable[[str], Client]  #: a workspace by path or name
    on_change: Callable[[], None]  #: wake the scheduler
    on_target: Callable[[SiteKey], None]  #: the SyncTarget of a site is known, has changed or was deleted


class ClusterController:
    def __init__(
        self,
        context: SchedulerContext,
        informer: Informer[ObservedCluster],
        targets: Informer[ObservedTarget],
        hooks: ClusterHooks,
    ) -> None:
        self._state = context.state
        self._informer = informer
        self._targets = targets
        self._hooks = hooks
        self._rebuilder = context.rebuilder
        self._monotonic = context.env.monotonic
        self._now = context.now
        self._index = ClusterTargets()
        self._written: dict[SiteKey, float] = {}
        self._usage_rate = WriteRate(USAGE_BURST, USAGE_RATE)
        self._usage_due: dict[SiteKey, float] = {}  #: when a delayed write of the usage may start
        self.controller: Controller[SiteKey] = context.controller(NAME, self.reconcile)

    def existing_target(self, site: SiteKey) -> Key | None:
        """The SyncTarget that represents the site, if it exists."""
        key = self.target_key(site)
        return None if key is None or key not in self._targets.cache else key

    def mailbox_name(self, site: SiteKey) -> str:
        """Empty: it has no SyncTarget."""
        key = self.existing_target(site)
        return "" if key is None else mailbox_name(key.cluster, self._targets.cache[key].uid)

    def names_target(self, site: SiteKey) -> bool | None:
        """Whether the Cluster names a SyncTarget, which need not exist; None: there is no such Cluster."""
        cluster = self._informer.cache.get(Key(*site))
        return None if cluster is None else cluster.target is not None

    def is_target_resolved(self, site: SiteKey) -> bool:
        """Whether the logical cluster of its SyncTarget is known, or it names none."""
        return not self.names_target(site) or self.target_key(site) is not None

    def target_key(self, site: SiteKey) -> Key | None:
        """The key of the SyncTarget that it names, which need not exist; None: it names none, or its path is not
        resolved."""
        cluster = self._informer.cache.get(Key(*site))
        return None if cluster is None else self._index.target_key(Key(*site), cluster)

    def users_of(self, target: Key) -> list[SiteKey]:
        """The sites that a SyncTarget represents."""
        return self._index.users(target)

    # --- triggers ---------------------------------------------------------------------------------

    def on_cluster(self, change: CacheChange[ObservedCluster]) -> None:
        self._update_sites(self._index.on_cluster(change))

    def on_target(self, change: CacheChange[ObservedTarget]) -> None:
        if change.old != change.new:
            self._update_sites(self.users_of(change.key))

    def on_usage(self, site: SiteKey) -> None:
        """Reservations at the site changed, so the free capacity of the Cluster that has its SyncTarget may have
        changed."""
        cluster = self._informer.cache.get(Key(*site))
        first = None if cluster is None else self._share(Key(*site), cluster).first
        if first is not None:
            self._update_site(Key(*first))
        if site not in self._usage_due:
            self.enqueue(site)

    def _share(self, key: Key, cluster: ObservedCluster) -> TargetShare:
        return self._index.share(key, cluster, self._state.engine.usage)

    def _update_sites(self, sites: Iterable[SiteKey]) -> None:
        for site in sorted(sites):
            self._update_site(Key(*site))

    def _update_site(self, key: Key) -> None:
        now, site_key = self._monotonic(), SiteKey(*key)
        cluster = self._informer.cache.get(key)
        if cluster is None:
            self._state.remove_site(site_key, now)
            self._state.set_target(site_key, None)
            self._state.set_refusals(site_key, None, 0.0, now)
            self._hooks.on_target(site_key)
            self._written.pop(site_key, None)
            self._usage_due.pop(site_key, None)
            return
        target_key = self._index.target_key(key, cluster)
        target = None if target_key is None else self._targets.cache.get(target_key)
        is_new = self._state.engine.site(site_key) is None
        has_new_target = self._state.set_target(site_key, target_key) or is_new
        judged = cluster.target is None or target_key is not None
        site = merge_target(cluster, target, self._share(key, cluster)) if judged else unresolved_site(cluster)
        ages = cause_ages(cluster, site, target, self._now()) if judged else None
        self._state.put_site(site, now, ages=ages)
        if has_new_target:
            self._hooks.on_target(site_key)
        self._state.set_refusals(site_key, cluster.refusals, refusal_age(cluster.refusals, self._now()), now)
        self.enqueue(site_key)

    def enqueue(self, key: SiteKey) -> None:
        """Enqueue a status write."""
        if key.cluster:
            last = self._written.get(key)
            self.controller.queue.add_after(key, 0.0 if last is None else last + WRITE_PAUSE - self._monotonic())

    # --- writes ---------------------------------------------------------------------------------------

    async def reconcile(self, key: SiteKey, worker: int) -> float | None:
        cluster, site = self._informer.cache.get(Key(*key)), self._state.engine.site(key)
        if cluster is None or site is None:
            return None
        again = await self._resolve_path(Key(*key), cluster)
        site = self._state.engine.site(key) or site
        if (last := self._written.get(key)) is not None and last + WRITE_PAUSE > self._monotonic():
            return last + WRITE_PAUSE - self._monotonic()
        status = self._plan(key, cluster, site, None if self._state.has_recovered(key) else cluster.refusals)
        if status and status.keys() <= USAGE:
            if key not in self._usage_due:
                self._usage_due[key] = self._usage_rate.take(self._monotonic())
            if (left := self._usage_due[key] - self._monotonic()) > 0:
                return left if again is None else min(left, again)
        self._usage_due.pop(key, None)
        try:
            await self._write(key, cluster, site, status)
        except NotFound:
            return None
        return again

    def _plan(self, key: SiteKey, cluster: ObservedCluster, site: Site, refusals: RefusalRecord | None) -> Obj:
        condition = self._target_condition(Key(*key), cluster)
        return plan_status(cluster, site, self._state.engine.usage(key), self._now(), condition, refusals)

    async def _write(self, key: SiteKey, cluster: ObservedCluster, site: Site, status: Obj) -> None:
        """Write the changed fields, if any."""
        if not status:
            return
        self._written[key] = self._monotonic()
        identity = {"uid": site.uid, "resourceVersion": cluster.version}
        patch = {"metadata": identity, "status": status}
        client = self._hooks.client_of(key.cluster)
        self._informer.assume(await client.patch(CLUSTERS, key.name, patch, key.namespace, "status"))

    async def refuse(self, key: SiteKey, machine: MachineRef) -> None:
        """Record that the Cluster refused a machine, before the machine is unbound.  Raises ClientError."""
        cluster, site = self._informer.cache.get(Key(*key)), self._state.engine.site(key)
        if cluster is None or site is None:
            return
        known = None if self._state.has_recovered(key) else cluster.refusals
        avoided = self._state.is_avoided(key, self._monotonic())
        refusals = add_cluster_refusal(known, machine, self._now(), avoided=avoided)
        await self._write(key, cluster, site, self._plan(key, cluster, site, refusals))

    def _target_condition(self, key: Key, cluster: ObservedCluster) -> TargetCondition | None:
        if cluster.target is None:
            return None
        found, path = self.existing_target(SiteKey(*key)) is not None, target_path(cluster)
        reached = not path or self._index.logical_cluster(path) != ""
        return target_condition(cluster.target, found=found, reached=reached, share=self._share(key, cluster))

    async def _resolve_path(self, key: Key, cluster: ObservedCluster) -> float | None:
        """Resolve the workspace path of its SyncTarget.  Returns seconds until the next attempt, because a workspace
        may be created later; None: resolved."""
        path, target = target_path(cluster), self._index.target_key(key, cluster)
        if not path or (target is not None and target in self._targets.cache):
            return None
        try:
            found = await self._hooks.workspace_of(path).get(LOGICAL_CLUSTERS, "cluster")
            logical = str((found["metadata"].get("annotations") or {}).get(CLUSTER_ANNOTATION, ""))
        except (NotFound, Forbidden):
            logical = ""  # no such workspace
        if logical != self._index.logical_cluster(path):
            self._rebuilder.attempt(("Workspace", path), lambda: self._update_sites(self._index.on_path(path, logical)))
            self._hooks.on_change()
        return LOOKUP_RETRY
