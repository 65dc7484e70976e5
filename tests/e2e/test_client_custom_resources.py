"""Custom resources as every client sees them: defined, discovered, written, watched, applied, scaled and gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hub_process import HubProcess, Json, eventually
from lazy_module import LazyModule

client = LazyModule("kubernetes.client")
config = LazyModule("kubernetes.config")
dynamic = LazyModule("kubernetes.dynamic")
watch = LazyModule("kubernetes.watch")
kubernetes_asyncio = LazyModule("kubernetes_asyncio")
kr8s = LazyModule("kr8s")
async_utils = LazyModule("kr8s._async_utils")
lightkube = LazyModule("lightkube")
generic = LazyModule("lightkube.generic_resource")
models = LazyModule("lightkube.models.meta_v1")
types = LazyModule("lightkube.types")

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TEXT = {"type": "string"}
SCHEMA: Json = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "x-kubernetes-validations": [{"rule": "self.size <= self.limit", "message": "too large"}],
            "properties": {
                "size": {"type": "integer", "minimum": 0},
                "limit": {"type": "integer", "default": 10},
                "colour": {"type": "string", "enum": ["red", "blue"]},
                "tags": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "required": ["name"], "properties": {"name": TEXT, "of": TEXT}},
                },
            },
        },
        "status": {"type": "object", "properties": {"size": {"type": "integer"}, "ready": {"type": "boolean"}}},
    },
}


class Widgets:
    """A definition of its own for each test."""

    def __init__(self, hub: HubProcess, namespace: str) -> None:
        self.hub = hub
        self.namespace = namespace
        self.group = f"{namespace}.example.com"
        self.version = f"{self.group}/v1"
        self.where = {"group": self.group, "version": "v1", "namespace": namespace, "plural": "widgets"}

    @property
    def definition(self) -> Json:
        names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
        scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": SCHEMA},
            "subresources": {"status": {}, "scale": scale},
            "selectableFields": [{"jsonPath": ".spec.colour"}],
        }
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"widgets.{self.group}"},
            "spec": {"group": self.group, "scope": "Namespaced", "names": names, "versions": [version]},
        }

    def widget(self, name: str, size: int, labels: Json | None = None, **spec: Any) -> Json:
        metadata: Json = {"name": name, "namespace": self.namespace, **({"labels": labels} if labels else {})}
        return {
            "apiVersion": self.version,
            "kind": "Widget",
            "metadata": metadata,
            "spec": {"size": size, **spec},
        }


@pytest.fixture
def widgets(hub: HubProcess, namespace: str) -> Iterator[Widgets]:
    made = Widgets(hub, namespace)
    with hub.client() as asking:
        asking.create(DEFINITIONS, made.definition)
        yield made
        path = f"{DEFINITIONS}/widgets.{made.group}"
        asking.request("DELETE", path)
        eventually(lambda: asking.request("GET", path).status == 404, "the end of the definition")


# --- kubernetes -----------------------------------------------------------------------------------


@pytest.fixture
def api(hub: HubProcess) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(str(hub.kubeconfig)) as connection:
        yield connection


@pytest.fixture
def custom(api: client.ApiClient) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(api)


def test_custom_objects_are_written_defaulted_validated_and_pruned(
    custom: client.CustomObjectsApi, widgets: Widgets
) -> None:
    created = custom.create_namespaced_custom_object(**widgets.where, body=widgets.widget("a", 3, unknown=1))
    assert created["spec"] == {"size": 3, "limit": 10}
    with pytest.raises(client.exceptions.UnprocessableEntityException, match="too large"):
        custom.create_namespaced_custom_object(**widgets.where, body=widgets.widget("b", 11))
    with pytest.raises(
        client.exceptions.UnprocessableEntityException, match=r'supported values: \\"red\\", \\"blue\\"'
    ):
        custom.create_namespaced_custom_object(**widgets.where, body=widgets.widget("b", 1, colour="green"))

    created["spec"]["size"] = 4
    replaced = custom.replace_namespaced_custom_object(**widgets.where, name="a", body=created)
    assert (replaced["spec"]["size"], replaced["metadata"]["generation"]) == (4, 2)
    with pytest.raises(client.exceptions.ConflictException):
        custom.replace_namespaced_custom_object(**widgets.where, name="a", body=created)
    status = custom.patch_namespaced_custom_object_status(
        **widgets.where, name="a", body={"spec": {"size": 9}, "status": {"ready": True}}, _content_type=MERGE
    )
    assert (status["spec"]["size"], status["status"], status["metadata"]["generation"]) == (4, {"ready": True}, 2)
    scale = custom.get_namespaced_custom_object_scale(**widgets.where, name="a")
    scale["spec"]["replicas"] = 7
    custom.replace_namespaced_custom_object_scale(**widgets.where, name="a", body=scale)
    assert custom.get_namespaced_custom_object(**widgets.where, name="a")["spec"]["size"] == 7

    custom.delete_namespaced_custom_object(**widgets.where, name="a")
    with pytest.raises(client.exceptions.NotFoundException):
        custom.get_namespaced_custom_object(**widgets.where, name="a")


def test_custom_objects_are_listed_in_pages_by_selectors_and_watched(
    custom: client.CustomObjectsApi, widgets: Widgets
) -> None:
    empty = custom.list_namespaced_custom_object(**widgets.where)
    for number in range(5):
        colour = "red" if number % 2 else "blue"
        body = widgets.widget(f"w{number}", number, {"parity": str(number % 2)}, colour=colour)
        custom.create_namespaced_custom_object(**widgets.where, body=body)
    names, token = [], None
    while True:
        page = custom.list_namespaced_custom_object(**widgets.where, limit=2, _continue=token)
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue")
        if not token:
            break
    assert names == [f"w{number}" for number in range(5)]
    for selector in ({"label_selector": "parity=1"}, {"field_selector": "spec.colour=red"}):
        listed = custom.list_namespaced_custom_object(**widgets.where, **selector)
        assert [item["metadata"]["name"] for item in listed["items"]] == ["w1", "w3"]

    changes = watch.Watch()
    seen = []
    since = empty["metadata"]["resourceVersion"]
    for event in changes.stream(custom.list_namespaced_custom_object, **widgets.where, resource_version=since):
        seen.append((event["type"], event["object"]["metadata"]["name"]))
        if len(seen) == 5:
            custom.delete_namespaced_custom_object(**widgets.where, name="w0")
        if len(seen) == 6:
            changes.stop()
    assert seen == [*(("ADDED", f"w{number}") for number in range(5)), ("DELETED", "w0")]


def test_custom_objects_are_applied_by_the_lists_of_their_schema(api: client.ApiClient, widgets: Widgets) -> None:
    kind = dynamic.DynamicClient(api).resources.get(api_version=widgets.version, kind="Widget")
    assert set(kind.subresources) == {"scale", "status"}

    def applied(by: str, name: str = "a", *, force: bool = False, **spec: Any) -> Any:
        return kind.server_side_apply(
            body=widgets.widget(name, 1, **spec), namespace=widgets.namespace, field_manager=by, force_conflicts=force
        )

    applied("one", tags=["x"], parts=[{"name": "wheel", "of": "wood"}])
    both = applied("two", tags=["y"], parts=[{"name": "door", "of": "steel"}])
    assert (both.spec.tags, [part.name for part in both.spec.parts]) == (["x", "y"], ["wheel", "door"])
    with pytest.raises(dynamic.exceptions.ConflictError, match=r"spec.parts\[name=.{1,3}wheel"):
        applied("two", parts=[{"name": "wheel", "of": "steel"}])
    left = applied("one")
    assert (left.spec.tags, [part.name for part in left.spec.parts]) == (["y"], ["door"])


def test_a_definition_is_served_until_it_is_deleted(api: client.ApiClient, widgets: Widgets) -> None:
    extensions = client.ApiextensionsV1Api(api)
    custom = client.CustomObjectsApi(api)
    name = f"widgets.{widgets.group}"
    definition = extensions.read_custom_resource_definition(name)
    assert {one.type: one.status for one in definition.status.conditions}["Established"] == "True"
    custom.create_namespaced_custom_object(**widgets.where, body=widgets.widget("a", 1))
    extensions.delete_custom_resource_definition(name)

    def gone() -> bool:
        try:
            extensions.read_custom_resource_definition(name)
        except client.exceptions.NotFoundException:
            return True
        return False

    eventually(gone, "the end of the definition")
    with pytest.raises(client.exceptions.ApiException) as absent:
        custom.list_namespaced_custom_object(**widgets.where)
    assert absent.value.status == 404


# --- kubernetes_asyncio ---------------------------------------------------------------------------


async def test_the_asyncio_client_writes_and_watches_custom_objects(widgets: Widgets) -> None:
    settings = kubernetes_asyncio.client.Configuration()
    await kubernetes_asyncio.config.load_kube_config(
        config_file=str(widgets.hub.kubeconfig), client_configuration=settings
    )
    async with kubernetes_asyncio.client.ApiClient(settings) as connection:
        custom = kubernetes_asyncio.client.CustomObjectsApi(connection)
        start = (await custom.list_namespaced_custom_object(**widgets.where))["metadata"]["resourceVersion"]
        await custom.create_namespaced_custom_object(**widgets.where, body=widgets.widget("a", 1))
        patch = {"spec": {"size": 2}}
        await custom.patch_namespaced_custom_object(**widgets.where, name="a", body=patch, _content_type=MERGE)
        seen = []
        async with kubernetes_asyncio.watch.Watch().stream(
            custom.list_namespaced_custom_object, **widgets.where, resource_version=start
        ) as events:
            async for event in events:
                seen.append((event["type"], event["object"]["spec"]["size"]))
                if len(seen) == 2:
                    break
        assert seen == [("ADDED", 1), ("MODIFIED", 2)]
        with pytest.raises(kubernetes_asyncio.client.ApiException) as refused:
            await custom.create_namespaced_custom_object(**widgets.where, body=widgets.widget("b", -1))
        assert "should be greater than or equal to 0" in refused.value.body


# --- lightkube ------------------------------------------------------------------------------------


def test_lightkube_makes_classes_of_definitions(widgets: Widgets) -> None:
    settings = lightkube.KubeConfig.from_file(str(widgets.hub.kubeconfig))
    with lightkube.Client(settings, namespace=widgets.namespace, field_manager="light", trust_env=False) as light:
        generic.load_in_cluster_generic_resources(light)
        kind: Any = generic.get_generic_resource(widgets.version, "Widget")
        created = light.create(kind(metadata=models.ObjectMeta(name="a"), spec={"size": 1}))
        assert created["spec"] == {"size": 1, "limit": 10}
        status = light.patch(kind.Status, "a", {"status": {"size": 1}}, patch_type=types.PatchType.MERGE)
        assert status["status"] == {"size": 1}
        assert (
            light.patch(kind.Scale, "a", {"spec": {"replicas": 2}}, patch_type=types.PatchType.MERGE).spec.replicas == 2
        )
        applied = kind(
            apiVersion=widgets.version, kind="Widget", metadata=models.ObjectMeta(name="b"), spec={"size": 3}
        )
        assert light.apply(applied)["spec"]["size"] == 3
        assert [one.metadata.name for one in light.list(kind, fields={"metadata.name": "b"})] == ["b"]
        with pytest.raises(lightkube.ApiError) as refused:
            light.patch(kind, "a", {"spec": {"size": 11}}, patch_type=types.PatchType.MERGE)
        assert (refused.value.status.code, refused.value.status.reason) == (422, "Invalid")
        with pytest.raises(lightkube.ApiError) as strategic:
            light.patch(kind, "a", {"spec": {"size": 1}}, patch_type=types.PatchType.STRATEGIC)
        assert strategic.value.status.code == 415


# --- kr8s -----------------------------------------------------------------------------------------


def test_kr8s_finds_custom_resources_by_discovery(widgets: Widgets) -> None:
    api = kr8s.api(kubeconfig=str(widgets.hub.kubeconfig), namespace=widgets.namespace)
    kind = kr8s.objects.new_class(kind="Widget", version=widgets.version, namespaced=True, asyncio=False)
    widget: Any = kind(widgets.widget("a", 1), api=api)
    widget.create()
    widget.patch({"spec": {"size": 2}})
    widget.patch({"status": {"ready": True}}, subresource="status")
    [found] = api.get(f"widgets.{widgets.group}", namespace=widgets.namespace)
    assert (found.spec.size, found.status.ready) == (2, True)
    child = kr8s.objects.ConfigMap({"metadata": {"name": "child", "namespace": widgets.namespace}}, api=api)
    child.create()
    widget.adopt(child)
    widget.delete(propagation_policy="Foreground")
    eventually(lambda: not widget.exists() and not child.exists(), "the end of the widget and its child")
    assert api._session is not None
    async_utils.Portal().call(api._session.aclose)
