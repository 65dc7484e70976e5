"""A past that is larger than the memory."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from farflung.store.base import ABSENT, Compacted, TooSlow
from farflung.store.sqlite.store import SqliteStore

MAPS = "/core/configmaps/"
MEGABYTE = 1024 * 1024


def key(number: int) -> str:
    return f"/core/configmaps/root/default/{number}"


async def come_and_go(store: SqliteStore, count: int) -> None:
    """Each of so many large objects is created and deleted."""
    entries = await asyncio.gather(*(store.put(key(number), bytes(MEGABYTE), expect=ABSENT) for number in range(count)))
    await asyncio.gather(*(store.delete(entry.key, expect=entry.revision) for entry in entries))


async def test_a_start_reads_no_more_of_the_past_than_it_keeps(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    await come_and_go(store, 80)
    await store.close()

    tracemalloc.start()
    store = await SqliteStore.open(tmp_path / "store.db", clock=lambda: 0.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    [change] = await store.changes(MAPS, since=store.revision - 1, until=store.revision)
    await store.close()

    assert change.entry is None
    assert change.previous is not None
    assert peak < 40 * MEGABYTE


@pytest.mark.parametrize("lines", [0, 20_000])
async def test_a_flipped_bit_in_history_is_never_served_and_clients_list_again(
    tmp_path: Path, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    first = await store.put(key(1), b"first value", expect=ABSENT)
    second = await store.put(key(1), b"second value", expect=first.revision)
    third = await store.put(key(1), b"third value", expect=second.revision)
    last = await store.put(key(2), b"another", expect=ABSENT)
    await store.close()
    path.write_bytes(path.read_bytes().replace(b"second value", b"recond value"))

    store = await SqliteStore.open(path, clock=lambda: 0.0, lines=lines)
    entry = store.get(key(1))
    assert entry is not None and entry.value == b"third value"
    for since in (first.revision, second.revision):  # the value is the new one, then the replaced one
        with pytest.raises(Compacted) as refused:
            await store.changes(MAPS, since=since, until=last.revision)
        assert refused.value.oldest > since
    with pytest.raises(Compacted):
        await store.list_at(MAPS, second.revision)
    [change] = await store.changes(MAPS, since=third.revision, until=last.revision)
    assert change.entry is not None and change.entry.value == b"another"
    assert f"revision {second.revision} of {key(1)} does not match its checksum" in caplog.text
    await store.close()


async def test_a_watcher_that_missed_too_many_changes_must_relist(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db", lines=10)
    start = store.revision
    await come_and_go(store, 20)
    assert len(await store.changes(MAPS, since=start, until=store.revision)) == 40

    await come_and_go(store, 20)
    with pytest.raises(TooSlow):
        await store.changes(MAPS, since=start, until=store.revision)
    await store.close()
