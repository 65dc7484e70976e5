"""A small client for measuring: HTTP/1.1 over TLS, raw on uvloop, cheap enough to hold thousands of watches."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import urlsplit

import httptools

HANDSHAKES = 32  #: under way at once
PLAIN = "application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
EVENT = b'"name":"event-'  #: in every object whose way to the watchers is measured

R = TypeVar("R", bound="Reader")


@dataclass(frozen=True)
class Server:
    url: str
    token: str
    certificate_authority: Path

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate_authority))

    async def connect(self, protocol: Callable[[], R]) -> R:
        address = urlsplit(self.url)
        loop = asyncio.get_running_loop()
        assert address.hostname is not None and address.port is not None
        _, made = await loop.create_connection(protocol, address.hostname, address.port, ssl=self._context)
        return made

    def head(self, method: str, path: str, size: int = 0, accept: str = PLAIN, content: str = PLAIN) -> bytes:
        lines = (
            f"{method} {path} HTTP/1.1",
            f"Host: {urlsplit(self.url).netloc}",
            f"Authorization: Bearer {self.token}",
            f"Accept: {accept}",
            "User-Agent: bench/1",
        )
        body = (f"Content-Type: {content}", f"Content-Length: {size}") if size else ()
        return "\r\n".join((*lines, *body, "", "")).encode()


class Reader(asyncio.BufferedProtocol):
    """Hands what arrives to `received`.  All readers share one buffer: none keeps anything in it."""

    buffer = memoryview(bytearray(256 * 1024))
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, size: int) -> None:
        self.received(self.buffer[:size])

    def received(self, data: memoryview) -> None:
        raise NotImplementedError


class Connection(Reader):
    """One request at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._body: list[bytes] = []
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._parser = httptools.HttpResponseParser(self)

    @classmethod
    async def open(cls, server: Server) -> Connection:
        return await server.connect(lambda: cls(server))

    async def request(
        self, method: str, path: str, body: bytes = b"", accept: str = PLAIN, content: str = PLAIN
    ) -> tuple[int, bytes]:
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(self._server.head(method, path, len(body), accept, content) + body)
        return await self._answer

    async def read(self, path: str, accept: str = PLAIN) -> bytes:
        status, answer = await self.request("GET", path, accept=accept)
        if status != 200:
            raise ConnectionError(f"GET {path} was answered with {status}: {answer[:200]!r}")
        return answer

    def received(self, data: memoryview) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the hub closed the connection"))

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        assert self._answer is not None
        self._answer.set_result((self._parser.get_status_code(), b"".join(self._body)))
        self._body.clear()
        self._parser = httptools.HttpResponseParser(self)

    def close(self) -> None:
        self.transport.close()


class Watch(Reader):
    """Notes when an event that is measured arrives.  One is under way at a time, in one record of TLS."""

    def __init__(self, arrived: Callable[[float], None]) -> None:
        self._arrived = arrived
        self.opened: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def received(self, data: memoryview) -> None:
        now = time.perf_counter()
        if not self.opened.done():
            self.opened.set_result(bytes(data[:12]))
        elif EVENT in bytes(data):
            self._arrived(now)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_result(b"")


class Arrivals:
    """How long after `sent` each watch heard, and a moment when all have."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self._sent = 0.0
        self._missing = 0
        self._complete = asyncio.Event()

    def expect(self, watches: int) -> None:
        self._missing = watches
        self._complete.clear()
        self._sent = time.perf_counter()

    def note(self, moment: float) -> None:
        self.delays.append(moment - self._sent)
        self._missing -= 1
        if self._missing == 0:
            self._complete.set()

    async def complete(self) -> None:
        async with asyncio.timeout(60):
            await self._complete.wait()


async def open_watches(server: Server, paths: list[str], arrivals: Arrivals) -> list[Watch]:
    """One watch per path, each on a connection of its own."""
    turn = asyncio.Semaphore(HANDSHAKES)

    async def open_one(path: str) -> Watch:
        async with turn:
            watch = await server.connect(lambda: Watch(arrivals.note))
            watch.transport.write(server.head("GET", path))
            answer = await watch.opened
        if answer != b"HTTP/1.1 200":
            raise ConnectionError(f"a watch was answered with {answer!r}")
        return watch

    return await asyncio.gather(*map(open_one, paths))


@dataclass(frozen=True)
class Heard:
    delays: list[float]  #: seconds from sending a write to a watch having its event, sorted
    cpu: float  #: CPU seconds of the hub for each of them


async def hear(
    server: Server, paths: list[str], hearing: int, writes: list[tuple[str, bytes]], hub_cpu: Callable[[], float]
) -> Heard:
    """Open a watch on each path, then write, one after the other, what `hearing` of them hear of."""
    arrivals = Arrivals()
    watches = await open_watches(server, paths, arrivals)
    writer = await Connection.open(server)
    before = hub_cpu()
    for path, body in writes:
        arrivals.expect(hearing)
        status, answer = await writer.request("POST", path, body)
        if status != 201:
            raise ConnectionError(f"a create was answered with {status}: {answer[:200]!r}")
        await arrivals.complete()
        await asyncio.sleep(0.02)
    cpu = hub_cpu() - before
    writer.close()
    for watch in watches:
        watch.transport.abort()
    return Heard(sorted(arrivals.delays), cpu / len(arrivals.delays))


async def load(server: Server, connections: int, requests: list[tuple[str, str, bytes]]) -> tuple[float, list[float]]:
    """(seconds in all, sorted seconds of each request)."""
    opened = [await Connection.open(server) for _ in range(connections)]
    waiting = iter(requests)
    delays: list[float] = []

    async def work(connection: Connection) -> None:
        for method, path, body in waiting:
            started = time.perf_counter()
            status, answer = await connection.request(method, path, body)
            delays.append(time.perf_counter() - started)
            if status > 299:
                raise ConnectionError(f"{method} {path} was answered with {status}: {answer[:200]!r}")

    started = time.perf_counter()
    await asyncio.gather(*map(work, opened))
    seconds = time.perf_counter() - started
    for connection in opened:
        connection.close()
    return seconds, sorted(delays)


async def ask(server: Server, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    """One request on a connection of its own."""
    connection = await Connection.open(server)
    answer = await connection.request(method, path, body)
    connection.close()
    return answer
