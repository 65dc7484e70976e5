"""Damage to the file of a store, as disks, crashes and defects of SQLite cause it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw

PAGE = 4096


@contextmanager
def without_index(path: Path) -> Iterator[apsw.Connection]:
    """A connection whose writes do not reach the index."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("writable_schema", 1)
        [entry] = connection.execute("select * from sqlite_schema where name = 'kv_by_key'").fetchall()
        connection.execute("delete from sqlite_schema where name = 'kv_by_key'")
    with closing(apsw.Connection(str(path))) as connection:
        yield connection
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("writable_schema", 1)
        connection.execute("insert into sqlite_schema values (?, ?, ?, ?, ?)", entry)


def flip_bit(path: Path, value: bytes) -> None:
    """In a stored value, which must be in the file once."""
    content = bytearray(path.read_bytes())
    assert content.count(value) == 1
    content[content.index(value) + 3] ^= 4
    path.write_bytes(content)


def overwrite_page(path: Path, page: int) -> None:
    content = bytearray(path.read_bytes())
    content[page * PAGE : (page + 1) * PAGE] = b"\xa5" * PAGE
    path.write_bytes(content)
