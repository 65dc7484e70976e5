"""When a SyncTarget is written for the heartbeats of its syncer, and what it shows meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from farflung.controllers.mailbox.decide import LONGEST_MESSAGE, Reports
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.placement.syncer_config import SyncerHeartbeat, moment, parse_heartbeat
from farflung.placement.types import StatusCondition, SyncTarget

START = datetime(2024, 5, 1, 12, tzinfo=UTC)
THRESHOLD = 60  #: seconds of silence that the hub allows
BEAT = 20  #: seconds between two heartbeats


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def target(heartbeat: datetime | None = None, *conditions: StatusCondition) -> SyncTarget:
    said: Obj = {"metadata": {"name": "florin"}, "status": {"conditions": msgspec.to_builtins(conditions)}}
    if heartbeat is not None:
        said["status"]["lastSyncerHeartbeatTime"] = times.format_seconds(heartbeat)
    return msgspec.convert(said, SyncTarget)


# --- what a syncer reports ------------------------------------------------------------------------


def owner(time: str, *, subresource: str = "status", field: str = "f:lastSyncerHeartbeatTime") -> Obj:
    fields = {"f:status": {field: {}}}
    return {"manager": "m", "operation": "Update", "subresource": subresource, "time": time, "fieldsV1": fields}


def read(*owners: Any, **status: Any) -> SyncerHeartbeat:
    said = {"metadata": {"name": "the-one", "managedFields": list(owners)}, "status": status}
    return parse_heartbeat(orjson.dumps(said))


def test_a_heartbeat_is_when_the_server_took_it_whatever_the_syncer_says() -> None:
    assert read(owner("2024-05-01T12:00:00Z"), lastSyncerHeartbeatTime="1970-01-01T00:00:00Z").beat == START


def test_the_newest_of_several_owners_counts() -> None:
    assert read(owner("2024-05-01T12:00:00Z"), owner("2024-05-01T11:00:00Z")).beat == START


@pytest.mark.parametrize(
    "other",
    [
        owner("2024-05-01T12:00:00Z", subresource=""),
        owner("2024-05-01T12:00:00Z", field="f:objects"),
        owner("soon"),
        {},
    ],
)
def test_other_owners_and_other_fields_are_no_heartbeats(other: Obj) -> None:
    assert read(other).beat is None


def test_a_configuration_that_no_syncer_touched_says_nothing() -> None:
    assert parse_heartbeat(b'{"metadata": {"name": "the-one"}, "spec": {}, "status": {}}') == SyncerHeartbeat()


# --- what is shown of it --------------------------------------------------------------------------


class World:
    """One SyncTarget, its syncer and the controller, in seconds.  `away`: the controller does not hear of anything."""

    def __init__(self) -> None:
        self.now = 0
        self.target = target()
        self.config = SyncerHeartbeat()
        self.reports = Reports()
        self.away = False
        self.due: float | None = None
        self.writes = 0

    def look(self) -> None:
        self.due = None
        if self.away:
            return
        decision = self.reports.decide("box", self.target, self.config, self.now)
        if decision.status:
            assert decision.again is None
            self.writes += 1
            self.target = target(moment(decision.status["lastSyncerHeartbeatTime"]))
            self.look()
        elif decision.again is not None:
            self.due = self.now + decision.again

    def beat(self) -> None:
        self.config = SyncerHeartbeat(at(self.now))
        self.look()

    def passes(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            if self.due is not None and self.due <= self.now:
                self.look()
            self.check()

    def leaves(self, seconds: int, *, forgets: bool) -> None:
        self.away = True
        self.passes(seconds)
        self.away = False
        if forgets:
            self.reports = Reports()
        self.look()
        self.check()

    def alive(self, heartbeat: datetime | None) -> bool:
        return heartbeat is not None and at(self.now) - heartbeat <= timedelta(seconds=THRESHOLD)

    def check(self) -> None:
        shown, truth = self.alive(moment(self.target.heartbeat)), self.alive(self.config.beat)
        assert shown == truth or (self.away and truth), (self.now, self.target.heartbeat, self.config.beat)


STEPS = st.one_of(
    st.tuples(st.just("beat"), st.just(0)),
    st.tuples(st.just("pass"), st.integers(1, 90) | st.sampled_from([19, 20, 21, 24, 25, 44, 45, 59, 60, 61])),
    st.tuples(st.just("crash"), st.integers(0, 90)),
    st.tuples(st.just("cut"), st.integers(0, 90)),
    st.tuples(st.just("live"), st.integers(1, 6)),
)


@given(st.lists(STEPS, max_size=30))
@example([("live", 2), ("crash", 0), ("beat", 0), ("pass", 41)])
def test_a_target_shows_a_live_edge_as_alive_and_a_dead_one_as_dead(steps: list[tuple[str, int]]) -> None:
    """Whenever the controller is there, at any second; while it is away, a dead edge is dead all the same."""
    world = World()
    for what, how in steps:
        match what:
            case "beat":
                world.beat()
            case "pass":
                world.passes(how)
            case "crash" | "cut":
                world.leaves(how, forgets=what == "crash")
            case "live":
                for _ in range(how):
                    world.beat()
                    world.passes(BEAT)
        world.check()


@given(st.lists(st.integers(BEAT - 2, BEAT + 2), min_size=50, max_size=50))
def test_a_target_is_written_for_every_other_heartbeat_at_most(pauses: list[int]) -> None:
    world = World()
    for pause in pauses:
        world.beat()
        world.passes(pause)
    assert world.writes <= len(pauses) // 2 + 1


def test_nothing_is_written_when_nothing_was_reported() -> None:
    world = World()
    world.beat()
    assert world.writes == 1
    world.passes(500)
    world.leaves(10, forgets=True)
    assert world.writes == 1


def test_a_target_whose_syncer_never_reported_is_left_alone() -> None:
    by_hand = target(at(0), StatusCondition("EdgeReachable", "False"))
    assert Reports().decide("box", by_hand, SyncerHeartbeat(), 0.0) == ({}, None)


def test_a_heartbeat_from_the_future_is_put_right() -> None:
    decision = Reports().decide("box", target(at(3600)), SyncerHeartbeat(at(0)), 0.0)
    assert decision.status == {"lastSyncerHeartbeatTime": "2024-05-01T12:00:00Z"}


# --- whether the edge can be reached --------------------------------------------------------------

READY = StatusCondition("Ready", "True", last_transition_time="2024-05-01T11:00:00Z")
HEALTHY = StatusCondition("HeartbeatHealthy", "True", last_transition_time="2024-05-01T11:00:00Z")


def unreachable(message: str = "connection refused") -> StatusCondition:
    return StatusCondition("EdgeReachable", "False", reason="Unreachable", message=message)


def test_a_target_shows_that_its_edge_cannot_be_reached_beside_what_others_say() -> None:
    before = target(at(0), READY, HEALTHY)
    decision = Reports().decide("box", before, SyncerHeartbeat(at(10), unreachable()), 0.0)
    assert decision.status["conditions"] == [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2024-05-01T11:00:00Z"},
        {
            "type": "EdgeReachable",
            "status": "False",
            "severity": "Error",
            "reason": "Unreachable",
            "message": "connection refused",
            "lastTransitionTime": "2024-05-01T12:00:10Z",
        },
        {"type": "HeartbeatHealthy", "status": "True", "lastTransitionTime": "2024-05-01T11:00:00Z"},
    ]


def test_what_is_shown_already_is_not_written_again() -> None:
    reports, config = Reports(), SyncerHeartbeat(at(10), unreachable())
    reports.decide("box", target(), SyncerHeartbeat(), 0.0)
    written = reports.decide("box", target(at(0), READY), config, 0.0)
    shown = target(at(10), *msgspec.convert(written.status["conditions"], list[StatusCondition]))
    assert reports.decide("box", shown, config, 1.0) == ({}, None)
    for message in ("connection refused", "no route to host"):
        later = reports.decide("box", shown, SyncerHeartbeat(at(20), unreachable(message)), 11.0)
        assert later.status == {}
    with_words = reports.decide("box", shown, SyncerHeartbeat(at(40), unreachable("no route to host")), 31.0)
    assert with_words.status["conditions"][1]["message"] == "no route to host"
    back = reports.decide("box", shown, SyncerHeartbeat(at(20), StatusCondition("EdgeReachable", "True")), 11.0)
    assert back.status["conditions"][1] == {
        "type": "EdgeReachable",
        "status": "True",
        "lastTransitionTime": "2024-05-01T12:00:20Z",
    }


@pytest.mark.parametrize("edge", [None, StatusCondition("EdgeReachable", "Perhaps")])
def test_a_report_without_a_condition_of_the_edge_removes_an_earlier_one(edge: StatusCondition | None) -> None:
    decision = Reports().decide("box", target(at(0), READY, unreachable()), SyncerHeartbeat(at(10), edge), 0.0)
    assert [one["type"] for one in decision.status["conditions"]] == ["Ready"]


def test_a_syncer_cannot_fill_a_target_with_words() -> None:
    decision = Reports().decide("box", target(), SyncerHeartbeat(at(0), unreachable("x" * 100_000)), 0.0)
    assert len(decision.status["conditions"][0]["message"]) == LONGEST_MESSAGE
