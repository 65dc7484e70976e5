"""The placement translator: workload to many mailboxes, through a real hub, each in a process of its own.

    python bench/translator.py [--mailboxes 1000] [--only fan-out|breadth|restart] [--percent 100]

One Deployment to 1,000 mailboxes; 100 namespaces with 20 objects each to 100 mailboxes; a start with 100,000 copies
that are as they should be.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from figures import Figures, allow_many_connections
from hub_process import COMMAND, TICK, HubProcess
from scheduler_wire import AT_ONCE, BINDINGS, PLACEMENTS, TARGETS, WORKSPACES, headed, workspace

from farflung.apis.names import Collection
from farflung.client.kubeconfig import load
from farflung.client.rest import Client, Events
from farflung.machinery.errors import Obj

CONFIGS = Collection("edge.kcp.io", "v1alpha1", "syncerconfigs", "SyncerConfig")
NAMESPACES = Collection("", "v1", "namespaces", "Namespace")
MAPS = Collection("", "v1", "configmaps", "ConfigMap")
DEPLOYMENTS = Collection("apps", "v1", "deployments", "Deployment")
ALL = "system:admin"  #: the context of who sees all workspaces at once
MARK = "edge.kcp.io/projected"


@dataclass
class Copies:
    """What happens to copies, as a watch tells it."""

    writes: int = 0
    last: float = 0.0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, count: int) -> None:
        while self.writes < count:
            self.news.clear()
            await self.news.wait()


@dataclass
class Fleet:
    """A hub with an inventory workspace and a workload workspace."""

    directory: Path
    root: Client
    everywhere: Client
    inventory: Client
    workload: Client
    hub: HubProcess

    @asynccontextmanager
    async def running(self, command: str, *options: str) -> AsyncIterator[subprocess.Popen[bytes]]:
        """A controller in a process of its own."""
        where = ["--kubeconfig", str(self.directory / "admin.kubeconfig"), "--provider-path", "root:espw"]
        with (self.directory.parent / f"{command}.log").open("ab") as log:
            process = subprocess.Popen([COMMAND, command, *where, *options, "-v", "0"], stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)

    async def put_all(
        self, client: Client, collection: Collection, objects: Iterable[Obj], namespace: str = ""
    ) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def put(obj: Obj) -> None:
            async with slots:
                await client.create(collection, obj, obj["metadata"].get("namespace", namespace))

        async with asyncio.TaskGroup() as group:
            for obj in objects:
                group.create_task(put(obj))

    async def mailboxes(self, count: int) -> None:
        """As many, and the controllers that make them and that lead placements to them."""
        await self.put_all(self.inventory, TARGETS, (headed(TARGETS, f"t{number:05}") for number in range(count)))
        # the Location that comes by itself matches every target
        configs = await self.bound("edge", CONFIGS)
        async with self.running("mailbox-controller", "--concurrency", "16"):
            while await self.count(configs) < count:
                await asyncio.sleep(0.5)

    async def bound(self, binding: str, collection: Collection) -> Collection:
        """A kind that the workload workspace binds, in all workspaces that bind it from there."""
        found = await self.workload.get(BINDINGS, binding)
        hashes = {one["resource"]: one["schema"]["identityHash"] for one in found["status"]["boundResources"]}
        plural = f"{collection.plural}:{hashes[collection.plural]}"
        return Collection(collection.group, collection.version, plural, collection.kind)

    async def count(self, collection: Collection) -> int:
        """In all workspaces."""
        return sum([len(page.items or ()) async for page in self.everywhere.pages(collection)])

    @asynccontextmanager
    async def listening(self, collection: Collection) -> AsyncIterator[Copies]:
        """To copies in all mailboxes."""
        copies = Copies()
        async for page in self.everywhere.pages(collection):
            since = page.metadata.resource_version

        async def listen() -> None:
            async for events in self.everywhere.watch(collection, since, seconds=3600):
                for event in events:
                    if event.type != "BOOKMARK" and MARK.encode() in bytes(event.object):
                        copies.writes += 1
                        copies.last = time.perf_counter()
                copies.news.set()

        task = asyncio.create_task(listen())
        try:
            yield copies
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def revision(self) -> int:
        """Of the hub: each write is one more."""
        async for page in self.root.pages(WORKSPACES):
            return int(page.metadata.resource_version)
        raise AssertionError

    async def quiet(self, seconds: float = 2.0) -> None:
        """Until nothing was written for a while."""
        before = -1
        while before != (before := await self.revision()):
            await asyncio.sleep(seconds)


@asynccontextmanager
async def following(client: Client, collection: Collection, hear: Callable[[Events], None]) -> AsyncIterator[None]:
    """Tell of whatever becomes of the objects of a kind, as long as the block lasts."""
    async for page in client.pages(collection):
        since = page.metadata.resource_version

    async def watch() -> None:
        async for events in client.watch(collection, since, seconds=3600):
            hear(events)

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def fleet(*command: str) -> AsyncIterator[Fleet]:
    """`command`: what makes the hub, if it is not one without controllers."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "hub"
        hub = HubProcess(directory, *(command or ("start", "--no-controllers")))
        config = str(directory / "admin.kubeconfig")
        try:
            async with AsyncExitStack() as stack:
                transport = await stack.enter_async_context(load(config).transport())
                root = Client(transport, "/clusters/root")
                whole = await stack.enter_async_context(load(config, context=ALL).transport())
                everywhere = Client(whole, "/clusters/*")
                clusters = [await workspace(root, name) for name in ("inventory", "workload")]
                for binding, path, export in (
                    ("edge", "root:espw", "edge.kcp.io"),
                    ("kube", "root:compute", "kubernetes"),
                ):
                    spec = {"reference": {"export": {"path": path, "name": export}}}
                    await clusters[1].create(BINDINGS, headed(BINDINGS, binding) | {"spec": spec})
                yield Fleet(directory, root, everywhere, clusters[0], clusters[1], hub)
        finally:
            hub.stop()


def placement() -> Obj:
    """All of the namespaces of production, and what Deployments need, to everywhere."""
    brought = {"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "resourceNames": ["kube"]}
    spec = {
        "locationSelectors": [{}],
        "namespaceSelector": {"matchLabels": {"env": "prod"}},
        "nonNamespacedObjects": [brought],
    }
    return headed(PLACEMENTS, "p") | {"spec": spec}


def namespace(name: str) -> Obj:
    return headed(NAMESPACES, name, env="prod")


def deployment(image: str) -> Obj:
    containers = [{"name": "web", "image": image}]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    return headed(DEPLOYMENTS, "web") | {"spec": spec}


def config_map(space: str, number: int) -> Obj:
    metadata = {"name": f"m{number:03}", "namespace": space}
    data = {f"key-{key}": f"value {key} of {number}" for key in range(5)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def cpu_of(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


async def fan_out(figures: Figures, count: int) -> None:
    """One Deployment to all mailboxes."""
    async with fleet() as one, AsyncExitStack() as stack:
        await one.mailboxes(count)
        await stack.enter_async_context(one.running("scheduler"))
        translator = await stack.enter_async_context(one.running("placement-translator"))
        await one.workload.create(NAMESPACES, namespace("shop"))
        started = time.perf_counter()
        await one.workload.create(PLACEMENTS, placement())
        while await one.count(NAMESPACES) < 2 * count:
            await asyncio.sleep(0.2)
        await one.quiet()
        seconds = time.perf_counter() - started
        figures.show(f"{count:,} mailboxes furnished for a placement", f"< {seconds:.1f} s", "", "a few objects each")
        async with one.listening(await one.bound("kube", DEPLOYMENTS)) as copies:

            async def create() -> None:
                await one.workload.create(DEPLOYMENTS, deployment("nginx:1"), "shop")

            async def update() -> None:
                change = {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "nginx:2"}]}}}}
                await one.workload.patch(DEPLOYMENTS, "web", change, "shop")

            for what, act in (("first copy", create), ("update", update)):
                await measured(figures, one, translator, copies, f"one Deployment to {count:,}: {what}", act, count)


async def measured(
    figures: Figures,
    one: Fleet,
    translator: subprocess.Popen[bytes],
    copies: Copies,
    what: str,
    act: Callable[[], Awaitable[None]],
    count: int,
) -> None:
    copies.writes = 0
    cpu, hub_cpu, revision = cpu_of(translator), one.hub.cpu_seconds(), await one.revision()
    started = time.perf_counter()
    await act()
    await copies.until(count)
    seconds = copies.last - started
    used, hub_used = cpu_of(translator) - cpu, one.hub.cpu_seconds() - hub_cpu
    await one.quiet()
    figures.show(what, f"{seconds:.2f} s", "< 3 s", f"CPU: translator {used:.2f} s, hub {hub_used:.2f} s")
    figures.show(f"{what}: writes", f"{await one.revision() - revision - 1:,}", f"{count:,}", "beside the source")


async def breadth(figures: Figures, count: int, spaces: int, objects: int, *, starts: bool) -> None:
    """Many namespaces to all mailboxes, and then, if wanted, a start with nothing to do."""
    async with fleet() as one, AsyncExitStack() as stack:
        await one.mailboxes(count)
        await stack.enter_async_context(one.running("scheduler"))
        names = [f"n{number:03}" for number in range(spaces)]
        await one.put_all(one.workload, NAMESPACES, map(namespace, names))
        await one.put_all(one.workload, MAPS, (config_map(name, number) for name in names for number in range(objects)))
        total = spaces * objects * count
        what = f"{spaces} namespaces of {objects} to {count}"
        async with one.running("placement-translator") as translator, one.listening(MAPS) as copies:
            await one.quiet(1.0)
            before, started = await one.revision(), time.perf_counter()
            await one.workload.create(PLACEMENTS, placement())
            await copies.until(total)
            seconds = copies.last - started
            used = cpu_of(translator)
            figures.show(what, f"{seconds:.1f} s", "", f"{total / seconds:,.0f} copies/s; CPU {used:.1f} s")
            while not await is_told(one):
                await asyncio.sleep(0.5)
            await one.quiet()
            # each namespace gets a ConfigMap and a ServiceAccount from the hub, and each mailbox a binding and the-one
            figures.show(f"{what}: writes", f"{await one.revision() - before:,}", f"{total + 3 * spaces * count:,}")
        if starts:
            await restart(figures, one, total)


async def restart(figures: Figures, one: Fleet, total: int) -> None:
    address = "127.0.0.1:18471"
    before, started = await one.revision(), time.perf_counter()
    async with one.running("placement-translator", "--server-bind-address", address) as translator:
        while not await is_done(address):
            await asyncio.sleep(0.1)
        seconds = time.perf_counter() - started
        figures.show(f"restart with {total:,} copies", f"{seconds:.1f} s", "< 15 s", f"CPU {cpu_of(translator):.1f} s")
        memory = Path(f"/proc/{translator.pid}/status").read_text()
        [resident] = [line.split()[1] for line in memory.splitlines() if line.startswith("VmRSS:")]
        figures.show(f"restart with {total:,} copies: memory", f"{int(resident) / 1024:,.0f} MB")
        await one.quiet()
    figures.show(f"restart with {total:,} copies: writes", f"{await one.revision() - before}", "0")


async def is_told(one: Fleet) -> bool:
    """The translator says of the placement that all is done."""
    status = (await one.workload.get(PLACEMENTS, "p")).get("status") or {}
    return any(said["type"] == "WorkloadProjected" for said in status.get("conditions") or ())


async def is_done(address: str) -> bool:
    """Everything is known and was looked at."""
    host, _, port = address.partition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    try:
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        said = (await reader.read()).decode()
    finally:
        writer.close()
    values = dict(line.rsplit(" ", 1) for line in said.splitlines() if line.startswith("farflung_"))
    looked = float(values.get('farflung_reconciles_total{controller="placement-translator",result="success"}', 0))
    return looked > 0 and float(values['farflung_queue_depth{controller="placement-translator"}']) == 0


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--mailboxes", type=int, default=1_000)
    arguments.add_argument("--only", choices=["fan-out", "breadth", "restart"], default="")
    arguments.add_argument("--percent", type=int, default=100, help="of the 100 namespaces")
    said = arguments.parse_args()
    allow_many_connections()
    figures = Figures()
    figures.begin("aim", "remark")
    if said.only in ("", "fan-out"):
        uvloop.run(fan_out(figures, said.mailboxes))
    if said.only in ("", "breadth"):
        uvloop.run(breadth(figures, 100, said.percent, 20, starts=False))
    if said.only in ("", "restart"):
        uvloop.run(breadth(figures, 50, said.percent, 20, starts=True))


if __name__ == "__main__":
    main()
