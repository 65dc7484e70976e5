"""What an Allocation holds is what was placed, whatever it asks for since."""

from __future__ import annotations

from hub_harness import MERGE_PATCH

from machines import ALLOCATIONS, allocation, machines


async def test_an_allocation_takes_no_room_by_asking_for_more_than_there_is() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 9})
        await one.of_shop("POST", ALLOCATIONS, allocation("shop", {"small": 2}))
        assert await one.allocated("shop") == ["az1"]
        resources = [{"name": "r0", "flavors": [{"flavor_id": "small"}], "count": 9_000}]
        larger = {"spec": {"resource_group": {"resources": resources}}}
        await one.of_shop("PATCH", f"{ALLOCATIONS}/shop", larger, content_type=MERGE_PATCH)
        assert await one.refused("shop", "allocation") == "0/1 clusters fit: 1 out of small"
        shown = await one.of_shop("GET", ALLOCATIONS, accept="application/json;as=Table;g=meta.k8s.io;v=v1")
        assert shown["rows"][0]["cells"][:3] == ["shop", "Bound", "False"]  # for what it asks for now
        await one.restart()
        await one.machine("others", count=7)
        assert await one.bound("others") == "az1"
        resources[0]["count"] = 1
        smaller = {"spec": {"resource_group": {"resources": resources}}}
        await one.of_shop("PATCH", f"{ALLOCATIONS}/shop", smaller, content_type=MERGE_PATCH)
        assert await one.allocated("shop") == ["az1"]
        await one.machine("another")
        assert await one.bound("another") == "az1"
