"""What the edge says of what it was given comes back, and signs of life do."""

from __future__ import annotations

import pytest
from edge_contract import Link
from edge_objects import DEPLOYMENTS, MAPS, NAMESPACES, definition, deployment, obj, scope

from farflung.apis.edge.names import PODS_STUCK
from farflung.apis.kcp.names import SYNC_TARGETS
from farflung.machinery.errors import Obj


def condition(number: int) -> Obj:
    """One that no controller makes, and none takes away."""
    return {
        "type": "Tested",
        "status": "True",
        "reason": f"Number{number}",
        "message": "",
        "lastUpdateTime": "2024-05-01T12:00:00Z",
        "lastTransitionTime": "2024-05-01T12:00:00Z",
    }


async def test_the_status_of_a_deployment_is_the_same_upstream_each_time_it_changes(link: Link) -> None:
    namespace = await link.put_namespace("shop")
    await link.put(DEPLOYMENTS, deployment("web"), namespace)
    await link.configure(namespaceScope=scope([namespace], DEPLOYMENTS))
    await link.start()
    await link.at_edge(DEPLOYMENTS, "web", namespace)
    for number in (1, 2):
        counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), number)
        status = {"status": {**counts, "observedGeneration": 1, "conditions": [condition(number)]}}
        await link.cluster.patch(DEPLOYMENTS, "web", status, namespace, "status")

        async def equal(reason: str = f"Number{number}") -> bool:
            there = (await link.cluster.get(DEPLOYMENTS, "web", namespace))["status"]
            here = (await link.mailbox.get(DEPLOYMENTS, "web", namespace))["status"]
            conditions = [one for one in here["conditions"] if one["type"] != PODS_STUCK]
            return {**here, "conditions": conditions} == there and reason in [one["reason"] for one in conditions]

        await link.eventually(equal, "the status")
    await link.no_problem()


async def test_the_status_of_a_deployment_names_a_pod_that_no_node_fits(link: Link) -> None:
    namespace = await link.put_namespace("shop")
    await link.put(DEPLOYMENTS, deployment("web"), namespace)
    await link.configure(namespaceScope=scope([namespace], DEPLOYMENTS))
    await link.start()

    def stuck(copy: Obj) -> bool:
        conditions = (copy.get("status") or {}).get("conditions") or ()
        return ("Unschedulable", True) in [
            (one["reason"], one["message"].startswith("Pod web-")) for one in conditions if one["type"] == PODS_STUCK
        ]

    await link.in_mailbox(DEPLOYMENTS, "web", namespace, stuck)
    await link.no_problem()


@pytest.mark.parametrize("at_edge", [True, False], ids=["apart at the edge", "a part at the edge"])
@pytest.mark.parametrize("upstream", [True, False], ids=["apart upstream", "a part upstream"])
async def test_the_status_of_custom_resources_comes_back_however_they_have_it(
    link: Link, upstream: bool, at_edge: bool
) -> None:
    widgets, namespace = link.kind("widgets", "Widget"), await link.put_namespace("shop")
    await link.define(link.mailbox, widgets=definition(widgets, status=upstream))
    await link.define(link.cluster, widgets=definition(widgets, status=at_edge))
    await link.put(widgets, obj(widgets, "one", {"spec": {"size": 1}}), namespace)
    await link.configure(namespaceScope=scope([namespace], widgets))
    await link.start()
    await link.at_edge(widgets, "one", namespace)
    for ready in (True, False):
        patch = {"status": {"ready": ready, "nodes": ["a", "b"]}}
        await link.cluster.patch(widgets, "one", patch, namespace, "status" if at_edge else "")
        found = await link.in_mailbox(
            widgets, "one", namespace, lambda one, ready=ready: one["status"]["ready"] is ready
        )
        assert found["status"] == {"ready": ready, "nodes": ["a", "b"]}
        assert found["spec"] == {"size": 1}
    await link.no_problem()
    assert (await link.report())["driftCorrected"] == 0


async def test_the_status_of_a_namespace_is_each_sides_own(link: Link) -> None:
    namespace = await link.put_namespace("shop")
    await link.put_map(namespace, "prices", tea="3")
    await link.configure(namespaceScope=scope([namespace], MAPS))
    await link.start()
    await link.at_edge(MAPS, "prices", namespace)
    writes = await link.settled()
    assert not any(path.endswith("/status") for _, path in writes)
    await link.in_mailbox(NAMESPACES, namespace, holds=lambda one: one["status"]["phase"] == "Active")


async def test_a_syncer_that_lives_says_so_again_and_again_and_its_target_is_ready(link: Link) -> None:
    await link.start()
    first = await link.told(lambda report: report["lastSyncerHeartbeatTime"])
    later = await link.told(lambda report: report["lastSyncerHeartbeatTime"] > first["lastSyncerHeartbeatTime"])
    assert {one["type"]: one["status"] for one in later["conditions"]} == {
        "EdgeReachable": "True",
        "OrphansPresent": "False",
        "Synced": "True",
    }
    assert later["edge"]["version"]
    assert later["syncer"]["started"] == first["syncer"]["started"]

    async def ready() -> bool:
        target = await link.inventory.get(SYNC_TARGETS, link.name)
        return any(one["type"] == "Ready" and one["status"] == "True" for one in target["status"]["conditions"])

    await link.eventually(ready, "a SyncTarget that is ready")
