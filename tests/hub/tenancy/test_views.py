"""What the owner of an export sees of the workspaces that bind it, and all that it must not see."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pytest
from apis_harness import API_BINDING, EXPORT, LATER, LocalApis, widget_schema

from farflung.apis.resource import Resource
from farflung.hub.catalog import objects
from farflung.hub.tenancy.export_views import ExportViews
from farflung.machinery.errors import ApiError

VIEW = "c-prov/ex.test"
CLAIM = {"group": "", "resource": "configmaps", "all": True}
ACCEPTED = {**CLAIM, "state": "Accepted"}


class Provider(LocalApis):
    @cached_property
    def views(self) -> ExportViews:
        return ExportViews(self.store, self.kinds, self.apis, self.binder)

    def resource(self, group: str, version: str, plural: str, view: str = VIEW) -> Resource:
        kind = self.views.served(view).find(group, version, plural)
        assert kind is not None, f"{plural} are not in {view}"
        return kind.resource

    def seen(self, resource: Resource, cluster: str, name: str = "a", namespace: str = "", view: str = VIEW) -> bool:
        return self.views.admits(view, resource, cluster, namespace, name)


async def provider(**spec: Any) -> Provider:
    """Widgets, exported by one and bound by one of two."""
    local = Provider()
    await local.root()
    for name in ("prov", "cons", "other"):
        await local.cluster(name)
    await local.schema("c-prov", widget_schema())
    await local.export("c-prov", "ex.test", "v1.widgets.ex.test", **spec)
    await local.bind("c-cons", "w", "root:prov", "ex.test")
    return local


def kinds_of(local: Provider, view: str = VIEW) -> set[str]:
    return {one.qualified for one in local.views.served(view).catalog}


async def test_a_view_has_what_is_exported_and_bindings_to_read() -> None:
    local = await provider()
    assert kinds_of(local) == {"widgets.ex.test", "apibindings.apis.kcp.io"}
    widgets = local.resource("ex.test", "v1", "widgets")
    assert widgets.verbs == ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    assert widgets.identity == local.read(EXPORT, "c-prov", "ex.test")["status"]["identityHash"]
    bindings = local.resource("apis.kcp.io", "v1alpha1", "apibindings")
    assert bindings.verbs == ("get", "list", "watch")
    assert bindings.subresources == ()


async def test_a_view_without_bindings_serves_its_kinds() -> None:
    local = await provider()
    await local.schema("c-prov", widget_schema("v1.gadgets.ex.test", names={"kind": "Gadget", "plural": "gadgets"}))
    await local.export("c-prov", "unbound", "v1.gadgets.ex.test")
    gadgets = local.resource("ex.test", "v1", "gadgets", "c-prov/unbound")
    assert local.store.list(objects.prefix(gadgets, "*")).entries == []


@pytest.mark.parametrize("view", ["c-prov/nosuch", "nosuch/ex.test", "root:prov/ex.test", "c-prov/", "/ex.test", ""])
async def test_there_is_no_view_without_an_export(view: str) -> None:
    local = await provider()
    with pytest.raises(ApiError) as caught:
        local.views.served(view)
    assert caught.value.code == 404


@pytest.mark.parametrize(
    "path",
    [
        ("", "v1", "secrets"),
        ("", "v1", "configmaps"),
        ("", "v1", "namespaces"),
        ("apis.kcp.io", "v1alpha1", "apiexports"),
        ("core.kcp.io", "v1alpha1", "logicalclusters"),
        ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    ],
)
async def test_no_other_kind_can_be_reached_through_a_view(path: tuple[str, str, str]) -> None:
    local = await provider()
    assert local.views.served(VIEW).find(*path) is None


async def test_only_workspaces_that_bound_the_export_are_seen() -> None:
    local = await provider()
    widgets = local.resource("ex.test", "v1", "widgets")
    assert local.views.reaches(VIEW, widgets, "c-cons")
    assert local.seen(widgets, "c-cons")
    for cluster in ("c-other", "c-prov", "root", "nosuch", "*"):
        assert not local.views.reaches(VIEW, widgets, cluster)
        assert not local.seen(widgets, cluster)


async def test_objects_of_a_definition_with_the_same_name_are_not_seen() -> None:
    local = await provider()
    await local.definition("c-other", "widgets", "ex.test", "Widget")
    await local.bind("c-other", "w", "root:prov", "ex.test")
    widgets = local.resource("ex.test", "v1", "widgets")
    own = local.kinds.of("c-other").of("ex.test", "v1", "widgets").resource
    assert not local.views.reaches(VIEW, widgets, "c-other")
    assert objects.prefix(own, "*") != objects.prefix(widgets, "*")


async def test_two_exports_of_the_same_resource_do_not_see_each_others_objects() -> None:
    local = await provider()
    await local.cluster("rival")
    await local.schema("c-rival", widget_schema())
    await local.export("c-rival", "ex.test", "v1.widgets.ex.test")
    await local.bind("c-other", "w", "root:rival", "ex.test")
    ours = local.resource("ex.test", "v1", "widgets")
    theirs = local.resource("ex.test", "v1", "widgets", "c-rival/ex.test")
    assert ours.storage_prefix != theirs.storage_prefix
    assert not local.views.reaches(VIEW, ours, "c-other")
    assert not local.views.reaches("c-rival/ex.test", theirs, "c-cons")


async def test_only_bindings_to_the_export_are_seen() -> None:
    local = await provider()
    await local.export("c-prov", "empty")
    await local.bind("c-cons", "e", "root:prov", "empty")
    bindings = local.resource("apis.kcp.io", "v1alpha1", "apibindings")
    assert local.seen(bindings, "c-cons", "w")
    assert not local.seen(bindings, "c-cons", "e")
    assert not local.seen(bindings, "c-other", "w")


async def test_a_binding_that_names_our_label_but_another_export_is_not_seen() -> None:
    local = await provider()
    await local.export("c-other", "fake")
    binding = await local.bind("c-other", "b", "", "fake")
    label = local.read(API_BINDING, "c-cons", "w")["metadata"]["labels"]
    binding["metadata"]["labels"] = label
    await local.write(API_BINDING, "c-other", binding)
    assert not local.seen(local.resource("apis.kcp.io", "v1alpha1", "apibindings"), "c-other", "b")


async def test_what_is_claimed_is_seen_once_it_is_accepted_and_no_longer() -> None:
    local = await provider(permissionClaims=[CLAIM])
    maps = local.resource("", "v1", "configmaps")
    assert not local.seen(maps, "c-cons", namespace="default")
    await local.change_binding("c-cons", "w", permissionClaims=[ACCEPTED])
    assert local.views.reaches(VIEW, maps, "c-cons")
    assert local.seen(maps, "c-cons", namespace="default")
    assert not local.seen(maps, "c-other", namespace="default")
    await local.change_binding("c-cons", "w", permissionClaims=[{**CLAIM, "state": "Rejected"}])
    assert not local.seen(maps, "c-cons", namespace="default")
    await local.change_binding("c-cons", "w", permissionClaims=[ACCEPTED])
    await local.change_export("c-prov", "ex.test", permissionClaims=[])
    assert not local.seen(maps, "c-cons", namespace="default")
    assert local.views.served(VIEW).find("", "v1", "configmaps") is None


async def test_a_claim_that_grows_is_not_accepted_any_more() -> None:
    some = {"resource": "configmaps", "resourceSelector": [{"name": "a", "namespace": "default"}]}
    local = await provider(permissionClaims=[some])
    await local.change_binding("c-cons", "w", permissionClaims=[{**some, "state": "Accepted"}])
    maps = local.resource("", "v1", "configmaps")
    assert local.seen(maps, "c-cons", "a", "default")
    assert not local.seen(maps, "c-cons", "b", "default")
    assert not local.seen(maps, "c-cons", "a", "other")
    await local.change_export("c-prov", "ex.test", permissionClaims=[CLAIM])
    assert not local.seen(local.resource("", "v1", "configmaps"), "c-cons", "a", "default")


async def test_a_consumer_accepts_nothing_for_others() -> None:
    local = await provider(permissionClaims=[CLAIM])
    await local.bind("c-other", "w", "root:prov", "ex.test", permissionClaims=[ACCEPTED])
    maps = local.resource("", "v1", "configmaps")
    assert local.seen(maps, "c-other", namespace="default")
    assert not local.seen(maps, "c-cons", namespace="default")


async def test_the_workspaces_own_kinds_and_those_of_kcp_cannot_be_claimed() -> None:
    claims = [
        {"group": "own.test", "resource": "things", "all": True},
        {"group": "apis.kcp.io", "resource": "apibindings", "all": True},
        {"group": "apis.kcp.io", "resource": "apiexports", "all": True},
    ]
    local = await provider(permissionClaims=claims)
    await local.definition("c-cons", "things", "own.test", "Thing")
    await local.change_binding("c-cons", "w", permissionClaims=[{**claim, "state": "Accepted"} for claim in claims])
    assert kinds_of(local) == {"widgets.ex.test", "apibindings.apis.kcp.io"}
    await local.export("c-prov", "empty")
    await local.bind("c-cons", "e", "root:prov", "empty")
    assert not local.seen(local.resource("apis.kcp.io", "v1alpha1", "apibindings"), "c-cons", "e")


async def test_another_exports_objects_are_seen_if_claimed_by_identity() -> None:
    local = await provider()
    await local.cluster("rival")
    names = {"kind": "Gadget", "plural": "gadgets"}
    await local.schema("c-rival", widget_schema("v1.gadgets.ri.val", group="ri.val", names=names))
    rival = await local.export("c-rival", "ri.val", "v1.gadgets.ri.val")
    identity = rival["status"]["identityHash"]
    await local.bind("c-cons", "g", "root:rival", "ri.val")
    await local.bind("c-other", "g", "root:rival", "ri.val")
    claim = {"group": "ri.val", "resource": "gadgets", "identityHash": identity, "all": True}
    await local.change_export("c-prov", "ex.test", permissionClaims=[claim])
    gadgets = local.resource("ri.val", "v1", "gadgets")
    assert gadgets.identity == identity
    assert not local.seen(gadgets, "c-cons")
    await local.change_binding("c-cons", "w", permissionClaims=[{**claim, "state": "Accepted"}])
    assert local.seen(gadgets, "c-cons")
    assert not local.seen(gadgets, "c-other")


async def test_a_claim_with_the_wrong_identity_or_none_shows_nothing() -> None:
    local = await provider()
    await local.cluster("rival")
    names = {"kind": "Gadget", "plural": "gadgets"}
    await local.schema("c-rival", widget_schema("v1.gadgets.ri.val", group="ri.val", names=names))
    await local.export("c-rival", "ri.val", "v1.gadgets.ri.val")
    await local.bind("c-cons", "g", "root:rival", "ri.val")
    for identity in ("", "0" * 64):
        claim = {"group": "ri.val", "resource": "gadgets", "identityHash": identity, "all": True}
        await local.change_export("c-prov", "ex.test", permissionClaims=[claim])
        await local.change_binding("c-cons", "w", permissionClaims=[{**claim, "state": "Accepted"}])
        assert local.views.served(VIEW).find("ri.val", "v1", "gadgets") is None


async def test_a_claim_does_not_reach_what_hands_out_more_than_the_object() -> None:
    claim = {"group": "", "resource": "serviceaccounts", "all": True}
    local = await provider(permissionClaims=[claim])
    assert local.resource("", "v1", "serviceaccounts").subresources == ()


async def test_nothing_is_seen_of_a_workspace_that_unbound() -> None:
    local = await provider(permissionClaims=[CLAIM])
    binding = await local.change_binding("c-cons", "w", permissionClaims=[ACCEPTED])
    widgets, maps = local.resource("ex.test", "v1", "widgets"), local.resource("", "v1", "configmaps")
    binding["metadata"]["deletionTimestamp"] = LATER
    await local.write(API_BINDING, "c-cons", binding)
    assert local.seen(widgets, "c-cons"), "or their owner would never hear of their end"
    await local.remove(API_BINDING, "c-cons", "w")
    assert not local.seen(widgets, "c-cons")
    assert not local.seen(maps, "c-cons", namespace="default")


async def test_a_view_is_the_same_value_until_something_changes() -> None:
    local = await provider()
    views = local.views
    first = views.served(VIEW)
    assert views.served(VIEW) is first
    await local.change_export("c-prov", "ex.test", permissionClaims=[CLAIM])
    assert views.served(VIEW) is not first
