"""What is found of one destination in every situation, and what is concluded of all of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.controllers.status_summarizer.health import CopyProblem, CopyStatus
from farflung.inspect import trace_steps
from farflung.inspect.trace_steps import (
    HiddenObject,
    ObservedDestination,
    StepState,
    TracedDestination,
    TracedObject,
    TraceStep,
    conclude,
    find,
    written_to,
)
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef
from farflung.placement.project import Desired, make_copy
from farflung.placement.types import CopyDestination

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
DAY, HOUR, MINUTES, RECENT, LATELY = (
    "2025-12-31T12:00:00Z",
    "2026-01-01T11:00:00Z",
    "2026-01-01T11:55:00Z",
    "2026-01-01T11:59:50Z",
    "2026-01-01T11:59:58Z",
)
REF = ObjectRef(GroupResource("apps", "deployments"), "shop", "web")
SUBJECT = TracedObject(REF)
PLACE = CopyDestination("imw", "north", "florin")
WANTED = make_copy(
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3}}
)
CONFLICT = "the mailbox has such an object that no placement created; it is not changed"


def managed(manager: str, time: str, subresource: str = "", **fields: Any) -> Obj:
    entry = {"manager": manager, "time": time, "fieldsV1": fields}
    return {**entry, "subresource": subresource} if subresource else entry


def copied(time: str = MINUTES, **metadata: Any) -> Obj:
    """As the translator wrote it, and a syncer took it."""
    writers = [managed("start", time), managed("farflung-syncer", RECENT)]
    head = {"resourceVersion": "20", "managedFields": writers, "finalizers": ["edge.kcp.io/syncer"]}
    return {**WANTED, "metadata": {**WANTED["metadata"], **head, **metadata}}


def reported(time: str = RECENT, **status: Any) -> Obj:
    """`the-one`."""
    through = [{"group": "apps", "resource": "deployments", "resourceVersion": "12"}]
    writers = [managed("farflung-syncer", time, "status", **{"f:status": {"f:lastSyncerHeartbeatTime": {}}})]
    said = {"lastSyncerHeartbeatTime": "1999-01-01T00:00:00Z", "syncedThrough": through, "objects": {"pending": 0}}
    return {"metadata": {"name": "the-one", "managedFields": writers}, "status": {**said, **status}}


def problem(reason: str = "NotManaged", **further: Any) -> Obj:
    (group, resource), namespace, name = REF
    which = {"group": group, "resource": resource, "namespace": namespace, "name": name, "direction": "down"}
    return {**which, "reason": reason, "message": "it is there", "lastTry": MINUTES, "tries": 3, **further}


def mailbox(phase: str = "Ready", **metadata: Any) -> Obj:
    return {"metadata": {"name": "m", "creationTimestamp": DAY, **metadata}, "status": {"phase": phase}}


GOOD = CopyStatus(True, RECENT, {"readyReplicas": 3, "replicas": 3}, {"Available": "True", "Failing": "False"})
WELL = ObservedDestination(
    PLACE,
    "imw-mb-1",
    ("p",),
    {"p": HOUR},
    MINUTES,
    mailbox(),
    copied(),
    desired=Desired(WANTED),
    config=reported(),
    copy_status=GOOD,
)
BROKEN = replace(GOOD, problem=CopyProblem("NotReady", "1/3 ready", HOUR))


def found(subject: TracedObject = SUBJECT, /, **facts: Any) -> TracedDestination:
    return find(subject, replace(WELL, **facts), NOW)


def test_of_what_is_well_every_step_is_told_with_its_time() -> None:
    assert found().steps == [
        TraceStep("placed", StepState.DONE, HOUR, "slice p"),
        TraceStep("mailbox", StepState.DONE, DAY, "imw-mb-1"),
        TraceStep("copied", StepState.DONE, MINUTES, "current, resourceVersion 20"),
        TraceStep("edge", StepState.DONE, RECENT, "applied; heartbeat 10s ago"),
        TraceStep("status", StepState.DONE, RECENT, "Available; readyReplicas 3"),
    ]
    assert found().state is StepState.DONE


def test_a_copy_that_no_syncer_wrote_to_since_is_judged_by_its_version_alone() -> None:
    writers = [managed("farflung-syncer", HOUR), managed("start", MINUTES)]

    def at_the_edge(version: str) -> StepState:
        steps = found(copy=copied(managedFields=writers, resourceVersion=version)).steps
        return next(one.state for one in steps if one.name == "edge")

    assert at_the_edge("12") is StepState.DONE
    assert at_the_edge("13") is StepState.STUCK


SITUATIONS: dict[str, tuple[dict[str, Any], str, StepState, str]] = {
    "undecided": (
        {"slices": None, "copy": None},
        "placed",
        StepState.STUCK,
        "the edge scheduler has not placed it here yet",
    ),
    "just changed": (
        {"slices": None, "copy": None, "changed": RECENT},
        "placed",
        StepState.WAITING,
        "the edge scheduler has not placed it here yet",
    ),
    "no mailbox": ({"workspace": None, "copy": None}, "mailbox", StepState.STUCK, "no mailbox yet"),
    "mailbox on its way": (
        {"workspace": mailbox("Initializing", creationTimestamp=RECENT), "copy": None},
        "mailbox",
        StepState.WAITING,
        "the mailbox is being created",
    ),
    "mailbox that ends": (
        {"workspace": mailbox(deletionTimestamp=HOUR)},
        "mailbox",
        StepState.STUCK,
        "the mailbox is being deleted",
    ),
    "hidden mailboxes": (
        {"workspace": HiddenObject("you may not"), "copy": HiddenObject("no")},
        "mailbox",
        StepState.UNKNOWN,
        "mailboxes are not visible: you may not",
    ),
    "hidden copy": (
        {"copy": HiddenObject("you may not")},
        "copied",
        StepState.UNKNOWN,
        "the copy is not visible: you may not",
    ),
    "no copy": ({"copy": None}, "copied", StepState.STUCK, "no copy yet"),
    "no copy yet": ({"copy": None, "slices": {"p": RECENT}}, "copied", StepState.WAITING, "no copy yet"),
    "no such kind": (
        {"copy": None, "served": False},
        "copied",
        StepState.STUCK,
        "the mailbox does not serve the kind",
    ),
    "complaint": ({"copy": None, "complaints": ("it was refused",)}, "copied", StepState.STUCK, "it was refused"),
    "unlisted complaint": (
        {"copy": None, "unlisted": "p"},
        "copied",
        StepState.STUCK,
        "no copy yet, and EdgePlacement p has more problems than its condition lists",
    ),
    "customization": (
        {"copy": None, "desired": Desired(None, "no such Customizer")},
        "copied",
        StepState.STUCK,
        "no such Customizer",
    ),
    "customization of a copy": ({"desired": Desired(None, "no such")}, "copied", StepState.STUCK, "no such"),
    "unmanaged copy": ({"copy": copied(labels={})}, "copied", StepState.STUCK, CONFLICT),
    "old copy": (
        {"copy": {**copied(), "spec": {"replicas": 2}}},
        "copied",
        StepState.STUCK,
        "outdated, resourceVersion 20",
    ),
    "old copy of something new": (
        {"copy": {**copied(), "spec": {"replicas": 2}}, "changed": RECENT},
        "copied",
        StepState.WAITING,
        "outdated, resourceVersion 20",
    ),
    "copy for others, without a syncer": (
        {"along": True, "doubt": "nobody knows", "config": None},
        "edge",
        StepState.STUCK,
        "no syncer has ever reported",
    ),
    "doubtful copy": ({"doubt": "nobody knows"}, "copied", StepState.UNKNOWN, "resourceVersion 20; nobody knows"),
    "not wanted": (
        {"placements": (), "slices": None},
        "copied",
        StepState.STUCK,
        "not withdrawn yet, resourceVersion 20",
    ),
    "held": (
        {"placements": (), "slices": None, "held": "confirm it"},
        "copied",
        StepState.STUCK,
        "its withdrawal is held, resourceVersion 20",
    ),
    "withdrawn": (
        {"placements": (), "slices": None, "copy": copied(deletionTimestamp=RECENT)},
        "copied",
        StepState.WAITING,
        "being withdrawn",
    ),
    "withdrawn for long": (
        {"placements": (), "slices": None, "copy": copied(deletionTimestamp=HOUR)},
        "edge",
        StepState.STUCK,
        "the syncer has not deleted it yet; heartbeat 10s ago",
    ),
    "withdrawn by mistake": (
        {"copy": copied(deletionTimestamp=RECENT)},
        "copied",
        StepState.WAITING,
        "being withdrawn, then created again",
    ),
    "held by others": (
        {"placements": (), "copy": copied(deletionTimestamp=HOUR, finalizers=["b", "a"])},
        "copied",
        StepState.STUCK,
        "being withdrawn; held by the finalizers a, b",
    ),
    "hidden report": (
        {"config": HiddenObject("you may not")},
        "edge",
        StepState.UNKNOWN,
        "the syncer's report is not visible: you may not",
    ),
    "no syncer": ({"config": {"metadata": {}}}, "edge", StepState.STUCK, "no syncer has ever reported"),
    "no configuration": ({"config": None}, "edge", StepState.STUCK, "no syncer has ever reported"),
    "stale": ({"config": reported(HOUR)}, "edge", StepState.STUCK, "the last heartbeat of the syncer was 60m ago"),
    "cut off": (
        {"config": reported(conditions=[{"type": "EdgeReachable", "status": "False", "message": "refused"}])},
        "edge",
        StepState.STUCK,
        "the syncer does not reach its cluster: refused; heartbeat 10s ago",
    ),
    "not ours": (
        {"config": reported(problems=[problem()])},
        "edge",
        StepState.STUCK,
        "NotManaged, tried 3 times: it is there; heartbeat 10s ago",
    ),
    "all of a kind": (
        {"config": reported(problems=[problem("Forbidden", namespace="", name="*", tries=1)])},
        "edge",
        StepState.STUCK,
        "Forbidden: it is there; heartbeat 10s ago",
    ),
    "on its way": (
        {"config": reported(RECENT, objects={"pending": 2}), "copy": copied(RECENT)},
        "edge",
        StepState.WAITING,
        "the syncer has not applied it yet; heartbeat 10s ago, 2 changes pending",
    ),
    "not heard of yet": (
        {"config": reported(RECENT), "copy": copied(LATELY)},
        "edge",
        StepState.WAITING,
        "the syncer has not applied it yet; heartbeat 10s ago",
    ),
    "heard before it could be told of": (
        {"config": reported(LATELY), "copy": copied(LATELY)},
        "edge",
        StepState.WAITING,
        "the syncer has not applied it yet; heartbeat 2s ago",
    ),
    "not brought": (
        {"config": reported(objects={"pending": 1})},
        "edge",
        StepState.STUCK,
        "the syncer has not applied it yet; heartbeat 10s ago, 1 change pending",
    ),
    "kind not heard of": (
        {"config": reported(syncedThrough=[])},
        "edge",
        StepState.STUCK,
        "the syncer has not applied it yet; heartbeat 10s ago",
    ),
    "status refused": (
        {"config": reported(problems=[problem("Forbidden", direction="status")])},
        "status",
        StepState.STUCK,
        "Forbidden, tried 3 times: it is there",
    ),
    "no status": ({"copy_status": CopyStatus()}, "status", StepState.WAITING, "no status yet"),
    "broken": ({"copy_status": BROKEN}, "status", StepState.STUCK, "NotReady: 1/3 ready, for 60m"),
    "rolling out": (
        {"copy_status": replace(GOOD, rollout=CopyProblem("RollingOut", "1 of 3 replicas are updated"))},
        "status",
        StepState.WAITING,
        "rolling out: 1 of 3 replicas are updated",
    ),
    "not observed": (
        {"copy_status": replace(GOOD, is_observed=False), "config": reported(syncer={"translatesGenerations": True})},
        "status",
        StepState.WAITING,
        "rolling out: its cluster has not observed the last change yet",
    ),
    "broken since now": (
        {"copy_status": replace(GOOD, problem=CopyProblem("NotReady", "", RECENT))},
        "status",
        StepState.WAITING,
        "NotReady, for 10s",
    ),
    "broken by a change": (
        {"copy_status": BROKEN, "copy": copied("2026-01-01T11:59:45Z")},
        "status",
        StepState.WAITING,
        "NotReady: 1/3 ready, for 60m",
    ),
    "broken since nobody knows": (
        {"copy_status": replace(GOOD, problem=CopyProblem("NotReady", "1/3 ready"))},
        "status",
        StepState.STUCK,
        "NotReady: 1/3 ready",
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_is_not_well_is_found_at_its_step(situation: str) -> None:
    facts, name, state, message = SITUATIONS[situation]
    culprit = found(**facts).culprit
    assert (culprit.name, culprit.state, culprit.message) == (name, state, message)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_problem_comes_with_advice(situation: str) -> None:
    facts, _, state, _ = SITUATIONS[situation]
    assert state in (StepState.WAITING, StepState.DONE) or conclude([found(**facts)]).advice


ARRIVED: dict[str, dict[str, Any]] = {
    "by its version": {
        "config": reported(
            syncedThrough=[{"group": "apps", "resource": "deployments", "resourceVersion": "20"}],
            objects={"pending": 5},
        )
    },
    "because nothing is left to do": {},
    "in the second of its last report, long ago": {"config": reported(RECENT), "copy": copied(RECENT)},
    "because only others fail": {"config": reported(objects={"pending": 1}, problems=[problem(name="other")])},
    "whatever the clock of the hub is": {
        "config": reported(HOUR),
        "copy": copied(DAY),
        "conditions": [{"type": "HeartbeatHealthy", "status": "True"}],
    },
    "in a mailbox that can be read though none can be listed": {"workspace": HiddenObject("no")},
}


@pytest.mark.parametrize("how", ARRIVED)
def test_a_copy_is_known_to_have_arrived(how: str) -> None:
    assert [step.state for step in found(**ARRIVED[how]).steps] == [StepState.DONE] * 5


def test_what_fails_and_is_not_listed_may_be_this_object() -> None:
    config = reported(objects={"pending": 1}, problems=[problem(name="other")], problemsOmitted=1)
    assert found(config=config).culprit.name == "edge"


def test_kinds_without_status_end_at_the_edge_and_others_in_the_mailbox() -> None:
    assert found(TracedObject(REF, has_status=False)).steps[-1].name == "edge"
    assert found(TracedObject(REF, is_applied=False)).steps[-1].name == "copied"


def test_nothing_is_said_of_a_status_before_there_was_a_syncer() -> None:
    assert found(config=None).steps[-1].name == "edge"


def test_a_namespace_that_is_there_already_will_do_for_what_goes_into_it() -> None:
    steps = found(TracedObject(REF, has_status=False), copy=copied(labels={}), needed=True).steps
    assert (steps[2].name, steps[2].state, steps[2].message) == ("copied", StepState.DONE, "it exists already")
    assert steps[-1].state is StepState.DONE


def test_the_time_of_a_write_is_not_that_of_the_syncer_or_of_the_status() -> None:
    writers = [
        managed("start", HOUR),
        managed("farflung-syncer", RECENT),
        managed("x", LATELY, "status"),
        {"manager": "y"},
    ]
    assert written_to({"metadata": {"managedFields": writers, "creationTimestamp": DAY}}) == HOUR
    assert written_to({"metadata": {"creationTimestamp": DAY}}) == DAY


# --- all of them ----------------------------------------------------------------------------------


def at(target: str, **facts: Any) -> TracedDestination:
    return found(destination=CopyDestination("imw", "north", target), mailbox=target, **facts)


CONCLUSIONS: dict[str, tuple[list[TracedDestination], tuple[StepState, str]]] = {
    "one": ([at("a")], (StepState.DONE, "The only destination is up to date.")),
    "two": ([at("a"), at("b")], (StepState.DONE, "All 2 destinations are up to date.")),
    "stuck": ([at("a", copy=None)], (StepState.STUCK, "Stuck at north / a: no copy yet.")),
    "one of two": (
        [at("b"), at("a", copy=None)],
        (StepState.STUCK, "Stuck at north / a: no copy yet. 1 of 2 destinations is stuck."),
    ),
    "the first by name": (
        [at("c", copy=None), at("b", config=None), at("a", copy_status=CopyStatus())],
        (StepState.STUCK, "Stuck at north / b: no syncer has ever reported. 2 of 3 destinations are stuck."),
    ),
    "under way": (
        [at("a"), at("b", copy_status=CopyStatus())],
        (StepState.WAITING, "Under way to north / b: no status yet. 1 of 2 destinations is waiting."),
    ),
    "unknown": (
        [at("a", copy=HiddenObject("no")), at("b", copy_status=CopyStatus())],
        (
            StepState.UNKNOWN,
            "Partly unknown at north / a: the copy is not visible: no. 1 of 2 destinations is unknown.",
        ),
    ),
}


@pytest.mark.parametrize("case", CONCLUSIONS)
def test_the_first_thing_that_is_stuck_is_concluded(case: str) -> None:
    findings, expected = CONCLUSIONS[case]
    conclusion = conclude(findings)
    assert (conclusion.state, conclusion.message) == expected


def test_a_destination_is_named_by_all_locations_that_lead_there() -> None:
    assert found(destination=CopyDestination("imw", "north", "florin", ("south",))).name == "north, south / florin"
    assert found(destination=CopyDestination("imw", "", "florin")).name == "florin"


# --- reports that anybody may have written -----------------------------------------------------------

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("False"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
STATUSES = st.fixed_dictionaries(
    {},
    optional={
        name: ANYTHING
        | st.lists(
            st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "status",
                        "message",
                        "reason",
                        "name",
                        "tries",
                        "lastTry",
                        "direction",
                        "resource",
                        "group",
                        "resourceVersion",
                    ]
                ),
                ANYTHING,
            ),
            max_size=3,
        )
        for name in ("problems", "conditions", "syncedThrough", "objects", "problemsOmitted")
    },
)


@given(STATUSES | ANYTHING)
def test_no_report_is_too_strange_to_be_read(status: Any) -> None:
    config = {**reported(), "status": status}
    report = trace_steps.read_report(config)
    assert report.last_heartbeat == datetime(2026, 1, 1, 11, 59, 50, tzinfo=UTC)
    assert "edge" in [step.name for step in found(config=config).steps]


@pytest.mark.parametrize(
    ("status", "since", "alive"),
    [
        ("True", "2024-05-01T11:00:00Z", True),
        ("False", "2024-05-01T11:59:40Z", False),  # with a shorter limit than ours
        ("False", "2024-05-01T11:59:00Z", True),  # the heartbeat is newer
    ],
)
def test_the_condition_of_the_sync_target_decides_whether_its_syncer_is_alive(
    status: str, since: str, alive: bool
) -> None:
    now = datetime(2024, 5, 1, 12, tzinfo=UTC)
    report = trace_steps.EdgeReport(now - timedelta(seconds=30))
    condition = {"type": "HeartbeatHealthy", "status": status, "lastTransitionTime": since}
    assert trace_steps.is_alive(report, [condition], now) is alive
    assert trace_steps.is_alive(report, None, now)
