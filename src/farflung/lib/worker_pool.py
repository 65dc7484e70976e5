"""Worker processes for long computations, so that they do not hold the event loop.

A worker runs one job at a time: a function of a module, with arguments and a result that can be pickled.  Jobs wait in
a queue per owner, and owners take turns, so one owner with many jobs delays another by at most one job per worker.

A worker starts when it is first needed, as a fresh interpreter: a fork of a process with threads could deadlock.  It
ends when its pool closes its socket, and so also when the process of the pool is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")
Question = Any
Ask = Callable[[Question], Any]  #: for a job: waits for the answer of the pool's process
Answer = Callable[[Question], Awaitable[Any]]

SIZE: Final = struct.Struct("<Q")
MEMORY: Final = 2 * 1024**3  #: bytes of address space; a job that needs more fails with MemoryError
WORN: Final = 256 * 1024**2  #: bytes of resident memory after a job; a worker that keeps more is replaced
SIZES: Final = Path("/proc/self/statm")
NICENESS: Final = 5  #: other processes of the hub have priority
CODE: Final = "import sys; from farflung.lib.worker_pool import serve; serve(int(sys.argv[1]))"

#: kinds of messages: of the pool …
RUN: Final = "run"
ANSWERED: Final = "answered"
REFUSED: Final = "refused"
#: … and of a worker
ASKED: Final = "asked"
RETURNED: Final = "returned"
RAISED: Final = "raised"


class Overloaded(Exception):
    """Too many jobs wait already, of the owner or of all owners."""


class JobTimeout(Exception):
    """The job took too long; its worker was killed."""


class WorkerLost(Exception):
    """The worker ended during the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    workers: int = 2
    waiting: int = 64  #: jobs
    waiting_per_owner: int = 16


class WorkerPool:
    """Used by one event loop."""

    def __init__(self, limits: PoolLimits | None = None) -> None:
        self._limits = limits or PoolLimits()
        self._queues: dict[str, deque[asyncio.Future[Worker]]] = {}  #: by owner; the first owner has the next turn
        self._idle: list[Worker] = []
        self._workers: set[Worker] = set()
        self._closed = False
        self.waiting = 0  #: jobs
        self.finished = 0  #: jobs
        self.lost = 0  #: workers that were killed or ended during a job

    @property
    def running(self) -> int:
        return len(self._workers) - len(self._idle)

    async def run(self, owner: str, seconds: float, function: Callable[..., T], *args: Any) -> T:
        """The result of `function(*args)`, computed by a worker, or its exception.  `seconds`: of the job, without the
        time in the queue.  Raises Overloaded, JobTimeout or WorkerLost."""
        result: T = await self._run(owner, seconds, None, (function, args))
        return result

    async def converse(self, owner: str, seconds: float, answer: Answer, function: Callable[..., T], *args: Any) -> T:
        """The same for `function(ask, *args)`.  The pool's process answers what the function asks, and what `answer`
        raises, `ask` raises."""
        result: T = await self._run(owner, seconds, answer, (function, args))
        return result

    async def _run(self, owner: str, seconds: float, answer: Answer | None, job: Any) -> Any:
        worker = await self._turn(owner)
        finished = worn = False
        try:
            async with asyncio.timeout(seconds):
                kind, value, worn = await worker.perform(job, answer)
            finished = True
        except TimeoutError:
            raise JobTimeout from None
        except (OSError, EOFError, pickle.PickleError):
            raise WorkerLost from None
        finally:
            self.lost += not finished
            self._release(worker, reusable=finished and not worn)
        self.finished += 1
        if kind == RAISED:
            raise value
        return value

    async def _turn(self, owner: str) -> Worker:
        if self._closed:
            raise Overloaded
        queue = self._queues.setdefault(owner, deque())
        if len(queue) >= self._limits.waiting_per_owner or self.waiting >= self._limits.waiting:
            if not queue:
                del self._queues[owner]
            raise Overloaded
        turn: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self.waiting += 1
        self._assign()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(turn.result(), reusable=True)
            raise

    def _assign(self) -> None:
        """Give free workers to the owners in turn."""
        while self._queues and (self._idle or len(self._workers) < self._limits.workers):
            owner = next(iter(self._queues))
            queue = self._queues.pop(owner)
            turn = queue.popleft()
            self.waiting -= 1
            if queue:
                self._queues[owner] = queue  # behind all others
            if turn.cancelled():
                continue
            try:
                turn.set_result(self._free_worker())
            except OSError:
                turn.set_exception(WorkerLost())

    def _free_worker(self) -> Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive():
                return worker
            self._remove(worker)
        worker = Worker()
        self._workers.add(worker)
        return worker

    def _release(self, worker: Worker, *, reusable: bool) -> None:
        if reusable and not self._closed:
            self._idle.append(worker)
        else:
            self._remove(worker)
        self._assign()

    def _remove(self, worker: Worker) -> None:
        self._workers.discard(worker)
        worker.close()

    def close(self) -> None:
        """Kill the workers.  Jobs in progress raise WorkerLost, waiting ones Overloaded."""
        self._closed = True
        for queue in self._queues.values():
            for turn in queue:
                if not turn.done():
                    turn.set_exception(Overloaded())
        self._queues.clear()
        self.waiting = 0
        while self._idle:
            self._remove(self._idle.pop())
        for worker in self._workers:
            worker.kill()  # its job notices


class Worker:
    """A process, as its pool sees it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-P", "-c", CODE, str(number)]
            try:
                self._process = subprocess.Popen(  # noqa: S603  our own interpreter
                    command, stdin=subprocess.DEVNULL, pass_fds=[number]
                )
            except OSError:
                self._socket.close()
                raise
        self._end = weakref.finalize(self, end, self._process, self._socket)

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    async def perform(self, job: Any, answer: Answer | None) -> tuple[str, Any, bool]:
        """The last message of a job, and whether the worker keeps too much memory for another one."""
        await self._send(RUN, (*job, answer is not None))
        while True:
            kind, value = await self._receive()
            if kind != ASKED:
                return kind, *value
            assert answer is not None, "only a conversation asks"
            try:
                found = await answer(value)
            except Exception as error:
                await self._send(REFUSED, error)
            else:
                await self._send(ANSWERED, found)

    async def _send(self, kind: str, value: Any) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, packed(kind, value))

    async def _receive(self) -> tuple[str, Any]:
        size = SIZE.unpack(await self._read(SIZE.size))[0]
        message: tuple[str, Any] = pickle.loads(await self._read(size))  # noqa: S301  our own process wrote it
        return message

    async def _read(self, size: int) -> bytearray:
        loop, data = asyncio.get_running_loop(), bytearray(size)
        left = memoryview(data)
        while left:
            count = await loop.sock_recv_into(self._socket, left)
            if not count:
                raise EOFError
            left = left[count:]
        return data

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self._end()


def end(process: subprocess.Popen[bytes], connection: socket.socket) -> None:
    process.kill()
    process.wait()
    connection.close()


def packed(kind: str, value: Any) -> bytes:
    message = pickle.dumps((kind, value), pickle.HIGHEST_PROTOCOL)
    return SIZE.pack(len(message)) + message


# --- in a worker ----------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Run jobs until the pool closes the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process of the pool decides
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would have the secrets of the job
    os.nice(NICENESS)
    with socket.socket(fileno=descriptor) as connection:
        inbox: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=receive, args=(connection, inbox), daemon=True).start()

        def ask(question: Question) -> Any:
            connection.sendall(packed(ASKED, question))
            kind, value = pickle.loads(inbox.get())  # noqa: S301  the pool wrote it
            if kind == REFUSED:
                raise value
            return value

        while True:
            _, (function, args, converses) = pickle.loads(inbox.get())  # noqa: S301
            try:
                message = packed(RETURNED, (function(ask, *args) if converses else function(*args), is_worn()))
            except Exception as error:
                message = packed_error(error)
            connection.sendall(message)
            del function, args, message


def receive(connection: socket.socket, inbox: SimpleQueue[bytes]) -> None:
    """Notice the end of the pool also during a job."""
    with contextlib.suppress(OSError), connection.makefile("rb") as stream:
        while len(head := stream.read(SIZE.size)) == SIZE.size:
            inbox.put(stream.read(SIZE.unpack(head)[0]))
    os._exit(0)


def is_worn() -> bool:
    """Reads the present size: ru_maxrss begins with that of the process which started the worker."""
    return int(SIZES.read_bytes().split()[1]) * resource.getpagesize() > WORN


def packed_error(error: Exception) -> bytes:
    """An exception that cannot be pickled becomes its text."""
    try:
        message = packed(RAISED, (error, is_worn()))
        pickle.loads(message[SIZE.size :])  # noqa: S301
    except Exception:
        return packed(RAISED, (RuntimeError(f"{type(error).__name__}: {error}"), is_worn()))
    return message
