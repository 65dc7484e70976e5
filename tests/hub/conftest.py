"""Hubs without sockets for the tests of the API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from hub_harness import LocalHub
from memory_store import MemoryStore

from farflung.hub.catalog import objects
from farflung.store.base import Store
from farflung.store.sqlite.store import SqliteStore


async def open_memory(directory: Path) -> Store:
    return MemoryStore(stamp=objects.stamp)


async def open_sqlite(directory: Path) -> Store:
    return await SqliteStore.open(directory / "hub.sqlite", stamp=objects.stamp)


STORES: dict[str, Callable[[Path], Awaitable[Store]]] = {"memory": open_memory, "sqlite": open_sqlite}


@pytest.fixture
async def hub() -> AsyncIterator[LocalHub]:
    """A hub with the default namespace and nothing else in it."""
    hub = await LocalHub.in_memory().furnish()
    yield hub
    hub.close()


@pytest.fixture(params=STORES)
async def any_hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalHub]:
    """The same on every kind of store, for what depends on state."""
    store = await STORES[request.param](tmp_path)
    yield await LocalHub(store).furnish()
    await store.close()
