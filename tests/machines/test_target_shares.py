"""Clusters that name the same SyncTarget."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from hub_harness import MERGE_PATCH
from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery.errors import Obj
from farflung.machines.engine.sites import SiteUsage
from farflung.machines.engine.values import SiteKey
from farflung.machines.triggers import TargetShares
from farflung.runtime.cache import Key
from machines import CLUSTERS, PODS, Machines, machines, report

TARGET = Key("imw", "", "edge1")
TIMES = [f"2026-01-01T00:00:0{second}Z" for second in range(3)]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(TIMES)), max_size=20))
def test_whoever_was_there_first_has_it_and_all_hear_of_another_first(history: list[tuple[int, str]]) -> None:
    sharing, known = TargetShares(), dict[SiteKey, str]()
    for number, created in history:
        site, before = SiteKey("home", "default", f"az{number}"), sharing.users(TARGET)
        if site in known:
            told = sharing.remove(TARGET, known.pop(site), site)
        else:
            known[site] = created
            told = sharing.add(TARGET, created, site)
        assert sharing.users(TARGET) == sorted(known, key=lambda one: (known[one], one))
        if sharing.users(TARGET)[:1] != before[:1]:
            assert set(told) == set(known)
        firsts = [one for one in known if sharing.share(TARGET, one, lambda key: SiteUsage()).first is None]
        assert firsts == sharing.users(TARGET)[:1]


async def said(one: Machines, name: str) -> Obj:
    conditions = (await one.of_home("GET", f"{CLUSTERS}/{name}")).get("status", {}).get("conditions", ())
    return next((condition for condition in conditions if condition["type"] == "SyncTarget"), {})


async def test_two_clusters_are_not_both_given_the_room_of_one_synctarget() -> None:
    async with machines(start=False) as one:
        imw = await one.fleet.hub.workspace("imw")
        await one.fleet.target(imw, "edge1", {})
        await report(one, imw, ago=timedelta(0), cpu="2")
        await one.cluster("az2", {"small": 9}, synctarget={"workspace": "root:imw", "name": "edge1"})
        await one.cluster("az1", {"large": 9}, zone="az1", synctarget={"workspace": "root:imw", "name": "edge2"})
        await one.start()
        await one.machine("a")
        assert await one.bound("a") == "az2"
        await one.of_home("DELETE", f"{CLUSTERS}/az1")
        one.fleet.hub.now += timedelta(seconds=2)
        await one.cluster("az1", {"small": 9}, zone="az1", synctarget={"workspace": imw, "name": "edge1"})

        async def reason_is(name: str, reason: str) -> bool:
            return bool((await said(one, name)).get("reason") == reason)

        for _ in range(2):
            await one.fleet.eventually(partial(reason_is, "az1", "Taken"), "which of them has it")
            assert "SyncTarget edge1 already represents the Cluster default/az2 " in (await said(one, "az1"))["message"]
            assert (await said(one, "az2"))["status"] == "True"
            await one.restart()
            await one.at_rest()
        await one.machine("b")
        assert await one.bound("b") == "az2"
        await one.machine("c")
        assert await one.refused("c") == "0/2 clusters fit: 1 out of vcpus, 1 sold out"
        patch = {"spec": {"synctarget": {"workspace": imw, "name": "edge3"}}}
        await one.of_home("PATCH", f"{CLUSTERS}/az2", patch, content_type=MERGE_PATCH)
        assert await one.bound("c") == "az1"
        await one.fleet.eventually(partial(reason_is, "az1", "Found"), "that it has it now")
        patch["spec"]["synctarget"]["name"] = "edge1"  # the first is back, and c has one of its two
        await one.of_home("PATCH", f"{CLUSTERS}/az2", patch, content_type=MERGE_PATCH)
        await one.fleet.eventually(partial(reason_is, "az1", "Taken"), "that it is taken again")
        await one.of_shop("DELETE", f"{PODS}/b")
        await one.machine("d")
        assert await one.refused("d") == "0/2 clusters fit: 1 out of vcpus, 1 sold out"
        await one.of_shop("DELETE", f"{PODS}/c")
        assert await one.bound("d") == "az2"
