"""What an export lets its consumers do at most."""

from __future__ import annotations

import orjson
import pytest
from memory_store import MemoryStore

from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import ADMINISTRATORS, AUTHENTICATED, User
from farflung.hub.tenancy.api_exports import ExportKey
from farflung.hub.tenancy.workspace_authorizer import (
    OPERATORS,
    WorkspaceAuthorizer,
    bound_exports,
    has_permission_policy,
    prefixed_user,
)
from farflung.machinery.errors import ApiError, Obj
from farflung.store.base import ABSENT

RBAC = "rbac.authorization.k8s.io"
OPERATOR = User("kcp-admin", (OPERATORS, AUTHENTICATED))
MASTER = User("shard-admin", (ADMINISTRATORS, AUTHENTICATED))
READ_PODS: Obj = {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]}
DEPLOYMENTS: Obj = {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["deployments"]}
CREATE_POD = Attributes("create", "", "pods", "", "default")


async def put(store: MemoryStore, key: str, obj: Obj) -> None:
    present = store.get(key)
    await store.put(key, orjson.dumps({"metadata": {}} | obj), expect=present.revision if present else ABSENT)


@pytest.fixture
async def store() -> MemoryStore:
    """`compute` exports pods to be read and deployments to be written; `shop` has bound them."""
    store = MemoryStore()
    for cluster in ("root", "compute", "shop", "bare"):
        await put(store, f"/core.kcp.io/logicalclusters/{cluster}/cluster", {})
    await put(store, "/apis.kcp.io/apiexports/compute/kubernetes", export({"local": {}}))
    await put(store, "/apis.kcp.io/apibindings/shop/kubernetes", binding("compute", "kubernetes"))
    await put(store, f"/{RBAC}/clusterroles/compute/all", {"rules": [READ_PODS, DEPLOYMENTS]})
    subject = {"kind": "Group", "apiGroup": RBAC, "name": "apis.kcp.io:binding:system:authenticated"}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "all"}
    await put(store, f"/{RBAC}/clusterrolebindings/compute/all", {"roleRef": role, "subjects": [subject]})
    return store


def export(policy: Obj | None) -> Obj:
    return {
        "spec": {"latestResourceSchemas": ["v1.pods.core"]} | ({"maximalPermissionPolicy": policy} if policy else {})
    }


def binding(cluster: str, name: str) -> Obj:
    resources = [{"group": "", "resource": "pods"}, {"group": "apps", "resource": "deployments"}]
    return {
        "spec": {"reference": {"export": {"path": "root:compute", "name": name}}},
        "status": {"phase": "Bound", "apiExportClusterName": cluster, "boundResources": resources},
    }


@pytest.fixture
def authorizer(store: MemoryStore) -> WorkspaceAuthorizer:
    return WorkspaceAuthorizer(store)


def allows(
    authorizer: WorkspaceAuthorizer, attributes: Attributes, user: User = OPERATOR, cluster: str = "shop"
) -> bool:
    return authorizer.decide(cluster, user, attributes).allowed


async def test_the_policy_limits_administrators_too(authorizer: WorkspaceAuthorizer) -> None:
    assert not allows(authorizer, CREATE_POD)
    assert allows(authorizer, CREATE_POD._replace(verb="list"))
    assert allows(authorizer, Attributes("create", "apps", "deployments", "", "default"))
    assert not allows(authorizer, Attributes("patch", "apps", "deployments", "status", "default", "x"))
    assert allows(authorizer, CREATE_POD, MASTER)


async def test_the_policy_counts_where_the_api_is_bound(authorizer: WorkspaceAuthorizer) -> None:
    assert allows(authorizer, CREATE_POD, cluster="bare")
    assert allows(authorizer, Attributes("create", "", "configmaps", "", "default"))


async def test_the_policy_gives_no_rights_of_its_own(authorizer: WorkspaceAuthorizer) -> None:
    assert not allows(authorizer, CREATE_POD._replace(verb="list"), User("alice", (AUTHENTICATED,)))


async def test_roles_of_the_consumer_do_not_widen_the_policy(
    store: MemoryStore, authorizer: WorkspaceAuthorizer
) -> None:
    subject = {"kind": "User", "apiGroup": RBAC, "name": "apis.kcp.io:binding:kcp-admin"}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "everything"}
    everything = {"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}
    await put(store, f"/{RBAC}/clusterroles/shop/everything", everything)
    await put(store, f"/{RBAC}/clusterrolebindings/shop/x", {"roleRef": role, "subjects": [subject]})
    assert not allows(authorizer, CREATE_POD)
    await put(store, f"/{RBAC}/clusterroles/compute/everything", everything)
    await put(store, f"/{RBAC}/clusterrolebindings/compute/x", {"roleRef": role, "subjects": [subject]})
    assert allows(authorizer, CREATE_POD)


async def test_exports_and_bindings_are_followed(store: MemoryStore, authorizer: WorkspaceAuthorizer) -> None:
    assert not allows(authorizer, CREATE_POD)
    await put(store, "/apis.kcp.io/apiexports/compute/kubernetes", export(None))
    assert allows(authorizer, CREATE_POD)
    await put(store, "/apis.kcp.io/apiexports/compute/kubernetes", export({"local": {}}))
    assert not allows(authorizer, CREATE_POD)
    key = "/apis.kcp.io/apibindings/shop/kubernetes"
    entry = store.get(key)
    assert entry is not None
    await store.delete(key, expect=entry.revision)
    assert allows(authorizer, CREATE_POD)
    await put(store, key, binding("bare", "kubernetes"))
    assert allows(authorizer, CREATE_POD)  # another export of the same name, which has no policy


async def test_the_policy_counts_for_who_sees_the_api_through_an_export_that_claims_it(
    store: MemoryStore, authorizer: WorkspaceAuthorizer
) -> None:
    def sees(attributes: Attributes, user: User = OPERATOR) -> bool:
        try:
            authorizer.check_view(ExportKey("shop", "mine"), "*", user, attributes)
        except ApiError:
            return False
        return True

    key, home = "/apis.kcp.io/apiexports/shop/mine", "/apis.kcp.io/apiexports/compute/kubernetes"
    claim = {"resource": "pods", "identityHash": "abc", "all": True}
    await put(store, key, {"spec": {"permissionClaims": [claim]}})
    assert sees(CREATE_POD)  # of nobody's API that is known
    await put(store, home, export({"local": {}}) | {"status": {"identityHash": "abc"}})
    assert not sees(CREATE_POD)
    assert sees(CREATE_POD._replace(verb="list"))
    assert sees(CREATE_POD, MASTER)
    assert sees(Attributes("create", "", "configmaps", "", "default"))
    await put(store, home, export(None) | {"status": {"identityHash": "abc"}})
    assert sees(CREATE_POD)
    await put(store, home, export({"local": {}}) | {"status": {"identityHash": "abc"}})
    await put(store, key, {"spec": {"permissionClaims": [{"resource": "pods", "all": True}]}})
    assert sees(CREATE_POD)


def test_a_consumer_cannot_be_named_without_the_prefix() -> None:
    known = prefixed_user(User("ann", ("dev",)))
    assert (known.name, known.groups, known.cluster) == (
        "apis.kcp.io:binding:ann",
        ("apis.kcp.io:binding:dev",),
        "",
    )


@pytest.mark.parametrize(
    ("name", "scoped"),
    [
        ("ann", "system:kcp:user:shop:ann"),
        ("system:kcp:serviceaccount:box:farflung-syncer:one", "system:kcp:user:shop:system:kcp:serviceaccount:box:"),
        ("system:serviceaccount:farflung-syncer:one", "system:kcp:serviceaccount:shop:farflung-syncer:one"),
    ],
)
def test_users_whose_names_a_tenant_chooses_have_names_of_their_logical_cluster(name: str, scoped: str) -> None:
    groups = ("dev", "system:serviceaccounts:farflung-syncer", OPERATORS, AUTHENTICATED)
    known = prefixed_user(User(name, groups, cluster="shop"))
    assert known.name.startswith(f"apis.kcp.io:binding:{scoped}")
    assert known.groups == ("apis.kcp.io:binding:system:authenticated",)


@pytest.mark.parametrize("policy", [None, {}, {"local": None}])
def test_an_export_without_a_local_policy_limits_no_user(policy: Obj | None) -> None:
    assert not has_permission_policy({"spec": {"maximalPermissionPolicy": policy}})
    assert not has_permission_policy({})
    assert bound_exports({}) == {}
