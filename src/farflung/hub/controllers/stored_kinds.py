"""The kinds whose objects are in the store, as housekeeping needs them: by the place of their objects, by type.

Built-in kinds are the same in every cluster and stay.  Custom ones are a cluster's own, and come and go.  Where a
kind's objects are, its home, does not tell the cluster: two clusters with a kind of the same name share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

from farflung.apis.resource import Resource
from farflung.hub.catalog.catalog import Catalog
from farflung.hub.catalog.served import Changed, Kinds, Served
from farflung.hub.objects import cluster_in, home_of
from farflung.store.base import Store, Subscription, Watcher
from farflung.store.keys import resource_prefix


class Turnover(NamedTuple):
    """Which homes a cluster got and lost."""

    cluster: str
    came: frozenset[str]
    went: frozenset[str]


class Table:
    """Some kinds, found by type and by home.  Of several versions the first counts."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        kept = [resource for resource in resources if {"list", "delete"} <= set(resource.verbs)]
        self.by_type = {(one.api_version, one.kind): one for one in kept}
        self.by_home: dict[str, Resource] = {}
        by_name: dict[tuple[str, str], Resource] = {}
        for resource in kept:
            self.by_home.setdefault(home_of(resource), resource)
            by_name.setdefault((resource.group, resource.plural), resource)
        #: what a namespace can contain
        self.namespaced = tuple(resource for resource in by_name.values() if resource.namespaced)
        self.homes = frozenset(self.by_home)


NONE = Table(())


class KeptKinds:
    def __init__(self, catalog: Catalog) -> None:
        """With the built-in kinds; the custom ones are told by `replace`."""
        self._builtin = Table(preferred_first(catalog))
        self._custom: dict[str, Table] = {}  #: cluster → its own kinds, if any
        self._clusters: dict[str, int] = {}  #: home of custom kinds → how many clusters have it
        self._listeners: list[Callable[[Turnover], None]] = []

    @property
    def homes(self) -> frozenset[str]:
        """Of every kind of every cluster."""
        return self._builtin.homes.union(self._clusters)

    def of_type(self, cluster: str, api_version: str, kind: str) -> Resource | None:
        found = self._builtin.by_type.get((api_version, kind))
        return found or self._own(cluster).by_type.get((api_version, kind))

    def of_key(self, key: str) -> Resource | None:
        """Whose objects are at a key."""
        home = resource_prefix(key)
        return self._builtin.by_home.get(home) or self._own(cluster_in(key)).by_home.get(home)

    def is_builtin(self, key: str) -> bool:
        """Whether objects at a key are of a kind that is always there."""
        return resource_prefix(key) in self._builtin.by_home

    def has(self, home: str) -> bool:
        """Whether a kind is always there."""
        return home in self._builtin.by_home

    def is_anywhere(self, home: str) -> bool:
        """Whether any cluster has a kind."""
        return home in self._builtin.by_home or home in self._clusters

    def builtin(self, home: str) -> Resource:
        """A kind that is always there."""
        return self._builtin.by_home[home]

    def namespaced(self, cluster: str) -> tuple[Resource, ...]:
        """What a namespace of a cluster can contain, each resource in the version that is preferred."""
        return self._builtin.namespaced + self._own(cluster).namespaced

    def custom(self, cluster: str) -> Mapping[str, Resource]:
        """A cluster's own kinds by home."""
        return self._own(cluster).by_home

    def _own(self, cluster: str) -> Table:
        return self._custom.get(cluster, NONE)

    def replace(self, cluster: str, new: Table) -> None:
        """A cluster's own kinds, as they are from now on, the preferred versions first."""
        old = self._own(cluster)
        if new.by_home:
            self._custom[cluster] = new
        else:
            self._custom.pop(cluster, None)
        turnover = Turnover(cluster, new.homes - old.homes, old.homes - new.homes)
        for home in turnover.came:
            self._clusters[home] = self._clusters.get(home, 0) + 1
        for home in turnover.went:
            self._clusters[home] -= 1
            if not self._clusters[home]:
                del self._clusters[home]
        if new.by_type.keys() != old.by_type.keys() or turnover.came or turnover.went:
            for listener in self._listeners:
                listener(turnover)

    def listen(self, listener: Callable[[Turnover], None]) -> None:
        """Hear of every replacement that changed something, after the fact."""
        self._listeners.append(listener)


def follow(kinds: Kinds, kept: KeptKinds) -> None:
    """Keep up with what the clusters serve beside what is always there."""
    tables: WeakKeyDictionary[Served, Table] = WeakKeyDictionary()  #: thousands of clusters serve the same

    def table_of(served: Served) -> Table:
        table = tables.get(served)
        if table is None:
            own = (one for one in preferred_first(served.catalog) if one.custom and not kept.has(home_of(one)))
            table = tables[served] = Table(own)
        return table

    def hear(changed: Iterable[Changed]) -> None:
        for cluster in {cluster for cluster, _, _ in changed}:
            kept.replace(cluster, table_of(kinds.of(cluster)))

    kinds.subscribe(hear)
    hear((cluster, "", "") for cluster in kinds.clusters)


class Hearing:
    """One watcher of the homes of all kinds that there are, whichever they are at the time."""

    def __init__(
        self, store: Store, kinds: KeptKinds, watcher: Watcher, *, without: frozenset[str] = frozenset()
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._watcher = watcher
        self._without = without
        self._subscriptions: dict[str, Subscription] = {}
        self._listens = False
        kinds.listen(self._follow)

    def start(self) -> None:
        self._listens = True
        self._listen_to(self._kinds.homes)

    def _follow(self, turnover: Turnover) -> None:
        if not self._listens:
            return
        for home in turnover.went & self._subscriptions.keys():
            if not self._kinds.is_anywhere(home):
                self._subscriptions.pop(home).cancel()
        self._listen_to(turnover.came)

    def _listen_to(self, homes: frozenset[str]) -> None:
        for home in homes - self._subscriptions.keys() - self._without:
            self._subscriptions[home] = self._store.subscribe(home, self._watcher)

    def stop(self) -> None:
        self._listens = False
        for subscription in self._subscriptions.values():
            subscription.cancel()
        self._subscriptions.clear()


def preferred_first(catalog: Catalog) -> Iterable[Resource]:
    for group in catalog.groups:
        for version in catalog.versions(group):
            yield from catalog.resources(group, version)
