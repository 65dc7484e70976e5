"""New SQLite files that are complete or absent after a crash."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from farflung.lib.files import sync_directory


def beside(path: Path, ending: str) -> Path:
    """The file with this ending after the name, as SQLite names those that belong to a database."""
    return path.with_name(path.name + ending)


def create_database(path: Path, schema: Iterable[str]) -> None:
    """Readable by the owner alone.  It is written under another name first, and is on disk when this returns."""
    unfinished = beside(path, ".new")
    for leftover in (unfinished, beside(unfinished, "-journal")):
        leftover.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
            connection.execute("pragma synchronous = off")  # synced once, below
            for statement in schema:
                connection.execute(statement)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    unfinished.replace(path)
    sync_directory(path.parent)
