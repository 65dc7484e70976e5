"""The index of roles and bindings against a twin that scans them all, whatever happened before."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import orjson
import pytest
import rbac_twin as twin
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore

from farflung.hub.auth.authorizer import LARGEST, Authorizer
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import ADMINISTRATORS, ANONYMOUS, User
from farflung.machinery.errors import ApiError, Obj
from farflung.machinery.turns import ALLOWANCE, TurnAllowance, TurnOver
from farflung.store.base import ABSENT

GROUP = "rbac.authorization.k8s.io"
ALL_ASKED = [
    Attributes(verb, group, resource, subresource, namespace, name)
    for verb in ("get", "create")
    for group in ("", "apps")
    for resource in ("pods", "secrets")
    for subresource in ("", "log")
    for namespace in ("", "one", "two")
    for name in ("", "a")
] + [Attributes("get", path=path) for path in twin.PATHS]


class Cluster:
    """Roles and bindings in a store, and the same beside it for the twin."""

    def __init__(self, store: MemoryStore, name: str = "root") -> None:
        self.store = store
        self.name = name
        self.objects: twin.Objects = {}

    async def put(self, plural: str, namespace: str, name: str, obj: Obj | None) -> None:
        key = "/" + "/".join(part for part in (GROUP, plural, self.name, namespace, name) if part)
        present = self.store.get(key)
        if obj is not None:
            self.objects[plural, namespace, name] = obj
            await self.store.put(key, orjson.dumps(obj), expect=present.revision if present else ABSENT)
        elif present is not None:
            del self.objects[plural, namespace, name]
            await self.store.delete(key, expect=present.revision)

    async def role(self, name: str, *rules: Obj, namespace: str = "") -> None:
        await self.put("roles" if namespace else "clusterroles", namespace, name, {"rules": list(rules)})

    async def bind(self, name: str, kind: str, role: str, *subjects: Obj, namespace: str = "") -> None:
        plural = "rolebindings" if namespace else "clusterrolebindings"
        binding = {"roleRef": {"kind": kind, "name": role}, "subjects": list(subjects)}
        await self.put(plural, namespace, name, binding)


def writes() -> st.SearchStrategy[tuple[str, str, str, Obj | None]]:
    def bindings(kinds: list[str]) -> st.SearchStrategy[Obj]:
        return st.builds(
            lambda kind, role, subjects: {"roleRef": {"kind": kind, "name": role}, "subjects": subjects},
            st.sampled_from(kinds),
            st.sampled_from(["r", "s"]),
            twin.subjects(),
        )

    def roles(*, namespaced: bool) -> st.SearchStrategy[Obj]:
        return st.builds(lambda rules: {"rules": rules}, twin.rules(namespaced=namespaced))

    def of(plural: str, homes: list[str], objects: st.SearchStrategy[Obj]) -> st.SearchStrategy[Any]:
        name = st.sampled_from(["r", "s"])
        return st.tuples(st.just(plural), st.sampled_from(homes), name, st.one_of(objects, objects, st.none()))

    return st.one_of(
        of("clusterroles", [""], roles(namespaced=False)),
        of("roles", twin.NAMESPACES, roles(namespaced=True)),
        of("clusterrolebindings", [""], bindings(["ClusterRole"])),
        of("rolebindings", twin.NAMESPACES, bindings(["ClusterRole", "Role"])),
    )


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(writes(), st.lists(twin.requests(), max_size=3)), max_size=20))
def test_the_index_decides_as_a_scan_of_everything_after_every_change(history: list[Any]) -> None:
    async def run() -> None:
        cluster = Cluster(MemoryStore())
        authorizer = Authorizer(cluster.store)
        for write, asked in history:
            await cluster.put(*write)
            for user in twin.USERS:
                for one in asked:
                    expected = twin.is_allowed(cluster.objects, user, one) or is_public(one)
                    assert authorizer.decide("root", user, one).allowed == expected, (user, one)
        anew = Authorizer(cluster.store)
        for user in twin.USERS:
            for one in ALL_ASKED:
                assert anew.decide("root", user, one) == authorizer.decide("root", user, one)
                assert not anew.decide("other", user, one).allowed or is_public(one)

    asyncio.run(run())


@settings(max_examples=examples(50))
@given(st.lists(writes(), max_size=12), st.lists(writes(), max_size=12), st.sampled_from(twin.USERS), twin.requests())
def test_roles_that_are_read_in_several_turns_decide_as_a_scan_also_if_they_change_between_the_turns(
    before: list[Any], during: list[Any], user: User, asked: Attributes
) -> None:
    async def run() -> None:
        cluster = Cluster(MemoryStore())
        for write in before:
            await cluster.put(*write)
        authorizer = Authorizer(cluster.store)
        changes = iter(during)
        while True:
            token = ALLOWANCE.set(TurnAllowance(work=3_000))
            try:
                decision = authorizer.decide("root", user, asked)
                break
            except TurnOver:
                pass
            finally:
                ALLOWANCE.reset(token)
            for write in islice(changes, 1):
                await cluster.put(*write)
        assert decision.allowed == (twin.is_allowed(cluster.objects, user, asked) or is_public(asked))
        for write in changes:
            await cluster.put(*write)
        for one in ALL_ASKED:
            expected = twin.is_allowed(cluster.objects, user, one) or is_public(one)
            assert authorizer.decide("root", user, one).allowed == expected

    asyncio.run(run())


def is_public(asked: Attributes) -> bool:
    return asked.path is not None and asked.path.startswith("/healthz")


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.booleans(), writes()), max_size=12), st.lists(twin.requests(), max_size=5))
def test_a_shared_cluster_counts_everywhere_with_what_is_not_of_a_namespace(
    history: list[Any], asked: list[Attributes]
) -> None:
    async def run() -> None:
        store = MemoryStore()
        shared, own = Cluster(store, "shared"), Cluster(store, "own")
        authorizer = Authorizer(store, shared="shared")
        for is_shared, write in history:
            await (shared if is_shared else own).put(*write)
            everywhere = {key: obj for key, obj in shared.objects.items() if key[0].startswith("cluster")}
            for user in twin.USERS:
                for one in asked:
                    theirs = twin.is_allowed(everywhere, user, one)
                    roles = {key: obj for key, obj in everywhere.items() if key[0] == "clusterroles"}
                    ours = twin.is_allowed(roles | own.objects, user, one)
                    expected = theirs or ours or is_public(one)
                    assert authorizer.decide("own", user, one).allowed == expected

    asyncio.run(run())


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(MemoryStore())


def rule(verbs: str, resources: str, *names: str) -> Obj:
    made: Obj = {"verbs": verbs.split(), "apiGroups": [""], "resources": resources.split()}
    return made | {"resourceNames": list(names)} if names else made


def user_subject(name: str) -> Obj:
    return {"kind": "User", "name": name}


ANN = User("ann", ("devs",))


async def test_a_decision_names_the_binding_the_role_and_the_subject(cluster: Cluster) -> None:
    authorizer = Authorizer(cluster.store)
    await cluster.role("r", rule("get", "pods"), namespace="one")
    await cluster.role("all", rule("list", "pods"))
    bot: Obj = {"kind": "ServiceAccount", "name": "bot"}
    await cluster.bind("b", "Role", "r", user_subject("eve"), bot, namespace="one")
    await cluster.bind("c", "ClusterRole", "all", {"kind": "Group", "name": "devs"})

    account = User("system:serviceaccount:one:bot")
    by_role = authorizer.decide("root", account, Attributes("get", "", "pods", "", "one", "x"))
    by_group = authorizer.decide("root", ANN, Attributes("list", "", "pods"))

    assert by_role.reason == 'RBAC: allowed by RoleBinding "b/one" of Role "r" to ServiceAccount "bot/one"'
    assert by_group.reason == 'RBAC: allowed by ClusterRoleBinding "c" of ClusterRole "all" to Group "devs"'


async def test_roles_that_are_not_there_are_named_once_and_forbid_nothing(cluster: Cluster) -> None:
    authorizer = Authorizer(cluster.store)
    asked = Attributes("get", "", "pods", "", "one")
    await cluster.bind("a", "ClusterRole", "gone", user_subject("ann"))
    await cluster.bind("b", "ClusterRole", "gone", user_subject("ann"))
    missing = f'clusterrole.{GROUP} "gone" not found'
    assert authorizer.decide("root", ANN, asked) == (False, f"RBAC: {missing}")

    await cluster.bind("c", "Role", "lost", user_subject("ann"), namespace="one")
    assert authorizer.decide("root", ANN, asked) == (False, f'RBAC: [{missing}, role.{GROUP} "lost" not found]')
    with pytest.raises(ApiError) as refused:
        authorizer.check("root", ANN, Attributes("get", "", "pods", "", "two", "x"))
    assert refused.value.message == (
        'pods "x" is forbidden: User "ann" cannot get resource "pods" in API group "" in the namespace "two": '
        f"RBAC: {missing}"
    )

    await cluster.role("lost", rule("get", "pods"), namespace="one")
    assert authorizer.decide("root", ANN, asked).allowed


async def test_a_name_opens_one_object_and_no_list(cluster: Cluster) -> None:
    authorizer = Authorizer(cluster.store)
    await cluster.role("r", rule("*", "pods", "a", "b"))
    await cluster.bind("b", "ClusterRole", "r", user_subject("ann"))

    allowed = [
        (verb, name)
        for verb, name in (("get", "a"), ("get", "b"), ("get", "c"), ("list", ""), ("list", "a"), ("create", ""))
        if authorizer.decide("root", ANN, Attributes(verb, "", "pods", "", "one", name)).allowed
    ]

    assert allowed == [("get", "a"), ("get", "b"), ("list", "a")]


@pytest.mark.parametrize("path", ["/healthz", "/livez/ping", "/readyz", "/version", "/version/"])
async def test_anybody_may_see_health_and_version_without_a_role(cluster: Cluster, path: str) -> None:
    assert Authorizer(cluster.store).decide("root", ANONYMOUS, Attributes("get", path=path)).allowed


async def test_administrators_need_no_role_and_others_do(cluster: Cluster) -> None:
    authorizer = Authorizer(cluster.store)
    everything = Attributes("*", "*", "*")

    assert authorizer.decide("anywhere", User("root", (ADMINISTRATORS,)), everything).allowed
    assert not authorizer.decide("root", User(ADMINISTRATORS), everything).allowed


async def test_a_user_of_one_cluster_has_no_rights_in_another(cluster: Cluster) -> None:
    other = Cluster(cluster.store, "other")
    authorizer = Authorizer(cluster.store)
    for one in (cluster, other):
        await one.role("r", rule("get", "pods"))
        await one.bind("b", "ClusterRole", "r", {"kind": "Group", "name": "system:authenticated"})
    here = User("system:serviceaccount:one:bot", ("system:authenticated",), cluster="root")
    asked = Attributes("get", "", "pods")

    assert authorizer.decide("root", here, asked).allowed
    assert not authorizer.decide("other", here, asked).allowed
    assert authorizer.rules_of("other", here, "one") == ([], [])
    assert not authorizer.decide("other", User("boss", (ADMINISTRATORS,), cluster="root"), asked).allowed


@pytest.mark.parametrize("name", ["", "/", "a/b", "root/one", "a/b/c", "*", "ü", "x" * 10_000])
async def test_names_that_are_no_clusters_have_no_roles_and_leave_nothing_behind(cluster: Cluster, name: str) -> None:
    authorizer = Authorizer(cluster.store)
    await cluster.role("r", rule("*", "*"), namespace="one")
    await cluster.bind("b", "Role", "r", user_subject("ann"), namespace="one")

    assert not authorizer.decide(name, ANN, Attributes("get", "", "pods", "", "one")).allowed
    assert not authorizer.decide(name, ANN, Attributes("get", path="/apis")).allowed


async def test_a_cluster_that_was_forgotten_is_read_again(cluster: Cluster) -> None:
    authorizer = Authorizer(cluster.store)
    asked = Attributes("get", "", "pods")
    assert not authorizer.decide("root", ANN, asked).allowed

    authorizer.forget("root")
    await cluster.role("r", rule("get", "pods"))
    await cluster.bind("b", "ClusterRole", "r", user_subject("ann"))

    assert authorizer.decide("root", ANN, asked).allowed


@pytest.mark.parametrize("part", ["verb", "group", "resource", "subresource", "namespace"])
async def test_long_questions_are_answered_and_not_remembered(cluster: Cluster, part: str) -> None:
    authorizer = Authorizer(cluster.store)
    await cluster.role("r", {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
    await cluster.bind("b", "ClusterRole", "r", user_subject("ann"))
    asked = Attributes("get", "", "pods")._replace(**{part: "x" * LARGEST})

    assert authorizer.decide("root", ANN, asked).allowed
    assert not authorizer.decide("root", User("eve", ("g" * LARGEST,)), Attributes("get", "", "pods")).allowed
    assert not authorizer._grants


async def test_the_cache_of_grants_is_bounded_for_any_requests(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farflung.hub.auth.authorizer.CACHED_BYTES", 100_000)
    authorizer = Authorizer(cluster.store)
    for number in range(200):
        asked = Attributes("get", "", "pods", "", "n" * 10_000 + str(number))
        assert not authorizer.decide("root", ANN, asked).allowed
        assert len(authorizer._grants) < 10
        assert authorizer.decide("root", ANN, asked) == authorizer.decide("root", ANN, asked)


async def test_a_role_that_is_bound_many_times_is_looked_at_once(cluster: Cluster) -> None:
    authorizer = Authorizer(cluster.store)
    named = [rule("get", "pods", str(number)) for number in range(100)]
    await cluster.role("r", *named)
    for number in range(100):
        await cluster.bind(f"b{number:02}", "ClusterRole", "r", user_subject("ann"), namespace="one")
    await cluster.bind("b", "ClusterRole", "r", user_subject("ann"))

    decision = authorizer.decide("root", ANN, Attributes("get", "", "pods", "", "one", "99"))

    assert decision.reason == 'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "ann"'
    (grant,) = authorizer._grants.values()
    assert len(grant.named) == len(named)
    rules, errors = authorizer.rules_of("root", ANN, "one")
    assert (len(rules), errors) == (len(named), [])
