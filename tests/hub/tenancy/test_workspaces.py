"""What a new Workspace must be like, and what is made with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tenancy_harness import ADMIN, SHARD_ADMIN, URL, LocalTenancy, everybody

from farflung.hub.request.user import User
from farflung.hub.tenancy import guards
from farflung.hub.tenancy.direct_writes import WORKSPACE_TYPE
from farflung.hub.tenancy.home_workspaces import HomeWorkspaces
from farflung.machinery.errors import ApiError, Obj


@pytest.fixture
async def local() -> LocalTenancy:
    return await LocalTenancy.in_memory()


def conditions(obj: Obj) -> dict[str, str]:
    return {one["type"]: one["status"] for one in obj["status"]["conditions"]}


async def make_type(local: LocalTenancy, cluster: str, name: str, **spec: Any) -> None:
    await local.put(WORKSPACE_TYPE, cluster, {"metadata": {"name": name}, "spec": spec})


async def test_a_workspace_is_ready_when_it_is_there(local: LocalTenancy) -> None:
    workspace = await local.create("root", "g1")
    cluster = workspace["spec"]["cluster"]
    assert workspace["spec"] == {
        "type": {"name": "organization", "path": "root"},
        "cluster": cluster,
        "URL": f"{URL}/clusters/{cluster}",
    }
    assert workspace["status"]["phase"] == "Ready"
    assert conditions(workspace) == {"WorkspaceInitialized": "True", "WorkspaceScheduled": "True"}
    metadata = workspace["metadata"]
    assert metadata["labels"] == {"tenancy.kcp.io/phase": "Ready"}
    assert metadata["finalizers"] == ["core.kcp.io/logicalcluster"]
    assert metadata["generation"] == 2
    assert metadata["annotations"] == {
        "experimental.tenancy.kcp.io/owner": '{"username":"kcp-admin"}',
        "internal.tenancy.kcp.io/cluster": cluster,
        "internal.tenancy.kcp.io/shard": "1pfxsevk",
        "kcp.io/cluster": "root",
    }


async def test_its_namespace_has_its_account_when_controllers_are_notified(local: LocalTenancy) -> None:
    heard: list[str] = []
    for kind in ("namespaces", "serviceaccounts", "configmaps"):
        local.store.subscribe(f"/core/{kind}/", lambda changes, kind=kind: heard.append(kind))
    await local.create("root", "g1")
    assert heard[-1] == "namespaces"
    assert "serviceaccounts" in heard


async def test_its_logical_cluster_says_whose_it_is(local: LocalTenancy) -> None:
    parent = (await local.create("root", "g1"))["spec"]["cluster"]
    workspace = await local.create(parent, "c1")
    cluster = workspace["spec"]["cluster"]
    logical_cluster = local.logical_cluster(cluster)
    assert logical_cluster["metadata"]["annotations"] == {
        "experimental.tenancy.kcp.io/owner": '{"username":"kcp-admin"}',
        "internal.tenancy.kcp.io/type": "root:universal",
        "kcp.io/cluster": cluster,
        "kcp.io/path": "root:g1:c1",
    }
    assert logical_cluster["spec"] == {
        "directlyDeletable": False,
        "initializers": ["root:universal", "system:apibindings"],
        "owner": {
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "cluster": parent,
            "name": "c1",
            "resource": "workspaces",
            "uid": workspace["metadata"]["uid"],
        },
    }
    assert logical_cluster["status"]["phase"] == "Ready"
    assert logical_cluster["status"]["URL"] == f"{URL}/clusters/{cluster}"
    assert conditions(logical_cluster) == {"WorkspaceInitialized": "True"}


async def test_a_cluster_has_a_namespace_its_owner_and_its_bindings(local: LocalTenancy) -> None:
    cluster = (await local.create("root", "g1"))["spec"]["cluster"]
    names = [key.rpartition("/")[2] for key in local.keys(cluster)]
    assert len([name for name in names if ".kcp.io-" in name]) == 5
    assert {"default", "workspace-admin", "cluster"} < set(names)
    binding = local.object(f"/rbac.authorization.k8s.io/clusterrolebindings/{cluster}/workspace-admin")
    assert [subject["name"] for subject in binding["subjects"]] == ["kcp-admin"]


async def test_the_namespace_of_a_new_cluster_is_active(local: LocalTenancy) -> None:
    cluster = (await local.create("root", "g1"))["spec"]["cluster"]
    namespace = local.object(f"/core/namespaces/{cluster}/default")
    assert namespace["status"] == {"phase": "Active"}
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "default"}


@pytest.mark.parametrize(
    "user",
    [
        User("system:serviceaccount:default:robot", ("system:serviceaccounts",), cluster="abc"),
        User("system:serviceaccount:default:robot"),
        User("kcp-admin", cluster="abc"),
    ],
)
async def test_a_user_of_one_cluster_is_no_namesake_in_another(local: LocalTenancy, user: User) -> None:
    cluster = (await local.create("root", "g1", user))["spec"]["cluster"]
    assert not any("clusterrolebindings" in key for key in local.keys(cluster))


async def test_children_have_the_type_that_their_parents_type_says(local: LocalTenancy) -> None:
    organization = (await local.create("root", "org"))["spec"]["cluster"]
    universal = await local.create(organization, "u")
    assert universal["spec"]["type"] == {"name": "universal", "path": "root"}
    child = await local.create(universal["spec"]["cluster"], "uu")
    assert child["spec"]["type"] == {"name": "universal", "path": "root"}


async def test_a_type_without_a_path_is_found_above(local: LocalTenancy) -> None:
    parent = (await local.create("root", "wt", type={"name": "universal"}))["spec"]["cluster"]
    await make_type(local, parent, "plain")
    workspace = await local.create(parent, "p1", type={"name": "plain"})
    assert workspace["spec"]["type"] == {"name": "plain", "path": "root:wt"}
    assert [key.rpartition("/")[2] for key in local.keys(workspace["spec"]["cluster"])] == [
        "cluster",
        "workspace-admin",
    ]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"type": {"name": "nosuchtype"}}, 'workspace type "nosuchtype" cannot be resolved'),
        ({"type": {"name": "Universal"}}, 'workspace type "Universal" cannot be resolved'),
        (
            {"type": {"name": "nosuchtype", "path": "root"}},
            'Internal error occurred: workspacetypes.tenancy.kcp.io "root:nosuchtype" not found',
        ),
        (
            {"type": {"name": "universal", "path": "root:nosuch"}},
            'Internal error occurred: workspacetypes.tenancy.kcp.io "root:nosuch:universal" not found',
        ),
        (
            {"type": {"name": "team", "path": "root"}},
            "workspace type root:team only allows [root:organization root:team] parent workspaces, but parent type "
            "root:root only implements [root:root root:universal]",
        ),
        ({"type": {"name": "home", "path": "root"}}, "workspace type root:home cannot have any parent"),
        ({"cluster": "abcdefgh12345678"}, "spec.Cluster can only be set by system privileged users"),
        ({"URL": "https://x/"}, "spec.URL can only be set by system privileged users"),
    ],
)
async def test_what_cannot_be_is_refused_as_kcp_does(local: LocalTenancy, spec: Obj, why: str) -> None:
    before = local.stored()
    with pytest.raises(ApiError) as refused:
        await local.create("root", "t1", **spec)
    assert refused.value.code == 403
    assert refused.value.message == f'workspaces.tenancy.kcp.io "t1" is forbidden: {why}'
    assert local.stored() == before


async def test_a_type_that_the_user_may_not_use_is_not_found(local: LocalTenancy) -> None:
    workspace: Obj = {"metadata": {"name": "a"}, "spec": {"type": {"name": "universal", "path": "root"}}}
    with pytest.raises(ApiError, match='"root:universal" not found'):
        local.tenancy.admit("root", ADMIN, workspace, lambda cluster, name: False)


async def test_only_the_hub_sets_the_owner_of_a_workspace(local: LocalTenancy) -> None:
    annotations = {"experimental.tenancy.kcp.io/owner": '{"username":"somebody"}'}
    workspace: Obj = {"metadata": {"name": "a", "annotations": annotations}}
    local.tenancy.admit("root", ADMIN, workspace, everybody)
    assert '"kcp-admin"' in workspace["metadata"]["annotations"]["experimental.tenancy.kcp.io/owner"]


async def test_labels_of_a_type_are_added_but_replace_none(local: LocalTenancy) -> None:
    await make_type(local, "root", "labelled", additionalWorkspaceLabels={"team": "x", "kept": "theirs"})
    workspace: Obj = {"metadata": {"name": "a", "labels": {"kept": "ours"}}, "spec": {"type": {"name": "labelled"}}}
    local.tenancy.admit("root", ADMIN, workspace, everybody)
    assert workspace["metadata"]["labels"] == {"team": "x", "kept": "ours"}


async def test_a_type_means_what_it_says_now(local: LocalTenancy) -> None:
    key = "/tenancy.kcp.io/workspacetypes/root/mine"
    for color in ("red", "blue"):
        entry = local.store.get(key)
        if entry is not None:
            await local.store.delete(key, expect=entry.revision)
            with pytest.raises(ApiError, match="not found"):
                await local.create("root", "none", type={"name": "mine", "path": "root"})
        await make_type(local, "root", "mine", additionalWorkspaceLabels={"color": color})
        workspace = await local.create("root", color, type={"name": "mine", "path": "root"})
        assert workspace["metadata"]["labels"]["color"] == color


async def test_a_workspace_that_no_shard_wants_has_no_cluster(local: LocalTenancy) -> None:
    workspace = await local.create("root", "o6", location={"selector": {"matchLabels": {"no": "such"}}})
    assert "cluster" not in workspace["spec"]
    assert "finalizers" not in workspace["metadata"]
    assert workspace["metadata"]["labels"] == {"tenancy.kcp.io/phase": "Scheduling"}
    assert workspace["status"] == {
        "phase": "Scheduling",
        "conditions": [
            {
                "type": "WorkspaceScheduled",
                "status": "False",
                "severity": "Error",
                "reason": "Unschedulable",
                "message": "No available shards to schedule the workspace",
                "lastTransitionTime": "2024-05-01T12:00:00Z",
            }
        ],
    }
    assert (await local.create("root", "o7", location={"selector": {"matchLabels": {"name": "root"}}}))["spec"][
        "cluster"
    ]


async def test_a_workspace_waits_for_initializers_of_others(local: LocalTenancy) -> None:
    parent = (await local.create("root", "wt", type={"name": "universal"}))["spec"]["cluster"]
    await make_type(local, parent, "mine", initializer=True, extend={"with": [{"name": "universal", "path": "root"}]})
    workspace = await local.create(parent, "m1", type={"name": "mine"})
    assert workspace["status"]["phase"] == "Initializing"
    assert workspace["status"]["initializers"] == [f"{parent}:mine"]
    assert workspace["status"]["conditions"][0]["message"] == f"Initializers still exist: [{parent}:mine]"
    logical_cluster = local.logical_cluster(workspace["spec"]["cluster"])
    assert logical_cluster["spec"]["initializers"] == ["root:universal", f"{parent}:mine", "system:apibindings"]
    assert any(name.startswith("initializer.internal.kcp.io/") for name in logical_cluster["metadata"]["labels"])


async def test_required_groups_are_handed_down(local: LocalTenancy) -> None:
    workspace: Obj = {"metadata": {"name": "a", "annotations": {"authorization.kcp.io/required-groups": "mine"}}}
    local.tenancy.admit("root", ADMIN, workspace, everybody)
    assert "authorization.kcp.io/required-groups" not in workspace["metadata"]["annotations"]


# --- homes ----------------------------------------------------------------------------------------


async def test_a_home_is_made_when_it_is_asked_for(local: LocalTenancy) -> None:
    home = await HomeWorkspaces(local.store, local.tenancy).workspace(ADMIN)
    assert home["metadata"]["name"] == "cluster"
    assert home["spec"] == {"type": {"name": ""}, "cluster": "kvdk2spgmbix", "URL": f"{URL}/clusters/kvdk2spgmbix"}
    assert home["status"]["phase"] == "Ready"
    annotations = local.logical_cluster("kvdk2spgmbix")["metadata"]["annotations"]
    assert annotations["kcp.io/path"] == "user:kcp-admin"
    assert annotations["internal.tenancy.kcp.io/type"] == "root:home"
    child = (await local.create("kvdk2spgmbix", "kid"))["spec"]["cluster"]
    assert local.clusters.path_of(child) == "user:kcp-admin:kid"
    assert local.clusters.resolve("user:kcp-admin:kid") == child
    assert local.clusters.resolve("kvdk2spgmbix:kid") == child


async def test_a_home_is_made_once(local: LocalTenancy) -> None:
    homes = HomeWorkspaces(local.store, local.tenancy)
    first, second = await asyncio.gather(homes.workspace(ADMIN), homes.workspace(ADMIN))
    before = local.stored()
    assert first == second == await homes.workspace(ADMIN)
    assert local.stored() == before


async def test_a_half_made_home_is_completed(local: LocalTenancy) -> None:
    await local.config_map("kvdk2spgmbix", "left-over")
    await HomeWorkspaces(local.store, local.tenancy).workspace(ADMIN)
    assert local.clusters.exists("kvdk2spgmbix")


@pytest.mark.parametrize("name", ["a:b", "Somebody", "x/../y", "*", "system:serviceaccount:a:b"])
async def test_a_name_that_is_no_segment_makes_no_path(local: LocalTenancy, name: str) -> None:
    homes = HomeWorkspaces(local.store, local.tenancy)
    if name.startswith("system:serviceaccount"):
        with pytest.raises(ApiError, match="users of a single workspace have no home workspace"):
            await homes.workspace(User(name))
        return
    cluster = (await homes.workspace(User(name)))["spec"]["cluster"]
    assert local.clusters.path_of(cluster) == cluster


# --- what users may not do ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["any", "system"])
def test_some_names_of_types_are_reserved(name: str) -> None:
    with pytest.raises(ApiError) as refused:
        guards.check_new_type({"metadata": {"name": name}})
    assert refused.value.message == (
        f'workspacetypes.tenancy.kcp.io "{name}" is forbidden: metadata.name: Invalid value: "{name}": name is reserved'
    )


def test_a_logical_cluster_cannot_be_created() -> None:
    with pytest.raises(ApiError, match=r'logicalclusters.core.kcp.io "cluster" is forbidden: LogicalCluster cannot be'):
        guards.check_new_cluster()


@pytest.mark.parametrize(
    ("cluster", "user", "deletable", "refused"),
    [
        ("abc", ADMIN, False, True),
        ("abc", ADMIN, True, False),
        ("abc", SHARD_ADMIN, False, False),
        ("root", SHARD_ADMIN, True, True),
    ],
)
def test_logical_clusters_are_protected(cluster: str, user: User, deletable: bool, refused: bool) -> None:
    obj = {"spec": {"directlyDeletable": deletable}}
    if refused:
        with pytest.raises(ApiError, match="LogicalCluster cannot be deleted"):
            guards.check_cluster_deletion(cluster, user, obj)
    else:
        guards.check_cluster_deletion(cluster, user, obj)


@pytest.mark.parametrize(
    ("new", "old", "why"),
    [
        ({"status": {"phase": "Initializing"}}, {"status": {"phase": "Ready"}}, "cannot transition from"),
        ({"spec": {"initializers": ["a:bc"]}}, {"spec": {}}, "spec.initializers is immutable"),
        ({"spec": {"owner": {"name": "b"}}}, {"spec": {"owner": {"name": "a"}}}, "spec.owner is immutable"),
        (
            {"status": {"phase": "Initializing", "initializers": ["a:bc"]}},
            {"status": {"phase": "Initializing"}},
            "status.initializers must not grow",
        ),
        (
            {"status": {"phase": "Ready", "initializers": ["a:bc"]}},
            {"status": {"phase": "Initializing", "initializers": ["a:bc"]}},
            "status.initializers is not empty",
        ),
        (
            {"status": {"phase": "Ready", "initializers": ["a:bc"]}},
            {"status": {"phase": "Ready"}},
            "status.initializers is immutable after initilization",
        ),
    ],
)
def test_the_phase_of_a_logical_cluster_only_advances(new: Obj, old: Obj, why: str) -> None:
    with pytest.raises(ApiError, match=why):
        guards.check_cluster_change(ADMIN, new, old)
    guards.check_cluster_change(SHARD_ADMIN, new, old)


def test_an_initializer_may_be_done() -> None:
    old = {"status": {"phase": "Initializing", "initializers": ["a:bc"]}}
    guards.check_cluster_change(ADMIN, {"status": {"phase": "Initializing", "initializers": []}}, old)
