"""Every kind of Kubernetes that can be placed is exported, with Kubernetes' rules and columns."""

from __future__ import annotations

from typing import Final

import pytest
from hub_harness import MERGE_PATCH, TABLE, LocalHub
from workspaces_harness import LocalWorkspaces

from farflung.apis.kcp import compute
from farflung.apis.kcp.names import COMPUTE_EXPORT, MORE_EXPORT
from farflung.apis.resource import Resource
from farflung.machinery.errors import Obj

SHOP = "/clusters/root:shop"
LABELS: Final = {"matchLabels": {"app": "web"}}
POD: Final = {"containers": [{"name": "web", "image": "nginx"}]}
TEMPLATE: Final = {"metadata": {"labels": {"app": "web"}}, "spec": POD}
JOB: Final = {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
SUBJECT: Final = {"kind": "Group", "group": {"name": "x"}}
REQUESTS: Final = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
STORAGE: Final = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}}
CLAIM: Final = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
LEVEL: Final = {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
SCALED: Final = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
#: a good object of each kind, and one with a mistake; None: of these, the hub checks only the types
OBJECTS: Final[dict[str, tuple[Obj, Obj | None]]] = {
    "endpoints": ({"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]}, {"subsets": [{"addresses": [{"ip": "x"}]}]}),
    "persistentvolumeclaims": ({"spec": CLAIM}, {"spec": {**CLAIM, "accessModes": []}}),
    "persistentvolumes": ({"spec": STORAGE}, {"spec": {**STORAGE, "capacity": {}}}),
    "podtemplates": ({"template": TEMPLATE}, {"template": {"spec": {"containers": []}}}),
    "replicationcontrollers": (
        {"spec": {"selector": {"app": "web"}, "template": TEMPLATE}},
        {"spec": {"selector": {"app": "other"}, "template": TEMPLATE}},
    ),
    "daemonsets.apps": (
        {"spec": {"selector": LABELS, "template": TEMPLATE}},
        {"spec": {"selector": {}, "template": TEMPLATE}},
    ),
    "replicasets.apps": (
        {"spec": {"selector": LABELS, "template": TEMPLATE}},
        {"spec": {"selector": {"matchLabels": {"app": "other"}}, "template": TEMPLATE}},
    ),
    "statefulsets.apps": (
        {"spec": {"selector": LABELS, "template": TEMPLATE, "serviceName": "web"}},
        {"spec": {"selector": LABELS, "template": TEMPLATE, "serviceName": "web", "podManagementPolicy": "Odd"}},
    ),
    "horizontalpodautoscalers.autoscaling": (
        {"spec": {"maxReplicas": 3, "scaleTargetRef": SCALED}},
        {"spec": {"maxReplicas": 0, "scaleTargetRef": SCALED}},
    ),
    "cronjobs.batch": (
        {"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": JOB}}},
        {"spec": {"schedule": "sometimes", "jobTemplate": {"spec": JOB}}},
    ),
    "jobs.batch": ({"spec": JOB}, {"spec": {**JOB, "parallelism": -1}}),
    "ingressclasses.networking.k8s.io": (
        {"spec": {"controller": "example.com/web"}},
        {"spec": {"controller": "no domain"}},
    ),
    "networkpolicies.networking.k8s.io": (
        {"spec": {"podSelector": LABELS, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}},
        {"spec": {"podSelector": LABELS, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0"}}]}]}},
    ),
    "servicecidrs.networking.k8s.io": ({"spec": {"cidrs": ["10.0.0.0/16"]}}, {"spec": {"cidrs": ["10.0.0.1"]}}),
    "poddisruptionbudgets.policy": (
        {"spec": {"selector": LABELS, "minAvailable": 1}},
        {"spec": {"selector": LABELS, "minAvailable": -1}},
    ),
    "csidrivers.storage.k8s.io": ({"spec": {"attachRequired": False}}, {"spec": {"fsGroupPolicy": "Odd"}}),
    "storageclasses.storage.k8s.io": (
        {"provisioner": "example.com/disk"},
        {"provisioner": "example.com/disk", "reclaimPolicy": "Odd"},
    ),
    "volumeattributesclasses.storage.k8s.io": (
        {"driverName": "example.com", "parameters": {"iops": "1"}},
        {"driverName": "", "parameters": {"iops": "1"}},
    ),
    "priorityclasses.scheduling.k8s.io": ({"value": 10}, {"value": 2_000_000_000}),
    "runtimeclasses.node.k8s.io": ({"handler": "runc"}, {"handler": "No Handler"}),
    "endpointslices.discovery.k8s.io": (
        {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]},
        {"addressType": "IPv4", "endpoints": [{"addresses": ["x"]}]},
    ),
    "deviceclasses.resource.k8s.io": (
        {"spec": {"selectors": [{"cel": {"expression": "true"}}]}},
        None,
    ),
    "resourceclaims.resource.k8s.io": ({"spec": REQUESTS}, None),
    "resourceclaimtemplates.resource.k8s.io": (
        {"spec": {"spec": REQUESTS}},
        None,
    ),
    "flowschemas.flowcontrol.apiserver.k8s.io": (
        {"spec": {"priorityLevelConfiguration": {"name": "web"}, "matchingPrecedence": 5}},
        {"spec": {"priorityLevelConfiguration": {"name": "web"}, "matchingPrecedence": 100_000}},
    ),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": (
        {"spec": LEVEL},
        {"spec": {"type": "Exempt", "limited": {"limitResponse": {"type": "Reject"}}}},
    ),
}
MORE: Final = {one.qualified: one for one in compute.EXPORTED[MORE_EXPORT]}


def collection(resource: Resource, workspace: str = "") -> str:
    root = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
    return f"{workspace}{root}/{'namespaces/default/' if resource.namespaced else ''}{resource.plural}"


def named(resource: Resource, content: Obj) -> Obj:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "web"}, **content}


async def bind(hub: LocalWorkspaces, export: str) -> None:
    spec = {"reference": {"export": {"path": "root:compute", "name": export}}}
    binding = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": export}, "spec": spec}
    await hub.create(f"{SHOP}/apis/apis.kcp.io/v1alpha1/apibindings", binding)


@pytest.fixture
async def hub() -> LocalWorkspaces:
    """The workspace `shop` binds both exports."""
    hub = await LocalWorkspaces.started()
    await hub.new_workspace("root", "shop")
    for export in compute.EXPORTED:
        await bind(hub, export)
    return hub


@pytest.fixture
async def plain() -> LocalHub:
    return await LocalHub.in_memory().furnish()


def test_every_builtin_kind_is_exported_once_or_belongs_to_every_cluster() -> None:
    assert MORE.keys() == OBJECTS.keys()
    assert not MORE.keys() & set(compute.KCP_KINDS)
    assert {one.qualified for one in compute.EXPORTED[COMPUTE_EXPORT]} == set(compute.KCP_KINDS)


async def test_exported_kinds_have_the_rules_and_the_columns_of_kubernetes(
    hub: LocalWorkspaces, plain: LocalHub
) -> None:
    for name, (good, bad) in OBJECTS.items():
        resource = MORE[name]
        bound, builtin = collection(resource, SHOP), collection(resource)
        if bad is not None:
            refused = await hub.post(bound, named(resource, bad))
            expected = await plain.post(builtin, named(resource, bad))
            assert (refused.status, refused.message) == (422, expected.message), name
        sent = named(resource, good)
        created = await hub.request("POST", bound, sent, query={"fieldValidation": "Strict"})
        assert created.status == 201, (name, created.body)
        assert {key: created.json[key] for key in good} == good, name
        table = await hub.request("GET", bound, accept=TABLE)
        columns = await plain.request("GET", builtin, accept=TABLE)
        assert [one["name"] for one in table.json["columnDefinitions"]] == [
            one["name"] for one in columns.json["columnDefinitions"]
        ], name
        unknown = await hub.request("POST", bound, {**sent, "unknown": 1}, query={"fieldValidation": "Strict"})
        assert (unknown.status, unknown.reason) == (400, "BadRequest"), name


async def test_only_syncers_write_the_status_of_exported_kinds(hub: LocalWorkspaces) -> None:
    jobs = collection(MORE["jobs.batch"], SHOP)
    await hub.create(jobs, named(MORE["jobs.batch"], {"spec": JOB}))
    assert (await hub.patch(f"{jobs}/web", {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH)).status == 200
    refused = await hub.patch(f"{jobs}/web/status", {"status": {"active": 1}}, MERGE_PATCH)
    assert refused.status == 403
