"""CPU time of the hub per create and per get, of this checkout and of another one: prints figures and asserts nothing.

    python bench/create_cpu.py                       this checkout alone
    python bench/create_cpu.py --against ../other    and the ratio to another checkout with its own .venv

Both hubs run at the same time and get their load in turns of a few hundred requests, so that other programs on the
machine disturb both alike.  CPU time is that of the hub process (/proc/PID/stat).
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson
import uvloop
from generators import configmap
from http_client import Connection, Server
from hub_process import HubProcess

HERE = Path(__file__).resolve().parent.parent
CONNECTIONS = 64
WARM_UP = 500  #: creates before anything is measured
TURN = 500  #: creates, and then gets, of one hub before it is the other's turn


def deployment(name: str) -> bytes:
    labels = {"app": name}
    container = {
        "name": "web",
        "image": "nginx:1.27",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "MODE", "value": "fast"}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    return orjson.dumps(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels}, "spec": spec}
    )


@dataclass(frozen=True)
class Load:
    name: str
    command: tuple[str, ...]  #: of `farflung`
    collection: str  #: the API path without a namespace
    plural: str
    body: Callable[[str], bytes]  #: of an object with this name
    cluster: str = ""  #: the path of the workspace

    @property
    def prefix(self) -> str:
        return f"/clusters/{self.cluster}" if self.cluster else ""

    def path(self, namespace: str) -> str:
        return f"{self.prefix}{self.collection}/namespaces/{namespace}/{self.plural}"


WORKSPACES = ("start", "--no-controllers")
LOADS = (
    Load("ConfigMap", ("hub",), "/api/v1", "configmaps", configmap),
    Load("Deployment", ("hub",), "/apis/apps/v1", "deployments", deployment),
    Load("ConfigMap, workspace", WORKSPACES, "/api/v1", "configmaps", configmap, "root:bench"),
    Load("Deployment, workspace", WORKSPACES, "/apis/apps/v1", "deployments", deployment, "root:bench"),
)


@dataclass
class Cost:
    """CPU seconds of a hub."""

    creates: float = 0
    gets: float = 0


class Subject:
    """A hub of one checkout under one load."""

    def __init__(self, checkout: Path, load: Load, directory: Path) -> None:
        self.checkout = checkout
        self.cost = Cost()
        self._load = load
        self._hub = HubProcess(directory / "hub", *load.command, executable=checkout / ".venv/bin/farflung")
        self._server = Server(self._hub.url, self._hub.token, self._hub.certificate_authority)
        self._connections: list[Connection] = []

    async def prepare(self) -> None:
        load = self._load
        self._connections = [await Connection.open(self._server) for _ in range(CONNECTIONS)]
        connection = self._connections[0]
        if load.cluster:
            await create_workspace(connection, load)
        await must(connection, "POST", f"{load.prefix}/api/v1/namespaces", b'{"metadata":{"name":"bench"}}')
        await self.run([f"w-{number:06}" for number in range(WARM_UP)])
        self.cost = Cost()

    async def run(self, names: list[str]) -> None:
        """Create objects, get each of them, and add up what it cost."""
        path = self._load.path("bench")
        self.cost.creates += await self._cpu([("POST", path, self._load.body(name)) for name in names])
        self.cost.gets += await self._cpu([("GET", f"{path}/{name}", b"") for name in names] * 4) / 4

    async def _cpu(self, requests: list[tuple[str, str, bytes]]) -> float:
        waiting = iter(requests)

        async def work(connection: Connection) -> None:
            for method, path, body in waiting:
                await must(connection, method, path, body)

        before = self._hub.cpu_seconds()
        await asyncio.gather(*map(work, self._connections))
        return self._hub.cpu_seconds() - before

    def stop(self) -> None:
        self._hub.stop()


async def measure(subjects: list[Subject], count: int) -> None:
    for subject in subjects:
        await subject.prepare()
    for start in range(0, count, TURN):
        names = [f"x-{number:06}" for number in range(start, min(start + TURN, count))]
        for subject in subjects:
            await subject.run(names)


async def create_workspace(connection: Connection, load: Load) -> None:
    """One that serves Deployments, too."""
    parent, _, name = load.cluster.rpartition(":")
    workspace = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}
    path = f"/clusters/{parent}/apis/tenancy.kcp.io/v1alpha1/workspaces"
    await must(connection, "POST", path, orjson.dumps(workspace))
    await until(connection, f"{path}/{name}", "Ready")
    binding = {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIBinding",
        "metadata": {"name": "kubernetes"},
        "spec": {"reference": {"export": {"path": "root:compute", "name": "kubernetes"}}},
    }
    path = f"{load.prefix}/apis/apis.kcp.io/v1alpha1/apibindings"
    await must(connection, "POST", path, orjson.dumps(binding))
    await until(connection, f"{path}/kubernetes", "Bound")


async def must(connection: Connection, method: str, path: str, body: bytes = b"") -> bytes:
    status, answer = await connection.request(method, path, body)
    if status > 299:
        raise SystemExit(f"{method} {path} was answered with {status}: {answer[:200]!r}")
    return answer


async def until(connection: Connection, path: str, phase: str) -> None:
    while orjson.loads(await must(connection, "GET", path)).get("status", {}).get("phase") != phase:
        await asyncio.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", type=Path, help="another checkout, with its .venv")
    parser.add_argument("--count", type=int, default=8_000, help="creates")
    parser.add_argument("--load", action="append", choices=[load.name for load in LOADS], help="default: all")
    arguments = parser.parse_args()
    checkouts = [HERE, *([arguments.against.resolve()] if arguments.against else [])]
    print(f"{'load':<24}{'create µs':>12}{'get µs':>10}   of {arguments.count:,} creates and gets")
    for one in LOADS:
        if not arguments.load or one.name in arguments.load:
            compare(one, checkouts, arguments.count)


def compare(load: Load, checkouts: list[Path], count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="farflung-bench-") as directory:
        subjects: list[Subject] = []
        try:
            for number, checkout in enumerate(checkouts):
                own = Path(directory) / str(number)
                own.mkdir()
                subjects.append(Subject(checkout, load, own))
            uvloop.run(measure(subjects, count))
        finally:
            for subject in subjects:
                subject.stop()
    for subject in subjects:
        creates, gets = subject.cost.creates / count * 1e6, subject.cost.gets / count * 1e6
        print(f"{load.name:<24}{creates:>12.0f}{gets:>10.0f}   {subject.checkout}", flush=True)
    if len(subjects) > 1:
        ours, others = (subject.cost for subject in subjects)
        print(f"{'  ratio':<24}{ours.creates / others.creates:>12.2f}{ours.gets / others.gets:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
