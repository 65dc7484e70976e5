"""The condition that reports what a workspace stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from platform_harness import ALICE, MAPS, OPERATOR, TENANCY, URL, PlatformHub
from simulated_time import poll

from farflung.hub.assembly import Options
from farflung.hub.controllers.workspace_quotas import PERIOD, quota_condition
from farflung.hub.registry.call import StorageLimits
from farflung.hub.tenancy.paths import LOGICAL_CLUSTERS, WORKSPACES, logical_cluster_key, workspace_key
from farflung.machinery.errors import Obj
from farflung.store.base import Amount, Store

pytestmark = pytest.mark.simulated_time
OPTIONS = Options(URL, storage=StorageLimits(objects=10_000, size=100 * 1024 * 1024))
SELF = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"


@asynccontextmanager
async def running(store: Store | None = None) -> AsyncIterator[PlatformHub]:
    hub = PlatformHub(store, options=OPTIONS)
    await hub.platform.bootstrap.start(bare=True)
    async with hub.running_controllers():
        yield hub


async def condition(hub: PlatformHub, path: str) -> Obj:
    found = (await hub.of(OPERATOR, "GET", path)).json["status"]["conditions"]
    return next((one for one in found if one["type"] == "WithinQuota"), {})


async def test_a_workspace_reports_its_amounts_at_most_every_half_minute_and_only_if_they_change() -> None:
    async with running() as hub:
        large, small = await hub.workspace("large", ALICE), await hub.workspace("small", ALICE)
        path = f"/clusters/{large}{MAPS}"

        async def create(name: str, **data: str) -> None:
            created = await hub.of(ALICE, "POST", path, {"metadata": {"name": name}, "data": data})
            assert created.status == 201

        await create("a", k="x" * 900_000)
        await create("b", k="x" * 900_000)
        own, written = [logical_cluster_key(large), workspace_key("root", "large")], []
        for prefix in (LOGICAL_CLUSTERS, WORKSPACES):
            hub.store.subscribe(prefix, lambda changes: written.extend([one.key for one in changes if one.key in own]))
        await poll(lambda: condition(hub, f"/clusters/root{TENANCY}/workspaces/large"))
        used = hub.store.amount(large).keys
        inside = await condition(hub, f"/clusters/{large}{SELF}")
        assert inside == await condition(hub, f"/clusters/root{TENANCY}/workspaces/large")
        assert (inside["status"], inside["message"]) == ("True", f"{used} of 10000 objects and 2 of 100 MiB are used")
        assert not await condition(hub, f"/clusters/{small}{SELF}")
        await asyncio.sleep(3 * PERIOD)
        assert written == own
        for number in range(20):
            await create(f"c{number}")
        await poll(lambda: says(hub, large, f"{used + 20} of"))
        await poll(lambda: len(written) > 3)
        assert written == own * 2
        since = (await condition(hub, f"/clusters/{large}{SELF}"))["lastTransitionTime"]
        assert since == inside["lastTransitionTime"]
        for name in ("a", "b"):
            await hub.of(ALICE, "DELETE", f"{path}/{name}")
    async with running(hub.store) as hub:
        await poll(lambda: says(hub, large, "1 of 100 MiB"))


async def says(hub: PlatformHub, cluster: str, text: str) -> bool:
    return text in (await condition(hub, f"/clusters/{cluster}{SELF}")).get("message", "")


@pytest.mark.parametrize(
    ("used", "status"), [(Amount(9, 9), "True"), (Amount(10, 9), "False"), (Amount(9, 10), "False")]
)
async def test_a_full_workspace_is_not_within_its_quota(used: Amount, status: str) -> None:
    assert quota_condition(used, StorageLimits(objects=10, size=10))["status"] == status
