"""Where a stream writes its chunks."""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING

from farflung.hub.http.heads import LAST_CHUNK
from farflung.hub.http.messages import Stream

if TYPE_CHECKING:
    from farflung.hub.http.connection import Connection

log = logging.getLogger(__name__)


class StreamSink:
    """The Sink of one stream on one connection.

    `Stream.stop` is never called from within a method of the sink but soon after, so that a fan-out may write to many
    sinks while it iterates over them.
    """

    __slots__ = ("_allowance", "_chunked", "_connection", "_open", "_reusable", "_stream")

    def __init__(self, connection: Connection, stream: Stream, *, chunked: bool, reusable: bool) -> None:
        self._connection = connection
        self._stream = stream
        self._chunked = chunked
        self._reusable = reusable  #: the connection may serve other requests after the stream
        self._open = True
        self._allowance = inf

    def start(self) -> None:
        """What the stream writes at its start, however much, does not make its client a slow one."""
        try:
            self._stream.start(self)
        except Exception:
            log.exception("a stream failed at its start")
            self.abort()
        connection = self._connection
        self._allowance = connection.buffered + connection.shared.limits.stream_buffer

    @property
    def buffered(self) -> int:
        return self._connection.buffered

    def write(self, data: bytes) -> None:
        if not self._open or not data:
            return
        connection = self._connection
        connection.write(connection.shared.framed(data) if self._chunked else data)
        if connection.writing_paused and connection.buffered > self._allowance:
            log.info("cut off %s, which reads its stream too slowly", connection.peer)
            self.abort()

    def close(self) -> None:
        if not self._open:
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
        """The stream is over; whatever it writes from now on goes nowhere."""
        if self._open:
            self._open = False
            self._connection.shared.loop.call_soon(self._stream.stop)
