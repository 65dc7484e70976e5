"""Machines at the edges that stand for their Clusters: brought there, run there, refused there, and gone from there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from fleet import EDGE
from house import House, SilentNodes
from hub_harness import MERGE_PATCH
from machine_edges import MachineRoom, linked_machines, machine_room, of_type, phase_is
from platform_harness import MASTER, OPERATOR
from syncing import Link

from farflung.client import transport
from farflung.client.errors import Unreachable
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.machines.failover import FailoverOptions
from machines import CLUSTERS, PODS, Machines, bind_edge, machine, machines, report

BOTH = "the Cluster refused the last 3 machines, all of 2 workspaces; "
WHY = "the syncer cannot apply it to az1: the cluster supports no virtual machines: .*field not declared in schema.*"
AGAIN = "not tried there again before 20..-..-..T..:..:..Z"


async def test_a_machine_is_run_at_the_edge_of_its_cluster_and_says_so_until_it_is_deleted(tmp_path: Path) -> None:
    async with machine_room() as edge, linked_machines(tmp_path, edge) as (one, link):
        made = await one.machine("a")
        assert await one.bound("a") == "az1"
        await one.machine("b")
        assert await one.refused("b") == "0/1 clusters fit: 1 out of small"  # a copy takes nothing
        there = await link.eventually(lambda: edge.ask("GET", f"{PODS}/a"), "the machine at the edge")
        assert there["spec"]["virtualMachine"] == made["spec"]["virtualMachine"]
        assert there["spec"]["clusterName"] == "az1"
        assert "nodeName" not in there["spec"]  # which is up to the edge
        assert there["metadata"]["annotations"]["globalscheduler.com/flavor-id"] == "small"
        await edge.says("a", "Running")
        await one.fleet.eventually(phase_is(one, "a", "Running"), "the phase")
        pod = await one.pod("a")
        assert pod["metadata"]["annotations"]["edge.kcp.io/status-returned-from"] == "edge1"
        assert pod["status"]["hostIP"] == "10.1.1.1"
        assert of_type(pod, "PodScheduled")["status"] == "True"
        await a_refused_change_moves_nothing(one, link)
        await edge.says("a", "Failed")
        await one.fleet.eventually(phase_is(one, "a", "Failed"), "the end")
        assert await one.bound("b") == "az1"  # what has ended holds nothing
        await link.eventually(lambda: edge.ask("GET", f"{PODS}/b"), "the next machine at the edge")
        assert await edge.ask("GET", f"{PODS}/a") is not None  # somebody may want to know why
        assert (await one.pod("a"))["status"]["phase"] == "Failed"
        for name in ("a", "b"):
            await one.of_shop("DELETE", f"{PODS}/{name}")
            await link.eventually(lambda name=name: is_gone(edge, name), f"the end of {name} at the edge")


async def a_refused_change_moves_nothing(one: Machines, link: Link) -> None:
    """Of a machine that runs."""
    await link.stop()
    problem = {"group": "", "resource": "pods", "namespace": "default", "name": "a", "direction": "down"}
    problem |= {"reason": "Invalid", "message": "spec.image: is immutable", "tries": 1}
    path = f"/clusters/{link.path}{EDGE}/syncerconfigs/the-one/status"
    patch = {"status": {"problems": [problem]}}
    assert (await one.fleet.hub.of(MASTER, "PATCH", path, patch, content_type=MERGE_PATCH)).status == 200

    async def is_told() -> bool:
        return of_type(await one.pod("a"), "Delivered").get("reason") == "Invalid"

    await one.fleet.eventually(is_told, "what is wrong")
    scheduler = one.fleet.global_scheduler
    assert scheduler is not None
    assert not scheduler.state.may_evict
    await link.start()


async def is_gone(edge: MachineRoom, name: str) -> bool:
    return await edge.ask("GET", f"{PODS}/{name}") is None


async def test_a_machine_that_its_edge_refuses_says_so_and_goes_elsewhere_and_does_not_come_back(
    tmp_path: Path,
) -> None:
    async with House(nodes=SilentNodes()) as edge, linked_machines(tmp_path, edge) as (one, _):
        await one.machine("a")
        assert await one.bound("a") == "az1"

        async def refused() -> bool:
            told = of_type(await one.pod("a"), "PodScheduled").get("message", "")
            return bool(re.fullmatch(rf"0/1 clusters fit: 1 refused it \({WHY}; {AGAIN}\)", told))

        await one.fleet.eventually(refused, "no place, because it is not brought there again at once")
        assert (await one.used())["az1", "small"] == 0
        reasons = {"FailedDelivery", "Evicted", "FailedScheduling"}

        async def are_told() -> bool:
            return reasons <= {reason for reason, _ in await one.events("a")}

        await one.fleet.eventually(are_told, "the events")
        messages = dict(await one.events("a"))
        assert messages["FailedDelivery"].startswith(
            "the syncer cannot apply it to az1: the cluster supports no virtual machines"
        )
        assert "field not declared in schema" in messages["FailedDelivery"]
        assert messages["Evicted"] == "Evicted from default/az1: the Cluster refused it"
        noted = (await one.pod("a"))["metadata"]["annotations"]["globalscheduler.com/refused-by"]
        assert noted.rpartition("=")[0] == f"{one.home}|default/az1"  # once, or more often where this takes long
        await start_again(one)
        await one.cluster("az2", {"small": 1}, zone="az2")

        async def is_elsewhere() -> bool:
            return bool((await one.pod("a"))["spec"].get("nodeName") == "az2")

        await one.fleet.eventually(is_elsewhere, "another place")

        async def is_clean() -> bool:
            return not of_type(await one.pod("a"), "Delivered")

        await one.fleet.eventually(is_clean, "nothing wrong any more")
        assert of_type(await one.pod("a"), "PodScheduled")["status"] == "True"


async def start_again(one: Machines) -> None:
    await one.fleet.crash()
    await one.fleet.start(scheduler=True, mailboxes=True, translator=True, summarizer=True, globals=True)


async def deleted_while_its_edge_is_away(one: Machines, link: Link, edge: MachineRoom) -> None:
    """A machine, with another one that asks for its room."""
    await one.machine("a")
    assert await one.bound("a") == "az1"
    await link.eventually(lambda: edge.ask("GET", f"{PODS}/a"), "the machine at the edge")
    await edge.says("a", "Running")
    await one.fleet.eventually(phase_is(one, "a", "Running"), "the phase")
    await link.stop()
    await one.of_shop("DELETE", f"{PODS}/a")
    await one.machine("b")


async def test_a_machine_that_was_deleted_keeps_its_room_until_its_edge_has_stopped_it(tmp_path: Path) -> None:
    forever = FailoverOptions(refused=0.0, vanished=0.0, tolerated=1e9)
    async with machine_room() as edge, linked_machines(tmp_path, edge, failover=forever) as (one, link):
        await deleted_while_its_edge_is_away(one, link, edge)
        assert await one.refused("b") == "0/1 clusters fit: 1 out of small"
        await start_again(one)
        await one.machine("c")
        assert await one.refused("c") == "0/1 clusters fit: 1 out of small"
        assert await edge.ask("GET", f"{PODS}/a") is not None
        await link.start()
        await link.eventually(lambda: is_gone(edge, "a"), "the end of the machine")

        async def is_one_bound() -> bool:
            return len([pod for pod in await one.pods() if pod["spec"].get("nodeName")]) == 1

        await one.fleet.eventually(is_one_bound, "that one of them has its room")


async def test_an_edge_that_is_away_for_too_long_does_not_keep_the_room_of_what_was_deleted(tmp_path: Path) -> None:
    soon = FailoverOptions(refused=0.0, vanished=0.0, tolerated=20.0)
    async with machine_room() as edge, linked_machines(tmp_path, edge, failover=soon) as (one, link):
        await deleted_while_its_edge_is_away(one, link, edge)
        assert await one.bound("b") == "az1"
        assert await edge.ask("GET", f"{PODS}/a") is not None


async def test_a_machine_that_comes_back_before_its_copy_is_withdrawn_has_its_room_once(tmp_path: Path) -> None:
    forever = FailoverOptions(refused=0.0, vanished=0.0, tolerated=1e9)
    async with machine_room() as edge, linked_machines(tmp_path, edge, room=2, failover=forever) as (one, link):
        await one.machine("a")
        assert await one.bound("a") == "az1"
        await link.eventually(lambda: edge.ask("GET", f"{PODS}/a"), "the machine at the edge")

        async def withdraw_nothing(request: transport.OutgoingRequest) -> None:
            if request.method == "DELETE":
                raise Unreachable("the line broke")

        one.fleet.transport.gate = one.fleet.masters.gate = withdraw_nothing
        noted = {"globalscheduler.com/cluster": None}
        unbound = {"metadata": {"annotations": noted, "labels": noted}, "spec": {"nodeName": None, "clusterName": None}}
        await one.of_shop("PATCH", f"{PODS}/a", unbound, content_type=MERGE_PATCH)
        assert await one.bound("a") == "az1"
        one.fleet.transport.gate = one.fleet.masters.gate = None
        await one.machine("b")
        assert await one.bound("b") == "az1"


async def taking(one: Machines) -> Obj:
    """What its Cluster says of whether it takes machines."""
    return of_type((await one.clusters())[0], "TakesMachines")


async def test_a_cluster_that_took_none_of_several_machines_is_avoided_by_all_also_after_a_restart(
    tmp_path: Path,
) -> None:
    async with House(nodes=SilentNodes()) as edge, linked_machines(tmp_path, edge, room=9) as (one, _):
        for name in ("a", "b", "c"):
            await one.machine(name)

            async def is_refused(name: str = name) -> bool:
                return "1 refused it (" in of_type(await one.pod(name), "PodScheduled").get("message", "")

            await one.fleet.eventually(is_refused, f"that {name} is not taken")

        async def is_told() -> bool:
            return (await taking(one)).get("reason") == "Refused"

        await one.fleet.eventually(is_told, "that it takes none")
        told = (
            "the Cluster refused the last 3 machines, all of one workspace; no other machine of that workspace is bound"
        )
        said = (await taking(one))["message"]
        assert re.fullmatch(f"{told} to it before 20..-..-..T..:..:..Z, and then one at a time", said)
        often = {"status": {"refusals": {"times": 20}}}  # so that no other is tried as long as we look
        await one.of_home("PATCH", f"{CLUSTERS}/az1/status", often, content_type=MERGE_PATCH)

        async def is_avoided(name: str) -> bool:
            said = of_type(await one.pod(name), "PodScheduled").get("message", "")
            return bool(said == "0/1 clusters fit: 1 refused the last machines")

        await one.machine("d")
        await one.fleet.eventually(lambda: is_avoided("d"), "that d is kept away")
        await start_again(one)
        await one.machine("e")
        await one.fleet.eventually(lambda: is_avoided("e"), "that e is kept away")
        await bind_edge(one.fleet, one.home)
        await one.of_home("POST", PODS, machine("of-another-workspace"))

        async def concerns_both() -> bool:
            return (await taking(one)).get("message", "").startswith(BOTH)

        await one.fleet.eventually(concerns_both, "that another workspace has found out by itself")
        patch = {"spec": {"serverprice": 7}}  # whoever changes the Cluster may have mended it
        await one.of_home("PATCH", f"{CLUSTERS}/az1", patch, content_type=MERGE_PATCH)

        async def is_tried() -> bool:
            return "globalscheduler.com/refused-by" in (await one.pod("d"))["metadata"].get("annotations", {})

        await one.fleet.eventually(is_tried, "that d is tried there")


async def test_a_cluster_that_takes_a_machine_is_not_avoided_any_more(tmp_path: Path) -> None:
    async with machine_room() as edge, linked_machines(tmp_path, edge, room=9) as (one, link):
        await one.at_rest()
        [cluster] = await one.clusters()
        refusals = {
            "machines": ["shop/1", "school/2", "bank/3"],
            "times": 1,
            "lastTime": times.format_seconds(one.fleet.hub.now - timedelta(hours=1)),
            "observedGeneration": cluster["metadata"]["generation"],
        }
        patch = {"status": {"refusals": refusals}}
        await one.of_home("PATCH", f"{CLUSTERS}/az1/status", patch, content_type=MERGE_PATCH)

        async def is_told() -> bool:
            return (await taking(one)).get("status") == "False"

        await one.fleet.eventually(is_told, "that it takes none")
        await one.machine("a")
        assert await one.bound("a") == "az1"
        await one.machine("b")
        await link.eventually(lambda: edge.ask("GET", f"{PODS}/a"), "the machine at the edge")
        await edge.says("a", "Running")
        assert await one.bound("b") == "az1"

        async def is_forgotten() -> bool:
            status = (await one.clusters())[0]["status"]
            return "refusals" not in status and not await taking(one)

        await one.fleet.eventually(is_forgotten, "that nothing is wrong any more")


async def test_a_machine_whose_workspace_has_no_edge_api_says_so_and_stays() -> None:
    async with machines(start=False) as one:
        imw = await one.fleet.hub.workspace("imw")
        await one.fleet.target(imw, "edge1", {})
        await one.start()
        await one.cluster("az1", {"small": 2}, synctarget={"workspace": imw, "name": "edge1"})
        await report(one, imw, ago=timedelta(0))
        await one.machine("a")
        assert await one.bound("a") == "az1"

        async def is_told() -> bool:
            return of_type(await one.pod("a"), "Delivered").get("reason") == "NoEdgeAPI"

        await one.fleet.eventually(is_told, "what is wrong")
        assert (
            "`kubectl kcp bind apiexport root:espw:edge.kcp.io`" in of_type(await one.pod("a"), "Delivered")["message"]
        )
        await bind_edge(one.fleet, one.shop)

        async def is_clean() -> bool:
            return not of_type(await one.pod("a"), "Delivered")

        await one.fleet.eventually(is_clean, "nothing wrong any more")
        assert (await one.pod("a"))["spec"]["nodeName"] == "az1"


@asynccontextmanager
async def of_another_family(one: Machines) -> AsyncIterator[str]:
    """A workspace with another parent, whose Pods may be machines."""
    await one.fleet.hub.workspace("tenants")
    workspace = await one.fleet.hub.workspace("bank", parent="root:tenants")
    await one.fleet.hub.bind(workspace, "kubernetes", "root:compute", "kubernetes", by=OPERATOR)
    await bind_edge(one.fleet, workspace)

    async def is_served() -> bool:
        return (await one.fleet.hub.of(MASTER, "GET", f"/clusters/{workspace}{PODS}")).status == 200

    await one.fleet.eventually(is_served, "Pods")
    yield workspace


async def test_a_machine_whose_namespace_another_tenant_keeps_says_so_and_goes_elsewhere(tmp_path: Path) -> None:
    async with machine_room() as edge, linked_machines(tmp_path, edge, room=9) as (one, link):
        await one.machine("a")
        await link.eventually(lambda: edge.ask("GET", f"{PODS}/a"), "the machine of the first tenant")
        async with of_another_family(one) as bank:
            path = f"/clusters/{bank}{PODS}"
            await one.fleet.hub.made(MASTER, path, machine("b"))

            async def is_told() -> bool:
                pod = (await one.fleet.hub.of(MASTER, "GET", f"{path}/b")).json
                said = of_type(pod, "PodScheduled").get("message", "")
                return (
                    "1 refused it (namespaces default in" in said and "used by a workspace with another parent" in said
                )

            await one.fleet.eventually(is_told, "why it has no place")
            assert await edge.ask("GET", f"{PODS}/b") is None
            assert not await taking(one)  # the Cluster has refused nothing
            await one.cluster("az2", {"small": 1}, zone="az2")

            async def is_elsewhere() -> bool:
                return (await one.fleet.hub.of(MASTER, "GET", f"{path}/b")).json["spec"].get("nodeName") == "az2"

            await one.fleet.eventually(is_elsewhere, "another place")
