"""Requests and replies, and the sockets they travel by."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import urlsplit

import aiohttp
import yarl

from farflung.client.errors import Garbled, Unreachable

MOST_CONNECTIONS: Final = 256
CONNECT_SECONDS: Final = 10.0
LONGEST_REPLY: Final = 512 * 1024 * 1024  #: bytes; more than any list should be


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str  #: path and query, percent-encoded
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    patience: float = 60.0  #: seconds without a byte after which nobody waits any longer


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
    ) -> None:
        """`server`: scheme, host and port.  Must be made inside a running loop."""
        parts = urlsplit(server)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._tls = tls
        self._server_name = server_name
        self._credentials = credentials
        self._proxy = proxy
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
        timeout = aiohttp.ClientTimeout(
            total=None, connect=None, sock_connect=CONNECT_SECONDS, sock_read=request.patience
        )
        headers = {"Accept-Encoding": "identity", **await self._credentials(), **request.headers}
        try:
            response = await self._session.request(
                request.method,
                yarl.URL(self._origin + request.target, encoded=True),
                headers=headers,
                data=request.body or None,
                timeout=timeout,
                ssl=self._tls if self._tls is not None else True,
                server_hostname=self._server_name,
                proxy=self._proxy,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _without_answer(error) from error
        try:
            yield _HttpReply(response)
        finally:
            response.release() if response.content.at_eof() else response.close()


class _HttpReply:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status

    def header(self, name: str) -> str:
        return self._response.headers.get(name, "")

    async def read(self) -> bytes:
        pieces, size = [], 0
        async for chunk in self.chunks():
            size += len(chunk)
            if size > LONGEST_REPLY:
                raise Garbled(f"an answer of more than {LONGEST_REPLY} bytes")
            pieces.append(chunk)
        return b"".join(pieces)

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _without_answer(error) from error


def _without_answer(error: Exception) -> Unreachable | Garbled:
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return Unreachable("no answer in time")
    if isinstance(error, aiohttp.ClientResponseError):
        return Garbled(f"not an answer of HTTP: {error.message}")
    return Unreachable(str(error) or type(error).__name__)
