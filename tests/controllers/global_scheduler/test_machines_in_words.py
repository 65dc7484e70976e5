"""The global scheduler, as its users see it."""

from __future__ import annotations

from machines import machines


async def test_a_machine_is_bound_to_a_cluster_that_has_room() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 1})
        await one.machine("vm")
        assert await one.bound("vm") == "az1"
        pod = await one.pod("vm")
        assert pod["spec"]["clusterName"] == "az1"
        assert pod["status"]["phase"] == "Pending"
        assert {c["type"]: c["status"] for c in pod["status"]["conditions"]} == {"PodScheduled": "True"}
        noted = pod["metadata"]["annotations"]
        assert noted["globalscheduler.com/cluster"] == f"{one.home}|default/az1"
        assert noted["globalscheduler.com/flavor-id"] == "small"
        assert noted["globalscheduler.com/site-id"] == "r1--az1"
