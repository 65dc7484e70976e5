"""The promises of a queue of work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from farflung.hub.controllers.reconcile_queue import FIRST_DELAY, LONGEST_DELAY, ReconcileQueue, Unfinished, delay_after
from farflung.machinery.errors import ApiError


@asynccontextmanager
async def working(look: Callable[[str], Awaitable[None]], workers: int = 3) -> AsyncIterator[ReconcileQueue[str]]:
    work: ReconcileQueue[str] = ReconcileQueue("test", look, workers=workers)
    group_started = asyncio.Event()

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            work.start(group)
            group_started.set()

    task = asyncio.create_task(run())
    await group_started.wait()
    try:
        async with asyncio.timeout(60):
            yield work
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_key_added_often_before_it_is_looked_at_is_looked_at_once() -> None:
    seen: list[str] = []

    async def look(key: str) -> None:
        seen.append(key)

    async with working(look) as work:
        for key in ("a", "b", "a", "a"):
            work.add(key)
        await work.finished()
    assert seen == ["a", "b"]


async def test_a_key_is_never_in_two_hands_and_is_looked_at_again_if_added_meanwhile() -> None:
    active, most, looks = 0, 0, 0
    go_on = asyncio.Event()

    async def look(key: str) -> None:
        nonlocal active, most, looks
        active, looks = active + 1, looks + 1
        most = max(most, active)
        await go_on.wait()
        active -= 1

    async with working(look) as work:
        work.add("a")
        while not looks:
            await asyncio.sleep(0)
        work.add("a")
        work.add("a")
        go_on.set()
        await work.finished()
    assert (most, looks) == (1, 2)


async def test_no_more_are_looked_at_together_than_there_are_workers() -> None:
    active, most = 0, 0

    async def look(key: str) -> None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(0)
        active -= 1

    async with working(look, workers=3) as work:
        for number in range(50):
            work.add(str(number))
        await work.finished()
    assert most == 3


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (ApiError(409, "Conflict", "too late"), logging.DEBUG),
        (ApiError(500, "InternalError", "broken"), logging.WARNING),
        (Unfinished("some are left"), logging.WARNING),
        (ZeroDivisionError("a mistake"), logging.WARNING),
    ],
)
async def test_a_failed_look_is_logged_and_repeated(
    error: Exception, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    looks = 0

    async def look(key: str) -> None:
        nonlocal looks
        looks += 1
        if looks < 4:
            raise error

    with caplog.at_level(logging.DEBUG):
        async with working(look) as work:
            work.add("a")
            await work.finished()
    assert looks == 4
    records = [record for record in caplog.records if record.name.endswith("reconcile_queue")]
    assert [record.levelno for record in records] == [level] * 3
    assert all(bool(record.exc_info) == isinstance(error, ZeroDivisionError) for record in records)


async def test_one_bad_key_does_not_hold_up_the_others() -> None:
    seen: list[str] = []

    async def look(key: str) -> None:
        if key == "bad":
            raise ApiError(500, "InternalError", "always")
        seen.append(key)

    async with working(look, workers=1) as work:
        work.add("bad")
        work.add("good")
        while not seen:
            await asyncio.sleep(0)
        assert work.is_busy
    assert seen == ["good"]


async def test_a_delayed_key_is_processed_sooner_if_it_is_added() -> None:
    seen: list[str] = []

    async def look(key: str) -> None:
        seen.append(key)

    async with working(look) as work:
        work.add_later("a", 3600)
        assert work.is_busy
        work.add("a")
        await work.finished()
        work.add_later("b", 0)
        await work.finished()
    assert seen == ["a", "b"]


def test_pauses_grow_to_a_limit() -> None:
    pauses = [delay_after(failures) for failures in range(1, 2000)]
    assert pauses[0] == FIRST_DELAY
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_DELAY


async def test_what_is_forgotten_is_not_looked_at_later() -> None:
    looked: list[str] = []

    async def look(key: str) -> None:
        looked.append(key)

    work: ReconcileQueue[str] = ReconcileQueue("test", look, workers=1)
    work.add_later("gone", 3600)
    assert work.is_busy
    work.forget("gone")
    work.forget("never")
    assert not work.is_busy
    assert looked == []
