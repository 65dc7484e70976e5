"""What `farflung status` says of Clusters and virtual machines."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from asked_machines import MachineHub, allocation, machine
from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.globalscheduler.names import CLUSTERS
from farflung.apis.names import LEASES
from farflung.cli.status_output import machine_lines, printed
from farflung.inspect.fleet_health import machines
from farflung.inspect.fleet_status import status
from farflung.inspect.results import as_document
from farflung.machinery import times

NOW = times.parse("2024-05-01T12:00:00Z")
SCALARS = st.one_of(st.none(), st.integers(), st.text(), st.just("False"), st.just("Delivered"))
FIELDS = st.sampled_from(["phase", "conditions", "type", "status", "message", "placements", "nodeName"])
ANYTHING = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(FIELDS, inner), max_leaves=12)
WHY = "0/2 clusters fit: 2 wrong region"


async def test_clusters_are_counted_by_phase_and_machines_by_what_became_of_them() -> None:
    hub = await MachineHub.started()
    await hub.client.patch(CLUSTERS, "az2", {"status": {"phase": "Down"}}, "default", "status")
    for name in ("one", "two"):
        await hub.bind(await hub.make(machine(name)), "az1")
    for name in ("three", "four"):
        await hub.refuse(await hub.make(machine(name, "nowhere")), WHY)
    await hub.make(machine("five"))
    await hub.bind_allocation(await hub.make(allocation("shop", 1)), "az1")
    answer = await status(hub.hub.asked, NOW)
    assert not answer.well
    assert printed(answer, "table", NOW).splitlines()[-3:] == [
        "2 Clusters: 1 Down, 1 Unknown (unhealthy: az2)",
        "6 virtual machines and stacks: 3 bound, 3 waiting",
        f"  2 waiting: {WHY}",
    ]


async def test_a_cluster_that_took_none_of_the_last_machines_is_told_of() -> None:
    hub = await MachineHub.started()
    why = "the last 3 machines were not taken, so no other goes there before 2024-05-01T12:01:00Z"
    taking = {"type": "TakesMachines", "status": "False", "reason": "Refused", "message": why}
    ready = {"status": {"phase": "Ready", "conditions": [taking]}}
    await hub.client.patch(CLUSTERS, "az2", ready, "default", "status")
    answer = await status(hub.hub.asked, NOW)
    assert not answer.well
    assert as_document(answer)["machines"]["clusters"]["unwell"] == ["az2"]
    assert f"  az2: {why}" in printed(answer, "table", NOW).splitlines()


async def test_a_fleet_without_clusters_is_asked_about_them_once() -> None:
    hub = await MachineHub.started()
    for name in ("az1", "az2"):
        await hub.client.delete(CLUSTERS, name, "default")
    hub.hub.transport.requests.clear()
    answer = await status(hub.hub.asked, NOW)
    assert answer.machines is None
    assert not [one for one in hub.hub.transport.requests if "/pods" in one.target or "/allocations" in one.target]


async def test_files_of_the_scheduler_are_counted_by_their_sites_and_told_of_when_they_are_wrong() -> None:
    hub = await MachineHub.started()
    for name in ("az1", "az2"):
        await hub.client.delete(CLUSTERS, name, "default")
    await hub.make(machine())
    said = {"options": ["--conf", "/etc/conf"], "sites": 2, "when": "2024-05-01T11:00:00Z"}
    wrong = {"problem": "/etc/conf/policy.yaml: there is no plugin 'Luck'", "since": "2024-05-01T11:30:00Z"}
    await hub.lease("somebody", orjson.dumps(said | wrong).decode())
    answer = await status(hub.hub.asked, NOW)
    assert not answer.well
    assert as_document(answer)["machines"]["scheduler"]["files"] == said | wrong
    assert printed(answer, "table", NOW).splitlines()[-3:] == [
        "2 sites from files (--conf /etc/conf)",
        "The files of the global scheduler are invalid since 2024-05-01T11:30:00Z: /etc/conf/policy.yaml: there is no "
        "plugin 'Luck'; the version of 2024-05-01T11:00:00Z stays in use",
        "1 virtual machine or stack: 1 waiting",
    ]


@pytest.mark.parametrize("said", ["", "[]", "{"])
async def test_what_is_said_of_files_and_makes_no_sense_is_not_told(said: str) -> None:
    hub = await MachineHub.started()
    await hub.lease("somebody", said)
    answer = await status(hub.hub.asked, NOW)
    assert answer.well and as_document(answer)["machines"]["scheduler"]["files"] is None


@pytest.mark.parametrize(("holder", "renewed"), [("", "2024-05-01T11:59:59Z"), ("somebody", "2024-05-01T11:58:00Z")])
async def test_without_a_scheduler_at_work_a_fleet_with_clusters_is_not_well(holder: str, renewed: str) -> None:
    hub = await MachineHub.started()
    await hub.lease(holder, "", renewed.replace("Z", ".000000Z"))
    answer = await status(hub.hub.asked, NOW)
    assert not answer.well
    assert printed(answer, "table", NOW).splitlines()[-1] == (
        f"No global scheduler is running; the last renewal was at {renewed}"
    )
    await hub.compute.delete(LEASES, "global-scheduler", "default")
    answer = await status(hub.hub.asked, NOW)
    assert printed(answer, "table", NOW).splitlines()[-1] == "No global scheduler is running"


def test_a_cluster_that_does_not_have_its_synctarget_is_not_well_and_says_why() -> None:
    wrong = {"type": "SyncTarget", "status": "False", "reason": "Taken", "message": "it is that of az2"}
    cluster = {"metadata": {"name": "az1"}, "status": {"phase": "Sellout", "conditions": [wrong]}}
    found = machines([cluster], [], [])
    assert found is not None and not found.is_well
    assert list(machine_lines(found)) == ["1 Cluster: 1 Sellout (unhealthy: az1)", "  az1: it is that of az2"]


def test_machines_that_the_same_clusters_refuse_are_counted_together_whenever_they_are_tried_again() -> None:
    why = [f"0/1 clusters fit: 1 refused it (no room; not tried there again before 12:0{n})" for n in range(2)]
    told = [[{"type": "PodScheduled", "status": "False", "message": message}] for message in why]
    head = {"metadata": {"name": "a", "namespace": "b"}, "spec": {"virtualMachine": {}}}
    found = machines([], [{**head, "status": {"conditions": one}} for one in told], [])
    assert found is not None
    assert list(machine_lines(found))[-1] == "  2 waiting: 0/1 clusters fit: 1 refused it"


def test_a_machine_that_is_not_where_it_is_bound_to_is_told_of() -> None:
    wrong = {"type": "Delivered", "status": "False", "message": "no\x1b[31m"}
    pods = [
        {"spec": {"virtualMachine": {}, "nodeName": "az1"}, "status": {"conditions": [wrong]}},
        {"spec": {"virtualMachine": {}, "nodeName": "az1"}, "status": {"phase": "Failed"}},
        {"spec": {"virtualMachine": {}, "nodeName": "az1"}, "status": {"phase": "Succeeded"}},
        {"spec": {"containers": []}},
    ]
    found = machines([], pods, [])
    assert found is not None
    assert not found.is_well
    assert list(machine_lines(found)) == [
        "3 virtual machines and stacks: 1 undelivered, 1 failed, 1 ended",
        "  1 undelivered: no [31m",
    ]
    assert machines([], [{"spec": {"containers": []}}], []) is None


def test_an_allocation_that_finds_no_place_for_what_it_asks_for_now_is_not_well() -> None:
    why = "2 of 9 replicas can be placed"
    conditions = [{"type": "Scheduled", "status": "False", "message": why}]
    found = machines([], [], [{"status": {"phase": "Bound", "placements": [{"replica": 0}], "conditions": conditions}}])
    assert found is not None
    assert not found.is_well
    assert list(machine_lines(found)) == ["1 virtual machine or stack: 1 outdated", f"  1 outdated: {why}"]


async def test_every_cluster_and_machine_is_listed_on_request() -> None:
    hub = await MachineHub.started()
    await hub.bind(await hub.make(machine("one")), "az1")
    await hub.refuse(await hub.make(machine("two", "nowhere")), WHY)
    answer = await status(hub.hub.asked, NOW, everything=True)
    found = [line.split(maxsplit=4) for line in printed(answer, "table", NOW, everything=True).splitlines()[-8:]]
    assert found == [
        ["2", "Clusters:", "2", "Unknown"],
        ["NAME", "WORKSPACE", "PHASE", "STACKS", "REASON"],
        ["default/az1", "root:web", "Unknown", "0", "<none>"],
        ["default/az2", "root:web", "Unknown", "0", "<none>"],
        ["2", "virtual", "machines", "and", "stacks: 1 bound, 1 waiting"],
        ["KIND", "NAME", "WORKSPACE", "STATE", "BOUND TO   REASON"],
        ["Pod", "default/two", "root:web", "waiting", f"<none>     {WHY}"],
        ["Pod", "default/one", "root:web", "bound", "az1        <none>"],
    ]


def test_a_stack_that_is_bound_is_listed_with_its_clusters() -> None:
    placements = [{"cluster": {"name": name}} for name in ("az2", "az1", "az2", "b", "c", "d", "e")]
    found = machines([], [], [{"metadata": {"name": "shop"}, "status": {"placements": placements}}])
    assert found is not None
    assert found.machines.listed[0].bound_to == ["az2", "az1", "az2", "b", "c", "d", "e"]
    assert "az2 (2 times), az1, b, c, d and 1 more" in list(machine_lines(found, everything=True))[-1]


def test_reasons_that_differ_by_the_name_of_a_machine_are_alike() -> None:
    def refused(name: str, why: str) -> dict[str, Any]:
        wrong = {"type": "Delivered", "status": "False", "message": why}
        head = {"name": name, "namespace": "default"}
        return {"metadata": head, "spec": {"virtualMachine": {}, "nodeName": "x"}, "status": {"conditions": [wrong]}}

    pods = [refused(name, f'pods "{name}" is forbidden') for name in ("a", "b")]
    pods += [refused(name, why) for name, why in zip("cdefg", ("no c", "no d", "no e", "no f", "no g"), strict=True)]
    found = machines([], pods, [])
    assert found is not None
    assert list(machine_lines(found))[1:] == [
        "  2 undelivered: pods NAME is forbidden",
        "  1 undelivered: no c",
        "  1 undelivered: no d",
        "  … and 3 for other reasons; --all lists them",
    ]


@given(ANYTHING, ANYTHING)
def test_objects_of_any_shape_are_counted(status: Any, spec: Any) -> None:
    obj = {"spec": spec, "status": status}
    found = machines([obj], [obj, {"spec": {"virtualMachine": {}}, "status": status}], [obj])
    assert found is not None
    assert all("\n" not in line for line in machine_lines(found))
