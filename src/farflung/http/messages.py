"""Requests, responses and streams: the interface between HTTP and the hub."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, cast

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


class Holder(Protocol):
    """Counts what stays in memory only because a client has not read its response yet."""

    def hold(self, thing: object, size: int) -> None:
        """May disconnect the client."""

    def release(self, thing: object) -> None: ...


class Uncounted:
    """For a response that is read at once."""

    def hold(self, thing: object, size: int) -> None: ...

    def release(self, thing: object) -> None: ...


Piece = bytes | memoryview
ComputedPiece = asyncio.Future[bytes]  #: is computed elsewhere
#: Called once.  The connection takes a piece, in a few milliseconds at most, whenever its client has read the pieces
#: before.  It waits for a computed piece before it takes the next one, and cancels it when the client disconnects.  It
#: drops the iterator then or at the end.
Pieces = Callable[[Holder], Iterator[Piece | ComputedPiece]]


@dataclass(frozen=True, slots=True)
class StreamedBody:
    """A body that is produced while its client reads it."""

    pieces: Pieces
    size: int | None = None  #: in bytes; None: known at its end


@dataclass(slots=True)
class Response:
    status: int
    body: bytes | StreamedBody = b""
    content_type: str = "application/json"
    headers: Headers = ()

    def whole(self) -> bytes:
        """The body, for a caller without a connection.  No piece of it may be computed."""
        return self.body if isinstance(self.body, bytes) else b"".join(cast(Iterator[Piece], self._pieces()))

    async def read(self) -> bytes:
        """The body, for a caller without a connection."""
        if isinstance(self.body, bytes):
            return self.body
        return b"".join([await piece if isinstance(piece, asyncio.Future) else piece for piece in self._pieces()])

    def _pieces(self) -> Iterator[Piece | ComputedPiece]:
        assert isinstance(self.body, StreamedBody)
        return self.body.pieces(Uncounted())


class Sink(Protocol):
    """The destination of a stream.  The connection does the chunk framing."""

    @property
    def buffered(self) -> int:
        """Bytes that the client has not read yet, without those that are still to be produced."""

    def begin(self, pieces: Pieces) -> None:
        """Write these pieces first, at the client's speed.  Only `Stream.start` may call it, and once."""

    def write(self, data: bytes) -> None:
        """Never blocks and never raises.  Does nothing after the client disconnected."""

    async def room(self) -> None:
        """Wait until the client has read most of what was written, or the stream ends."""

    def close(self) -> None:
        """End the stream cleanly."""

    def abort(self) -> None:
        """Close the connection without the last chunk, so that the client does not take it for a regular end."""


@dataclass(slots=True)
class Stream:
    """A response without a fixed end.  `start` is called once with the sink, `stop` once at the end of the stream for
    any reason."""

    start: Callable[[Sink], None]
    stop: Callable[[], None]
    status: int = 200
    content_type: str = "application/json"
    headers: Headers = ()


Answer = Response | Stream
#: Called when the head of a request has arrived but not all of its body.  Returns the sender, whose share of memory the
#: body counts against, or the response that refuses the request.
Admit = Callable[[Request], str | Response]
#: Reads are answered at once; writes are awaited.
Handler = Callable[[Request], Answer | Awaitable[Answer]]


class Flow(NamedTuple):
    """Whose request it is.  Levels share time by weight.  Tenants of a level share it equally, and so do users of a
    tenant, and the workspaces that a user sends requests to."""

    level: str
    tenant: str
    user: str
    workspace: str = ""


#: The flow of requests that never wait, where they need one.
EXEMPT: Final = Flow("exempt", "", "")
#: None for requests that never wait.
FlowOf = Callable[[Request], Flow | None]


def anyone(request: Request) -> str:
    """Admit every request, of one sender."""
    return ""


def no_flow(request: Request) -> Flow | None:
    return None


@dataclass(frozen=True, slots=True)
class Service:
    """What a server serves."""

    handler: Handler
    admit: Admit = anyone
    flow_of: FlowOf = no_flow
    shares: Mapping[str, float] = field(default_factory=dict)  #: of the time to write large responses, by level
