"""The files of an SQLite store: creation, lock, checks and loading.

Nothing is written to files that cannot be used: the header is checked first, and a read-only connection loads the
content.
"""

from __future__ import annotations

import fcntl
import gc
import logging
import os
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import apsw

from farflung.lib.files import OutdatedSqliteError, beside, connect_database, create_database, file_size, is_full
from farflung.store.base import FIRST, Entry, InUse, Revision, Unusable
from farflung.store.compaction import first_revision
from farflung.store.encryption import Encryption
from farflung.store.sqlite import rekeying
from farflung.store.sqlite.history import newest_changes
from farflung.store.sqlite.migration import connect_to_inspect, migrate
from farflung.store.sqlite.rows import (
    APPLICATION,
    FORMAT,
    INDEX,
    LIVE,
    NEWEST_BUT,
    TABLES,
    DamagedRowError,
    check_structure,
    compacted,
    fetch,
    note_gap,
    value_in,
)
from farflung.store.state import CurrentState
from farflung.store.tail import Tail

log = logging.getLogger(__name__)

RESUMED: Final = 5_000  #: changes in memory after the start …
RESUMED_BYTES: Final = 16 * 1024 * 1024  #: … or fewer, if the replaced values are large

HEADER = 100  #: bytes; the fields used here are at the same offsets since SQLite 3.0
CHECKPOINT_SECONDS: Final = 60.0  #: seconds that a writer waits for a checkpoint
HURRY: Final = 0.1  #: seconds that a checkpoint waits for a reader, and delays writers


@dataclass(frozen=True, slots=True)
class LoadedState:
    """The content of the files."""

    state: CurrentState
    tail: Tail
    oldest: Revision
    marks: list[tuple[Revision, float]]
    gaps: list[tuple[Revision, Revision]]


class LateConnection:
    """A connection of one thread.  If the disk is full it cannot be opened, and each use tries again."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self.opened: apsw.Connection | None = None

    def get(self) -> apsw.Connection:
        """Raises apsw.FullError if the disk is full."""
        if self.opened is None:
            try:
                self.opened = self._connect()
            except apsw.IOError as error:
                if is_full(error):
                    raise apsw.FullError("database or disk is full") from error
                raise
        return self.opened

    def close(self) -> None:
        if self.opened is not None:
            self.opened.close()


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """The locked files: their content, and a connection for each thread."""

    lock: FileLock
    loaded: LoadedState
    encryption: Encryption
    writing: LateConnection
    checkpointing: LateConnection
    reading: apsw.Connection
    write_error: str  #: why nothing can be written now; empty if it can


class FileLock:
    """Excludes other processes from the files.  The operating system releases it when this process ends."""

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(beside(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unusable(f"cannot write to the directory {path.parent}: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 20, 0).decode(errors="replace").strip()
            self.release()
            if not isinstance(error, BlockingIOError):
                raise Unusable(f"{path} cannot be locked: {error.strerror}") from error
            raise InUse(
                f"{path} is in use by another process (pid {holder or 'unknown'}): stop it, or use another directory"
            ) from error
        with suppress(OSError):  # the pid only helps users to find the process
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._descriptor)


def open_files(path: Path, encryption: Encryption, *, lines: int, now: float) -> OpenFiles:
    """Lock, check and load the files, also on a full disk.  `now`: seconds since the epoch.  Blocks.  Raises Unusable,
    and then leaves the files unchanged."""
    with ExitStack() as undo:
        lock = FileLock(path)
        undo.callback(lock.release)
        prepare(path, encryption)
        loaded = load(path, encryption, lines, now)
        with unusable_files(path):
            writing = undo.enter_context(closing(LateConnection(partial(connect_writer, path, loaded, encryption))))
            checkpointing = undo.enter_context(closing(LateConnection(partial(connect_to_write, path, HURRY))))
            write_error = ""
            try:
                writing.get()
                checkpointing.get()
            except apsw.FullError as error:
                write_error = str(error)
                log.warning("cannot write to %s: %s; reads work, and writes will when there is room", path, error)
            reading = undo.enter_context(closing(connect_to_read(path)))
        undo.pop_all()
    return OpenFiles(lock, loaded, encryption, writing, checkpointing, reading, write_error)


def connect_writer(path: Path, loaded: LoadedState, encryption: Encryption) -> apsw.Connection:
    """The connection of the writer, before the first write."""
    connection = connect_to_write(path)
    try:
        for last, first in loaded.gaps[-1:]:
            note_gap(connection, last, first)
        rekeying.begin(connection, encryption)
    except apsw.Error:
        connection.close()
        raise
    return connection


def prepare(path: Path, encryption: Encryption) -> None:
    """Create the file if it is missing, and convert an earlier format or other encrypted resources.  Refuse a file that
    is not a store of a known format, or whose keys are missing.  The caller holds the lock."""
    with unusable_files(path):
        header = read_header(path)
        if header:
            if (version := format_of(path, header)) < FORMAT or has_other_resources(path, encryption):
                migrate(path, version, encryption)
            return
        if file_size(beside(path, "-wal")):
            raise Unusable(f"{path} is missing but {path.name}-wal is there: restore the one, or move the other away")
        create_database(path, (*TABLES, INDEX), lambda new: rekeying.note_complete(new, encryption))


def has_other_resources(path: Path, encryption: Encryption) -> bool:
    """Of a file in the current format.  Raises Unusable if keys are missing."""
    with closing(connect_to_inspect(path)) as connection:
        state = rekeying.read_state(connection)
    if missing := state.keys - encryption.key_ids:
        raise Unusable(f"{path} {missing_keys(missing)}")
    return bool(encryption.first_id) and state.resources != encryption.resources


def read_header(path: Path) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        return file.read(HEADER)


def format_of(path: Path, header: bytes) -> int:
    """Raises Unusable unless this version can read it."""
    application = int.from_bytes(header[68:72], "big")
    version = int.from_bytes(header[60:64], "big")
    if len(header) < HEADER or not header.startswith(b"SQLite format 3\0") or application != APPLICATION:
        raise Unusable(f"{path} is not a Farflung store: move it away, or use another directory")
    if not 1 <= version <= FORMAT:
        raise Unusable(
            f"{path} has format {version}, and this version of Farflung knows formats up to {FORMAT}: a newer version "
            "wrote it; use that version, or restore a backup from before the upgrade"
        )
    return version


def needed_keys(path: Path) -> Set[str]:
    """The ids of the keys that values of a file may need; none if it is missing or of an earlier format.  The caller
    need not hold the lock.  Raises Unusable."""
    with unusable_files(path):
        header = read_header(path)
        if not header or format_of(path, header) < FORMAT:
            return set()
        with closing(connect_to_inspect(path)) as connection:
            return rekeying.read_state(connection).keys


def load(path: Path, encryption: Encryption, lines: int, now: float) -> LoadedState:
    """Read the current state, and the newest changes, from which watches resume.  Revisions continue after a gap.  The
    caller holds the lock and has called `prepare`."""
    with unusable_files(path), closing(connect_to_inspect(path)) as connection, paused_garbage_collection():
        rows: Iterator[Any] = connection.execute(LIVE)
        entries = [Entry(row[1], value_in(row, encryption) or b"", row[0]) for row in rows]
        check_structure(connection)  # an object that the index lacks would be missing without notice
        [(newest,)] = fetch(connection, "select max(rv) from kv")
        oldest = compacted(connection)
        known = fetch(connection, "select last, first from gap order by last")
        last = max(newest or FIRST, oldest, known[-1][1] if known else FIRST)
        first = first_revision(last, now)
        state = CurrentState(entries, first)
        [(since,)] = fetch(connection, NEWEST_BUT, (min(lines, RESUMED),)) or [(FIRST,)]
        since = max(oldest, since)
        tail = Tail(*newest_changes(connection, since, state.get, encryption, size=RESUMED_BYTES), lines=lines)
        marks = fetch(connection, "select rv, time from mark order by rv")
    return LoadedState(state, tail, oldest, marks, known if first == last else [*known, (last, first)])


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Python's garbage collector would traverse the loaded entries again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def connect_to_read(path: Path) -> apsw.Connection:
    """The connection of the thread that reads history."""
    return connect_database(path, "mode=ro")


def connect_to_write(path: Path, patience: float = CHECKPOINT_SECONDS) -> apsw.Connection:
    """A connection for the writer or the checkpointer.  A commit returns when the write-ahead log is on disk."""
    connection = connect_database(path, "mode=rw", patience=patience)
    try:
        connection.pragma("journal_mode", "wal")  # a copy made by SQLite may not have this mode
        connection.pragma("synchronous", "full")
        connection.wal_autocheckpoint(0)
    except apsw.Error:
        connection.close()
        raise
    return connection


@contextmanager
def unusable_files(path: Path) -> Iterator[None]:
    """Turn errors into Unusable with a message for users."""
    try:
        yield
    except OSError as error:
        raise Unusable(f"cannot use {path}: {error.strerror}") from error
    except OutdatedSqliteError as error:
        raise Unusable(str(error)) from error
    except (apsw.Error, DamagedRowError, ValueError, TypeError) as error:
        raise Unusable(f"{path} {sqlite_problem(path, error)}") from error


def missing_keys(ids: Set[str]) -> str:
    """What a message says of a store that needs these keys."""
    which = f"key {min(ids)}" if len(ids) == 1 else f"keys {', '.join(sorted(ids))}"
    lacking = f"has values that are encrypted with the {which}, which the key file lacks"
    return f"{lacking}: restore that file, or name the right one with --encryption-key-file"


OUTSIDE = (
    apsw.PermissionsError,
    apsw.BusyError,
    apsw.ReadOnlyError,
    apsw.IOError,
    apsw.FullError,
    apsw.CantOpenError,
)


def sqlite_problem(path: Path, error: Exception) -> str:
    """Distinguish problems of the directory or disk from a damaged file."""
    if isinstance(error, OUTSIDE):
        return f"cannot be opened ({error}): check that its directory is writable and its disk has room"
    return (
        f"is damaged ({error}): `farflung repair --root-directory {path.parent}` shows what is lost and can repair it; "
        "or restore a backup"
    )
