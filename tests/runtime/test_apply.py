"""What a plan says is done in its order, up to the first that fails."""

from __future__ import annotations

from typing import Any

import pytest
from hub_harness import ADMIN_TOKEN, LocalHub
from local_transport import LocalTransport

from farflung.apis.names import Collection
from farflung.client.errors import AlreadyExists, UpdateConflict
from farflung.client.rest import Client
from farflung.runtime.plan import Create, Delete, Update, UpdateStatus, Write, apply

MAPS = Collection("", "v1", "configmaps", "ConfigMap")
NAMESPACES = Collection("", "v1", "namespaces", "Namespace")


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def create(name: str, **data: str) -> Create:
    return Create("c", MAPS, "default", name, config_map(name, **data))


async def test_writes_are_executed_in_order_and_return_their_results() -> None:
    hub = await LocalHub.in_memory().furnish()
    client = Client(LocalTransport(hub.function, ADMIN_TOKEN))
    told: list[tuple[str, Any]] = []

    def written(write: Write, answer: Any) -> None:
        told.append((type(write).__name__, answer))

    await apply(lambda cluster: client, [create("a", x="1"), create("b")], written)
    made = told[0][1]
    namespace = await client.get(NAMESPACES, "default")
    phase = {**namespace, "status": {"phase": "Active", "conditions": []}}
    writes: list[Write] = [
        Update("c", MAPS, "default", "a", {**made, "data": {"x": "2"}}),
        UpdateStatus("c", NAMESPACES, "", "default", phase),
        Delete("c", MAPS, "default", "a", made["metadata"]["uid"]),
        Delete("c", MAPS, "default", "a", made["metadata"]["uid"]),
    ]
    await apply(lambda cluster: client, writes, written)
    assert [kind for kind, _ in told] == ["Create", "Create", "Update", "UpdateStatus", "Delete", "Delete"]
    assert told[2][1]["data"] == {"x": "2"}
    assert [answer for _, answer in told[4:]] == [None, None]
    assert [one["metadata"]["name"] for one in await client.list(MAPS)] == ["b"]


async def test_the_first_failing_write_ends_the_plan_and_earlier_results_are_returned() -> None:
    hub = await LocalHub.in_memory().furnish()
    client = Client(LocalTransport(hub.function, ADMIN_TOKEN))
    told: list[str] = []

    def written(write: Write, answer: Any) -> None:
        told.append(write.name)

    with pytest.raises(AlreadyExists):
        await apply(lambda cluster: client, [create("a"), create("a"), create("b")], written)
    assert told == ["a"]
    with pytest.raises(UpdateConflict):
        await apply(lambda cluster: client, [Delete("c", MAPS, "default", "a", "the-uid-of-another")], written)
    assert [one["metadata"]["name"] for one in await client.list(MAPS)] == ["a"]


async def test_each_write_is_sent_to_its_cluster() -> None:
    hub = await LocalHub.in_memory().furnish()
    client, asked = Client(LocalTransport(hub.function, ADMIN_TOKEN)), []

    def client_of(cluster: str) -> Client:
        asked.append(cluster)
        return client

    other = Create("d", MAPS, "default", "b", config_map("b"))
    await apply(client_of, [create("a"), other], lambda write, answer: None)
    assert asked == ["c", "d"]
