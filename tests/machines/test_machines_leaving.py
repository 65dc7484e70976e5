"""Who tries again, and who has to leave a cluster, and when: by what the scheduler knows, without a server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farflung.machines import decide as worlds
from farflung.machines.decide import SchedulerState
from farflung.machines.engine.engine import SchedulingEngine
from farflung.machines.engine.policy import default_policy
from farflung.machines.engine.values import (
    Capacity,
    FlavorChoice,
    Health,
    Item,
    MachineRequest,
    MachineToleration,
    Reservation,
    ResourceClaim,
    Site,
    SiteKey,
    SiteSelector,
    SiteTaint,
)
from farflung.machines.failover import UNHEALTHY, FailoverOptions, MachineRefusal
from farflung.machines.subjects import (
    COPY,
    POD,
    ObservedSubject,
    PlacedSubject,
    SchedulingSubject,
    UnplacedSubject,
)
from farflung.runtime.cache import Key

PATIENCE = FailoverOptions(tolerated=300.0, vanished=5.0)


def world(*names: str) -> SchedulerState:
    found = SchedulerState(SchedulingEngine(default_policy(), {}), PATIENCE, lambda author: {})
    for name in names:
        found.put_site(site(name), 0.0)
    return found


def key(name: str) -> SiteKey:
    return SiteKey("clouds", "default", name)


def site(name: str, health: Health = Health.READY, *taints: SiteTaint) -> Site:
    return Site(key(name), uid=name, health=health, taints=taints, capacity=Capacity({"small": 9}))


def subject(name: str) -> SchedulingSubject:
    return SchedulingSubject(POD, Key("shop", "default", name))


def asking(name: str, *tolerations: MachineToleration) -> ObservedSubject:
    items = (Item((FlavorChoice("small"),)),)
    request = MachineRequest(name, items, SiteSelector(tolerations=tolerations), tenant="shop")
    return ObservedSubject(name, "1", request=request, pending=True, tolerations=tolerations)


def bound(name: str, home: str, *tolerations: MachineToleration) -> ObservedSubject:
    held = Reservation(name, key(home), ResourceClaim((("small", 1),)), "shop")
    return ObservedSubject(name, "2", reservations=(held,), tolerations=tolerations)


def test_machines_bound_to_a_cluster_deleted_during_downtime_leave_it() -> None:
    one = world("az1", "az2")
    one.observe(subject("a"), bound("a", "gone"), 100.0)
    assert one.due_evictions(104.0) == []
    assert one.due_evictions(105.0) == [(subject("a"), key("gone"))]


def test_a_cluster_that_is_heard_of_after_its_machines_keeps_them() -> None:
    one = world("az1", "az2")
    one.observe(subject("a"), bound("a", "az3"), 100.0)
    one.put_site(site("az3"), 101.0)
    assert one.due_evictions(1000.0) == []
    assert one.unhealthy == []


def test_clusters_that_are_no_more_hold_nothing_back() -> None:
    one = world("az1", "az2", "az3")
    for name in ("az1", "az2"):
        one.observe(subject(name), bound(name, name), 0.0)
        one.remove_site(key(name), 0.0)
    assert one.due_evictions(10.0) == [(subject("az1"), key("az1")), (subject("az2"), key("az2"))]


def test_machines_that_name_missing_clusters_delay_no_failover() -> None:
    one = world("az1", "az2", "az3")
    for number in range(9):
        one.observe(subject(f"forged{number}"), bound(f"forged{number}", f"nowhere{number}"), 0.0)
    one.observe(subject("a"), bound("a", "az1"), 0.0)
    one.put_site(site("az1", Health.DOWN), 0.0)
    assert (subject("a"), key("az1")) in one.due_evictions(400.0)


def test_nothing_goes_where_it_would_have_to_leave_at_once() -> None:
    for_a_while = MachineToleration("broken", "Exists", effect="NoExecute", seconds=60)
    one = world()
    one.put_site(site("az1", Health.READY, SiteTaint("broken", effect="NoExecute")), 0.0)
    one.observe(subject("a"), asking("a", for_a_while), 10.0)
    assert isinstance(one.next(10.0), PlacedSubject)
    one.observe(subject("b"), asking("b", for_a_while), 61.0)
    assert isinstance(one.next(61.0), UnplacedSubject)
    one.put_site(site("az2"), 62.0)
    one.wake(62.0)
    found = one.next(63.0)
    assert isinstance(found, PlacedSubject)
    assert found.decision.chosen[0].site == key("az2")


def test_a_machine_finds_no_other_place_that_it_would_have_to_leave_too() -> None:
    for_a_while = MachineToleration("broken", "Exists", effect="NoExecute", seconds=60)
    one = world()
    for name in ("az1", "az2"):
        one.put_site(site(name, Health.READY, SiteTaint("broken", effect="NoExecute")), 0.0)
    one.observe(subject("a"), bound("a", "az1", for_a_while), 0.0)
    request = asking("a", for_a_while).request
    assert request is not None
    assert one.fits_elsewhere(request, key("az1"), 10.0)
    assert not one.fits_elsewhere(request, key("az1"), 100.0)


def test_only_who_is_there_and_is_still_the_same_has_to_leave() -> None:
    one = world("az1", "az2", "az3")
    one.observe(subject("a"), bound("a", "az1"), 0.0)
    one.put_site(site("az1", Health.DOWN), 0.0)
    assert one.is_eviction_due(subject("a"), key("az1"), 300.0)
    assert not one.is_eviction_due(subject("a"), key("az1"), 299.0)
    assert not one.is_eviction_due(subject("a"), key("az2"), 300.0)
    one.put_site(site("az1"), 301.0)
    assert not one.is_eviction_due(subject("a"), key("az1"), 302.0)
    one.observe(subject("a"), bound("another", "az2"), 303.0)
    assert not one.is_eviction_due(subject("a"), key("az1"), 1000.0)


def test_a_change_triggers_a_bounded_number_of_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "MAX_CHECKS", 1)
    one = world()
    one.observe(subject("a"), asking("a"), 0.0)
    assert isinstance(one.next(0.0), UnplacedSubject)
    for changes, tried in ((1, False), (2, True)):
        for number in range(changes):
            one.put_site(site(f"az{changes}{number}", Health.DOWN), 10.0 * changes)
        one.wake(10.0 * changes)
        assert isinstance(one.next(10.0 * changes), UnplacedSubject) is tried


def test_nothing_leaves_because_a_clock_was_set() -> None:
    one = world("az2", "az3")
    one.put_site(site("az1", Health.DOWN), 0.0)
    one.observe(subject("a"), bound("a", "az1"), 0.0)
    one.put_site(site("az1", Health.UNREACHABLE), 10.0, ages={UNHEALTHY: 3600.0})
    assert one.due_evictions(299.0) == []
    assert one.due_evictions(300.0) == [(subject("a"), key("az1"))]


def test_sites_of_files_that_nobody_named_this_time_keep_what_they_have() -> None:
    one = world("az1")
    held = Reservation("a", SiteKey("", "", "az9"), ResourceClaim((("small", 1),)), "shop")
    one.observe(subject("a"), ObservedSubject("a", "2", reservations=(held,)), 0.0)
    assert one.due_evictions(1000.0) == []


def test_what_is_wrong_with_a_cluster_counts_each_by_its_own_time() -> None:
    broken, old = SiteTaint("broken", effect="NoExecute"), SiteTaint("old", effect="NoExecute")
    patient = (MachineToleration("broken", "Exists", seconds=60), MachineToleration("old", "Exists"))
    one = world("az2", "az3")
    one.put_site(site("az1", Health.READY, old), 0.0)
    one.observe(subject("a"), bound("a", "az1", *patient), 0.0)
    one.put_site(site("az1", Health.READY, old, broken), 1000.0)
    assert one.due_evictions(1059.0) == []
    assert one.due_evictions(1060.0) == [(subject("a"), key("az1"))]
    one.put_site(site("az1", Health.DOWN, old), 1070.0)
    assert not one.is_eviction_due(subject("a"), key("az1"), 1369.0)
    assert one.is_eviction_due(subject("a"), key("az1"), 1370.0)


def test_a_machine_that_its_cluster_does_not_take_leaves_it_although_there_is_no_other_and_is_not_brought_back() -> (
    None
):
    one = world("az1")
    one.observe(subject("a"), bound("a", "az1"), 0.0)
    one.refuse(subject("a"), MachineRefusal(key("az1"), 10.0, by_cluster=True))
    assert one.due_evictions(39.0) == []
    assert one.due_evictions(40.0) == [(subject("a"), key("az1"))]
    one.observe(subject("a"), replace(asking("a"), refused_by=((key("az1"), 1),)), 41.0)
    found = one.next(41.0)
    assert isinstance(found, UnplacedSubject)
    assert found.message == "0/1 clusters fit: 1 refused it"
    one.observe(subject("a"), asking("a"), 42.0)  # an operator clears the refusals
    assert isinstance(one.next(42.0), PlacedSubject)


def test_who_has_ended_is_where_it_was_and_holds_nothing() -> None:
    one = world("az1")
    one.observe(subject("a"), bound("a", "az1"), 0.0)
    one.observe(subject("a"), ObservedSubject("a", "3", finished_at=key("az1")), 1.0)
    assert (one.subjects_at(key("az1")), one.workspaces(key("az1"))) == ([], {"shop"})
    assert len(one.engine.usage(key("az1")).stacks) == 0
    one.observe(subject("a"), None, 2.0)
    assert one.workspaces(key("az1")) == set()


def test_a_copy_of_what_was_deleted_holds_its_room_and_is_not_moved() -> None:
    one, copy = world("az1"), SchedulingSubject(COPY, Key("mailbox", "default", "a"))
    one.observe(copy, bound("copy", "az1"), 0.0)
    assert len(one.engine.usage(key("az1")).stacks) == 1
    assert (one.machines(key("az1")), one.workspaces(key("az1"))) == ([], set())
    one.remove_site(key("az1"), 1.0)
    assert one.due_evictions(1000.0) == []
    one.observe(copy, None, 1001.0)
    assert len(one.engine.usage(key("az1")).stacks) == 0
