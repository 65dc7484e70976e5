"""What one client sees on one connection."""

from __future__ import annotations

import gc
import http.client
import logging
import subprocess
from collections import Counter
from collections.abc import Callable
from math import prod

import pytest
from http_harness import Harness, Toy, eventually, parse_head, replies

from farflung.http.limits import Limits
from farflung.http.messages import Request, Response
from farflung.machinery.errors import ApiError

HOST = b"Host: hub\r\n"
GET = b"GET /echo HTTP/1.1\r\n" + HOST + b"\r\n"


def post(path: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST %b HTTP/1.1" % path, b"Host: hub", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


def test_a_request_reaches_the_handler_whole(server: Harness, toy: Toy) -> None:
    with server.connect() as client:
        client.send(post(b"/echo/a%2Fb?x=1&y=%20", b"hello", b"X-Thing: 1", b"x-thing:  2 ", b"Accept: */*"))
        reply = client.read_answer()
        port = client.socket.getsockname()[1]
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["date"].endswith(" GMT")
    assert "connection" not in reply.headers
    assert reply.json == {
        "method": "POST",
        "path": "/echo/a%2Fb",
        "query": "x=1&y=%20",
        "headers": {"host": "hub", "content-length": "5", "x-thing": "1, 2", "accept": "*/*"},
        "body": "hello",
    }
    assert toy.requests[0].peer == f"127.0.0.1:{port}"
    assert toy.requests[0].certificate is None


def test_values_that_may_contain_commas_stay_apart(server: Harness) -> None:
    groups = [b"Impersonate-Group: a, b", b"impersonate-group: c"]
    [reply] = replies(server.talk(b"\r\n".join([b"GET /echo HTTP/1.1", b"Host: hub", *groups, b"", b""])))
    assert reply.json["headers"]["impersonate-group"] == "a, b\nc"


def test_a_connection_serves_one_request_after_the_other(server: Harness) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for number in range(3):
        connection.request("PUT", f"/later/{number}", body=b"x" * number)
        response = connection.getresponse()
        assert (response.status, response.will_close) == (200, False)
        assert b'"path":"/later/%d"' % number in response.read()
    connection.close()
    assert server.server.requests == 3


def test_a_body_may_come_in_chunks_and_its_trailers_are_no_headers(server: Harness) -> None:
    head = b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    body = b"3\r\nabc\r\n4;note=x\r\ndefg\r\n0\r\nAuthorization: Bearer stolen\r\nX-Late: 1\r\n\r\n"
    first, second = replies(server.talk(head + body + GET))
    assert first.json["body"] == "abcdefg"
    assert first.json["headers"] == {"host": "hub", "transfer-encoding": "chunked"}
    assert second.json["method"] == "GET"


def test_head_says_how_long_the_body_would_be(server: Harness) -> None:
    answer = server.talk(b"HEAD /big/70 HTTP/1.1\r\n" + HOST + b"\r\n")
    assert answer.endswith(b"\r\n\r\n")
    assert parse_head(answer).headers["content-length"] == "70"


def test_no_content_has_no_length_and_no_body(server: Harness) -> None:
    first, second = replies(server.talk(b"DELETE /empty HTTP/1.1\r\n" + HOST + b"\r\n" + GET))
    assert (first.status, first.body, "content-length" in first.headers) == (204, b"", False)
    assert second.status == 200


def test_http_1_0_closes_unless_asked_not_to(server: Harness) -> None:
    with server.connect() as client:
        client.send(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert client.read_answer().headers["connection"] == "keep-alive"
        client.send(b"GET /b HTTP/1.0\r\n\r\n")
        (reply,) = replies(client.read_all())
    assert reply.headers["connection"] == "close"
    assert reply.json["path"] == "/b"


def test_a_client_that_asks_to_close_gets_its_answer_and_the_end(server: Harness) -> None:
    with server.connect() as client:
        client.send(b"GET /later HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n" + GET + GET)
        (reply,) = replies(client.read_all())
    assert reply.headers["connection"] == "close"
    assert server.server.requests == 1


def test_a_client_that_has_closed_its_half_still_gets_its_answers(server: Harness, toy: Toy) -> None:
    with server.connect() as client:
        client.send(b"GET /gate/1 HTTP/1.1\r\n" + HOST + b"\r\n" + GET)
        client.finish_sending()
        eventually(lambda: "/gate/1" in toy.gates)
        server.loop.call_soon_threadsafe(toy.gates["/gate/1"].set)
        first, second = replies(client.read_all())
    assert first.body == b"/gate/1"
    assert second.headers["connection"] == "close"


def test_pipelined_requests_are_answered_in_order_even_if_the_first_is_slow(server: Harness, toy: Toy) -> None:
    paths = [
        b"/echo/0",
        b"/gate/1",
        b"/later/2",
        b"/echo/3",
        b"/gate/4",
        b"/fail/5",
        b"/faillater/6",
        b"/made/1/300000",
        b"/echo/8",
    ]
    with server.connect() as client:
        client.send(b"".join(b"GET %b HTTP/1.1\r\n" % path + HOST + b"\r\n" for path in paths))
        eventually(lambda: "/gate/1" in toy.gates)
        assert len(toy.requests) == 2
        server.loop.call_soon_threadsafe(toy.gates["/gate/1"].set)
        eventually(lambda: "/gate/4" in toy.gates)
        server.loop.call_soon_threadsafe(toy.gates["/gate/4"].set)
        client.finish_sending()
        answers = replies(client.read_all())
    assert [request.path.encode() for request in toy.requests] == paths
    assert [reply.status for reply in answers] == [200, 200, 200, 200, 200, 500, 500, 200, 200]
    assert [len(reply.body) for reply in answers][7] == 300_000
    assert answers[8].json["path"] == "/echo/8"


def test_requests_read_ahead_are_bounded(start: Callable[..., Harness], toy: Toy) -> None:
    server = start(Limits(pipelined=4))
    wanted = 20_000
    with server.connect() as client:
        client.send(b"GET /gate/1 HTTP/1.1\r\n" + HOST + b"\r\n")
        eventually(lambda: "/gate/1" in toy.gates)
        (connection,) = server.server._shared.connections
        client.socket.setblocking(False)
        rest = memoryview(GET * wanted)
        while connection._reading or rest:
            try:
                rest = rest[client.socket.send(rest) :]
            except BlockingIOError:
                if not connection._reading:
                    break
        assert len(connection._ready) < 4 + 4096 / len(GET) + 1
        client.socket.settimeout(60)
        server.loop.call_soon_threadsafe(toy.gates["/gate/1"].set)
        client.read_answer()
        client.read_answer()
    eventually(lambda: server.server.open_connections == 0)


def test_a_flood_of_pipelined_requests_leaves_turns_to_others(server: Harness, toy: Toy) -> None:
    """Also if no handler waits for anything."""
    turn, turns = 0, []

    def tick() -> None:
        nonlocal turn
        turn += 1
        server.loop.call_soon(tick)

    async def at_once(request: Request) -> Response:
        turns.append(turn)
        return Response(200, b"")

    toy.answer_soon = at_once  # type: ignore[attr-defined]
    server.call(tick)
    count = 2000
    answered = server.talk((b"GET /soon HTTP/1.1\r\n" + HOST + b"\r\n") * count)
    assert answered.count(b"HTTP/1.1 200 OK") == count
    assert max(Counter(turns).values()) <= server.limits.pipelined


def test_a_flood_of_pipelined_requests_is_answered_to_the_last(server: Harness) -> None:
    wanted = 5_000
    data = server.talk(b"GET /empty HTTP/1.1\r\nHost:\r\n\r\n" * wanted)
    assert len(replies(data)) == wanted
    assert server.server.requests == wanted


def test_the_body_of_a_patient_client_is_asked_for(server: Harness) -> None:
    with server.connect() as client:
        client.send(b"POST /later HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nExpect: 100-Continue\r\n\r\n")
        assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"hello")
        assert client.read_answer().json["body"] == "hello"


def test_a_patient_client_waits_for_the_answers_before_its_own(server: Harness, toy: Toy) -> None:
    with server.connect() as client:
        client.send(b"GET /gate/1 HTTP/1.1\r\n" + HOST + b"\r\n")
        client.send(b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        eventually(lambda: "/gate/1" in toy.gates)
        server.loop.call_soon_threadsafe(toy.gates["/gate/1"].set)
        assert client.read_answer().body == b"/gate/1"
        assert client.read_answer().status == 100
        client.send(b"ok")
        assert client.read_answer().json["body"] == "ok"


def test_a_body_that_would_be_too_large_is_refused_unread(server: Harness) -> None:
    with server.connect() as client:
        client.send(b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 3145729\r\nExpect: 100-continue\r\n\r\n")
        (reply,) = replies(client.read_all())
    assert reply.status == 413
    assert reply.headers["connection"] == "close"
    assert reply.json["message"] == "Request entity too large: limit is 3145728"
    assert reply.json["reason"] == "RequestEntityTooLarge"
    assert server.server.requests == 0


def test_a_client_that_sends_a_large_body_regardless_still_reads_the_refusal(server: Harness) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/echo", body=bytes(6 * 1024 * 1024))
    response = connection.getresponse()
    assert response.status == 413
    assert b"limit is 3145728" in response.read()
    connection.close()


def test_chunks_that_add_up_to_too_much_are_refused(start: Callable[..., Harness]) -> None:
    server = start(Limits(body_bytes=10))
    head = b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    (fits,) = replies(server.talk(head + b"6\r\nabcdef\r\n4\r\nabcd\r\n0\r\n\r\n"))
    (exceeds,) = replies(server.talk(head + b"6\r\nabcdef\r\n5\r\nabcde\r\n0\r\n\r\n"))
    assert (fits.status, exceeds.status) == (200, 413)


def test_the_largest_body_allowed_arrives(server: Harness, toy: Toy) -> None:
    size = Limits().body_bytes
    (reply,) = replies(server.talk(post(b"/empty", bytes(size))))
    assert reply.status == 204
    assert len(toy.requests[0].body) == size


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /" + b"a" * 200 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: 1\r\n" * 5 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 400 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 10_000, 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X" * 10_000, 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"a" * 10_000, 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"a" * 10_000, 431),
    ],
    ids=["line", "count", "bytes", "endless value", "endless name", "endless trailer", "endless chunk extension"],
)
def test_heads_are_bounded(start: Callable[..., Harness], request_bytes: bytes, status: int) -> None:
    server = start(Limits(request_line=100, header_count=5, header_bytes=300))
    with server.connect() as client:
        client.send(request_bytes)
        (reply,) = replies(client.read_all())
    assert reply.status == status
    assert reply.json["kind"] == "Status"
    assert server.server.requests == 0


REFUSED = {
    "both framings": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both framings, turned": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "a list of lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx",
    "a signed length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx",
    "a negative length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\nx",
    "an empty length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nx",
    "a length beyond numbers": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\nx",
    "chunked not last": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "chunked twice": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk size with space": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\nx\r\n0\r\n\r\n",
    "chunks ended by bare newlines": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n",
    "folded headers": b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n  2\r\n\r\n",
    "space before the colon": b"GET / HTTP/1.1\r\nHost: a\r\nX : 1\r\n\r\n",
    "a nameless header": b"GET / HTTP/1.1\r\nHost: a\r\n: 1\r\n\r\n",
    "a NUL": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
    "bare newlines": b"GET / HTTP/1.1\nHost: a\n\n",
    "a bare carriage return": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "two tokens": b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
    "HTTP/2 by prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a target that is a star": b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    "a target of another scheme": b"GET ftp://a/b HTTP/1.1\r\nHost: a\r\n\r\n",
    "a fragment": b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
    "bytes beyond ASCII in the target": b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", REFUSED.values(), ids=REFUSED.keys())
def test_a_malformed_request_gets_a_status_and_the_end(server: Harness, request_bytes: bytes) -> None:
    with server.connect() as client:
        client.send(GET + request_bytes + GET)
        first, refusal = replies(client.read_all())
    assert first.status == 200
    assert refusal.status == 400
    assert refusal.headers["connection"] == "close"
    assert (refusal.json["kind"], refusal.json["status"], refusal.json["reason"]) == ("Status", "Failure", "BadRequest")
    assert server.server.requests == 1


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"FROB / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 405),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"GET /\r\n\r\n", 505),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: miracles\r\n\r\nx", 417),
    ],
)
def test_what_we_do_not_speak_is_named(server: Harness, request_bytes: bytes, status: int) -> None:
    (reply,) = replies(server.talk(request_bytes))
    assert (reply.status, reply.json["code"]) == (status, status)
    assert server.server.requests == 0


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"http://hub:80/a?b", "/a", "b"),
        (b"HTTP://hub", "/", ""),
        (b"http://hub?b=/c", "/", "b=/c"),
        (b"/a?b?c", "/a", "b?c"),
        (b"//a", "//a", ""),
    ],
)
def test_the_target_may_be_absolute(server: Harness, target: bytes, path: str, query: str) -> None:
    (reply,) = replies(server.talk(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target))
    assert (reply.json["path"], reply.json["query"]) == (path, query)


def test_options_may_ask_about_the_server(server: Harness) -> None:
    (reply,) = replies(server.talk(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"))
    assert reply.json["path"] == "*"


def test_an_upgrade_is_not_taken_up(server: Harness) -> None:
    upgrade = b"Upgrade: h2c\r\nConnection: Upgrade\r\n" + HOST
    first, second, third = replies(
        server.talk(
            b"GET /a HTTP/1.1\r\n"
            + upgrade
            + b"\r\n"
            + GET
            + b"POST /b HTTP/1.1\r\nContent-Length: 0\r\n"
            + upgrade
            + b"\r\n"
        )
    )
    assert (first.json["path"], second.json["path"], third.json["path"]) == ("/a", "/echo", "/b")


@pytest.mark.parametrize(
    ("framing", "body"),
    [(b"Content-Length: 24", b"GET /smuggled HTTP/1.1\r\n"), (b"Transfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n")],
)
def test_the_body_of_an_upgrade_request_is_its_body(server: Harness, framing: bytes, body: bytes) -> None:
    head = b"POST /later HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n" + HOST + framing + b"\r\n\r\n"
    for split in (len(head), len(head) + 3):
        whole = head + body + GET
        with server.connect() as client:
            client.send(whole[:split])
            client.send(whole[split:])
            (reply,) = replies(client.read_all())
        assert reply.json["body"] in ("GET /smuggled HTTP/1.1\r\n", "abc")
        assert reply.headers["connection"] == "close"


def test_a_failing_handler_is_answered_for_and_logged_without_secrets(
    server: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), server.connect() as client:
        for path in (b"/fail", b"/faillater", b"/nonsense"):
            client.send(post(path + b"?token=hush", b"secret", b"Authorization: Bearer secret"))
            reply = client.read_answer()
            assert (reply.status, reply.json["reason"]) == (500, "InternalError")
            assert "deliberate" not in reply.json["message"]
        client.send(GET)
        assert client.read_answer().status == 200
    assert "POST /fail failed" in caplog.text
    assert "Traceback" in caplog.text
    assert "deliberate, later" in caplog.text
    assert "secret" not in caplog.text
    assert "hush" not in caplog.text


@pytest.mark.parametrize("path", [b"/malformed", b"/malformedlater"])
def test_a_malformed_answer_cuts_the_connection_and_is_logged(
    server: Harness, caplog: pytest.LogCaptureFixture, path: bytes
) -> None:
    with server.connect() as client:
        client.send(b"GET %b HTTP/1.1\r\n" % path + HOST + b"\r\n")
        assert client.read_all() == b""
    assert "is malformed" in caplog.text


def test_an_idle_connection_keeps_nothing_of_its_last_request(server: Harness, toy: Toy) -> None:
    with server.connect() as client:
        client.send(post(b"/later", b"x" * 1_000_000))
        client.read_answer()
        body = toy.requests.pop().body
        assert not [each for each in gc.get_referrers(body) if isinstance(each, Request)]


def test_no_value_of_a_header_breaks_out_of_its_line(server: Harness) -> None:
    (reply,) = replies(server.talk(b"GET /warn HTTP/1.1\r\n" + HOST + b"\r\n"))
    assert set(reply.headers) == {"date", "content-type", "content-length", "warning", "x-plain"}
    assert reply.headers["warning"].startswith('unknown "spec.a  Set-Cookie: x= ')


@pytest.mark.parametrize(
    "path",
    [
        *("big/10", "big/131072", "big/5000000"),
        *("made/5000/1000", "made/3/2000000", "made/20000/7", "made/70/0"),
        *("unsized/5000/1000", "unsized/3/2000000", "unsized/20000/7", "unsized/70/0"),
    ],
)
def test_bodies_of_every_shape_arrive_whole(server: Harness, path: str) -> None:
    kind, *shape = path.split("/")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for _ in range(2):
        connection.request("GET", f"/{path}")
        response = connection.getresponse()
        assert response.headers["Transfer-Encoding"] == ("chunked" if kind == "unsized" else None)
        assert response.read() == b"x" * prod(map(int, shape))
    connection.request("HEAD", f"/{path}")
    assert connection.getresponse().read() == b""
    connection.close()


@pytest.mark.parametrize("path", ["made/30/10000", "unsized/30/10000"])
def test_an_old_client_gets_a_body_without_chunks(server: Harness, path: str) -> None:
    data = server.talk(b"GET /%b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" % path.encode())
    head, _, body = data.partition(b"\r\n\r\n")
    assert body == b"x" * 300_000
    assert b"chunked" not in head
    assert (b"Connection: close" in head) == path.startswith("unsized")


def test_a_body_that_fails_in_its_middle_is_no_whole_body(server: Harness, caplog: pytest.LogCaptureFixture) -> None:
    data = server.talk(b"GET /unmade HTTP/1.1\r\n" + HOST + b"\r\n")
    assert data.endswith(b"\r\n\r\n" + b"x" * 1000)
    assert "deliberate, in the middle" in caplog.text
    eventually(lambda: server.server.open_connections == 0)


def test_computed_pieces_are_sent_in_their_order(server: Harness, toy: Toy) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", "/computed/3")
    for number in range(3):
        eventually(lambda at=number: len(toy.computed) == at + 1)  # type: ignore[misc]
        server.call(toy.computed[number].set_result, b"x" * 100_000 * number)
    assert connection.getresponse().read() == b"0 1 " + b"x" * 100_000 + b"2 " + b"x" * 200_000
    connection.close()


def test_a_computation_is_cancelled_if_its_client_disconnects(server: Harness, toy: Toy) -> None:
    with server.connect() as client:
        client.send(b"GET /computed/3 HTTP/1.1\r\n" + HOST + b"\r\n")
        eventually(lambda: len(toy.computed) == 1)
    eventually(toy.computed[0].cancelled)
    assert len(toy.computed) == 1


def test_a_computation_that_fails_ends_the_body_in_its_middle(
    server: Harness, toy: Toy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with server.connect() as client:
        client.send(b"GET /computed/1 HTTP/1.1\r\n" + HOST + b"\r\n")
        eventually(lambda: len(toy.computed) == 1)
        server.call(toy.computed[0].set_exception, ApiError(504, "Timeout", "it took too long", {}))
        assert not client.read_all().endswith(b"0\r\n\r\n")
    assert "whose response cannot be computed: it took too long" in caplog.text


def test_curl_is_understood(server: Harness) -> None:
    url = f"http://127.0.0.1:{server.port}/later"
    command = [
        "curl",
        "-sS",
        "--http2",
        "-H",
        "Transfer-Encoding: chunked",
        "-d",
        "x" * 5000,
        url,
        "--next",
        "-sS",
        "-I",
        url,
    ]
    output = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    assert b"x" * 5000 in output
    assert b"HTTP/1.1 200 OK" in output
