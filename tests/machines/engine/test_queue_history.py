"""The queue against a twin that remembers facts and looks at all of them each time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from farflung.machines.engine.queue import QueueCounts, SchedulingQueue
from farflung.machines.engine.values import FlavorChoice, Item, MachineRequest


@dataclass
class Fact:
    request: MachineRequest
    added: int
    place: str = "ready"  #: or held, or waiting
    refusals: int = 0
    refused_at: float = 0.0
    changed: bool = False  #: while it was held
    helped: bool = False  #: while it was held
    last: bool = False  #: it is ready although nothing happened

    @property
    def shape(self) -> str:
        return self.request.items[0].flavors[0].id

    @property
    def pauses_until(self) -> float:
        return self.refused_at + [1, 2, 4, 8, 10][min(self.refusals, 5) - 1]


class Twin:
    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}
        self.added = 0
        self.hopeful: set[str] = set()  #: shapes of whom the first tries again
        self.last: str | None = None  #: the shape of the last one that was handed out, unless it was refused

    def found(self, place: str, shape: str | None = None) -> list[Fact]:
        """The best first."""
        facts = [fact for fact in self.facts.values() if fact.place == place and shape in (None, fact.shape)]
        return sorted(facts, key=lambda fact: (-fact.request.priority, fact.place == "ready" and fact.last, fact.added))

    def update(self, request: MachineRequest) -> None:
        fact = self.facts.get(request.uid)
        if fact is None:
            self.added += 1
            self.facts[request.uid] = Fact(request, self.added)
        elif fact.request != request:
            self.give_way(fact)
            fact.request, fact.refusals, fact.changed, fact.last = request, 0, fact.place == "held", False
            fact.place = "held" if fact.place == "held" else "ready"

    def remove(self, uid: str) -> None:
        if fact := self.facts.pop(uid, None):
            self.give_way(fact)

    def give_way(self, fact: Fact) -> None:
        if fact.place == "ready" and fact.refusals:
            self.hopeful.add(fact.shape)

    def pop(self, now: float) -> MachineRequest | None:
        self.follow()
        self.settle(now)
        for fact in self.found("ready"):
            fact.place, fact.changed, fact.helped, self.last = "held", False, False, fact.shape
            return fact.request
        return None

    def follow(self) -> None:
        if self.last is not None:
            self.hopeful.add(self.last)
            self.last = None

    def settle(self, now: float) -> None:
        for fact in self.found("waiting"):
            if fact.refused_at + 60 <= now:
                fact.place, fact.last = "ready", True
        for shape in self.hopes():
            first = self.found("waiting", shape)[0]
            if first.pauses_until <= now:
                first.place = "ready"
                self.hopeful.discard(shape)

    def hopes(self) -> set[str]:
        """Of those alone that somebody has."""
        self.hopeful = {shape for shape in self.hopeful if self.found("waiting", shape)}
        return self.hopeful.copy()

    def refuse(self, uid: str, now: float) -> None:
        fact = self.facts.get(uid)
        if fact is None or fact.place != "held":
            return
        fact.place = "ready" if fact.changed else "waiting"
        if fact.changed:
            return
        fact.refusals, fact.refused_at, fact.last = fact.refusals + 1, now, False
        if fact.helped:
            self.hopeful.add(fact.shape)
        else:
            self.hopeful.discard(fact.shape)
            self.last = None if self.last == fact.shape else self.last

    def wake(self, now: float, flavors: set[str]) -> None:
        self.hopeful |= flavors
        for fact in self.found("held"):
            fact.helped = fact.helped or fact.shape in flavors
        self.settle(now)

    def next_at(self) -> float | None:
        self.follow()
        if self.found("ready"):
            return -math.inf
        moments = [fact.refused_at + 60 for fact in self.found("waiting")]
        moments += [self.found("waiting", shape)[0].pauses_until for shape in self.hopes()]
        return min(moments, default=None)

    def waiting(self) -> list[MachineRequest]:
        return [fact.request for fact in sorted(self.found("waiting"), key=lambda fact: fact.added)]

    def counts(self) -> QueueCounts:
        pausing, waiting = len(self.hopes()), len(self.found("waiting"))
        return QueueCounts(len(self.found("ready")), pausing, waiting - pausing, len(self.found("held")))


UIDS = st.sampled_from("abcde")
FLAVORS = st.sampled_from(["small", "large"])
REQUESTS = st.builds(
    lambda uid, flavor, priority: MachineRequest(uid, (Item((FlavorChoice(flavor),)),), priority=priority),
    UIDS,
    FLAVORS,
    st.integers(0, 1),
)
STEPS = st.one_of(
    st.tuples(st.just("put"), REQUESTS),
    st.tuples(st.just("remove"), UIDS),
    st.tuples(st.just("pop"), st.none()),
    st.tuples(st.sampled_from(["pop and refuse", "pop and remove", "look"]), st.none()),
    st.tuples(st.just("refuse"), UIDS),
    st.tuples(st.just("wake"), st.sets(FLAVORS)),
    st.tuples(st.just("time"), st.sampled_from([0.5, 1.0, 3.0, 10.0, 30.0, 60.0])),
)


def do(queue: SchedulingQueue, twin: Twin, now: float, what: str, argument: Any) -> None:
    match what:
        case "put":
            queue.put(argument, now)
            twin.update(argument)
        case "remove":
            queue.remove(argument)
            twin.remove(argument)
        case "refuse":
            queue.refuse(argument, now)
            twin.refuse(argument, now)
        case "wake":
            queue.wake(now, lambda request: request.items[0].flavors[0].id in argument)
            twin.wake(now, argument)
        case "pop" | "pop and refuse" | "pop and remove":
            request = queue.pop(now)
            assert request == twin.pop(now)
            if request is not None and what != "pop":
                do(queue, twin, now, what.removeprefix("pop and "), request.uid)
        case "look":
            assert queue.next_at() == twin.next_at()


@given(st.lists(STEPS, max_size=60))
def test_any_history_is_as_the_facts_say(steps: list[tuple[str, Any]]) -> None:
    queue, twin, now = SchedulingQueue(), Twin(), 1000.0
    for what, argument in steps:
        if what == "time":
            now += argument
        else:
            do(queue, twin, now, what, argument)
        twin.hopes()
        assert (len(queue), queue.counts(), queue.waiting()) == (len(twin.facts), twin.counts(), twin.waiting())


@given(st.lists(STEPS, max_size=40))
def test_everybody_is_handed_out_in_the_end(steps: list[tuple[str, Any]]) -> None:
    queue, twin, now = SchedulingQueue(), Twin(), 1000.0
    for what, argument in steps:
        do(queue, twin, now, what, argument)
    everybody = set(twin.facts)
    for uid in everybody:
        queue.refuse(uid, now)
    assert {request.uid for _ in everybody if (request := queue.pop(now + 60))} == everybody
    assert queue.pop(now + 60) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=30), st.integers(0, 20))
def test_nobody_waits_who_would_fit(arrivals: list[tuple[bool, int]], released: int) -> None:
    """Machines of two sizes in one place: after something was released nobody waits for whom there is room."""
    sizes = {"small": 1, "large": 3}
    queue, room = SchedulingQueue(), 5

    def decide(now: float) -> None:
        nonlocal room
        while request := queue.pop(now):
            size = sizes[request.items[0].flavors[0].id]
            if size <= room:
                room -= size
                queue.remove(request.uid)
            else:
                queue.refuse(request.uid, now)

    for number, (large, priority) in enumerate(arrivals):
        wish = FlavorChoice("large" if large else "small")
        queue.put(MachineRequest(str(number), (Item((wish,)),), priority=priority), 0.0)
        decide(0.0)
    room += released
    queue.wake(5.0, lambda request: sizes[request.items[0].flavors[0].id] <= room)
    decide(5.0)
    assert all(sizes[request.items[0].flavors[0].id] > room for request in queue.waiting())
