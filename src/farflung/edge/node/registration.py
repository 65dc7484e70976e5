"""The Node object of this node, and the sign that it lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import orjson

from farflung.apis.names import LEASES, NODES
from farflung.client.errors import AlreadyExists, ClientError, Conflict, NotFound
from farflung.client.rest import Client, Selection
from farflung.edge.node import machine
from farflung.edge.node.status import alike
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_micros, format_seconds
from farflung.runtime.cache import Key
from farflung.runtime.informer import Informer
from farflung.runtime.reflector import Environment

NAMESPACE: Final = "kube-node-lease"
HEARTBEAT: Final = 10.0  #: seconds
DURATION: Final = 40  #: seconds that a sign of life counts
CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


class Registration:
    """Keeps the Node as it should be, whoever changes or deletes it, and writes only when it is not."""

    def __init__(
        self, client: Client, name: str, directory: Path, runtime: str, env: Environment,
        now: Callable[[], datetime], log: Logger,
    ) -> None:  # fmt: skip
        self._client = client
        self._name = name
        self._runtime = runtime
        self._env = env
        self._now = now
        self._log = log
        self._capacity = machine.capacity(directory)
        self._news = asyncio.Event()
        self._news.set()
        self._lease: Obj | None = None
        selection = Selection(fields=f"metadata.name={name}")
        self.informer: Informer[Obj] = Informer(client, NODES, orjson.loads, env, self._trouble, selection)
        self.informer.subscribe(lambda _: self._news.set())

    @property
    def allocatable(self) -> dict[str, str]:
        return self._capacity

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informer.run())
            group.create_task(self._keep())
            group.create_task(self._beat())

    async def _keep(self) -> None:
        failures = 0
        await self.informer.synced.wait()
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._look(self.informer.cache.get(Key("", "", self._name)))
                failures = 0
            except (Conflict, AlreadyExists, NotFound):
                continue  # its newest form is still to be heard of
            except ClientError as error:
                failures += 1
                self._trouble("cannot register the node", error)
                await self._env.sleep(self._env.backoff.delay(failures, error.retry_after))
                self._news.set()

    async def _look(self, node: Obj | None) -> None:
        wanted = machine.labels(self._name)
        if node is None:
            new = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._name, "labels": wanted}, "spec": {}}
            node = await self._client.create(NODES, new)
        present = node["metadata"].get("labels") or {}
        if not wanted.items() <= present.items():
            node = await self._client.patch(NODES, self._name, {"metadata": {"labels": wanted}})
        status = self._status(node)
        if not alike(status, node.get("status") or {}):
            node = await self._client.update(NODES, {**node, "status": status}, "status")
        self.informer.assume(node)

    def _status(self, node: Obj) -> Obj:
        before = node.get("status") or {}
        conditions = {one["type"]: one for one in before.get("conditions") or ()}
        now = format_seconds(self._now())
        ours = [_dated(condition, conditions.pop(condition[0], None), now) for condition in CONDITIONS]
        return {
            **before,
            "capacity": self._capacity,
            "allocatable": self._capacity,
            "conditions": [*conditions.values(), *ours],
            "addresses": [
                {"type": "InternalIP", "address": machine.ADDRESS},
                {"type": "Hostname", "address": self._name},
            ],
            "nodeInfo": {**(before.get("nodeInfo") or {}), **machine.information(self._runtime)},
        }

    # --- the sign of life -------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            try:
                await self._renew()
            except ClientError as error:
                self._lease = None
                self._trouble("cannot renew the lease of the node", error)
            await self._env.sleep(HEARTBEAT)

    async def _renew(self) -> None:
        moment = format_micros(self._now())
        spec = {"holderIdentity": self._name, "leaseDurationSeconds": DURATION, "renewTime": moment}
        if self._lease is None:
            try:
                self._lease = await self._client.get(LEASES, self._name, NAMESPACE)
            except NotFound:
                new = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
                named = new | {"metadata": {"name": self._name, "namespace": NAMESPACE}}
                self._lease = await self._client.create(LEASES, named, NAMESPACE)
                return
        self._lease = await self._client.patch(LEASES, self._name, {"spec": spec}, NAMESPACE)

    def _trouble(self, what: str, error: Exception) -> None:
        self._log.error(error, what, node=self._name)


def _dated(condition: tuple[str, str, str, str], before: Obj | None, now: str) -> Obj:
    """With the times of before, if it is the same as before."""
    type, status, reason, message = condition
    made = {"type": type, "status": status, "reason": reason, "message": message}
    if before is not None and all(before.get(name) == value for name, value in made.items()):
        return before
    changed = before is None or before.get("status") != status
    since = now if changed or before is None else before.get("lastTransitionTime", now)
    return made | {"lastHeartbeatTime": now, "lastTransitionTime": since}
