"""The journal of a syncer: the last observed copies and applied objects, in memory and in an SQLite file.

The content of objects is encrypted in the file, with a key of the syncer.  Their names are not.
"""

from __future__ import annotations

import fcntl
import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from sys import intern
from types import MappingProxyType
from typing import Any, Final

import apsw
import msgspec
import orjson

from farflung.lib.envelopes import ForgedEnvelopeError, KeyRing, UnknownKeyError, key_id_of
from farflung.lib.files import (
    OutdatedSqliteError,
    beside,
    connect_database,
    create_database,
    empty_log,
    file_size,
    sync_directory,
)
from farflung.lib.key_file import KeyFile, KeyFileError
from farflung.placement.names import GroupResource, ObjectRef

APPLICATION: Final = 0x66667379  #: SQLite's application_id of a journal: "ffsy"
FORMAT: Final = 2  #: format 1 was not encrypted
KEY: Final = "journal.key"  #: beside the journal
MAX_ASIDE: Final = 9  #: damaged files to keep

SCHEMA: Final = (
    f"pragma application_id = {APPLICATION}",
    f"pragma user_version = {FORMAT}",
    """create table entry (
        "group" text not null, plural text not null, namespace text not null, name text not null,
        version text not null, kind text not null, namespaced integer not null,
        uid text not null, revision text not null, incarnation text not null, create_only integer not null,
        withdrawn integer not null, orphaned integer not null, guarded integer not null, edge_uid text not null,
        content blob not null, checksum integer not null,
        primary key ("group", plural, namespace, name)) strict""",
    """create table heard (
        "group" text not null, plural text not null, version text not null, revision text not null,
        checksum integer not null, primary key ("group", plural)) strict""",
    "create table fact (name text primary key not null, value text not null, checksum integer not null) strict",
)
#: SQLite errors whose cause is not the content of the file
AROUND: Final = (
    apsw.PermissionsError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.NoMemError,
    apsw.ReadOnlyError,
    apsw.IOError,
    apsw.FullError,
    apsw.CantOpenError,
    apsw.AuthError,
)
LOCK_SECONDS: Final = 5.0  #: seconds to wait for a program that looks into the file

Row = tuple[Any, ...]


class JournalError(Exception):
    """The file cannot be used.  The message tells the operator what to do."""


class JournalDamageError(Exception):
    """The content of the file is damaged."""


@contextmanager
def detect_damage() -> Iterator[None]:
    """Raise JournalDamageError for damage in the file, and let other errors of SQLite through."""
    try:
        yield
    except AROUND:
        raise
    except apsw.Error as error:
        raise JournalDamageError(str(error)) from error
    except (TypeError, ValueError) as error:  # Python cannot decode SQLite's error message
        raise JournalDamageError("it contains text that is not UTF-8") from error


def sealed(row: Row) -> Row:
    """The row with a checksum: disks of small machines lose bits."""
    return (*row, _checksum(row))


def unsealed(row: Row) -> Row:
    """The row without its checksum.  Raises JournalDamageError if they do not fit."""
    *content, checksum = row
    if checksum != _checksum(tuple(content)):
        raise JournalDamageError("a row does not match its checksum")
    return tuple(content)


def _checksum(row: Row) -> int:
    return zlib.crc32(repr(row).encode(errors="replace"))


# --- to open it -----------------------------------------------------------------------------------


class JournalLock:
    """Excludes other processes; the operating system releases it when this process ends."""

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


def read_keys(path: Path, file: KeyFile) -> KeyRing:
    """The keys of a journal; a new one, if the file is missing and no journal is encrypted with it.  Raises
    JournalError or KeyFileError."""
    if file.identity() is None:
        if format_of(path) >= FORMAT:
            raise JournalError(
                f"{path} is encrypted, and its key {file.path} is missing: restore the key, or move the journal away"
            )
        file.create()
    return KeyRing([one.key for one in file.read()])


def format_of(path: Path) -> int:
    """0 if the file is missing, or no journal."""
    header = path.read_bytes()[:72] if path.is_file() else b""
    is_journal = int.from_bytes(header[68:72], "big") == APPLICATION
    return int.from_bytes(header[60:64], "big") if is_journal else 0


def connect(path: Path, ring: KeyRing) -> apsw.Connection:
    """Open and check the file, or create it.  A commit returns when it is on disk.  The caller holds the lock.
    Raises JournalDamageError, OSError or apsw.Error."""
    if not path.exists():
        for leftover in ("-wal", "-shm"):
            beside(path, leftover).unlink(missing_ok=True)
        create_database(path, SCHEMA)
    path.chmod(0o600)
    if format_of(path) == 1:
        encrypt(path, ring)
    connection = connect_database(path, "mode=rw", patience=LOCK_SECONDS)
    try:
        with detect_damage():
            _check(connection)
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "full")
            _try_to_write(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: apsw.Connection) -> None:
    application, version = connection.pragma("application_id"), connection.pragma("user_version")
    if application != APPLICATION:
        raise JournalDamageError("it is not the journal of a syncer")
    if version != FORMAT:
        raise JournalDamageError(f"it has format {version}, and this version of Farflung knows format {FORMAT} only")
    finding = connection.pragma("integrity_check", 1)
    if finding != "ok":
        raise JournalDamageError(str(finding))


def encrypt(path: Path, ring: KeyRing) -> None:
    """Replace a journal of format 1, whose content is not encrypted.  A process that is killed leaves the old one."""
    with detect_damage():
        if file_size(beside(path, "-wal")):
            empty_log(path)
        with closing(connect_database(path, "mode=rw", patience=LOCK_SECONDS)) as old:
            create_database(path, SCHEMA, partial(_copy_format_1, old, ring))


def _copy_format_1(old: apsw.Connection, ring: KeyRing, new: apsw.Connection) -> None:
    rows = old.execute("select * from entry")
    new.executemany(PUT, (_row(_entry_of_format_1(unsealed(row)), ring) for row in rows))
    new.executemany(INSERT_POSITION, old.execute("select * from heard"))
    new.executemany(STATE, old.execute("select * from fact"))


def _try_to_write(connection: apsw.Connection, path: Path) -> None:
    """A damaged header can make SQLite treat a writable file as read-only."""
    try:
        connection.execute("delete from fact where false")
    except apsw.ReadOnlyError as error:
        if os.access(path, os.W_OK):
            raise JournalDamageError(str(error)) from error
        raise


def put_aside(path: Path) -> Path:
    """Rename a damaged file to the first free name, or the last one.  Its write-ahead log is renamed first, because a
    new file must not find it."""
    names = [beside(path, f".damaged-{number}") for number in range(1, MAX_ASIDE + 1)]
    aside = next((one for one in names if not one.exists()), names[-1])
    beside(path, "-shm").unlink(missing_ok=True)
    beside(aside, "-wal").unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        beside(path, "-wal").replace(beside(aside, "-wal"))
    path.replace(aside)
    sync_directory(path.parent)
    return aside


PUT: Final = "insert or replace into entry values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
DROP: Final = 'delete from entry where "group" = ? and plural = ? and namespace = ? and name = ?'
INSERT_POSITION: Final = "insert or replace into heard values (?, ?, ?, ?, ?)"
ORPHAN_CAUSE: Final = "suspicion"  #: fact: `Reason: message` of orphans, such as a restored hub
IN_DOUBT: Final = "?"  #: in place of a hash: an apply had no answer
NOTHING_OWNED: Final = "gone"  #: in place of owned fields: nothing of ours is left at the edge
STATE: Final = "insert or replace into fact values (?, ?, ?)"


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One object: its copy as last observed, and what the syncer applied at the edge."""

    ref: ObjectRef
    version: str  #: of its API
    kind: str
    namespaced: bool
    uid: str  #: of the copy
    revision: int  #: resourceVersion of the copy
    incarnation: str  #: of the mailbox
    desired: bytes  #: what to apply, `conversion.encoded`
    create_only: bool = False
    withdrawn: bool = False  #: the copy is being deleted
    orphaned: bool = False  #: the copy does not exist any more, and was not withdrawn
    has_finalizer: bool = False  #: the copy has our finalizer
    applied: str = ""  #: hash of what was last applied, or IN_DOUBT
    owned: str = ""  #: `conversion.owned_fields` after that, or NOTHING_OWNED
    edge_uid: str = ""  #: of the object at the edge
    returned: str = ""  #: the status and the generation that the copy has; see `MailboxCopy.returned`


@dataclass(frozen=True, slots=True)
class WatchPosition:
    """Where to resume the watch of a kind in the mailbox."""

    version: str = ""  #: of the API
    revision: str = ""  #: the resourceVersion to resume from; empty: list again


@dataclass(slots=True)
class _Changes:
    """Changes that are not in the file yet."""

    entries: dict[ObjectRef, JournalEntry | None] = field(default_factory=dict)  #: None: dropped
    positions: dict[GroupResource, WatchPosition] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.entries or self.positions or self.facts)

    def and_then(self, later: _Changes) -> _Changes:
        return _Changes(
            {**self.entries, **later.entries}, {**self.positions, **later.positions}, {**self.facts, **later.facts}
        )


class Journal:
    """Created by `open`.  `flush` may run in another thread than the rest."""

    def __init__(self, connection: apsw.Connection, lock: JournalLock, ring: KeyRing, damage: str) -> None:
        self.damage: Final = damage  #: a sentence, if the former file was damaged and renamed
        self._connection = connection
        self._ring = ring
        self._lock = lock
        self._writing = threading.Lock()  #: held while the connection is used
        self._noting = threading.Lock()  #: held while `_changes` is used, for a moment
        self._changes = _Changes()
        self._entries: dict[GroupResource, dict[ObjectRef, JournalEntry]] = {}
        self._positions: dict[GroupResource, WatchPosition] = {}
        self._facts: dict[str, str] = {}

    @classmethod
    def open(cls, path: Path, key_file: KeyFile | None = None) -> Journal:
        """`key_file`: by default KEY beside the journal.  Blocks.  Raises JournalError if the file is in use, the disk
        does not allow it, or the key is missing."""
        key_file = key_file or KeyFile(path.with_name(KEY))
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with ExitStack() as undo:
                lock = JournalLock(path)
                undo.callback(lock.release)
                journal = cls._whole(path, lock, read_keys(path, key_file))
                undo.pop_all()
        except KeyFileError as error:
            raise JournalError(str(error)) from None
        except UnknownKeyError as error:
            lacking = f"{path} is encrypted with the key {error.key_id}, which {key_file.path} lacks"
            raise JournalError(f"{lacking}: restore the key, or move the journal away") from None
        except OSError as error:
            raise JournalError(f"cannot use {path}: {error.strerror or error}") from error
        except OutdatedSqliteError as error:
            raise JournalError(str(error)) from error
        except apsw.Error as error:
            raise JournalError(
                f"cannot use {path} ({error}): check that its directory is writable and its disk has room"
            ) from error
        return journal

    @classmethod
    def _whole(cls, path: Path, lock: JournalLock, ring: KeyRing) -> Journal:
        try:
            return cls._loaded(path, lock, ring, damage="")
        except JournalDamageError as error:
            aside = put_aside(path)
            damage = f"{path} could not be read ({error}): it was renamed to {aside.name}, and a new one was created"
        return cls._loaded(path, lock, ring, damage=damage)

    @classmethod
    def _loaded(cls, path: Path, lock: JournalLock, ring: KeyRing, *, damage: str) -> Journal:
        with ExitStack() as undo:
            connection = undo.enter_context(closing(connect(path, ring)))
            journal = cls(connection, lock, ring, damage)
            with detect_damage():
                journal._load()
            undo.pop_all()
        return journal

    # --- entries ----------------------------------------------------------------------------------

    def get(self, ref: ObjectRef) -> JournalEntry | None:
        return self._entries.get(ref.resource, {}).get(ref)

    def refs(self) -> Iterator[ObjectRef]:
        """Of all entries.  Do not put or drop entries while iterating."""
        for some in self._entries.values():
            yield from some

    def entries_of(self, resource: GroupResource) -> Iterable[JournalEntry]:
        """Do not put or drop entries while iterating."""
        return self._entries.get(resource, {}).values()

    def entries(self) -> Iterator[JournalEntry]:
        """All entries.  Do not put or drop entries while iterating."""
        for some in self._entries.values():
            yield from some.values()

    def kinds(self) -> tuple[GroupResource, ...]:
        """Kinds with entries."""
        return tuple(self._entries)

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def put(self, entry: JournalEntry) -> None:
        """Written to the file by the next `flush`."""
        self._entries.setdefault(entry.ref.resource, {})[entry.ref] = entry
        with self._noting:
            self._changes.entries[entry.ref] = entry

    def drop(self, ref: ObjectRef) -> None:
        some = self._entries.get(ref.resource, {})
        if some.pop(ref, None) is None:
            return
        if not some:
            del self._entries[ref.resource]
        with self._noting:
            self._changes.entries[ref] = None

    # --- positions of watches, and facts ----------------------------------------------------------

    def revision_of(self, resource: GroupResource) -> str:
        """The resourceVersion to resume from; empty: list."""
        return self._positions.get(resource, WatchPosition()).revision

    def positions(self) -> Mapping[GroupResource, WatchPosition]:
        return MappingProxyType(self._positions)

    def set_revision(self, resource: GroupResource, version: str, revision: str) -> None:
        """In the file, a position is never ahead of the entries that were put before it."""
        position = WatchPosition(version, revision)
        if self._positions.get(resource) == position:
            return
        self._positions[resource] = position
        with self._noting:
            self._changes.positions[resource] = position

    def get_fact(self, name: str) -> str:
        """Empty if it was never set."""
        return self._facts.get(name, "")

    def set_fact(self, name: str, value: str) -> None:
        if self._facts.get(name) == value:
            return
        self._facts[name] = value
        with self._noting:
            self._changes.facts[name] = value

    def get_kinds(self, fact: str) -> set[GroupResource]:
        """A fact that is a set of kinds."""
        return {GroupResource(*one) for one in orjson.loads(self.get_fact(fact) or "[]")}

    def set_kinds(self, fact: str, wanted: Iterable[GroupResource]) -> None:
        resources = set(wanted)
        if resources != self.get_kinds(fact):
            self.set_fact(fact, orjson.dumps(list(map(list, sorted(resources)))).decode())

    # --- the file ---------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """Whether there are changes to write soon.  Positions can wait: a watch that resumes from an earlier one
        delivers the same events once more."""
        return bool(self._changes.entries or self._changes.facts)

    def flush(self) -> None:
        """Write all changes to the file.  After a JournalError the next call writes them too."""
        with self._writing:
            with self._noting:
                changes, self._changes = self._changes, _Changes()
            if not changes:
                return
            try:
                self._write(changes)
            except (apsw.Error, ValueError) as error:
                with self._noting:
                    self._changes = changes.and_then(self._changes)
                raise JournalError(f"the journal cannot be written: {error}") from error

    def _write(self, changes: _Changes) -> None:
        connection = self._connection
        connection.execute("begin immediate")
        try:
            connection.executemany(DROP, [_key(ref) for ref, entry in changes.entries.items() if entry is None])
            entries = (entry for entry in changes.entries.values() if entry is not None)
            connection.executemany(PUT, [_row(entry, self._ring) for entry in entries])
            connection.executemany(
                INSERT_POSITION,
                [sealed((*one, position.version, position.revision)) for one, position in changes.positions.items()],
            )
            connection.executemany(STATE, [sealed(one) for one in changes.facts.items()])
            connection.execute("commit")
        except BaseException:
            with suppress(apsw.Error):  # SQLite may have rolled back by itself
                connection.execute("rollback")
            raise

    def close(self) -> None:
        """Flush and close.  Another process may open the file then, even if the flush failed."""
        try:
            self.flush()
        finally:
            with self._writing:  # SQLite crashes if a connection is closed while it is in use
                self._connection.close()
            self._lock.release()

    def _load(self) -> None:
        former: list[JournalEntry] = []
        for row in self._connection.execute("select * from entry"):
            entry = _entry(unsealed(row), self._ring)
            self._entries.setdefault(entry.ref.resource, {})[entry.ref] = entry
            if key_id_of(row[-2]) != self._ring.first_id:
                former.append(entry)
        for entry in former:
            self.put(entry)  # to be encrypted with the new key
        for row in self._connection.execute("select * from heard"):
            group, plural, version, revision = unsealed(row)
            self._positions[GroupResource(group, plural)] = WatchPosition(version, revision)
        for row in self._connection.execute("select * from fact"):
            name, value = unsealed(row)
            self._facts[name] = value


def _key(ref: ObjectRef) -> tuple[str, str, str, str]:
    return *ref.resource, ref.namespace, ref.name


def _row(entry: JournalEntry, ring: KeyRing) -> Row:
    """SQLite has no booleans, and a resourceVersion may be too large for one of its integers.  Hashes are encrypted
    too, because they reveal short values."""
    content = msgspec.msgpack.encode((entry.desired, entry.applied, entry.owned, entry.returned))
    return sealed(
        (
            *_key(entry.ref),
            entry.version,
            entry.kind,
            int(entry.namespaced),
            entry.uid,
            str(entry.revision),
            entry.incarnation,
            int(entry.create_only),
            int(entry.withdrawn),
            int(entry.orphaned),
            int(entry.has_finalizer),
            entry.edge_uid,
            ring.seal(content, _context(*_key(entry.ref))),
        )
    )


def _context(*key: str) -> bytes:
    return "/".join(key).encode()


def _entry(row: Row, ring: KeyRing) -> JournalEntry:
    """Raises JournalDamageError or UnknownKeyError."""
    *clear, edge_uid, sealed_content = row
    try:
        content = ring.open(sealed_content, _context(*row[:4]))
    except ForgedEnvelopeError as error:
        raise JournalDamageError("a row cannot be decrypted") from error
    desired, applied, owned, returned = msgspec.msgpack.decode(content, type=tuple[bytes, str, str, str])
    return _entry_of_format_1((*clear[:10], desired, *clear[10:], applied, owned, edge_uid, returned))


def _entry_of_format_1(row: Row) -> JournalEntry:
    group, plural, namespace, name, version, kind, namespaced, uid, revision, incarnation, desired, *others = row
    create_only, withdrawn, orphaned, has_finalizer, applied, owned, edge_uid, returned = others
    return JournalEntry(
        ref=ObjectRef(GroupResource(intern(group), intern(plural)), namespace, name),
        version=intern(version),
        kind=intern(kind),
        namespaced=bool(namespaced),
        uid=uid,
        revision=int(revision),
        incarnation=intern(incarnation),
        desired=desired,
        create_only=bool(create_only),
        withdrawn=bool(withdrawn),
        orphaned=bool(orphaned),
        has_finalizer=bool(has_finalizer),
        applied=applied,
        owned=owned,
        edge_uid=edge_uid,
        returned=returned,
    )
