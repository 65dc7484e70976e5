"""Kinds of Kubernetes that a workspace has bound, as clients of Kubernetes write them."""

from __future__ import annotations

import pytest
from workspaces_harness import LocalWorkspaces

from farflung.apis import wire
from farflung.hub.request.media_types import PROTOBUF
from farflung.machinery.codec import protobuf
from farflung.machinery.errors import Obj

DEPLOYMENTS = "/clusters/root:shop/apis/apps/v1/namespaces/default/deployments"
BINDING: Obj = {
    "apiVersion": "apis.kcp.io/v1alpha1",
    "kind": "APIBinding",
    "metadata": {"name": "kubernetes"},
    "spec": {"reference": {"export": {"path": "root:compute", "name": "kubernetes"}}},
}
DEPLOYMENT: Obj = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx", "resources": {"limits": {"cpu": "100m"}}}]},
        },
    },
}


@pytest.fixture
async def hub() -> LocalWorkspaces:
    hub = await LocalWorkspaces.started()
    await hub.new_workspace("root", "shop")
    await hub.create("/clusters/root:shop/apis/apis.kcp.io/v1alpha1/apibindings", BINDING)
    return hub


def encoded(obj: Obj, definition: str = "io.k8s.api.apps.v1.Deployment") -> bytes:
    return protobuf.encode(obj, definition, wire.MESSAGES)


async def test_bodies_in_protobuf_say_the_same_as_in_json(hub: LocalWorkspaces) -> None:
    answers = [
        await hub.post(DEPLOYMENTS, DEPLOYMENT, {"dryRun": "All"}),
        await hub.post(DEPLOYMENTS, encoded(DEPLOYMENT), {"dryRun": "All"}, content_type=PROTOBUF),
    ]
    assert [answer.status for answer in answers] == [201, 201]
    in_json, in_protobuf = (answer.json for answer in answers)
    assert in_protobuf["metadata"]["labels"] == {"app": "web"}
    assert in_protobuf["spec"]["replicas"] == 2
    sent, read = (one["spec"]["template"]["spec"]["containers"][0] for one in (in_json, in_protobuf))
    assert {name: read[name] for name in sent} == sent


async def test_answers_are_json_for_who_would_take_it(hub: LocalWorkspaces) -> None:
    accept = f"{PROTOBUF},application/json"
    answer = await hub.post(DEPLOYMENTS, encoded(DEPLOYMENT), content_type=PROTOBUF, accept=accept)
    assert (answer.status, answer.json["metadata"]["name"]) == (201, "web")


async def test_a_body_of_another_kind_is_refused(hub: LocalWorkspaces) -> None:
    other = encoded(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}, "io.k8s.api.core.v1.ConfigMap"
    )
    answer = await hub.post(DEPLOYMENTS, other, content_type=PROTOBUF)
    assert answer.status == 400
    answer = await hub.post(DEPLOYMENTS, b"k8s\x00\xff\xff\xff", content_type=PROTOBUF)
    assert answer.status == 400


async def test_kinds_that_kubernetes_does_not_have_take_no_protobuf(hub: LocalWorkspaces) -> None:
    answer = await hub.post(
        "/clusters/root:shop/apis/workload.kcp.io/v1alpha1/synctargets", encoded(DEPLOYMENT), content_type=PROTOBUF
    )
    assert answer.status == 415
