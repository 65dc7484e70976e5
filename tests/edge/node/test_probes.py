"""Probes of containers by HTTP, over real sockets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from raw_server import Line, Talk, raw_server

from farflung.edge.node.probes import MAX_BODY, ProbeResult, run_handler
from farflung.edge.runtimes.base import Address, StartedContainer
from farflung.edge.runtimes.process import ProcessRuntime
from farflung.http.certificates import ensure_certificates, server_context

LATER = 60.0  #: seconds that are enough for everything that does happen
SOON = 0.2  #: seconds until a probe of a server that never answers is given up
PORT = 8080  #: of the container


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def runtime(tmp_path: Path) -> ProcessRuntime:
    return ProcessRuntime(tmp_path / "containers", now, search="/nowhere")


async def probed(url: str, runtime: ProcessRuntime, seconds: float = LATER, **wanted: object) -> ProbeResult:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    started = StartedContainer("process://one", "", {PORT: Address(parts.hostname, parts.port)})
    return await run_handler({"httpGet": {"port": PORT, **wanted}}, {}, started, runtime, seconds)


def answering(body: bytes = b"fine", status: str = "200 OK", headers: str = "") -> Talk:
    async def talk(line: Line) -> None:
        await line.request()
        await line.answer(body, status=status, headers=headers)
        await line.until_they_go()

    return talk


def headers_of(request: str) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in request.split("\r\n")[1:]:
        if line:
            name, _, value = line.partition(": ")
            found.setdefault(name.lower(), []).append(value)
    return found


@pytest.mark.parametrize("status", ["200 OK", "204 No Content", "302 Found", "399 Odd"])
async def test_a_status_below_400_is_a_success(status: str, runtime: ProcessRuntime) -> None:
    async with raw_server(answering(b"", status)) as server:
        assert (await probed(server.url, runtime)).success


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "500 Broken", "503 Not Now"])
async def test_a_status_from_400_is_a_failure_that_names_it(status: str, runtime: ProcessRuntime) -> None:
    async with raw_server(answering(status=status)) as server:
        outcome = await probed(server.url, runtime)
    assert outcome == ProbeResult(False, f"HTTP probe failed with statuscode: {status[:3]}")


async def test_a_redirect_is_a_success_and_is_not_followed(runtime: ProcessRuntime) -> None:
    async with raw_server(answering(b"", "301 Moved", "Location: /elsewhere\r\n")) as server:
        assert (await probed(server.url, runtime, path="/here")).success
    assert [request.partition(" HTTP")[0] for request in server.requests] == ["GET /here"]


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (None, "/"),
        ("", "/"),
        ("healthz", "/healthz"),
        ("/healthz?verbose=1&x=%2C", "/healthz?verbose=1&x=%2C"),
        ("/a b/ä", "/a%20b/%C3%A4"),
        ("/one#two", "/one"),
        ("/x\r\nHost: other", "/x%0D%0AHost:%20other"),
    ],
)
async def test_the_path_of_a_probe_is_requested_as_written(
    path: str | None, target: str, runtime: ProcessRuntime
) -> None:
    async with raw_server(answering()) as server:
        assert (await probed(server.url, runtime, path=path)).success
    assert server.requests[0].startswith(f"GET {target} HTTP/1.1\r\n")


async def test_headers_are_those_of_the_kubelet_and_those_of_the_probe(runtime: ProcessRuntime) -> None:
    async with raw_server(answering()) as server:
        await probed(server.url, runtime)
        own = [
            {"name": "user-agent", "value": "mine"},
            {"name": "Host", "value": "example.org"},
            {"name": "X-One", "value": "1"},
            {"name": "x-one", "value": "2"},
        ]
        await probed(server.url, runtime, httpHeaders=own)
    plain, with_own = map(headers_of, server.requests)
    assert plain["user-agent"] == ["kube-probe/1.33"]
    assert plain["accept"] == ["*/*"]
    assert plain["connection"] == ["close"]
    assert plain["host"] == [server.url.removeprefix("http://")]
    assert with_own["user-agent"] == ["mine"]
    assert with_own["host"] == ["example.org"]
    assert with_own["x-one"] == ["1", "2"]


async def test_a_header_with_a_line_break_is_a_failure_and_nothing_is_sent(runtime: ProcessRuntime) -> None:
    async with raw_server(answering()) as server:
        outcome = await probed(server.url, runtime, httpHeaders=[{"name": "X", "value": "1\r\nY: 2"}])
    assert not outcome.success
    assert server.requests == []


async def test_no_certificate_is_verified(tmp_path: Path, runtime: ProcessRuntime) -> None:
    certificates = ensure_certificates(tmp_path / "pki", ["elsewhere.example"], now())
    async with raw_server(answering(), server_context(certificates)) as server:
        assert await probed(server.url, runtime, scheme="HTTPS") == ProbeResult(True, "fine")


async def test_a_server_without_tls_fails_a_probe_with_tls(runtime: ProcessRuntime) -> None:
    async def plain(line: Line) -> None:
        await line.reader.read(1)
        await line.answer(b"", status="400 Bad Request")

    async with raw_server(plain) as server:
        outcome = await probed(server.url, runtime, scheme="HTTPS", path="/x")
    assert not outcome.success
    assert outcome.message.startswith(f'Get "https{server.url.removeprefix("http")}/x": ')


async def test_of_a_long_body_only_the_beginning_is_read(runtime: ProcessRuntime) -> None:
    async def endless(line: Line) -> None:
        await line.request()
        await line.say(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await line.say(b"x" * 100)

    async with raw_server(endless) as server:
        assert await probed(server.url, runtime) == ProbeResult(True, "x" * MAX_BODY)


async def test_a_body_that_is_cut_off_is_a_failure(runtime: ProcessRuntime) -> None:
    async def short(line: Line) -> None:
        await line.request()
        await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    async with raw_server(short) as server:
        assert not (await probed(server.url, runtime)).success


async def test_a_server_of_http_1_0_needs_no_length(runtime: ProcessRuntime) -> None:
    async def old(line: Line) -> None:
        await line.request()
        await line.say(b"HTTP/1.0 200 OK\r\n\r\nold but fine")

    async with raw_server(old) as server:
        assert await probed(server.url, runtime) == ProbeResult(True, "old but fine")


async def test_a_server_that_does_not_answer_fails_the_probe_after_its_timeout(runtime: ProcessRuntime) -> None:
    async def silent(line: Line) -> None:
        await line.until_they_go()

    async with raw_server(silent) as server:
        assert await probed(server.url, runtime, SOON) == ProbeResult(False, "context deadline exceeded")


async def test_an_unreachable_server_fails_the_probe_with_the_cause(runtime: ProcessRuntime) -> None:
    async with raw_server(answering()) as server:
        pass
    outcome = await probed(server.url, runtime)
    assert not outcome.success
    assert outcome.message.startswith(f'Get "{server.url}/": ')
    assert "connection refused" in outcome.message


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"\x00\xff" * 100])
async def test_an_answer_that_is_not_http_is_a_failure(answer: bytes, runtime: ProcessRuntime) -> None:
    async def talk(line: Line) -> None:
        await line.request()
        await line.say(answer)

    async with raw_server(talk) as server:
        outcome = await probed(server.url, runtime)
    assert not outcome.success
    assert outcome.message


@pytest.mark.parametrize("member", ["httpGet", "tcpSocket"])
@pytest.mark.parametrize(
    "wanted",
    [
        {"host": "two..dots", "port": 80},
        {"host": f"{'long' * 20}.example", "port": 80},
        {"host": "\0", "port": 80},
        {"host": "127.0.0.1", "port": "99999"},
    ],
)
async def test_an_address_that_cannot_be_is_a_failure(
    member: str, wanted: Mapping[str, object], runtime: ProcessRuntime
) -> None:
    outcome = await run_handler({member: wanted}, {}, StartedContainer("process://one", "", {}), runtime, LATER)
    assert not outcome.success
    assert str(wanted["host"]) in outcome.message
