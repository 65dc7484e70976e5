"""A process to kill: writes to a store as fast as it can and prints a line for every acknowledged write.

Each line reads `<revision> <key> <value>`; a deletion has the value `-`.  Values say who wrote them and are as long as
they claim, so that half a value would be noticed.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from farflung.store.base import ABSENT, Conflict
from farflung.store.sqlite.store import SqliteStore

WRITERS = 24


async def write(store: SqliteStore, writer: int, chance: random.Random) -> None:
    while True:
        # Keys of one's own are never contested; of the shared ones, losers say nothing.
        name = f"shared-{chance.randrange(8)}" if chance.random() < 0.2 else f"{writer}-{chance.randrange(20)}"
        key = f"/core/configmaps/root/default/{name}"
        entry = store.get(key)
        try:
            if entry is not None and chance.random() < 0.25:
                revision = await store.delete(key, expect=entry.revision)
                acknowledge(revision, key, "-")
            else:
                size = chance.choice([10, 300, 3000, 30_000])
                value = f"{writer}:{size}:".ljust(size, "v")
                written = await store.put(key, value.encode(), expect=entry.revision if entry else ABSENT)
                acknowledge(written.revision, key, value[:20])
        except Conflict:
            continue


def acknowledge(revision: int, key: str, value: str) -> None:
    os.write(1, f"{revision} {key} {value}\n".encode())


async def compact(store: SqliteStore, chance: random.Random) -> None:
    while True:
        await asyncio.sleep(chance.random() / 20)
        # Far enough behind that whatever was not acknowledged yet is still in the log.
        await store.compact(max(store.revision - chance.randrange(100, 300), store.oldest))


async def main(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    store = await SqliteStore.open(path)
    os.write(1, f"ready {store.revision}\n".encode())
    await asyncio.gather(*(write(store, writer, chance) for writer in range(WRITERS)), compact(store, chance))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
