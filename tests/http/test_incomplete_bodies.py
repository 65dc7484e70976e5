"""Bodies that do not arrive with their heads: who may send them, and how much memory they take together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http_harness import Client, Harness, Toy, eventually, replies
from hypothesis import given
from hypothesis import strategies as st

from farflung.http.limits import BodyBudget, Limits
from farflung.http.messages import Request, Response

LIMIT = 100_000


def admit(request: Request) -> str | Response:
    """Senders are named by their Authorization header."""
    return request.headers.get("authorization") or Response(401, b"who?")


@pytest.fixture
def guarded(toy: Toy) -> Iterator[Harness]:
    harness = Harness(toy, Limits(incomplete_bodies=LIMIT), admit=admit)
    yield harness
    harness.close()


def head(sender: bytes, length: int, *headers: bytes) -> bytes:
    lines = [b"POST /echo HTTP/1.1", b"Host: hub", b"Content-Length: %d" % length, *headers]
    if sender:
        lines.append(b"Authorization: " + sender)
    return b"\r\n".join([*lines, b"", b""])


def held(server: Harness) -> int:
    return server.server._shared.bodies.total


def send_part(client: Client, server: Harness, sender: bytes, size: int) -> None:
    """Send a head, and `size` bytes of a body that never ends."""
    before = held(server)
    client.send(head(sender, 1_000_000) + b"x" * size)
    eventually(lambda: held(server) == before + size)


def test_a_body_of_an_unauthenticated_sender_is_refused_at_its_head(guarded: Harness, toy: Toy) -> None:
    with guarded.connect() as client:
        client.send(head(b"", 1_000_000) + b"x" * 10)
        (reply,) = replies(client.read_all())
    assert (reply.status, reply.headers["connection"]) == (401, "close")
    assert (held(guarded), toy.requests) == (0, [])


def test_an_unauthenticated_sender_is_not_told_to_continue(guarded: Harness) -> None:
    with guarded.connect() as client:
        client.send(head(b"", 10, b"Expect: 100-continue"))
        assert client.read_all().startswith(b"HTTP/1.1 401")


def test_requests_before_a_refused_body_are_answered(guarded: Harness) -> None:
    with guarded.connect() as client:
        client.send(b"GET /later HTTP/1.1\r\nHost: hub\r\n\r\n" + head(b"", 1_000_000) + b"x")
        assert [reply.status for reply in replies(client.read_all())] == [200, 401]


def test_the_memory_of_a_body_is_released_when_it_is_complete_or_its_client_vanishes(guarded: Harness) -> None:
    with guarded.connect() as client, guarded.connect() as other:
        client.send(head(b"ann", 20_000) + b"x" * 19_999)
        eventually(lambda: held(guarded) == 19_999)
        send_part(other, guarded, b"bob", 10_000)
        client.send(b"x")
        assert client.read_answer().status == 200
        assert held(guarded) == 10_000
        client.send(head(b"ann", 20_000) + b"x" * 5)
        eventually(lambda: held(guarded) == 10_005)
        other.reset()
        eventually(lambda: held(guarded) == 5)


def test_the_sender_with_the_most_bytes_loses_its_largest_body(guarded: Harness) -> None:
    with guarded.connect() as small, guarded.connect() as large, guarded.connect() as modest:
        send_part(modest, guarded, b"bob", 30_000)
        send_part(small, guarded, b"ann", 20_000)
        send_part(large, guarded, b"ann", 45_000)
        modest.send(b"x" * 10_000)
        reply = large.read_answer()
        assert (reply.status, reply.json["reason"], reply.headers["retry-after"]) == (429, "TooManyRequests", "1")
        eventually(lambda: held(guarded) == 60_000)


def test_a_body_waits_until_the_requests_before_it_are_answered(guarded: Harness, toy: Toy) -> None:
    with guarded.connect() as client:
        client.send(b"GET /gate/1 HTTP/1.1\r\nHost: hub\r\n\r\n")
        eventually(lambda: "/gate/1" in toy.gates)
        client.send(head(b"ann", 90_000))
        for _ in range(30):
            client.send(b"x" * 3_000)
        with guarded.connect() as other:  # its answer means that the server has had its turn
            other.send(b"GET /echo HTTP/1.1\r\nHost: hub\r\n\r\n")
            other.read_answer()
        assert held(guarded) < 90_000
        guarded.loop.call_soon_threadsafe(toy.gates["/gate/1"].set)
        assert client.read_answer().body == b"/gate/1"
        assert len(client.read_answer().json["body"]) == 90_000


class Connection:
    """Notes that its body was refused."""

    def __init__(self) -> None:
        self.refused = False

    def refuse_body(self) -> None:
        self.refused = True


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 60)), max_size=40))
def test_the_budget_equals_a_list_of_all_bodies(steps: list[tuple[int, int, int]]) -> None:
    """Each step: a sender's connection has a body of this size, or none if it is 0."""
    budget, connections = BodyBudget(100), {(s, c): Connection() for s in range(4) for c in range(6)}
    bodies: dict[tuple[int, int], int] = {}
    for sender, number, size in steps:
        connection = connections[sender, number]
        if not size:
            budget.release(connection)
            bodies.pop((sender, number), None)
        else:
            bodies[sender, number] = size
            budget.hold(connection, str(sender), size)
        while sum(bodies.values()) > 100:
            totals = {s: sum(size for (owner, _), size in bodies.items() if owner == s) for s, _ in bodies}
            heaviest = max(totals.values())
            refused = [
                key
                for key in bodies
                if totals[key[0]] == heaviest
                and bodies[key] == max(size for (owner, _), size in bodies.items() if owner == key[0])
                and connections[key].refused
            ]
            assert len(refused) == 1
            connections[refused[0]].refused = False
            del bodies[refused[0]]
        assert not any(connection.refused for connection in connections.values())
        assert budget.total == sum(bodies.values())
