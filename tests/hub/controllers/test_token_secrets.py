"""Secrets that get the token of an account, and go with it."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from house import House
from hub_harness import authority

from farflung.http.certificates import new_authority, new_key
from farflung.hub.auth.service_account_tokens import InvalidToken, ServiceAccountTokens
from farflung.hub.auth.signing_keys import SigningKeys, StoredKey
from farflung.machinery.errors import ApiError, Obj

TYPE = "kubernetes.io/service-account-token"
NAME = "kubernetes.io/service-account.name"
UID = "kubernetes.io/service-account.uid"


async def token_secret(house: House, name: str = "s", account: str = "robot", **more: object) -> Obj:
    annotations = {NAME: account}
    obj: Obj = {"metadata": {"name": name, "annotations": annotations}, "type": TYPE, **more}
    created: Obj = await house.client.request("POST", house.path("secrets"), obj)
    return created


def decoded(secret: Obj) -> dict[str, str]:
    return {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}


def is_good(house: House, token: str) -> bool:
    tokens = ServiceAccountTokens(house.store, house.keys, house.clock, lambda: "")
    try:
        tokens.check(tokens.verify(token))
    except InvalidToken:
        return False
    return True


async def test_a_secret_gets_the_token_of_its_account(house: House) -> None:
    uid = (await house.create("serviceaccounts", "robot"))["metadata"]["uid"]
    await token_secret(house)
    await house.settle()
    secret = await house.get("secrets", "s")
    assert secret["metadata"]["annotations"] == {NAME: "robot", UID: uid}
    assert [entry["manager"] for entry in secret["metadata"]["managedFields"]] == ["test", "kube-controller-manager"]
    data = decoded(secret)
    assert (data["ca.crt"], data["namespace"]) == (authority().ca_pem.decode(), "default")
    assert is_good(house, data["token"])
    revision = house.store.revision
    await house.restart()
    await house.settle()
    assert house.store.revision == revision, "what is complete stays as it is"


async def test_a_token_secret_without_an_account_is_deleted(house: House) -> None:
    await token_secret(house, account="nobody")
    await house.settle()
    assert await house.find("secrets", "s") is None


async def test_a_token_secret_of_a_deleted_or_replaced_account_is_deleted(house: House) -> None:
    await house.create("serviceaccounts", "robot")
    await house.create("serviceaccounts", "other")
    await token_secret(house)
    await token_secret(house, "t", "other")
    await house.settle()
    token = decoded(await house.get("secrets", "s"))["token"]
    await house.delete("serviceaccounts", "robot")
    assert not is_good(house, token), "before anything else happens"
    await house.create("serviceaccounts", "robot")
    await house.settle()
    assert await house.names("secrets") == ["t"]


async def test_a_token_secret_with_another_uid_is_deleted(house: House) -> None:
    await house.create("serviceaccounts", "robot")
    annotations = {NAME: "robot", UID: "another"}
    obj = {"metadata": {"name": "s", "annotations": annotations}, "type": TYPE}
    await house.client.request("POST", house.path("secrets"), obj)
    await house.settle()
    assert await house.find("secrets", "s") is None


async def test_a_secret_must_name_an_account(house: House) -> None:
    with pytest.raises(
        ApiError, match=r"metadata\.annotations\[kubernetes\.io/service-account\.name\]: Required value"
    ):
        await house.client.request("POST", house.path("secrets"), {"metadata": {"name": "s"}, "type": TYPE})


async def test_removed_data_is_restored_and_a_new_token_revokes_the_old_one(house: House) -> None:
    await house.create("serviceaccounts", "robot")
    await token_secret(house)
    await house.settle()
    before = decoded(await house.get("secrets", "s"))["token"]
    await house.patch("secrets", "s", {"data": {"ca.crt": "eA==", "namespace": None, "token": None}})
    assert not is_good(house, before)
    await house.settle()
    data = decoded(await house.get("secrets", "s"))
    assert (data["ca.crt"], data["namespace"]) == (authority().ca_pem.decode(), "default")
    assert is_good(house, data["token"])


async def test_a_token_ends_with_its_secret(house: House) -> None:
    await house.create("serviceaccounts", "robot")
    await token_secret(house)
    await house.settle()
    token = decoded(await house.get("secrets", "s"))["token"]
    await house.delete("secrets", "s")
    assert not is_good(house, token)


async def test_an_account_does_not_reference_a_deleted_secret(house: House) -> None:
    await house.create("serviceaccounts", "robot")
    await token_secret(house)
    await token_secret(house, "t")
    await house.patch("serviceaccounts", "robot", {"secrets": [{"name": "s"}, {"name": "t"}, {"name": "else"}]})
    await house.settle()
    await house.delete("secrets", "s")
    await house.settle()
    assert (await house.get("serviceaccounts", "robot"))["secrets"] == [{"name": "t"}, {"name": "else"}]
    await house.patch("serviceaccounts", "robot", {"secrets": [{"name": "t"}]})
    await house.delete("secrets", "t")
    await house.settle()
    assert "secrets" not in await house.get("serviceaccounts", "robot")


async def test_a_sealed_or_dying_secret_is_not_fought_over(house: House) -> None:
    await house.create("serviceaccounts", "robot")
    await token_secret(house, immutable=True)
    held = {"metadata": {"name": "t", "annotations": {NAME: "robot"}, "finalizers": ["example.com/hold"]}, "type": TYPE}
    await house.client.request("POST", house.path("secrets"), held)
    await house.settle()
    await house.delete("secrets", "t")
    await house.patch("secrets", "t", {"data": {"token": None}})
    await house.settle()
    assert "data" not in await house.get("secrets", "s")
    assert "token" not in (await house.get("secrets", "t"))["data"]


async def test_other_secrets_are_left_alone(house: House) -> None:
    annotations = {NAME: "robot", "like": TYPE}
    await house.create("secrets", "plain", annotations=annotations)
    revision = house.store.revision
    await house.settle()
    assert house.store.revision == revision


@pytest.mark.parametrize("turns", range(8))
async def test_whenever_it_stops_in_between_it_goes_on_after_the_start(turns: int) -> None:
    async with House() as house:
        await house.create("serviceaccounts", "robot")
        await house.create("serviceaccounts", "doomed")
        await token_secret(house, "gone", "doomed")
        await house.settle()
        await asyncio.gather(*(token_secret(house, f"s{number}") for number in range(5)))
        await house.delete("serviceaccounts", "doomed")
        await house.restart(after=turns)
        await house.settle()
        names = await house.names("secrets")
        assert names == [f"s{number}" for number in range(5)]
        for name in names:
            assert is_good(house, decoded(await house.get("secrets", name))["token"])


async def test_the_end_of_a_namespace_is_not_disturbed(house: House) -> None:
    await house.create("namespaces", "new")
    await house.settle()
    for number in range(5):
        obj = {"metadata": {"name": f"s{number}", "annotations": {NAME: "default"}}, "type": TYPE}
        await house.client.request("POST", house.path("secrets", namespace="new"), obj)
    await house.delete("namespaces", "new")
    await house.settle()
    assert await house.find("namespaces", "new") is None
    assert await house.names("secrets", "new") == []


# --- rotation -------------------------------------------------------------------------------------


async def test_a_token_of_an_old_key_stays_until_the_key_is_revoked(house: House) -> None:
    await house.create("serviceaccounts", "robot")
    await token_secret(house)
    await house.settle()
    token = decoded(await house.get("secrets", "s"))["token"]
    old, new = StoredKey(ec.generate_private_key(ec.SECP256R1())), StoredKey(ec.generate_private_key(ec.SECP256R1()))
    accounts = house.assembly.accounts
    accounts.replace_keys(SigningKeys.of([old]))
    await house.settle()
    second = decoded(await house.get("secrets", "s"))["token"]
    assert second != token
    accounts.replace_keys(SigningKeys.of([new, old]))
    await house.settle()
    assert decoded(await house.get("secrets", "s"))["token"] == second
    house.keys = SigningKeys.of([new])
    accounts.replace_keys(house.keys)
    await house.settle()
    assert is_good(house, decoded(await house.get("secrets", "s"))["token"])


async def test_secrets_and_config_maps_get_other_certificate_authorities(house: House) -> None:
    await house.create("serviceaccounts", "robot")
    await token_secret(house)
    await house.settle()
    before = await house.get("secrets", "s")
    key, present = new_key(), authority()
    successor = new_authority(key, house.clock(), "successor")
    house.certificates.replace(replace(present, others=(successor,)))
    await house.settle()
    both = house.certificates.bundle
    assert both.count("BEGIN") == 2
    assert decoded(await house.get("secrets", "s")) == decoded(before) | {"ca.crt": both}
    for namespace in await house.names("namespaces"):
        assert (await house.get("configmaps", "kube-root-ca.crt", namespace))["data"] == {"ca.crt": both}
