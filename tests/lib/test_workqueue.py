from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from farflung.lib.workqueue import WorkQueue


class Clock:
    """Time that tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def drained(queue: WorkQueue[str]) -> list[str]:
    """What it hands out now."""
    found = []
    while len(queue) and not queue.idle:
        async with queue.next() as key:
            found.append(key)
    return found


async def test_a_key_that_is_added_twice_is_handed_out_once_in_the_order_of_its_first() -> None:
    queue: WorkQueue[str] = WorkQueue(Clock())
    for key in "abca":
        queue.add(key)
    assert await drained(queue) == ["a", "b", "c"]
    assert queue.idle


async def test_a_key_that_is_added_while_a_worker_has_it_is_handed_out_again_afterwards() -> None:
    queue: WorkQueue[str] = WorkQueue(Clock())
    queue.add("a")
    async with queue.next() as key:
        queue.add(key)
        queue.add("b")
        async with queue.next() as other:
            assert other == "b"
    assert await drained(queue) == ["a"]


async def test_a_key_is_given_back_when_the_worker_fails() -> None:
    queue: WorkQueue[str] = WorkQueue(Clock())
    queue.add("a")
    try:
        async with queue.next():
            raise RuntimeError
    except RuntimeError:
        queue.add("a")
    assert await drained(queue) == ["a"]


async def test_a_worker_waits_for_a_key() -> None:
    queue: WorkQueue[str] = WorkQueue(Clock())

    async def work() -> str:
        async with queue.next() as key:
            return key

    worker = asyncio.create_task(work())
    await asyncio.sleep(0)
    queue.add("a")
    assert await worker == "a"


async def test_a_key_waits_for_its_time_and_the_earliest_time_counts() -> None:
    clock = Clock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 20)
    queue.add_after("b", 7)
    assert len(queue) == 2
    assert queue.idle
    clock.now += 6
    async with queue.next() as key:
        assert key == "a"
    assert len(queue) == 1
    clock.now += 100
    async with queue.next() as key:
        assert key == "b"
    assert len(queue) == 0


async def test_a_delayed_key_is_processed_at_once_if_it_is_added_again() -> None:
    clock = Clock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add_after("a", 10)
    queue.add("a")
    assert await drained(queue) == ["a"]
    clock.now += 100
    assert len(queue) == 0


async def test_groups_take_turns_by_the_time_that_their_keys_took() -> None:
    clock = Clock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.share(lambda key: key[0])
    queue.add_all(["a1", "a2", "a3", "a4", "b1", "b2", "b3", "c1"])
    seconds = {"a": 5, "b": 1, "c": 0}
    order: list[str] = []
    while len(queue):
        async with queue.next() as key:
            order.append(key)
            clock.now += seconds[key[0]]
    assert order == ["a1", "b1", "c1", "b2", "b3", "a2", "a3", "a4"]


async def test_time_passes_for_a_worker_that_waits() -> None:
    queue: WorkQueue[str] = WorkQueue(asyncio.get_running_loop().time)
    queue.add_after("a", 0.01)
    async with queue.next() as key:
        assert key == "a"


async def test_one_key_wakes_one_of_the_workers_that_wait() -> None:
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return 100.0

    queue: WorkQueue[str] = WorkQueue(clock)

    async def work() -> None:
        async with queue.next():
            pass

    workers = [asyncio.create_task(work()) for _ in range(8)]
    await asyncio.sleep(0)
    looks = 0
    queue.add("a")
    await next(asyncio.as_completed(workers))
    assert looks == 1
    for number in range(7):
        queue.add(str(number))
    await asyncio.gather(*workers)
    assert queue.idle


async def test_a_key_has_its_time_although_the_worker_that_waited_for_it_has_something_else_to_do() -> None:
    queue: WorkQueue[str] = WorkQueue(asyncio.get_running_loop().time)
    found: list[str] = []
    both = asyncio.Event()

    async def work() -> None:
        async with queue.next() as key:
            found.append(key)
            if len(found) == 2:
                both.set()
            await both.wait()

    workers = [asyncio.create_task(work()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add_after("later", 0.01)
    await asyncio.sleep(0)
    queue.add("now")
    await asyncio.gather(*workers)
    assert found == ["now", "later"]


async def test_what_a_worker_was_woken_for_is_left_to_others_when_it_is_ended() -> None:
    queue: WorkQueue[str] = WorkQueue(Clock())

    async def work() -> str:
        async with queue.next() as key:
            return key

    first, second = [asyncio.create_task(work()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await second == "a"
    assert first.cancelled()


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 4))
async def test_no_two_workers_ever_have_the_same_key_and_none_is_forgotten(keys: list[str], workers: int) -> None:
    queue: WorkQueue[str] = WorkQueue(Clock())
    held: set[str] = set()
    dirty: set[str] = set()

    async def work() -> None:
        while True:
            async with queue.next() as key:
                assert key not in held
                held.add(key)
                dirty.discard(key)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                held.discard(key)

    tasks = [asyncio.create_task(work()) for _ in range(workers)]
    for key in keys:
        dirty.add(key)
        queue.add(key)
        await asyncio.sleep(0)
    while not queue.idle:
        await asyncio.sleep(0)
    assert not dirty
    for task in tasks:
        task.cancel()
    assert all(
        isinstance(ended, asyncio.CancelledError) for ended in await asyncio.gather(*tasks, return_exceptions=True)
    )


async def test_delays_that_were_cancelled_or_shortened_take_no_memory() -> None:
    queue: WorkQueue[str] = WorkQueue(Clock())
    queue.add_after("later", 5)
    for number in range(1000):
        queue.add_after(str(number), 3600)
        queue.add_after(str(number), 10)
        queue.forget(str(number))
    assert len(queue) == 1
    assert len(queue._later) <= 3
