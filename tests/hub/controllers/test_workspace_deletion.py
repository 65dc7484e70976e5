"""How workspaces are kept, and how they end, also when the hub stops in the middle of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from definitions import DEFINITIONS, STRING, THINGS, definition, thing, version
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore
from platform_harness import TENANCY, platform_hub
from tenancy_harness import ADMIN, LocalTenancy, workspace_controller

from farflung.hub.catalog import objects
from farflung.hub.controllers.workspaces import plan_deletion
from farflung.hub.tenancy.direct_writes import WORKSPACE_TYPE, encode_stored, minimal_resource
from farflung.hub.tenancy.home_workspaces import HomeWorkspaces
from farflung.hub.tenancy.paths import LOGICAL_CLUSTERS, logical_cluster_key, workspace_key
from farflung.machinery.errors import Obj
from farflung.store.base import ABSENT, Entry, Revision, Store
from farflung.store.sqlite.store import SqliteStore

UNIVERSAL = {"name": "universal", "path": "root"}
GADGET = minimal_resource("example.com", "v1", "gadgets:0123", "Gadget", namespaced=True)


async def universal(local: LocalTenancy, cluster: str, name: str) -> str:
    workspace = await local.create(cluster, name, type=UNIVERSAL)
    return str(workspace["spec"]["cluster"])


async def change(store: Store, key: str, **parts: Obj) -> None:
    entry = store.get(key)
    assert entry is not None
    obj = objects.decode(entry)
    for name, controller in parts.items():
        obj[name] = {**obj.get(name, {}), **controller}
    await store.put(key, encode_stored(obj), expect=entry.revision)


async def test_deleting_a_workspace_deletes_everything_in_it() -> None:
    local = await LocalTenancy.in_memory()
    before = local.stored()
    cluster = await universal(local, "root", "a")
    await local.config_map(cluster, "cm")
    await local.put(GADGET, cluster, {"metadata": {"name": "g", "namespace": "default"}})
    await universal(local, await universal(local, cluster, "b"), "c")
    async with workspace_controller(local) as controller:
        await local.delete("root", "a")
        await controller.queue.finished()
    assert local.stored() == before


async def test_others_stay() -> None:
    local = await LocalTenancy.in_memory()
    kept = await universal(local, "root", "kept")
    await local.config_map(kept, "cm")
    before = local.stored()
    await universal(local, "root", "gone")
    async with workspace_controller(local) as controller:
        await local.delete("root", "gone")
        await controller.queue.finished()
    assert local.stored() == before


async def test_what_a_finalizer_holds_is_waited_for() -> None:
    local = await LocalTenancy.in_memory()
    before = local.stored()
    cluster = await universal(local, "root", "a")
    held = await local.config_map(cluster, "held", finalizers=["example.com/hold"])
    await local.config_map(cluster, "free")
    async with workspace_controller(local) as controller:
        await local.delete("root", "a")
        await controller.queue.finished()
        assert local.workspace("root", "a")["metadata"]["labels"] == {"tenancy.kcp.io/phase": "Deleting"}
        logical_cluster = local.logical_cluster(cluster)
        assert logical_cluster["metadata"]["labels"] == {"tenancy.kcp.io/phase": "Deleting"}
        assert logical_cluster["metadata"]["deletionTimestamp"]
        told = logical_cluster["status"]["conditions"][0]
        assert (told["type"], told["status"], told["reason"]) == (
            "WorkspaceContentDeleted",
            "False",
            "SomeResourcesRemain",
        )
        assert told["message"] == "Some resources are remaining: namespaces. has 1 resource instances"
        assert local.object(held)["metadata"]["deletionTimestamp"]
        namespace = local.object(f"/core/namespaces/{cluster}/default")
        assert namespace["status"]["phase"] == "Terminating"
        assert not any(key.endswith("/free") for key in local.keys(cluster))
        assert any("apibindings" in key for key in local.keys(cluster))
        await local.release(held)
        await controller.queue.finished()
    assert local.stored() == before


async def test_objects_created_while_the_deletion_waited_are_deleted_too() -> None:
    local = await LocalTenancy.in_memory()
    before = local.stored()
    cluster = await universal(local, "root", "a")
    held = await local.config_map(cluster, "held", finalizers=["example.com/hold"])
    async with workspace_controller(local) as controller:
        await local.delete("root", "a")
        await controller.queue.finished()
        await local.config_map(cluster, "late", namespace="other")
        await universal(local, cluster, "late")
        await local.release(held)
        await controller.queue.finished()
    assert local.stored() == before


async def test_a_definition_that_is_let_go_first_stays_until_what_it_defines_is_let_go() -> None:
    hub = await platform_hub()
    hold = {"finalizers": ["example.com/hold"]}
    defined = definition(version(a=STRING))
    defined["metadata"] |= hold
    held = thing("held", a="b")
    held["metadata"] |= hold
    async with hub.running_controllers() as keeping:
        cluster = await hub.workspace("a")
        await hub.create(f"/clusters/{cluster}{DEFINITIONS}", defined)
        await hub.create(f"/clusters/{cluster}{THINGS}", held)
        await hub.delete(f"/clusters/root{TENANCY}/workspaces/a")
        await keeping.finished()
        for path in (f"{DEFINITIONS}/things.example.com", f"{THINGS}/held"):
            found = await hub.get(f"/clusters/{cluster}{path}")
            assert found.status == 200, path
            others = [one for one in found.json["metadata"]["finalizers"] if one not in hold["finalizers"]]
            await hub.patch(f"/clusters/{cluster}{path}", {"metadata": {"finalizers": others}})
        await keeping.finished()
    assert not hub.stored(cluster)


async def test_finalizers_of_others_hold_a_workspace_itself() -> None:
    local = await LocalTenancy.in_memory()
    cluster = await universal(local, "root", "a")
    key = workspace_key("root", "a")
    await change(local.store, key, metadata={"finalizers": ["core.kcp.io/logicalcluster", "example.com/hold"]})
    async with workspace_controller(local) as controller:
        await local.delete("root", "a")
        await controller.queue.finished()
    assert local.object(key)["metadata"]["finalizers"] == ["example.com/hold"]
    assert not local.keys(cluster)


async def test_a_cluster_whose_workspace_was_removed_is_deleted_too() -> None:
    local = await LocalTenancy.in_memory()
    before = local.stored()
    await universal(local, "root", "a")
    entry = local.store.get(workspace_key("root", "a"))
    assert entry is not None
    async with workspace_controller(local) as controller:
        await local.store.delete(entry.key, expect=entry.revision)
        await controller.queue.finished()
    assert local.stored() == before


async def test_a_workspace_whose_cluster_was_deleted_is_deleted_too() -> None:
    local = await LocalTenancy.in_memory()
    before = local.stored()
    cluster = await universal(local, "root", "a")
    async with workspace_controller(local) as controller:
        await change(local.store, logical_cluster_key(cluster), metadata={"deletionTimestamp": "2024-05-01T12:00:00Z"})
        await controller.queue.finished()
    assert local.stored() == before


async def test_the_root_is_never_deleted() -> None:
    local = await LocalTenancy.in_memory()
    before = local.stored()
    async with workspace_controller(local) as controller:
        await change(local.store, logical_cluster_key("root"), metadata={"deletionTimestamp": "2024-05-01T12:00:00Z"})
        await controller.queue.finished()
        entry = local.store.get(logical_cluster_key("root"))
        assert entry is not None
        await local.store.delete(entry.key, expect=entry.revision)
        await controller.queue.finished()
    assert local.stored() == before - {entry.key}


# --- what is kept -----------------------------------------------------------------------------------


async def test_the_label_and_the_phase_are_restored() -> None:
    local = await LocalTenancy.in_memory()
    await universal(local, "root", "a")
    key = workspace_key("root", "a")
    settled = local.object(key)
    async with workspace_controller(local) as controller:
        await change(local.store, key, metadata={"labels": {"tenancy.kcp.io/phase": "Foo", "region": "west"}})
        await change(local.store, key, status={"phase": "Initializing"})
        await controller.queue.finished()
    workspace = local.object(key)
    assert workspace["metadata"]["labels"] == {"tenancy.kcp.io/phase": "Ready", "region": "west"}
    assert workspace["status"] == settled["status"]


async def test_a_workspace_is_ready_once_its_initializers_are_done() -> None:
    local = await LocalTenancy.in_memory()
    await local.put(WORKSPACE_TYPE, "root", {"metadata": {"name": "mine"}, "spec": {"initializer": True}})
    cluster = (await local.create("root", "w", type={"name": "mine"}))["spec"]["cluster"]
    async with workspace_controller(local) as controller:
        await controller.queue.finished()
        assert local.workspace("root", "w")["status"]["phase"] == "Initializing"
        await change(local.store, logical_cluster_key(cluster), status={"initializers": []})
        await controller.queue.finished()
    workspace, logical_cluster = local.workspace("root", "w"), local.logical_cluster(cluster)
    for obj in (workspace, logical_cluster):
        assert obj["status"]["phase"] == "Ready"
        assert obj["metadata"]["labels"] == {"tenancy.kcp.io/phase": "Ready"}
        assert obj["metadata"]["annotations"]["experimental.tenancy.kcp.io/owner"] == '{"username":"kcp-admin"}'
    assert "initializers" not in workspace["status"]


async def test_nothing_is_written_where_nothing_is_wrong() -> None:
    local = await LocalTenancy.in_memory()
    await universal(local, "root", "a")
    await HomeWorkspaces(local.store, local.tenancy).workspace(ADMIN)
    before = local.store.revision
    async with workspace_controller(local) as controller:
        await controller.queue.finished()
    assert local.store.revision == before


async def test_a_workspace_gets_its_cluster_once_a_shard_wants_it() -> None:
    local = await LocalTenancy.in_memory()
    await local.create("root", "o6", location={"selector": {"matchLabels": {"size": "large"}}})
    async with workspace_controller(local) as controller:
        await controller.queue.finished()
        assert "cluster" not in local.workspace("root", "o6")["spec"]
    await change(local.store, "/core.kcp.io/shards/root/root", metadata={"labels": {"size": "large"}})
    async with workspace_controller(local) as controller:
        await controller.queue.finished()
    assert local.workspace("root", "o6")["status"]["phase"] == "Ready"


# --- crashes ----------------------------------------------------------------------------------------


class Crash(BaseException):
    """The power is gone: nobody hears of it."""


class Mortal(MemoryStore):
    """Writes so often, and then never again."""

    def __init__(self, writes: int) -> None:
        super().__init__(stamp=objects.stamp)
        self.left = writes

    def _live(self) -> None:
        if self.left == 0:
            raise Crash
        self.left -= 1

    async def put(self, key: str, value: bytes, *, expect: Revision) -> Entry:
        self._live()
        return await super().put(key, value, expect=expect)

    async def delete(self, key: str, *, expect: Revision) -> Revision:
        self._live()
        return await super().delete(key, expect=expect)


async def build(local: LocalTenancy) -> None:
    cluster = await universal(local, "root", "a")
    child = await universal(local, cluster, "b")
    await universal(local, cluster, "c")
    await local.config_map(child, "cm")
    await HomeWorkspaces(local.store, local.tenancy).workspace(ADMIN)


async def crashed(local: LocalTenancy, *, ends: bool) -> bool:
    """A life that may be cut short: whether it was."""
    assert isinstance(local.store, Mortal)
    try:
        if not ends:
            await build(local)
        else:
            async with workspace_controller(local) as controller:
                await local.delete("root", "a")
                watch = asyncio.create_task(controller.queue.finished())
                while not watch.done() and local.store.left:
                    await asyncio.sleep(0)
                watch.cancel()
    except BaseException as error:
        if not isinstance(error, Crash | BaseExceptionGroup):
            raise
    return local.store.left == 0


async def restarted(local: LocalTenancy) -> LocalTenancy:
    assert isinstance(local.store, Mortal)
    local.store.left = -1
    again = LocalTenancy(local.store, seed="again")
    async with workspace_controller(again) as controller:
        await controller.queue.finished()
    return again


@given(st.integers(0, 60))
@settings(max_examples=examples(60))
def test_a_creation_that_was_stopped_leaves_whole_workspaces_or_none(writes: int) -> None:
    async def live() -> None:
        store = Mortal(-1)
        local = await LocalTenancy(store).furnish()
        bare = local.stored()
        store.left = writes
        await crashed(local, ends=False)
        again = await restarted(local)
        expected = await LocalTenancy.in_memory()
        present = [
            name for name in ("root:a", "root:a:b", "root:a:c", "user:kcp-admin") if again.clusters.resolve(name)
        ]
        assert {key.split("/")[3] for key in again.stored()} == {"root", *map(again.clusters.resolve, present)}
        whole = len(expected.keys(await universal(expected, "root", "whole")))
        for path in present:
            cluster = again.clusters.resolve(path)
            assert cluster is not None
            own = [key for key in again.keys(cluster) if "/workspaces/" not in key and not key.endswith("/cm")]
            assert len(own) == whole
        assert bare <= again.stored()

    asyncio.run(live())


@given(st.integers(0, 60))
@settings(max_examples=examples(60))
def test_a_removal_that_was_stopped_ends_like_one_that_was_not(writes: int) -> None:
    async def live() -> None:
        store = Mortal(-1)
        local = await LocalTenancy(store).furnish()
        await HomeWorkspaces(store, local.tenancy).workspace(ADMIN)
        before = local.stored()
        cluster = await universal(local, "root", "a")
        await universal(local, await universal(local, cluster, "b"), "c")
        await local.config_map(cluster, "cm", finalizers=["foregroundDeletion"])
        store.left = 1 + writes  # the deletion itself is answered
        await crashed(local, ends=True)
        assert (await restarted(local)).stored() == before

    asyncio.run(live())


async def test_many_siblings_go_together(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db", stamp=objects.stamp)
    try:
        local = await LocalTenancy(store).furnish()
        before = local.stored()
        cluster = await universal(local, "root", "a")
        await asyncio.gather(*(universal(local, cluster, f"w{at}") for at in range(200)))
        async with workspace_controller(local) as controller:
            await local.delete("root", "a")
            await controller.queue.finished()
        assert local.stored() == before
    finally:
        await store.close()


async def test_a_long_chain_of_workspaces_is_deleted_from_its_end(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db", stamp=objects.stamp)
    try:
        local = await LocalTenancy(store).furnish()
        before = local.stored()
        cluster = "root"
        for _ in range(50):
            cluster = await universal(local, cluster, "a")
        async with workspace_controller(local) as controller:
            await local.delete("root", "a")
            await controller.queue.finished()
        assert local.stored() == before
    finally:
        await store.close()


@pytest.mark.parametrize("cluster", ["lost", "l0st"])
async def test_an_unreachable_cluster_is_removed_at_startup(cluster: str) -> None:
    local = await LocalTenancy.in_memory()
    before = local.stored()
    await local.config_map(cluster, "cm", finalizers=["example.com/hold"])
    kept = {await local.config_map(other, "kept") for other in ("system:admin", "e3b0c442" * 8, "A")}
    async with workspace_controller(local) as controller:
        await controller.queue.finished()
    assert local.stored() == before | kept


async def test_namespaces_go_before_what_is_in_them() -> None:
    """Or else the hub would bring back what a namespace lacks, and complain that there is no workspace any more."""
    local = await LocalTenancy.in_memory()
    cluster = await universal(local, "root", "a")
    await local.config_map(cluster, "cm")
    assert plan_deletion(local.store, cluster).free[0].key == f"/core/namespaces/{cluster}/default"
    gone: list[str] = []
    for home in ("/core/namespaces/", "/core/configmaps/", "/core/serviceaccounts/"):
        local.store.subscribe(home, lambda changes: gone.extend(change.key for change in changes if not change.entry))
    entry = local.store.get(logical_cluster_key(cluster))
    assert entry is not None
    async with workspace_controller(local) as controller:
        await local.store.delete(entry.key, expect=entry.revision)
        await controller.queue.finished()
    assert gone[0] == f"/core/namespaces/{cluster}/default"
    assert len(gone) >= 3


class Crowded(SqliteStore):
    """Somebody always writes into a cluster just as its LogicalCluster goes: it is there when they look."""

    written: list[asyncio.Task[Entry]]
    turns: int  #: of the loop that they take

    async def delete(self, key: str, *, expect: Revision) -> Revision:
        deletion = asyncio.ensure_future(super().delete(key, expect=expect))
        if key.startswith(LOGICAL_CLUSTERS):
            for _ in range(self.turns):
                await asyncio.sleep(0)
        if key.startswith(LOGICAL_CLUSTERS) and self.get(key) is not None:
            late = f"/rbac.authorization.k8s.io/clusterroles/{objects.cluster_in(key)}/late"
            value = encode_stored({"apiVersion": "v1", "kind": "ClusterRole", "metadata": {"name": "late", "uid": "u"}})
            self.written.append(asyncio.create_task(self.put(late, value, expect=ABSENT)))
        return await deletion


async def test_objects_written_while_a_logical_cluster_is_deleted_are_deleted_too(tmp_path: Path) -> None:
    store = await Crowded.open(tmp_path / "store.db", stamp=objects.stamp)
    assert isinstance(store, Crowded)
    store.written = []
    local = await LocalTenancy(store).furnish()
    before = local.stored()
    async with workspace_controller(local) as controller:
        for number in range(24):
            store.turns = 1 + number % 6
            await universal(local, "root", f"w{number}")
            await local.delete("root", f"w{number}")
            await controller.queue.finished()
            await asyncio.gather(*store.written)
            await controller.queue.finished()
            assert local.stored() == before
    assert store.written
    await store.close()


async def test_a_home_workspace_requested_during_its_deletion_is_complete_or_absent(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db", stamp=objects.stamp)
    local = await LocalTenancy(store).furnish()
    homes = HomeWorkspaces(store, local.tenancy)
    async with workspace_controller(local) as controller:
        cluster = str((await homes.workspace(ADMIN))["spec"]["cluster"])
        whole = local.keys(cluster)
        for yielding in range(20):
            for key in [key for key in whole if store.get(key) is None]:
                raise AssertionError(f"{key} is missing after {yielding} turns")
            entry = store.get(logical_cluster_key(cluster))
            assert entry is not None
            await store.delete(entry.key, expect=entry.revision)
            for _ in range(yielding):
                await asyncio.sleep(0)
            await homes.workspace(ADMIN)
            await controller.queue.finished()
            assert local.keys(cluster) in (whole, [])
            await homes.workspace(ADMIN)
    await store.close()
