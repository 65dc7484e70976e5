"""The scheduler of pods: one queue with one key, because every decision depends on the ones before it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from farflung.client.errors import ClientError, Conflict, NotFound, Refused
from farflung.controllers.workload.client import Workshop
from farflung.controllers.workload.objects import PODS, found, put
from farflung.controllers.workload.pod_scheduler.decide import (
    SCHEDULER,
    Room,
    choose,
    claim_names,
    is_waiting,
    order,
    rooms,
    wrong_claims,
)
from farflung.controllers.workload.pod_scheduler.triggers import is_other_claim, is_other_node, makes_room, wants_other
from farflung.controllers.workload.steps import NORMAL, WARNING, Said, Step, update_status
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.runtime.cache import Change, Key
from farflung.runtime.manager import Manager

EVERYTHING: Final = Key("", "", "pods")
SCHEDULED: Final = "PodScheduled"
PAUSE: Final = 1.0  #: seconds before pods are looked at again that changed meanwhile


class PodScheduler:
    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._waiting: dict[Key, None] = {}  #: pods to look at
        self._unfit: dict[Key, None] = {}  #: pods that no node fitted, until something changes that may help
        self._bound: dict[Key, str] = {}  #: pods that we gave a node, until that is heard of
        self._unsure: list[Obj] = []  #: pods that we may have given a node
        self._news = 0  #: changes that may help
        self.controller = workshop.controller(SCHEDULER, self.reconcile, workers=1)
        workshop.pods.informer.subscribe(self._on_pod)
        workshop.nodes.informer.subscribe(lambda change: self._retry() if is_other_node(change) else None)
        workshop.claims.informer.subscribe(lambda change: self._retry() if is_other_claim(change) else None)

    def join(self, manager: Manager) -> None:
        self._workshop.join(manager, self.controller)

    def _on_pod(self, change: Change[Obj]) -> None:
        placed = change.key in self._bound
        if change.new is None or not is_waiting(change.new):
            self._forget(change.key)
        elif wants_other(change):
            self._forget(change.key)
            self._waiting[change.key] = None
            self.controller.queue.add(EVERYTHING)
        if makes_room(change) or (placed and change.new is None):
            self._retry()

    def _forget(self, key: Key) -> None:
        self._waiting.pop(key, None)
        self._unfit.pop(key, None)
        self._bound.pop(key, None)

    def _retry(self) -> None:
        self._news += 1
        if self._unfit:
            self._waiting |= self._unfit
            self._unfit.clear()
            self.controller.queue.add(EVERYTHING)

    async def reconcile(self, key: Key, worker: int) -> float | None:
        """Looks at those that wait, in their order."""
        pods, news = self._workshop.pods, self._news
        await self._settle()
        waiting = [(order(pod), key, pod) for key in self._waiting if (pod := pods.get(key)) is not None]
        space = rooms(self._workshop.nodes.all(), self._placed()) if waiting else []
        for _, key, pod in sorted(waiting, key=lambda one: one[:2]):
            try:
                await self._schedule(key, pod, space, news)
            except (NotFound, Conflict):
                continue  # it is another one by now, which is heard of
        return PAUSE if self._waiting else None

    def _placed(self) -> Iterator[Obj]:
        """All pods, with the nodes that we gave them."""
        for key, pod in self._workshop.pods.informer.cache.items():
            node = self._bound.get(key)
            yield pod if node is None else {**pod, "spec": {**pod["spec"], "nodeName": node}}

    async def _settle(self) -> None:
        """Find out whether pods have nodes for which no answer came."""
        while self._unsure:
            metadata = self._unsure[0]["metadata"]
            with contextlib.suppress(NotFound):
                pod = await self._workshop.client.get(PODS, metadata["name"], metadata["namespace"])
                self._workshop.pods.informer.assume(pod)
            self._unsure.pop(0)

    async def _schedule(self, key: Key, pod: Obj, space: list[Room], news: int) -> None:
        names = claim_names(pod)
        wrong = wrong_claims(names, self._claims(pod["metadata"]["namespace"])) if names else ""
        choice = choose(pod, space, wrong)
        if choice.node:
            await self._bind(key, pod, choice.node)
            next(room for room in space if room.name == choice.node).take(pod)
        elif news == self._news:
            self._unfit[key] = None
            self._waiting.pop(key, None)
            await self._refuse(key, pod, choice.why)
        else:
            self.controller.queue.add(EVERYTHING)  # what this is based on is no longer so

    def _claims(self, namespace: str) -> dict[str, str]:
        claims = (one for one in self._workshop.claims.all() if one["metadata"]["namespace"] == namespace)
        return {one["metadata"]["name"]: (one.get("status") or {}).get("phase") or "" for one in claims}

    async def _bind(self, key: Key, pod: Obj, node: str) -> None:
        workshop, metadata = self._workshop, pod["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await workshop.client.create(PODS, binding, namespace, "binding")
        except Refused:
            raise
        except ClientError:
            self._unsure.append(pod)
            raise
        if key in self._waiting:
            del self._waiting[key]
            self._bound[key] = node
        message = f"Successfully assigned {namespace}/{name} to {node}"
        workshop.say(SCHEDULER, pod, PODS, Said(NORMAL, "Scheduled", message))

    async def _refuse(self, key: Key, pod: Obj, why: str) -> None:
        """Said once, not each time."""
        status: Obj = pod.get("status") or {}
        before = found(status, SCHEDULED)
        if before is not None and before.get("message") == why and before.get("status") == "False":
            return
        said = {
            "type": SCHEDULED,
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": format_seconds(self._workshop.now()),
            "reason": "Unschedulable",
            "message": why,
        }
        conditions = [one for one in status.get("conditions") or () if one.get("type") != SCHEDULED]
        if before is not None and before.get("status") == "False":
            said["lastTransitionTime"] = before.get("lastTransitionTime", said["lastTransitionTime"])
        failed = Said(WARNING, "FailedScheduling", why)
        changed = {**status, "conditions": put(conditions, said)}
        try:
            await self._workshop.perform(SCHEDULER, pod, PODS, [Step(update_status(PODS, pod, changed), failed)])
        except ClientError:
            self._waiting[key] = None
            raise
