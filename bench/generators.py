"""Load generators: kbench, a small Go program, or a client in Python where there is no Go toolchain.

A client in Python takes as much CPU as the hub, on the same cores: rates measured with it are those of the client.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson
import uvloop
from http_client import Server, ask, load

SOURCE = Path(__file__).parent / "kbench/main.go"
BINARIES = Path(__file__).parent / ".bin"
SIZE = 1024  #: bytes of data in a ConfigMap
PAGE = 500


@dataclass(frozen=True)
class Rate:
    per_second: float
    p50: float  #: milliseconds
    p99: float


@dataclass(frozen=True)
class ListTimes:
    """Milliseconds, the best of three."""

    whole: float
    paged: float


class Generator(Protocol):
    name: str

    def create(self, namespace: str, count: int, connections: int) -> Rate: ...

    def get(self, namespace: str, count: int, connections: int) -> Rate: ...

    def listing(self, namespace: str, count: int) -> ListTimes:
        """Of a namespace that holds at least so many objects."""


def choose(server: Server) -> Generator:
    binary = built()
    return Kbench(server, binary) if binary else PythonClient(server)


def configmaps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def object_name(number: int) -> str:
    return f"x-{number:06}"


def configmap(name: str) -> bytes:
    metadata = {"name": name, "labels": {"app": "bench"}}
    return orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v" * SIZE}})


# --- kbench ---------------------------------------------------------------------------------------


def built() -> Path | None:
    """kbench, built if its source is newer; None if it cannot be."""
    binary = BINARIES / "kbench"
    if binary.exists() and binary.stat().st_mtime > SOURCE.stat().st_mtime:
        return binary
    beside_python = Path(sys.executable).with_name("go")
    go = str(beside_python) if beside_python.exists() else shutil.which("go")
    if go is None:
        return None
    places = {"GOPATH": str(BINARIES / "gopath"), "GOCACHE": str(BINARIES / "gocache")}
    offline = {"GO111MODULE": "off", "GOFLAGS": "", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
    print("building kbench; the first time takes about a minute", flush=True)
    BINARIES.mkdir(exist_ok=True)
    done = subprocess.run([go, "build", "-o", binary, SOURCE], env=os.environ | places | offline, check=False)
    return binary if done.returncode == 0 else None


class Kbench:
    name = "kbench (Go)"

    def __init__(self, server: Server, binary: Path) -> None:
        self._arguments = [
            *(str(binary), "-server", server.url, "-ca", str(server.certificate_authority), "-token", server.token),
            *("-name", "x", "-size", str(SIZE)),
        ]

    def create(self, namespace: str, count: int, connections: int) -> Rate:
        return self._rate("create", namespace, count, connections)

    def get(self, namespace: str, count: int, connections: int) -> Rate:
        return self._rate("get", namespace, count, connections)

    def listing(self, namespace: str, count: int) -> ListTimes:
        text = self._run("-mode", "list", "-ns", namespace)
        found = re.findall(r"^list(\S*) +items=(\d+) .*best-of-3 (\d+) ms", text, re.MULTILINE)
        if not found or any(int(items) < count for _, items, _ in found):
            raise SystemExit(f"a list is not what it should be: {text}")
        times = {query: float(milliseconds) for query, _, milliseconds in found}
        return ListTimes(times[""], times[f"?limit={PAGE}"])

    def _rate(self, mode: str, namespace: str, count: int, connections: int) -> Rate:
        text = self._run("-mode", mode, "-ns", namespace, "-n", str(count), "-c", str(connections))
        found = re.search(r"errors=(\d+) +(\d+)/s +p50=([\d.]+) .*p99=([\d.]+)", text)
        if found is None or found[1] != "0":
            raise SystemExit(f"kbench failed: {text}")
        return Rate(*map(float, found.groups()[1:]))

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._arguments, *arguments], capture_output=True, text=True, check=True).stdout


# --- Python ---------------------------------------------------------------------------------------


class PythonClient:
    name = "a client in Python (no Go toolchain here: the client, not the hub, may be the limit)"

    def __init__(self, server: Server) -> None:
        self._server = server

    def create(self, namespace: str, count: int, connections: int) -> Rate:
        path = configmaps(namespace)
        return self._rate(connections, [("POST", path, configmap(object_name(number))) for number in range(count)])

    def get(self, namespace: str, count: int, connections: int) -> Rate:
        path = configmaps(namespace)
        return self._rate(connections, [("GET", f"{path}/{object_name(number)}", b"") for number in range(count)])

    def listing(self, namespace: str, count: int) -> ListTimes:
        path = configmaps(namespace)
        return ListTimes(
            min(self._milliseconds(path, count) for _ in range(3)),
            min(self._milliseconds(f"{path}?limit={PAGE}", count) for _ in range(3)),
        )

    def _milliseconds(self, path: str, count: int) -> float:
        """To read a list, page by page if it comes in pages."""
        seconds, page, items = 0.0, path, 0
        while page:
            started = time.perf_counter()
            status, body = uvloop.run(ask(self._server, "GET", page))
            seconds += time.perf_counter() - started
            if status != 200:
                raise SystemExit(f"GET {page} was answered with {status}: {body[:200]!r}")
            document = orjson.loads(body)
            items += len(document["items"])
            following = document["metadata"].get("continue")
            page = f"{path}&continue={following}" if following else ""
        if items < count:
            raise SystemExit(f"GET {path} brought {items} objects")
        return seconds * 1e3

    def _rate(self, connections: int, requests: list[tuple[str, str, bytes]]) -> Rate:
        seconds, delays = uvloop.run(load(self._server, connections, requests))
        return Rate(len(delays) / seconds, percentile(delays, 50), percentile(delays, 99))


def percentile(ordered: list[float], percent: int) -> float:
    """Of sorted seconds, in milliseconds."""
    return ordered[(len(ordered) - 1) * percent // 100] * 1e3
