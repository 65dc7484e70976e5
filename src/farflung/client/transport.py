"""Requests and replies, and the sockets they travel by."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import urlsplit

from multidict import CIMultiDict

from farflung.client.connection import Connection
from farflung.client.errors import ClientError, Garbled, Unreachable
from farflung.client.line import Line

IDLE_SECONDS: Final = 30.0  #: after which a connection that nobody used is closed
WHOLE: Final = 10  #: times its patience, all of an answer may take
LONGEST_REPLY: Final = 512 * 1024 * 1024  #: bytes; more than any list should be


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str  #: path and query, percent-encoded
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    patience: float = 60.0  #: seconds until an answer begins, and without a byte of it, after which nobody waits


class Reply(Protocol):
    """The head of an answer, and a body still to be read."""

    @property
    def status(self) -> int: ...

    def header(self, name: str) -> str:
        """Empty if it is not there."""

    async def read(self) -> bytes:
        """All of the body.  Raises a ClientError if it ends too early."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives.  Ends as the body ends; raises a ClientError if it is cut off."""


class Transport(Protocol):
    def open(self, request: Request) -> AbstractAsyncContextManager[Reply]:
        """Send it, and read as long as the block lasts.  Raises a ClientError if there is no answer."""


Credentials = Callable[[], Awaitable[Mapping[str, str]]]  #: headers that say who we are, asked for each request


async def nobody() -> Mapping[str, str]:
    return {}


def nothing() -> None:
    pass


class HttpTransport:
    """HTTP/1.1 to one server, by as many connections as there are requests at the same time.  `close` it, or use it as
    a context."""

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        credentials: Credentials = nobody,
        proxy: str | None = None,
        on_unauthorized: Callable[[], None] = nothing,
        longest: int = LONGEST_REPLY,
    ) -> None:
        """`server`: scheme, host and port; `on_unauthorized` hears of each 401; `longest`: bytes of an answer that is
        read as a whole.  Must be made inside a running loop."""
        parts = urlsplit(server)
        self._address = f"{parts.scheme}://{parts.netloc}"
        self._line = Line(parts, tls, server_name, urlsplit(proxy) if proxy else None)
        self._credentials = credentials
        self._on_unauthorized = on_unauthorized
        self._longest = longest
        self._idle: list[Connection] = []
        self._closed = False

    async def __aenter__(self) -> HttpTransport:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncIterator[Reply]:
        head = self._head(request, await self._credentials())
        try:
            async with asyncio.timeout(request.patience):
                connection = await self._answered(request, head)
        except TimeoutError:
            raise Unreachable("no answer in time") from None
        if connection.status == 401:
            self._on_unauthorized()
        try:
            yield HttpReply(connection, request.patience, self._longest)
        finally:
            if connection.finish():
                self._keep(connection)

    def _head(self, request: Request, credentials: Mapping[str, str]) -> bytes:
        headers = CIMultiDict({"Host": self._line.host, "Accept-Encoding": "identity"})
        headers.extend(credentials)
        headers.update(request.headers)
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = str(len(request.body))
        headers.extend(self._line.headers)
        target = f"{self._address}{request.target}" if self._line.is_relayed else request.target
        lines = [f"{request.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        if any("\r" in line or "\n" in line for line in lines):
            raise Garbled("a header with the end of a line in it")
        return "\r\n".join([*lines, "", ""]).encode() + request.body

    async def _answered(self, request: Request, head: bytes) -> Connection:
        """A connection that is about to bring the answer.  The server may have closed one that was not used for a
        while; a question that changes nothing is then asked again."""
        again = request.method == "GET"
        while True:
            connection = self._spare()
            fresh = connection is None
            if connection is None:
                connection = await self._line.connect()
            try:
                connection.begin(head)
                await connection.head()
            except ClientError:
                connection.close()
                if fresh or not again or not connection.is_stale:
                    raise
            except BaseException:
                connection.close()
                raise
            else:
                return connection

    def _spare(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now - connection.idle_since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    def _keep(self, connection: Connection) -> None:
        if self._closed:
            connection.close()
            return
        connection.idle_since = now = asyncio.get_running_loop().time()
        self._idle.append(connection)
        while now - self._idle[0].idle_since >= IDLE_SECONDS:
            self._idle.pop(0).close()


class HttpReply:
    def __init__(self, connection: Connection, patience: float, longest: int) -> None:
        self._connection = connection
        self._patience = patience
        self._longest = longest

    @property
    def status(self) -> int:
        return self._connection.status

    def header(self, name: str) -> str:
        return self._connection.headers.get(name.lower(), "")

    async def read(self) -> bytes:
        pieces, size = [], 0
        try:
            async with asyncio.timeout(self._patience * WHOLE):
                async for chunk in self.chunks():
                    size += len(chunk)
                    if size > self._longest:
                        raise Garbled(f"an answer of more than {self._longest} bytes")
                    pieces.append(chunk)
        except TimeoutError:
            raise Unreachable("no answer in time") from None
        return b"".join(pieces)

    def chunks(self) -> AsyncIterator[bytes]:
        return self._connection.chunks(self._patience)
