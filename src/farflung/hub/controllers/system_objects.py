"""What is always there: the system's namespaces and priority classes.  Whatever is deleted comes back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from farflung.apis.resource import Resource
from farflung.hub import objects
from farflung.hub.controllers.loopback import Inside, collection_path
from farflung.hub.controllers.reconcile_queue import Work
from farflung.hub.controllers.stored_kinds import KeptKinds
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


class SystemObjects:
    def __init__(self, store: Store, kinds: KeptKinds, inside: Inside, clusters: Iterable[str]) -> None:
        self._store = store
        self._inside = inside
        self._wanted: dict[str, tuple[str, Resource, Obj]] = {}  #: key → cluster, resource and object
        self._homes: set[str] = set()
        for cluster in clusters:
            for (api_version, kind), wanted in SYSTEM.items():
                resource = kinds.of_type(cluster, api_version, kind)
                if resource is not None:
                    self._want(cluster, resource, wanted)
        self._subscriptions: list[Subscription] = []
        self.work: Work[str] = Work("system-objects", self._look, workers=1)

    def _want(self, cluster: str, resource: Resource, wanted: Iterable[Obj]) -> None:
        self._homes.add(objects.prefix(resource, cluster))
        for obj in wanted:
            key = objects.key(resource, cluster, "", obj["metadata"]["name"])
            self._wanted[key] = (cluster, resource, obj)

    def start(self) -> None:
        self._subscriptions = [self._store.subscribe(home, self._hear) for home in self._homes]
        for key in self._wanted:
            self.work.add(key)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    def _hear(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is None and change.key in self._wanted:
                self.work.add(change.key)

    async def _look(self, key: str) -> None:
        if self._store.get(key) is None:
            cluster, resource, obj = self._wanted[key]
            await self._inside.request("POST", collection_path(resource, cluster), obj)
