"""kcp's kinds, served as custom resources: names, defaults, refusals and columns are those of a real kcp 0.11."""

from __future__ import annotations

from typing import Any

import pytest
from documented import undocumented
from hub_harness import MERGE_PATCH, TABLE, LocalHub

from farflung.apis.apiextensions.validation import default, validate_create
from farflung.apis.kcp import kinds
from farflung.machinery.errors import Obj

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RESOURCE = {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}


async def serving(*names: str) -> LocalHub:
    hub = LocalHub.in_memory()
    for name in names:
        answer = await hub.request("POST", DEFINITIONS, kinds.definition(name), query={"fieldValidation": "Strict"})
        assert answer.status == 201, answer.body
    return hub


def collection(kind: str) -> str:
    one = kinds.KINDS[kind]
    return f"/apis/{one.group}/{one.version}/{one.plural}"


def body(kind: str, name: str, **rest: Any) -> Obj:
    one = kinds.KINDS[kind]
    return {"apiVersion": f"{one.group}/{one.version}", "kind": kind, "metadata": {"name": name}, **rest}


async def created(kind: str, **rest: Any) -> Obj:
    """What is left of an object, without its metadata."""
    hub = await serving(kind)
    answer = await hub.request("POST", collection(kind), body(kind, "one", **rest))
    assert answer.status == 201, answer.body
    found: Obj = answer.json
    return {name: value for name, value in found.items() if name not in ("apiVersion", "kind", "metadata")}


async def refusal(kind: str, name: str = "one", **rest: Any) -> str:
    hub = await serving(kind)
    answer = await hub.request("POST", collection(kind), body(kind, name, **rest))
    assert answer.status == 422, answer.body
    return answer.message


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_every_kind_is_a_definition_that_a_server_accepts(kind: str) -> None:
    definition = kinds.definition(kind)
    default(definition)
    assert [str(problem) for problem in validate_create(definition)] == []


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_every_field_is_documented(kind: str) -> None:
    assert undocumented(kinds.KINDS[kind].schema()) == []


def test_every_kind_of_the_system_is_in_the_groups_that_every_workspace_has() -> None:
    assert {kinds.KINDS[kind].group for kind in kinds.SYSTEM} == {"apis.kcp.io", "core.kcp.io"}


def test_schemas_and_exports_of_root_have_the_names_that_kcp_gives_them() -> None:
    assert kinds.api_export("tenancy.kcp.io")["spec"]["latestResourceSchemas"] == [
        "v221219-c92ed8152.clusterworkspaces.tenancy.kcp.io",
        "v230110-89146c99.workspacetypes.tenancy.kcp.io",
        "v230116-832a4a55d.workspaces.tenancy.kcp.io",
    ]
    schema = kinds.resource_schema("SyncTarget")
    assert schema["metadata"]["name"] == "v230109-773b219c.synctargets.workload.kcp.io"
    assert schema["spec"]["versions"][0]["schema"]["type"] == "object"


def test_a_definition_and_a_schema_say_the_same() -> None:
    for kind in kinds.KINDS:
        definition, schema = kinds.definition(kind)["spec"], kinds.resource_schema(kind)["spec"]
        definition["versions"][0]["schema"] = definition["versions"][0]["schema"]["openAPIV3Schema"]
        assert definition == schema


# --- defaults -------------------------------------------------------------------------------------


async def test_a_workspace_without_a_spec_has_one_and_waits_to_be_scheduled() -> None:
    assert await created("Workspace") == {"spec": {}, "status": {"phase": "Scheduling"}}


async def test_children_of_every_type_are_universal_unless_it_says_otherwise() -> None:
    assert await created("WorkspaceType", spec={}) == {
        "spec": {"defaultChildWorkspaceType": {"name": "universal", "path": "root"}}
    }


@pytest.mark.parametrize("absent", [{}, {"spec": None}])
async def test_a_sync_target_without_a_spec_has_no_defaults(absent: Obj) -> None:
    assert await created("SyncTarget", **absent) == {}


async def test_a_sync_target_with_a_spec_has_defaults() -> None:
    assert await created("SyncTarget", spec={"cells": {"foo": "bar"}}) == {
        "spec": {
            "cells": {"foo": "bar"},
            "supportedAPIExports": [{"export": "kubernetes"}],
            "unschedulable": False,
        }
    }


async def test_a_location_takes_every_instance_unless_it_says_otherwise() -> None:
    assert await created("Location", spec={"resource": RESOURCE}) == {
        "spec": {"instanceSelector": {}, "resource": RESOURCE}
    }


async def test_a_location_needs_no_spec() -> None:
    assert await created("Location") == {}


# --- refusals -------------------------------------------------------------------------------------


async def test_a_location_with_a_spec_says_of_what() -> None:
    assert (
        await refusal("Location", spec={})
        == 'Location.scheduling.kcp.io "one" is invalid: spec.resource: Required value'
    )


async def test_a_workspace_is_named_like_a_label() -> None:
    assert await refusal("Workspace", "a.b") == (
        'Workspace.tenancy.kcp.io "a.b" is invalid: metadata.name: Invalid value: "a.b": '
        "metadata.name in body should match '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'"
    )


async def test_a_logical_cluster_is_called_cluster() -> None:
    assert await refusal("LogicalCluster", "x", spec={}) == (
        'LogicalCluster.core.kcp.io "x" is invalid: metadata.name: Unsupported value: "x": supported values: "cluster"'
    )


async def test_a_schema_has_a_scope_that_exists() -> None:
    schema = kinds.resource_schema("Shard")
    schema["spec"]["scope"] = "Foo"
    assert await refusal("APIResourceSchema", spec=schema["spec"]) == (
        'APIResourceSchema.apis.kcp.io "one" is invalid: spec.scope: Unsupported value: "Foo": '
        'supported values: "Cluster", "Namespaced"'
    )


async def test_a_schema_has_versions() -> None:
    spec = {**kinds.resource_schema("Shard")["spec"], "versions": []}
    assert await refusal("APIResourceSchema", spec=spec) == (
        'APIResourceSchema.apis.kcp.io "one" is invalid: spec.versions: Invalid value: 0: '
        "spec.versions in body should have at least 1 items"
    )


async def test_a_claim_is_for_all_or_for_some() -> None:
    claims = [{"group": "", "resource": "configmaps"}]
    assert await refusal("APIExport", spec={"permissionClaims": claims}) == (
        'APIExport.apis.kcp.io "one" is invalid: spec.permissionClaims[0]: Invalid value: '
        '"object": either "all" or "resourceSelector" must be set'
    )


async def test_a_selected_claim_says_what() -> None:
    claims = [{"resource": "configmaps", "resourceSelector": [{}]}]
    assert "at least one field must be set" in await refusal("APIExport", spec={"permissionClaims": claims})


async def test_logical_clusters_cannot_be_claimed() -> None:
    claims = [{"group": "core.kcp.io", "resource": "logicalclusters", "all": True}]
    assert "logicalclusters cannot be claimed" in await refusal("APIExport", spec={"permissionClaims": claims})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"type": {"name": "universal"}}, 'spec.type: Invalid value: "object": name is immutable'),
        ({"cluster": "abcdefgh12345678"}, 'spec.cluster: Invalid value: "string": cluster is immutable'),
        ({"cluster": None}, 'spec: Invalid value: "object": cluster cannot be unset'),
        ({"URL": None}, 'spec: Invalid value: "object": URL cannot be unset'),
    ],
)
async def test_a_workspace_stays_what_it_is(change: Obj, said: str) -> None:
    hub = await serving("Workspace")
    spec = {"type": {"name": "organization", "path": "root"}, "cluster": "2mk49qlwexsf0dbl", "URL": "https://x/y"}
    await hub.create(collection("Workspace"), body("Workspace", "g1", spec=spec))
    path = f"{collection('Workspace')}/g1"
    answer = await hub.request("PATCH", path, {"spec": change}, content_type=MERGE_PATCH)
    assert answer.message == f'Workspace.tenancy.kcp.io "g1" is invalid: {said}'


async def test_a_binding_stays_with_its_export() -> None:
    hub = await serving("APIBinding")
    spec = {"reference": {"export": {"path": "root:espw", "name": "edge.kcp.io"}}}
    await hub.create(collection("APIBinding"), body("APIBinding", "b", spec=spec))
    path = f"{collection('APIBinding')}/b"
    change = {"spec": {"reference": {"export": {"name": "other"}}}}
    answer = await hub.request("PATCH", path, change, content_type=MERGE_PATCH)
    assert 'spec.reference: Invalid value: "object": APIExport reference must not be changed' in answer.message


# --- columns --------------------------------------------------------------------------------------


async def test_a_workspace_shows_type_region_phase_and_url() -> None:
    hub = await serving("Workspace")
    one = body("Workspace", "espw", spec={"type": {"name": "organization"}, "URL": "https://x/clusters/y"})
    one["metadata"]["labels"] = {"tenancy.kcp.io/phase": "Ready"}
    await hub.create(collection("Workspace"), one)
    table = (await hub.request("GET", collection("Workspace"), accept=TABLE)).json
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Type",
        "Region",
        "Phase",
        "URL",
        "Age",
    ]
    assert table["rows"][0]["cells"] == ["espw", "organization", None, "Ready", "https://x/clusters/y", "0s"]


async def test_a_location_counts_even_to_nothing() -> None:
    hub = await serving("Location")
    await hub.create(collection("Location"), body("Location", "dev", spec={"resource": RESOURCE}))
    status = {"status": {"instances": 1, "availableInstances": 0}}
    await hub.request("PATCH", f"{collection('Location')}/dev/status", status, content_type=MERGE_PATCH)
    table = (await hub.request("GET", collection("Location"), accept=TABLE)).json
    assert table["rows"][0]["cells"] == ["dev", "synctargets", "0", "1", None, "0s"]
