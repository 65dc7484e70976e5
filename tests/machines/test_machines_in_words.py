"""The global scheduler, as its users see it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from hub_harness import MERGE_PATCH

from farflung.client.errors import NotFound
from farflung.client.transport import OutgoingRequest
from farflung.machines.engine.values import Capacity, Site, SiteKey
from farflung.machines.failover import FailoverOptions
from machines import ALLOCATIONS, CLUSTERS, PODS, Machines, allocation, cluster_spec, machine, machines

SOON = FailoverOptions(tolerated=0.0, vanished=0.0)


async def capacity(one: Machines, name: str, flavors: dict[str, int], **spec: Any) -> None:
    """Another one than before."""
    patch = {"spec": cluster_spec(flavors, **spec)}
    await one.of_home("PATCH", f"{CLUSTERS}/{name}", patch, content_type=MERGE_PATCH)


def is_binding(request: OutgoingRequest) -> bool:
    return "/binding" in request.target


async def test_a_machine_is_bound_to_a_cluster_and_what_was_decided_is_recorded() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 1})
        await one.machine("vm")
        assert await one.bound("vm") == "az1"
        pod = await one.pod("vm")
        assert pod["spec"]["clusterName"] == "az1"
        assert pod["status"]["phase"] == "Pending"
        assert {c["type"]: c["status"] for c in pod["status"]["conditions"]} == {"PodScheduled": "True"}
        noted = pod["metadata"]["annotations"]
        assert noted["globalscheduler.com/cluster"] == f"{one.home}|default/az1"
        assert noted["globalscheduler.com/flavor-id"] == "small"
        assert noted["globalscheduler.com/site-id"] == "r1--az1"
        assert 0 <= float(noted["globalscheduler.com/score"]) <= 100


async def test_exactly_as_many_fit_as_there_is_room_and_the_next_gets_the_place_of_one_that_goes() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 2})
        for name in ("a", "b", "c"):
            await one.machine(name)
        assert {await one.bound(name) for name in ("a", "b")} == {"az1"}
        assert await one.refused("c") == "0/1 clusters fit: 1 out of small"
        await one.fleet.eventually(lambda: has_event(one, "c", "FailedScheduling"), "the event")
        await one.of_shop("DELETE", f"{PODS}/a")
        assert await one.bound("c") == "az1"
        conditions = (await one.pod("c"))["status"]["conditions"]
        assert [c["status"] for c in conditions if c["type"] == "PodScheduled"] == ["True"]


async def has_event(one: Machines, name: str, reason: str) -> bool:
    return reason in [told for told, _ in await one.events(name)]


async def test_what_has_ended_holds_nothing() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 1})
        await one.machine("a")
        await one.bound("a")
        await one.machine("b")
        await one.refused("b")
        ended = {"status": {"phase": "Failed"}}
        await one.of_shop("PATCH", f"{PODS}/a/status", ended, content_type=MERGE_PATCH)
        assert await one.bound("b") == "az1"


async def test_clusters_that_come_grow_and_go_while_machines_wait() -> None:
    async with machines() as one:
        await one.machine("a")
        assert await one.refused("a") == "there are no clusters"
        await one.cluster("az1", {"small": 1})
        assert await one.bound("a") == "az1"
        await one.machine("b")
        await one.refused("b")
        await capacity(one, "az1", {"small": 2})
        assert await one.bound("b") == "az1"
        await one.machine("c")
        assert await one.refused("c") == "0/1 clusters fit: 1 out of small"  # a change keeps what is used
        await one.of_home("DELETE", f"{CLUSTERS}/az1")
        await one.cluster("az2", {"small": 1}, zone="az2")
        assert await one.bound("c") == "az2"


async def test_an_invalid_machine_reports_its_reason_and_delays_no_other() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 1})
        wrong = {"clusterAffinity": {"required": [{"key": "x", "operator": "in", "values": []}]}}
        await one.machine("wrong", selector=wrong)
        await one.machine("right")
        assert await one.bound("right") == "az1"
        assert "clusterAffinity" in await one.refused("wrong")


async def test_pods_with_containers_and_those_of_other_schedulers_are_left_alone() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 5})
        plain = {"containers": [{"name": "main", "image": "x"}]}
        await one.of_shop("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": plain})
        await one.machine("other", schedulerName="mine")
        await one.machine("gated", schedulingGates=[{"name": "x"}])
        await one.machine("vm")
        await one.bound("vm")
        await one.at_rest()
        found = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in await one.pods()}
        assert found == {"p": None, "other": None, "gated": None, "vm": "az1"}


async def test_what_others_bound_counts_too() -> None:
    async with machines(start=False) as one:
        await one.cluster("az1", {"small": 1})
        await one.of_shop("POST", PODS, machine("theirs", nodeName="az1"))
        await one.start()
        await one.machine("ours")
        assert await one.refused("ours") == "0/1 clusters fit: 1 out of small"
        await one.of_shop("DELETE", f"{PODS}/theirs")
        assert await one.bound("ours") == "az1"


async def test_after_a_restart_usage_is_known_and_nothing_is_bound_twice() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 2})
        await one.of_shop("POST", ALLOCATIONS, allocation("stack", {"small": 1}))
        await one.allocated("stack")
        await one.machine("a")
        await one.bound("a")
        await one.fleet.crash()
        await one.machine("b")
        before = await one.pod("a")
        await one.start()
        assert await one.refused("b") == "0/1 clusters fit: 1 out of small"
        assert await one.pod("a") == before


async def test_a_bind_that_is_refused_or_lost_is_settled_before_anything_else_is_tried() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 3})
        one.fleet.masters.after = 1
        await one.machine("lost")  # bound, and the answer does not arrive
        assert await one.bound("lost") == "az1"
        await one.at_rest()
        one.fleet.masters.before = 2
        await one.machine("cut")
        assert await one.bound("cut") == "az1"
        await one.at_rest()
        assert (await one.used())["az1", "small"] == 2

        patch = {"spec": {"nodeName": "elsewhere"}}  # somebody binds it in the last moment
        one.interpose(is_binding, lambda: one.of_shop("PATCH", f"{PODS}/theirs", patch, content_type=MERGE_PATCH))
        await one.machine("theirs")
        assert await one.bound("theirs") == "elsewhere"
        await one.at_rest()
        await one.machine("third")
        assert await one.bound("third") == "az1"


async def test_a_machine_that_is_deleted_while_it_is_bound_leaves_nothing_behind() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 1})

        one.interpose(is_binding, lambda: one.of_shop("DELETE", f"{PODS}/a"))
        await one.machine("a")
        await one.machine("b")
        assert await one.bound("b") == "az1"


async def test_a_machine_that_is_edited_while_it_is_bound_takes_no_more_than_there_is() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 3})
        patch = {"spec": {"virtualMachine": machine("a", count=3)["spec"]["virtualMachine"]}}
        one.interpose(is_binding, lambda: one.of_shop("PATCH", f"{PODS}/a", patch, content_type=MERGE_PATCH))
        await one.machine("a")
        assert await one.bound("a") == "az1"
        await one.machine("b")
        assert await one.refused("b") == "0/1 clusters fit: 1 out of small"


async def test_machines_of_a_cluster_deleted_during_downtime_are_bound_elsewhere() -> None:
    async with machines(failover=SOON) as one:
        await one.cluster("az1", {"small": 1})
        await one.machine("a")
        await one.bound("a")
        await one.fleet.crash()
        await one.of_home("DELETE", f"{CLUSTERS}/az1")
        await one.cluster("az2", {"small": 1})
        await one.start()

        async def elsewhere() -> bool:
            return bool((await one.pod("a"))["spec"].get("nodeName") == "az2")

        await one.fleet.eventually(elsewhere, "another place")


async def test_a_binding_to_which_the_server_answers_404_is_tried_again() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 1})
        asked: list[str] = []

        async def gone(request: OutgoingRequest) -> None:
            if f"{PODS}/a" in request.target and request.method != "GET":
                asked.append(request.target)
                if len(asked) <= 2:
                    raise NotFound(404, "NotFound", "no such workspace")

        one.fleet.masters.gate = gone
        await one.machine("a")
        assert await one.bound("a") == "az1"
        assert ["/binding" in target for target in asked] == [True, True, True]


async def test_nothing_is_written_when_nothing_changes() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 1})
        await one.machine("a")
        await one.bound("a")
        await one.machine("b")
        await one.refused("b")
        await settled(one)
        writes = len(one.fleet.masters.writes) + len(one.fleet.transport.writes)
        patch = {"metadata": {"labels": {"x": "y"}}}
        await one.of_shop("PATCH", f"{PODS}/b", patch, content_type=MERGE_PATCH)  # asked again, with the same answer
        await capacity(one, "az1", {"small": 1}, ipaddress="10.0.0.1")
        await settled(one)
        assert len(one.fleet.masters.writes) + len(one.fleet.transport.writes) <= writes + 1  # observedGeneration


async def settled(one: Machines) -> None:
    """Until the hub was left alone for a while."""
    last = -1
    while last != one.fleet.hub.store.revision:
        last = one.fleet.hub.store.revision
        for _ in range(200):
            await asyncio.sleep(0)
        await one.at_rest()


# --- Allocations ----------------------------------------------------------------------------------


async def test_a_stack_lands_in_one_cluster_and_its_replicas_may_spread() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 4, "large": 1}, zone="az1")
        await one.cluster("az2", {"small": 4, "large": 1}, zone="az2")
        await one.cluster("az3", {"small": 9}, zone="az3")
        await one.of_shop("POST", ALLOCATIONS, allocation("two", {"small": 2}, {"large": 1}, replicas=2))
        assert sorted(await one.allocated("two")) == ["az1", "az2"]
        status = (await one.allocation("two"))["status"]
        assert [placement["flavors"] for placement in status["placements"]] == [["small", "large"]] * 2
        assert await one.used() == Counter(
            {(az, f): n for az in ("az1", "az2") for f, n in (("small", 2), ("large", 1))}
        )


async def test_more_replicas_than_fit_reserve_nothing_and_are_placed_when_they_fit() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 3})
        await one.of_shop("POST", ALLOCATIONS, allocation("many", {"small": 1}, replicas=4))
        await one.refused("many", "allocation")
        assert (await one.allocation("many"))["status"]["phase"] == "NotScheduled"
        for name in ("a", "b", "c"):
            await one.machine(name)
        assert {await one.bound(name) for name in ("a", "b", "c")} == {"az1"}
        await one.cluster("az2", {"small": 4}, zone="az2")
        assert await one.allocated("many") == ["az2"] * 4


async def test_an_allocation_that_is_edited_stays_where_it_can() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 2})
        await one.of_shop("POST", ALLOCATIONS, allocation("stack", {"small": 1}))
        assert await one.allocated("stack") == ["az1"]
        await one.cluster("az2", {"small": 9}, zone="az2")
        await grow(one, 2)
        assert await one.allocated("stack") == ["az1", "az1"]
        await grow(one, 12)
        assert "replicas" in await one.refused("stack", "allocation")
        assert (await one.allocation("stack"))["status"]["phase"] == "Bound"  # what is placed stays
        await grow(one, 1)
        assert await one.allocated("stack") == ["az1"]
        await one.of_shop("DELETE", f"{ALLOCATIONS}/stack")
        await one.machine("big", count=2, selector={"siteID": "az1"})
        assert await one.bound("big") == "az1"


async def grow(one: Machines, replicas: int) -> None:
    patch = {"spec": {"replicas": replicas}}
    await one.of_shop("PATCH", f"{ALLOCATIONS}/stack", patch, content_type=MERGE_PATCH)


# --- Clusters -------------------------------------------------------------------------------------


async def test_a_cluster_says_what_is_bound_to_it() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 3})
        await one.machine("a", count=2)
        await one.bound("a")

        async def is_told() -> bool:
            status = (await one.clusters())[0].get("status", {})
            return bool(status.get("stacks") == 1)

        await one.fleet.eventually(is_told, "the usage")
        status = (await one.clusters())[0]["status"]
        assert status["used"] == {"flavors": {"small": 2}, "vcpus": 2, "memory": 2048, "storage": {}, "eips": 0}
        assert status["phase"] == "Ready"


async def test_a_cluster_that_is_down_for_too_long_loses_its_stacks_to_others() -> None:
    async with machines(failover=SOON) as one:
        for name in ("az1", "az2", "az3"):
            await one.cluster(name, {"small": 4}, zone=name)
        await one.machine("a", selector={"regions": [{"region": "r1", "availabilityZone": ["az1", "az2"]}]})
        await one.of_shop("POST", ALLOCATIONS, allocation("s", {"small": 2}))
        patient = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]
        first, (stack,) = await one.bound("a"), await one.allocated("s")
        await one.machine("patient", tolerations=patient, selector={"siteID": first})
        await one.bound("patient")
        for name in {first, stack}:
            await one.phase(name, "Down")
            await one.fleet.eventually(lambda name=name: moved(one, name), f"everything left {name}")
            await one.phase(name, "Ready")
        assert (await one.pod("patient"))["spec"]["nodeName"] == first


async def moved(one: Machines, name: str) -> bool:
    pod, stack = await one.pod("a"), await one.allocation("s")
    places = [pod["spec"].get("nodeName"), *stack["status"]["cluster_names"]]
    return None not in places and name not in places


async def test_nothing_leaves_while_most_clusters_seem_down() -> None:
    async with machines(failover=SOON) as one:
        for name in ("az1", "az2", "az3"):
            await one.cluster(name, {"small": 1}, zone=name)
        await one.machine("a")
        home = await one.bound("a")
        for name in ("az1", "az2", "az3"):
            if name == home or name != "az3":
                await one.phase(name, "Unreachable")
        scheduler = one.fleet.global_scheduler
        assert scheduler is not None
        await one.fleet.eventually(lambda: len(scheduler.state.unhealthy) >= 2, "the outage")
        assert scheduler.state.due_evictions(1e9) == []


async def test_a_machine_whose_cluster_is_no_more_is_placed_elsewhere() -> None:
    async with machines(failover=SOON) as one:
        for name in ("az1", "az2", "az3"):
            await one.cluster(name, {"small": 1}, zone=name)
        await one.machine("a")
        home = await one.bound("a")
        await one.of_home("DELETE", f"{CLUSTERS}/{home}")

        async def elsewhere() -> bool:
            return bool((await one.pod("a"))["spec"].get("nodeName", home) != home)

        await one.fleet.eventually(elsewhere, "another place")


async def test_sites_of_files_stand_beside_clusters() -> None:
    site = Site(SiteKey("", "", "az9"), region="r9", zone="az9", capacity=Capacity({"small": 1}))
    async with machines(sites=(site,)) as one:
        await one.cluster("az1", {"small": 1})
        await one.machine("a", selector={"regions": [{"region": "r9"}]})
        assert await one.bound("a") == "az9"
        await one.restart()
        await one.machine("b", selector={"regions": [{"region": "r9"}]})
        assert await one.refused("b") == "0/2 clusters fit: 1 out of small, 1 wrong region"
