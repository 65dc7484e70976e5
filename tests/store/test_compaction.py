"""How long history is kept, and what compaction leaves."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from memory_store import MemoryStore

from farflung.store.base import ABSENT, FIRST, Compacted
from farflung.store.compaction import Marks, compact_older
from farflung.store.sqlite.store import SqliteStore

MAPS = "/core/configmaps/"
HOUR = 3600.0


def key(name: object) -> str:
    return f"/core/configmaps/root/default/{name}"


class Clock:
    """Stands still until it is set."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_marks_find_the_newest_revision_of_an_age() -> None:
    marks = Marks([(10, 100.0), (20, 200.0), (30, 300.0)])
    assert [marks.revision_at(moment) for moment in (99, 100, 250, 999)] == [FIRST, 10, 20, 30]
    marks.forget(20)
    assert [marks.revision_at(moment) for moment in (199, 250)] == [FIRST, 20]


def test_a_clock_set_back_does_not_hide_older_marks() -> None:
    marks = Marks([(10, 5000.0), (20, 100.0)])
    assert marks.revision_at(50) == FIRST
    assert marks.revision_at(100) == 20


async def test_memory_forgets_what_is_older_than_it_keeps() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    for number in range(10):
        clock.now += HOUR / 10 + 1
        await store.put(key(number), b"", expect=ABSENT)
    assert store.oldest == FIRST
    clock.now += HOUR / 10 + 1
    await store.put(key("last"), b"", expect=ABSENT)
    assert store.oldest == FIRST + 1
    clock.now += 2 * HOUR
    await store.put(key("very last"), b"", expect=ABSENT)
    assert store.oldest == store.revision - 1


async def test_history_is_kept_for_an_hour_and_then_forgotten(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db", clock=Clock())
    await store.put(key("a"), b"", expect=ABSENT)
    await compact_older(store, now=1_000_000.0, keep=HOUR)
    await store.put(key("b"), b"", expect=ABSENT)
    await compact_older(store, now=1_000_000.0 + HOUR - 1, keep=HOUR)
    assert store.oldest == FIRST
    await compact_older(store, now=1_000_000.0 + HOUR, keep=HOUR)
    assert store.oldest == 2
    assert [change.key for change in await store.changes(MAPS, since=2, until=3)] == [key("b")]
    await store.close()


async def test_a_restart_does_not_forget_how_old_history_is(tmp_path: Path) -> None:
    clock = Clock()
    store = await SqliteStore.open(tmp_path / "store.db", clock=clock)
    await store.put(key("a"), b"", expect=ABSENT)
    await store.mark(clock())
    await store.close()
    clock.now += HOUR + 1
    store = await SqliteStore.open(tmp_path / "store.db", clock=clock)
    await store.put(key("b"), b"", expect=ABSENT)
    await compact_older(store, now=clock(), keep=HOUR)
    assert store.oldest == 2
    await store.close()
    store = await SqliteStore.open(tmp_path / "store.db", clock=clock)
    assert store.oldest == 2
    with pytest.raises(Compacted):
        await store.changes(MAPS, since=1, until=3)
    await store.close()


async def test_a_store_forgets_by_itself(tmp_path: Path) -> None:
    clock = Clock()
    store = await SqliteStore.open(tmp_path / "store.db", clock=clock, keep=0.06)
    entry = await store.put(key("a"), b"1", expect=ABSENT)
    while store.revision_at(clock.now) < entry.revision:
        await asyncio.sleep(0.001)
    clock.now += 1
    while store.oldest < entry.revision:
        await asyncio.sleep(0.001)
    await store.close()


async def test_an_idle_store_writes_no_marks(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db", clock=Clock())
    await store.put(key("a"), b"1", expect=ABSENT)
    for moment in range(5):
        await store.mark(float(moment))
    await store.close()
    assert rows(tmp_path, "select rv, time from mark") == [(2, 0.0)]


def rows(tmp_path: Path, question: str) -> list[tuple[object, ...]]:
    with closing(apsw.Connection(str(tmp_path / "store.db"))) as connection:
        return connection.execute(question).fetchall()


async def test_compaction_leaves_the_live_rows_alone(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    created = await asyncio.gather(*(store.put(key(number), b"1", expect=ABSENT) for number in range(400)))
    await asyncio.gather(*(store.put(entry.key, b"2", expect=entry.revision) for entry in created[1::4]))
    await asyncio.gather(*(store.delete(entry.key, expect=entry.revision) for entry in created[2::4]))
    await store.compact(store.revision)
    live = [(entry.revision,) for entry in sorted(store.list(MAPS).entries, key=lambda entry: entry.revision)]
    await store.close()
    assert len(live) == 300
    assert rows(tmp_path, "select rv from kv order by rv") == live


async def test_writes_go_on_during_a_compaction(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    entry = await store.put(key("a"), b"0", expect=ABSENT)
    await asyncio.gather(*(store.put(key(number), b"", expect=ABSENT) for number in range(1000)))
    compaction = asyncio.create_task(store.compact(store.revision))
    written = 0
    while not compaction.done():
        entry = await store.put(key("a"), b"%d" % written, expect=entry.revision)
        written += 1
    await compaction
    assert written > 1
    assert len(store.list(MAPS).entries) == 1001
    await store.close()


async def test_a_compaction_that_was_interrupted_is_finished_by_the_next(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    for number in range(10):
        entry = await store.put(key(number), b"1", expect=ABSENT)
        await store.delete(key(number), expect=entry.revision)
    await store.close()
    with closing(apsw.Connection(str(tmp_path / "store.db"))) as connection:
        connection.execute("update meta set value = 21 where name = 'compacted'")
    store = await SqliteStore.open(tmp_path / "store.db", clock=lambda: 0.0)
    assert (store.oldest, store.revision) == (21, 21)
    await store.compact(21)
    await store.close()
    assert rows(tmp_path, "select rv from kv") == []
