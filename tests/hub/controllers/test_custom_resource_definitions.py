"""How a CustomResourceDefinition ends, with the objects that it defined."""

from __future__ import annotations

import pytest
from examples import examples
from house import House, owned_by
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.apis.apiextensions.conditions import CLEANUP
from farflung.hub.controllers.custom_resource_definitions import DEFINITIONS as STORED
from farflung.machinery.errors import ApiError, Obj

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/{}/things"
HOLD = ["example.com/hold"]


def definition() -> Obj:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


async def define(house: House) -> None:
    await house.client.request("POST", DEFINITIONS, definition())


async def thing(house: House, name: str, namespace: str = "default", **metadata: object) -> Obj:
    obj = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name, **metadata}}
    made: Obj = await house.client.request("POST", THINGS.format(namespace), obj)
    return made


async def found(house: House, path: str) -> Obj | None:
    try:
        answer: Obj = await house.client.request("GET", path)
    except ApiError as error:
        assert error.code == 404
        return None
    return answer


async def left(house: House) -> Obj | None:
    return await found(house, f"{DEFINITIONS}/things.example.com")


async def end(house: House) -> Obj:
    answer: Obj = await house.client.request("DELETE", f"{DEFINITIONS}/things.example.com")
    return answer


async def let_go(house: House, name: str, namespace: str = "default") -> None:
    media = "application/merge-patch+json"
    path = f"{THINGS.format(namespace)}/{name}"
    await house.client.request("PATCH", path, {"metadata": {"finalizers": None}}, media=media)


def said(obj: Obj | None) -> tuple[str, str]:
    assert obj is not None
    told = next(one for one in obj["status"]["conditions"] if one["type"] == "Terminating")
    assert told["status"] == "True"
    return told["reason"], told["message"]


async def test_deleting_a_definition_deletes_its_objects(house: House) -> None:
    await define(house)
    await thing(house, "one")
    await thing(house, "two", "kube-public")
    await house.create("configmaps", "other")
    marked = await end(house)
    assert marked["metadata"]["finalizers"] == [CLEANUP]
    assert "deletionGracePeriodSeconds" not in marked["metadata"]
    assert said(marked) == (
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    )
    await house.settle()
    assert await left(house) is None
    assert house.store.list("/example.com/things/").entries == []
    assert await house.find("configmaps", "other") is not None


async def test_it_waits_for_finalizers_and_lets_nothing_new_in(house: House) -> None:
    await define(house)
    await thing(house, "held", finalizers=HOLD)
    await thing(house, "free")
    await end(house)
    await house.settle()
    assert said(await left(house)) == ("InstanceDeletionInProgress", "CustomResource deletion is in progress")
    assert await found(house, THINGS.format("default") + "/free") is None
    with pytest.raises(ApiError) as refused:
        await thing(house, "late")
    assert (refused.value.code, refused.value.message) == (
        403,
        'things.example.com "late" is forbidden: create not allowed while custom resource definition is terminating',
    )
    again = await end(house)
    assert said(again)[0] == "InstanceDeletionInProgress"
    await let_go(house, "held")
    await house.settle()
    assert await left(house) is None


async def test_finalizers_of_others_keep_a_definition_without_objects(house: House) -> None:
    await define(house)
    media = "application/merge-patch+json"
    path = f"{DEFINITIONS}/things.example.com"
    await house.client.request("PATCH", path, {"metadata": {"finalizers": HOLD}}, media=media)
    await end(house)
    await house.settle()
    kept = await left(house)
    assert kept is not None
    assert kept["metadata"]["finalizers"] == HOLD
    assert (await end(house))["metadata"]["finalizers"] == HOLD
    await house.client.request("PATCH", path, {"metadata": {"finalizers": None}}, media=media)
    assert await left(house) is None


async def test_dependents_of_its_objects_go_before_their_kind_is_forgotten(house: House) -> None:
    await define(house)
    owner = await thing(house, "owner")
    for number in range(20):
        await house.create("configmaps", f"child-{number}", ownerReferences=[owned_by(owner)])
    await house.settle()
    await end(house)
    await house.settle()
    assert await left(house) is None
    assert await house.names("configmaps") == ["kube-root-ca.crt"]


async def test_a_namespace_ends_with_its_custom_objects(house: House) -> None:
    await define(house)
    await house.create("namespaces", "doomed")
    await thing(house, "held", "doomed", finalizers=HOLD)
    await thing(house, "free", "doomed")
    await house.delete("namespaces", "doomed")
    await house.settle()
    told = {one["type"]: one for one in (await house.get("namespaces", "doomed"))["status"]["conditions"]}
    assert told["NamespaceContentRemaining"]["message"] == (
        "Some resources are remaining: things.example.com has 1 resource instances"
    )
    await let_go(house, "held", "doomed")
    await house.settle()
    assert await house.find("namespaces", "doomed") is None


async def test_custom_objects_own_and_are_owned(house: House) -> None:
    owner = await house.create("configmaps", "owner")
    await define(house)
    middle = await thing(house, "middle", ownerReferences=[owned_by(owner, block=True)])
    await house.create("secrets", "child", ownerReferences=[owned_by(middle, block=True)])
    await house.settle()
    await house.delete("configmaps", "owner", policy="Foreground")
    await house.settle()
    assert await house.find("configmaps", "owner") is None
    assert await found(house, THINGS.format("default") + "/middle") is None
    assert await house.find("secrets", "child") is None


async def test_an_owner_of_a_kind_that_is_not_served_is_checked_once_the_kind_is_served(house: House) -> None:
    lost = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "never", "uid": "1"}
    await house.create("configmaps", "child", ownerReferences=[lost])
    await house.settle()
    assert await house.find("configmaps", "child") is not None
    await define(house)
    await house.settle()
    assert await house.find("configmaps", "child") is None


@settings(max_examples=examples(25))
@given(st.lists(st.booleans(), max_size=5), st.lists(st.integers(0, 12), max_size=3))
async def test_an_end_that_is_interrupted_anywhere_is_finished(held: list[bool], crashes: list[int]) -> None:
    async with House() as house:
        await define(house)
        for number, hold in enumerate(held):
            await thing(house, f"n{number}", finalizers=HOLD if hold else [])
        await end(house)
        for turns in crashes:
            await house.restart(after=turns)
        await house.settle()
        assert (await left(house) is not None) == any(held)
        for number, hold in enumerate(held):
            if hold:
                await let_go(house, f"n{number}")
        await house.settle()
        assert await left(house) is None
        assert house.store.list("/example.com/things/").entries == []


async def test_a_definition_gets_conflicting_names_when_the_other_is_deleted(house: House) -> None:
    await define(house)
    rival = definition()
    rival["metadata"]["name"] = "others.example.com"
    rival["spec"]["names"]["plural"] = "others"
    await house.client.request("POST", DEFINITIONS, rival)
    path = "/apis/example.com/v1/namespaces/default/others"
    assert await found(house, path) is None
    await end(house)
    await house.settle()
    established = await found(house, f"{DEFINITIONS}/others.example.com")
    assert established is not None
    assert {one["type"]: one["status"] for one in established["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert await found(house, path) is not None


async def test_a_definition_gets_conflicting_names_after_a_crash_following_the_deletion(house: House) -> None:
    await define(house)
    rival = definition()
    rival["metadata"]["name"] = "others.example.com"
    rival["spec"]["names"]["plural"] = "others"
    await house.client.request("POST", DEFINITIONS, rival)
    await house.stop()
    (gone,) = [entry for entry in house.store.list(STORED).entries if entry.key.endswith("/things.example.com")]
    await house.store.delete(gone.key, expect=gone.revision)
    await house.restart()
    await house.settle()
    assert await found(house, "/apis/example.com/v1/namespaces/default/others") is not None


async def test_a_definition_that_is_named_like_a_built_in_kind_takes_none_of_its_objects_along(house: House) -> None:
    shadow = definition()
    shadow["metadata"] = {
        "name": "clusterroles.rbac.authorization.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for fun"},
    }
    shadow["spec"] |= {"group": "rbac.authorization.k8s.io", "scope": "Cluster"}
    shadow["spec"]["names"] = {"plural": "clusterroles", "kind": "ClusterRole"}
    await house.create("clusterroles", "mine")
    await house.client.request("POST", DEFINITIONS, shadow)
    path = f"{DEFINITIONS}/clusterroles.rbac.authorization.k8s.io"
    await house.client.request("DELETE", path)
    await house.settle()
    assert await found(house, path) is None
    assert await house.find("clusterroles", "mine") is not None


async def test_a_changed_status_is_restored(house: House) -> None:
    await define(house)
    spoilt = {"status": {"conditions": None, "acceptedNames": {"plural": "others", "kind": "Other"}}}
    media = "application/merge-patch+json"
    await house.client.request("PATCH", f"{DEFINITIONS}/things.example.com/status", spoilt, media=media)
    await house.settle()
    assert (await thing(house, "one"))["kind"] == "Thing"
