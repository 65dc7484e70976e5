"""Wiring and loop of the pod scheduler: one key for all pods, because each decision depends on the previous ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from farflung.apis.names import POD_SCHEDULED, PODS
from farflung.client.errors import ClientError, NotFound, Refused, UpdateConflict
from farflung.controllers.workload.client import WorkloadClient
from farflung.controllers.workload.model.node_fitness import changes_node
from farflung.controllers.workload.model.objects import find_condition, set_condition
from farflung.controllers.workload.model.steps import NORMAL, WARNING, EventText, WriteStep, update_status
from farflung.controllers.workload.pod_scheduler.decide import (
    SCHEDULER,
    NodeInfo,
    choose,
    claim_names,
    find_claim_problem,
    is_waiting,
    node_infos,
    queue_order,
)
from farflung.controllers.workload.pod_scheduler.triggers import changes_claim_phase, frees_resources, needs_scheduling
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.manager import Manager

ALL_PODS: Final = Key("", "", "pods")
PAUSE: Final = 1.0  #: seconds before pods that changed meanwhile are retried


class PodScheduler:
    def __init__(self, client: WorkloadClient) -> None:
        self._client = client
        self._waiting: dict[Key, None] = {}  #: pods to schedule
        self._unschedulable: dict[Key, None] = {}  #: pods that fit no node, until a change may help
        self._bound: dict[Key, str] = {}  #: bound pods, until the watch confirms it
        self._unknown: list[Obj] = []  #: pods whose Binding has an unknown outcome
        self._changes = 0  #: changes that may help
        self.controller = client.controller(SCHEDULER, self.reconcile, workers=1)
        client.pods.informer.subscribe(self._on_pod)
        client.nodes.informer.subscribe(lambda change: self._retry_unschedulable() if changes_node(change) else None)
        client.claims.informer.subscribe(
            lambda change: self._retry_unschedulable() if changes_claim_phase(change) else None
        )

    def join(self, manager: Manager) -> None:
        self._client.join(manager, self.controller)

    def _on_pod(self, change: CacheChange[Obj]) -> None:
        placed = change.key in self._bound
        if change.new is None or not is_waiting(change.new):
            self._forget(change.key)
        elif needs_scheduling(change):
            self._forget(change.key)
            self._waiting[change.key] = None
            self.controller.queue.add(ALL_PODS)
        if frees_resources(change) or (placed and change.new is None):
            self._retry_unschedulable()

    def _forget(self, key: Key) -> None:
        self._waiting.pop(key, None)
        self._unschedulable.pop(key, None)
        self._bound.pop(key, None)

    def _retry_unschedulable(self) -> None:
        self._changes += 1
        if self._unschedulable:
            self._waiting |= self._unschedulable
            self._unschedulable.clear()
            self.controller.queue.add(ALL_PODS)

    async def reconcile(self, key: Key, worker: int) -> float | None:
        """Schedule the waiting pods in queue order."""
        pods, changes = self._client.pods, self._changes
        await self._resolve_unknown_bindings()
        waiting = [(queue_order(pod), key, pod) for key in self._waiting if (pod := pods.get(key)) is not None]
        nodes = node_infos(self._client.nodes.all(), self._placed()) if waiting else []
        for _, key, pod in sorted(waiting, key=lambda one: one[:2]):
            try:
                await self._schedule(key, pod, nodes, changes)
            except (NotFound, UpdateConflict):
                continue  # the pod was replaced or changed; its watch event queues it
        return PAUSE if self._waiting else None

    def _placed(self) -> Iterator[Obj]:
        """All pods, with assumed nodes."""
        for key, pod in self._client.pods.informer.cache.items():
            node = self._bound.get(key)
            yield pod if node is None else {**pod, "spec": {**pod["spec"], "nodeName": node}}

    async def _resolve_unknown_bindings(self) -> None:
        """Get the pods whose Binding has an unknown outcome."""
        while self._unknown:
            metadata = self._unknown[0]["metadata"]
            with contextlib.suppress(NotFound):
                pod = await self._client.api.get(PODS, metadata["name"], metadata["namespace"])
                self._client.pods.informer.assume(pod)
            self._unknown.pop(0)

    async def _schedule(self, key: Key, pod: Obj, nodes: list[NodeInfo], changes: int) -> None:
        names = claim_names(pod)
        wrong = find_claim_problem(names, self._claims(pod["metadata"]["namespace"])) if names else ""
        choice = choose(pod, nodes, wrong)
        if choice.node:
            await self._bind(key, pod, choice.node)
            next(info for info in nodes if info.name == choice.node).take(pod)
        elif changes == self._changes:
            self._unschedulable[key] = None
            self._waiting.pop(key, None)
            await self._report_unschedulable(key, pod, choice.why)
        else:
            self.controller.queue.add(ALL_PODS)  # the nodes or pods changed meanwhile

    def _claims(self, namespace: str) -> dict[str, str]:
        claims = (one for one in self._client.claims.all() if one["metadata"]["namespace"] == namespace)
        return {one["metadata"]["name"]: (one.get("status") or {}).get("phase") or "" for one in claims}

    async def _bind(self, key: Key, pod: Obj, node: str) -> None:
        client, metadata = self._client, pod["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await client.api.create(PODS, binding, namespace, "binding")
        except Refused:
            raise
        except ClientError:
            self._unknown.append(pod)
            raise
        if key in self._waiting:
            del self._waiting[key]
            self._bound[key] = node
        message = f"Successfully assigned {namespace}/{name} to {node}"
        client.record_event(SCHEDULER, pod, PODS, EventText(NORMAL, "Scheduled", message))

    async def _report_unschedulable(self, key: Key, pod: Obj, why: str) -> None:
        """Write the condition and the Event only if the message is new."""
        status: Obj = pod.get("status") or {}
        before = find_condition(status, POD_SCHEDULED)
        if before is not None and before.get("message") == why and before.get("status") == "False":
            return
        condition = {
            "type": POD_SCHEDULED,
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": format_seconds(self._client.now()),
            "reason": "Unschedulable",
            "message": why,
        }
        conditions = [one for one in status.get("conditions") or () if one.get("type") != POD_SCHEDULED]
        if before is not None and before.get("status") == "False":
            condition["lastTransitionTime"] = before.get("lastTransitionTime", condition["lastTransitionTime"])
        failed = EventText(WARNING, "FailedScheduling", why)
        changed = {**status, "conditions": set_condition(conditions, condition)}
        try:
            await self._client.perform(SCHEDULER, pod, PODS, [WriteStep(update_status(PODS, pod, changed), failed)])
        except ClientError:
            self._waiting[key] = None
            raise
