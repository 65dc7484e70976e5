"""What each controller of the hub may do, and what it may not: its roles list its work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from apis_harness import widget_schema
from hub_harness import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Answer, deployment
from platform_harness import ALICE, BOB, MAPS, MASTER, OPERATOR, RBAC, TENANCY, PlatformHub, binding

from farflung.apis.edge.names import EXECUTING_COUNT, STATUS_RETURNED_FROM
from farflung.apis.kcp.names import CONTROLLERS_CLUSTER, COPIED_KINDS_CLUSTER, MAILBOXES_CLUSTER
from farflung.hub.tenancy.controller_roles import CONTROLLERS, user_of
from farflung.machinery.errors import Obj

SCHEDULER, MAILBOX_CONTROLLER, TRANSLATOR, SUMMARIZER, GLOBAL = map(user_of, CONTROLLERS)
ALL = (SCHEDULER, MAILBOX_CONTROLLER, TRANSLATOR, SUMMARIZER, GLOBAL)
SECRETS = "/api/v1/namespaces/default/secrets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
ROLES = f"{RBAC}/clusterroles"
BINDINGS = "/apis/apis.kcp.io/v1alpha1/apibindings"
WEB = {"apiVersion": "apps/v1", "kind": "Deployment", **deployment("web")}
MARKS = {
    "labels": {EXECUTING_COUNT: "1"},
    "annotations": {STATUS_RETURNED_FROM: "florin"},
}


class Shop:
    """A workspace of Alice that only she may enter, and a mailbox."""

    def __init__(self, hub: PlatformHub, shop: str, mailbox: str) -> None:
        self.hub = hub
        self.shop = shop
        self.mailbox = mailbox

    async def ask(self, user: str | None, method: str, cluster: str, path: str, body: Any = None, **how: Any) -> Answer:
        return await self.hub.of(user, method, f"/clusters/{cluster}{path}", body, **how)

    async def status(self, user: str | None, method: str, cluster: str, path: str, body: Any = None, **how: Any) -> int:
        return (await self.ask(user, method, cluster, path, body, **how)).status


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    hub = PlatformHub()
    await hub.platform.bootstrap.start(bare=False)
    async with hub.running_controllers():
        cluster = await hub.workspace("shop", ALICE)
        await hub.bind(cluster, "kube", "root:compute", "kubernetes", ALICE)
        await hub.made(ALICE, f"/clusters/{cluster}{SECRETS}", {"metadata": {"name": "s"}})
        await hub.made(ALICE, f"/clusters/{cluster}{MAPS}", {"metadata": {"name": "m"}, "data": {"a": "1"}})
        await hub.made(ALICE, f"/clusters/{cluster}{DEPLOYMENTS}", WEB)
        workspace = {"metadata": {"name": "florin-mb-1"}}
        made = await hub.made(MAILBOX_CONTROLLER, f"/clusters/root:espw{TENANCY}/workspaces", workspace)
        yield Shop(hub, cluster, made["spec"]["cluster"])


# --- what each one may not do ---------------------------------------------------------------------

CREATE_MAP = ("POST", MAPS, {"metadata": {"name": "new"}})
DELETE_MAP = ("DELETE", f"{MAPS}/m", None)
READ_SECRETS = ("GET", SECRETS, None)
BIND_ADMIN = ("POST", f"{RBAC}/clusterrolebindings", binding("x", "mallory", "cluster-admin"))
NEW_TOKEN = ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}})


async def test_no_controller_changes_workspaces_of_tenants_or_grants_rights(shop: Shop) -> None:
    for user in ALL:
        for method, path, body in (CREATE_MAP, DELETE_MAP, BIND_ADMIN, NEW_TOKEN):
            assert await shop.status(user, method, shop.shop, path, body) == 403, (user, path)


async def test_controllers_that_copy_nothing_read_no_secrets(shop: Shop) -> None:
    for user in (SCHEDULER, MAILBOX_CONTROLLER, GLOBAL):
        for cluster, path in ((shop.shop, SECRETS), ("*", "/api/v1/secrets"), ("root", SECRETS)):
            for query in ("", "watch=1"):
                assert await shop.status(user, "GET", cluster, path, query=query) == 403, (user, cluster)


async def test_the_summarizer_changes_only_its_marks_and_the_status_of_a_workload(shop: Shop) -> None:
    at = f"{DEPLOYMENTS}/web"
    before = (await shop.ask(ALICE, "GET", shop.shop, at)).json
    labels = MARKS["labels"] | {"other": "label"}
    patch = {"metadata": {**MARKS, "labels": labels, "finalizers": ["x/y"]}, "spec": {"replicas": 7}}
    for media in (MERGE_PATCH, STRATEGIC_PATCH):
        assert await shop.status(SUMMARIZER, "PATCH", shop.shop, at, patch, content_type=media) == 200
    jsons = [{"op": "replace", "path": "/spec/replicas", "value": 7}]
    assert await shop.status(SUMMARIZER, "PATCH", shop.shop, at, jsons, content_type=JSON_PATCH) == 200
    applied = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 7}}
    query = {"fieldManager": "x", "force": "true"}
    assert await shop.status(SUMMARIZER, "PATCH", shop.shop, at, applied, content_type=APPLY_PATCH, query=query) == 200
    after = (await shop.ask(ALICE, "GET", shop.shop, at)).json
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["metadata"]["labels"] == {**before["metadata"].get("labels", {}), **MARKS["labels"]}
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"] | MARKS["annotations"]
    assert "finalizers" not in after["metadata"]
    whole = after | {"spec": {**after["spec"], "replicas": 9}}
    assert await shop.status(SUMMARIZER, "PUT", shop.shop, at, whole) == 403
    status = {"status": {"replicas": 3, "unavailableReplicas": 3}, "spec": {"replicas": 9}}
    assert await shop.status(SUMMARIZER, "PATCH", shop.shop, f"{at}/status", status, content_type=MERGE_PATCH) == 200
    after = (await shop.ask(ALICE, "GET", shop.shop, at)).json
    assert (after["status"]["replicas"], after["spec"]) == (3, before["spec"])
    unmarked = {"metadata": {section: dict.fromkeys(entries) for section, entries in MARKS.items()}}
    assert await shop.status(SUMMARIZER, "PATCH", shop.shop, at, unmarked, content_type=MERGE_PATCH) == 200
    after = (await shop.ask(ALICE, "GET", shop.shop, at)).json
    assert after["metadata"].get("labels") == before["metadata"].get("labels")


async def test_the_preconditions_of_a_restricted_patch_count(shop: Shop) -> None:
    at, how = f"{DEPLOYMENTS}/web", {"content_type": MERGE_PATCH}
    for name, value in (("uid", "another"), ("resourceVersion", "1")):
        patch = {"metadata": {**MARKS, name: value}}
        usual = await shop.status(ALICE, "PATCH", shop.shop, at, patch, **how)
        assert usual in (409, 422)
        assert await shop.status(SUMMARIZER, "PATCH", shop.shop, at, patch, **how) == usual


async def test_a_restricted_patch_creates_nothing(shop: Shop) -> None:
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new", **MARKS}}
    how: dict[str, Any] = {"content_type": APPLY_PATCH, "query": {"fieldManager": "x", "force": "true"}}
    assert await shop.status(SUMMARIZER, "PATCH", shop.shop, f"{MAPS}/new", applied, **how) == 403


async def test_the_mailbox_controller_only_removes_the_finalizer_of_syncers(shop: Shop) -> None:
    obj = {"metadata": {"name": "m", "finalizers": ["edge.kcp.io/syncer", "example.com/other"]}, "data": {"a": "1"}}
    await shop.hub.made(MASTER, f"/clusters/{shop.mailbox}{MAPS}", obj)
    patch = {"metadata": {"finalizers": [], "labels": {"x": "y"}}, "data": {"a": "2"}}
    at = f"{MAPS}/m"
    assert await shop.status(MAILBOX_CONTROLLER, "PATCH", shop.mailbox, at, patch, content_type=MERGE_PATCH) == 200
    after = (await shop.ask(MASTER, "GET", shop.mailbox, at)).json
    assert (after["metadata"]["finalizers"], after["data"]) == (["example.com/other"], {"a": "1"})
    assert "labels" not in after["metadata"]
    assert await shop.status(MAILBOX_CONTROLLER, "DELETE", shop.mailbox, at) == 403
    assert await shop.status(MAILBOX_CONTROLLER, "PATCH", shop.shop, at, patch, content_type=MERGE_PATCH) == 403


async def test_the_translator_writes_to_mailboxes_alone(shop: Shop) -> None:
    copy = {"metadata": {"name": "copy"}}
    assert await shop.status(TRANSLATOR, "POST", shop.mailbox, SECRETS, copy) == 201
    assert await shop.status(TRANSLATOR, "DELETE", shop.mailbox, f"{SECRETS}/copy") == 200
    for cluster in (shop.shop, "root", "root:espw", "root:compute"):
        assert await shop.status(TRANSLATOR, "POST", cluster, SECRETS, copy) == 403
        assert await shop.status(TRANSLATOR, "GET", cluster, SECRETS) == 200
    assert await shop.status(TRANSLATOR, "DELETE", "root:espw", f"{TENANCY}/workspaces/florin-mb-1") == 403


async def test_no_controller_enters_the_clusters_with_the_roles_of_controllers(shop: Shop) -> None:
    for user in ALL:
        bound = binding("x", user, "x")
        for cluster in (CONTROLLERS_CLUSTER, COPIED_KINDS_CLUSTER, MAILBOXES_CLUSTER, "system:admin"):
            assert await shop.status(user, "GET", cluster, ROLES) == 403
            assert await shop.status(user, "POST", cluster, f"{RBAC}/clusterrolebindings", bound) == 403


# --- what is not theirs ---------------------------------------------------------------------------


async def test_a_tenant_who_calls_itself_a_controller_gets_no_rights_elsewhere(shop: Shop) -> None:
    """Users of one workspace have names that its owner chooses."""
    headers = {"impersonate_user": TRANSLATOR}
    other = await shop.hub.workspace("other", BOB)
    for cluster, status in ((shop.shop, 200), (other, 403), ("*", 403)):
        path = SECRETS if cluster != "*" else "/api/v1/secrets"
        answer = await shop.ask(ALICE, "GET", cluster, path, **headers)
        assert answer.status in (status, 403), cluster
        assert cluster == shop.shop or answer.status == 403


async def test_the_roles_of_controllers_are_of_no_use_to_others(shop: Shop) -> None:
    for user in (ALICE, OPERATOR, None):
        for path in ("/api/v1/secrets", "/api"):
            assert await shop.status(user, "GET", "*", path) == 403


async def test_a_role_of_a_controller_can_be_taken_away_while_the_hub_runs(shop: Shop) -> None:
    assert await shop.status(TRANSLATOR, "GET", "*", "/api/v1/secrets") == 200
    await shop.ask(MASTER, "DELETE", COPIED_KINDS_CLUSTER, f"{RBAC}/clusterrolebindings/{TRANSLATOR}")
    assert await shop.status(TRANSLATOR, "GET", "*", "/api/v1/secrets") == 403


async def test_the_policy_of_an_export_does_not_limit_controllers(shop: Shop) -> None:
    """They are no consumers: the translator copies what the provider of an API made in a workspace."""
    maker = await shop.hub.workspace("maker")
    await shop.hub.export(maker, "widgets", widget_schema(), maximalPermissionPolicy={"local": {}})
    every: Obj = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    enter = {"verbs": ["access"], "nonResourceURLs": ["/"]}
    await shop.hub.grant(maker, "binders", ALICE, {**every, "verbs": ["bind"]}, enter)
    await shop.hub.bind(shop.shop, "widgets", "root:maker", "widgets", ALICE)
    assert await shop.status(ALICE, "GET", shop.shop, "/apis/ex.test/v1/widgets") == 403
    assert await shop.status(TRANSLATOR, "GET", shop.shop, "/apis/ex.test/v1/widgets") == 200
    assert await shop.status(SCHEDULER, "GET", shop.shop, "/apis/ex.test/v1/widgets") == 403


async def test_controllers_may_not_change_the_status_of_bindings_and_exports(shop: Shop) -> None:
    for user in ALL:
        patch = {"status": {"phase": "Bound"}}
        path = f"{BINDINGS}/kube/status"
        assert await shop.status(user, "PATCH", shop.shop, path, patch, content_type=MERGE_PATCH) == 403


async def test_the_operators_own_the_mailboxes(shop: Shop) -> None:
    """The creator of a workspace may do everything in it."""
    found = (await shop.ask(MASTER, "GET", shop.mailbox, f"{RBAC}/clusterrolebindings/workspace-admin")).json
    assert [one["name"] for one in found["subjects"]] == ["kcp-admin"]


async def test_a_provider_workspace_that_a_user_creates_gets_the_roles_of_controllers() -> None:
    """As in a hub with --bare, and after its deletion."""
    hub = PlatformHub()
    await hub.platform.bootstrap.start(bare=True)
    leases = "/clusters/root:espw/apis/coordination.k8s.io/v1/namespaces/default/leases"
    async with hub.running_controllers() as controllers:
        assert (await hub.of(SCHEDULER, "GET", f"{leases}/x")).status == 403
        for _ in range(2):
            await hub.workspace("espw")
            await controllers.finished()
            assert (await hub.of(SCHEDULER, "GET", f"{leases}/x")).status == 404
            await hub.of(OPERATOR, "DELETE", f"/clusters/root{TENANCY}/workspaces/espw")
            await controllers.finished()


async def test_wildcards_of_controllers_mean_no_kinds_of_the_hub(shop: Shop) -> None:
    """The translator and the summarizer read any kind, because placements copy any kind but those of the hub."""
    patch, how = {"status": {"phase": "Initializing"}}, {"content_type": MERGE_PATCH}
    for user in (TRANSLATOR, SUMMARIZER):
        assert await shop.status(user, "GET", shop.shop, SECRETS) == 200
        for kind in ("workspaces", "workspacetypes"):
            assert await shop.status(user, "GET", shop.shop, f"{TENANCY}/{kind}") == 403, (user, kind)
        assert await shop.status(user, "GET", shop.shop, "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster") == 403
        at = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster/status"
        assert await shop.status(user, "PATCH", shop.shop, at, patch, **how) == 403
        at = f"{TENANCY}/workspaces/shop/status"
        assert await shop.status(user, "PATCH", "root", at, patch, **how) == 403
