"""The seam between bytes and the hub: a request comes in, a response or a stream goes out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Headers = Sequence[tuple[str, str]]


@dataclass(slots=True)
class Request:
    method: str
    path: str  #: percent-encoded, without the query
    query: str = ""  #: raw, without the question mark
    headers: Mapping[str, str] = field(default_factory=dict)  #: names in lower case; repeated ones joined by ", "
    body: bytes = b""
    certificate: bytes | None = None  #: the client's verified certificate, DER
    peer: str = ""
    read_ahead: object = None  #: what the body says, or why it says nothing, if that was found out already


@dataclass(slots=True)
class Response:
    status: int
    body: bytes | Sequence[bytes] = b""  #: a sequence is written piece by piece, without joining copies
    content_type: str = "application/json"
    headers: Headers = ()


class Sink(Protocol):
    """Where a stream writes.  Chunk framing is the connection's business."""

    @property
    def buffered(self) -> int:
        """Bytes that the client has not taken yet."""

    def write(self, data: bytes) -> None:
        """Never blocks and never raises; after the client has gone it does nothing."""

    def close(self) -> None:
        """End the stream cleanly."""

    def abort(self) -> None:
        """Cut the connection: a client too slow to keep, or one that must not take the end for a clean one."""


@dataclass(slots=True)
class Stream:
    """An answer without an end.  `start` is called once with the sink; `stop` once, when the stream is over for
    whatever reason (client gone, sink closed, server stopping)."""

    start: Callable[[Sink], None]
    stop: Callable[[], None]
    status: int = 200
    content_type: str = "application/json"
    headers: Headers = ()


Answer = Response | Stream
#: Reads answer at once; writes are awaited.
Handler = Callable[[Request], Answer | Awaitable[Answer]]
