"""A cluster in this process: a hub with controllers, controllers of workloads by a line that can fail, and a node that
pretends to run pods."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from fleet import FaultyTransport
from house import TOKEN, House
from simulated_time import monotonic, poll, simulated_environment

from farflung.apis.names import DEPLOYMENTS, EVENTS, NODES, PODS, REPLICA_SETS, Collection
from farflung.client.errors import ClientError, NotFound
from farflung.client.rest import Client, ListOptions
from farflung.controllers.workload.client import WorkloadClient
from farflung.controllers.workload.model.objects import is_terminating
from farflung.controllers.workload.model.pods import is_finished
from farflung.edge.workload_controllers import add_workload_controllers
from farflung.lib.ids import random_suffix
from farflung.lib.klog import Logger
from farflung.lib.workqueue import WorkQueue
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.runtime.cache import Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer
from farflung.runtime.manager import Manager
from farflung.runtime.recorder import Recorder

NODE = "edge"


def node(name: str = NODE, *, ready: bool = True, labels: dict[str, str] | None = None, **allocatable: str) -> Obj:
    room = {"cpu": "4", "memory": "8Gi", "pods": "110", **allocatable}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {
            "allocatable": room,
            "capacity": room,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def workload(name: str, image: str = "httpd:1", **spec: Any) -> Obj:
    """A Deployment, ReplicaSet, StatefulSet or DaemonSet; the path of the create decides."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


def behave(pod: Obj) -> str:
    """The state of a pod from its annotation: `ready`, `running`, `succeeded`, `failed` or `pending`."""
    return str((pod["metadata"].get("annotations") or {}).get("test/behaviour", "ready"))


class Kubelet:
    """Sets the status of each pod on the node from its annotation, and deletes terminating pods."""

    def __init__(self, client: Client, now: Callable[[], Any], log: Logger) -> None:
        self._client, self._now = client, now
        self.held = False  #: pods that are deleted stay
        self.pods: Informer[Obj] = Informer(
            client, PODS, orjson.loads, simulated_environment(), lambda what, error: None
        )
        self.controller: Controller[Key] = Controller(
            "kubelet",
            self.reconcile,
            workers=1,
            backoff=simulated_environment().backoff,
            queue=WorkQueue(monotonic),
            log=log,
        )
        self.pods.subscribe(lambda change: self.controller.queue.add(change.key))

    def look_again(self) -> None:
        for key in self.pods.cache:
            self.controller.queue.add(key)

    async def reconcile(self, key: Key, worker: int) -> float | None:
        pod = self.pods.cache.get(key)
        if pod is None or not pod["spec"].get("nodeName"):
            return None
        path = PODS.path(key.namespace, key.name)
        if is_terminating(pod):
            if not self.held:
                body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
                try:
                    await self._client._send("DELETE", path, body=body)
                except NotFound:
                    return None
            return None
        status = self._status(pod, behave(pod))
        if not is_finished(pod) and status != pod["status"]:
            self.pods.assume(await self._client.update(PODS, {**pod, "status": status}, "status"))
        return None

    def _status(self, pod: Obj, wanted: str) -> Obj:
        before: Obj = pod["status"]
        if wanted == "pending":
            return before
        phase = {"succeeded": "Succeeded", "failed": "Failed"}.get(wanted, "Running")
        ready = "True" if wanted == "ready" else "False"
        kept = [one for one in before.get("conditions") or () if one["type"] != "Ready"]
        old = next((one for one in before.get("conditions") or () if one["type"] == "Ready"), None)
        if old is not None and old["status"] == ready:
            return {**before, "phase": phase}
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": format_seconds(self._now())}
        return {**before, "phase": phase, "conditions": [*kept, condition]}


@dataclass
class Cluster:
    house: House
    line: FaultyTransport  #: of the controllers
    kubelet: Kubelet
    client: Client
    log: io.StringIO = field(default_factory=io.StringIO)
    manager: Manager | None = None
    recorder: Recorder | None = None
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    # --- controllers ------------------------------------------------------------------------------

    def start(self) -> None:
        """Controllers that know nothing yet."""
        log = Logger(self.log, 3)
        client = Client(self.line, manager="kube-controller-manager")
        self.manager = Manager(log)
        suffixes = itertools.count()
        self.recorder = Recorder(
            client, "controllers", self.house.clock, monotonic, lambda: f"{id(self)}{next(suffixes):x}", log
        )
        workloads = WorkloadClient(client, simulated_environment(), self.recorder, self.house.clock, random_suffix, log)
        add_workload_controllers(self.manager, workloads)
        self._tasks = [asyncio.create_task(self.manager.run()), asyncio.create_task(self.recorder.run())]

    async def crash(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    # --- objects ----------------------------------------------------------------------------------

    async def create(self, collection: Collection, obj: Obj) -> Obj:
        typed = {"apiVersion": collection.api_version, "kind": collection.kind, **obj}
        return await self.client.create(collection, typed, obj["metadata"].get("namespace", ""))

    async def get(self, collection: Collection, name: str) -> Obj:
        return await self.client.get(collection, name, "default")

    async def patch(self, collection: Collection, name: str, patch: Obj, subresource: str = "") -> Obj:
        return await self.client.patch(collection, name, patch, "default", subresource)

    async def pods(self, labels: str = "") -> list[Obj]:
        return await self.client.list(PODS, ListOptions("default", labels))

    async def replica_sets(self) -> list[Obj]:
        return await self.client.list(REPLICA_SETS, ListOptions("default"))

    async def said(self, reason: str) -> list[str]:
        """The messages of Events, as they came."""
        assert self.recorder is not None
        await self.recorder.flush()
        events = await self.client.list(EVENTS, ListOptions("default"))
        events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [event["message"] for event in events if event["reason"] == reason]

    async def eventually(self, holds: Callable[[], Awaitable[bool]], what: str = "") -> None:
        assert await poll(lambda: self._tried(holds)), f"not in time: {what}\n{self.log.getvalue()[-4000:]}"

    async def _tried(self, holds: Callable[[], Awaitable[bool]]) -> bool:
        try:
            return await holds()
        except (NotFound, KeyError):
            return False

    async def rolled_out(self, name: str) -> None:
        """As `kubectl rollout status` sees it."""

        async def done() -> bool:
            deployment = await self.get(DEPLOYMENTS, name)
            status, spec = deployment.get("status") or {}, deployment["spec"]
            return bool(
                status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
                and status.get("updatedReplicas", 0) == spec["replicas"] == status.get("replicas", 0)
                and status.get("availableReplicas", 0) == spec["replicas"]
            )

        await self.eventually(done, f"rollout of {name}")


@asynccontextmanager
async def cluster(*, nodes: int = 1) -> AsyncIterator[Cluster]:
    async with House() as house:
        client = Client(FaultyTransport(house.hub, TOKEN), manager="test")
        log = Logger(io.StringIO(), 3)
        kubelet = Kubelet(client, house.clock, log)
        one = Cluster(house, FaultyTransport(house.hub, TOKEN), kubelet, client)
        await _furnished(client)
        for number in range(nodes):
            await client.create(NODES, node(NODE if not number else f"{NODE}-{number}"))
        one.start()
        manager = Manager(log)
        manager.add(kubelet.controller, [kubelet.pods])
        running = asyncio.create_task(manager.run())
        try:
            yield one
        finally:
            await one.crash()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _furnished(client: Client) -> None:
    """Wait for the ServiceAccount of the pods."""
    accounts = Collection("", "v1", "serviceaccounts", "ServiceAccount")

    async def is_there() -> bool:
        try:
            await client.get(accounts, "default", "default")
        except ClientError:
            return False
        return True

    assert await poll(is_there), "the ServiceAccount was not created"
