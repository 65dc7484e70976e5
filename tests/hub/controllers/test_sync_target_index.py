"""Counting SyncTargets, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.hub.controllers import sync_targets
from farflung.hub.controllers.sync_targets import IndexedTarget, SyncTargetIndex, TargetCount
from farflung.machinery.errors import Obj

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)


def location(selector: Obj | None) -> Obj:
    return {"metadata": {"name": "x"}, "spec": {} if selector is None else {"instanceSelector": selector}}


def target(**status: object) -> Obj:
    return {"metadata": {"name": "dev", "uid": "u-1"}, "status": status}


# --- counting -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "count"),
    [
        ({}, TargetCount(3, 2)),
        (None, TargetCount(0, 0)),
        ({"matchLabels": {"env": "prod"}}, TargetCount(2, 1)),
        ({"matchExpressions": [{"key": "env", "operator": "Exists"}]}, TargetCount(3, 2)),
        ({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["dev"]}]}, TargetCount(2, 1)),
        ({"matchExpressions": [{"key": "env", "operator": "Resembles", "values": ["dev"]}]}, TargetCount(0, 0)),
    ],
)
def test_a_location_counts_the_targets_that_it_selects(selector: Obj | None, count: TargetCount) -> None:
    workspace = SyncTargetIndex()
    workspace.set_target("a", IndexedTarget({"env": "prod"}, True))
    workspace.set_location("x", location(selector))
    workspace.set_target("b", IndexedTarget({"env": "prod"}, False))
    workspace.set_target("c", IndexedTarget({"env": "dev"}, True))
    assert workspace.count("x") == count


def test_a_location_without_a_spec_has_nothing() -> None:
    workspace = SyncTargetIndex()
    workspace.set_target("a", IndexedTarget({}, True))
    workspace.set_location("x", {"metadata": {"name": "x"}})
    assert workspace.count("x") == TargetCount(0, 0)


def test_a_change_names_the_locations_that_it_changes() -> None:
    workspace = SyncTargetIndex()
    workspace.set_location("all", location({}))
    workspace.set_location("prod", location({"matchLabels": {"env": "prod"}}))
    assert workspace.set_target("a", IndexedTarget({"env": "dev"}, False)) == ["all"]
    assert workspace.set_target("a", IndexedTarget({"env": "dev"}, False)) == []
    assert workspace.set_target("a", IndexedTarget({"env": "prod"}, False)) == ["prod"]
    assert workspace.set_target("a", IndexedTarget({"env": "prod"}, True)) == ["all", "prod"]
    assert workspace.set_target("a", None) == ["all", "prod"]
    assert workspace.set_target("a", None) == []


NAMES = st.sampled_from("abc")
TARGETS = st.none() | st.builds(
    IndexedTarget, st.dictionaries(st.sampled_from(["env", "zone"]), st.sampled_from(["x", "y"])), st.booleans()
)
SELECTORS = st.sampled_from(
    [
        {},
        None,
        {"matchLabels": {"env": "x"}},
        {"matchLabels": {"env": "x", "zone": "y"}},
        {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]},
    ]
)
STEPS = st.lists(
    st.tuples(st.just("target"), NAMES, TARGETS) | st.tuples(st.just("location"), NAMES, st.just("gone") | SELECTORS)
)


def counted(location: Obj, targets: Iterable[IndexedTarget]) -> TargetCount:
    """Without any index."""
    selector = sync_targets.instance_selector(location)
    found = [one.is_available for one in targets if selector is not None and selector.matches(one.labels)]
    return TargetCount(len(found), sum(found))


@given(steps=STEPS)
def test_counts_are_right_after_any_history(steps: list[tuple[str, str, object]]) -> None:
    workspace = SyncTargetIndex()
    targets: dict[str, IndexedTarget] = {}
    locations: dict[str, Obj] = {}
    for kind, name, value in steps:
        if kind == "target":
            assert value is None or isinstance(value, IndexedTarget)
            workspace.set_target(name, value)
            targets.pop(name, None)
            if value is not None:
                targets[name] = value
        else:
            there = None if value == "gone" else location(value)  # type: ignore[arg-type]
            workspace.set_location(name, there)
            locations.pop(name, None)
            if there is not None:
                locations[name] = there
        for name, one in locations.items():
            assert workspace.count(name) == counted(one, targets.values())
        assert workspace.is_empty == (not targets and not locations)


@pytest.mark.parametrize(
    ("spec", "ready", "available"),
    [({}, "True", True), (None, "True", True), ({"unschedulable": True}, "True", False), ({}, "False", False)],
)
def test_a_target_is_available_if_it_is_ready_and_takes_work(spec: Obj | None, ready: str, available: bool) -> None:
    obj = target(conditions=[{"type": "Ready", "status": ready}]) | {"spec": spec}
    assert sync_targets.target_of(obj).is_available is available


# --- conditions -----------------------------------------------------------------------------------


def test_a_target_without_a_heartbeat_says_so_and_where_its_syncer_would_go() -> None:
    said = {"status": "False", "severity": "Warning", "reason": "ErrorHeartbeat", "message": "No heartbeat yet seen"}
    moment = {"lastTransitionTime": "2024-05-01T12:00:00Z"}
    assert sync_targets.target_status("https://hub:1", "c1", target(), NOW) == {
        "conditions": [{"type": "Ready"} | said | moment, {"type": "HeartbeatHealthy"} | said | moment],
        "virtualWorkspaces": [
            {
                "syncerURL": "https://hub:1/services/syncer/c1/dev/u-1",
                "upsyncerURL": "https://hub:1/services/upsyncer/c1/dev/u-1",
            }
        ],
    }


def test_a_heartbeat_makes_a_target_ready_and_its_lack_unready() -> None:
    first = sync_targets.target_status("", "c", target(), NOW)
    beating = first | {"lastSyncerHeartbeatTime": "2024-05-01T12:00:00Z"}
    later = NOW + timedelta(seconds=60)
    second = sync_targets.target_status("", "c", target(**beating), later)
    assert [(one["type"], one["status"]) for one in second["conditions"]] == [
        ("Ready", "True"),
        ("HeartbeatHealthy", "True"),
    ]
    assert sync_targets.target_status("", "c", target(**beating | second), later) == second
    much_later = later + timedelta(seconds=1)
    third = sync_targets.target_status("", "c", target(**beating | second), much_later)["conditions"]
    assert {one["message"] for one in third} == {"No heartbeat since 2024-05-01 12:00:00 +0000 UTC"}
    assert {one["lastTransitionTime"] for one in third} == {"2024-05-01T12:01:01Z"}


def test_conditions_of_others_stay() -> None:
    other = {"type": "SyncerReady", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    conditions = sync_targets.target_status("", "c", target(conditions=[other]), NOW)["conditions"]
    assert [one["type"] for one in conditions] == ["Ready", "HeartbeatHealthy", "SyncerReady"]
    assert conditions[2] == other


def test_a_target_whose_syncer_does_not_reach_its_cluster_is_not_ready_and_says_why() -> None:
    lost = {"type": "EdgeReachable", "status": "False", "reason": "Refused", "message": "no", "severity": "Error"}
    beating = {"lastSyncerHeartbeatTime": "2024-05-01T12:00:00Z"}

    def ready(seconds: int, edge: Obj) -> tuple[str, str, str]:
        later = NOW + timedelta(seconds=seconds)
        status = sync_targets.target_status("", "c", target(**beating, conditions=[edge]), later)
        first = status["conditions"][0]
        return first["status"], first.get("reason", ""), first.get("message", "")

    assert ready(0, lost) == ("False", "Refused", "no")
    assert ready(61, lost)[1] == "ErrorHeartbeat"
    assert ready(0, {**lost, "status": "True"}) == ("True", "", "")
    assert ready(0, {"type": "EdgeReachable", "status": "False"})[1] == "EdgeUnreachable"


@pytest.mark.parametrize("text", ["", "soon", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2024-13-01T00:00:00Z"])
def test_a_time_from_anywhere_is_no_trouble(text: str) -> None:
    assert sync_targets.target_status("", "c", target(lastSyncerHeartbeatTime=text), NOW)["conditions"]


def test_labels_are_shown_in_order() -> None:
    labelled = {"metadata": {"labels": {"zone": "b", "env": "prod"}}}
    assert sync_targets.shown_labels(labelled) == "env=prod zone=b"
    assert sync_targets.shown_labels({"metadata": {}}) is None
