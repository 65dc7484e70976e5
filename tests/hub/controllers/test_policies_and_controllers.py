"""Policies concern what the hub writes by itself, and namespaces end all the same."""

from __future__ import annotations

import asyncio

import pytest
from house import House, owned_by
from policies import BINDINGS, POLICIES, binding, policy, rule

from farflung.machinery.errors import ApiError, Obj


async def bind(house: House, described: Obj) -> None:
    await house.client.request("POST", POLICIES, described)
    await house.client.request("POST", BINDINGS, binding(described["metadata"]["name"]))


async def gone(house: House, kind: str, name: str) -> None:
    async with asyncio.timeout(60):
        while await house.find(kind, name) is not None:
            await house.settle()
            await asyncio.sleep(0)


async def test_a_namespace_ends_though_a_policy_refuses_every_creation_and_change(house: House) -> None:
    await house.create("namespaces", "doomed")
    await house.create("configmaps", "thing", namespace="doomed")
    match = {"resourceRules": [rule("*", operations=("CREATE", "UPDATE"))]}
    await bind(house, policy("frozen", "false", match=match))
    await house.delete("namespaces", "doomed")
    await gone(house, "namespaces", "doomed")


async def test_a_namespace_waits_for_what_a_policy_keeps_and_ends_after_that(house: House) -> None:
    await house.create("namespaces", "held")
    await house.create("configmaps", "kept", namespace="held")
    await house.create("secrets", "other", namespace="held")
    await bind(house, policy("keeps", "oldObject.metadata.name != 'kept'", match={"resourceRules": [rule()]}))
    await house.delete("namespaces", "held")
    async with asyncio.timeout(60):
        while await house.names("secrets", namespace="held"):
            await asyncio.sleep(0)
    assert "kept" in await house.names("configmaps", namespace="held")
    assert (await house.get("namespaces", "held"))["status"]["phase"] == "Terminating"
    await house.client.request("DELETE", f"{BINDINGS}/keeps")
    await gone(house, "namespaces", "held")


async def test_the_garbage_collector_obeys_policies_too(house: House) -> None:
    owner = await house.create("configmaps", "owner")
    await house.create("configmaps", "child", ownerReferences=[owned_by(owner)])
    match = {"resourceRules": [rule(operations=("DELETE",), resourceNames=["child"])]}
    await bind(house, policy("keeps", {"expression": "false", "message": "kept"}, match=match))
    with pytest.raises(ApiError, match="denied request: kept"):
        await house.delete("configmaps", "child")
    await house.delete("configmaps", "owner")
    assert await house.find("configmaps", "child") is not None
    await house.client.request("DELETE", f"{BINDINGS}/keeps")
    await gone(house, "configmaps", "child")
