"""Worker processes for long computations, so that they do not hold the event loop.

A worker runs one job at a time: a function of a module, with arguments and a result that can be pickled.  Jobs wait in
queues of their tenants.  The tenant that used the least time is next, and in a tenant the user.  A second job of a
tenant begins only while half of the workers are free, so one tenant's long jobs leave workers to others.

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
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

from farflung.lib.fair_queue import FairQueue

T = TypeVar("T")
Question = Any
Ask = Callable[[Question], Any]  #: for a job: waits for the answer of the pool's process
Answer = Callable[[Question], Awaitable[Any]]

SIZE: Final = struct.Struct("<Q")
MEMORY: Final = 2 * 1024**3  #: bytes of address space; a job that needs more fails with MemoryError
WORN: Final = 256 * 1024**2  #: bytes of resident memory after a job; a worker that keeps more is replaced
SIZES: Final = Path("/proc/self/statm")
NICENESS: Final = 5  #: other processes of the hub have priority
IDLE: Final = 60.0  #: seconds after which a worker without jobs ends
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
    """Too many jobs of the user or the tenant wait already."""


class JobTimeout(Exception):
    """The job took too long; its worker was killed."""


class WorkerLost(Exception):
    """The worker ended during the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    workers: int = 4
    waiting_of_user: int = 16  #: jobs
    waiting_of_tenant: int = 64  #: jobs
    bytes_of_tenant: int = 32 * 1024 * 1024  #: of waiting jobs


class JobOwner(NamedTuple):
    level: str  #: levels share the time of workers by weight
    tenant: str
    user: str
    workspace: str = ""


class JobTerms(NamedTuple):
    owner: JobOwner
    seconds: float  #: that the job may take, without the time in the queue
    size: int = 0  #: bytes that it holds in the queue


class JobTurn(asyncio.Future["Worker"]):
    """Awaited by a job that waits for a worker."""

    def __init__(self, terms: JobTerms) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.owner = terms.owner
        self.size = terms.size


class TenantJobs:
    def __init__(self, used: float) -> None:
        self.used = used  #: seconds of workers by the weight of its level, from the start of the pool
        self.waiting: FairQueue[JobTurn] = FairQueue({})  #: by user and workspace
        self.bytes = 0  #: of waiting jobs
        self.running = 0


class WorkerPool:
    """Used by one event loop."""

    def __init__(self, limits: PoolLimits | None = None, weights: Mapping[str, float] | None = None) -> None:
        """`weights`: of levels; 1 by default."""
        self._limits = limits or PoolLimits()
        self._weights = weights or {}
        self._tenants: dict[tuple[str, str], TenantJobs] = {}  #: by level and name; those with jobs
        self._clock = 0.0  #: what the tenant that had the last turn had used
        self._idle: dict[Worker, asyncio.TimerHandle] = {}  #: and when they end; the last one is the next to be used
        self._workers: set[Worker] = set()
        self._closed = False
        self.waiting = 0  #: jobs
        self.finished = 0  #: jobs
        self.lost = 0  #: workers that were killed or ended during a job

    @property
    def running(self) -> int:
        return len(self._workers) - len(self._idle)

    async def run(self, terms: JobTerms, function: Callable[..., T], *args: Any) -> T:
        """The result of `function(*args)`, computed by a worker, or its exception.  Raises Overloaded, JobTimeout or
        WorkerLost."""
        result: T = await self._run(terms, None, (function, args))
        return result

    async def converse(self, terms: JobTerms, answer: Answer, function: Callable[..., T], *args: Any) -> T:
        """The same for `function(ask, *args)`.  The pool's process answers what the function asks, and what `answer`
        raises, `ask` raises."""
        result: T = await self._run(terms, answer, (function, args))
        return result

    async def _run(self, terms: JobTerms, answer: Answer | None, job: Any) -> Any:
        worker = await self._granted(JobTurn(terms))
        finished = worn = False
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(terms.seconds):
                kind, value, worn = await worker.perform(job, answer)
            finished = True
        except TimeoutError:
            raise JobTimeout from None
        except (OSError, EOFError, pickle.PickleError):
            raise WorkerLost from None
        finally:
            self.lost += not finished
            self._charge(terms.owner, loop.time() - started)
            self._release(terms.owner, worker, reusable=finished and not worn)
        self.finished += 1
        if kind == RAISED:
            raise value
        return value

    async def _granted(self, turn: JobTurn) -> Worker:
        self._enqueue(turn)
        self._assign()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(turn.owner, turn.result(), reusable=True)
            raise

    def _enqueue(self, turn: JobTurn) -> None:
        """Raises Overloaded."""
        limits, owner = self._limits, turn.owner
        tenant = self._tenants.get(owner[:2])
        if self._closed:
            raise Overloaded
        if tenant is None:
            tenant = self._tenants[owner[:2]] = TenantJobs(self._clock)
        elif (
            tenant.waiting.waiting(owner[2:3]) >= limits.waiting_of_user
            or len(tenant.waiting) >= limits.waiting_of_tenant
            or (tenant.bytes and tenant.bytes + turn.size > limits.bytes_of_tenant)
        ):
            raise Overloaded
        tenant.waiting.push(owner[2:], turn)
        tenant.bytes += turn.size
        self.waiting += 1

    def _assign(self) -> None:
        """Give free workers to jobs."""
        while self.running < self._limits.workers and (tenant := self._next_tenant()) is not None:
            turn = tenant.waiting.pop()
            tenant.bytes -= turn.size
            self.waiting -= 1
            if turn.cancelled():
                self._forget(turn.owner)
                continue
            self._clock = max(self._clock, tenant.used)
            try:
                worker = self._free_worker()
            except OSError:
                turn.set_exception(WorkerLost())
                self._forget(turn.owner)
            else:
                tenant.running += 1
                turn.set_result(worker)

    def _next_tenant(self) -> TenantJobs | None:
        is_half_free = 2 * self.running < self._limits.workers
        ready = (one for one in self._tenants.values() if one.waiting and (is_half_free or not one.running))
        return min(ready, key=attrgetter("used"), default=None)

    def _free_worker(self) -> Worker:
        while self._idle:
            worker, end_of_idleness = self._idle.popitem()
            end_of_idleness.cancel()
            if worker.is_alive():
                return worker
            self._remove(worker)
        worker = Worker()
        self._workers.add(worker)
        return worker

    def _charge(self, owner: JobOwner, seconds: float) -> None:
        tenant = self._tenants[owner[:2]]
        tenant.used += seconds / self._weights.get(owner.level, 1.0)
        tenant.waiting.charge(owner[2:], seconds)

    def _release(self, owner: JobOwner, worker: Worker, *, reusable: bool) -> None:
        self._tenants[owner[:2]].running -= 1
        self._forget(owner)
        if reusable and not self._closed:
            self._idle[worker] = asyncio.get_running_loop().call_later(IDLE, self._end_idle, worker)
        else:
            self._remove(worker)
        self._assign()

    def _forget(self, owner: JobOwner) -> None:
        """Forget a tenant without jobs."""
        tenant = self._tenants[owner[:2]]
        if not tenant.running and not tenant.waiting:
            del self._tenants[owner[:2]]

    def _end_idle(self, worker: Worker) -> None:
        del self._idle[worker]
        self._remove(worker)

    def _remove(self, worker: Worker) -> None:
        self._workers.discard(worker)
        worker.close()

    def close(self) -> None:
        """Kill the workers.  Jobs in progress raise WorkerLost, waiting ones Overloaded."""
        self._closed = True
        for tenant in self._tenants.values():
            while tenant.waiting:
                turn = tenant.waiting.pop()
                if not turn.done():
                    turn.set_exception(Overloaded())
        self._tenants = {name: tenant for name, tenant in self._tenants.items() if tenant.running}
        self.waiting = 0
        while self._idle:
            worker, end_of_idleness = self._idle.popitem()
            end_of_idleness.cancel()
            self._remove(worker)
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
