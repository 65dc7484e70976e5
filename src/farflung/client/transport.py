"""Requests and replies, and the sockets they travel by."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import urlsplit

import aiohttp
import yarl
from multidict import CIMultiDict

from farflung.client.errors import Garbled, Unreachable

MOST_CONNECTIONS: Final = 256
CONNECT_SECONDS: Final = 10.0
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
    """HTTP/1.1 to one server.  `close` it, or use it as a context."""

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
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._tls = tls
        self._server_name = server_name
        self._credentials = credentials
        self._proxy = proxy
        self._on_unauthorized = on_unauthorized
        self._longest = longest
        connector = aiohttp.TCPConnector(limit=MOST_CONNECTIONS, keepalive_timeout=30)
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=True,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=2**20,
            max_line_size=2**16,
            max_field_size=2**16,
        )

    async def __aenter__(self) -> HttpTransport:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncIterator[Reply]:
        headers = CIMultiDict({"Accept-Encoding": "identity"})
        headers.extend(await self._credentials())
        headers.update(request.headers)
        try:
            async with asyncio.timeout(request.patience):
                response = await self._answer(request, headers)
        except FAILURES as error:
            raise _without_answer(error) from error
        if response.status == 401:
            self._on_unauthorized()
        try:
            yield _HttpReply(response, request.patience * WHOLE, self._longest)
        finally:
            response.release() if response.content.at_eof() else response.close()

    async def _answer(self, request: Request, headers: CIMultiDict[str]) -> aiohttp.ClientResponse:
        return await self._session.request(
            request.method,
            yarl.URL(self._origin + request.target, encoded=True),
            headers=headers,
            data=request.body or None,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=request.patience),
            ssl=self._tls if self._tls is not None else True,
            server_hostname=self._server_name,
            proxy=self._proxy,
            allow_redirects=False,
        )


class _HttpReply:
    def __init__(self, response: aiohttp.ClientResponse, seconds: float, longest: int) -> None:
        self._response = response
        self._seconds = seconds
        self._longest = longest

    @property
    def status(self) -> int:
        return self._response.status

    def header(self, name: str) -> str:
        return self._response.headers.get(name, "")

    async def read(self) -> bytes:
        pieces, size = [], 0
        try:
            async with asyncio.timeout(self._seconds):
                async for chunk in self.chunks():
                    size += len(chunk)
                    if size > self._longest:
                        raise Garbled(f"an answer of more than {self._longest} bytes")
                    pieces.append(chunk)
        except TimeoutError as error:
            raise _without_answer(error) from error
        return b"".join(pieces)

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except FAILURES as error:
            raise _without_answer(error) from error


#: what aiohttp raises when a server, or what is between, does not do as it should
FAILURES: Final = (aiohttp.ClientError, TimeoutError, OSError)


def _without_answer(error: Exception) -> Unreachable | Garbled:
    if isinstance(error, TimeoutError):
        return Unreachable("no answer in time")
    if isinstance(error, aiohttp.ClientResponseError):
        return Garbled(f"not an answer of HTTP: {error.message}")
    if isinstance(error, aiohttp.ClientConnectorError):
        return Unreachable(f"cannot connect to {error.host}:{error.port}: {_cause(error.os_error)}")
    return Unreachable(str(error) or type(error).__name__)


def _cause(error: OSError) -> str:
    """As the system puts it; asyncio has words of its own for what it calls."""
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno).lower()
    return error.strerror or str(error)
