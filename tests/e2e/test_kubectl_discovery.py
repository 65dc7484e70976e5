"""kubectl api-resources, api-versions, version, cluster-info, and who may ask."""

from __future__ import annotations

import orjson
from kubectl_runner import Kubectl


def test_the_resources_are_listed_with_their_verbs_and_categories(kubectl: Kubectl) -> None:
    rows = kubectl.table("api-resources --api-group=rbac.authorization.k8s.io")
    assert rows[0] == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert ["rolebindings", "rbac.authorization.k8s.io/v1", "true", "RoleBinding"] in rows
    assert ["clusterroles", "rbac.authorization.k8s.io/v1", "false", "ClusterRole"] in rows
    wide = kubectl.table("api-resources --api-group='' -o wide --no-headers")
    verbs = "create,delete,deletecollection,get,list,patch,update,watch"
    assert ["configmaps", "cm", "v1", "true", "ConfigMap", verbs] in wide
    assert ["pods", "po", "v1", "true", "Pod", verbs, "all"] in wide
    assert ["bindings", "v1", "true", "Binding", "create"] in wide
    assert kubectl("api-resources --categories=all --api-group=apps -o name").splitlines() == [
        "daemonsets.apps",
        "deployments.apps",
        "replicasets.apps",
        "statefulsets.apps",
    ]
    assert "namespaces" in kubectl("api-resources --namespaced=false --verbs=list,create -o name").splitlines()


def test_versions_of_the_api_and_of_the_hub_are_told(kubectl: Kubectl) -> None:
    versions = kubectl("api-versions").splitlines()
    assert versions == sorted(versions)
    assert {"v1", "apps/v1", "batch/v1", "autoscaling/v1", "autoscaling/v2", "rbac.authorization.k8s.io/v1"} < set(
        versions
    )
    told = kubectl.run("version -o json")
    assert told.returncode == 0
    server = orjson.loads(told.stdout)["serverVersion"]
    assert (server["major"], server["minor"]) == ("1", "33")
    assert server["gitVersion"].startswith("v1.33.")
    assert kubectl.hub.address.geturl() in kubectl("cluster-info")


def test_whoever_has_no_good_token_is_told_so(kubectl: Kubectl) -> None:
    assert kubectl("auth can-i create deployments") == "yes\n"
    good = kubectl.kubeconfig.read_text()
    kubectl.kubeconfig.write_text(good.replace(kubectl.hub.token, "wrong"))
    assert "error: You must be logged in to the server (Unauthorized)" in kubectl.fails("get ns")
    assert kubectl.fails("create cm x") == "error: failed to create configmap: Unauthorized"
    kubectl.kubeconfig.write_text(good.replace("certificate-authority-data", "ignored"))
    assert "certificate signed by unknown authority" in kubectl.fails("get ns")
