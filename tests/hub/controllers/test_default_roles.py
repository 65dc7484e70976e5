"""The roles and bindings that are there from the start."""

from __future__ import annotations

import pytest
from house import House

from farflung.hub.auth.default_roles import AUTO_UPDATE, default_bindings, default_roles
from farflung.hub.controllers.cluster_roles import complete
from farflung.machinery.errors import Obj

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
LABEL = "rbac.authorization.k8s.io/aggregate-to-"


def allows(role: Obj, verb: str, group: str, resource: str) -> bool:
    return any(
        verb in rule["verbs"] and group in rule.get("apiGroups", ()) and resource in rule.get("resources", ())
        for rule in role["rules"]
    )


async def test_a_new_hub_has_its_roles_and_bindings_when_it_is_ready(house: House) -> None:
    names = await house.names("clusterroles")
    bindings = await house.client.request("GET", BINDINGS)

    assert {"cluster-admin", "admin", "edit", "view", "system:discovery", "system:basic-user"} < set(names)
    assert [(one["metadata"]["name"], one["subjects"][0]["name"]) for one in bindings["items"]] == [
        ("cluster-admin", "system:masters"),
        ("system:basic-user", "system:authenticated"),
        ("system:discovery", "system:authenticated"),
        ("system:monitoring", "system:monitoring"),
        ("system:public-info-viewer", "system:authenticated"),
        ("system:service-account-issuer-discovery", "system:serviceaccounts"),
    ]
    role = await house.get("clusterroles", "system:discovery")
    assert role["metadata"]["labels"] == {"kubernetes.io/bootstrapping": "rbac-defaults"}
    assert role["metadata"]["annotations"] == {AUTO_UPDATE: "true"}


async def test_view_is_in_edit_and_edit_in_admin_when_the_hub_is_ready(house: House) -> None:
    roles = {name: await house.get("clusterroles", name) for name in ("view", "edit", "admin")}

    assert [allows(roles[name], "get", "", "configmaps") for name in roles] == [True, True, True]
    assert [allows(roles[name], "update", "apps", "deployments") for name in roles] == [False, True, True]
    assert [allows(roles[name], "get", "", "secrets") for name in roles] == [False, True, True]
    assert [allows(roles[name], "create", "rbac.authorization.k8s.io", "roles") for name in roles] == [
        False,
        False,
        True,
    ]
    assert all(len(rule["verbs"]) for name in roles for rule in roles[name]["rules"])


async def test_removed_rules_of_default_roles_are_restored_at_startup_and_added_ones_stay(house: House) -> None:
    mine = {"verbs": ["get"], "apiGroups": ["my.io"], "resources": ["things"]}
    await house.patch("clusterroles", "system:basic-user", {"rules": [mine], "metadata": {"labels": None}})
    await house.delete("clusterroles", "system:monitoring")
    await house.client.request("DELETE", f"{BINDINGS}/system:discovery")

    await house.restart()
    await house.settle()

    role = await house.get("clusterroles", "system:basic-user")
    assert role["rules"][0] == mine
    assert allows(role, "create", "authorization.k8s.io", "selfsubjectaccessreviews")
    assert role["metadata"]["labels"] == {"kubernetes.io/bootstrapping": "rbac-defaults"}
    assert "system:monitoring" in await house.names("clusterroles")
    assert (await house.client.request("GET", f"{BINDINGS}/system:discovery"))["subjects"]


async def test_a_default_role_without_autoupdate_is_not_restored(house: House) -> None:
    kept = {"rules": [], "metadata": {"annotations": {AUTO_UPDATE: "false"}}}
    await house.patch("clusterroles", "system:basic-user", kept)
    revision = house.store.revision

    await house.restart()
    await house.settle()

    assert house.store.revision == revision


async def test_a_binding_to_another_role_is_replaced(house: House) -> None:
    path = f"{BINDINGS}/system:basic-user"
    binding = await house.client.request("GET", path)
    await house.client.request("DELETE", path)
    other = {"metadata": {"name": "system:basic-user"}, "roleRef": binding["roleRef"] | {"name": "view"}}
    await house.client.request("POST", BINDINGS, other)

    await house.restart()
    await house.settle()

    assert (await house.client.request("GET", path))["roleRef"]["name"] == "system:basic-user"


@pytest.mark.parametrize("wanted", [*default_roles(), *default_bindings()], ids=lambda obj: obj["metadata"]["name"])
def test_a_default_is_complete_as_it_is(wanted: Obj) -> None:
    assert complete(wanted, wanted) is None
