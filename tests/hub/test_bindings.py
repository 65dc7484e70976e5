"""pods/binding and bindings: how a pod gets its node."""

from __future__ import annotations

from typing import Any

import pytest
from hub_harness import PODS, LocalHub, pod

from farflung.machinery.errors import Obj

BINDINGS = "/api/v1/namespaces/default/bindings"


def binding(name: str, node: str = "florin", **metadata: Any) -> Obj:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}


@pytest.mark.parametrize("path", [f"{PODS}/p/binding", BINDINGS])
async def test_a_bound_pod_has_its_node_and_says_that_it_is_scheduled(hub: LocalHub, path: str) -> None:
    created = await hub.create(PODS, pod("p"))

    answer = await hub.post(path, binding("p", annotations={"a": "b"}))

    assert answer.status == 201
    assert answer.json == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    bound = (await hub.get(f"{PODS}/p")).json
    assert bound["spec"]["nodeName"] == "florin"
    assert bound["metadata"]["annotations"] == {"a": "b"}
    assert bound["metadata"]["managedFields"] == created["metadata"]["managedFields"]
    assert bound["metadata"]["generation"] == created["metadata"]["generation"]
    (condition,) = [one for one in bound["status"]["conditions"] if one["type"] == "PodScheduled"]
    assert condition["status"] == "True"
    assert condition["lastTransitionTime"] == "2024-05-01T12:00:00Z"


async def test_being_scheduled_takes_the_place_of_not_being_so(hub: LocalHub) -> None:
    await hub.create(PODS, pod("p"))
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    await hub.patch(f"{PODS}/p/status", {"status": {"conditions": [refused]}})

    await hub.post(f"{PODS}/p/binding", binding("p"))

    conditions = (await hub.get(f"{PODS}/p")).json["status"]["conditions"]
    assert [(one["type"], one["status"], one.get("reason")) for one in conditions] == [("PodScheduled", "True", None)]


async def test_a_pod_is_bound_once(hub: LocalHub) -> None:
    await hub.create(PODS, pod("p"))
    await hub.post(f"{PODS}/p/binding", binding("p", "florin"))

    with hub.writes_nothing():
        answer = await hub.post(f"{PODS}/p/binding", binding("p", "guilder"))

    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "florin"'
    )
    assert answer.json["details"] == {"name": "p", "kind": "pods/binding"}


async def test_a_pod_that_is_being_deleted_gets_no_node(hub: LocalHub) -> None:
    held = pod("p")
    held["metadata"]["finalizers"] = ["example.com/held"]
    await hub.create(PODS, held)
    await hub.delete(f"{PODS}/p")

    answer = await hub.post(f"{PODS}/p/binding", binding("p"))

    assert answer.message == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is being deleted, cannot be assigned to a host'
    )


async def test_a_pod_behind_a_gate_gets_no_node(hub: LocalHub) -> None:
    await hub.create(PODS, pod("p", schedulingGates=[{"name": "example.com/wait"}]))

    answer = await hub.post(f"{PODS}/p/binding", binding("p"))

    assert answer.status == 409
    assert answer.message.endswith("pod p has non-empty .spec.schedulingGates")


async def test_a_binding_may_insist_on_the_pod_it_saw(hub: LocalHub) -> None:
    created = await hub.create(PODS, pod("p"))

    refused = await hub.post(f"{PODS}/p/binding", binding("p", uid="another"))
    taken = await hub.post(f"{PODS}/p/binding", binding("p", uid=created["metadata"]["uid"]))

    assert (refused.status, refused.reason) == (409, "Conflict")
    assert taken.status == 201


async def test_a_dry_run_binds_nothing(hub: LocalHub) -> None:
    await hub.create(PODS, pod("p"))

    with hub.writes_nothing():
        answer = await hub.post(f"{PODS}/p/binding", binding("p"), query={"dryRun": "All"})

    assert answer.status == 201


async def test_what_is_no_binding_of_this_pod_is_refused(hub: LocalHub) -> None:
    await hub.create(PODS, pod("p"))
    another_kind = binding("p")
    another_kind["target"]["kind"] = "Minion"

    with hub.writes_nothing():
        another = await hub.post(f"{PODS}/p/binding", binding("q"))
        nowhere = await hub.post(f"{PODS}/p/binding", binding("p", ""))
        nothing = await hub.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}})
        odd = await hub.post(f"{PODS}/p/binding", another_kind)
        absent = await hub.post(f"{PODS}/q/binding", binding("q"))
        nameless = await hub.post(BINDINGS, binding(""))

    assert another.message == "name in URL does not match name in Binding object"
    assert nowhere.message == 'Binding "p" is invalid: target.name: Required value'
    assert nothing.status == 422
    assert "target.kind: Unsupported value" in odd.message
    assert absent.message == 'pods "q" not found'
    assert nameless.status == 404
