"""What was last seen in the mailbox and applied at the edge: in memory, and in a file that outlives the syncer.

journal = Journal.open(path)        journal.damage says if what was there before could not be read
journal.put(entry), drop, set_…     change what is in memory
journal.flush()                     and this the file, all at once
journal.put_now(entry)              both, for what has to be on the disk before something is done
journal.close()

Work at the edge is done from it, so it goes on with the hub gone.  One process uses the file at a time.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from sys import intern
from typing import Any, Final

from farflung.lib.files import sync_directory
from farflung.syncer.values import Part, Resource

APPLICATION: Final = 0x66667379  #: how the file says that it is a journal: "ffsy"
FORMAT: Final = 1
MOST_ASIDE: Final = 9  #: damaged files that are kept
COMPANIONS: Final = ("-wal", "-shm")

SCHEMA: Final = (
    f"pragma application_id = {APPLICATION}",
    f"pragma user_version = {FORMAT}",
    """create table entry (
        "group" text not null, plural text not null, namespace text not null, name text not null,
        version text not null, kind text not null, namespaced integer not null,
        uid text not null, revision text not null, incarnation text not null, desired blob not null,
        create_only integer not null, withdrawn integer not null, orphaned integer not null, guarded integer not null,
        applied text not null, owned text not null, edge_uid text not null,
        primary key ("group", plural, namespace, name)) strict""",
    """create table heard (
        "group" text not null, plural text not null, version text not null, revision text not null,
        primary key ("group", plural)) strict, without rowid""",
    "create table fact (name text primary key, value text not null) strict, without rowid",
)
PUT: Final = "insert or replace into entry values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
DROP: Final = 'delete from entry where "group" = ? and plural = ? and namespace = ? and name = ?'
HEAR: Final = "insert or replace into heard values (?, ?, ?, ?)"
STATE: Final = "insert or replace into fact values (?, ?)"


class JournalError(Exception):
    """The file cannot be used.  The message says what to do."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One object: what the hub last said of it, and what was made of that."""

    part: Part
    version: str  #: of its API
    kind: str
    namespaced: bool
    uid: str  #: of the copy
    revision: int  #: resourceVersion of the copy
    incarnation: str  #: of the mailbox
    desired: bytes  #: what to apply, `shaping.encoded`
    create_only: bool = False
    withdrawn: bool = False  #: the copy is being deleted
    orphaned: bool = False  #: the copy is not there any more, and nobody withdrew it
    guarded: bool = False  #: the copy has our finalizer
    applied: str = ""  #: digest of what was last applied
    owned: str = ""  #: `shaping.owned_fields` after that
    edge_uid: str = ""  #: of the object at the edge


@dataclass(frozen=True, slots=True)
class Heard:
    """How far the mailbox was heard about a kind."""

    version: str = ""  #: of the API
    revision: str = ""  #: the resourceVersion to go on from


class _Changes:
    """What is not in the file yet."""

    __slots__ = ("entries", "facts", "heard")

    def __init__(self) -> None:
        self.entries: dict[Part, Entry | None] = {}  #: None: dropped
        self.heard: dict[Resource, Heard] = {}
        self.facts: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.entries or self.heard or self.facts)

    def put_before(self, later: _Changes) -> None:
        """Make `later` what both say."""
        later.entries = {**self.entries, **later.entries}
        later.heard = {**self.heard, **later.heard}
        later.facts = {**self.facts, **later.facts}


class Journal:
    """Made by `open`.  `flush` may run in another thread than the rest."""

    def __init__(self, connection: sqlite3.Connection, lock: _Lock, damage: str) -> None:
        self.damage: Final = damage  #: a sentence, if what was there before could not be read and was put aside
        self._connection = connection
        self._lock = lock
        self._writing = threading.Lock()
        self._changes = _Changes()
        self._entries: dict[Resource, dict[Part, Entry]] = {}
        self._heard: dict[Resource, Heard] = {}
        self._facts: dict[str, str] = {}

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Blocks.  Raises JournalError if the file is in use, or the disk does not allow it."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with ExitStack() as undo:
                lock = _Lock(path)
                undo.callback(lock.release)
                journal = cls._opened(path, lock)
                undo.pop_all()
        except OSError as error:
            raise JournalError(f"cannot use {path}: {error.strerror or error}") from error
        except sqlite3.Error as error:
            raise JournalError(
                f"cannot use {path} ({error}): check that its directory is writable and its disk has room"
            ) from error
        return journal

    @classmethod
    def _opened(cls, path: Path, lock: _Lock) -> Journal:
        try:
            return cls._loaded(path, lock, damage="")
        except _DamageError as error:
            aside = _put_aside(path)
            damage = f"{path} could not be read ({error}): it was put aside as {aside.name}, and a new one was begun"
        return cls._loaded(path, lock, damage=damage)

    @classmethod
    def _loaded(cls, path: Path, lock: _Lock, *, damage: str) -> Journal:
        with ExitStack() as undo:
            connection = undo.enter_context(closing(_connect(path)))
            journal = cls(connection, lock, damage)
            journal._load()
            undo.pop_all()
        return journal

    # --- entries ----------------------------------------------------------------------------------

    def get(self, part: Part) -> Entry | None:
        return self._entries.get(part.resource, {}).get(part)

    def parts(self) -> Iterator[Part]:
        """Of all entries.  Not to be changed meanwhile."""
        for some in self._entries.values():
            yield from some

    def entries_of(self, resource: Resource) -> Iterable[Entry]:
        """Not to be changed meanwhile."""
        return self._entries.get(resource, {}).values()

    def resources(self) -> Iterable[Resource]:
        """That there are entries of."""
        return self._entries.keys()

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def put(self, entry: Entry) -> None:
        """It is in the file after the next `flush`."""
        self._entries.setdefault(entry.part.resource, {})[entry.part] = entry
        self._changes.entries[entry.part] = entry

    def put_now(self, entry: Entry) -> None:
        """It is in the file when this returns, and so is everything that was put before."""
        self.put(entry)
        self.flush()

    def drop(self, part: Part) -> None:
        some = self._entries.get(part.resource)
        if some is None or some.pop(part, None) is None:
            return
        if not some:
            del self._entries[part.resource]
        self._changes.entries[part] = None

    # --- how far the mailbox was heard, and small texts -------------------------------------------

    def revision_of(self, resource: Resource) -> str:
        """The resourceVersion up to which the mailbox was heard; empty if it was not."""
        return self._heard.get(resource, Heard()).revision

    def heard(self) -> Mapping[Resource, Heard]:
        """How far, for each kind."""
        return self._heard

    def set_revision(self, resource: Resource, version: str, revision: str) -> None:
        """In the file it is never ahead of the entries that were put before."""
        heard = Heard(version, revision)
        if self._heard.get(resource) != heard:
            self._heard[resource] = self._changes.heard[resource] = heard

    def get_fact(self, name: str) -> str:
        """Empty if nobody said."""
        return self._facts.get(name, "")

    def set_fact(self, name: str, value: str) -> None:
        if self._facts.get(name) != value:
            self._facts[name] = self._changes.facts[name] = value

    # --- the file ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """Everything that changed is in the file when this returns.  Raises JournalError, and then the next one tries
        it again."""
        with self._writing:
            changes, self._changes = self._changes, _Changes()
            if not changes:
                return
            try:
                self._write(changes)
            except sqlite3.Error as error:
                changes.put_before(self._changes)
                raise JournalError(f"the journal cannot be written: {error}") from error

    def _write(self, changes: _Changes) -> None:
        connection = self._connection
        connection.execute("begin immediate")
        try:
            dropped = [_key(part) for part, entry in changes.entries.items() if entry is None]
            connection.executemany(DROP, dropped)
            connection.executemany(PUT, [_row(entry) for entry in changes.entries.values() if entry is not None])
            connection.executemany(
                HEAR, [(*one, heard.version, heard.revision) for one, heard in changes.heard.items()]
            )
            connection.executemany(STATE, changes.facts.items())
            connection.execute("commit")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                connection.execute("rollback")
            raise

    def close(self) -> None:
        """After a last `flush`.  Somebody else may open it then, even if that failed."""
        try:
            self.flush()
        finally:
            self._connection.close()
            self._lock.release()

    def _load(self) -> None:
        with _damage_told():
            for row in self._connection.execute("select * from entry"):
                entry = _entry(row)
                self._entries.setdefault(entry.part.resource, {})[entry.part] = entry
            for group, plural, version, revision in self._connection.execute("select * from heard"):
                self._heard[Resource(group, plural)] = Heard(version, revision)
            self._facts.update(self._connection.execute("select name, value from fact"))


def _key(part: Part) -> tuple[str, str, str, str]:
    return part.resource.group, part.resource.plural, part.namespace, part.name


def _row(entry: Entry) -> tuple[Any, ...]:
    """A resourceVersion may be too large for an integer of SQLite."""
    _, version, kind, namespaced, uid, revision, *others = (getattr(entry, one.name) for one in fields(entry))
    return (*_key(entry.part), version, kind, namespaced, uid, str(revision), *others)


def _entry(row: tuple[Any, ...]) -> Entry:
    """Raises ValueError."""
    group, plural, namespace, name, version, kind, namespaced, uid, revision, incarnation, desired, *others = row
    create_only, withdrawn, orphaned, guarded, applied, owned, edge_uid = others
    return Entry(
        part=Part(Resource(intern(group), intern(plural)), namespace, name),
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
        guarded=bool(guarded),
        applied=applied,
        owned=owned,
        edge_uid=edge_uid,
    )


# --- the file on the disk -------------------------------------------------------------------------


class _DamageError(Exception):
    """What is in the file makes no sense."""


#: what SQLite says if the trouble is not in the file
_AROUND: Final = frozenset(
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


@contextmanager
def _damage_told() -> Iterator[None]:
    """Tell trouble in the file from trouble around it."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in _AROUND:
            raise
        raise _DamageError(str(error)) from error
    except ValueError as error:
        raise _DamageError("a row of it makes no sense") from error


def _connect(path: Path) -> sqlite3.Connection:
    """To a file that is there, is a journal and is whole: made if there is none.  A commit returns when it is on the
    disk."""
    if not path.exists():
        for ending in COMPANIONS:
            _beside(path, ending).unlink(missing_ok=True)
        _create(path)
    location = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(location, uri=True, isolation_level=None, check_same_thread=False)
    try:
        with _damage_told():
            _check(connection)
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = full")
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: Path) -> None:
    """Under another name first: the file is either not there or complete."""
    unfinished = _beside(path, ".new")
    for leftover in (unfinished, _beside(unfinished, "-journal")):
        leftover.unlink(missing_ok=True)
    os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
        for statement in SCHEMA:
            connection.execute(statement)
    unfinished.replace(path)
    sync_directory(path.parent)


def _check(connection: sqlite3.Connection) -> None:
    [(application,)] = connection.execute("pragma application_id")
    [(version,)] = connection.execute("pragma user_version")
    if application != APPLICATION:
        raise _DamageError("it is no journal of a syncer")
    if version != FORMAT:
        raise _DamageError(f"it has format {version}, and this version of Farflung knows format {FORMAT} only")
    [(finding,), *_] = connection.execute("pragma quick_check(1)")
    if finding != "ok":
        raise _DamageError(str(finding))


def _put_aside(path: Path) -> Path:
    """Under the first free name, or the last there is; the log first, because a new file must not find it."""
    names = [_beside(path, f".damaged-{number}") for number in range(1, MOST_ASIDE + 1)]
    aside = next((one for one in names if not one.exists()), names[-1])
    for ending in (*COMPANIONS, ""):
        _beside(aside, ending).unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            _beside(path, ending).rename(_beside(aside, ending))
    sync_directory(path.parent)
    return aside


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


class _Lock:
    """Keeps other processes off the file; the system releases it when this one ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(_beside(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise JournalError(
                f"{path} is in use by another syncer: stop that one, or give this one a directory of its own"
            ) from error
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        os.close(self._descriptor)
