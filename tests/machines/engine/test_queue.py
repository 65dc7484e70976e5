from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from farflung.machines.engine.queue import QueueCounts, SchedulingQueue, shape_of
from farflung.machines.engine.values import FlavorChoice, Item, MachineRequest, RegionChoice, SiteSelector


def wish(uid: str, *, flavor: str = "c6.large.2", priority: int = 0, **more: Any) -> MachineRequest:
    """Of a virtual machine that is called like its uid."""
    return MachineRequest(uid, (Item((FlavorChoice(flavor),)),), priority=priority, **more)


def queue_of(*requests: MachineRequest) -> SchedulingQueue:
    queue = SchedulingQueue()
    for now, request in enumerate(requests):
        queue.put(request, float(now))
    return queue


def popped(queue: SchedulingQueue, now: float) -> list[str]:
    """The uids of all that it hands out now."""
    found = []
    while request := queue.pop(now):
        found.append(request.uid)
    return found


def anything(request: MachineRequest) -> bool:
    return True


def nothing(request: MachineRequest) -> bool:
    return False


def of_flavor(flavor: str) -> Callable[[MachineRequest], bool]:
    return lambda request: request.items[0].flavors[0].id == flavor


# --- order ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("priorities", "expected"),
    [
        ([0, 0, 0], "abc"),
        ([0, 0, 9], "cab"),
        ([-1, 0, -1], "bac"),
        ([2_000_000_000, -2_000_000_000, 2_000_000_000], "acb"),
    ],
)
def test_the_highest_priority_is_first_and_of_equals_who_came_first(priorities: list[int], expected: str) -> None:
    queue = queue_of(*(wish(uid, priority=priority) for uid, priority in zip("abc", priorities, strict=True)))
    assert popped(queue, 10) == list(expected)


def test_no_key_has_two_workers_however_often_it_is_added() -> None:
    queue = queue_of(wish("a"), wish("a"), wish("b"))
    assert len(queue) == 2
    queue.put(wish("a"), 5)
    assert popped(queue, 10) == ["a", "b"]
    queue.put(wish("a"), 11)
    assert queue.pop(11) is None


def test_one_that_was_refused_keeps_its_age() -> None:
    queue = queue_of(wish("old"))
    assert popped(queue, 1) == ["old"]
    queue.refuse("old", 1)
    queue.put(wish("young"), 2)
    queue.wake(3, anything)
    assert popped(queue, 3) == ["old", "young"]


def test_one_whose_priority_changes_changes_its_place_but_not_its_age() -> None:
    queue = queue_of(wish("a"), wish("b"), wish("c", priority=1))
    queue.put(wish("b", priority=1), 5)
    assert popped(queue, 5) == ["b", "c", "a"]


# --- pauses ---------------------------------------------------------------------------------------


def test_who_is_refused_again_and_again_pauses_1_2_4_8_10_and_10_seconds() -> None:
    queue = queue_of(wish("a"))
    now = 100.0
    for pause in (1, 2, 4, 8, 10, 10, 10):
        assert popped(queue, now) == ["a"]
        queue.wake(now, anything)  # while it is held
        queue.refuse("a", now)
        assert queue.next_at() == now + pause
        assert queue.pop(now + pause - 0.001) is None
        now += pause


def test_a_thousand_refusals_are_no_trouble() -> None:
    queue = queue_of(wish("a"))
    for number in range(2000):
        assert popped(queue, number * 60.0)
        queue.refuse("a", number * 60.0)


def test_without_anything_that_helps_one_is_tried_again_after_a_minute() -> None:
    queue = queue_of(wish("a"))
    popped(queue, 5)
    queue.refuse("a", 5)
    queue.wake(20, nothing)
    assert queue.next_at() == 65
    assert popped(queue, 64.9) == []
    assert popped(queue, 65) == ["a"]


def test_what_helps_during_the_pause_counts_after_it() -> None:
    queue = queue_of(wish("a"))
    popped(queue, 5)
    queue.refuse("a", 5)
    queue.wake(5.2, anything)
    assert queue.counts() == QueueCounts(ready=0, pausing=1, waiting=0, held=0)
    assert popped(queue, 5.9) == []
    assert popped(queue, 6) == ["a"]


def test_what_helps_after_the_pause_counts_at_once() -> None:
    queue = queue_of(wish("a"))
    popped(queue, 5)
    queue.refuse("a", 5)
    queue.wake(7, anything)
    assert queue.next_at() == -math.inf
    assert popped(queue, 7) == ["a"]


def test_a_change_clears_the_pauses() -> None:
    queue = queue_of(wish("a"))
    for now in (0, 60, 120):
        popped(queue, now)
        queue.refuse("a", now)
    queue.put(wish("a", flavor="m1.nano"), 120.5)
    assert popped(queue, 120.5) == ["a"]
    queue.wake(120.5, anything)
    queue.refuse("a", 120.5)
    assert queue.next_at() == 121.5


def test_a_change_ends_a_pause_too() -> None:
    queue = queue_of(wish("a"))
    popped(queue, 0)
    queue.wake(0, anything)
    queue.refuse("a", 0)
    queue.put(wish("a", flavor="m1.nano"), 0.5)
    assert popped(queue, 0.5) == ["a"]


def test_an_update_that_changes_nothing_notifies_no_watcher() -> None:
    queue = queue_of(wish("a"))
    popped(queue, 0)
    queue.refuse("a", 0)
    queue.put(wish("a"), 5)
    assert queue.pop(5) is None
    assert queue.waiting() == [wish("a")]


# --- what happens while one is held -----------------------------------------------------------------


def test_one_that_changes_while_it_is_held_is_handed_out_as_it_is_now() -> None:
    queue = queue_of(wish("a"))
    popped(queue, 0)
    queue.put(wish("a", flavor="m1.nano"), 1)
    assert queue.pop(1) is None
    queue.refuse("a", 2)
    assert queue.pop(2) == wish("a", flavor="m1.nano")


def test_what_could_not_have_helped_the_one_that_is_held_does_not_count() -> None:
    queue = queue_of(wish("a"))
    popped(queue, 0)
    queue.wake(1, of_flavor("m1.nano"))
    queue.refuse("a", 2)
    assert queue.next_at() == 62


def test_what_helped_before_it_was_handed_out_does_not_count_again() -> None:
    queue = queue_of(wish("a"))
    popped(queue, 0)
    queue.wake(0, anything)
    queue.refuse("a", 0)
    assert popped(queue, 1) == ["a"]
    queue.refuse("a", 1)
    assert queue.next_at() == 61


def test_one_that_is_removed_while_it_is_held_does_not_come_back() -> None:
    queue = queue_of(wish("a"))
    popped(queue, 0)
    queue.remove("a")
    queue.refuse("a", 1)
    assert (len(queue), "a" in queue, queue.next_at()) == (0, False, None)


def test_one_that_is_removed_and_added_while_it_is_held_is_a_new_one() -> None:
    queue = queue_of(wish("a"))
    popped(queue, 0)
    queue.remove("a")
    queue.put(wish("a"), 1)
    queue.refuse("a", 2)  # of the one that is gone
    assert popped(queue, 2) == ["a"]


@pytest.mark.parametrize("wakes", [False, True])
def test_one_can_be_removed_wherever_it_is(wakes: bool) -> None:
    queue = queue_of(wish("a"), wish("b"))
    queue.remove("b")
    popped(queue, 0)
    queue.refuse("a", 0)
    if wakes:
        queue.wake(0, anything)
    queue.remove("a")
    queue.remove("never known")
    assert (len(queue), queue.counts(), queue.next_at()) == (0, QueueCounts(0, 0, 0, 0), None)
    assert queue.pop(1000) is None


# --- shapes -----------------------------------------------------------------------------------------


def queue_with_many_who_wait() -> SchedulingQueue:
    """A hundred of each of three flavors, whose pauses are over."""
    queue = queue_of(*(wish(f"vm-{number:03}", flavor=f"f{number % 3}") for number in range(300)))
    for uid in popped(queue, 0):
        queue.refuse(uid, 0)
    return queue


def test_callers_with_the_same_question_share_one_review() -> None:
    queue = queue_with_many_who_wait()
    asked: list[str] = []

    def could(request: MachineRequest) -> bool:
        asked.append(request.items[0].flavors[0].id)
        return False

    queue.wake(30, could)
    assert sorted(asked) == ["f0", "f1", "f2"]
    assert queue.counts() == QueueCounts(ready=0, pausing=0, waiting=300, held=0)


def test_while_nobody_is_refused_the_next_one_like_it_follows() -> None:
    queue = queue_with_many_who_wait()
    queue.wake(30, of_flavor("f1"))
    assert popped(queue, 30) == [f"vm-{number:03}" for number in range(1, 300, 3)]


def test_when_one_is_refused_those_like_it_are_not_tried() -> None:
    queue = queue_with_many_who_wait()
    queue.wake(30, of_flavor("f1"))
    assert queue.pop(30) == wish("vm-001", flavor="f1")
    queue.remove("vm-001")  # it is placed
    assert queue.pop(30) == wish("vm-004", flavor="f1")
    queue.refuse("vm-004", 30)
    assert queue.pop(30) is None
    assert queue.next_at() == 60


def test_the_first_of_those_who_wait_is_the_most_important_one() -> None:
    queue = queue_of(wish("a"), wish("b", priority=1), wish("c"))
    for uid in popped(queue, 0):
        queue.refuse(uid, 0)
    queue.wake(30, anything)
    assert popped(queue, 30) == ["b", "a", "c"]


def test_one_that_is_removed_before_it_tried_leaves_that_to_the_next_one() -> None:
    queue = queue_of(wish("a"), wish("b"))
    for uid in popped(queue, 0):
        queue.refuse(uid, 0)
    queue.wake(30, anything)
    queue.remove("a")
    assert popped(queue, 30) == ["b"]


@pytest.mark.parametrize(
    "other",
    [
        wish("a", flavor="m1.nano"),
        wish("a", replicas=2),
        wish("a", tenant="t"),
        wish("a", selector=SiteSelector(regions=(RegionChoice("region1"),))),
    ],
)
def test_what_a_decision_depends_on_is_part_of_the_shape(other: MachineRequest) -> None:
    assert shape_of(other) != shape_of(wish("a"))


def test_names_priorities_and_the_order_of_labels_are_not_part_of_the_shape() -> None:
    one = wish("a", labels={"x": "1", "y": "2"})
    assert shape_of(one) == shape_of(wish("b", priority=7, labels={"y": "2", "x": "1"}))


def test_who_tries_again_for_no_reason_keeps_nobody_waiting_who_is_new() -> None:
    queue = SchedulingQueue()
    for number in range(3):
        queue.put(wish(f"old{number}", flavor=f"flavor{number}"), 0.0)
        queue.pop(0.0)
        queue.refuse(f"old{number}", 0.0)
    queue.put(wish("new"), 60.0)
    assert popped(queue, 60.0) == ["new", "old0", "old1", "old2"]


def test_labels_are_nothing_that_a_decision_depends_on() -> None:
    assert shape_of(wish("a", labels={"app": "a"})) == shape_of(
        MachineRequest("b", wish("a").items, labels={"app": "b"})
    )
