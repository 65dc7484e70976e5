"""StatefulSets, DaemonSets and Jobs in a cluster, through the API."""

from __future__ import annotations

from typing import Any

from cluster import Cluster, cluster, workload

from farflung.apis.names import CLAIMS, CONTROLLER_REVISIONS, DAEMON_SETS, JOBS, NODES, PODS, STATEFUL_SETS
from farflung.client.rest import ListOptions
from farflung.machinery.errors import Obj

# --- StatefulSets ---------------------------------------------------------------------------------


async def settled(one: Cluster, name: str, replicas: int) -> None:
    async def done() -> bool:
        owner = await one.get(STATEFUL_SETS, name)
        status = owner["status"]
        same = status.get("currentRevision") == status.get("updateRevision")
        seen = status.get("observedGeneration") == owner["metadata"]["generation"]
        counted = [status.get(each, 0) for each in ("replicas", "availableReplicas", "updatedReplicas")]
        return same and seen and counted == [replicas] * 3

    await one.eventually(done, name)


async def test_a_stateful_set_makes_its_pods_in_order_and_deletes_the_last_first() -> None:
    async with cluster() as one:
        await one.create(STATEFUL_SETS, workload("db", replicas=3, serviceName="db"))
        await settled(one, "db", 3)
        pods = await one.pods()
        assert [pod["metadata"]["name"] for pod in pods] == ["db-0", "db-1", "db-2"]
        assert [pod["spec"]["hostname"] for pod in pods] == ["db-0", "db-1", "db-2"]
        assert pods[1]["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "db-1"
        made = [f"create Pod db-{number} in StatefulSet db successful" for number in range(3)]
        assert await one.said("SuccessfulCreate") == made
        await one.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 1}})
        await settled(one, "db", 1)
        gone = [f"delete Pod db-{number} in StatefulSet db successful" for number in (2, 1)]
        assert await one.said("SuccessfulDelete") == gone


async def test_a_stateful_set_is_renewed_from_the_last_pod_down_to_its_partition() -> None:
    async with cluster() as one:
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        await one.create(STATEFUL_SETS, workload("db", replicas=3, serviceName="db", updateStrategy=rolling))
        await settled(one, "db", 3)
        template = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "httpd:2"}]}}}}
        await one.patch(STATEFUL_SETS, "db", template)

        async def partly() -> bool:
            status = (await one.get(STATEFUL_SETS, "db"))["status"]
            return status.get("updatedReplicas") == 2 and status.get("availableReplicas") == 3

        await one.eventually(partly)
        images = [pod["spec"]["containers"][0]["image"] for pod in await one.pods()]
        assert images == ["httpd:1", "httpd:2", "httpd:2"]
        await one.client.delete(PODS, "db-0", "default")

        async def back() -> bool:
            return (await one.get(STATEFUL_SETS, "db"))["status"].get("availableReplicas") == 3

        await one.eventually(back)
        assert (await one.get(PODS, "db-0"))["spec"]["containers"][0]["image"] == "httpd:1"
        revisions = await one.client.list(CONTROLLER_REVISIONS, ListOptions("default"))
        assert sorted(each["revision"] for each in revisions) == [1, 2]
        whole = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}
        await one.patch(STATEFUL_SETS, "db", whole)
        await settled(one, "db", 3)


async def test_pods_of_a_parallel_set_do_not_wait_for_each_other_and_claims_are_made() -> None:
    async with cluster() as one:
        claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
        claim["spec"]["resources"] = {"requests": {"storage": "1Gi"}}
        made = workload("db", replicas=2, serviceName="db", podManagementPolicy="Parallel")
        made["spec"]["volumeClaimTemplates"] = [claim]
        await one.create(STATEFUL_SETS, made)

        async def waiting() -> bool:
            conditions = [pod["status"].get("conditions") or [{}] for pod in await one.pods()]
            return [each[0].get("reason") for each in conditions] == ["Unschedulable"] * 2

        await one.eventually(waiting)
        claims = await one.client.list(CLAIMS, ListOptions("default"))
        assert [each["metadata"]["name"] for each in claims] == ["data-db-0", "data-db-1"]
        [first, _] = await one.pods()
        why = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
        assert first["status"]["conditions"][0]["message"] == why


# --- DaemonSets -----------------------------------------------------------------------------------


def covers(number: int, **more: int) -> dict[str, int]:
    four = ("currentNumberScheduled", "desiredNumberScheduled", "numberReady", "updatedNumberScheduled")
    return {**dict.fromkeys((*four, "numberAvailable"), number), "numberMisscheduled": 0, **more}


async def test_a_daemon_set_has_one_pod_on_each_node_that_is_meant_and_renews_it() -> None:
    async with cluster(nodes=2) as one:
        made = workload("agent")
        made["spec"]["template"]["spec"]["nodeSelector"] = {"role": "edge"}
        await one.create(DAEMON_SETS, made)

        async def none() -> bool:
            status = (await one.get(DAEMON_SETS, "agent"))["status"]
            return status.get("observedGeneration") == 1 and status["desiredNumberScheduled"] == 0

        await one.eventually(none)
        await one.client.patch(NODES, "edge-1", {"metadata": {"labels": {"role": "edge"}}})

        async def covered() -> bool:
            owner = await one.get(DAEMON_SETS, "agent")
            return covers(1, observedGeneration=owner["metadata"]["generation"]) == owner["status"]

        await one.eventually(covered)
        [pod] = await one.pods()
        assert pod["spec"]["nodeName"] == "edge-1"
        change: Obj = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "httpd:2"}]}}}}
        await one.patch(DAEMON_SETS, "agent", change)

        async def renewed() -> bool:
            return await covered() and (await one.pods())[0]["spec"]["containers"][0]["image"] == "httpd:2"

        await one.eventually(renewed)
        revisions = await one.client.list(CONTROLLER_REVISIONS, ListOptions("default"))
        assert sorted(each["revision"] for each in revisions) == [1, 2]
        await one.client.patch(NODES, "edge-1", {"metadata": {"labels": {"role": None}}})

        async def gone() -> bool:
            return not await one.pods()

        await one.eventually(gone)


# --- Jobs -----------------------------------------------------------------------------------------


def job(name: str, behaviour: str = "succeeded", **spec: Any) -> Obj:
    template = {
        "metadata": {"annotations": {"test/behaviour": behaviour}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
    }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"template": template, **spec}}


async def ended(one: Cluster, name: str) -> Obj:
    async def done() -> bool:
        conditions = (await one.get(JOBS, name))["status"].get("conditions") or ()
        return any(each["type"] in ("Complete", "Failed") for each in conditions)

    await one.eventually(done, name)
    status: Obj = (await one.get(JOBS, name))["status"]
    return status


async def test_a_job_runs_as_many_pods_as_it_wants_completions() -> None:
    async with cluster() as one:
        await one.create(JOBS, job("count", completions=5, parallelism=2))
        status = await ended(one, "count")
        assert [(each["type"], each["reason"]) for each in status["conditions"]] == [
            ("SuccessCriteriaMet", "CompletionsReached"),
            ("Complete", "CompletionsReached"),
        ]
        assert status["succeeded"] == 5
        assert "failed" not in status
        assert "active" not in status
        assert status["uncountedTerminatedPods"] == {}
        assert status["completionTime"] >= status["startTime"]
        pods = await one.pods()
        assert len(pods) == 5
        assert not any(pod["metadata"].get("finalizers") for pod in pods)
        assert await one.said("Completed") == ["Job completed"]


async def test_each_index_of_an_indexed_job_succeeds_once() -> None:
    async with cluster() as one:
        await one.create(JOBS, job("shards", completions=4, parallelism=3, completionMode="Indexed"))
        status = await ended(one, "shards")
        assert (status["succeeded"], status["completedIndexes"]) == (4, "0-3")
        pods = await one.pods()
        index = "batch.kubernetes.io/job-completion-index"
        assert sorted(pod["metadata"]["annotations"][index] for pod in pods) == ["0", "1", "2", "3"]
        [variable] = pods[0]["spec"]["containers"][0]["env"]
        assert variable["name"] == "JOB_COMPLETION_INDEX"
        assert variable["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{index}']"


async def test_a_job_whose_pods_fail_too_often_fails() -> None:
    async with cluster() as one:
        await one.create(JOBS, job("broken", "failed", backoffLimit=0, parallelism=2, completions=2))
        status = await ended(one, "broken")
        assert [(each["type"], each["reason"], each["message"]) for each in status["conditions"]] == [
            (type, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
            for type in ("FailureTarget", "Failed")
        ]
        assert status["failed"] == 2
        assert await one.said("BackoffLimitExceeded") == ["Job has reached the specified backoff limit"]


async def test_a_job_that_takes_too_long_fails_and_its_pods_go() -> None:
    async with cluster() as one:
        await one.create(JOBS, job("slow", "ready", activeDeadlineSeconds=1))
        status = await ended(one, "slow")
        assert status["conditions"][-1]["reason"] == "DeadlineExceeded"
        assert not await one.pods()


async def test_a_suspended_job_has_no_pods_until_it_is_resumed() -> None:
    async with cluster() as one:
        await one.create(JOBS, job("later", "ready", parallelism=2, completions=2))

        async def two() -> bool:
            return (await one.get(JOBS, "later"))["status"].get("ready") == 2

        await one.eventually(two)
        await one.patch(JOBS, "later", {"spec": {"suspend": True}})

        async def none() -> bool:
            status = (await one.get(JOBS, "later"))["status"]
            reasons = [each["reason"] for each in status.get("conditions") or ()]
            return not await one.pods() and "active" not in status and reasons == ["JobSuspended"]

        await one.eventually(none)
        assert "failed" not in (await one.get(JOBS, "later"))["status"]
        await one.patch(JOBS, "later", {"spec": {"suspend": False}})
        await one.eventually(two)
        assert await one.said("Resumed") == ["Job resumed"]


async def test_a_job_is_deleted_with_its_pods_when_its_time_is_over() -> None:
    async with cluster() as one:
        await one.create(JOBS, job("brief", ttlSecondsAfterFinished=0))

        async def gone() -> bool:
            return not await one.client.list(JOBS, ListOptions("default")) and not await one.pods()

        await one.eventually(gone)


async def test_a_job_that_is_deleted_leaves_no_pod_behind() -> None:
    async with cluster() as one:
        await one.create(JOBS, job("endless", "ready", parallelism=2))

        async def two() -> bool:
            return (await one.get(JOBS, "endless"))["status"].get("ready") == 2

        await one.eventually(two)
        await one.client.delete(JOBS, "endless", "default", propagation="Background")

        async def gone() -> bool:
            return not await one.pods()

        await one.eventually(gone)
