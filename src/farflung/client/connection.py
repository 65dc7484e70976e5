"""A client's HTTP/1.1 connection: one request and response at a time."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Final, cast

import httptools

from farflung.client.errors import ClientError, InvalidResponse, Unreachable

MAX_HEAD_BYTES: Final = 256 * 1024  #: bytes of a status line and headers
BUFFERED_BYTES: Final = 1024 * 1024  #: unread bytes above which reading from the socket pauses
DECOMPRESSED_BYTES: Final = 256 * 1024  #: bytes that are decompressed at once
ANY_FORMAT: Final = 32 + zlib.MAX_WBITS  #: for zlib: gzip or deflate


class ClientConnection(asyncio.Protocol):
    """Created by the event loop.  `begin` a request, await `head`, read `chunks`, then `finish`."""

    def __init__(self) -> None:
        self.wire: asyncio.Transport | None = None
        self.idle_since = 0.0
        self._lost: ClientError | None = None
        self._over = True
        self._answered = False  #: the response has begun
        self._reset()

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: dict[str, str] = {}
        self._seen = 0
        self._head_done = self._ended = self._measured = self._reusable = False
        self._chunks: deque[bytes] = deque()
        self._waiting = 0
        self._paused = False
        self._error: ClientError | None = None
        self._wake: asyncio.Future[None] | None = None

    # --- requests ---------------------------------------------------------------------------------

    def begin(self, request: bytes) -> None:
        assert self.wire is not None
        self._reset()
        self._over = self._answered = False
        self.wire.write(request)

    async def head(self) -> None:
        """Wait for status and headers.  Raises ClientError."""
        while not self._head_done:
            self._check()
            await self._news()

    async def chunks(self, patience: float) -> AsyncIterator[bytes]:
        """The body as it arrives.  Raises ClientError, also after `patience` seconds without data."""
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._waiting -= len(chunk)
                if self._paused and self._waiting < BUFFERED_BYTES // 2 and self.wire is not None:
                    self._paused = False
                    self.wire.resume_reading()
                yield chunk
            if self._ended and self._error is None:
                return
            self._check()
            try:
                async with asyncio.timeout(patience):
                    await self._news()
            except TimeoutError:
                raise Unreachable("no answer in time") from None

    def finish(self) -> bool:
        """End the response.  Returns whether the connection can be reused."""
        self._over = True
        good = self._ended and self._reusable and not self._chunks and self._lost is None and self._error is None
        if not good:
            self.close()
        return good

    @property
    def is_stale(self) -> bool:
        """Whether it was closed before the server can have read the request."""
        return self._lost is not None and not self._answered

    @property
    def is_open(self) -> bool:
        return self._lost is None and self.wire is not None and not self.wire.is_closing()

    def close(self) -> None:
        if self.wire is not None:
            self.wire.abort()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._lost is not None:
            raise self._lost

    async def _news(self) -> None:
        self._wake = asyncio.get_running_loop().create_future()
        await self._wake

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _fail(self, error: ClientError) -> None:
        self._error = self._error or error
        self._wake_up()
        self.close()

    # --- callbacks of the event loop --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.wire = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses

    def data_received(self, data: bytes) -> None:
        if self._over or self._ended:
            self._reusable = False
            self.close()  # no request is pending
            return
        self._answered = True
        if not self._head_done:
            self._seen += len(data)
            if self._seen > MAX_HEAD_BYTES and not self._is_body(data):
                self._fail(InvalidResponse("not an answer of HTTP: headers without an end"))
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(InvalidResponse("not an answer of HTTP: an upgrade that was not requested"))
        except httptools.HttpParserError as error:
            if not self._ended:
                self._fail(InvalidResponse(f"not an answer of HTTP: {error}"))
            self._reusable = False

    def _is_body(self, data: bytes) -> bool:
        """Whether one large read has the end of the headers and a part of the body."""
        return len(data) > MAX_HEAD_BYTES and b"\r\n\r\n" in data[:MAX_HEAD_BYTES]

    def eof_received(self) -> None:
        if self._head_done and not self._ended and not self._measured:
            self.on_message_complete()  # the end of the connection ends the body
            self._reusable = False

    def connection_lost(self, error: Exception | None) -> None:
        self.eof_received()
        self._lost = Unreachable(str(error) if error else "the server closed the connection")
        self._wake_up()

    # --- callbacks of the parser ------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._ended:
            self._reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._ended:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._ended or status < 200:
            return
        self.status = status
        self._measured = "content-length" in self.headers or "transfer-encoding" in self.headers or status in (204, 304)
        self._unpacker = zlib.decompressobj(ANY_FORMAT) if self.headers.get("content-encoding") in COMPRESSED else None
        self._head_done = True
        self._wake_up()

    def on_body(self, body: bytes) -> None:
        if self._ended:
            return
        try:
            for piece in self._unpacked(body):
                self._chunks.append(piece)
                self._waiting += len(piece)
        except zlib.error as error:
            self._fail(InvalidResponse(f"not an answer of HTTP: {error}"))
        if self._waiting > BUFFERED_BYTES and not self._paused and self.wire is not None:
            self._paused = True
            self.wire.pause_reading()
        self._wake_up()

    def _unpacked(self, body: bytes) -> Iterator[bytes]:
        unpacker = self._unpacker
        if unpacker is None:
            yield body
            return
        while body:
            yield unpacker.decompress(body, DECOMPRESSED_BYTES)
            body = unpacker.unconsumed_tail
            if self._waiting > MAX_DECOMPRESSED:
                raise zlib.error("it unpacks to too much")

    def on_message_complete(self) -> None:
        if not self._head_done:
            self.headers = {}  # a 1xx response
            return
        if not self._ended:
            self._ended, self._reusable = True, self._parser.should_keep_alive()
            self._wake_up()


COMPRESSED: Final = frozenset({"gzip", "x-gzip", "deflate"})
MAX_DECOMPRESSED: Final = 64 * BUFFERED_BYTES  #: unread bytes of a compressed body
