"""Watches of what a workspace has bound: they end when it is not what it was."""

from __future__ import annotations

import pytest
from provider_harness import APIS, BINDINGS, WIDGETS, Provided, binding, export, schema, widget

from farflung.hub.registry.watch import Watches


@pytest.fixture
async def world() -> Provided:
    return await Provided.started()


async def offer_another_schema(world: Provided) -> None:
    described = schema("v2.widgets.ex.test")
    parts = described["spec"]["versions"][0]["schema"]["properties"]["spec"]["properties"]
    parts["shape"] = {"type": "string", "default": "round"}
    home = f"/clusters/{world.provider}{APIS}"
    await world.hub.create(f"{home}/apiresourceschemas", described)
    change = {"spec": {"latestResourceSchemas": ["v2.widgets.ex.test"]}}
    assert (await world.hub.patch(f"{home}/apiexports/ex.test", change)).status == 200


async def look_again(world: Provided) -> None:
    """At the binding, as controllers does."""
    path = f"/clusters/{world.consumer}{BINDINGS}/w"
    assert (await world.hub.patch(path, {"metadata": {"labels": {"looked": "at"}}})).status == 200


async def test_a_watch_ends_when_its_kind_has_another_schema(world: Provided) -> None:
    path = f"/clusters/{world.consumer}{WIDGETS}"
    watch, elsewhere = await world.hub.watch(path), await world.hub.watch(f"/clusters/{world.consumer}{BINDINGS}")
    await offer_another_schema(world)
    assert not watch.closed
    await look_again(world)
    assert watch.closed
    assert not elsewhere.closed
    again = await world.hub.watch(path)
    await world.hub.create(path, widget("a"))
    (event,) = again.events
    assert event["object"]["spec"] == {"size": 1, "colour": "red", "shape": "round"}


async def test_a_watch_continues_while_its_binding_terminates_and_ends_with_it(world: Provided) -> None:
    path, bound = f"/clusters/{world.consumer}{WIDGETS}", f"/clusters/{world.consumer}{BINDINGS}/w"
    await world.hub.create(path, widget("a"))
    watch = await world.hub.watch(path)
    await world.hub.delete(bound)
    assert not watch.closed
    await world.hub.delete(f"{path}/a")
    assert watch.changes == [("ADDED", "a"), ("DELETED", "a")]
    await world.hub.patch(bound, {"metadata": {"finalizers": []}})
    assert watch.closed


async def test_a_watch_of_a_kind_of_the_core_group_ends_with_its_binding(world: Provided) -> None:
    hub, home = world.hub, f"/clusters/{world.provider}{APIS}"
    names = {"kind": "Gizmo", "listKind": "GizmoList", "plural": "gizmos", "singular": "gizmo"}
    await hub.create(f"{home}/apiresourceschemas", schema("v1.gizmos.core", group="", names=names))
    await hub.create(f"{home}/apiexports", export("core", "v1.gizmos.core"))
    other = f"/clusters/{world.other}"
    await hub.create(f"{other}{BINDINGS}", binding("core", export="core"))
    watch = await hub.watch(f"{other}/api/v1/gizmos")
    await hub.delete(f"{other}{BINDINGS}/core")
    await hub.patch(f"{other}{BINDINGS}/core", {"metadata": {"finalizers": []}})
    assert watch.closed


async def test_nothing_is_kept_of_watches_that_ended(world: Provided) -> None:
    paths = [f"/clusters/{world.consumer}{WIDGETS}", world.view(WIDGETS), f"/clusters/{world.consumer}{BINDINGS}"]
    watches = [await world.hub.watch(path) for path in paths]
    for watch in watches:
        watch.leave()
    kept: Watches = world.hub.watches
    assert kept.count == 0
    assert not kept._watch_groups
    assert not kept._by_scope
