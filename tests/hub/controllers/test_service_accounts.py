"""What every namespace has, and the namespaces that are always there."""

from __future__ import annotations

import asyncio

import pytest
from house import House
from hub_harness import authority

from farflung.hub.controllers.loopback import LoopbackClient
from farflung.machinery.errors import ApiError

BUNDLE = {"ca.crt": authority().ca_pem.decode()}
SYSTEM = ["default", "kube-node-lease", "kube-public", "kube-system"]


async def test_a_new_hub_has_its_namespaces_complete_when_it_is_ready(house: House) -> None:
    assert await house.names("namespaces") == SYSTEM
    for namespace in SYSTEM:
        assert await house.names("serviceaccounts", namespace=namespace) == ["default"]
        assert await house.names("configmaps", namespace=namespace) == ["kube-root-ca.crt"]


async def test_a_restart_writes_nothing(house: House) -> None:
    revision = house.store.revision
    await house.restart()
    await house.settle()
    assert house.store.revision == revision


async def test_a_new_namespace_has_its_account_and_authority_within_a_few_turns(house: House) -> None:
    await house.create("namespaces", "new")
    for _ in range(5):
        await asyncio.sleep(0)
    account = await house.get("serviceaccounts", "default", namespace="new")
    assert [entry["manager"] for entry in account["metadata"].get("managedFields", [])] in (
        [],
        ["kube-controller-manager"],
    )
    bundle = await house.get("configmaps", "kube-root-ca.crt", namespace="new")
    assert bundle["data"] == BUNDLE
    assert bundle["metadata"]["annotations"]["kubernetes.io/description"].startswith("Contains a CA bundle")
    assert [entry["manager"] for entry in bundle["metadata"]["managedFields"]] == ["kube-controller-manager"]


async def test_what_is_deleted_or_changed_is_put_back(house: House) -> None:
    await house.delete("serviceaccounts", "default")
    await house.delete("configmaps", "kube-root-ca.crt")
    await house.patch("configmaps", "kube-root-ca.crt", {"data": {"ca.crt": "false", "more": "x"}}, "kube-public")
    await house.settle()
    assert await house.names("serviceaccounts") == ["default"]
    assert (await house.get("configmaps", "kube-root-ca.crt"))["data"] == BUNDLE
    assert (await house.get("configmaps", "kube-root-ca.crt", "kube-public"))["data"] == BUNDLE


async def test_an_authority_that_is_sealed_and_being_deleted_is_not_fought_over(house: House) -> None:
    hold = {"metadata": {"finalizers": ["example.com/hold"]}, "data": None}
    await house.patch("configmaps", "kube-root-ca.crt", hold)
    await house.delete("configmaps", "kube-root-ca.crt")
    await house.settle()
    assert "data" not in await house.get("configmaps", "kube-root-ca.crt")
    await house.patch("configmaps", "kube-root-ca.crt", {"metadata": {"finalizers": None}})
    await house.settle()
    assert (await house.get("configmaps", "kube-root-ca.crt"))["data"] == BUNDLE


async def test_other_accounts_are_left_alone(house: House) -> None:
    await house.create("serviceaccounts", "robot")
    await house.delete("serviceaccounts", "robot")
    await house.settle()
    assert await house.names("serviceaccounts") == ["default"]


async def test_a_system_namespace_is_restored(house: House) -> None:
    uid = (await house.get("namespaces", "kube-node-lease"))["metadata"]["uid"]
    await house.delete("namespaces", "kube-node-lease")
    await house.settle()
    assert (await house.get("namespaces", "kube-node-lease"))["metadata"]["uid"] != uid
    assert await house.names("serviceaccounts", namespace="kube-node-lease") == ["default"]


async def test_a_store_that_will_not_write_does_not_keep_the_hub_from_starting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    await house.store.close()
    await house.start()
    assert await house.names("namespaces") == []
    await house.stop()
    assert "not complete" in caplog.text


async def test_failures_are_reported_with_the_servers_message(house: House) -> None:
    client = LoopbackClient(house.hub, "Bearer wrong", "test")
    with pytest.raises(ApiError) as refused:
        await client.request("GET", "/api/v1/namespaces")
    assert refused.value.code == 401
    with pytest.raises(ApiError, match="404 page not found"):
        await house.client.request("GET", "/nowhere")
