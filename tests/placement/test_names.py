"""Kinds go where the table says, and what every cluster has of its own goes nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from farflung.placement.names import Category, GroupResource, category, is_system

EDGE = {
    "": "configmaps endpoints limitranges namespaces persistentvolumeclaims persistentvolumes pods podtemplates "
    "replicationcontrollers resourcequotas secrets serviceaccounts services",
    "admissionregistration.k8s.io": "mutatingwebhookconfigurations validatingwebhookconfigurations",
    "apiextensions.k8s.io": "customresourcedefinitions",
    "apiregistration.k8s.io": "apiservices",
    "apps": "daemonsets deployments replicasets statefulsets",
    "autoscaling": "horizontalpodautoscalers",
    "batch": "cronjobs jobs",
    "coordination.k8s.io": "leases",
    "flowcontrol.apiserver.k8s.io": "flowschemas prioritylevelconfigurations",
    "networking.k8s.io": "ingresses ingressclasses networkpolicies",
    "node.k8s.io": "runtimeclasses",
    "policy": "poddisruptionbudgets",
    "rbac.authorization.k8s.io": "clusterrolebindings clusterroles rolebindings roles",
    "scheduling.k8s.io": "priorityclasses",
    "stable.example.com": "crontabs events nodes",
    "storage.k8s.io": "storageclasses",
}
NOWHERE = {
    "": "bindings componentstatuses events nodes",
    "apiresource.kcp.io": "apiresourceimports negotiatedapiresources",
    "apis.kcp.io": "apiconversions apiexportendpointslices apiexports apiresourceschemas",
    "apps": "controllerrevisions",
    "authentication.k8s.io": "selfsubjectreviews tokenreviews",
    "authorization.k8s.io": "localsubjectaccessreviews selfsubjectaccessreviews selfsubjectrulesreviews "
    "subjectaccessreviews",
    "certificates.k8s.io": "certificatesigningrequests",
    "core.kcp.io": "logicalclusters shards",
    "edge.kcp.io": "customizers edgeplacements edgesyncconfigs singleplacementslices statussummaries syncerconfigs "
    "whatever",
    "edge.kubestellar.io": "edgeplacements",
    "events.k8s.io": "events",
    "scheduling.kcp.io": "locations placements",
    "tenancy.kcp.io": "workspaces workspacetypes",
    "topology.kcp.io": "partitions",
    "workload.kcp.io": "synctargets",
}


def kinds_of(table: dict[str, str]) -> list[GroupResource]:
    return [GroupResource(group, resource) for group, resources in table.items() for resource in resources.split()]


@pytest.mark.parametrize("resource", kinds_of(EDGE), ids=str)
def test_workloads_are_copied_to_edges(resource: GroupResource) -> None:
    assert category(resource) is Category.EDGE


@pytest.mark.parametrize("resource", kinds_of(NOWHERE), ids=str)
def test_kinds_of_the_hub_or_of_one_cluster_are_not_copied(resource: GroupResource) -> None:
    assert category(resource) is Category.NOWHERE


def test_bindings_reach_the_mailbox_and_not_the_edge() -> None:
    assert category(GroupResource("apis.kcp.io", "apibindings")) is Category.MAILBOX


def owned_by(kind: str, api_version: str = "v1") -> dict[str, Any]:
    return {"ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": "x", "uid": "u"}]}


SECRETS, CONFIG_MAPS, ACCOUNTS = (
    GroupResource("", "secrets"),
    GroupResource("", "configmaps"),
    GroupResource("", "serviceaccounts"),
)
ENDPOINTS, SLICES = GroupResource("", "endpoints"), GroupResource("discovery.k8s.io", "endpointslices")
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"


@pytest.mark.parametrize(
    ("resource", "obj"),
    [
        (SECRETS, {"type": "kubernetes.io/service-account-token"}),
        (SECRETS, {"type": "bootstrap.kubernetes.io/token"}),
        (SECRETS, {"type": "kubernetes.io/dockercfg", "metadata": owned_by("ServiceAccount")}),
        (
            SECRETS,
            {
                "type": "kubernetes.io/dockercfg",
                "metadata": {"annotations": {"kubernetes.io/service-account.name": "builder"}},
            },
        ),
        (
            SECRETS,
            {
                "type": "kubernetes.io/dockercfg",
                "metadata": {"annotations": {"openshift.io/internal-registry-auth-token.service-account": "builder"}},
            },
        ),
        (SECRETS, {"type": "Opaque", "metadata": {"namespace": "kcp-system", "name": "my-export"}}),
        (CONFIG_MAPS, {"metadata": {"name": "kube-root-ca.crt"}}),
        (ACCOUNTS, {"metadata": {"name": "default"}}),
        (ENDPOINTS, {"metadata": {"labels": {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}}}),
        (ENDPOINTS, {"metadata": {"annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "t"}}}),
        (ENDPOINTS, {"metadata": owned_by("Service")}),
        (SLICES, {"metadata": owned_by("Service")}),
        (SLICES, {"metadata": {"labels": {MANAGED_BY: "endpointslice-controller.k8s.io"}}}),
        (SLICES, {"metadata": {"labels": {MANAGED_BY: "endpointslicemirroring-controller.k8s.io"}}}),
    ],
)
def test_every_cluster_has_these_of_its_own(resource: GroupResource, obj: dict[str, Any]) -> None:
    assert is_system(resource, obj)


@pytest.mark.parametrize(
    ("resource", "obj"),
    [
        (SECRETS, {"metadata": {"name": "default"}}),
        (SECRETS, {"type": "Opaque", "metadata": {"namespace": "default"}}),
        (SECRETS, {"type": "Opaque", "metadata": owned_by("ServiceAccount")}),
        (SECRETS, {"type": "kubernetes.io/dockercfg", "metadata": {"annotations": None, "ownerReferences": None}}),
        (SECRETS, {"type": "kubernetes.io/dockercfg", "metadata": owned_by("ServiceAccount", "example.com/v1")}),
        (SECRETS, {"type": "kubernetes.io/dockerconfigjson", "metadata": owned_by("ServiceAccount")}),
        (CONFIG_MAPS, {"metadata": {"name": "default"}}),
        (ACCOUNTS, {"metadata": {"name": "kube-root-ca.crt"}}),
        (GroupResource("example.com", "configmaps"), {"metadata": {"name": "kube-root-ca.crt"}}),
        (GroupResource("example.com", "secrets"), {"type": "bootstrap.kubernetes.io/token"}),
        (ENDPOINTS, {"metadata": {"name": "by-hand"}}),
        (SLICES, {"metadata": {"labels": {MANAGED_BY: "me"}}}),
        (SLICES, {"metadata": {"labels": None}}),
        (GroupResource("", "pods"), {}),
        (SECRETS, {}),
    ],
)
def test_what_people_make_is_no_part_of_the_system(resource: GroupResource, obj: dict[str, Any]) -> None:
    assert not is_system(resource, obj)
