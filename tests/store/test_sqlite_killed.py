"""A killed process loses no acknowledged write."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from farflung.store.base import Store
from farflung.store.sqlite.store import SqliteStore

WRITER = Path(__file__).with_name("killed_writer.py")

Acknowledged = list[tuple[int, str, str]]


def write_and_kill(path: Path, seed: int, lines: int, delay: float) -> tuple[int, Acknowledged]:
    """Start a writer, kill it some time after its first acknowledgements, and return where it began and what it
    acknowledged."""
    with subprocess.Popen([sys.executable, str(WRITER), str(path), str(seed)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        started = int(process.stdout.readline().removeprefix(b"ready "))
        heard = [process.stdout.readline() for _ in range(lines)]
        time.sleep(delay)  # not waiting for anything: the moment of death is to be any
        process.kill()
        heard += process.stdout.read().splitlines(keepends=True)
    acknowledged = []
    for line in heard:
        if line.endswith(b"\n"):
            revision, key, value = line.decode().split()
            acknowledged.append((int(revision), key, value))
    return started, acknowledged


async def check(store: Store, started: int, acknowledged: Acknowledged) -> None:
    revisions = [revision for revision, _, _ in acknowledged]
    assert len(set(revisions)) == len(revisions)
    assert min(revisions) > started
    assert store.revision >= max(revisions)
    newest = {key: (revision, value) for revision, key, value in sorted(acknowledged)}
    for key, (revision, value) in newest.items():
        entry = store.get(key)
        if entry is not None and entry.revision == revision:
            assert entry.value[:20].decode() == value
        elif entry is not None or value != "-":
            assert await replaced(store, key, after=revision)


async def replaced(store: Store, key: str, after: int) -> bool:
    """Whether the log tells of a later write: one that became durable, and was killed before it was acknowledged."""
    prefix = key[: key.rindex("/") + 1]
    later = await store.changes(prefix, since=max(after, store.oldest), until=store.revision)
    return any(change.key == key for change in later)


def check_values(store: Store) -> None:
    for entry in store.list("/core/configmaps/").entries:
        _, size, _ = entry.value.split(b":")
        assert len(entry.value) == int(size)


async def check_log(store: Store) -> None:
    """Replaying the log from the oldest state gives the newest."""
    state = {entry.key: entry.revision for entry in (await store.list_at("/core/configmaps/", store.oldest)).entries}
    last = store.oldest
    for change in await store.changes("/core/configmaps/", since=store.oldest, until=store.revision):
        assert change.revision > last
        assert (change.previous.revision if change.previous else None) == state.pop(change.key, None)
        if change.entry is not None:
            state[change.key] = change.revision
        last = change.revision
    assert state == {entry.key: entry.revision for entry in store.list("/core/configmaps/").entries}


async def kill_and_compare(path: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)
    for attempt in range(times):
        lines = chance.choice([1, 5, 50, 300])
        started, acknowledged = write_and_kill(path, seed + attempt, lines, chance.random() / 5)
        store = await SqliteStore.open(path, lines=chance.choice([0, 20_000]))
        await check(store, started, acknowledged)
        check_values(store)
        await check_log(store)
        await store.close()


async def test_a_killed_process_loses_no_acknowledged_write(tmp_path: Path) -> None:
    await kill_and_compare(tmp_path / "store.db", times=3, seed=1)


@pytest.mark.long
async def test_a_process_killed_many_times_loses_no_acknowledged_write(tmp_path: Path) -> None:
    await kill_and_compare(tmp_path / "store.db", times=25, seed=time.time_ns())
