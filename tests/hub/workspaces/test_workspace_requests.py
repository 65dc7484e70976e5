"""Workspaces and homes, as requests see them."""

from __future__ import annotations

import pytest
from hub_harness import TABLE
from workspaces_harness import URL, LocalWorkspaces, workspace, workspaces_of

from farflung.machinery.errors import Obj

LOGICAL_CLUSTERS = "apis/core.kcp.io/v1alpha1/logicalclusters"
OWNER = "experimental.tenancy.kcp.io/owner"
KCP_ADMINS_HOME = "kvdk2spgmbix"


@pytest.fixture
async def hub() -> LocalWorkspaces:
    return await LocalWorkspaces.started()


def logical_cluster(name: str) -> Obj:
    return {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {"name": name},
        "spec": {},
    }


# --- homes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["application/json", TABLE, f"{TABLE},application/json"])
async def test_a_home_is_a_workspace_even_for_those_who_prefer_tables(hub: LocalWorkspaces, accept: str) -> None:
    answer = await hub.get(workspaces_of("root", "~"), accept=accept)
    assert answer.status == 200
    assert answer.json["kind"] == "Workspace"
    assert answer.json["spec"] == {
        "type": {"name": ""},
        "cluster": KCP_ADMINS_HOME,
        "URL": f"{URL}/clusters/{KCP_ADMINS_HOME}",
    }


async def test_a_home_has_the_default_bindings_in_kcps_order(hub: LocalWorkspaces) -> None:
    await hub.get(workspaces_of("root", "~"))
    bindings = (await hub.get(f"/clusters/{KCP_ADMINS_HOME}/apis/apis.kcp.io/v1alpha1/apibindings")).json["items"]
    bound = {
        one["spec"]["reference"]["export"]["name"]: [what["resource"] for what in one["status"]["boundResources"]]
        for one in bindings
    }
    assert bound["tenancy.kcp.io"] == ["clusterworkspaces", "workspacetypes", "workspaces"]
    assert len(bound) == 5


# --- what cannot be -------------------------------------------------------------------------------


async def test_a_logical_cluster_of_another_name_is_invalid_before_it_is_forbidden(hub: LocalWorkspaces) -> None:
    path = f"/clusters/root/{LOGICAL_CLUSTERS}"
    answer = await hub.post(path, logical_cluster("x"))
    assert answer.status == 422
    why = 'metadata.name: Unsupported value: "x": supported values: "cluster"'
    assert answer.message == f'LogicalCluster.core.kcp.io "x" is invalid: {why}'
    answer = await hub.post(path, logical_cluster("cluster"))
    assert (answer.status, answer.message) == (
        403,
        'logicalclusters.core.kcp.io "cluster" is forbidden: LogicalCluster cannot be created',
    )


async def test_a_resource_that_a_group_of_the_hub_does_not_have_is_no_page(hub: LocalWorkspaces) -> None:
    await hub.workspace("root", "a")
    shards = "apis/core.kcp.io/v1alpha1/shards"
    assert (await hub.get(f"/clusters/root/{shards}")).status == 200
    answer = await hub.get(f"/clusters/root:a/{shards}")
    assert (answer.status, answer.body) == (404, b"404 page not found\n")
    answer = await hub.get("/clusters/root:a/apis/rbac.authorization.k8s.io/v1/nothing")
    assert answer.message == "the server could not find the requested resource", "as groups of Kubernetes say it"


async def test_a_workspace_without_a_name_is_told_that_its_rules_were_not_checked(hub: LocalWorkspaces) -> None:
    answer = await hub.post(workspaces_of("root"), workspace())
    assert answer.status == 422
    name, rules = answer.json["details"]["causes"]
    assert name["message"] == "Required value: name or generateName is required"
    assert rules["field"] == "<nil>"
    assert "some validation rules were not checked" in rules["message"]


# --- dry runs -------------------------------------------------------------------------------------


async def test_what_is_only_tried_is_in_no_cluster(hub: LocalWorkspaces) -> None:
    dry = {"dryRun": "All"}
    with hub.writes_nothing():
        answer = await hub.post(workspaces_of("root"), workspace("dry"), dry)
    assert answer.status == 201
    assert answer.json["metadata"]["annotations"].keys() == {OWNER}
    assert "resourceVersion" not in answer.json["metadata"]
    assert "cluster" not in answer.json["spec"]
    await hub.workspace("root", "a")
    patch = {"metadata": {"labels": {"b": "c"}}}
    with hub.writes_nothing():
        answer = await hub.patch(workspaces_of("root", "a"), patch, query=dry)
    assert answer.json["metadata"]["annotations"]["kcp.io/cluster"] == "root", "that one is there already"
