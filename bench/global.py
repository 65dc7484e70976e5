"""The global scheduler: many virtual machines, each of which any of many clusters would take.

    python bench/global.py [--clusters 1000] [--pods 10000] [--rate 100] [--seconds 10] [--only wire|engine]

Through the wire: a hub that has so many Clusters and so many Pods when the scheduler starts, each in a process of its
own.  A watcher of the Pods notes when each is bound: all but the first, by the time between the first and the last,
is the rate.  Then so many Pods a second are created for so long, and the delay is the time from the moment when the
hub has acknowledged one until the watcher sees it bound.

The engine alone: decisions about machines that are alike; bench/global_engine.py has others.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import uvloop
from figures import Figures, allow_many_connections
from generators import percentile
from global_engine import Bench, measure
from hub_process import cpu_seconds, resident_megabytes
from scheduler_wire import BINDINGS, headed
from translator import Fleet, fleet, following

from farflung.apis.names import Collection
from farflung.client.rest import Events
from farflung.machinery.errors import Obj

PODS = Collection("", "v1", "pods", "Pod")
CLUSTERS = Collection("globalscheduler.com", "v1", "clusters", "Cluster")
COMMAND = "global-scheduler"
SPACE = "default"
FLAVOR = "c6.large.2"
SPARE = 4  #: how many times as many as there are would fit
REGIONS = 20
LITTLE = 3  #: writes in two seconds
PATIENCE = 600.0  #: seconds for all to be bound


def cluster(number: int, room: int) -> Obj:
    spec = {
        "ipaddress": "10.0.0.1",
        "geolocation": {"city": "Bellevue", "province": "Washington", "area": "NW-1", "country": "US"},
        "region": {"region": f"region{number % REGIONS}", "availabilityzone": f"az{number}"},
        "operator": {"operator": "globalscheduler"},
        "flavors": [{"flavorid": FLAVOR, "totalcapacity": room}],
        "storage": [{"typeid": "sas", "storagecapacity": 256}],
        "eipcapacity": room,
        "cpucapacity": 2 * room,
        "memcapacity": 4096 * room,
        "serverprice": 10,
    }
    return headed(CLUSTERS, f"cluster-{number:05}") | {"spec": spec}


def machine(name: str) -> Obj:
    """As those have it who ask for nothing in particular."""
    described = {
        "keyPairName": "foobar",
        "name": "vm001",
        "image": "download.cirros-cloud.net/0.3.5/cirros-0.3.5-x86_64-disk.img",
        "securityGroupId": "d9ce2d5a-7a4e-4f3a-8a4d-1d2a0f0c1b2e",
        "imagePullPolicy": "IfNotPresent",
        "needEIP": True,
        "flavors": [{"flavorID": FLAVOR}],
        "resourceCommonInfo": {"count": 1, "selector": {"strategy": {"localStrategy": "centralize"}}},
    }
    return headed(PODS, name) | {"spec": {"virtualMachine": described}}


# --- through the wire -----------------------------------------------------------------------------


class Metadata(msgspec.Struct):
    name: str


class Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class Pod(msgspec.Struct):
    metadata: Metadata
    spec: Spec


POD = msgspec.json.Decoder(Pod)


@dataclass
class Bound:
    """When each Pod was first seen bound."""

    when: dict[str, float] = field(default_factory=dict)
    clusters: set[str] = field(default_factory=set)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, raw: bytes) -> None:
        pod = POD.decode(raw)
        if pod.spec.node_name and pod.metadata.name not in self.when:
            self.when[pod.metadata.name] = time.perf_counter()
            self.clusters.add(pod.spec.node_name)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.when) < count:
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def watching(one: Fleet) -> AsyncIterator[Bound]:
    bound = Bound()

    def hear(events: Events) -> None:
        for event in events:
            if event.type == "MODIFIED":
                bound.hear(bytes(event.object))
        bound.news.set()

    async with following(one.workload, PODS, hear):
        yield bound


@dataclass(frozen=True)
class Spent:
    """CPU seconds of each, and what was written so far."""

    hub: float
    scheduler: float
    watcher: float
    revision: int

    def show_since(self, before: Spent, figures: Figures, what: str, pods: int) -> None:
        for name, after, former in (
            ("hub", self.hub, before.hub),
            ("scheduler", self.scheduler, before.scheduler),
            ("watcher", self.watcher, before.watcher),
        ):
            used = after - former
            figures.show(f"{what}: CPU of the {name}", f"{used:.2f} s", "", f"{used / pods * 1e6:,.0f} µs for each")
        writes = (self.revision - before.revision) / pods
        figures.show(f"{what}: writes for each", f"{writes:.2f}", "", "with those to Clusters, Events and the lease")


async def spent(one: Fleet, scheduler: int) -> Spent:
    return Spent(one.hub.cpu_seconds(), cpu_seconds(scheduler), time.process_time(), await one.revision())


async def furnished(figures: Figures, one: Fleet, clusters: int, pods: int, later: int) -> None:
    export = {"reference": {"export": {"path": "root:compute", "name": "globalscheduler.com"}}}
    await one.inventory.create(BINDINGS, headed(BINDINGS, "clusters") | {"spec": export})
    room = (pods + later) * SPARE // clusters + 1
    await one.put_all(one.inventory, CLUSTERS, (cluster(number, room) for number in range(clusters)), SPACE)
    started, cpu = time.perf_counter(), one.hub.cpu_seconds()
    await one.put_all(one.workload, PODS, (machine(f"vm-{number:06}") for number in range(pods)), SPACE)
    seconds, used = time.perf_counter() - started, one.hub.cpu_seconds() - cpu
    remark = f"{used / pods * 1e6:,.0f} µs CPU of the hub for each"
    figures.show(f"{pods:,} Pods created", f"{pods / seconds:,.0f}/s", "", remark)


async def create_at(one: Fleet, rate: float, seconds: float) -> dict[str, float]:
    """So many a second, whatever becomes of them; when each was acknowledged."""
    acknowledged: dict[str, float] = {}

    async def create(name: str) -> None:
        await one.workload.create(PODS, machine(name), SPACE)
        acknowledged[name] = time.perf_counter()

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
            group.create_task(create(f"late-{number:06}"))
    return acknowledged


async def calm(one: Fleet) -> None:
    """Until next to nothing is written but the lease of the scheduler."""
    before = -LITTLE
    while before + LITTLE < (before := await one.revision()):
        await asyncio.sleep(2.0)


async def through_the_wire(figures: Figures, clusters: int, pods: int, rate: float, seconds: float) -> None:
    what = f"{pods:,} Pods to {clusters:,} clusters"
    async with fleet() as one:
        await furnished(figures, one, clusters, pods, int(rate * seconds))
        async with watching(one) as bound:
            started = time.perf_counter()
            async with one.running(COMMAND) as scheduler:
                await bound.until(1)
                before = await spent(one, scheduler.pid)
                await bound.until(pods)
                after = await spent(one, scheduler.pid)
                first, last = min(bound.when.values()), max(bound.when.values())
                figures.show(
                    what,
                    f"{(pods - 1) / (last - first):,.0f}/s",
                    ">= 1,000/s",
                    f"bound to {len(bound.clusters):,} of them; the first {first - started:.1f} s after the start",
                )
                after.show_since(before, figures, what, pods)
                await calm(one)
                before = await spent(one, scheduler.pid)
                figures.show(f"{what}: writes afterwards", f"{before.revision - after.revision:,}", "", "until quiet")
                await one_by_one(figures, one, bound, scheduler.pid, rate, seconds)
                memory = resident_megabytes(scheduler.pid)
                figures.show("memory of the scheduler", f"{memory:,.0f} MB")


async def one_by_one(figures: Figures, one: Fleet, bound: Bound, scheduler: int, rate: float, seconds: float) -> None:
    bound.when.clear()
    before = await spent(one, scheduler)
    acknowledged = await create_at(one, rate, seconds)
    await bound.until(len(acknowledged))
    after = await spent(one, scheduler)
    delays = sorted(max(0.0, bound.when[name] - moment) for name, moment in acknowledged.items())
    what = f"{rate:,.0f} Pods/s"
    p50, p99 = percentile(delays, 50), percentile(delays, 99)
    figures.show(f"{what}: bound after, p50 / p99", f"{p50:.1f} / {p99:.1f} ms", "", f"{len(delays):,} of them")
    after.show_since(before, figures, what, len(delays))


# --- the engine alone -----------------------------------------------------------------------------


def engine_alone(figures: Figures, clusters: int) -> None:
    rate, times = measure(Bench(clusters).alike)
    p50, p99 = percentile(times, 50), percentile(times, 99)
    remark = f"p50 {p50:.3f} ms, p99 {p99:.3f} ms, the first {times[-1] * 1e3:.0f} ms"
    figures.show(f"engine alone, {clusters:,} clusters", f"{rate:,.0f}/s", ">= 5,000/s", remark)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--clusters", type=int, default=1_000)
    arguments.add_argument("--pods", type=int, default=10_000)
    arguments.add_argument("--rate", type=float, default=100.0, help="Pods a second, when the others are bound")
    arguments.add_argument("--seconds", type=float, default=10.0, help="for how long")
    arguments.add_argument("--only", choices=["wire", "engine"], default="")
    said = arguments.parse_args()
    allow_many_connections()
    figures = Figures()
    figures.begin("aim", "remark")
    if said.only in ("", "engine"):
        for count in (1_000, 10_000):
            engine_alone(figures, count)
    if said.only in ("", "wire"):
        uvloop.run(through_the_wire(figures, said.clusters, said.pods, said.rate, said.seconds))


if __name__ == "__main__":
    main()
