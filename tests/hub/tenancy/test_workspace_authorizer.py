"""Who may enter a workspace and do what, and what those hear who may not."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_store import MemoryStore

from farflung.apis.kcp.names import SHARED_CLUSTER
from farflung.hub.auth.impersonation import impersonated_user
from farflung.hub.request.attributes import Attributes, of_target
from farflung.hub.request.target import Target
from farflung.hub.request.user import ADMINISTRATORS, ANONYMOUS, AUTHENTICATED, User
from farflung.hub.tenancy.api_exports import ExportKey
from farflung.hub.tenancy.workspace_authorizer import (
    ACCESS,
    DECISIONS,
    LONGEST_KEY,
    NO_CLUSTER,
    OPERATORS,
    ROOT,
    WILDCARD,
    WorkspaceAuthorizer,
    check_wildcard_verb,
    default_cluster,
    has_required_groups,
)
from farflung.machinery.errors import ApiError, Obj
from farflung.store.base import ABSENT

RBAC = "rbac.authorization.k8s.io"
MASTER = User("shard-admin", (ADMINISTRATORS, AUTHENTICATED))
OPERATOR = User("kcp-admin", (OPERATORS, AUTHENTICATED))
ALICE = User("alice", (AUTHENTICATED,))
ACCOUNT_GROUPS = ("system:serviceaccounts", "system:serviceaccounts:default", AUTHENTICATED)
ROBOT = User("system:serviceaccount:default:robot", ACCOUNT_GROUPS, cluster="one")
LIST = Attributes("list", "", "configmaps")
CREATE = Attributes("create", "", "configmaps", "", "default")
EVERYTHING: Obj = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
EVERY_PATH: Obj = {"verbs": ["*"], "nonResourceURLs": ["*"]}
ENTER: Obj = {"verbs": ["access"], "nonResourceURLs": ["/"]}


class World:
    """Workspaces, their roles, and what is bound in them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.authorizer = WorkspaceAuthorizer(self.store)

    async def put(self, key: str, obj: Obj) -> None:
        present = self.store.get(key)
        expect = present.revision if present is not None else ABSENT
        await self.store.put(key, orjson.dumps({"metadata": {}} | obj), expect=expect)

    async def workspace(self, name: str, groups: str = "") -> None:
        annotations = {"authorization.kcp.io/required-groups": groups} if groups else {}
        await self.put(f"/core.kcp.io/logicalclusters/{name}/cluster", {"metadata": {"annotations": annotations}})

    async def role(self, cluster: str, subject: str, *rules: Obj, kind: str = "User") -> None:
        name = f"{kind}-{subject}".lower()
        await self.put(f"/{RBAC}/clusterroles/{cluster}/{name}", {"rules": [*rules]})
        binding = {
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": kind, "apiGroup": RBAC, "name": subject}],
        }
        await self.put(f"/{RBAC}/clusterrolebindings/{cluster}/{name}", binding)

    def allows(self, cluster: str, user: User, attributes: Attributes = LIST) -> bool:
        return self.authorizer.decide(cluster, user, attributes).allowed

    def refusal(self, cluster: str, user: User, attributes: Attributes = LIST) -> Obj:
        with pytest.raises(ApiError) as raised:
            self.authorizer.check(cluster, user, attributes)
        return raised.value.status()


@pytest.fixture
async def world() -> World:
    world = World()
    await world.workspace("root")
    await world.workspace("one")
    await world.workspace("two")
    return world


# --- cached decisions -----------------------------------------------------------------------------


async def test_a_decision_about_a_collection_follows_every_object_that_it_depends_on(world: World) -> None:
    """Each step asks twice: the second decision may be a cached one."""

    def both(cluster: str, user: User, attributes: Attributes = LIST) -> bool:
        first = world.allows(cluster, user, attributes)
        assert world.allows(cluster, user, attributes) == first
        return first

    async def delete(key: str) -> None:
        entry = world.store.get(key)
        assert entry is not None
        await world.store.delete(key, expect=entry.revision)

    one = "/core.kcp.io/logicalclusters/one/cluster"
    await world.role("one", "alice", EVERYTHING, ENTER)
    assert both("one", ALICE)
    await world.workspace("one", groups="admins")
    assert not both("one", ALICE)
    assert both("one", User("alice", (AUTHENTICATED, "admins")))
    await world.workspace("one")
    assert both("one", ALICE)

    await delete(f"/{RBAC}/clusterrolebindings/one/user-alice")
    assert not both("one", ALICE)
    await world.role(SHARED_CLUSTER, "alice", EVERYTHING, ENTER)
    assert both("one", ALICE)
    await delete(f"/{RBAC}/clusterroles/{SHARED_CLUSTER}/user-alice")
    assert not both("one", ALICE)

    namespaced = {"verbs": ["create"], "apiGroups": [""], "resources": ["configmaps"]}
    await world.role("one", "alice", ENTER)
    assert not both("one", ALICE, CREATE)
    await world.put(f"/{RBAC}/roles/one/default/writer", {"rules": [namespaced]})
    subject = {"kind": "User", "apiGroup": RBAC, "name": "alice"}
    binding = {"roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "writer"}, "subjects": [subject]}
    await world.put(f"/{RBAC}/rolebindings/one/default/writer", binding)
    assert both("one", ALICE, CREATE)
    assert not both("one", ALICE, CREATE._replace(namespace="other"))
    assert not both("two", ALICE, CREATE)
    await delete(f"/{RBAC}/roles/one/default/writer")
    assert not both("one", ALICE, CREATE)

    await world.role("one", "alice", EVERYTHING, ENTER)
    assert both("one", ALICE)
    assert both("one", MASTER, CREATE)
    await delete(one)
    assert not both("one", ALICE)
    assert not both("one", MASTER, CREATE)
    for prefix in ("clusterroles", "clusterrolebindings"):
        await delete(f"/{RBAC}/{prefix}/one/user-alice")
    await world.workspace("one")  # another workspace with this cluster
    assert both("one", MASTER, CREATE)
    assert not both("one", ALICE)


async def test_a_cached_decision_is_not_used_for_other_users_who_look_alike(world: World) -> None:
    await world.role("one", ROBOT.name, EVERYTHING, ENTER)
    assert world.allows("one", ROBOT)
    assert not world.allows("one", User(ROBOT.name, ROBOT.groups, cluster="two"))
    assert world.allows("one", OPERATOR)
    assert not world.allows("one", User(OPERATOR.name, OPERATOR.groups, cluster="two"))
    assert not world.allows("one", User(OPERATOR.name, OPERATOR.groups, cluster="one"))


async def test_cached_decisions_are_limited_in_number_and_size_for_any_requests(world: World) -> None:
    """Reviews of access contain any user and attributes, of any length."""
    await world.role("one", "alice", EVERYTHING, ENTER)
    await world.role("one", "crowd", EVERYTHING, ENTER, kind="Group")
    authorizer = world.authorizer
    for part in ("verb", "group", "resource", "subresource", "namespace"):
        assert world.allows("one", ALICE, LIST._replace(**{part: "x" * LONGEST_KEY}))
    for user in (User("x" * LONGEST_KEY, ("crowd",)), User("x", ("crowd", *[""] * LONGEST_KEY))):
        assert world.allows("one", user)
        assert not world.allows("two", user)
    assert not authorizer._granted
    assert len(authorizer._entering) == 1
    for number in range(DECISIONS + 10):
        assert world.allows("one", ALICE, LIST._replace(namespace=str(number)))
    assert 0 < len(authorizer._granted) <= DECISIONS
    known = set(authorizer._granted)
    for number in range(2 * DECISIONS):
        assert not world.allows("two", ALICE, LIST._replace(namespace=str(number)))
    assert authorizer._granted == known


# --- entering -------------------------------------------------------------------------------------


async def test_an_ordinary_user_needs_access_to_a_workspace_besides_a_role_in_it(world: World) -> None:
    await world.role("one", "alice", EVERYTHING)
    assert not world.allows("one", ALICE)
    await world.role("one", "alice", EVERYTHING, ENTER)
    assert world.allows("one", ALICE)
    assert not world.allows("two", ALICE)


async def test_access_without_a_role_lets_in_and_no_more(world: World) -> None:
    await world.role("one", "alice", ENTER)
    assert world.allows("one", ALICE, ACCESS)
    assert not world.allows("one", ALICE, LIST)


async def test_taking_access_away_counts_at_once(world: World) -> None:
    await world.role("one", "alice", EVERYTHING, ENTER)
    assert world.allows("one", ALICE)
    await world.role("one", "alice", EVERYTHING)
    assert not world.allows("one", ALICE)


async def test_only_authenticated_users_may_enter_root(world: World) -> None:
    await world.role("root", AUTHENTICATED, EVERYTHING, kind="Group")
    await world.role("root", "system:unauthenticated", EVERYTHING, EVERY_PATH, kind="Group")
    assert world.allows("root", ALICE)
    assert not world.allows("root", ANONYMOUS)
    assert not world.allows("root", ROBOT)


async def test_the_shared_roles_count_in_every_workspace_that_one_may_enter(world: World) -> None:
    discovery = Attributes("get", path="/apis")
    await world.role(SHARED_CLUSTER, AUTHENTICATED, {"verbs": ["get"], "nonResourceURLs": ["/apis"]}, kind="Group")
    assert not world.allows("one", ALICE, discovery)
    await world.role("one", "alice", ENTER)
    assert world.allows("one", ALICE, discovery)
    assert not world.allows(SHARED_CLUSTER, ALICE, discovery)


async def test_operators_do_everything_in_every_workspace_and_nothing_across_them(world: World) -> None:
    assert all(world.allows(cluster, OPERATOR, CREATE) for cluster in ("root", "one", "two"))
    assert not world.allows(WILDCARD, OPERATOR)
    assert not world.allows(SHARED_CLUSTER, OPERATOR)
    assert not world.allows("nosuch", OPERATOR)
    assert not world.allows(NO_CLUSTER, OPERATOR)


async def test_administrators_pass_everywhere_but_make_nothing_where_there_is_no_workspace(world: World) -> None:
    assert all(world.allows(cluster, MASTER) for cluster in ("root", "one", WILDCARD, SHARED_CLUSTER, "nosuch"))
    assert world.allows("one", MASTER, CREATE)
    assert not world.allows("nosuch", MASTER, CREATE)
    assert not world.allows(NO_CLUSTER, MASTER)


async def test_a_deleted_workspace_admits_no_user(world: World) -> None:
    await world.role("one", "alice", EVERYTHING, ENTER)
    key = "/core.kcp.io/logicalclusters/one/cluster"
    entry = world.store.get(key)
    assert entry is not None
    await world.store.delete(key, expect=entry.revision)
    assert not world.allows("one", ALICE)
    assert not world.allows("one", OPERATOR)
    assert not world.allows("one", ROBOT)


@pytest.mark.parametrize("cluster", ["root", "one", "nosuch", WILDCARD, NO_CLUSTER, SHARED_CLUSTER])
async def test_health_is_for_everybody_everywhere(world: World, cluster: str) -> None:
    for path in ("/healthz", "/readyz", "/livez", "/livez/ping"):
        assert world.allows(cluster, ANONYMOUS, Attributes("get", path=path))
    assert not world.allows(cluster, ANONYMOUS, Attributes("get", path="/version"))


async def test_metrics_tell_of_the_whole_hub_and_are_not_for_the_owner_of_a_workspace(world: World) -> None:
    await world.role("one", "alice", EVERYTHING, EVERY_PATH)
    metrics = Attributes("get", path="/metrics")
    assert not world.allows("one", ALICE, metrics)
    assert world.allows("one", OPERATOR, metrics)
    assert world.allows("one", ALICE, Attributes("get", path="/apis"))


async def test_a_workspace_may_ask_for_groups_of_those_who_are_no_operators(world: World) -> None:
    await world.workspace("one", "staff,berlin;auditors")
    await world.role("one", AUTHENTICATED, EVERYTHING, ENTER, kind="Group")
    assert not world.allows("one", ALICE)
    assert not world.allows("one", User("alice", ("staff", AUTHENTICATED)))
    assert world.allows("one", User("alice", ("berlin", "staff", AUTHENTICATED)))
    assert world.allows("one", User("alice", ("auditors", AUTHENTICATED)))
    assert world.allows("one", OPERATOR)
    await world.workspace("one")
    assert world.allows("one", ALICE)


def test_groups_are_asked_for_as_alternatives_of_sets() -> None:
    assert has_required_groups("", ())
    assert has_required_groups("a, b", ("b", "a"))
    assert not has_required_groups("a,b", ("a",))
    assert has_required_groups("a,b;c", ("c",))
    assert not has_required_groups(";", ("a",))


async def test_rules_are_listed_for_users_with_access_to_the_workspace(world: World) -> None:
    await world.role("one", "alice", EVERYTHING)
    assert world.authorizer.rules_of("one", ALICE, "default") == ([], [])
    await world.role("one", "alice", EVERYTHING, ENTER)
    assert len(world.authorizer.rules_of("one", ALICE, "default")[0]) == 2
    assert world.authorizer.rules_of("two", OPERATOR, "")[0][0].as_resource_rule() == EVERYTHING


# --- ServiceAccounts and others who are somebody in one workspace alone ---------------------------


async def test_a_service_account_is_known_in_its_own_workspace_alone(world: World) -> None:
    for cluster in ("one", "two", "root"):
        await world.role(cluster, ROBOT.name, EVERYTHING, EVERY_PATH)
    assert world.allows("one", ROBOT)
    assert not any(
        world.allows(cluster, ROBOT) for cluster in ("two", "root", WILDCARD, NO_CLUSTER, SHARED_CLUSTER, "nosuch")
    )


async def test_a_service_account_needs_no_access_to_its_own_workspace(world: World) -> None:
    await world.role("one", ROBOT.name, {"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]})
    assert world.allows("one", ROBOT, LIST)
    assert not world.allows("one", ROBOT, CREATE)


def test_a_request_without_a_cluster_is_routed_to_the_users_default_cluster() -> None:
    assert default_cluster(ROBOT) == "one"
    assert default_cluster(MASTER) == ROOT
    assert default_cluster(OPERATOR) == NO_CLUSTER
    assert default_cluster(ALICE) == NO_CLUSTER
    assert default_cluster(User("x", (ADMINISTRATORS,), cluster="one")) == "one"


async def test_a_name_like_a_service_account_is_none_without_its_cluster(world: World) -> None:
    impostor = User(ROBOT.name, ACCOUNT_GROUPS)
    await world.role("one", ROBOT.name, EVERYTHING)
    assert not world.allows("one", impostor)


@pytest.mark.parametrize("group", [ADMINISTRATORS, OPERATORS])
async def test_a_certificate_of_a_workspace_gives_no_rights_of_the_groups_that_rule_everywhere(
    world: World, group: str
) -> None:
    """Whoever signs certificates in a workspace could write any group into them."""
    mallory = User("mallory", (group, AUTHENTICATED), cluster="one")
    assert not world.allows("one", mallory)
    assert not world.allows("two", mallory)
    assert not world.allows(WILDCARD, mallory)
    await world.role("one", "mallory", EVERYTHING, EVERY_PATH)
    assert world.allows("one", mallory)
    assert not world.allows("one", mallory, Attributes("patch", "apis.kcp.io", "apibindings", "status", "", "b"))


# --- impersonation --------------------------------------------------------------------------------


async def test_the_owner_of_a_workspace_is_whomever_they_like_in_it_and_nowhere_else(world: World) -> None:
    await world.role("one", "alice", EVERYTHING, EVERY_PATH)
    await world.role("two", "bob", EVERYTHING, EVERY_PATH)
    bob = impersonated_user(ALICE, {"impersonate-user": "bob"}, world.authorizer, "one")
    assert not world.allows("two", bob)


@pytest.mark.parametrize("group", [ADMINISTRATORS, OPERATORS])
async def test_impersonating_administrators_of_everything_gives_an_owner_nothing(world: World, group: str) -> None:
    await world.role("one", "alice", EVERYTHING, EVERY_PATH)
    headers = {"impersonate-user": "x", "impersonate-group": f"{group}\n{AUTHENTICATED}"}
    somebody = impersonated_user(ALICE, headers, world.authorizer, "one")
    assert not any(world.allows(cluster, somebody) for cluster in ("one", "two", "root", WILDCARD))
    operator = impersonated_user(OPERATOR, headers, world.authorizer, "one")
    assert not world.allows("one", operator, Attributes("update", "apis.kcp.io", "apiexports", "status", "", "e"))
    assert not world.allows("two", operator)


@pytest.mark.parametrize("cluster", ["two", "nosuch", WILDCARD, NO_CLUSTER])
async def test_impersonation_requires_access_to_the_workspace(world: World, cluster: str) -> None:
    with pytest.raises(ApiError, match="access denied") as raised:
        impersonated_user(ALICE, {"impersonate-user": "bob"}, world.authorizer, cluster)
    assert raised.value.code == 403


async def test_an_operator_who_is_taken_for_an_ordinary_user_may_do_what_that_one_may(world: World) -> None:
    alice = impersonated_user(OPERATOR, {"impersonate-user": "alice"}, world.authorizer, "one")
    assert not world.allows("one", alice)
    await world.role("one", "alice", EVERYTHING, ENTER)
    assert world.allows("one", alice)


# --- what is reserved -----------------------------------------------------------------------------


@pytest.mark.parametrize("resource", ["apiexports", "apibindings"])
@pytest.mark.parametrize("verb", ["update", "patch"])
async def test_only_the_system_binds_claims_to_data(world: World, resource: str, verb: str) -> None:
    status = Attributes(verb, "apis.kcp.io", resource, "status", "", "x")
    await world.role("one", "alice", EVERYTHING, EVERY_PATH)
    assert not world.allows("one", OPERATOR, status)
    assert not world.allows("one", ALICE, status)
    assert world.allows("one", MASTER, status)
    assert world.allows("one", OPERATOR, status._replace(verb="get"))
    assert world.allows("one", OPERATOR, status._replace(subresource=""))


# --- views and the wildcard -----------------------------------------------------------------------


async def test_a_view_is_for_those_who_may_do_so_with_the_content_of_its_export(world: World) -> None:
    rule = {"verbs": ["list"], "apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"]}
    await world.role("one", "alice", rule | {"resourceNames": ["widgets"]}, ENTER)
    widgets = Attributes("list", "ex.test", "widgets")
    for cluster in ("one", "two"):
        await world.put(f"/apis.kcp.io/apiexports/{cluster}/widgets", {})
    world.authorizer.check_view(ExportKey("one", "widgets"), "*", ALICE, widgets)
    world.authorizer.check_view(ExportKey("one", "widgets"), "*", OPERATOR, widgets)
    for cluster, export, asked in (
        ("one", "gadgets", widgets),
        ("two", "widgets", widgets),
        ("nosuch", "widgets", widgets),
        ("one", "widgets", widgets._replace(verb="delete")),
    ):
        with pytest.raises(ApiError, match="access denied") as raised:
            world.authorizer.check_view(ExportKey(cluster, export), "*", ALICE, asked)
        assert raised.value.code == 403


async def test_the_view_of_a_missing_export_is_refused(world: World) -> None:
    await world.role("one", "alice", EVERYTHING, EVERY_PATH)
    for user in (ALICE, OPERATOR, MASTER):
        with pytest.raises(ApiError, match="access denied"):
            world.authorizer.check_view(ExportKey("one", "nosuch"), "*", user, Attributes("list", "", "secrets"))


@pytest.mark.parametrize("verb", ["get", "create", "update", "patch", "delete", "deletecollection"])
def test_the_wildcard_is_for_lists_and_watches(verb: str) -> None:
    with pytest.raises(ApiError) as raised:
        check_wildcard_verb(Attributes(verb, "tenancy.kcp.io", "workspaces", name="x"))
    status = raised.value.status()
    assert status["message"] == (
        f'{verb} is not supported on resources of kind "workspaces.tenancy.kcp.io" in the `*` logical cluster'
    )
    assert (status["code"], status["reason"]) == (405, "MethodNotAllowed")
    assert status["details"] == {"group": "tenancy.kcp.io", "kind": "workspaces"}


def test_lists_watches_and_documents_pass_the_wildcard() -> None:
    check_wildcard_verb(Attributes("list", "", "namespaces"))
    check_wildcard_verb(Attributes("watch", "", "namespaces"))
    check_wildcard_verb(Attributes("get", path="/apis"))


# --- nothing leaks --------------------------------------------------------------------------------


async def test_a_refusal_tells_nothing_of_what_there_is(world: World) -> None:
    """Not there, not allowed in, let in without a role, and a role that is missing: all the same."""
    await world.workspace("three")
    await world.role("two", "alice", ENTER)
    missing = {
        "roleRef": {"kind": "ClusterRole", "name": "secret-name"},
        "subjects": [{"kind": "User", "name": "alice"}],
    }
    await world.put(f"/{RBAC}/clusterrolebindings/three/x", missing)
    refusals = [world.refusal(cluster, ALICE) for cluster in ("one", "two", "three", "nosuch", NO_CLUSTER, WILDCARD)]
    assert all(refusal == refusals[0] for refusal in refusals)
    assert refusals[0]["message"] == (
        'configmaps is forbidden: User "alice" cannot list resource "configmaps" in API group "" at the cluster scope: '
        "access denied"
    )


def test_a_refused_path_is_reported_without_its_cluster() -> None:
    with pytest.raises(ApiError, match=r'^forbidden: User "alice" cannot get path "/apis": access denied$'):
        World().authorizer.check("nosuch", ALICE, Attributes("get", path="/apis"))


HOSTILE = st.sampled_from(
    [
        "",
        "*",
        "/",
        "..",
        "../one",
        "one/..",
        "one/default",
        "ONE",
        "One",
        "%2A",
        "one%2Ftwo",
        "system:admin",
        "one:",
        ":one",
    ]
)
CLUSTERS = st.sampled_from(["root", "one", "two"]) | HOSTILE | st.text(max_size=12)
GROUPS = st.lists(st.sampled_from([AUTHENTICATED, ADMINISTRATORS, OPERATORS, "system:serviceaccounts", "staff"]))
TARGETS = st.builds(
    Target,
    st.just("x"),
    st.sampled_from(["", "apps", "apis.kcp.io", "core.kcp.io"]),
    st.just("v1"),
    st.sampled_from(["secrets", "apibindings", "logicalclusters", "clusterroles"]),
    st.sampled_from(["", "default", ".."]),
    st.sampled_from(["", "x", "*"]),
)
ASKED = st.builds(
    of_target, st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]), TARGETS, st.just("")
)


@given(cluster=CLUSTERS, groups=GROUPS, home=st.sampled_from(["one", "two"]), asked=ASKED)
async def test_a_member_of_a_workspace_gets_nothing_from_other_workspaces_in_any_spelling(
    cluster: str, groups: list[str], home: str, asked: Attributes
) -> None:
    world = World()
    for name in ("root", "one", "two"):
        await world.workspace(name)
        await world.role(name, "mallory", EVERYTHING, EVERY_PATH)
    assert world.allows(cluster, User("mallory", tuple(groups), cluster=home), asked) <= (cluster == home)


@given(cluster=HOSTILE | st.text(max_size=12), groups=GROUPS, asked=ASKED)
async def test_what_is_no_workspace_is_for_administrators_alone(
    cluster: str, groups: list[str], asked: Attributes
) -> None:
    world = World()
    await world.workspace("one")
    await world.role("one", "mallory", EVERYTHING, EVERY_PATH)
    if cluster not in ("one", "root"):
        assert world.allows(cluster, User("mallory", tuple(groups)), asked) <= (ADMINISTRATORS in groups)
