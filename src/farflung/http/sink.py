"""The sink of a stream on a connection."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from farflung.http.heads import BLOCK, LAST_CHUNK
from farflung.http.messages import ComputedPiece, Piece, Pieces, Stream

if TYPE_CHECKING:
    from farflung.http.connection import Connection

log = logging.getLogger(__name__)


class StreamSink:
    """The first pieces of a stream are produced at the client's speed.  Later data is queued behind them, and while the
    client does not read: the same bytes for all clients, up to a limit.

    `Stream.stop` is called soon after a method of the sink, never inside it, so that a fan-out can iterate over sinks.
    """

    __slots__ = (
        "_chunked",
        "_connection",
        "_ending",
        "_open",
        "_producing",
        "_queue",
        "_reusable",
        "_room",
        "_stream",
        "_waiting",
    )

    def __init__(self, connection: Connection, stream: Stream, *, chunked: bool, reusable: bool) -> None:
        self._connection = connection
        self._stream = stream
        self._chunked = chunked
        self._reusable = reusable  #: the connection may serve other requests after the stream
        self._open = True
        self._ending = False  #: closed when everything is written
        self._producing = False  #: the first pieces, or the queue
        self._queue: deque[bytes] = deque()  #: not written yet
        self._waiting = 0  #: its bytes
        self._room: asyncio.Future[None] | None = None  #: of writers that wait for room

    def start(self) -> None:
        try:
            self._stream.start(self)
        except Exception:
            log.exception("a stream failed at its start")
            self.abort()

    def begin(self, pieces: Pieces) -> None:
        if self._open:
            self._produce(pieces(self._connection))

    @property
    def buffered(self) -> int:
        return self._connection.buffered + self._waiting

    def write(self, data: bytes) -> None:
        if not self._open or self._ending or not data:
            return
        connection = self._connection
        writers = connection.shared.writers
        if self._producing or connection.writing_paused or len(data) > BLOCK or not writers.may_write_now():
            self._enqueue(data)
        else:
            connection.write(connection.shared.framed(data) if self._chunked else data)

    def _enqueue(self, data: bytes) -> None:
        if self._waiting > self._connection.shared.limits.stream_buffer:
            log.info("disconnected %s, which reads its stream too slowly", self._connection.peer)
            self.abort()
            return
        self._queue.append(data)
        self._waiting += len(data)
        self._connection.hold(data, len(data))
        self.write_queued()

    def write_queued(self) -> None:
        """Write as much as the client can take."""
        if self._producing or self._connection.writing_paused:
            return
        if self._queue:
            self._produce(None)
        else:
            self._wake()

    async def room(self) -> None:
        while self._open and (self._producing or self._connection.writing_paused):
            if self._room is None:
                self._room = self._connection.shared.loop.create_future()
            await asyncio.shield(self._room)

    def _wake(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    def _produce(self, first: Iterator[Piece | ComputedPiece] | None) -> None:
        self._producing = True
        self._connection.produce(self._pieces(first), self._on_produced, chunked=self._chunked)

    def _pieces(self, first: Iterator[Piece | ComputedPiece] | None) -> Iterator[Piece | ComputedPiece]:
        if first is not None:
            yield from first
        while self._queue:
            data = self._queue.popleft()
            self._waiting -= len(data)
            yield data
            self._connection.release(data)

    def _on_produced(self) -> None:
        self._producing = False
        self.write_queued()
        if self._ending:
            self._ending = False
            self.close()

    def close(self) -> None:
        if not self._open:
            return
        if self._producing or self._queue:
            self._ending = True
            return
        if self._chunked:
            self._connection.write(LAST_CHUNK)
        self.end()
        self._connection.stream_ended(reusable=self._reusable)

    def abort(self) -> None:
        if self._open:
            self.end()
            self._connection.abort()

    def end(self) -> None:
        """End the stream; later writes are dropped."""
        if self._open:
            self._open = False
            self._queue.clear()
            self._wake()
            self._connection.shared.loop.call_soon(self._stream.stop)
