"""Deployments in a cluster: what kubectl and curl would see."""

from __future__ import annotations

from cluster import cluster, workload

from farflung.controllers.workload.kinds import DEPLOYMENTS, REPLICA_SETS


async def test_a_deployment_has_a_replica_set_and_pods_that_run() -> None:
    async with cluster() as one:
        await one.create(DEPLOYMENTS, workload("web", replicas=3))
        await one.rolled_out("web")
        deployment = await one.get(DEPLOYMENTS, "web")
        [replica_set] = await one.replica_sets()
        name = replica_set["metadata"]["name"]
        assert deployment["metadata"]["annotations"] == {"deployment.kubernetes.io/revision": "1"}
        assert replica_set["metadata"]["labels"]["pod-template-hash"] == name.removeprefix("web-")
        assert [pod["spec"]["nodeName"] for pod in await one.pods()] == ["edge"] * 3
        print(deployment["status"])
        assert await one.said("ScalingReplicaSet") == [f"Scaled up replica set {name} from 0 to 3"]
        assert REPLICA_SETS
