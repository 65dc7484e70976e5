"""Answers without an end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from http_harness import Client, Harness, Toy, eventually, parse_head

from farflung.http.limits import Limits
from farflung.http.messages import Sink

WATCH = b"GET /watch HTTP/1.1\r\nHost: hub\r\n\r\n"
GET = b"GET /echo HTTP/1.1\r\nHost: hub\r\n\r\n"


def open_watch(server: Harness, toy: Toy, client: Client, request: bytes = WATCH, *, begins: bool = True) -> Sink:
    client.send(request)
    assert parse_head(client.read_until(b"\r\n\r\n")).headers["transfer-encoding"] == "chunked"
    if begins:
        assert client.read_chunk() == b"hello\n"
    sink = toy.watches[-1].sink
    assert sink is not None
    return sink


@pytest.mark.parametrize("path", [b"/watch", b"/lookup"])
def test_each_small_write_is_one_chunk_and_the_connection_lives_on(server: Harness, toy: Toy, path: bytes) -> None:
    with server.connect() as client:
        sink = open_watch(server, toy, client, b"GET %b HTTP/1.1\r\nHost: hub\r\n\r\n" % path)
        for event in (b"one", b"", b"two", b"x" * 300_000, b"three"):
            server.call(sink.write, event)
        assert client.read_chunk() == b"one"
        assert client.read_chunk() == b"two"
        assert read_chunked(client, 300_005) == b"x" * 300_000 + b"three"
        assert sink.buffered == 0
        server.call(sink.close)
        server.call(sink.write, b"nothing")
        server.call(sink.close)
        assert client.read_until(b"0\r\n\r\n") == b"0\r\n\r\n"
        client.send(GET)
        assert client.read_answer().status == 200
    assert toy.watches[0].stopped == 1


def test_an_old_client_reads_a_stream_to_the_end_of_the_connection(server: Harness, toy: Toy) -> None:
    with server.connect() as client:
        client.send(b"GET /watch HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        head = parse_head(client.read_until(b"\r\n\r\n"))
        assert "transfer-encoding" not in head.headers
        assert head.headers["connection"] == "close"
        sink = toy.watches[0].sink
        assert sink is not None
        server.call(sink.write, b"event\n")
        server.call(sink.close)
        assert client.read_all() == b"hello\nevent\n"


def test_a_stream_may_end_in_its_own_start(server: Harness, toy: Toy) -> None:
    with server.connect() as client:
        for _ in range(2):
            client.send(b"GET /short HTTP/1.1\r\nHost: hub\r\n\r\n")
            client.read_until(b"\r\n\r\n")
            assert client.read_until(b"0\r\n\r\n") == b"6\r\nhello\n\r\n0\r\n\r\n"
    eventually(lambda: [watch.stopped for watch in toy.watches] == [1, 1])


def test_a_stream_that_cannot_start_is_cut_off(server: Harness, toy: Toy, caplog: pytest.LogCaptureFixture) -> None:
    with server.connect() as client:
        client.send(b"GET /stillborn HTTP/1.1\r\nHost: hub\r\n\r\n")
        assert b"0\r\n\r\n" not in client.read_all()
    eventually(lambda: toy.watches[0].stopped == 1)
    assert "no such watch" in caplog.text


def test_the_head_of_a_stream_can_be_asked_for(server: Harness, toy: Toy) -> None:
    with server.connect() as client:
        client.send(b"HEAD /watch HTTP/1.1\r\nHost: hub\r\n\r\n" + GET)
        assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 200")
    eventually(lambda: toy.watches[0].stopped == 1)


def test_what_is_pipelined_behind_a_stream_is_dropped_and_said_so(server: Harness, toy: Toy) -> None:
    with server.connect() as client:
        client.send(WATCH + GET)
        assert parse_head(client.read_until(b"\r\n\r\n")).headers["connection"] == "close"
        sink = toy.watches[0].sink
        assert sink is not None
        server.call(sink.close)
        assert client.read_all() == b"6\r\nhello\n\r\n0\r\n\r\n"
    assert server.server.requests == 1


LEAVING = [lambda client: client.socket.close(), Client.reset, Client.finish_sending]


@pytest.mark.parametrize("leave", LEAVING, ids=["close", "reset", "close half"])
def test_a_watcher_that_leaves_is_noticed_at_once(server: Harness, toy: Toy, leave: Callable[[Client], None]) -> None:
    with server.connect() as client:
        sink = open_watch(server, toy, client)
        leave(client)
        eventually(lambda: toy.watches[0].stopped == 1)
        server.call(sink.write, b"into the void")
        server.call(sink.close)
        server.call(sink.abort)
        assert sink.buffered == 0
    eventually(lambda: server.server.open_connections == 0)
    assert toy.watches[0].stopped == 1


def test_writing_to_a_watcher_that_just_disconnected_does_not_raise(server: Harness, toy: Toy) -> None:
    """Within one turn of the loop: the connection is dead but has not been told."""
    with server.connect() as gone, server.connect() as alive:
        dead_sink = open_watch(server, toy, gone)
        live_sink = open_watch(server, toy, alive)

        def fan_out() -> None:
            gone.reset()
            for _ in range(20):
                for sink in (dead_sink, live_sink):
                    sink.write(b"x" * 50_000)

        server.call(fan_out)
        for _ in range(20):
            assert alive.read_chunk() == b"x" * 50_000
    eventually(lambda: [watch.stopped for watch in toy.watches] == [1, 1])


def test_a_slow_watcher_is_cut_off_while_the_others_go_on(start: Callable[..., Harness], toy: Toy) -> None:
    server = start(Limits(stream_buffer=200_000))
    with server.connect(receive_buffer=4096) as slow, server.connect() as quick:
        slow_sink = open_watch(server, toy, slow)
        quick_sink = open_watch(server, toy, quick)
        event = b"e" * 10_000
        sent = 0
        stopped_within_fan_out = []
        while not toy.watches[0].stopped:
            assert sent < 10_000

            def fan_out() -> None:
                before = toy.watches[0].stopped
                for sink in (slow_sink, quick_sink):
                    sink.write(event)
                stopped_within_fan_out.append(toy.watches[0].stopped != before)

            server.call(fan_out)
            sent += 1
            assert quick.read_chunk() == event
        server.call(quick_sink.close)
        assert quick.read_until(b"0\r\n\r\n")
        received = slow.read_all()
    assert not any(stopped_within_fan_out)
    assert not received.endswith(b"0\r\n\r\n")
    eventually(lambda: server.server.open_connections == 0)


def test_what_a_stream_begins_with_makes_no_slow_watcher(start: Callable[..., Harness], toy: Toy) -> None:
    server = start(Limits(stream_buffer=1000))
    burst = [b"e" * 10_000] * 500
    begin_with(toy, burst)
    with server.connect(receive_buffer=4096) as client:
        sink = open_watch(server, toy, client, begins=False)
        for event in burst:
            assert client.read_chunk() == event
        assert client.read_chunk() == b"hello\n"
        server.call(sink.close)
        assert client.read_until(b"0\r\n\r\n")


def begin_with(toy: Toy, pieces: list[bytes]) -> None:
    """Every watch begins with these."""
    original = toy.answer_watch

    def answer_watch(request):  # type: ignore[no-untyped-def]
        stream = original(request)

        def begin(sink: Sink) -> None:
            sink.begin(lambda holder: iter(pieces))
            toy.watches[-1].start(sink)

        stream.start = begin
        return stream

    toy.answer_watch = answer_watch  # type: ignore[method-assign]


def read_chunked(client: Client, size: int) -> bytes:
    received = b""
    while len(received) < size:
        received += client.read_chunk()
    return received


def test_the_beginning_of_a_stream_is_produced_at_the_clients_speed(server: Harness, toy: Toy) -> None:
    pieces = [bytes(range(256)) * 400] * 100 + [b"small"]
    begin_with(toy, pieces)
    with server.connect(receive_buffer=4096) as client:
        sink = open_watch(server, toy, client, begins=False)
        (connection,) = server.server._shared.connections
        eventually(lambda: connection.writing_paused)
        server.call(lambda: sink.write(b"live"))
        server.call(sink.close)
        server.call(lambda: sink.write(b"too late"))
        assert connection.buffered < 500_000
        assert toy.watches[0].stopped == 0
        expected = b"".join(pieces) + b"hello\nlive"
        assert read_chunked(client, len(expected)) == expected
        assert client.read_until(b"0\r\n\r\n") == b"0\r\n\r\n"
    eventually(lambda: toy.watches[0].stopped == 1)


def test_what_waits_behind_the_beginning_is_limited(start: Callable[..., Harness], toy: Toy) -> None:
    server = start(Limits(stream_buffer=100_000))
    begin_with(toy, [b"s" * 20_000_000])
    with server.connect(receive_buffer=4096) as client:
        sink = open_watch(server, toy, client, begins=False)
        for _ in range(11):
            assert toy.watches[0].stopped == 0
            server.call(lambda: sink.write(b"e" * 10_000))
        eventually(lambda: toy.watches[0].stopped == 1)
        assert not client.read_all().endswith(b"0\r\n\r\n")


def test_a_client_that_leaves_at_the_beginning_is_forgotten(server: Harness, toy: Toy) -> None:
    begin_with(toy, [b"s" * 20_000_000])
    with server.connect(receive_buffer=4096) as client:
        open_watch(server, toy, client, begins=False)
    eventually(lambda: toy.watches[0].stopped == 1)
    eventually(lambda: server.server.open_connections == 0)


def test_a_watcher_that_talks_is_listened_to_only_so_long(server: Harness, toy: Toy) -> None:
    with server.connect() as client:
        open_watch(server, toy, client)
        client.send(b"x" * 1000)
        assert toy.watches[0].stopped == 0
        client.send(b"x" * 100_000)
        eventually(lambda: toy.watches[0].stopped == 1)


def test_a_stream_after_which_the_client_talked_is_the_last(server: Harness, toy: Toy) -> None:
    with server.connect() as client:
        sink = open_watch(server, toy, client)
        client.send(GET)
        (connection,) = server.server._shared.connections
        eventually(lambda: connection._unexpected)
        server.call(sink.close)
        assert client.read_all() == b"0\r\n\r\n"


def test_a_stream_can_be_cut_without_a_clean_end(server: Harness, toy: Toy) -> None:
    with server.connect() as client:
        sink = open_watch(server, toy, client)
        server.call(sink.abort)
        assert client.read_all() == b""
    eventually(lambda: toy.watches[0].stopped == 1)


@pytest.mark.parametrize("leave", LEAVING, ids=["close", "reset", "close half"])
def test_a_stream_for_a_client_that_left_is_started_and_stopped_all_the_same(
    server: Harness, toy: Toy, leave: Callable[[Client], None]
) -> None:
    stream_later = toy.answer_watch

    async def answer_gate(request):  # type: ignore[no-untyped-def]
        await type(toy).answer_gate(toy, request)
        return stream_later(request)

    toy.answer_gate = answer_gate  # type: ignore[method-assign]
    with server.connect() as client:
        client.send(b"GET /gate/1 HTTP/1.1\r\nHost: hub\r\n\r\n")
        eventually(lambda: "/gate/1" in toy.gates)
        (connection,) = server.server._shared.connections
        leave(client)
        eventually(lambda: connection._half_closed or server.server.open_connections == 0)
    server.loop.call_soon_threadsafe(toy.gates["/gate/1"].set)
    eventually(lambda: toy.watches and toy.watches[0].stopped == 1)
    assert toy.watches[0].sink is not None


def test_many_watchers_share_the_bytes_of_an_event(server: Harness, toy: Toy) -> None:
    clients = [server.connect() for _ in range(50)]
    sinks = [open_watch(server, toy, client) for client in clients]
    events = [b"first", b"second", b"first", b"second"]

    def fan_out() -> None:
        for event in events:
            for sink in sinks:
                sink.write(event)

    server.call(fan_out)
    for client in clients:
        assert [client.read_chunk() for _ in events] == events
        client.socket.close()
    eventually(lambda: sum(watch.stopped for watch in toy.watches) == 50)


def test_a_watch_behind_a_flood_still_sees_its_client_leave(start: Callable[..., Harness], toy: Toy) -> None:
    server = start(Limits(pipelined=1))
    with server.connect() as client:
        client.send(b"GET /gate/1 HTTP/1.1\r\nHost: hub\r\n\r\n" + GET + WATCH + GET * 1000)
        eventually(lambda: "/gate/1" in toy.gates)
        server.loop.call_soon_threadsafe(toy.gates["/gate/1"].set)
        client.read_until(b"hello\n\r\n")
    eventually(lambda: toy.watches[0].stopped == 1)
    eventually(lambda: server.server.open_connections == 0)
