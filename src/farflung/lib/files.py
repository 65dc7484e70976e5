"""Crash-safe files and SQLite files, and locked directories."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path


def write_private(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Readable by the owner alone from the first byte on, and either all there or not at all.  Without `durable`, a
    power failure may leave it empty: for files that are recreated if damaged."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    unfinished.replace(path)
    if durable:
        sync_directory(path.parent)


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
