"""ValidatingAdmissionPolicies of a workspace: they review every write in it, and none elsewhere."""

from __future__ import annotations

from apis_harness import widget_schema
from platform_harness import ALICE, MAPS, OPERATOR, TENANCY, PlatformHub, platform_hub
from policies import BINDINGS, POLICIES, bind, policy, refused, rule

WIDGETS = "/apis/ex.test/v1/widgets"
NAMED_WELL = policy("named-well", "object.metadata.name.startsWith('good-')")
WHY = "failed expression: object.metadata.name.startsWith('good-')"


def config_map(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}}


async def test_a_policy_holds_in_its_workspace_alone() -> None:
    hub = await platform_hub()
    one, other = await hub.workspace("one", "alice"), await hub.workspace("other", "alice")
    await bind(hub, NAMED_WELL, cluster=one)
    assert refused(await hub.of(ALICE, "POST", f"/clusters/{one}{MAPS}", config_map("bad")), "named-well", WHY)
    assert (await hub.of(ALICE, "POST", f"/clusters/{one}{MAPS}", config_map("good-one"))).status == 201
    assert (await hub.of(ALICE, "POST", f"/clusters/{other}{MAPS}", config_map("bad"))).status == 201
    assert (await hub.of(ALICE, "POST", f"/clusters/root:one{MAPS}", config_map("bad"))).status == 422


async def test_a_tenant_may_create_policies_in_its_own_workspace() -> None:
    hub = await platform_hub()
    mine, foreign = await hub.workspace("mine", "alice"), await hub.workspace("foreign", "bob")
    assert (await hub.of(ALICE, "POST", f"/clusters/{mine}{POLICIES}", NAMED_WELL)).status == 201
    assert (await hub.of(ALICE, "POST", f"/clusters/{foreign}{POLICIES}", NAMED_WELL)).status == 403


async def bound_widgets(hub: PlatformHub) -> tuple[str, str]:
    """The clusters of a provider of widgets and of a consumer."""
    provider, consumer = await hub.workspace("provider"), await hub.workspace("consumer", "alice")
    await hub.export(provider, "widgets", widget_schema())
    await hub.bind(consumer, "widgets", "root:provider", "widgets")
    return provider, consumer


async def test_policies_review_objects_of_bound_apis_also_through_the_views_of_their_export() -> None:
    hub = await platform_hub()
    provider, consumer = await bound_widgets(hub)
    match = {"resourceRules": [rule("widgets")]}
    await bind(hub, policy("named-well", "object.metadata.name.startsWith('good-')", match=match), cluster=consumer)
    widget = {"apiVersion": "ex.test/v1", "kind": "Widget", "metadata": {"name": "bad"}}
    assert refused(await hub.post(f"/clusters/{consumer}{WIDGETS}", widget), "named-well", WHY)
    through_view = f"/services/apiexport/{provider}/widgets/clusters/{consumer}{WIDGETS}"
    assert refused(await hub.post(through_view, widget), "named-well", WHY)


async def test_parameters_may_be_objects_of_a_bound_api() -> None:
    hub = await platform_hub()
    _, consumer = await bound_widgets(hub)
    widget = {"apiVersion": "ex.test/v1", "kind": "Widget", "metadata": {"name": "start", "labels": {"start": "good"}}}
    await hub.create(f"/clusters/{consumer}{WIDGETS}", widget)
    described = policy(
        "by-widget",
        "object.metadata.name.startsWith(params.metadata.labels.start)",
        paramKind={"apiVersion": "ex.test/v1", "kind": "Widget"},
    )
    reference = {"name": "start", "parameterNotFoundAction": "Deny"}
    await bind(hub, described, cluster=consumer, paramRef=reference)
    why = "failed expression: object.metadata.name.startsWith(params.metadata.labels.start)"
    assert refused(await hub.post(f"/clusters/{consumer}{MAPS}", config_map("bad")), "by-widget", why)
    assert (await hub.post(f"/clusters/{consumer}{MAPS}", config_map("good-one"))).status == 201


async def test_a_workspace_whose_policies_refuse_every_deletion_is_deleted_with_them() -> None:
    hub = await platform_hub()
    cluster = await hub.workspace("stubborn")
    await hub.made(OPERATOR, f"/clusters/{cluster}{MAPS}", config_map("kept"))
    match = {"resourceRules": [rule("*/*", operations=("DELETE", "UPDATE"))]}
    await bind(hub, policy("never", "false", match=match), cluster=cluster)
    assert refused(await hub.delete(f"/clusters/{cluster}{MAPS}/kept"), "never", "failed expression: false")
    async with hub.running_controllers():
        assert (await hub.delete(f"/clusters/root{TENANCY}/workspaces/stubborn")).status == 200
        await hub.controllers.finished()
    assert not hub.stored(cluster)
    assert hub.policies.of(cluster) is None


async def test_a_new_workspace_has_no_policies() -> None:
    hub = await platform_hub()
    cluster = await hub.workspace("fresh")
    for path in (POLICIES, BINDINGS):
        assert (await hub.get(f"/clusters/{cluster}{path}")).names == []
