"""Keep up with Clusters and the SyncTargets that stand for some of them, and say what is known of each Cluster."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from farflung.client.errors import Forbidden, NotFound
from farflung.client.resource import Collection
from farflung.client.rest import Client
from farflung.controllers.global_scheduler.delivering import Target
from farflung.controllers.global_scheduler.inventory import (
    SeenCluster,
    SeenTarget,
    site_with,
    status_of,
    unwell_for,
)
from farflung.controllers.global_scheduler.world import World
from farflung.informer.cache import Change, Key
from farflung.informer.informer import Informer
from farflung.informer.reflector import CLUSTER, Surroundings
from farflung.lib.klog import Logger
from farflung.runtime.controller import Controller
from farflung.scheduling.values import SiteKey

NAME: Final = "global-scheduler-clusters"
CLUSTERS: Final = Collection("globalscheduler.com", "v1", "clusters", "Cluster")
LOGICAL_CLUSTERS: Final = Collection("core.kcp.io", "v1alpha1", "logicalclusters", "LogicalCluster")
LATEST: Final = 10.0  #: seconds for which what is said of a Cluster waits while many wait for a place
PAUSE: Final = 1.0  #: seconds between two writes about the same Cluster


class Clusters:
    def __init__(
        self,
        world: World,
        informer: Informer[SeenCluster],
        targets: Informer[SeenTarget],
        client_of: Callable[[str], Client],
        workspace_of: Callable[[str], Client],
        is_busy: Callable[[], bool],
        outside: Surroundings,
        now: Callable[[], datetime],
        log: Logger,
        *,
        workers: int,
    ) -> None:
        """`client_of`: the API of Clusters in a logical cluster; `workspace_of`: a whole workspace, by path or name;
        `is_busy`: whether there is something more urgent to do."""
        self._world = world
        self._informer = informer
        self._targets = targets
        self._client_of = client_of
        self._workspace_of = workspace_of
        self._is_busy = is_busy
        self._monotonic = outside.monotonic
        self._now = now
        self._paths: dict[str, str] = {}  #: the logical clusters of workspaces that are named by their paths
        self._users: dict[Key, set[Key]] = {}  #: Clusters by their SyncTargets
        self._written: dict[SiteKey, float] = {}
        self._late: dict[SiteKey, float] = {}  #: when it is written, whatever else there is to do
        self.controller: Controller[SiteKey] = Controller(
            NAME, self.reconcile, workers=workers, backoff=outside.backoff, monotonic=outside.monotonic, log=log
        )

    def target_of(self, site: SiteKey) -> Target | None:
        """The SyncTarget that stands for it, if it is there."""
        cluster = self._informer.cache.get(Key(*site))
        key = None if cluster is None else self._target_key(Key(*site), cluster)
        return None if key is None or key not in self._targets.cache else Target(key.cluster, key.name)

    def has_target(self, site: SiteKey) -> bool:
        """Whether a SyncTarget is to stand for it, be it there or not."""
        cluster = self._informer.cache.get(Key(*site))
        return cluster is not None and cluster.target is not None

    def _target_key(self, key: Key, cluster: SeenCluster) -> Key | None:
        """None: it has none, or nobody has found out where it is."""
        if cluster.target is None:
            return None
        workspace = cluster.target.workspace or key.cluster
        logical = self._paths.get(workspace) if ":" in workspace else workspace
        return None if logical is None else Key(logical, "", cluster.target.name)

    # --- hearing ----------------------------------------------------------------------------------

    def on_cluster(self, change: Change[SeenCluster]) -> None:
        for one in (change.old, change.new):
            target = None if one is None else self._target_key(change.key, one)
            if target is not None:
                users = self._users.setdefault(target, set())
                (users.add if one is change.new else users.discard)(change.key)
        self._look_at(change.key)

    def on_target(self, change: Change[SeenTarget]) -> None:
        if change.old != change.new:
            for key in sorted(self._users.get(change.key, ())):
                self._look_at(key)

    def _look_at(self, key: Key) -> None:
        now, site_key = self._monotonic(), SiteKey(*key)
        cluster = self._informer.cache.get(key)
        if cluster is None:
            self._world.remove_site(site_key, now)
            self._written.pop(site_key, None)
            self._late.pop(site_key, None)
            return
        target_key = self._target_key(key, cluster)
        site = cluster.site if target_key is None else site_with(cluster, self._targets.cache.get(target_key))
        self._world.put_site(site, now, age=unwell_for(cluster, site, self._now()))
        self.touch(site_key)

    def touch(self, key: SiteKey) -> None:
        """What is said of it may have to be something else."""
        if key.cluster:
            last = self._written.get(key)
            self.controller.queue.add_after(key, 0.0 if last is None else last + PAUSE - self._monotonic())

    # --- doing ------------------------------------------------------------------------------------

    async def reconcile(self, key: SiteKey, worker: int) -> float | None:
        cluster, site = self._informer.cache.get(Key(*key)), self._world.engine.site(key)
        if cluster is None or site is None:
            return None
        if cluster.target is not None and self._target_key(Key(*key), cluster) is None:
            await self._find(Key(*key), cluster, cluster.target.workspace)
            site = self._world.engine.site(key) or site
        if (last := self._written.get(key)) is not None and last + PAUSE > self._monotonic():
            return last + PAUSE - self._monotonic()
        if self._is_busy() and self._late.setdefault(key, self._monotonic() + LATEST) > self._monotonic():
            return PAUSE
        self._late.pop(key, None)
        status = status_of(cluster, site, self._world.usage(key), self._now())
        if not status:
            return None
        self._written[key] = self._monotonic()
        identity = {"uid": site.uid, "resourceVersion": cluster.version}
        patch = {"metadata": identity, "status": status}
        client = self._client_of(key.cluster)
        try:
            self._informer.assume(await client.patch(CLUSTERS, key.name, patch, key.namespace, "status"))
        except NotFound:
            return None
        return None

    async def _find(self, key: Key, cluster: SeenCluster, path: str) -> None:
        """The logical cluster of a workspace that is named by its path."""
        try:
            found = await self._workspace_of(path).get(LOGICAL_CLUSTERS, "cluster")
            logical = (found["metadata"].get("annotations") or {}).get(CLUSTER, "")
        except (NotFound, Forbidden):
            logical = ""  # there is no such workspace
        self._paths[path] = str(logical)
        self.on_cluster(Change(key, None, cluster))
