"""Pods of nodes that are not there: nobody else would end them, and their namespaces would stay for ever."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import Final

from farflung.client.errors import Conflict, NotFound
from farflung.controllers.workload.client import Workshop
from farflung.controllers.workload.objects import PODS
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Change, Key
from farflung.runtime.manager import Manager

NAME: Final = "pod-garbage-collector"
PATIENCE: Final = timedelta(seconds=40)  #: that a node may be away; one that was deleted by mistake comes back at once


class PodCollector:
    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._missing: dict[str, datetime] = {}  #: since when, by the name of the node
        self.controller = workshop.controller(NAME, self.reconcile, workers=1)
        workshop.pods.informer.subscribe(self._on_pod)
        workshop.nodes.informer.subscribe(self._on_node)

    def join(self, manager: Manager) -> None:
        self._workshop.join(manager, self.controller)

    def _on_pod(self, change: Change[Obj]) -> None:
        if change.new is not None and self._is_lost(change.new):
            self.controller.queue.add(change.key)

    def _on_node(self, change: Change[Obj]) -> None:
        self._missing.pop(change.key.name, None)
        if change.new is None:
            for key, pod in self._workshop.pods.informer.cache.items():
                if _node(pod) == change.key.name:
                    self.controller.queue.add(key)

    def _is_lost(self, pod: Obj) -> bool:
        name = _node(pod)
        return bool(name) and self._workshop.nodes.get(Key("", "", name)) is None

    async def reconcile(self, key: Key, worker: int) -> float | None:
        pod = self._workshop.pods.get(key)
        if pod is None or not self._is_lost(pod):
            return None
        now = self._workshop.now()
        left = self._missing.setdefault(_node(pod), now) + PATIENCE - now
        if left > timedelta():
            return left.total_seconds()
        with contextlib.suppress(NotFound, Conflict):
            await self._workshop.client.delete(PODS, key.name, key.namespace, uid=pod["metadata"]["uid"], grace=0)
        return None


def _node(pod: Obj) -> str:
    return pod["spec"].get("nodeName") or ""
