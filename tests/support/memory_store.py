"""A store in memory: the reference that other stores are tested against, and the store of most tests.
The changes of any store as a stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from farflung.store.base import (
    ABSENT,
    FIRST,
    Amount,
    Change,
    Compacted,
    Conflict,
    Entry,
    FutureRevision,
    Page,
    Revision,
    Stamp,
    Store,
    Subscription,
    Unavailable,
    Watcher,
    check_key,
    check_prefix,
    resource_prefix,
    unstamped,
)
from farflung.store.compaction import KEEP, Clock, Marks
from farflung.store.fanout import Fanout
from farflung.store.state import StoredAmounts


class MemoryStore:
    """A store without a file.  Writes compact history that is older than `keep` seconds."""

    def __init__(self, *, stamp: Stamp = unstamped, clock: Clock = time.time, keep: float = KEEP) -> None:
        self._stamp = stamp
        self._clock = clock
        self._keep = keep
        self._entries: dict[str, Entry] = {}
        self._keys: dict[str, set[str]] = {}  #: by resource
        self._log: list[Change] = []
        self._amounts = StoredAmounts()
        self._revision = FIRST
        self._oldest = FIRST
        self._marks = Marks()
        self._marked = clock()
        self._fanout = Fanout()
        self._closed = False

    @property
    def revision(self) -> Revision:
        return self._revision

    @property
    def last_assigned(self) -> Revision:
        return self._revision

    @property
    def oldest(self) -> Revision:
        return self._oldest

    @property
    def write_error(self) -> str:
        return ""

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def storage_prefixes(self) -> Sequence[str]:
        return sorted(prefix for prefix, keys in self._keys.items() if keys)

    def amount(self, cluster: str) -> Amount:
        return self._amounts.of(cluster)

    def most(self) -> Amount:
        return self._amounts.most()

    def list(self, prefix: str, *, after: str = "", limit: int = 0) -> Page:
        check_prefix(prefix)
        keys = self._keys.get(resource_prefix(prefix), ())
        return _page(self._entries, keys, prefix, self._revision, after, limit)

    async def list_at(self, prefix: str, revision: Revision, *, after: str = "", limit: int = 0) -> Page:
        check_prefix(prefix)
        self._check_revision(revision)
        entries = dict(self._entries)
        for change in reversed(self._log):
            if change.revision <= revision:
                break
            if change.previous is None:
                del entries[change.key]
            else:
                entries[change.key] = change.previous
        return _page(entries, entries, prefix, revision, after, limit)

    async def put(self, key: str, value: bytes, *, expect: Revision) -> Entry:
        check_key(key)
        previous = self._expected(key, expect)
        revision = self._revision + 1
        entry = Entry(key, self._stamp(value, revision), revision)
        self._write(Change(revision, key, entry, previous))
        return entry

    async def delete(self, key: str, *, expect: Revision) -> Revision:
        previous = self._expected(key, expect)
        if previous is None:
            raise Conflict(key, expect, ABSENT)
        self._write(Change(self._revision + 1, key, None, previous))
        return self._revision

    def _expected(self, key: str, expect: Revision) -> Entry | None:
        if self._closed:
            raise Unavailable("the store is closed")
        entry = self._entries.get(key)
        actual = ABSENT if entry is None else entry.revision
        if actual != expect:
            raise Conflict(key, expect, actual)
        return entry

    def _write(self, change: Change) -> None:
        if change.entry is None:
            del self._entries[change.key]
            self._keys[resource_prefix(change.key)].remove(change.key)
        else:
            self._entries[change.key] = change.entry
            self._keys.setdefault(resource_prefix(change.key), set()).add(change.key)
        self._amounts.follow(change)
        self._log.append(change)
        self._revision = change.revision
        self._fanout.publish([change])
        self._forget_older(self._clock())

    def _forget_older(self, now: float) -> None:
        if now - self._marked >= self._keep / 60:
            self._marked = now
            self._marks.add(self._revision, now)
            self._compact(self._marks.revision_at(now - self._keep))

    def subscribe(self, prefix: str, watcher: Watcher) -> Subscription:
        return self._fanout.subscribe(prefix, watcher)

    async def changes(self, prefix: str, *, since: Revision, until: Revision) -> Sequence[Change]:
        check_prefix(prefix)
        self._check_revision(since)
        self._check_revision(max(since, until))
        return [change for change in self._log if since < change.revision <= until and change.key.startswith(prefix)]

    def _check_revision(self, revision: Revision) -> None:
        if revision < self._oldest:
            raise Compacted(revision, self._oldest)
        if revision > self._revision:
            raise FutureRevision(revision, self._revision)

    async def compact(self, before: Revision) -> None:
        if before > self._revision:
            raise FutureRevision(before, self._revision)
        self._compact(before)

    def _compact(self, before: Revision) -> None:
        if before > self._oldest:
            self._oldest = before
            self._log = [change for change in self._log if change.revision > before]
            self._marks.forget(before)

    async def wait_for_writes(self) -> None:
        """All writes are durable at once."""

    async def close(self) -> None:
        self._closed = True


def _page(
    entries: Mapping[str, Entry], among: Iterable[str], prefix: str, revision: Revision, after: str, limit: int
) -> Page:
    keys = sorted(key for key in among if key.startswith(prefix) and key > after)
    shown = keys[:limit] if limit > 0 else keys
    remaining = len(keys) - len(shown)
    return Page([entries[key] for key in shown], revision, shown[-1] if remaining else "", remaining)


async def stream(store: Store, prefix: str, *, since: Revision) -> AsyncIterator[Change]:
    """The changes under a prefix after `since`: those of `changes`, followed by those of `subscribe`."""
    queue: asyncio.Queue[Change] = asyncio.Queue()

    def follow(changes: Sequence[Change]) -> None:
        for change in changes:
            queue.put_nowait(change)

    subscription = store.subscribe(prefix, follow)
    try:
        for change in await store.changes(prefix, since=since, until=store.revision):
            yield change
        while True:
            yield await queue.get()
    finally:
        subscription.cancel()
