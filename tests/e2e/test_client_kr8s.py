"""kr8s: objects with methods, lookups through discovery, waits, watches and owners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hub_process import HubProcess, eventually
from lazy_module import LazyModule

kr8s = LazyModule("kr8s")
async_utils = LazyModule("kr8s._async_utils")
async_objects = LazyModule("kr8s.asyncio.objects")
objects = LazyModule("kr8s.objects")

Json = dict[str, Any]


@pytest.fixture
def api(hub: HubProcess, namespace: str) -> Iterator[kr8s.Api]:
    connected = kr8s.api(kubeconfig=str(hub.kubeconfig), namespace=namespace)
    yield connected
    assert connected._session is not None
    async_utils.Portal().call(
        connected._session.aclose
    )  # it leaves connections to the garbage collector, which complains


def config_map(api: kr8s.Api, name: str, data: dict[str, str] | None = None, **labels: str) -> objects.ConfigMap:
    metadata: Json = {"name": name, "namespace": api.namespace, "labels": labels}
    return objects.ConfigMap({"metadata": metadata, "data": data or {}}, api=api)


def web(api: kr8s.Api) -> objects.Deployment:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return objects.Deployment({"metadata": {"name": "web", "namespace": api.namespace}, "spec": spec}, api=api)


def test_an_object_is_created_refreshed_patched_and_deleted(api: kr8s.Api) -> None:
    obj = config_map(api, "a", {"k": "1"})
    assert not obj.exists()
    obj.create()
    obj.patch({"data": {"k": "2"}})
    assert obj.data == {"k": "2"}
    obj.patch([{"op": "add", "path": "/data/l", "value": "3"}], type="json")
    assert obj.data == {"k": "2", "l": "3"}
    obj.label(app="x")
    obj.annotate(note="y")
    again = objects.ConfigMap.get("a", namespace=api.namespace, api=api)
    assert (again.labels, again.annotations) == ({"app": "x"}, {"note": "y"})
    again.remove_label("app")
    obj.refresh()
    assert obj.labels == {}
    obj.delete()
    assert not obj.exists()
    with pytest.raises(kr8s.NotFoundError):
        obj.refresh()


def test_errors_carry_the_status_of_the_hub(api: kr8s.Api) -> None:
    obj = config_map(api, "a")
    obj.create()
    with pytest.raises(kr8s.ServerError) as twice:
        config_map(api, "a").create()
    assert twice.value.response is not None
    assert twice.value.response.status_code == 409
    with pytest.raises(kr8s.ServerError, match="Invalid value"):
        config_map(api, "Not a name").create()


def test_lists_are_found_by_any_name_of_the_resource(api: kr8s.Api) -> None:
    for number in range(5):
        config_map(api, f"m{number}", parity=str(number % 2)).create()
    for name in ("configmaps", "ConfigMap", "cm", "configmaps.v1"):
        listed = api.get(name, label_selector={"parity": "1"})
        assert [one.name for one in listed] == ["m1", "m3"]
    [one] = api.get("cm", "m4", namespace=api.namespace)
    assert one.name == "m4"
    everywhere = api.get("cm", namespace=kr8s.ALL, field_selector="metadata.name=m2")
    assert (api.namespace, "m2") in [(one.namespace, one.name) for one in everywhere]
    assert api.lookup_kind("deploy") == ("deployment.apps/v1", "deployments", True)


def test_a_deployment_is_scaled_and_waited_for(api: kr8s.Api) -> None:
    deployment = web(api)
    deployment.create()
    deployment.patch({"spec": {"replicas": 3}})
    assert deployment.replicas == 3
    deployment.patch({"status": {"conditions": [{"type": "Available", "status": "True"}]}}, subresource="status")
    deployment.wait("condition=Available", timeout=60)
    deployment.wait("jsonpath='{.spec.replicas}'=3", timeout=60)
    deployment.delete(propagation_policy="Foreground")
    deployment.wait("delete", timeout=60)
    assert not deployment.exists()


def test_a_watch_tells_what_happens(api: kr8s.Api) -> None:
    obj = config_map(api, "a", {"k": "1"}, watched="yes")
    obj.create()
    seen = []
    for kind, one in api.watch("configmaps", label_selector="watched=yes"):
        seen.append((kind, one.data.k))
        if kind == "ADDED":
            obj.patch({"data": {"k": "2"}})
        elif kind == "MODIFIED":
            obj.delete()
        else:
            break
    assert seen == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]


def test_children_end_with_their_owner(api: kr8s.Api) -> None:
    owner, child = config_map(api, "owner"), config_map(api, "child")
    owner.create()
    child.create()
    owner.adopt(child)
    child.refresh()
    assert child.metadata.ownerReferences[0].uid == owner.metadata.uid
    owner.delete()
    eventually(lambda: not child.exists(), "the end of the child")


def test_classes_are_made_for_any_kind_that_is_served(api: kr8s.Api) -> None:
    leases = objects.new_class(kind="Lease", version="coordination.k8s.io/v1", namespaced=True, asyncio=False)
    metadata = {"name": "l", "namespace": api.namespace}
    lease: objects.APIObject = leases({"metadata": metadata, "spec": {"holderIdentity": "me"}}, api=api)
    lease.create()
    [found] = api.get("leases.coordination.k8s.io", namespace=api.namespace)
    assert (type(found).__name__, found.spec.holderIdentity) == ("Lease", "me")


def test_who_am_i_and_what_is_served(api: kr8s.Api) -> None:
    assert api.whoami() == "farflung-admin"
    assert api.version()["major"] == "1"
    assert {"v1", "apps/v1"} <= set(api.api_versions())
    kinds = {(one["version"], one["kind"]) for one in api.api_resources()}
    assert ("apps/v1", "StatefulSet") in kinds


async def test_the_asynchronous_client_does_the_same(hub: HubProcess, namespace: str) -> None:
    api = await kr8s.asyncio.api(kubeconfig=str(hub.kubeconfig), namespace=namespace)
    spec = {"containers": [{"name": "main", "image": "nginx"}]}
    pod = await async_objects.Pod({"metadata": {"name": "p", "namespace": namespace}, "spec": spec}, api=api)
    await pod.create()
    await pod.patch({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, subresource="status")
    await pod.wait("condition=Ready", timeout=60)
    assert [one.name async for one in api.get("pods")] == ["p"]
    await pod.delete(grace_period=0)
    assert not await pod.exists()
    assert api._session is not None
    await api._session.aclose()
