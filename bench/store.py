"""How fast the SQLite store is: prints figures and asserts nothing.  `python bench/store.py`"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import uvloop

from farflung.store.base import ABSENT
from farflung.store.sqlite.store import SqliteStore

VALUE = random.Random(1).randbytes(1024)
ENTRIES = 100_000
LISTED = 10_000


def keys(count: int, resource: str) -> Iterator[str]:
    order = random.Random(2).sample(range(count), count)
    return (f"/core/{resource}/root/namespace-{number % 50}/object-{number:06}" for number in order)


async def write(store: SqliteStore, wanted: Iterator[str], delays: list[float]) -> None:
    for key in wanted:
        started = time.perf_counter()
        await store.put(key, VALUE, expect=ABSENT)
        delays.append(time.perf_counter() - started)


async def bench_writers(directory: Path, writers: int, count: int) -> None:
    store = await SqliteStore.open(directory / f"writers-{writers}.db")
    wanted = keys(count, "configmaps")
    delays: list[float] = []
    started, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(write(store, wanted, delays) for _ in range(writers)))
    elapsed, cpu = time.perf_counter() - started, time.process_time() - cpu
    await store.close()
    delays.sort()
    print(
        f"durable puts, {writers:3} writers: {count / elapsed:8,.0f}/s   {cpu / count * 1e6:5.0f} µs CPU   "
        f"p50 {delays[count // 2] * 1e3:5.2f} ms   p99 {delays[count * 99 // 100] * 1e3:5.2f} ms"
    )


async def bench_entries(directory: Path) -> None:
    path = directory / "entries.db"
    store = await SqliteStore.open(path)
    others = ENTRIES - LISTED
    await asyncio.gather(*(store.put(key, VALUE, expect=ABSENT) for key in keys(others, "configmaps")))
    await asyncio.gather(*(store.put(key, VALUE, expect=ABSENT) for key in keys(LISTED, "secrets")))
    await store.close()
    started = time.perf_counter()
    store = await SqliteStore.open(path)
    print(f"reopen with {ENTRIES:,} entries: {time.perf_counter() - started:.3f} s")
    started = time.perf_counter()
    store.list("/core/secrets/")
    print(f"list of {LISTED:,}: {(time.perf_counter() - started) * 1e3:.2f} ms")
    started = time.perf_counter()
    after, pages = "", 0
    while pages == 0 or after:
        after = store.list("/core/configmaps/", after=after, limit=500).after
        pages += 1
    print(f"list of {others:,} in {pages} pages: {(time.perf_counter() - started) / pages * 1e3:.3f} ms a page")
    await store.close()


async def main() -> None:
    with tempfile.TemporaryDirectory(dir=".") as directory:
        for writers, count in ((1, 2_000), (16, 20_000), (64, 50_000)):
            await bench_writers(Path(directory), writers, count)
        await bench_entries(Path(directory))


if __name__ == "__main__":
    uvloop.run(main())
