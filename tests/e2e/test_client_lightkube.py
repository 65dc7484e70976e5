"""Lightkube: typed resources, every type of patch, watches, apply of whole sets of objects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hub_process import HubProcess
from lightkube import ApiError, AsyncClient, Client, KubeConfig, codecs, operators
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.core_v1 import Container, ContainerPort, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace, Service
from lightkube.types import CascadeType, PatchType

SET = """
apiVersion: v1
kind: ConfigMap
metadata: {name: first}
data: {k: "1"}
---
apiVersion: v1
kind: Service
metadata: {name: second}
spec: {ports: [{port: 80}], selector: {app: web}}
"""

ONLY = {"metadata.name": "a"}  #: a new namespace gets a ConfigMap of its own


@pytest.fixture
def lightkube(hub: HubProcess, namespace: str) -> Iterator[Client]:
    settings = KubeConfig.from_file(str(hub.kubeconfig))
    with Client(settings, namespace=namespace, field_manager="light", trust_env=False) as client:
        yield client


def config_map(name: str, data: dict[str, str] | None = None, **labels: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels=labels or None), data=data)


def web() -> Deployment:
    container = Container(name="web", image="nginx", ports=[ContainerPort(containerPort=80)])
    template = PodTemplateSpec(metadata=ObjectMeta(labels={"app": "web"}), spec=PodSpec(containers=[container]))
    spec = DeploymentSpec(selector=LabelSelector(matchLabels={"app": "web"}), template=template, replicas=2)
    return Deployment(metadata=ObjectMeta(name="web"), spec=spec)


def test_an_object_is_created_read_replaced_and_deleted(lightkube: Client) -> None:
    created = lightkube.create(config_map("a", {"k": "1"}))
    assert created.metadata.managedFields[0].manager == "light"
    created.data["k"] = "2"
    replaced = lightkube.replace(created)
    assert replaced.data == {"k": "2"}
    with pytest.raises(ApiError) as stale:
        lightkube.replace(created)
    assert (stale.value.status.code, stale.value.status.reason) == (409, "Conflict")
    with pytest.raises(ApiError) as twice:
        lightkube.create(config_map("a"))
    assert twice.value.status.reason == "AlreadyExists"
    lightkube.delete(ConfigMap, "a", cascade=CascadeType.BACKGROUND)
    with pytest.raises(ApiError) as gone:
        lightkube.get(ConfigMap, "a")
    assert gone.value.status.details.kind == "configmaps"


def test_lists_come_in_chunks_and_by_selectors(lightkube: Client, namespace: str) -> None:
    for number in range(7):
        lightkube.create(config_map(f"m{number}", parity=str(number % 2)))
    listed = lightkube.list(ConfigMap, chunk_size=2, labels={"parity": operators.exists()})
    assert [one.metadata.name for one in listed] == [f"m{number}" for number in range(7)]
    assert int(listed.resourceVersion) > 0
    chosen = lightkube.list(ConfigMap, labels={"parity": operators.not_in(["0"])}, fields={"metadata.name": "m3"})
    assert [one.metadata.name for one in chosen] == ["m3"]
    everywhere = lightkube.list(ConfigMap, namespace="*", fields={"metadata.name": "m5"})
    assert namespace in [one.metadata.namespace for one in everywhere]
    assert namespace in [one.metadata.name for one in lightkube.list(Namespace)]
    lightkube.deletecollection(ConfigMap)
    assert not [one for one in lightkube.list(ConfigMap) if one.metadata.name.startswith("m")]


def test_every_type_of_patch(lightkube: Client) -> None:
    lightkube.create(web())
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "busybox"}]}}}}
    patched = lightkube.patch(Deployment, "web", sidecar)
    assert {one.name for one in patched.spec.template.spec.containers} == {"web", "side"}
    assert lightkube.patch(Deployment, "web", {"spec": {"replicas": 3}}, patch_type=PatchType.MERGE).spec.replicas == 3
    operation = [{"op": "replace", "path": "/spec/replicas", "value": 4}]
    assert lightkube.patch(Deployment, "web", operation, patch_type=PatchType.JSON).spec.replicas == 4
    applied = Deployment(metadata=ObjectMeta(name="web"), spec={"replicas": 5})
    with pytest.raises(ApiError) as conflict:
        lightkube.apply(applied, field_manager="other")
    assert conflict.value.status.details.causes[0].field == ".spec.replicas"
    assert lightkube.apply(applied, field_manager="other", force=True).spec.replicas == 5


def test_subresources_have_classes_of_their_own(lightkube: Client) -> None:
    lightkube.create(web())
    scale = lightkube.get(Deployment.Scale, "web")
    assert (scale.spec.replicas, scale.status.selector) == (2, "app=web")
    scaled = Deployment.Scale(metadata=ObjectMeta(name="web"), spec=ScaleSpec(replicas=6))
    assert lightkube.replace(scaled).spec.replicas == 6
    status = lightkube.patch(Deployment.Status, "web", {"status": {"replicas": 6}}, patch_type=PatchType.MERGE)
    assert (status.status.replicas, status.spec.replicas) == (6, 6)


def test_a_watch_is_resumed_where_it_ended(lightkube: Client) -> None:
    start = lightkube.create(config_map("before")).metadata.resourceVersion
    lightkube.create(config_map("a", {"k": "1"}))
    lightkube.patch(ConfigMap, "a", {"data": {"k": "2"}})
    seen = []
    for kind, obj in lightkube.watch(ConfigMap, resource_version=start, fields=ONLY):
        seen.append((kind, obj.data))
        start = obj.metadata.resourceVersion
        if len(seen) == 2:
            break
    assert seen == [("ADDED", {"k": "1"}), ("MODIFIED", {"k": "2"})]
    lightkube.delete(ConfigMap, "a")
    kind, obj = next(iter(lightkube.watch(ConfigMap, resource_version=start, fields=ONLY)))
    assert (kind, obj.metadata.name) == ("DELETED", "a")


def test_a_set_of_objects_is_applied_waited_for_and_applied_again(lightkube: Client) -> None:
    first = [lightkube.apply(obj) for obj in codecs.load_all_yaml(SET)]
    again = [lightkube.apply(obj) for obj in codecs.load_all_yaml(SET)]
    assert [one.metadata.resourceVersion for one in again] == [one.metadata.resourceVersion for one in first]
    service = lightkube.get(Service, "second")
    assert service.spec.ports[0].targetPort == 80
    lightkube.create(web())
    condition = {"type": "Available", "status": "True", "reason": "Done"}
    lightkube.patch(Deployment.Status, "web", {"status": {"conditions": [condition]}})
    assert lightkube.wait(Deployment, "web", for_conditions=["Available"]).metadata.name == "web"


async def test_the_asynchronous_client_does_the_same(hub: HubProcess, namespace: str) -> None:
    settings = KubeConfig.from_file(str(hub.kubeconfig))
    async with AsyncClient(settings, namespace=namespace, field_manager="light", trust_env=False) as client:
        start = (await client.create(config_map("a", {"k": "1"}))).metadata.resourceVersion
        await client.patch(ConfigMap, "a", {"data": {"k": "2"}})
        async for kind, obj in client.watch(ConfigMap, resource_version=start, fields=ONLY):
            assert (kind, obj.data) == ("MODIFIED", {"k": "2"})
            break
        names = [one.metadata.name async for one in client.list(ConfigMap, chunk_size=1)]
        assert "a" in names
        with pytest.raises(ApiError, match='configmaps "b" not found'):
            await client.get(ConfigMap, "b")
