"""A transport to a hub in this process, and one that breaks what goes through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from farflung.client.errors import Unreachable
from farflung.client.transport import OutgoingRequest, Reply
from farflung.http import messages

Function = messages.Handler
END = None


@dataclass
class LocalReply:
    status: int
    headers: dict[str, str]
    _chunks: Callable[[], AsyncIterator[bytes]]

    def header(self, name: str) -> str:
        return self.headers.get(name.lower(), "")

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self._chunks()])

    def chunks(self) -> AsyncIterator[bytes]:
        return self._chunks()


class _Sink:
    """A stream's sink that keeps what was written until it is read."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.aborted = False

    @property
    def buffered(self) -> int:
        return 0

    def begin(self, pieces: messages.Pieces) -> None:
        for piece in pieces(messages.Uncounted()):
            assert not isinstance(piece, asyncio.Future), "controllers watch plain JSON"
            self.write(bytes(piece))

    async def room(self) -> None: ...

    def write(self, data: bytes) -> None:
        self.queue.put_nowait(bytes(data))

    def close(self) -> None:
        self.queue.put_nowait(END)

    def abort(self) -> None:
        self.aborted = True
        self.queue.put_nowait(END)


@dataclass
class LocalTransport:
    """Calls a hub as a function.  `up = False`: it is away, and open watches break off."""

    function: Function
    token: str
    up: bool = True
    requests: list[OutgoingRequest] = field(default_factory=list)
    _sinks: set[_Sink] = field(default_factory=set)

    @property
    def writes(self) -> list[OutgoingRequest]:
        """Reviews write nothing."""
        return [one for one in self.requests if one.method != "GET" and "/subjectaccessreviews" not in one.target]

    def has_told(self, plural: str) -> bool:
        """Whether somebody watches objects of the kind, and every watch was read to its end."""
        unread = any(not sink.queue.empty() for sink in self._sinks)
        return not unread and any(f"/{plural}?" in sink.target for sink in self._sinks)

    def go_down(self) -> None:
        self.up = False
        self.cut()

    def cut(self) -> None:
        """Break off every open watch."""
        for sink in list(self._sinks):
            sink.abort()

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        if not self.up:
            raise Unreachable("connection refused")
        self.requests.append(request)
        path, _, query = request.target.partition("?")
        headers = {name.lower(): value for name, value in request.headers.items()}
        headers.setdefault("authorization", f"Bearer {self.token}")
        given = self.function(messages.Request(request.method, path, query, headers, request.body))
        answer = given if isinstance(given, messages.Response | messages.Stream) else await given
        said = {name.lower(): value for name, value in answer.headers}
        if isinstance(answer, messages.Response):
            body = await answer.read()
            yield LocalReply(answer.status, said, lambda: once(body))
            return
        assert isinstance(answer, messages.Stream)
        sink = _Sink(request.target)
        self._sinks.add(sink)
        answer.start(sink)
        try:
            yield LocalReply(answer.status, said, lambda: _written(sink))
        finally:
            self._sinks.discard(sink)
            answer.stop()


async def once(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _written(sink: _Sink) -> AsyncIterator[bytes]:
    while (data := await sink.queue.get()) is not END:
        yield data
    if sink.aborted:
        raise Unreachable("connection reset")
