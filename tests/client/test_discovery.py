"""The same is found at once and group by group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from definitions import definition
from hub_harness import ADMIN_TOKEN, LocalHub
from local_transport import LocalTransport
from scripted_server import Scripted, ScriptedServer, failure, said

from farflung.apis.names import Collection
from farflung.client.discovery import ServedResources, discover
from farflung.client.errors import Forbidden, InvalidResponse, Refused
from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest, Reply


@dataclass
class OldServer:
    """One that has never heard of aggregated discovery."""

    inner: LocalTransport

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        plain = OutgoingRequest(
            request.method, request.target, {**request.headers, "Accept": "application/json"}, request.body
        )
        async with self.inner.open(plain) as reply:
            yield reply


async def test_a_server_is_understood_the_same_at_once_and_group_by_group() -> None:
    hub = await LocalHub.in_memory().furnish()
    transport = LocalTransport(hub.function, ADMIN_TOKEN)
    whole = await discover(Client(transport))
    assert len(transport.requests) == 2
    assert await discover(Client(OldServer(transport))) == whole


async def test_resources_have_kind_scope_verbs_names_and_subresources() -> None:
    hub = await LocalHub.in_memory().furnish()
    served = await discover(Client(LocalTransport(hub.function, ADMIN_TOKEN)))
    found = served.find("apps", "deployments")
    assert found is not None
    assert found.collection == Collection("apps", "v1", "deployments", "Deployment")
    assert (found.namespaced, found.singular, found.short_names, found.categories) == (
        True,
        "deployment",
        ("deploy",),
        ("all",),
    )
    assert {"get", "list", "watch", "create"} <= found.verbs
    assert found.subresources["status"] == {"get", "patch", "update"}
    namespaces = served.find("", "namespaces")
    assert namespaces is not None
    assert not namespaces.namespaced
    assert served.find_kind("", "v1", "Namespace") == namespaces
    assert served.find("", "nothing") is None
    assert served.find("apps", "deployments", "v1beta1") is None
    assert served.find_kind("apps", "v1", "Nothing") is None


def group(name: str, versions: list[str], preferred: str = "") -> dict[str, Any]:
    def one(version: str) -> dict[str, str]:
        return {"groupVersion": f"{name}/{version}", "version": version}

    return {"name": name, "versions": [one(v) for v in versions], "preferredVersion": one(preferred or versions[0])}


def resources(*names: str) -> Scripted:
    listed = [{"name": name, "kind": name.capitalize(), "namespaced": True, "verbs": ["get"]} for name in names]
    return said({"kind": "APIResourceList", "resources": listed})


def served_by(answers: dict[str, Scripted]) -> Client:
    return Client(ScriptedServer(lambda request: answers.get(request.target, failure(404, "NotFound"))))


GROUPS = said(
    {"kind": "APIGroupList", "groups": [group("acme.io", ["v1alpha1", "v1"], "v1"), group("gone.io", ["v1"])]}
)


async def test_the_preferred_version_is_first_and_each_resource_is_listed_once() -> None:
    answers = {"/apis": GROUPS, "/apis/acme.io/v1": resources("a"), "/apis/acme.io/v1alpha1": resources("a", "b")}
    served = await discover(served_by(answers))
    assert [version.name for version in served.groups[0].versions] == ["v1", "v1alpha1"]
    found = [(one.collection.plural, one.collection.version) for one in served.resources()]
    assert found == [("a", "v1"), ("b", "v1alpha1")]
    alpha = served.find("acme.io", "a", "v1alpha1")
    assert alpha is not None
    assert alpha.collection.version == "v1alpha1"


async def test_a_group_whose_server_does_not_answer_is_stale_and_harms_no_other() -> None:
    answers = {"/apis": GROUPS, "/apis/acme.io/v1": resources("a"), "/apis/gone.io/v1": failure(503)}
    served = await discover(served_by(answers))
    stale = {group.name: [version.stale for version in group.versions] for group in served.groups}
    assert stale == {"acme.io": [False, True], "gone.io": [True]}


async def test_stale_versions_of_aggregated_discovery_are_recognized() -> None:
    items = [{"metadata": {"name": "gone.io"}, "versions": [{"version": "v1", "freshness": "Stale"}]}]
    served = await discover(served_by({"/apis": said({"kind": "APIGroupDiscoveryList", "items": items})}))
    assert served.groups[0].versions[0].stale


async def test_a_server_without_any_group_serves_nothing() -> None:
    assert await discover(served_by({})) == ServedResources(())


async def test_a_refusal_is_raised() -> None:
    with pytest.raises(Forbidden):
        await discover(served_by({"/apis": failure(403, "Forbidden")}))
    with pytest.raises(Forbidden):
        await discover(served_by({"/apis": GROUPS, "/apis/acme.io/v1": failure(403, "Forbidden")}))
    with pytest.raises(Refused):
        await discover(served_by({"/api": failure(500)}))


NONSENSE = [
    b"<html>",
    b"[" * 100_000,
    b"{}",
    b'{"kind":"APIGroupList","groups":[{}]}',
    b'{"kind":"APIGroupList","groups":5}',
    b'{"kind":"\xff"}',
    b'{"kind":"APIGroupDiscoveryList","items":[{"versions":[{"version":1}]}]}',
    b'{"kind":"Status"}',
]


@pytest.mark.parametrize("body", NONSENSE)
async def test_what_is_no_discovery_document_is_garbled(body: bytes) -> None:
    with pytest.raises(InvalidResponse):
        await discover(served_by({"/apis": Scripted(200, [body])}))
    with pytest.raises(InvalidResponse):
        await discover(
            served_by(
                {"/apis": GROUPS, "/apis/acme.io/v1": Scripted(200, [body.replace(b"groups", b"resources"), b"x"])}
            )
        )


async def test_a_new_definition_is_discovered() -> None:
    hub = await LocalHub.in_memory().furnish()
    await hub.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
    served = await discover(Client(LocalTransport(hub.function, ADMIN_TOKEN)))
    assert {one.collection.group for one in served.resources()} >= {"", "apps", "apiextensions.k8s.io"}
