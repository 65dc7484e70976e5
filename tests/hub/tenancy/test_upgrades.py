"""What an earlier version of the hub left behind, and what becomes of it when this one starts."""

from __future__ import annotations

import itertools

import yaml
from hub_harness import MERGE_PATCH
from memory_store import MemoryStore
from platform_harness import APIS, OPERATOR, PlatformHub
from seed_machine import MACHINE

from farflung.hub.catalog import objects
from farflung.hub.tenancy.api_exports import schema_key
from farflung.hub.tenancy.direct_writes import encode_stored
from farflung.machinery.errors import Obj
from farflung.store.base import Entry, Store

NAME = "v124.pods.core"
PODS = "/api/v1/namespaces/default/pods"


NUMBERS = itertools.count(1)  #: no uid is there twice in a store


async def started(store: Store) -> PlatformHub:
    hub = PlatformHub(store, numbers=NUMBERS)
    await hub.platform.bootstrap.start(bare=True)
    return hub


def pods_schema(hub: PlatformHub) -> Entry:
    compute = hub.platform.tenancy.clusters.resolve("root:compute")
    assert compute is not None
    entry = hub.store.get(schema_key(compute, NAME))
    assert entry is not None
    return entry


async def earlier_hub() -> PlatformHub:
    """One that knew no virtual machines, when it made what it exports."""
    store = MemoryStore(stamp=objects.stamp)
    entry = pods_schema(await started(store))
    schema = objects.decode(entry)
    del schema["spec"]["versions"][0]["schema"]["properties"]["spec"]["properties"]["virtualMachine"]
    await store.put(entry.key, encode_stored(schema), expect=entry.revision)
    return PlatformHub(store, numbers=NUMBERS)


async def bound_schemas(hub: PlatformHub, cluster: str) -> list[str]:
    answer = await hub.of(OPERATOR, "GET", f"/clusters/{cluster}{APIS}/apibindings/kube")
    return [one["schema"]["name"] for one in answer.json["status"]["boundResources"] if one["resource"] == "pods"]


async def test_pods_of_an_earlier_hub_can_be_machines_after_the_next_start_and_those_that_are_there_stay() -> None:
    earlier = await earlier_hub()
    async with earlier.running_controllers():
        cluster = await earlier.workspace("shop")
        await earlier.bind(cluster, "kube", "root:compute", "kubernetes")
        pods = f"/clusters/{cluster}{PODS}"
        spec = {"containers": [{"name": "c", "image": "i"}]}
        pod: Obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}
        before = await earlier.made(OPERATOR, pods, pod)
        assert await bound_schemas(earlier, cluster) == [NAME]

    hub = await started(earlier.store)
    async with hub.running_controllers() as controllers:
        await controllers.finished()
        (name,) = await bound_schemas(hub, cluster)
        assert name.startswith("v124-")
        assert name.endswith(".pods.core")
        after = (await hub.of(OPERATOR, "GET", f"{pods}/web")).json
        assert after == before
        labelled = await hub.of(
            OPERATOR, "PATCH", f"{pods}/web", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE_PATCH
        )
        assert labelled.status == 200, labelled.body
        machine = await hub.made(OPERATOR, pods, yaml.safe_load(MACHINE))
        assert machine["spec"]["virtualMachine"]["image"]
        revision = hub.store.revision

    again = await started(hub.store)
    assert await bound_schemas(again, cluster) == [name]
    assert again.store.revision == revision


async def test_a_schema_that_bindings_of_an_earlier_hub_name_stays_as_it_was() -> None:
    earlier = await earlier_hub()
    before = pods_schema(earlier)
    hub = await started(earlier.store)
    assert pods_schema(hub) == before
    export = (await hub.of(OPERATOR, "GET", f"/clusters/root:compute{APIS}/apiexports/kubernetes")).json
    others = [name for name in export["spec"]["latestResourceSchemas"] if "pods" not in name]
    assert others == ["v124.ingresses.networking.k8s.io", "v124.services.core", "v124.deployments.apps"]
