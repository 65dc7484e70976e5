"""A damaged file is repaired from what is intact, and nothing is lost without a name."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest
from damaged_files import flip_bit, overwrite_page, without_index
from examples import examples
from full_disk import full_disk
from hypothesis import given, settings
from hypothesis import strategies as st
from killed_calls import killed_at

from farflung.lib.envelopes import KeyRing, new_key
from farflung.store.base import ABSENT, Compacted, Unusable
from farflung.store.encryption import Encryption
from farflung.store.sqlite.files import prepare
from farflung.store.sqlite.repair import DamagedObject, Inspection, inspect, repair
from farflung.store.sqlite.store import SqliteStore

MAPS = "/core/configmaps/"
PLAIN = Encryption()
ENCRYPTED = Encryption(KeyRing([bytes(32)]))


def key(name: object) -> str:
    return f"/core/configmaps/root/default/{name}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def write(path: Path, *writes: tuple[str, bytes | None]) -> list[int]:
    """Put values, or delete a key with None.  Returns the revisions."""
    store = await SqliteStore.open(path, clock=lambda: 0.0)
    revisions = []
    for name, value in writes:
        entry = store.get(key(name))
        expect = entry.revision if entry else ABSENT
        if value is None:
            revisions.append(await store.delete(key(name), expect=expect))
        else:
            revisions.append((await store.put(key(name), value, expect=expect)).revision)
    await store.close()
    return revisions


async def values(path: Path) -> dict[str, bytes]:
    store = await SqliteStore.open(path)
    found = {entry.key.rpartition("/")[2]: entry.value for entry in store.list(MAPS).entries}
    await store.close()
    return found


def repaired(path: Path, *dropped: str) -> Inspection:
    """Inspect and repair, and prove that nothing is left to repair."""
    inspection = inspect(path, PLAIN)
    repair(path, inspection, set(dropped), PLAIN)
    assert inspect(path, PLAIN).is_intact
    return inspection


async def test_an_intact_file_needs_no_repair(path: Path) -> None:
    await write(path, ("a", b"1"), ("a", b"2"), ("b", b"1"), ("b", None))
    before = path.read_bytes()
    inspection = inspect(path, PLAIN)
    assert inspection.is_intact
    assert inspection.plan.objects == {key("a"): 3}
    assert path.read_bytes() == before


async def test_a_damaged_value_is_restored_from_its_history(path: Path) -> None:
    await write(path, ("a", b"first value"), ("a", b"second value"), ("a", b"third value"), ("b", b"other"))
    flip_bit(path, b"third value")
    inspection = repaired(path)
    assert inspection.plan.damaged == (DamagedObject(key("a"), damaged=4, intact=3),)
    assert await values(path) == {"a": b"second value", "b": b"other"}


async def test_a_copy_of_the_damaged_file_is_kept(path: Path) -> None:
    await write(path, ("a", b"first value"), ("a", b"second value"))
    flip_bit(path, b"second value")
    damaged = path.read_bytes()
    for number in (1, 2):
        path.write_bytes(damaged)
        copy, _ = repair(path, inspect(path, PLAIN), set(), PLAIN)
        assert copy == path.with_name(f"store.db.damaged-{number}")
        assert copy.read_bytes() == damaged
        assert copy.stat().st_mode & 0o777 == 0o600


async def test_an_object_without_an_intact_revision_is_lost_and_dropped_only_by_name(path: Path) -> None:
    await write(path, ("a", b"only value"), ("b", b"other"))
    flip_bit(path, b"only value")
    inspection = inspect(path, PLAIN)
    assert inspection.plan.lost == {key("a")}
    with pytest.raises(AssertionError):
        repair(path, inspection, set(), PLAIN)
    repaired(path, key("a"))
    assert await values(path) == {"b": b"other"}


async def test_an_object_that_was_deleted_before_its_damaged_revision_is_lost(path: Path) -> None:
    await write(path, ("a", b"before deletion"), ("a", None), ("a", b"created again"))
    flip_bit(path, b"created again")
    assert inspect(path, PLAIN).plan.damaged == (DamagedObject(key("a"), damaged=4, intact=ABSENT),)


async def test_a_damaged_object_may_be_dropped_rather_than_restored(path: Path) -> None:
    await write(path, ("a", b"first value"), ("a", b"second value"))
    flip_bit(path, b"second value")
    repaired(path, key("a"))
    assert await values(path) == {}


async def test_a_stale_index_is_built_again(path: Path) -> None:
    """What the WAL-reset bug of earlier versions of SQLite leaves: committed rows without their index entries."""
    await write(path, ("a", b"1"))
    entry = path.read_bytes()
    await write(path, ("a", b"2"), ("b", b"1"))
    with closing(apsw.Connection(str(path))) as connection:
        rows = connection.execute("select rv, key, op, prev, val, sum from kv where rv > 2").fetchall()
    path.write_bytes(entry)
    with without_index(path) as connection:
        connection.executemany("insert into kv values (?, ?, ?, ?, ?, ?)", rows)
    with pytest.raises(Unusable, match="wrong # of entries in index kv_by_key"):
        await values(path)
    inspection = repaired(path)
    assert "wrong # of entries in index kv_by_key" in inspection.findings
    assert inspection.plan.damaged == ()
    assert await values(path) == {"a": b"2", "b": b"1"}


async def test_a_deletion_stands_although_its_row_is_damaged(path: Path) -> None:
    await write(path, ("a", b"1"), ("a", None), ("b", b"1"))
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("update kv set sum = sum + 1 where rv = 3")
    inspection = repaired(path)
    assert (inspection.plan.damaged, inspection.plan.history) == ((), 1)
    assert await values(path) == {"b": b"1"}


async def test_a_revision_whose_object_is_unknown_is_reported(path: Path) -> None:
    await write(path, ("a", b"1"), ("b", b"2"))
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("update kv set key = 'nonsense' where rv = 3")
    assert inspect(path, PLAIN).plan.unnamed == (3,)


async def test_after_a_repair_clients_list_again_and_revisions_increase(path: Path) -> None:
    *_, newest = await write(path, ("a", b"first value"), ("a", b"second value"), ("b", b"1"), ("b", None))
    flip_bit(path, b"second value")
    repaired(path)
    store = await SqliteStore.open(path)
    for revision in range(1, newest + 1):
        with pytest.raises(Compacted):
            await store.changes(MAPS, since=revision, until=store.revision)
    assert (await store.put(key("c"), b"1", expect=ABSENT)).revision > newest
    await store.close()


async def test_writes_in_the_log_of_a_killed_process_are_repaired_too(path: Path) -> None:
    await write(path, ("a", b"first value"))
    store = await SqliteStore.open(path, clock=lambda: 0.0)
    entry = await store.put(key("a"), b"second value", expect=2)
    await store.put(key("a"), b"third value", expect=entry.revision)
    aside = shutil.copytree(path.parent, path.parent.parent / f"{path.parent.name}-killed")
    await store.close()
    path = aside / path.name
    flip_bit(path.with_name("store.db-wal"), b"third value")  # SQLite ignores the log from that frame on
    assert await values(path) == {"a": b"second value"}


SECRET = "/core/secrets/root/default/password"


async def write_secret(path: Path, *values: bytes) -> None:
    """With a ConfigMap."""
    store = await SqliteStore.open(path, ENCRYPTED, clock=lambda: 0.0)
    for value in values:
        entry = store.get(SECRET)
        await store.put(SECRET, value, expect=entry.revision if entry else ABSENT)
    await store.put(key("a"), b"1", expect=ABSENT)
    await store.close()


async def test_an_encrypted_value_is_restored_and_stays_encrypted(path: Path) -> None:
    await write_secret(path, b"first value", b"second value")
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("update kv set sum = sum + 1 where rv = 3")
    inspection = inspect(path, ENCRYPTED)
    assert inspection.plan.damaged == (DamagedObject(SECRET, damaged=3, intact=2),)
    repair(path, inspection, set(), ENCRYPTED)
    assert b"first value" not in path.read_bytes()
    with pytest.raises(Unusable, match="values that are encrypted with the key"):
        await SqliteStore.open(path)
    store = await SqliteStore.open(path, ENCRYPTED)
    entry = store.get(SECRET)
    assert entry is not None and entry.value == b"first value"
    await store.close()


async def test_values_whose_key_is_missing_are_lost_and_named(path: Path) -> None:
    await write_secret(path, b"first value", b"second value")
    inspection = inspect(path, PLAIN)
    assert inspection.findings[0].startswith(f"it has values that are encrypted with the key {ENCRYPTED.first_id}")
    assert inspection.plan.lost == {SECRET}
    repaired(path, SECRET)
    assert await values(path) == {"a": b"1"}
    store = await SqliteStore.open(path, Encryption(KeyRing([new_key()])))
    assert store.get(SECRET) is None and store.get(key("a")) is not None
    await store.close()


@pytest.mark.parametrize("page", [2, 3, 6, 9, 10])
async def test_objects_outside_of_a_destroyed_page_keep_their_values(path: Path, page: int) -> None:
    await write(path, *((f"{number:03}", b"%d" % number * 100) for number in range(200)))
    overwrite_page(path, page)
    inspection = inspect(path, PLAIN)
    assert inspection.findings
    lost = inspection.plan.lost
    assert len(lost) <= 20
    repaired(path, *lost)
    expected = {f"{number:03}": b"%d" % number * 100 for number in range(200) if key(f"{number:03}") not in lost}
    assert await values(path) == expected


async def test_the_objects_below_a_destroyed_inner_page_are_named(path: Path) -> None:
    await write(path, *((f"{number:03}", b"%d" % number * 100) for number in range(200)))
    overwrite_page(path, 1)
    assert inspect(path, PLAIN).plan.lost == {key(f"{number:03}") for number in range(200)}


async def test_a_file_without_a_readable_schema_is_not_changed(path: Path) -> None:
    await write(path, ("a", b"1"))
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xa5" * 3996
    path.write_bytes(content)
    with pytest.raises(Unusable, match=r"cannot be repaired \(.*\): restore a backup"):
        inspect(path, PLAIN)
    assert path.read_bytes() == content


async def test_a_damaged_file_of_format_1_is_repaired_into_the_current_format(path: Path) -> None:
    await write(path, ("a", b"1"), ("b", b"1"), ("b", None))
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("alter table kv drop column sum")
        connection.execute("drop table encryption")
        connection.pragma("user_version", 1)
    with without_index(path) as connection:
        connection.execute("insert into kv values (5, ?, 0, 0, ?)", (key("c"), b"3"))
    with pytest.raises(Unusable, match="is damaged"):
        await values(path)
    repaired(path)
    assert await values(path) == {"a": b"1", "c": b"3"}


async def test_a_repair_on_a_full_disk_changes_nothing(path: Path) -> None:
    await write(path, ("a", b"first value"), ("a", b"second value"))
    flip_bit(path, b"second value")
    before = path.read_bytes()
    with full_disk(), pytest.raises(Unusable):
        repair(path, inspect(path, PLAIN), set(), PLAIN)
    assert path.read_bytes() == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["store.db", "store.db.lock"]


@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.long)])
async def test_a_repair_that_is_killed_at_any_call_is_repeated(tmp_path: Path, step: int) -> None:
    original = tmp_path / "original" / "store.db"
    original.parent.mkdir()
    await write(original, ("a", b"first value"), ("a", b"second value"), ("b", b"1"))
    flip_bit(original, b"second value")
    alive, call = True, 1 - step
    while alive:
        call += step
        directory = shutil.copytree(original.parent, tmp_path / str(call))
        path = directory / "store.db"
        alive = killed_at(
            call, partial(repair, path, inspect(path, PLAIN), set(), PLAIN), ("repair.py", "lib/files.py")
        )
        inspection = inspect(path, PLAIN)
        if not inspection.is_intact:
            assert path.read_bytes() == original.read_bytes()
            repair(path, inspection, set(), PLAIN)
        prepare(path, PLAIN)
        assert await values(path) == {"a": b"first value", "b": b"1"}
        shutil.rmtree(directory)
    assert call > 50


# --- any history, any damage ----------------------------------------------------------------------

NAMES = st.sampled_from("abc")
DAMAGE = st.sampled_from(["none", "none", "value", "row"])


@given(st.lists(st.tuples(NAMES, st.booleans(), DAMAGE), min_size=1, max_size=12))
@settings(max_examples=examples(40), deadline=None)
def test_each_object_has_its_newest_intact_value(steps: list[tuple[str, bool, str]]) -> None:
    """`steps`: writes of keys, deletions of existing ones, and what later happens to their rows."""
    with TemporaryDirectory() as directory:
        path = Path(directory, "store.db")
        there: set[str] = set()
        writes: list[tuple[str, bytes | None]] = []
        for number, (name, deletes, _) in enumerate(steps):
            gone = deletes and name in there
            writes.append((name, None if gone else b"value %d of %s" % (number, name.encode())))
            there = there - {name} if gone else there | {name}
        revisions = asyncio.run(write(path, *writes))
        harm(path, dict(zip(revisions, (damage for _, _, damage in steps), strict=True)))
        expected, lost = brute_force(writes, [damage for _, _, damage in steps])
        inspection = inspect(path, PLAIN)
        assert inspection.plan.lost == {key(name) for name in lost}
        repaired(path, *inspection.plan.lost)
        assert asyncio.run(values(path)) == expected


def harm(path: Path, damage: dict[int, str]) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        for revision, how in damage.items():
            if how == "value":
                connection.execute("update kv set val = coalesce(val, '') || 'x' where rv = ?", (revision,))
    with without_index(path) as connection:
        for revision, how in damage.items():
            if how == "row":
                connection.execute("delete from kv where rv = ?", (revision,))


def brute_force(writes: list[tuple[str, bytes | None]], damage: list[str]) -> tuple[dict[str, bytes], set[str]]:
    """Look at each key alone, from its newest write backwards."""
    expected: dict[str, bytes] = {}
    lost: set[str] = set()
    for name in {name for name, _ in writes}:
        own = [(value, how) for (one, value), how in zip(writes, damage, strict=True) if one == name][::-1]
        if own[0][0] is None:
            continue  # deleted
        value = next((value for value, how in own if how == "none"), None)
        if value is None:
            lost.add(name)
        else:
            expected[name] = value
    return expected, lost
