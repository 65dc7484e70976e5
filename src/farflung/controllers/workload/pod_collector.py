"""The pod garbage collector: deletes pods whose node does not exist, so that their namespaces can terminate."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import Final

from farflung.apis.names import PODS
from farflung.client.errors import NotFound, UpdateConflict
from farflung.controllers.workload.client import WorkloadClient
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.manager import Manager

NAME: Final = "pod-garbage-collector"
NODE_GRACE: Final = timedelta(seconds=40)  #: a node that was deleted by mistake registers again within this time


class PodCollector:
    def __init__(self, client: WorkloadClient) -> None:
        self._client = client
        self._missing: dict[str, datetime] = {}  #: by node name: since when it is missing
        self.controller = client.controller(NAME, self.reconcile, workers=1)
        client.pods.informer.subscribe(self._on_pod)
        client.nodes.informer.subscribe(self._on_node)

    def join(self, manager: Manager) -> None:
        self._client.join(manager, self.controller)

    def _on_pod(self, change: CacheChange[Obj]) -> None:
        if change.new is not None and self._is_lost(change.new):
            self.controller.queue.add(change.key)

    def _on_node(self, change: CacheChange[Obj]) -> None:
        self._missing.pop(change.key.name, None)
        if change.new is None:
            for key, pod in self._client.pods.informer.cache.items():
                if _node(pod) == change.key.name:
                    self.controller.queue.add(key)

    def _is_lost(self, pod: Obj) -> bool:
        name = _node(pod)
        return bool(name) and self._client.nodes.get(Key("", "", name)) is None

    async def reconcile(self, key: Key, worker: int) -> float | None:
        pod = self._client.pods.get(key)
        if pod is None or not self._is_lost(pod):
            return None
        now = self._client.now()
        left = self._missing.setdefault(_node(pod), now) + NODE_GRACE - now
        if left > timedelta():
            return left.total_seconds()
        with contextlib.suppress(NotFound, UpdateConflict):
            await self._client.api.delete(PODS, key.name, key.namespace, uid=pod["metadata"]["uid"], grace=0)
        return None


def _node(pod: Obj) -> str:
    return pod["spec"].get("nodeName") or ""
