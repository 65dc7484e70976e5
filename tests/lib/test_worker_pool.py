"""Worker processes: turns of owners, deadlines, crashes, the end of their pool."""

from __future__ import annotations

import asyncio
import operator
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence

import pytest

from farflung.lib import worker_pool
from farflung.lib.worker_pool import JobOwner, JobTerms, JobTimeout, Overloaded, PoolLimits, WorkerLost, WorkerPool

LONG = 60.0  #: seconds that no job needs


def terms(user: str, tenant: str = "", seconds: float = LONG, size: int = 0) -> JobTerms:
    """`tenant`: the user is one by default."""
    return JobTerms(JobOwner("workloads", tenant or user, user), seconds, size)


ANN, BOB, EVE = map(terms, ("ann", "bob", "eve"))


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(PoolLimits(workers=1, waiting_of_user=3, waiting_of_tenant=4, bytes_of_tenant=100))
    yield pool
    pool.close()


class Gate:
    """Holds the only worker of a pool until it is opened."""

    def __init__(self, pool: WorkerPool) -> None:
        self._entered, self._open = asyncio.Event(), asyncio.Event()
        self._pool = pool
        self._job: asyncio.Task[object] | None = None

    async def __aenter__(self) -> Gate:
        self._job = asyncio.create_task(self._pool.converse(terms("gate"), self._answer, operator.call, "held"))
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
    assert await pool.run(ANN, operator.mul, b"ab", 1_000_000) == b"ab" * 1_000_000
    first = await pool.run(ANN, os.getpid)
    assert first == await pool.run(BOB, os.getpid)
    assert first != os.getpid()


async def test_an_exception_of_a_job_is_raised_and_the_worker_stays(pool: WorkerPool) -> None:
    first = await pool.run(ANN, os.getpid)
    with pytest.raises(ZeroDivisionError):
        await pool.run(ANN, operator.truediv, 1, 0)
    with pytest.raises(RuntimeError, match="Local: why"):
        await pool.run(ANN, exec, "class Local(Exception): pass\nraise Local('why')")
    assert await pool.run(ANN, os.getpid) == first


async def test_a_job_may_ask_the_process_of_the_pool(pool: WorkerPool) -> None:
    async def answer(question: str) -> tuple[str, int]:
        if question == "secret":
            raise KeyError("refused")
        return question, os.getpid()

    assert await pool.converse(ANN, answer, operator.call, "pid") == ("pid", os.getpid())
    with pytest.raises(KeyError, match="refused"):
        await pool.converse(ANN, answer, operator.call, "secret")


async def test_a_job_that_takes_too_long_is_killed_and_the_next_one_gets_another_worker(pool: WorkerPool) -> None:
    first = await pool.run(ANN, os.getpid)
    with pytest.raises(JobTimeout):
        await pool.run(terms("ann", seconds=0.01), signal.pause)
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert await pool.run(ANN, os.getpid) != first


async def test_the_size_of_the_process_of_the_pool_does_not_wear_its_workers(pool: WorkerPool) -> None:
    large = bytearray(b"a") * worker_pool.WORN
    first = await pool.run(ANN, os.getpid)
    assert await pool.run(ANN, os.getpid) == first
    assert len(large) == worker_pool.WORN


async def test_a_worker_that_keeps_too_much_memory_is_replaced_without_a_failure(pool: WorkerPool) -> None:
    first = await pool.run(ANN, os.getpid)
    keep = f"import builtins; builtins.kept = bytearray(b'a') * {worker_pool.WORN}"
    await pool.run(ANN, exec, keep)
    assert await pool.run(ANN, os.getpid) != first
    await pool.run(ANN, exec, keep)
    with pytest.raises(ZeroDivisionError):
        await pool.run(ANN, exec, f"{keep}; 1 / 0")
    assert await pool.run(ANN, operator.add, 1, 1) == 2
    assert pool.lost == 0


async def test_a_worker_that_ends_during_a_job_is_replaced(pool: WorkerPool) -> None:
    with pytest.raises(WorkerLost):
        await pool.run(ANN, os.abort)
    assert await pool.run(ANN, operator.add, 1, 1) == 2
    assert pool.lost == 1


async def test_a_worker_that_ended_while_it_was_idle_is_replaced(pool: WorkerPool) -> None:
    first = await pool.run(ANN, os.getpid)
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert await pool.run(ANN, os.getpid) != first


async def order_of(pool: WorkerPool, waiting: Sequence[JobTerms]) -> list[str]:
    """The users whose jobs wait together, in the order of their ends."""
    order: list[str] = []

    async def run(one: JobTerms) -> None:
        await pool.run(one, operator.add, 1, 1)
        order.append(one.owner.user)

    async with asyncio.TaskGroup() as jobs, Gate(pool):
        for one in waiting:
            jobs.create_task(run(one))
        while pool.waiting < len(waiting):
            await asyncio.sleep(0)
    return order


async def test_tenants_take_turns_and_users_of_a_tenant_too(pool: WorkerPool) -> None:
    ann, amy = terms("ann", "acme"), terms("amy", "acme")
    assert await order_of(pool, [ann, ann, ann, BOB]) == ["ann", "bob", "ann", "ann"]
    assert await order_of(pool, [ann, ann, amy, BOB]) == ["ann", "bob", "amy", "ann"]


async def test_a_user_or_tenant_with_too_many_jobs_is_refused_while_others_are_not(pool: WorkerPool) -> None:
    async with asyncio.TaskGroup() as jobs, Gate(pool):

        def waits(one: JobTerms) -> asyncio.Task[int]:
            return jobs.create_task(pool.run(one, operator.add, 1, 1))

        for _ in range(3):
            waits(terms("ann", "acme"))
        while pool.waiting < 3:
            await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await pool.run(terms("ann", "acme"), operator.add, 1, 1)
        waits(terms("amy", "acme"))
        while pool.waiting < 4:
            await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await pool.run(terms("amy", "acme"), operator.add, 1, 1)
        waits(BOB)
        while pool.waiting < 5:
            await asyncio.sleep(0)
    assert pool.waiting == pool.running == 0


async def test_a_tenant_whose_waiting_jobs_hold_too_many_bytes_is_refused(pool: WorkerPool) -> None:
    async with asyncio.TaskGroup() as jobs, Gate(pool):
        jobs.create_task(pool.run(terms("ann", size=200), operator.add, 1, 1))  # the only one may be large
        while not pool.waiting:
            await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await pool.run(terms("ann", size=1), operator.add, 1, 1)
        jobs.create_task(pool.run(terms("bob", size=100), operator.add, 1, 1))
        while pool.waiting < 2:
            await asyncio.sleep(0)


async def test_long_jobs_of_a_tenant_leave_workers_to_others() -> None:
    pool = WorkerPool(PoolLimits(workers=2))
    try:
        endless = [asyncio.create_task(pool.run(ANN, signal.pause)) for _ in range(3)]
        assert await pool.run(BOB, operator.add, 1, 1) == 2
        assert (pool.running, pool.waiting) == (1, 2)
        endless.pop(0).cancel()
        assert await pool.run(BOB, operator.add, 1, 1) == 2
        assert (pool.running, pool.waiting) == (1, 1)
    finally:
        pool.close()
        await asyncio.gather(*endless, return_exceptions=True)


async def test_a_worker_without_jobs_ends(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "IDLE", 0.0)
    first = await pool.run(ANN, os.getpid)
    while True:
        try:
            os.kill(first, 0)
        except ProcessLookupError:
            break
        await asyncio.sleep(0)
    assert await pool.run(ANN, os.getpid) != first
    assert pool.lost == 0


async def test_a_job_that_is_cancelled_in_the_queue_never_runs(pool: WorkerPool) -> None:
    async with Gate(pool):
        job = asyncio.create_task(pool.run(ANN, os.abort))
        while not pool.waiting:
            await asyncio.sleep(0)
        job.cancel()
    assert await pool.run(BOB, operator.add, 1, 1) == 2
    assert pool.lost == 0


async def test_closing_the_pool_ends_its_jobs_and_workers(pool: WorkerPool) -> None:
    process = await pool.run(ANN, os.getpid)
    pausing = asyncio.create_task(pool.run(ANN, signal.pause))
    await asyncio.sleep(0)
    pool.close()
    with pytest.raises(WorkerLost):
        await pausing
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    with pytest.raises(Overloaded):
        await pool.run(ANN, os.getpid)


HUB = """
import asyncio, operator, os, signal
from farflung.lib.worker_pool import JobOwner, JobTerms, WorkerPool

async def main():
    pool = WorkerPool()
    ann, bob = (JobTerms(JobOwner("workloads", name, name), 60) for name in ("ann", "bob"))
    busy = asyncio.create_task(pool.run(ann, exec, "while True: pass"))
    async def answer(question):
        os.kill(os.getpid(), signal.SIGKILL)
    await pool.converse(bob, answer, operator.call, "kill")

asyncio.run(main())
"""


def test_workers_end_with_a_killed_process_also_during_a_job() -> None:
    """They inherit standard output, so it ends with the last of them."""
    hub = subprocess.run([sys.executable, "-c", HUB], stdout=subprocess.PIPE, timeout=LONG, check=False)
    assert hub.returncode == -signal.SIGKILL
