"""The garbage collector in a hub: what goes with what."""

from __future__ import annotations

import asyncio
import logging

import pytest
from examples import examples
from house import House, owned_by
from hypothesis import given, settings
from hypothesis import strategies as st
from long_turns import no_long_turns
from memory_store import MemoryStore

from farflung.hub.catalog import objects
from farflung.hub.controllers.garbage_collector import WORKERS
from farflung.machinery.errors import Obj
from farflung.store.base import Revision, Unavailable

NEVER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "11111111-2222-3333-4444-555555555555"}


async def test_dependents_of_a_deleted_owner_go(house: House) -> None:
    owner = await house.create("configmaps", "owner")
    child = await house.create("secrets", "child", ownerReferences=[owned_by(owner)])
    await house.create("pods", "grandchild", ownerReferences=[owned_by(child)])
    await house.delete("configmaps", "owner")
    await house.settle()
    assert await house.names("secrets") == []
    assert await house.names("pods") == []


async def test_dependents_wait_for_an_owner_that_is_held_in_the_background(house: House) -> None:
    owner = await house.create("configmaps", "owner", finalizers=["example.com/hold"])
    await house.create("configmaps", "child", ownerReferences=[owned_by(owner)])
    await house.delete("configmaps", "owner")
    await house.settle()
    assert await house.find("configmaps", "child") is not None
    await house.patch("configmaps", "owner", {"metadata": {"finalizers": None}})
    await house.settle()
    assert await house.find("configmaps", "child") is None


async def test_an_owner_in_the_foreground_waits_for_dependents_that_block_it(house: House) -> None:
    owner = await house.create("configmaps", "owner")
    held = ["example.com/hold"]
    await house.create("configmaps", "blocks", ownerReferences=[owned_by(owner, block=True)], finalizers=held)
    await house.create("configmaps", "does-not", ownerReferences=[owned_by(owner, block=False)], finalizers=held)
    await house.delete("configmaps", "owner", policy="Foreground")
    await house.settle()
    assert (await house.get("configmaps", "owner"))["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in (await house.get("configmaps", "does-not"))["metadata"]
    await house.patch("configmaps", "blocks", {"metadata": {"finalizers": None}})
    await house.settle()
    assert await house.find("configmaps", "owner") is None
    assert await house.find("configmaps", "does-not") is not None


async def test_foreground_deletion_deletes_dependents_before_owners(house: House) -> None:
    owner = await house.create("configmaps", "a")
    child = await house.create("configmaps", "b", ownerReferences=[owned_by(owner, block=True)])
    hold = ["example.com/hold"]
    await house.create("configmaps", "c", ownerReferences=[owned_by(child, block=True)], finalizers=hold)
    await house.delete("configmaps", "a", policy="Foreground")
    await house.settle()
    assert (await house.get("configmaps", "b"))["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert await house.find("configmaps", "a") is not None
    await house.patch("configmaps", "c", {"metadata": {"finalizers": None}})
    await house.settle()
    assert await house.names("configmaps") == ["kube-root-ca.crt"]


@pytest.mark.parametrize("size", [1, 2, 5])
async def test_owners_in_a_circle_go_in_the_foreground(house: House, size: int) -> None:
    ring = [await house.create("configmaps", f"ring-{number}") for number in range(size)]
    for number, owner in enumerate(ring):
        change = {"metadata": {"ownerReferences": [owned_by(owner, block=True)]}}
        await house.patch("configmaps", f"ring-{(number + 1) % size}", change)
    await house.delete("configmaps", "ring-0", policy="Foreground")
    await house.settle()
    assert await house.names("configmaps") == ["kube-root-ca.crt"]


async def test_two_owners_of_each_other_deleted_at_once_do_not_wait_for_ever(house: House) -> None:
    one = await house.create("configmaps", "one")
    other = await house.create("configmaps", "other", ownerReferences=[owned_by(one, block=True)])
    await house.patch("configmaps", "one", {"metadata": {"ownerReferences": [owned_by(other, block=True)]}})
    await house.delete("configmaps", "one", policy="Foreground")
    await house.delete("configmaps", "other", policy="Foreground")
    await house.settle()
    assert await house.names("configmaps") == ["kube-root-ca.crt"]


async def test_orphaned_dependents_stay_without_the_reference(house: House) -> None:
    owner, other = await house.create("configmaps", "owner"), await house.create("configmaps", "other")
    await house.create("configmaps", "only", ownerReferences=[owned_by(owner)])
    await house.create("configmaps", "both", ownerReferences=[owned_by(owner), owned_by(other)])
    await house.create("configmaps", "going", ownerReferences=[owned_by(owner)], finalizers=["example.com/hold"])
    await house.delete("configmaps", "going")
    await house.delete("configmaps", "owner", policy="Orphan")
    await house.settle()
    assert await house.find("configmaps", "owner") is None
    assert "ownerReferences" not in (await house.get("configmaps", "only"))["metadata"]
    assert (await house.get("configmaps", "both"))["metadata"]["ownerReferences"] == [owned_by(other)]
    assert "ownerReferences" not in (await house.get("configmaps", "going"))["metadata"]


@pytest.mark.parametrize("policy", ["Orphan", "Foreground"])
async def test_of_an_owner_without_dependents_only_the_collectors_finalizer_is_removed(
    house: House, policy: str
) -> None:
    await house.create("configmaps", "owner", finalizers=["example.com/hold"])
    await house.delete("configmaps", "owner", policy=policy)
    await house.settle()
    assert (await house.get("configmaps", "owner"))["metadata"]["finalizers"] == ["example.com/hold"]


async def test_a_dependent_of_an_owner_that_never_existed_is_deleted(house: House) -> None:
    await house.create("configmaps", "lost", ownerReferences=[NEVER])
    await house.settle()
    assert await house.find("configmaps", "lost") is None


async def test_an_object_with_another_owner_loses_only_the_dead_reference(house: House) -> None:
    one, other = await house.create("configmaps", "one"), await house.create("configmaps", "other")
    await house.create("configmaps", "child", ownerReferences=[owned_by(one), owned_by(other, block=True)])
    await house.delete("configmaps", "one")
    await house.settle()
    assert (await house.get("configmaps", "child"))["metadata"]["ownerReferences"] == [owned_by(other, block=True)]
    await house.delete("configmaps", "other")
    await house.settle()
    assert await house.find("configmaps", "child") is None


async def test_an_object_that_took_the_owners_name_is_not_the_owner(house: House) -> None:
    owner = await house.create("configmaps", "owner")
    await house.create("configmaps", "child", ownerReferences=[owned_by(owner)])
    await house.delete("configmaps", "owner")
    await house.create("configmaps", "owner")
    await house.settle()
    assert await house.find("configmaps", "child") is None
    assert await house.find("configmaps", "owner") is not None


async def test_an_owner_in_another_namespace_is_none(house: House) -> None:
    owner = await house.create("configmaps", "owner", namespace="kube-system")
    await house.create("configmaps", "child", ownerReferences=[owned_by(owner, block=True)])
    await house.settle()
    assert await house.find("configmaps", "child") is None
    assert await house.find("configmaps", "owner", namespace="kube-system") is not None


async def test_a_clusters_object_may_own_objects_in_namespaces(house: House) -> None:
    owner = await house.create("clusterroles", "system:owner")
    await house.create("configmaps", "child", ownerReferences=[owned_by(owner)])
    await house.create("clusterroles", "system:child", ownerReferences=[owned_by(owner)])
    await house.settle()
    assert await house.find("configmaps", "child") is not None
    await house.delete("clusterroles", "system:owner")
    await house.settle()
    assert await house.find("configmaps", "child") is None
    assert await house.find("clusterroles", "system:child") is None


async def test_a_clusters_object_with_an_owner_in_a_namespace_is_left_alone(house: House) -> None:
    owner = await house.create("configmaps", "owner")
    await house.create("clusterroles", "child", ownerReferences=[owned_by(owner)])
    await house.delete("configmaps", "owner", policy="Foreground")
    await house.settle()
    assert await house.find("configmaps", "owner") is None
    assert (await house.get("clusterroles", "child"))["metadata"]["ownerReferences"] == [owned_by(owner)]


async def test_an_object_with_an_owner_of_an_unknown_kind_is_left_alone(house: House) -> None:
    unknown = NEVER | {"apiVersion": "example.com/v1", "kind": "Unknown"}
    await house.create("configmaps", "child", ownerReferences=[NEVER, unknown])
    await house.settle()
    assert (await house.get("configmaps", "child"))["metadata"]["ownerReferences"] == [NEVER, unknown]
    await house.patch("configmaps", "child", {"metadata": {"ownerReferences": [NEVER]}})
    await house.settle()
    assert await house.find("configmaps", "child") is None


async def test_adopting_a_dead_owner_is_noticed(house: House) -> None:
    await house.create("configmaps", "child")
    await house.patch("configmaps", "child", {"metadata": {"ownerReferences": [NEVER]}})
    await house.settle()
    assert await house.find("configmaps", "child") is None


async def test_a_dependent_that_lets_go_of_its_owner_no_longer_holds_it(house: House) -> None:
    owner = await house.create("configmaps", "owner")
    hold = ["example.com/hold"]
    await house.create("configmaps", "child", ownerReferences=[owned_by(owner, block=True)], finalizers=hold)
    await house.delete("configmaps", "owner", policy="Foreground")
    await house.settle()
    await house.patch("configmaps", "child", {"metadata": {"ownerReferences": None}})
    await house.settle()
    assert await house.find("configmaps", "owner") is None


async def test_managed_fields_have_the_manager_that_removed_the_reference(house: House) -> None:
    one, other = await house.create("configmaps", "one"), await house.create("configmaps", "other")
    await house.create("configmaps", "child", ownerReferences=[owned_by(one), owned_by(other)])
    await house.delete("configmaps", "one")
    await house.settle()
    child = await house.get("configmaps", "child")
    assert {entry["manager"] for entry in child["metadata"]["managedFields"]} <= {"test", "kube-controller-manager"}


async def test_what_a_full_disk_refuses_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class Full(MemoryStore):
        refusals = 0

        async def delete(self, key: str, *, expect: Revision) -> Revision:
            if self.refusals:
                self.refusals -= 1
                raise Unavailable("the disk is full")
            return await super().delete(key, expect=expect)

    store = Full(stamp=objects.stamp)
    async with House(store) as house:
        owner = await house.create("configmaps", "owner")
        await house.create("configmaps", "child", ownerReferences=[owned_by(owner)])
        await house.delete("configmaps", "owner")
        store.refusals = 3
        with caplog.at_level(logging.WARNING):
            await house.settle()
        assert await house.find("configmaps", "child") is None
    assert caplog.text.count("the disk is full") == 3


async def test_a_burst_of_dependents_leaves_the_loop_to_others(house: House) -> None:
    owner = await house.create("configmaps", "owner")
    for number in range(300):
        await house.create("configmaps", f"child-{number}", ownerReferences=[owned_by(owner)])
    await house.settle()
    await house.delete("configmaps", "owner")
    turns = 0
    while len(left := await house.names("configmaps")) > 1:
        turns += 1
        await asyncio.sleep(0)
        assert len(left) - len(await house.names("configmaps")) <= WORKERS
    assert turns > 1


# --- laws -----------------------------------------------------------------------------------------

Graph = dict[int, list[tuple[int, bool]]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Objects by number, each with its owners and whether it blocks their deletion; circles included."""
    size = draw(st.integers(1, 6))
    owners = st.lists(
        st.tuples(st.integers(0, size - 1), st.booleans()), max_size=3, unique_by=lambda reference: reference[0]
    )
    return {number: draw(owners) for number in range(size)}


deletions = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["Background", "Foreground", "Orphan"])), min_size=1, max_size=3
)


async def plant(house: House, graph: Graph) -> None:
    made = {number: await house.create("configmaps", f"o{number}") for number in graph}
    for number, owners in graph.items():
        if owners:
            references = [owned_by(made[owner], block=block) for owner, block in owners]
            await house.patch("configmaps", f"o{number}", {"metadata": {"ownerReferences": references}})


async def shape_of(house: House) -> dict[int, set[int]]:
    """The objects that are left, with their owners."""
    listed = await house.client.request("GET", house.path("configmaps"))
    items: list[Obj] = [item["metadata"] for item in listed["items"] if item["metadata"]["name"].startswith("o")]
    return {int(item["name"][1:]): {int(one["name"][1:]) for one in item.get("ownerReferences", [])} for item in items}


def expected(graph: Graph, deleted: list[tuple[int, str]]) -> dict[int, set[int]]:
    """The same by brute force: without the deleted, whoever had owners and has none goes, until nobody does."""
    left = {number: {owner for owner, _ in owners} for number, owners in graph.items()}
    for number, policy in deleted:
        if left.pop(number, None) is None:
            continue
        if policy == "Orphan":
            for owners in left.values():
                owners.discard(number)
        while lost := [one for one, owners in left.items() if owners and not owners & left.keys()]:
            for one in lost:
                del left[one]
        for owners in left.values():
            owners.intersection_update(left)
    return left


@settings(max_examples=examples(40))
@given(graphs(), deletions)
async def test_one_deletion_after_the_other_ends_as_brute_force_says(
    graph: Graph, deleted: list[tuple[int, str]]
) -> None:
    async with House() as house:
        await plant(house, graph)
        for number, policy in deleted:
            if await house.find("configmaps", f"o{number}") is not None:
                await house.delete("configmaps", f"o{number}", policy=policy)
                await house.settle()
        assert await shape_of(house) == expected(graph, deleted)


@settings(max_examples=examples(40))
@given(graphs(), st.sets(st.integers(0, 5), min_size=1), st.booleans(), st.lists(st.integers(0, 12), max_size=3))
async def test_a_cascade_that_is_interrupted_anywhere_ends_the_same(
    graph: Graph, deleted: set[int], foreground: bool, crashes: list[int]
) -> None:
    policy = "Foreground" if foreground else "Background"
    async with House() as house:
        await plant(house, graph)
        for number in sorted(deleted & graph.keys()):
            if await house.find("configmaps", f"o{number}") is not None:
                await house.delete("configmaps", f"o{number}", policy=policy)
        for turns in crashes:
            await house.restart(after=turns)
        await house.settle()
        assert await shape_of(house) == expected(graph, [(number, policy) for number in sorted(deleted)])


async def test_owners_that_are_searched_in_many_namespaces_hold_no_turn(house: House) -> None:
    for number in range(200):
        await house.create("namespaces", f"n{number}")
    absent = {"apiVersion": "v1", "kind": "ConfigMap"}
    owners = [{**absent, "name": f"o{number}", "uid": f"u{number}"} for number in range(800)]
    async with no_long_turns():
        await house.create("configmaps", "child", ownerReferences=owners)
        await house.settle()
    assert await house.find("configmaps", "child") is None


async def test_an_owner_in_another_namespace_is_reported_by_an_event(house: House) -> None:
    owner = await house.create("configmaps", "owner", namespace="kube-system")
    await house.create("configmaps", "child", ownerReferences=[owned_by(owner)])
    await house.create("clusterroles", "shared", ownerReferences=[owned_by(owner)])
    await house.settle()
    listed = await house.client.request("GET", "/api/v1/namespaces/default/events")
    told = {item["involvedObject"]["name"]: item for item in listed["items"]}
    uid = owner["metadata"]["uid"]
    assert {name: (item["type"], item["reason"], item["message"]) for name, item in told.items()} == {
        "child": (
            "Warning",
            "OwnerRefInvalidNamespace",
            f"ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: {uid}] does not exist in namespace "
            '"default"',
        ),
        "shared": (
            "Warning",
            "OwnerRefInvalidNamespace",
            f'ownerRef [v1/ConfigMap, namespace: , name: owner, uid: {uid}] does not exist in namespace ""',
        ),
    }
    assert {item["source"]["component"] for item in told.values()} == {"garbage-collector-controller"}


async def test_a_deleted_owner_is_not_reported(house: House) -> None:
    owner = await house.create("configmaps", "owner")
    await house.create("configmaps", "child", ownerReferences=[owned_by(owner)])
    await house.create("configmaps", "lost", ownerReferences=[NEVER])
    await house.delete("configmaps", "owner")
    await house.settle()
    assert (await house.client.request("GET", "/api/v1/namespaces/default/events"))["items"] == []
