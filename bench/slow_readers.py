"""What clients cost that do not read: memory of the hub beside the time that one fast client needs.

python bench/slow_readers.py                  about a minute
python bench/slow_readers.py --executable F   of another `farflung`, to compare
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
import time
from functools import partial
from pathlib import Path

import orjson
import uvloop
from figures import Figures, allow_many_connections
from generators import configmaps, object_name
from http_client import Connection, Reader, Server, load
from hub_process import COMMAND, HubProcess

OBJECTS = 10_000
SIZE = 3_000  #: bytes of data of each
READERS = 40
REPEATS = 5
HELD = 5.0  #: seconds in which clients do not read; the hub disconnects them later

PATH = configmaps("listed")
INITIAL = f"{PATH}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
END = b"k8s.io/initial-events-end"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
REQUESTS = {
    "list, JSON": (PATH, "application/json"),
    "list, Table": (PATH, TABLE),
    "list, PartialObjectMetadata": (PATH, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),
    "list, protobuf": (PATH, "application/vnd.kubernetes.protobuf"),
    "watch, initial events": (INITIAL, "application/json"),
    "watch, initial events, Table": (INITIAL, TABLE),
}


def server_of(hub: HubProcess) -> Server:
    return Server(hub.url, hub.token, hub.certificate_authority)


def body(number: int) -> bytes:
    metadata = {"name": object_name(number), "labels": {"app": "bench"}}
    return orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v" * SIZE}})


async def fill(server: Server) -> None:
    namespace = b'{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"listed"}}'
    await load(server, 1, [("POST", "/api/v1/namespaces", namespace)])
    await load(server, 32, [("POST", PATH, body(number)) for number in range(OBJECTS)])


# --- one client that reads ------------------------------------------------------------------------


class Initial(Reader):
    """Reads a watch up to the end of its initial events."""

    def __init__(self) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self._last = b""

    def received(self, data: memoryview) -> None:
        joined = self._last + bytes(data)
        self._last = joined[-len(END) :]
        if END in joined and not self.ended.done():
            self.ended.set_result(None)


async def read_once(server: Server, path: str, accept: str) -> float:
    """Seconds for one list, or for the initial events of a watch."""
    if "watch=1" in path:
        watch = await server.connect(Initial)
        started = time.perf_counter()
        watch.transport.write(server.head("GET", path, accept=accept))
        await watch.ended
        seconds = time.perf_counter() - started
        watch.transport.close()
        return seconds
    connection = await Connection.open(server)
    started = time.perf_counter()
    await connection.read(path, accept)
    seconds = time.perf_counter() - started
    connection.close()
    return seconds


async def long_turns(server: Server) -> int:
    connection = await Connection.open(server)
    page = (await connection.read("/metrics")).decode()
    connection.close()
    found = re.search(r"^farflung_event_loop_long_turns_total (\S+)", page, re.MULTILINE)
    return int(float(found[1])) if found else -1


# --- many that do not -----------------------------------------------------------------------------


class Idle(Reader):
    """Sends a request and reads nothing."""

    def received(self, data: memoryview) -> None:
        self.transport.pause_reading()


async def hold(hub: HubProcess, path: str, accept: str) -> float:
    """The most megabytes of the hub while clients do not read."""
    server = server_of(hub)
    clients = [await server.connect(Idle) for _ in range(READERS)]
    for client in clients:
        client.transport.write(server.head("GET", path, accept=accept))
        client.transport.pause_reading()
    most, ends = 0.0, time.monotonic() + HELD
    while time.monotonic() < ends:
        await asyncio.sleep(0.1)
        most = max(most, hub.resident_megabytes())
    for client in clients:
        client.transport.abort()
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--executable", type=Path, default=COMMAND, help="another farflung command")
    executable = parser.parse_args().executable
    allow_many_connections()
    figures = Figures()
    figures.begin()
    with tempfile.TemporaryDirectory(prefix="farflung-bench-") as directory:
        start = partial(HubProcess, Path(directory) / "hub", "hub", executable=executable)
        hub = start()
        uvloop.run(fill(server_of(hub)))
        for name, (path, accept) in REQUESTS.items():
            before, turns = hub.cpu_seconds(), uvloop.run(long_turns(server_of(hub)))
            times = [uvloop.run(read_once(server_of(hub), path, accept)) for _ in range(REPEATS)]
            cpu = (hub.cpu_seconds() - before) / REPEATS
            turns = uvloop.run(long_turns(server_of(hub))) - turns
            remark = f"{cpu * 1e3:.0f} ms CPU, {turns} turns over 50 ms"
            figures.show(f"{name}: {OBJECTS:,} read at once", f"{min(times) * 1e3:.0f} ms", "", remark)
        for name, (path, accept) in REQUESTS.items():
            hub.stop()
            hub = start()
            idle = hub.resident_megabytes()
            most = uvloop.run(hold(hub, path, accept))
            figures.show(f"{name}: {READERS} not read", f"{most:.0f} MB", "", f"from {idle:.0f} MB")
        hub.stop()


if __name__ == "__main__":
    main()
