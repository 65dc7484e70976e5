"""`farflung plan`: to which Clusters machines of files would go, one after the other, and nothing done."""

from __future__ import annotations

from asked_hub import BINDINGS, custom
from asked_machines import FLAVOR, MachineHub, allocation, machine, named

from farflung.apis.globalscheduler.names import CLUSTERS
from farflung.apis.names import PODS
from farflung.cli.plan_output import printed
from farflung.inspect.manifests import Manifest
from farflung.inspect.plan import Plan, check, plan
from farflung.inspect.results import as_document
from farflung.machinery.errors import Obj


async def planned(hub: MachineHub, *objs: Obj, delete: bool = False) -> Plan:
    return await plan(hub.hub.asked, check([Manifest("x.yaml", obj) for obj in objs]), delete=delete)


def lines(answer: Obj) -> list[str]:
    return [line.partition(", score")[0] for line in printed(answer, "table").splitlines() if line]


async def test_what_one_takes_the_next_one_has_not() -> None:
    hub = await MachineHub.started()
    answer = await planned(hub, machine("a", "region1"), machine("b", "region1"), machine("c", "region1"))
    assert lines(answer) == [
        "Pod default/a (new)",
        "placed on az1 with c6.large.2",
        "Pod default/b (new)",
        "placed on az1 with c6.large.2",
        "Pod default/c (new)",
        "not placed: 0/2 clusters fit: 1 out of c6.large.2, 1 wrong region",
    ]
    assert as_document(answer)["summary"]["unplaced"] == 1
    assert answer.is_change
    assert await hub.client.list(PODS) == []


async def test_who_plans_without_the_files_of_the_scheduler_is_told_so() -> None:
    hub = await MachineHub.started()
    await hub.lease("somebody", '{"options": ["--conf", "/etc/conf"], "sites": 1, "when": "noon"}')
    answer = await planned(hub, machine("a"))
    assert lines(answer)[-1] == "remark: the global scheduler uses --conf /etc/conf; this command does not"


async def test_a_cluster_whose_sync_target_is_in_no_workspace_is_not_ready_and_blocks_no_other() -> None:
    hub = await MachineHub.started()
    lost = {"workspace": "root:inventry", "name": "florin"}
    flavors = [{"flavorid": FLAVOR, "totalcapacity": 9}]
    region = {"region": "region9", "availabilityzone": "az9"}
    await hub.client.create(
        CLUSTERS, named(CLUSTERS, "az9", region=region, flavors=flavors, synctarget=lost), "default"
    )
    answer = await planned(hub, machine("a", "region1"), machine("b", "region9"))
    assert lines(answer) == [
        "Pod default/a (new)",
        "placed on az1 with c6.large.2",
        "Pod default/b (new)",
        "not placed: 0/3 clusters fit: 2 wrong region, 1 not ready",
    ]


async def test_who_has_a_higher_priority_comes_first_wherever_it_is_in_the_file() -> None:
    hub = await MachineHub.started()
    low, high = allocation("low", 4), allocation("high", 6, priority=10)
    answer = await planned(hub, low, high)
    assert lines(answer) == [
        "Allocation default/low (new)",
        "not placed: 0 of 4 replicas can be placed; 0/2 clusters fit: 2 out of c6.large.2",
        "Allocation default/high (new)",
        "4 replicas placed on az2 with c6.large.2",
        "2 replicas placed on az1 with c6.large.2",
    ]


async def test_what_is_bound_and_stays_the_same_stays() -> None:
    hub = await MachineHub.started()
    obj = allocation("shop", 2)
    await hub.bind_allocation(await hub.make(obj), "az1", "az2")
    answer = await planned(hub, obj)
    assert lines(answer) == ["Allocation default/shop (unchanged)", "stays bound to az1, az2"]
    assert not answer.is_change


async def test_one_that_changes_may_use_what_it_holds_and_stays_if_it_does_not_fit() -> None:
    hub = await MachineHub.started()
    await hub.bind_allocation(await hub.make(allocation("shop", 2)), "az1", "az2")
    assert lines(await planned(hub, allocation("shop", 6))) == [
        "Allocation default/shop (changed)",
        "4 replicas placed on az2 with c6.large.2",
        "2 replicas placed on az1 with c6.large.2",
    ]
    assert lines(await planned(hub, allocation("shop", 7))) == [
        "Allocation default/shop (changed)",
        "stays bound to az1, az2, because no Cluster fits: 6 of 7 replicas can be placed; 2/2 clusters fit",
    ]


async def test_what_would_be_deleted_is_bound_no_more() -> None:
    hub = await MachineHub.started()
    pod = machine("demovm")
    await hub.bind(await hub.make(pod), "az1")
    assert lines(await planned(hub, pod, delete=True)) == [
        "Pod default/demovm (deleted)",
        "no longer bound to az1",
    ]


async def test_a_cluster_of_the_same_file_counts_also_where_nothing_is_placed() -> None:
    hub = await MachineHub.started()
    region = {"region": "region9", "availabilityzone": "az9"}
    new = named(CLUSTERS, "az9", region=region, flavors=[{"flavorid": FLAVOR, "totalcapacity": 1}])
    wanted = [new, machine("demovm", "region9")]
    expected = ["Cluster default/az9 (new)", "Pod default/demovm (new)", "placed on az9 with c6.large.2"]
    assert lines(await planned(hub, *wanted)) == expected
    for export in ("kubernetes", "globalscheduler.com"):
        reference = {"export": {"path": "root:compute", "name": export}}
        await hub.hub.inventory.create(BINDINGS, custom(BINDINGS, export, reference=reference))
    hub.hub.client = hub.hub.inventory
    assert lines(await planned(hub, *wanted)) == expected


async def test_what_is_bound_to_a_cluster_that_would_be_deleted_is_told_of() -> None:
    hub = await MachineHub.started()
    await hub.bind(await hub.make(machine("demovm")), "az1")
    await hub.bind_allocation(await hub.make(allocation("shop", 2)), "az1", "az2")
    answer = await planned(hub, named(CLUSTERS, "az1"), delete=True)
    assert lines(answer) == [
        "Cluster default/az1 (deleted)",
        "Allocation default/shop, Pod default/demovm are bound to it and are evicted if they fit elsewhere",
    ]
    assert answer.is_change
    assert not (await planned(hub, await hub.client.get(CLUSTERS, "az1", "default"))).is_change


async def test_a_workspace_without_machines_is_named_with_what_binds_them() -> None:
    hub = await MachineHub.started()
    hub.hub.client = hub.hub.inventory
    answer = await planned(hub, machine("demovm"), allocation("shop"))
    assert lines(answer) == [
        f"{what}: error: the workspace root:places does not serve {served}; bind it with "
        f"`kubectl kcp bind apiexport root:compute:{export}` or select another workspace"
        for what, served, export in (
            ("Pod default/demovm", "Pod in v1", "kubernetes"),
            ("Allocation default/shop", "Allocation in globalscheduler.com/v1", "globalscheduler.com"),
        )
    ]
