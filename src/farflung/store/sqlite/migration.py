"""Rewriting a store's file: of format 1 in the current format.

The new file is complete and on disk before it replaces the old one.  So an interrupted migration changes nothing, and
the next start repeats it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import apsw

from farflung.lib.files import beside, connect_database, create_database
from farflung.store.sqlite.rows import INDEX, INSERT, TABLES, Row, check_structure, fetch, sealed

PROGRESS: Final = 5.0  #: seconds between two log lines

log = logging.getLogger(__name__)


def migrate(path: Path) -> None:
    """Rewrite a file of format 1.  Blocks.  The caller holds the lock.  Raises apsw.Error, OSError or ValueError, and
    then leaves the content of the file unchanged."""
    with closing(connect_to_inspect(path)) as old:
        check_structure(old)
    log.info("%s has an earlier format and is converted", path)
    if file_size(beside(path, "-wal")):
        empty_log(path)
    with closing(connect_to_inspect(path)) as old:
        create_database(path, TABLES, partial(copy_format_1, path, old))
    log.info("%s is converted", path)


def connect_to_inspect(path: Path) -> apsw.Connection:
    """A connection that creates no files beside the database."""
    return connect_database(path, "mode=ro" if file_size(beside(path, "-wal")) else "immutable=1")


def file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def empty_log(path: Path) -> None:
    """Let SQLite move the write-ahead log into the file and remove it: a new file of the same name must not find it."""
    with closing(connect_database(path, "mode=rw")) as connection:
        connection.pragma("journal_mode", "delete")
    if beside(path, "-wal").exists():
        raise apsw.BusyError("another program reads the file")


def copy_format_1(path: Path, old: apsw.Connection, new: apsw.Connection) -> None:
    [(total,)] = fetch(old, "select count(*) from kv")
    rows = (sealed(*row) for row in fetch_each(old, "select rv, key, op, prev, val from kv order by rv"))
    fill(new, with_progress(path, rows, total))
    new.executemany("insert or replace into meta values (?, ?)", old.execute("select name, value from meta"))
    new.executemany("insert into mark values (?, ?)", old.execute("select rv, time from mark"))
    if old.table_exists(None, "gap"):
        new.executemany("insert into gap values (?, ?)", old.execute("select last, first from gap"))


def fill(new: apsw.Connection, rows: Iterable[Row]) -> None:
    """Insert rows, and then create the index, which is faster than the other way round."""
    new.executemany(f"{INSERT} (?, ?, ?, ?, ?, ?)", rows)
    new.execute(INDEX)


def fetch_each(connection: apsw.Connection, query: str) -> Iterator[tuple[int, str, int, int, bytes | None]]:
    """The rows of `kv` in format 1."""
    yield from connection.execute(query)


def with_progress(path: Path, rows: Iterable[Row], total: int) -> Iterator[Row]:
    """The rows.  Logs how many are done, if it takes long."""
    next_line = time.monotonic() + PROGRESS
    for done, row in enumerate(rows):
        if time.monotonic() > next_line:
            log.info("%s is converted: %d of %d revisions, %d %%", path, done, total, done * 100 // total)
            next_line = time.monotonic() + PROGRESS
        yield row
