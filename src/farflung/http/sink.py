"""The sink of a stream on a connection."""

from __future__ import annotations

import logging
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final

from farflung.http.heads import BLOCK, LAST_CHUNK, chunk, cut
from farflung.http.messages import Stream

if TYPE_CHECKING:
    from farflung.http.connection import Connection

BURST: Final = 8 * BLOCK  #: bytes of a stream's start that are written before other connections are served

log = logging.getLogger(__name__)


class StreamSink:
    """The start of a stream may be of any size: it is written at the client's speed, and later data is queued behind
    it.

    `Stream.stop` is called soon after a method of the sink, never inside it, so that a fan-out can iterate over sinks.
    """

    __slots__ = (
        "_allowance",
        "_chunked",
        "_connection",
        "_ending",
        "_open",
        "_queue",
        "_reusable",
        "_starting",
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
        self._starting = False
        self._queue: deque[bytes | memoryview] = deque()  #: not written yet
        self._waiting = 0  #: queued bytes after the start
        self._allowance = inf

    def start(self) -> None:
        self._starting = True
        try:
            self._stream.start(self)
        except Exception:
            log.exception("a stream failed at its start")
            self.abort()
        self._starting = False
        self.write_queued()

    def write_queued(self) -> None:
        """Write as much as the client can take."""
        connection, queue, left = self._connection, self._queue, BURST
        while queue and not connection.writing_paused:
            if left <= 0:
                connection.shared.loop.call_soon(self.write_queued)
                return
            data = queue.popleft()
            left -= len(data)
            connection.write(chunk(data) if self._chunked else data)
        if queue or not self._open:
            return
        self._allowance = connection.buffered + connection.shared.limits.stream_buffer
        if self._ending:
            self._ending = False
            self.close()

    @property
    def buffered(self) -> int:
        return self._connection.buffered + sum(map(len, self._queue))

    def write(self, data: bytes) -> None:
        if not self._open or self._ending or not data:
            return
        connection = self._connection
        if self._starting or self._queue:
            self._enqueue(data)
            return
        connection.write(connection.shared.framed(data) if self._chunked else data)
        if connection.writing_paused and connection.buffered > self._allowance:
            self._cut_off()

    def _enqueue(self, data: bytes) -> None:
        if len(data) > BLOCK:
            self._queue.extend(cut(data))
        else:
            self._queue.append(data)
        if self._starting:
            return
        self._waiting += len(data)
        if self._waiting > self._connection.shared.limits.stream_buffer:
            self._cut_off()

    def _cut_off(self) -> None:
        log.info("cut off %s, which reads its stream too slowly", self._connection.peer)
        self.abort()

    def close(self) -> None:
        if not self._open:
            return
        if self._starting or self._queue:
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
            self._connection.shared.loop.call_soon(self._stream.stop)
