"""However long processes stand still, and whatever becomes of what they send: never two at work at once."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import orjson
import pytest
from examples import examples
from hub_harness import LocalHub
from hypothesis import given, settings
from hypothesis import strategies as st
from local_transport import LocalReply
from processes import EPOCH, Link, Process, World, served_by
from scripted_server import Scripted, ScriptedServer, failure, said

from farflung.apis.names import Collection
from farflung.client.errors import ClientError
from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.runtime.environment import Environment
from farflung.runtime.leader import Candidate, LeaseRef, Precedence, Terms

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/work"
WIDGETS = Collection("acme.io", "v1", "widgets", "Widget")
JSON = {"Content-Type": "application/json"}
TERMS = Terms()
QUIET = Logger(io.StringIO())
#: after which everybody who can lead has found out
SETTLED = 2 * TERMS.lasting + TERMS.deadline


@dataclass
class Election:
    """Some processes that want to lead, and what they did."""

    world: World
    hub: LocalHub
    ask: Any
    remembered: bool = False  #: who is started again is who it was
    acts: list[int] = field(default_factory=list)  #: by which term, in order
    at_work: dict[int, Process] = field(default_factory=dict)  #: by term
    terms: Iterator[int] = field(default_factory=itertools.count)
    log: io.StringIO = field(default_factory=io.StringIO)
    said: dict[str, str] = field(default_factory=dict)  #: by each of them who leads
    candidates: dict[str, Candidate] = field(default_factory=dict)
    precedences: dict[str, Precedence] = field(default_factory=dict)  #: by name; others are equal

    def join(self, name: str) -> Process:
        process = self.world.process(name)
        self.enter(process)
        return process

    def restart_who_ended(self) -> None:
        for process in self.world.processes:
            if process.ended:
                self.enter(process)

    def enter(self, process: Process) -> None:
        env = Environment(process.loop.time, asyncio.sleep, lambda: 0.5, Backoff(1, 30, lambda: 1.0))
        identity = process.name if self.remembered else f"{process.name}-{next(self.terms)}"
        client, log = Client(process), Logger(self.log)
        precedence = self.precedences.get(process.name, Precedence.EQUAL)
        lease = LeaseRef(client, "default", "work", lambda: dict(self.said), precedence)
        candidate = self.candidates[process.name] = Candidate(lease, identity, env, process.clock, log)
        process.start(lambda: candidate.lead(lambda: self._work(process, candidate)))

    async def _work(self, process: Process, candidate: Candidate) -> None:
        term = next(self.terms)
        client = candidate.guarded(Client(Ledger(self, term)))
        self.at_work[term] = process
        try:
            while True:
                with suppress(ClientError):
                    await client.create(WIDGETS, {})
                await asyncio.sleep(0.5)
        finally:
            del self.at_work[term]

    def check(self) -> None:
        awake = [term for term, process in self.at_work.items() if not process.paused]
        assert len(awake) <= 1, f"two are at work: {awake}"
        spans = [term for term, _ in itertools.groupby(self.acts)]
        assert len(spans) == len(set(spans)), f"one went on after another had begun: {spans}"

    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds, self.check)

    @property
    def leaders(self) -> list[str]:
        return [process.name for process in self.at_work.values()]

    def lease(self) -> dict[str, Any]:
        status, body = self.ask(OutgoingRequest("GET", LEASE))
        return orjson.loads(body) if status == 200 else {}

    def tell(self, method: str, body: Any = None) -> int:
        data = b"" if body is None else orjson.dumps(body)
        status, _ = self.ask(OutgoingRequest(method, LEASE, JSON, data))
        return int(status)


@dataclass
class Ledger:
    """Where the leaders write; what arrives here was allowed."""

    election: Election
    term: int

    def open(self, request: OutgoingRequest) -> Any:
        self.election.acts.append(self.term)
        return _Answered()


class _Answered:
    async def __aenter__(self) -> LocalReply:
        return LocalReply(201, {}, _empty)

    async def __aexit__(self, *_: object) -> None:
        pass


async def _empty() -> Any:
    yield b"{}"


@contextmanager
def election(*names: str, remembered: bool = False, **precedences: Precedence) -> Iterator[Election]:
    hub = LocalHub.in_memory()

    async def ask(request: OutgoingRequest) -> tuple[int, bytes]:
        path, _, query = request.target.partition("?")
        media = {"content_type": request.headers["Content-Type"]} if request.body else {}
        answer = await hub.request(request.method, path, request.body or None, query=query, **media)
        return answer.status, answer.body

    server, close = served_by(ask)
    server(
        OutgoingRequest(
            "POST", "/api/v1/namespaces", {"Content-Type": "application/json"}, b'{"metadata":{"name":"default"}}'
        )
    )
    made = Election(World(server), hub, server, remembered, precedences=precedences)
    try:
        for name in names:
            made.join(name)
        yield made
    finally:
        made.world.close()
        close()


def other(made: Election, name: str) -> Process:
    return next(process for process in made.world.processes if process.name != name)


def named(made: Election, name: str) -> Process:
    return next(process for process in made.world.processes if process.name == name)


# --- plain stories ----------------------------------------------------------------------------------


def test_one_of_two_leads_and_stays_leader() -> None:
    with election("a", "b") as made:
        made.pass_time(SETTLED)
        [leader] = made.leaders
        made.pass_time(SETTLED)
        assert made.leaders == [leader]
        assert len(set(made.acts)) == 1
        spec = made.lease()["spec"]
        assert spec["holderIdentity"].startswith(leader)
        assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (15, 0)
        assert spec["renewTime"] > spec["acquireTime"]


def test_a_waiting_candidate_logs_the_holder_once() -> None:
    with election("a", "b", remembered=True) as made:
        made.pass_time(SETTLED)
        for _ in range(2):
            [leader] = made.leaders
            said = [line for line in made.log.getvalue().splitlines() if f'holder="{leader}"' in line]
            assert len(said) == 1
            assert f'identity="{other(made, leader).name}"' in said[0]
            named(made, leader).stop()
            made.pass_time(TERMS.pause * 2)
            made.restart_who_ended()
            made.pass_time(SETTLED)


def test_a_leader_that_stops_releases_the_lease_at_once() -> None:
    with election("a", "b") as made:
        made.pass_time(5)
        [leader] = made.leaders
        named(made, leader).stop()
        made.pass_time(TERMS.pause * 2)
        assert made.leaders == [other(made, leader).name]
        assert made.lease()["spec"]["leaseTransitions"] == 1


@pytest.mark.parametrize("remembered", [False, True])
def test_a_killed_leader_continues_at_once_if_it_remembers_its_identity(remembered: bool) -> None:
    with election("a", "b", remembered=remembered) as made:
        made.pass_time(5)
        [leader] = made.leaders
        named(made, leader).kill()
        made.pass_time(0.5)
        assert made.leaders == []
        made.restart_who_ended()
        made.pass_time(TERMS.pause)
        assert made.leaders == ([leader] if remembered else [])
        made.pass_time(SETTLED)
        assert len(made.leaders) == 1


def test_the_last_leader_that_stops_leaves_a_lease_without_a_holder() -> None:
    with election("a") as made:
        made.pass_time(5)
        named(made, "a").stop()
        made.pass_time(5)
        assert named(made, "a").ended
        assert made.lease()["spec"].get("holderIdentity", "") == ""


def test_a_paused_leader_is_replaced_and_does_nothing_after_it_resumes() -> None:
    with election("a", "b") as made:
        made.pass_time(5)
        [leader] = made.leaders
        sleeper = named(made, leader)
        sleeper.paused = True
        made.pass_time(SETTLED)
        assert set(made.leaders) == {"a", "b"}
        sleeper.paused = False
        made.pass_time(SETTLED)
        assert made.leaders == [other(made, leader).name]


def test_a_leader_that_was_paused_briefly_continues() -> None:
    with election("a", "b") as made:
        made.pass_time(5)
        before = made.leaders
        named(made, before[0]).paused = True
        made.pass_time(5)
        named(made, before[0]).paused = False
        made.pass_time(SETTLED)
        assert made.leaders == before
        assert len(set(made.acts)) == 1


def test_without_a_server_no_candidate_leads_and_one_does_after_it_returns() -> None:
    with election("a", "b") as made:
        made.pass_time(5)
        for process in made.world.processes:
            process.link = Link(up=False)
        made.pass_time(TERMS.deadline + 1)
        assert made.leaders == []
        for process in made.world.processes:
            process.link = Link()
        made.pass_time(SETTLED)
        assert len(made.leaders) == 1


@pytest.mark.parametrize("link", [Link(there=None), Link(back=None), Link(there=9.0, back=9.0)])
def test_a_leader_whose_requests_or_answers_get_lost_stops_before_the_other_starts(link: Link) -> None:
    with election("a", "b") as made:
        made.pass_time(5)
        [leader] = made.leaders
        named(made, leader).link = link
        made.pass_time(3 * SETTLED)
        assert made.leaders == [other(made, leader).name]


@pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(days=400), timedelta(seconds=-2)])
def test_clocks_on_the_wall_may_jump(jump: timedelta) -> None:
    with election("a", "b") as made:
        made.pass_time(5)
        before = made.leaders
        for process in made.world.processes:
            process.wall += jump
            made.pass_time(SETTLED)
        assert made.leaders == before


def test_a_clock_that_stands_still_is_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Process, "clock", lambda self: EPOCH)
    with election("a", "b") as made:
        made.pass_time(2 * SETTLED)
        assert len(set(made.acts)) == 1


def test_a_deleted_lease_is_not_acquired_while_its_holder_may_still_lead() -> None:
    with election("a", "b") as made:
        made.pass_time(5)
        before = made.leaders
        for _ in range(20):
            assert made.tell("DELETE") == 200
            made.pass_time(3)
        assert made.leaders == before


def test_a_lease_that_is_given_to_another_holder_ends_the_term() -> None:
    with election("a") as made:
        made.pass_time(5)
        lease = made.lease()
        lease["spec"]["holderIdentity"] = "somebody"
        assert made.tell("PUT", lease) == 200
        made.pass_time(TERMS.pause + 1)
        assert made.leaders == []
        made.pass_time(SETTLED)
        assert made.leaders == ["a"]


def test_the_leader_notes_on_the_lease_what_it_says_and_leaves_notes_of_others() -> None:
    with election("a") as made:
        made.said = {"example.com/work": "well", "example.com/trouble": ""}
        made.pass_time(SETTLED)
        assert made.lease()["metadata"]["annotations"] == {"example.com/work": "well"}
        lease = made.lease()
        lease["metadata"]["annotations"]["example.com/other"] = ""
        assert made.tell("PUT", lease) == 200
        made.said = {"example.com/work": "", "example.com/trouble": "some"}
        made.pass_time(SETTLED)
        assert made.lease()["metadata"]["annotations"] == {"example.com/other": "", "example.com/trouble": "some"}


def test_labels_on_the_lease_do_not_prevent_its_release() -> None:
    with election("a", "b") as made:
        made.pass_time(5)
        [leader] = made.leaders
        lease = made.lease()
        lease["metadata"]["labels"] = {"a": "b"}
        assert made.tell("PUT", lease) == 200
        named(made, leader).stop()
        made.pass_time(TERMS.pause * 2)
        assert made.leaders == [other(made, leader).name]
        assert made.lease()["metadata"]["labels"] == {"a": "b"}


def test_a_candidate_waits_from_its_first_failed_attempt_until_it_leads() -> None:
    with election("a") as made:
        made.pass_time(SETTLED)
        b = made.join("b")
        assert not made.candidates["b"].waits
        made.pass_time(SETTLED)
        assert made.candidates["b"].waits
        named(made, "a").stop()
        made.pass_time(SETTLED)
        assert made.leaders == ["b"]
        assert not made.candidates["b"].waits
        b.stop()


# --- precedence -------------------------------------------------------------------------------------

REQUESTED_BY = "farflung.io/requested-by"
FIRST, LAST = Precedence.FIRST, Precedence.LAST


def requested_by(made: Election) -> str | None:
    found: str | None = (made.lease()["metadata"].get("annotations") or {}).get(REQUESTED_BY)
    return found


def test_the_last_leaves_the_lease_to_the_first_and_takes_it_back() -> None:
    with election("own", own=LAST, hand=FIRST) as made:
        made.pass_time(SETTLED)
        assert made.leaders == ["own"]
        hand = made.join("hand")
        made.pass_time(TERMS.renewal + 4 * TERMS.pause)
        assert made.leaders == ["hand"]
        assert requested_by(made) is None
        made.pass_time(SETTLED)
        assert made.leaders == ["hand"], "the last one asks for nothing"
        hand.stop()
        made.pass_time(3 * TERMS.pause)
        assert made.leaders == ["own"]


def test_a_lease_that_its_requester_never_takes_is_taken_back() -> None:
    with election("own", own=LAST) as made:
        made.pass_time(SETTLED)
        lease = made.lease()
        lease["metadata"]["annotations"] = {REQUESTED_BY: "died", "a": "b"}
        assert made.tell("PUT", lease) == 200
        made.pass_time(TERMS.renewal + TERMS.pause)
        assert made.leaders == []
        made.pass_time(SETTLED)
        assert made.leaders == ["own"]
        assert made.lease()["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize("holder", [FIRST, Precedence.EQUAL])
def test_no_other_holder_leaves_the_lease_to_a_requester(holder: Precedence) -> None:
    with election("a", a=holder, b=FIRST) as made:
        made.pass_time(SETTLED)
        made.join("b")
        made.pass_time(2 * SETTLED)
        assert made.leaders == ["a"]
        assert len(set(made.acts)) == 1


def test_several_requesters_do_not_make_a_dead_holder_look_alive() -> None:
    with election("own", own=LAST, b=FIRST, c=FIRST) as made:
        made.pass_time(SETTLED)
        named(made, "own").kill()
        made.join("b")
        made.join("c")
        made.pass_time(SETTLED)
        assert len(made.leaders) == 1


# --- any story --------------------------------------------------------------------------------------

DELAYS = st.sampled_from([0.0, 0.5, 3.0, 8.0, 12.0, 20.0, None])
WHO = st.sampled_from("ab")
EVENTS = st.one_of(
    st.tuples(st.just("pause"), WHO, st.none()),
    st.tuples(st.just("resume"), WHO, st.none()),
    st.tuples(st.just("link"), WHO, st.builds(Link, DELAYS, DELAYS, st.booleans())),
    st.tuples(st.just("heal"), WHO, st.none()),
    st.tuples(st.just("restart"), WHO, st.none()),
    st.tuples(st.just("kill"), WHO, st.none()),
    st.tuples(st.just("wall"), WHO, st.sampled_from([-100.0, -0.25, 100.0])),
)
STORIES = st.lists(st.tuples(EVENTS, st.sampled_from([0.25, 1.0, 2.5, 6.0, 11.0, 16.0])), max_size=14)


def happen(made: Election, what: str, process: Process, how: Any) -> None:
    match what:
        case "pause":
            process.paused = True
        case "resume":
            process.paused = False
        case "link":
            process.link = replace(how)
        case "heal":
            process.link = Link()
        case "wall":
            process.wall += timedelta(seconds=how)
        case "restart":
            process.stop()
        case "kill":
            process.kill()


@settings(max_examples=examples(60))
@given(STORIES, st.booleans(), st.sampled_from(Precedence), st.sampled_from(Precedence))
def test_in_any_history_at_most_one_candidate_leads_and_finally_one_does(
    story: Any, remembered: bool, a: Precedence, b: Precedence
) -> None:
    with election("a", "b", remembered=remembered, a=a, b=b) as made:
        for (what, name, how), seconds in story:
            happen(made, what, named(made, name), how)
            made.pass_time(seconds)
            made.restart_who_ended()
        for process in made.world.processes:
            process.paused, process.link = False, Link()
        made.pass_time(TERMS.pause * 2)
        made.restart_who_ended()
        made.pass_time(SETTLED)
        assert len(made.leaders) == 1
        if {a, b} == {FIRST, LAST}:
            made.pass_time(SETTLED)
            assert made.leaders == ["a" if a is FIRST else "b"]


# --- the work, and servers that say odd things ------------------------------------------------------


async def quickly(seconds: float) -> None:
    await asyncio.sleep(0)


def candidate(client: Client) -> Candidate:
    time = itertools.count()
    env = Environment(lambda: next(time) / 1000, quickly, lambda: 0.5, Backoff(1, 30, lambda: 1.0))
    return Candidate(LeaseRef(client, "default", "work"), "me", env, lambda: EPOCH, QUIET)


def stored(request: OutgoingRequest) -> Scripted:
    if request.method == "GET":
        return failure(404, "NotFound")
    return said({**orjson.loads(request.body), "metadata": {"name": "work", "resourceVersion": "1"}})


async def test_work_that_ends_ends_the_lead() -> None:
    done = []

    async def work() -> None:
        done.append(1)

    await candidate(Client(ScriptedServer(stored))).lead(work)
    assert done == [1]


async def test_what_the_work_raises_is_raised_as_it_is() -> None:
    async def work() -> None:
        raise OSError("the port is in use")

    with pytest.raises(OSError, match="the port is in use"):
        await candidate(Client(ScriptedServer(stored))).lead(work)


ODD = [
    said([]),
    said({}),
    said({"metadata": {"resourceVersion": "1"}, "spec": "x"}),
    said({"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": 5}}),
    said({"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "x", "leaseTransitions": "many"}}),
    said({"metadata": {}, "spec": {"holderIdentity": "x"}}),
    Scripted(200, [b"<html>"]),
    failure(500),
    failure(403, "Forbidden"),
]


@pytest.mark.parametrize("answer", ODD)
async def test_odd_answers_are_waited_out(answer: Scripted) -> None:
    odd = 5

    def script(request: OutgoingRequest) -> Scripted:
        nonlocal odd
        odd -= 1
        return answer if odd > 0 else stored(request)

    async def work() -> None:
        pass

    await candidate(Client(ScriptedServer(script))).lead(work)


async def test_a_candidate_that_does_not_lead_may_read_but_not_write() -> None:
    server = ScriptedServer(lambda request: said({}))
    client = candidate(Client(server)).guarded(Client(server, "/clusters/x", "me"))
    assert await client.get(WIDGETS, "a") == {}
    for writing in (client.create(WIDGETS, {}), client.delete(WIDGETS, "a"), client.patch(WIDGETS, "a", {})):
        with pytest.raises(ClientError, match="we do not lead any more"):
            await writing
    assert [request.method for request in server.requests] == ["GET"]
    assert client.prefix == "/clusters/x"
