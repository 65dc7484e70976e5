"""Being somebody else: each part of it is for RBAC to allow."""

from __future__ import annotations

import pytest
from hub_harness import USER_TOKEN, LocalHub

from farflung.hub.auth.impersonation import effective_groups
from farflung.machinery.errors import Obj

RBAC = "/apis/rbac.authorization.k8s.io/v1"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
GROUP = "authentication.k8s.io"


def may(resource: str, *names: str, group: str = "") -> Obj:
    rule: Obj = {"verbs": ["impersonate"], "apiGroups": [group], "resources": [resource]}
    return rule | {"resourceNames": list(names)} if names else rule


async def allow(hub: LocalHub, *rules: Obj) -> None:
    """Let somebody be somebody else, and everybody ask who they are."""
    await hub.furnish_roles()
    await hub.create(f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": list(rules)})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}
    subjects = [{"kind": "User", "name": "somebody"}]
    await hub.create(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": "r"}, "roleRef": reference, "subjects": subjects}
    )
    hub.token = USER_TOKEN


@pytest.mark.parametrize(
    ("rules", "headers", "refused"),
    [
        ([may("users", "jane")], {"user": "jane"}, ""),
        (
            [may("users", "jane")],
            {"user": "joe"},
            'users "joe" is forbidden: User "somebody" cannot impersonate resource "users" in API group "" at the '
            "cluster scope",
        ),
        ([may("users"), may("groups", "devs")], {"user": "jane", "group": "devs"}, ""),
        (
            [may("users"), may("groups", "devs")],
            {"user": "jane", "group": "devs\nsystem:masters"},
            'groups "system:masters" is forbidden: User "somebody" cannot impersonate resource "groups" in API '
            'group "" at the cluster scope',
        ),
        ([may("users"), may("groups", "devs, west")], {"user": "jane", "group": "devs, west"}, ""),
        ([may("serviceaccounts", "bot")], {"user": "system:serviceaccount:shop:bot"}, ""),
        (
            [may("users")],
            {"user": "system:serviceaccount:shop:bot"},
            'serviceaccounts "bot" is forbidden: User "somebody" cannot impersonate resource "serviceaccounts" in API '
            'group "" in the namespace "shop"',
        ),
        ([may("users"), may("uids", "1", group=GROUP)], {"user": "jane", "uid": "1"}, ""),
        (
            [may("users")],
            {"user": "jane", "uid": "1"},
            f'uids.{GROUP} "1" is forbidden: User "somebody" cannot impersonate resource "uids" in API group "{GROUP}" '
            "at the cluster scope",
        ),
        ([may("users"), may("userextras/scopes", "a", group=GROUP)], {"user": "jane", "extra_scopes": "a"}, ""),
        ([may("users"), may("userextras/*", group=GROUP)], {"user": "jane", "extra_scopes": "a"}, "userextras"),
        ([may("users"), may("*/scopes", group=GROUP)], {"user": "jane", "extra_scopes": "a\nb"}, ""),
        (
            [may("users"), may("userextras/scopes", "a", group=GROUP)],
            {"user": "jane", "extra_scopes": "a\nb"},
            f'userextras.{GROUP} "b" is forbidden: User "somebody" cannot impersonate resource "userextras/scopes" in '
            f'API group "{GROUP}" at the cluster scope',
        ),
    ],
)
async def test_each_impersonated_attribute_must_be_allowed(
    hub: LocalHub, rules: list[Obj], headers: dict[str, str], refused: str
) -> None:
    await allow(hub, *rules)

    answer = await hub.post(WHO, {}, **{f"impersonate_{name}": value for name, value in headers.items()})

    assert answer.status == (403 if refused else 201)
    if refused:
        assert answer.message.startswith(refused)
    else:
        assert answer.json["status"]["userInfo"]["username"] == headers["user"]


async def test_extra_facts_without_a_user_are_refused(hub: LocalHub) -> None:
    answer = await hub.post(WHO, {}, impersonate_extra_scopes="a")

    assert (answer.status, answer.message) == (400, "requested impersonation without impersonating a user")


@pytest.mark.parametrize(
    ("name", "asked", "groups"),
    [
        ("jane", (), ("system:authenticated",)),
        ("jane", ("devs",), ("devs", "system:authenticated")),
        ("jane", ("system:unauthenticated",), ("system:unauthenticated",)),
        ("system:anonymous", (), ("system:unauthenticated",)),
        ("system:anonymous", ("devs",), ("devs", "system:unauthenticated")),
        (
            "system:serviceaccount:shop:bot",
            (),
            ("system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"),
        ),
        ("system:serviceaccount:shop:bot", ("devs",), ("devs", "system:authenticated")),
        ("system:serviceaccount:shop:bot:x", (), ("system:authenticated",)),
    ],
)
def test_everybody_is_in_the_groups_of_their_kind(name: str, asked: tuple[str, ...], groups: tuple[str, ...]) -> None:
    assert effective_groups(name, asked) == groups
