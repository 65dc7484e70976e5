"""What is there after a start, whatever was there before."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from apis_harness import URL, workspace_kinds
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore

from farflung.apis.edge import kinds as edge
from farflung.hub.catalog import objects
from farflung.hub.catalog.served import kinds_in
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import ANONYMOUS, AUTHENTICATED, User
from farflung.hub.tenancy.api_exports import Exporter
from farflung.hub.tenancy.binding_strategy import Binder
from farflung.hub.tenancy.bootstrap import Bootstrap, edge_schemas
from farflung.hub.tenancy.bound_apis import BoundApis
from farflung.hub.tenancy.direct_writes import MANAGER, CreationContext, encode_stored
from farflung.hub.tenancy.workspace_authorizer import WorkspaceAuthorizer
from farflung.hub.tenancy.workspaces import Tenancy
from farflung.machinery.errors import Obj
from farflung.store.base import Entry, Revision, Store


class Started:
    """A store after the start of a hub on it."""

    def __init__(self, store: Store, seed: str) -> None:
        self.store = store
        numbers = itertools.count()

        def new_uid() -> str:
            return f"uid-{seed}{next(numbers)}"

        def random(size: int) -> bytes:
            return hashlib.sha256(new_uid().encode()).digest()[:size]

        def clock() -> datetime:
            return datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)

        self.tenancy = Tenancy(store, CreationContext(URL, clock, new_uid, random))
        self.clusters = self.tenancy.clusters
        self.kinds = kinds_in(store, workspace_kinds())
        apis = BoundApis(store, self.kinds)
        apis.start()
        binder = Binder(store, self.kinds, self.clusters, apis, new_uid)
        self.tenancy.bind = binder.bind
        exporter = Exporter(store, self.clusters, self.tenancy.context)
        self.bootstrap = Bootstrap(store, self.tenancy, exporter, binder)

    def object(self, key: str) -> Obj:
        entry = self.store.get(key)
        assert entry is not None, f"{key} is not there"
        return objects.decode(entry)

    def names(self, prefix: str) -> list[str]:
        return [objects.name_in(entry.key)[1] for entry in self.store.list(prefix).entries]


async def started(store: Store | None = None, *, bare: bool = True, seed: str = "") -> Started:
    hub = Started(store or MemoryStore(stamp=objects.stamp), seed)
    await hub.bootstrap.start(bare=bare)
    return hub


def conditions(obj: Obj) -> dict[str, str]:
    return {one["type"]: one["status"] for one in obj["status"]["conditions"]}


async def test_the_root_is_as_kcps() -> None:
    hub = await started()
    root = hub.object("/core.kcp.io/logicalclusters/root/cluster")
    assert root["metadata"]["annotations"] == {
        "internal.kcp.io/replicate": "apis.kcp.io,tenancy.kcp.io",
        "internal.tenancy.kcp.io/type": "root:root",
        "kcp.io/cluster": "root",
    }
    assert root["spec"] == {"directlyDeletable": False}
    universal = hub.object("/tenancy.kcp.io/workspacetypes/root/universal")
    assert universal["status"]["virtualWorkspaces"] == [
        {"url": f"{URL}/services/initializingworkspaces/root:universal"}
    ]
    assert conditions(universal) == {"Ready": "True", "VirtualWorkspaceURLsReady": "True"}
    assert hub.object("/core.kcp.io/shards/root/root")["spec"]["externalURL"] == URL
    assert hub.names("/tenancy.kcp.io/workspaces/root/") == ["compute"]


async def test_the_exports_of_the_root_are_bound_there_under_their_names() -> None:
    hub = await started()
    names = hub.names("/apis.kcp.io/apiexports/root/")
    assert set(names) > {"tenancy.kcp.io", "scheduling.kcp.io", "workload.kcp.io", "shards.core.kcp.io"}
    assert hub.names("/apis.kcp.io/apibindings/root/") == names
    for name in names:
        export = hub.object(f"/apis.kcp.io/apiexports/root/{name}")
        assert conditions(export) == {"IdentityValid": "True", "VirtualWorkspaceURLsReady": "True"}
        assert hub.object(f"/apis.kcp.io/apibindings/root/{name}")["status"]["phase"] == "Bound"


@pytest.mark.parametrize(
    ("group", "resource", "verb", "allowed"),
    [
        ("tenancy.kcp.io", "workspaces", "list", True),
        ("tenancy.kcp.io", "workspacetypes", "watch", True),
        ("core.kcp.io", "logicalclusters", "get", True),
        ("tenancy.kcp.io", "workspaces", "create", False),
        ("tenancy.kcp.io", "workspaces", "delete", False),
        ("", "secrets", "list", False),
        ("apis.kcp.io", "apiexports", "list", False),
    ],
)
async def test_everybody_finds_what_is_right_below_the_root_and_nothing_more(
    group: str, resource: str, verb: str, allowed: bool
) -> None:
    hub = await started()
    asked = Attributes(verb, group, resource)
    authorizer = WorkspaceAuthorizer(hub.store)
    assert authorizer.decide("root", User("ann", (AUTHENTICATED,)), asked).allowed == allowed
    assert not authorizer.decide("root", ANONYMOUS, asked).allowed


async def test_compute_exports_kubernetes_to_everybody() -> None:
    hub = await started()
    cluster = hub.clusters.resolve("root:compute")
    workspace = hub.object("/tenancy.kcp.io/workspaces/root/compute")
    assert workspace["spec"]["type"] == {"name": "universal", "path": "root"}
    assert workspace["metadata"]["annotations"]["experimental.tenancy.kcp.io/owner"] == (
        '{"username":"system:kcp:bootstrapper"}'
    )
    logical_cluster = hub.object(f"/core.kcp.io/logicalclusters/{cluster}/cluster")
    assert logical_cluster["metadata"]["annotations"]["internal.kcp.io/replicate"] == "apis.kcp.io"
    export = hub.object(f"/apis.kcp.io/apiexports/{cluster}/kubernetes")
    assert export["metadata"]["annotations"]["kcp.io/path"] == "root:compute"
    assert export["status"]["virtualWorkspaces"] == [{"url": f"{URL}/services/apiexport/{cluster}/kubernetes"}]
    assert len(export["spec"]["latestResourceSchemas"]) == 4
    more = hub.object(f"/apis.kcp.io/apiexports/{cluster}/kubernetes-more")
    exported = {*export["spec"]["latestResourceSchemas"], *more["spec"]["latestResourceSchemas"]}
    assert exported < set(hub.names(f"/apis.kcp.io/apiresourceschemas/{cluster}/"))
    bindings = [
        hub.object(f"/apis.kcp.io/apibindings/{cluster}/{name}")
        for name in hub.names(f"/apis.kcp.io/apibindings/{cluster}/")
    ]
    assert len(bindings) == 5
    assert {binding["status"]["phase"] for binding in bindings} == {"Bound"}


async def test_compute_exports_the_kinds_of_the_global_scheduler_too() -> None:
    hub = await started()
    cluster = hub.clusters.resolve("root:compute")
    export = hub.object(f"/apis.kcp.io/apiexports/{cluster}/globalscheduler.com")
    names = [name.partition(".")[2] for name in export["spec"]["latestResourceSchemas"]]
    assert names == ["allocations.globalscheduler.com", "clusters.globalscheduler.com"]
    assert export["status"]["identityHash"]


async def test_a_hub_that_was_there_before_gets_the_export_at_its_next_start() -> None:
    hub = await started()
    cluster = hub.clusters.resolve("root:compute")
    newer = [
        f"/apis.kcp.io/apiexports/{cluster}/globalscheduler.com",
        *(
            f"/apis.kcp.io/apiresourceschemas/{cluster}/{name}"
            for name in hub.names(f"/apis.kcp.io/apiresourceschemas/{cluster}/")
            if name.endswith(".globalscheduler.com")
        ),
        *(
            f"/rbac.authorization.k8s.io/{kind}/{cluster}/{name}"
            for kind in ("clusterroles", "clusterrolebindings")
            for name in (
                "compute:virtual-machines",
                "compute:virtual-machine-operators",
                "compute:bind-global-scheduler",
            )
        ),
    ]
    assert len(newer) == 9
    for key in newer:
        entry = hub.store.get(key)
        assert entry is not None, key
        await hub.store.delete(key, expect=entry.revision)
    again = await started(hub.store, seed="again")
    assert all(again.store.get(key) for key in newer)


async def test_a_hub_that_is_not_bare_provides_the_edge_api() -> None:
    hub = await started(bare=False)
    cluster = hub.clusters.resolve("root:espw")
    assert cluster is not None
    assert hub.kinds.of(cluster).find("edge.kcp.io", "v1alpha1", "edgeplacements") is not None
    assert hub.names(f"/apis.kcp.io/apiexports/{cluster}/") == ["edge.kcp.io"]
    assert (await started()).clusters.resolve("root:espw") is None


@pytest.mark.parametrize("bare", [True, False])
async def test_a_second_start_writes_nothing(bare: bool) -> None:
    hub = await started(bare=bare)
    before = hub.store.revision
    await started(hub.store, bare=bare, seed="again")
    assert hub.store.revision == before


async def test_objects_that_users_changed_stay_and_removed_ones_are_created_again() -> None:
    hub = await started()
    kept, gone = "/tenancy.kcp.io/workspacetypes/root/universal", "/tenancy.kcp.io/workspacetypes/root/team"
    entry = hub.store.get(kept)
    assert entry is not None
    changed = objects.decode(entry)
    changed["spec"]["initializer"] = False
    await hub.store.put(kept, encode_stored(changed), expect=entry.revision)
    removed = hub.store.get(gone)
    assert removed is not None
    await hub.store.delete(gone, expect=removed.revision)
    await started(hub.store, seed="again")
    assert hub.object(kept)["spec"]["initializer"] is False
    assert hub.store.get(gone) is not None


async def aged(hub: Started, manager: str) -> str:
    """The export of the edge API, as an earlier hub made it, or somebody else did."""
    key = f"/apis.kcp.io/apiexports/{hub.clusters.resolve('root:espw')}/edge.kcp.io"
    entry = hub.store.get(key)
    assert entry is not None
    old = objects.decode(entry)
    old["spec"]["latestResourceSchemas"] = old["spec"]["latestResourceSchemas"][1:]
    old["metadata"]["managedFields"][0]["manager"] = manager
    await hub.store.put(key, encode_stored(old), expect=entry.revision)
    return key


async def test_an_export_of_an_earlier_hub_offers_what_this_one_knows() -> None:
    hub = await started(bare=False)
    key = await aged(hub, MANAGER)
    before = hub.object(key)
    gone = edge_schemas()[0]["metadata"]["name"]
    schema = hub.store.get(f"/apis.kcp.io/apiresourceschemas/{hub.clusters.resolve('root:espw')}/{gone}")
    assert schema is not None
    await hub.store.delete(schema.key, expect=schema.revision)
    after = (await started(hub.store, bare=False, seed="again")).object(key)
    assert after["spec"] == {**before["spec"], **edge.api_export()["spec"]}
    assert after["status"]["identityHash"] == before["status"]["identityHash"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert hub.store.get(schema.key) is not None
    revision = hub.store.revision
    await started(hub.store, bare=False, seed="once more")
    assert hub.store.revision == revision


async def test_an_export_that_a_user_changed_stays_as_it_is() -> None:
    hub = await started(bare=False)
    key = await aged(hub, "kubectl-edit")
    before = hub.object(key)
    assert (await started(hub.store, bare=False, seed="again")).object(key) == before


class Crash(BaseException):
    """The power is gone."""


class Mortal(MemoryStore):
    """Writes so often, and then never again."""

    def __init__(self, writes: int) -> None:
        super().__init__(stamp=objects.stamp)
        self.left = writes

    async def put(self, key: str, value: bytes, *, expect: Revision) -> Entry:
        if self.left == 0:
            raise Crash
        self.left -= 1
        return await super().put(key, value, expect=expect)


def described(hub: Started) -> set[str]:
    """Everything that is there, but for the names that chance gives."""
    return {
        entry.key.rpartition("/")[2].rpartition("-")[0] or entry.key.rpartition("/")[2]
        for home in hub.store.storage_prefixes()
        for entry in hub.store.list(home).entries
    }


@given(st.integers(0, 110))
@settings(max_examples=examples(15))
def test_a_start_that_was_stopped_is_made_up_for(writes: int) -> None:
    async def live() -> None:
        store = Mortal(writes)
        with suppress(Crash):
            await started(store, bare=False)
        store.left = -1
        again, whole = await started(store, bare=False, seed="again"), await started(bare=False)
        for path in ("root:compute", "root:espw"):
            ours, theirs = again.clusters.resolve(path), whole.clusters.resolve(path)
            for home in whole.store.storage_prefixes():
                assert len(again.names(f"{home}{ours}/")) == len(whole.names(f"{home}{theirs}/")), home
        assert described(again) == described(whole)

    asyncio.run(live())
