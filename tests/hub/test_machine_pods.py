"""Virtual machines in a hub without workspaces: Pods with other fields and rules than those with containers."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hub_harness import APPLY_PATCH, MERGE_PATCH, STRATEGIC_PATCH, USER_TOKEN, LocalHub
from seed_machine import MACHINE

from farflung.hub.assembly import builtin_kinds
from farflung.machinery.errors import Obj

PODS = "/api/v1/namespaces/default/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
STRICT = {"fieldValidation": "Strict"}


def machine(name: str = "demovm", **spec: Any) -> Obj:
    pod: Obj = yaml.safe_load(MACHINE)
    pod["metadata"]["name"] = name
    pod["spec"] |= spec
    return pod


def containers(name: str = "web") -> Obj:
    spec = {"containers": [{"name": "web", "image": "nginx"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def test_a_machine_is_kept_as_it_is_and_gets_nothing_of_containers(hub: LocalHub) -> None:
    answer = await hub.post(PODS, machine(), STRICT)
    assert answer.status == 201, answer.body
    spec = answer.json["spec"]
    assert spec["virtualMachine"] == machine()["spec"]["virtualMachine"]
    assert spec.keys() == {"virtualMachine", "priority", "tolerations"}
    assert answer.json["status"] == {"phase": "Pending"}
    [entry] = answer.json["metadata"]["managedFields"]
    assert entry["fieldsV1"]["f:spec"].keys() - {"."} == {"f:virtualMachine"}


async def test_a_pod_with_containers_is_that_of_kubernetes(hub: LocalHub) -> None:
    made = (await hub.post(PODS, containers(), STRICT)).json
    assert made["spec"]["serviceAccountName"] == "default"
    assert made["status"]["qosClass"] == "BestEffort"
    [entry] = made["metadata"]["managedFields"]
    assert entry["fieldsV1"]["f:spec"]["f:containers"].keys() == {'k:{"name":"web"}'}, "as Go's types have it"
    empty = await hub.post(PODS, {**containers("empty"), "spec": {}})
    assert (empty.status, "spec.containers: Required value" in empty.message) == (422, True)


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        ({"containers": [{"name": "a", "image": "b"}]}, 422, "spec.containers: Forbidden"),
        ({"virtualMachine": {"flavors": []}}, 422, "spec.virtualMachine.flavors"),
        ({"virtualMachine": 7}, 422, "spec.virtualMachine"),
        ({"resourceType": "container"}, 422, "must be vm or empty"),
        ({"virtualMachine": {"flavors": [{"flavorID": "a"}], "colour": "red"}}, 400, 'unknown field "spec.virtualM'),
    ],
)
async def test_a_machine_is_validated_as_in_a_workspace(hub: LocalHub, spec: Obj, code: int, message: str) -> None:
    answer = await hub.post(PODS, machine(**spec), STRICT)
    assert (answer.status, message in answer.message) == (code, True), answer.message


async def test_a_pod_does_not_become_a_machine_or_cease_to_be_one(hub: LocalHub) -> None:
    await hub.post(PODS, machine())
    await hub.post(PODS, containers())
    for name, other in (("demovm", containers("demovm")), ("web", machine("web"))):
        before = (await hub.get(f"{PODS}/{name}")).json
        answer = await hub.put(f"{PODS}/{name}", {**before, "spec": other["spec"]})
        assert (answer.status, "may not become a virtual machine" in answer.message) == (422, True), answer.message


@pytest.mark.parametrize("media", [MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH])
async def test_a_machine_is_changed_by_every_patch(hub: LocalHub, media: str) -> None:
    await hub.post(PODS, machine())
    patch = {"spec": {"virtualMachine": {"image": "other", "flavors": [{"flavorID": "c6.large.2"}]}}}
    if media == APPLY_PATCH:
        patch |= {"apiVersion": "v1", "kind": "Pod"}
    query = {"fieldManager": "me", "force": "true"} if media == APPLY_PATCH else {}
    answer = await hub.patch(f"{PODS}/demovm", patch, media, query)
    assert answer.status == 200, answer.message
    assert answer.json["spec"]["virtualMachine"]["image"] == "other"
    assert answer.json["spec"]["virtualMachine"]["name"] == "vm001"


async def test_a_machine_is_bound_to_a_cluster_and_selected_by_it(hub: LocalHub) -> None:
    for pod in (machine(), machine("other"), containers()):
        await hub.post(PODS, pod)
    target = {"apiVersion": "globalscheduler.com/v1", "kind": "Cluster", "name": "az1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "demovm"}, "target": target}
    assert (await hub.post(f"{PODS}/demovm/binding", binding)).status == 201
    wrong = await hub.post(f"{PODS}/web/binding", {**binding, "metadata": {"name": "web"}})
    assert (wrong.status, "target.kind" in wrong.message) == (422, True)
    [bound] = (await hub.get(PODS, query={"fieldSelector": "spec.clusterName=az1"})).json["items"]
    assert (bound["spec"]["nodeName"], bound["status"]["phase"]) == ("az1", "Pending")
    [condition] = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert "lastProbeTime" not in condition
    assert (await hub.delete(f"{PODS}/demovm")).status == 200
    assert (await hub.get(f"{PODS}/demovm")).status == 404, "no node stops it"


async def test_pod_templates_cannot_be_machines(hub: LocalHub) -> None:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": machine()["spec"]}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    answer = await hub.post("/apis/apps/v1/namespaces/default/deployments", body, STRICT)
    assert (answer.status, 'unknown field "spec.template.spec.virtualMachine"' in answer.message) == (400, True)


def test_a_cluster_with_nodes_has_no_machines() -> None:
    spec = builtin_kinds().of("", "v1", "pods").schema.member("spec")
    assert spec is not None
    assert spec.member("virtualMachine") is None


# --- attacks --------------------------------------------------------------------------------------


async def test_only_users_who_may_bind_set_the_binding_the_end_or_a_high_priority(hub: LocalHub) -> None:
    verbs = ["create", "get", "update", "patch"]
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": verbs}]
    await hub.create(f"{RBAC}/clusterroles", {"metadata": {"name": "pods"}, "rules": rules})
    subject = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"}
    role = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "pods"}
    body = {"metadata": {"name": "pods"}, "roleRef": role, "subjects": [subject]}
    await hub.create(f"{RBAC}/clusterrolebindings", body)
    await hub.post(PODS, machine())
    hub.token = USER_TOKEN
    note = {"annotations": {"globalscheduler.com/cluster": "az1"}}
    with hub.writes_nothing():
        for forged in (machine("x", nodeName="az1"), machine("x", clusterName="az1"), machine("x", priority=1)):
            assert (await hub.post(PODS, forged)).status == 403
        noted = machine("x")
        noted["metadata"] |= note
        assert (await hub.post(PODS, noted)).status == 403
        for path, patch in (
            ("demovm", {"spec": {"nodeName": "az1"}}),
            ("demovm", {"metadata": note}),
            ("demovm/status", {"status": {"phase": "Failed"}}),
        ):
            answer = await hub.patch(f"{PODS}/{path}", patch, MERGE_PATCH)
            assert answer.status == 403, answer.message
    assert (await hub.post(PODS, machine("low", priority=-1))).status == 201
