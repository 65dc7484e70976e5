"""`farflung rekey`: a new encryption key for the store of a hub.

The key file and the store have the whole state: a key file with several keys is a rekeying that is not finished.  The
former keys are removed only when the store notes that no value needs them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import apsw
import click

from farflung.cli.repair import find_store
from farflung.cli.settings import KEY_FILE, KeyOptions
from farflung.lib.envelopes import KeyRing
from farflung.lib.errors import UserError
from farflung.lib.files import locked
from farflung.lib.key_file import EncryptionKey, KeyFile
from farflung.store.base import InUse, Unusable
from farflung.store.encryption import Encryption, ResourcePatterns
from farflung.store.sqlite import rekeying
from farflung.store.sqlite.files import (
    FileLock,
    connect_to_read,
    connect_to_write,
    missing_keys,
    prepare,
    unusable_files,
)
from farflung.store.sqlite.migration import connect_to_inspect
from farflung.store.sqlite.rekeying import EncryptionState

POLL: Final = 0.2  #: seconds
STORE_SECONDS: Final = 30.0  #: seconds without an answer of the store, or without a hub that uses the new key


def run(directory: Path, options: KeyOptions) -> str:
    """Returns what to print.  Raises UserError."""
    path = find_store(directory)
    keys = options.file(directory / KEY_FILE)
    try:
        try:
            lock = FileLock(path)
        except InUse:
            return with_hub(path, keys)
        try:
            return without_hub(path, keys)
        finally:
            lock.release()
    except Unusable as error:
        raise UserError(str(error)) from None


def without_hub(path: Path, keys: KeyFile) -> str:
    """The caller holds the lock of the store."""
    with unusable_files(path):
        with closing(connect_to_inspect(path)) as connection:
            state = rekeying.read_state(connection)
        found = add_key(path, keys, state)
        resources = state.resources.split(",") if state.resources else ()
        encryption = Encryption(KeyRing([one.key for one in found]), ResourcePatterns(resources))
        prepare(path, encryption)
    with unusable_files(path), closing(connect_to_write(path)) as connection:
        rekeying.begin(connection, encryption)
        finished = False
        with progress() as report:
            while not finished:
                with connection:
                    finished = rekeying.rewrite(connection, encryption)
                report(*rekeying.remaining_rows(connection))
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        with connection:
            rekeying.finish(connection, encryption)
    return remove_former_keys(keys, encryption.first_id)


def with_hub(path: Path, keys: KeyFile) -> str:
    """The hub notices the changed key file, and does the work."""
    new = add_key(path, keys, observe(path)[0])[0].id
    deadline = time.monotonic() + STORE_SECONDS
    with progress() as report:
        while True:
            state, remaining, total = observe(path)
            if state.key == new and state.is_complete:
                break
            if state.key == new:
                report(remaining, total)
            elif time.monotonic() > deadline:
                raise UserError(
                    f"the hub does not use the new key of {keys.path}: its log has the reason; the former keys are "
                    "still there, and the next `farflung rekey` continues"
                )
            time.sleep(POLL)
    return remove_former_keys(keys, new)


def add_key(path: Path, keys: KeyFile, state: EncryptionState) -> list[EncryptionKey]:
    """All keys, the new one first.  With several keys in the file, an earlier command was interrupted."""
    with locked(keys.path.parent):
        found = keys.read()
        if missing := state.keys - {one.id for one in found}:
            raise UserError(f"{path} {missing_keys(missing)}")
        if len(found) == 1:
            found = [keys.new_key(), *found]
            keys.write(found)
    return found


def remove_former_keys(keys: KeyFile, new: str) -> str:
    """After no value needs them any more."""
    with locked(keys.path.parent):
        found = keys.read()
        if found[0].id == new:
            keys.write(found[:1])
    former = ", ".join(one.id for one in found if one.id != new)
    return f"every value is encrypted with the key {new}\nremoved from {keys.path}: {former}, which older backups need"


def observe(path: Path) -> tuple[EncryptionState, int, int]:
    """What a running hub has noted, and how many rows it has to look at, of how many.  Waits while the hub restarts."""
    deadline = time.monotonic() + STORE_SECONDS
    while True:
        try:
            with closing(connect_to_read(path)) as connection:
                return rekeying.read_state(connection), *rekeying.remaining_rows(connection)
        except apsw.Error as error:
            if time.monotonic() > deadline:
                raise UserError(f"the hub stopped ({error}): `farflung rekey` continues when it is run again") from None
            time.sleep(POLL)


@contextmanager
def progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal.  Called with the remaining and all rows."""
    with click.progressbar(length=100, label="encrypting with a new key", file=sys.stderr) as bar:

        def report(remaining: int, total: int) -> None:
            bar.update(max(0, 100 - remaining * 100 // max(total, 1) - bar.pos))

        yield report
