"""History that is no longer in memory, read from the file.

Each query reads one snapshot.  It raises Compacted if the snapshot no longer has the requested revision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import apsw

from farflung.store.base import Change, Compacted, Entry, Page, Revision, TooSlow, Unavailable, end_of
from farflung.store.encryption import Encryption
from farflung.store.sqlite.rows import DamagedRowError, compacted, fetch, value_in

log = logging.getLogger(__name__)

T = TypeVar("T")
CurrentEntry = Callable[[str], Entry | None]  #: returns the current entry of a key
#: revision, key, value, previous revision, previous value
ChangedRow = tuple[int, str, bytes | None, int, bytes | None]

#: Limits of one answer.  A client that missed more reads less by listing again.
MAX_CHANGES: Final = 100_000
MAX_BYTES: Final = 64 * 1024 * 1024  #: of new and old values

COUNT = """
select count(*) from (
    select max(rv), op from kv indexed by kv_by_key where key > ? and key < ? and rv <= ? group by key
) where op = 0
"""

PAGE = """
select kv.rv, kv.key, kv.op, kv.prev, kv.val, kv.sum from (
    select key, newest from (
        select key, max(rv) as newest, op from kv indexed by kv_by_key
        where key > ? and key < ? and rv <= ? group by key
    ) where op = 0 order by key limit ?
) as state cross join kv on kv.rv = state.newest order by state.key
"""

# The inner select only reads the index; then the rows are read one by one, in index order.
CHANGES = """
select now.rv, now.key, now.op, now.prev, now.val, now.sum,
    before.rv, before.key, before.op, before.prev, before.val, before.sum
from (
    select rv from kv indexed by kv_by_key where key > ? and key < ? and rv > ? and rv <= ? order by rv limit ?
) as part cross join kv as now on now.rv = part.rv left join kv as before on before.rv = now.prev
"""

NEWEST_CHANGES = """
select now.rv, now.key, now.op, now.prev, now.val, now.sum,
    before.rv, before.key, before.op, before.prev, before.val, before.sum
from kv as now left join kv as before on before.rv = now.prev where now.rv > ? order by now.rv desc
"""


class History:
    """Reads on its own thread.  Current entries are taken from `known` instead of copied.  `encryption` has the keys of
    all values, and may be replaced."""

    def __init__(self, connection: apsw.Connection, known: CurrentEntry, encryption: Encryption) -> None:
        self.encryption = encryption
        self._connection = connection
        self._known = known
        self._closing = False
        self._thread = ThreadPoolExecutor(1, "store-history")

    async def changes(self, prefix: str, *, since: Revision, until: Revision) -> list[Change]:
        """Raises TooSlow if there are too many for memory."""
        rows = await self._ask(since, lambda encryption: self._changed_rows(prefix, since, until, encryption))
        return changes_from(rows, self._known)

    def _changed_rows(self, prefix: str, since: Revision, until: Revision, encryption: Encryption) -> list[ChangedRow]:
        rows: list[ChangedRow] = []
        size = 0
        for row in self._connection.execute(CHANGES, (prefix, end_of(prefix), since, until, MAX_CHANGES + 1)):
            changed = changed_row(row, encryption)
            size += len(changed[2] or b"") + len(changed[4] or b"")
            if size > MAX_BYTES or len(rows) == MAX_CHANGES:
                raise TooSlow(f"too much happened between revisions {since} and {until}")
            rows.append(changed)
        return rows

    async def page(self, prefix: str, revision: Revision, *, after: str, limit: int) -> Page:
        """The entries under a prefix at a revision."""
        bounds = (max(prefix, after), end_of(prefix), revision)
        rows, remaining = await self._ask(revision, lambda encryption: self._rows(bounds, limit, encryption))
        entries = [entry_from(self._known, key, value, written) for written, key, value in rows]
        return Page(entries, revision, after=entries[-1].key if remaining and entries else "", remaining=remaining)

    def _rows(
        self, bounds: tuple[str, str, Revision], limit: int, encryption: Encryption
    ) -> tuple[list[tuple[int, str, bytes]], int]:
        rows = [
            (row[0], row[1], value_in(row, encryption) or b"")
            for row in fetch(self._connection, PAGE, (*bounds, limit if limit > 0 else -1))
        ]
        [(total,)] = fetch(self._connection, COUNT, bounds)
        return rows, total - len(rows)

    async def _ask(self, revision: Revision, read: Callable[[Encryption], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._in_snapshot, revision, read)
        except (apsw.Error, RuntimeError) as error:
            raise Unavailable(f"the store cannot read its history: {error}") from error

    def _in_snapshot(self, revision: Revision, read: Callable[[Encryption], T]) -> T:
        if self._closing:
            raise Unavailable("the store is closed")
        encryption = self.encryption  # before the snapshot, whose values may need keys that the next one lacks
        self._connection.execute("begin")
        try:
            oldest = compacted(self._connection)
            if revision < oldest:
                raise Compacted(revision, oldest)
            return read(encryption)
        except DamagedRowError as damage:  # the current state was checked when it was loaded
            log.error("the store's history is damaged: %s; clients list again", damage)
            raise Compacted(revision, max(damage.revision, revision + 1)) from damage
        finally:
            if self._connection.in_transaction:
                self._connection.execute("rollback")

    def close(self) -> None:
        """Blocks until a running read ends."""
        self._closing = True
        self._thread.shutdown()
        self._connection.close()


def newest_changes(
    connection: apsw.Connection, since: Revision, known: CurrentEntry, encryption: Encryption, *, size: int
) -> tuple[Revision, list[Change]]:
    """The end of the log and the revision before it, which is not before `since`.  Reads backwards until the replaced
    values exceed `size` bytes, because the log may be larger than memory, and up to a damaged row."""
    changes: list[Change] = []
    replaced: dict[Revision, Entry] = {}
    for row in connection.execute(NEWEST_CHANGES, (since,)):
        try:
            revision, key, value, before, value_before = changed_row(row, encryption)
        except DamagedRowError as damage:
            log.error("the store's history is damaged: %s", damage)
            since = row[0]
            break
        size -= len(value_before or b"")
        if size < 0:
            since = revision
            break
        entry = replaced.pop(revision, None)
        if entry is None and value is not None:
            entry = entry_from(known, key, value, revision)
        previous = None if value_before is None else Entry(key, value_before, before)
        if previous is not None:
            replaced[before] = previous
        changes.append(Change(revision, key, entry, previous))
    return since, changes[::-1]


def changed_row(row: tuple[Any, ...], encryption: Encryption) -> ChangedRow:
    """Of a row of CHANGES.  Raises DamagedRowError."""
    before: Any = row[6:]
    value: Any = row[:6]
    value_before = None if before[0] is None else value_in(before, encryption)
    return row[0], row[1], value_in(value, encryption), row[3], value_before


def changes_from(rows: Iterable[ChangedRow], known: CurrentEntry) -> list[Change]:
    changes = []
    for revision, key, value, before, value_before in rows:
        entry = None if value is None else entry_from(known, key, value, revision)
        previous = None if value_before is None else Entry(key, value_before, before)
        changes.append(Change(revision, key, entry, previous))
    return changes


def entry_from(known: CurrentEntry, key: str, value: bytes, revision: Revision) -> Entry:
    entry = known(key)
    return entry if entry is not None and entry.revision == revision else Entry(key, value, revision)
