"""Rewriting a store's file: of format 1 in the current format, or with other encrypted resources.

The new file is complete and on disk before it replaces the old one.  So an interrupted migration changes nothing, and
the next start repeats it.  No part of the new file has a remnant of a value that was not encrypted.
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

from farflung.lib.files import beside, connect_database, create_database, empty_log, file_size, is_full
from farflung.store.base import Revision
from farflung.store.encryption import Encryption
from farflung.store.sqlite.rekeying import note_complete
from farflung.store.sqlite.rows import (
    COLUMNS,
    FORMAT,
    INDEX,
    INSERT,
    TABLES,
    Row,
    check_structure,
    fetch,
    sealed,
    stored_again,
)

EVERY_ROW: Final = f"select {COLUMNS} from kv order by rv"  # noqa: S608
FORMAT_1: Final = "select rv, key, op, prev, val from kv order by rv"
PROGRESS: Final = 5.0  #: seconds between two log lines

log = logging.getLogger(__name__)


def migrate(path: Path, version: int, encryption: Encryption) -> None:
    """Rewrite a file, with values as this encryption stores them.  `version`: the format of the file.  Blocks.  The
    caller holds the lock.  Raises apsw.Error, DamagedRowError, OSError or ValueError, and then the content of the file
    is unchanged."""
    with closing(connect_to_inspect(path)) as old:
        check_structure(old)
    log.info("%s has %s and is converted", path, "other encrypted resources" if version == FORMAT else "an old format")
    if file_size(beside(path, "-wal")):
        empty_log(path)
    with closing(connect_to_inspect(path)) as old:
        create_database(path, TABLES, partial(copy, path, version, encryption, old))
    log.info("%s is converted", path)


def connect_to_inspect(path: Path) -> apsw.Connection:
    """A connection that changes no file.  On a full disk it excludes others, because they share a file that may have to
    grow."""
    if not file_size(beside(path, "-wal")):
        return connect_database(path, "immutable=1")
    connection = connect_database(path, "mode=ro")
    try:
        connection.execute("select count(*) from sqlite_master").fetchall()
    except apsw.Error as error:
        connection.close()
        if not is_full(error):
            raise
    else:
        return connection
    connection = connect_database(path, "mode=rw")
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.pragma("locking_mode", "exclusive")
    return connection


def copy(path: Path, version: int, encryption: Encryption, old: apsw.Connection, new: apsw.Connection) -> None:
    [(total,)] = fetch(old, "select count(*) from kv")
    rows: Iterator[Row]
    if version == FORMAT:
        rows = (stored_again(row, encryption) for row in old.execute(EVERY_ROW))
    else:
        rows = (format_1_row(encryption, *row) for row in old.execute(FORMAT_1))
    note_complete(new, encryption)
    fill(new, with_progress(path, rows, total))
    new.executemany("insert or replace into meta values (?, ?)", old.execute("select name, value from meta"))
    new.executemany("insert into mark values (?, ?)", old.execute("select rv, time from mark"))
    if old.table_exists(None, "gap"):
        new.executemany("insert into gap values (?, ?)", old.execute("select last, first from gap"))


def format_1_row(
    encryption: Encryption, revision: Revision, key: str, operation: int, previous: Revision, value: bytes | None
) -> Row:
    """A row of format 1 in the current format."""
    stored = None if value is None else encryption.encode(key, value)
    return sealed(revision, key, operation, previous, stored)


def fill(new: apsw.Connection, rows: Iterable[Row]) -> None:
    """Insert rows, and then create the index, which is faster than the other way round."""
    new.executemany(f"{INSERT} (?, ?, ?, ?, ?, ?)", rows)
    new.execute(INDEX)


def with_progress(path: Path, rows: Iterable[Row], total: int) -> Iterator[Row]:
    """The rows.  Logs how many are done, if it takes long."""
    next_line = time.monotonic() + PROGRESS
    for done, row in enumerate(rows):
        if time.monotonic() > next_line:
            log.info("%s is converted: %d of %d revisions, %d %%", path, done, total, done * 100 // total)
            next_line = time.monotonic() + PROGRESS
        yield row
