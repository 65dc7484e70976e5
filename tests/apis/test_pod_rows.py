"""How the state of a pod is told in one row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from farflung.apis.core.printers import PODS
from farflung.machinery import table

NOW = datetime(2024, 1, 1, 1, 0, 0, tzinfo=UTC)
INITIALIZED = {"type": "Initialized", "status": "True"}
READY = {"type": "Ready", "status": "True"}


def container(
    state: str = "", *, ready: bool = False, restarts: int = 0, ended: str = "", **details: Any
) -> dict[str, Any]:
    made: dict[str, Any] = {"name": "c", "ready": ready, "restartCount": restarts}
    if state:
        made["state"] = {state: details}
    if ended:
        made["lastState"] = {"terminated": {"finishedAt": ended}}
    return made


def pod(*statuses: dict[str, Any], phase: str = "Running", containers: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "creationTimestamp": "2024-01-01T00:00:00Z", **more.pop("metadata", {})},
        "spec": {"containers": [{"name": "c"}] * (containers or len(statuses)), **more.pop("spec", {})},
        "status": {"phase": phase, "containerStatuses": list(statuses), **more},
    }


def told(made: dict[str, Any]) -> tuple[str, str, str]:
    """Ready, status, restarts."""
    ready, status, restarts = PODS.cells(made, NOW)[1:4]
    return ready, status, restarts


RUNNING = container("running", ready=True)
INIT = {"spec": {"initContainers": [{"name": "i"}, {"name": "j"}]}}
SIDECAR = {"spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}]}}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (pod(phase="Pending", containers=2), ("0/2", "Pending", "0")),
        (pod(RUNNING, RUNNING), ("2/2", "Running", "0")),
        (pod(RUNNING, container("running")), ("1/2", "Running", "0")),
        (pod(phase="Failed", reason="Evicted", containers=1), ("0/1", "Evicted", "0")),
        (
            pod(phase="Pending", containers=1, conditions=[{"type": "PodScheduled", "reason": "SchedulingGated"}]),
            ("0/1", "SchedulingGated", "0"),
        ),
        (pod(container("waiting", reason="ImagePullBackOff")), ("0/1", "ImagePullBackOff", "0")),
        (pod(container("terminated", reason="Error", exitCode=1)), ("0/1", "Error", "0")),
        (pod(container("terminated", exitCode=3)), ("0/1", "ExitCode:3", "0")),
        (pod(container("terminated", signal=9)), ("0/1", "Signal:9", "0")),
        (pod(container("waiting", reason="First"), container("waiting", reason="Second")), ("0/2", "First", "0")),
        (pod(container("running", ready=True, restarts=3)), ("1/1", "Running", "3")),
        (
            pod(
                container("running", ready=True, restarts=3, ended="2024-01-01T00:55:00Z"),
                container("running", ready=True, restarts=1, ended="2024-01-01T00:58:00Z"),
            ),
            ("2/2", "Running", "4 (2m ago)"),
        ),
        (
            pod(container("terminated", reason="Completed"), RUNNING, conditions=[READY]),
            ("1/2", "Running", "0"),
        ),
        (pod(container("terminated", reason="Completed"), RUNNING), ("1/2", "NotReady", "0")),
        (pod(container("terminated", reason="Completed"), phase="Succeeded"), ("0/1", "Completed", "0")),
    ],
)
def test_the_containers_tell_the_status(made, expected):
    assert told(made) == expected


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([{"name": "i", "state": {"running": {}}}], ("0/1", "Init:0/2", "0")),
        (
            [{"name": "i", "state": {"terminated": {"exitCode": 0}}}, {"name": "j", "state": {"waiting": {}}}],
            ("0/1", "Init:1/2", "0"),
        ),
        ([{"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}}], ("0/1", "Init:0/2", "0")),
        (
            [{"name": "i", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 2}],
            ("0/1", "Init:CrashLoopBackOff", "2"),
        ),
        ([{"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}], ("0/1", "Init:Error", "0")),
        ([{"name": "i", "state": {"terminated": {"exitCode": 4}}}], ("0/1", "Init:ExitCode:4", "0")),
        ([{"name": "i", "state": {"terminated": {"exitCode": 137, "signal": 9}}}], ("0/1", "Init:Signal:9", "0")),
    ],
)
def test_while_a_pod_initializes_its_init_containers_tell_the_status(statuses, expected):
    made = pod(phase="Pending", containers=1, initContainerStatuses=statuses, **INIT)
    assert told(made) == expected


def test_an_initialized_pod_does_not_count_the_restarts_of_its_init_containers():
    done = [{"name": "i", "restartCount": 5, "state": {"terminated": {"exitCode": 0}}}]
    assert told(pod(RUNNING, initContainerStatuses=done, **INIT)) == ("1/1", "Running", "0")


def test_a_sidecar_counts_as_a_container():
    started = [{"name": "s", "started": True, "ready": True, "restartCount": 2, "state": {"running": {}}}]
    assert told(pod(RUNNING, initContainerStatuses=started, **SIDECAR)) == ("2/2", "Running", "2")


def test_a_sidecar_that_crashes_later_does_not_hide_the_containers():
    crashed = [{"name": "s", "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    made = pod(RUNNING, initContainerStatuses=crashed, conditions=[INITIALIZED], **SIDECAR)
    assert told(made) == ("1/2", "Init:CrashLoopBackOff", "1")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "Terminating"),
        ({"reason": "NodeLost"}, "Unknown"),
        ({"phase": "Succeeded"}, "Succeeded"),
    ],
)
def test_a_pod_that_is_deleted_says_so_unless_it_has_finished(more, expected):
    made = pod(RUNNING, metadata={"deletionTimestamp": "2024-01-01T00:00:00Z"}, **more)
    assert told(made)[1] == expected


def test_the_wide_columns_say_where_a_pod_is():
    made = pod(RUNNING, spec={"nodeName": "n"}, podIPs=[{"ip": "10.0.0.1"}], nominatedNodeName="m")
    assert PODS.cells(made, NOW)[4:] == ["60m", "10.0.0.1", "n", "m", "<none>"]


def test_readiness_gates_are_counted():
    gates = {"readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]}
    made = pod(RUNNING, spec=gates, conditions=[{"type": "a", "status": "True"}, {"type": "b", "status": "False"}])
    assert PODS.cells(made, NOW)[8] == "1/2"


def test_the_row_of_a_finished_pod_has_a_condition():
    row = table.row(PODS, pod(phase="Succeeded", containers=1), NOW)
    assert row["conditions"] == [
        {
            "type": "Completed",
            "status": "True",
            "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        }
    ]
    assert "conditions" not in table.row(PODS, pod(RUNNING), NOW)
