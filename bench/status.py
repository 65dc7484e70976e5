"""The status summarizer: many copies that report, and how soon their summary says so.

    python bench/status.py [--destinations 1000] [--seconds 15] [--rate 10] [--only wire|engine]

Through the wire: one Deployment at so many destinations, each of which reports so many changes a second as a syncer
would, to a real hub with all its controllers.  Each change adds one to a number in the status, so the sum in the
summary says how many changes are in it.  The lag is the time from the moment when so many changes were acknowledged
until a watcher of the summary sees one with at least that sum.

The engine alone: CPU that one change costs, by the number of destinations.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from bisect import bisect_left
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import orjson
import uvloop
from figures import Figures, allow_many_connections
from generators import percentile
from http_client import Connection, Server
from hub_process import cpu_seconds
from scheduler_wire import PLACEMENTS, TARGETS, headed
from translator import CONFIGS, DEPLOYMENTS, NAMESPACES, Fleet, deployment, fleet, following, namespace, placement

from edge import controllers_of
from farflung.apis.edge.names import SYNC_TARGET_NAME
from farflung.apis.names import Collection
from farflung.client.rest import Events
from farflung.controllers.status_summarizer.decide import Summaries
from farflung.controllers.status_summarizer.health import SummarySubject
from farflung.machinery.errors import Obj
from farflung.placement.guard import WithdrawalLimits
from farflung.placement.index import CopyKey
from farflung.placement.names import GroupResource, ObjectRef, PlacementKey
from farflung.placement.project import make_copy
from farflung.placement.state import PlacementState
from farflung.placement.types import (
    CopyDestination,
    ObjectMeta,
    ObservedObject,
    PlacementSlice,
    Workspace,
    WorkspaceSpec,
    WorkspaceStatus,
    parse_object,
    parse_placement,
)

SUMMARIES = Collection("edge.kcp.io", "v1alpha1", "statussummaries", "StatusSummary")
SPACE = "shop"
JSON_PATCH = "application/json-patch+json"
WRITERS = 64  #: connections of those who report
PATIENCE = 120.0  #: seconds for the last changes to be summarized
NUMBER = "readyReplicas"
STARTED = "2024-05-01T12:00:00Z"


def status(number: int) -> Obj:
    """As a Deployment has it; its number is the number of the change."""
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": STARTED, "lastUpdateTime": STARTED}
        for kind in ("Available", "Progressing")
    ]
    replicas = {"replicas": number, NUMBER: number, "availableReplicas": number, "updatedReplicas": number}
    return {"observedGeneration": 1, **replicas, "conditions": conditions}


# --- through the wire -----------------------------------------------------------------------------


@dataclass
class Watched:
    """The summary, each time that it was written: when that was seen, and how many changes are in it."""

    seen: list[tuple[float, int]] = field(default_factory=list)
    destinations: Obj = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, raw: bytes) -> None:
        summary = orjson.loads(raw)
        self.destinations = summary["destinations"]
        self.seen.append((time.perf_counter(), (summary.get("aggregates") or {}).get(NUMBER, {}).get("sum", 0)))
        self.news.set()

    async def until(self, total: int) -> None:
        """A summary has so many changes in it."""
        async with asyncio.timeout(PATIENCE):
            while not self.seen or self.seen[-1][1] < total:
                self.news.clear()
                await self.news.wait()

    async def until_expected(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.destinations.get("expected") != count or self.destinations.get("missing"):
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def watching(one: Fleet) -> AsyncIterator[Watched]:
    watched = Watched()

    def hear(events: Events) -> None:
        for event in events:
            if event.type in ("ADDED", "MODIFIED"):
                watched.hear(bytes(event.object))

    async with following(one.workload, SUMMARIES, hear):
        yield watched


@dataclass
class Reporting:
    """Those who report, at a pace that does not depend on how soon they are answered as long as that is soon enough."""

    server: Server
    copies: list[tuple[str, str]]  #: cluster and uid of each
    rate: float  #: changes a second of each
    started: float = 0.0
    acknowledged: list[float] = field(default_factory=list)  #: when, in order

    async def report(self, seconds: float) -> None:
        writers = min(WRITERS, len(self.copies))
        connections = [await Connection.open(self.server) for _ in range(writers)]
        self.started = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                for at, connection in enumerate(connections):
                    group.create_task(self._write(connection, self.copies[at::writers], self.started + seconds))
        finally:
            for connection in connections:
                connection.close()

    async def _write(self, connection: Connection, copies: list[tuple[str, str]], end: float) -> None:
        """One change of each copy after the other, round by round."""
        pause, number, due = 1 / (self.rate * len(copies)), 0, self.started
        while True:
            number += 1
            for cluster, uid in copies:
                due += pause
                now = time.perf_counter()
                if max(due, now) >= end:
                    return
                if due > now:
                    await asyncio.sleep(due - now)
                await self._change(connection, cluster, uid, number)
                self.acknowledged.append(time.perf_counter())

    async def _change(self, connection: Connection, cluster: str, uid: str, number: int) -> None:
        path = f"/clusters/{cluster}{DEPLOYMENTS.path(SPACE)}/web/status"
        test = {"op": "test", "path": "/metadata/uid", "value": uid}
        patch = orjson.dumps([test, {"op": "add", "path": "/status", "value": status(number)}])
        code, answer = await connection.request("PATCH", path, patch, content=JSON_PATCH)
        if code != 200:
            raise ConnectionError(f"a report was answered with {code}: {answer[:200]!r}")


async def furnished(one: Fleet, count: int) -> list[tuple[str, str]]:
    """One Deployment at so many destinations: cluster and uid of each copy."""
    await one.put_all(one.inventory, TARGETS, (headed(TARGETS, f"t{number:05}") for number in range(count)))
    configs = await one.bound("edge", CONFIGS)
    while await one.count(configs) < count:
        await asyncio.sleep(0.5)
    await one.workload.create(NAMESPACES, namespace(SPACE))
    await one.workload.create(PLACEMENTS, placement())
    await one.workload.create(DEPLOYMENTS, deployment("nginx:1"), SPACE)
    deployments = await one.bound("kube", DEPLOYMENTS)
    while await one.count(deployments) < count + 1:
        await asyncio.sleep(0.5)
    found = [obj["metadata"] for obj in await one.everywhere.list(deployments)]
    copies = [(metadata["annotations"]["kcp.io/cluster"], metadata["uid"]) for metadata in found]
    source = (await one.workload.get(DEPLOYMENTS, "web", SPACE))["metadata"]["uid"]
    return sorted(copy for copy in copies if copy[1] != source)


async def through_the_wire(figures: Figures, count: int, seconds: float, rate: float) -> None:
    async with fleet("start") as one, AsyncExitStack() as stack:
        watched = await stack.enter_async_context(watching(one))
        copies = await furnished(one, count)
        await watched.until_expected(count)
        controllers = controllers_of(one.hub)
        reporting = Reporting(Server(one.hub.url, one.hub.token, one.hub.certificate_authority), copies, rate)
        watched.seen.clear()
        before = one.hub.cpu_seconds(), cpu_seconds(controllers), time.process_time()
        await reporting.report(seconds)
        started, last, total = reporting.started, reporting.acknowledged[-1], len(reporting.acknowledged)
        await watched.until(total)
        used = one.hub.cpu_seconds(), cpu_seconds(controllers), time.process_time()
        figures.show(
            f"{count:,} destinations: changes reported",
            f"{total / (last - started):,.0f}/s",
            f"{count * rate:,.0f}/s offered",
            f"{total:,} in {last - started:.1f} s",
        )
        delays = sorted(lags(reporting.acknowledged, watched.seen))
        p50, p99 = percentile(delays, 50) / 1e3, percentile(delays, 99) / 1e3
        figures.show("lag of the summary, p50 / p99", f"{p50:.2f} / {p99:.2f} s", "p99 <= 2 s")
        writes, lasted = len(watched.seen), watched.seen[-1][0] - watched.seen[0][0]
        pace = f"{(writes - 1) / lasted:.2f}/s" if writes > 1 else "once"
        figures.show("writes of the summary", pace, "<= 1/s", f"{writes}, and {lasted:.1f} s between first and last")
        hub, beside, clients = (after - former for former, after in zip(before, used, strict=True))
        figures.show("CPU of the hub", f"{hub:.1f} s", "", f"{hub / total * 1e6:.0f} µs for each change")
        figures.show("CPU of the controllers", f"{beside:.1f} s", "", f"{beside / total * 1e6:.0f} µs for each change")
        figures.show("CPU of those who report", f"{clients:.1f} s", "", "all of them together, and the watcher")


def lags(acknowledged: list[float], seen: list[tuple[float, int]]) -> list[float]:
    """Of each change: seconds until a summary had as many changes as had been acknowledged with it.  One that is seen
    before its own acknowledgement is no lag."""
    sums = [total for _, total in seen]
    return [
        max(0.0, seen[bisect_left(sums, number)][0] - moment) for number, moment in enumerate(sorted(acknowledged), 1)
    ]


# --- the engine alone -----------------------------------------------------------------------------

CLUSTER = "workload"
KIND = GroupResource("apps", "deployments")
REF = ObjectRef(KIND, SPACE, "web")
NAMESPACE = ObjectRef(GroupResource("", "namespaces"), "", SPACE)
KEY = PlacementKey(CLUSTER, "p")
EVENTS = 10_000


def seen(ref: ObjectRef, obj: Obj, version: int = 1) -> ObservedObject:
    obj["metadata"] |= {"uid": f"{version:036}", "resourceVersion": str(version)}
    return parse_object(ref.resource, "v1", orjson.dumps(obj))


def copy_at(number: int, version: int) -> ObservedObject:
    """In a mailbox, with a status."""
    made = deployment("nginx:1")
    made["metadata"]["namespace"] = SPACE
    copy = make_copy(made, placements=[f"{CLUSTER}|p"])
    time_of = {"manager": "farflung-syncer", "operation": "Update", "subresource": "status", "time": STARTED}
    copy["metadata"]["managedFields"] = [time_of]
    return seen(REF, {**copy, "status": status(number)}, version)


def mailbox(number: int) -> str:
    return f"inventory-mb-00000000-0000-4000-8000-{number:012x}"


def world(count: int) -> tuple[PlacementState, Summaries]:
    """All is known, and every copy has reported once."""
    known = PlacementState({KIND: "v1", NAMESPACE.resource: "v1"}, WithdrawalLimits())
    known.on_object(CLUSTER, NAMESPACE, seen(NAMESPACE, namespace(SPACE)))
    known.on_object(CLUSTER, REF, seen(REF, deployment("nginx:1")))
    selecting = placement()
    selecting["metadata"]["uid"] = "p"
    known.on_placement(KEY, parse_placement(orjson.dumps(selecting)))
    destinations = tuple(
        (mailbox(number), CopyDestination("inventory", "default", f"t{number:05}")) for number in range(count)
    )
    for name, destination in destinations:
        metadata = ObjectMeta(name=name, annotations={SYNC_TARGET_NAME: destination.target})
        known.on_workspace(name, Workspace(metadata, WorkspaceSpec(name), WorkspaceStatus("Ready")))
    known.on_slice(CLUSTER, "p", None, PlacementSlice("p", "p", destinations))
    known.begin()
    summaries = Summaries(known)
    summaries.on_placement(KEY)
    first = copy_at(0, 1)
    for name, _ in destinations:
        known.on_object(name, REF, first)
        summaries.look(CopyKey(name, REF))
    return known, summaries


def engine_alone(figures: Figures, count: int) -> None:
    known, summaries = world(count)
    events = [(mailbox(number * 7919 % count), copy_at(number // count + 1, number + 2)) for number in range(EVENTS)]
    heard = looked = 0.0
    for name, after in events:
        started = time.process_time()
        known.on_object(name, REF, after)
        between = time.process_time()
        summaries.look(CopyKey(name, REF))
        ended = time.process_time()
        heard, looked = heard + between - started, looked + ended - between
    each = f"{looked / EVENTS * 1e6:.1f} µs"
    share = f"{looked / EVENTS * 10_000 * 100:.0f} % of a core for 10,000/s"
    figures.show(f"{count:,} destinations: one change", each, "the same for all", share)
    figures.show(f"{count:,} destinations: to hear of it", f"{heard / EVENTS * 1e6:.1f} µs", "", "for whoever listens")
    started = time.process_time()
    found = summaries.summary(SummarySubject(KEY, REF))
    milliseconds = (time.process_time() - started) * 1e3
    assert found is not None and found["destinations"]["reporting"] == count
    figures.show(f"{count:,} destinations: the summary", f"{milliseconds:.2f} ms", "", "once a second at most")


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--destinations", type=int, default=1_000)
    arguments.add_argument("--seconds", type=float, default=15.0)
    arguments.add_argument("--rate", type=float, default=10.0, help="changes a second of each destination")
    arguments.add_argument("--only", choices=["wire", "engine"], default="")
    said = arguments.parse_args()
    allow_many_connections()
    figures = Figures()
    figures.begin("aim", "remark")
    if said.only in ("", "engine"):
        for count in (10, 1_000, 10_000):
            engine_alone(figures, count)
    if said.only in ("", "wire"):
        uvloop.run(through_the_wire(figures, said.destinations, said.seconds, said.rate))


if __name__ == "__main__":
    main()
