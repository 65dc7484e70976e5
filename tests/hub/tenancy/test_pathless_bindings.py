"""APIBindings that name no workspace: which export they mean, and which they can never mean."""

from __future__ import annotations

from typing import Any

import pytest
from apis_harness import condition, widget_schema
from hub_harness import Answer
from platform_harness import ALICE, APIS, BOB, OPERATOR, TENANCY, PlatformHub, platform_hub
from tenancy_harness import LocalTenancy

from farflung.hub.request.user import User
from farflung.hub.tenancy.workspaces import is_of_administrator
from farflung.machinery.errors import Obj

PATH = "spec.reference.export.path"
MAY_BIND = {"verbs": ["bind"], "apiGroups": ["apis.kcp.io"], "resources": ["apiexports"]}
MERGE = {"content_type": "application/merge-patch+json"}
ENTER = {"verbs": ["access"], "nonResourceURLs": ["/"]}


def pathless(name: str = "w", export: str = "ex.test", **spec: Any) -> Obj:
    return {"metadata": {"name": name}, "spec": {"reference": {"export": {"name": export}}, **spec}}


@pytest.fixture
async def hub() -> PlatformHub:
    return await platform_hub()


async def bind(hub: PlatformHub, cluster: str, wanted: Obj | None = None, by: str = OPERATOR) -> Answer:
    return await hub.of(by, "POST", f"/clusters/{cluster}{APIS}/apibindings", wanted or pathless())


async def offer(hub: PlatformHub, cluster: str, *binders: str, by: str = OPERATOR) -> str:
    """Export widgets, and let users bind them."""
    await hub.export(cluster, "ex.test", widget_schema(), by=by)
    for user in binders:
        await hub.grant(cluster, f"bind-{user}", user, MAY_BIND, ENTER)
    return cluster


def is_ambiguous(answer: Answer, *listed: str) -> bool:
    why = f"several workspaces offer the APIExport ex.test; name one of them. You may bind {', '.join(listed)}"
    return answer.status == 422 and answer.message.endswith(f": {PATH}: Required value: {why}")


def is_unknown(answer: Answer) -> bool:
    return answer.status == 422 and f"{PATH}: Required value: no APIExport ex.test in this workspace" in answer.message


async def test_the_own_export_comes_first(hub: PlatformHub) -> None:
    own = await offer(hub, await hub.workspace("own"))
    await offer(hub, await hub.workspace("prov"))
    answer = await bind(hub, own)
    status = answer.json["status"]
    assert (answer.status, status["phase"], status["apiExportClusterName"]) == (201, "Bound", own)
    assert status["apiExportPath"] == "root:own"


@pytest.mark.parametrize("provider", ["root", "root:prov"])
async def test_the_only_export_of_root_or_of_a_child_of_it_is_bound_and_its_path_shown(
    hub: PlatformHub, provider: str
) -> None:
    cluster = await offer(hub, "root" if provider == "root" else await hub.workspace("prov"))
    consumer = await hub.workspace("cons")
    answer = await bind(hub, consumer)
    status = answer.json["status"]
    assert (answer.status, status["phase"], status["apiExportClusterName"]) == (201, "Bound", cluster)
    assert status["apiExportPath"] == provider
    assert answer.json["spec"] == pathless()["spec"]
    listed = await hub.get(f"/clusters/{consumer}/apis/ex.test/v1/widgets")
    assert listed.status == 200


async def test_what_was_found_stays_when_other_exports_appear_and_the_own_one_is_deleted(hub: PlatformHub) -> None:
    provider, consumer = await offer(hub, await hub.workspace("prov")), await hub.workspace("cons")
    await bind(hub, consumer)
    await offer(hub, await hub.workspace("later"))
    at = f"/clusters/{consumer}{APIS}/apibindings/w"
    async with hub.running_controllers():
        labelled = await hub.patch(at, {"metadata": {"labels": {"a": "b"}}})
    assert labelled.json["status"]["apiExportClusterName"] == provider
    again = await hub.of(OPERATOR, "PUT", at, {**labelled.json, "status": {}})
    assert again.json["status"] == labelled.json["status"]
    await hub.delete(f"/clusters/{provider}{APIS}/apiexports/ex.test")
    touched = await hub.patch(at, {"metadata": {"labels": {"a": "c"}}})
    assert condition(touched.json, "APIExportValid")["message"] == "APIExport root:prov|ex.test not found"
    assert (touched.json["status"]["phase"], touched.json["status"]["apiExportClusterName"]) == ("Bound", provider)


async def test_another_binding_of_the_same_resource_is_told_the_path_that_was_found(hub: PlatformHub) -> None:
    await offer(hub, await hub.workspace("prov"))
    consumer = await hub.workspace("cons")
    await bind(hub, consumer)
    second = (await bind(hub, consumer, pathless("again"))).json
    assert "bound to APIExport root:prov:ex.test" in condition(second, "BindingUpToDate")["message"]


async def test_of_several_none_is_chosen_and_all_are_listed(hub: PlatformHub) -> None:
    for name in ("prov", "more"):
        await offer(hub, await hub.workspace(name))
    consumer = await hub.workspace("cons")
    with hub.writes_nothing():
        assert is_ambiguous(await bind(hub, consumer), "root:more:ex.test", "root:prov:ex.test")
    named = {"metadata": {"name": "w"}, "spec": {"reference": {"export": {"path": "root:more", "name": "ex.test"}}}}
    assert (await bind(hub, consumer, named)).json["status"]["phase"] == "Bound"


async def test_without_any_the_exports_of_other_names_are_listed(hub: PlatformHub) -> None:
    await offer(hub, await hub.workspace("prov"))
    consumer = await hub.workspace("cons")
    with hub.writes_nothing():
        answer = await bind(hub, consumer, pathless(export="ex.tset"))
    why = (
        "no APIExport ex.tset in this workspace, in root, or in a workspace below root that an administrator created; "
        "name the workspace that has it. You may bind "
    )
    told, _, listed = answer.message.partition(": ")[2].partition(why)
    assert (answer.status, told) == (422, f"{PATH}: Required value: ")
    exports = listed.split(", ")
    assert sorted(exports) == exports
    assert {"root:compute:kubernetes", "root:prov:ex.test"} <= set(exports)


async def test_an_export_deeper_in_the_tree_has_to_be_named(hub: PlatformHub) -> None:
    await offer(hub, await hub.workspace("deep", parent=await hub.workspace("org")))
    assert is_unknown(await bind(hub, await hub.workspace("cons")))


# --- attacks --------------------------------------------------------------------------------------


async def tenants_workspace(hub: PlatformHub, name: str) -> str:
    """A child of root that a tenant created."""
    create = {"verbs": ["create"], "apiGroups": ["tenancy.kcp.io"], "resources": ["workspaces"]}
    use = {"verbs": ["use"], "apiGroups": ["tenancy.kcp.io"], "resources": ["workspacetypes"]}
    await hub.grant("root", f"create-{name}", "bob", create, use)
    return await hub.workspace(name, by=BOB)


async def test_a_tenant_cannot_offer_an_export_in_place_of_a_missing_one(hub: PlatformHub) -> None:
    fake = await offer(hub, await tenants_workspace(hub, "fake"), "alice", by=BOB)
    consumer = await hub.workspace("cons", "alice")
    assert is_unknown(await bind(hub, consumer, by=ALICE))
    assert is_unknown(await bind(hub, consumer))
    await offer(hub, await hub.workspace("prov"), "alice")
    bound = (await bind(hub, consumer, by=ALICE)).json
    assert bound["status"]["apiExportPath"] == "root:prov"
    assert bound["status"]["apiExportClusterName"] != fake


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("experimental.tenancy.kcp.io/owner", '{"username":"kcp-admin"}'),
        ("experimental.tenancy.kcp.io/owner", '{"username":"bob","groups":["system:masters"]}'),
        ("internal.tenancy.kcp.io/by-administrator", "true"),
    ],
)
async def test_a_tenant_cannot_forge_the_creator_of_a_workspace(hub: PlatformHub, annotation: str, value: str) -> None:
    await tenants_workspace(hub, "other")
    await hub.grant("root", "change", "bob", {"verbs": ["*"], "apiGroups": ["*"], "resources": ["workspaces"]})
    at, forged = f"/clusters/root{TENANCY}/workspaces", {"metadata": {"annotations": {annotation: value}}}
    assert (await hub.of(BOB, "PATCH", f"{at}/other", forged, **MERGE)).status == 403
    spec = {"type": {"name": "universal", "path": "root"}}
    made = await hub.made(BOB, at, {"metadata": {"name": "fake", **forged["metadata"]}, "spec": spec})
    await offer(hub, made["spec"]["cluster"], "alice", by=BOB)
    assert is_unknown(await bind(hub, await hub.workspace("cons", "alice"), by=ALICE))


@pytest.mark.parametrize(
    ("user", "is_administrator"),
    [
        (User("ops", ("system:kcp:admin",)), True),
        (User("ops", ("system:masters",)), True),
        (User("kcp-admin", ("system:kcp:admin",)), True),
        (User("kcp-admin", ("system:authenticated",)), False),
        (User("kcp-admin", ("system:kcp:admin",), cluster="root"), False),
        (User("system:kcp:bootstrapper", ("system:masters",), cluster="c"), False),
        (User("ops", ("system:masters",), cluster="root"), False),
        (User("ops", ("system:authenticated",)), False),
    ],
)
async def test_users_of_one_workspace_are_no_administrators_whatever_they_are_called(
    user: User, is_administrator: bool
) -> None:
    local = await LocalTenancy.in_memory()
    made = await local.create("root", "w", user)
    assert is_of_administrator(made["metadata"]["annotations"]) == is_administrator


async def test_an_export_that_the_user_may_not_bind_is_neither_shown_nor_replaced_by_another(hub: PlatformHub) -> None:
    await offer(hub, await hub.workspace("prov"))
    consumer = await hub.workspace("cons", "alice")
    hidden = await bind(hub, consumer, by=ALICE)
    assert is_unknown(hidden)
    assert "prov" not in hidden.message
    # the owner of a workspace that an administrator created for him
    await offer(hub, await hub.workspace("bobs", "bob"), "alice", by=BOB)
    assert is_ambiguous(await bind(hub, consumer, by=ALICE), "root:bobs:ex.test")


async def test_a_client_cannot_say_which_export_was_found(hub: PlatformHub) -> None:
    provider, consumer = await offer(hub, await hub.workspace("prov")), await hub.workspace("cons", "alice")
    found = {"apiExportClusterName": provider, "apiExportPath": "root:prov"}
    assert is_unknown(await bind(hub, consumer, {**pathless(), "status": found}, by=ALICE))
    await hub.export(consumer, "ex.test", widget_schema("v2.widgets.ex.test"), by=ALICE)
    own = await bind(hub, consumer, {**pathless(), "status": found}, by=ALICE)
    assert own.json["status"]["apiExportClusterName"] == consumer
    at = f"/clusters/{consumer}{APIS}/apibindings/w"
    changed = await hub.of(ALICE, "PATCH", at, {"status": found}, **MERGE)
    assert changed.json["status"] == own.json["status"]
    assert (await hub.of(ALICE, "PATCH", f"{at}/status", {"status": found}, **MERGE)).status == 403
