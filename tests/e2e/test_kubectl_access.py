"""kubectl auth, and what kubectl shows to those who may not do everything."""

from __future__ import annotations

from hub_process import eventually
from kubectl_runner import Kubectl

ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: rec, namespace: {namespace}}}
rules:
- {{apiGroups: [""], resources: [{resource}], verbs: [get]}}
"""


def test_a_binding_counts_at_once_and_no_longer_than_it_is_there(kubectl: Kubectl) -> None:
    assert kubectl.run("auth can-i get configmaps --as ann").stdout == "no\n"
    kubectl("create rolebinding ann --clusterrole view --user ann")
    assert kubectl("auth can-i get configmaps --as ann") == "yes\n"
    assert kubectl("get configmaps -o name --as ann") == "configmap/kube-root-ca.crt\n"
    assert "cannot list resource" in kubectl.fails("get secrets --as ann")
    kubectl("delete rolebinding ann")
    assert kubectl.run("auth can-i get configmaps --as ann").stdout == "no\n"


def test_a_list_shows_all_that_somebody_may(kubectl: Kubectl) -> None:
    kubectl("create role r --verb get,list --resource configmaps,pods/log")
    kubectl(f"create rolebinding r --role r --serviceaccount {kubectl.namespace}:bot")

    shown = kubectl(f"auth can-i --list --as system:serviceaccount:{kubectl.namespace}:bot")

    first = {line.split()[0] for line in shown.splitlines() if line.split()}
    assert {"configmaps", "pods/log", "selfsubjectaccessreviews.authorization.k8s.io"} <= first


def test_reconcile_adds_rules_and_removes_them_when_told(kubectl: Kubectl) -> None:
    first = ROLE.format(namespace=kubectl.namespace, resource="pods")
    second = ROLE.format(namespace=kubectl.namespace, resource="secrets")
    resources = "{.rules[*].resources[*]}"
    said = "role.rbac.authorization.k8s.io/rec reconciled\n"

    assert kubectl.run("auth reconcile -f -", first).stdout == said
    assert kubectl.run("auth reconcile -f -", second).stdout == said
    assert kubectl(f"get role rec -o jsonpath={resources}") == "pods secrets"
    assert kubectl.run("auth reconcile --remove-extra-permissions -f -", second).stdout == said
    assert kubectl(f"get role rec -o jsonpath={resources}") == "secrets"


def test_an_admin_of_a_namespace_gives_what_they_have_and_no_more(kubectl: Kubectl) -> None:
    kubectl("create rolebinding boss --clusterrole admin --user ann")

    kubectl("create rolebinding more --clusterrole edit --user bob --as ann")
    refused = kubectl.fails("create rolebinding all --clusterrole cluster-admin --user ann --as ann")

    assert kubectl("auth can-i create deployments --as bob") == "yes\n"
    assert "is attempting to grant RBAC permissions not currently held" in refused


def test_rules_reach_the_default_roles_by_a_label(kubectl: Kubectl) -> None:
    name = f"part-{kubectl.namespace}"
    kubectl("create rolebinding ann --clusterrole view --user ann")
    kubectl(f"create clusterrole {name} --verb delete --resource configmaps --resource-name {name}")
    kubectl(f"label clusterrole {name} rbac.authorization.k8s.io/aggregate-to-view=true")

    asked = f"auth can-i delete configmaps/{name} --as ann"
    eventually(lambda: kubectl.run(asked).stdout == "yes\n")
    kubectl(f"delete clusterrole {name}")
    eventually(lambda: kubectl.run(asked).stdout == "no\n")
