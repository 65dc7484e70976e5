"""Clusters that do not take a machine: who leaves them when, and when it may come back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.controllers.status_summarizer.health import CopyProblem
from farflung.machinery import times
from farflung.machines import statuses
from farflung.machines.engine.values import SiteKey
from farflung.machines.failover import (
    MAX_CLUSTERS,
    MAX_REFUSALS,
    FailoverOptions,
    MachineRefusal,
    MachineRefusals,
    add_machine_refusal,
    add_refusal_reason,
    describe_machine_refusal,
    read_machine_refusals,
)
from farflung.machines.status_writer import is_refusal

AZ1, AZ2 = SiteKey("clouds", "default", "az1"), SiteKey("clouds", "default", "az2")
KEYS = st.builds(SiteKey, st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]), st.sampled_from(list("pqrstuvw")))


@given(st.lists(KEYS, max_size=60))
def test_what_is_noted_is_how_often_each_refused_as_far_as_there_is_room(history: list[SiteKey]) -> None:
    text, known = "", {}
    for site in history:
        text = add_machine_refusal(text, site)
        known[site] = min(MAX_REFUSALS, known.get(site, 0) + 1)
        assert len(read_machine_refusals(text)) <= MAX_CLUSTERS
        assert read_machine_refusals(text)[site] <= known[site]
        if len(known) <= MAX_CLUSTERS:
            assert read_machine_refusals(text) == known


@given(st.text(alphabet="abz|/=,0129 é²\n", max_size=200))
def test_whatever_is_noted_is_read_and_can_be_added_to(text: str) -> None:
    assert all(1 <= number <= MAX_REFUSALS for number in read_machine_refusals(text).values())
    assert read_machine_refusals(add_machine_refusal(text, AZ1))[AZ1] == min(
        MAX_REFUSALS, read_machine_refusals(text).get(AZ1, 0) + 1
    )


def test_a_refusal_is_told_in_few_words_and_with_the_time_of_the_next_try() -> None:
    now = times.parse("2024-05-01T12:00:00Z")
    assert describe_machine_refusal(f"{'|'.join(AZ1[:2])}/az1=2", AZ1, "no\nroom", now) == (
        "no room; not tried there again before 2024-05-01T12:02:00Z"
    )
    assert describe_machine_refusal("", AZ1, "", now).startswith("default/az1 refused it; not tried")
    long = describe_machine_refusal("", AZ1, "x" * 10_000, now)
    assert len(long) < 400
    assert add_refusal_reason("0/1", ["refused it"], long) == f"0/1 ({long})"
    assert add_refusal_reason("0/1", ["wrong region"], long) == add_refusal_reason("0/1", ["refused it"], "") == "0/1"


def test_a_machine_that_is_not_taken_leaves_after_a_while_and_may_come_back_later_each_time() -> None:
    one = MachineRefusals(FailoverOptions(refused=30.0))
    for since in (10.0, 20.0):
        one.refuse("a", MachineRefusal(AZ1, since, by_cluster=True))
    assert one.due("a", AZ1) == 40.0
    assert one.due("a", AZ2) == one.due("b", AZ1) == float("inf")
    assert list(one) == [("a", AZ1)]
    one.accept("a")
    assert not list(one)
    for number, until in ((1, 160.0), (2, 220.0), (20, 3700.0)):
        assert not one.set_recorded("a", {AZ1: number}, 100.0)
        assert not one.set_recorded("a", {AZ1: number}, 150.0)  # the same as before
        assert one.avoided("a", until - 1) == [AZ1]
        assert one.avoided("a", until) == []
    assert one.set_recorded("a", {AZ2: 1}, 100.0)  # an operator cleared the refusals of az1
    assert one.avoided("a", 101.0) == [AZ2]
    one.forget("a")
    assert one.avoided("a", 101.0) == []


def test_a_condition_tells_why_a_machine_is_not_there_and_goes_with_the_reason() -> None:
    scheduled = {"type": "PodScheduled", "status": "True"}
    status = {"conditions": [scheduled, "nonsense"]}
    told = said(status, "BadRequest", "no", "then")
    wrong = {
        "type": "Delivered",
        "status": "False",
        "reason": "BadRequest",
        "message": "no",
        "lastTransitionTime": "then",
    }
    assert told == {"conditions": [scheduled, wrong]}
    assert said(told, "BadRequest", "no", "later") is None
    assert said(told, "", "", "later") == {"conditions": [scheduled]}
    for nothing in ({}, None, "Pending", {"conditions": 7}, {"conditions": [{"type": "Delivered", "reason": 5}]}):
        said(nothing, "", "", "later")
        assert said(nothing, "BadRequest", "no", "then") == {"conditions": [wrong]}


def said(status: Any, reason: str, message: str, now: str) -> Any:
    return statuses.bound_pod_status({"metadata": {}, "status": status}, reason, message, now)


@pytest.mark.parametrize(
    ("verdict", "refuses"),
    [
        (CopyProblem("BadRequest", ".spec.clusterName: field not declared in schema"), True),
        (
            CopyProblem(
                "Refused", "failed to create typed patch object: .spec.clusterName: field not declared in schema"
            ),
            True,
        ),
        (CopyProblem("Invalid", "spec.containers: Required value"), True),
        (CopyProblem("Refused", "etcdserver: request timed out"), False),
        (CopyProblem("Unreachable", "connection refused"), False),
    ],
)
def test_a_cluster_that_knows_no_machines_refuses_and_one_that_is_in_trouble_does_not(
    verdict: CopyProblem, refuses: bool
) -> None:
    assert is_refusal(verdict) is refuses


def test_a_machine_that_is_bound_says_so() -> None:
    bound = {"metadata": {"annotations": {"globalscheduler.com/cluster": "c|d/az1"}}, "spec": {"nodeName": "az1"}}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "then"}
    wanted = {"phase": "Pending", "conditions": [scheduled]}
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    for status in ({}, None, {"conditions": [refused]}):
        assert statuses.bound_pod_status({**bound, "status": status}, "", "", "then") == wanted
    assert statuses.bound_pod_status({**bound, "status": wanted}, "", "", "later") is None
    for other in ({"metadata": {}, "spec": {"nodeName": "az1"}}, {**bound, "spec": {"nodeName": "az2"}}):
        assert statuses.bound_pod_status(other, "", "", "then") is None
