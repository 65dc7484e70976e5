"""What the server keeps in memory for clients that do not read, and whom it disconnects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from examples import examples
from http_harness import Client, Harness, Toy, eventually, parse_head
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.http.flow_control import WriteTurns
from farflung.http.limits import Limits
from farflung.http.messages import Flow, Sink
from farflung.http.unread import UnreadAccount, UnreadBudget

CLIENTS = 40
SIZE = 9_000_000
LITTLE = 1_000_000  #: bytes for each client, with those in the kernel


@pytest.fixture
def clients(server: Harness) -> Iterator[list[Client]]:
    opened = [server.connect(receive_buffer=4096) for _ in range(CLIENTS)]
    yield opened
    for client in opened:
        client.socket.close()


def all_paused(server: Harness) -> bool:
    connections = server.server._shared.connections
    return len(connections) == CLIENTS and all(connection.writing_paused for connection in connections)


def buffered(server: Harness) -> int:
    return sum(connection.buffered for connection in server.server._shared.connections)


@pytest.mark.parametrize("kind", ["made", "unsized"])
def test_bodies_are_produced_only_as_far_as_clients_read_them(
    server: Harness, toy: Toy, clients: list[Client], kind: str
) -> None:
    for client in clients:
        client.send(b"GET /%b/300/30000 HTTP/1.1\r\nHost: hub\r\n\r\n" % kind.encode())
    eventually(lambda: all_paused(server))
    assert toy.made < CLIENTS * LITTLE
    assert buffered(server) <= server.server.unread_bytes < CLIENTS * LITTLE
    for client in clients[1:]:
        client.socket.close()
    eventually(lambda: toy.ended == CLIENTS - 1)
    parse_head(clients[0].read_until(b"\r\n\r\n"))
    if kind == "made":
        assert clients[0].read_exactly(SIZE) == b"x" * SIZE
    else:
        assert b"".join(clients[0].read_chunk() for _ in range(300)) == b"x" * SIZE
    eventually(lambda: server.server.unread_bytes == 0)


def open_watches(toy: Toy, clients: list[Client]) -> list[Sink]:
    for number, client in enumerate(clients):
        client.send(b"GET /watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        eventually(lambda number=number: len(toy.watches) > number)
    sinks = [watch.sink for watch in toy.watches]
    assert all(sinks)
    return sinks  # type: ignore[return-value]


def test_events_that_many_clients_do_not_read_are_in_memory_once(
    server: Harness, toy: Toy, clients: list[Client]
) -> None:
    sinks = open_watches(toy, clients)

    def write(event: bytes) -> None:
        for sink in sinks:
            sink.write(event)

    for number in range(35):
        server.call(write, b"%d" % (number % 10) * 100_000)
    assert all(sink.buffered > 2_500_000 for sink in sinks)
    assert server.server.unread_bytes < CLIENTS * 300_000 + 35 * 100_000
    for client in clients[1:]:
        client.socket.close()
    clients[0].read_until(b"hello\n\r\n")
    assert b"".join(clients[0].read_chunk() for _ in range(35))[::100_000] == (b"0123456789" * 4)[:35]
    eventually(lambda: server.server.unread_bytes == 0)
    assert server.server.slow_clients == 0


def test_the_clients_with_the_most_unread_bytes_are_disconnected(
    start: Callable[..., Harness], toy: Toy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server = start(Limits(unread=5_000_000))
    with server.connect(receive_buffer=4096) as slow, server.connect(receive_buffer=4096) as slower:
        sinks = open_watches(toy, [slow, slower])
        for number in range(20):
            server.call(sinks[0].write, b"%d" % (number % 10) * 100_000)
        for _ in range(35):
            server.call(sinks[1].write, bytes(100_000))
        eventually(lambda: toy.watches[1].stopped)
        assert toy.watches[0].stopped == 0
        assert server.server.slow_clients == 1
        assert server.server.unread_bytes < 3_000_000
        slow.read_until(b"hello\n\r\n")
        assert len(b"".join(slow.read_chunk() for _ in range(20))) == 2_000_000
    assert "too much memory was kept for clients that read slowly" in caplog.text


@pytest.mark.parametrize("reads", [True, False])
def test_a_stream_can_wait_until_its_client_has_read(server: Harness, toy: Toy, reads: bool) -> None:
    with server.connect(receive_buffer=4096) as client:
        client.send(b"GET /pour HTTP/1.1\r\nHost: hub\r\n\r\n")
        eventually(lambda: any(connection.writing_paused for connection in server.server._shared.connections))
        assert toy.made < LITTLE
        assert not toy.ended
        if reads:
            client.read_until(b"\r\n\r\n")
            assert b"".join(client.read_chunk() for _ in range(300)) == b"x" * SIZE
    eventually(lambda: toy.ended == 1)
    eventually(lambda: toy.watches[0].stopped == 1)


# --- the budget -----------------------------------------------------------------------------------

OWNERS = st.sampled_from(["ann", "bob"])
THINGS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), OWNERS, st.just(0)),
        st.tuples(st.just("hold"), st.integers(0, 7), THINGS),
        st.tuples(st.just("release"), st.integers(0, 7), THINGS),
        st.tuples(st.just("close"), st.integers(0, 7), st.just(0)),
    ),
    max_size=60,
)


class Twin:
    """Recomputes all sums."""

    def __init__(self, limit: int, sizes: list[int]) -> None:
        self.limit = limit
        self.sizes = sizes
        self.owners: list[str] = []
        self.held: dict[int, Counter[int]] = {}  #: by account

    def distinct(self, owner: str = "") -> int:
        accounts = [held for number, held in self.held.items() if not owner or self.owners[number] == owner]
        return sum(self.sizes[thing] for thing in {thing for held in accounts for thing in held.elements()})

    def size(self, account: int) -> int:
        return sum(self.sizes[thing] for thing in self.held[account].elements())

    def enforce(self) -> None:
        while self.distinct() > self.limit:
            most = max({self.owners[number] for number in self.held}, key=self.distinct)
            del self.held[max((number for number in self.held if self.owners[number] == most), key=self.size)]


@settings(max_examples=examples(200))
@given(STEPS)
def test_the_owner_with_the_most_distinct_bytes_loses_its_largest_account(steps: list[tuple[str, object, int]]) -> None:
    sizes = [3, 5, 11, 23, 47, 97]  # all sums differ, so that there is one answer
    things = [object() for _ in sizes]
    budget, twin = UnreadBudget(150), Twin(150, sizes)
    accounts: list[UnreadAccount] = []
    lost: set[int] = set()
    for step, who, thing in steps:
        if step == "open":
            twin.held[len(accounts)] = Counter()
            twin.owners.append(str(who))
            number = len(accounts)
            accounts.append(budget.open(str(who), lambda number=number: lost.add(number)))
        elif isinstance(who, int) and who < len(accounts):
            if step == "hold":
                accounts[who].hold(things[thing], sizes[thing])
                if who in twin.held:
                    twin.held[who][thing] += 1
                    twin.enforce()
            elif step == "release":
                accounts[who].release(things[thing])
                if twin.held.get(who, Counter())[thing]:
                    twin.held[who][thing] -= 1
            else:
                accounts[who].close()
                twin.held.pop(who, None)
                lost.discard(who)
        assert budget.total == twin.distinct()
        assert lost.isdisjoint(twin.held)
        assert [account.size for number, account in enumerate(accounts) if number in twin.held] == [
            twin.size(number) for number in twin.held
        ]
    assert budget.disconnected >= len(lost)


# --- turns ----------------------------------------------------------------------------------------


class Loop:
    """Notes what is to be called in the next turn."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, function: Callable[[], None]) -> None:
        self.soon.append(function)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for function in soon:
            function()


def test_clients_with_expensive_bodies_delay_others_by_a_burst() -> None:
    loop, now, done = Loop(), 0.0, Counter[str]()
    turns = WriteTurns(loop, {}, lambda: now)  # type: ignore[arg-type]

    def begin(tenant: str, seconds: float) -> None:
        flow = Flow("workload-low", tenant, tenant)

        def burst() -> None:
            nonlocal now
            now += seconds
            done[tenant] += 1
            turns.wait(flow, burst)

        turns.wait(flow, burst)

    for _ in range(50):
        begin("ann", 0.001)
    for _ in range(10):
        loop.turn()
    assert now == pytest.approx(0.02)
    begin("bob", 0.0001)
    before = now
    while not done["bob"]:
        loop.turn()
    assert now - before < 0.005
    for _ in range(100):
        loop.turn()
    assert done["bob"] * 0.0001 == pytest.approx((done["ann"] - 20) * 0.001, rel=0.2)
