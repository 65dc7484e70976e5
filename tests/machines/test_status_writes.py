"""Writes that only inform users do not grow with the number of machines that are bound."""

from __future__ import annotations

import asyncio

from farflung.machines.clusters import USAGE_BURST
from farflung.machines.context import WriteRate
from machines import Machines, machines


def test_writes_beyond_the_burst_are_spread_and_an_idle_time_allows_another_burst() -> None:
    rate = WriteRate(3, 2.0)
    assert [rate.take(10.0) for _ in range(6)] == [10.0, 10.0, 10.0, 10.5, 11.0, 11.5]
    assert not rate.is_free(11.9)
    assert rate.is_free(12.0)
    assert [rate.take(20.0) for _ in range(4)] == [20.0, 20.0, 20.0, 20.5]


async def test_the_usage_of_many_clusters_is_written_slowly_and_completely() -> None:
    number = USAGE_BURST + 30
    async with machines() as one:
        for each in range(number):
            await one.cluster(f"c{each:03}", {"small": 1})
        await asyncio.sleep(2)
        for each in range(number):
            await one.machine(f"vm{each:03}")
        for each in range(number):
            await one.bound(f"vm{each:03}")
        bound, reported = await bound_and_reported(one)
        assert bound == number
        assert 0 < reported < number
        await asyncio.sleep(5)
        assert await bound_and_reported(one) == (number, number)


async def bound_and_reported(one: Machines) -> tuple[int, int]:
    """Bound machines, and those in the status of Clusters."""
    bound = sum("nodeName" in pod["spec"] for pod in await one.pods())
    return bound, sum(cluster["status"]["stacks"] for cluster in await one.clusters())
