"""What the Nodes of an edge have for work is in the report of its syncer, and in its SyncTarget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from cluster import node
from fleet import WORKLOAD
from syncing import Link, linked

from farflung.apis.names import NODES
from farflung.client.errors import Forbidden, NotFound, Unreachable
from farflung.client.transport import OutgoingRequest
from farflung.machinery.errors import Obj

TARGETS = f"/clusters/root:compute{WORKLOAD}/synctargets"


async def add(link: Link, name: str, **allocatable: str) -> None:
    await link.cluster.create(NODES, node(name, **allocatable))


async def says(link: Link, cpu: str) -> None:
    async def told() -> bool:
        return bool((await link.report())["allocatable"]["cpu"] == cpu)

    await link.eventually(told, f"allocatable {cpu}")


async def shown(link: Link) -> Obj:
    """What the SyncTarget shows."""
    found = await link.fleet.do("GET", f"{TARGETS}/florin")
    assert found is not None
    status: Obj = found["status"]
    return status


def reported(link: Link) -> list[Obj]:
    """What was told, without when: what was told twice was a sign of life."""
    found: list[Obj] = []
    for request in link.up.writes:
        if "/syncerconfigs/the-one/status" in request.target:
            status = orjson.loads(request.body)[-1]["value"]
            found.append({name: value for name, value in status.items() if name != "lastSyncerHeartbeatTime"})
    return [one for number, one in enumerate(found) if number == 0 or found[number - 1] != one]


def withheld(error: Exception) -> Any:
    async def gate(request: OutgoingRequest) -> None:
        if "/api/v1/nodes" in request.target:
            raise error

    return gate


FORBIDDEN = Forbidden(403, "Forbidden", "nodes is forbidden")


async def test_added_removed_and_cordoned_nodes_change_the_reported_capacity(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await says(link, "0")
        await add(link, "a")
        await add(link, "b", cpu="500m", memory="1Gi")
        await says(link, "4500m")
        await link.cluster.patch(NODES, "a", {"spec": {"unschedulable": True}})
        await says(link, "500m")
        report = await link.report()
        assert report["capacity"] == {"cpu": "4500m", "memory": "9Gi", "pods": "220"}
        assert report["nodes"] == {"all": 2, "usable": 1}
        await link.cluster.delete(NODES, "a")
        await says(link, "500m")

        async def is_shown() -> bool:
            status, wanted = await shown(link), {"cpu": "500m", "memory": "1Gi", "pods": "110"}
            return bool(status["allocatable"] == status["capacity"] == wanted)

        await link.eventually(is_shown, "the SyncTarget")


async def test_what_changes_nothing_about_the_sums_is_not_reported(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await add(link, "a")
        await says(link, "4")
        await link.settled()
        before = len(reported(link))
        for number in range(5):
            images = [{"names": [f"image-{number}"], "sizeBytes": 1}]
            await link.cluster.patch(NODES, "a", {"status": {"images": images}}, subresource="status")
        await add(link, "b", cpu="1")
        await says(link, "5")
        assert len(reported(link)) - before == 1


async def test_a_cluster_that_withholds_its_nodes_reports_none_and_why_and_counts_when_it_may(tmp_path: Path) -> None:
    async with linked(tmp_path, starts=False) as link:
        await add(link, "a")
        await link.start()
        await says(link, "4")
        await link.stop()
        link.down.gate = withheld(FORBIDDEN)
        await link.start()

        async def is_told() -> bool:
            report = await link.report()
            conditions = {one["type"]: one for one in report["conditions"]}
            return "allocatable" not in report and conditions["CapacityKnown"]["reason"] == "Forbidden"

        await link.eventually(is_told, "the refusal")

        async def is_not_shown() -> bool:
            return "allocatable" not in await shown(link)

        await link.eventually(is_not_shown, "the end of what was known")
        assert link.log.getvalue().count("reporting no capacity") == 1
        link.down.gate = None
        await says(link, "4")
        assert "CapacityKnown" not in {one["type"] for one in (await link.report())["conditions"]}


async def test_nodes_that_may_be_listed_and_not_watched_are_counted_again_and_again(tmp_path: Path) -> None:
    async with linked(tmp_path, starts=False) as link:

        async def gate(request: OutgoingRequest) -> None:
            if "/api/v1/nodes" in request.target and "watch=" in request.target:
                raise FORBIDDEN

        link.down.gate = gate
        await link.start()
        for name, cpu in (("a", "4"), ("b", "8")):
            await add(link, name)
            await says(link, cpu)
        assert all("allocatable" in one for one in reported(link)[1:])


async def test_a_cluster_that_cannot_be_reached_still_has_what_it_had(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await add(link, "a")
        await says(link, "4")
        await link.stop(forgetting=True)
        link.down.before = 10**9
        await link.start()

        async def is_cut_off() -> bool:
            conditions = {one["type"]: one["status"] for one in (await link.report())["conditions"]}
            return conditions["EdgeReachable"] == "False"

        await link.eventually(is_cut_off, "the report")
        assert (await link.report())["allocatable"]["cpu"] == "4"
        await link.cluster.delete(NODES, "a")
        link.down.before = 0
        await says(link, "0")


async def test_nodes_that_cannot_be_listed_now_are_no_reason_to_forget_what_they_had(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await add(link, "a")
        await says(link, "4")
        await link.stop()
        link.down.gate = withheld(Unreachable("the line broke"))
        await link.start()

        async def is_back() -> bool:
            assert link.syncer is not None
            return bool((await link.report())["syncer"]["started"]) and link.syncer.configured

        await link.eventually(is_back)
        assert (await link.report())["allocatable"]["cpu"] == "4"
        link.down.gate = withheld(NotFound(404, "NotFound", "the server could not find the requested resource"))

        async def is_gone() -> bool:
            return "allocatable" not in await link.report()

        await link.eventually(is_gone, "what a cluster without Nodes reports")
