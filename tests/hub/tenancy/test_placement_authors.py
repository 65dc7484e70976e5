"""The hub records who wrote the spec of a placement; no client can write an author, or add destinations to slices."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hub_harness import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Answer
from platform_harness import ALICE, BOB, MASTER, OPERATOR, RBAC, PlatformHub, binding

from farflung.apis.edge.authors import Author, author_of
from farflung.apis.edge.names import AUTHOR, PROJECTED, RECORDS_AUTHORS
from farflung.hub.tenancy.direct_writes import encode_stored
from farflung.machinery.errors import Obj

GROUP = "/apis/edge.kcp.io/v1alpha1"
PLACEMENTS, SLICES = f"{GROUP}/edgeplacements", f"{GROUP}/singleplacementslices"
PODS = "/api/v1/namespaces/default/pods"
PLACEMENT: Obj = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement"}
SLICE: Obj = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "SinglePlacementSlice"}
FORGED = {AUTHOR: Author("shard-admin", ("system:masters",)).annotation}
CHANGED: Obj = {"locationSelectors": [{"matchLabels": {"env": "prod"}}]}


class Workspace:
    def __init__(self, hub: PlatformHub, cluster: str) -> None:
        self.hub = hub
        self.cluster = cluster

    async def of(self, user: str, method: str, path: str, body: Any = None, **rest: Any) -> Answer:
        return await self.hub.of(user, method, f"/clusters/{self.cluster}{path}", body, **rest)

    async def author(self, name: str = "shop") -> Author | None:
        found = (await self.of(MASTER, "GET", f"{PLACEMENTS}/{name}")).json
        return author_of(found["metadata"].get("annotations") or {})

    async def place(self, user: str, name: str = "shop", **metadata: Any) -> Obj:
        body = {**PLACEMENT, "metadata": {"name": name, **metadata}, "spec": {"locationSelectors": [{}]}}
        return await self.hub.made(user, f"/clusters/{self.cluster}{PLACEMENTS}", body)


@pytest.fixture
async def workspace() -> AsyncIterator[Workspace]:
    hub = PlatformHub()
    await hub.platform.bootstrap.start(bare=False)
    async with hub.running_controllers():
        pass  # the default roles
    cluster = await hub.workspace("shops", ALICE)
    await hub.made(OPERATOR, f"/clusters/{cluster}{RBAC}/clusterrolebindings", binding("bob", BOB, "cluster-admin"))
    for path, export in (("root:compute", "kubernetes"), ("root:espw", "edge.kcp.io")):
        await hub.bind(cluster, export, path, export)
    yield Workspace(hub, cluster)


async def test_the_author_is_the_user_who_created_the_placement(workspace: Workspace) -> None:
    await workspace.place(ALICE)
    assert await workspace.author() == Author("alice", ("system:authenticated",))


async def test_an_author_that_a_client_sends_is_dropped(workspace: Workspace) -> None:
    await workspace.place(ALICE, annotations=FORGED)
    assert await workspace.author() == Author("alice", ("system:authenticated",))


async def test_only_a_change_of_the_spec_changes_the_author(workspace: Workspace) -> None:
    await workspace.place(ALICE)
    path = f"{PLACEMENTS}/shop"
    labels = {"metadata": {"labels": {"a": "b"}, "finalizers": ["example.org/x"]}}
    assert (await workspace.of(MASTER, "PATCH", path, labels, content_type=MERGE_PATCH)).status == 200
    present = (await workspace.of(MASTER, "GET", path)).json
    status = {**present, "status": {"matchingLocationCount": 3}, "spec": CHANGED}
    assert (await workspace.of(MASTER, "PUT", f"{path}/status", status)).status == 200
    assert await workspace.author() == Author("alice", ("system:authenticated",))
    assert (await workspace.of(BOB, "PATCH", path, {"spec": CHANGED}, content_type=MERGE_PATCH)).status == 200
    assert await workspace.author() == Author("bob", ("system:authenticated",))


async def test_no_write_changes_the_author_to_what_it_says(workspace: Workspace) -> None:
    await workspace.place(ALICE)
    path, force = f"{PLACEMENTS}/shop", {"fieldManager": "bob", "force": "true"}
    for sent in (FORGED, {AUTHOR: None}, None):
        metadata = {"annotations": sent}
        present = (await workspace.of(BOB, "GET", path)).json
        whole = {**present, "metadata": {**present["metadata"], "annotations": FORGED if sent else {}}}
        applied = {**PLACEMENT, "metadata": {"name": "shop", "annotations": FORGED if sent else {}}}
        replaced = [{"op": "add", "path": "/metadata/annotations", "value": whole["metadata"]["annotations"]}]
        answers = [
            await workspace.of(BOB, "PATCH", path, {"metadata": metadata}, content_type=MERGE_PATCH),
            await workspace.of(BOB, "PATCH", f"{path}/status", {"metadata": metadata}, content_type=MERGE_PATCH),
            await workspace.of(BOB, "PATCH", path, replaced, content_type=JSON_PATCH),
            await workspace.of(BOB, "PATCH", path, json.dumps(applied), content_type=APPLY_PATCH, query=force),
            await workspace.of(BOB, "PUT", path, {**whole, "metadata": {**whole["metadata"], "resourceVersion": ""}}),
            await workspace.of(BOB, "PUT", f"{path}/status", whole),
        ]
        assert {answer.status for answer in answers} <= {200, 409, 422}, [answer.body for answer in answers]
        assert await workspace.author() == Author("alice", ("system:authenticated",))


async def test_a_write_through_the_view_of_the_export_records_its_user(workspace: Workspace) -> None:
    await workspace.place(ALICE)
    home = await workspace.hub.of(
        MASTER, "GET", "/clusters/root:espw/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
    )
    espw = home.json["metadata"]["annotations"]["kcp.io/cluster"]
    path = f"/services/apiexport/{espw}/edge.kcp.io/clusters/{workspace.cluster}{PLACEMENTS}"
    forged = {"metadata": {"annotations": FORGED}}
    answer = await workspace.hub.of(OPERATOR, "PATCH", f"{path}/shop", forged, content_type=MERGE_PATCH)
    assert answer.status == 200, answer.body
    assert await workspace.author() == Author("alice", ("system:authenticated",))
    body = {**PLACEMENT, "metadata": {"name": "viewed", "annotations": FORGED}, "spec": {"locationSelectors": [{}]}}
    await workspace.hub.made(OPERATOR, path, body)
    found = await workspace.author("viewed")
    assert found is not None and found.user == "kcp-admin"


async def test_the_author_of_a_service_account_has_permissions_in_its_own_workspace_only(workspace: Workspace) -> None:
    robot = await workspace.hub.robot(workspace.cluster)
    await workspace.place(robot)
    found = await workspace.author()
    assert found is not None and found.user == "system:serviceaccount:default:robot"
    assert found.cluster == workspace.cluster


async def test_an_impersonated_user_is_the_author_and_is_limited_to_the_workspace(workspace: Workspace) -> None:
    body = {**PLACEMENT, "metadata": {"name": "shop"}, "spec": {"locationSelectors": [{}]}}
    headers = {"impersonate_user": "bob", "impersonate_group": "system:masters"}
    answer = await workspace.of(ALICE, "POST", PLACEMENTS, body, **headers)
    assert answer.status == 201, answer.body
    found = await workspace.author()
    assert found is not None and (found.user, found.cluster) == ("bob", workspace.cluster)


async def test_a_review_limits_a_user_to_the_cluster_in_extra(workspace: Workspace) -> None:
    async def allowed(author: Author, at: str) -> bool:
        about = {"verb": "place", "group": "scheduling.kcp.io", "resource": "locations", "name": "x"}
        spec = {**author.review_spec(at), "resourceAttributes": about}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = f"/clusters/{at}/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool((await workspace.hub.made(OPERATOR, path, review))["status"]["allowed"])

    groups = ("system:masters", "system:authenticated")
    assert await allowed(Author("x", groups), workspace.cluster)
    assert not await allowed(Author("x", groups, "elsewhere"), workspace.cluster)
    assert not await allowed(Author("alice", groups[1:], "elsewhere"), workspace.cluster)
    assert await allowed(Author("alice", groups[1:], workspace.cluster), workspace.cluster)


async def test_the_author_of_a_machine_is_not_its_scheduler(workspace: Workspace) -> None:
    spec = {"virtualMachine": {"image": "debian", "flavors": [{"flavorID": "small"}]}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vm", "annotations": FORGED}, "spec": spec}
    made = await workspace.of(ALICE, "POST", PODS, pod)
    assert made.status == 201, made.body
    bound = {"spec": {"clusterName": "c", "nodeName": "n"}}
    assert (await workspace.of(MASTER, "PATCH", f"{PODS}/vm", bound, content_type=MERGE_PATCH)).status == 200
    found = (await workspace.of(MASTER, "GET", f"{PODS}/vm")).json["metadata"]
    author = author_of(found["annotations"])
    assert author is not None and author.user == "alice"
    copy = {**pod, "metadata": {"name": "copy", "labels": {PROJECTED: "yes"}}}
    made = await workspace.of(MASTER, "POST", PODS, copy)
    assert made.status == 201 and author_of(made.json["metadata"].get("annotations") or {}) is None


async def test_a_tenant_adds_no_destinations_to_slices(workspace: Workspace) -> None:
    inventory = await workspace.hub.workspace("inventory", BOB)
    uid = (await workspace.place(ALICE))["metadata"]["uid"]
    owner = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "name": "shop", "uid": uid}
    entry = {"cluster": inventory, "locationName": "prod", "syncTargetName": "prod", "syncTargetUID": "1"}
    body = {**SLICE, "metadata": {"name": "shop", "ownerReferences": [owner]}, "destinations": [entry]}
    refused = await workspace.of(ALICE, "POST", SLICES, body)
    assert refused.status == 403 and "permission to place every Location there" in refused.message
    await workspace.hub.made(OPERATOR, f"/clusters/{workspace.cluster}{SLICES}", body)
    more = {"destinations": [entry, {**entry, "syncTargetUID": "2"}]}
    other = {"metadata": {"ownerReferences": [{**owner, "name": "other", "uid": "3"}]}}
    for change in (more, other):
        answer = await workspace.of(ALICE, "PATCH", f"{SLICES}/shop", change, content_type=MERGE_PATCH)
        assert answer.status == 403, answer.body
    fewer = await workspace.of(ALICE, "PATCH", f"{SLICES}/shop", {"destinations": []}, content_type=MERGE_PATCH)
    assert fewer.status == 200
    assert (await workspace.of(BOB, "PATCH", f"{SLICES}/shop", more, content_type=MERGE_PATCH)).status == 200


async def test_the_hub_tells_that_it_records_authors(workspace: Workspace) -> None:
    assert (await workspace.of(ALICE, "GET", "/version")).json[RECORDS_AUTHORS] is True


async def test_a_placement_without_an_author_gets_the_user_that_annotates_it(workspace: Workspace) -> None:
    await workspace.place(MASTER)
    [key] = [key for key in workspace.hub.stored(workspace.cluster) if "/edgeplacements" in key]
    entry = workspace.hub.store.get(key)
    assert entry is not None
    obj = json.loads(entry.value)
    del obj["metadata"]["annotations"][AUTHOR]
    await workspace.hub.store.put(key, encode_stored(obj), expect=entry.revision)
    path, forged = f"{PLACEMENTS}/shop", {"metadata": {"annotations": FORGED}}
    for sent, where in (({"metadata": {"labels": {"a": "b"}}}, path), (forged, f"{path}/status")):
        assert (await workspace.of(ALICE, "PATCH", where, sent, content_type=MERGE_PATCH)).status == 200
        assert await workspace.author() is None
    answer = await workspace.of(BOB, "PATCH", path, forged, content_type=MERGE_PATCH, query={"dryRun": "All"})
    assert author_of(answer.json["metadata"]["annotations"]) == Author("bob", ("system:authenticated",))
    assert await workspace.author() is None
    assert (await workspace.of(BOB, "PATCH", path, forged, content_type=MERGE_PATCH)).status == 200
    assert await workspace.author() == Author("bob", ("system:authenticated",))
    assert (await workspace.of(ALICE, "PATCH", path, forged, content_type=MERGE_PATCH)).status == 200
    assert await workspace.author() == Author("bob", ("system:authenticated",))


async def test_a_binding_writes_neither_the_author_nor_the_logical_cluster_of_a_pod(workspace: Workspace) -> None:
    spec = {"virtualMachine": {"image": "debian", "flavors": [{"flavorID": "small"}]}}
    for name, target in (("vm", {"kind": "Cluster", "name": "c"}), ("other", {"kind": "Node", "name": "n"})):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        assert (await workspace.of(ALICE, "POST", PODS, pod)).status == 201
        noted = {**FORGED, "kcp.io/cluster": "another", "example.org/note": "yes"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "annotations": noted}}
        bound = await workspace.of(MASTER, "POST", f"{PODS}/{name}/binding", {**binding, "target": target})
        assert bound.status == 201, bound.body
        annotations = (await workspace.of(MASTER, "GET", f"{PODS}/{name}")).json["metadata"]["annotations"]
        author = author_of(annotations)
        assert author is not None and author.user == "alice"
        assert annotations["kcp.io/cluster"] == workspace.cluster
        assert annotations["example.org/note"] == "yes"
