"""The Node object of this machine, and its Lease."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
from pathlib import Path
from typing import Final

import orjson

from farflung.apis.names import LEASES, NODES
from farflung.client.errors import AlreadyExists, ClientError, NotFound, UpdateConflict
from farflung.client.rest import ListOptions
from farflung.edge.node.context import NODE_ADDRESS, NodeConfig
from farflung.edge.node.status import is_same_status
from farflung.lib.version import __version__
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_micros, format_seconds
from farflung.runtime.cache import Key
from farflung.runtime.informer import Informer

NAMESPACE: Final = "kube-node-lease"
HEARTBEAT: Final = 10.0  #: seconds
LEASE_DURATION: Final = 40  #: seconds
CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
KUBELET_VERSION: Final = f"v1.33.0+farflung-{__version__}"
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
MAX_PODS: Final = 110


class Registration:
    """Creates the Node, reverts changes of its labels and status, and renews the Lease."""

    def __init__(self, config: NodeConfig) -> None:
        self.capacity = machine_capacity(config.directory)
        self._client = config.client
        self._name = config.name
        self._runtime = config.runtime.name
        self._env = config.env
        self._now = config.now
        self._log = config.log
        self._changed = asyncio.Event()
        self._changed.set()
        self._lease: Obj | None = None
        selection = ListOptions(fields=f"metadata.name={config.name}")
        self.informer: Informer[Obj] = Informer(
            config.client, NODES, orjson.loads, config.env, self._log_error, selection
        )
        self.informer.subscribe(lambda _: self._changed.set())

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informer.run())
            group.create_task(self._maintain_node())
            group.create_task(self._maintain_lease())

    async def _maintain_node(self) -> None:
        failures = 0
        await self.informer.synced.wait()
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._reconcile(self.informer.cache.get(Key("", "", self._name)))
                failures = 0
            except (UpdateConflict, AlreadyExists, NotFound):
                continue  # the cache is stale; the watch event comes
            except ClientError as error:
                failures += 1
                self._log_error("cannot register the node", error)
                await self._env.sleep(self._env.backoff.delay(failures, error.retry_after))
                self._changed.set()

    async def _reconcile(self, node: Obj | None) -> None:
        wanted = node_labels(self._name)
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
            "capacity": self.capacity,
            "allocatable": self.capacity,
            "conditions": [*conditions.values(), *ours],
            "addresses": [
                {"type": "InternalIP", "address": NODE_ADDRESS},
                {"type": "Hostname", "address": self._name},
            ],
            "nodeInfo": {**(before.get("nodeInfo") or {}), **node_info(self._runtime)},
        }

    # --- lease ------------------------------------------------------------------------------------

    async def _maintain_lease(self) -> None:
        while True:
            try:
                await self._renew()
            except ClientError as error:
                self._lease = None
                self._log_error("cannot renew the lease of the node", error)
            await self._env.sleep(HEARTBEAT)

    async def _renew(self) -> None:
        moment = format_micros(self._now())
        spec = {"holderIdentity": self._name, "leaseDurationSeconds": LEASE_DURATION, "renewTime": moment}
        if self._lease is None:
            try:
                self._lease = await self._client.get(LEASES, self._name, NAMESPACE)
            except NotFound:
                new = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
                lease = new | {"metadata": {"name": self._name, "namespace": NAMESPACE}}
                self._lease = await self._client.create(LEASES, lease, NAMESPACE)
                return
        self._lease = await self._client.patch(LEASES, self._name, {"spec": spec}, NAMESPACE)

    def _log_error(self, what: str, error: Exception) -> None:
        self._log.error(error, what, node=self._name)


def _dated(condition: tuple[str, str, str, str], before: Obj | None, now: str) -> Obj:
    """An unchanged condition keeps its times."""
    type, status, reason, message = condition
    made = {"type": type, "status": status, "reason": reason, "message": message}
    if before is not None and all(before.get(name) == value for name, value in made.items()):
        return before
    changed = before is None or before.get("status") != status
    since = now if changed or before is None else before.get("lastTransitionTime", now)
    return made | {"lastHeartbeatTime": now, "lastTransitionTime": since}


def machine_capacity(directory: Path) -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory // 1024}Ki",
        "ephemeral-storage": f"{shutil.disk_usage(directory).total // 1024}Ki",
        "pods": str(MAX_PODS),
    }


def node_labels(name: str) -> dict[str, str]:
    values = {"hostname": name, "os": "linux", "arch": architecture()}
    return {f"kubernetes.io/{label}": value for label, value in values.items()}


def architecture() -> str:
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


def node_info(runtime: str) -> Obj:
    return {
        "machineID": _read_line("/etc/machine-id"),
        "systemUUID": "",
        "bootID": _read_line("/proc/sys/kernel/random/boot_id"),
        "kernelVersion": platform.release(),
        "osImage": _os_name(),
        "containerRuntimeVersion": runtime,
        "kubeletVersion": KUBELET_VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": architecture(),
    }


def _read_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"
