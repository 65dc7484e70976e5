"""Whose is what at the edge: the syncer has what the placement says, and others have everything else."""

from __future__ import annotations

import pytest
from edge_contract import Link, is_gone
from edge_objects import DEPLOYMENTS, MAPS, REPLICA_SETS, deployment, obj, scope

from farflung.apis.edge.names import DOWNSYNCED, SYNCER_MANAGER
from farflung.client.rest import ListOptions
from farflung.machinery.errors import Obj
from farflung.syncer.decide import Adopt


def owned(manager: str, one: Obj) -> bool:
    return manager in [entry["manager"] for entry in one["metadata"]["managedFields"]]


async def placed(link: Link, namespace: str, spec: Obj) -> None:
    await link.put(DEPLOYMENTS, deployment("web", **spec), namespace)
    await link.configure(namespaceScope=scope([namespace], DEPLOYMENTS))
    await link.start()
    await link.at_edge(DEPLOYMENTS, "web", namespace)


async def test_what_is_brought_is_marked_held_and_owned(link: Link) -> None:
    namespace = await link.put_namespace("shop")
    await link.put_map(namespace, "prices", tea="3")
    await link.configure(namespaceScope=scope([namespace], MAPS))
    await link.start()
    found = await link.at_edge(MAPS, "prices", namespace)
    assert found["metadata"]["annotations"][DOWNSYNCED] == f"ConfigMap/{namespace}/prices"
    assert found["metadata"]["labels"]["edge.kcp.io/projected"] == "yes"
    entries = [(one["manager"], one["operation"]) for one in found["metadata"]["managedFields"]]
    assert (SYNCER_MANAGER, "Apply") in entries
    copy = await link.mailbox.get(MAPS, "prices", namespace)
    assert copy["metadata"]["finalizers"] == ["edge.kcp.io/syncer"]


async def test_a_local_autoscaler_keeps_the_replicas_that_the_placement_leaves_out_until_it_sets_them(
    link: Link,
) -> None:
    namespace = await link.put_namespace("shop")
    await placed(link, namespace, {})
    scale = {"spec": {"replicas": 5}}
    await link.cluster.patch(DEPLOYMENTS, "web", scale, namespace, "scale")
    await link.mailbox.patch(DEPLOYMENTS, "web", {"spec": {"minReadySeconds": 7}}, namespace)
    found = await link.at_edge(DEPLOYMENTS, "web", namespace, lambda one: one["spec"].get("minReadySeconds") == 7)
    assert found["spec"]["replicas"] == 5
    await link.settled()
    assert (await link.report())["driftCorrected"] == 0

    await link.mailbox.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}}, namespace)
    await link.at_edge(DEPLOYMENTS, "web", namespace, lambda one: one["spec"]["replicas"] == 2)
    await link.cluster.patch(DEPLOYMENTS, "web", scale, namespace, "scale")
    await link.told(lambda report: report["driftCorrected"] == 1)
    await link.at_edge(DEPLOYMENTS, "web", namespace, lambda one: one["spec"]["replicas"] == 2)


async def test_what_others_add_to_an_object_of_ours_stays(link: Link) -> None:
    namespace = await link.put_namespace("shop")
    await link.put_map(namespace, "prices", tea="3", coffee="5")
    await link.configure(namespaceScope=scope([namespace], MAPS))
    await link.start()
    await link.at_edge(MAPS, "prices", namespace)
    added = {"metadata": {"labels": {"team": "tea"}}, "data": {"water": "0"}}
    await link.cluster.patch(MAPS, "prices", added, namespace)
    await link.mailbox.patch(MAPS, "prices", {"data": {"tea": "4", "coffee": None}}, namespace)
    found = await link.at_edge(MAPS, "prices", namespace, lambda one: one["data"]["tea"] == "4")
    assert found["data"] == {"tea": "4", "water": "0"}
    assert found["metadata"]["labels"]["team"] == "tea"


@pytest.mark.parametrize("kind", ["changed", "deleted", "unmarked"])
async def test_drift_is_corrected_and_counted(link: Link, kind: str) -> None:
    namespace = await link.put_namespace("shop")
    await link.put_map(namespace, "prices", tea="3")
    await link.configure(namespaceScope=scope([namespace], MAPS))
    await link.start()
    before = await link.at_edge(MAPS, "prices", namespace)
    await link.no_problem()
    if kind == "changed":
        await link.cluster.patch(MAPS, "prices", {"data": {"tea": "999"}}, namespace)
    elif kind == "deleted":
        await link.cluster.delete(MAPS, "prices", namespace)
    else:
        await link.cluster.patch(MAPS, "prices", {"metadata": {"annotations": None, "labels": None}}, namespace)

    def mended(one: Obj) -> bool:
        metadata = one["metadata"]
        return one["data"] == {"tea": "3"} and DOWNSYNCED in metadata["annotations"] and bool(metadata["labels"])

    after = await link.at_edge(MAPS, "prices", namespace, mended)
    assert (after["metadata"]["uid"] != before["metadata"]["uid"]) == (kind == "deleted")
    if kind != "unmarked":  # that is an adoption
        await link.told(lambda report: report["driftCorrected"] == 1)
    await link.no_problem()


async def test_a_fight_over_an_object_is_slowed_down_and_reported(link: Link) -> None:
    namespace = await link.put_namespace("shop")
    await link.put_map(namespace, "prices", tea="3")
    await link.configure(namespaceScope=scope([namespace], MAPS))
    await link.start()
    for number in range(5):
        await link.at_edge(MAPS, "prices", namespace, lambda one: one["data"] == {"tea": "3"})
        await link.cluster.patch(MAPS, "prices", {"data": {"tea": f"{number}00"}}, namespace)
    problem = await link.problem("prices", "Contested")
    assert problem["direction"] == "down"
    assert "another client at the edge changed it" in problem["message"]
    await link.put_map(namespace, "opening", at="9")
    await link.at_edge(MAPS, "opening", namespace)
    await link.at_edge(MAPS, "prices", namespace, lambda one: one["data"] == {"tea": "3"})


# --- what was there before ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("adopt", "identical", "adopted"),
    [
        (Adopt.NEVER, True, False),
        (Adopt.NEVER, False, False),
        (Adopt.IF_IDENTICAL, True, True),
        (Adopt.IF_IDENTICAL, False, False),
        (Adopt.ALWAYS, True, True),
        (Adopt.ALWAYS, False, True),
    ],
)
async def test_what_was_there_before_is_adopted_only_as_far_as_allowed(
    link: Link, adopt: Adopt, identical: bool, adopted: bool
) -> None:
    link.adopt = adopt
    namespace = await link.put_namespace("shop")
    there = deployment("web", replicas=2 if identical else 1)
    before = await link.at_edge_already(DEPLOYMENTS, there, namespace)
    await link.put(DEPLOYMENTS, deployment("web", replicas=2), namespace)
    await link.configure(namespaceScope=scope([namespace], DEPLOYMENTS))
    await link.start()
    if adopted:
        found = await link.at_edge(
            DEPLOYMENTS, "web", namespace, lambda one: DOWNSYNCED in one["metadata"].get("annotations", {})
        )
        assert found["metadata"]["uid"] == before["metadata"]["uid"]
        assert found["spec"]["replicas"] == 2
        await link.no_problem()
    else:
        problem = await link.problem("web", "NotManaged")
        assert (
            f"deployments.apps {namespace}/web already exists at the edge, is not managed by the syncer"
            in problem["message"]
        )
        found = await link.cluster.get(DEPLOYMENTS, "web", namespace)
        assert DOWNSYNCED not in found["metadata"].get("annotations", {})
        assert found["spec"] == before["spec"]
        assert not owned(SYNCER_MANAGER, found)
    await link.mailbox.delete(DEPLOYMENTS, "web", namespace)
    await link.gone_in_mailbox(DEPLOYMENTS, "web", namespace)
    assert await is_gone(link.cluster, DEPLOYMENTS, "web", namespace) is adopted
    await link.no_problem()


async def test_an_object_that_stood_in_the_way_is_replaced_as_soon_as_it_is_gone(link: Link) -> None:
    namespace = await link.put_namespace("shop")
    await link.at_edge_already(MAPS, obj(MAPS, "prices", {"data": {"tea": "theirs"}}), namespace)
    await link.put_map(namespace, "prices", tea="3")
    await link.configure(namespaceScope=scope([namespace], MAPS))
    await link.start()
    await link.problem("prices", "NotManaged")
    await link.cluster.delete(MAPS, "prices", namespace)
    await link.restart()
    await link.at_edge(MAPS, "prices", namespace, lambda one: one["data"] == {"tea": "3"})
    await link.no_problem()


async def test_nothing_that_is_not_marked_is_touched(link: Link) -> None:
    namespace = await link.put_namespace("shop")
    theirs = {
        "plain": {},
        "labelled": {"labels": {"edge.kcp.io/projected": "yes"}},
        "inherited": {
            "labels": {"edge.kcp.io/projected": "yes"},
            "annotations": {DOWNSYNCED: f"Deployment/{namespace}/web"},
        },
    }
    before = {
        name: await link.at_edge_already(MAPS, obj(MAPS, name, {"data": {"a": "b"}}, **metadata), namespace)
        for name, metadata in theirs.items()
    }
    await link.put_map(namespace, "ours", tea="3")
    await link.configure(namespaceScope=scope([namespace], MAPS))
    await link.start()
    await link.at_edge(MAPS, "ours", namespace)
    await link.mailbox.delete(MAPS, "ours", namespace)
    await link.gone_at_edge(MAPS, "ours", namespace)
    await link.restart()
    await link.settled()
    for name, one in before.items():
        assert await link.cluster.get(MAPS, name, namespace) == one


async def test_what_a_deployment_hands_on_to_its_replica_sets_is_no_mark(link: Link) -> None:
    namespace = await link.put_namespace("shop")
    await placed(link, namespace, {})

    async def made() -> list[Obj]:
        return await link.cluster.list(REPLICA_SETS, ListOptions(namespace))

    (before,) = await link.eventually(made, "a ReplicaSet")
    assert before["metadata"]["annotations"][DOWNSYNCED] == f"Deployment/{namespace}/web"
    await link.restart()
    await link.settled()
    (after,) = await made()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert not owned(SYNCER_MANAGER, after)
    await link.mailbox.patch(DEPLOYMENTS, "web", {"spec": {"minReadySeconds": 7}}, namespace)
    await link.at_edge(DEPLOYMENTS, "web", namespace, lambda one: one["spec"].get("minReadySeconds") == 7)
    await link.no_problem()
