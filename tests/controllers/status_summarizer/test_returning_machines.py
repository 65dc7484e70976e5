"""The status that a virtual machine has of its copy, beside what is said of it by who places it."""

from __future__ import annotations

from typing import Any

import pytest

from farflung.apis.edge.names import EXECUTING_COUNT, STATUS_RETURNED_FROM
from farflung.controllers.status_summarizer.status_return import Returned, ReturnRequest, ReturnStep, next_step
from farflung.machines.delivery import placement_name
from farflung.machines.engine.values import SiteKey
from farflung.machines.statuses import delivery_labels
from farflung.placement.names import GroupResource

PODS = GroupResource("", "pods")
SCHEDULED = {"type": "PodScheduled", "status": "True"}
READY = {"type": "Ready", "status": "True"}
SITE = SiteKey("clouds", "default", "az1")


def machine(status: Any, *, returned: bool = True) -> dict[str, Any]:
    marks = {"labels": {EXECUTING_COUNT: "1"}, "annotations": {STATUS_RETURNED_FROM: "edge1"} if returned else {}}
    return {"metadata": marks, "spec": {"virtualMachine": {}}, "status": status}


def came_back(status: dict[str, Any]) -> ReturnRequest:
    return ReturnRequest(1, Returned("edge1", status))


def test_what_came_back_stands_beside_where_it_is_placed() -> None:
    running = {"phase": "Running", "conditions": [READY]}
    both = {"phase": "Running", "conditions": [READY, SCHEDULED]}
    pod = machine({"phase": "Pending", "conditions": [SCHEDULED]})
    assert next_step(PODS, pod, came_back(running)) == ReturnStep("1", "edge1", both)
    assert next_step(PODS, machine(both), came_back(running)) is None
    theirs = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "False"}]}
    assert next_step(PODS, pod, came_back(theirs)) == ReturnStep("1", "edge1", theirs)


def test_a_machine_without_a_copy_is_pending_and_still_placed() -> None:
    placed = {"phase": "Pending", "conditions": [SCHEDULED]}
    assert next_step(
        PODS, machine({"phase": "Running", "conditions": [READY, SCHEDULED]}), ReturnRequest(1)
    ) == ReturnStep(status=placed)
    assert next_step(PODS, machine(placed), ReturnRequest(1)) == ReturnStep("1", None)
    assert next_step(PODS, machine(placed, returned=False), ReturnRequest(1)) is None


def test_a_machine_that_has_ended_stays_so() -> None:
    for phase in ("Failed", "Succeeded"):
        ended = machine({"phase": phase, "conditions": [SCHEDULED]})
        assert next_step(PODS, ended, ReturnRequest(1)) == ReturnStep("1", None)


@pytest.mark.parametrize("field", ["nodeName", "clusterName"])
def test_only_the_copy_at_its_cluster_reports_a_machine(field: str) -> None:
    """Otherwise a placement of anybody's could end it, while it goes on where it is bound to."""
    failed, placed = came_back({"phase": "Failed"}), {"phase": "Pending", "conditions": [SCHEDULED]}
    [(mark, label)] = delivery_labels(SITE).items()
    theirs, ours = (failed._replace(placements=frozenset({name})) for name in ("theirs", placement_name(SITE)))
    pod = machine(placed, returned=False)
    assert next_step(PODS, pod, theirs) == ReturnStep("1", "edge1")  # as long as it is nowhere
    pod["spec"][field] = "az1"
    assert [next_step(PODS, pod, asked) for asked in (failed, theirs, ours)] == [None, None, None]
    pod["metadata"]["labels"][mark] = label
    assert [next_step(PODS, pod, asked) for asked in (failed, theirs, ours)] == [None, None, ReturnStep("1", "edge1")]


@pytest.mark.parametrize("status", [None, 7, "Pending", {"conditions": 7}, {"conditions": ["x", {"type": []}]}])
def test_a_status_of_any_shape_makes_no_difference(status: Any) -> None:
    assert next_step(PODS, machine(status), came_back({"phase": "Running"})) == ReturnStep(
        "1", "edge1", {"phase": "Running"}
    )
    strange = {"conditions": [{"type": []}, 7]}
    kept = {"conditions": [{"type": []}, SCHEDULED]}
    assert next_step(PODS, machine({"conditions": [SCHEDULED]}), came_back(strange)) == ReturnStep("1", "edge1", kept)
