"""Arbitrary bytes, and requests cut and mangled: every chunking gives the same answers and nothing gets stuck."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from examples import examples
from http_harness import Client, Harness, Toy, replies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farflung.http.limits import Limits
from farflung.http.parser import Exchange, KnownHeads, RequestParser
from farflung.machinery.errors import ApiError

GET = b"GET /echo HTTP/1.1\r\nHost: hub\r\n\r\n"
VALID = [
    GET,
    b"GET /later/a?b=c HTTP/1.1\r\nHost: hub\r\nAccept: */*\r\nX: 1\r\nX: 2\r\n\r\n",
    b"POST /echo HTTP/1.1\r\nHost: hub\r\nContent-Length: 7\r\n\r\nabcdefg",
    b"PUT /later HTTP/1.1\r\nHost: hub\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    b"PATCH /a HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: 1\r\n\r\n",
    b"GET /echo HTTP/1.1\r\nHost: hub\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    b"POST /echo HTTP/1.1\r\nHost: hub\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nhi",
    b"GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"GET /echo HTTP/1.0\r\n\r\n",
    b"DELETE /empty HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n",
    b"\r\nGET http://hub/echo HTTP/1.1\r\nHost: hub\r\n\r\n",
    b"GET /fail HTTP/1.1\r\nHost: hub\r\n\r\n",
    b"GET /short HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n",
]
TOKENS = [
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b":",
        b"\x00",
        b"\xff",
        b"0",
        b"-1",
        b"ffffffffffffffff",
        b";",
        b",",
        b"#",
        b"?",
    ),
    *(b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Host: b\r\n"),
    *(
        b"Expect: 100-continue\r\n",
        b"Upgrade: h2c\r\n",
        b"Connection: upgrade\r\n",
        b"HTTP/1.1",
        b"HTTP/1.0",
        b"CONNECT ",
    ),
    *(b"HEAD ", b" fold", b"x" * 3000),
]


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    data = b"".join(draw(st.lists(st.sampled_from(VALID), min_size=1, max_size=4)))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 12)))
        data = data[:start] + draw(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=8))) + data[end:]
    return data


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    places = sorted(draw(st.sets(st.integers(0, len(data)), max_size=6)))
    edges = [0, *places, len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def parse(parts: list[bytes], limits: Limits, known: KnownHeads | None = None) -> list[object]:
    """What the parser makes of the bytes: requests, then perhaps a refusal."""
    ready: list[Exchange] = []
    outcome: list[object] = []
    parser = RequestParser(limits, known or KnownHeads(), ready)
    try:
        for part in parts:
            parser.feed(part)
        outcome.append((parser.stage if not parser.finished else "finished", parser.awaits_continue))
    except ApiError as refusal:
        outcome.append((refusal.code, refusal.message))
    return [*((exchange.request, exchange.modern) for exchange in ready), *outcome]


@settings(max_examples=examples(200))
@given(st.data())
def test_the_parser_does_not_see_where_bytes_were_cut(data: st.DataObject) -> None:
    whole = data.draw(mangled())
    parts = data.draw(cuts(whole))
    assert parse(parts, Limits()) == parse([whole], Limits())


EXPERIENCED = KnownHeads()


@settings(max_examples=examples(300))
@given(st.lists(mangled(), min_size=1, max_size=3))
def test_what_the_parser_has_seen_before_changes_nothing(messages: list[bytes]) -> None:
    """Messages that come as one piece each are what it remembers; the same parser must read them as a new one would."""
    cut_differently = [messages[0][:1], messages[0][1:], *messages[1:]]
    assert parse(messages, Limits(), EXPERIENCED) == parse(cut_differently, Limits())
    assert parse(messages, Limits(), EXPERIENCED) == parse([b"".join(messages)], Limits())


LINES = [b"GET / HTTP/1.1", b"POST /a?b HTTP/1.1", b"GET /\xff HTTP/1.1", b"GET  / HTTP/1.1", b"GET /#a HTTP/1.1", b""]
LINES += [b"GET / HTTP/1.0", b"get / HTTP/1.1", b"FOO / HTTP/1.1", b"CONNECT a:1 HTTP/1.1", b"GET http://a/b HTTP/1.1"]
LINES += [
    b"GET * HTTP/1.1",
    b"Host: a",
    b"GET / HTTP/1.1\r",
    b"GET /a\x00 HTTP/1.1",
    b"GET /a\tb HTTP/1.1",
    b"GET /?? HTTP/1.1",
]
BLOCKS = [
    b"Host: a\r\n\r\n",
    b"\r\n",
    b"Host: a\r\nX: 1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"Host: a\r\n\r\n\r\n",
]
BLOCKS += [
    b"Host: a\r\nConnection: close\r\n\r\n",
    b"Host: a\r\nContent-Length: 0\r\n\r\n",
    b"Host: a\r\n X: 1\r\n\r\n",
]
BLOCKS += [
    *(b"Host: a\r\nContent-Length: %d\r\nX: 1\r\n\r\n%b" % (size, b"hello"[:size]) for size in (1, 2, 5)),
    b"Host: a\r\nContent-Length: 2\r\n\r\nhi",
    b"Host: a\r\nContent-Length: 3\r\n\r\nhi",
    b"Host: a\r\nContent-Length: 1\r\n\r\nhi",
    b"Host: a\r\nContent-Length: 02\r\n\r\nhi",
    b"Host: a\r\nContent-Length: +2\r\n\r\nhi",
    b"Host: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
    b"Host: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
    b"Host: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"Host: a\r\nX: Content-Length: 9\r\nContent-Length: 2\r\n\r\nhi",
    b"Host: a\r\nContent-Length: 2\n\nhi\r\n\r\nho",
    b"Content-Length: 2\r\nHost: a\r\n\r\nhi",
    b"Content-Length: 2\r\nHost: a\r\n\r\nhi" + GET,
]
BLOCKS += [b"Host: a\r\n\r\n" + GET, b"Host: a\r\nContent-Length: 4\r\n\r\n\r\n\r\n", b"Host: a\r\nX: 1"]


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(BLOCKS)), min_size=1, max_size=4))
def test_no_known_block_lends_its_meaning_to_another_line(pairs: list[tuple[bytes, bytes]]) -> None:
    messages = [b"\r\n".join(pair) for pair in pairs]
    assert parse(messages, Limits(), EXPERIENCED) == parse([b"".join(messages)], Limits())


def test_a_head_that_has_not_arrived_completely_is_no_request() -> None:
    """Even if its Content-Length fits the bytes that have arrived, and its headers are known."""
    known, head = KnownHeads(), b"POST / HTTP/1.1\r\nContent-Length: %d\r\nHost: a"
    parse([head % 2 + b"\r\n\r\nhi"], Limits(), known)
    for size in range(10, 99):
        start = head % size + b"."
        whole = start + b"example\r\n\r\n" + b"x" * size
        assert parse([start, whole[len(start) :]], Limits(), known) == parse([whole], Limits()), size


@settings(max_examples=examples(100))
@given(st.sampled_from(VALID), st.sampled_from(VALID))
def test_the_parser_takes_bytes_one_by_one(first: bytes, second: bytes) -> None:
    whole = first + second
    assert parse([whole[i : i + 1] for i in range(len(whole))], Limits()) == parse([whole], Limits())


@settings(max_examples=examples(300))
@given(st.binary(max_size=300))
def test_the_parser_refuses_or_waits_for_any_bytes(noise: bytes) -> None:
    parse([noise, noise], Limits(request_line=50, header_bytes=50, header_count=3, body_bytes=20))


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Harness]:
    limits = Limits(header_timeout=0.2, body_timeout=0.2, idle_timeout=0.2, linger=0.2, pipelined=2)
    harness = Harness(Toy(), limits)
    yield harness
    harness.close()


def conversation(server: Harness, parts: list[bytes], *, finish: bool = True) -> bytes:
    with Client(server.port) as client:
        for part in parts:
            client.send(part)
        if finish:
            client.finish_sending()
        return client.read_all()


def comparable(answer: bytes) -> list[tuple[int, bytes, str]]:
    return [(reply.status, reply.body, reply.headers.get("connection", "")) for reply in replies(answer)]


FUZZ = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(data=st.data())
def test_the_answers_do_not_depend_on_how_the_bytes_came(fuzzed: Harness, data: st.DataObject) -> None:
    whole = data.draw(mangled().filter(lambda each: b"HEAD" not in each and b"/short" not in each))
    parts = data.draw(cuts(whole))
    statuses = [reply[:2] for reply in comparable(conversation(fuzzed, parts))]
    assert statuses == [reply[:2] for reply in comparable(conversation(fuzzed, [whole]))]
    assert comparable(conversation(fuzzed, [GET]))[0][0] == 200
    assert fuzzed.errors == []


@FUZZ
@given(parts=st.lists(st.one_of(mangled(), st.binary(max_size=200)), max_size=4), finish=st.booleans())
def test_after_any_bytes_of_a_client_the_connection_ends_and_the_server_still_responds(
    fuzzed: Harness, parts: list[bytes], finish: bool
) -> None:
    conversation(fuzzed, parts, finish=finish)
    assert comparable(conversation(fuzzed, [GET]))[0][0] == 200
    assert fuzzed.errors == []
