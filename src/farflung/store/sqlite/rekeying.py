"""The keys that the values of a file need, and the rewriting of values with a new key.

The table `encryption` has a row for each key with which values may be encrypted.  The row of the current key names the
encrypted resources, and the position up to which all rows are stored so.  A key is noted before it encrypts the first
value, and its row is deleted when no value needs it any more.  So a process may end at any moment, and the next one
continues.

Rewriting changes no revision, and notifies no subscriber: the values are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from dataclasses import dataclass
from typing import Final

import apsw

from farflung.store.base import Revision
from farflung.store.encryption import HEAD_BYTES, Encryption
from farflung.store.sqlite.rows import COLUMNS, DamagedRowError, fetch, stored_again

EVERY_ROW: Final = (1 << 63) - 1  #: the position when all rows, also later ones, are stored as noted
STEP: Final = 256  #: rows per transaction …
STEP_BYTES: Final = 1 << 20  #: … or fewer, if rewritten values are large

NEXT: Final = "select rv, key, substr(val, 1, ?), length(val) from kv where rv > ? order by rv limit ?"
REMAINING: Final = "select count(*), total(rv > ?) from kv indexed by kv_by_key"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EncryptionState:
    keys: Set[str]  #: ids of all keys that values may need
    key: str  #: the id of the current one; empty if nothing is encrypted
    resources: str  #: encrypted ones
    position: Revision  #: up to which rows are stored so

    @property
    def is_complete(self) -> bool:
        return self.position == EVERY_ROW

    def fits(self, encryption: Encryption) -> bool:
        return (self.key, self.resources) == (encryption.first_id, encryption.resources)


def read_state(connection: apsw.Connection) -> EncryptionState:
    found = fetch(connection, "select key, resources, position from encryption")
    current = [row for row in found if row[1]]
    return EncryptionState({row[0] for row in found}, *(current[0] if current else ("", "", EVERY_ROW)))


def remaining_rows(connection: apsw.Connection) -> tuple[int, int]:
    """The number of rows to look at, and of all rows."""
    [(total, remaining)] = fetch(connection, REMAINING, (read_state(connection).position,))
    return int(remaining), total


def begin(connection: apsw.Connection, encryption: Encryption) -> None:
    """Note an encryption before its first use."""
    if encryption.first_id and not read_state(connection).fits(encryption):
        _note(connection, encryption, position=0)


def note_complete(connection: apsw.Connection, encryption: Encryption) -> None:
    """Note that all rows are stored so."""
    if encryption.first_id:
        _note(connection, encryption, position=EVERY_ROW)
        connection.execute("delete from encryption where key != ?", (encryption.first_id,))


def finish(connection: apsw.Connection, encryption: Encryption) -> None:
    """After `rewrite` found no more rows, unless the encryption was changed again."""
    if read_state(connection).fits(encryption):
        note_complete(connection, encryption)


def _note(connection: apsw.Connection, encryption: Encryption, position: Revision) -> None:
    with connection:
        connection.execute("update encryption set resources = ''")
        values = (encryption.first_id, encryption.resources, position)
        connection.execute("insert or replace into encryption values (?, ?, ?)", values)


def rewrite(connection: apsw.Connection, encryption: Encryption) -> bool:
    """Rewrite the next rows.  Returns whether none is left; then `finish` may be called."""
    state = read_state(connection)
    if state.is_complete or not state.fits(encryption):
        return True
    connection.pragma("secure_delete", "on")  # replaced values are overwritten in the file
    size, position = 0, state.position
    for revision, key, head, length in fetch(connection, NEXT, (HEAD_BYTES, state.position, STEP)):
        if size > STEP_BYTES:
            break
        if isinstance(head, bytes) and not encryption.is_current(key, head):
            _rewrite_row(connection, encryption, revision)
            size += length
        position = revision
    connection.execute("update encryption set position = ? where key = ?", (position, encryption.first_id))
    connection.pragma("secure_delete", "off")
    return bool(position == state.position)


def _rewrite_row(connection: apsw.Connection, encryption: Encryption, revision: Revision) -> None:
    [row] = fetch(connection, f"select {COLUMNS} from kv where rv = ?", (revision,))  # noqa: S608
    try:
        *_, stored, checksum = stored_again(row, encryption)
    except DamagedRowError as damage:
        log.error("%s, and is left as it is", damage)
        return
    connection.execute("update kv set val = ?, sum = ? where rv = ?", (stored, checksum, revision))
