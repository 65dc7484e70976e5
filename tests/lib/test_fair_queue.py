"""The fair queue against a twin that searches all flows, and its promises to a flow."""

from __future__ import annotations

from collections import defaultdict

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.lib.fair_queue import FairQueue, FlowPath

WEIGHTS = {"a": 1.0, "b": 4.0}
PATHS = st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.sampled_from("12"))
COSTS = st.sampled_from([0.25, 0.5, 1.0, 8.0])
STEPS = st.lists(st.one_of(st.tuples(st.just("push"), PATHS), st.tuples(st.just("pop"), COSTS)), max_size=80)


class Twin:
    """Start-time fair queueing, by searching lists."""

    def __init__(self) -> None:
        self.waiting: dict[FlowPath, list[tuple[int, FlowPath]]] = defaultdict(list)
        self.used: dict[FlowPath, float] = defaultdict(float)
        self.clock: dict[FlowPath, float] = defaultdict(float)
        self.order: dict[FlowPath, int] = {}  #: when the member began to wait
        self.count = 0

    def length(self, path: FlowPath) -> int:
        return sum(len(items) for flow, items in self.waiting.items() if flow[: len(path)] == path)

    def push(self, path: FlowPath, item: tuple[int, FlowPath]) -> None:
        for depth in range(1, 4):
            member = path[:depth]
            if not self.length(member):
                self.used[member] = max(self.used[member], self.clock[path[: depth - 1]])
                self.begin(member)
        self.waiting[path].append(item)

    def begin(self, member: FlowPath) -> None:
        self.count += 1
        self.order[member] = self.count

    def pop(self) -> tuple[int, FlowPath]:
        member: FlowPath = ()
        for depth in range(1, 4):
            group = member
            members = {path[:depth] for path, items in self.waiting.items() if items and path[: depth - 1] == group}
            member = min(members, key=lambda one: (self.used[one], self.order[one]))
            self.clock[group] = max(self.clock[group], self.used[member])
        item = self.waiting[member].pop(0)
        for depth in range(1, 4):
            if self.length(member[:depth]):
                self.begin(member[:depth])
        for depth in range(3):
            if not self.length(member[:depth]):
                self.forget(member[:depth])
        return item

    def forget(self, group: FlowPath) -> None:
        for known in (self.used, self.clock):
            for path in [path for path in known if path[: len(group)] == group]:
                if path != group:
                    del known[path]
        self.clock.pop(group, None)

    def charge(self, path: FlowPath, seconds: float) -> None:
        for depth in range(1, 4):
            if path[:depth] in self.used:
                self.used[path[:depth]] += seconds / (WEIGHTS[path[0]] if depth == 1 else 1)


@settings(max_examples=examples(300))
@given(STEPS)
def test_the_order_equals_a_search_for_the_flow_that_used_least(steps: list[tuple[str, object]]) -> None:
    queue, twin = FairQueue[tuple[int, FlowPath]](WEIGHTS), Twin()
    for number, (what, value) in enumerate(steps):
        if what == "push":
            assert isinstance(value, tuple)
            queue.push(value, (number, value))
            twin.push(value, (number, value))
        elif len(queue):
            assert isinstance(value, float)
            item = queue.pop()
            assert item == twin.pop()
            queue.charge(item[1], value)
            twin.charge(item[1], value)
        for path in ((), ("a",), ("a", "x"), ("a", "x", "1")):
            assert queue.waiting(path) == twin.length(path)
    assert len(queue) == twin.length(())


def test_an_empty_queue_has_nothing_to_serve() -> None:
    with pytest.raises(IndexError):
        FairQueue[str]({}).pop()


def served(queue: FairQueue[FlowPath], count: int, cost: float = 1.0) -> list[FlowPath]:
    found = []
    for _ in range(count):
        path = queue.pop()
        queue.charge(path, cost)
        found.append(path)
    return found


def test_a_flow_that_was_idle_is_served_after_one_item_of_another() -> None:
    queue = FairQueue[FlowPath]({})
    for _ in range(1000):
        queue.push(("flood",), ("flood",))
    served(queue, 500)
    queue.push(("quiet",), ("quiet",))
    assert ("quiet",) in served(queue, 2)


def test_a_tenant_with_a_hundred_users_gets_as_much_as_one_with_one_user() -> None:
    queue = FairQueue[FlowPath]({})
    for number in range(100):
        for _ in range(3):
            queue.push(("many", str(number)), ("many", str(number)))
    for _ in range(300):
        queue.push(("one", "user"), ("one", "user"))
    tenants = [path[0] for path in served(queue, 200)]
    assert tenants.count("one") == 100


def test_a_flow_with_expensive_items_is_served_less_often() -> None:
    queue = FairQueue[str]({})
    for _ in range(100):
        queue.push(("lists",), "lists")
        queue.push(("gets",), "gets")
    order = []
    for _ in range(55):
        order.append(queue.pop())
        queue.charge((order[-1],), 10.0 if order[-1] == "lists" else 1.0)
    assert order.count("lists") == 5


def test_levels_share_by_weight() -> None:
    queue = FairQueue[FlowPath]({"high": 4.0, "low": 1.0})
    for _ in range(100):
        queue.push(("high", "x"), ("high", "x"))
        queue.push(("low", "x"), ("low", "x"))
    assert [path[0] for path in served(queue, 50)].count("high") == 40


@pytest.mark.parametrize("others", [0, 1])
def test_idle_flows_are_forgotten(others: int) -> None:
    queue = FairQueue[FlowPath]({})
    for _ in range(20_000 * others):
        queue.push(("busy",), ("busy",))
    for number in range(10_000):
        queue.push((str(number),), (str(number),))
        served(queue, 1)
    assert len(queue._root.members) < 200
