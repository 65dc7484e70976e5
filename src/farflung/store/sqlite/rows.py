"""The tables, and the statements that read and compact them.

    kv     the log, a row per revision; `prev` is the revision of the key's previous value, 0 without one
    meta   `compacted`, the oldest available revision; `swept`, up to which superseded rows are deleted
    mark   revisions and the times at which they were the newest
    gap    the last revision before the store was opened again, and the first one after; missing in older files

Compaction first records the new oldest revision and then deletes rows, a few per transaction.  A row is deleted if a
later row of its key is compacted too, or if it is a deletion.  So the newest row of a live key is kept, and the value
that the first remaining change replaced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import apsw

from farflung.store.base import FIRST, Revision

FORMAT: Final = 1  #: to be raised with every change that an older version would misread
APPLICATION: Final = int.from_bytes(b"Farf", "big")
PUT, DELETE = 0, 1  #: kv.op

GAP: Final = "create table if not exists gap (last integer primary key, first integer not null)"
SCHEMA = (
    "pragma page_size = 4096",
    "begin",
    "create table kv (rv integer primary key, key text not null, op integer not null, prev integer not null, val blob)",
    "create index kv_by_key on kv (key, rv, op)",
    "create table meta (name text primary key, value integer not null) without rowid",
    "create table mark (rv integer primary key, time real not null)",
    GAP,
    f"insert into meta values ('compacted', {FIRST}), ('swept', {FIRST})",  # noqa: S608
    f"pragma application_id = {APPLICATION}",
    f"pragma user_version = {FORMAT}",
    "commit",
    "pragma journal_mode = wal",
)

# The inner select only reads the index; the outer one then reads the rows in the order of the file.
LIVE = """
select rv, key, val from kv where rv in (
    select newest from (select max(rv) as newest, op from kv group by key) where op = 0
) order by rv
"""


NEWEST_BUT = "select rv from kv order by rv desc limit 1 offset ?"

STEP: Final = 256  #: rows per transaction: a write may wait a few milliseconds for it

NEXT = """
select max(rv), count(*) from (
    select rv from kv where rv > :swept and rv <= (select value from meta where name = 'compacted')
    order by rv limit :step
)
"""

SUPERSEDED = """
delete from kv where rv in (
    select prev from kv where rv > :swept and rv <= :last and prev > 0
    union all
    select rv from kv where rv > :swept and rv <= :last and op = 1
)
"""


def fetch(connection: apsw.Connection, query: str, bindings: apsw.Bindings = ()) -> list[Any]:
    """The rows, typed by the caller."""
    return connection.execute(query, bindings).fetchall()


def gaps(connection: apsw.Connection) -> list[tuple[Revision, Revision]]:
    if not connection.table_exists(None, "gap"):
        return []
    return fetch(connection, "select last, first from gap order by last")


def note_gaps(connection: apsw.Connection, known: Iterable[tuple[Revision, Revision]]) -> None:
    connection.execute(GAP)
    connection.executemany("insert or ignore into gap values (?, ?)", known)


def compacted(connection: apsw.Connection) -> Revision:
    [(revision,)] = fetch(connection, "select value from meta where name = 'compacted'")
    return int(revision)


def note_mark(connection: apsw.Connection, revision: Revision, moment: float) -> None:
    connection.execute("insert or replace into mark values (?, ?)", (revision, moment))


def note_compacted(connection: apsw.Connection, before: Revision) -> None:
    connection.execute("update meta set value = ? where name = 'compacted'", (before,))
    connection.execute("delete from mark where rv < ?", (before,))
    connection.execute("delete from gap where first < ?", (before,))


def sweep(connection: apsw.Connection, step: int = STEP) -> bool:
    """Delete the next compacted rows.  Returns whether none is left."""
    [(swept,)] = fetch(connection, "select value from meta where name = 'swept'")
    [(last, count)] = fetch(connection, NEXT, {"swept": swept, "step": step})
    if count == 0:
        return True
    connection.execute(SUPERSEDED, {"swept": swept, "last": last})
    connection.execute("update meta set value = ? where name = 'swept'", (last,))
    return bool(count < step)
