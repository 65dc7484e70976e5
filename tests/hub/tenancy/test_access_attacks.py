"""Attacks on the walls between workspaces, through the front door.

Alice owns one workspace, Bob another, and each may do everything in their own.  Whatever Alice sends, nothing of Bob's
comes back, and nothing of Bob's changes.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Awaitable
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest
from hub_harness import Answer
from hypothesis import given
from hypothesis import strategies as st
from memory_store import MemoryStore
from platform_harness import PlatformHub

from farflung.http.messages import Request, Response, Stream
from farflung.hub.catalog import objects
from farflung.hub.request.user import ADMINISTRATORS, AUTHENTICATED, User
from farflung.hub.tenancy.paths import logical_cluster_key, workspace_key
from farflung.hub.tenancy.workspace_authorizer import OPERATORS
from farflung.machinery.errors import Obj
from farflung.store.base import ABSENT

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ALICES, BOBS = "a1a1a1a1a1a1a1a1", "b2b2b2b2b2b2b2b2"
USERS = {
    "alice": User("alice", (AUTHENTICATED,)),
    "bob": User("bob", (AUTHENTICATED,)),
    "operator": User("kcp-admin", (OPERATORS, AUTHENTICATED)),
    "master": User("shard-admin", (ADMINISTRATORS, AUTHENTICATED)),
}
SECRET = "what-only-bob-may-know"
MAPS = "/api/v1/namespaces/default/configmaps"


class Tenants:
    def __init__(self) -> None:
        self.store = MemoryStore(stamp=objects.stamp)
        self.hub = PlatformHub(self.store, users=USERS).function

    async def furnish(self) -> Tenants:
        await self.put(logical_cluster_key("root"), {})
        for cluster, name, owner in ((ALICES, "alices", "alice"), (BOBS, "bobs", "bob")):
            await self.put(logical_cluster_key(cluster), {"spec": {"owner": {"cluster": "root", "name": name}}})
            await self.put(workspace_key("root", name), {"spec": {"cluster": cluster}})
            at = f"/clusters/{cluster}"
            everything = [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "owner"}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": owner}
            await self.create(f"{at}{RBAC}/clusterroles", {"metadata": {"name": "owner"}, "rules": everything})
            binding = {"metadata": {"name": "owner"}, "roleRef": role, "subjects": [subject]}
            await self.create(f"{at}{RBAC}/clusterrolebindings", binding)
            await self.create(f"{at}/api/v1/namespaces", {"metadata": {"name": "default"}})
            await self.create(f"{at}/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
        for name in ("m1", "m2", "m3"):
            labels = {"app": "shop"}
            await self.create(
                f"/clusters/{BOBS}{MAPS}", {"metadata": {"name": name, "labels": labels}, "data": {"k": SECRET}}
            )
        return self

    async def put(self, key: str, obj: Obj) -> None:
        metadata = {"name": key.rpartition("/")[2], "resourceVersion": "", "creationTimestamp": "2024-05-01T12:00:00Z"}
        value = orjson.dumps({"kind": "X", "apiVersion": "v1", "metadata": metadata, **obj})
        await self.store.put(key, value, expect=ABSENT)

    async def create(self, path: str, obj: Obj, token: str = "master") -> Obj:
        answer = await self.send("POST", path, obj, token=token)
        assert answer.status == 201, answer.body
        created: Obj = answer.json
        return created

    async def send(
        self, method: str, path: str, body: Any = None, *, token: str = "alice", query: str = "", **headers: str
    ) -> Answer:
        sent = {"authorization": f"Bearer {token}"} | {name.replace("_", "-"): text for name, text in headers.items()}
        if body is not None:
            sent.setdefault("content-type", "application/json")
        raw = b"" if body is None else json.dumps(body).encode()
        answer = self.hub(Request(method, path, query, sent, raw))
        if isinstance(answer, Awaitable):
            answer = await answer
        assert not isinstance(answer, Stream), "nobody was to be let in here"
        assert isinstance(answer, Response)
        whole = answer.whole()
        return Answer(answer.status, whole, answer.content_type, tuple(answer.headers))

    async def robot(self, cluster: str) -> str:
        """A token of the ServiceAccount `robot` of a workspace."""
        path = f"/clusters/{cluster}/api/v1/namespaces/default/serviceaccounts/robot/token"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return str((await self.create(path, review))["status"]["token"])

    def bobs(self) -> dict[str, bytes]:
        """All that Bob has."""
        homes = [f"/core/{plural}/{BOBS}/" for plural in ("configmaps", "namespaces", "serviceaccounts", "secrets")]
        homes += [f"/rbac.authorization.k8s.io/{plural}/{BOBS}/" for plural in ("clusterroles", "clusterrolebindings")]
        return {entry.key: entry.value for home in homes for entry in self.store.list(home).entries}


@pytest.fixture
async def tenants() -> Tenants:
    return await Tenants().furnish()


def refused(answer: Answer) -> None:
    assert answer.status in (400, 401, 403, 404, 405), answer.body
    assert SECRET.encode() not in answer.body
    assert BOBS.encode() not in answer.body


# --- paths ----------------------------------------------------------------------------------------

WAYS = [
    f"/clusters/{BOBS}{MAPS}",
    f"/clusters/root:bobs{MAPS}",
    f"/clusters/root%3Abobs{MAPS}",
    f"/clusters/*{MAPS}",
    "/clusters/*/api/v1/configmaps",
    "/clusters/%2A/api/v1/configmaps",
    "/clusters/%2a/api/v1/watch/configmaps",
    f"/clusters/{ALICES}/../{BOBS}{MAPS}",
    f"/clusters/{ALICES}%2F..%2F{BOBS}{MAPS}",
    f"/clusters/{ALICES}%2f{BOBS}{MAPS}",
    f"/clusters/{ALICES}:..:bobs{MAPS}",
    f"/clusters/{ALICES}/clusters/{BOBS}{MAPS}",
    f"/clusters/{BOBS.upper()}{MAPS}",
    f"/CLUSTERS/{BOBS}{MAPS}",
    f"//clusters/{BOBS}{MAPS}",
    f"/clusters//{BOBS}{MAPS}",
    f"/%63lusters/{BOBS}{MAPS}",
    f"/clusters/{BOBS}%00{MAPS}",
    f"/clusters/{BOBS}%252F{MAPS}",
    "/clusters/system:admin/api/v1/configmaps",
    f"/clusters/system:{BOBS}{MAPS}",
    f"/clusters/user:bob{MAPS}",
    f"/clusters/{ALICES}/api/v1/namespaces/..%2F..%2F{BOBS}%2Fdefault/configmaps",
    f"/clusters/{ALICES}/api/v1/namespaces/{BOBS}/configmaps/m1",
    f"/clusters/{ALICES}/api/v1/namespaces/default/configmaps/..%2F..%2F{BOBS}%2Fdefault%2Fm1",
    f"/services/apiexport/root/x/clusters/{BOBS}{MAPS}",
    f"/services/apiexport/{ALICES}/x/clusters/{BOBS}{MAPS}",
    f"/services/apiexport/{BOBS}/x/clusters/*/api/v1/configmaps",
    f"/services/initializingworkspaces/root:universal/clusters/{BOBS}{MAPS}",
    f"/services/../clusters/{BOBS}{MAPS}",
    MAPS,
    "/api/v1/configmaps",
]


@pytest.mark.parametrize("path", WAYS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
async def test_no_way_of_writing_a_path_leads_into_another_workspace(tenants: Tenants, method: str, path: str) -> None:
    before = tenants.bobs()
    answer = await tenants.send(method, path)
    assert SECRET.encode() not in answer.body
    if answer.status < 400:  # a namespace of Alice's own that has Bob's name and is empty
        assert not answer.body or answer.json.get("items") == [] or answer.json.get("kind") == "Status", answer.body
    assert tenants.bobs() == before


@given(
    parts=st.lists(
        st.sampled_from(["clusters", BOBS, "root:bobs", "*", "%2A", "..", ".", "", "%2F", ALICES, "api/v1/configmaps"])
    )
)
async def test_no_pile_of_path_pieces_leads_into_another_workspace(parts: list[str]) -> None:
    tenants = await Tenants().furnish()
    answer = await tenants.send("GET", "/" + "/".join([*parts, "api/v1/configmaps"]))
    assert SECRET.encode() not in answer.body


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("where", [BOBS, "*"])
async def test_an_export_of_ones_own_shows_nothing_that_it_does_not_offer(
    tenants: Tenants, method: str, where: str
) -> None:
    await tenants.put(f"/apis.kcp.io/apiexports/{ALICES}/mine", {"spec": {}})
    before = tenants.bobs()
    for rest in ("/api/v1/configmaps", MAPS, f"{MAPS}/m1", "/api/v1/secrets"):
        answer = await tenants.send(method, f"/services/apiexport/{ALICES}/mine/clusters/{where}{rest}")
        assert SECRET.encode() not in answer.body
    assert tenants.bobs() == before


async def test_operators_and_owners_do_get_there(tenants: Tenants) -> None:
    """Or the tests above would pass with a hub that lets nobody in."""
    for token in ("bob", "operator", "master"):
        answer = await tenants.send("GET", f"/clusters/root:bobs{MAPS}", token=token)
        assert answer.names == ["m1", "m2", "m3"]
    assert (await tenants.send("GET", f"/clusters/{ALICES}{MAPS}")).names == []


# --- what is in a request besides its path --------------------------------------------------------


async def test_a_continue_token_continues_in_the_workspace_of_the_request(tenants: Tenants) -> None:
    page = await tenants.send("GET", f"/clusters/{BOBS}{MAPS}", token="bob", query="limit=1")
    token = page.json["metadata"]["continue"]
    answer = await tenants.send("GET", f"/clusters/{ALICES}{MAPS}", query=urlencode({"continue": token}))
    assert answer.names == []


@pytest.mark.parametrize(
    "start",
    [f"../{BOBS}/default/", f"/core/configmaps/{BOBS}/default/", f"../../{BOBS}/", f"{BOBS}/default/m1", "\x00", ""],
)
async def test_a_continue_token_of_ones_own_making_leads_nowhere_else(tenants: Tenants, start: str) -> None:
    raw = json.dumps({"v": "meta.k8s.io/v1", "rv": tenants.store.revision, "start": f"{start}\x00"}).encode()
    query = urlencode({"continue": urlsafe_b64encode(raw).rstrip(b"=").decode(), "limit": 5})
    answer = await tenants.send("GET", f"/clusters/{ALICES}/api/v1/configmaps", query=query)
    assert SECRET.encode() not in answer.body


@pytest.mark.parametrize(
    "query",
    [
        "labelSelector=app%3Dshop",
        "fieldSelector=metadata.name%3Dm1",
        "fieldSelector=metadata.namespace%3Ddefault",
        "resourceVersion=1&resourceVersionMatch=NotOlderThan",
        "resourceVersion=0",
        f"cluster={BOBS}",
    ],
)
async def test_selectors_and_versions_select_within_a_workspace(tenants: Tenants, query: str) -> None:
    answer = await tenants.send("GET", f"/clusters/{ALICES}/api/v1/configmaps", query=query)
    assert answer.names == []
    refused(await tenants.send("GET", f"/clusters/{BOBS}/api/v1/configmaps", query=query))


@pytest.mark.parametrize("path", [f"/clusters/{BOBS}{MAPS}", "/clusters/*/api/v1/configmaps", "/api/v1/configmaps"])
async def test_a_watch_of_another_workspace_is_refused(tenants: Tenants, path: str) -> None:
    refused(await tenants.send("GET", path, query="watch=1&resourceVersion=1"))


@pytest.mark.parametrize("claimed", [BOBS, "root", "*"])
async def test_the_annotation_that_names_the_workspace_is_the_hubs_word(tenants: Tenants, claimed: str) -> None:
    metadata = {"name": "x", "annotations": {"kcp.io/cluster": claimed}}
    await tenants.create(f"/clusters/{ALICES}{MAPS}", {"metadata": metadata}, token="alice")
    found = await tenants.send("GET", f"/clusters/{ALICES}{MAPS}/x")
    assert found.json["metadata"]["annotations"]["kcp.io/cluster"] == ALICES


async def test_a_body_cannot_name_another_workspace(tenants: Tenants) -> None:
    before = tenants.bobs()
    for namespace in (BOBS, f"../{BOBS}/default", f"{BOBS}/default"):
        body = {"metadata": {"name": "x", "namespace": namespace}}
        refused_or_own = await tenants.send("POST", f"/clusters/{ALICES}{MAPS}", body)
        assert refused_or_own.status == 400
    assert tenants.bobs() == before


async def test_a_binding_names_no_user_outside_its_workspace(tenants: Tenants) -> None:
    """Alice's binding for a name that Bob's ServiceAccount has as well is about her own."""
    token = await tenants.robot(BOBS)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "owner"}
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    binding = {"metadata": {"name": "x"}, "roleRef": role, "subjects": [subject]}
    await tenants.create(f"/clusters/{ALICES}{RBAC}/clusterrolebindings", binding, token="alice")
    refused(await tenants.send("GET", f"/clusters/{BOBS}{MAPS}", token=await tenants.robot(ALICES)))
    assert (await tenants.send("GET", f"/clusters/{ALICES}{MAPS}", token=token)).status == 403
    assert (await tenants.send("GET", f"/clusters/{ALICES}{MAPS}", token=await tenants.robot(ALICES))).status == 200


# --- who one is -----------------------------------------------------------------------------------


async def test_a_service_account_goes_home_without_a_prefix_and_nowhere_else(tenants: Tenants) -> None:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "owner"}
    for cluster in (ALICES, BOBS):
        subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
        binding = {"metadata": {"name": "robot"}, "roleRef": role, "subjects": [subject]}
        await tenants.create(f"/clusters/{cluster}{RBAC}/clusterrolebindings", binding)
    token = await tenants.robot(BOBS)
    assert (await tenants.send("GET", MAPS, token=token)).names == ["m1", "m2", "m3"]
    assert (await tenants.send("GET", f"/clusters/root:bobs{MAPS}", token=token)).status == 200
    mine = await tenants.robot(ALICES)
    assert (await tenants.send("GET", MAPS, token=mine)).names == []
    for path in WAYS[:-2]:
        answer = await tenants.send("GET", path, token=mine)
        assert SECRET.encode() not in answer.body


@pytest.mark.parametrize(
    "groups", ["system:masters", "system:kcp:admin", "system:masters\nsystem:authenticated", "apis.kcp.io:binding:x"]
)
@pytest.mark.parametrize("where", [ALICES, BOBS, "*", "nosuch", "root"])
async def test_impersonation_leads_nowhere_else(tenants: Tenants, groups: str, where: str) -> None:
    for name in ("bob", "kcp-admin", "system:serviceaccount:default:robot"):
        headers = {"impersonate_user": name, "impersonate_group": groups}
        answer = await tenants.send("GET", f"/clusters/{where}/api/v1/configmaps", **headers)
        assert SECRET.encode() not in answer.body
        if where != ALICES:
            refused(answer)
        written = await tenants.send("POST", f"/clusters/{where}{MAPS}", {"metadata": {"name": "evil"}}, **headers)
        assert written.status in (403, 404, 405, 201 if where == ALICES else 403)


async def test_a_review_asks_about_ones_own_workspace(tenants: Tenants) -> None:
    spec = {"user": "bob", "resourceAttributes": {"verb": "list", "resource": "configmaps"}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = await tenants.send("POST", f"/clusters/{ALICES}{path}", review)
    assert answer.json["status"] == {"allowed": False, "reason": "access denied"}
    refused(await tenants.send("POST", f"/clusters/{BOBS}{path}", review))
    token = await tenants.robot(BOBS)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    told = await tenants.send("POST", f"/clusters/{ALICES}/apis/authentication.k8s.io/v1/tokenreviews", asked)
    assert "authenticated" not in told.json["status"] or told.json["status"]["authenticated"] is False


async def test_a_service_account_that_is_only_named_is_the_one_of_the_workspace(tenants: Tenants) -> None:
    """Who impersonates it, be it an administrator, and who asks about it means the account where they are."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "owner"}
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    binding = {"metadata": {"name": "robot"}, "roleRef": role, "subjects": [subject]}
    await tenants.create(f"/clusters/{BOBS}{RBAC}/clusterrolebindings", binding)
    robot = "system:serviceaccount:default:robot"
    for cluster, allowed in ((BOBS, True), (ALICES, False)):
        posing = await tenants.send("GET", f"/clusters/{cluster}{MAPS}", token="master", impersonate_user=robot)
        assert (posing.status == 200) == allowed
        for extra in ({}, {"authentication.kubernetes.io/cluster-name": [ALICES]}):
            spec = {"user": robot, "extra": extra, "resourceAttributes": {"verb": "list", "resource": "configmaps"}}
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
            path = f"/clusters/{cluster}/apis/authorization.k8s.io/v1/subjectaccessreviews"
            told = await tenants.send("POST", path, review, token="master")
            assert told.json["status"]["allowed"] == (allowed and not extra)
    refused(await tenants.send("GET", "/clusters/%2A/api/v1/configmaps", token="master", impersonate_user=robot))


async def test_a_review_tells_which_workspace_an_account_is_of(tenants: Tenants) -> None:
    spec = {"token": await tenants.robot(ALICES)}
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    told = await tenants.send("POST", f"/clusters/{ALICES}/apis/authentication.k8s.io/v1/tokenreviews", asked)
    assert told.json["status"]["user"]["extra"]["authentication.kubernetes.io/cluster-name"] == [ALICES]


# --- what a refusal tells -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rest", [MAPS, f"{MAPS}/m1", f"{MAPS}/nosuch", "/apis", "/version", "/api/v1/nosuch", "/openapi/v2"]
)
async def test_a_closed_workspace_and_none_at_all_answer_alike(tenants: Tenants, rest: str) -> None:
    answers = [
        await tenants.send("GET", f"/clusters/{name}{rest}")
        for name in (BOBS, "c3c3c3c3c3c3c3c3", "root:bobs", "root:nosuch")
    ]
    assert {(one.status, one.body) for one in answers} == {(403, answers[0].body)}


async def test_health_tells_nothing_of_workspaces(tenants: Tenants) -> None:
    for name in (BOBS, "nosuch", "*", "root:nosuch"):
        answer = await tenants.send("GET", f"/clusters/{name}/healthz")
        assert (answer.status, answer.body) == (200, b"ok")


async def test_the_figures_of_the_whole_hub_are_not_for_the_owner_of_a_workspace(tenants: Tenants) -> None:
    refused(await tenants.send("GET", f"/clusters/{ALICES}/metrics"))
    assert (await tenants.send("GET", "/clusters/root/metrics", token="operator")).status == 200
