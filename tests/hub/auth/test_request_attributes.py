"""What access control sees of a request."""

from __future__ import annotations

import pytest
from hub_harness import CONFIG_MAPS, USER_TOKEN, LocalHub

from farflung.hub.request.attributes import Attributes, of_path, of_target
from farflung.hub.request.target import target_of


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/namespaces/n/pods", "", Attributes("list", "", "pods", "", "n")),
        ("GET", "/api/v1/pods", "limit=x", Attributes("list", "", "pods")),
        ("GET", "/api/v1/pods", "watch=1&limit=x", Attributes("watch", "", "pods")),
        ("GET", "/api/v1/pods", "watch=false", Attributes("list", "", "pods")),
        ("GET", "/api/v1/watch/pods", "", Attributes("watch", "", "pods")),
        ("GET", "/api/v1/namespaces/n/pods/p", "watch=1", Attributes("get", "", "pods", "", "n", "p")),
        ("HEAD", "/api/v1/namespaces/n/pods/p", "", Attributes("get", "", "pods", "", "n", "p")),
        ("POST", "/apis/apps/v1/namespaces/n/deployments", "", Attributes("create", "apps", "deployments", "", "n")),
        ("POST", "/api/v1/namespaces/n/pods/p/exec", "", Attributes("create", "", "pods", "exec", "n", "p")),
        ("GET", "/api/v1/namespaces/n/pods/p/log", "", Attributes("get", "", "pods", "log", "n", "p")),
        ("PUT", "/api/v1/nodes/x/status", "", Attributes("update", "", "nodes", "status", "", "x")),
        ("PATCH", "/api/v1/nodes/x", "", Attributes("patch", "", "nodes", "", "", "x")),
        ("DELETE", "/api/v1/nodes/x", "", Attributes("delete", "", "nodes", "", "", "x")),
        ("DELETE", "/api/v1/nodes", "fieldSelector=metadata.name=x", Attributes("deletecollection", "", "nodes")),
        ("GET", "/api/v1/namespaces/n", "", Attributes("get", "", "namespaces", "", "n", "n")),
        ("PUT", "/api/v1/namespaces/n/finalize", "", Attributes("update", "", "namespaces", "finalize", "n", "n")),
        ("GET", "/api/v1/secrets", "fieldSelector=metadata.name%3Dx", Attributes("list", "", "secrets", name="x")),
        ("GET", "/api/v1/secrets", "fieldSelector=metadata.name!%3Dx", Attributes("list", "", "secrets")),
        ("GET", "/api/v1/secrets", "fieldSelector=metadata.name%3Da%252Fb", Attributes("list", "", "secrets")),
        ("GET", "/api/v1/secrets", "fieldSelector=%5C", Attributes("list", "", "secrets")),
    ],
)
def test_a_request_for_a_resource(method: str, path: str, query: str, expected: Attributes) -> None:
    target = target_of("root", path)

    assert target is not None
    assert of_target(method, target, query) == expected


def test_a_request_for_a_document() -> None:
    assert of_path("HEAD", "/healthz") == Attributes("get", path="/healthz")
    assert of_path("POST", "/apis") == Attributes("post", path="/apis")


@pytest.mark.parametrize("query", ["limit=x", "watch=1&resourceVersionMatch=Exact", "fieldSelector=nonsense"])
@pytest.mark.parametrize("token", [None, USER_TOKEN])
async def test_who_may_not_list_is_not_told_what_is_wrong_with_their_options(
    hub: LocalHub, token: str | None, query: str
) -> None:
    hub.token = token

    assert (await hub.get(CONFIG_MAPS, query)).status == 403


@pytest.mark.parametrize("path", ["/api/v1/namespaces/n/foos", "/apis/nope.example.com/v1/foos"])
async def test_what_is_not_served_is_forbidden_first(hub: LocalHub, path: str) -> None:
    assert (await hub.get(path)).status == 404
    hub.token = USER_TOKEN
    refused = await hub.get(path)
    assert (refused.status, refused.json["details"]["kind"]) == (403, "foos")


async def test_a_name_in_a_field_selector_opens_a_list_of_one(hub: LocalHub) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    rule = {"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"]}
    await hub.create(f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [{"kind": "User", "name": "somebody"}]}
    await hub.create(f"{rbac}/rolebindings", binding)
    await hub.config_map("mine")
    await hub.config_map("other")
    hub.token = USER_TOKEN

    assert (await hub.get(CONFIG_MAPS, {"fieldSelector": "metadata.name=mine"})).names == ["mine"]
    assert (await hub.get(CONFIG_MAPS)).status == 403
    assert (await hub.get(CONFIG_MAPS, {"fieldSelector": "metadata.name=other"})).status == 403
    twice = "fieldSelector=metadata.name%3Dmine&fieldSelector=metadata.name%3Dother"
    assert (await hub.get(CONFIG_MAPS, twice)).names == ["mine"]
