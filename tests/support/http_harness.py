"""A real server with a toy handler in a thread of its own, and clients that speak raw bytes to it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson
import uvloop

from farflung.http.limits import Limits
from farflung.http.messages import (
    Admit,
    Answer,
    ComputedPiece,
    Handler,
    Holder,
    Piece,
    Pieces,
    Request,
    Response,
    Service,
    Sink,
    Stream,
    StreamedBody,
    anyone,
)
from farflung.http.server import Server, listening_sockets, serve_on

T = TypeVar("T")
PATIENCE = 60.0


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.002)


@dataclass
class Watch:
    sink: Sink | None = None
    stopped: int = 0

    def start(self, sink: Sink) -> None:
        self.sink = sink
        sink.write(b"hello\n")

    def stop(self) -> None:
        self.stopped += 1


@dataclass
class Toy:
    """Answers by path; remembers what it was asked."""

    requests: list[Request] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)
    computed: list[ComputedPiece] = field(default_factory=list)
    made: int = 0  #: bytes of bodies
    ended: int = 0  #: bodies
    pouring: asyncio.Future[None] | None = None

    def __call__(self, request: Request) -> Answer | Coroutine[Any, Any, Answer]:
        self.requests.append(request)
        kind = request.path.strip("/").split("/")[0]
        answer = getattr(self, f"answer_{kind}", self.answer_echo)
        return answer(request)

    def answer_echo(self, request: Request) -> Response:
        seen = {
            "method": request.method,
            "path": request.path,
            "query": request.query,
            "headers": dict(request.headers),
            "body": request.body.decode("latin-1"),
        }
        return Response(200, orjson.dumps(seen, option=orjson.OPT_SORT_KEYS))

    async def answer_later(self, request: Request) -> Response:
        await asyncio.sleep(0)
        return self.answer_echo(request)

    async def answer_gate(self, request: Request) -> Response:
        """Answers when the gate named by the path is opened."""
        try:
            await self.gates.setdefault(request.path, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.cancelled.append(request.path)
            raise
        self.finished.append(request.path)
        return Response(200, request.path.encode())

    def answer_watch(self, request: Request) -> Stream:
        watch = Watch()
        self.watches.append(watch)
        return Stream(watch.start, watch.stop)

    async def answer_lookup(self, request: Request) -> Stream:
        await asyncio.sleep(0)
        return self.answer_watch(request)

    def answer_pour(self, request: Request) -> Stream:
        """A stream of 300 events of 30,000 bytes, each written when there is room."""
        watch = Watch()
        self.watches.append(watch)

        async def pour(sink: Sink) -> None:
            for _ in range(300):
                self.made += 30_000
                sink.write(b"x" * 30_000)
                await sink.room()
            self.ended += 1
            sink.close()

        def start(sink: Sink) -> None:
            self.pouring = asyncio.ensure_future(pour(sink))

        return Stream(start, watch.stop)

    def answer_short(self, request: Request) -> Stream:
        """A stream that ends in its own start."""
        watch = Watch()
        self.watches.append(watch)

        def start(sink: Sink) -> None:
            watch.start(sink)
            sink.close()

        return Stream(start, watch.stop)

    def answer_stillborn(self, request: Request) -> Stream:
        watch = Watch()
        self.watches.append(watch)

        def start(sink: Sink) -> None:
            raise RuntimeError("no such watch")

        return Stream(start, watch.stop)

    def answer_big(self, request: Request) -> Response:
        """`/big/50000`: so many bytes."""
        size = int(request.path.split("/")[2])
        return Response(200, b"x" * size, content_type="text/plain")

    def answer_made(self, request: Request) -> Response:
        """`/made/1000/50`: that many pieces of that many bytes, made while the client reads."""
        pieces, size = map(int, request.path.split("/")[2:4])
        return Response(200, StreamedBody(self._make(pieces, size), pieces * size), content_type="text/plain")

    def answer_unsized(self, request: Request) -> Response:
        """As `made`, without a Content-Length."""
        pieces, size = map(int, request.path.split("/")[2:4])
        return Response(200, StreamedBody(self._make(pieces, size)), content_type="text/plain")

    def _make(self, count: int, size: int) -> Pieces:
        def pieces(holder: Holder) -> Iterator[bytes]:
            self.holders.append(holder)
            try:
                for _ in range(count):
                    self.made += size
                    yield b"x" * size
            finally:
                self.ended += 1

        return pieces

    def answer_computed(self, request: Request) -> Response:
        """`/computed/3`: so many pieces that others compute."""

        def pieces(holder: Holder) -> Iterator[Piece | ComputedPiece]:
            for number in range(int(request.path.split("/")[2])):
                yield b"%d " % number
                self.computed.append(asyncio.get_running_loop().create_future())
                yield self.computed[-1]

        return Response(200, StreamedBody(pieces))

    def answer_unmade(self, request: Request) -> Response:
        """A body that fails in its middle."""

        def pieces(holder: Holder) -> Iterator[bytes]:
            yield b"x" * 1000
            raise RuntimeError("deliberate, in the middle")

        return Response(200, StreamedBody(pieces, 2000))

    def answer_fail(self, request: Request) -> Response:
        raise RuntimeError("deliberate")

    async def answer_faillater(self, request: Request) -> Response:
        await asyncio.sleep(0)
        raise RuntimeError("deliberate, later")

    async def answer_nonsense(self, request: Request) -> Any:
        return 42

    def answer_malformed(self, request: Request) -> Any:
        return Response(200, "text")  # type: ignore[arg-type]

    async def answer_malformedlater(self, request: Request) -> Any:
        return self.answer_malformed(request)

    def answer_empty(self, request: Request) -> Response:
        return Response(204, b"ignored")

    def answer_warn(self, request: Request) -> Response:
        hostile = 'unknown "spec.a\r\nSet-Cookie: x=\x00é\ud800"'
        return Response(200, b"{}", headers=(("Warning", hostile), ("X-Plain", "yes")))

    def answer_certificate(self, request: Request) -> Response:
        return Response(200, request.certificate or b"none", content_type="application/octet-stream")


class Harness:
    """The server runs on uvloop in a thread; everything that reaches the loop's exception handler is kept."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        admit: Admit = anyone,
    ) -> None:
        self.limits = limits or Limits()
        self.loop = uvloop.new_event_loop()
        self.errors: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda loop, context: self.errors.append(context))
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        sockets = self.run(listening_sockets("127.0.0.1", 0))
        self.server: Server = self.run(serve_on(sockets, Service(handler, admit), tls=tls, limits=self.limits))
        self.port = self.server.port

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        async def calling() -> T:
            return function(*arguments)

        return self.run(calling())

    def close(self) -> None:
        self.run(self.server.stop(0))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE)
        self.loop.close()
        assert self.errors == []

    def connect(self, *, receive_buffer: int = 0) -> Client:
        return Client(self.port, receive_buffer)

    def talk(self, *parts: bytes) -> bytes:
        """Send the parts one after the other, then say that this was all, and read to the end."""
        with self.connect() as client:
            for part in parts:
                client.send(part)
            client.finish_sending()
            return client.read_all()


class Client:
    def __init__(self, port: int, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pending = b""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """The server may have hung up already: its answer is what counts."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def finish_sending(self) -> None:
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def reset(self) -> None:
        """Vanish without a clean end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def read_all(self) -> bytes:
        """Everything up to the end, be it clean or not."""
        received = [self.pending]
        self.pending = b""
        try:
            while part := self.socket.recv(65536):
                received.append(part)
        except ConnectionResetError:
            pass
        return b"".join(received)

    def read_until(self, end: bytes) -> bytes:
        while end not in self.pending:
            part = self.socket.recv(65536)
            assert part, f"the connection ended after {self.pending!r}"
            self.pending += part
        index = self.pending.index(end) + len(end)
        found, self.pending = self.pending[:index], self.pending[index:]
        return found

    def read_exactly(self, size: int) -> bytes:
        parts, missing = [self.pending], size - len(self.pending)
        while missing > 0:
            part = self.socket.recv(65536)
            assert part, f"the connection ended, and {missing} bytes are missing"
            parts.append(part)
            missing -= len(part)
        found = b"".join(parts)
        self.pending = found[size:]
        return found[:size]

    def read_answer(self) -> Reply:
        reply = parse_head(self.read_until(b"\r\n\r\n"))
        reply.body = self.read_exactly(int(reply.headers.get("content-length", "0")))
        return reply

    def read_chunk(self) -> bytes:
        size = int(self.read_until(b"\r\n"), 16)
        data = self.read_exactly(size)
        assert self.read_exactly(2) == b"\r\n"
        return data


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


def parse_head(head: bytes) -> Reply:
    first, *lines = head.removesuffix(b"\r\n\r\n").decode("latin-1").split("\r\n")
    version, status, _ = first.split(" ", 2)
    assert version == "HTTP/1.1"
    return Reply(int(status), {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)})


def replies(data: bytes) -> list[Reply]:
    """Answers to requests other than HEAD, without the interim ones."""
    found: list[Reply] = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        reply = parse_head(head)
        if reply.status == 100:
            continue
        if reply.headers.get("transfer-encoding") == "chunked":
            reply.body, data = unchunk(data)
        else:
            size = int(reply.headers.get("content-length", "0"))
            assert len(data) >= size, "the last answer is cut off"
            reply.body, data = data[:size], data[size:]
        found.append(reply)
    return found


def unchunk(data: bytes) -> tuple[bytes, bytes]:
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        assert data[length : length + 2] == b"\r\n"
        body, data = body + data[:length], data[length + 2 :]
        if not length:
            break
    return body, data
