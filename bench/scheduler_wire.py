"""The edge scheduler in a process of its own, with a real hub, over TLS."""

from __future__ import annotations

import asyncio
import random
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from figures import Figures
from generators import percentile
from hub_process import COMMAND, HubProcess

from farflung.apis.names import Collection
from farflung.client.errors import NotFound
from farflung.client.kubeconfig import load
from farflung.client.rest import Client
from farflung.machinery.errors import Obj

LOCATIONS = Collection("scheduling.kcp.io", "v1alpha1", "locations", "Location")
TARGETS = Collection("workload.kcp.io", "v1alpha1", "synctargets", "SyncTarget")
PLACEMENTS = Collection("edge.kcp.io", "v1alpha1", "edgeplacements", "EdgePlacement")
SLICES = Collection("edge.kcp.io", "v1alpha1", "singleplacementslices", "SinglePlacementSlice")
WORKSPACES = Collection("tenancy.kcp.io", "v1alpha1", "workspaces", "Workspace")
BINDINGS = Collection("apis.kcp.io", "v1alpha1", "apibindings", "APIBinding")
EXPORTS = Collection("apis.kcp.io", "v1alpha1", "apiexports", "APIExport")
AT_ONCE = 32  #: requests under way while things are put
CITIES = 500
RELABELLED = 300


@dataclass
class Fleet:
    """A hub with an inventory workspace and a workload workspace."""

    directory: Path
    root: Client
    inventory: Client
    workload: Client
    view: Client

    async def put_all(self, client: Client, collection: Collection, objects: Iterable[Obj]) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def put(obj: Obj) -> None:
            async with slots:
                await client.create(collection, obj)

        async with asyncio.TaskGroup() as group:
            for obj in objects:
                group.create_task(put(obj))

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[None]:
        options = ["--kubeconfig", str(self.directory / "admin.kubeconfig"), "--provider-path", "root:espw", "-v", "0"]
        with (self.directory.parent / "scheduler.log").open("ab") as log:
            process = subprocess.Popen([COMMAND, "scheduler", *options], stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


@dataclass
class Written:
    """Everything that was written since it began to listen, as a watch tells it."""

    slices: int = 0
    statuses: int = 0
    last: float = 0.0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    names: list[str] = field(default_factory=list)

    def count(self, collection: Collection, obj: Obj) -> None:
        self.last = time.perf_counter()
        if collection is SLICES:
            self.slices += 1
            self.names.append(obj["metadata"]["name"])
        else:
            self.statuses += 1
        self.news.set()

    async def until_slices(self, count: int) -> None:
        while self.slices < count:
            self.news.clear()
            await self.news.wait()


@asynccontextmanager
async def listening(fleet: Fleet) -> AsyncIterator[Written]:
    written = Written()

    async def listen(collection: Collection, since: str) -> None:
        async for events in fleet.view.watch(collection, since, seconds=3600):
            for event in events:
                if event.type != "BOOKMARK":
                    written.count(collection, orjson.loads(bytes(event.object)))

    tasks = []
    for collection in (SLICES, PLACEMENTS):
        async for page in fleet.view.pages(collection):
            since = page.metadata.resource_version
        tasks.append(asyncio.create_task(listen(collection, since)))
    try:
        yield written
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def fleet() -> AsyncIterator[Fleet]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "hub"
        hub = HubProcess(directory, "start", "--no-controllers")
        try:
            access = load(str(directory / "admin.kubeconfig"))
            async with access.transport() as transport:
                root = Client(transport, "/clusters/root")
                inventory, workload = [await workspace(root, name) for name in ("inventory", "workload")]
                binding = {"reference": {"export": {"path": "root:espw", "name": "edge.kcp.io"}}}
                await workload.create(BINDINGS, headed(BINDINGS, "edge") | {"spec": binding})
                export = await root.workspace("root:espw").get(EXPORTS, "edge.kcp.io")
                view = root.view(export["status"]["virtualWorkspaces"][0]["url"])
                yield Fleet(directory, root, inventory, workload, view)
        finally:
            hub.stop()


async def workspace(root: Client, name: str) -> Client:
    made = await root.create(WORKSPACES, headed(WORKSPACES, name))
    return root.workspace(made["spec"]["cluster"])


def headed(collection: Collection, name: str, **labels: str) -> Obj:
    metadata: Obj = {"name": name, "labels": labels}
    return {"apiVersion": collection.api_version, "kind": collection.kind, "metadata": metadata, "spec": {}}


def location(number: int, **labels: str) -> Obj:
    resource = {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}
    spec = {"resource": resource, "instanceSelector": {"matchLabels": {"id": f"t{number}"}}}
    return headed(LOCATIONS, f"location-{number:05}", **labels) | {"spec": spec}


def target(number: int) -> Obj:
    return headed(TARGETS, f"target-{number:05}", id=f"t{number}")


def placement(number: int, *selectors: Obj) -> Obj:
    return headed(PLACEMENTS, f"placement-{number:04}") | {"spec": {"locationSelectors": list(selectors)}}


async def cold_start(figures: Figures, placements: int = 100, locations: int = 1_000) -> None:
    """All placements match all Locations; then the scheduler starts."""
    async with fleet() as one:
        await one.put_all(one.inventory, LOCATIONS, (location(number) for number in range(locations)))
        await one.put_all(one.inventory, TARGETS, (target(number) for number in range(locations)))
        await without_default(one.inventory)
        await one.put_all(one.workload, PLACEMENTS, (placement(number, {}) for number in range(placements)))
        async with listening(one) as written:
            started = time.perf_counter()
            async with one.scheduler():
                await written.until_slices(placements)
                seconds = written.last - started
                await quiet(written)
        found = await one.workload.list(SLICES)
        entries = {len(slice["destinations"]) for slice in found}
        assert len(found) == placements and entries == {locations}, (len(found), entries)
        what = f"cold start, {placements} x {locations:,}"
        figures.show(
            f"{what}: writes of slices", f"{written.slices:,}", f"{placements}, a few more", "the original: 200,100"
        )
        figures.show(f"{what}: writes of statuses", f"{written.statuses:,}", f"{placements}", "the original: none")
        figures.show(f"{what}: time", f"{seconds:.2f} s", "< 5 s", "from the start of the process to the last slice")


async def without_default(inventory: Client) -> None:
    """The Location that comes by itself matches every target, and would double all."""
    while True:
        try:
            await inventory.delete(LOCATIONS, "default")
        except NotFound:
            await asyncio.sleep(0.05)
        else:
            return


async def quiet(written: Written, seconds: float = 1.0) -> None:
    """Until nothing was written for a while."""
    while time.perf_counter() - written.last < seconds:
        await asyncio.sleep(0.1)


async def relabelling(figures: Figures, placements: int = 1_000, locations: int = 10_000) -> None:
    """Each Location is in a city, and two placements select each city; one Location moves."""
    choice = random.Random(1)
    cities = [f"city-{number % CITIES}" for number in range(locations)]
    async with fleet() as one:
        await one.put_all(one.inventory, LOCATIONS, (location(number, city=city) for number, city in enumerate(cities)))
        await one.put_all(one.inventory, TARGETS, (target(number) for number in range(locations)))
        selectors = [{"matchLabels": {"city": f"city-{number % CITIES}"}} for number in range(placements)]
        made = (placement(number, selector) for number, selector in enumerate(selectors))
        await one.put_all(one.workload, PLACEMENTS, made)
        async with one.scheduler(), listening(one) as written:
            while len(await one.workload.list(SLICES)) < placements:
                await asyncio.sleep(0.2)
            await quiet(written, 2.0)
            delays: list[float] = []
            before = written.slices
            for _ in range(RELABELLED):
                number = choice.randrange(locations)
                moved = cities[number]
                while moved == cities[number]:
                    moved = f"city-{choice.randrange(CITIES)}"
                concerned = sum(selector["matchLabels"]["city"] in (moved, cities[number]) for selector in selectors)
                cities[number] = moved
                expected = written.slices + concerned
                started = time.perf_counter()
                patch = {"metadata": {"labels": {"city": moved}}}
                await one.inventory.patch(LOCATIONS, f"location-{number:05}", patch)
                await written.until_slices(expected)
                delays.append(written.last - started)
            await quiet(written)
        what = f"one of {locations:,} moved, {placements:,} placements"
        delays.sort()
        p50, p99 = percentile(delays, 50), percentile(delays, 99)
        figures.show(
            f"{what}: p50 / p99",
            f"{p50:.1f} / {p99:.1f} ms",
            "p99 < 50 ms",
            "from the request to the last slice heard of",
        )
        figures.show(f"{what}: writes", f"{(written.slices - before) / RELABELLED:.2f}", "4", "slices for each move")
