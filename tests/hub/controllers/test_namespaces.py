"""How a namespace ends."""

from __future__ import annotations

import asyncio

import pytest
from examples import examples
from house import House, owned_by
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.hub.controllers.namespaces import DEFAULT_PACE, FINE, Pace, Remains, termination_conditions
from farflung.machinery.errors import ApiError, Obj

HOLD = ["example.com/hold"]


def said(namespace: Obj) -> dict[str, tuple[str, str, str]]:
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in namespace["status"]["conditions"]}


async def test_deleting_a_namespace_deletes_all_its_content(house: House) -> None:
    await house.create("namespaces", "doomed")
    await house.settle()
    for kind in ("configmaps", "secrets", "pods", "serviceaccounts"):
        await house.create(kind, "thing", namespace="doomed")
    await house.create("configmaps", "thing", namespace="kube-public")
    await house.delete("namespaces", "doomed")
    await house.settle()
    assert await house.find("namespaces", "doomed") is None
    for kind in ("configmaps", "secrets", "pods", "serviceaccounts"):
        assert await house.names(kind, namespace="doomed") == []
    assert await house.find("configmaps", "thing", namespace="kube-public") is not None


async def test_content_with_finalizers_holds_the_namespace_and_its_status_says_so(house: House) -> None:
    await house.create("namespaces", "held")
    await house.create("configmaps", "one", namespace="held", finalizers=HOLD)
    await house.create("configmaps", "two", namespace="held", finalizers=[*HOLD, "example.com/other"])
    await house.create("secrets", "three", namespace="held", finalizers=HOLD)
    await house.delete("namespaces", "held")
    await house.settle()
    told = said(await house.get("namespaces", "held"))
    assert list(told) == list(FINE)
    assert told["NamespaceContentRemaining"] == (
        "True",
        "SomeResourcesRemain",
        "Some resources are remaining: configmaps. has 2 resource instances, secrets. has 1 resource instances",
    )
    assert told["NamespaceFinalizersRemaining"] == (
        "True",
        "SomeFinalizersRemain",
        "Some content in the namespace has finalizers remaining: "
        "example.com/hold in 3 resource instances, example.com/other in 1 resource instances",
    )
    await house.patch("configmaps", "one", {"metadata": {"finalizers": None}}, namespace="held")
    await house.patch("configmaps", "two", {"metadata": {"finalizers": None}}, namespace="held")
    await house.settle()
    told = said(await house.get("namespaces", "held"))
    assert told["NamespaceContentRemaining"][2].endswith("remaining: secrets. has 1 resource instances")
    await house.patch("secrets", "three", {"metadata": {"finalizers": None}}, namespace="held")
    await house.settle()
    assert await house.find("namespaces", "held") is None


async def test_the_rest_waits_for_the_pods(house: House) -> None:
    await house.create("namespaces", "held")
    await house.settle()
    await house.create("pods", "pod", namespace="held", finalizers=HOLD)
    await house.create("configmaps", "used", namespace="held")
    await house.delete("namespaces", "held")
    await house.settle()
    assert await house.names("configmaps", namespace="held") == ["kube-root-ca.crt", "used"]
    await house.patch("pods", "pod", {"metadata": {"finalizers": None}}, namespace="held")
    await house.settle()
    assert await house.find("namespaces", "held") is None


async def test_the_collectors_finalizers_do_not_hold_a_namespace(house: House) -> None:
    await house.create("namespaces", "doomed")
    owner = await house.create("configmaps", "owner", namespace="doomed")
    child = owned_by(owner, block=True)
    await house.create("configmaps", "child", namespace="doomed", ownerReferences=[child])
    await house.delete("configmaps", "owner", namespace="doomed", policy="Foreground")
    await house.delete("namespaces", "doomed")
    await house.settle()
    assert await house.find("namespaces", "doomed") is None


async def test_finalizers_of_others_in_the_spec_stay(house: House) -> None:
    namespace = await house.create("namespaces", "shared")
    namespace["spec"]["finalizers"].append("example.com/own")
    await house.client.request("PUT", house.path("namespaces", "shared") + "/finalize", namespace)
    await house.delete("namespaces", "shared")
    await house.settle()
    left = await house.get("namespaces", "shared")
    assert left["spec"]["finalizers"] == ["example.com/own"]
    assert await house.names("serviceaccounts", namespace="shared") == []
    left["spec"]["finalizers"] = []
    await house.client.request("PUT", house.path("namespaces", "shared") + "/finalize", left)
    await house.settle()
    assert await house.find("namespaces", "shared") is None


async def test_a_namespace_that_took_the_name_is_left_alone(house: House) -> None:
    await house.create("namespaces", "again")
    await house.delete("namespaces", "again")
    await house.settle()
    await house.create("namespaces", "again")
    await house.create("configmaps", "mine", namespace="again")
    await house.settle()
    assert (await house.get("namespaces", "again"))["status"] == {"phase": "Active"}
    assert await house.names("configmaps", namespace="again") == ["kube-root-ca.crt", "mine"]


async def test_conditions_of_others_stay(house: House) -> None:
    await house.create("namespaces", "held")
    await house.create("configmaps", "one", namespace="held", finalizers=HOLD)
    media = "application/merge-patch+json"
    path = house.path("namespaces", "held") + "/status"
    await house.client.request(
        "PATCH", path, {"status": {"conditions": [{"type": "Foo", "status": "True"}]}}, media=media
    )
    await house.delete("namespaces", "held")
    await house.settle()
    held = await house.get("namespaces", "held")
    assert [one["type"] for one in held["status"]["conditions"]] == ["Foo", *FINE]


async def test_a_held_namespace_costs_no_writes(house: House) -> None:
    await house.create("namespaces", "held")
    await house.create("configmaps", "one", namespace="held", finalizers=HOLD)
    await house.delete("namespaces", "held")
    await house.settle()
    revision = house.store.revision
    await house.restart()
    await house.settle()
    assert house.store.revision == revision


async def test_for_a_moment_everything_is_still_there() -> None:
    async with House(pace=Pace(grace=3600, again=0)) as house:
        await house.create("namespaces", "doomed")
        await house.create("configmaps", "thing", namespace="doomed")
        await house.delete("namespaces", "doomed")
        for _ in range(20):
            await asyncio.sleep(0)
        assert "conditions" not in (await house.get("namespaces", "doomed"))["status"]
        assert await house.find("configmaps", "thing", namespace="doomed") is not None
        await house.restart()
        await house.settle()
        assert await house.find("namespaces", "doomed") is None


def test_the_usual_pace_is_measured_in_seconds() -> None:
    assert 0 < DEFAULT_PACE.again <= DEFAULT_PACE.grace <= 5


@settings(max_examples=examples(25))
@given(
    st.lists(st.tuples(st.sampled_from(["configmaps", "secrets", "pods"]), st.booleans()), max_size=6),
    st.lists(st.integers(0, 12), max_size=3),
)
async def test_a_termination_that_is_interrupted_anywhere_ends_the_same(
    content: list[tuple[str, bool]], crashes: list[int]
) -> None:
    async with House() as house:
        await house.create("namespaces", "doomed")
        await house.settle()
        for number, (kind, held) in enumerate(content):
            await house.create(kind, f"n{number}", namespace="doomed", finalizers=HOLD if held else None)
        await house.delete("namespaces", "doomed")
        for turns in crashes:
            await house.restart(after=turns)
        await house.settle()
        held_pods = [f"n{number}" for number, (kind, held) in enumerate(content) if held and kind == "pods"]
        assert await house.names("pods", namespace="doomed") == held_pods
        for number, (kind, held) in enumerate(content):
            if held:
                await house.patch(kind, f"n{number}", {"metadata": {"finalizers": None}}, namespace="doomed")
        await house.settle()
        for number, (kind, held) in enumerate(content):
            if held and await house.find(kind, f"n{number}", namespace="doomed"):
                pytest.fail("everything was let go")
        assert await house.find("namespaces", "doomed") is None


async def test_nothing_is_created_in_a_namespace_that_ends(house: House) -> None:
    await house.create("namespaces", "held")
    await house.create("configmaps", "one", namespace="held", finalizers=HOLD)
    await house.delete("namespaces", "held")
    await house.settle()
    with pytest.raises(ApiError, match="because it is being terminated"):
        await house.create("configmaps", "two", namespace="held")
    assert await house.names("serviceaccounts", namespace="held") == []


# --- what is told ---------------------------------------------------------------------------------


def test_times_change_only_with_the_status() -> None:
    first = termination_conditions([], Remains(), "t1")
    assert termination_conditions(first, Remains(), "t2") == first
    held = Remains()
    held.resources["widgets", "example.com"] = 1
    second = termination_conditions(first, held, "t3")
    told = {one["type"]: one for one in second}["NamespaceContentRemaining"]
    assert (told["status"], told["lastTransitionTime"]) == ("True", "t3")
    assert told["message"] == "Some resources are remaining: widgets.example.com has 1 resource instances"
    held.resources["widgets", "example.com"] = 2
    third = {one["type"]: one for one in termination_conditions(second, held, "t4")}["NamespaceContentRemaining"]
    assert third["lastTransitionTime"] == "t3"
    assert third["message"].endswith("has 2 resource instances")


def test_failures_are_reported_in_order() -> None:
    remains = Remains(failures=["b is stuck", "a is stuck"])
    told = remains.findings()["NamespaceDeletionContentFailure"]
    assert told.status == "True"
    assert told.message == "Failed to delete all resource types, 2 remaining: a is stuck, b is stuck"
