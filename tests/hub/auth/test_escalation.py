"""Nobody can give what they do not have."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import rbac_twin as twin
from examples import examples
from hub_harness import LocalHub
from hypothesis import example, given, settings
from hypothesis import strategies as st

from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import User
from farflung.machinery.errors import Obj

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
CLUSTER_ROLES = f"{RBAC}/clusterroles"
CLUSTER_BINDINGS = f"{RBAC}/clusterrolebindings"


def rule(verbs: str, resources: str, group: str = "", *names: str) -> Obj:
    made: Obj = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return made | {"resourceNames": list(names)} if names else made


WRITER = rule("get create update patch", "roles rolebindings clusterroles clusterrolebindings", GROUP)


def reference(kind: str, name: str) -> Obj:
    return {"apiGroup": GROUP, "kind": kind, "name": name}


def binding(name: str, role: Obj, *users: str) -> Obj:
    subjects = [{"kind": "User", "name": user, "apiGroup": GROUP} for user in users]
    return {"metadata": {"name": name}, "roleRef": role, "subjects": subjects}


@pytest.fixture
async def ann_hub(hub: LocalHub) -> LocalHub:
    """Ann may write roles and bindings of one namespace, and read ConfigMaps there."""
    rules = [WRITER, rule("get list", "configmaps")]
    await hub.create(ROLES, {"metadata": {"name": "ann"}, "rules": rules})
    await hub.create(BINDINGS, binding("ann", reference("Role", "ann"), "ann"))
    return hub


def refused(resource: str, name: str, *lines: str) -> str:
    return (
        f'{resource}.{GROUP} "{name}" is forbidden: user "ann" (groups=["system:authenticated"]) is attempting to '
        "grant RBAC permissions not currently held:\n" + "\n".join(lines)
    )


async def test_a_role_may_hold_what_its_author_has_and_no_more(ann_hub: LocalHub) -> None:
    held = {"metadata": {"name": "held"}, "rules": [rule("get", "configmaps")]}
    more = {"metadata": {"name": "more"}, "rules": [rule("get delete", "configmaps secrets")]}

    assert (await ann_hub.post(ROLES, held, impersonate_user="ann")).status == 201
    answer = await ann_hub.post(ROLES, more, impersonate_user="ann")

    assert (answer.status, answer.message) == (
        403,
        refused(
            "roles",
            "more",
            '{APIGroups:[""], Resources:["configmaps"], Verbs:["delete"]}',
            '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "delete"]}',
        ),
    )


@pytest.mark.parametrize("media", ["application/merge-patch+json", "application/apply-patch+yaml"])
async def test_a_change_is_looked_at_like_a_creation(ann_hub: LocalHub, media: str) -> None:
    await ann_hub.create(ROLES, {"metadata": {"name": "r"}, "rules": [rule("get", "configmaps")]})
    wider: Obj = {"rules": [rule("*", "configmaps")]}
    if "apply" in media:
        wider |= {"apiVersion": f"{GROUP}/v1", "kind": "Role", "metadata": {"name": "r"}}
    query = {"fieldManager": "m", "force": "true"} if "apply" in media else {}

    with ann_hub.writes_nothing():
        answer = await ann_hub.patch(f"{ROLES}/r", wider, media, query, impersonate_user="ann")

    assert answer.message == refused("roles", "r", '{APIGroups:[""], Resources:["configmaps"], Verbs:["*"]}')


async def test_a_role_that_allows_more_cannot_even_be_labelled_but_can_be_let_go(ann_hub: LocalHub) -> None:
    role = {"metadata": {"name": "r", "finalizers": ["x.io/y"]}, "rules": [rule("*", "secrets")]}
    await ann_hub.create(ROLES, role)

    labelled = await ann_hub.patch(f"{ROLES}/r", {"metadata": {"labels": {"a": "b"}}}, impersonate_user="ann")
    released = await ann_hub.patch(f"{ROLES}/r", {"metadata": {"finalizers": None}}, impersonate_user="ann")

    assert (labelled.status, released.status) == (403, 200)


async def test_a_binding_needs_what_its_role_allows(ann_hub: LocalHub) -> None:
    await ann_hub.create(CLUSTER_ROLES, {"metadata": {"name": "reader"}, "rules": [rule("get", "configmaps")]})
    await ann_hub.create(CLUSTER_ROLES, {"metadata": {"name": "boss"}, "rules": [rule("*", "*")]})

    async def bind(name: str) -> Any:
        return await ann_hub.post(
            BINDINGS, binding(name, reference("ClusterRole", name), "eve"), impersonate_user="ann"
        )

    assert (await bind("reader")).status == 201
    answer = await bind("boss")
    assert answer.message == refused("rolebindings", "boss", '{APIGroups:[""], Resources:["*"], Verbs:["*"]}')
    absent = await bind("nope")
    assert (absent.status, absent.message) == (404, f'rolebindings.{GROUP} "nope" not found')


async def test_another_subject_is_given_the_whole_role(ann_hub: LocalHub) -> None:
    await ann_hub.create(ROLES, {"metadata": {"name": "r"}, "rules": [rule("get", "secrets")]})
    made = await ann_hub.create(BINDINGS, binding("b", reference("Role", "r"), "bob"))

    with ann_hub.writes_nothing():
        wider = binding("b", reference("Role", "r"), "bob", "ann") | {"metadata": made["metadata"]}
        answer = await ann_hub.put(f"{BINDINGS}/b", wider, impersonate_user="ann")

    assert answer.status == 403


@pytest.mark.parametrize(("verb", "resource"), [("escalate", "roles"), ("bind", "roles"), ("bind", "clusterroles")])
async def test_users_with_escalate_or_bind_may_grant_any_right(ann_hub: LocalHub, verb: str, resource: str) -> None:
    await ann_hub.create(ROLES, {"metadata": {"name": "free"}, "rules": [rule(verb, resource, GROUP)]})
    await ann_hub.create(BINDINGS, binding("free", reference("Role", "free"), "ann"))
    await ann_hub.create(ROLES, {"metadata": {"name": "boss"}, "rules": [rule("*", "*")]})
    await ann_hub.create(CLUSTER_ROLES, {"metadata": {"name": "boss"}, "rules": [rule("*", "*")]})

    async def status(path: str, obj: Obj) -> int:
        return (await ann_hub.post(path, obj, impersonate_user="ann")).status

    assert [
        await status(ROLES, {"metadata": {"name": "mine"}, "rules": [rule("*", "*")]}),
        await status(BINDINGS, binding("mine", reference("Role", "boss"), "eve")),
        await status(BINDINGS, binding("ours", reference("ClusterRole", "boss"), "eve")),
    ] == [
        201 if verb == "escalate" else 403,
        201 if (verb, resource) == ("bind", "roles") else 403,
        201 if (verb, resource) == ("bind", "clusterroles") else 403,
    ]


async def test_only_users_with_all_rights_may_create_aggregated_roles(hub: LocalHub) -> None:
    await hub.create(CLUSTER_ROLES, {"metadata": {"name": "w"}, "rules": [WRITER]})
    await hub.create(CLUSTER_BINDINGS, binding("w", reference("ClusterRole", "w"), "ann"))
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    aggregated = {"metadata": {"name": "agg"}, "aggregationRule": selectors, "rules": []}

    answer = await hub.post(CLUSTER_ROLES, aggregated, impersonate_user="ann")
    assert answer.message == (
        f'clusterroles.{GROUP} "agg" is forbidden: must have cluster-admin privileges to use the aggregationRule'
    )
    await hub.create(CLUSTER_ROLES, aggregated)
    plain = {"metadata": {"name": "agg"}, "rules": []}
    assert (await hub.put(f"{CLUSTER_ROLES}/agg", plain, impersonate_user="ann")).status == 403

    everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]
    await hub.create(CLUSTER_ROLES, {"metadata": {"name": "all"}, "rules": everything})
    await hub.create(CLUSTER_BINDINGS, binding("all", reference("ClusterRole", "all"), "ann"))
    assert (await hub.put(f"{CLUSTER_ROLES}/agg", plain, impersonate_user="ann")).status == 200


async def test_what_does_not_exist_is_not_made_by_a_change_without_the_right_to_create(hub: LocalHub) -> None:
    rules = [rule("update patch", "roles", GROUP), rule("patch", "configmaps")]
    await hub.create(ROLES, {"metadata": {"name": "r"}, "rules": rules})
    await hub.create(BINDINGS, binding("b", reference("Role", "r"), "ann"))
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}

    with hub.writes_nothing():
        applied = await hub.patch(
            "/api/v1/namespaces/default/configmaps/c",
            config_map,
            "application/apply-patch+yaml",
            {"fieldManager": "m"},
            impersonate_user="ann",
        )
        put = await hub.put(f"{ROLES}/new", {"metadata": {"name": "new"}, "rules": []}, impersonate_user="ann")

    assert (applied.status, applied.message) == (403, 'configmaps "c" is forbidden: ')
    assert put.status == 403


# --- a history of attempts ------------------------------------------------------------------------

NAMES = ["r", "s", "t"]
USERS = ["ann", "eve"]
EVERYBODY = [User(name, ("system:authenticated",)) for name in USERS]


def attempts() -> st.SearchStrategy[tuple[str, str, Obj]]:
    """(whose, where, what) they try to write."""
    kinds = st.sampled_from([ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS])
    return kinds.flatmap(lambda path: st.tuples(st.sampled_from(USERS), st.just(path), objects_of(path)))


def objects_of(path: str) -> st.SearchStrategy[Obj]:
    name = st.sampled_from(NAMES)
    if path in (ROLES, CLUSTER_ROLES):
        rules = st.one_of(twin.rules(namespaced=path == ROLES), st.just([WRITER]))
        return st.builds(lambda name, rules: {"metadata": {"name": name}, "rules": rules}, name, rules)
    kinds = st.sampled_from(["ClusterRole"] if path == CLUSTER_BINDINGS else ["ClusterRole", "Role"])
    return st.builds(
        lambda name, kind, role, users: binding(name, reference(kind, role), *users),
        name,
        kinds,
        name,
        st.lists(st.sampled_from(USERS), min_size=1, max_size=2, unique=True),
    )


QUESTIONS = [
    Attributes(verb, group, resource, subresource, namespace, name)
    for verb in (*twin.VERBS, "delete")
    for group in twin.GROUPS
    for resource in (*twin.RESOURCES, "nodes")
    for subresource in ("", *twin.SUBRESOURCES)
    for namespace in ("", "default", "elsewhere")
    for name in ("", *twin.NAMES)
] + [Attributes(verb, path=path) for verb in twin.VERBS for path in twin.PATHS]


@settings(max_examples=examples(25))
@given(
    st.lists(twin.rules(namespaced=False), min_size=2, max_size=2),
    st.lists(attempts(), max_size=15),
    st.booleans(),
)
@example(
    [[rule("*", "*", "*")], []],
    [
        (
            "ann",
            CLUSTER_ROLES,
            {"metadata": {"name": "s"}, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/apis"]}]},
        ),
        ("ann", CLUSTER_BINDINGS, binding("r", reference("ClusterRole", "s"), "ann")),
    ],
    True,
)
def test_whatever_they_write_together_nobody_has_what_none_of_them_had(
    given_rules: list[list[Obj]], history: list[tuple[str, str, Obj]], everywhere: bool
) -> None:
    """Except users with the verbs `escalate` or `bind`, as in Kubernetes: they may grant anything."""

    async def run() -> None:
        hub = await LocalHub.in_memory().furnish()
        path = CLUSTER_BINDINGS if everywhere else BINDINGS
        for user, rules in zip(USERS, given_rules, strict=True):
            await hub.create(CLUSTER_ROLES, {"metadata": {"name": f"of-{user}"}, "rules": [WRITER, *rules]})
            await hub.create(path, binding(f"of-{user}", reference("ClusterRole", f"of-{user}"), user))
        before, unlimited = rights(hub), may_grant_anything(hub)
        for user, where, obj in history:
            if (await hub.post(where, obj, impersonate_user=user)).status == 409:
                await hub.put(f"{where}/{obj['metadata']['name']}", obj, impersonate_user=user)
        assert unlimited or rights(hub) <= before

    asyncio.run(run())


def may_grant_anything(hub: LocalHub) -> bool:
    """Whether one of them may escalate or bind roles anywhere."""
    questions = [
        Attributes(verb, GROUP, resource, "", namespace)
        for verb in ("escalate", "bind")
        for resource, namespace in (("clusterroles", ""), ("clusterroles", "default"), ("roles", "default"))
    ]
    return any(hub.authorizer.decide("root", user, one).allowed for one in questions for user in EVERYBODY)


def rights(hub: LocalHub) -> set[Attributes]:
    """What anybody of them may do."""
    decide = hub.authorizer.decide
    return {one for one in QUESTIONS for user in EVERYBODY if decide("root", user, one).allowed}


@pytest.mark.parametrize(
    "nothing",
    [None, {}, rule("", "secrets"), {"verbs": ["*"]}, {"verbs": ["*"], "resources": ["*"]}, {"nonResourceURLs": ["*"]}],
)
async def test_a_rule_that_allows_nothing_is_invalid_and_no_escalation(ann_hub: LocalHub, nothing: Obj | None) -> None:
    answer = await ann_hub.post(ROLES, {"metadata": {"name": "r"}, "rules": [nothing]}, impersonate_user="ann")

    assert (answer.status, answer.reason) == (422, "Invalid")
