"""What a Cluster has for machines if its SyncTarget says so."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hostile import ANYTHING
from hypothesis import given

from farflung.machinery import quantity
from farflung.machines.inventory import decode_target
from machines import machines, report


def room(**status: Any) -> tuple[int | None, int | None]:
    target = decode_target(json.dumps({"metadata": {"name": "t", "uid": "u"}, "status": status}).encode())
    return target.vcpus, target.memory


def test_processors_are_whole_ones_and_memory_is_in_mebibytes() -> None:
    assert room(allocatable={"cpu": "3920m", "memory": "4194303Ki"}) == (3, 4095)


def test_what_is_for_work_counts_and_not_what_is_there() -> None:
    idle = {"cpu": "0", "memory": "0", "pods": "0"}
    assert room(allocatable=idle, capacity={"cpu": "4", "memory": "8Gi"}) == (0, 0)
    assert room(capacity={"cpu": "4", "memory": "8Gi"}) == (4, 8192)


def test_an_unset_limit_is_no_limit() -> None:
    assert room() == room(allocatable={}) == room(allocatable={"pods": "110"}) == (None, None)


@pytest.mark.parametrize("amount", ["1e1000", "9" * 256, 10**18])
def test_more_than_can_be_counted_is_as_much_as_can_be(amount: Any) -> None:
    assert room(allocatable={"cpu": amount})[0] in (10**18, quantity.LARGEST_BINARY)


@given(ANYTHING, ANYTHING)
def test_whatever_a_synctarget_says_it_has_nothing_less_than_nothing(cpu: Any, capacity: Any) -> None:
    try:
        vcpus, memory = room(allocatable={"cpu": cpu}, capacity=capacity)
    except msgspec.MsgspecError:
        return
    assert vcpus is None or 0 <= vcpus <= quantity.LARGEST_BINARY
    assert memory is None


async def test_a_cluster_that_falls_silent_is_unreachable_and_comes_back_with_what_it_has_then() -> None:
    async with machines(start=False) as one:
        imw = await one.fleet.hub.workspace("imw")
        await one.fleet.target(imw, "edge1", {})
        await report(one, imw, ago=timedelta(0), cpu="1")
        await one.cluster("az1", {"small": 9}, synctarget={"workspace": "root:imw", "name": "edge1"})
        await one.start()
        await one.machine("a")
        assert await one.bound("a") == "az1"
        await one.machine("b")
        assert await one.refused("b") == "0/1 clusters fit: 1 out of vcpus"

        async def becomes(phase: str) -> None:
            async def is_told() -> bool:
                return bool((await one.clusters())[0]["status"]["phase"] == phase)

            await one.fleet.eventually(is_told, phase)

        await report(one, imw, ago=timedelta(hours=1), cpu="2")
        await becomes("Unreachable")
        await one.restart()
        await report(one, imw, ago=timedelta(0), cpu="2")
        await becomes("Ready")
        assert await one.bound("b") == "az1"
        await one.machine("c")
        assert await one.refused("c") == "0/1 clusters fit: 1 out of vcpus"
