"""What workspaces cost, from outside and over TLS: prints figures and asserts nothing.

    python bench/workspaces.py            about three minutes
    python bench/workspaces.py --quick    a tenth of the workspaces

Beside each figure stands what we aim at, and what is published of kcp.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import orjson
import uvloop
from figures import Figures, allow_many_connections
from generators import Rate, percentile
from http_client import AGGREGATED, PLAIN, Connection, Server, ask, hear, load
from hub_process import HubProcess

T = TypeVar("T")

WHOLE, QUICK = 10_000, 1_000
FIRST = 100  #: workspaces before memory is counted
LOOKED_AT = 100  #: workspaces whose discovery is measured
TREE, CHILDREN = 1_000, 10  #: workspaces in the tree, and in each of them
EVENTS = 200
PARENT = "root:bench"
ALL = "/clusters/%2A"


def workspaces(path: str) -> str:
    return f"/clusters/{path}/apis/tenancy.kcp.io/v1alpha1/workspaces"


def creation(path: str, name: str, kind: str = "universal") -> tuple[str, str, bytes]:
    body = {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "Workspace",
        "metadata": {"name": name},
        "spec": {"type": {"name": kind, "path": "root"}},
    }
    return "POST", workspaces(path), orjson.dumps(body)


def tree() -> Iterator[tuple[str, str]]:
    """(path of the parent, name) of each workspace, parents first."""
    paths: list[str] = []
    for number in range(TREE):
        parent = paths[(number - 1) // CHILDREN] if number else "root"
        yield parent, f"tree-{number}"
        paths.append(f"{parent}:tree-{number}")


async def gone(server: Server, path: str, is_gone: Callable[[int, bytes], bool]) -> float:
    """Delete, and say after how many seconds nothing was there."""
    connection = await Connection.open(server)
    try:
        started = time.perf_counter()
        status, answer = await connection.request("DELETE", path)
        if status > 299:
            raise SystemExit(f"DELETE {path} was answered with {status}: {answer[:200]!r}")
        while not is_gone(*await connection.request("GET", f"{path}?limit=1")):
            await asyncio.sleep(0.1)
        return time.perf_counter() - started
    finally:
        connection.close()


async def discover(server: Server, path: str, accept: str) -> float:
    """Seconds until a client knows all kinds of a workspace."""
    connection = await Connection.open(server)
    try:
        started = time.perf_counter()
        await connection.read(f"/clusters/{path}/api", accept)
        found = orjson.loads(await connection.read(f"/clusters/{path}/apis", accept))
        if accept == PLAIN:
            groups = [version["groupVersion"] for group in found["groups"] for version in group["versions"]]
            for one in ("/api/v1", *(f"/apis/{group}" for group in groups)):
                await connection.read(f"/clusters/{path}{one}")
        return time.perf_counter() - started
    finally:
        connection.close()


class Bench:
    """One hub.  The steps build on each other: what one makes, the next looks at."""

    def __init__(self, directory: Path, count: int, figures: Figures) -> None:
        self._directory = directory
        self._count = count
        self._figures = figures
        self._names = [f"ws-{number:05}" for number in range(count + FIRST)]
        self._hub = self._started("start to ready, new directory")

    def run(self) -> None:
        try:
            self._creates()
            self._discovery()
            self._wildcard()
            self._restart()
            self._tree()
            self._end()
        finally:
            self._hub.stop()

    @property
    def _server(self) -> Server:
        return Server(self._hub.url, self._hub.token, self._hub.certificate_authority)

    def _started(self, figure: str, port: int = 0) -> HubProcess:
        hub = HubProcess(self._directory / "hub", "start", "--no-controllers", port=port)
        self._figures.compare(figure, f"{hub.seconds_to_ready:.2f} s", "", "", f"{hub.cpu_seconds():.2f} s CPU")
        return hub

    def _cpu_of(self, work: Callable[[], T]) -> tuple[T, float]:
        """(the result, CPU seconds of the hub)."""
        before = self._hub.cpu_seconds()
        result = work()
        return result, self._hub.cpu_seconds() - before

    def _create(self, names: list[str], connections: int) -> Rate:
        requests = [creation(PARENT, name) for name in names]
        seconds, delays = uvloop.run(load(self._server, connections, requests))
        return Rate(len(delays) / seconds, percentile(delays, 50), percentile(delays, 99))

    def _creates(self) -> None:
        uvloop.run(load(self._server, 1, [creation("root", "bench", "organization")]))
        names = iter(self._names)
        self._create([next(names) for _ in range(FIRST)], 16)
        before = self._hub.resident_megabytes()
        some = self._count // 10
        for connections, count in ((1, some), (16, some * 3), (64, self._count - some * 4)):
            part = [next(names) for _ in range(count)]
            rate, cpu = self._cpu_of(partial(self._create, part, connections))
            self._figures.compare(
                f"workspaces created, connections: {connections}",
                f"{rate.per_second:,.0f}/s",
                ">= 300/s",
                "8/s",
                f"{cpu / count * 1e3:.2f} ms CPU each, p50 {rate.p50:.1f} ms, p99 {rate.p99:.1f} ms",
            )
        grown = (self._hub.resident_megabytes() - before) * 1024 / self._count
        remark = f"of {self._count:,}; {self._hub.resident_megabytes():.0f} MB in all"
        self._figures.compare("memory of an idle workspace", f"{grown:.1f} KiB", "<= 40 KiB", "7.4-9.8 MiB", remark)

    def _discovery(self) -> None:
        paths = [f"{PARENT}:{name}" for name in self._names[:LOOKED_AT]]
        for how, accept, part in (("aggregated", AGGREGATED, paths[::2]), ("legacy", PLAIN, paths[1::2])):
            for when in ("first", "again"):
                times = sorted(uvloop.run(discover(self._server, path, accept)) for path in part)
                shown = f"{percentile(times, 50):.1f} / {percentile(times, 99):.1f} ms"
                self._figures.compare(f"discovery {how}, {when}, p50 / p99", shown)

    def _wildcard(self) -> None:
        namespaces = f"{ALL}/api/v1/namespaces"
        listed, cpu = self._cpu_of(lambda: uvloop.run(self._timed_list(namespaces)))
        self._figures.compare(
            f"list of a namespace of each of {self._count:,}", f"{listed * 1e3:.0f} ms", "", "", f"{cpu:.2f} s CPU"
        )
        writes = [
            (f"/clusters/{PARENT}:{name}/api/v1/namespaces/default/configmaps", configmap(number))
            for number, name in enumerate(self._names[:EVENTS])
        ]
        watch = f"{ALL}/api/v1/configmaps?watch=1&timeoutSeconds=600&resourceVersion={uvloop.run(self._revision())}"
        heard = uvloop.run(hear(self._server, [watch], 1, writes, self._hub.cpu_seconds))
        self._figures.compare(
            "watch of all workspaces, delay p50 / p99",
            f"{percentile(heard.delays, 50):.1f} / {percentile(heard.delays, 99):.1f} ms",
        )

    async def _timed_list(self, path: str) -> float:
        """Seconds until the whole list is here."""
        started = time.perf_counter()
        status, answer = await ask(self._server, "GET", path)
        seconds = time.perf_counter() - started
        found = len(orjson.loads(answer)["items"]) if status == 200 else 0
        if found < self._count:
            raise SystemExit(f"GET {path} was answered with {status} and {found} objects")
        return seconds

    async def _revision(self) -> str:
        _, answer = await ask(self._server, "GET", f"{ALL}/api/v1/configmaps?limit=1")
        revision: str = orjson.loads(answer)["metadata"]["resourceVersion"]
        return revision

    def _restart(self) -> None:
        """At the same address, because exports tell theirs."""
        port = urlsplit(self._hub.url).port or 0
        self._hub.stop()
        self._hub = self._started(f"restart with {self._count:,} workspaces", port)

    def _tree(self) -> None:
        uvloop.run(load(self._server, 1, [creation(parent, name) for parent, name in tree()]))
        path = f"{workspaces('root')}/tree-0"
        seconds, cpu = self._cpu_of(lambda: uvloop.run(gone(self._server, path, lambda status, _: status == 404)))
        self._figures.compare(f"end of a tree of {TREE:,} workspaces", f"{seconds:.1f} s", "", "", f"{cpu:.1f} s CPU")

    def _end(self) -> None:
        def is_empty(_: int, answer: bytes) -> bool:
            return not orjson.loads(answer)["items"]

        path = workspaces(PARENT)
        seconds, cpu = self._cpu_of(lambda: uvloop.run(gone(self._server, path, is_empty)))
        self._figures.compare(
            f"end of {len(self._names):,} workspaces, side by side",
            f"{seconds:.1f} s",
            "< 60 s",
            "an hour",
            f"{cpu:.1f} s CPU",
        )


def configmap(number: int) -> bytes:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"event-{number:06}"}, "data": {"a": "b"}}
    return orjson.dumps(body)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--quick", action="store_true", help="a tenth of the workspaces")
    count = QUICK if arguments.parse_args().quick else WHOLE
    allow_many_connections()
    figures = Figures()
    figures.begin("aim", "kcp")
    with tempfile.TemporaryDirectory(prefix="farflung-bench-") as directory:
        started = time.perf_counter()
        Bench(Path(directory), count, figures).run()
        print(f"-- took {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
