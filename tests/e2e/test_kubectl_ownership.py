"""Owners of fields as people meet them with kubectl: migrating, handing over, forgetting, sharing."""

from __future__ import annotations

from hub_process import Json
from kubectl_runner import Kubectl

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "nginx:1"}]}
"""
REPLICAS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 3}
"""
MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: m}
data: {keep: "1", drop: "1"}
"""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def owners(kubectl: Kubectl, what: str) -> dict[tuple[str, str], Json]:
    entries = kubectl.object(what)["metadata"].get("managedFields", [])
    return {(one["manager"], one["operation"]): one["fieldsV1"] for one in entries}


def test_what_was_applied_by_the_client_is_migrated_to_the_server(kubectl: Kubectl) -> None:
    assert kubectl("apply -f -", MAP) == "configmap/m created\n"
    assert list(owners(kubectl, "cm m")) == [("kubectl-client-side-apply", "Update")]
    assert kubectl("apply --server-side -f -", MAP) == "configmap/m serverside-applied\n"
    assert set(owners(kubectl, "cm m")) == {("kubectl", "Apply"), ("kubectl-last-applied", "Apply")}
    fewer = MAP.replace(', drop: "1"', "")
    assert kubectl("apply --server-side -f -", fewer) == "configmap/m serverside-applied\n"
    live = kubectl.object("cm m")
    assert live["data"] == {"keep": "1"}
    assert '"drop"' not in live["metadata"]["annotations"][LAST_APPLIED]


def test_the_client_may_apply_again_after_the_server(kubectl: Kubectl) -> None:
    assert kubectl("apply -f -", MAP) == "configmap/m created\n"
    assert (
        kubectl("apply --server-side -f -", MAP.replace('drop: "1"', 'drop: "2"')) == "configmap/m serverside-applied\n"
    )
    assert kubectl("apply -f -", MAP.replace(', drop: "1"', "")) == "configmap/m configured\n"
    assert kubectl.object("cm m")["data"] == {"keep": "1"}


def test_replicas_are_handed_over_to_an_autoscaler(kubectl: Kubectl) -> None:
    assert kubectl("apply --server-side -f -", DEPLOYMENT) == "deployment.apps/web serverside-applied\n"
    handover = "apply --server-side --field-manager=handover-to-hpa --validate=false -f -"
    assert kubectl(handover, REPLICAS) == "deployment.apps/web serverside-applied\n"
    without = DEPLOYMENT.replace("  replicas: 3\n", "")
    assert kubectl("apply --server-side -f -", without) == "deployment.apps/web serverside-applied\n"
    assert kubectl.value("deploy web", ".spec.replicas") == "3"
    assert owners(kubectl, "deploy web")[("handover-to-hpa", "Apply")] == {"f:spec": {"f:replicas": {}}}
    assert kubectl("scale deploy web --replicas=6") == "deployment.apps/web scaled\n"
    assert kubectl("apply --server-side -f -", without) == "deployment.apps/web serverside-applied\n"
    assert kubectl.value("deploy web", ".spec.replicas") == "6"


def test_a_value_is_shared_by_two_who_apply_it(kubectl: Kubectl) -> None:
    for manager in ("one", "two"):
        assert kubectl(f"apply --server-side --field-manager={manager} -f -", MAP) == "configmap/m serverside-applied\n"
    changed = MAP.replace('keep: "1"', 'keep: "2"')
    refusal = kubectl.fails("apply --server-side --field-manager=one -f -", changed)
    assert refusal.startswith('error: Apply failed with 1 conflict: conflict with "two": .data.keep')
    fewer = MAP.replace(', drop: "1"', "")
    assert kubectl("apply --server-side --field-manager=one -f -", fewer) == "configmap/m serverside-applied\n"
    assert kubectl.value("cm m", ".data.drop") == "1"
    assert kubectl("apply --server-side --field-manager=two -f -", fewer) == "configmap/m serverside-applied\n"
    assert kubectl.value("cm m", ".data") == '{"keep":"1"}'


def test_owners_are_forgotten_on_demand(kubectl: Kubectl) -> None:
    assert kubectl("apply --server-side -f -", MAP) == "configmap/m serverside-applied\n"
    patch = """patch cm m --type=merge -p '{"metadata":{"managedFields":[{}]}}'"""
    assert kubectl(patch) == "configmap/m patched\n"
    assert owners(kubectl, "cm m") == {}
    changed = MAP.replace('keep: "1"', 'keep: "2"')
    refusal = kubectl.fails("apply --server-side -f -", changed)
    assert 'conflict with "before-first-apply" using v1: .data.keep' in refusal
    assert kubectl("apply --server-side --force-conflicts -f -", changed) == "configmap/m serverside-applied\n"
    assert kubectl.value("cm m", ".data.keep") == "2"


def test_edits_and_labels_are_updates_of_their_own_managers(kubectl: Kubectl) -> None:
    assert kubectl("apply --server-side -f -", MAP) == "configmap/m serverside-applied\n"
    assert kubectl("label cm m a=b") == "configmap/m labeled\n"
    assert kubectl("edit cm m", EDITOR="sed -i s/drop:/dropped:/") == "configmap/m edited\n"
    known = owners(kubectl, "cm m")
    assert known[("kubectl", "Apply")] == {"f:data": {"f:keep": {}}}
    assert known[("kubectl-label", "Update")] == {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}
    assert known[("kubectl-edit", "Update")] == {"f:data": {"f:dropped": {}}}
