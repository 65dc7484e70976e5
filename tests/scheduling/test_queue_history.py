"""The queue against a twin that remembers facts and looks at all of them each time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from farflung.scheduling.queue import Counts, Queue
from farflung.scheduling.values import FlavorWish, Item, Request


@dataclass
class Fact:
    request: Request
    added: int
    refusals: int = 0
    held: bool = False
    changed: bool = False  #: while it was held
    helped: bool = False  #: since it was handed out last
    refused_at: float | None = None  #: None: not since it was new or changed

    @property
    def pauses_until(self) -> float:
        return (self.refused_at or 0) + [1, 2, 4, 8, 10][min(self.refusals, 5) - 1]

    @property
    def ready_at(self) -> float:
        if self.refused_at is None:
            return -math.inf
        return self.pauses_until if self.helped else self.refused_at + 60


class Twin:
    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}
        self.added = 0

    def update(self, request: Request, now: float) -> None:
        fact = self.facts.get(request.uid)
        if fact is None:
            self.added += 1
            self.facts[request.uid] = Fact(request, self.added)
        elif fact.request != request:
            fact.request, fact.refusals, fact.refused_at, fact.changed = request, 0, None, fact.held

    def remove(self, uid: str) -> None:
        self.facts.pop(uid, None)

    def pop(self, now: float) -> Request | None:
        ready = [fact for fact in self.facts.values() if not fact.held and fact.ready_at <= now]
        if not ready:
            return None
        fact = min(ready, key=lambda fact: (-fact.request.priority, fact.added))
        fact.held, fact.helped, fact.changed = True, False, False
        return fact.request

    def refuse(self, uid: str, now: float) -> None:
        fact = self.facts.get(uid)
        if fact is None or not fact.held:
            return
        fact.held = False
        if fact.changed:
            fact.refused_at = None
        else:
            fact.refusals += 1
            fact.refused_at = now

    def wake(self, now: float, flavors: set[str]) -> None:
        for fact in self.facts.values():
            if fact.request.items[0].flavors[0].id in flavors:
                fact.helped = True

    def next_at(self) -> float | None:
        return min((fact.ready_at for fact in self.facts.values() if not fact.held), default=None)

    def waiting(self, now: float) -> list[Request]:
        return [
            fact.request
            for fact in sorted(self.facts.values(), key=lambda fact: fact.added)
            if not fact.held and not fact.helped and fact.refused_at is not None and fact.ready_at > now
        ]

    def counts(self, now: float) -> Counts:
        held = sum(fact.held for fact in self.facts.values())
        ready = sum(not fact.held and fact.ready_at <= now for fact in self.facts.values())
        waiting = len(self.waiting(now))
        return Counts(ready, len(self.facts) - held - ready - waiting, waiting, held)


UIDS = st.sampled_from("abcde")
FLAVORS = st.sampled_from(["small", "large"])
REQUESTS = st.builds(
    lambda uid, flavor, priority: Request(uid, (Item(uid, (FlavorWish(flavor),)),), priority=priority),
    UIDS,
    FLAVORS,
    st.integers(0, 1),
)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["add", "update"]), REQUESTS),
    st.tuples(st.just("remove"), UIDS),
    st.tuples(st.just("pop"), st.none()),
    st.tuples(st.just("pop and refuse"), st.none()),
    st.tuples(st.just("refuse"), UIDS),
    st.tuples(st.just("wake"), st.sets(FLAVORS)),
    st.tuples(st.just("time"), st.sampled_from([0.5, 1.0, 3.0, 10.0, 30.0, 60.0])),
)


def do(queue: Queue, twin: Twin, now: float, what: str, argument: Any) -> None:
    match what:
        case "add" | "update":
            getattr(queue, what)(argument, now)
            twin.update(argument, now)
        case "remove":
            queue.remove(argument)
            twin.remove(argument)
        case "refuse":
            queue.refuse(argument, now)
            twin.refuse(argument, now)
        case "wake":
            queue.wake(now, lambda request: request.items[0].flavors[0].id in argument)
            twin.wake(now, argument)
        case "pop" | "pop and refuse":
            request = queue.pop(now)
            assert request == twin.pop(now)
            assert queue.waiting() == twin.waiting(now)
            assert queue.counts() == twin.counts(now)
            if request is not None and what == "pop and refuse":
                do(queue, twin, now, "refuse", request.uid)


@given(st.lists(STEPS, max_size=40))
def test_any_history_is_as_the_facts_say(steps: list[tuple[str, Any]]) -> None:
    queue, twin, now = Queue(), Twin(), 1000.0
    for what, argument in steps:
        if what == "time":
            now += argument
        else:
            do(queue, twin, now, what, argument)
        assert len(queue) == len(twin.facts)
        moment, expected = queue.next_at(), twin.next_at()
        if expected is None or moment is None or expected > now:
            assert moment == expected
        else:
            assert moment <= now


@given(st.lists(STEPS, max_size=40))
def test_everybody_is_handed_out_in_the_end(steps: list[tuple[str, Any]]) -> None:
    queue, twin, now = Queue(), Twin(), 1000.0
    for what, argument in steps:
        do(queue, twin, now, what, argument)
    everybody = set(twin.facts)
    for uid in everybody:
        queue.refuse(uid, now)
    assert {request.uid for _ in everybody if (request := queue.pop(now + 60))} == everybody
    assert queue.pop(now + 60) is None
