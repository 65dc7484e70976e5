"""Which sites a change of a Cluster or of a workspace path affects.  Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from farflung.machines.engine.sites import SiteUsage
from farflung.machines.engine.values import SiteKey
from farflung.machines.inventory import ObservedCluster, TargetShare
from farflung.runtime.cache import CacheChange, Key


class TargetShares:
    def __init__(self) -> None:
        self._users: dict[Key, list[tuple[str, SiteKey]]] = {}  #: by SyncTarget, the oldest Cluster first

    def add(self, target: Key, created: str, site: SiteKey) -> list[SiteKey]:
        """Returns the affected sites: all of that SyncTarget, if its first Cluster changed."""
        users = self._users.setdefault(target, [])
        insort(users, (created, site))
        return self.users(target) if users[0] == (created, site) else [site]

    def remove(self, target: Key, created: str, site: SiteKey) -> list[SiteKey]:
        """Returns the affected sites."""
        users = self._users.get(target, [])
        place = bisect_left(users, (created, site))
        if users[place : place + 1] != [(created, site)]:
            return []
        del users[place]
        if not users:
            del self._users[target]
        return [] if place else self.users(target)

    def users(self, target: Key) -> list[SiteKey]:
        """The Cluster that uses the SyncTarget first, then the others."""
        return [site for _, site in self._users.get(target, ())]

    def share(self, target: Key, site: SiteKey, usage: Callable[[SiteKey], SiteUsage]) -> TargetShare:
        """`usage`: the reservations at a Cluster."""
        first, *others = self.users(target) or [site]
        if first != site:
            return TargetShare(first)
        usages = [usage(other) for other in others]
        return TargetShare(None, sum(one.vcpus for one in usages), sum(one.memory for one in usages))


class ClusterTargets:
    """Clusters by the SyncTarget that they name."""

    def __init__(self) -> None:
        #: path → logical cluster of workspaces that Clusters name; empty: no such workspace
        self._paths: dict[str, str] = {}
        self._by_path: dict[str, dict[Key, ObservedCluster]] = {}
        self._shares = TargetShares()

    def target_key(self, key: Key, cluster: ObservedCluster) -> Key | None:
        """The key of its SyncTarget, which need not exist; None: it names none, or its path is not resolved."""
        if cluster.target is None:
            return None
        workspace = cluster.target.workspace or key.cluster
        logical = self._paths.get(workspace) if ":" in workspace else workspace
        return None if logical is None else Key(logical, "", cluster.target.name)

    def logical_cluster(self, path: str) -> str | None:
        """Empty: no such workspace; None: not resolved."""
        return self._paths.get(path)

    def users(self, target: Key) -> list[SiteKey]:
        """The sites that a SyncTarget represents; the first one uses it."""
        return self._shares.users(target)

    def share(self, key: Key, cluster: ObservedCluster, usage: Callable[[SiteKey], SiteUsage]) -> TargetShare:
        target = self.target_key(key, cluster)
        return TargetShare() if target is None else self._shares.share(target, SiteKey(*key), usage)

    def on_cluster(self, change: CacheChange[ObservedCluster]) -> set[SiteKey]:
        old, new = change.old, change.new
        affected = {SiteKey(*change.key)}
        if old is None or new is None or (old.target, old.created) != (new.target, new.created):
            if old is not None:
                affected.update(self._remove(change.key, old))
            if new is not None:
                affected.update(self._add(change.key, new))
        return affected

    def on_path(self, path: str, logical: str) -> set[SiteKey]:
        """The workspace path was resolved to another logical cluster."""
        named = sorted(self._by_path.get(path, {}).items(), key=lambda item: item[0])
        affected = {SiteKey(*key) for key, _ in named}
        for key, cluster in named:
            affected.update(self._remove(key, cluster))
        self._paths[path] = logical
        for key, cluster in named:
            affected.update(self._add(key, cluster))
        return affected

    def _add(self, key: Key, cluster: ObservedCluster) -> list[SiteKey]:
        if path := target_path(cluster):
            self._by_path.setdefault(path, {})[key] = cluster
        target = self.target_key(key, cluster)
        return [] if target is None else self._shares.add(target, cluster.created, SiteKey(*key))

    def _remove(self, key: Key, cluster: ObservedCluster) -> list[SiteKey]:
        target = self.target_key(key, cluster)
        if path := target_path(cluster):
            named = self._by_path.get(path, {})
            named.pop(key, None)
            if not named:
                self._by_path.pop(path, None)
                self._paths.pop(path, None)
        return [] if target is None else self._shares.remove(target, cluster.created, SiteKey(*key))


def target_path(cluster: ObservedCluster) -> str:
    """The workspace path of its SyncTarget; empty if it names none, or a logical cluster."""
    return "" if cluster.target is None or ":" not in cluster.target.workspace else cluster.target.workspace
