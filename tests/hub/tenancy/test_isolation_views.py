"""Attacks through the view of an export, on a whole hub.

Alice exports an API and claims ConfigMaps and Secrets; Bob may bind it.  Carl has a workspace that has nothing to do
with either.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from apis_harness import widget_schema
from hub_harness import APPLY_PATCH, MERGE_PATCH, PARTIAL_LIST, TABLE, Answer, Watch
from platform_harness import ALICE, APIS, BOB, MAPS, OPERATOR, RBAC, TENANCY, PlatformHub, api_binding, platform_hub

from farflung.hub.request.user import AUTHENTICATED, User
from farflung.machinery.errors import Obj

CARL = "carl"
WIDGETS = "/apis/ex.test/v1/widgets"
SECRET = "what-is-nobody-elses-business"
CLAIMS: list[Obj] = [
    {"resource": "configmaps", "all": True},
    {"resource": "secrets", "resourceSelector": [{"name": "s"}]},
]


def decided(state: str) -> list[Obj]:
    return [{**claim, "state": state} for claim in CLAIMS]


class Market:
    hub: PlatformHub
    alices: str
    bobs: str
    carls: str

    async def open(self) -> Market:
        hub = self.hub = await platform_hub(users={CARL: User("carl", (AUTHENTICATED,))})
        await hub.workspace("org")
        self.alices = await hub.workspace("alices", ALICE, parent="root:org")
        self.bobs = await hub.workspace("bobs", BOB, parent="root:org")
        self.carls = await hub.workspace("carls", CARL, parent="root:org")
        await hub.export(self.alices, "ex", widget_schema(), by=ALICE, permissionClaims=CLAIMS)
        rules = (
            {"verbs": ["bind"], "apiGroups": ["apis.kcp.io"], "resources": ["apiexports"]},
            {"verbs": ["access"], "nonResourceURLs": ["/"]},
        )
        await hub.grant(self.alices, "binders", "bob", *rules)
        for owner, cluster in ((BOB, self.bobs), (CARL, self.carls)):
            at = f"/clusters/{cluster}"
            await hub.made(owner, at + MAPS, {"metadata": {"name": "there"}, "data": {"k": SECRET}})
            for name in ("s", "t"):
                body = {"metadata": {"name": name}, "stringData": {"k": SECRET}}
                await hub.made(owner, f"{at}/api/v1/namespaces/default/secrets", body)
        return self

    async def bind(self, **spec: Any) -> None:
        await self.hub.bind(self.bobs, "x", "root:org:alices", "ex", by=BOB, **spec)

    async def decide(self, claims: list[Obj]) -> None:
        patch = {"spec": {"permissionClaims": claims}}
        at = f"/clusters/{self.bobs}{APIS}/apibindings/x"
        assert (await self.hub.of(BOB, "PATCH", at, patch, content_type=MERGE_PATCH)).status == 200

    def path(self, rest: str, cluster: str = "*") -> str:
        return f"/services/apiexport/{self.alices}/ex/clusters/{cluster}{rest}"

    async def view(self, method: str, rest: str, body: Any = None, *, cluster: str = "*", **more: Any) -> Answer:
        return await self.hub.of(ALICE, method, self.path(rest, cluster), body, **more)

    async def watch(self, rest: str, **query: str) -> Watch:
        self.hub.token = ALICE
        try:
            return await self.hub.watch(self.path(rest), query)
        finally:
            self.hub.token = OPERATOR


@pytest.fixture
async def market() -> Market:
    return await Market().open()


WRITES = [
    ("POST", MAPS, {"metadata": {"name": "evil"}}, {}),
    ("POST", MAPS, {"metadata": {"generateName": "evil"}}, {}),
    ("PUT", f"{MAPS}/there", {"metadata": {"name": "there"}}, {}),
    ("PATCH", f"{MAPS}/there", {"data": {"k": "evil"}}, {"content_type": MERGE_PATCH}),
    (
        "PATCH",
        f"{MAPS}/evil",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "evil"}},
        {"content_type": APPLY_PATCH, "query": "fieldManager=x"},
    ),
    ("DELETE", f"{MAPS}/there", None, {}),
    ("DELETE", MAPS, None, {}),
    ("POST", "/api/v1/namespaces", {"metadata": {"name": "evil"}}, {}),
    ("DELETE", "/api/v1/namespaces/default", None, {}),
    ("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "t2"}}, {}),
    ("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "evil"}}, {}),
    ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {"kind": "TokenRequest"}, {}),
    ("POST", f"{RBAC}/clusterrolebindings", {"metadata": {"name": "evil"}}, {}),
    ("DELETE", f"{APIS}/apibindings/x", None, {}),
    ("PATCH", f"{APIS}/apibindings/x", {"spec": {"permissionClaims": []}}, {"content_type": MERGE_PATCH}),
    ("POST", f"{TENANCY}/workspaces", {"metadata": {"name": "evil"}}, {}),
    ("POST", WIDGETS, {"metadata": {"name": "evil"}}, {}),
    ("DELETE", WIDGETS, None, {}),
]


@pytest.mark.parametrize("method, rest, body, more", WRITES)
async def test_a_write_through_a_view_into_a_workspace_without_the_binding_is_refused(
    market: Market, method: str, rest: str, body: Any, more: Obj
) -> None:
    """Neither in a workspace that is there nor in one that is not; nor in all, nor in Alice's own."""
    for cluster in (market.carls, market.bobs, market.alices, "root", "c" * 16, "*"):
        with market.hub.writes_nothing():
            answer = await market.view(method, rest, body, cluster=cluster, **more)
        assert answer.status in (403, 404, 405), answer.body


@pytest.mark.parametrize("method, rest, body, more", [one for one in WRITES if one[1] != WIDGETS])
@pytest.mark.parametrize("claims", [[], decided("Rejected")])
async def test_nothing_is_written_that_was_claimed_and_not_accepted(
    market: Market, claims: list[Obj], method: str, rest: str, body: Any, more: Obj
) -> None:
    await market.bind(permissionClaims=claims)
    for cluster in (market.bobs, "*"):
        with market.hub.writes_nothing():
            answer = await market.view(method, rest, body, cluster=cluster, **more)
        assert answer.status in (403, 404, 405), answer.body


@pytest.mark.parametrize("accept", ["application/json", TABLE, PARTIAL_LIST])
@pytest.mark.parametrize("claims", [[], decided("Rejected")])
async def test_nothing_is_seen_that_was_claimed_and_not_accepted(
    market: Market, claims: list[Obj], accept: str
) -> None:
    await market.bind(permissionClaims=claims)
    for rest in (
        "/api/v1/configmaps",
        "/api/v1/secrets",
        "/api/v1/namespaces",
        f"{MAPS}/there",
        f"{TENANCY}/workspaces",
    ):
        for cluster in ("*", market.bobs, market.carls, "c" * 16):
            answer = await market.view("GET", rest, cluster=cluster, accept=accept)
            assert b"there" not in answer.body
            if answer.status == 200:
                assert answer.json.get("items", []) == [] and not answer.json.get("rows")
    told = {
        (answer.status, answer.body)
        for answer in [await market.view("GET", MAPS, cluster=name) for name in (market.carls, "c" * 16, "root")]
    }
    assert len(told) == 1, "a view tells which workspaces there are"


async def test_what_is_accepted_is_seen_and_written_and_nothing_else(market: Market) -> None:
    await market.bind(permissionClaims=decided("Accepted"))
    found = await market.view("GET", "/api/v1/configmaps")
    assert found.names == ["kube-root-ca.crt", "there"]
    assert {one["metadata"]["annotations"]["kcp.io/cluster"] for one in found.json["items"]} == {market.bobs}
    assert (await market.view("GET", "/api/v1/secrets")).names == ["s"]
    secrets = "/api/v1/namespaces/default/secrets"
    assert (await market.view("GET", f"{secrets}/t", cluster=market.bobs)).status == 404
    assert (await market.view("DELETE", f"{secrets}/t", cluster=market.bobs)).status == 404
    for name in ({"name": "u"}, {"generateName": "s"}):
        with market.hub.writes_nothing():
            answer = await market.view("POST", secrets, {"metadata": name}, cluster=market.bobs)
        assert answer.status == 403, answer.body
    removed = await market.view("DELETE", secrets, cluster=market.bobs)
    assert removed.status == 200
    left = await market.hub.of(BOB, "GET", f"/clusters/{market.bobs}{secrets}")
    assert "t" in left.names
    assert "s" not in left.names
    assert (await market.view("POST", MAPS, {"metadata": {"name": "new"}}, cluster=market.bobs)).status == 201
    assert (await market.view("POST", MAPS, {"metadata": {"name": "new"}}, cluster=market.carls)).status == 404


async def test_what_is_accepted_no_more_is_seen_no_more(market: Market) -> None:
    await market.bind(permissionClaims=decided("Accepted"))
    watch = await market.watch("/api/v1/configmaps", resourceVersion=str(market.hub.store.revision))
    page = await market.view("GET", "/api/v1/configmaps", query="limit=1")
    await market.decide(decided("Rejected"))
    rejected = {"metadata": {"name": "later"}, "data": {"k": SECRET}}
    await market.hub.made(BOB, f"/clusters/{market.bobs}{MAPS}", rejected)
    assert "later" not in json.dumps(watch.events)
    assert (await market.view("GET", "/api/v1/configmaps")).names == []
    assert (await market.view("GET", f"{MAPS}/there", cluster=market.bobs)).status == 404
    for query in (
        f"continue={page.json['metadata']['continue']}",
        f"resourceVersion={page.version}&resourceVersionMatch=Exact",
    ):
        answer = await market.view("GET", "/api/v1/configmaps", query=query)
        assert SECRET.encode() not in answer.body


async def test_what_was_before_it_was_accepted_is_not_seen(market: Market) -> None:
    """The past of a workspace is its own: what was deleted before the export was let in is not for its owner."""
    hub, at = market.hub, f"/clusters/{market.bobs}{MAPS}"
    begun = hub.store.revision
    await hub.made(BOB, at, {"metadata": {"name": "gone"}, "data": {"k": SECRET}})
    between = hub.store.revision
    assert (await hub.of(BOB, "DELETE", f"{at}/gone")).status == 200
    await market.bind(permissionClaims=decided("Accepted"))
    for revision in (begun, between):
        exact = f"resourceVersion={revision}&resourceVersionMatch=Exact"
        assert b"gone" not in (await market.view("GET", "/api/v1/configmaps", query=exact)).body.replace(b"Gone", b"")
        watch = await market.watch("/api/v1/configmaps", resourceVersion=str(revision))
        assert "gone" not in json.dumps(watch.events)


async def test_a_view_ends_with_its_export(market: Market) -> None:
    await market.bind(permissionClaims=decided("Accepted"))
    watch = await market.watch("/api/v1/configmaps", resourceVersion=str(market.hub.store.revision))
    gone = await market.hub.of(ALICE, "DELETE", f"/clusters/{market.alices}{APIS}/apiexports/ex")
    assert gone.status == 200
    await market.hub.made(BOB, f"/clusters/{market.bobs}{MAPS}", {"metadata": {"name": "later"}})
    assert "later" not in json.dumps(watch.events)
    assert (await market.view("GET", "/api/v1/configmaps")).status == 403


async def test_a_deleted_workspace_is_no_longer_in_the_view(market: Market) -> None:
    hub = market.hub
    await market.bind(permissionClaims=decided("Accepted"))
    await hub.made(BOB, f"/clusters/{market.bobs}{WIDGETS}", {"metadata": {"name": "w"}})
    now = str(hub.store.revision)
    watches = [await market.watch(rest, resourceVersion=now) for rest in (WIDGETS, "/api/v1/configmaps")]
    hub.token = "master"
    everywhere = await hub.watch("/clusters/*/api/v1/configmaps", {"resourceVersion": now})
    async with hub.running_controllers() as controllers:
        await hub.of(OPERATOR, "DELETE", f"/clusters/root:org{TENANCY}/workspaces/bobs")
        await controllers.finished()
        assert hub.stored(market.bobs) == {}
        again = await hub.workspace("bobs", BOB, parent="root:org")
        await hub.made(BOB, f"/clusters/{again}{MAPS}", {"metadata": {"name": "new"}})
        await controllers.finished()
    for watch in watches:
        assert "new" not in json.dumps(watch.events)
        assert again not in json.dumps(watch.events)
    assert ("DELETED", "there") in everywhere.changes
    for rest in (WIDGETS, "/api/v1/configmaps", f"{APIS}/apibindings"):
        assert (await market.view("GET", rest)).names == []


async def test_a_claim_that_the_export_makes_no_more_is_worth_nothing(market: Market) -> None:
    await market.bind(permissionClaims=decided("Accepted"))
    grown = {"spec": {"permissionClaims": [{"resource": "secrets", "all": True}]}}
    at = f"/clusters/{market.alices}{APIS}/apiexports/ex"
    assert (await market.hub.of(ALICE, "PATCH", at, grown, content_type=MERGE_PATCH)).status == 200
    for housekept in (False, True):
        if housekept:
            async with market.hub.running_controllers() as controllers:
                await controllers.finished()
        for rest in ("/api/v1/secrets", "/api/v1/configmaps"):
            answer = await market.view("GET", rest)
            assert SECRET.encode() not in answer.body
            assert answer.status == 404 or answer.names == []


async def test_the_figures_of_the_whole_hub_are_in_no_view(market: Market) -> None:
    await market.bind(permissionClaims=decided("Accepted"))
    for cluster in ("*", market.bobs, market.alices):
        assert (await market.view("GET", "/metrics", cluster=cluster)).status == 403


@pytest.mark.parametrize("who", [BOB, CARL, None])
async def test_a_view_is_for_those_whom_its_owner_lets_in(market: Market, who: str | None) -> None:
    await market.bind(permissionClaims=decided("Accepted"))
    robot = await market.hub.robot(market.bobs)
    for token in (who, robot):
        for rest in (WIDGETS, "/api/v1/configmaps", "/apis", f"{MAPS}/there"):
            for cluster in ("*", market.bobs, market.carls):
                answer = await market.hub.of(token, "GET", market.path(rest, cluster))
                assert answer.status == 403, answer.body


async def test_claims_of_another_export_need_its_identity_and_a_yes(market: Market) -> None:
    """Alice claims what Carl exports and binds: nothing is seen, but with its identity where it was accepted."""
    hub = market.hub
    schema = widget_schema(
        "v1.gadgets.ex.test",
        names={"kind": "Gadget", "listKind": "GadgetList", "plural": "gadgets", "singular": "gadget"},
    )
    exported = await hub.export(market.carls, "gadgets", schema, by=CARL)
    await hub.bind(market.carls, "own", "root:org:carls", "gadgets", by=CARL)
    gadget = {"apiVersion": "ex.test/v1", "kind": "Gadget", "metadata": {"name": SECRET}}
    await hub.made(CARL, f"/clusters/{market.carls}/apis/ex.test/v1/gadgets", gadget)
    for identity in ("", "0" * 64, exported["status"]["identityHash"]):
        claim = {"group": "ex.test", "resource": "gadgets", "all": True, "identityHash": identity}
        patch = {"spec": {"permissionClaims": [claim if identity else {**claim, "identityHash": ""}]}}
        at = f"/clusters/{market.alices}{APIS}/apiexports/ex"
        await hub.of(ALICE, "PATCH", at, patch, content_type=MERGE_PATCH)
        for cluster in ("*", market.carls):
            answer = await market.view("GET", "/apis/ex.test/v1/gadgets", cluster=cluster)
            assert SECRET.encode() not in answer.body


async def test_the_policy_of_an_export_is_asked_in_its_own_workspace(market: Market) -> None:
    """What Bob says in his own workspace does not widen what the owner of the API lets its consumers do."""
    hub = market.hub
    patch: Obj = {"spec": {"maximalPermissionPolicy": {"local": {}}}}
    at = f"/clusters/{market.alices}{APIS}/apiexports/ex"
    assert (await hub.of(ALICE, "PATCH", at, patch, content_type=MERGE_PATCH)).status == 200
    await market.bind()
    everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    roles = f"/clusters/{market.bobs}{RBAC}"
    await hub.made(BOB, f"{roles}/clusterroles", {"metadata": {"name": "all"}, "rules": everything})
    for user in ("apis.kcp.io:binding:bob", "bob"):
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"}
        body = {"metadata": {"name": user.replace(":", ".")}, "roleRef": role, "subjects": [subject]}
        await hub.made(BOB, f"{roles}/clusterrolebindings", body)
    attempts: list[dict[str, str]] = [{}, {"impersonate_user": "apis.kcp.io:binding:bob"}]
    for headers in attempts:
        assert (await hub.of(BOB, "GET", f"/clusters/{market.bobs}{WIDGETS}", **headers)).status == 403
    assert (await hub.of(await hub.robot(market.bobs), "GET", f"/clusters/{market.bobs}{WIDGETS}")).status == 403


async def test_two_exports_of_one_name_are_two(market: Market) -> None:
    """Carl exports the same resource under the same name: neither sees what was made with the other's."""
    hub = market.hub
    await hub.export(market.carls, "ex", widget_schema(), by=CARL)
    await hub.bind(market.carls, "own", "root:org:carls", "ex", by=CARL)
    await hub.made(CARL, f"/clusters/{market.carls}{WIDGETS}", {"metadata": {"name": "carls"}})
    await market.bind()
    await hub.made(BOB, f"/clusters/{market.bobs}{WIDGETS}", {"metadata": {"name": "bobs"}})
    assert (await market.view("GET", WIDGETS)).names == ["bobs"]
    other = f"/services/apiexport/{market.carls}/ex/clusters/"
    assert (await hub.of(CARL, "GET", f"{other}*{WIDGETS}")).names == ["carls"]
    for method in ("GET", "DELETE"):
        assert (await hub.of(CARL, method, f"{other}{market.bobs}{WIDGETS}/bobs")).status == 404
    stolen = api_binding("y", "root:org:alices", "ex")
    assert (await hub.of(CARL, "POST", f"/clusters/{market.carls}{APIS}/apibindings", stolen)).status == 403
