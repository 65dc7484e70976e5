"""Requests and replies over a pool of connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import urlsplit

from multidict import CIMultiDict

from farflung.client.connection import ClientConnection
from farflung.client.dialer import Dialer
from farflung.client.errors import ClientError, InvalidResponse, Unreachable

IDLE_SECONDS: Final = 30.0  #: before an unused connection is closed
WHOLE: Final = 10  #: the timeout of a whole reply, as a multiple of `patience`
LONGEST_REPLY: Final = 512 * 1024 * 1024  #: bytes; more than any list should be


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    method: str
    target: str  #: path and query, percent-encoded
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    patience: float = 60.0  #: timeout in seconds for the start of the reply, and between its bytes


class Reply(Protocol):
    """Status and headers; the body is read later."""

    @property
    def status(self) -> int: ...

    def header(self, name: str) -> str:
        """Empty without that header."""

    async def read(self) -> bytes:
        """The whole body.  Raises ClientError if it is incomplete."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives.  Raises ClientError if it is incomplete."""


class Transport(Protocol):
    def open(self, request: OutgoingRequest) -> AbstractAsyncContextManager[Reply]:
        """Send a request.  The reply can be read inside the context.  Raises ClientError without a reply."""


#: returns the headers with credentials, called for each request
Credentials = Callable[[], Awaitable[Mapping[str, str]]]


async def no_credentials() -> Mapping[str, str]:
    return {}


def do_nothing() -> None:
    pass


class HttpTransport:
    """HTTP/1.1 to one server, with a connection per concurrent request.  Must be closed, or used as a context
    manager."""

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        credentials: Credentials = no_credentials,
        proxy: str | None = None,
        on_unauthorized: Callable[[], None] = do_nothing,
    ) -> None:
        """`server`: scheme, host and port; `on_unauthorized`: called after each 401.  Must be created in a running
        event loop."""
        parts = urlsplit(server)
        self._address = f"{parts.scheme}://{parts.netloc}"
        self._dialer = Dialer(parts, tls, server_name, urlsplit(proxy) if proxy else None)
        self._credentials = credentials
        self._on_unauthorized = on_unauthorized
        self._idle: list[ClientConnection] = []
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
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        head = self._head(request, await self._credentials())
        try:
            async with asyncio.timeout(request.patience):
                connection = await self._answered(request, head)
        except TimeoutError:
            raise Unreachable("no answer in time") from None
        if connection.status == 401:
            self._on_unauthorized()
        try:
            yield HttpReply(connection, request.patience)
        finally:
            if connection.finish():
                self._keep(connection)

    def _head(self, request: OutgoingRequest, credentials: Mapping[str, str]) -> bytes:
        headers = CIMultiDict({"Host": self._dialer.host, "Accept-Encoding": "identity"})
        headers.extend(credentials)
        headers.update(request.headers)
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = str(len(request.body))
        headers.extend(self._dialer.headers)
        target = f"{self._address}{request.target}" if self._dialer.is_relayed else request.target
        lines = [f"{request.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        if any("\r" in line or "\n" in line for line in lines):
            raise InvalidResponse("a header with the end of a line in it")
        return "\r\n".join([*lines, "", ""]).encode() + request.body

    async def _answered(self, request: OutgoingRequest, head: bytes) -> ClientConnection:
        """A connection with the head of the reply.  A GET is retried if the server closed an idle connection."""
        again = request.method == "GET"
        while True:
            connection = self._spare()
            fresh = connection is None
            if connection is None:
                connection = await self._dialer.connect()
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

    def _spare(self) -> ClientConnection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now - connection.idle_since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    def _keep(self, connection: ClientConnection) -> None:
        if self._closed:
            connection.close()
            return
        connection.idle_since = now = asyncio.get_running_loop().time()
        self._idle.append(connection)
        while now - self._idle[0].idle_since >= IDLE_SECONDS:
            self._idle.pop(0).close()


class HttpReply:
    def __init__(self, connection: ClientConnection, patience: float) -> None:
        self._connection = connection
        self._patience = patience

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
                    if size > LONGEST_REPLY:
                        raise InvalidResponse(f"an answer of more than {LONGEST_REPLY} bytes")
                    pieces.append(chunk)
        except TimeoutError:
            raise Unreachable("no answer in time") from None
        return b"".join(pieces)

    def chunks(self) -> AsyncIterator[bytes]:
        return self._connection.chunks(self._patience)
