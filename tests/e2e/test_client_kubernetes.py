"""The official Python client: typed, dynamic, watches, informers, and errors as it reports them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hub_process import HubProcess, eventually
from lazy_module import LazyModule

client = LazyModule("kubernetes.client")
config = LazyModule("kubernetes.config")
dynamic = LazyModule("kubernetes.dynamic")
informers = LazyModule("kubernetes.informer")
watch = LazyModule("kubernetes.watch")

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


@pytest.fixture
def api(hub: HubProcess) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(str(hub.kubeconfig)) as connection:
        yield connection


@pytest.fixture
def core(api: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api)


@pytest.fixture
def apps(api: client.ApiClient) -> client.AppsV1Api:
    return client.AppsV1Api(api)


def config_map(name: str, data: dict[str, str] | None = None, **labels: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels or None), data=data)


def web(replicas: int = 2) -> client.V1Deployment:
    container = client.V1Container(name="web", image="nginx:1.27", ports=[client.V1ContainerPort(container_port=80)])
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"app": "web"}), spec=client.V1PodSpec(containers=[container])
    )
    spec = client.V1DeploymentSpec(
        replicas=replicas, selector=client.V1LabelSelector(match_labels={"app": "web"}), template=template
    )
    return client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec)


def test_an_object_is_created_read_replaced_and_deleted(core: client.CoreV1Api, namespace: str) -> None:
    created = core.create_namespaced_config_map(namespace, config_map("a", {"k": "1"}), field_manager="me")
    assert created.metadata.managed_fields[0].manager == "me"
    read = core.read_namespaced_config_map("a", namespace)
    assert (read.data, read.metadata.uid) == ({"k": "1"}, created.metadata.uid)

    read.data["k"] = "2"
    replaced = core.replace_namespaced_config_map("a", namespace, read)
    assert replaced.data == {"k": "2"}
    with pytest.raises(client.exceptions.ConflictException) as stale:
        core.replace_namespaced_config_map("a", namespace, read)
    assert "the object has been modified" in stale.value.body

    deleted: Any = core.delete_namespaced_config_map("a", namespace)
    assert (deleted["status"], deleted["details"]["uid"]) == ("Success", created.metadata.uid)
    with pytest.raises(client.exceptions.NotFoundException) as gone:
        core.read_namespaced_config_map("a", namespace)
    assert (gone.value.status, gone.value.reason) == (404, "Not Found")


def test_what_the_server_defaults_comes_back_in_typed_objects(apps: client.AppsV1Api, namespace: str) -> None:
    created = apps.create_namespaced_deployment(namespace, web())
    assert created.spec.strategy.rolling_update.max_surge == "25%"
    assert created.spec.template.spec.containers[0].ports[0].protocol == "TCP"
    assert created.metadata.generation == 1

    scale = apps.read_namespaced_deployment_scale("web", namespace)
    scale.spec.replicas = 5
    assert apps.replace_namespaced_deployment_scale("web", namespace, scale).spec.replicas == 5
    status = {"status": {"replicas": 5, "readyReplicas": 4}}
    patched = apps.patch_namespaced_deployment_status("web", namespace, status, _content_type=MERGE)
    assert (patched.status.ready_replicas, patched.spec.replicas, patched.metadata.generation) == (4, 5, 2)


def test_lists_come_in_pages_and_by_selectors(core: client.CoreV1Api, namespace: str) -> None:
    for number in range(7):
        core.create_namespaced_config_map(namespace, config_map(f"m{number}", parity=str(number % 2)))
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map(namespace, limit=3, _continue=token, label_selector="parity")
        assert len(page.items) <= 3
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"m{number}" for number in range(7)]

    odd = core.list_namespaced_config_map(namespace, label_selector="parity in (1),parity!=0")
    assert [item.metadata.name for item in odd.items] == ["m1", "m3", "m5"]
    one = core.list_config_map_for_all_namespaces(field_selector=f"metadata.name=m4,metadata.namespace={namespace}")
    assert [item.metadata.name for item in one.items] == ["m4"]
    assert core.delete_collection_namespaced_config_map(namespace, label_selector="parity=1") is not None
    left = core.list_namespaced_config_map(namespace, label_selector="parity").items
    assert [item.metadata.name for item in left] == ["m0", "m2", "m4", "m6"]


def test_every_type_of_patch(apps: client.AppsV1Api, namespace: str) -> None:
    apps.create_namespaced_deployment(namespace, web())

    def patched(body: Any, media: str, **options: Any) -> client.V1Deployment:
        return apps.patch_namespaced_deployment("web", namespace, body, _content_type=media, **options)

    assert patched({"spec": {"replicas": 3}}, MERGE).spec.replicas == 3
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "busybox"}]}}}}
    containers = patched(sidecar, STRATEGIC).spec.template.spec.containers
    assert {container.name for container in containers} == {"web", "side"}
    operations = [{"op": "test", "path": "/spec/replicas", "value": 3}, {"op": "remove", "path": "/spec/replicas"}]
    assert patched(operations, JSON_PATCH).spec.replicas == 1
    applied = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"paused": True}}
    assert patched(applied, APPLY, field_manager="pauser").spec.paused is True
    with pytest.raises(client.exceptions.ConflictException, match="pauser"):
        patched({**applied, "spec": {"paused": False}}, APPLY, field_manager="other")
    taken = patched({**applied, "spec": {"paused": False}}, APPLY, field_manager="other", force=True)
    assert "pauser" not in [owner.manager for owner in taken.metadata.managed_fields]
    with pytest.raises(client.exceptions.ApiException) as refused:
        patched([{"op": "test", "path": "/spec/replicas", "value": 9}], JSON_PATCH)
    assert refused.value.status == 422


def test_a_watch_is_resumed_where_it_ended(core: client.CoreV1Api, namespace: str) -> None:
    start = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.create_namespaced_config_map(namespace, config_map("a", {"k": "1"}))
    changes = watch.Watch()
    only = {"field_selector": "metadata.name=a"}  # a new namespace gets a ConfigMap of its own
    seen = []
    for event in changes.stream(core.list_namespaced_config_map, namespace, resource_version=start, **only):
        seen.append((event["type"], event["object"].metadata.name))
        changes.stop()
    core.patch_namespaced_config_map("a", namespace, {"data": {"k": "2"}}, _content_type=MERGE)
    core.delete_namespaced_config_map("a", namespace)
    since = changes.resource_version
    for event in changes.stream(core.list_namespaced_config_map, namespace, resource_version=since, **only):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            changes.stop()
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_a_watch_may_begin_with_the_present_and_a_bookmark(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("a"))
    changes = watch.Watch()
    types = []
    for event in changes.stream(
        core.list_namespaced_config_map,
        namespace,
        field_selector="metadata.name=a",
        send_initial_events=True,
        resource_version_match="NotOlderThan",
        allow_watch_bookmarks=True,
    ):
        types.append(event["type"])
        if event["type"] == "BOOKMARK":
            assert event["raw_object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
            changes.stop()
    assert types == ["ADDED", "BOOKMARK"]
    assert int(changes.resource_version) > 0


def test_a_watch_that_the_hub_refuses_raises(core: client.CoreV1Api, namespace: str) -> None:
    with pytest.raises(client.exceptions.ApiException) as refused:
        list(watch.Watch().stream(core.list_namespaced_config_map, namespace, resource_version="x", timeout_seconds=1))
    assert refused.value.status == 400


def test_a_shared_informer_keeps_a_copy_of_the_present(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("before", watched="yes"))
    informer = informers.SharedInformer(core.list_namespaced_config_map, namespace, label_selector="watched=yes")
    events: list[tuple[str, str]] = []
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        informer.add_event_handler(kind, lambda obj, kind=kind: events.append((kind, obj.metadata.name)))
    informer.start()
    try:
        eventually(lambda: events == [("ADDED", "before")], "the informer's list")
        core.create_namespaced_config_map(namespace, config_map("after", {"k": "1"}, watched="yes"))
        core.create_namespaced_config_map(namespace, config_map("unseen"))
        core.patch_namespaced_config_map("after", namespace, {"data": {"k": "2"}}, _content_type=MERGE)
        relabelled = {"metadata": {"labels": {"watched": "no"}}}
        core.patch_namespaced_config_map("before", namespace, relabelled, _content_type=MERGE)
        eventually(lambda: len(events) == 4, "the informer's events")
        assert events[1:] == [("ADDED", "after"), ("MODIFIED", "after"), ("DELETED", "before")]
        assert [one.data for one in informer.cache.list()] == [{"k": "2"}]
    finally:
        informer.stop()


@pytest.fixture
def anything(api: client.ApiClient) -> dynamic.DynamicClient:
    return dynamic.DynamicClient(api)


def test_the_dynamic_client_discovers_what_is_served(anything: dynamic.DynamicClient, namespace: str) -> None:
    deployments = anything.resources.get(api_version="apps/v1", kind="Deployment")
    assert (deployments.name, deployments.namespaced) == ("deployments", True)
    assert "scale" in deployments.subresources
    body = client.ApiClient().sanitize_for_serialization(web())
    assert deployments.create(body={**body, "kind": "Deployment"}, namespace=namespace).spec.replicas == 2
    applied = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 4}}
    with pytest.raises(dynamic.exceptions.ConflictError):
        deployments.server_side_apply(body=applied, namespace=namespace, field_manager="scaler")
    forced = deployments.server_side_apply(
        body=applied, namespace=namespace, field_manager="scaler", force_conflicts=True
    )
    assert forced.spec.replicas == 4
    assert deployments.scale.get(name="web", namespace=namespace).spec.replicas == 4
    listed = deployments.get(namespace=namespace, label_selector="nothing=here")
    assert (listed.kind, listed["items"]) == ("DeploymentList", [])
    with pytest.raises(dynamic.exceptions.UnprocessibleEntityError):
        deployments.patch(body={"spec": {"replicas": -1}}, name="web", namespace=namespace, content_type=MERGE)
    deployments.delete(name="web", namespace=namespace)
    with pytest.raises(dynamic.exceptions.NotFoundError):
        deployments.get(name="web", namespace=namespace)


def test_the_dynamic_client_watches(anything: dynamic.DynamicClient, core: client.CoreV1Api, namespace: str) -> None:
    maps = anything.resources.get(api_version="v1", kind="ConfigMap")
    start = maps.get(namespace=namespace).metadata.resourceVersion
    core.create_namespaced_config_map(namespace, config_map("a", {"k": "1"}))
    core.delete_namespaced_config_map("a", namespace)
    changes = watch.Watch()
    seen = []
    for event in maps.watch(namespace=namespace, resource_version=start, watcher=changes, name="a"):
        seen.append((event["type"], event["object"].data.k))
        if event["type"] == "DELETED":
            changes.stop()
    assert seen == [("ADDED", "1"), ("DELETED", "1")]


def test_namespaces_end_with_what_is_in_them(core: client.CoreV1Api, hub: HubProcess) -> None:
    created = core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(generate_name="passing-")))
    name = created.metadata.name
    core.create_namespaced_config_map(name, config_map("inside"))
    core.delete_namespace(name)

    def gone() -> bool:
        try:
            core.read_namespace(name)
        except client.exceptions.NotFoundException:
            return True
        return False

    eventually(gone, "the end of the namespace")
    with pytest.raises(client.exceptions.NotFoundException):
        core.read_namespaced_config_map("inside", name)


def test_versions_groups_and_access(api: client.ApiClient) -> None:
    assert client.VersionApi(api).get_code().major == "1"
    assert "apps" in [group.name for group in client.ApisApi(api).get_api_versions().groups]
    review = client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(verb="delete", resource="pods", namespace="default")
        )
    )
    assert client.AuthorizationV1Api(api).create_self_subject_access_review(review).status.allowed is True


def test_a_wrong_token_is_unauthorized(hub: HubProcess) -> None:
    settings = client.Configuration()
    config.load_kube_config(str(hub.kubeconfig), client_configuration=settings)
    settings.refresh_api_key_hook = None  # which would read the good one again
    settings.api_key["BearerToken"] = "Bearer wrong"
    with client.ApiClient(settings) as stranger, pytest.raises(client.exceptions.ApiException) as refused:
        client.CoreV1Api(stranger).list_namespace()
    assert refused.value.status == 401
