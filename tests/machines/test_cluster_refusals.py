"""Clusters that refused the last machines: who keeps away from them, for how long, and who is tried there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.machines.decide import SchedulerState
from farflung.machines.engine.engine import SchedulingEngine
from farflung.machines.engine.policy import default_policy
from farflung.machines.engine.values import (
    Capacity,
    FlavorChoice,
    Health,
    Item,
    MachineRequest,
    Reservation,
    ResourceClaim,
    Site,
    SiteKey,
    SiteSelector,
)
from farflung.machines.failover import (
    CLUSTER_REFUSED,
    TRIAL,
    ClusterRefusals,
    FailoverOptions,
    MachineRef,
    RefusalRecord,
    add_cluster_refusal,
    describe_cluster_refusals,
    read_cluster_refusals,
    write_cluster_refusals,
)
from farflung.machines.subjects import (
    POD,
    ObservedSubject,
    PlacedSubject,
    SchedulingSubject,
    UnplacedSubject,
)
from farflung.runtime.cache import Key

SITE = SiteKey("clouds", "default", "az1")
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
LAST = "2026-11-16T12:00:00Z"
A, B, C, D = (MachineRef("shop", name) for name in "abcd")
OTHER, THIRD = MachineRef("bank", "x"), MachineRef("school", "y")
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["machines", "times", "lastTime", "x"]), inner),
    max_leaves=8,
)


def refused(*machines: MachineRef, pausing: bool = False) -> RefusalRecord:
    known: RefusalRecord | None = None
    for one in machines:
        known = add_cluster_refusal(known, one, NOW, avoided=pausing)
    assert known is not None
    return known


# --- the note -------------------------------------------------------------------------------------


def test_several_different_machines_are_needed_and_the_same_one_counts_once() -> None:
    assert refused(A, B, A, B, A) == RefusalRecord((A, B), 0, LAST)
    assert refused(A, B, A, C) == RefusalRecord((A, B, C), 1, LAST)
    assert [refused(*machines).several for machines in ((A,), (A, B), (A, B, C))] == [False, False, True]


def test_one_that_is_tried_and_refused_counts_and_one_that_was_bound_before_does_not() -> None:
    known, later = refused(A, B, C), NOW + timedelta(hours=1)
    assert add_cluster_refusal(known, D, later, avoided=True) == known
    again = add_cluster_refusal(known, D, later, avoided=False)
    assert again == RefusalRecord((B, C, D), 2, "2026-11-16T13:00:00Z")
    assert add_cluster_refusal(again, D, later, avoided=False).times == 3  # the same one may be tried


def test_a_workspace_with_unbindable_machines_delays_no_other_workspace() -> None:
    known = refused(A, B, C)
    assert (known.concern("shop"), known.concern("bank")) == (True, False)
    both = add_cluster_refusal(known, OTHER, NOW, avoided=True)
    assert both == RefusalRecord((B, C, OTHER), 1, LAST)  # for no longer than before
    assert (both.concern("shop"), both.concern("bank"), both.concern("school")) == (True, True, False)
    three = add_cluster_refusal(both, THIRD, NOW, avoided=True)
    assert (three.concern("shop"), three.concern("school"), three.concern("anybody")) == (True, True, True)


def test_what_is_noted_is_read_again_unless_the_cluster_is_another_by_now() -> None:
    known = refused(A, B, C)
    status = {"refusals": write_cluster_refusals(known, 7)}
    assert read_cluster_refusals(status, 7) == known
    assert read_cluster_refusals(status, 8) is None
    assert read_cluster_refusals({}, 7) is None


@given(ANYTHING)
def test_whatever_is_noted_is_understood_or_left_out(said: Any) -> None:
    given = {"machines": said, "times": 1, "lastTime": LAST, "observedGeneration": 1}
    for refusals in (said, given, {**given, "machines": ["shop/a"], "times": said}):
        found = read_cluster_refusals({"refusals": refusals}, 1)
        assert found is None or (0 < len(found.machines) <= 3 and describe_cluster_refusals(found))


@pytest.mark.parametrize(
    ("machines", "words"),
    [
        (
            (A, B, C),
            "3 machines, all of one workspace; no other machine of that workspace",
        ),
        (
            (A, B, OTHER),
            "3 machines, all of 2 workspaces; no other machine of these workspaces",
        ),
        ((A, OTHER, THIRD), "3 machines; no other machine"),
    ],
)
def test_a_cluster_says_so_in_words(machines: tuple[MachineRef, ...], words: str) -> None:
    expected = (
        f"the Cluster refused the last {words} is bound to it before 2026-11-16T12:01:00Z, and then one at a time"
    )
    assert describe_cluster_refusals(refused(*machines)) == expected


# --- what is known --------------------------------------------------------------------------------


def test_a_cluster_is_avoided_for_a_while_and_then_one_is_tried_until_something_is_heard_of_it() -> None:
    one, known = ClusterRefusals(), refused(A, B, C)
    one.set_recorded(SITE, known, 20.0, 100.0)
    assert one.avoided("shop", 139.0) == [SITE]
    assert one.avoided("bank", 139.0) == []
    assert one.is_avoided(SITE, 139.0)
    assert one.avoided("shop", 140.0) == []
    one.on_bound(SITE, 140.0)
    assert one.avoided("shop", 140.0 + TRIAL - 1) == [SITE]
    assert not one.is_avoided(SITE, 141.0)  # so that its refusal counts
    assert one.avoided("shop", 140.0 + TRIAL) == []
    again = add_cluster_refusal(known, D, NOW, avoided=False)
    one.set_recorded(SITE, again, 0.0, 170.0)
    assert one.avoided("shop", 289.0) == [SITE]
    assert one.avoided("shop", 290.0) == []
    assert one.accept(SITE)
    assert not one.accept(SITE)
    assert one.has_recovered(SITE)
    assert one.avoided("shop", 171.0) == []
    assert one.set_recorded(SITE, None, 0.0, 300.0)
    assert not one.has_recovered(SITE)


def world() -> SchedulerState:
    found = SchedulerState(SchedulingEngine(default_policy(), {}), FailoverOptions(), lambda author: {})
    found.put_site(Site(SITE, uid="az1", health=Health.READY, capacity=Capacity({"small": 9})), 0.0)
    return found


def subject(name: str) -> SchedulingSubject:
    return SchedulingSubject(POD, Key("shop", "default", name))


def asking(name: str) -> ObservedSubject:
    request = MachineRequest(name, (Item((FlavorChoice("small"),)),), SiteSelector(), tenant="shop")
    return ObservedSubject(name, "1", request=request, pending=True)


def bound(name: str, returned_from: str = "") -> ObservedSubject:
    held = Reservation(name, SITE, ResourceClaim((("small", 1),)), "shop")
    return ObservedSubject(name, "2", reservations=(held,), returned_from=returned_from)


def test_machines_go_one_at_a_time_to_a_cluster_that_took_none_until_it_takes_one() -> None:
    one = world()
    one.set_refusals(SITE, refused(A, B, C), 0.0, 0.0)
    for name in ("d", "e", "f"):
        one.observe(subject(name), asking(name), 1.0)
    found = one.next(1.0)
    assert isinstance(found, UnplacedSubject)
    assert found.reasons == {CLUSTER_REFUSED: 1}
    tried, *others = [one.next(200.0) for _ in range(3)]
    assert isinstance(tried, PlacedSubject)
    assert [isinstance(other, UnplacedSubject) for other in others] == [True, True]
    name = tried.request.uid
    one.end_write(name, 200.0)
    one.observe(subject(name), bound(name), 201.0)
    assert not one.has_recovered(SITE)
    one.observe(subject(name), bound(name, "edge1"), 202.0)
    assert one.has_recovered(SITE)
    one.wake(202.0)
    assert [isinstance(one.next(300.0), PlacedSubject) for _ in range(2)] == [True, True]


def test_what_is_there_already_when_a_scheduler_starts_forgives_nothing() -> None:
    one = world()
    one.set_refusals(SITE, refused(A, B, C), 0.0, 0.0)
    one.observe(subject("old"), bound("old", "edge1"), 1.0)
    assert not one.has_recovered(SITE)
