"""`farflung explain pod` and `explain allocation`: every Cluster fits or has a reason, and the API agrees or not."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from asked_hub import custom
from asked_machines import FLAVOR, NOW, MachineHub, allocation, machine

from farflung.apis.globalscheduler.names import ALLOCATIONS, CLUSTERS
from farflung.apis.names import PODS
from farflung.cli.machine_output import BEHIND, GONE, STAYS, UNSIZED, printed
from farflung.inspect.explain_machines import explain
from farflung.inspect.hub import HiddenError, server_time
from farflung.inspect.results import InspectError, as_document
from farflung.machinery import times
from farflung.machines.engine.policy import SchedulerPolicy
from farflung.machines.engine.values import Capacity, Flavor, Site, SiteKey
from farflung.machines.files.configuration import SchedulerConfiguration

USUAL = SchedulerConfiguration()


async def said(
    hub: MachineHub, kind: str = "Pod", name: str = "demovm", configured: SchedulerConfiguration = USUAL
) -> list[str]:
    """Lines for people."""
    answer = await explain(hub.hub.asked, kind, name, "default", configured)
    document = as_document(answer)
    assert orjson.loads(orjson.dumps(document)) == document
    return printed(answer, "table", limit=20).splitlines()


async def test_every_cluster_fits_or_has_a_reason_and_the_pod_is_where_it_would_go() -> None:
    hub = await MachineHub.started()
    await hub.bind(await hub.make(machine("demovm", "region1")), "az1")
    lines = await said(hub)
    assert lines[:4] == [
        "Pod default/demovm in root:web requests",
        "  machines:   1 of c6.large.2",
        "  where:      region region1",
        "  how:        centralize",
    ]
    assert [line.split() for line in lines[5:8]] == [
        ["CLUSTER", "REGION", "ZONE", "ROOM", "SCORE", "CHOSEN", "REASON"],
        ["az1", "region1", "az1", "2", "75.00", "yes"],
        ["az2", "region2", "az2", "0", "-", "no", "wrong", "region"],
    ]
    assert lines[-2] == "placed on az1 with c6.large.2, score 75.00"
    assert lines[-1].startswith("now: bound to az1 since ")
    assert lines[-1].endswith("; up to date")
    assert hub.hub.transport.writes == []


async def test_one_that_is_bound_elsewhere_stays_and_what_others_hold_counts() -> None:
    hub = await MachineHub.started()
    await hub.bind(await hub.make(machine("demovm")), "az1")
    for name in ("one", "two"):
        await hub.bind(await hub.make(machine(name)), "az1")
    lines = await said(hub)
    assert any(line.endswith("no       out of c6.large.2 (needs 1, has 0 left)") for line in lines)
    assert lines[-2].startswith("placed on az2 with ")
    assert lines[-1].endswith(f"; {STAYS}")


async def test_a_flavor_of_unknown_size_is_told_of_where_processors_are_counted() -> None:
    hub = await MachineHub.started()
    await hub.make(machine())
    assert not any(UNSIZED in line for line in await said(hub))
    counting = Site(SiteKey("", "", "near"), capacity=Capacity({FLAVOR: 3}, vcpus=4))
    unknown = SchedulerConfiguration(sites=(counting,))
    assert f"{FLAVOR} is not in the catalogue, {UNSIZED}" in await said(hub, configured=unknown)
    known = replace(unknown, flavors={FLAVOR: Flavor(FLAVOR, vcpus=2)})
    assert not any(UNSIZED in line for line in await said(hub, configured=known))


async def test_one_that_waits_is_told_why_and_whether_the_scheduler_said_so() -> None:
    hub = await MachineHub.started()
    pod = await hub.make(machine("demovm", "nowhere"))
    why = "0/2 clusters fit: 2 wrong region"
    assert (await said(hub))[-2:] == [f"not placed: {why}", f"now: not bound; {BEHIND}"]
    await hub.refuse(pod, why)
    assert (await said(hub))[-1] == f"now: not bound since {NOW}: {why}; up to date"
    await hub.refuse(pod, "something else")
    assert (await said(hub))[-1].endswith(BEHIND)


async def test_one_that_fits_and_is_not_bound_waits_for_the_scheduler() -> None:
    hub = await MachineHub.started()
    await hub.make(machine())
    lines = await said(hub)
    assert lines[-2].startswith("placed on az2 with ")
    assert lines[-1] == f"now: not bound; {BEHIND}"


async def test_one_whose_cluster_is_no_more_is_about_to_leave() -> None:
    hub = await MachineHub.started()
    await hub.bind(await hub.make(machine()), "az1")
    await hub.client.delete(CLUSTERS, "az1", "default")
    lines = await said(hub)
    assert lines[-2].startswith("placed on az2 with ")
    assert lines[-1].endswith(f"; {GONE}")


async def test_one_whose_cluster_is_not_well_is_told_since_when_and_when_it_leaves() -> None:
    hub = await MachineHub.started()
    await hub.bind(await hub.make(machine()), "az1")
    forever = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    await hub.bind(await hub.make(machine("patient", tolerations=[forever])), "az1")
    ready = {"type": "Ready", "status": "False", "reason": "Down", "lastTransitionTime": NOW}
    down = {"status": {"phase": "Down", "conditions": [ready]}}
    await hub.client.patch(CLUSTERS, "az1", down, "default", "status")
    leaves = "machines are evicted at 2024-05-01T12:05:00Z if they fit elsewhere"
    assert (await said(hub))[-1].endswith(f"; az1 is Down since {NOW}, and {leaves}")
    assert (await said(hub, name="patient"))[-1].endswith(f"; az1 is Down since {NOW}, and that is tolerated")
    await hub.client.patch(CLUSTERS, "az2", down, "default", "status")
    assert (await said(hub))[-1].endswith("and evictions stop while more than half of all Clusters are unhealthy")


async def test_a_cluster_that_took_none_of_the_last_machines_is_avoided() -> None:
    hub = await MachineHub.started()
    await hub.make(machine())
    found = await hub.client.get(CLUSTERS, "az2", "default")
    last = times.format_seconds(await server_time(hub.hub.asked))
    refusals = {"machines": ["a/1", "b/2", "c/3"], "times": 1, "lastTime": last}
    refusals |= {"observedGeneration": found["metadata"]["generation"]}
    await hub.client.patch(CLUSTERS, "az2", {"status": {"refusals": refusals}}, "default", "status")
    lines = await said(hub)
    assert any(line.startswith("az2 ") and line.endswith("no       refused the last machines") for line in lines)


async def test_one_that_its_cluster_refuses_is_told_so_and_would_go_elsewhere() -> None:
    hub = await MachineHub.started()
    pod = await hub.make(machine())
    await hub.bind(pod, "az2")
    wrong = {"type": "Delivered", "status": "False", "reason": "BadRequest", "message": "it has\nno machines"}
    refused = {"globalscheduler.com/refused-by": f"{hub.cluster}|default/az2=1"}
    await hub.client.patch(PODS, "demovm", {"metadata": {"annotations": refused}}, "default")
    await hub.say(pod, [wrong])
    lines = await said(hub)
    assert any(line.startswith("az2 ") and line.endswith("no       refused it") for line in lines)
    assert lines[-2].startswith("placed on az1 with ")
    assert lines[-1].endswith("; not delivered: it has no machines")


async def test_what_the_scheduler_leaves_alone_is_told_so() -> None:
    hub = await MachineHub.started()
    await hub.make(machine("gated", schedulingGates=[{"name": "example.com/later"}]))
    await hub.make(machine("other", schedulerName="mine"))
    assert (await said(hub, name="gated"))[-1].endswith("ignores it: it has spec.schedulingGates")
    assert (await said(hub, name="other"))[-1].endswith("ignores it: its spec.schedulerName is mine")


async def test_an_allocation_that_failed_is_left_alone_and_would_go_somewhere() -> None:
    hub = await MachineHub.started()
    await hub.make(allocation("shop", 1))
    await hub.client.patch(ALLOCATIONS, "shop", {"status": {"phase": "Failed"}}, "default", "status")
    lines = await said(hub, "Allocation", "shop")
    assert lines[-2].startswith("placed on az2 with ")
    assert lines[-1] == "now: not bound; the global scheduler ignores it: it is finished: Failed"


async def test_what_cannot_be_understood_is_told_with_its_path() -> None:
    hub = await MachineHub.started()
    pod = machine("demovm", "region1")
    pod["spec"]["virtualMachine"]["resourceCommonInfo"]["selector"] |= {"minClusters": 3, "maxClusters": 2}
    await hub.make(pod)
    assert await said(hub) == [
        "Pod default/demovm in root:web is invalid: "
        "spec.virtualMachine.resourceCommonInfo.selector.maxClusters: must not be less than the minimum",
        f"now: not bound; {BEHIND}",
    ]


async def test_replicas_of_an_allocation_are_counted_by_cluster() -> None:
    hub = await MachineHub.started()
    obj = await hub.make(allocation("shop", 3))
    await hub.bind_allocation(obj, "az2", "az2", "az1")
    lines = await said(hub, "Allocation", "shop")
    assert "  replicas:   3" in lines
    assert any(line.startswith("2 replicas placed on az2 with c6.large.2") for line in lines)
    assert lines[-1] == f"now: bound to az2 (2 replicas), az1 since {NOW}; up to date"


async def test_files_and_a_policy_that_the_scheduler_was_told_count() -> None:
    hub = await MachineHub.started()
    await hub.make(machine())
    site = Site(SiteKey("", "", "file"), region="region3", capacity=Capacity({"c6.large.2": 100}))
    policy = SchedulerPolicy(("regionandaz",), (("SiteResourcesLeastAllocated", 1),))
    lines = await said(hub, configured=replace(USUAL, sites=(site,), policy=policy))
    assert "placed on file with c6.large.2, score 99.00" in lines
    assert "SCORES   SiteResourcesLeastAllocated *1   FLAVORS" in lines


async def test_wishes_that_the_policy_does_not_look_at_are_told_as_such() -> None:
    hub = await MachineHub.started()
    beside = {"key": "app", "operator": "in", "values": ["db"]}
    wishes = {
        "geo_location": {"country": "CH", "city": "Bern"},
        "operator": "telecom",
        "regions": [{"region": "region1"}],
        "stack_affinity": [beside],
        "stack_antiaffinity": [beside],
        "near": {"latitude": 46.9, "longitude": 7.4},
        "cluster_affinity": {"preferred": [{"weight": 1, "requirements": [{"key": "disk", "operator": "exists"}]}]},
    }
    await hub.make(allocation("shop", 1, selector=wishes))
    lines = await said(hub, "Allocation", "shop", replace(USUAL, policy=SchedulerPolicy(("Flavor",), (("Flavor", 1),))))
    missing = "because the policy has no"
    assert [line.split(":", 1) for line in lines[2:10]] == [
        ["  where", "        anywhere"],
        ["  overlooked", f"   country CH; city Bern, {missing} LocationAndOperator"],
        ["  overlooked", f"   operator telecom, {missing} LocationAndOperator"],
        ["  overlooked", f"   region region1, {missing} regionandaz"],
        ["  overlooked", f"   preferably with app in db, {missing} StackAffinity"],
        ["  overlooked", f"   preferably not with app in db, {missing} StackAffinity"],
        ["  overlooked", f"   near 46.9,7.4, {missing} Distance"],
        ["  overlooked", f"   1 preference of labels, {missing} PreferredAffinity"],
    ]
    assert not [line for line in await said(hub, "Allocation", "shop") if "overlooked" in line]


async def test_a_scorer_that_gives_the_same_to_each_has_a_line_and_no_column() -> None:
    hub = await MachineHub.started()
    await hub.make(machine())
    same = "StackAffinity gives 50 to each: the request has no input for it"
    lines = await said(hub)
    assert same in lines and not any("StackAffinity *1" in line for line in lines)
    beside = {"stack_affinity": [{"key": "app", "operator": "exists"}]}
    await hub.make(allocation("shop", 1, selector=beside))
    lines = await said(hub, "Allocation", "shop")
    assert same not in lines and any("StackAffinity *1" in line for line in lines)


async def test_who_asks_without_the_files_of_the_scheduler_is_told_so() -> None:
    hub = await MachineHub.started()
    await hub.make(machine())
    await hub.lease("somebody", '{"options": ["--conf", "/etc/conf"], "sites": 1, "when": "noon"}')
    assert (await said(hub))[-1] == "remark: the global scheduler uses --conf /etc/conf; this command does not"
    site = Site(SiteKey("", "", "file"), region="region3", capacity=Capacity({FLAVOR: 100}))
    lines = await said(hub, configured=replace(USUAL, sites=(site,)))
    assert "from files: file" in lines
    assert not any(line.startswith("remark:") for line in lines)


async def test_of_many_clusters_the_rest_is_counted() -> None:
    hub = await MachineHub.started()
    await hub.make(machine("demovm", "region1"))
    answer = await explain(hub.hub.asked, "Pod", "demovm", "default", USUAL)
    assert "1 Cluster more: 1 wrong region. `--limit 0` lists all." in printed(answer, "table", limit=1)
    assert "more:" not in printed(answer, "table", limit=0)


async def test_what_is_not_there_or_no_machine_is_told_so() -> None:
    hub = await MachineHub.started()
    with pytest.raises(InspectError, match="Pod default/demovm not found in the workspace root:web"):
        await said(hub)
    containers = [{"name": "c", "image": "i"}]
    await hub.client.create(PODS, {**custom(PODS, "demovm", containers=containers)}, "default")
    with pytest.raises(InspectError, match=r"no spec.virtualMachine: the global scheduler ignores it"):
        await said(hub)


async def test_who_may_not_see_clusters_is_told_what_is_missing() -> None:
    hub = await MachineHub.started()
    await hub.make(machine())
    await hub.hub.grant("root:web", "reader", {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})
    await hub.hub.grant("root:web", "visitor", {"nonResourceURLs": ["/"], "verbs": ["access"]})
    hint = "you may not list the Clusters of all workspaces.*; try `farflung trace pod/demovm -n default`, which needs"
    with pytest.raises(HiddenError, match=hint):
        await explain(hub.hub.asked_by_somebody, "Pod", "demovm", "default", USUAL)
