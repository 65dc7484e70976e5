"""Every backend passes the same suite: a new one adds itself to BACKENDS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from memory_store import MemoryStore

from farflung.store.base import Stamp, Store, unstamped
from farflung.store.sqlite.store import SqliteStore

Open = Callable[..., Awaitable[Store]]


async def open_memory(path: Path, stamp: Stamp) -> Store:
    return MemoryStore(stamp=stamp)


async def open_sqlite(path: Path, stamp: Stamp) -> Store:
    return await SqliteStore.open(path / "store.db", stamp=stamp)


async def open_sqlite_without_memory_of_the_past(path: Path, stamp: Stamp) -> Store:
    return await SqliteStore.open(path / "store.db", stamp=stamp, lines=0)


BACKENDS = {
    "memory": open_memory,
    "sqlite": open_sqlite,
    "sqlite, past on disk": open_sqlite_without_memory_of_the_past,
}


@pytest.fixture(params=BACKENDS)
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    opened: list[Store] = []

    async def open_one(stamp: Stamp = unstamped) -> Store:
        opened.append(await BACKENDS[request.param](tmp_path, stamp))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: Open) -> Store:
    return await open_store()
