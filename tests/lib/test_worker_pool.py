"""Worker processes: turns of owners, deadlines, crashes, the end of their pool."""

from __future__ import annotations

import asyncio
import operator
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from farflung.lib import worker_pool
from farflung.lib.worker_pool import JobTimeout, Overloaded, PoolLimits, WorkerLost, WorkerPool

LONG = 60.0  #: seconds that no job needs


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(PoolLimits(workers=1, waiting=4, waiting_per_owner=3))
    yield pool
    pool.close()


class Gate:
    """Holds the only worker of a pool until it is opened."""

    def __init__(self, pool: WorkerPool) -> None:
        self._entered, self._open = asyncio.Event(), asyncio.Event()
        self._pool = pool
        self._job: asyncio.Task[object] | None = None

    async def __aenter__(self) -> Gate:
        self._job = asyncio.create_task(self._pool.converse("gate", LONG, self._answer, operator.call, "held"))
        await self._entered.wait()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._open.set()
        assert self._job is not None
        await self._job

    async def _answer(self, question: object) -> None:
        self._entered.set()
        await self._open.wait()


async def test_a_worker_computes_large_values_and_is_used_again(pool: WorkerPool) -> None:
    assert await pool.run("ann", LONG, operator.mul, b"ab", 1_000_000) == b"ab" * 1_000_000
    first = await pool.run("ann", LONG, os.getpid)
    assert first == await pool.run("bob", LONG, os.getpid)
    assert first != os.getpid()


async def test_an_exception_of_a_job_is_raised_and_the_worker_stays(pool: WorkerPool) -> None:
    first = await pool.run("ann", LONG, os.getpid)
    with pytest.raises(ZeroDivisionError):
        await pool.run("ann", LONG, operator.truediv, 1, 0)
    with pytest.raises(RuntimeError, match="Local: why"):
        await pool.run("ann", LONG, exec, "class Local(Exception): pass\nraise Local('why')")
    assert await pool.run("ann", LONG, os.getpid) == first


async def test_a_job_may_ask_the_process_of_the_pool(pool: WorkerPool) -> None:
    async def answer(question: str) -> tuple[str, int]:
        if question == "secret":
            raise KeyError("refused")
        return question, os.getpid()

    assert await pool.converse("ann", LONG, answer, operator.call, "pid") == ("pid", os.getpid())
    with pytest.raises(KeyError, match="refused"):
        await pool.converse("ann", LONG, answer, operator.call, "secret")


async def test_a_job_that_takes_too_long_is_killed_and_the_next_one_gets_another_worker(pool: WorkerPool) -> None:
    first = await pool.run("ann", LONG, os.getpid)
    with pytest.raises(JobTimeout):
        await pool.run("ann", 0.01, signal.pause)
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert await pool.run("ann", LONG, os.getpid) != first


async def test_the_size_of_the_process_of_the_pool_does_not_wear_its_workers(pool: WorkerPool) -> None:
    large = bytearray(b"a") * worker_pool.WORN
    first = await pool.run("ann", LONG, os.getpid)
    assert await pool.run("ann", LONG, os.getpid) == first
    assert len(large) == worker_pool.WORN


async def test_a_worker_that_keeps_too_much_memory_is_replaced_without_a_failure(pool: WorkerPool) -> None:
    first = await pool.run("ann", LONG, os.getpid)
    keep = f"import builtins; builtins.kept = bytearray(b'a') * {worker_pool.WORN}"
    await pool.run("ann", LONG, exec, keep)
    assert await pool.run("ann", LONG, os.getpid) != first
    await pool.run("ann", LONG, exec, keep)
    with pytest.raises(ZeroDivisionError):
        await pool.run("ann", LONG, exec, f"{keep}; 1 / 0")
    assert await pool.run("ann", LONG, operator.add, 1, 1) == 2
    assert pool.lost == 0


async def test_a_worker_that_ends_during_a_job_is_replaced(pool: WorkerPool) -> None:
    with pytest.raises(WorkerLost):
        await pool.run("ann", LONG, os.abort)
    assert await pool.run("ann", LONG, operator.add, 1, 1) == 2
    assert pool.lost == 1


async def test_a_worker_that_ended_while_it_was_idle_is_replaced(pool: WorkerPool) -> None:
    first = await pool.run("ann", LONG, os.getpid)
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert await pool.run("ann", LONG, os.getpid) != first


async def test_owners_take_turns(pool: WorkerPool) -> None:
    order: list[str] = []

    async def run(owner: str) -> None:
        await pool.run(owner, LONG, operator.add, 1, 1)
        order.append(owner)

    async with asyncio.TaskGroup() as jobs, Gate(pool):
        for owner in ("ann", "ann", "ann", "bob"):
            jobs.create_task(run(owner))
        while pool.waiting < 4:
            await asyncio.sleep(0)
    assert order == ["ann", "bob", "ann", "ann"]


async def test_an_owner_with_too_many_jobs_is_refused_while_others_are_not(pool: WorkerPool) -> None:
    async with asyncio.TaskGroup() as jobs, Gate(pool):
        for _ in range(3):
            jobs.create_task(pool.run("ann", LONG, operator.add, 1, 1))
        while pool.waiting < 3:
            await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await pool.run("ann", LONG, operator.add, 1, 1)
        jobs.create_task(pool.run("bob", LONG, operator.add, 1, 1))
        while pool.waiting < 4:
            await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await pool.run("eve", LONG, operator.add, 1, 1)
    assert pool.waiting == pool.running == 0


async def test_a_job_that_is_cancelled_in_the_queue_never_runs(pool: WorkerPool) -> None:
    async with Gate(pool):
        job = asyncio.create_task(pool.run("ann", LONG, os.abort))
        while not pool.waiting:
            await asyncio.sleep(0)
        job.cancel()
    assert await pool.run("bob", LONG, operator.add, 1, 1) == 2
    assert pool.lost == 0


async def test_closing_the_pool_ends_its_jobs_and_workers(pool: WorkerPool) -> None:
    process = await pool.run("ann", LONG, os.getpid)
    pausing = asyncio.create_task(pool.run("ann", LONG, signal.pause))
    await asyncio.sleep(0)
    pool.close()
    with pytest.raises(WorkerLost):
        await pausing
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    with pytest.raises(Overloaded):
        await pool.run("ann", LONG, os.getpid)


HUB = """
import asyncio, operator, os, signal
from farflung.lib.worker_pool import WorkerPool

async def main():
    pool = WorkerPool()
    busy = asyncio.create_task(pool.run("ann", 60, exec, "while True: pass"))
    async def answer(question):
        os.kill(os.getpid(), signal.SIGKILL)
    await pool.converse("bob", 60, answer, operator.call, "kill")

asyncio.run(main())
"""


def test_workers_end_with_a_killed_process_also_during_a_job() -> None:
    """They inherit standard output, so it ends with the last of them."""
    hub = subprocess.run([sys.executable, "-c", HUB], stdout=subprocess.PIPE, timeout=LONG, check=False)
    assert hub.returncode == -signal.SIGKILL
