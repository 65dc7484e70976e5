"""SyncTargets and Locations in a hub that runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Self

import pytest
from house import TOKEN, House

from farflung.apis.kcp.kinds import definition
from farflung.apis.resource import Resource
from farflung.hub.controllers.loopback import LoopbackClient
from farflung.hub.controllers.sync_targets import SyncTargetController
from farflung.machinery.errors import ApiError, Obj
from farflung.store.base import Change

KINDS = ("SyncTarget", "Location", "APIExport", "APIBinding")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TARGETS = "/apis/workload.kcp.io/v1alpha1/synctargets"
LOCATIONS = "/apis/scheduling.kcp.io/v1alpha1/locations"
EXPORTS = "/apis/apis.kcp.io/v1alpha1/apiexports"
BINDINGS = "/apis/apis.kcp.io/v1alpha1/apibindings"
SYNC_TARGET = Resource("workload.kcp.io", "v1alpha1", "synctargets", "SyncTarget", False, "")
LOCATION = Resource("scheduling.kcp.io", "v1alpha1", "locations", "Location", False, "")
RESOURCE = {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}
URL = "https://hub.example:6443"
MERGE = "application/merge-patch+json"


class Stock:
    """A hub whose cluster has the kinds of an inventory, and the controller that looks after them."""

    def __init__(self, house: House, seconds: float = 60) -> None:
        self.house = house
        self.client = house.client
        self._seconds = seconds
        self._running: asyncio.Task[None] | None = None

    @classmethod
    async def made(cls, house: House, seconds: float = 60) -> Self:
        for kind in KINDS:
            described = definition(kind)
            described.pop("status", None)
            await house.client.request("POST", DEFINITIONS, described)
        stock = cls(house, seconds)
        stock.start()
        return stock

    def start(self) -> None:
        client = LoopbackClient(self.house.hub, f"Bearer {TOKEN}", "kcp")
        self.controller = SyncTargetController(self.house.store, client, self.house.clock, URL, self._seconds)
        self.controller.start()
        self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self.controller.queue.start(group)

    async def stop(self) -> None:
        self.controller.stop()
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait([self._running])

    async def restart(self, after: int) -> None:
        """Crash after so many turns of the loop."""
        for _ in range(after):
            await asyncio.sleep(0)
        await self.stop()
        self.start()

    async def settle(self) -> None:
        async with asyncio.timeout(60):
            while self.controller.queue.is_busy:
                await self.controller.queue.finished()

    # --- what a client does -----------------------------------------------------------------------

    async def target(self, name: str, **labels: str) -> Obj:
        obj = {
            "apiVersion": SYNC_TARGET.api_version,
            "kind": "SyncTarget",
            "metadata": {"name": name, "labels": labels},
        }
        created: Obj = await self.client.request("POST", TARGETS, obj)
        return created

    async def location(self, name: str, selector: Obj, **labels: str) -> None:
        metadata = {"name": name, "labels": labels}
        spec = {"resource": RESOURCE, "instanceSelector": selector}
        obj = {"apiVersion": LOCATION.api_version, "kind": "Location", "metadata": metadata, "spec": spec}
        await self.client.request("POST", LOCATIONS, obj)

    async def get(self, path: str) -> Obj:
        found: Obj = await self.client.request("GET", path)
        return found

    async def patch(self, path: str, change: Obj) -> None:
        await self.client.request("PATCH", path, change, media=MERGE)

    async def delete(self, path: str) -> None:
        await self.client.request("DELETE", path)

    async def exists(self, path: str) -> bool:
        try:
            await self.get(path)
        except ApiError as error:
            assert error.code == 404
            return False
        return True

    async def counts(self, name: str) -> tuple[int, int]:
        await self.settle()
        status = (await self.get(f"{LOCATIONS}/{name}"))["status"]
        return status["instances"], status["availableInstances"]

    async def beat(self, name: str, text: str = "2031-01-01T00:00:00Z") -> None:
        await self.patch(f"{TARGETS}/{name}/status", {"status": {"lastSyncerHeartbeatTime": text}})


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House() as house:
        yield house


@pytest.fixture
async def stock(house: House) -> AsyncIterator[Stock]:
    stock = await Stock.made(house)
    yield stock
    await stock.stop()


async def until(stock: Stock, path: str, holds: Callable[[Obj], bool]) -> Obj:
    """The object when something is true of it."""
    news = asyncio.Event()

    def hear(changes: Sequence[Change]) -> None:
        news.set()

    subscription = stock.house.store.subscribe("/workload.kcp.io/synctargets/", hear)
    try:
        async with asyncio.timeout(60):
            while not holds(found := await stock.get(path)):
                await news.wait()
                news.clear()
    finally:
        subscription.cancel()
    return found


def ready(target: Obj) -> str:
    conditions = (target.get("status") or {}).get("conditions") or ()
    return next((one["status"] for one in conditions if one["type"] == "Ready"), "")


# --- targets --------------------------------------------------------------------------------------


async def test_a_target_gets_its_key_its_addresses_and_its_conditions(stock: Stock) -> None:
    uid = (await stock.target("dev", env="dev"))["metadata"]["uid"]
    await stock.settle()
    target = await stock.get(f"{TARGETS}/dev")
    assert target["metadata"]["labels"].keys() == {"env", "internal.workload.kcp.io/key"}
    assert target["metadata"]["generation"] == 1
    assert ready(target) == "False"
    assert target["status"]["virtualWorkspaces"] == [
        {"syncerURL": f"{URL}/services/syncer/root/dev/{uid}", "upsyncerURL": f"{URL}/services/upsyncer/root/dev/{uid}"}
    ]


async def test_a_heartbeat_makes_a_target_ready(stock: Stock) -> None:
    await stock.target("dev")
    await stock.settle()
    await stock.beat("dev")
    await stock.settle()
    assert ready(await stock.get(f"{TARGETS}/dev")) == "True"


async def test_a_target_that_falls_silent_is_ready_no_more(house: House) -> None:
    stock = await Stock.made(house, seconds=2)
    try:
        await stock.target("dev")
        await stock.beat("dev", house.clock().strftime("%Y-%m-%dT%H:%M:%SZ"))
        await until(stock, f"{TARGETS}/dev", lambda target: ready(target) == "True")
        silent = await until(stock, f"{TARGETS}/dev", lambda target: ready(target) == "False")
        assert silent["status"]["conditions"][0]["message"].startswith("No heartbeat since ")
    finally:
        await stock.stop()


async def test_a_removed_key_of_a_sync_target_is_restored(stock: Stock) -> None:
    await stock.target("dev")
    await stock.settle()
    key = (await stock.get(f"{TARGETS}/dev"))["metadata"]["labels"]
    await stock.patch(f"{TARGETS}/dev", {"metadata": {"labels": None}})
    await stock.settle()
    assert (await stock.get(f"{TARGETS}/dev"))["metadata"]["labels"] == key


# --- locations ------------------------------------------------------------------------------------


async def test_a_location_counts_created_changed_and_deleted_sync_targets(stock: Stock) -> None:
    await stock.location("prod", {"matchLabels": {"env": "prod"}})
    assert await stock.counts("prod") == (0, 0)
    for name, env in (("a", "prod"), ("b", "prod"), ("c", "dev")):
        await stock.target(name, env=env)
    assert await stock.counts("prod") == (2, 0)
    await stock.beat("a")
    assert await stock.counts("prod") == (2, 1)
    await stock.patch(f"{TARGETS}/a", {"spec": {"unschedulable": True}})
    assert await stock.counts("prod") == (2, 0)
    await stock.patch(f"{TARGETS}/c", {"metadata": {"labels": {"env": "prod"}}})
    assert await stock.counts("prod") == (3, 0)
    await stock.delete(f"{TARGETS}/b")
    assert await stock.counts("prod") == (2, 0)
    await stock.patch(f"{LOCATIONS}/prod", {"spec": {"instanceSelector": {"matchLabels": {"env": "none"}}}})
    assert await stock.counts("prod") == (0, 0)


async def test_a_location_shows_its_labels(stock: Stock) -> None:
    await stock.location("prod", {}, zone="b", env="prod")
    await stock.settle()
    shown = "scheduling.kcp.io/labels"
    assert (await stock.get(f"{LOCATIONS}/prod"))["metadata"]["annotations"][shown] == "env=prod zone=b"
    await stock.patch(f"{LOCATIONS}/prod", {"metadata": {"labels": None}})
    await stock.settle()
    assert shown not in ((await stock.get(f"{LOCATIONS}/prod"))["metadata"].get("annotations") or {})


async def test_nothing_is_written_when_nothing_has_changed(stock: Stock) -> None:
    await stock.location("prod", {}, env="prod")
    await stock.target("a", env="prod")
    await stock.settle()
    revision = stock.house.store.revision
    await stock.restart(0)
    await stock.settle()
    assert stock.house.store.revision == revision


# --- what a workspace with targets has ------------------------------------------------------------


async def test_the_first_target_brings_a_location_an_export_and_a_binding(stock: Stock) -> None:
    assert not await stock.exists(f"{LOCATIONS}/default")
    await stock.target("dev")
    assert await stock.counts("default") == (1, 0)
    assert (await stock.get(f"{LOCATIONS}/default"))["spec"] == {"instanceSelector": {}, "resource": RESOURCE}
    export = await stock.get(f"{EXPORTS}/kubernetes")
    assert export["metadata"]["annotations"] == {
        "extra.apis.kcp.io/compute.workload.kcp.io": "true",
        "workload.kcp.io/skip-default-object-creation": "true",
    }
    assert (await stock.get(f"{BINDINGS}/kubernetes"))["spec"] == {"reference": {"export": {"name": "kubernetes"}}}


async def test_a_default_location_that_was_deleted_does_not_come_back(stock: Stock) -> None:
    await stock.target("dev")
    await stock.settle()
    await stock.delete(f"{LOCATIONS}/default")
    await stock.target("again")
    await stock.settle()
    await stock.restart(0)
    await stock.settle()
    assert not await stock.exists(f"{LOCATIONS}/default")


async def test_a_location_that_a_user_created_before_stays_unchanged(stock: Stock) -> None:
    await stock.location("default", {"matchLabels": {"env": "prod"}})
    await stock.target("dev", env="dev")
    assert await stock.counts("default") == (0, 0)
    assert await stock.exists(f"{EXPORTS}/kubernetes")


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21, 34])
async def test_a_crash_at_any_moment_leaves_nothing_undone(stock: Stock, turns: int) -> None:
    await stock.location("prod", {"matchLabels": {"env": "prod"}}, env="prod")
    await stock.target("a", env="prod")
    await stock.restart(turns)
    assert await stock.counts("prod") == (1, 0)
    assert await stock.counts("default") == (1, 0)
    assert await stock.exists(f"{BINDINGS}/kubernetes")
    annotations = (await stock.get(f"{EXPORTS}/kubernetes"))["metadata"]["annotations"]
    assert annotations["workload.kcp.io/skip-default-object-creation"] == "true"
