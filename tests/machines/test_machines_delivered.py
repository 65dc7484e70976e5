"""Clusters that SyncTargets stand for: what is bound to them is brought there, and they are as well as those."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from fleet import EDGE
from hub_harness import MERGE_PATCH
from platform_harness import MASTER

from farflung.machinery import names
from farflung.machinery.errors import Obj
from farflung.machines import statuses
from farflung.machines.engine.values import SiteKey
from machines import CLUSTERS, PODS, Machines, bind_edge, machines, report

LABEL = "globalscheduler.com/cluster"
PLACEMENTS = "/apis/edge.kcp.io/v1alpha1/edgeplacements"


async def slices(one: Machines) -> list[Obj]:
    path = f"/clusters/{one.shop}{EDGE}/singleplacementslices"
    answer = await one.fleet.hub.of(MASTER, "GET", path)
    return [place for each in answer.json["items"] for place in each["destinations"]]


async def test_what_is_bound_is_led_to_the_synctarget_of_its_cluster_and_to_no_other() -> None:
    async with machines(start=False) as one:
        fleet = one.fleet
        imw = await fleet.hub.workspace("imw")
        await bind_edge(fleet, one.shop)
        for name in ("edge1", "edge2"):
            await fleet.target(imw, name, {"id": name})
        await fleet.location(imw, "all", {"env": "prod"}, {})
        await fleet.start(scheduler=True, globals=True)
        await one.cluster("az1", {"small": 9}, synctarget={"workspace": "root:imw", "name": "edge1"})
        await report(one, imw, ago=timedelta(0))
        for name in ("a", "b"):
            await one.machine(name)
            assert await one.bound(name) == "az1"
        await one.machine("c")
        assert await one.refused("c") == "0/1 clusters fit: 1 out of vcpus"  # of which its syncer reports two
        label = statuses.delivery_label(SiteKey(one.home, "default", "az1"))
        assert (await one.pod("a"))["metadata"]["labels"] == {LABEL: label}

        async def leads_to(name: str) -> bool:
            return {place["syncTargetName"] for place in await slices(one)} == {name}

        for name in ("edge1", "edge2", "edge1"):  # whichever stands for it, what is there follows
            patch = {"spec": {"synctarget": {"workspace": "root:imw", "name": name}}}
            await one.of_home("PATCH", f"{CLUSTERS}/az1", patch, content_type=MERGE_PATCH)
            await fleet.eventually(partial(leads_to, name), f"the way to {name}")
        placement = await one.of_shop("GET", f"{PLACEMENTS}/global-scheduler-{label}")
        assert placement["spec"]["downsync"] == [
            {"apiGroup": "", "resources": ["pods"], "labelSelectors": [{"matchLabels": {LABEL: label}}]}
        ]
        await report(one, imw, ago=timedelta(hours=1))

        async def is_told() -> bool:
            return bool((await one.clusters())[0]["status"]["phase"] == "Unreachable")

        await fleet.eventually(is_told, "the phase")
        await fleet.crash()
        await fleet.start(scheduler=True, globals=True)
        await one.at_rest()
        after = await one.of_shop("GET", f"{PLACEMENTS}/global-scheduler-{label}")
        assert after["metadata"]["uid"] == placement["metadata"]["uid"]  # what is at the edge was not taken away
        for name in ("a", "b", "c"):
            await one.of_shop("DELETE", f"{PODS}/{name}")

        async def is_gone() -> bool:
            return not (await one.of_shop("GET", PLACEMENTS))["items"]

        await fleet.eventually(is_gone, "the end of the placement")


async def test_every_cluster_hears_of_its_synctarget_however_many_name_the_same_workspace() -> None:
    async with machines(start=False) as one:
        fleet, several = one.fleet, [f"edge{number}" for number in range(1, 13)]
        for name in several:
            await one.cluster(name, {"small": 1}, synctarget={"workspace": "root:imw", "name": name})
        await one.start()

        async def phases() -> set[str]:
            return {cluster.get("status", {}).get("phase", "") for cluster in await one.clusters()}

        async def is_offline() -> bool:
            return await phases() == {"Offline"}

        await fleet.eventually(is_offline, "nobody there")
        imw = await fleet.hub.workspace("imw")
        for name in several:
            await fleet.target(imw, name, {"id": name})
        await one.restart()

        async def is_known() -> bool:
            return "Offline" not in await phases()

        await fleet.eventually(is_known, "all of them")


async def test_a_cluster_says_what_is_missing_of_its_synctarget() -> None:
    async with machines(start=False) as one:
        imw = await one.fleet.hub.workspace("imw")
        await one.cluster("az1", {"small": 1}, synctarget={"workspace": "root:imw", "name": "egde1"})
        await one.cluster("az2", {"small": 1}, zone="az2", synctarget={"workspace": "root:iwm", "name": "edge1"})
        await one.cluster("az3", {"small": 1}, zone="az3", synctarget={"workspace": imw, "name": "edge1"})
        await one.cluster("az4", {"small": 1}, zone="az4", synctarget={"name": "edge1"})
        await one.start()

        async def is_said() -> bool:
            conditions = [cluster.get("status", {}).get("conditions", ()) for cluster in await one.clusters()]
            return [c.get("message") for several in conditions for c in several if c["type"] == "SyncTarget"] == [
                "no SyncTarget egde1 in the workspace root:imw",
                "no workspace root:iwm",
                f"no SyncTarget edge1 in the workspace {imw}",
                "no SyncTarget edge1 in the workspace of the Cluster",
            ]

        await one.fleet.eventually(is_said, "what is missing")


async def test_a_cluster_that_no_synctarget_stands_for_any_more_is_not_what_that_said_last() -> None:
    async with machines(start=False) as one:
        imw = await one.fleet.hub.workspace("imw")
        await one.fleet.target(imw, "edge1", {})
        await report(one, imw, ago=timedelta(hours=1))
        await one.cluster("az1", {"small": 1}, synctarget={"workspace": imw, "name": "edge1"})
        await one.cluster("az2", {"small": 1}, zone="az2", synctarget={"workspace": imw, "name": "edge2"})
        await one.start()

        async def said() -> dict[str, tuple[str, str]]:
            found = {}
            for cluster in await one.clusters():
                status = cluster.get("status", {})
                targets = [c["reason"] for c in status.get("conditions", ()) if c["type"] == "SyncTarget"]
                found[cluster["metadata"]["name"]] = status.get("phase", ""), "".join(targets)
            return found

        async def is_judged() -> bool:
            return await said() == {"az1": ("Unreachable", "Found"), "az2": ("Offline", "NotFound")}

        await one.fleet.eventually(is_judged, "what SyncTargets say")
        await one.machine("a")
        assert await one.refused("a") == "0/2 clusters fit: 2 not ready"
        await one.fleet.crash()
        for name in ("az1", "az2"):
            patch = {"spec": {"synctarget": None}}
            await one.of_home("PATCH", f"{CLUSTERS}/{name}", patch, content_type=MERGE_PATCH)
        await one.start()
        await one.bound("a")

        async def is_forgotten() -> bool:
            return await said() == {"az1": ("Ready", ""), "az2": ("Ready", "")}

        await one.fleet.eventually(is_forgotten, "that nobody says anything")
        await one.phase("az1", "Down")  # which somebody else says, and stays
        await one.at_rest()
        assert (await said())["az1"][0] == "Down"


def test_clusters_that_have_the_same_name_share_no_label() -> None:
    keys = [SiteKey(*key) for key in (("a", "b", "az1"), ("a", "c", "az1"), ("b", "b", "az1"), ("a", "b", "a" * 253))]
    labels = {statuses.delivery_label(key) for key in keys}
    assert len(labels) == 4
    assert all(not names.label_value(label) for label in labels)
