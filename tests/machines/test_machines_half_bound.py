"""Machines whose scheduler was killed after it said where they are to be brought, and before it bound them."""

from __future__ import annotations

from datetime import timedelta

from hub_harness import MERGE_PATCH

from farflung.machines import statuses
from farflung.machines.engine.values import SiteKey
from machines import PODS, machines, report


async def test_what_is_not_bound_is_not_led_to_a_cluster_either() -> None:
    async with machines(start=False) as one:
        imw = await one.fleet.hub.workspace("imw")
        await one.fleet.target(imw, "edge1", {})
        await report(one, imw, ago=timedelta(0))
        await one.cluster("az1", {"small": 1}, synctarget={"workspace": imw, "name": "edge1"})
        await one.start()
        await one.machine("a")
        await one.bound("a")
        await one.fleet.crash()
        await one.machine("b")
        labels = statuses.delivery_labels(SiteKey(one.home, "default", "az1"))
        assert (await one.pod("a"))["metadata"]["labels"] == labels
        await one.of_shop("PATCH", f"{PODS}/b", {"metadata": {"labels": labels}}, content_type=MERGE_PATCH)
        await one.start()
        await one.refused("b")

        async def is_nowhere() -> bool:
            return not (await one.pod("b"))["metadata"].get("labels")

        await one.fleet.eventually(is_nowhere, "the end of the label")
        assert (await one.pod("a"))["metadata"]["labels"] == labels
        await one.of_shop("DELETE", f"{PODS}/a")
        assert await one.bound("b") == "az1"
        assert (await one.pod("b"))["metadata"]["labels"] == labels
