"""A node agent with the process runtime and a hub in this process; its clock runs 50 times faster."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hub_harness import ADMIN_TOKEN, LocalHub
from local_transport import LocalTransport
from memory_store import MemoryStore

from farflung.client.rest import Client
from farflung.edge.node.agent import NodeAgent
from farflung.edge.node.context import NodeConfig
from farflung.edge.runtimes.base import Address
from farflung.edge.runtimes.process import ProcessRuntime
from farflung.hub.catalog import objects
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.environment import Environment
from farflung.runtime.recorder import Recorder

FASTER = 50  #: seconds of the clock in one real second
EPOCH = datetime(2026, 11, 16, 6, 30, tzinfo=UTC)
BEGAN = time.monotonic()
PODS = "/api/v1/namespaces/default/pods"


def monotonic() -> float:
    return (time.monotonic() - BEGAN) * FASTER


def now() -> datetime:
    return EPOCH + timedelta(seconds=monotonic())


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds / FASTER)


class MovingHub(LocalHub):
    """A hub with the clock of the node."""

    @property
    def now(self) -> datetime:
        return now()

    @now.setter
    def now(self, _: datetime) -> None:
        """Ignored."""


@dataclass
class FakePublisher:
    """Records published ports; some ports are taken."""

    taken: set[int] = field(default_factory=set)
    published: dict[tuple[str, int, str], Address] = field(default_factory=dict)

    async def publish(self, pod_uid: str, node_port: int, protocol: str, to: Address) -> None:
        if node_port in self.taken:
            raise OSError(98, "Address already in use")
        self.published[pod_uid, node_port, protocol] = to

    async def withdraw(self, pod_uid: str) -> None:
        for key in [key for key in self.published if key[0] == pod_uid]:
            del self.published[key]

    @property
    def numbers(self) -> dict[int, Address]:
        return {number: address for (_, number, _), address in self.published.items()}


class NodeHarness:
    """A hub with one node, `florin`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hub = MovingHub(MemoryStore(stamp=objects.stamp))
        self.transport = LocalTransport(self.hub.function, ADMIN_TOKEN)
        self.client = Client(self.transport, manager="kubelet")
        self.ports = FakePublisher()
        self.lines = io.StringIO()
        self._suffixes = iter(range(1_000_000))

    async def create_defaults(self) -> None:
        for name in ("default", "kube-node-lease"):
            await self.hub.create("/api/v1/namespaces", {"metadata": {"name": name}})
        await self.hub.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        await self.hub.config_map("kube-root-ca.crt", None, **{"ca.crt": "certificate"})

    @asynccontextmanager
    async def node(self, *, commands: bool = True, first: float = 1.0, longest: float = 10.0) -> AsyncIterator[None]:
        """`first`, `longest`: seconds between retries."""
        backoff = Backoff(first=first, longest=longest, random=lambda: 0.5)
        env = Environment(monotonic, sleep, lambda: 0.5, backoff)
        log = Logger(self.lines)
        recorder = Recorder(self.client, "kubelet", now, monotonic, lambda: f"{next(self._suffixes):x}", log)
        runtime = ProcessRuntime(self.directory / "containers", now, commands=commands, search="/nowhere")
        agent = NodeAgent(
            NodeConfig(self.client, "florin", self.directory, runtime, self.ports, env, recorder, now, log)
        )
        running, recording = asyncio.create_task(agent.run()), asyncio.create_task(recorder.run())
        try:
            yield
        finally:
            running.cancel()
            recording.cancel()
            done = await asyncio.gather(running, recording, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in done), done

    # --- pods -------------------------------------------------------------------------------------

    async def pod(self, name: str, *, metadata: Obj | None = None, **spec: Any) -> Obj:
        """Create a pod that is bound to the node."""
        whole = {"nodeName": "florin", "terminationGracePeriodSeconds": 2, **spec}
        return await self.hub.create(PODS, {"metadata": {"name": name, **(metadata or {})}, "spec": whole})

    async def get(self, name: str) -> Obj | None:
        answer = await self.hub.get(f"{PODS}/{name}")
        return answer.json if answer.status == 200 else None

    async def until(self, name: str, true: Callable[[Obj], object]) -> Obj:
        """Wait until a predicate holds for the pod."""
        pod = None
        try:
            async with asyncio.timeout(60):
                while True:
                    pod = await self.get(name)
                    if pod is not None and true(pod):
                        return pod
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{pod}\n{self.lines.getvalue()}\n{await self.events(name)}") from None

    async def phase(self, name: str, phase: str) -> Obj:
        return await self.until(name, lambda pod: pod["status"].get("phase") == phase)

    async def ready(self, name: str) -> Obj:
        return await self.until(name, lambda pod: condition(pod, "Ready").get("status") == "True")

    async def gone(self, name: str) -> None:
        async with asyncio.timeout(60):
            while await self.get(name) is not None:
                await asyncio.sleep(0.01)

    async def events(self, name: str) -> list[tuple[str, str, str]]:
        found = (await self.hub.get("/api/v1/namespaces/default/events")).json["items"]
        about = [event for event in found if event["involvedObject"]["name"] == name]
        return [(event["type"], event["reason"], event["message"]) for event in about]

    async def event(self, name: str, reason: str) -> str:
        """Wait for an Event with this reason, and return its message."""
        async with asyncio.timeout(60):
            while True:
                for _, found, message in await self.events(name):
                    if found == reason:
                        return message
                await asyncio.sleep(0.01)

    def log(self, pod: Obj, container: str = "main", attempt: int = 0) -> list[str]:
        """The lines that the container printed."""
        path = self.directory / "pods" / pod["metadata"]["uid"] / "logs" / container / f"{attempt}.log"
        return [line.split(" ", 3)[3] for line in path.read_text().splitlines()] if path.exists() else []

    def files(self, pod: Obj, volume: str) -> Path:
        uid: str = pod["metadata"]["uid"]
        return self.directory / "pods" / uid / "volumes" / volume


def shell(script: str, name: str = "main", **more: Any) -> Obj:
    """A container that runs a script."""
    return {"name": name, "image": "busybox", "command": ["/bin/sh", "-c", script], **more}


def condition(pod: Obj, type: str) -> Obj:
    return next((one for one in pod["status"].get("conditions") or () if one["type"] == type), {})


def state(pod: Obj, name: str = "main", member: str = "containerStatuses") -> Obj:
    """`{waiting|running|terminated: …}`"""
    found = [one for one in pod["status"].get(member) or () if one["name"] == name]
    return found[0]["state"] if found else {}


def status(pod: Obj, name: str = "main", member: str = "containerStatuses") -> Obj:
    return next((one for one in pod["status"].get(member) or () if one["name"] == name), {})
