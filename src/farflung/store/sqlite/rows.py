"""The tables, the rows of changes with their checksums, and the statements that read and compact them.

    kv     the log, a row per revision; `prev` is the revision of the key's previous value, 0 without one; `sum` is the
           checksum of the other columns
    meta   `compacted`, the oldest available revision; `swept`, up to which superseded rows are deleted
    mark   revisions and the times at which they were the newest
    gap    the last revision before the store was opened again, and the first one after
    encryption    the keys that values may need, see `rekeying`

Compaction first records the new oldest revision and then deletes rows, a few per transaction.  A row is deleted if a
later row of its key is compacted too, or if it is a deletion.  So the newest row of a live key is kept, and the value
that the first remaining change replaced.

Format 1 had no column `sum`, and its first files had no table `gap`.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import apsw

from farflung.store.base import ABSENT, FIRST, Change, Revision
from farflung.store.encryption import Encryption, UnreadableValueError

FORMAT: Final = 2  #: to be raised with every change that an older version would misread
APPLICATION: Final = int.from_bytes(b"Farf", "big")
PUT, DELETE = 0, 1  #: kv.op

TABLES: Final = (
    """create table kv (
        rv integer primary key, key text not null, op integer not null, prev integer not null, val blob,
        sum integer not null)""",
    "create table meta (name text primary key, value integer not null) without rowid",
    "create table mark (rv integer primary key, time real not null)",
    "create table gap (last integer primary key, first integer not null)",
    "create table encryption (key text primary key, resources text not null, position integer not null) without rowid",
    f"insert into meta values ('compacted', {FIRST}), ('swept', {FIRST})",  # noqa: S608
    f"pragma application_id = {APPLICATION}",
    f"pragma user_version = {FORMAT}",
)
INDEX: Final = "create index kv_by_key on kv (key, rv, op)"

#: revision, key, operation, previous revision, value as stored, checksum
Row = tuple[int, str, int, int, bytes | None, int]
COLUMNS: Final = "rv, key, op, prev, val, sum"
INSERT: Final = f"insert into kv ({COLUMNS}) values "  # noqa: S608


class DamagedRowError(Exception):
    """A row does not match its checksum, or cannot be decrypted."""

    def __init__(self, revision: Revision, key: object, what: str = "does not match its checksum") -> None:
        super().__init__(f"revision {revision} of {key} {what}")
        self.revision, self.key = revision, key


def row_of(change: Change, encryption: Encryption) -> Row:
    """The row of a change, with its value as it is stored."""
    entry, previous = change.entry, change.previous
    before = ABSENT if previous is None else previous.revision
    if entry is None:
        return sealed(change.revision, change.key, DELETE, before, None)
    return sealed(change.revision, change.key, PUT, before, encryption.encode(change.key, entry.value))


def value_in(row: Row, encryption: Encryption) -> bytes | None:
    """The value of a row, None for a deletion.  Raises DamagedRowError."""
    try:
        intact = row[5] == checksum(*row[:5])
    except (TypeError, ValueError, AttributeError, zlib.error):  # a column of another type
        intact = False
    if not intact:
        raise DamagedRowError(row[0], row[1])
    if row[4] is None:
        return None
    try:
        return encryption.decode(row[1], row[4])
    except UnreadableValueError as error:
        raise DamagedRowError(row[0], row[1], str(error)) from None


def stored_again(row: Row, encryption: Encryption) -> Row:
    """The same change with its value as this encryption stores it.  Raises DamagedRowError."""
    value = value_in(row, encryption)
    revision, key, operation, previous, *_ = row
    return sealed(revision, key, operation, previous, None if value is None else encryption.encode(key, value))


def sealed(revision: Revision, key: str, operation: int, previous: Revision, stored: bytes | None) -> Row:
    """A row with its checksum.  `stored`: the value as it is in the file."""
    return revision, key, operation, previous, stored, checksum(revision, key, operation, previous, stored)


def checksum(revision: Revision, key: str, operation: int, previous: Revision, stored: bytes | None) -> int:
    start = zlib.crc32(b"%d %d %d %b " % (revision, operation, previous, key.encode()))
    return start if stored is None else zlib.crc32(stored, start)


# The inner select only reads the index; the outer one then reads the rows in the order of the file.
LIVE: Final = f"""
select {COLUMNS} from kv where rv in (
    select newest from (select max(rv) as newest, op from kv group by key) where op = 0
) order by rv
"""  # noqa: S608

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


def check_structure(connection: apsw.Connection) -> None:
    """Let SQLite check the file, and its index against the table.  Raises ValueError with the first findings."""
    if findings := structural_damage(connection, most=3):
        raise ValueError("; ".join(findings))


def structural_damage(connection: apsw.Connection, most: int) -> list[str]:
    findings: list[Any] = []
    try:
        findings.extend(finding for (finding,) in connection.execute(f"pragma integrity_check({most})"))
    except apsw.CorruptError as error:
        findings.append(str(error))
    return [] if findings == ["ok"] else findings


def note_gap(connection: apsw.Connection, last: Revision, first: Revision) -> None:
    connection.execute("insert or ignore into gap values (?, ?)", (last, first))


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
