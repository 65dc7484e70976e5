"""The stored kinds of every cluster, for controllers that handle objects of any kind.

Built-in kinds are the same in every cluster.  Custom kinds belong to one cluster.  A kind's storage prefix does not
contain the cluster: two clusters with a custom kind of the same name share a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from farflung.apis.builtin.catalog import Catalog
from farflung.apis.resource import Resource
from farflung.hub.catalog.objects import cluster_in
from farflung.hub.catalog.served import Changed, ClusterKinds, Kinds
from farflung.lib.groups import subtract_one
from farflung.store.base import Store, Subscription, Watcher, resource_prefix


class KindsChange(NamedTuple):
    """Storage prefixes of custom kinds that were added to a cluster, and removed from it."""

    cluster: str
    added: frozenset[str]
    removed: frozenset[str]


class KindTable:
    """Kinds by type and by storage prefix.  The first of several versions wins."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        stored = [resource for resource in resources if {"list", "delete"} <= set(resource.verbs)]
        self.by_type = {(one.api_version, one.kind): one for one in stored}
        self.by_prefix: dict[str, Resource] = {}
        by_name: dict[tuple[str, str], Resource] = {}
        for resource in stored:
            self.by_prefix.setdefault(resource.storage_prefix, resource)
            by_name.setdefault((resource.group, resource.plural), resource)
        self.namespaced = tuple(resource for resource in by_name.values() if resource.namespaced)
        self.prefixes = frozenset(self.by_prefix)


NONE = KindTable(())


class StoredKinds:
    def __init__(self, catalog: Catalog) -> None:
        """`catalog`: the built-in kinds."""
        self._builtin = KindTable(preferred_first(catalog))
        self._custom: dict[str, KindTable] = {}  #: cluster → its custom kinds, if any
        self._clusters: dict[str, int] = {}  #: prefix of custom kinds → number of clusters that have it
        self._listeners: list[Callable[[KindsChange], None]] = []

    @property
    def prefixes(self) -> frozenset[str]:
        """Storage prefixes of all kinds of all clusters."""
        return self._builtin.prefixes.union(self._clusters)

    def of_type(self, cluster: str, api_version: str, kind: str) -> Resource | None:
        found = self._builtin.by_type.get((api_version, kind))
        return found or self._own(cluster).by_type.get((api_version, kind))

    def of_key(self, key: str) -> Resource | None:
        prefix = resource_prefix(key)
        return self._builtin.by_prefix.get(prefix) or self._own(cluster_in(key)).by_prefix.get(prefix)

    def is_builtin(self, key: str) -> bool:
        return resource_prefix(key) in self._builtin.by_prefix

    def has(self, prefix: str) -> bool:
        """Whether a prefix belongs to a built-in kind."""
        return prefix in self._builtin.by_prefix

    def is_anywhere(self, prefix: str) -> bool:
        """Whether any cluster has the kind."""
        return prefix in self._builtin.by_prefix or prefix in self._clusters

    def builtin(self, prefix: str) -> Resource:
        return self._builtin.by_prefix[prefix]

    def namespaced(self, cluster: str) -> tuple[Resource, ...]:
        """The namespaced resources of a cluster, each in its preferred version."""
        return self._builtin.namespaced + self._own(cluster).namespaced

    def _own(self, cluster: str) -> KindTable:
        return self._custom.get(cluster, NONE)

    def replace(self, cluster: str, new: KindTable) -> None:
        """Set a cluster's custom kinds, preferred versions first."""
        old = self._own(cluster)
        if new.by_prefix:
            self._custom[cluster] = new
        else:
            self._custom.pop(cluster, None)
        change = KindsChange(cluster, new.prefixes - old.prefixes, old.prefixes - new.prefixes)
        for prefix in change.added:
            self._clusters[prefix] = self._clusters.get(prefix, 0) + 1
        for prefix in change.removed:
            subtract_one(self._clusters, prefix)
        if new.by_type.keys() != old.by_type.keys() or change.added or change.removed:
            for listener in self._listeners:
                listener(change)

    def listen(self, listener: Callable[[KindsChange], None]) -> None:
        """Call a listener after every replacement that changed something."""
        self._listeners.append(listener)


def follow(served_kinds: Kinds, stored: StoredKinds) -> None:
    """Keep the custom kinds equal to what each cluster serves."""
    tables: WeakKeyDictionary[ClusterKinds, KindTable] = WeakKeyDictionary()  #: thousands of clusters share one

    def table_of(served: ClusterKinds) -> KindTable:
        table = tables.get(served)
        if table is None:
            custom = (one for one in preferred_first(served.catalog) if one.custom)
            table = tables[served] = KindTable(one for one in custom if not stored.has(one.storage_prefix))
        return table

    def update(changed: Iterable[Changed]) -> None:
        for cluster in {cluster for cluster, _, _ in changed}:
            stored.replace(cluster, table_of(served_kinds.of(cluster)))

    served_kinds.subscribe(update)
    update((cluster, "", "") for cluster in served_kinds.clusters)


class StoredKindsWatch:
    """Subscribes one watcher to the prefixes of all stored kinds, also of kinds that are added later."""

    def __init__(
        self, store: Store, kinds: StoredKinds, watcher: Watcher, *, without: frozenset[str] = frozenset()
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._watcher = watcher
        self._without = without
        self._subscriptions: dict[str, Subscription] = {}
        self._is_started = False
        kinds.listen(self._on_kinds)

    def start(self) -> None:
        self._is_started = True
        self._subscribe(self._kinds.prefixes)

    def _on_kinds(self, change: KindsChange) -> None:
        if not self._is_started:
            return
        for prefix in change.removed & self._subscriptions.keys():
            if not self._kinds.is_anywhere(prefix):
                self._subscriptions.pop(prefix).cancel()
        self._subscribe(change.added)

    def _subscribe(self, prefixes: frozenset[str]) -> None:
        for prefix in prefixes - self._subscriptions.keys() - self._without:
            self._subscriptions[prefix] = self._store.subscribe(prefix, self._watcher)

    def stop(self) -> None:
        self._is_started = False
        for subscription in self._subscriptions.values():
            subscription.cancel()
        self._subscriptions.clear()


def preferred_first(catalog: Catalog) -> Iterable[Resource]:
    for group in catalog.groups:
        for version in catalog.versions(group):
            yield from catalog.resources(group, version)
