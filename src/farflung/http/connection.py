"""A client's connection: parses requests and sends the responses in order.

    data_received → RequestParser → _advance → handler → _respond | _stream | _await_answers

A connection answers one request at a time.  Meanwhile the next requests wait in `_ready`.  If too many wait, reading
pauses.  Deadlines are numbers that the server's sweep compares with the clock; there are no timers per request or
connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable
from math import inf
from typing import Final, cast

from farflung.http.flow_control import WriteTurns
from farflung.http.heads import BLOCK, CLOSE, CONTINUE, KEEP_ALIVE, LAST_CHUNK, WITHOUT_BODY, Heads, chunk, failure
from farflung.http.limits import BodyBudget, Limits
from farflung.http.messages import (
    EXEMPT,
    Answer,
    ComputedPiece,
    Piece,
    Request,
    Response,
    Service,
    Stream,
    StreamedBody,
)
from farflung.http.parser import BETWEEN, BODY, HEAD, Exchange, KnownHeads, RequestParser
from farflung.http.sink import StreamSink
from farflung.http.unread import UnreadAccount, UnreadBudget
from farflung.machinery.errors import ApiError, internal, too_many_requests

log = logging.getLogger(__name__)

#: Bytes that llhttp parses at once.  It cannot be stopped between requests, so this limits the requests per call.
SLICE: Final = 4096
#: Seconds for which a large body is produced and written before other connections are served.
BURST: Final = 0.0005
#: Bytes that a client may send after its last request.
UNEXPECTED: Final = 64 * 1024
ANSWERS: Final = (Response, Stream)
#: Not a stage of the parser: the deadline must be set again.
UNKNOWN: Final = -1
BODIES_EXHAUSTED: Final = "too many large request bodies are being received; send fewer at once"
FAILED: Final = "the hub failed to answer this request; its log has the details"


class ServerState:
    """The state of a server that its connections share."""

    def __init__(self, service: Service, limits: Limits, loop: asyncio.AbstractEventLoop, now: float) -> None:
        self.handler = service.handler
        self.admit = service.admit
        self.flow_of = service.flow_of
        self.writers = WriteTurns(loop, service.shares)
        self.bodies = BodyBudget(limits.incomplete_bodies)
        self.unread = UnreadBudget(limits.unread)
        self.limits = limits
        self.loop = loop
        self.heads = Heads(now)
        self.known = KnownHeads()
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()  #: of connections whose answers are awaited
        self.requests = 0
        self.stopping = False
        self.changed = asyncio.Event()  #: a connection or a task has ended
        self.tick(loop.time(), now)
        self._framed: tuple[bytes, bytes] = (b"", b"")

    def tick(self, time: float, now: float) -> None:
        """`time`: the event loop's, coarse, so that deadlines can be set without reading the clock."""
        self.time = time
        self.deadlines = {
            BETWEEN: time + self.limits.idle_timeout,
            HEAD: time + self.limits.header_timeout,
            BODY: time + self.limits.body_timeout,
        }
        self.heads.tick(now)

    def framed(self, data: bytes) -> bytes:
        """`data` as a chunk, which is cached because a fan-out writes the same bytes to many streams."""
        last, framed = self._framed
        if data is not last:
            framed = chunk(data)
            self._framed = (data, framed) if len(data) <= BLOCK else (b"", b"")
        return framed


class Connection(asyncio.Protocol):
    """HTTP/1.1 and HTTP/1.0 with one client."""

    __slots__ = (
        "_account",
        "_admitted",
        "_answering",
        "_awaited",
        "_awaits_turn",
        "_certificate",
        "_chunked",
        "_closing",
        "_deadline",
        "_drained",
        "_final_error",
        "_finished",
        "_flow",
        "_half_closed",
        "_idle",
        "_parser",
        "_pieces",
        "_reading",
        "_ready",
        "_sender",
        "_sink",
        "_stage",
        "_task",
        "_tls",
        "_transport",
        "_unexpected",
        "_unparsed",
        "_written",
        "peer",
        "shared",
        "writing_paused",
    )

    def __init__(self, shared: ServerState) -> None:
        self.shared = shared
        self._transport: asyncio.Transport | None = None
        self._tls = False
        self._certificate: bytes | None = None
        self.peer = ""
        self._parser: RequestParser | None = None  #: None: nothing more is read
        self._ready: list[Exchange] = []
        self._unparsed: memoryview | None = None
        self._unexpected = 0
        self._admitted: Request | None = None  #: the incomplete request that was admitted
        self._sender = ""  #: … and its sender
        self._answering = False  #: a task, a stream or a large body is pending
        self._task: asyncio.Task[None] | None = None  #: awaits answers, one after the other
        self._awaited: tuple[Exchange, Awaitable[Answer]] | None = None  #: the next answer for that task
        self._idle: asyncio.Future[None] | None = None  #: that task waits for this while nothing is awaited
        self._sink: StreamSink | None = None
        self._pieces: Generator[Piece | ComputedPiece, None, None] | None = None  #: of a large body, or of a stream
        self._chunked = False  #: whether they are chunks
        self._finished: Callable[[], None] | None = None  #: called at their end
        self._awaits_turn = False  #: to write them
        self._flow = EXEMPT  #: of the request that they answer
        self._account: UnreadAccount | None = None  #: of memory that is kept for them
        self._final_error: Response | None = None  #: the error response after all others
        self._half_closed = False  #: by the client
        self._closing = False  #: our end was sent, or the connection is closed
        self._reading = True
        self._stage = BETWEEN  #: the stage that the deadline belongs to
        self._deadline = inf
        self.writing_paused = False
        self._written = 0  #: while paused: bytes that the client has to read
        self._drained = 0  #: … and had read at the last check

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        shared = self.shared
        if shared.stopping or len(shared.connections) >= shared.limits.connections:
            self.abort()
            return
        shared.connections.add(self)
        self._deadline = shared.deadlines[BETWEEN]
        self._transport.set_write_buffer_limits(shared.limits.write_buffer)
        self.peer = printed_address(transport.get_extra_info("peername"))
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._tls = True
            self._certificate = tls.getpeercert(binary_form=True)
        self._parser = self._new_parser()

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if parser is None:
            self._ignore(len(data))
        elif self._unparsed is not None:
            self._unparsed = memoryview(bytes(self._unparsed) + data)
        elif len(data) <= SLICE:
            self._parse(parser, data)
            self._advance()
        else:
            self._unparsed = memoryview(data)
            self._advance()

    def eof_received(self) -> bool:
        """A client may close its half and wait for responses, but not for the end of a stream."""
        self._half_closed = True
        return self._owes_answer() and self._sink is None and not self._tls

    def connection_lost(self, error: Exception | None) -> None:
        """A task continues: a write that has begun is finished."""
        self._transport = None
        self._closing = True
        self._read_no_more()
        if self._pieces is not None:
            self._pieces.close()
            self._pieces = self._finished = None
        self._close_account()
        if self._sink is not None:
            self._sink.end()
            self._sink = None
        self._wake()
        self.shared.connections.discard(self)
        self.shared.changed.set()

    def pause_writing(self) -> None:
        self.writing_paused = True
        self._written = self.buffered
        self._drained = 0
        self._deadline = self.shared.time + self.shared.limits.stall_timeout
        if self._pieces is not None or self._sink is not None:
            self.hold(self, self._written)

    def resume_writing(self) -> None:
        self.writing_paused = False
        self.release(self)
        self._deadline = self.shared.time + self.shared.limits.linger if self._closing else inf
        self._stage = UNKNOWN
        self.shared.loop.call_soon(self._continue)

    # Called by the server.

    @property
    def busy(self) -> bool:
        """Whether a graceful stop must wait."""
        in_request = self._parser is not None and self._parser.stage != BETWEEN
        return in_request or self._owes_answer() or self.buffered > 0

    def sweep(self, time: float) -> None:
        """Act if the deadline has passed."""
        if time < self._deadline:
            return
        if self.writing_paused:
            self._check_stall(time)
        elif self._closing:
            self.abort()
        elif self._stage == BETWEEN:
            self._hang_up()
        else:
            self._read_no_more()
            self._final_error = failure(ApiError(408, "Timeout", "the request did not arrive in time"))
            self._advance()

    def wind_down(self) -> None:
        """The server stops: end the stream, and close if nothing is pending.  Called until the connection is closed."""
        if self._sink is not None:
            self._sink.close()
        elif not self._closing and not self.busy:
            self._hang_up()

    def abort(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # Called by producers of a body, and by the sink of a stream.

    def hold(self, thing: object, size: int) -> None:
        """Count what stays in memory until the client has read it."""
        if self._account is None:
            if self._closing:
                return
            self._account = self.shared.unread.open(self._flow.tenant, self._give_up)
        self._account.hold(thing, size)

    def release(self, thing: object) -> None:
        if self._account is not None:
            self._account.release(thing)

    def _give_up(self) -> None:
        log.info("disconnected %s: too much memory was kept for clients that read slowly", self.peer)
        if self._sink is not None:
            self._sink.abort()
        else:
            self.abort()

    def _close_account(self) -> None:
        if self._account is not None:
            self._account.close()
            self._account = None

    def produce(
        self, pieces: Iterable[Piece | ComputedPiece], finished: Callable[[], None], *, chunked: bool = False
    ) -> None:
        """Write pieces at the client's speed, in turns with other connections."""
        self._pieces, self._finished, self._chunked = self._in_blocks(pieces), finished, chunked
        self._await_turn()

    def _in_blocks(self, pieces: Iterable[Piece | ComputedPiece]) -> Generator[Piece | ComputedPiece, None, None]:
        for given in pieces:
            if isinstance(given, asyncio.Future):
                try:
                    while not given.done():
                        yield given
                    piece: Piece = given.result()
                finally:
                    given.cancel()
            else:
                piece = given
            if len(piece) <= BLOCK:
                yield piece
                continue
            self.hold(piece, len(piece))
            view = memoryview(piece)
            for start in range(0, len(piece), BLOCK):
                yield view[start : start + BLOCK]
            self.release(piece)

    @property
    def buffered(self) -> int:
        if self._transport is None:
            return 0
        try:
            return self._transport.get_write_buffer_size()
        except RuntimeError:  # uvloop: the handle is closed
            return 0

    def write(self, data: bytes | memoryview) -> None:
        """Does nothing on a closed connection."""
        transport = self._transport
        if transport is None:
            return
        if self.writing_paused:
            self._written += len(data)
        try:
            transport.write(data)
        except (RuntimeError, OSError):  # uvloop raises where asyncio does not
            self.abort()

    def stream_ended(self, *, reusable: bool) -> None:
        self._sink = None
        self._close_account()
        self._answering = False
        self._stage = UNKNOWN
        if reusable and not self._unexpected and not self._half_closed and not self.shared.stopping:
            self._parser = self._new_parser()
        self._advance()

    # Parsing.

    def _new_parser(self) -> RequestParser:
        return RequestParser(self.shared.limits, self.shared.known, self._ready, self.peer, self._certificate)

    def _drop_parser(self) -> None:
        self._unparsed = None
        self._release_body()
        if self._parser is not None:
            self._parser.close()
            self._parser = None

    def _read_no_more(self) -> None:
        """Drop requests that are not answered yet."""
        self._drop_parser()
        self._ready.clear()
        self._final_error = None

    def _parse(self, parser: RequestParser, data: bytes | memoryview) -> None:
        try:
            parser.feed(data)
        except ApiError as refusal:
            self._final_error = failure(refusal)
            self._drop_parser()
        else:
            incomplete = parser.incomplete
            if self._admitted is not None and incomplete is not self._admitted:
                self._release_body()
            if parser.finished:
                self._drop_parser()
            elif incomplete is not None:
                self._receive_body(incomplete, parser.body_size)

    def _receive_body(self, request: Request, size: int) -> None:
        """Only an authenticated sender may send a body that does not arrive with its head."""
        if self._admitted is None:
            admitted = self.shared.admit(request)
            if isinstance(admitted, Response):
                self._final_error = admitted
                self._drop_parser()
                return
            self._admitted, self._sender = request, admitted
        if self._answering or self._ready:
            self._pause_reading()  # its turn comes after the requests before it
        self.shared.bodies.hold(self, self._sender, size)

    def _release_body(self) -> None:
        if self._admitted is not None:
            self._admitted = None
            self.shared.bodies.release(self)

    def refuse_body(self) -> None:
        """Called by the budget of incomplete bodies."""
        self._final_error = failure(too_many_requests(BODIES_EXHAUSTED))
        self._drop_parser()
        self.shared.loop.call_soon(self._advance)

    def _ignore(self, size: int) -> None:
        """Ignore bytes after the last request.  They are read to notice the client's end, and because closing a socket
        with unread bytes can lose the last response."""
        if self._closing:
            return
        self._unexpected += size
        if self._unexpected > UNEXPECTED:
            if self._sink is not None:
                self.abort()
            else:
                self._pause_reading()

    def _pause_reading(self) -> None:
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    # Responses.

    def _owes_answer(self) -> bool:
        waiting = self._ready or self._unparsed is not None or self._final_error is not None
        return bool(waiting) or self._answering or self.writing_paused

    def _continue(self) -> None:
        if self._pieces is not None:
            self._await_turn()
            return
        if self._sink is not None:
            self._sink.write_queued()
        self._advance()

    def _advance(self) -> None:
        """Answer waiting requests, parse what was read, then wait for the client."""
        answered = 0
        while True:
            while self._ready:
                if self._answering or self.writing_paused or self._closing:
                    if self._unparsed is not None or len(self._ready) >= self.shared.limits.pipelined:
                        self._pause_reading()
                    return
                self._answer(self._ready.pop(0))
                answered += 1
            if self._unparsed is None or self._parser is None:
                break
            if answered > self.shared.limits.pipelined:
                self._pause_reading()
                self.shared.loop.call_soon(self._continue)
                return
            data = self._unparsed[:SLICE]
            self._unparsed = self._unparsed[SLICE:] if len(self._unparsed) > SLICE else None
            self._parse(self._parser, data)
        if not (self._answering or self.writing_paused or self._closing):
            self._await_client()

    def _await_client(self) -> None:
        """All requests are answered."""
        parser = self._parser
        if parser is None or self._half_closed:
            if self._final_error is not None:
                response, self._final_error = self._final_error, None
                body = cast(bytes, response.body)
                self.write(self.shared.heads.head(response, len(body), CLOSE) + body)
            self._finish()
            return
        if parser.awaits_continue:
            parser.awaits_continue = False
            self.write(CONTINUE)
        if parser.stage != self._stage:
            self._stage = parser.stage
            self._deadline = self.shared.deadlines[parser.stage]
        if not self._reading:
            self._resume_reading()

    def _answer(self, exchange: Exchange) -> None:
        shared = self.shared
        shared.requests += 1
        self._stage = UNKNOWN
        try:
            answer = shared.handler(exchange.request)
        except Exception:
            answer = failed(exchange)
        if isinstance(answer, ANSWERS):
            self._deliver(exchange, answer)
        else:
            self._answering = True
            self._deadline = inf
            self._awaited = exchange, answer
            if self._task is None:
                self._task = shared.loop.create_task(self._await_answers())
            else:
                self._wake()
            shared.tasks.add(self._task)

    def _wake(self) -> None:
        """Resume the task of this connection if it is idle."""
        if self._idle is not None:
            idle, self._idle = self._idle, None
            if not idle.done():
                idle.set_result(None)

    async def _await_answers(self) -> None:
        """The task of this connection.  All its answers share one, because a new task costs more than many answers."""
        shared = self.shared
        task = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            while self._awaited is not None:
                (exchange, awaitable), self._awaited = self._awaited, None
                try:
                    answer = await awaitable
                    if not isinstance(answer, ANSWERS):
                        raise TypeError(f"a handler answered with {type(answer).__name__}")
                except asyncio.CancelledError:
                    self.abort()
                    raise
                except Exception:
                    answer = failed(exchange)
                finally:
                    shared.tasks.discard(task)
                    shared.changed.set()
                self._answering = False
                self._deliver(exchange, answer)
                self._advance()
                if self._awaited is not None:
                    await asyncio.sleep(0)  # other connections have their turn, even if no answer waits for anything
                elif self._sink is None and not self._closing:
                    del exchange, awaitable, answer  # an idle connection must not keep them
                    self._idle = shared.loop.create_future()
                    await self._idle
        finally:
            shared.tasks.discard(task)
            self._task = None

    def _deliver(self, exchange: Exchange, answer: Answer) -> None:
        try:
            if isinstance(answer, Stream):
                self._stream(exchange, answer)
            elif not self._closing:
                self._respond(exchange, answer)
        except Exception:
            log.exception("the answer to %s %s is malformed", exchange.request.method, exchange.request.path)
            self.abort()

    def _persistence(self, exchange: Exchange) -> bytes:
        """The Connection header; CLOSE if this response is the last one."""
        if not self._ready and (self.shared.stopping or self._has_ended()):
            return CLOSE
        return b"" if exchange.modern else KEEP_ALIVE

    def _has_ended(self) -> bool:
        """Whether the client sends no more requests and all errors are sent."""
        nothing_to_read = self._parser is None or (self._half_closed and self._unparsed is None)
        return nothing_to_read and self._final_error is None

    def _respond(self, exchange: Exchange, response: Response) -> None:
        """The only place with a request and its response; compression would be decided here."""
        body = response.body
        size = body.size if isinstance(body, StreamedBody) else len(body)
        persistence = self._persistence(exchange)
        if size is None:
            if not exchange.modern:
                persistence = CLOSE
            head = self.shared.heads.unsized_head(response, persistence, chunked=exchange.modern)
        else:
            head = self.shared.heads.head(response, size, persistence)
        if exchange.request.method == "HEAD" or response.status in WITHOUT_BODY:
            self.write(head)
        elif isinstance(body, StreamedBody):
            self._begin_large(exchange, head)
            self.produce(body.pieces(self), self._end_response, chunked=size is None and exchange.modern)
        elif len(body) <= BLOCK:
            self.write(head + body)
        else:
            self._begin_large(exchange, head)
            self.produce(iter((body,)), self._end_response)
        if persistence is CLOSE:
            self._read_no_more()

    def _begin_large(self, exchange: Exchange, head: bytes) -> None:
        self.write(head)
        self._answering = True
        self._flow = self.shared.flow_of(exchange.request) or EXEMPT

    def _end_response(self) -> None:
        """A large body is written."""
        if self._chunked:
            self.write(LAST_CHUNK)
        self._close_account()
        self._answering = False
        self._advance()

    def _await_turn(self) -> None:
        if not self._awaits_turn:
            self._awaits_turn = True
            self.shared.writers.wait(self._flow, self._write_pieces)

    def _write_pieces(self) -> None:
        """Called in the turn of this connection."""
        self._awaits_turn = False
        clock = self.shared.writers.clock
        until = clock() + BURST
        while self._pieces is not None and not self.writing_paused and not self._closing:
            try:
                piece = next(self._pieces, None)
            except ApiError as error:
                log.info("disconnected %s, whose response cannot be computed: %s", self.peer, error.message)
                self.abort()
                return
            except Exception:
                log.exception("a response to %s cannot be produced", self.peer)
                self.abort()
                return
            if piece is None:
                finished, self._finished, self._pieces = self._finished, None, None
                assert finished is not None
                finished()
                return
            if isinstance(piece, asyncio.Future):
                piece.add_done_callback(self._on_computed)
                return
            if piece:
                self.write(chunk(piece) if self._chunked else piece)
            if clock() >= until:
                self._await_turn()
                return

    def _on_computed(self, piece: ComputedPiece) -> None:
        if self._pieces is not None and not piece.cancelled():
            self._await_turn()

    def _stream(self, exchange: Exchange, stream: Stream) -> None:
        """A stream drops pipelined requests, which would wait forever."""
        parser = self._parser
        reusable = exchange.modern and parser is not None and parser.stage == BETWEEN and not self._ready
        head_only = exchange.request.method == "HEAD"
        self._read_no_more()
        if not self._closing:
            persistence = b"" if reusable and not self.shared.stopping else CLOSE
            self.write(self.shared.heads.unsized_head(stream, persistence, chunked=exchange.modern))
        sink = StreamSink(self, stream, chunked=exchange.modern, reusable=reusable)
        if head_only or self._closing or self._half_closed:
            sink.end()
            sink.start()
            self.stream_ended(reusable=reusable)
            return
        self._sink = sink
        self._flow = self.shared.flow_of(exchange.request) or EXEMPT
        self._answering = True
        self._deadline = inf
        self._resume_reading()  # to notice the client's end
        sink.start()

    # Closing.

    def _finish(self) -> None:
        """Send our end, and wait briefly for the client's."""
        self._closing = True
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        limits = self.shared.limits
        self._deadline = self.shared.time + (limits.stall_timeout if self.buffered else limits.linger)
        if self._half_closed or self._tls:  # TLS has its own end
            transport.close()
        else:
            transport.write_eof()
            self._resume_reading()

    def _hang_up(self) -> None:
        """Close an idle connection."""
        self._closing = True
        if self._transport is None or self.buffered:
            self.abort()
        else:
            self._deadline = self.shared.time + self.shared.limits.linger
            self._transport.close()

    def _check_stall(self, time: float) -> None:
        drained = self._written - self.buffered
        if drained <= self._drained:
            self.abort()
            return
        self._drained = drained
        self._deadline = time + self.shared.limits.stall_timeout


def failed(exchange: Exchange) -> Response:
    """Headers and bodies are not logged, because they contain secrets."""
    log.exception("%s %s failed", exchange.request.method, exchange.request.path)
    return failure(internal(FAILED))


def printed_address(address: object) -> str:
    """`192.0.2.1:443`, `[2001:db8::1]:443`; empty for a socket without one."""
    if not isinstance(address, tuple):
        return ""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
