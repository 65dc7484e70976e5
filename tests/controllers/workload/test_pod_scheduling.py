"""The node of a pod, and the message if none fits."""

from __future__ import annotations

from typing import Any

import pytest
from cluster import Cluster, cluster, node
from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.names import NODES, PODS
from farflung.controllers.workload.model.node_fitness import HostPort, changes_node, matches_node_affinity, requests
from farflung.controllers.workload.model.objects import find_condition
from farflung.controllers.workload.pod_scheduler.decide import (
    choose,
    find_claim_problem,
    is_waiting,
    node_infos,
    queue_order,
)
from farflung.controllers.workload.pod_scheduler.triggers import frees_resources
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CacheChange, Key


def pod(name: str = "p", *, on: str = "", ports: tuple[Any, ...] = (), **spec: Any) -> Obj:
    container: Obj = {"name": "main", "image": "httpd", "ports": [dict(port) for port in ports]}
    if "requests" in spec:
        container["resources"] = {"requests": spec.pop("requests")}
    whole = {"containers": [container], **({"nodeName": on} if on else {}), **spec}
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": whole, "status": {}}


def port(number: int, **more: Any) -> Obj:
    return {"containerPort": 80, "hostPort": number, "protocol": "TCP", **more}


def required(*expressions: Obj, fields: tuple[Obj, ...] = ()) -> Obj:
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": wanted}}


TAINTED = {"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}
NAMED = {"key": "metadata.name", "operator": "In", "values": ["edge"]}
HALF = {"cpu": "1500m"}
PORTS = "node(s) didn't have free ports for the requested pod ports"
LABELS = "node(s) didn't match Pod's node affinity/selector"

CASES: dict[str, tuple[Obj, Obj, list[Obj], str]] = {
    "fits": (pod(), node(), [], ""),
    "port taken": (pod(ports=(port(80),)), node(), [pod("q", on="edge", ports=(port(80),))], PORTS),
    "port of another protocol": (
        pod(ports=(port(80, protocol="UDP"),)),
        node(),
        [pod("q", on="edge", ports=(port(80),))],
        "",
    ),
    "port of another address": (
        pod(ports=(port(80, hostIP="127.0.0.1"),)),
        node(),
        [pod("q", on="edge", ports=(port(80, hostIP="127.0.0.2"),))],
        "",
    ),
    "port of all addresses": (
        pod(ports=(port(80, hostIP="127.0.0.1"),)),
        node(),
        [pod("q", on="edge", ports=(port(80),))],
        PORTS,
    ),
    "port of a pod that ended": (
        pod(ports=(port(80),)),
        node(),
        [pod("q", on="edge", ports=(port(80),)) | {"status": {"phase": "Succeeded"}}],
        "",
    ),
    "port on another node": (pod(ports=(port(80),)), node(), [pod("q", on="other", ports=(port(80),))], ""),
    "not ready": (pod(), node(ready=False), [], "node(s) had untolerated taint {node.kubernetes.io/not-ready: }"),
    "cordoned": (pod(), node() | {"spec": {"unschedulable": True}}, [], "node(s) were unschedulable"),
    "tainted": (pod(), node() | TAINTED, [], "node(s) had untolerated taint {gpu: yes}"),
    "tolerated": (pod(tolerations=[{"key": "gpu", "operator": "Exists"}]), node() | TAINTED, [], ""),
    "tolerated by value": (pod(tolerations=[{"key": "gpu", "value": "yes"}]), node() | TAINTED, [], ""),
    "another value": (
        pod(tolerations=[{"key": "gpu", "value": "no"}]),
        node() | TAINTED,
        [],
        "node(s) had untolerated taint {gpu: yes}",
    ),
    "all tolerated": (pod(tolerations=[{"operator": "Exists"}]), node(ready=False) | TAINTED, [], ""),
    "selected": (pod(nodeSelector={"disk": "ssd"}), node(labels={"disk": "ssd"}), [], ""),
    "not selected": (pod(nodeSelector={"disk": "ssd"}), node(), [], LABELS),
    "affinity": (
        pod(**required({"key": "rank", "operator": "Gt", "values": ["3"]})),
        node(labels={"rank": "4"}),
        [],
        "",
    ),
    "no affinity": (
        pod(**required({"key": "zone", "operator": "NotIn", "values": ["a"]})),
        node(labels={"zone": "a"}),
        [],
        LABELS,
    ),
    "named": (pod(**required(fields=(NAMED,))), node(), [], ""),
    "an empty term": (pod(**required()), node(), [], LABELS),
    "cpu": (pod(requests={"cpu": "2"}), node(cpu="3"), [pod("q", on="edge", requests=HALF)], "Insufficient cpu"),
    "cpu just enough": (pod(requests={"cpu": "1.5"}), node(cpu="3"), [pod("q", on="edge", requests=HALF)], ""),
    "memory": (pod(requests={"memory": "9Gi"}), node(), [], "Insufficient memory"),
    "pods": (pod(), node(pods="1"), [pod("q", on="edge")], "Too many pods"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_pod_gets_the_node_or_a_reason(case: str) -> None:
    wanted, place, others, reason = CASES[case]
    choice = choose(wanted, node_infos([place], others))
    assert choice.node == ("" if reason else "edge")
    assert choice.why == (f"0/1 nodes are available: 1 {reason}." if reason else "")


def test_reasons_are_counted_over_nodes() -> None:
    places = [node("a", ready=False), node("b"), node("c", cpu="1")]
    busy = [pod("q", on="b", ports=(port(80),))]
    choice = choose(pod(ports=(port(80),), requests={"cpu": "2", "memory": "1Ti"}), node_infos(places, busy))
    assert choice.why == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, "
        "1 node(s) didn't have free ports for the requested pod ports, "
        "1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }."
    )
    assert choose(pod(), []).why == "no nodes available to schedule pods"


def test_the_node_with_the_fewest_pods_is_taken() -> None:
    assert choose(pod(), node_infos([node("a"), node("b")], [pod("q", on="a")])).node == "b"
    assert choose(pod(), node_infos([node("b"), node("a")], [])).node == "a"


def test_pods_come_by_priority_then_by_age() -> None:
    def made(name: str, priority: int, created: str) -> Obj:
        one = pod(name, priority=priority)
        one["metadata"]["creationTimestamp"] = created
        return one

    late = made("late", 0, "2024-05-01T12:00:01Z")
    pods = [late, made("early", 0, "2024-05-01T12:00:00Z"), made("important", 9, "2024-05-01T12:00:02Z")]
    assert [one["metadata"]["name"] for one in sorted(pods, key=queue_order)] == ["important", "early", "late"]


def test_only_pods_that_wait_for_us_are_looked_at() -> None:
    assert is_waiting(pod())
    assert not is_waiting(pod(on="edge"))
    assert not is_waiting(pod(schedulerName="another"))
    assert not is_waiting(pod(schedulingGates=[{"name": "later"}]))


def test_init_containers_need_room_one_after_the_other_and_sidecars_beside() -> None:
    def container(cpu: str, **more: str) -> Obj:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    wanted = pod(requests={"cpu": "1"}, initContainers=[container("3"), container("1", restartPolicy="Always")])
    assert requests(wanted) == {"cpu": 3 * 10**9}
    wanted["spec"]["initContainers"].append(container("4"))
    assert requests(wanted) == {"cpu": 5 * 10**9}


def test_claims_must_be_there_and_bound() -> None:
    assert find_claim_problem(["a"], {"a": "Bound"}) == ""
    assert find_claim_problem(["a"], {"a": "Pending"}) == "pod has unbound immediate PersistentVolumeClaims"
    assert find_claim_problem(["a"], {}) == 'persistentvolumeclaim "a" not found'


NUMBERS = st.builds(
    HostPort,
    st.sampled_from(["TCP", "UDP"]),
    st.sampled_from(["", "0.0.0.0", "10.0.0.1", "10.0.0.2"]),
    st.integers(1, 2),
)


@given(NUMBERS, NUMBERS)
def test_ports_clash_both_ways_and_with_themselves(one: HostPort, other: HostPort) -> None:
    assert one.conflicts(one)
    assert one.conflicts(other) == other.conflicts(one)


def test_heartbeats_of_a_node_trigger_nothing() -> None:
    before, after = node(), node()
    after["status"]["conditions"][0]["lastHeartbeatTime"] = "2024-05-01T12:00:00Z"
    assert not changes_node(CacheChange(Key("", "", "edge"), before, after))
    assert changes_node(CacheChange(Key("", "", "edge"), before, node(ready=False)))
    key = Key("", "default", "p")
    assert frees_resources(CacheChange(key, pod(on="edge"), None))
    assert not frees_resources(CacheChange(key, pod(), None))
    assert matches_node_affinity({}, node())


# --- in a cluster ---------------------------------------------------------------------------------


async def why(one: Cluster, name: str) -> str:
    condition = find_condition((await one.get(PODS, name))["status"], "PodScheduled")
    if condition is None or condition["status"] == "True":
        return ""
    return f"{condition['status']} {condition['reason']}: {condition['message']}"


async def test_a_pod_that_finds_its_port_taken_waits_until_it_is_free() -> None:
    async with cluster() as one:
        first, second = pod("first", ports=(port(8081),)), pod("second", ports=(port(8081),))
        await one.create(PODS, first)

        async def runs(name: str) -> bool:
            return bool((await one.get(PODS, name))["spec"].get("nodeName"))

        await one.eventually(lambda: runs("first"))
        await one.create(PODS, second)
        message = f"0/1 nodes are available: 1 {PORTS}."

        async def refused() -> bool:
            return await why(one, "second") == f"False Unschedulable: {message}"

        await one.eventually(refused)
        assert await one.said("FailedScheduling") == [message]
        await one.client.delete(PODS, "first", "default")
        await one.eventually(lambda: runs("second"))
        assert await one.said("Scheduled") == [
            "Successfully assigned default/first to edge",
            "Successfully assigned default/second to edge",
        ]


async def test_pods_wait_for_a_node_and_do_not_share_a_port_even_if_they_come_at_once() -> None:
    async with cluster(nodes=0) as one:
        for number in range(4):
            await one.create(PODS, pod(f"p{number}", ports=(port(8081),)))

        async def refused() -> bool:
            said = [await why(one, f"p{number}") for number in range(4)]
            return said == ["False Unschedulable: no nodes available to schedule pods"] * 4

        await one.eventually(refused)
        await one.client.create(NODES, node())

        async def one_runs() -> bool:
            placed = [each["spec"].get("nodeName") for each in await one.pods()]
            said = [await why(one, f"p{number}") for number in range(4)]
            return placed.count("edge") == 1 and sum(PORTS in each for each in said) == 3

        await one.eventually(one_runs)
