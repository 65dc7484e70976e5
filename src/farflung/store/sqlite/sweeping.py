"""Compaction in the file: first it is written down that history is forgotten, then the rows go, few at a time.

A row goes when a later row of its key is also forgotten history, or when it says that its key was deleted.  A key's
newest live row is neither, so it stays, and so does the value that the first change still told replaced.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from farflung.store.base import Revision

STEP: Final = 256  #: rows looked at in one transaction: a few milliseconds that a write may have to wait

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


def note_mark(connection: sqlite3.Connection, revision: Revision, moment: float) -> None:
    connection.execute("insert or replace into mark values (?, ?)", (revision, moment))


def note_compacted(connection: sqlite3.Connection, before: Revision) -> None:
    connection.execute("update meta set value = ? where name = 'compacted'", (before,))
    connection.execute("delete from mark where rv < ?", (before,))
    connection.execute("delete from gap where first < ?", (before,))


def sweep(connection: sqlite3.Connection, step: int = STEP) -> bool:
    """Delete the next rows that are forgotten.  True when none is left."""
    [(swept,)] = connection.execute("select value from meta where name = 'swept'").fetchall()
    [(last, count)] = connection.execute(NEXT, {"swept": swept, "step": step}).fetchall()
    if count == 0:
        return True
    connection.execute(SUPERSEDED, {"swept": swept, "last": last})
    connection.execute("update meta set value = ? where name = 'swept'", (last,))
    return bool(count < step)
