"""The kinds that root:compute exports: good structural schemas that take what clients send and add nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hub_harness import MERGE_PATCH, LocalHub

from farflung.apis.custom_kinds import CustomKind
from farflung.apis.kcp import compute
from farflung.apis.kcp.names import COMPUTE_EXPORT
from farflung.machinery.errors import Obj

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EXPORTED = {one.kind: one for export in compute.EXPORTED for one in compute.kinds(export)}
DEPLOYMENT: Obj = {
    "replicas": 3,
    "selector": {"matchLabels": {"app": "common"}},
    "template": {
        "metadata": {"labels": {"app": "common"}, "annotations": {"a": "b"}},
        "spec": {
            "containers": [
                {
                    "name": "httpd",
                    "image": "library/httpd:2.4",
                    "ports": [{"name": "http", "containerPort": 80, "hostPort": 8081, "protocol": "TCP"}],
                    "volumeMounts": [{"name": "htdocs", "readOnly": True, "mountPath": "/usr/local"}],
                    "resources": {"limits": {"cpu": "100m", "memory": 5}},
                    "livenessProbe": {"httpGet": {"port": "http"}},
                    "readinessProbe": {"httpGet": {"port": 80}},
                }
            ],
            "volumes": [{"name": "htdocs", "configMap": {"name": "httpd-htdocs", "optional": False}}],
        },
    },
}


def in_a_group(kind: str) -> CustomKind:
    """A definition cannot be in the core group, nor in one that is served already."""
    return replace(EXPORTED[kind], group="test.example")


async def hub_with(kind: str) -> tuple[LocalHub, str]:
    hub = await LocalHub.in_memory().furnish()
    one = in_a_group(kind)
    answer = await hub.request("POST", DEFINITIONS, one.definition(), query={"fieldValidation": "Strict"})
    assert answer.status == 201, answer.body
    return hub, f"/apis/test.example/v1/namespaces/default/{one.plural}"


def body(kind: str, spec: Obj) -> Obj:
    return {"apiVersion": "test.example/v1", "kind": kind, "metadata": {"name": "one"}, "spec": spec}


@pytest.mark.parametrize("kind", EXPORTED)
async def test_the_schema_of_every_exported_kind_is_structural(kind: str) -> None:
    await hub_with(kind)


def test_the_export_has_the_names_that_kcp_gives_them() -> None:
    names = [schema["metadata"]["name"] for schema in compute.resource_schemas(COMPUTE_EXPORT)]
    assert names == [
        "v124.ingresses.networking.k8s.io",
        "v124.services.core",
        "v124.deployments.apps",
        "v124.pods.core",
    ]
    assert compute.api_export(COMPUTE_EXPORT)["spec"]["latestResourceSchemas"] == names
    assert compute.resource_schemas(COMPUTE_EXPORT)[1]["spec"]["group"] == ""


async def test_a_deployment_stays_as_it_was_sent() -> None:
    hub, path = await hub_with("Deployment")
    answer = await hub.request("POST", path, body("Deployment", DEPLOYMENT), query={"fieldValidation": "Strict"})
    assert answer.status == 201, answer.body
    assert answer.json["spec"] == DEPLOYMENT


async def test_a_deployment_needs_a_selector_and_a_template() -> None:
    hub, path = await hub_with("Deployment")
    answer = await hub.request("POST", path, body("Deployment", {}))
    assert answer.message == (
        'Deployment.test.example "one" is invalid: [spec.selector: Required value, spec.template: Required value]'
    )


async def test_no_rule_checks_whether_a_selector_matches() -> None:
    hub, path = await hub_with("Deployment")
    spec = {**DEPLOYMENT, "selector": {"matchLabels": {"a": "b"}}}
    assert (await hub.request("POST", path, body("Deployment", spec))).status == 201


async def test_a_deployment_can_be_scaled() -> None:
    hub, path = await hub_with("Deployment")
    await hub.create(path, body("Deployment", DEPLOYMENT))
    change = {"spec": {"replicas": 5}}
    scaled = (await hub.request("PATCH", f"{path}/one/scale", change, content_type=MERGE_PATCH)).json
    assert (scaled["kind"], scaled["spec"], scaled["status"]) == ("Scale", {"replicas": 5}, {"replicas": 0})


async def test_the_port_of_a_service_is_tcp_unless_it_says_otherwise() -> None:
    hub, path = await hub_with("Service")
    answer = await hub.request("POST", path, body("Service", {"selector": {"app": "common"}, "ports": [{"port": 80}]}))
    assert answer.json["spec"] == {"ports": [{"port": 80, "protocol": "TCP"}], "selector": {"app": "common"}}
