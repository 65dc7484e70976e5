"""Crash-safe files and SQLite files, and locked directories."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import apsw

#: Earlier ones can lose a commit that runs beside a checkpoint (sqlite.org/wal.html, "The WAL-Reset Bug").
OLDEST_SQLITE: Final = (3, 51, 3)
#: Errors of SQLite when its files cannot grow.
EXTENDING: Final = (apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_SHMOPEN, apsw.SQLITE_IOERR_SHMSIZE)


def write_private(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Readable by the owner alone from the first byte on, and either all there or not at all.  An equal file is left as
    it is, because the disk may be full.  Without `durable`, a power failure may leave it empty: for files that are
    recreated if damaged."""
    if is_private(path, content):
        return
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def is_private(path: Path, content: bytes) -> bool:
    """Whether a file has this content and only its owner can read it."""
    try:
        return path.stat().st_mode & 0o77 == 0 and not path.is_symlink() and path.read_bytes() == content
    except OSError:
        return False


def copy_private(source: Path, target: Path) -> None:
    """Readable by the owner alone, on disk when this returns, and either all there or not at all."""
    unfinished = beside(target, ".new")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with source.open("rb") as reading, os.fdopen(descriptor, "wb") as writing:
            shutil.copyfileobj(reading, writing, 1 << 20)
            writing.flush()
            os.fsync(writing.fileno())
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)  # it may have filled the disk
        raise
    sync_directory(target.parent)


FileVersion = tuple[int, int, int] | None  #: None: the file does not exist or cannot be read


def file_version(path: Path) -> FileVersion:
    """Differs after a file was replaced.  Costs one system call."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def sync_directory(path: Path) -> None:
    """Makes creations, renames and deletions in the directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep it locked.  Waits for a process that has it locked."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def beside(path: Path, ending: str) -> Path:
    """The file with this ending after the name, as SQLite names those that belong to a database."""
    return path.with_name(path.name + ending)


def file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


class OutdatedSqliteError(Exception):
    """The SQLite library is too old to be trusted with data.  The message is for users."""


def connect_database(path: Path, mode: str, *, patience: float = 0) -> apsw.Connection:
    """Open an existing database.  `mode`: parameters of SQLite's URI, such as `mode=rw`; `patience`: seconds to wait
    for locks.  Raises OutdatedSqliteError.  The connection may be used by any thread, one at a time."""
    check_sqlite(apsw.sqlite_lib_version())
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"{path.absolute().as_uri()}?{mode}", flags=flags)
    connection.set_busy_timeout(round(patience * 1000))
    return connection


def is_full(error: apsw.Error) -> bool:
    """Whether a file could not grow."""
    return isinstance(error, apsw.FullError) or getattr(error, "extendedresult", 0) in EXTENDING


def check_sqlite(version: str) -> None:
    if tuple(map(int, version.split("."))) < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise OutdatedSqliteError(
            f"SQLite {version} can lose data: install the package apsw with SQLite {oldest} or later, "
            "as requirements.lock does"
        )


def empty_log(path: Path) -> None:
    """Let SQLite move the write-ahead log into the file and remove it: a new file of the same name must not find it."""
    with closing(connect_database(path, "mode=rw")) as connection:
        connection.pragma("journal_mode", "delete")
    if beside(path, "-wal").exists():
        raise apsw.BusyError("another program reads the file")


def create_database(
    path: Path, schema: Iterable[str], fill: Callable[[apsw.Connection], None] = lambda connection: None
) -> None:
    """Create a database, or replace it, in one transaction.  `fill`: called after the statements of the schema.  The
    file is readable by its owner alone.  It is written under another name first, and is on disk when this returns."""
    unfinished = beside(path, ".new")
    for leftover in (unfinished, beside(unfinished, "-journal")):
        leftover.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with closing(apsw.Connection(str(unfinished))) as connection:
            connection.pragma("synchronous", "off")  # synced once, below
            connection.pragma("journal_mode", "off")
            connection.execute("begin")
            for statement in schema:
                connection.execute(statement)
            fill(connection)
            connection.execute("commit")
        os.fsync(descriptor)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)  # it may have filled the disk
        raise
    finally:
        os.close(descriptor)
    sync_directory(path.parent)
