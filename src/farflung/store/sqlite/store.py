"""The SQLite store: an SQLite file, and the current state in memory.

`store` runs in the event loop: it assigns revisions, checks writes against memory and pending writes, and publishes
durable ones.  `writer` has the threads that commit writes and move the write-ahead log into the file.  `history` reads
changes that are no longer in memory.  `files` opens, checks, locks and loads the file.  `rows` has the tables.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import apsw

from farflung.store.base import (
    ABSENT,
    Amount,
    Change,
    Compacted,
    Conflict,
    Entry,
    FutureRevision,
    Page,
    Revision,
    Stamp,
    Subscription,
    Unavailable,
    Unusable,
    Watcher,
    check_key,
    check_prefix,
    unstamped,
)
from farflung.store.compaction import KEEP, Clock, Gaps, Marks, compact_periodically
from farflung.store.encryption import Encryption
from farflung.store.fanout import Fanout
from farflung.store.sqlite import files, rekeying, rows
from farflung.store.sqlite.history import History
from farflung.store.sqlite.writer import Checkpointer, CommitState, PendingWrite, Writer, fail_write, resolve
from farflung.store.tail import LINES

T = TypeVar("T")

PAUSE: Final = 0.005  #: seconds between two steps of a compaction, so that writes are not delayed


class SqliteStore:
    """Created by `await SqliteStore.open(path)`.  `close` must be called in the same event loop."""

    def __init__(self, opened: files.OpenFiles, *, stamp: Stamp, keep: float, clock: Clock) -> None:
        loaded = opened.loaded
        self._opened = opened
        self._stamp = stamp
        self._loop = asyncio.get_running_loop()
        self._state = loaded.state
        self._tail = loaded.tail
        self._marks = Marks(loaded.marks)
        self._gaps = Gaps(loaded.gaps)
        self._oldest = loaded.oldest
        self._last_assigned = loaded.state.revision
        self._under_way: dict[str, PendingWrite] = {}
        self._fanout = Fanout()
        self._compacting = asyncio.Lock()
        self._closed: asyncio.Task[None] | None = None
        progress = CommitState()
        self._write_error = opened.write_error
        self._writer = Writer(
            opened.writing,
            opened.encryption,
            loop=self._loop,
            committed=self._publish,
            failed=self._fail,
            progress=progress,
        )
        self._checkpointer = Checkpointer(opened.checkpointing, progress)
        self._history = History(opened.reading, self._state.get, opened.encryption)
        self._forgetting = self._loop.create_task(compact_periodically(self, keep=keep, clock=clock))

    @classmethod
    async def open(
        cls,
        path: Path,
        encryption: Encryption | None = None,
        *,
        stamp: Stamp = unstamped,
        keep: float = KEEP,
        clock: Clock = time.time,
        lines: int = LINES,
    ) -> SqliteStore:
        """Open the store in a file, or create it.  Raises Unusable, and then changes nothing.  Revisions continue after
        a gap.  `encryption`: of later writes; `keep`: seconds of history in the file; `lines`: changes in memory."""
        encryption = encryption or Encryption()
        opened = await asyncio.to_thread(files.open_files, path, encryption, lines=lines, now=clock())
        return cls(opened, stamp=stamp, keep=keep, clock=clock)

    @property
    def revision(self) -> Revision:
        return self._state.revision

    @property
    def last_assigned(self) -> Revision:
        return self._last_assigned

    @property
    def oldest(self) -> Revision:
        return self._oldest

    @property
    def write_error(self) -> str:
        return self._write_error

    def get(self, key: str) -> Entry | None:
        return self._state.get(key)

    def storage_prefixes(self) -> Sequence[str]:
        return self._state.storage_prefixes()

    def amount(self, cluster: str) -> Amount:
        return self._state.amounts.of(cluster)

    def most(self) -> Amount:
        return self._state.amounts.most()

    def list(self, prefix: str, *, after: str = "", limit: int = 0) -> Page:
        check_prefix(prefix)
        return self._state.page(prefix, after=after, limit=limit)

    async def list_at(self, prefix: str, revision: Revision, *, after: str = "", limit: int = 0) -> Page:
        check_prefix(prefix)
        self._check_revision(revision)
        if revision >= self._tail.floor:
            undone = self._tail.undone(prefix, revision)
        elif self._state.unchanged_since(prefix, revision):
            undone = {}
        else:
            return await self._history.page(prefix, revision, after=after, limit=limit)
        return self._state.page_before(prefix, after=after, limit=limit, revision=revision, undone=undone)

    async def put(self, key: str, value: bytes, *, expect: Revision) -> Entry:
        check_key(key)
        if key in self._under_way:
            await self._no_write_of(key)
        previous = self._expected(key, expect)
        revision = self._last_assigned + 1
        entry = Entry(key, compact_copy(self._stamp(value, revision)), revision)
        await self._write(Change(revision, key, entry, previous))
        return entry

    async def delete(self, key: str, *, expect: Revision) -> Revision:
        if key in self._under_way:
            await self._no_write_of(key)
        previous = self._expected(key, expect)
        if previous is None:
            raise Conflict(key, expect, ABSENT)
        revision = self._last_assigned + 1
        await self._write(Change(revision, key, None, previous))
        return revision

    async def _no_write_of(self, key: str) -> None:
        """Wait until no write of a key is pending, so that a conflict is always with a durable write."""
        while (ahead := self._under_way.get(key)) is not None:
            finished = self._loop.create_future()
            ahead.waiting.append(finished)
            await finished

    def _expected(self, key: str, expect: Revision) -> Entry | None:
        """The entry to replace."""
        if self._closed is not None:
            raise Unavailable("the store is closed")
        entry = self._state.get(key)
        actual = ABSENT if entry is None else entry.revision
        if actual != expect:
            raise Conflict(key, expect, actual)
        return entry

    async def wait_for_writes(self) -> None:
        """Writes are committed in order, so the last one is durable after all others."""
        for write in reversed(self._under_way.values()):
            done = self._loop.create_future()
            write.waiting.append(done)
            await done
            return

    def _write(self, change: Change) -> asyncio.Future[None]:
        """Assign the next revision.  The caller must not await between the check and this."""
        self._last_assigned = change.revision
        write = PendingWrite(change, self._loop.create_future())
        self._under_way[change.key] = write
        self._writer.submit(write)
        return write.outcome

    def _publish(self, writes: Sequence[PendingWrite]) -> None:
        """Make durable writes visible, call watchers, then return to the writers."""
        self._write_error = ""
        for write in writes:
            change = write.change
            del self._under_way[change.key]
            self._state.apply(change)
            self._tail.append(change)
        self._fanout.publish([write.change for write in writes])
        for write in writes:
            resolve(write.outcome, None)
            resolve_all(write.waiting)

    def _fail(self, writes: Sequence[PendingWrite], reason: str) -> None:
        """Failed writes leave their keys unchanged, and their revisions are not used."""
        self._write_error = reason
        for write in writes:
            del self._under_way[write.change.key]
        for write in writes:
            fail_write(write.outcome, reason)
            resolve_all(write.waiting)

    def subscribe(self, prefix: str, watcher: Watcher) -> Subscription:
        return self._fanout.subscribe(prefix, watcher)

    async def changes(self, prefix: str, *, since: Revision, until: Revision) -> Sequence[Change]:
        check_prefix(prefix)
        self._check_revision(since)
        if until > self.revision:
            raise FutureRevision(until, self.revision)
        if since >= self._tail.floor:
            return self._tail.changes(prefix, since=since, until=until)
        if self._state.unchanged_since(prefix, since):
            return []
        return await self._history.changes(prefix, since=since, until=until)

    def _check_revision(self, revision: Revision) -> None:
        if revision < self._oldest:
            raise Compacted(revision, self._oldest)
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if (first := self._gaps.end(revision)) != revision:
            raise Compacted(revision, first)

    async def compact(self, before: Revision) -> None:
        if before > self.revision:
            raise FutureRevision(before, self.revision)
        before = self._gaps.end(before)
        async with self._compacting:
            if before > self._oldest:
                await self._perform(partial(rows.note_compacted, before=before))
                self._oldest = before
                self._tail.forget(before)
                self._marks.forget(before)
                self._gaps.forget(before)
            await self._sweep()

    async def _sweep(self) -> None:
        finished = await self._perform(rows.sweep)
        while not finished:
            await asyncio.sleep(PAUSE)
            finished = await self._perform(rows.sweep)

    async def mark(self, moment: float) -> None:
        """Record durably that the current revision was the newest at this time."""
        revision = self.revision
        if revision > self._marks.newest:
            await self._perform(partial(rows.note_mark, revision=revision, moment=moment))
            self._marks.add(revision, moment)

    def revision_at(self, moment: float) -> Revision:
        """The newest revision with a mark at or before a time."""
        return self._marks.revision_at(moment)

    async def change_encryption(self, encryption: Encryption) -> None:
        """Use other keys for later writes; `rewrite_values` does the rest.  Raises Unusable if a key is missing that
        values need, or Unavailable."""
        state = await self._perform(rekeying.read_state)
        if missing := state.keys - encryption.key_ids:
            raise Unusable(f"the store {files.missing_keys(missing)}")
        await self._perform(partial(rekeying.begin, encryption=encryption))
        self._history.encryption = self._writer.encryption = encryption

    async def rewrite_values(self) -> bool:
        """Rewrite the values that are not encrypted with the current key, without new revisions.  Returns whether there
        was work.  May be cancelled and continued, also by the next process.  Raises Unavailable."""
        encryption = self._writer.encryption
        if (await self._perform(rekeying.read_state)).is_complete:
            return False
        finished = False
        while not finished:
            finished = await self._perform(partial(rekeying.rewrite, encryption=encryption))
            await asyncio.sleep(PAUSE)
        emptied = self._checkpointer.empty_log()
        while not emptied.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(PAUSE)
        await self._perform(partial(rekeying.finish, encryption=encryption))
        return True

    async def _perform(self, work: Callable[[apsw.Connection], T]) -> T:
        if self._closed is not None:
            raise Unavailable("the store is closed")
        return await self._writer.perform(work)

    async def close(self) -> None:
        if self._closed is None:
            self._forgetting.cancel()
            self._closed = self._loop.create_task(self._close())
        await asyncio.shield(self._closed)

    async def _close(self) -> None:
        await asyncio.wait([self._forgetting])
        await asyncio.to_thread(self._stop_threads)

    def _stop_threads(self) -> None:
        """The threads end before a connection is closed.  SQLite moves the rest of the write-ahead log into the file
        when the last connection is closed, which is the writing one."""
        self._checkpointer.stop()
        self._writer.stop()
        self._history.close()
        self._opened.checkpointing.close()
        self._opened.writing.close()
        self._opened.lock.release()


def compact_copy(value: bytes) -> bytes:
    """A copy without spare capacity: encoders over-allocate, and this value is kept."""
    return bytes(memoryview(value))


def resolve_all(waiting: Sequence[asyncio.Future[None]]) -> None:
    for future in waiting:
        resolve(future, None)
