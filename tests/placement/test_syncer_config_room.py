"""What a SyncTarget shows of its cluster's capacity, and when that is written."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from examples import examples
from hostile import ANYTHING
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.controllers.mailbox.decide import Reports
from farflung.machinery import quantity
from farflung.machinery.errors import Obj
from farflung.machinery.patch import merge
from farflung.placement.syncer_config import (
    MAX_RESOURCES,
    EdgeCapacity,
    SyncerHeartbeat,
    capacity_patch,
    parse_amounts,
    parse_heartbeat,
)
from farflung.placement.types import SyncTarget, TargetStatus

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
WITHHELD = {"type": "CapacityKnown", "status": "False", "reason": "Forbidden"}


def read(**status: Any) -> EdgeCapacity | None:
    return parse_heartbeat(json.dumps({"metadata": {"name": "the-one"}, "status": status}).encode()).room


def target(**status: Any) -> SyncTarget:
    said = {"metadata": {"name": "florin"}, "status": {"lastSyncerHeartbeatTime": "2024-05-01T12:00:00Z", **status}}
    return msgspec.convert(said, SyncTarget)


def test_amounts_are_read_in_the_form_in_which_the_api_gives_them_back() -> None:
    assert parse_amounts({"memory": "1.5Gi", "cpu": "1000m"}) == (("cpu", "1"), ("memory", "1536Mi"))


@pytest.mark.parametrize("amount", [None, True, 4, -1.5, [], {}, "", "NaN", "-1", "1e1000", "9" * 65])
def test_what_no_cluster_can_have_is_not_shown(amount: Any) -> None:
    assert parse_amounts({"cpu": amount, "memory": "1Gi"}) == (("memory", "1Gi"),)


def test_a_syncer_without_a_report_differs_from_one_that_may_not_read_nodes() -> None:
    assert read() is None
    assert read(conditions=[WITHHELD]) == EdgeCapacity()
    assert read(allocatable={"cpu": "1"}) == EdgeCapacity((("cpu", "1"),))


@settings(max_examples=examples(50))
@given(ANYTHING, ANYTHING)
def test_whatever_a_syncer_reports_what_is_shown_makes_sense(allocatable: Any, capacity: Any) -> None:
    try:
        room = read(allocatable=allocatable, capacity={"cpu": capacity, "x" * 400: "1"}) or EdgeCapacity()
    except msgspec.MsgspecError:
        return
    for amounts in room:
        assert len(amounts) <= MAX_RESOURCES
        assert all(quantity.parse(amount).nanos >= 0 for _, amount in amounts)


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.sampled_from(["0", "1", "2Gi"]))


@settings(max_examples=examples(50))
@given(AMOUNTS | st.none() | ANYTHING.filter(lambda one: isinstance(one, dict)), AMOUNTS, AMOUNTS)
def test_what_is_written_makes_a_synctarget_show_the_room_and_nothing_then(shown: Any, room: Obj, all: Obj) -> None:
    wanted = EdgeCapacity(parse_amounts(room), parse_amounts(all))
    after = merge.apply({"allocatable": shown}, capacity_patch(TargetStatus(allocatable=shown), wanted))
    status = msgspec.convert(after, TargetStatus)
    assert (status.allocatable or {}, status.capacity or {}) == (room, all)
    assert capacity_patch(status, wanted) == {}


def test_a_change_is_written_at_once_and_once_and_takes_the_heartbeat_along() -> None:
    reports, room = Reports(), EdgeCapacity((("cpu", "4"),), (("cpu", "6"),))
    written = reports.decide("box", target(), SyncerHeartbeat(NOON, room=room), 1.0)
    assert written.status == {
        "lastSyncerHeartbeatTime": "2024-05-01T12:00:00Z",
        "allocatable": {"cpu": "4"},
        "capacity": {"cpu": "6"},
    }
    shown = target(allocatable={"cpu": "4"}, capacity={"cpu": "6"})
    assert reports.decide("box", shown, SyncerHeartbeat(NOON, room=room), 2.0).status == {}


def test_what_is_withheld_is_not_shown_any_longer_and_what_was_never_reported_is_left_alone() -> None:
    reports, shown = Reports(), target(allocatable={"cpu": "4"})
    assert reports.decide("box", shown, SyncerHeartbeat(NOON), 1.0).status == {}
    assert reports.decide("box", shown, SyncerHeartbeat(NOON, room=EdgeCapacity()), 1.0).status["allocatable"] is None
