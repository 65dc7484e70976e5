"""The threads that write to the file.

The writer commits all writes that were submitted during its last commit.  So many writers share the cost of a disk
sync, and a single writer does not wait.  The checkpointer moves the write-ahead log into the file between two commits.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

import apsw

from farflung.store.base import Change, Unavailable
from farflung.store.encryption import Encryption
from farflung.store.sqlite.files import LateConnection
from farflung.store.sqlite.rows import INSERT, row_of

T = TypeVar("T")

#: Rows per insert.  Each statement releases and acquires the interpreter lock.
STATEMENT: Final = 64
BATCH: Final = 1024  #: writes per commit …
BATCH_BYTES: Final = 16 * 1024 * 1024  #: … or fewer, if they are large

PERIOD: Final = 0.2  #: seconds between two checkpoints while there are writes
IDLE: Final = 2.0  #: seconds without a write before the log is truncated
RETRY_SECONDS: Final = 5.0  #: seconds before a retry after a failure
FRAMES: Final = 32_768  #: pages in the log (128 MiB) above which a checkpoint may block writers

log = logging.getLogger(__name__)


class PendingWrite:
    """A change that is not durable yet.  `outcome`: awaited by its writer; `waiting`: awaited by other writers of the
    key."""

    __slots__ = ("change", "outcome", "waiting")

    def __init__(self, change: Change, outcome: asyncio.Future[None]) -> None:
        self.change = change
        self.outcome = outcome
        self.waiting: list[asyncio.Future[None]] = []


class Job(Generic[T]):
    """Other work on the writer's connection, in its own transaction."""

    __slots__ = ("outcome", "work")

    def __init__(self, work: Callable[[apsw.Connection], T], outcome: asyncio.Future[T]) -> None:
        self.work = work
        self.outcome = outcome


class Stop:
    """Ends the writer's thread."""


@dataclass(frozen=True, slots=True)
class CommitState:
    """Shared by writer and checkpointer.  `dirty`: there are commits to move into the file.  `transfer`: held while
    either works, so that a commit never runs beside a checkpoint, where SQLite before 3.51.3 could lose it."""

    dirty: threading.Event = field(default_factory=threading.Event)
    transfer: threading.Lock = field(default_factory=threading.Lock)


class Writer:
    """Commits writes in order, and calls `committed`, or `failed` with a reason, in the event loop.  `encryption` may
    be replaced; jobs that are submitted after that run after all commits with the former one."""

    def __init__(
        self,
        connection: LateConnection,
        encryption: Encryption,
        *,
        loop: asyncio.AbstractEventLoop,
        committed: Callable[[Sequence[PendingWrite]], None],
        failed: Callable[[Sequence[PendingWrite], str], None],
        progress: CommitState,
    ) -> None:
        self.encryption = encryption
        self._connection = connection
        self._loop = loop
        self._committed = committed
        self._failed = failed
        self._progress = progress
        self._writes: deque[PendingWrite] = deque()
        self._queue: queue.SimpleQueue[Job[Any] | Stop | None] = queue.SimpleQueue()  #: None: there are writes
        self._announced = False  #: the thread will be woken for the newest writes
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, write: PendingWrite) -> None:
        """All writes of one turn of the event loop wake the thread once."""
        self._writes.append(write)
        if not self._announced:
            self._announced = True
            self._loop.call_soon(self._announce)

    def _announce(self) -> None:
        self._announced = False
        self._queue.put(None)

    async def perform(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run work between two commits.  Raises Unavailable if it fails."""
        job: Job[T] = Job(work, self._loop.create_future())
        self._queue.put(job)
        return await job.outcome

    def stop(self) -> None:
        """Commit all submitted writes and end the thread.  Blocks."""
        self._queue.put(Stop())
        self._thread.join()

    def _work(self) -> None:
        while not isinstance(item := self._queue.get(), Stop):
            if isinstance(item, Job):
                self._perform(item)
            elif self._writes:
                self._commit(self._next_batch())
                if self._writes:
                    self._queue.put(None)  # behind the jobs
        while self._writes:
            self._commit(self._next_batch())

    def _next_batch(self) -> list[PendingWrite]:
        """The writes of one commit."""
        writes: list[PendingWrite] = []
        size = 0
        while self._writes and len(writes) < BATCH and size < BATCH_BYTES:
            write = self._writes.popleft()
            writes.append(write)
            size += write_size(write)
        return writes

    def _commit(self, writes: list[PendingWrite]) -> None:
        try:
            with self._progress.transfer:
                self._insert(writes)
        except Exception as error:
            log.warning("%d writes failed: %s", len(writes), error)
            self._roll_back()
            self._call_in_loop(self._failed, writes, str(error))
        else:
            self._progress.dirty.set()
            self._call_in_loop(self._committed, writes)

    def _insert(self, writes: list[PendingWrite]) -> None:
        connection = self._connection.get()
        execute = connection.execute
        if connection.in_transaction:  # a rollback failed; statements that joined it would not be committed
            execute("rollback")
        if len(writes) <= STATEMENT:
            execute(insert(len(writes)), insert_values(writes, self.encryption))
            return
        execute("begin immediate")
        for start in range(0, len(writes), STATEMENT):
            part = writes[start : start + STATEMENT]
            execute(insert(len(part)), insert_values(part, self.encryption))
        execute("commit")

    def _perform(self, job: Job[Any]) -> None:
        try:
            with self._progress.transfer:
                connection = self._connection.get()
                connection.execute("begin immediate")
                result = job.work(connection)
                connection.execute("commit")
        except Exception as error:
            self._roll_back()
            self._call_in_loop(fail_write, job.outcome, str(error))
        else:
            self._progress.dirty.set()
            self._call_in_loop(resolve, job.outcome, result)

    def _roll_back(self) -> None:
        try:
            connection = self._connection.opened
            if connection is not None and connection.in_transaction:
                connection.execute("rollback")
        except apsw.Error:
            log.exception("a failed commit could not be rolled back")

    def _call_in_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            log.debug("the event loop ended before the store was closed")


def write_size(write: PendingWrite) -> int:
    entry = write.change.entry
    return 0 if entry is None else len(entry.value)


@lru_cache(maxsize=STATEMENT)
def insert(rows: int) -> str:
    return INSERT + ", ".join(["(?, ?, ?, ?, ?, ?)"] * rows)


def insert_values(writes: Sequence[PendingWrite], encryption: Encryption) -> list[apsw.SQLiteValue]:
    return [column for write in writes for column in row_of(write.change, encryption)]


def resolve(outcome: asyncio.Future[T], result: T) -> None:
    if not outcome.done():
        outcome.set_result(result)


def fail_write(outcome: asyncio.Future[Any], reason: str) -> None:
    if not outcome.done():
        outcome.set_exception(Unavailable(f"the store cannot write: {reason}"))


class Checkpointer:
    """Sleeps until a commit sets `progress.dirty`."""

    def __init__(self, connection: LateConnection, progress: CommitState) -> None:
        self._connection = connection
        self._dirty = progress.dirty
        self._transfer = progress.transfer
        self._stopping = threading.Event()
        self._emptied = threading.Event()  #: not set: the log is to be emptied soon
        self._emptied.set()
        self._thread = threading.Thread(target=self._work, name="store-checkpoint", daemon=True)
        self._thread.start()

    def empty_log(self) -> threading.Event:
        """Move the whole write-ahead log into the file soon, so that it has no former content of pages.  The event is
        set then."""
        self._emptied = threading.Event()
        self._dirty.set()
        return self._emptied

    def stop(self) -> None:
        """Blocks until a running checkpoint ends."""
        self._stopping.set()
        self._dirty.set()
        self._thread.join()

    def _work(self) -> None:
        while self._next_commit():
            emptied = self._emptied
            passive = emptied.is_set()
            done = self._checkpoint(apsw.SQLITE_CHECKPOINT_PASSIVE if passive else apsw.SQLITE_CHECKPOINT_TRUNCATE)
            if done:
                emptied.set()
            elif not passive:
                self._dirty.set()
            self._stopping.wait(PERIOD if done else RETRY_SECONDS)
            if not self._dirty.wait(IDLE) and not self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE):
                self._dirty.set()

    def _next_commit(self) -> bool:
        """Wait for a commit.  `stop` sets `dirty` last, so clearing it first cannot hide `_stopping`."""
        self._dirty.wait()
        self._dirty.clear()
        return not self._stopping.is_set()

    def _checkpoint(self, mode: int) -> bool:
        try:
            with self._transfer:
                connection = self._connection.get()
                frames, _ = connection.wal_checkpoint(mode=mode)
                if frames > FRAMES:
                    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:  # a reader of history needs the log
            return False
        except apsw.Error as error:
            log.warning("the write-ahead log stays as it is: %s", error)
            return False
        return True
