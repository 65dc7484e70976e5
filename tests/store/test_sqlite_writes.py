"""Writes that share a commit, and commits that fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from shutil import copyfile

import pytest
from full_disk import full_disk

from farflung.store.base import ABSENT, Change, Conflict, Entry, Unavailable
from farflung.store.encryption import Encryption
from farflung.store.sqlite.files import LateConnection, connect_to_read, connect_to_write
from farflung.store.sqlite.store import SqliteStore
from farflung.store.sqlite.writer import Checkpointer, CommitState, PendingWrite, Writer

MAPS = "/core/configmaps/"


def key(name: object) -> str:
    return f"/core/configmaps/root/default/{name}"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "store.db")
    yield store
    await store.close()


async def put_all(store: SqliteStore, wanted: Sequence[object]) -> list[object]:
    tries = [store.put(key(name), b"x" * 5000, expect=ABSENT) for name in wanted]
    return await asyncio.gather(*tries, return_exceptions=True)


async def test_subscribers_get_concurrent_writes_in_batches_and_in_order(store: SqliteStore) -> None:
    batches: list[Sequence[Change]] = []
    store.subscribe(MAPS, batches.append)
    entries = await put_all(store, range(500))
    revisions = [change.revision for batch in batches for change in batch]
    assert revisions == list(range(2, 502))
    assert len(batches) < 100
    assert [entry.revision for entry in entries if isinstance(entry, Entry)] == revisions


async def test_readers_see_nothing_that_is_not_durable(store: SqliteStore) -> None:
    writing = asyncio.create_task(store.put(key("a"), b"1", expect=ABSENT))
    await asyncio.sleep(0)
    assert store.get(key("a")) is None
    assert store.list(MAPS).entries == []
    await writing
    assert store.get(key("a")) is not None


async def test_a_full_disk_refuses_the_whole_batch_and_leaves_no_trace(store: SqliteStore) -> None:
    [a] = await put_all(store, ["a"])
    assert isinstance(a, Entry)
    heard: list[Change] = []
    store.subscribe(MAPS, heard.extend)
    with full_disk():
        outcomes = await put_all(store, range(50))
        update = store.put(key("a"), b"y" * 5000, expect=a.revision)
        delete = store.delete(key("a"), expect=a.revision)
        outcomes += await asyncio.gather(update, delete, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {Unavailable}
    assert str(outcomes[0]).startswith("the store cannot write: ")
    assert heard == []
    assert store.get(key("a")) is a
    assert [entry.key for entry in store.list(MAPS).entries] == [key("a")]
    assert store.revision == a.revision


async def test_writes_work_again_once_the_disk_does(store: SqliteStore, tmp_path: Path) -> None:
    [a] = await put_all(store, ["a"])
    assert isinstance(a, Entry)
    with full_disk():
        await put_all(store, range(5))
    updated = await store.put(key("a"), b"2", expect=a.revision)
    entries = await put_all(store, range(5))
    assert all(isinstance(entry, Entry) for entry in entries)
    assert updated.revision > a.revision
    await store.close()
    again = await SqliteStore.open(tmp_path / "store.db", clock=lambda: 0.0)
    assert len(again.list(MAPS).entries) == 6
    assert again.revision == max(entry.revision for entry in entries if isinstance(entry, Entry))
    await again.close()


@pytest.mark.parametrize("killed", [False, True])
async def test_a_store_opens_on_a_full_disk_and_writes_once_there_is_room(tmp_path: Path, killed: bool) -> None:
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    await put_all(store, range(3))
    before = store.revision
    if killed:
        (tmp_path / "copy").mkdir()
        for file in ("store.db", "store.db-wal", "store.db-shm"):
            copyfile(tmp_path / file, tmp_path / "copy" / file)
        path = tmp_path / "copy" / "store.db"
    await store.close()
    with full_disk():
        store = await SqliteStore.open(path)
        assert "full" in store.write_error
        assert [entry.key for entry in store.list(MAPS).entries] == list(map(key, range(3)))
        with pytest.raises(Unavailable, match="database or disk is full"):
            await store.put(key("a"), b"1", expect=ABSENT)
    entry = await store.put(key("a"), b"1", expect=ABSENT)
    assert store.write_error == ""
    assert entry.revision > before
    await store.close()
    store = await SqliteStore.open(path)
    assert len(store.list(MAPS).entries) == 4
    assert await store.changes(MAPS, since=store.oldest, until=before)
    await store.close()


async def test_a_write_that_waits_for_a_failing_one_proceeds(store: SqliteStore) -> None:
    await put_all(store, ["first"])
    with full_disk():
        doomed = asyncio.create_task(store.put(key("a"), b"x" * 5000, expect=ABSENT))
        await asyncio.sleep(0)
        second = asyncio.create_task(store.put(key("a"), b"2", expect=ABSENT))
        await asyncio.wait([doomed])
        assert isinstance(doomed.exception(), Unavailable)
        await asyncio.wait([second])
        assert isinstance(second.exception(), Unavailable)
    await store.put(key("a"), b"3", expect=ABSENT)
    with pytest.raises(Conflict):
        await store.put(key("a"), b"4", expect=ABSENT)


async def test_history_that_cannot_be_compacted_stays(store: SqliteStore) -> None:
    await put_all(store, range(300))
    with full_disk(), pytest.raises(Unavailable):
        await store.compact(store.revision)
    oldest = store.oldest
    assert len(await store.changes(MAPS, since=oldest, until=store.revision)) == store.revision - oldest
    await store.compact(store.revision)
    assert store.oldest == store.revision


async def test_a_transaction_that_was_left_open_does_not_swallow_a_write(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await (await SqliteStore.open(path)).close()
    loop = asyncio.get_running_loop()
    committed: asyncio.Queue[Sequence[PendingWrite]] = asyncio.Queue()
    with closing(connect_to_write(path)) as writing, closing(connect_to_read(path)) as reading:
        writing.execute("begin immediate")
        writer = Writer(
            LateConnection(lambda: writing),
            Encryption(),
            loop=loop,
            committed=committed.put_nowait,
            failed=pytest.fail,
            progress=CommitState(),
        )
        write = PendingWrite(Change(2, key("a"), Entry(key("a"), b"1", 2), None), loop.create_future())
        writer.submit(write)
        assert list(await committed.get()) == [write]
        assert reading.execute("select rv from kv").fetchall() == [(2,)]
        writer.stop()


class RecordingLock:
    """A lock that records the threads that held it, and whether two did at the same time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holders: list[str] = []

    def __enter__(self) -> None:
        assert self.lock.acquire(timeout=60)
        self.holders.append(threading.current_thread().name)

    def __exit__(self, *_: object) -> None:
        self.lock.release()


async def test_commits_and_checkpoints_exclude_each_other(tmp_path: Path) -> None:
    """SQLite before 3.51.3 can lose a commit beside a checkpoint."""
    path = tmp_path / "store.db"
    await (await SqliteStore.open(path)).close()
    loop = asyncio.get_running_loop()
    committed: asyncio.Queue[Sequence[PendingWrite]] = asyncio.Queue()
    lock = RecordingLock()
    progress = CommitState(transfer=lock)
    with closing(connect_to_write(path)) as writing, closing(connect_to_write(path)) as checkpointing:
        writer = Writer(
            LateConnection(lambda: writing),
            Encryption(),
            loop=loop,
            committed=committed.put_nowait,
            failed=pytest.fail,
            progress=progress,
        )
        checkpointer = Checkpointer(LateConnection(lambda: checkpointing), progress)
        writer.submit(PendingWrite(Change(2, key("a"), Entry(key("a"), b"1", 2), None), loop.create_future()))
        await committed.get()
        await writer.perform(lambda connection: None)
        while "store-checkpoint" not in lock.holders:
            await asyncio.to_thread(progress.dirty.set)
        checkpointer.stop()
        writer.stop()
    assert lock.holders[0] == "store-writer"
    assert lock.holders.count("store-writer") == 2


async def test_closing_commits_what_is_under_way(store: SqliteStore, tmp_path: Path) -> None:
    writing = [asyncio.create_task(store.put(key(number), b"1", expect=ABSENT)) for number in range(100)]
    await asyncio.sleep(0)
    await store.close()
    assert all(write.done() and write.exception() is None for write in writing)
    again = await SqliteStore.open(tmp_path / "store.db")
    assert len(again.list(MAPS).entries) == 100
    await again.close()


async def test_a_large_batch_is_as_good_as_many_small_ones(store: SqliteStore, tmp_path: Path) -> None:
    outcomes = await asyncio.gather(*(store.put(key(number), b"z" * 100, expect=ABSENT) for number in range(3000)))
    assert [entry.revision for entry in outcomes] == list(range(2, 3002))
    large = await asyncio.gather(
        *(store.put(key(f"l{number}"), bytes(3_000_000), expect=ABSENT) for number in range(8))
    )
    await store.close()
    again = await SqliteStore.open(tmp_path / "store.db", clock=lambda: 0.0)
    assert again.revision == large[-1].revision
    assert len(again.list(MAPS).entries) == 3008
    await again.close()


async def test_keys_under_way_do_not_wait_for_each_other(store: SqliteStore) -> None:
    entries = await put_all(store, range(64))
    revisions = [entry.revision for entry in entries if isinstance(entry, Entry)]
    updates = [store.put(key(number), b"2", expect=revision) for number, revision in enumerate(revisions)]
    assert len(await asyncio.gather(*updates)) == 64


async def test_reads_of_history_are_answered_while_the_store_closes(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db", lines=0)
    await put_all(store, range(100))
    asking = [asyncio.create_task(store.list_at(MAPS, 50)) for _ in range(20)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.wait(asking)
    for question in asking:
        assert not question.cancelled()
        assert isinstance(question.exception(), Unavailable) or len(question.result().entries) == 49
    with pytest.raises(Unavailable):
        await store.changes(MAPS, since=1, until=50)


async def test_waiting_for_writes_waits_for_the_pending_ones_only(store: SqliteStore) -> None:
    await store.wait_for_writes()
    writing = [asyncio.create_task(store.put(key(name), b"1", expect=ABSENT)) for name in ("a", "b")]
    await asyncio.sleep(0)
    await store.wait_for_writes()
    assert [entry.key for entry in store.list(MAPS).entries] == [key("a"), key("b")]
    await asyncio.gather(*writing)


async def test_waiting_for_writes_does_not_wait_for_failed_ones(store: SqliteStore, tmp_path: Path) -> None:
    with full_disk():
        writing = asyncio.create_task(store.put(key("a"), b"x" * 5000, expect=ABSENT))
        await asyncio.sleep(0)
        await store.wait_for_writes()
        await asyncio.wait([writing])
        assert isinstance(writing.exception(), Unavailable)
