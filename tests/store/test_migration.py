"""Files of format 1 become files of the current format, whatever interrupts that."""

from __future__ import annotations

import base64
import logging
import shutil
import tarfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest
from full_disk import full_disk
from killed_calls import killed_at
from written_directory import SECRET

from farflung.lib.envelopes import KeyRing
from farflung.store.base import ABSENT, Change, Unusable
from farflung.store.encryption import Encryption, ResourcePatterns
from farflung.store.sqlite import migration
from farflung.store.sqlite.files import prepare
from farflung.store.sqlite.rows import FORMAT, value_in
from farflung.store.sqlite.store import SqliteStore

MAPS = "/core/configmaps/"
PLAIN = Encryption()
ENCRYPTION = Encryption(KeyRing([bytes(32)]), ResourcePatterns(["configmaps"]))
UPGRADE = Path(__file__).parent.parent / "upgrade"
PROCEDURES = ("migration.py", "lib/files.py")


def key(name: object) -> str:
    return f"/core/configmaps/root/default/{name}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def write_history(path: Path) -> None:
    """Creations, updates, deletions and a compaction."""
    store = await SqliteStore.open(path)
    entries = [await store.put(key(number), b"%d" % number * 50, expect=ABSENT) for number in range(6)]
    await store.mark(17.5)
    await store.compact(entries[2].revision)
    entry = await store.put(key(0), b"", expect=entries[0].revision)
    await store.put(key(0), b"\0enc\xff", expect=entry.revision)
    await store.delete(key(1), expect=entries[1].revision)
    await store.close()


def make_format_1(path: Path, *, with_gaps: bool = True) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("alter table kv drop column sum")
        connection.execute("update kv set val = substr(val, 3) where substr(val, 1, 2) = x'0000'")
        connection.execute("drop table encryption")
        if not with_gaps:
            connection.execute("drop table gap")
        connection.pragma("user_version", 1)


def leave_in_log(path: Path) -> None:
    """As a killed process leaves it: the newest revision is in the write-ahead log alone."""
    aside = path.with_name("aside")
    aside.mkdir()
    connection = apsw.Connection(str(path))
    connection.wal_autocheckpoint(0)
    connection.execute(
        "insert into kv (rv, key, op, prev, val) select max(rv) + 1, ?, 0, 0, ? from kv", (key("z"), b"z")
    )
    for ending in ("", "-wal"):
        shutil.copy(path.with_name(path.name + ending), aside)
    connection.close()
    for file in aside.iterdir():
        file.replace(path.with_name(file.name))
    aside.rmdir()


def content(path: Path, encryption: Encryption = PLAIN) -> dict[str, list[Any]]:
    """The tables, with values as they were written."""
    version = format_of(path)
    with closing(apsw.Connection(str(path))) as connection:
        rows = connection.execute("select rv, key, op, prev, val" + (", sum" if version > 1 else "") + " from kv")
        found = {
            table: connection.execute(f"select * from {table}").fetchall()
            for table in ("meta", "mark", "gap")
            if connection.table_exists(None, table)
        }
        found["kv"] = [(*row[:4], value_in(row, encryption) if version > 1 else row[4]) for row in rows]
    return found


def format_of(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[60:64], "big")


def facts(changes: list[Change]) -> list[tuple[object, ...]]:
    return [
        (
            change.revision,
            change.key,
            change.entry.value if change.entry else None,
            (change.previous.revision, change.previous.value) if change.previous else None,
        )
        for change in changes
    ]


@pytest.mark.parametrize("with_gaps", [True, False])
async def test_a_file_of_format_1_keeps_its_objects_and_their_history(path: Path, with_gaps: bool) -> None:
    await write_history(path)
    store = await SqliteStore.open(path, clock=lambda: 0.0)
    oldest, newest = store.oldest, store.revision
    entries = [(entry.key, entry.value, entry.revision) for entry in store.list(MAPS).entries]
    changes = facts([*await store.changes(MAPS, since=oldest, until=newest)])
    await store.close()
    before = content(path)
    make_format_1(path, with_gaps=with_gaps)

    store = await SqliteStore.open(path, clock=lambda: 0.0, lines=0)
    assert [(entry.key, entry.value, entry.revision) for entry in store.list(MAPS).entries] == entries
    assert (store.oldest, store.revision) == (oldest, newest)
    assert facts([*await store.changes(MAPS, since=oldest, until=newest)]) == changes
    await store.put(key("later"), b"1", expect=ABSENT)
    await store.close()
    assert format_of(path) == FORMAT
    after = content(path)
    assert after["kv"][:-1] == before["kv"]
    assert after["meta"] == before["meta"]
    assert (7, 17.5) in after["mark"]


async def test_writes_in_the_log_of_a_killed_process_are_converted_too(path: Path) -> None:
    await write_history(path)
    make_format_1(path)
    leave_in_log(path)
    store = await SqliteStore.open(path, clock=lambda: 0.0)
    entry = store.get(key("z"))
    assert entry is not None and entry.value == b"z"
    await store.close()


def unpack(directory: Path) -> Path:
    """The store that an earlier version wrote."""
    with tarfile.open(UPGRADE / "format-1.tar.xz") as archive:
        archive.extract("workspaces.sqlite", directory, filter="data")
    return (directory / "workspaces.sqlite").rename(directory / "store.db")


def test_what_the_format_1_of_an_earlier_version_had_is_converted_row_by_row(path: Path) -> None:
    unpack(path.parent)
    password = base64.b64encode(SECRET.encode())
    before = content(path)
    assert len(before["kv"]) > 300
    assert password in path.read_bytes()
    prepare(path, ENCRYPTION)
    assert content(path, ENCRYPTION) == before | {"gap": []}
    assert format_of(path) == FORMAT
    assert password not in path.read_bytes()


async def write_format_1(directory: Path) -> Path:
    path = directory / "store.db"
    await write_history(path)
    make_format_1(path)
    leave_in_log(path)
    return path


@pytest.mark.parametrize(
    ("origin", "step"),
    [
        ("written", 11),
        ("unpacked", 211),
        pytest.param("written", 1, marks=pytest.mark.long),
        pytest.param("unpacked", 17, marks=pytest.mark.long),
    ],
)
async def test_a_conversion_that_is_killed_at_any_call_is_repeated_by_the_next_start(
    tmp_path: Path, origin: str, step: int
) -> None:
    original = tmp_path / "original"
    original.mkdir()
    path = unpack(original) if origin == "unpacked" else await write_format_1(original)
    before = content(shutil.copytree(original, tmp_path / "read") / path.name)
    seen: set[int] = set()
    call = 1 - step
    alive = True
    while alive:
        call += step
        directory = shutil.copytree(original, tmp_path / str(call))
        path = directory / path.name
        alive = killed_at(call, partial(prepare, path, ENCRYPTION), PROCEDURES)
        seen.add(format_of(path))
        prepare(path, ENCRYPTION)
        assert {file.name for file in directory.iterdir()} <= {"store.db", "store.db.lock"}
        assert content(path, ENCRYPTION) == {"gap": []} | before
        shutil.rmtree(directory)
    assert call > 50
    assert seen == {1, FORMAT}


async def test_a_conversion_that_fills_the_disk_changes_nothing_and_succeeds_later(path: Path) -> None:
    await write_history(path)
    make_format_1(path)
    before = path.read_bytes()
    with full_disk(), pytest.raises(Unusable, match="check that its directory is writable and its disk has room"):
        await SqliteStore.open(path)
    assert path.read_bytes() == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["store.db", "store.db.lock"]
    await (await SqliteStore.open(path)).close()
    assert format_of(path) == FORMAT


async def test_a_damaged_file_of_format_1_is_refused_and_not_converted(path: Path) -> None:
    store = await SqliteStore.open(path)
    for number in range(100):
        await store.put(key(number), b"x" * 500, expect=ABSENT)
    await store.close()
    make_format_1(path)
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("writable_schema", 1)
        connection.execute("delete from sqlite_schema where name = 'kv_by_key'")
        connection.pragma("writable_schema", 0)
    before = path.read_bytes()
    with pytest.raises(Unusable, match="is damaged"):
        await SqliteStore.open(path)
    assert path.read_bytes() == before


async def test_a_long_conversion_logs_its_progress(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_history(path)
    make_format_1(path)
    monkeypatch.setattr(migration, "PROGRESS", 0.0)
    with caplog.at_level(logging.INFO):
        await (await SqliteStore.open(path)).close()
    assert f"{path} is converted: 4 of 9 revisions, 44 %" in caplog.messages
