"""What Nodes have for work, in sum."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import orjson
import pytest
from hostile import ANYTHING
from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery import quantity
from farflung.machinery.errors import Obj
from farflung.syncer.nodes import LARGEST, MAX_NAMES, CapacitySums, NodeShare, share_of


def node(
    further: Obj | None = None, ready: str = "True", cordoned: bool = False, room: Any = None, **usual: Any
) -> Obj:
    status: Obj = {"capacity": {**usual, **(further or {})}, "conditions": [{"type": "Ready", "status": ready}]}
    if room is not None:
        status["allocatable"] = room
    return {"spec": {"unschedulable": True} if cordoned else {}, "status": status}


def told(*nodes: Obj) -> Obj:
    sums = CapacitySums()
    for number, one in enumerate(nodes):
        sums.put(str(number), share_of(orjson.dumps(one)))
    return sums.status()


def test_nodes_are_added_up_in_the_units_of_each_resource() -> None:
    found = told(
        node(cpu="4", memory="16384256Ki", pods="110", room={"cpu": "3920m", "memory": "15Gi", "pods": "110"}),
        node({"ephemeral-storage": "47093746742", "nvidia.com/gpu": "2"}, cpu="500m", memory="1Gi", pods="110"),
    )
    assert found == {
        "capacity": {
            "cpu": "4500m",
            "memory": "17432832Ki",
            "pods": "220",
            "ephemeral-storage": "47093746742",
            "nvidia.com/gpu": "2",
        },
        "allocatable": {
            "cpu": "4420m",
            "memory": "16Gi",
            "pods": "220",
            "ephemeral-storage": "47093746742",
            "nvidia.com/gpu": "2",
        },
        "nodes": {"all": 2, "usable": 2},
    }


@pytest.mark.parametrize("idle", [{"ready": "False"}, {"ready": "Unknown"}, {"cordoned": True}])
def test_what_takes_no_new_work_is_there_and_not_for_work(idle: dict[str, Any]) -> None:
    found = told(node(cpu="4"), node(cpu="2", **idle))
    assert (found["capacity"]["cpu"], found["allocatable"]["cpu"]) == ("6", "4")
    assert found["nodes"] == {"all": 2, "usable": 1}


def test_a_cluster_without_usable_nodes_reports_zeros() -> None:
    nothing = {"cpu": "0", "memory": "0", "pods": "0"}
    assert told()["allocatable"] == told(node(cpu="4", cordoned=True))["allocatable"] == nothing


def test_resources_that_no_node_has_are_omitted() -> None:
    assert "hugepages-1Gi" not in told(node({"hugepages-1Gi": "0"}))["capacity"]


def test_of_many_resources_the_important_ones_and_some_others_are_reported() -> None:
    many = {f"example.com/{number:03}": "1" for number in range(100)}
    names = list(told(node(cpu="1", memory="1", pods="1", further=many))["capacity"])
    assert names == ["cpu", "memory", "pods", *sorted(many)[:MAX_NAMES]]


@pytest.mark.parametrize("amount", [None, True, 4, 4.5, [], {}, "", "NaN", "inf", "four", "1e99999", "9" * 300])
def test_an_amount_that_is_none_does_not_count(amount: Any) -> None:
    assert told(node(cpu=amount), node(cpu="2"))["capacity"]["cpu"] == "2"


def test_amounts_are_never_below_nothing_nor_beyond_what_can_be_written() -> None:
    assert told(node(cpu="-4"), node(cpu="2"))["capacity"]["cpu"] == "2"
    most = told(node(cpu="1e1000", memory="9Ei"), node(cpu="1e1000", memory="9Ei"))["capacity"]
    assert quantity.parse(most["cpu"]).nanos == quantity.parse(most["memory"]).nanos == LARGEST


@given(status=st.dictionaries(st.sampled_from(["capacity", "allocatable", "conditions"]), ANYTHING), spec=ANYTHING)
def test_whatever_a_node_says_it_adds_something_or_makes_no_sense(status: Obj, spec: Any) -> None:
    try:
        share = share_of(json.dumps({"spec": {"unschedulable": spec}, "status": status}).encode())
    except msgspec.MsgspecError:
        return
    sums = CapacitySums()
    sums.put("hostile", share)
    for amounts in (sums.status()["capacity"], sums.status()["allocatable"]):
        assert len(amounts) <= MAX_NAMES + 4
        assert all(quantity.parse(amount).nanos >= 0 for amount in amounts.values())


AMOUNTS = st.lists(
    st.tuples(st.sampled_from(["cpu", "memory", "pods", "a/b"]), st.integers(0, 5)), unique_by=lambda one: one[0]
)
SHARES = st.builds(lambda all, room: NodeShare(tuple(all), tuple(room), bool(room)), AMOUNTS, AMOUNTS)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | SHARES)))
def test_sums_do_not_depend_on_how_they_came_about(history: list[tuple[str, NodeShare | None]]) -> None:
    sums, nodes = CapacitySums(), dict[str, NodeShare]()
    for name, share in history:
        before = sums.status()
        if not sums.put(name, share):
            assert sums.status() == before
        nodes.pop(name, None)
        if share is not None:
            nodes[name] = share
    anew = CapacitySums()
    for name in sorted(nodes):
        anew.put(name, nodes[name])
    assert sums.status() == anew.status()
    for name in ("cpu", "a/b"):
        added = sum(nanos for one in nodes.values() for resource, nanos in one.capacity if resource == name)
        assert quantity.parse(sums.status()["capacity"].get(name, "0")).nanos == added
