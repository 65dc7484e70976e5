"""Workspaces that wait for an initializer: what it sees, what it does there, and who else may not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from hub_harness import MERGE_PATCH, Answer
from memory_store import MemoryStore
from platform_harness import ALICE, BOB, MAPS, MASTER, OPERATOR, TENANCY, PlatformHub, platform_hub

from farflung.apis.edge.authors import author_of
from farflung.hub.catalog import objects
from farflung.hub.request.user import ADMINISTRATORS
from farflung.hub.tenancy.initializer_views import initializer_route, workspace_owner
from farflung.hub.tenancy.paths import logical_cluster_key
from farflung.machinery.errors import Obj
from farflung.store.base import ABSENT, Entry, Revision

CLUSTERS = "/apis/core.kcp.io/v1alpha1/logicalclusters"
NAMESPACES = "/api/v1/namespaces"
UNIVERSAL = {"name": "universal", "path": "root"}
ENTER = {"verbs": ["access"], "nonResourceURLs": ["/"]}
OWNER = "experimental.tenancy.kcp.io/owner"


def on_type(verb: str) -> Obj:
    return {
        "verbs": [verb],
        "apiGroups": ["tenancy.kcp.io"],
        "resources": ["workspacetypes"],
        "resourceNames": ["mine"],
    }


@dataclass
class Scene:
    """Alice's type `root:prov:mine` has an initializer.  Bob has made a workspace `new` of it in his own."""

    hub: PlatformHub
    home: str  #: where the type is
    team: str  #: Bob's workspace
    cluster: str  #: of the one that waits

    @property
    def initializer(self) -> str:
        return f"{self.home}:mine"

    def view(self, cluster: str, rest: str = "", initializer: str = "") -> str:
        return f"/services/initializingworkspaces/{initializer or self.initializer}/clusters/{cluster}{rest}"

    async def get(self, token: str, path: str) -> Answer:
        return await self.hub.of(token, "GET", path)

    async def listed(self, token: str = ALICE) -> list[str]:
        """The clusters that are in the view."""
        answer = await self.get(token, self.view("*", CLUSTERS))
        assert answer.status == 200, answer.body
        return [one["metadata"]["annotations"]["kcp.io/cluster"] for one in answer.json["items"]]

    async def patch(self, token: str, path: str, body: Obj) -> Answer:
        return await self.hub.of(token, "PATCH", path, body, content_type=MERGE_PATCH)

    async def finish(self, token: str = ALICE, left: Any = ()) -> Answer:
        path = self.view(self.cluster, f"{CLUSTERS}/cluster/status")
        return await self.patch(token, path, {"status": {"initializers": list(left)}})

    @property
    def key(self) -> str:
        """Of its LogicalCluster."""
        return logical_cluster_key(self.cluster)

    def logical_cluster(self) -> Obj:
        entry = self.hub.store.get(self.key)
        assert entry is not None
        return objects.decode(entry)

    def workspace(self) -> Obj:
        entry = self.hub.store.get(f"/tenancy.kcp.io/workspaces/{self.team}/new")
        assert entry is not None
        return objects.decode(entry)

    def phases(self) -> tuple[str, str]:
        return self.logical_cluster()["status"]["phase"], self.workspace()["status"]["phase"]


async def scene(by: str = BOB, store: MemoryStore | None = None, hub: PlatformHub | None = None, **spec: Any) -> Scene:
    hub = hub or await platform_hub(store)
    home, team = await hub.workspace("prov", "alice"), await hub.workspace("team", "bob")
    spec = {"initializer": True, "extend": {"with": [UNIVERSAL]}, **spec}
    await hub.made(ALICE, f"/clusters/{home}{TENANCY}/workspacetypes", {"metadata": {"name": "mine"}, "spec": spec})
    await hub.grant(home, "use", "bob", on_type("use"), ENTER)
    wanted = {"metadata": {"name": "new"}, "spec": {"type": {"name": "mine", "path": "root:prov"}}}
    made = await hub.made(by, f"/clusters/{team}{TENANCY}/workspaces", wanted)
    return Scene(hub, home, team, made["spec"]["cluster"])


@pytest.fixture
async def waiting() -> AsyncIterator[Scene]:
    yield await scene()


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


# --- what is seen ---------------------------------------------------------------------------------


async def test_a_workspace_waits_for_the_initializer_of_its_type_and_is_in_its_view(waiting: Scene) -> None:
    assert waiting.phases() == ("Initializing", "Initializing")
    assert waiting.workspace()["status"]["initializers"] == [waiting.initializer]
    assert waiting.logical_cluster()["spec"]["initializers"] == [
        "root:universal",
        waiting.initializer,
        "system:apibindings",
    ]
    await waiting.hub.workspace("other", parent=waiting.team)
    assert await waiting.listed() == [waiting.cluster]
    answer = await waiting.get(ALICE, waiting.view(waiting.cluster, f"{CLUSTERS}/cluster"))
    assert answer.json["status"]["initializers"] == [waiting.initializer]


async def test_a_view_has_nothing_but_logical_clusters_to_read_and_their_status(waiting: Scene) -> None:
    answer = await waiting.get(ALICE, waiting.view("*", "/apis"))
    assert [one["name"] for one in answer.json["groups"]] == ["core.kcp.io"]
    answer = await waiting.get(ALICE, waiting.view("*", "/apis/core.kcp.io/v1alpha1"))
    assert {one["name"]: one["verbs"] for one in answer.json["resources"]} == {
        "logicalclusters": ["get", "list", "watch"],
        "logicalclusters/status": ["get", "patch", "update"],
    }
    for rest in ("/api/v1/namespaces", "/api/v1/secrets", f"{TENANCY}/workspaces"):
        assert (await waiting.get(ALICE, waiting.view("*", rest))).status == 404


async def test_a_view_by_the_path_of_the_type_is_empty(waiting: Scene) -> None:
    answer = await waiting.get(ALICE, waiting.view("*", CLUSTERS, "root:prov:mine"))
    assert (answer.status, answer.json["items"]) == (200, [])
    path = waiting.view(waiting.cluster, f"{CLUSTERS}/cluster/status", "root:prov:mine")
    answer = await waiting.patch(ALICE, path, {"status": {"initializers": []}})
    assert (answer.status, answer.message) == (404, 'logicalclusters.core.kcp.io "cluster" not found')


async def test_a_label_alone_shows_nothing(waiting: Scene) -> None:
    labels = waiting.logical_cluster()["metadata"]["labels"]
    answer = await waiting.patch(BOB, f"/clusters/{waiting.team}{CLUSTERS}/cluster", {"metadata": {"labels": labels}})
    assert answer.status == 200
    assert await waiting.listed() == [waiting.cluster]


async def test_watchers_get_workspaces_that_enter_and_leave_the_view(waiting: Scene) -> None:
    hub, hub.token = waiting.hub, ALICE
    watch = await hub.watch(waiting.view("*", CLUSTERS))
    elsewhere = await hub.watch(waiting.view("*", CLUSTERS, f"{waiting.home}:other"))
    await watch.next(1)
    wanted = {"metadata": {"name": "second"}, "spec": {"type": {"name": "mine", "path": "root:prov"}}}
    second = await hub.made(BOB, f"/clusters/{waiting.team}{TENANCY}/workspaces", wanted)
    await watch.next(2)
    assert (await waiting.finish()).status == 200
    events = await watch.next(3)
    seen = [(one["type"], one["object"]["metadata"]["annotations"]["kcp.io/cluster"]) for one in events]
    assert seen == [("ADDED", waiting.cluster), ("ADDED", second["spec"]["cluster"]), ("DELETED", waiting.cluster)]
    assert elsewhere.events == []
    watch.leave()
    elsewhere.leave()


async def test_a_watch_from_the_past_tells_of_those_that_left_since(waiting: Scene) -> None:
    hub, hub.token = waiting.hub, ALICE
    version = (await hub.get(waiting.view("*", CLUSTERS))).version
    await waiting.finish()
    watch = await hub.watch(waiting.view("*", CLUSTERS), {"resourceVersion": str(version)})
    assert [event["type"] for event in await watch.next(1)] == ["DELETED"]
    watch.leave()


# --- what is done ---------------------------------------------------------------------------------


async def test_a_workspace_is_ready_once_its_initializer_has_taken_itself_off_the_list(waiting: Scene) -> None:
    async with waiting.hub.running_controllers():
        answer = await waiting.finish()
        assert (answer.status, answer.json["status"]["initializers"]) == (200, [])
        assert await waiting.listed() == []
        await until(lambda: waiting.phases() == ("Ready", "Ready"))
    workspace, logical_cluster = waiting.workspace(), waiting.logical_cluster()
    assert "initializers" not in workspace["status"]
    for one in (workspace, logical_cluster):
        assert one["metadata"]["labels"] == {"tenancy.kcp.io/phase": "Ready"}
        assert one["metadata"]["annotations"][OWNER] == '{"username":"bob"}'


async def test_of_several_initializers_each_sees_it_until_it_is_done_itself() -> None:
    one = await scene()
    hub, home = one.hub, one.home
    spec = {"initializer": True, "extend": {"with": [{"name": "mine", "path": "root:prov"}]}}
    await hub.made(ALICE, f"/clusters/{home}{TENANCY}/workspacetypes", {"metadata": {"name": "more"}, "spec": spec})
    everything = {"verbs": ["use"], "apiGroups": ["tenancy.kcp.io"], "resources": ["workspacetypes"]}
    await hub.grant(home, "use-all", "bob", everything)
    wanted = {"metadata": {"name": "both"}, "spec": {"type": {"name": "more", "path": "root:prov"}}}
    made = await hub.made(BOB, f"/clusters/{one.team}{TENANCY}/workspaces", wanted)
    both = Scene(hub, home, one.team, made["spec"]["cluster"])
    assert (await both.finish(left=[])).status == 422, "the other one is not ours to remove"
    assert (await both.finish(left=[f"{home}:more"])).status == 200
    assert both.logical_cluster()["status"]["phase"] == "Initializing"
    assert await both.listed() == [one.cluster]
    path = both.view(both.cluster, f"{CLUSTERS}/cluster/status", f"{home}:more")
    assert (await both.patch(ALICE, path, {"status": {"initializers": []}})).status == 200


@pytest.mark.parametrize("left", [["same"], ["root:universal"], ["same", "root:other"]])
async def test_nothing_else_can_be_written_through_a_view(waiting: Scene, left: list[str]) -> None:
    left = [waiting.initializer if one == "same" else one for one in left]
    with waiting.hub.writes_nothing():
        answer = await waiting.finish(left=left)
        assert answer.status in (403, 422), answer.body
        path = waiting.view(waiting.cluster, f"{CLUSTERS}/cluster")
        answer = await waiting.patch(ALICE, path, {"metadata": {"labels": {"a": "b"}}})
        assert (answer.status, answer.message) == (
            405,
            'patch is not supported on resources of kind "logicalclusters.core.kcp.io"',
        )
        assert (await waiting.hub.of(ALICE, "DELETE", path)).status == 405
        assert (await waiting.hub.of(ALICE, "DELETE", waiting.view("*", CLUSTERS))).status in (404, 405)


async def test_a_status_says_nothing_but_that_it_is_done(waiting: Scene) -> None:
    path = waiting.view(waiting.cluster, f"{CLUSTERS}/cluster/status")
    body = {"metadata": {"annotations": {OWNER: '{"username":"alice"}'}}, "status": {"initializers": []}}
    assert (await waiting.patch(ALICE, path, body)).status == 200
    assert '"bob"' in waiting.logical_cluster()["metadata"]["annotations"][OWNER]
    answer = await waiting.patch(ALICE, path, {"status": {"phase": "Ready", "initializers": []}})
    assert answer.status == 404, "it has left the view"


async def test_an_initializer_works_in_a_workspace_as_its_owner_would(waiting: Scene) -> None:
    maps = waiting.view(waiting.cluster, MAPS)
    assert (await waiting.get(ALICE, f"/clusters/{waiting.cluster}{MAPS}")).status == 403
    assert (await waiting.get(ALICE, waiting.view(waiting.cluster, NAMESPACES))).names == ["default"]
    made = await waiting.hub.made(ALICE, maps, {"metadata": {"name": "policy"}, "data": {"a": "b"}})
    assert made["metadata"]["annotations"]["kcp.io/cluster"] == waiting.cluster
    roles = waiting.view(waiting.cluster, "/apis/rbac.authorization.k8s.io/v1/clusterroles")
    rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    assert (await waiting.hub.of(ALICE, "POST", roles, {"metadata": {"name": "all"}, "rules": rules})).status == 201
    groups = await waiting.get(ALICE, waiting.view(waiting.cluster, "/apis"))
    assert "tenancy.kcp.io" in [one["name"] for one in groups.json["groups"]]
    waiting.hub.token = ALICE
    watch = await waiting.hub.watch(maps)
    assert ("ADDED", "policy") in [(one["type"], one["object"]["metadata"]["name"]) for one in await watch.next(1)]
    watch.leave()


async def test_it_is_out_as_soon_as_it_is_done(waiting: Scene) -> None:
    await waiting.finish()
    for rest in (MAPS, "/apis", "/version"):
        answer = await waiting.get(ALICE, waiting.view(waiting.cluster, rest))
        assert (answer.status, answer.message) == (
            403,
            f'initializer "{waiting.initializer}" cannot access this workspace',
        )
    assert (await waiting.get(ALICE, waiting.view(waiting.cluster, f"{CLUSTERS}/cluster"))).status == 404


async def test_an_account_in_the_workspace_of_the_type_can_be_its_initializer(waiting: Scene) -> None:
    robot = await waiting.hub.robot(waiting.home)
    assert await waiting.listed(robot) == [waiting.cluster]
    await waiting.hub.made(robot, waiting.view(waiting.cluster, MAPS), {"metadata": {"name": "by-robot"}})
    assert (await waiting.finish(robot)).status == 200


async def test_the_owner_may_enter_and_end_a_workspace_that_waits(waiting: Scene) -> None:
    assert (await waiting.get(BOB, f"/clusters/{waiting.cluster}{MAPS}")).status == 200
    answer = await waiting.hub.of(BOB, "DELETE", f"/clusters/{waiting.team}{TENANCY}/workspaces/new")
    assert answer.status == 200
    async with waiting.hub.running_controllers():
        await until(lambda: not waiting.hub.stored(waiting.cluster))
    assert await waiting.listed() == []


# --- who may not ----------------------------------------------------------------------------------


def everything_in(one: Scene) -> list[tuple[str, str, Obj | None]]:
    status: Obj = {"status": {"initializers": []}}
    return [
        ("GET", one.view("*", "/apis"), None),
        ("GET", one.view("*", CLUSTERS), None),
        ("GET", one.view(one.cluster, f"{CLUSTERS}/cluster"), None),
        ("PATCH", one.view(one.cluster, f"{CLUSTERS}/cluster/status"), status),
        ("GET", one.view(one.cluster, NAMESPACES), None),
        ("GET", one.view(one.cluster, "/apis"), None),
        ("POST", one.view(one.cluster, MAPS), {"metadata": {"name": "x"}}),
        ("GET", one.view("nosuch", NAMESPACES), None),
    ]


@pytest.mark.parametrize("token", [BOB, None])
async def test_a_user_who_may_not_initialize_the_type_has_no_access_to_its_view(
    waiting: Scene, token: str | None
) -> None:
    """Bob may use the type, and is the owner of what waits."""
    with waiting.hub.writes_nothing():
        for method, path, body in everything_in(waiting):
            answer = await waiting.hub.of(token, method, path, body, content_type=MERGE_PATCH)
            assert answer.status == 403, (method, path, answer.body)


async def test_the_right_to_initialize_is_enough_and_is_for_that_type(waiting: Scene) -> None:
    await waiting.hub.grant(waiting.home, "initialize", "bob", on_type("initialize"))
    assert await waiting.listed(BOB) == [waiting.cluster]
    answer = await waiting.get(BOB, waiting.view("*", CLUSTERS, f"{waiting.home}:other"))
    assert answer.status == 403
    assert (await waiting.finish(BOB)).status == 200


async def test_an_own_type_gives_no_access_to_other_workspaces(waiting: Scene) -> None:
    """Bob may initialize whatever is in his own workspace; Alice's workspaces do not wait for that."""
    spec = {"metadata": {"name": "mine"}, "spec": {"initializer": True}}
    await waiting.hub.made(BOB, f"/clusters/{waiting.team}{TENANCY}/workspacetypes", spec)
    own = f"{waiting.team}:mine"
    assert (await waiting.get(BOB, waiting.view("*", CLUSTERS, own))).json["items"] == []
    for cluster in (waiting.home, waiting.cluster, "root", "nosuch", "system"):
        for rest in (NAMESPACES, MAPS, "/apis", "/"):
            assert (await waiting.get(BOB, waiting.view(cluster, rest, own))).status == 403
        assert (await waiting.get(BOB, waiting.view(cluster, f"{CLUSTERS}/cluster", own))).status == 404


@pytest.mark.parametrize("change", [{"initializers": []}, {"phase": "Ready", "initializers": []}])
async def test_an_owner_cannot_end_the_waiting(waiting: Scene, change: Obj) -> None:
    with waiting.hub.writes_nothing():
        path = f"/clusters/{waiting.cluster}{CLUSTERS}/cluster/status"
        answer = await waiting.patch(BOB, path, {"status": change})
        assert answer.status == 403
    assert (await waiting.patch(OPERATOR, path, {"status": {"initializers": []}})).status == 200


async def test_an_owner_cannot_lend_the_rights_of_others(waiting: Scene) -> None:
    """Bob knows the initializer: together they would be anybody."""
    path = f"/clusters/{waiting.cluster}{CLUSTERS}/cluster"
    forged = '{"username":"kcp-admin","groups":["system:kcp:admin"]}'
    for value in (forged, None):
        with waiting.hub.writes_nothing():
            answer = await waiting.patch(BOB, path, {"metadata": {"annotations": {OWNER: value}}})
            assert answer.status == 403


async def test_an_administrator_lends_no_rights_that_reach_beyond_the_workspace() -> None:
    one = await scene(MASTER)
    assert ADMINISTRATORS in one.logical_cluster()["metadata"]["annotations"][OWNER]
    assert (await one.get(ALICE, one.view(one.cluster, NAMESPACES))).status == 200
    children = one.view(one.cluster, f"{TENANCY}/workspaces")
    stolen = {"metadata": {"name": "child"}, "spec": {"type": UNIVERSAL, "cluster": one.team}}
    answer = await one.hub.of(ALICE, "POST", children, stolen)
    assert (answer.status, "privileged" in answer.message) == (403, True)


async def test_an_operator_lends_no_rights_that_reach_beyond_the_workspace() -> None:
    one = await scene(OPERATOR)
    assert (await one.get(ALICE, one.view(one.cluster, NAMESPACES))).status == 200
    assert (await one.get(ALICE, one.view(one.cluster, "/metrics"))).status == 403


async def test_impersonation_in_a_waiting_workspace_makes_no_user_an_initializer(waiting: Scene) -> None:
    answer = await waiting.hub.of(BOB, "GET", waiting.view(waiting.cluster, MAPS), impersonate_user="alice")
    assert answer.status == 403


@pytest.mark.parametrize(
    "rest",
    [
        f"{CLUSTERS}/cluster",
        CLUSTERS.replace("logical", "%6Cogical") + "/cluster",
        CLUSTERS.replace("/core", "%2Fcore") + "/cluster",
        CLUSTERS.replace("v1alpha1/", "v1alpha1/watch/") + "/cluster",
        f"{CLUSTERS}/cluster/",
    ],
)
async def test_no_way_of_writing_a_path_makes_a_logical_cluster_part_of_the_content(waiting: Scene, rest: str) -> None:
    """Where an owner may do more with it than an initializer."""
    with waiting.hub.writes_nothing():
        answer = await waiting.patch(ALICE, waiting.view(waiting.cluster, rest), {"metadata": {"labels": {"a": "b"}}})
        assert answer.status in (404, 405), answer.body
        answer = await waiting.hub.of(ALICE, "DELETE", waiting.view(waiting.cluster, rest))
        assert answer.status in (404, 405), answer.body


@pytest.mark.parametrize(
    "path",
    [
        "{0}",
        "{0}/",
        "{0}/clusters",
        "{0}/clusters/",
        "{0}/clusters//api/v1/namespaces",
        "{0}/clusters/root:team:new/api/v1/namespaces",
        "{0}/clusters/**/apis",
        "{0}/clusters/..%2F{1}/api/v1/namespaces",
        "{0}/clusters/{1}%2Fx/api/v1/namespaces",
        "{0}//clusters/{1}/api/v1/namespaces",
        "{0}%2Fclusters%2F{1}/api/v1/namespaces",
        "mine/clusters/{1}/api/v1/namespaces",
        ":mine/clusters/{1}/api/v1/namespaces",
        "{0}:/clusters/{1}/api/v1/namespaces",
        "../apiexport/root/tenancy.kcp.io/clusters/{1}/api/v1/namespaces",
        "{0}/CLUSTERS/{1}/api/v1/namespaces",
        "",
    ],
)
async def test_what_can_be_no_view_is_refused(waiting: Scene, path: str) -> None:
    path = f"/services/initializingworkspaces/{path.format(waiting.initializer, waiting.cluster)}"
    for token in (ALICE, OPERATOR):
        answer = await waiting.get(token, path)
        assert (answer.status, "not resolved" in answer.message) == (403, True)


async def test_a_path_within_a_view_leads_into_no_other_cluster(waiting: Scene) -> None:
    for rest in (f"/clusters/{waiting.team}{MAPS}", f"/../{waiting.team}{MAPS}", f"/services/x/clusters/root{MAPS}"):
        assert (await waiting.get(ALICE, waiting.view(waiting.cluster, rest))).status == 404


def test_a_view_of_an_initializer_is_never_taken_for_one_of_an_export() -> None:
    route = initializer_route("/services/initializingworkspaces/a1:mine/clusters/b2/api")
    assert route is not None
    assert "/" not in route.view
    assert ":" in route.view


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "{}", '{"username":1}', '{"username":"a","groups":1}'])
def test_what_tells_of_no_owner_lends_nothing(text: str) -> None:
    assert workspace_owner(text) is None


# --- when the hub stops ---------------------------------------------------------------------------


class Recorded(MemoryStore):
    """Remembers what was written, in its order; None is what was deleted."""

    def __init__(self) -> None:
        super().__init__(stamp=objects.stamp)
        self.written: list[tuple[str, bytes | None]] = []

    async def put(self, key: str, value: bytes, *, expect: Revision) -> Entry:
        entry = await super().put(key, value, expect=expect)
        self.written.append((key, value))
        return entry

    async def delete(self, key: str, *, expect: Revision) -> Revision:
        revision = await super().delete(key, expect=expect)
        self.written.append((key, None))
        return revision


async def restarted(one: Scene, written: list[tuple[str, bytes | None]]) -> Scene:
    """On a disk that has so much of what was written."""
    store = MemoryStore(stamp=objects.stamp)
    for key, value in written:
        entry = store.get(key)
        if value is not None:
            await store.put(key, value, expect=ABSENT if entry is None else entry.revision)
        elif entry is not None:
            await store.delete(key, expect=entry.revision)
    return Scene(await platform_hub(store), one.home, one.team, one.cluster)


async def test_a_hub_that_stops_at_any_point_reaches_the_same_state() -> None:
    store = Recorded()
    one = await scene(store=store)
    async with one.hub.running_controllers():
        assert (await one.finish()).status == 200
        await until(lambda: one.phases() == ("Ready", "Ready"))
    whole = store.written
    first = next(number for number, (key, _) in enumerate(whole) if f"/{one.cluster}/" in key)
    made = next(number for number, (key, _) in enumerate(whole) if key.endswith(f"/workspaces/{one.team}/new"))
    done = next(number for number, (key, _) in enumerate(whole) if key == one.key and number > made)
    for length in range(first + 1, len(whole) + 1):
        again = await restarted(one, whole[:length])
        async with again.hub.running_controllers():
            if length <= made:
                await until(lambda again=again: not again.hub.stored(one.cluster))
            elif length <= done:
                assert again.phases() == ("Initializing", "Initializing")
                assert await again.listed() == [one.cluster]
                assert (await again.finish()).status == 200
            if length > made:
                await until(lambda again=again: again.phases() == ("Ready", "Ready"))
                assert shape(again) == shape(one)
        assert await again.listed() == []


def shape(one: Scene) -> list[Obj]:
    """The Workspace and its LogicalCluster, but for when they were written."""
    parts = []
    for obj in (one.workspace(), one.logical_cluster()):
        kept = {name: obj["metadata"][name] for name in ("name", "uid", "labels", "annotations", "finalizers")}
        parts.append({**obj, "metadata": kept})
    return parts


# --- placements -----------------------------------------------------------------------------------


async def test_what_an_initializer_places_is_not_placed_with_the_rights_of_the_owner() -> None:
    """Bob may place on the Locations of an inventory; Alice's initializer writes as Bob, but in his workspace only."""
    hub = PlatformHub()
    await hub.platform.bootstrap.start(bare=False)
    async with hub.running_controllers():
        pass
    waiting = await scene(hub=hub)
    bind = {"verbs": ["bind"], "apiGroups": ["apis.kcp.io"], "resources": ["apiexports"]}
    await hub.grant("root:espw", "bind", "bob", bind, ENTER)
    inventory = await hub.workspace("inventory", "bob")
    group = {"apiVersion": "edge.kcp.io/v1alpha1"}
    reference = {"reference": {"export": {"path": "root:espw", "name": "edge.kcp.io"}}}
    view = waiting.view(waiting.cluster, "")
    bindings = f"{view}/apis/apis.kcp.io/v1alpha1/apibindings"
    made = await hub.of(ALICE, "POST", bindings, {"metadata": {"name": "edge"}, "spec": reference})
    assert made.status == 201, made.body
    placement = {**group, "kind": "EdgePlacement", "metadata": {"name": "p"}, "spec": {"locationSelectors": [{}]}}
    placed = await hub.of(ALICE, "POST", f"{view}/apis/edge.kcp.io/v1alpha1/edgeplacements", placement)
    assert placed.status == 201, placed.body
    author = author_of(placed.json["metadata"]["annotations"])
    assert author is not None and (author.user, author.cluster) == ("bob", waiting.cluster)
    entry = {"cluster": inventory, "locationName": "l", "syncTargetName": "t", "syncTargetUID": "u"}
    slice = {**group, "kind": "SinglePlacementSlice", "metadata": {"name": "p"}, "destinations": [entry]}
    refused = await hub.of(ALICE, "POST", f"{view}/apis/edge.kcp.io/v1alpha1/singleplacementslices", slice)
    assert refused.status == 403 and "permission to place every Location there" in refused.message
    mine = f"/clusters/{waiting.team}/apis"
    await hub.made(BOB, f"{mine}/apis.kcp.io/v1alpha1/apibindings", {"metadata": {"name": "edge"}, "spec": reference})
    await hub.made(BOB, f"{mine}/edge.kcp.io/v1alpha1/singleplacementslices", slice)
