"""Several processes in one, each with an event loop of its own, in a time that only goes on when the test says so.

A process can stand still while time goes on, as one that was stopped, or a machine that sleeps.  What it sends may take
long, or get lost on the way there or back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from local_transport import LocalReply

from farflung.client.errors import Unreachable
from farflung.client.transport import OutgoingRequest, Reply

STEP = 0.25  #: seconds of one tick
ROUNDS = 14  #: of each event loop in one tick, more than anything here takes
EPOCH = datetime(2024, 5, 1, 12, tzinfo=UTC)

Answer = tuple[int, bytes]
Server = Callable[[OutgoingRequest], Answer]


class Loop(asyncio.SelectorEventLoop):
    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__()

    def time(self) -> float:
        return self._world.now


@dataclass
class Link:
    """Between a process and the server."""

    there: float | None = 0.0  #: seconds; None: what is sent gets lost
    back: float | None = 0.0
    up: bool = True


@dataclass
class World:
    server: Server
    now: float = 1000.0
    processes: list[Process] = field(default_factory=list)
    _later: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _order: int = 0

    def process(self, name: str) -> Process:
        process = Process(self, name, Loop(self))
        self.processes.append(process)
        return process

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self._order += 1
        self._later.append((self.now + seconds, self._order, what))

    def tick(self) -> None:
        self.now += STEP
        due = sorted((one for one in self._later if one[0] <= self.now), key=lambda one: one[:2])
        self._later = [one for one in self._later if one[0] > self.now]
        for _, _, what in due:
            what()
        for process in self.processes:
            if not process.paused:
                process.run_a_little()

    def pass_time(self, seconds: float, check: Callable[[], None] = lambda: None) -> None:
        for _ in range(int(seconds / STEP)):
            self.tick()
            check()

    def close(self) -> None:
        for process in self.processes:
            process.link = Link(up=False)
            process.paused = False
            process.stop()
        self.pass_time(10)
        for process in self.processes:
            process.loop.close()


@dataclass
class Process:
    world: World
    name: str
    loop: Loop
    link: Link = field(default_factory=Link)
    paused: bool = False
    killed: bool = False
    wall: timedelta = timedelta()  #: how wrong its clock is
    task: asyncio.Task[Any] | None = None

    def start(self, what: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.killed = False
        self.task = self.loop.create_task(what())

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def kill(self) -> None:
        """Nothing that it says any more is heard."""
        self.killed, self.paused = True, False
        self.stop()

    @property
    def ended(self) -> bool:
        return self.task is None or self.task.done()

    def clock(self) -> datetime:
        return EPOCH + timedelta(seconds=self.world.now) + self.wall

    def run_a_little(self) -> None:
        for _ in range(ROUNDS):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        """As a Transport."""
        if self.killed or not self.link.up:
            raise Unreachable("connection refused")
        answered: asyncio.Future[Answer] = self.loop.create_future()
        link = self.link

        def arrive() -> None:
            answer = self.world.server(request)

            def come_back() -> None:
                if not answered.done():
                    answered.set_result(answer)

            if link.back is not None:
                self.world.after(link.back, come_back)

        if link.there is not None:
            self.world.after(link.there, arrive)
        status, body = await answered
        yield LocalReply(status, {}, lambda: _once(body))


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def served_by(ask: Callable[[OutgoingRequest], Awaitable[Answer]]) -> tuple[Server, Callable[[], None]]:
    """A server with an event loop of its own that answers at once, and how to end it."""
    loop = asyncio.new_event_loop()

    def server(request: OutgoingRequest) -> Answer:
        async def asked() -> Answer:
            return await ask(request)

        return loop.run_until_complete(asked())

    return server, loop.close
