"""Repairing a damaged file: each object at its newest intact revision, in a new file.

The history is not kept, as after a restore from a backup: clients list again, so none of them combines a repaired
object with the damaged revision that it saw before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import apsw

from farflung.lib.files import beside, copy_private, create_database, empty_log, file_size, sync_directory
from farflung.store.base import ABSENT, FIRST, Revision, Unusable, check_key
from farflung.store.encryption import Encryption, key_of
from farflung.store.sqlite.files import OUTSIDE, format_of, load, missing_keys, read_header, sqlite_problem
from farflung.store.sqlite.migration import connect_to_inspect, fill, format_1_row
from farflung.store.sqlite.rekeying import read_state
from farflung.store.sqlite.rows import (
    DELETE,
    FORMAT,
    PUT,
    TABLES,
    DamagedRowError,
    Row,
    fetch,
    note_compacted,
    structural_damage,
    value_in,
)

MAX_FINDINGS: Final = 20

#: Each is read in both directions, up to the first damaged page.  The index also names the objects of damaged rows.
ENTRIES: Final = (
    "select rv, key, op from kv indexed by kv_by_key order by key, rv",
    "select rv, key, op from kv indexed by kv_by_key order by key desc, rv desc",
)
ROWS: Final = (
    "select rv, key, op from kv not indexed order by rv",
    "select rv, key, op from kv not indexed order by rv desc",
)
REACHED: Final = ("select max(rv) from kv", "select value from meta", "select first from gap")


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """A row of the file, or an index entry without its row."""

    revision: Revision
    key: str  #: empty if it cannot be read
    operation: int
    is_intact: bool


@dataclass(frozen=True, slots=True)
class DamagedObject:
    key: str
    damaged: Revision  #: the newest revision
    intact: Revision  #: the newest intact revision, or ABSENT


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """`objects`: the newest intact revision of each object; of `damaged` objects it is not the newest one, or absent.
    `history`: number of damaged revisions that were replaced or deleted later; `unnamed`: damaged revisions of unknown
    objects."""

    objects: Mapping[str, Revision]
    damaged: tuple[DamagedObject, ...]
    history: int
    unnamed: tuple[Revision, ...]

    @property
    def lost(self) -> set[str]:
        """Objects without an intact revision."""
        return {one.key for one in self.damaged if one.intact == ABSENT}


def plan_repair(revisions: Iterable[StoredRevision]) -> RepairPlan:
    """`revisions`: in any order.  A damaged deletion counts: its object was deleted."""
    newest: dict[str, StoredRevision] = {}
    intact: dict[str, StoredRevision] = {}
    damaged: Counter[str] = Counter()
    unnamed: list[Revision] = []
    for one in sorted(revisions, key=lambda one: one.revision):
        if not one.key:
            unnamed.append(one.revision)
            continue
        newest[one.key] = one
        if one.is_intact:
            intact[one.key] = one
        else:
            damaged[one.key] += 1
    objects: dict[str, Revision] = {}
    found: list[DamagedObject] = []
    for key, last in newest.items():
        if last.operation == DELETE:
            continue
        usable = intact.get(key)
        if usable is not None and usable.operation == PUT:
            objects[key] = usable.revision
        if not last.is_intact:
            damaged[key] -= 1
            found.append(DamagedObject(key, last.revision, objects.get(key, ABSENT)))
    found.sort(key=lambda one: one.key)
    return RepairPlan(objects, tuple(found), damaged.total(), tuple(unnamed))


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Inspection:
    """`findings`: of SQLite; `reached`: the newest revision of which the file has any trace."""

    findings: list[str]
    plan: RepairPlan
    reached: Revision

    @property
    def is_intact(self) -> bool:
        return not (self.findings or self.plan.damaged or self.plan.history or self.plan.unnamed)


def inspect(path: Path, encryption: Encryption) -> Inspection:
    """Read the whole file, also of format 1, and change nothing.  Values whose key is missing count as damaged.
    Blocks.  The caller holds the lock.  Raises Unusable if nothing can be read."""
    with unrepairable(path):
        version = format_of(path, read_header(path))
        with closing(connect_to_inspect(path)) as connection:
            fetch(connection, "select count(*) from sqlite_schema")  # without it nothing can be read
            findings = structural_damage(connection, MAX_FINDINGS)
            if missing := noted_keys(connection) - encryption.key_ids:
                findings.append(f"it {missing_keys(missing)}")
            revisions = list(stored_revisions(connection, version, encryption))
            reached = max([FIRST, *(one.revision for one in revisions), *recorded_revisions(connection)])
    return Inspection(findings, plan_repair(revisions), reached)


def stored_revisions(connection: apsw.Connection, version: int, encryption: Encryption) -> Iterator[StoredRevision]:
    entries = readable_entries(connection, ENTRIES)
    rows = readable_entries(connection, ROWS)
    for revision in entries.keys() | rows.keys():
        row = read_row(connection, revision, version, encryption)
        if row is not None:
            yield StoredRevision(revision, row[1], row[2], is_intact=True)
            continue
        # a damaged row alone does not prove that its object was deleted
        key, operation = entries[revision] if revision in entries else (rows[revision][0], PUT)
        yield StoredRevision(revision, key if is_key(key) else "", operation, is_intact=False)


def readable_entries(connection: apsw.Connection, queries: Iterable[str]) -> dict[Revision, tuple[Any, Any]]:
    """Key and operation by revision."""
    found: dict[Revision, tuple[Any, Any]] = {}
    for query in queries:
        try:
            for revision, key, operation in connection.execute(query):
                found[revision] = (key, operation)
        except (apsw.Error, ValueError):  # a damaged page, a missing index, or a text that is not UTF-8
            continue
        break
    return found


def read_row(connection: apsw.Connection, revision: Revision, version: int, encryption: Encryption) -> Row | None:
    """None unless it is intact.  Rows of format 1 have no checksum and get one."""
    columns = "rv, key, op, prev, val" + (", sum" if version == FORMAT else "")
    try:
        [found] = fetch(connection, f"select {columns} from kv not indexed where rv = ?", (revision,))  # noqa: S608
        row: Row = found if version == FORMAT else format_1_row(encryption, *found)
        value_in(row, encryption)
        check_key(row[1])
    except (apsw.Error, DamagedRowError, ValueError, TypeError, AttributeError):
        return None
    return row


def is_key(key: Any) -> bool:
    try:
        check_key(key)
    except (ValueError, AttributeError):
        return False
    return True


def noted_keys(connection: apsw.Connection) -> Set[str]:
    try:
        return read_state(connection).keys
    except apsw.Error:  # of format 1, or damaged
        return set()


def recorded_revisions(connection: apsw.Connection) -> Iterator[Revision]:
    for query in REACHED:
        with suppress(apsw.Error, ValueError):
            yield from (int(found) for (found,) in connection.execute(query) if isinstance(found, int))


# --- writing --------------------------------------------------------------------------------------


def repair(path: Path, inspection: Inspection, dropped: Set[str], encryption: Encryption) -> tuple[Path, Revision]:
    """Replace the file by a repaired one, which was opened as a test.  Returns the copy of the damaged one, and the
    revision of the new one.  `dropped`: damaged objects that are not restored, with all lost ones.  Blocks.  The caller
    holds the lock.  Raises Unusable, and then the content of the file is unchanged."""
    objects = {key: revision for key, revision in inspection.plan.objects.items() if key not in dropped}
    assert dropped >= inspection.plan.lost
    repaired = beside(path, ".repaired")
    with unrepairable(path):
        version = format_of(path, read_header(path))
        copy = keep_copy(path)
        if file_size(beside(path, "-wal")):
            empty_log(path)
        try:
            with closing(connect_to_inspect(path)) as damaged:
                rows = (read_row(damaged, revision, version, encryption) for revision in sorted(objects.values()))
                create_database(repaired, TABLES, partial(write_repaired, rows, inspection.reached))
            state = load(repaired, encryption, lines=0, now=0.0).state
            if {key: entry.revision for key in objects if (entry := state.get(key))} != objects:
                raise ValueError("the repaired file lacks objects")
        except BaseException:
            repaired.unlink(missing_ok=True)
            raise
        repaired.replace(path)
        sync_directory(path.parent)
    return copy, state.revision


def write_repaired(rows: Iterable[Row | None], reached: Revision, new: apsw.Connection) -> None:
    """The history begins after every revision that a client can have seen.  The keys that values need are noted."""
    keys: set[str] = set()
    fill(new, noting_keys(keys, (row for row in rows if row is not None)))
    new.executemany("insert into encryption values (?, '', 0)", [(key,) for key in keys])
    note_compacted(new, reached + 1)
    new.execute("update meta set value = ? where name = 'swept'", (reached + 1,))


def noting_keys(keys: set[str], rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        if (stored := row[4]) is not None and (key := key_of(stored)):
            keys.add(key)
        yield row


def keep_copy(path: Path) -> Path:
    """Copy the file, and its write-ahead log, to the first free name."""
    copy = next(name for number in count(1) if not (name := beside(path, f".damaged-{number}")).exists())
    for ending in ("-wal", ""):
        if file_size(beside(path, ending)):
            copy_private(beside(path, ending), beside(copy, ending))
    return copy


@contextmanager
def unrepairable(path: Path) -> Iterator[None]:
    """Turn errors into Unusable with a message for users."""
    try:
        yield
    except OSError as error:
        raise Unusable(f"cannot use {path}: {error.strerror}") from error
    except OUTSIDE as error:
        raise Unusable(f"{path} {sqlite_problem(path, error)}") from error
    except (apsw.Error, ValueError) as error:
        raise Unusable(f"{path} cannot be repaired ({error}): restore a backup") from error
