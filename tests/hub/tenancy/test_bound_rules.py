"""Kubernetes' validation of built-in kinds that a workspace has bound."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from workspaces_harness import LocalWorkspaces

from farflung.apis.builtin.kinds import BUILTIN
from farflung.apis.custom_kinds import CustomKind, object_, text
from farflung.apis.edge.names import UPSYNCED
from farflung.apis.kcp.compute import structural
from farflung.apis.validation import Rules
from farflung.hub.tenancy.bound_rules import with_builtin_rules
from farflung.machinery import names
from farflung.machinery.errors import Obj

KCP, OWN = "/clusters/root:shop", "/clusters/root:own"
NAMESPACED = "namespaces/default"
TOO_LARGE = 2**40  #: for the int32 of Kubernetes, not for the schema
LABELS = {"matchLabels": {"app": "web"}}


def an(api_version: str, kind: str, name: str, spec: Obj) -> Obj:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def template(**spec: Any) -> Obj:
    containers = [{"name": "web", "image": "nginx"}]
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers, **spec}}


def deployment(name: str = "web", **spec: Any) -> Obj:
    return an("apps/v1", "Deployment", name, {"selector": LABELS, "template": template(), **spec})


def service(name: str = "web", **spec: Any) -> Obj:
    return an("v1", "Service", name, {"ports": [{"port": 80, "protocol": "TCP"}], **spec})


def ingress(path: str) -> Obj:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    paths = [{"path": path, "pathType": "Prefix", "backend": backend}]
    return an("networking.k8s.io/v1", "Ingress", "web", {"rules": [{"http": {"paths": paths}}]})


def pod(name: str) -> Obj:
    return an("v1", "Pod", "web", {"containers": [{"name": name, "image": "nginx"}]})


def exported(group: str, plural: str, definition: str) -> CustomKind:
    """A built-in kind as an APIResourceSchema of a user."""
    schema = structural(definition)["properties"]
    fields = {name: schema[name] for name in ("spec", "status")}
    kind = definition.rpartition(".")[2]
    return CustomKind(group, plural, kind, "A kind.", fields, namespaced=True, version="v1", categories=())


#: a kind of a user, with a name of Kubernetes and other fields
OTHER = CustomKind(
    "apps",
    "daemonsets",
    "DaemonSet",
    "A kind.",
    {"spec": object_("Its content.", template=text("The name of a template."))},
    namespaced=True,
    version="v1",
    categories=(),
)
USERS_KINDS = (
    exported("apps", "deployments", "io.k8s.api.apps.v1.Deployment"),
    exported("batch", "jobs", "io.k8s.api.batch.v1.Job"),
    exported("", "persistentvolumeclaims", "io.k8s.api.core.v1.PersistentVolumeClaim"),
    OTHER,
)


async def bind(hub: LocalWorkspaces, workspace: str, path: str, name: str) -> None:
    spec = {"reference": {"export": {"path": path, "name": name}}}
    binding = an("apis.kcp.io/v1alpha1", "APIBinding", name, spec)
    await hub.create(f"{workspace}/apis/apis.kcp.io/v1alpha1/apibindings", binding)


@pytest.fixture
async def hub() -> LocalWorkspaces:
    """The workspace `shop` binds the export of kcp's kinds."""
    hub = await LocalWorkspaces.started()
    await hub.new_workspace("root", "shop")
    await bind(hub, KCP, "root:compute", "kubernetes")
    return hub


@pytest.fixture
async def exporter() -> LocalWorkspaces:
    """The workspace `own` exports and binds kinds of a user."""
    hub = await LocalWorkspaces.started()
    await hub.new_workspace("root", "own")
    apis = f"{OWN}/apis/apis.kcp.io/v1alpha1"
    for kind in USERS_KINDS:
        await hub.create(f"{apis}/apiresourceschemas", kind.resource_schema())
    schemas = [kind.resource_schema_name for kind in USERS_KINDS]
    export = an("apis.kcp.io/v1alpha1", "APIExport", "workloads", {"latestResourceSchemas": schemas})
    await hub.create(f"{apis}/apiexports", export)
    await bind(hub, OWN, "root:own", "workloads")
    return hub


def collection(workspace: str, resource: str) -> str:
    group, _, plural = resource.rpartition("/")
    return f"{workspace}/{f'apis/{group}' if group else 'api'}/v1/{NAMESPACED}/{plural}"


MISTAKES: list[tuple[str, Obj, str]] = [
    ("apps/deployments", deployment(replicas=-1), "spec.replicas: Invalid value: -1"),
    (
        "apps/deployments",
        deployment(template=template(restartPolicy="Never")),
        'spec.template.spec.restartPolicy: Unsupported value: "Never"',
    ),
    ("services", service(ports=[{"port": 0}]), "spec.ports[0].port: Invalid value: 0"),
    ("services", service("1st"), 'metadata.name: Invalid value: "1st"'),
    ("networking.k8s.io/ingresses", ingress("relative"), "spec.rules[0].http.paths[0].path: Invalid value"),
    ("pods", pod("Web"), 'spec.containers[0].name: Invalid value: "Web"'),
]


async def test_a_mistake_in_a_kind_of_kcp_is_refused(hub: LocalWorkspaces) -> None:
    for resource, obj, error in MISTAKES:
        answer = await hub.post(collection(KCP, resource), obj)
        assert answer.status == 422, error
        assert error in answer.message


async def test_an_admitted_object_is_stored_without_kubernetes_defaults(hub: LocalWorkspaces) -> None:
    for resource, obj in (
        ("apps/deployments", deployment("plain")),
        ("services", service("plain")),
    ):
        created = await hub.create(collection(KCP, resource), obj)
        assert created["spec"] == obj["spec"]
        assert "status" not in created


async def test_fields_that_an_edge_allocates_may_be_absent(hub: LocalWorkspaces) -> None:
    local = service("local", type="LoadBalancer", externalTrafficPolicy="Local")

    assert (await hub.post(collection(KCP, "services"), local)).status == 201


async def test_a_deployment_of_kcp_may_have_the_mistakes_that_kcp_accepts(hub: LocalWorkspaces) -> None:
    deployments = collection(KCP, "apps/deployments")
    other = {"metadata": {"labels": {"app": "other"}}, "spec": {"containers": []}}

    assert (await hub.post(deployments, deployment("accepted", template=other))).status == 201
    changed = {"spec": {"selector": {"matchLabels": {"app": "other"}}}}
    assert (await hub.patch(f"{deployments}/accepted", changed)).status == 200
    refused = await hub.patch(f"{deployments}/accepted", {"spec": {"minReadySeconds": -1}})
    assert (refused.status, "spec.minReadySeconds: Invalid value: -1" in refused.message) == (422, True)


async def test_a_deployment_of_another_export_has_all_rules(exporter: LocalWorkspaces) -> None:
    deployments = collection(OWN, "apps/deployments")
    other = {"metadata": {"labels": {"app": "other"}}, "spec": {"containers": []}}

    refused = await exporter.post(deployments, deployment(template=other))

    assert refused.status == 422
    assert "spec.template.metadata.labels: Invalid value" in refused.message
    assert "spec.template.spec.containers: Required value" in refused.message
    await exporter.create(deployments, deployment())
    refused = await exporter.patch(f"{deployments}/web", {"spec": {"selector": {"matchLabels": {"more": "labels"}}}})
    assert "spec.selector: Invalid value" in refused.message
    assert "field is immutable" in refused.message


async def test_a_job_needs_no_selector_because_edges_generate_it(exporter: LocalWorkspaces) -> None:
    job = an("batch/v1", "Job", "once", {"template": template(restartPolicy="Never")})

    created = await exporter.create(collection(OWN, "batch/jobs"), job)

    assert created["spec"] == job["spec"]
    path = f"{collection(OWN, 'batch/jobs')}/once"
    assert (await exporter.patch(path, {"spec": {"suspend": True}})).status == 200
    refused = await exporter.patch(path, {"spec": {"completions": 5}})
    assert "spec.completions: Invalid value" in refused.message


async def test_a_pod_of_a_workspace_may_be_changed(hub: LocalWorkspaces) -> None:
    pods = collection(KCP, "pods")
    await hub.create(pods, pod("web"))

    assert (await hub.patch(f"{pods}/web", {"spec": {"nodeName": "one"}})).status == 200
    refused = await hub.patch(f"{pods}/web", {"spec": {"restartPolicy": "Perhaps"}})
    assert 'spec.restartPolicy: Unsupported value: "Perhaps"' in refused.message


async def test_a_claim_can_grow_because_it_may_be_bound_at_an_edge(exporter: LocalWorkspaces) -> None:
    claims = collection(OWN, "persistentvolumeclaims")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await exporter.create(claims, an("v1", "PersistentVolumeClaim", "data", spec))

    grown = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    assert (await exporter.patch(f"{claims}/data", grown)).status == 200


async def test_an_object_from_an_edge_is_not_validated_again(exporter: LocalWorkspaces) -> None:
    deployments = collection(OWN, "apps/deployments")
    newer = deployment("newer", strategy={"type": "OfTheFuture"})
    newer["metadata"]["annotations"] = {UPSYNCED: "Deployment/default/newer"}

    assert (await exporter.post(deployments, newer)).status == 201
    assert (
        await exporter.patch(f"{deployments}/newer", {"spec": {"selector": {"matchLabels": {"a": "b"}}}})
    ).status == 200


async def test_an_object_with_an_old_mistake_can_be_changed(exporter: LocalWorkspaces) -> None:
    """It may be older than the rules."""
    deployments = collection(OWN, "apps/deployments")
    old = deployment("old", replicas=-1)
    old["metadata"]["annotations"] = {UPSYNCED: "Deployment/default/old"}
    await exporter.create(deployments, old)
    unmarked = await exporter.patch(f"{deployments}/old", {"metadata": {"annotations": {UPSYNCED: None}}})
    assert unmarked.status == 200

    assert (await exporter.patch(f"{deployments}/old", {"spec": {"minReadySeconds": 1}})).status == 200
    worse = await exporter.patch(f"{deployments}/old", {"spec": {"minReadySeconds": -1}})
    assert worse.status == 422
    assert "spec.minReadySeconds" in worse.message
    assert "spec.replicas" not in worse.message
    assert (await exporter.patch(f"{deployments}/old", {"metadata": {"labels": {"a": "b"}}})).status == 200


async def test_a_kind_with_a_name_of_kubernetes_and_other_types_has_the_rules_of_its_schema(
    exporter: LocalWorkspaces,
) -> None:
    other = an("apps/v1", "DaemonSet", "web", {"template": "small"})

    assert (await exporter.post(collection(OWN, "apps/daemonsets"), other)).status == 201


async def test_a_status_that_kubernetes_could_not_read_does_not_switch_the_rules_off(
    exporter: LocalWorkspaces,
) -> None:
    deployments = collection(OWN, "apps/deployments")
    await exporter.create(deployments, deployment())
    assert (await exporter.patch(f"{deployments}/web/status", {"status": {"replicas": TOO_LARGE}})).status == 200

    refused = await exporter.patch(f"{deployments}/web", {"spec": {"minReadySeconds": -1}})

    assert "spec.minReadySeconds: Invalid value: -1" in refused.message
    assert (await exporter.patch(f"{deployments}/web", {"spec": {"minReadySeconds": 1}})).status == 200


async def test_a_number_that_is_too_large_for_a_kind_of_kcp_is_refused(hub: LocalWorkspaces) -> None:
    deployments = collection(KCP, "apps/deployments")
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": TOO_LARGE}}

    refused = await hub.post(deployments, deployment(strategy=strategy))

    assert refused.status == 400
    assert f"cannot unmarshal number {TOO_LARGE}" in refused.message
    await hub.create(deployments, deployment())
    assert (await hub.patch(f"{deployments}/web", {"spec": {"strategy": strategy}})).status == 400


async def test_a_number_that_was_too_large_before_the_update_is_accepted(hub: LocalWorkspaces) -> None:
    deployments = collection(KCP, "apps/deployments")
    old = deployment("old", minReadySeconds=TOO_LARGE)
    old["metadata"]["annotations"] = {UPSYNCED: "Deployment/default/old"}
    await hub.create(deployments, old)
    assert (await hub.patch(f"{deployments}/old", {"metadata": {"annotations": {UPSYNCED: None}}})).status == 200

    assert (await hub.patch(f"{deployments}/old", {"spec": {"replicas": 2}})).status == 200
    assert (await hub.patch(f"{deployments}/old", {"spec": {"minReadySeconds": 1}})).status == 200


def test_validation_changes_no_object() -> None:
    """Kubernetes' default adds a finalizer to the list."""
    (namespaces,) = (one for one in BUILTIN if one.plural == "namespaces")
    namespace = an("v1", "Namespace", "a", {"finalizers": ["example.org/one"]})
    before = copy.deepcopy(namespace)

    assert with_builtin_rules(Rules(name=names.dns_subdomain), namespaces).validate_create(namespace) == []
    assert namespace == before
