"""Workspaces and homes, as requests see them."""

from __future__ import annotations

import pytest
from hub_harness import ADMIN_TOKEN, TABLE, Watch
from platform_harness import URL
from tenancy_harness import running
from workspaces_harness import LocalWorkspaces, types_of, workspace, workspace_type, workspaces_of

from farflung.machinery.errors import Obj

LOGICAL_CLUSTERS = "apis/core.kcp.io/v1alpha1/logicalclusters"
OWNER = "experimental.tenancy.kcp.io/owner"
KCP_ADMINS_HOME = "kvdk2spgmbix"


@pytest.fixture
async def hub() -> LocalWorkspaces:
    return await LocalWorkspaces.started()


#: the spec of a type whose workspaces have no children
ALONE: Obj = {
    "extend": {"with": [{"name": "universal", "path": "root"}]},
    "limitAllowedChildren": {"none": True},
}


def logical_cluster(name: str) -> Obj:
    return {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {"name": name},
        "spec": {},
    }


# --- homes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["application/json", TABLE, f"{TABLE},application/json"])
async def test_a_home_is_a_workspace_also_for_clients_that_prefer_tables(hub: LocalWorkspaces, accept: str) -> None:
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
    await hub.new_workspace("root", "a")
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


@pytest.mark.parametrize(
    ("type", "why"),
    [
        ({"name": "nosuch"}, 'workspace type "nosuch" cannot be resolved'),
        (
            {"name": "nosuch", "path": "root"},
            'Internal error occurred: workspacetypes.tenancy.kcp.io "root:nosuch" not found',
        ),
        ({"name": "home", "path": "root"}, "workspace type root:home cannot have any parent"),
        (
            {"name": "organization"},
            "workspace type root:organization only allows [root:root] parent workspaces, but parent type root:alone "
            "only implements [root:alone root:universal]",
        ),
        ({"name": "universal"}, "workspace type root:alone cannot have any children"),
    ],
)
async def test_a_workspace_whose_type_cannot_be_leaves_nothing_behind(
    hub: LocalWorkspaces, type: Obj, why: str
) -> None:
    await hub.create(types_of("root"), workspace_type("alone", **ALONE))
    await hub.new_workspace("root", "a", type={"name": "alone"})
    with hub.writes_nothing():
        answer = await hub.post(workspaces_of("root:a"), workspace("b", type=type))
    assert (answer.status, answer.message) == (403, f'workspaces.tenancy.kcp.io "b" is forbidden: {why}')
    assert (await hub.get(workspaces_of("root:a"))).names == []


async def test_a_name_that_is_taken_leaves_nothing_behind(hub: LocalWorkspaces) -> None:
    before = await hub.new_workspace("root", "a")
    with hub.writes_nothing():
        answer = await hub.post(workspaces_of("root"), workspace("a"))
    assert (answer.status, answer.message) == (409, 'workspaces.tenancy.kcp.io "a" already exists')
    assert (await hub.get(workspaces_of("root", "a"))).json == before


async def test_a_workspace_is_written_after_all_that_is_in_its_cluster(hub: LocalWorkspaces) -> None:
    made = await hub.new_workspace("root", "a")
    cluster = made["spec"]["cluster"]
    stored = [entry for home in hub.store.storage_prefixes() for entry in hub.store.list(f"{home}{cluster}/").entries]
    last = max(stored, key=lambda entry: entry.revision)
    assert last.key == f"/core.kcp.io/logicalclusters/{cluster}/cluster"
    assert last.revision < int(made["metadata"]["resourceVersion"])


async def test_a_refused_workspace_does_not_take_a_cluster_along_that_is_not_its_own(hub: LocalWorkspaces) -> None:
    abandoned: list[str] = []
    hub.platform.tenancy.on_abandoned = abandoned.append
    cluster = (await hub.new_workspace("root", "a"))["spec"]["cluster"]
    hub.token = ADMIN_TOKEN
    answer = await hub.post(workspaces_of("root"), workspace("a", cluster=cluster))
    assert answer.status == 409
    assert abandoned == []


# --- dry runs -------------------------------------------------------------------------------------


async def test_what_is_only_tried_is_in_no_cluster(hub: LocalWorkspaces) -> None:
    dry = {"dryRun": "All"}
    with hub.writes_nothing():
        answer = await hub.post(workspaces_of("root"), workspace("dry"), dry)
    assert answer.status == 201
    assert answer.json["metadata"]["annotations"].keys() == {OWNER}
    assert "resourceVersion" not in answer.json["metadata"]
    assert "cluster" not in answer.json["spec"]
    await hub.new_workspace("root", "a")
    patch = {"metadata": {"labels": {"b": "c"}}}
    with hub.writes_nothing():
        answer = await hub.patch(workspaces_of("root", "a"), patch, query=dry)
    assert answer.json["metadata"]["annotations"]["kcp.io/cluster"] == "root", "that one is there already"


# --- the end --------------------------------------------------------------------------------------


async def condition(watch: Watch, type: str) -> Obj:
    """Of the object that is watched, as soon as it has it."""
    number = 0
    while True:
        number += 1
        conditions: list[Obj] = (await watch.next(number))[number - 1]["object"]["status"]["conditions"]
        if found := [one for one in conditions if one["type"] == type]:
            return found[0]


async def test_users_of_a_terminating_workspace_can_work_until_it_is_deleted(hub: LocalWorkspaces) -> None:
    cluster = (await hub.new_workspace("root", "a"))["spec"]["cluster"]
    maps = f"/clusters/{cluster}/api/v1/namespaces/default/configmaps"
    await hub.create(maps, {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}})
    watch, inside = await hub.watch(maps), await hub.watch(f"/clusters/{cluster}/{LOGICAL_CLUSTERS}")
    async with running(hub.store, hub.platform.tenancy) as controller:
        answer = await hub.delete(workspaces_of("root", "a"))
        assert answer.status == 200
        assert answer.json["metadata"]["deletionTimestamp"], "it waits for what is in it"
        assert (await condition(inside, "WorkspaceContentDeleted"))["reason"] == "SomeResourcesRemain"
        labels = (await hub.get(workspaces_of("root", "a"))).json["metadata"]["labels"]
        assert labels == {"tenancy.kcp.io/phase": "Deleting"}
        await hub.create(f"/clusters/{cluster}/api/v1/namespaces", {"metadata": {"name": "late"}})
        answer = await hub.patch(f"{maps}/held", {"metadata": {"finalizers": None}})
        assert answer.status == 200
        await controller.queue.finished()
    assert [what for what, name in watch.changes if name == "held"] == ["ADDED", "MODIFIED", "DELETED"]
    assert (await hub.get(workspaces_of("root", "a"))).status == 404
    for one in (cluster, "root:a"):
        answer = await hub.get(f"/clusters/{one}/api/v1/namespaces")
        assert (answer.status, answer.message) == (
            403,
            'namespaces is forbidden: User "kcp-admin" cannot list resource "namespaces" in API group "" at the '
            "cluster scope: access denied",
        )
    assert not any(
        f"/{cluster}/" in entry.key for home in hub.store.storage_prefixes() for entry in hub.store.list(home).entries
    )


async def test_a_workspace_cannot_be_deleted_from_inside(hub: LocalWorkspaces) -> None:
    await hub.new_workspace("root", "a")
    for inside in ("root", "root:a"):
        with hub.writes_nothing():
            answer = await hub.delete(f"/clusters/{inside}/{LOGICAL_CLUSTERS}/cluster")
        assert (answer.status, answer.message) == (
            403,
            'logicalclusters.core.kcp.io "cluster" is forbidden: LogicalCluster cannot be deleted',
        )


async def test_a_workspace_whose_generated_name_was_taken_is_complete_nonetheless(hub: LocalWorkspaces) -> None:
    suffixes = iter(["first", "first", "other"])
    hub.suffix = lambda: next(suffixes)
    generated = {**workspace(), "metadata": {"generateName": "w-"}}
    first, other = [await hub.create(workspaces_of("root"), generated) for _ in range(2)]
    assert [one["metadata"]["name"] for one in (first, other)] == ["w-first", "w-other"]
    assert [one["status"]["phase"] for one in (first, other)] == ["Ready", "Ready"]
    assert hub.platform.tenancy.clusters.resolve("root:w-other") == other["spec"]["cluster"]
    assert hub.platform.tenancy.clusters.path_of(other["spec"]["cluster"]) == "root:w-other"


async def test_a_workspace_for_undecidable_shards_waits(hub: LocalWorkspaces) -> None:
    selector = {"matchExpressions": [{"key": "name", "operator": "Like", "values": ["root"]}]}
    made = await hub.create(workspaces_of("root"), workspace("a", location={"selector": selector}))
    assert made["status"]["phase"] == "Scheduling"
    assert "cluster" not in made["spec"]
