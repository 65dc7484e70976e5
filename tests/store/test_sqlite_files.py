"""Opening, refusing and reopening: what stays on the disk, and what is said about it."""

from __future__ import annotations

import asyncio
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from damaged_files import flip_bit, overwrite_page, without_index

from farflung.store.base import ABSENT, FIRST, Compacted, Unusable
from farflung.store.sqlite.store import SqliteStore

MAPS = "/core/configmaps/"


def key(name: str) -> str:
    return f"/core/configmaps/root/default/{name}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def filled(path: Path, count: int = 200) -> None:
    store = await SqliteStore.open(path)
    await asyncio.gather(
        *(store.put(key(f"{number:04}"), b"%d" % number * 100, expect=ABSENT) for number in range(count))
    )
    await store.close()


def files_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith(".lock")}


async def refusal(path: Path) -> str:
    """The sentence that says why; nothing on the disk may have changed."""
    before = files_of(path)
    with pytest.raises(Unusable) as refused:
        await SqliteStore.open(path)
    assert files_of(path) == before
    return str(refused.value)


async def test_a_reopened_store_is_where_it_was(path: Path) -> None:
    store = await SqliteStore.open(path)
    a = await store.put(key("a"), b"1", expect=ABSENT)
    await store.put(key("a"), b"2", expect=a.revision)
    b = await store.put(key("b"), b"3", expect=ABSENT)
    await store.delete(key("b"), expect=b.revision)
    await store.close()

    store = await SqliteStore.open(path, clock=lambda: 0.0)
    assert [(entry.key, entry.value, entry.revision) for entry in store.list(MAPS).entries] == [(key("a"), b"2", 3)]
    assert store.revision == 5
    assert [change.revision for change in await store.changes(MAPS, since=FIRST, until=5)] == [2, 3, 4, 5]
    assert (await store.put(key("c"), b"4", expect=ABSENT)).revision == 6
    await store.close()


async def test_a_closed_store_is_one_file_and_its_lock(path: Path) -> None:
    await filled(path)
    assert sorted(file.name for file in path.parent.iterdir()) == ["store.db", "store.db.lock"]


async def test_only_the_owner_may_read_the_files(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.put(key("secret"), b"1", expect=ABSENT)
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    await store.close()


async def test_revisions_are_not_reused_when_the_newest_were_compacted_away(path: Path) -> None:
    store = await SqliteStore.open(path)
    entry = await store.put(key("a"), b"1", expect=ABSENT)
    deleted = await store.delete(key("a"), expect=entry.revision)
    await store.compact(deleted)
    await store.close()

    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("select count(*) from kv").fetchone() == (0,)
    store = await SqliteStore.open(path, clock=lambda: 0.0)
    assert (store.revision, store.oldest) == (deleted, deleted)
    assert (await store.put(key("a"), b"2", expect=ABSENT)).revision == deleted + 1
    await store.close()


async def test_a_store_that_is_opened_again_resumes_where_clients_were(path: Path) -> None:
    store = await SqliteStore.open(path)
    a = await store.put(key("a"), b"1", expect=ABSENT)
    b = await store.put(key("b"), b"1", expect=ABSENT)
    await store.close()
    for _ in range(2):
        store = await SqliteStore.open(path)
        assert [change.key for change in await store.changes(MAPS, since=a.revision, until=store.revision)] == [b.key]
        assert await store.changes(MAPS, since=b.revision, until=store.revision) == []
        await store.close()


async def test_a_revision_from_after_a_backup_is_compacted_once_the_backup_is_restored(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.put(key("a"), b"1", expect=ABSENT)
    await store.close()
    backup = path.read_bytes()
    store = await SqliteStore.open(path)
    remembered = [store.revision, *[(await store.put(key(name), b"1", expect=ABSENT)).revision for name in "bcd"]]
    await store.close()

    path.write_bytes(backup)
    for _ in range(2):
        store = await SqliteStore.open(path)
        await store.put(key(str(store.revision)), b"1", expect=ABSENT)
        for revision in remembered:
            with pytest.raises(Compacted):
                await store.changes(MAPS, since=revision, until=store.revision)
        await store.close()


async def test_a_second_store_on_the_same_files_is_refused(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.put(key("a"), b"1", expect=ABSENT)
    with pytest.raises(Unusable, match=f"{path} is in use by another process"):
        await SqliteStore.open(path)
    await store.put(key("b"), b"1", expect=ABSENT)
    await store.close()


async def test_a_second_process_on_the_same_files_is_refused_until_the_first_has_closed(path: Path) -> None:
    script = """
import asyncio, sys, pathlib
from farflung.store.base import Unusable
from farflung.store.sqlite.store import SqliteStore
async def main():
    try:
        store = await SqliteStore.open(pathlib.Path(sys.argv[1]))
    except Unusable as error:
        sys.exit(str(error))
    await store.close()
asyncio.run(main())
"""
    command = [sys.executable, "-c", script, str(path)]
    store = await SqliteStore.open(path)
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"{path} is in use by another process (pid ")
    await store.close()
    assert subprocess.run(command).returncode == 0


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"apiVersion: v1\nkind: Config\n" * 1000)
    assert await refusal(path) == f"{path} is not a Farflung store: move it away, or use another directory"


async def test_a_short_file_is_refused(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0")
    assert "is not a Farflung store" in await refusal(path)


async def test_a_database_of_another_application_is_refused(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("create table kv (rv integer primary key)")
    assert "is not a Farflung store" in await refusal(path)


async def test_a_newer_format_is_refused(path: Path) -> None:
    await filled(path)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("pragma user_version = 3")
    assert await refusal(path) == (
        f"{path} has format 3, and this version of Farflung knows formats up to 2: a newer version wrote it; use that "
        "version, or restore a backup from before the upgrade"
    )


async def test_a_sqlite_that_can_lose_commits_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(path)
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    assert await refusal(path) == (
        "SQLite 3.51.2 can lose data: install the package apsw with SQLite 3.51.3 or later, as requirements.lock does"
    )
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.3")
    await (await SqliteStore.open(path)).close()


async def test_an_empty_file_is_a_new_store(path: Path) -> None:
    path.touch()
    store = await SqliteStore.open(path)
    assert store.revision == FIRST
    await store.close()


async def test_what_an_interrupted_first_start_left_is_no_obstacle(path: Path) -> None:
    path.with_name("store.db.new").write_bytes(b"half")
    path.with_name("store.db.new-journal").write_bytes(b"half")
    store = await SqliteStore.open(path)
    await store.close()
    assert not path.with_name("store.db.new").exists()


async def test_a_log_without_its_database_is_refused(path: Path) -> None:
    path.with_name("store.db-wal").write_bytes(b"acknowledged writes")
    assert "store.db-wal" in await refusal(path)


def advice(path: Path) -> str:
    command = f"`farflung repair --root-directory {path.parent}`"
    return f"{command} shows what is lost and can repair it; or restore a backup"


async def test_a_flipped_bit_in_a_value_is_refused_with_the_name_of_its_object(path: Path) -> None:
    await filled(path)
    flip_bit(path, b"137" * 100)
    assert await refusal(path) == (
        f"{path} is damaged (revision 139 of {key('0137')} does not match its checksum): {advice(path)}"
    )


@pytest.mark.parametrize("statement", ["val = 'text'", "val = null", "prev = 7", "key = key || 'x'"])
async def test_a_row_with_another_column_is_refused(path: Path, statement: str) -> None:
    await filled(path)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(f"update kv set {statement} where rv = 139 or key = 'none'")
    assert "revision 139 of" in await refusal(path)


@pytest.mark.parametrize("page", range(1, 12, 2))
async def test_a_damaged_database_is_refused(path: Path, page: int) -> None:
    await filled(path)
    overwrite_page(path, page)
    sentence = await refusal(path)
    assert sentence.startswith(f"{path} is damaged (")
    assert sentence.endswith(f"): {advice(path)}")


async def test_an_index_that_lacks_a_row_is_refused(path: Path) -> None:
    """Its object would be missing without notice."""
    await filled(path)
    with without_index(path) as connection:
        connection.execute("insert into kv select rv + 1000, key, op, rv, val, sum from kv where rv = 139")
    findings = "wrong # of entries in index kv_by_key; row 201 missing from index kv_by_key"
    assert await refusal(path) == f"{path} is damaged ({findings}): {advice(path)}"


async def test_an_index_with_a_row_that_the_table_lacks_is_refused(path: Path) -> None:
    await filled(path)
    with without_index(path) as connection:
        connection.execute("delete from kv where rv = 139")
    assert "is damaged (wrong # of entries in index kv_by_key)" in await refusal(path)


async def test_a_truncated_database_is_refused(path: Path) -> None:
    await filled(path)
    path.write_bytes(path.read_bytes()[: 5 * 4096])
    assert "is damaged" in await refusal(path)


async def test_a_database_with_rows_that_are_no_entries_is_refused(path: Path) -> None:
    await filled(path)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("update kv set key = 'nonsense' where rv = 5")
    assert "is damaged" in await refusal(path)


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=f"cannot write to the directory {tmp_path}/none: No such file or directory"):
        await SqliteStore.open(tmp_path / "none" / "store.db")


async def test_a_directory_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unusable, match=r"cannot write to the directory .*: Not a directory"):
        await SqliteStore.open(tmp_path / "file" / "store.db")


async def test_a_directory_in_place_of_the_file_is_named(path: Path) -> None:
    path.mkdir()
    with pytest.raises(Unusable, match=f"cannot use {path}: Is a directory"):
        await SqliteStore.open(path)


async def test_a_refused_store_can_be_opened_once_it_is_mended(path: Path) -> None:
    await filled(path, 20)
    content = path.read_bytes()
    path.write_bytes(b"x" * 10_000)
    await refusal(path)
    path.write_bytes(content)
    store = await SqliteStore.open(path)
    assert len(store.list(MAPS).entries) == 20
    await store.close()
