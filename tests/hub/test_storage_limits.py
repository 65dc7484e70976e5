"""What one workspace may store, and how many workspaces a user may create."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hub_harness import CONFIG_MAPS, MERGE_PATCH, LocalHub
from memory_store import MemoryStore
from platform_harness import ALICE, MAPS, OPERATOR, TENANCY, URL, PlatformHub

from farflung.hub.assembly import Options
from farflung.hub.catalog import objects
from farflung.hub.registry.call import StorageLimits
from farflung.store.sqlite.store import SqliteStore


async def test_a_workspace_with_too_many_objects_takes_no_more_until_one_is_deleted() -> None:
    options = Options(storage=StorageLimits(objects=4))
    hub = await LocalHub(MemoryStore(stamp=objects.stamp), options=options).furnish()
    for name in ("a", "b"):
        await hub.config_map(name)
    refused = await hub.post(CONFIG_MAPS, {"metadata": {"name": "c"}})
    assert (refused.status, refused.reason) == (403, "Forbidden")
    why = "exceeded quota: workspace, requested: objects=1, used: objects=4, limited: objects=4"
    assert refused.message == f'configmaps "c" is forbidden: {why}'
    assert (await hub.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}}, MERGE_PATCH)).status == 200
    assert (await hub.delete(f"{CONFIG_MAPS}/a")).status == 200
    assert (await hub.post(CONFIG_MAPS, {"metadata": {"name": "c"}})).status == 201


async def test_a_workspace_with_too_many_bytes_takes_no_larger_objects_also_from_workers() -> None:
    options = Options(storage=StorageLimits(size=200_000))
    hub = await LocalHub(MemoryStore(stamp=objects.stamp), options=options).furnish()
    await hub.config_map("a", k="x" * 100_000)
    with hub.writes_nothing():
        for refused in (
            await hub.post(CONFIG_MAPS, {"metadata": {"name": "b"}, "data": {"k": "x" * 100_000}}),
            await hub.patch(f"{CONFIG_MAPS}/a", {"data": {"l": "x" * 100_000}}, MERGE_PATCH),
        ):
            assert refused.status == 403
            assert "exceeded quota: workspace, requested: bytes=" in refused.message
    assert hub.assembly.workers.finished > 0
    await hub.config_map("small")
    assert (await hub.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "y"}}, MERGE_PATCH)).status == 200
    await hub.config_map("b", k="x" * 100_000)
    hub.close()


async def test_the_limits_hold_after_a_restart(tmp_path: Path) -> None:
    options = Options(storage=StorageLimits(objects=3))
    path = tmp_path / "hub.sqlite"
    for name, status in {"a": 201, "b": 403}.items():
        store = await SqliteStore.open(path, stamp=objects.stamp)
        hub = LocalHub(store, options=options)
        if name == "a":
            await hub.furnish()
        assert (await hub.post(CONFIG_MAPS, {"metadata": {"name": name}})).status == status
        await store.close()


@pytest.fixture
async def hub() -> AsyncIterator[PlatformHub]:
    hub = PlatformHub(options=Options(URL, storage=StorageLimits(objects=120), home_workspaces=2))
    await hub.platform.bootstrap.start(bare=False)
    async with hub.running_controllers():
        yield hub


async def test_a_full_workspace_does_not_hinder_another_one_and_administrators_are_limited_too(
    hub: PlatformHub,
) -> None:
    full, other = await hub.workspace("full", ALICE), await hub.workspace("other", ALICE)
    for cluster in (full, other):
        await hub.of(OPERATOR, "POST", f"/clusters/{cluster}/api/v1/namespaces", {"metadata": {"name": "default"}})
    codes = [
        (await hub.of(ALICE, "POST", f"/clusters/{full}{MAPS}", {"metadata": {"name": f"m{number}"}})).status
        for number in range(120)
    ]
    assert codes[0] == 201
    assert codes[-1] == 403
    assert codes == sorted(codes)
    assert (await hub.of(OPERATOR, "POST", f"/clusters/{full}{MAPS}", {"metadata": {"name": "x"}})).status == 403
    assert (await hub.of(ALICE, "POST", f"/clusters/{other}{MAPS}", {"metadata": {"name": "x"}})).status == 201


async def test_a_user_may_create_so_many_workspaces_below_the_home_workspace_at_any_depth(hub: PlatformHub) -> None:
    home = (await hub.of(ALICE, "GET", f"/clusters/root{TENANCY}/workspaces/~")).json["spec"]["cluster"]
    body = {"spec": {"type": {"name": "universal", "path": "root"}}}

    async def create(cluster: str, name: str) -> tuple[int, str]:
        sent = {"metadata": {"name": name}, **body}
        answer = await hub.of(ALICE, "POST", f"/clusters/{cluster}{TENANCY}/workspaces", sent)
        found = answer.json
        return answer.status, found["spec"]["cluster"] if answer.status == 201 else found["message"]

    first, child = await create(home, "a")
    second, _ = await create(child, "b")
    third, why = await create(child, "c")
    assert (first, second, third) == (201, 201, 403)
    used = "requested: workspaces=1, used: workspaces=2, limited: workspaces=2"
    assert why == f'workspaces.tenancy.kcp.io "c" is forbidden: exceeded quota: home workspace, {used}'
