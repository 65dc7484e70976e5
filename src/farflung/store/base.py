"""The store contract: one ordered log of revisions over byte values.

Writes are `put` and `delete`.  Each names the revision that it expects the key to have.  Every write gets the next
revision of one sequence, which is the object's resourceVersion.  A write returns when it is durable, and every later
read returns it.  No read returns a write that may still be lost.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import msgspec

Revision = int
ABSENT: Final[Revision] = 0  #: `expect=ABSENT` means "create: the key must not exist"
FIRST: Final[Revision] = 1  #: the revision of an empty store; the first write gets the next one

#: Writes the revision into a value: (value, revision) → value.  A second call only replaces the revision.
Stamp = Callable[[bytes, Revision], bytes]


def unstamped(value: bytes, revision: Revision) -> bytes:
    """The stamp of a store whose values do not contain their revision."""
    return value


class Entry(msgspec.Struct, gc=False, eq=False):
    """A key's current value.  Immutable except `note`, which caches what a reader derived from the value (the hub's
    decoded metadata).  Excluded from Python's garbage collection, because no reference in it leads back to it."""

    key: str
    value: bytes
    revision: Revision
    note: Any = None


class Change(msgspec.Struct, gc=False, eq=False):
    """One change of the log.  `entry` is None if the key was deleted, `previous` is None if it was created.
    Immutable."""

    revision: Revision
    key: str
    entry: Entry | None
    previous: Entry | None

    def __repr__(self) -> str:
        written = "deleted" if self.entry is None else "created" if self.previous is None else "updated"
        return f"<Change {self.revision}: {self.key} {written}>"


class Amount(NamedTuple):
    """Of the keys of a cluster."""

    keys: int
    size: int  #: bytes of their values


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list.  `revision`: the revision of the whole store at which the list was read.  `after`: the key after
    which the next page starts, "" on the last page."""

    entries: Sequence[Entry]
    revision: Revision
    after: str = ""
    remaining: int = 0


class StoreError(Exception):
    """An operation that the store refuses or cannot execute."""

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle, whose default calls the constructor with the message alone."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class Conflict(StoreError):
    """The key is not at the expected revision.  `actual`: its revision, ABSENT if it does not exist."""

    def __init__(self, key: str, expected: Revision, actual: Revision) -> None:
        super().__init__(f"{key}: expected revision {expected}, found {actual}")
        self.key, self.expected, self.actual = key, expected, actual


class Compacted(StoreError):
    """History before `oldest` was compacted."""

    def __init__(self, requested: Revision, oldest: Revision) -> None:
        super().__init__(f"revision {requested} is compacted; the oldest is {oldest}")
        self.requested, self.oldest = requested, oldest


class FutureRevision(StoreError):
    """The revision is newer than the newest one."""

    def __init__(self, requested: Revision, current: Revision) -> None:
        super().__init__(f"revision {requested} is in the future; the newest is {current}")
        self.requested, self.current = requested, current


class TooSlow(StoreError):
    """Too many changes happened for memory.  The reader must list again and watch from there."""


class Unavailable(StoreError):
    """The write failed, or history cannot be read: the disk is full, or the store is closing.  The message is for
    users."""


class Unusable(StoreError):
    """The files cannot be opened: damaged, of a newer format, or locked by another process.  The message is for
    users."""


class InUse(Unusable):
    """Another process uses the files."""


class Watcher(Protocol):
    """A callback for changes.  The store calls it in the event loop, once per commit, with the changes under its prefix
    in order.  It must not block and must not raise."""

    def __call__(self, changes: Sequence[Change], /) -> None: ...


class Subscription(Protocol):
    def cancel(self) -> None: ...


class Store(Protocol):
    """Reads of the current state are plain calls, because the current state is in memory.

    A key is `/<group>/<resource>/<cluster>/<namespace>/<name>`, without the namespace for cluster-scoped objects.  A
    prefix is the first two, three or four parts of a key with a slash at the end.  Anything else raises ValueError.
    """

    @property
    def revision(self) -> Revision:
        """The newest durable revision."""

    @property
    def last_assigned(self) -> Revision:
        """The newest revision that a write got, durable or not.  Later writes get newer ones."""

    @property
    def oldest(self) -> Revision:
        """The oldest revision from which `list_at` and `changes` can start."""

    @property
    def write_error(self) -> str:
        """The error of the last write; empty if it succeeded."""

    def get(self, key: str) -> Entry | None: ...

    def storage_prefixes(self) -> Sequence[str]:
        """All prefixes `/<group>/<resource>/` with keys."""

    def amount(self, cluster: str) -> Amount:
        """The durable keys of a cluster."""

    def most(self) -> Amount:
        """The most keys and the most bytes of a cluster."""

    def list(self, prefix: str, *, after: str = "", limit: int = 0) -> Page:
        """Entries under a prefix, ordered by key.  `after`: start behind this key."""

    async def list_at(self, prefix: str, revision: Revision, *, after: str = "", limit: int = 0) -> Page:
        """The list at an earlier revision.  Raises Compacted or FutureRevision."""

    async def put(self, key: str, value: bytes, *, expect: Revision) -> Entry:
        """Write a value if the key is at `expect`.  Raises Conflict, as soon as the winning write is durable."""

    async def delete(self, key: str, *, expect: Revision) -> Revision:
        """Delete a key if it is at `expect`.  Returns the revision of the deletion."""

    def subscribe(self, prefix: str, watcher: Watcher) -> Subscription:
        """Call a watcher with every change under a prefix, or of one key, after the current `revision`."""

    async def changes(self, prefix: str, *, since: Revision, until: Revision) -> Sequence[Change]:
        """The changes after `since` up to and including `until`.  Raises Compacted, FutureRevision or TooSlow."""

    async def compact(self, before: Revision) -> None:
        """Delete history: `before` becomes the oldest revision, unless that is newer already."""

    async def wait_for_writes(self) -> None:
        """Wait until every write that has begun is durable or has failed."""

    async def close(self) -> None:
        """Finish the writes that have begun.  Later writes raise Unavailable."""


# --- keys -----------------------------------------------------------------------------------------


def check_key(key: str) -> None:
    """Raise ValueError unless the key has four or five non-empty parts that can be encoded as UTF-8."""
    parts = key.split("/")
    if not 5 <= len(parts) <= 6 or parts[0] or not all(parts[1:]):
        raise ValueError(f"not a key of the store: {key!r}")
    if not key.isascii():
        key.encode()  # raises for a lone surrogate


def check_prefix(prefix: str) -> None:
    """Raise ValueError unless the prefix is `/<group>/<resource>/`, optionally followed by further parts."""
    parts = prefix.split("/")
    if len(parts) < 4 or parts[0] or parts[-1] or not all(parts[1:-1]):
        raise ValueError(f"not a prefix of keys of the store: {prefix!r}")
    if not prefix.isascii():
        prefix.encode()


def resource_prefix(key: str) -> str:
    """`/<group>/<resource>/` of a key or prefix."""
    return key[: key.index("/", key.index("/", 1) + 1) + 1]


def prefixes_of(key: str) -> tuple[str, ...]:
    """All prefixes of a key, the shortest first: resource, cluster and, if it has one, namespace."""
    resource = key.index("/", key.index("/", 1) + 1) + 1
    cluster = key.index("/", resource) + 1
    namespace = key.find("/", cluster) + 1
    if namespace:
        return key[:resource], key[:cluster], key[:namespace]
    return key[:resource], key[:cluster]


def end_of(prefix: str) -> str:
    """The first string after all keys of a prefix."""
    return prefix[:-1] + chr(ord("/") + 1)
