"""The store contract: one ordered log of revisions over byte values.

There is one write primitive, `put` (and `delete`), guarded by the revision the writer last saw.  Every write gets
the next number of one sequence; that number is the object's resourceVersion.  A write returns when it is durable,
and from then on every read sees it.  Nobody ever sees a write that may still be lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

Revision = int
ABSENT: Final[Revision] = 0  #: `expect=ABSENT` means "create: the key must not exist"
FIRST: Final[Revision] = 1  #: where an empty store stands; the first write gets the next one

#: How a value shows the revision that wrote it: (value, revision) → value.  It must be idempotent but for the number.
Stamp = Callable[[bytes, Revision], bytes]


def unstamped(value: bytes, revision: Revision) -> bytes:
    """The stamp of a store whose values do not show their revision."""
    return value


class Entry(msgspec.Struct, gc=False, eq=False):
    """A key's current value.  Immutable, but for `note`: what a reader derived from the value and wants to keep
    as long as the entry lives (the hub's decoded metadata).  The collector need not look at it: nothing in it leads
    back to it."""

    key: str
    value: bytes
    revision: Revision
    note: Any = None


class Change(msgspec.Struct, gc=False, eq=False):
    """One line of the log.  `entry is None` means the key was deleted; `previous is None` that it was created.
    Immutable."""

    revision: Revision
    key: str
    entry: Entry | None
    previous: Entry | None

    def __repr__(self) -> str:
        written = "deleted" if self.entry is None else "created" if self.previous is None else "updated"
        return f"<Change {self.revision}: {self.key} {written}>"


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list.  `revision` is the state of the whole store it shows; `after` continues it, "" at the end."""

    entries: Sequence[Entry]
    revision: Revision
    after: str = ""
    remaining: int = 0


class StoreError(Exception):
    """Something the store refuses or cannot do."""


class Conflict(StoreError):
    """The key is not at the expected revision.  `actual` is where it is, ABSENT if it does not exist."""

    def __init__(self, key: str, expected: Revision, actual: Revision) -> None:
        super().__init__(f"{key}: expected revision {expected}, found {actual}")
        self.key, self.expected, self.actual = key, expected, actual


class Compacted(StoreError):
    """History before `oldest` is gone."""

    def __init__(self, requested: Revision, oldest: Revision) -> None:
        super().__init__(f"revision {requested} is compacted; the oldest is {oldest}")
        self.requested, self.oldest = requested, oldest


class FutureRevision(StoreError):
    """A revision that has not happened yet."""

    def __init__(self, requested: Revision, current: Revision) -> None:
        super().__init__(f"revision {requested} is in the future; the newest is {current}")
        self.requested, self.current = requested, current


class TooSlow(StoreError):
    """A watch is too far behind, because it is not read fast enough or much happened since: list again, and watch
    from there."""


class Unavailable(StoreError):
    """The write did not happen, or the past cannot be read: the disk is full, or the store is closing.
    One sentence for the user."""


class Unusable(StoreError):
    """The files cannot be opened: corrupt, of a newer format, held by another process.  One sentence for the user."""


class Watcher(Protocol):
    """Who hears of changes: called in the loop, once per committed batch, with the changes of its prefix, in order.
    It must not block and must not raise."""

    def __call__(self, changes: Sequence[Change], /) -> None: ...


class Subscription(Protocol):
    def cancel(self) -> None: ...


class Store(Protocol):
    """Reads of the present are plain calls: the present is in memory.

    Keys read `/<group>/<resource>/<cluster>/<namespace>/<name>`, or without the namespace.  Prefixes are the first two,
    three or four parts of that, with the slash that ends them.  Anything else is a ValueError.
    """

    @property
    def revision(self) -> Revision:
        """The newest durable revision."""

    @property
    def last_assigned(self) -> Revision:
        """The newest revision that a write has taken, be it durable yet or not: later writes are newer than this."""

    @property
    def oldest(self) -> Revision:
        """The oldest revision that `list_at` can show and `changes` and `watch` can start from."""

    @property
    def write_error(self) -> str:
        """Why the last write failed; empty if it did not."""

    def get(self, key: str) -> Entry | None: ...

    def storage_prefixes(self) -> Sequence[str]:
        """Every prefix `/<group>/<resource>/` that has keys."""

    def list(self, prefix: str, *, after: str = "", limit: int = 0) -> Page:
        """Entries under a prefix in key order; `after` skips up to and including that key."""

    async def list_at(self, prefix: str, revision: Revision, *, after: str = "", limit: int = 0) -> Page:
        """The same as of an earlier revision.  Raises Compacted or FutureRevision."""

    async def put(self, key: str, value: bytes, *, expect: Revision) -> Entry:
        """Write, if the key is at `expect`; otherwise Conflict, once what it lost to is durable."""

    async def delete(self, key: str, *, expect: Revision) -> Revision:
        """Delete, if the key is at `expect`; the revision is that of the deletion."""

    def subscribe(self, prefix: str, watcher: Watcher) -> Subscription:
        """Hear of every change under a prefix, or of one key, after the present `revision`."""

    async def changes(self, prefix: str, *, since: Revision, until: Revision) -> Sequence[Change]:
        """History: the changes after `since` up to and including `until`.  Raises Compacted, FutureRevision or
        TooSlow."""

    def watch(self, prefix: str, *, since: Revision) -> AsyncIterator[Change]:
        """`changes` and then `subscribe` as one stream that misses nothing and repeats nothing.  It raises what
        `changes` raises, and TooSlow when its reader falls behind; it ends when the store closes."""

    async def compact(self, before: Revision) -> None:
        """Forget history: `before` becomes the oldest revision, if it is not older than that already."""

    async def wait_for_writes(self) -> None:
        """Until every write that is under way now has happened, or has failed."""

    async def close(self) -> None:
        """Finish the writes under way; every later one is Unavailable."""


# --- keys -----------------------------------------------------------------------------------------


def check_key(key: str) -> None:
    """Raise ValueError unless the key has four or five parts, none empty, and can be written to a disk."""
    parts = key.split("/")
    if not 5 <= len(parts) <= 6 or parts[0] or not all(parts[1:]):
        raise ValueError(f"not a key of the store: {key!r}")
    if not key.isascii():
        key.encode()  # a lone surrogate is no text


def check_prefix(prefix: str) -> None:
    """Raise ValueError unless the prefix is `/<group>/<resource>/`, or that and some parts more."""
    parts = prefix.split("/")
    if len(parts) < 4 or parts[0] or parts[-1] or not all(parts[1:-1]):
        raise ValueError(f"not a prefix of keys of the store: {prefix!r}")
    if not prefix.isascii():
        prefix.encode()


def resource_prefix(key: str) -> str:
    """`/<group>/<resource>/` of a key or prefix."""
    return key[: key.index("/", key.index("/", 1) + 1) + 1]


def prefixes_of(key: str) -> tuple[str, ...]:
    """Every prefix a key lies under, the widest first: by resource, by cluster and, if it has one, by namespace."""
    resource = key.index("/", key.index("/", 1) + 1) + 1
    cluster = key.index("/", resource) + 1
    namespace = key.find("/", cluster) + 1
    if namespace:
        return key[:resource], key[:cluster], key[:namespace]
    return key[:resource], key[:cluster]


def end_of(prefix: str) -> str:
    """The first string behind every key of a prefix."""
    return prefix[:-1] + chr(ord("/") + 1)
