"""kubectl delete, with every cascade."""

from __future__ import annotations

import orjson
from hub_process import eventually
from kubectl_runner import Kubectl


def family(kubectl: Kubectl) -> str:
    """A ReplicaSet with a pod and a ConfigMap of its own; the ReplicaSet's uid."""
    kubectl("create -f -", REPLICASET)
    uid = kubectl.value("rs parent", ".metadata.uid")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "parent", "uid": uid, "blockOwnerDeletion": True}
    metadata = {"name": "child", "labels": {"family": "yes"}, "ownerReferences": [owner]}
    spec = {"containers": [{"name": "main", "image": "nginx"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    children = {"apiVersion": "v1", "kind": "List", "items": [pod, settings]}
    kubectl("create -f -", orjson.dumps(children).decode())
    return uid


REPLICASET = """
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: parent, labels: {family: "yes"}}
spec:
  replicas: 0
  selector: {matchLabels: {app: parent}}
  template:
    metadata: {labels: {app: parent}}
    spec: {containers: [{name: main, image: nginx}]}
"""


def left(kubectl: Kubectl) -> str:
    return kubectl("get rs,pod,cm -l family -o name --ignore-not-found")


def test_children_go_after_their_parent_with_background_cascade(kubectl: Kubectl) -> None:
    family(kubectl)
    assert kubectl("delete rs parent --cascade=background") == kubectl.deleted("replicaset.apps", "parent")
    eventually(lambda: left(kubectl) == "", "the end of the children")


def test_children_go_before_their_parent_with_foreground_cascade(kubectl: Kubectl) -> None:
    family(kubectl)
    hold = """patch cm child --type=merge -p '{"metadata":{"finalizers":["example.com/hold"]}}'"""
    kubectl(hold)
    assert kubectl("delete rs parent --cascade=foreground --wait=false") == kubectl.deleted("replicaset.apps", "parent")
    eventually(lambda: not kubectl.exists("pod child"), "the end of the pod")
    assert kubectl.value("rs parent", ".metadata.finalizers") == '["foregroundDeletion"]'
    assert kubectl.value("rs parent", ".metadata.deletionTimestamp") != ""
    kubectl(hold.replace('["example.com/hold"]', "null"))
    kubectl("wait --for=delete rs/parent cm/child --timeout=50s")
    assert left(kubectl) == ""


def test_children_stay_with_orphan_cascade(kubectl: Kubectl) -> None:
    family(kubectl)
    assert kubectl("delete rs parent --cascade=orphan") == kubectl.deleted("replicaset.apps", "parent")
    assert left(kubectl) == "pod/child\nconfigmap/child\n"
    assert kubectl.value("pod child", ".metadata.ownerReferences") == ""
    assert kubectl.value("cm child", ".metadata.ownerReferences") == ""


def test_delete_takes_names_labels_files_and_all(kubectl: Kubectl) -> None:
    labels = {"a": "x", "b": "x", "c": "u", "d": "u", "e": "z"}
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {{name: {}, labels: {{l: {}}}}}\n"
    kubectl("create -f -", "---\n".join(secret.format(name, label) for name, label in labels.items()))
    assert kubectl("delete secret --all --dry-run=server").count(" (server dry run)") == 5
    assert kubectl("delete secret a --dry-run=server --cascade=foreground").count(" (server dry run)") == 1
    assert kubectl("get secret -o jsonpath='{.items[*].metadata.name}'") == "a b c d e"
    assert kubectl("delete secret a") == kubectl.deleted("secret", "a")
    assert kubectl("delete secret -l l=u") == kubectl.deleted("secret", "c", "d")
    assert kubectl("delete secret/b -o name") == "secret/b\n"
    assert kubectl.fails("delete secret b") == 'Error from server (NotFound): secrets "b" not found'
    assert kubectl("delete secret b --ignore-not-found") == ""
    assert kubectl("delete secret --all") == kubectl.deleted("secret", "e")
    assert kubectl("get secret -o name") == ""


def test_a_finalizer_holds_an_object_until_it_is_removed(kubectl: Kubectl) -> None:
    held = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held","finalizers":["example.com/hold"]}}'
    kubectl("create -f -", held)
    with kubectl.watching("delete cm held --wait --timeout=50s") as deleting:
        assert kubectl.value("cm held", ".metadata.deletionTimestamp") != ""
        kubectl("""patch cm held --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'""")
        assert deleting.rest() == kubectl.deleted("configmap", "held")
    assert not kubectl.exists("cm held")
    kubectl("create -f -", held)
    timed_out = kubectl.run("delete cm held --timeout=200ms")
    assert timed_out.returncode == 1
    assert timed_out.stderr.endswith("error: timed out waiting for the condition on configmaps/held\n")
    refusal = kubectl.fails("""patch cm held --type=merge -p '{"metadata":{"finalizers":["example.com/new"]}}'""")
    assert "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted" in refusal


def test_a_namespace_takes_its_contents_along(kubectl: Kubectl) -> None:
    name = f"{kubectl.namespace}-doomed"
    kubectl(f"create ns {name}")
    kubectl(f"create cm inside -n {name}")
    kubectl(f"create deployment web --image=nginx -n {name}")
    assert kubectl(f"delete ns {name} --timeout=50s") == kubectl.deleted("namespace", name, namespaced=False)
    assert kubectl.fails(f"get ns {name}") == f'Error from server (NotFound): namespaces "{name}" not found'
    assert kubectl(f"get cm,deploy,sa -n {name} -o name") == ""
    assert kubectl.fails("delete ns default") == (
        'Error from server (Forbidden): namespaces "default" is forbidden: this namespace may not be deleted'
    )
