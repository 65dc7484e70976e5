"""The asyncio client: many requests at once, watches that resume, and what it discovers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hub_process import PATIENCE, HubProcess
from lazy_module import LazyModule

client = LazyModule("kubernetes_asyncio.client")
config = LazyModule("kubernetes_asyncio.config")
dynamic = LazyModule("kubernetes_asyncio.dynamic")
watch = LazyModule("kubernetes_asyncio.watch")

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


@pytest.fixture
async def api(hub: HubProcess) -> AsyncIterator[client.ApiClient]:
    settings = client.Configuration()
    await config.load_kube_config(config_file=str(hub.kubeconfig), client_configuration=settings)
    async with client.ApiClient(settings) as connection:
        yield connection
    transports = asyncio.get_running_loop()._transports  # type: ignore[attr-defined]
    async with asyncio.timeout(PATIENCE):
        while any(one._sock is not None for one in list(transports.values())):  # TLS says goodbye in its own time
            await asyncio.sleep(0)


@pytest.fixture
def core(api: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api)


def config_map(name: str, data: dict[str, str] | None = None, **labels: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels or None), data=data)


async def test_objects_are_created_at_once_listed_in_pages_and_deleted(core: client.CoreV1Api, namespace: str) -> None:
    maps = [config_map(f"m{number:02}", {"k": str(number)}, made="here") for number in range(30)]
    created = await asyncio.gather(*(core.create_namespaced_config_map(namespace, one) for one in maps))
    assert len({one.metadata.resource_version for one in created}) == 30
    names: list[str] = []
    token = None
    while True:
        page = await core.list_namespaced_config_map(namespace, limit=8, _continue=token, label_selector="made=here")
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"m{number:02}" for number in range(30)]
    await core.delete_collection_namespaced_config_map(namespace, label_selector="made=here")
    assert (await core.list_namespaced_config_map(namespace, label_selector="made=here")).items == []


async def test_of_many_writers_that_replace_the_same_version_one_wins(core: client.CoreV1Api, namespace: str) -> None:
    read = await core.create_namespaced_config_map(namespace, config_map("a", {"k": "0"}))

    async def replaced(value: int) -> int:
        wanted = config_map("a", {"k": str(value)})
        wanted.metadata.resource_version = read.metadata.resource_version
        try:
            await core.replace_namespaced_config_map("a", namespace, wanted)
        except client.exceptions.ApiException as refusal:
            return int(refusal.status)
        return 200

    statuses = await asyncio.gather(*map(replaced, range(1, 9)))
    assert sorted(statuses) == [200] + [409] * 7
    winner = statuses.index(200) + 1
    assert (await core.read_namespaced_config_map("a", namespace)).data == {"k": str(winner)}


async def test_every_type_of_patch(core: client.CoreV1Api, namespace: str) -> None:
    service = client.V1Service(
        metadata=client.V1ObjectMeta(name="s"), spec=client.V1ServiceSpec(ports=[client.V1ServicePort(port=80)])
    )
    await core.create_namespaced_service(namespace, service)

    async def ports(body: object, media: str, **options: object) -> list[int]:
        patched = await core.patch_namespaced_service("s", namespace, body, _content_type=media, **options)
        return [port.port for port in patched.spec.ports]

    named = {"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}}
    assert sorted(await ports(named, STRATEGIC)) == [80, 81]
    assert await ports({"spec": {"ports": [{"port": 82}]}}, MERGE) == [82]
    assert await ports([{"op": "replace", "path": "/spec/ports/0/port", "value": 83}], JSON_PATCH) == [83]
    applied = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 84, "name": "applied"}]}}
    renamed = [{"op": "add", "path": "/spec/ports/0/name", "value": "first"}]
    assert await ports(renamed, JSON_PATCH) == [83]
    assert sorted(await ports(applied, APPLY, field_manager="m")) == [83, 84]


async def test_a_watch_runs_beside_the_writes_and_resumes(core: client.CoreV1Api, namespace: str) -> None:
    start = (await core.list_namespaced_config_map(namespace)).metadata.resource_version
    seen: list[tuple[str, str]] = []

    async def follow(since: str, count: int) -> str:
        async with (
            asyncio.timeout(PATIENCE),
            watch.Watch().stream(
                core.list_namespaced_config_map, namespace, resource_version=since, label_selector="watched=yes"
            ) as events,
        ):
            async for event in events:
                seen.append((event["type"], event["object"].metadata.name))
                since = event["object"].metadata.resource_version
                count -= 1
                if not count:
                    break
        return since

    follower = asyncio.create_task(follow(start, 2))
    for name in "ab":
        await core.create_namespaced_config_map(namespace, config_map(name, watched="yes"))
    since = await follower
    for name in "ab":
        await core.delete_namespaced_config_map(name, namespace)
    await follow(since, 2)
    assert seen == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("DELETED", "b")]


async def test_a_watch_ends_when_it_was_told_to(core: client.CoreV1Api, namespace: str) -> None:
    await core.create_namespaced_config_map(namespace, config_map("a"))
    async with watch.Watch().stream(
        core.list_namespaced_config_map,
        namespace,
        field_selector="metadata.name=a",
        timeout_seconds=1,
        allow_watch_bookmarks=True,
    ) as events:
        types = [event["type"] async for event in events]
    assert types[0] == "ADDED"
    assert set(types[1:]) <= {"BOOKMARK"}


async def test_the_dynamic_client_applies(api: client.ApiClient, namespace: str) -> None:
    anything = await dynamic.DynamicClient(api)
    maps = await anything.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}
    created = await maps.server_side_apply(body=body, namespace=namespace, field_manager="one")
    assert created.metadata.managedFields[0].operation == "Apply"
    body["data"] = {"k": "2"}
    refusal = await maps.server_side_apply(body=body, namespace=namespace, field_manager="two")  # it does not raise
    assert (refusal.kind, refusal.code) == ("Status", 409)
    forced = await maps.server_side_apply(body=body, namespace=namespace, field_manager="two", force_conflicts=True)
    assert forced.data.k == "2"
    listed = await maps.get(namespace=namespace, field_selector="metadata.name=a")
    assert [item.data.k for item in listed.items] == ["2"]


async def test_errors_have_status_reason_and_body(core: client.CoreV1Api, namespace: str) -> None:
    with pytest.raises(client.exceptions.ApiException) as invalid:
        await core.create_namespaced_config_map(namespace, config_map("Not a name"))
    assert (invalid.value.status, invalid.value.reason) == (422, "Unprocessable Entity")
    assert '"reason":"Invalid"' in invalid.value.body
    with pytest.raises(client.exceptions.ApiException) as absent:
        await core.read_namespaced_pod("none", namespace)
    assert absent.value.status == 404
