"""What counts of a copy is found in real statuses, and nothing that a cluster says does any harm."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson
import pytest
from examples import examples
from hostile import ANYTHING, altered
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.controllers.status_summarizer.health import (
    UNOBSERVED,
    CopyProblem,
    CopyReport,
    CopyStatus,
    find_stuck_pod,
    progress_of,
    read_copy_status,
)
from farflung.controllers.status_summarizer.tally import Tally
from farflung.machinery.errors import Obj
from farflung.machinery.times import PLAIN
from farflung.placement.names import GroupResource
from farflung.placement.types import CopyDestination

CLAIMS = GroupResource("", "persistentvolumeclaims")
CRON_JOBS = GroupResource("batch", "cronjobs")
DAEMON_SETS = GroupResource("apps", "daemonsets")
DEPLOYMENTS = GroupResource("apps", "deployments")
JOBS = GroupResource("batch", "jobs")
PODS = GroupResource("", "pods")
REPLICATION_CONTROLLERS = GroupResource("", "replicationcontrollers")
SERVICES = GroupResource("", "services")
STATEFUL_SETS = GroupResource("apps", "statefulsets")
WIDGETS = GroupResource("example.com", "widgets")
KINDS = [CLAIMS, DAEMON_SETS, DEPLOYMENTS, JOBS, PODS, REPLICATION_CONTROLLERS, SERVICES, STATEFUL_SETS, WIDGETS]

THEN, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def condition(kind: str, status: str, reason: str = "", message: str = "") -> Obj:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": THEN}


def written(*moments: str) -> Obj:
    """The metadata of a copy whose status was written then."""
    entry = {"manager": "syncer", "operation": "Update", "apiVersion": "v1", "subresource": "status"}
    made = {"manager": "translator", "operation": "Apply", "apiVersion": "v1", "time": "2027-01-01T00:00:00Z"}
    return {"name": "one", "managedFields": [made, *({**entry, "time": moment} for moment in moments)]}


def read(resource: GroupResource, status: Any, spec: Any = None, metadata: Any = None) -> CopyStatus:
    return read_copy_status(resource, orjson.dumps({"metadata": metadata or {}, "spec": spec or {}, "status": status}))


def verdict(resource: GroupResource, status: Any, spec: Any = None) -> CopyProblem | None:
    return read(resource, status, spec).problem


UNAVAILABLE = condition(
    "Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
)
DEPLOYMENT: Obj = {
    "observedGeneration": 2,
    "replicas": 3,
    "updatedReplicas": 3,
    "readyReplicas": 3,
    "availableReplicas": 3,
    "conditions": [
        condition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        condition("Progressing", "True", "NewReplicaSetAvailable", "It has successfully progressed."),
    ],
}
POD: Obj = {
    "phase": "Running",
    "qosClass": "BestEffort",
    "hostIP": "10.0.0.1",
    "podIP": "10.1.0.1",
    "podIPs": [{"ip": "10.1.0.1"}],
    "startTime": THEN,
    "conditions": [
        condition("Initialized", "True"),
        condition("Ready", "True"),
        condition("ContainersReady", "True"),
        condition("PodScheduled", "True"),
    ],
    "containerStatuses": [{"name": "httpd", "restartCount": 3, "ready": True, "state": {"running": {}}}],
}

# --- real ones ------------------------------------------------------------------------------------


def test_a_deployment() -> None:
    assert read(DEPLOYMENTS, DEPLOYMENT, {"replicas": 3}, written(THEN, LATER)) == CopyStatus(
        reporting=True,
        observed=LATER,
        numbers={"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3},
        conditions={"Available": "True", "Progressing": "True"},
    )


def test_a_stateful_set() -> None:
    status = {
        "observedGeneration": 1,
        "replicas": 2,
        "readyReplicas": 1,
        "currentReplicas": 2,
        "availableReplicas": 1,
        "currentRevision": "web-5d4f",
        "updateRevision": "web-5d4f",
        "collisionCount": 0,
    }
    assert read(STATEFUL_SETS, status, {"replicas": 2}) == CopyStatus(
        reporting=True,
        numbers={"replicas": 2, "readyReplicas": 1, "currentReplicas": 2, "availableReplicas": 1},
        problem=CopyProblem("ReplicasNotReady", "1 of 2 replicas are ready"),
        rollout=CopyProblem("RollingOut", "1 of 2 updated replicas are available"),
    )


def test_a_daemon_set() -> None:
    numbers = {"currentNumberScheduled": 4, "desiredNumberScheduled": 4, "numberMisscheduled": 0, "numberReady": 3}
    assert read(DAEMON_SETS, {**numbers, "observedGeneration": 1}) == CopyStatus(
        reporting=True,
        numbers=numbers,
        problem=CopyProblem("PodsNotReady", "3 of 4 pods are ready"),
        rollout=CopyProblem("RollingOut", "0 of 4 replicas are updated"),
    )


ROLLED_OUT = {"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3}
WITHIN_DEADLINE = condition("Progressing", "True", "ReplicaSetUpdated", "")
AFTER_DEADLINE = condition("Progressing", "False", "ProgressDeadlineExceeded", "web has timed out progressing.")
DAEMONS = {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2}
REVISIONS = {"currentRevision": "a", "updateRevision": "b", "readyReplicas": 3}
PARTITION = {"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}
ON_DELETE = {"replicas": 3, "updateStrategy": {"type": "OnDelete"}}


@pytest.mark.parametrize(
    ("resource", "spec", "status", "message"),
    [
        (DEPLOYMENTS, {"replicas": 3}, ROLLED_OUT, ""),
        (DEPLOYMENTS, {"replicas": 4}, ROLLED_OUT, "3 of 4 replicas are updated"),
        (DEPLOYMENTS, {"replicas": 3}, {**ROLLED_OUT, "updatedReplicas": 1}, "1 of 3 replicas are updated"),
        (DEPLOYMENTS, {"replicas": 3, "paused": True}, {**ROLLED_OUT, "updatedReplicas": 1}, ""),
        (DEPLOYMENTS, {"replicas": 3}, {**ROLLED_OUT, "replicas": 4}, "1 old replica is not terminated yet"),
        (DEPLOYMENTS, {"replicas": 3}, {**ROLLED_OUT, "replicas": 5}, "2 old replicas are not terminated yet"),
        (DEPLOYMENTS, {"replicas": 3}, {**ROLLED_OUT, "availableReplicas": 2}, "2 of 3 updated replicas are available"),
        (DEPLOYMENTS, {}, {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}, "0 of 1 replicas are updated"),
        (DEPLOYMENTS, {"replicas": 0}, {"replicas": 0}, ""),
        (DEPLOYMENTS, {"replicas": "3"}, {"updatedReplicas": "x"}, "0 of 1 replicas are updated"),
        (DAEMON_SETS, {}, DAEMONS, ""),
        (DAEMON_SETS, {}, {**DAEMONS, "updatedNumberScheduled": 1}, "1 of 2 replicas are updated"),
        (DAEMON_SETS, ON_DELETE, {**DAEMONS, "updatedNumberScheduled": 1}, ""),
        (STATEFUL_SETS, {"replicas": 3}, {**REVISIONS, "updatedReplicas": 1}, "1 of 3 replicas are updated"),
        (STATEFUL_SETS, PARTITION, {**REVISIONS, "updatedReplicas": 1}, ""),
        (STATEFUL_SETS, PARTITION, {**REVISIONS, "updatedReplicas": 0}, "0 of 1 replicas are updated"),
        (STATEFUL_SETS, {"replicas": 3}, {**REVISIONS, "updateRevision": "a"}, ""),
        (STATEFUL_SETS, ON_DELETE, {**REVISIONS, "updatedReplicas": 1}, ""),
        (JOBS, {}, {"active": 1}, ""),
    ],
)
def test_a_rollout_that_did_not_finish_is_described_with_numbers(
    resource: GroupResource, spec: Obj, status: Obj, message: str
) -> None:
    found = read(resource, status, spec)
    assert found.rollout == (CopyProblem("RollingOut", message) if message else None)


def container(waiting: str = "", message: str = "", **rest: Any) -> Obj:
    state = {"waiting": {"reason": waiting, "message": message}} if waiting else {"running": {}}
    return {"name": "main", "image": "web:1", "ready": False, "restartCount": 0, "state": state, **rest}


ENDED = {"lastState": {"terminated": {"exitCode": 3}}, "restartCount": 7}
UNSCHEDULABLE = condition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        ({"conditions": [UNSCHEDULABLE]}, "Unschedulable", "0/1 nodes are available: 1 Insufficient cpu."),
        ({"containerStatuses": [container("ErrImagePull")]}, "ImagePullBackOff", "container main: cannot pull web:1"),
        (
            {"containerStatuses": [container("ImagePullBackOff", "Back-off 5m")]},
            "ImagePullBackOff",
            "cannot pull web:1",
        ),
        (
            {"initContainerStatuses": [container("CrashLoopBackOff", "back-off 5m", **ENDED)]},
            "CrashLoopBackOff",
            "code 3",
        ),
        (
            {"containerStatuses": [container(**ENDED)]},
            "CrashLoopBackOff",
            "container main ends again and again, with code 3",
        ),
        (
            {"containerStatuses": [container("CreateContainerConfigError", 'configmap "x" not found')]},
            "CreateContainerConfigError",
            'container main: configmap "x" not found',
        ),
    ],
)
def test_a_pod_that_does_not_start_is_stuck_for_its_reason(status: Obj, reason: str, message: str) -> None:
    found = read(PODS, {"phase": "Pending", **status}).problem
    assert found is not None
    assert (found.reason, message in found.message) == (reason, True)
    pods = [
        {"metadata": {"name": "b", "creationTimestamp": THEN}, "status": status},
        {"metadata": {"name": "a", "deletionTimestamp": THEN}, "status": status},
        {"metadata": {"name": "c"}, "status": status},
    ]
    stuck = find_stuck_pod(pods)
    assert stuck is not None
    assert (stuck.reason, stuck.message.startswith("Pod b: "), stuck.since) == (reason, True, THEN)


@pytest.mark.parametrize(
    "status",
    [
        {"containerStatuses": [container("ContainerCreating")]},
        {"containerStatuses": [container()]},
        {"containerStatuses": [{**container(**ENDED), "ready": True}]},
        {"containerStatuses": [{**container(**ENDED), "restartCount": 1}]},
        {"conditions": [condition("PodScheduled", "False", "SchedulingGated", "")]},
        {},
    ],
)
def test_a_pod_that_is_being_started_is_not_stuck(status: Obj) -> None:
    assert find_stuck_pod([{"metadata": {"name": "a"}, "status": status}]) is None


def test_a_workload_with_a_stuck_pod_is_broken_for_the_reason_of_the_pod() -> None:
    within = [WITHIN_DEADLINE, condition("edge.kcp.io/PodsStuck", "True", "ImagePullBackOff", "Pod a: no image")]
    found = read(DEPLOYMENTS, {**ROLLED_OUT, "updatedReplicas": 1, "conditions": within}, {"replicas": 3}).problem
    assert found == CopyProblem("ImagePullBackOff", "Pod a: no image", THEN)


def test_missing_replicas_of_a_deployment_are_progress_until_the_deadline() -> None:
    status = {**ROLLED_OUT, "readyReplicas": 2, "availableReplicas": 2}
    assert read(DEPLOYMENTS, {**status, "conditions": [WITHIN_DEADLINE]}, {"replicas": 3}).problem is None
    late = read(DEPLOYMENTS, {**status, "conditions": [AFTER_DEADLINE]}, {"replicas": 3}).problem
    assert late is not None and late.reason == "ProgressDeadlineExceeded"
    lost = read(DEPLOYMENTS, status, {"replicas": 3}).problem
    assert lost is not None and lost.reason == "ReplicasNotReady"


def test_a_generation_that_the_cluster_did_not_observe_counts_if_the_syncer_translates_generations() -> None:
    old = read(DEPLOYMENTS, {**ROLLED_OUT, "observedGeneration": 4}, {"replicas": 3}, {"generation": 5})
    assert progress_of(old, translates=True) == CopyProblem("NotObserved", UNOBSERVED.message)
    assert progress_of(old, translates=False) is None
    new = read(DEPLOYMENTS, {**ROLLED_OUT, "observedGeneration": 5}, {"replicas": 3}, {"generation": 5})
    assert progress_of(new, translates=True) is None
    assert read(DEPLOYMENTS, {**ROLLED_OUT, "observedGeneration": "5"}, {"replicas": 3}).is_observed


def test_a_job() -> None:
    status = {
        "active": 0,
        "failed": 4,
        "ready": 0,
        "startTime": THEN,
        "uncountedTerminatedPods": {},
        "conditions": [condition("Failed", "True", "BackoffLimitExceeded", "Job has reached the specified limit")],
    }
    assert read(JOBS, status) == CopyStatus(
        reporting=True,
        numbers={"active": 0, "failed": 4, "ready": 0},
        conditions={"Failed": "True"},
        problem=CopyProblem("BackoffLimitExceeded", "Job has reached the specified limit", THEN),
    )


def test_a_pod() -> None:
    assert read(PODS, POD, metadata=written(THEN)) == CopyStatus(
        reporting=True,
        observed=THEN,
        conditions=dict.fromkeys(("Initialized", "Ready", "ContainersReady", "PodScheduled"), "True"),
        texts={"phase": "Running", "qosClass": "BestEffort"},
    )


def test_a_service() -> None:
    assert read(SERVICES, {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}) == CopyStatus(reporting=True)


def test_a_claim() -> None:
    status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    assert read(CLAIMS, status) == CopyStatus(reporting=True, texts={"phase": "Bound"})


def test_a_cron_job() -> None:
    assert read(CRON_JOBS, {"lastScheduleTime": THEN, "active": [{"kind": "Job", "name": "x"}]}) == CopyStatus(
        reporting=True
    )


def test_a_custom_resource() -> None:
    status = {
        "observedGeneration": 3,
        "state": "up-to-date",
        "phase": "Cutting",
        "owner": "somebody",
        "cut": {"done": 3, "load": 0.25, "last": {"duration": 7, "result": "Good", "at": THEN}},
        "enabled": True,
        "history": [1, 2, 3],
        "byHost": {"host-1.example.com": 1},
        "conditions": [condition("Ready", "False", "out of steel", "no\n steel\t\x1b[31m left")],
    }
    assert read(WIDGETS, status) == CopyStatus(
        reporting=True,
        numbers={"cut.done": 3, "cut.load": 0.25, "cut.last.duration": 7},
        conditions={"Ready": "False"},
        texts={"state": "up-to-date", "phase": "Cutting"},
        problem=CopyProblem("OutOfSteel", "no steel [31m left", THEN),
    )


# --- whether it reports ---------------------------------------------------------------------------


@pytest.mark.parametrize("status", [None, {}, [], "", 0, "Ready", ["x"], True])
def test_a_copy_without_a_status_does_not_report(status: Any) -> None:
    assert [read(resource, status) for resource in KINDS] == [CopyStatus()] * len(KINDS)


def test_zeros_that_the_hub_wrote_are_no_report_of_a_set() -> None:
    assert read(STATEFUL_SETS, {"replicas": 0, "availableReplicas": 0}, {"replicas": 2}) == CopyStatus()
    assert read(DAEMON_SETS, {"numberReady": 0, "desiredNumberScheduled": 0}) == CopyStatus()
    assert read(STATEFUL_SETS, {"replicas": 0, "observedGeneration": 1}, {"replicas": 2}).reporting
    assert read(STATEFUL_SETS, {"replicas": 0}, {"replicas": 2}, written(THEN)).reporting


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        ([], ""),
        ([LATER, THEN], LATER),
        (["2026-01-01T01:00:00.75+01:00"], THEN),
        (["yesterday", THEN, "2026-13-01T00:00:00Z", "9" * 100], THEN),
        (["0001-01-01T00:00:00Z"], ""),
    ],
)
def test_it_was_observed_when_its_status_was_written_last(moments: list[str], expected: str) -> None:
    assert read(PODS, POD, metadata=written(*moments)).observed == expected


# --- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "spec", "status", "expected"),
    [
        (DEPLOYMENTS, {"replicas": 3}, {**DEPLOYMENT, "conditions": [UNAVAILABLE]}, "MinimumReplicasUnavailable"),
        (DEPLOYMENTS, {"replicas": 3}, {**DEPLOYMENT, "readyReplicas": 2}, "ReplicasNotReady"),
        (DEPLOYMENTS, {"replicas": 2}, DEPLOYMENT, None),
        (DEPLOYMENTS, {"replicas": 0}, {"observedGeneration": 1}, None),
        (DEPLOYMENTS, {}, {"observedGeneration": 1}, "ReplicasNotReady"),
        (DEPLOYMENTS, {"replicas": None}, {"replicas": 5, "readyReplicas": 4}, "ReplicasNotReady"),
        (DEPLOYMENTS, {"replicas": None}, {"replicas": 5, "readyReplicas": 5}, None),
        (DEPLOYMENTS, {"replicas": "many"}, {"replicas": 5, "readyReplicas": 5}, None),
        (
            DEPLOYMENTS,
            {"replicas": 1},
            {"readyReplicas": 1, "conditions": [condition("Progressing", "False", "ProgressDeadlineExceeded")]},
            "ProgressDeadlineExceeded",
        ),
        (
            DEPLOYMENTS,
            {"replicas": 1},
            {"readyReplicas": 1, "conditions": [condition("Progressing", "False", "Other")]},
            None,
        ),
        (
            DEPLOYMENTS,
            {"replicas": 1},
            {"conditions": [condition("ReplicaFailure", "True", "FailedCreate"), UNAVAILABLE]},
            "MinimumReplicasUnavailable",
        ),
        (
            DEPLOYMENTS,
            {"replicas": 1},
            {"readyReplicas": 1, "conditions": [condition("ReplicaFailure", "True", "FailedCreate")]},
            "FailedCreate",
        ),
        (DAEMON_SETS, {}, {"numberReady": 0, "desiredNumberScheduled": 0, "observedGeneration": 1}, None),
        (REPLICATION_CONTROLLERS, {"replicas": 1}, {"replicas": 1}, "ReplicasNotReady"),
        (GroupResource("apps", "replicasets"), {"replicas": 1}, {"replicas": 1}, "ReplicasNotReady"),
        (JOBS, {}, {"active": 1, "conditions": [condition("Complete", "False")]}, None),
        (JOBS, {}, {"succeeded": 1, "conditions": [condition("Complete", "True")]}, None),
        (WIDGETS, {}, {"conditions": [condition("Complete", "False")]}, "NotComplete"),
        (WIDGETS, {}, {"conditions": [condition("Ready", "Unknown", "Waiting")]}, None),
        (WIDGETS, {}, {"conditions": [condition("Stalled", "True", "7 of 9")]}, "Of9"),
        (WIDGETS, {}, {"conditions": [condition("Stalled", "True", "???")]}, "Stalled"),
        (WIDGETS, {"replicas": 3}, {"readyReplicas": 1}, None),
        (PODS, {}, {**POD, "conditions": [condition("Ready", "False", "ContainersNotReady")]}, "ContainersNotReady"),
        (PODS, {}, {"phase": "Pending", "conditions": [condition("PodScheduled", "False", "No")]}, "No"),
        (PODS, {}, {"phase": "Succeeded", "conditions": [condition("Ready", "False", "PodCompleted")]}, None),
        (PODS, {}, {"phase": "Running", "conditions": [condition("Ready", "False", "PodCompleted")]}, None),
        (PODS, {}, {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}, "Evicted"),
        (PODS, {}, {"phase": "Failed"}, "Failed"),
        (PODS, {}, {"phase": "Pending"}, None),
        (CLAIMS, {}, {"phase": "Lost"}, "Lost"),
        (CLAIMS, {}, {"phase": "Pending"}, None),
        (SERVICES, {}, {"loadBalancer": {}}, None),
    ],
)
def test_what_is_wrong_by_its_own_account(
    resource: GroupResource, spec: Obj, status: Obj, expected: str | None
) -> None:
    found = verdict(resource, status, spec)
    assert (found and found.reason) == expected


def test_of_two_conditions_of_a_type_the_first_counts() -> None:
    found = read(WIDGETS, {"conditions": [condition("Ready", "True"), condition("Ready", "False")]})
    assert (found.conditions, found.problem) == ({"Ready": "True"}, None)


def test_a_message_is_cut() -> None:
    found = verdict(WIDGETS, {"conditions": [condition("Ready", "False", "x" * 300, "y" * 1000)]})
    assert found == CopyProblem("X" + "x" * 62, "y" * 255 + "…", THEN)


# --- too much, and anything -----------------------------------------------------------------------


def test_of_too_much_the_least_deep_and_the_first_by_their_paths_count() -> None:
    many = {f"n{number:03}": number for number in range(100)}
    words = {f"w{number:03}": "Word" for number in range(100)}
    found = read(WIDGETS, {"a": {**many, "z": "Deep"}, "zz": 1, **words})
    assert sorted(found.numbers) == sorted(["zz", *(f"a.n{number:03}" for number in range(63))])
    assert sorted(found.texts) == [f"w{number:03}" for number in range(16)]


def test_depth_and_tables_have_an_end() -> None:
    deep: Obj = {"n": 7}
    for _ in range(200):
        deep = {"d": deep, "n": 7}
    found = read(WIDGETS, {"deep": deep, "table": {f"n{number}": number for number in range(1000)}})
    assert sorted(found.numbers) == ["deep.d.d.d.d.n", "deep.d.d.d.n", "deep.d.d.n", "deep.d.n", "deep.n"]


def test_many_conditions_are_limited() -> None:
    found = read(WIDGETS, {"conditions": [condition(f"C{number:05}", "Perhaps") for number in range(10000)]})
    assert found.conditions == {f"C{number:05}": "Unknown" for number in range(32)}


def test_what_is_no_json_or_no_object_says_nothing() -> None:
    for document in (b"", b"{", b"[]", b"null", b'{"status": {"n": 1e999}}', b'"\\ud800"', b"\xff"):
        assert read_copy_status(PODS, document) == CopyStatus()


REAL: list[Obj] = [
    {"metadata": written(THEN), "spec": {"replicas": 3}, "status": {**DEPLOYMENT, "conditions": [UNAVAILABLE]}},
    {"metadata": written(THEN), "spec": {}, "status": POD},
]
WORD = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")


@settings(max_examples=examples(200))
@given(st.sampled_from(KINDS), st.sampled_from(REAL).flatmap(altered) | st.fixed_dictionaries({"status": ANYTHING}))
def test_whatever_a_cluster_says_can_be_counted(resource: GroupResource, copy: Any) -> None:
    document = json.dumps(copy).encode()
    found = read_copy_status(resource, document)
    assert found == read_copy_status(resource, document)
    assert not found.observed or PLAIN.fullmatch(found.observed)
    assert {type(number) for number in found.numbers.values()} <= {int, float}
    assert set(found.conditions.values()) <= {"True", "False", "Unknown"}
    if found.problem is not None:
        assert WORD.fullmatch(found.problem.reason)
        assert len(found.problem.message) <= 256
        assert not found.problem.since or PLAIN.fullmatch(found.problem.since)
    tally = Tally()
    tally.put("m", CopyReport(CopyDestination("cluster", "location", "target"), found))
    assert orjson.loads(orjson.dumps(tally.body()))["destinations"]["reporting"] == found.reporting
