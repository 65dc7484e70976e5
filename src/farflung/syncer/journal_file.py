"""The file of a journal: made, locked, checked, and put aside if it is damaged."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from farflung.lib.files import sync_directory
from farflung.lib.sqlite_file import beside, create_database

APPLICATION: Final = 0x66667379  #: how the file says that it is a journal: "ffsy"
FORMAT: Final = 1
MOST_ASIDE: Final = 9  #: damaged files that are kept

SCHEMA: Final = (
    f"pragma application_id = {APPLICATION}",
    f"pragma user_version = {FORMAT}",
    """create table entry (
        "group" text not null, plural text not null, namespace text not null, name text not null,
        version text not null, kind text not null, namespaced integer not null,
        uid text not null, revision text not null, incarnation text not null, desired blob not null,
        create_only integer not null, withdrawn integer not null, orphaned integer not null, guarded integer not null,
        applied text not null, owned text not null, edge_uid text not null, returned text not null,
        checksum integer not null,
        primary key ("group", plural, namespace, name)) strict""",
    """create table heard (
        "group" text not null, plural text not null, version text not null, revision text not null,
        checksum integer not null, primary key ("group", plural)) strict""",
    "create table fact (name text primary key not null, value text not null, checksum integer not null) strict",
)
#: what SQLite says if the trouble is not in the file
AROUND: Final = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_AUTH,
    }
)

Row = tuple[Any, ...]


class JournalError(Exception):
    """The file cannot be used.  The message says what to do."""


class DamageError(Exception):
    """What is in the file makes no sense."""


@contextmanager
def trouble_told() -> Iterator[None]:
    """Raises DamageError for trouble in the file, and lets trouble around it through."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in AROUND:
            raise
        raise DamageError(str(error)) from error
    except (TypeError, ValueError) as error:  # Python cannot even read what SQLite says of it
        raise DamageError("it holds something that is no text") from error


def sealed(row: Row) -> Row:
    """The row with a checksum, because disks of small machines forget."""
    return (*row, _checksum(row))


def unsealed(row: Row) -> Row:
    """Raises DamageError if it is not as it was `sealed`."""
    *content, checksum = row
    if checksum != _checksum(tuple(content)):
        raise DamageError("a row of it is not as it was written")
    return tuple(content)


def _checksum(row: Row) -> int:
    return zlib.crc32(repr(row).encode(errors="replace"))


# --- to open it -----------------------------------------------------------------------------------


class Lock:
    """Keeps other processes off the file; the system releases it when this one ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(beside(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            if not isinstance(error, BlockingIOError):
                raise
            raise JournalError(
                f"{path} is in use by another syncer: stop that one, or give this one a directory of its own"
            ) from error

    def release(self) -> None:
        os.close(self._descriptor)


def connect(path: Path) -> sqlite3.Connection:
    """To a file that is a journal and whole; it is made if there is none.  A commit returns when it is on the disk.
    Needs the lock.  Raises DamageError, OSError or sqlite3.Error."""
    if not path.exists():
        for leftover in ("-wal", "-shm"):
            beside(path, leftover).unlink(missing_ok=True)
        create_database(path, SCHEMA)
    path.chmod(0o600)
    location = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(location, uri=True, isolation_level=None, check_same_thread=False)
    try:
        with trouble_told():
            _check(connection)
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = full")
            _try_to_write(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    [(application,)] = connection.execute("pragma application_id")
    [(version,)] = connection.execute("pragma user_version")
    if application != APPLICATION:
        raise DamageError("it is no journal of a syncer")
    if version != FORMAT:
        raise DamageError(f"it has format {version}, and this version of Farflung knows format {FORMAT} only")
    [(finding,), *_] = connection.execute("pragma integrity_check(1)")
    if finding != "ok":
        raise DamageError(str(finding))


def _try_to_write(connection: sqlite3.Connection, path: Path) -> None:
    """A damaged header can make SQLite believe that it only may read."""
    try:
        connection.execute("delete from fact where false")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_READONLY and os.access(path, os.W_OK):
            raise DamageError(str(error)) from error
        raise


def put_aside(path: Path) -> Path:
    """Under the first free name, or the last there is.  The log goes first, because a new file must not find it."""
    names = [beside(path, f".damaged-{number}") for number in range(1, MOST_ASIDE + 1)]
    aside = next((one for one in names if not one.exists()), names[-1])
    beside(path, "-shm").unlink(missing_ok=True)
    beside(aside, "-wal").unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        beside(path, "-wal").replace(beside(aside, "-wal"))
    path.replace(aside)
    sync_directory(path.parent)
    return aside
