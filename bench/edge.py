"""Syncers: from a mailbox to the edge and back, through real hubs, over TLS.

    python bench/edge.py [--only one|many|reconnect] [--syncers 100 1000] [--changes 300]

One edge with a hub, a syncer and an edge hub in processes of their own; then many syncers in one process, each with a
lightweight edge (`light_edge.py`), at a hub with all its controllers; then all of them at once after the hub was gone.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import orjson
import uvloop
from figures import Figures, allow_many_connections
from generators import percentile
from hub_process import COMMAND, HubProcess, cpu_seconds, resident_megabytes
from scheduler_wire import PLACEMENTS, TARGETS, headed
from syncers import Config, Said
from translator import CONFIGS, DEPLOYMENTS, NAMESPACES, Fleet, deployment, fleet, namespace, placement

from farflung.apis.names import Collection
from farflung.client.kubeconfig import load
from farflung.client.rest import Client
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.syncer.manifest import MailboxServer, kubeconfig
from farflung.syncer.registration import Registered, RegistrationRequest, register

PROVIDER = "root:espw"
SPACE = "shop"
PROBE = "probe"
LIFETIME = 24 * 3600  #: seconds that tokens are good for
AT_ONCE = 16  #: registrations under way
IDLE = 30.0  #: seconds that nothing happens
PROBED = 20  #: of many mailboxes, those that are changed one by one


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    generation: int = 0
    annotations: dict[str, str] = {}


class Status(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int = 0


class Deployment(msgspec.Struct, frozen=True):
    metadata: Metadata
    status: Status = Status()

    @property
    def place(self) -> tuple[str, str]:
        return self.metadata.annotations.get("kcp.io/cluster", ""), self.metadata.name


@dataclass
class Heard:
    """Deployments as they are now, and when each became so."""

    now: dict[tuple[str, str], Deployment] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    last: float = 0.0
    writes: int = 0

    def hear(self, raw: bytes) -> None:
        obj = msgspec.json.decode(raw, type=Deployment)
        self.now[obj.place] = obj
        self.last = time.perf_counter()
        self.writes += 1

    async def until(self, holds: Callable[[], bool]) -> float:
        """When that was heard which made it so."""
        while not holds():
            self.news.clear()
            await self.news.wait()
        return self.last

    def with_status(self, name: str, generation: int) -> int:
        """How many copies are that far, and have the status of it."""
        some = (obj for (_, other), obj in self.now.items() if other == name)
        return sum(obj.metadata.generation == obj.status.observed_generation == generation for obj in some)


@asynccontextmanager
async def listening(client: Client, collection: Collection) -> AsyncIterator[Heard]:
    heard = Heard()
    async for page in client.pages(collection):
        since = page.metadata.resource_version

    async def listen() -> None:
        async for events in client.watch(collection, since, seconds=3600):
            for event in events:
                if event.type in ("ADDED", "MODIFIED"):
                    heard.hear(bytes(event.object))
            heard.news.set()

    task = asyncio.create_task(listen())
    try:
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def image(number: int) -> Obj:
    return {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": f"nginx:{number}"}]}}}}


def probe() -> Obj:
    made = deployment("nginx:0")
    made["metadata"]["name"] = PROBE
    return made


async def registered(one: Fleet, count: int) -> dict[str, Registered]:
    """As many mailboxes with a syncer let into each, by the name of the SyncTarget."""
    names = [f"t{number:05}" for number in range(count)]
    await one.put_all(one.inventory, TARGETS, (headed(TARGETS, name) for name in names))
    configs = await one.bound("edge", CONFIGS)
    while await one.count(configs) < count:
        await asyncio.sleep(0.5)
    slots, inventory = asyncio.Semaphore(AT_ONCE), replace(one.inventory, manager="bench")

    async def let_in(name: str) -> Registered:
        async with slots:
            wanted = RegistrationRequest(name, PROVIDER, LIFETIME, 60.0)
            return await register(inventory, wanted, lambda sentence: None, time.time)

    return dict(zip(names, await asyncio.gather(*map(let_in, names)), strict=True))


def show_delays(figures: Figures, figure: str, delays: list[float], aim: str = "", remark: str = "") -> None:
    delays = sorted(delays)
    figures.show(figure, f"{percentile(delays, 50):.1f} / {percentile(delays, 99):.1f} ms", aim, remark)


# --- one edge -------------------------------------------------------------------------------------


async def one_edge(figures: Figures, changes: int) -> None:
    async with fleet("start") as one, AsyncExitStack() as stack:
        [(name, told)] = (await registered(one, 1)).items()
        mailbox = one.everywhere.workspace(told.cluster)
        edge_hub = HubProcess(one.directory.parent / "edge", "hub")
        stack.callback(edge_hub.stop)
        syncer = start_syncer(one, edge_hub, name, told)
        stack.callback(lambda: (syncer.terminate(), syncer.wait(30)))
        await one.workload.create(NAMESPACES, namespace(SPACE))
        await one.workload.create(PLACEMENTS, placement())
        transport = await stack.enter_async_context(
            load(str(one.directory.parent / "edge/admin.kubeconfig")).transport()
        )
        edge = Client(transport)
        while SPACE not in {found["metadata"]["name"] for found in await edge.list(NAMESPACES)}:
            await asyncio.sleep(0.2)
        at_edge = await stack.enter_async_context(listening(edge, DEPLOYMENTS))
        in_mailbox = await stack.enter_async_context(listening(mailbox, DEPLOYMENTS))
        await mailbox.create(DEPLOYMENTS, probe(), SPACE)
        await at_edge.until(lambda: ("", PROBE) in at_edge.now)
        before = [cpu_seconds(syncer.pid), one.hub.cpu_seconds(), edge_hub.cpu_seconds()]
        down, back = await one_by_one(changes, mailbox, edge, at_edge, in_mailbox)
        used = [cpu_seconds(syncer.pid), one.hub.cpu_seconds(), edge_hub.cpu_seconds()]
        show_delays(figures, "one edge: mailbox to edge, p50 / p99", down, "", "from the request to the edge's watch")
        show_delays(figures, "one edge: status back, p50 / p99", back, "", "from the request to the mailbox's watch")
        whole = [there + again for there, again in zip(down, back, strict=True)]
        show_delays(figures, "one edge: there and back, p50 / p99", whole, "p99 <= 250 ms", f"{changes} changes")
        each = [f"{(after - former) / changes * 1e3:.1f} ms" for former, after in zip(before, used, strict=True)]
        figures.show("one edge: CPU of the syncer, each change", each[0], "", f"hub {each[1]}, edge hub {each[2]}")
        figures.show("one edge: resident memory of the syncer", f"{resident_megabytes(syncer.pid):.1f} MB", "<= 40 MB")


def start_syncer(one: Fleet, edge_hub: HubProcess, name: str, told: Registered) -> subprocess.Popen[bytes]:
    directory = one.directory.parent
    server = MailboxServer(f"{one.hub.url}/clusters/{told.cluster}", one.hub.certificate_authority.read_bytes())
    (directory / "mailbox.kubeconfig").write_text(kubeconfig(server, {"token": told.token}))
    ways = [
        "--from-kubeconfig",
        directory / "mailbox.kubeconfig",
        "--to-kubeconfig",
        directory / "edge/admin.kubeconfig",
    ]
    who = ["--sync-target-name", name, "--sync-target-uid", told.uid, "--state-directory", directory / "state"]
    with (directory / "syncer.log").open("ab") as log:
        return subprocess.Popen([COMMAND, "syncer", *ways, *who], stderr=log)


async def one_by_one(
    changes: int, mailbox: Client, edge: Client, at_edge: Heard, in_mailbox: Heard
) -> tuple[list[float], list[float]]:
    """Seconds of the way down, and of that back; what a controller does at the edge, we do."""
    [(here, _)] = in_mailbox.now
    down, back = [], []
    for number in range(1, changes + 1):
        generation = at_edge.now["", PROBE].metadata.generation
        started = time.perf_counter()
        await mailbox.patch(DEPLOYMENTS, PROBE, image(number), SPACE)
        heard = await at_edge.until(lambda: at_edge.now["", PROBE].metadata.generation > generation)  # noqa: B023
        down.append(heard - started)
        status = {"status": {"observedGeneration": at_edge.now["", PROBE].metadata.generation}}
        started = time.perf_counter()
        await edge.patch(DEPLOYMENTS, PROBE, status, SPACE, "status")
        heard = await in_mailbox.until(
            lambda: in_mailbox.now[here, PROBE].status.observed_generation == generation + 1  # noqa: B023
        )
        back.append(heard - started)
    return down, back


# --- many edges -----------------------------------------------------------------------------------


class Load:
    """The process with all syncers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def said(self) -> Said:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return Said(**orjson.loads(await self._process.stdout.readline()))


@asynccontextmanager
async def loading(one: Fleet, told: dict[str, Registered]) -> AsyncIterator[Load]:
    directory = one.directory.parent
    mailboxes = [(name, each.uid, each.cluster, each.token) for name, each in told.items()]
    (directory / "load.json").write_bytes(
        msgspec.json.encode(Config(str(one.directory / "admin.kubeconfig"), mailboxes))
    )
    program = Path(__file__).with_name("syncers.py")
    with (directory / "syncers.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, program, directory / "load.json", directory / "journals"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        yield Load(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


@dataclass(frozen=True)
class Spent:
    """CPU seconds of each, and what was asked and written so far."""

    hub: float
    controllers: float
    syncers: float
    revision: int
    said: Said

    def since(self, before: Spent) -> str:
        hub, controllers, syncers = (
            after - former
            for after, former in (
                (self.hub, before.hub),
                (self.controllers, before.controllers),
                (self.syncers, before.syncers),
            )
        )
        return f"CPU: hub {hub:.1f} s, controllers {controllers:.1f} s, syncers {syncers:.1f} s"

    def requests_since(self, before: Spent) -> dict[str, int]:
        earlier = before.said.requests
        counted = {what: number - earlier.get(what, 0) for what, number in sorted(self.said.requests.items())}
        return {what: number for what, number in counted.items() if number}


def controllers_of(hub: HubProcess) -> int:
    """The process that the hub runs beside itself."""
    children = Path(f"/proc/{hub.pid}/task/{hub.pid}/children").read_text().split()
    return int(children[0])


async def spent(one: Fleet, load: Load) -> Spent:
    said = await load.said()
    beside = cpu_seconds(controllers_of(one.hub))
    return Spent(one.hub.cpu_seconds(), beside, said.cpu, await one.revision(), said)


class Beat(msgspec.Struct, frozen=True, rename="camel"):
    last_syncer_heartbeat_time: str = ""


class Reporting(msgspec.Struct, frozen=True):
    status: Beat = Beat()


async def reported(one: Fleet, since: str = "") -> int:
    """How many syncers said something after that time."""
    configs = await one.bound("edge", CONFIGS)
    found = 0
    async for page in one.everywhere.pages(configs):
        for document in page.documents():
            found += msgspec.json.decode(document, type=Reporting).status.last_syncer_heartbeat_time > since
    return found


async def many_edges(figures: Figures, count: int, changes: int, *, reconnect: bool, measured: bool) -> None:
    async with fleet("start") as one, AsyncExitStack() as stack:
        stack.callback(lambda: one.hub.stop())  # the one that runs in the end
        started = time.perf_counter()
        told = await registered(one, count)
        figures.show(f"{count:,} mailboxes and their syncers let in", f"{time.perf_counter() - started:.1f} s")
        lean, started = one.hub.resident_megabytes(), time.perf_counter()
        load = await stack.enter_async_context(loading(one, told))
        empty = resident_megabytes(load.pid)
        while await reported(one) < count:
            await asyncio.sleep(0.5)
        figures.show(f"{count:,} syncers started, all reported", f"< {time.perf_counter() - started:.1f} s")
        await one.workload.create(NAMESPACES, namespace(SPACE))
        await furnished(figures, one, load, count)
        watches = (await load.said()).watches
        figures.show(f"{count:,} syncers: watches at the hub", f"{watches:,}", "", f"{watches / count:.1f} each")
        resident = resident_megabytes(load.pid) - empty
        figures.show(f"{count:,} syncers: memory of one, in one process", f"{resident / count * 1024:,.0f} KB")
        resident = one.hub.resident_megabytes() - lean
        figures.show(
            f"{count:,} syncers: memory of the hub for one",
            f"{resident / count * 1024:,.0f} KB",
            "",
            f"{one.hub.resident_megabytes():,.0f} MB, was {lean:,.0f} MB",
        )
        if measured:
            await one_to_all(figures, one, load, count)
            await nothing_to_do(figures, one, load, count)
            await one_of_many(figures, one, [each.cluster for each in told.values()], changes)
        if reconnect:
            await all_at_once(figures, one, load, count, watches)


async def furnished(figures: Figures, one: Fleet, load: Load, count: int) -> None:
    """A placement to all, with a Deployment that is everywhere and has its status."""
    async with listening(one.everywhere, await one.bound("kube", DEPLOYMENTS)) as heard:
        await one.workload.create(DEPLOYMENTS, deployment("nginx:1"), SPACE)
        before, started = await spent(one, load), time.perf_counter()
        await one.workload.create(PLACEMENTS, placement())
        seconds = await heard.until(lambda: heard.with_status("web", 1) >= count) - started
    after = await spent(one, load)
    figures.show(f"placement to {count:,}: all have the status", f"{seconds:.1f} s", "", after.since(before))
    await settled(one, load, count)
    after = await spent(one, load)
    figures.show(f"placement to {count:,}: requests of a syncer", *per(after.requests_since(before), count))


def per(requests: dict[str, int], count: int) -> tuple[str, str, str]:
    """Of one syncer: how many, and which."""
    each = ", ".join(f"{what} {number / count:.2f}" for what, number in requests.items())
    return f"{sum(requests.values()) / count:.1f}", "", each


async def settled(one: Fleet, load: Load, count: int) -> None:
    """Nobody has anything to do, and reports are written."""
    before = -1
    while True:
        said = await load.said()
        written = said.requests.get("status", 0) + said.requests.get("finalizer", 0)
        if said.idle == count and written == before:
            return
        before = written
        await asyncio.sleep(3.0)


async def one_to_all(figures: Figures, one: Fleet, load: Load, count: int, rounds: int = 3) -> None:
    what = f"one change to {count:,}"
    async with listening(one.everywhere, await one.bound("kube", DEPLOYMENTS)) as heard:
        for number in range(2, 2 + rounds):
            before, started = await spent(one, load), time.perf_counter()
            await one.workload.patch(DEPLOYMENTS, "web", image(number), SPACE)
            copied = await heard.until(lambda: copies(heard, number) >= count) - started  # noqa: B023
            seconds = await heard.until(lambda: heard.with_status("web", number) >= count) - started  # noqa: B023
            after = await spent(one, load)
            figures.show(f"{what}: all have the status", f"{seconds:.2f} s", "<= 5 s", after.since(before))
            turn = f"slowest turn of the syncers {after.said.slowest_turn * 1e3:.0f} ms"
            figures.show(f"{what}: all have the copy", f"{copied:.2f} s", "", turn)
            await settled(one, load, count)
            after = await spent(one, load)
            figures.show(f"{what}: requests of a syncer", *per(after.requests_since(before), count))
            written = after.revision - before.revision - 1
            figures.show(f"{what}: writes at the hub", f"{written:,}", f"{3 * count:,}", "copy, status, report")


def copies(heard: Heard, generation: int) -> int:
    some = (obj for (_, name), obj in heard.now.items() if name == "web")
    return sum(obj.metadata.generation == generation for obj in some)


async def nothing_to_do(figures: Figures, one: Fleet, load: Load, count: int) -> None:
    before = await spent(one, load)
    await asyncio.sleep(IDLE)
    after = await spent(one, load)
    what = f"{count:,} syncers, {IDLE:.0f} s of nothing"
    figures.show(f"{what}: writes at the hub", f"{after.revision - before.revision:,}", "", after.since(before))
    figures.show(f"{what}: requests of a syncer", *per(after.requests_since(before), count))


async def one_of_many(figures: Figures, one: Fleet, clusters: list[str], changes: int) -> None:
    some = clusters[:: max(1, len(clusters) // PROBED)]
    async with listening(one.everywhere, await one.bound("kube", DEPLOYMENTS)) as heard:
        for cluster in some:
            await one.everywhere.workspace(cluster).create(DEPLOYMENTS, probe(), SPACE)
        await heard.until(lambda: heard.with_status(PROBE, 1) == len(some))
        delays = []
        for number in range(changes):
            cluster = some[number % len(some)]
            generation = 2 + number // len(some)
            started = time.perf_counter()
            await one.everywhere.workspace(cluster).patch(DEPLOYMENTS, PROBE, image(number + 1), SPACE)
            done = await heard.until(
                lambda: heard.now[cluster, PROBE].status.observed_generation == generation  # noqa: B023
            )
            delays.append(done - started)
    show_delays(figures, f"one of {len(clusters):,}: there and back, p50 / p99", delays, "", f"{changes} changes")


# --- all at once ----------------------------------------------------------------------------------


async def all_at_once(figures: Figures, one: Fleet, load: Load, count: int, watches: int) -> None:
    """The hub is killed and started again where it was."""
    before = await load.said()
    port = urlsplit(one.hub.url).port or 0
    moment = format_seconds(datetime.now(UTC))
    one.hub.kill()
    away = time.perf_counter()
    one.hub = HubProcess(one.directory, "start", port=port)
    back = time.perf_counter()
    what = f"{count:,} syncers, the hub killed"
    figures.show(f"{what}: away", f"{back - away:.1f} s")
    while (await load.said()).watches < watches:
        await asyncio.sleep(0.1)
    seconds = time.perf_counter() - back
    hub = one.hub.cpu_seconds()
    after = await load.said()
    spare = f"CPU: hub {hub:.1f} s, syncers {after.cpu - before.cpu:.1f} s"
    figures.show(f"{what}: all watches are back", f"{seconds:.1f} s", "", spare)
    while await reported(one, moment) < count:
        await asyncio.sleep(0.5)
    figures.show(f"{what}: all reported", f"< {time.perf_counter() - back:.1f} s")
    after = await load.said()
    earlier = before.requests
    asked = {name: number - earlier.get(name, 0) for name, number in sorted(after.requests.items())}
    figures.show(f"{what}: requests of a syncer", *per({k: v for k, v in asked.items() if v}, count))
    figures.show(f"{what}: lists", f"{asked.get('list', 0):,}", "0", f"{after.failed - before.failed:,} tries failed")


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--only", choices=["one", "many", "reconnect"], default="")
    arguments.add_argument("--syncers", type=int, nargs="+", default=[100, 1_000])
    arguments.add_argument("--changes", type=int, default=300, help="that are made one at a time")
    said = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    allow_many_connections()
    figures = Figures()
    figures.begin("aim", "remark")
    if said.only in ("", "one"):
        uvloop.run(one_edge(figures, said.changes))
    if said.only != "one":
        measured, reconnect = said.only in ("", "many"), said.only in ("", "reconnect")
        for count in said.syncers:
            uvloop.run(many_edges(figures, count, said.changes, reconnect=reconnect, measured=measured))


if __name__ == "__main__":
    main()
