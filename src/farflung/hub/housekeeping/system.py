"""The namespaces that are always there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from farflung.hub.housekeeping.inside import Inside, collection_path
from farflung.hub.housekeeping.kept import KeptKinds
from farflung.hub.housekeeping.namespaces import NAMESPACES, Scope, scope_of
from farflung.hub.housekeeping.work import Work
from farflung.hub.namespaces import namespace_key
from farflung.store.base import Change, Store, Subscription

SYSTEM: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


class SystemNamespaces:
    def __init__(self, store: Store, kinds: KeptKinds, inside: Inside, clusters: Iterable[str]) -> None:
        self._store = store
        self._inside = inside
        self._resource = kinds.of_key(NAMESPACES + "/")
        self._scopes = tuple(Scope(cluster, name) for cluster in clusters for name in SYSTEM)
        self._subscriptions: list[Subscription] = []
        self.work: Work[Scope] = Work("system-namespaces", self._look, workers=1)

    def start(self) -> None:
        self._subscriptions = [self._store.subscribe(NAMESPACES, self._hear)]
        for scope in self._scopes:
            self.work.add(scope)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    def _hear(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is None and scope_of(change.key) in self._scopes:
                self.work.add(scope_of(change.key))

    async def _look(self, scope: Scope) -> None:
        if self._store.get(namespace_key(*scope)) is None:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scope.namespace}}
            await self._inside.request("POST", collection_path(self._resource, scope.cluster), namespace)
