"""The Node object of this node, and the sign that it lives."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import orjson

from farflung import __version__
from farflung.apis.names import Collection
from farflung.client.errors import AlreadyExists, ClientError, Conflict, NotFound
from farflung.client.rest import Client, Selection
from farflung.edge.node import registration
from farflung.edge.node.status import is_same_status
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
VERSION: Final = f"v1.33.0+farflung-{__version__}"  #: of what we act like
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
MOST_PODS: Final = 110
ADDRESS: Final = "127.0.0.1"  #: of the node and of its pods: what they listen on is for this machine


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
        self._capacity = registration.capacity(directory)
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
        wanted = registration.labels(self._name)
        if node is None:
            new = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._name, "labels": wanted}, "spec": {}}
            node = await self._client.create(NODES, new)
        present = node["metadata"].get("labels") or {}
        if not wanted.items() <= present.items():
            node = await self._client.patch(NODES, self._name, {"metadata": {"labels": wanted}})
        status = self._status(node)
        if not is_same_status(status, node.get("status") or {}):
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
                {"type": "InternalIP", "address": registration.ADDRESS},
                {"type": "Hostname", "address": self._name},
            ],
            "nodeInfo": {**(before.get("nodeInfo") or {}), **registration.information(self._runtime)},
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


def capacity(directory: Path) -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory // 1024}Ki",
        "ephemeral-storage": f"{shutil.disk_usage(directory).total // 1024}Ki",
        "pods": str(MOST_PODS),
    }


def labels(name: str) -> dict[str, str]:
    said = {"hostname": name, "os": "linux", "arch": architecture()}
    return {f"kubernetes.io/{label}": value for label, value in said.items()}


def architecture() -> str:
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


def information(runtime: str) -> Obj:
    return {
        "machineID": _line("/etc/machine-id"),
        "systemUUID": "",
        "bootID": _line("/proc/sys/kernel/random/boot_id"),
        "kernelVersion": platform.release(),
        "osImage": _system(),
        "containerRuntimeVersion": runtime,
        "kubeletVersion": VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": architecture(),
    }


def _line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"
