"""How an edge is, by what is said of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.inspect.fleet_health import EdgeHealth, edges, state_of
from farflung.inspect.results import as_document
from farflung.machinery.errors import Obj

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
BEAT = "2024-05-01T11:46:00Z"
YES, NO = "True", "False"
BOX = {"c-mb-u": "box"}


def describe(**conditions: str) -> list[Obj]:
    return [{"type": type, "status": status, "reason": f"{type}Said"} for type, status in conditions.items()]


def target(name: str = "florin", heard: Any = BEAT, conditions: Any = (), labels: Any = None, **spec: Any) -> Obj:
    metadata = {"name": name, "uid": "u", "annotations": {"kcp.io/cluster": "c"}, "labels": labels or {}}
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"lastSyncerHeartbeatTime": heard, "conditions": list(conditions)},
    }


def location(name: str, selector: Any, cluster: str = "c") -> Obj:
    resource = {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}
    metadata = {"name": name, "annotations": {"kcp.io/cluster": cluster}}
    return {"metadata": metadata, "spec": {"resource": resource, "instanceSelector": selector}}


def report(*problems: Any, conditions: Any = (), **objects: Any) -> dict[str, Obj]:
    return {"box": {"status": {"objects": objects, "problems": list(problems), "conditions": list(conditions)}}}


def one(document: Obj, reports: dict[str, Obj] | None = None) -> Obj:
    [found] = edges([document], [], BOX, reports or report(synced=1), NOW)
    return found


@pytest.mark.parametrize(
    ("heard", "conditions", "state"),
    [
        (BEAT, describe(Ready=YES), EdgeHealth.READY),
        (BEAT, describe(Ready=YES, EdgeReachable=YES, HeartbeatHealthy=YES), EdgeHealth.READY),
        (BEAT, describe(Ready=NO, HeartbeatHealthy=NO), EdgeHealth.STALE),
        (BEAT, describe(Ready=NO, HeartbeatHealthy=NO, EdgeReachable=NO), EdgeHealth.STALE),
        (BEAT, describe(Ready=NO, HeartbeatHealthy=YES, EdgeReachable=NO), EdgeHealth.UNREACHABLE),
        (BEAT, describe(Ready=NO, HeartbeatHealthy=YES), EdgeHealth.NOT_READY),
        (BEAT, describe(Ready="Unknown"), EdgeHealth.NOT_READY),
        (BEAT, [], EdgeHealth.NOT_READY),
        (None, describe(Ready=NO, HeartbeatHealthy=NO), EdgeHealth.OFFLINE),
        ("soon", [], EdgeHealth.OFFLINE),
        (17, "all is well", EdgeHealth.OFFLINE),
    ],
)
def test_the_state_is_what_the_hub_says(heard: Any, conditions: Any, state: EdgeHealth) -> None:
    assert state_of(target(heard=heard, conditions=conditions)) is state


def test_an_edge_says_why_it_is_not_ready() -> None:
    cut = [
        *describe(HeartbeatHealthy=YES, EdgeReachable=NO),
        {"type": "Ready", "reason": "Refused", "message": "no\nway"},
    ]
    assert one(target(conditions=cut)).problems == ["Refused: no way"]
    assert one(target(heard=None)).problems == ["no syncer has reported yet"]
    assert one(target()).problems == ["no reason in its conditions"]
    assert one(target(conditions=describe(Ready=NO, HeartbeatHealthy=NO))).problems == []


def test_what_a_syncer_reports_is_counted_and_the_first_problem_told() -> None:
    wrong = {"group": "apps", "resource": "deployments", "namespace": "shop", "name": "web", "reason": "Forbidden"}
    changed = {"type": "HubUnchanged", "status": "False", "reason": "Another", "message": "another hub"}
    found = one(
        target(conditions=describe(Ready=YES)), report(wrong, conditions=[changed], synced=7, failing=2, orphaned=1)
    )
    assert found.problems == [
        "2 objects failing; deployments.apps shop/web: Forbidden",
        "1 object orphaned",
        "Another: another hub",
    ]
    assert as_document(found.objects) == {"synced": 7, "pending": 0, "failing": 2, "orphaned": 1, "upsynced": 0}
    assert not found.is_well
    assert one(target(conditions=describe(Ready=YES)), report(synced=7, pending=3)).is_well


SINCE = "2024-05-01T11:59:30Z"


@pytest.mark.parametrize("shown", [None, BEAT])
@pytest.mark.parametrize(
    ("beat", "reachable", "state", "problems"),
    [
        (SINCE, YES, EdgeHealth.READY, []),
        (SINCE, NO, EdgeHealth.UNREACHABLE, ["EdgeReachableSaid"]),
        ("2024-05-01T12:00:59Z", YES, EdgeHealth.READY, []),
        ("2024-05-01T11:58:59Z", YES, None, None),
        ("2024-05-01T11:45:00Z", YES, None, None),
        ("soon", YES, None, None),
    ],
)
def test_a_report_that_nothing_copies_to_the_sync_target_counts(
    shown: Any, beat: str, reachable: str, state: EdgeHealth | None, problems: list[str] | None
) -> None:
    document = target(heard=shown, conditions=describe(Ready=NO, HeartbeatHealthy=NO))
    reports = report(conditions=describe(EdgeReachable=reachable), synced=1)
    reports["box"]["status"]["lastSyncerHeartbeatTime"] = beat
    found = one(document, reports)
    if state is None:
        assert found == one(document, report(synced=1)) or found.state is state_of(document)
        assert found.remarks == []
        return
    assert (found.state, found.problems, found.heard) == (state, problems, beat)
    assert found.remarks == ["the SyncTarget lacks this report; is the mailbox controller running?"]


def test_a_sync_target_that_is_up_to_date_is_what_counts() -> None:
    reports = report(conditions=describe(EdgeReachable=NO), synced=1)
    reports["box"]["status"]["lastSyncerHeartbeatTime"] = SINCE
    found = one(target(heard=SINCE, conditions=describe(Ready=YES)), reports)
    assert (found.state, found.remarks) == (EdgeHealth.READY, [])
    unready = one(target(heard=SINCE, conditions=describe(Ready=NO, HeartbeatHealthy=YES)), reports)
    assert unready.state is EdgeHealth.NOT_READY


def test_an_intended_state_is_a_remark_and_no_problem() -> None:
    retired = target(conditions=describe(Ready=YES), unschedulable=True, evictAfter="2024-05-01T11:00:00Z")
    retired["metadata"]["deletionTimestamp"] = BEAT
    found = one(retired)
    assert found.remarks == ["unschedulable", "evicting", "being deleted"]
    assert found.is_well
    later = target(conditions=describe(Ready=YES), evictAfter="2024-05-02T11:00:00Z")
    assert one(later).remarks == []


def test_an_edge_without_a_mailbox_is_not_well() -> None:
    document = target(conditions=describe(Ready=YES))
    [found] = edges([document], [], {}, {}, NOW)
    assert found.problems == ["it has no mailbox yet"]
    [unseen] = edges([document], None, None, None, NOW)
    assert (unseen.problems, unseen.objects, unseen.locations) == ([], None, None)


def test_locations_are_those_of_the_workspace_that_select_it() -> None:
    document = target(labels={"env": "prod"})
    places = [
        location("prod", {"matchLabels": {"env": "prod"}}),
        location("dev", {"matchLabels": {"env": "dev"}}),
        location("any", {}),
        location("odd", {"matchExpressions": 7}),
        location("elsewhere", {}, cluster="d"),
        {"spec": []},
    ]
    [found] = edges([document], places, BOX, {}, NOW)
    assert found.locations == ["any", "prod"]


def test_the_worst_come_first() -> None:
    some = [
        target("well", conditions=describe(Ready=YES)),
        target("never", heard=None),
        target("b", conditions=describe(Ready=NO, HeartbeatHealthy=NO)),
        target("a", conditions=describe(Ready=NO, HeartbeatHealthy=NO)),
        target("cut", conditions=describe(Ready=NO, EdgeReachable=NO)),
    ]
    assert [edge.name for edge in edges(some, [], BOX, report(synced=1), NOW)] == ["a", "b", "cut", "never", "well"]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=examples(50))
@given(status=ANYTHING, spec=ANYTHING, metadata=ANYTHING, told=ANYTHING, where=ANYTHING)
def test_no_nonsense_is_too_much(status: Any, spec: Any, metadata: Any, told: Any, where: Any) -> None:
    document = {"metadata": metadata, "spec": spec, "status": status}
    named = target(conditions=[status, {"type": "Ready", "reason": spec}]) | {"spec": spec}
    reports = {"box": {"status": told}, "": {"status": {"problems": [told], "objects": {"failing": 1}}}}
    for found in edges([document, named], [{"metadata": where, "spec": spec}, where], BOX, reports, NOW):
        assert EdgeHealth(found.state)
        assert all(isinstance(problem, str) and problem.isprintable() for problem in found.problems)
