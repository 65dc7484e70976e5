"""Which machines are where, and of several workspaces never two of the same name at one SyncTarget."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from farflung.machines.decide import MachineLocations
from farflung.machines.engine.values import SiteKey
from farflung.runtime.cache import Key
from machines import PODS, Machines, machine, machines, report

SITES = [SiteKey("clouds", "default", name) for name in ("az1", "az2", "az3")]
MACHINES = [Key(cluster, "default", name) for cluster in ("shop", "bank") for name in ("a", "b")]
STEPS = st.lists(
    st.tuples(st.just("lead"), st.sampled_from(SITES), st.sampled_from([None, "edge1", "edge2"]))
    | st.tuples(st.just("move"), st.sampled_from(MACHINES), st.sampled_from([None, *SITES]))
)


@given(STEPS)
def test_whatever_happened_a_name_is_taken_where_another_one_has_it(steps: list[tuple[str, Any, Any]]) -> None:
    one, targets, places = MachineLocations(), dict[SiteKey, Hashable](), dict[Key, SiteKey]()
    for what, who, where in steps:
        if what == "lead":
            one.set_target(who, where)
            targets[who] = where
            continue
        if who in places:
            one.remove(who, places.pop(who))
        if where is not None:
            one.add(who, where)
            places[who] = where
    for machine_ in MACHINES:
        others = {targets.get(site) for key, site in places.items() if key[1:] == machine_[1:] and key != machine_}
        expected = {site for site, target in targets.items() if target is not None and target in others}
        assert one.conflicting_sites(machine_) == expected
    for site in SITES:
        assert one.workspaces(site) == {key.cluster for key, place in places.items() if place == site}


async def test_a_machine_does_not_go_where_it_would_become_one_with_that_of_another_workspace() -> None:
    async with machines() as one:
        imw = await one.fleet.hub.workspace("imw")
        await one.fleet.target(imw, "edge1", {})
        await report(one, imw, ago=timedelta(0))
        for name in ("az1", "az2"):
            await one.cluster(name, {"small": 3}, zone=name, synctarget={"workspace": imw, "name": "edge1"})
        await one.machine("a")
        await one.bound("a")
        await one.of_home("POST", PODS, machine("a"))
        await one.of_home("POST", PODS, machine("b"))

        async def is_told() -> bool:
            return await said(one, "a") == "0/2 clusters fit: 1 has a machine of that name, 1 sold out"

        await one.fleet.eventually(is_told, "why not")
        await one.fleet.eventually(lambda: is_bound(one, "b"), "that others go there")
        await one.of_shop("DELETE", f"{PODS}/a")
        await one.fleet.eventually(lambda: is_bound(one, "a"), "that it goes there when the name is free")


async def said(one: Machines, name: str) -> str:
    conditions = (await one.of_home("GET", f"{PODS}/{name}")).get("status", {}).get("conditions", ())
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


async def is_bound(one: Machines, name: str) -> bool:
    return bool((await one.of_home("GET", f"{PODS}/{name}"))["spec"].get("nodeName"))
