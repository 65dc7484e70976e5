"""System namespaces and priority classes, which are created again when they are deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from farflung.apis.resource import Resource
from farflung.hub.catalog import objects
from farflung.hub.controllers.loopback import LoopbackClient, collection_path
from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.hub.controllers.stored_kinds import StoredKinds
from farflung.machinery.errors import Obj
from farflung.store.base import Change, Store, Subscription


def _priority(name: str, value: int, description: str) -> Obj:
    return {"metadata": {"name": name}, "value": value, "description": description}


#: (apiVersion, kind) → objects without them
SYSTEM: Final[dict[tuple[str, str], tuple[Obj, ...]]] = {
    ("v1", "Namespace"): tuple(
        {"metadata": {"name": name}} for name in ("default", "kube-system", "kube-public", "kube-node-lease")
    ),
    ("scheduling.k8s.io/v1", "PriorityClass"): (
        _priority(
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        _priority(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if "
            "necessary.",
        ),
    ),
}


class SystemObjectsController:
    def __init__(self, store: Store, kinds: StoredKinds, client: LoopbackClient, clusters: Iterable[str]) -> None:
        self._store = store
        self._client = client
        self._wanted: dict[str, tuple[str, Resource, Obj]] = {}  #: key → cluster, resource and object
        self._prefixes: set[str] = set()
        for cluster in clusters:
            for (api_version, kind), wanted in SYSTEM.items():
                resource = kinds.of_type(cluster, api_version, kind)
                if resource is None:
                    continue
                self._prefixes.add(objects.prefix(resource, cluster))
                for obj in wanted:
                    key = objects.key(resource, cluster, "", obj["metadata"]["name"])
                    self._wanted[key] = (cluster, resource, obj)
        self._subscriptions: list[Subscription] = []
        self.queue: ReconcileQueue[str] = ReconcileQueue("system-objects", self._reconcile, workers=1)

    def start(self) -> None:
        self._subscriptions = [self._store.subscribe(prefix, self._on_changes) for prefix in self._prefixes]
        for key in self._wanted:
            self.queue.add(key)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is None and change.key in self._wanted:
                self.queue.add(change.key)

    async def _reconcile(self, key: str) -> None:
        if self._store.get(key) is None:
            cluster, resource, obj = self._wanted[key]
            await self._client.request("POST", collection_path(resource, cluster), obj)
