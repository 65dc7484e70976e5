"""Deployments in a cluster, through the API."""

from __future__ import annotations

from typing import Any

from cluster import Cluster, cluster, workload

from farflung.apis.names import DEPLOYMENTS, PODS, REPLICA_SETS
from farflung.controllers.workload.model.revisions import short_hash
from farflung.machinery.errors import Obj


def image(name: str) -> Obj:
    return {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": name}]}}}}


async def revisions(one: Cluster) -> dict[str, str]:
    return {
        each["spec"]["template"]["spec"]["containers"][0]["image"]: each["metadata"]["annotations"][
            "deployment.kubernetes.io/revision"
        ]
        for each in await one.replica_sets()
    }


def told(status: Obj) -> list[tuple[Any, ...]]:
    return [(each["type"], each["status"], each["reason"], each["message"]) for each in status["conditions"]]


async def test_a_deployment_has_a_replica_set_and_pods_that_run() -> None:
    async with cluster() as one:
        await one.create(DEPLOYMENTS, workload("web", replicas=3))
        await one.rolled_out("web")
        deployment = await one.get(DEPLOYMENTS, "web")
        [replica_set] = await one.replica_sets()
        name = replica_set["metadata"]["name"]
        assert deployment["metadata"]["annotations"] == {"deployment.kubernetes.io/revision": "1"}
        assert replica_set["metadata"]["annotations"] == {
            "deployment.kubernetes.io/desired-replicas": "3",
            "deployment.kubernetes.io/max-replicas": "4",
            "deployment.kubernetes.io/revision": "1",
        }
        assert replica_set["metadata"]["labels"]["pod-template-hash"] == name.removeprefix("web-")
        pods = await one.pods()
        assert [pod["spec"]["nodeName"] for pod in pods] == ["edge"] * 3
        assert {pod["metadata"]["generateName"] for pod in pods} == {f"{name}-"}
        status = deployment["status"]
        assert told(status) == [
            ("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
            ("Progressing", "True", "NewReplicaSetAvailable", f'ReplicaSet "{name}" has successfully progressed.'),
        ]
        counts = {key: value for key, value in status.items() if key != "conditions"}
        three = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 3)
        assert counts == {"observedGeneration": 1, **three}
        assert await one.said("ScalingReplicaSet") == [f"Scaled up replica set {name} from 0 to 3"]
        assert sorted(await one.said("SuccessfulCreate")) == [f"Created pod: {pod['metadata']['name']}" for pod in pods]


async def test_another_template_is_rolled_out_and_back_again() -> None:
    async with cluster() as one:
        await one.create(DEPLOYMENTS, workload("web", replicas=2))
        await one.rolled_out("web")
        await one.patch(DEPLOYMENTS, "web", image("httpd:2"))
        await one.rolled_out("web")
        assert await revisions(one) == {"httpd:1": "1", "httpd:2": "2"}
        await one.patch(DEPLOYMENTS, "web", image("httpd:1"))
        await one.rolled_out("web")
        assert await revisions(one) == {"httpd:1": "3", "httpd:2": "2"}
        [back] = [each for each in await one.replica_sets() if each["spec"]["replicas"]]
        assert back["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] == "1"
        staying = [pod for pod in await one.pods() if "deletionTimestamp" not in pod["metadata"]]
        assert {pod["spec"]["containers"][0]["image"] for pod in staying} == {"httpd:1"}


async def test_recreate_starts_after_the_last_old_pod_has_finished() -> None:
    async with cluster() as one:
        await one.create(DEPLOYMENTS, workload("web", replicas=2, strategy={"type": "Recreate"}))
        await one.rolled_out("web")
        one.kubelet.held = True
        await one.patch(DEPLOYMENTS, "web", image("httpd:2"))

        async def all_going() -> bool:
            return all("deletionTimestamp" in pod["metadata"] for pod in await one.pods())

        await one.eventually(all_going)
        assert len(await one.replica_sets()) == 1
        one.kubelet.held = False
        one.kubelet.look_again()
        await one.rolled_out("web")
        assert {pod["spec"]["containers"][0]["image"] for pod in await one.pods()} == {"httpd:2"}


async def test_a_paused_deployment_is_scaled_and_not_rolled_out() -> None:
    async with cluster() as one:
        await one.create(DEPLOYMENTS, workload("web", replicas=1))
        await one.rolled_out("web")
        await one.patch(DEPLOYMENTS, "web", {"spec": {"paused": True}})
        await one.patch(DEPLOYMENTS, "web", image("httpd:2"))
        await one.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}}, "scale")

        async def scaled() -> bool:
            deployment = await one.get(DEPLOYMENTS, "web")
            reasons = [each["reason"] for each in deployment["status"]["conditions"]]
            return deployment["status"].get("availableReplicas") == 3 and "DeploymentPaused" in reasons

        await one.eventually(scaled)
        assert len(await one.replica_sets()) == 1
        await one.patch(DEPLOYMENTS, "web", {"spec": {"paused": False}})
        await one.rolled_out("web")
        assert await revisions(one) == {"httpd:1": "1", "httpd:2": "2"}


async def test_a_deployment_that_is_paused_from_the_start_has_nothing() -> None:
    async with cluster() as one:
        await one.create(DEPLOYMENTS, workload("web", paused=True))

        async def told_so() -> bool:
            status = (await one.get(DEPLOYMENTS, "web"))["status"]
            return status.get("observedGeneration") == 1 and len(status["conditions"]) == 2

        await one.eventually(told_so)
        assert not await one.replica_sets()


async def test_annotations_travel_to_the_replica_set_except_what_kubectl_last_applied() -> None:
    async with cluster() as one:
        await one.create(DEPLOYMENTS, workload("web"))
        await one.rolled_out("web")
        noted = {"kubernetes.io/change-cause": "why", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
        await one.patch(DEPLOYMENTS, "web", {"metadata": {"annotations": noted}})

        async def arrived() -> bool:
            [replica_set] = await one.replica_sets()
            return replica_set["metadata"]["annotations"].get("kubernetes.io/change-cause") == "why"

        await one.eventually(arrived)
        [replica_set] = await one.replica_sets()
        assert "kubectl.kubernetes.io/last-applied-configuration" not in replica_set["metadata"]["annotations"]


async def test_annotations_of_another_cluster_are_ignored() -> None:
    async with cluster() as one:
        made = workload("web", replicas=2)
        made["metadata"]["annotations"] = {"kcp.io/cluster": "2pwj7023iotdw303"}
        await one.create(DEPLOYMENTS, made)
        await one.rolled_out("web")
        await one.patch(DEPLOYMENTS, "web", {"metadata": {"annotations": {"kcp.io/cluster": "another"}}})
        await one.patch(DEPLOYMENTS, "web", image("httpd:2"))
        await one.rolled_out("web")
        assert await revisions(one) == {"httpd:1": "1", "httpd:2": "2"}


async def test_old_replica_sets_are_forgotten_beyond_the_limit() -> None:
    async with cluster() as one:
        await one.create(DEPLOYMENTS, workload("web", replicas=1, revisionHistoryLimit=1))
        for number in range(2, 5):
            await one.rolled_out("web")
            await one.patch(DEPLOYMENTS, "web", image(f"httpd:{number}"))
        await one.rolled_out("web")

        async def forgotten() -> bool:
            return await revisions(one) == {"httpd:3": "3", "httpd:4": "4"}

        await one.eventually(forgotten)


async def test_a_deployment_without_progress_reports_it_after_its_deadline() -> None:
    async with cluster(nodes=0) as one:
        await one.create(DEPLOYMENTS, workload("web", progressDeadlineSeconds=1))

        async def late() -> bool:
            deployment = await one.get(DEPLOYMENTS, "web")
            return "ProgressDeadlineExceeded" in [each["reason"] for each in deployment["status"]["conditions"]]

        await one.eventually(late)
        [replica_set] = await one.replica_sets()
        deployment = await one.get(DEPLOYMENTS, "web")
        late_message = f'ReplicaSet "{replica_set["metadata"]["name"]}" has timed out progressing.'
        assert ("Progressing", "False", "ProgressDeadlineExceeded", late_message) in told(deployment["status"])


async def test_a_deployment_that_is_deleted_takes_everything_with_it() -> None:
    async with cluster() as one:
        await one.create(DEPLOYMENTS, workload("web", replicas=2))
        await one.rolled_out("web")
        await one.client.delete(DEPLOYMENTS, "web", "default")

        async def gone() -> bool:
            return not await one.pods() and not await one.replica_sets()

        await one.eventually(gone)


async def test_pods_are_adopted_by_their_labels_and_let_go_when_they_lose_them() -> None:
    async with cluster() as one:
        made = workload("web", replicas=2)
        orphan = {"metadata": {"name": "orphan", "namespace": "default", "labels": {"app": "web"}}}
        await one.create(PODS, orphan | {"spec": made["spec"]["template"]["spec"]})
        await one.create(REPLICA_SETS, made)

        async def two() -> bool:
            return (await one.get(REPLICA_SETS, "web"))["status"].get("availableReplicas") == 2

        await one.eventually(two)
        assert len(await one.pods()) == 2
        owner = (await one.get(PODS, "orphan"))["metadata"]["ownerReferences"]
        assert [(each["kind"], each["name"], each["controller"]) for each in owner] == [("ReplicaSet", "web", True)]
        await one.patch(PODS, "orphan", {"metadata": {"labels": {"app": None}}})

        async def three() -> bool:
            return len(await one.pods()) == 3 and "ownerReferences" not in (await one.get(PODS, "orphan"))["metadata"]

        await one.eventually(three)


async def test_a_refused_pod_is_reported_by_the_replica_set_and_its_deployment() -> None:
    async with cluster() as one:
        made = workload("web")
        made["spec"]["template"]["spec"]["serviceAccountName"] = "nobody"
        await one.create(DEPLOYMENTS, made)

        async def failed() -> bool:
            status = (await one.get(DEPLOYMENTS, "web"))["status"]
            return any(each["type"] == "ReplicaFailure" for each in status["conditions"])

        await one.eventually(failed)
        [failure] = [
            each for each in told((await one.get(DEPLOYMENTS, "web"))["status"]) if each[0] == "ReplicaFailure"
        ]
        assert failure[1:3] == ("True", "FailedCreate")
        assert 'serviceaccount "nobody" not found' in failure[3]
        assert (await one.said("FailedCreate"))[0].startswith("Error creating: pods ")


async def test_a_name_of_another_object_is_avoided() -> None:
    async with cluster() as one:
        await one.crash()
        other = workload("other", replicas=0)
        made = await one.create(DEPLOYMENTS, workload("web"))
        other["metadata"]["name"] = f"web-{short_hash(made['spec']['template'])}"
        await one.create(REPLICA_SETS, other)
        one.start()
        await one.rolled_out("web")
        assert (await one.get(DEPLOYMENTS, "web"))["status"]["collisionCount"] == 1
