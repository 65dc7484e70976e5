"""Clients that take their time, and the end of the server."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Callable

import pytest
import uvloop
from http_harness import Harness, Toy, eventually, parse_head, replies

from farflung.http.limits import Limits
from farflung.http.messages import Request, Response
from farflung.http.server import serve

GET = b"GET /echo HTTP/1.1\r\nHost: hub\r\n\r\n"


@pytest.mark.parametrize(
    "beginning",
    [
        b"G",
        b"GET / HTTP/1.1\r\nHost: hub\r\n",
        b"POST / HTTP/1.1\r\nHost: hub\r\nContent-Length: 10\r\n\r\nhalf",
        b"POST / HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        GET + b"GET",
    ],
)
def test_a_request_that_does_not_end_times_out(start: Callable[..., Harness], beginning: bytes) -> None:
    server = start(Limits(header_timeout=0.05, body_timeout=0.05))
    with server.connect() as client:
        client.send(beginning)
        *_, last = replies(client.read_all())
    assert (last.status, last.json["reason"]) == (408, "Timeout")
    eventually(lambda: server.server.open_connections == 0)


def test_a_drip_of_bytes_does_not_extend_the_time(start: Callable[..., Harness]) -> None:
    server = start(Limits(header_timeout=0.1, linger=0.1))
    with server.connect() as client:
        client.send(b"GET / HTTP/1.1\r\nHost: hub\r\nX: ")
        client.socket.setblocking(False)
        eventually(lambda: (client.send(b"y"), server.server.open_connections == 0)[1])


def test_a_drip_of_empty_lines_counts_as_idle(start: Callable[..., Harness]) -> None:
    server = start(Limits(idle_timeout=0.1))
    with server.connect() as client:
        client.socket.setblocking(False)
        eventually(lambda: server.server.open_connections == 1)
        eventually(lambda: (client.send(b"\r\n"), server.server.open_connections == 0)[1])


def test_an_idle_connection_is_closed_without_a_word(start: Callable[..., Harness]) -> None:
    server = start(Limits(idle_timeout=0.5))
    with server.connect() as fresh, server.connect() as used:
        used.send(GET)
        assert used.read_answer().status == 200
        assert fresh.read_all() == b""
        assert used.read_all() == b""


def test_a_handler_and_a_watch_may_take_longer_than_any_timeout(start: Callable[..., Harness], toy: Toy) -> None:
    server = start(Limits(idle_timeout=0.3, header_timeout=0.3, body_timeout=0.3, stall_timeout=0.3, linger=0.3))
    with server.connect() as waiting, server.connect() as watching:
        waiting.send(b"GET /gate/1 HTTP/1.1\r\nHost: hub\r\n\r\n")
        watching.send(b"GET /watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        eventually(lambda: toy.watches and "/gate/1" in toy.gates)
        began = server.server._shared.time
        eventually(lambda: server.server._shared.time > began + 0.5)
        server.loop.call_soon_threadsafe(toy.gates["/gate/1"].set)
        assert waiting.read_answer().body == b"/gate/1"
        assert toy.watches[0].stopped == 0


@pytest.mark.parametrize("path", [b"/big/30000000", b"/made/30000/1000"])
def test_a_client_that_reads_nothing_of_a_large_answer_is_cut_off(start: Callable[..., Harness], path: bytes) -> None:
    server = start(Limits(stall_timeout=0.1))
    with server.connect(receive_buffer=4096) as client:
        client.send(b"GET %b HTTP/1.1\r\nHost: hub\r\n\r\n" % path)
        eventually(lambda: server.server.requests == 1)
        (connection,) = server.server._shared.connections
        eventually(lambda: connection.writing_paused)
        assert connection.buffered < 1_000_000
        eventually(lambda: server.server.open_connections == 0)
        assert len(client.read_all()) < 30_000_000


def test_a_client_that_reads_slowly_but_steadily_gets_everything(start: Callable[..., Harness]) -> None:
    server = start(Limits(stall_timeout=1.0))
    with server.connect(receive_buffer=4096) as client:
        client.send(b"GET /big/6000000 HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
        head = parse_head(client.read_until(b"\r\n\r\n"))
        size = int(head.headers["content-length"])
        for _ in range(60):
            client.read_exactly(size // 60)
            time.sleep(0.02)
        assert client.read_all() == b""


def test_a_slow_reader_holds_up_its_own_pipeline_only(start: Callable[..., Harness], toy: Toy) -> None:
    server = start(Limits(pipelined=2))
    with server.connect(receive_buffer=4096) as slow, server.connect() as other:
        slow.send(b"GET /big/8000000 HTTP/1.1\r\nHost: hub\r\n\r\n" * 5)
        eventually(lambda: server.server.requests == 1)
        other.send(GET)
        assert other.read_answer().status == 200
        assert server.server.requests == 2
        slow.finish_sending()
        assert [len(reply.body) for reply in replies(slow.read_all())] == [8_000_000] * 5


def test_after_a_standstill_what_came_in_time_is_read_first(start: Callable[..., Harness]) -> None:
    server = start(Limits(header_timeout=1.0))
    with server.connect() as client:
        client.send(GET[:10])
        eventually(lambda: any(connection.busy for connection in tuple(server.server._shared.connections)))
        standing_still = threading.Event()
        server.loop.call_soon_threadsafe(lambda: (standing_still.set(), time.sleep(1.5)))
        assert standing_still.wait(60)
        client.send(GET[10:])
        assert client.read_answer().status == 200


def test_a_client_that_vanishes_in_its_body_leaves_nothing(server: Harness) -> None:
    for _ in range(3):
        with server.connect() as client:
            client.send(b"POST / HTTP/1.1\r\nHost: hub\r\nContent-Length: 10\r\n\r\nhalf")
    eventually(lambda: server.server.open_connections == 0)
    assert server.server.requests == 0


def test_a_write_is_finished_although_its_client_disconnected(server: Harness, toy: Toy) -> None:
    with server.connect() as client:
        client.send(b"POST /gate/1 HTTP/1.1\r\nHost: hub\r\nContent-Length: 0\r\n\r\n")
        eventually(lambda: "/gate/1" in toy.gates)
        client.reset()
    eventually(lambda: server.server.open_connections == 0)
    server.loop.call_soon_threadsafe(toy.gates["/gate/1"].set)
    eventually(lambda: toy.finished == ["/gate/1"])
    assert toy.cancelled == []


def test_connections_above_the_limit_are_turned_away(start: Callable[..., Harness]) -> None:
    server = start(Limits(connections=2))
    with server.connect() as first, server.connect() as second:
        for client in (first, second):
            client.send(GET)
            client.read_answer()
        with server.connect() as third:
            third.send(GET)
            assert third.read_all() == b""
        assert server.server.open_connections == 2
        first.send(GET)
        assert first.read_answer().status == 200
    eventually(lambda: server.server.open_connections == 0)
    assert replies(server.talk(GET))[0].status == 200


def test_stopping_ends_streams_cleanly_finishes_requests_and_closes_the_idle(server: Harness, toy: Toy) -> None:
    with server.connect() as idle, server.connect() as watching, server.connect() as writing, server.connect() as half:
        idle.send(GET)
        idle.read_answer()
        watching.send(b"GET /watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        watching.read_until(b"hello\n\r\n")
        writing.send(b"POST /gate/1 HTTP/1.1\r\nHost: hub\r\nContent-Length: 0\r\n\r\n" + GET)
        half.send(GET[:10])
        eventually(lambda: "/gate/1" in toy.gates)
        eventually(lambda: sum(connection.busy for connection in tuple(server.server._shared.connections)) == 3)
        stopping = asyncio.run_coroutine_threadsafe(server.server.stop(20), server.loop)
        assert watching.read_all() == b"0\r\n\r\n"
        assert idle.read_all() == b""
        with pytest.raises(ConnectionRefusedError):
            server.connect()
        assert not stopping.done()
        half.send(GET[10:])
        (late,) = replies(half.read_all())
        assert (late.status, late.headers["connection"]) == (200, "close")
        server.loop.call_soon_threadsafe(toy.gates["/gate/1"].set)
        first, second = replies(writing.read_all())
        assert (first.body, second.status, second.headers["connection"]) == (b"/gate/1", 200, "close")
        for client in (idle, watching, writing, half):
            client.socket.close()
        stopping.result(60)
    assert toy.watches[0].stopped == 1
    assert server.server.open_connections == 0


def test_stopping_aborts_what_outlasts_the_grace(server: Harness, toy: Toy) -> None:
    with server.connect(receive_buffer=4096) as slow, server.connect() as waiting, server.connect() as gone:
        slow.send(b"GET /big/8000000 HTTP/1.1\r\nHost: hub\r\n\r\n")
        for number, client in enumerate((waiting, gone)):
            client.send(b"GET /gate/%d HTTP/1.1\r\nHost: hub\r\n\r\n" % number)
        eventually(lambda: len(toy.gates) == 2 and len(toy.requests) == 3)
        gone.reset()
        server.run(server.server.stop(0.1))
        assert waiting.read_all() == b""
        assert len(slow.read_all()) < 8_000_000
    assert sorted(toy.cancelled) == ["/gate/0", "/gate/1"]
    assert server.server.open_connections == 0


def test_stopping_waits_for_a_write_of_a_disconnected_client(server: Harness, toy: Toy) -> None:
    with server.connect() as client:
        client.send(b"POST /gate/1 HTTP/1.1\r\nHost: hub\r\nContent-Length: 0\r\n\r\n")
        eventually(lambda: "/gate/1" in toy.gates)
        client.reset()
    eventually(lambda: server.server.open_connections == 0)
    stopping = asyncio.run_coroutine_threadsafe(server.server.stop(20), server.loop)
    eventually(lambda: server.server._shared.stopping)
    server.loop.call_soon_threadsafe(toy.gates["/gate/1"].set)
    stopping.result(60)
    assert toy.finished == ["/gate/1"]


def test_stopping_twice_is_stopping(server: Harness) -> None:
    server.run(server.server.stop(5))
    server.run(server.server.stop(5))


def answer(request: Request) -> Response:
    return Response(200)


def test_a_port_in_use_is_said_in_a_sentence(server: Harness) -> None:
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{server.port}: Address already in use") as raised:
        uvloop.run(serve(answer, host="127.0.0.1", port=server.port, tls=None))
    assert raised.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_that_is_not_ours_is_said_in_a_sentence(host: str) -> None:
    with pytest.raises(OSError, match=f"cannot listen on {host}"):
        uvloop.run(serve(answer, host=host, port=0, tls=None))


def test_a_name_with_several_addresses_is_served_on_one_port() -> None:
    async def main() -> list[int]:
        server = await serve(answer, host="localhost", port=0, tls=None)
        ports = [each.getsockname()[1] for listener in server._listeners for each in listener.sockets]
        await server.stop(1)
        return ports

    assert len(set(uvloop.run(main()))) == 1


async def test_the_loop_of_the_standard_library_will_do() -> None:
    server = await serve(Toy(), host="127.0.0.1", port=0, tls=None)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(GET + b"GET /later HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
    assert len(replies(await reader.read())) == 2
    writer.close()
    await writer.wait_closed()
    await server.stop(5)
