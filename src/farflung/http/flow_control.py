"""Fairness between clients: a handler before the handler of a server.

    request ─► the event loop is free: answered at once
            └► it is busy: queued by flow ─► answered when it is the flow's turn
                                          └► 429, if the flow has too many waiting

The event loop is busy when requests took BUSY seconds in one of its turns.  The next ones are queued, and each turn
serves SLICE seconds of them, in the order of fair queues.  So a client waits for a few slices, however many connections
others have.  Requests that give way (`asyncio.sleep(0)`) are queued again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import Any, Final

from farflung.http.heads import failure
from farflung.http.messages import Answer, Flow, FlowOf, Handler, Request, Response, Stream
from farflung.lib.fair_queue import FairQueue
from farflung.lib.groups import subtract_one
from farflung.lib.worker_pool import JobTurn
from farflung.machinery.errors import too_many_requests

#: Seconds of work in a turn of the event loop, or for the next one, before requests are queued.
BUSY: Final = 0.005
#: Seconds of work of queued requests in each turn.
SLICE: Final = 0.002
#: Seconds of work after which the end of the turn is awaited.  Less would cost quick requests a tenth of their time.
NOTICED: Final = 0.003
#: Small writes to streams in a turn of the event loop before further ones wait for another.
WRITES: Final = 64
#: Bytes that count like the rest of a request, in the estimate of its cost.
OVERHEAD: Final = 2048
#: Bytes of a body for each further seat of a request.
SEAT: Final = 64 * 1024
#: Share of the latest request in the estimate for the next ones: of an expensive one, and of a cheap one.
RISING: Final = 0.5
FALLING: Final = 0.02
#: Seconds of a write and of a long read until they wait for something, before any was measured.
WRITE_COST: Final = 0.0002
READ_COST: Final = 0.005
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})

#: Reasons of rejections, as in Kubernetes.
QUEUE_FULL: Final = "queue-full"
CONCURRENCY: Final = "concurrency-limit"
TIME_OUT: Final = "time-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """How much of a server its clients may use at once."""

    reading: int = 400  #: reads in progress, which have given way
    mutating: int = 200  #: writes in progress; one with a large body counts several times
    queued: int = 500  #: requests of one user that wait for their turn
    queued_of_tenant: int = 2_000  #: … of all users of a tenant
    queued_bytes: int = 32 * 1024 * 1024  #: … and the bytes of their bodies
    streams: int = 1_000  #: open watches of one user
    wait: float = 15.0  #: seconds in the queue


class Queued:
    """A request that waits for its turn: to begin, or to go on."""

    __slots__ = ("answer", "cost", "flow", "lane", "request", "since")

    def __init__(self, flow: Flow, lane: Lane, request: Request | None, since: float, cost: float = 0.0) -> None:
        self.flow = flow
        self.lane = lane
        self.request = request  #: None: it has begun already
        self.since = since
        self.cost = cost  #: estimated seconds, which are charged in advance
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class Lane:
    """Requests that wait for the same seats.  Lanes do not wait for each other."""

    def __init__(self, shares: Mapping[str, float], seats: float, cost: float) -> None:
        self.queue: FairQueue[Queued] = FairQueue(shares)
        self.seats = seats
        self.taken = 0
        self._cost = cost / OVERHEAD  #: seconds by byte until a request waits for something

    @property
    def is_full(self) -> bool:
        return self.taken >= self.seats

    def estimate(self, size: int) -> float:
        """Seconds until a request with a body of this size waits for something."""
        return self._cost * (OVERHEAD + size)

    def learn(self, size: int, seconds: float) -> None:
        more = seconds / (OVERHEAD + size) - self._cost
        self._cost += more * (RISING if more > 0 else FALLING)


class FlowControl:
    def __init__(
        self,
        handler: Handler,
        flow_of: FlowOf,
        limits: FlowLimits,
        shares: Mapping[str, float],
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`shares`: of the event loop's time, by level."""
        self._handler = handler
        self.flow_of = flow_of
        self._limits = limits
        self.clock = clock
        self.reading = Lane(shares, limits.reading, READ_COST)
        self.mutating = Lane(shares, limits.mutating, WRITE_COST)
        self._begun = Lane(shares, inf, 0.0)
        self._lanes = (self._begun, self.reading, self.mutating)
        self._waiting = 0
        self._bytes: Counter[str] = Counter()  #: of queued bodies, by tenant
        self._streams: Counter[tuple[str, str]] = Counter()  #: open ones, by tenant and user
        self._spent = 0.0  #: seconds of work in this turn of the event loop
        self._promised = 0.0  #: … and of requests that begin in it and go on in the next one
        self._turn_ends = False  #: the end of this turn is awaited
        self.queued: Counter[str] = Counter()  #: by level
        self.dispatched: Counter[str] = Counter()  #: requests that had their turn, by level
        self.rejected: Counter[tuple[str, str]] = Counter()  #: by level and reason

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        lane = self.reading if request.method in READING else self.mutating
        if self._waiting or self._spent >= BUSY or self._promised >= BUSY or lane.taken >= lane.seats:
            return self._enqueue(request, lane)
        clock = self.clock
        started = clock()
        answer = self._handler(request)
        self._spent += clock() - started
        if self._spent > NOTICED and not self._turn_ends:
            self._await_end_of_turn()
        return answer if isinstance(answer, Response) else self._continued(request, answer, lane, None)

    @property
    def open_streams(self) -> int:
        """Of all users whose streams are limited."""
        return self._streams.total()

    # --- requests that begin ----------------------------------------------------------------------

    def _begin(self, request: Request, lane: Lane, flow: Flow) -> Answer | Awaitable[Answer]:
        """Begin a request that was queued."""
        started = self.clock()
        answer = self._handler(request)
        seconds = self.clock() - started
        self.spend(seconds)
        lane.queue.charge(flow, seconds)
        return self._continued(request, answer, lane, flow)

    def _continued(
        self, request: Request, answer: Answer | Awaitable[Answer], lane: Lane, flow: Flow | None
    ) -> Answer | Awaitable[Answer]:
        """`flow`: of a request that was queued."""
        if isinstance(answer, Response):
            return answer
        if isinstance(answer, Stream):
            return self.opened(request, answer)
        return InTurns(self, request, answer, lane, flow)

    def spend(self, seconds: float) -> None:
        """Count work of this turn."""
        self._spent += seconds
        if self._spent > NOTICED and not self._turn_ends:
            self._await_end_of_turn()

    def promise(self, seconds: float) -> None:
        """Count work of the next turn."""
        self._promised += seconds
        if self._promised > NOTICED and not self._turn_ends:
            self._await_end_of_turn()

    def opened(self, request: Request, stream: Stream) -> Answer:
        """An open stream is not in progress, but those of a user are limited."""
        flow = self.flow_of(request)
        if flow is None:
            return stream
        user = flow.tenant, flow.user
        if self._streams[user] >= self._limits.streams:
            stream.stop()
            return self._reject(flow, CONCURRENCY, f"the user has {self._limits.streams} open watches")
        self._streams[user] += 1

        def stop() -> None:
            subtract_one(self._streams, user)
            stream.stop()

        return replace(stream, stop=stop)

    def _reject(self, flow: Flow, reason: str, why: str) -> Response:
        self.rejected[flow.level, reason] += 1
        return failure(too_many_requests(f"too many requests, please try again later: {why}"))

    # --- requests that wait -----------------------------------------------------------------------

    def _enqueue(self, request: Request, lane: Lane) -> Answer | Awaitable[Answer]:
        flow = self.flow_of(request)
        if flow is None:
            return self._handler(request)
        limits, size = self._limits, len(request.body)
        if lane.queue.waiting(flow[:3]) >= limits.queued:
            return self._reject(flow, QUEUE_FULL, f"{limits.queued} requests of the user are waiting")
        waiting, held = lane.queue.waiting(flow[:2]), self._bytes[flow.tenant]
        if waiting >= limits.queued_of_tenant or (size and held + size > limits.queued_bytes):
            return self._reject(flow, QUEUE_FULL, "too many requests of the tenant's users are waiting")
        self._bytes[flow.tenant] += size
        return self._answered(self._wait(Queued(flow, lane, request, self.clock())))

    async def _answered(self, waiting: asyncio.Future[Any]) -> Answer:
        answer: Answer | Awaitable[Answer] = await waiting
        return answer if isinstance(answer, Response | Stream) else await answer

    def give_way(self, request: Request, flow: Flow | None, seconds: float) -> asyncio.Future[Any] | None:
        """The next turn of a request in progress, whose last step took `seconds`; None if it need not wait for it."""
        if not self._waiting and self._spent < BUSY:
            return None
        flow = flow or self.flow_of(request)
        return None if flow is None else self._wait(Queued(flow, self._begun, None, self.clock(), seconds))

    def _wait(self, queued: Queued) -> asyncio.Future[Any]:
        queued.lane.queue.push(queued.flow, queued)
        self._waiting += 1
        self.queued[queued.flow.level] += 1
        self._await_end_of_turn()
        return queued.answer

    def seats_left(self) -> None:
        """Called when a request leaves its seats."""
        if self._waiting:
            self._await_end_of_turn()

    def _await_end_of_turn(self) -> None:
        if not self._turn_ends:
            self._turn_ends = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        """Called by the event loop in its next turn: serve a slice of the queues."""
        self._turn_ends = False
        self._spent = self._promised = 0.0
        lanes = [lane for lane in self._lanes if lane.queue and not lane.is_full]
        for number, lane in enumerate(lanes, start=1):
            while lane.queue and not lane.is_full and self._spent + self._promised < SLICE * number / len(lanes):
                self._dispatch(lane.queue.pop())
        if any(lane.queue and not lane.is_full for lane in self._lanes):
            self._await_end_of_turn()  # otherwise the next request that leaves its seats does

    def _dispatch(self, queued: Queued) -> None:
        flow, request = queued.flow, queued.request
        self._waiting -= 1
        self.queued[flow.level] -= 1
        if request is not None:
            self._bytes[flow.tenant] -= len(request.body)
            if not self._bytes[flow.tenant]:
                del self._bytes[flow.tenant]
        if queued.answer.done():  # cancelled
            return
        if request is None:
            self._spent += queued.cost
            queued.lane.queue.charge(flow, queued.cost)
            queued.answer.set_result(None)
        elif self.clock() - queued.since > self._limits.wait:
            queued.answer.set_result(self._reject(flow, TIME_OUT, "it waited too long for its turn"))
        else:
            self.dispatched[flow.level] += 1
            try:
                queued.answer.set_result(self._begin(request, queued.lane, flow))
            except Exception as error:
                queued.answer.set_exception(error)


class InTurns:
    """An answer in progress, which has its seats unless it waits for a worker process.  Its steps are measured, and
    those between which it gives way are taken in turns with other requests."""

    __slots__ = ("_answer", "_control", "_estimate", "_flow", "_lane", "_request", "_seats")

    def __init__(
        self, control: FlowControl, request: Request, answer: Awaitable[Answer], lane: Lane, flow: Flow | None
    ) -> None:
        self._control = control
        self._request = request
        self._answer = answer
        self._lane = lane
        self._flow = flow  #: None: the event loop was free
        size = len(request.body)
        self._seats = 1 + size // SEAT
        self._estimate = lane.estimate(size)
        lane.taken += self._seats
        control.promise(self._estimate)
        if flow is not None:
            lane.queue.charge(flow, self._estimate)

    def __await__(self) -> Generator[Any, Any, Answer]:
        control, request, lane, flow, clock = self._control, self._request, self._lane, self._flow, self._control.clock
        steps = self._answer.__await__()
        charged, is_first = self._estimate, True
        error: BaseException | None = None
        try:
            while True:
                started = clock()
                try:
                    waited = steps.send(None) if error is None else steps.throw(error)
                except StopIteration as end:
                    answer: Answer = end.value
                    return control.opened(request, answer) if isinstance(answer, Stream) else answer
                finally:
                    seconds = clock() - started
                    control.spend(seconds)
                    if flow is not None:
                        lane.queue.charge(flow, seconds - charged)
                        charged = 0.0
                    if is_first:
                        is_first = False
                        lane.learn(len(request.body), seconds)
                error = None
                turn = control.give_way(request, flow, seconds) if waited is None else None
                try:
                    if turn is not None:
                        yield from turn
                    elif type(waited) is JobTurn:
                        yield from self._beside(waited)
                    else:
                        yield waited
                except BaseException as thrown:
                    error = thrown
        finally:
            lane.taken -= self._seats
            control.seats_left()

    def _beside(self, turn: JobTurn) -> Generator[Any, Any, None]:
        """Wait for a worker process, without the seats: the queue of jobs has limits of its own."""
        self._lane.taken -= self._seats
        self._control.seats_left()
        try:
            yield turn
        finally:
            self._lane.taken += self._seats


class WriteTurns:
    """Large responses are produced and written in bursts, in the order of a fair queue: SLICE seconds in each turn of
    the event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, shares: Mapping[str, float], clock: Callable[[], float] = perf_counter
    ) -> None:
        self._loop = loop
        self._queue: FairQueue[tuple[Flow, Callable[[], None]]] = FairQueue(shares)
        self._scheduled = False
        self._written = 0  #: in this turn of the event loop, without waiting
        self.clock = clock

    def may_write_now(self) -> bool:
        """Whether a small write need not wait: only the first ones of each turn."""
        if not self._written:
            self._loop.call_soon(self._forget_written)
        self._written += 1
        return self._written <= WRITES

    def _forget_written(self) -> None:
        self._written = 0

    def wait(self, flow: Flow, write: Callable[[], None]) -> None:
        """`write` is called once, in a later turn."""
        self._queue.push(flow, (flow, write))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._scheduled = True
        began = now = self.clock()
        while self._queue and now - began < SLICE:
            flow, write = self._queue.pop()
            write()
            started, now = now, self.clock()
            self._queue.charge(flow, now - started)
        self._scheduled = bool(self._queue)
        if self._scheduled:
            self._loop.call_soon(self._begin_turn)
