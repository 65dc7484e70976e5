"""Real sockets: a server that does as it should, and many that do not."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from multidict import CIMultiDict
from raw_server import Line, raw_server

from farflung.client.errors import ClientError, InvalidResponse, Unreachable
from farflung.client.transport import HttpTransport, OutgoingRequest
from farflung.http.certificates import ensure_certificates, server_context

SOON = 0.2  #: seconds that nobody waits longer than, of servers that never answer
LATER = 60.0  #: seconds that are enough for everything that does happen
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def talking_to(url: str, **how: object) -> AsyncIterator[HttpTransport]:
    async with HttpTransport(url, **how) as transport:  # type: ignore[arg-type]
        yield transport


async def fetched(transport: HttpTransport, target: str = "/", patience: float = LATER) -> tuple[int, bytes]:
    async with transport.open(OutgoingRequest("GET", target, patience=patience)) as reply:
        return reply.status, await reply.read()


async def test_a_good_answer_has_a_status_headers_and_a_body() -> None:
    async def talk(line: Line) -> None:
        await line.request()
        await line.answer(b"hello", status="418 Short and stout", headers="Retry-After: 7\r\n")

    async with raw_server(talk) as server, talking_to(server.url) as transport:
        async with transport.open(OutgoingRequest("GET", "/a%2Fb?x=1%2C2", {"X-One": "1"})) as reply:
            assert (reply.status, reply.header("retry-after"), reply.header("other")) == (418, "7", "")
            assert await reply.read() == b"hello"
        assert server.requests[0].startswith("GET /a%2Fb?x=1%2C2 HTTP/1.1\r\n")
        assert "X-One: 1\r\n" in server.requests[0]


async def test_one_connection_serves_one_request_after_the_other() -> None:
    async def talk(line: Line) -> None:
        while True:
            await line.request()
            await line.answer(b"ok")

    async with raw_server(talk) as server, talking_to(server.url) as transport:
        for _ in range(5):
            assert await fetched(transport) == (200, b"ok")
        assert (server.connections, len(server.requests)) == (1, 5)


async def test_a_connection_whose_answer_was_not_read_is_not_used_again() -> None:
    async def talk(line: Line) -> None:
        await line.request()
        await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nsome")
        await line.until_they_go()

    async with raw_server(talk) as server, talking_to(server.url) as transport:
        for _ in range(3):
            async with transport.open(OutgoingRequest("GET", "/")) as reply:
                assert reply.status == 200
        assert server.connections == 3


async def test_a_connection_that_closed_between_two_requests_is_replaced() -> None:
    async def talk(line: Line) -> None:
        await line.request()
        await line.answer(b"ok")

    async with raw_server(talk) as server, talking_to(server.url) as transport:
        assert [await fetched(transport) for _ in range(3)] == [(200, b"ok")] * 3
        assert server.connections == 3


async def test_bytes_after_the_end_of_an_answer_are_never_taken_for_the_next_one() -> None:
    async def talk(line: Line) -> None:
        await line.request()
        await line.say(GOOD + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await line.request()
        await line.answer(b"good")

    async with raw_server(talk) as server, talking_to(server.url) as transport:
        for _ in range(4):
            with contextlib.suppress(ClientError):  # it may also be refused as a whole
                assert (await fetched(transport))[1] in (b"ok", b"good")


async def test_redirects_are_not_followed_so_that_no_other_server_gets_the_credentials() -> None:
    async def talk(line: Line) -> None:
        await line.request()
        await line.answer(b"", status="307 Elsewhere", headers="Location: http://127.0.0.1:1/\r\n")

    async with raw_server(talk) as server, talking_to(server.url) as transport:
        assert await fetched(transport) == (307, b"")
        assert len(server.requests) == 1


# --- servers that do not do as they should ----------------------------------------------------------


async def at_once(line: Line) -> None:
    await line.request()


async def half_a_header(line: Line) -> None:
    await line.request()
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Le")


async def half_a_status(line: Line) -> None:
    await line.request()
    await line.say(b"HT")


async def too_short(line: Line) -> None:
    await line.request()
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfour")


async def half_a_chunk(line: Line) -> None:
    await line.request()
    await line.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nfour")


async def no_last_chunk(line: Line) -> None:
    await line.request()
    await line.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n")


async def early(line: Line) -> None:
    """Before it heard anything."""


@pytest.mark.parametrize("talk", [at_once, early, half_a_header, half_a_status, too_short, half_a_chunk, no_last_chunk])
async def test_an_answer_that_is_cut_off_is_no_answer(talk: object) -> None:
    async with raw_server(talk) as server, talking_to(server.url) as transport:  # type: ignore[arg-type]
        with pytest.raises(Unreachable):
            await fetched(transport)


async def garbage(line: Line) -> None:
    await line.request()
    await line.say(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")


async def no_number(line: Line) -> None:
    await line.request()
    await line.say(b"HTTP/1.1 fine OK\r\n\r\n")


async def odd_length(line: Line) -> None:
    await line.request()
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n")


async def two_lengths(line: Line) -> None:
    await line.request()
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk")


async def odd_chunk(line: Line) -> None:
    await line.request()
    await line.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nfour\r\n0\r\n\r\n")


async def endless_header(line: Line) -> None:
    await line.request()
    await line.say(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while True:
        await line.say(b"x" * 65536)


async def endless_headers(line: Line) -> None:
    await line.request()
    await line.say(b"HTTP/1.1 200 OK\r\n")
    while True:
        await line.say(b"X-Header: value\r\n" * 1000)


async def not_gzip(line: Line) -> None:
    await line.request()
    await line.answer(b"this is no gzip", headers="Content-Encoding: gzip\r\n")


async def nothing_but_zeros(line: Line) -> None:
    await line.request()
    await line.say(b"\0" * 100_000)


NONSENSE = [garbage, no_number, odd_length, two_lengths, odd_chunk, endless_header, not_gzip, nothing_but_zeros]


@pytest.mark.parametrize("talk", NONSENSE)
async def test_what_is_not_http_is_an_error_of_the_client_and_nothing_else(talk: object) -> None:
    async with raw_server(talk) as server, talking_to(server.url) as transport:  # type: ignore[arg-type]
        with pytest.raises((InvalidResponse, Unreachable)):
            await fetched(transport)


async def test_headers_without_an_end_are_waited_for_no_longer_than_patience() -> None:
    async with raw_server(endless_headers) as server, talking_to(server.url) as transport:
        with pytest.raises((InvalidResponse, Unreachable)):
            await fetched(transport, patience=SOON)


async def never(line: Line) -> None:
    await line.until_they_go()


async def never_the_body(line: Line) -> None:
    await line.request()
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
    await line.until_they_go()


async def header_by_header(line: Line) -> None:
    """Always something, never the end."""
    await line.request()
    await line.say(b"HTTP/1.1 200 OK\r\n")
    while True:
        await line.say(b"X: y\r\n")
        await asyncio.sleep(SOON / 10)


async def byte_by_byte(line: Line) -> None:
    await line.request()
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        await line.say(b"x")
        await asyncio.sleep(SOON / 10)


@pytest.mark.parametrize("talk", [never, never_the_body, header_by_header, byte_by_byte])
async def test_no_request_waits_forever(talk: object) -> None:
    async with raw_server(talk) as server, talking_to(server.url) as transport:  # type: ignore[arg-type]
        with pytest.raises(Unreachable, match="no answer in time"):
            await fetched(transport, patience=SOON)


async def test_a_server_that_never_finishes_to_greet_by_tls_is_not_waited_for() -> None:
    async with raw_server(never) as server, talking_to(server.url.replace("http:", "https:")) as transport:
        with pytest.raises(Unreachable, match="no answer in time"):
            await fetched(transport, patience=SOON)


async def test_an_answer_without_an_end_is_given_up_when_it_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farflung.client.transport.LONGEST_REPLY", 1_000_000)

    async def endless(line: Line) -> None:
        await line.request()
        await line.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await line.say(b"10000\r\n" + b"x" * 65536 + b"\r\n")

    async with raw_server(endless) as server, talking_to(server.url) as transport:
        with pytest.raises(InvalidResponse, match="more than 1000000 bytes"):
            await fetched(transport)


async def test_an_answer_that_unpacks_to_too_much_is_given_up_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farflung.client.transport.LONGEST_REPLY", 1_000_000)
    packed = gzip.compress(bytes(50_000_000))

    async def bomb(line: Line) -> None:
        await line.request()
        await line.answer(packed, headers="Content-Encoding: gzip\r\n")

    async with raw_server(bomb) as server, talking_to(server.url) as transport:
        with pytest.raises(InvalidResponse):
            await fetched(transport)


async def test_a_compressed_answer_is_decompressed() -> None:
    async def packed(line: Line) -> None:
        await line.request()
        await line.answer(zlib.compress(b"hello"), headers="Content-Encoding: deflate\r\n")

    async with raw_server(packed) as server, talking_to(server.url) as transport:
        assert await fetched(transport) == (200, b"hello")


async def test_a_stream_is_read_as_it_arrives_and_silence_ends_it() -> None:
    async def stream(line: Line) -> None:
        await line.request()
        await line.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await line.until_they_go()

    async with raw_server(stream) as server, talking_to(server.url) as transport:
        heard = []
        with pytest.raises(Unreachable, match="no answer in time"):
            async with transport.open(OutgoingRequest("GET", "/", patience=SOON)) as reply:
                async for chunk in reply.chunks():
                    heard.append(chunk)
        assert b"".join(heard) == b"one"


async def test_a_refused_connection_is_unreachable() -> None:
    async with raw_server(at_once) as server:
        url = server.url
    async with talking_to(url) as transport:
        with pytest.raises(Unreachable) as told:
            await fetched(transport)
    assert str(told.value) == f"cannot connect to {url.partition('//')[2]}: connection refused"


async def test_a_name_that_does_not_exist_is_unreachable() -> None:
    async with talking_to("http://nowhere.invalid:80") as transport:
        with pytest.raises(Unreachable):
            await fetched(transport)


async def test_a_server_without_tls_is_unreachable_by_tls() -> None:
    async def plain(line: Line) -> None:
        await line.say(GOOD)

    async with raw_server(plain) as server, talking_to(server.url.replace("http:", "https:")) as transport:
        with pytest.raises(Unreachable):
            await fetched(transport)


async def test_a_request_that_is_given_up_does_not_leave_its_connection_behind() -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def silent(line: Line) -> None:
        await line.request()
        asked.set()
        await line.until_they_go()
        gone.set()

    async with raw_server(silent) as server, talking_to(server.url) as transport:
        asking = asyncio.create_task(fetched(transport))
        await asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(LATER):
            await gone.wait()


# --- who we are, and by whom we go ------------------------------------------------------------------


async def test_credentials_are_asked_for_each_request_and_may_repeat_a_header() -> None:
    asked = 0

    async def credentials() -> Mapping[str, str]:
        nonlocal asked
        asked += 1
        return CIMultiDict(
            [("Authorization", f"Bearer {asked}"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b")]
        )

    async def talk(line: Line) -> None:
        while True:
            await line.request()
            await line.answer(b"ok")

    async with raw_server(talk) as server, talking_to(server.url, credentials=credentials) as transport:
        await fetched(transport)
        await fetched(transport)
        assert ["Authorization: Bearer 1" in server.requests[0], "Authorization: Bearer 2" in server.requests[1]] == [
            True,
            True,
        ]
        assert server.requests[0].count("Impersonate-Group: ") == 2


async def test_a_401_answer_is_reported_to_the_credentials() -> None:
    refusals = []

    async def talk(line: Line) -> None:
        await line.request()
        await line.answer(b"", status="401 Unauthorized")

    def refused() -> None:
        refusals.append(1)

    async with raw_server(talk) as server, talking_to(server.url, on_unauthorized=refused) as transport:
        assert (await fetched(transport))[0] == 401
    assert refusals == [1]


async def test_requests_go_by_the_proxy() -> None:
    async def proxy(line: Line) -> None:
        await line.request()
        await line.answer(b"by the proxy")

    async with raw_server(proxy) as server:
        async with talking_to("http://far.example:8080", proxy=server.url) as transport:
            assert await fetched(transport, "/x") == (200, b"by the proxy")
        assert server.requests[0].startswith("GET http://far.example:8080/x HTTP/1.1\r\n")


async def test_tls_uses_a_proxy_only_by_connect() -> None:
    async def proxy(line: Line) -> None:
        await line.request()
        await line.answer(b"no", status="403 Forbidden")

    async def credentials() -> Mapping[str, str]:
        return {"Authorization": "Bearer secret"}

    async with raw_server(proxy) as server:
        async with talking_to("https://far.example:8443", proxy=server.url, credentials=credentials) as transport:
            with pytest.raises((Unreachable, InvalidResponse)):
                await fetched(transport)
        assert server.requests[0].startswith("CONNECT far.example:8443 HTTP/1.1\r\n")
        assert "secret" not in "".join(server.requests)


async def test_tls_reaches_the_server_through_a_proxy_that_passes_bytes_on(tmp_path: Path) -> None:
    certificates = ensure_certificates(tmp_path, ["127.0.0.1"], datetime.now(UTC))

    async def far(line: Line) -> None:
        while True:
            await line.request()
            await line.answer(b"from afar")

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def proxy(line: Line) -> None:
        host, _, port = (await line.request()).split()[1].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await line.say(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(carry(line.reader, writer), carry(reader, line.writer))
        finally:
            writer.close()

    trusting = ssl.create_default_context(cadata=certificates.ca_pem.decode())
    async with raw_server(far, server_context(certificates)) as server, raw_server(proxy) as between:
        url = between.url.replace("//", "//user:p%40ss@")
        async with talking_to(server.url, proxy=url, tls=trusting) as transport:
            for _ in range(2):
                assert await fetched(transport) == (200, b"from afar")
        assert (between.connections, len(between.requests)) == (1, 1)
        assert "Proxy-Authorization: Basic dXNlcjpwQHNz\r\n" in between.requests[0]


async def test_a_server_that_first_says_to_go_on_is_heard_to_the_end() -> None:
    async def talk(line: Line) -> None:
        await line.request()
        await line.say(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + GOOD)

    async with (
        raw_server(talk) as server,
        talking_to(server.url) as transport,
        transport.open(OutgoingRequest("GET", "/")) as reply,
    ):
        assert (reply.status, reply.header("link"), await reply.read()) == (200, "", b"ok")


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async def talk(line: Line) -> None:
        await line.request()
        await line.say(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    async with raw_server(talk) as server, talking_to(server.url) as transport:
        assert await fetched(transport) == (200, b"all of it")


async def test_a_header_cannot_bring_another_one() -> None:
    async def credentials() -> Mapping[str, str]:
        return {"Impersonate-User": "a\r\nImpersonate-Group: system:masters"}

    async with raw_server(at_once) as server, talking_to(server.url, credentials=credentials) as transport:
        with pytest.raises(ClientError):
            await fetched(transport)
        assert server.requests == []


async def test_who_reads_slowly_makes_the_server_wait() -> None:
    size, said = 200, 0

    async def talk(line: Line) -> None:
        nonlocal said
        await line.request()
        await line.say(f"HTTP/1.1 200 OK\r\nContent-Length: {size * 1_000_000}\r\n\r\n".encode())
        for _ in range(size):
            await line.say(b"x" * 1_000_000)
            said += 1

    async with (
        raw_server(talk) as server,
        talking_to(server.url) as transport,
        transport.open(OutgoingRequest("GET", "/")) as reply,
    ):
        read = 0
        async for chunk in reply.chunks():
            read += len(chunk)
            for _ in range(20):
                await asyncio.sleep(0)
            assert said * 1_000_000 - read < 50_000_000
            if read > 20_000_000:
                break
