"""How long one tenant waits while another floods the hub: prints figures and asserts nothing.

    python bench/fairness.py                  about two minutes
    python bench/fairness.py --flood lists    one kind of flood only

Tenant B gets, creates and lists small objects, one request after the other.  Tenant A floods from processes of its own,
bounded in time and connections, from another loopback address.  The target is a p99 of B within three times its
p99 on the idle hub plus 50 ms.

Clients and hub share the cores, so the clock is honest on an idle machine with four cores only.  Beside it stands the
CPU time of the hub's event loop from B's request to its answer, which other processes do not disturb.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import orjson
import uvloop
from create_cpu import Load as Workspace
from create_cpu import create_workspace, must
from figures import Figures, allow_many_connections
from generators import configmap, percentile
from http_client import Connection, Reader, Server
from hub_process import HubProcess

R = TypeVar("R")

SECONDS = 6.0  #: of each flood
WARM_UP = 1.0  #: seconds of the flood before B is measured
CONNECTIONS = 256
LISTED = 2_000  #: objects in A's namespace
PAUSE = 0.01  #: seconds between two requests of B
ATTACKER, VICTIM = "root:bench-a", "root:bench-b"
MAPS = "/clusters/{}/api/v1/namespaces/default/configmaps"
RBAC = "/clusters/{}/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
ACCOUNTS = "/clusters/{}/api/v1/namespaces/default/serviceaccounts"
HOST = "127.0.0.1"


async def tenant(server: Server, path: str) -> str:
    """A new workspace with a ServiceAccount that may do everything there; returns its token."""
    connection = await Connection.open(server)
    await create_workspace(connection, Workspace(path, (), "", "", configmap, path))
    await connection.request("POST", f"/clusters/{path}/api/v1/namespaces", b'{"metadata":{"name":"default"}}')
    await must(connection, "POST", ACCOUNTS.format(path), b'{"metadata":{"name":"user"}}')
    subject = {"kind": "ServiceAccount", "name": "user", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"metadata": {"name": "user"}, "subjects": [subject], "roleRef": role}
    await must(connection, "POST", RBAC.format(path), orjson.dumps(binding))
    made = await must(connection, "POST", f"{ACCOUNTS.format(path)}/user/token", b'{"spec":{}}')
    connection.close()
    return str(orjson.loads(made)["status"]["token"])


# --- the floods of A ------------------------------------------------------------------------------


class Raw(Reader):
    """Counts the bytes and the beginnings of answers, and parses nothing."""

    def __init__(self, again: Callable[[Raw], None] = lambda raw: None) -> None:
        self._again = again
        self.answers: Counter[bytes] = Counter()

    def received(self, data: memoryview) -> None:
        start = bytes(data[:12])
        if start.startswith(b"HTTP/1.1"):
            self.answers[start[9:]] += 1
            self._again(self)


Flood = Callable[[Server, int, float], Awaitable[Counter[int]]]


def repeated(method: str, path: Callable[[int], str], body: Callable[[int], bytes] = lambda number: b"") -> Flood:
    """The next request of each connection follows its last answer."""

    async def flood(server: Server, connections: int, end: float) -> Counter[int]:
        codes: Counter[int] = Counter()
        numbers = iter(range(10**9))

        async def work() -> None:
            connection = await opened(server)
            while time.monotonic() < end:
                number = next(numbers)
                code, _ = await connection.request(method, path(number), body(number))
                codes[code] += 1
            connection.close()

        await gather([work() for _ in range(connections)])
        return codes

    return flood


async def gather(works: list[Awaitable[Any]]) -> None:
    """A refused connection ends its own work alone."""
    await asyncio.gather(*works, return_exceptions=True)


async def opened(server: Server) -> Connection:
    return await from_another_address(server, lambda: Connection(server))


async def from_another_address(server: Server, protocol: Callable[[], Any]) -> Any:
    """B and A are different peers."""
    address = urlsplit(server.url)
    loop = asyncio.get_running_loop()
    _, made = await loop.create_connection(
        protocol, address.hostname, address.port, ssl=server._context, local_addr=("127.0.0.2", 0)
    )
    return made


async def pipelined(server: Server, connections: int, end: float) -> Counter[int]:
    """Sixteen requests at a time on each connection."""
    head = server.head("GET", MAPS.format(ATTACKER) + "/map-0") * 16
    answers: Counter[bytes] = Counter()

    async def work() -> None:
        raw = await from_another_address(server, lambda: Raw(lambda raw: raw.transport.write(head)))
        raw.transport.write(head)
        await asyncio.sleep(end - time.monotonic())
        raw.transport.abort()
        answers.update(raw.answers)

    await gather([work() for _ in range(connections)])
    return Counter({int(code or 0): count for code, count in answers.items()})


async def watches(server: Server, connections: int, end: float) -> Counter[int]:
    """Each is closed after its first bytes."""
    codes: Counter[int] = Counter()
    head = server.head("GET", f"{MAPS.format(ATTACKER)}?watch=1&limit=500")

    async def work() -> None:
        while time.monotonic() < end:
            came = asyncio.Event()
            raw = await from_another_address(server, lambda came=came: Raw(lambda raw: came.set()))
            raw.transport.write(head)
            await came.wait()
            codes.update({int(code or 0): count for code, count in raw.answers.items()})
            raw.transport.abort()

    await gather([work() for _ in range(connections)])
    return codes


async def handshakes(server: Server, connections: int, end: float) -> Counter[int]:
    """New connections without a request."""
    count = 0

    async def work() -> None:
        nonlocal count
        while time.monotonic() < end:
            raw = await from_another_address(server, Raw)
            raw.transport.abort()
            count += 1

    await gather([work() for _ in range(connections)])
    return Counter({0: count})


async def fan_out(server: Server, connections: int, end: float) -> Counter[int]:
    """Many watches of one namespace, each with another selector, and one writer."""
    codes: Counter[int] = Counter()
    path = MAPS.format(ATTACKER)

    async def watch(number: int) -> None:
        raw = await from_another_address(server, Raw)
        raw.transport.write(server.head("GET", f"{path}?watch=1&resourceVersion=0&labelSelector=a%3Db{number}"))
        await asyncio.sleep(end - time.monotonic())
        codes.update({int(code or 0): count for code, count in raw.answers.items()})
        raw.transport.abort()

    async def write(writer: int) -> None:
        connection = await opened(server)
        number = 0
        while time.monotonic() < end:
            number += 1
            code, _ = await connection.request("POST", path, configmap(f"fan-{writer}-{time.time_ns()}"))
            codes[code] += 1

    await gather([*(watch(number) for number in range(connections)), *(write(number) for number in range(16))])
    return codes


def new_map(number: int) -> bytes:
    return configmap(f"new-{number}-{time.time_ns()}")


FLOODS: dict[str, Flood] = {
    "gets": repeated("GET", lambda number: f"{MAPS.format(ATTACKER)}/map-{number % LISTED}"),
    "lists": repeated("GET", lambda number: MAPS.format(ATTACKER)),
    "selected lists": repeated("GET", lambda number: f"{MAPS.format(ATTACKER)}?labelSelector=a%3Db"),
    "creates": repeated("POST", lambda number: MAPS.format(ATTACKER), new_map),
    "refused": repeated("GET", lambda number: f"{MAPS.format(VICTIM)}/map-{number}"),
    "pipelined": pipelined,
    "watches": watches,
    "handshakes": handshakes,
    "fan-out": fan_out,
}


def flood(name: str, url: str, token: str, authority: Path, connections: int) -> None:
    """In a process of its own."""
    allow_many_connections()
    server = Server(url, token, authority)

    async def run() -> None:
        end = time.monotonic() + SECONDS
        running = asyncio.ensure_future(FLOODS[name](server, connections, end))
        done, _ = await asyncio.wait([running], timeout=SECONDS + 2)
        answers = running.result() if done else {}
        print(
            ", ".join(f"{count:,} of {code or 'connect'}" for code, count in sorted(answers.items())) or "unfinished",
            flush=True,
        )
        os._exit(0)  # connections may be open

    uvloop.run(run())


# --- what B notices -------------------------------------------------------------------------------


class Delays:
    """Milliseconds of each request: by the clock, and of CPU time of the hub's event loop."""

    def __init__(self) -> None:
        self.clock: list[float] = []
        self.cpu: list[float] = []

    def p99(self) -> tuple[float, float]:
        return percentile(sorted(self.clock), 99) / 1000, percentile(sorted(self.cpu), 99) / 1000

    def __str__(self) -> str:
        parts = (f"{percentile(sorted(one), share) / 1000:.1f}" for one in (self.clock, self.cpu) for share in (50, 99))
        return "{:>8} /{:>7} ms{:>8} /{:>7} ms".format(*parts)


class Victim:
    def __init__(self, server: Server, admin: Server, hub: HubProcess) -> None:
        self._server = server
        self._admin = admin
        self._schedule = Path(f"/proc/{hub.pid}/task/{hub.pid}/schedstat")
        self._made = 0

    async def _measure(self, delays: Delays, work: Awaitable[R]) -> R:
        cpu, clock = int(self._schedule.read_text().split()[0]), time.perf_counter()
        result = await work
        delays.clock.append((time.perf_counter() - clock) * 1000)
        delays.cpu.append((int(self._schedule.read_text().split()[0]) - cpu) / 1e6)
        return result

    async def delays(self, seconds: float) -> dict[str, Delays]:
        """Of each kind of request."""
        path = MAPS.format(VICTIM)
        found = {name: Delays() for name in ("get", "create", "list", "connect")}
        connection = await Connection.open(self._server)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._made += 1
            body = configmap(f"mine-{self._made}")
            requests = (
                ("get", "GET", f"{path}/map-0", b""),
                ("list", "GET", f"{path}?limit=20", b""),
                ("create", "POST", path, body),
            )
            for name, method, url, sent in requests:
                code, answer = await self._measure(found[name], connection.request(method, url, sent))
                if code > 299:
                    raise SystemExit(f"B's {method} was answered with {code}: {answer[:200]!r}")
                await asyncio.sleep(PAUSE)
            (await self._measure(found["connect"], Connection.open(self._server))).close()
        connection.close()
        return found

    async def long_turns(self) -> float:
        connection = await Connection.open(self._admin)
        page = (await must(connection, "GET", "/metrics")).decode()
        connection.close()
        [line] = [one for one in page.splitlines() if one.startswith("farflung_event_loop_long_turns_total ")]
        return float(line.split()[1])


async def prepare(server: Server, path: str, count: int) -> None:
    connection = await Connection.open(server)
    for number in range(count):
        await must(connection, "POST", MAPS.format(path), configmap(f"map-{number}"))
    connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--flood", action="append", choices=list(FLOODS), help="default: all")
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--run", nargs=3, metavar=("URL", "TOKEN", "CA"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    chosen = arguments.flood or list(FLOODS)
    if arguments.run:
        url, token, authority = arguments.run
        flood(chosen[0], url, token, Path(authority), arguments.connections)
        return
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="farflung-bench-") as directory:
        hub = HubProcess(Path(directory) / "hub", "start", "--no-controllers", "--bind-address", HOST)
        try:
            measure(hub, chosen, arguments.connections, figures)
        finally:
            hub.stop()


def measure(hub: HubProcess, chosen: list[str], connections: int, figures: Figures) -> None:
    admin = Server(hub.url, hub.token, hub.certificate_authority)
    attacker, token = (uvloop.run(tenant(admin, path)) for path in (ATTACKER, VICTIM))
    uvloop.run(prepare(admin, ATTACKER, LISTED))
    uvloop.run(prepare(admin, VICTIM, 20))
    victim = Victim(replace(admin, token=token), admin, hub)
    figures.begin("at most")
    idle = uvloop.run(victim.delays(SECONDS - WARM_UP))
    print(f"{'':<34}{'clock: p50 /    p99':>22}{'hub CPU: p50 /    p99':>22}")
    for name, delays in idle.items():
        print(f"{f'idle hub: {name}':<34}{delays}")
    for name in chosen:
        before = uvloop.run(victim.long_turns())
        command = [sys.executable, __file__, "--flood", name, "--connections", str(connections)]
        command += ["--run", hub.url, attacker, str(hub.certificate_authority)]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        time.sleep(WARM_UP)
        during = uvloop.run(victim.delays(SECONDS - 2 * WARM_UP))
        answers = running.communicate(timeout=60)[0].strip()
        turns = uvloop.run(victim.long_turns()) - before
        print(f"A floods {name}: {answers}; {turns:.0f} event loop turns over 50 ms")
        for kind, delays in during.items():
            limits = [3 * one + 50 for one in idle[kind].p99()]
            late = [
                f" late by the {what}"
                for what, p99, limit in zip(("clock", "CPU"), delays.p99(), limits, strict=True)
                if p99 > limit
            ]
            print(f"{f'    {kind}':<34}{delays}{','.join(late)}", flush=True)


if __name__ == "__main__":
    main()
