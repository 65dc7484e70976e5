"""`farflung import-kinds`: kinds of one hub, as if it were a cluster, in a workspace of another."""

from __future__ import annotations

from typing import Final

import pytest
from hub_harness import ADMIN_TOKEN, LocalHub
from local_transport import LocalTransport
from translated import definition, widget
from workspaces_harness import LocalWorkspaces

from farflung.apis.kcp.imported import NotImportable, OpenApiDocument, export_of, schema_of_definition
from farflung.apis.kcp.names import API_BINDINGS, API_EXPORTS
from farflung.apis.names import CUSTOM_RESOURCE_DEFINITIONS, Collection
from farflung.cli.kind_import import offer, read_schemas
from farflung.client.rest import Client
from farflung.lib.errors import UserError

WIDGETS: Final = Collection("example.org", "v1", "widgets", "Widget")
WIDGET_NAME: Final = "widgets.example.org"
#: kinds whose definitions are recursive, have keyed lists, quantities, numbers or texts, or no spec
WITHOUT_DEFINITION: Final = (
    "jobs.batch",
    "cronjobs.batch",
    "statefulsets.apps",
    "networkpolicies.networking.k8s.io",
    "horizontalpodautoscalers.autoscaling",
    "persistentvolumes",
    "priorityclasses.scheduling.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
)


@pytest.fixture
async def cluster() -> Client:
    hub = await LocalHub.in_memory().furnish()
    client = Client(LocalTransport(hub.function, ADMIN_TOKEN))
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition("v1"))
    return client


@pytest.fixture
async def workspace() -> Client:
    hub = await LocalWorkspaces.started()
    await hub.new_workspace("root", "kinds")
    return Client(LocalTransport(hub.function, hub.token)).workspace("root:kinds")


async def bind(workspace: Client, export: str) -> None:
    spec = {"reference": {"export": {"path": "root:kinds", "name": export}}}
    binding = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": export}, "spec": spec}
    answer = await workspace.create(API_BINDINGS, binding)
    assert answer["status"]["phase"] == "Bound", answer["status"]


async def test_definitions_are_imported_and_their_kinds_can_be_bound(cluster: Client, workspace: Client) -> None:
    written = await offer(workspace, "imported", await read_schemas(cluster, ()))
    assert [one["written"] for one in written] == ["created", "created"]
    await bind(workspace, "imported")
    created = await workspace.create(WIDGETS, widget("w", 1), "default")
    assert created["spec"] == widget("w", 1)["spec"]
    again = await offer(workspace, "imported", await read_schemas(cluster, [WIDGET_NAME]))
    assert [one["written"] for one in again] == ["unchanged", "unchanged"]


async def test_kinds_without_a_definition_are_imported_from_openapi(cluster: Client, workspace: Client) -> None:
    schemas = await read_schemas(cluster, WITHOUT_DEFINITION[:-1])
    await offer(workspace, "more", schemas)
    await bind(workspace, "more")
    container = {"name": "web", "image": "nginx", "resources": {"limits": {"cpu": 1}}, "ports": [{"containerPort": 80}]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}},
    }
    created = await workspace.create(Collection("batch", "v1", "jobs", "Job"), job, "default")
    assert created["spec"] == job["spec"]


async def test_an_import_adds_to_an_export_and_replaces_earlier_schemas_of_a_kind(
    cluster: Client, workspace: Client
) -> None:
    await offer(workspace, "mine", await read_schemas(cluster, ["jobs.batch"]))
    older = definition("v1")
    older["spec"]["names"]["shortNames"] = ["old"]
    await offer(workspace, "mine", [schema_of_definition(older)])
    [_, written] = await offer(workspace, "mine", await read_schemas(cluster, [WIDGET_NAME]))
    assert written["written"] == "configured"
    export = await workspace.get(API_EXPORTS, "mine")
    assert [one.partition(".")[2] for one in export["spec"]["latestResourceSchemas"]] == ["jobs.batch", WIDGET_NAME]


async def test_a_kind_that_the_cluster_does_not_serve_is_refused_with_similar_ones(cluster: Client) -> None:
    with pytest.raises(UserError, match=r"does not serve job; did you mean jobs\.batch\?"):
        await read_schemas(cluster, ["job"])
    with pytest.raises(UserError, match=r"does not serve things\.x; `kubectl api-resources`"):
        await read_schemas(cluster, ["things.x"])


async def test_of_a_definition_with_a_conversion_webhook_only_the_storage_version_is_imported() -> None:
    obj = definition("v1", "v2")
    obj["spec"]["conversion"] = {"strategy": "Webhook"}
    storage = [one["name"] for one in obj["spec"]["versions"] if one["storage"]]
    assert [one["name"] for one in schema_of_definition(obj)["spec"]["versions"]] == storage
    obj["spec"]["conversion"] = {"strategy": "None"}
    assert len(schema_of_definition(obj)["spec"]["versions"]) == 2


def test_a_recursive_schema_ends_with_any_content() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
    gvk = [{"group": "x.io", "version": "v1", "kind": "Node"}]
    document = OpenApiDocument({"components": {"schemas": {"Node": node | {"x-kubernetes-group-version-kind": gvk}}}})
    found = document.structural("x.io", "v1", "Node")
    inner = found["properties"]["next"]["properties"]["next"]
    assert inner == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    with pytest.raises(NotImportable):
        document.structural("x.io", "v1", "Edge")


def test_a_new_export_lists_the_schemas_in_the_order_of_their_names() -> None:
    schemas = [{"metadata": {"name": name}} for name in ("v1.b.x", "v1.a.x")]
    assert export_of("e", None, schemas)["spec"]["latestResourceSchemas"] == ["v1.a.x", "v1.b.x"]
