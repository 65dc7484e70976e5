"""Which workspace a path is about, and what is no path at all."""

from __future__ import annotations

import pytest
from memory_store import MemoryStore

from farflung.hub.catalog import objects
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.target import RequestRoute
from farflung.hub.request.user import ADMINISTRATORS, User
from farflung.hub.tenancy.paths import LogicalClusters, logical_cluster_key, workspace_key
from farflung.hub.tenancy.routes import RESOLVED, WorkspaceRoutes
from farflung.hub.tenancy.workspace_authorizer import WorkspaceAuthorizer
from farflung.machinery.errors import ApiError, Obj
from farflung.store.base import ABSENT

MASTER = User("shard-admin", (ADMINISTRATORS,))
ANN = User("ann", ("system:authenticated",))
CHILD = "2rp1gztc6m5b8b7r"


async def put(store: MemoryStore, key: str, obj: Obj) -> None:
    metadata = {"name": key.rpartition("/")[2], "resourceVersion": "", "creationTimestamp": "2024-05-01T12:00:00Z"}
    value = objects.orjson.dumps({"kind": "X", "apiVersion": "v1", "metadata": metadata, **obj})
    entry = store.get(key)
    await store.put(key, value, expect=ABSENT if entry is None else entry.revision)


async def delete(store: MemoryStore, key: str) -> None:
    entry = store.get(key)
    assert entry is not None
    await store.delete(key, expect=entry.revision)


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore(stamp=objects.stamp)
    await put(store, logical_cluster_key("root"), {})
    await put(store, logical_cluster_key(CHILD), {"spec": {"owner": {"cluster": "root", "name": "org"}}})
    await put(store, workspace_key("root", "org"), {"spec": {"cluster": CHILD}})
    return store


@pytest.fixture
def routes(store: MemoryStore) -> WorkspaceRoutes:
    return WorkspaceRoutes(LogicalClusters(store), WorkspaceAuthorizer(store))


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/clusters/root/api/v1/pods", RequestRoute("root", "/api/v1/pods")),
        ("/clusters/root:org/api", RequestRoute(CHILD, "/api")),
        ("/clusters/root%3Aorg", RequestRoute(CHILD, "/")),
        (f"/clusters/{CHILD}/apis", RequestRoute(CHILD, "/apis")),
        ("/clusters/%2A/api/v1/namespaces", RequestRoute("*", "/api/v1/namespaces")),
        ("/clusters/root:nosuch/api", RequestRoute("", "/api")),
        ("/clusters/", RequestRoute("", "/")),
        ("/clusters//api", RequestRoute("", "/api")),
        (
            "/services/apiexport/root/x.io/clusters/%2A/apis/x.io/v1/ws",
            RequestRoute("*", "/apis/x.io/v1/ws", "root/x.io"),
        ),
        (f"/services/apiexport/root/x.io/clusters/{CHILD}", RequestRoute(CHILD, "/", "root/x.io")),
        ("/version", RequestRoute("root", "/version")),
    ],
)
def test_a_path_names_a_cluster_and_what_is_asked_of_it(
    routes: WorkspaceRoutes, path: str, route: RequestRoute
) -> None:
    assert routes.route(path, MASTER) == route


@pytest.mark.parametrize(
    "path",
    [
        "/clusters/Root/api",
        "/clusters/../api",
        "/clusters/root%2Forg/api",
        "/clusters/%2A%2A/api",
        "/clusters/root:/api",
        "/clusters/:root/api",
        "/clusters/ro ot/api",
        "/clusters/" + "a" * 64 + "/api",
    ],
)
def test_what_can_be_no_cluster_is_refused(routes: WorkspaceRoutes, path: str) -> None:
    with pytest.raises(ApiError) as refused:
        routes.route(path, MASTER)
    assert refused.value.code == 400


@pytest.mark.parametrize(
    "path",
    [
        "/services",
        "/services/workspaces/x",
        "/services/apiexport/root/x.io",
        "/services/apiexport/root:org/x.io/clusters/root/api",
        "/services/apiexport/root/x.io/clusters/root:org/api",
        "/services/apiexport/root/x%2Fy/clusters/root/api",
        "/services/apiexport/../x/clusters/root/api",
        "/services/apiexport/root/x.io/clusters/%2A%2A/api",
    ],
)
def test_what_can_be_no_view_is_refused(routes: WorkspaceRoutes, path: str) -> None:
    with pytest.raises(ApiError) as refused:
        routes.route(path, ANN)
    assert refused.value.code == 403
    assert refused.value.message.endswith("Path not resolved to a valid virtual workspace")


@pytest.mark.parametrize("cluster", [CHILD, "", "nosuch"])
def test_a_workspace_that_is_not_there_is_refused_like_one_that_is_closed(
    routes: WorkspaceRoutes, cluster: str
) -> None:
    asked = Attributes("list", "", "configmaps")
    with pytest.raises(ApiError) as refused:
        routes.check(cluster, "", ANN, asked)
    assert (refused.value.code, refused.value.message) == (
        403,
        'configmaps is forbidden: User "ann" cannot list resource "configmaps" in API group "" at the cluster scope: '
        "access denied",
    )


def test_the_wildcard_is_for_lists_and_watches_of_administrators(routes: WorkspaceRoutes) -> None:
    routes.check("*", "", MASTER, Attributes("list", "", "configmaps"))
    with pytest.raises(ApiError) as refused:
        routes.check("*", "", MASTER, Attributes("delete", "", "configmaps", "", "", "a"))
    assert refused.value.code == 405
    with pytest.raises(ApiError) as refused:
        routes.check("*", "", ANN, Attributes("list", "", "configmaps"))
    assert refused.value.code == 403


def test_health_is_for_everybody_everywhere(routes: WorkspaceRoutes) -> None:
    route = routes.route("/clusters/root:nosuch/healthz", ANN)
    routes.check(route.cluster, route.view, ANN, Attributes("get", path=route.path))


async def test_a_path_leads_to_the_new_cluster_of_a_workspace_that_was_deleted_and_created_again(
    store: MemoryStore, routes: WorkspaceRoutes
) -> None:
    def cluster(path: str) -> str:
        first = routes.route(f"/clusters/{path}/api", MASTER).cluster
        assert routes.route(f"/clusters/{path}/api", MASTER).cluster == first
        return first

    await put(store, workspace_key(CHILD, "team"), {"spec": {"cluster": "team1"}})
    assert cluster("root:org:team") == ""
    await put(store, logical_cluster_key("team1"), {"spec": {"owner": {"cluster": CHILD, "name": "team"}}})
    assert [cluster(path) for path in ("root:org", "root:org:team", "team1")] == [CHILD, "team1", "team1"]
    await delete(store, logical_cluster_key("team1"))
    assert [cluster(path) for path in ("root:org", "root:org:team", "team1")] == [CHILD, "", ""]
    await put(store, logical_cluster_key("team1"), {"spec": {"owner": {"cluster": CHILD, "name": "team"}}})
    assert cluster("root:org:team") == "team1"
    await delete(store, workspace_key("root", "org"))
    assert [cluster(path) for path in ("root:org", "root:org:team", "team1")] == ["", "", "team1"]
    await put(store, logical_cluster_key("org2"), {"spec": {"owner": {"cluster": "root", "name": "org"}}})
    await put(store, workspace_key("root", "org"), {"spec": {"cluster": "org2"}})
    assert [cluster(path) for path in ("root:org", "root:org:team", CHILD)] == ["org2", "", CHILD]


def test_names_of_clusters_that_do_not_exist_are_not_remembered(routes: WorkspaceRoutes) -> None:
    for number in range(2 * RESOLVED):
        routes.route(f"/clusters/root:no{number}/api", ANN)
        routes.route(f"/clusters/system:{number}/api", ANN)
    routes.route("/clusters/root:org/api", ANN)
    assert routes._resolved == {"root:org": CHILD}
