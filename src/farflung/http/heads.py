"""Encoding of responses: cached heads, bodies in blocks, and chunks of streams."""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus
from typing import Final

import orjson

from farflung.http.messages import Headers, Piece, Response, Stream
from farflung.machinery.errors import ApiError

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
CLOSE: Final = b"Connection: close\r\n"
KEEP_ALIVE: Final = b"Connection: keep-alive\r\n"
CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"
#: Bytes written to the socket at once.  Larger bodies are written in blocks at the client's speed.
BLOCK: Final = 128 * 1024
WITHOUT_BODY: Final = frozenset({204, 304})
CONTROLS: Final = dict.fromkeys([*range(0x20), 0x7F], " ")
CACHED_STARTS: Final = 256


class Heads:
    """Builds response heads.  The common part is cached for a second, because it has the Date."""

    __slots__ = ("_date", "_starts")

    def __init__(self, now: float) -> None:
        self._starts: dict[tuple[int, str], bytes] = {}
        self.tick(now)

    def tick(self, now: float) -> None:
        """`now`: seconds since the epoch."""
        self._date = formatdate(now, usegmt=True)
        self._starts.clear()

    def head(self, response: Response, size: int, persistence: bytes) -> bytes:
        """`persistence`: the Connection header line, or empty."""
        start = self._starts.get((response.status, response.content_type)) or self._start(response)
        if response.headers:
            start += header_lines(response.headers)
        if response.status in WITHOUT_BODY:
            return b"%b%b\r\n" % (start, persistence)
        return b"%bContent-Length: %d\r\n%b\r\n" % (start, size, persistence)

    def unsized_head(self, answer: Response | Stream, persistence: bytes, *, chunked: bool) -> bytes:
        """Of a body that ends with the last chunk, or with the connection."""
        start = self._starts.get((answer.status, answer.content_type)) or self._start(answer)
        return b"%b%b%b%b\r\n" % (start, header_lines(answer.headers), CHUNKED if chunked else b"", persistence)

    def _start(self, answer: Response | Stream) -> bytes:
        if len(self._starts) >= CACHED_STARTS:
            self._starts.clear()
        start = f"HTTP/1.1 {answer.status} {phrase(answer.status)}\r\nDate: {self._date}\r\n".encode()
        if answer.content_type:
            start += header_lines((("Content-Type", answer.content_type),))
        self._starts[answer.status, answer.content_type] = start
        return start


def phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def header_lines(headers: Headers) -> bytes:
    """Values may contain input of clients: control characters become spaces, so that none ends the line."""
    return "".join([f"{name}: {value.translate(CONTROLS)}\r\n" for name, value in headers]).encode(errors="replace")


def chunk(data: Piece) -> bytes:
    return b"".join((b"%x\r\n" % len(data), data, b"\r\n"))


def failure(error: ApiError) -> Response:
    return Response(error.code, orjson.dumps(error.status()) + b"\n", headers=error.headers)
