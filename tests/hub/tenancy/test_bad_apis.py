"""What cannot be bound, exported or defined: it is refused or told of in kcp's words, and nothing else suffers."""

from __future__ import annotations

from typing import Any

import pytest
from apis_harness import condition
from hub_harness import Answer
from provider_harness import APIS, BINDINGS, WIDGETS, Provided, binding, export, schema, widget

from farflung.machinery.errors import Obj

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
async def world() -> Provided:
    return await Provided.started()


def definition(**names: Any) -> Obj:
    """Of widgets that are anything."""
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": "widgets.ex.test"},
        "spec": {
            "group": "ex.test",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", **names},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": anything}],
        },
    }


async def bind(world: Provided, cluster: str, wanted: Obj) -> Answer:
    return await world.hub.post(f"/clusters/{cluster}{BINDINGS}", wanted)


def is_unbound(bound: Obj, why: str) -> bool:
    """For a conflict of names, and nothing half-made."""
    told = [condition(bound, kind) for kind in ("BindingUpToDate", "InitialBindingCompleted")]
    return (
        bound["status"]["phase"] == "Binding"
        and "boundResources" not in bound["status"]
        and {(one["status"], one["reason"], one["message"]) for one in told}
        == {("False", "NamingConflicts", f"Unable to bind APIs: {why}")}
        and condition(bound, "Ready")["reason"] == "WaitingForEstablished"
    )


async def still_works(world: Provided, cluster: str) -> bool:
    """Whether a workspace goes on with the widgets that it has."""
    made = await world.hub.post(f"/clusters/{cluster}{WIDGETS}", widget("works"))
    found = await world.hub.get(f"/clusters/{cluster}{WIDGETS}/works")
    return (made.status, found.status) == (201, 200)


# --- bindings -------------------------------------------------------------------------------------


async def test_an_export_is_bound_but_once(world: Provided) -> None:
    again = await bind(world, world.consumer, binding("again"))
    assert again.status == 201
    taken = 'naming conflict with APIBinding "w" bound to APIExport root:prov:ex.test'
    assert is_unbound(again.json, f"{taken}, spec.names.plural=widgets is forbidden")
    assert await still_works(world, world.consumer)
    with world.hub.writes_nothing():
        answer = await bind(world, world.consumer, binding("w"))
    assert (answer.status, answer.message) == (409, 'apibindings.apis.kcp.io "w" already exists')


async def test_a_binding_does_not_take_the_place_of_a_definition(world: Provided) -> None:
    await world.hub.create(f"/clusters/{world.other}{DEFINITIONS}", definition())
    await world.hub.create(f"/clusters/{world.other}{WIDGETS}", widget("own"))
    bound = await bind(world, world.other, binding())
    why = (
        'cannot create CustomResourceDefinition with "ex.test" group and "widgets" resource because it overlaps with '
        f'"widgets.ex.test" CustomResourceDefinition in "{world.other}" logical cluster'
    )
    assert is_unbound(bound.json, why)
    assert (await world.hub.get(f"/clusters/{world.other}{WIDGETS}/own")).status == 200
    assert await still_works(world, world.other)
    assert (await world.get(WIDGETS)).json["items"] == [], "of the export there are none"


async def test_a_definition_does_not_take_the_place_of_a_binding(world: Provided) -> None:
    await world.hub.create(f"/clusters/{world.consumer}{WIDGETS}", widget("bound"))
    made = await world.hub.create(f"/clusters/{world.consumer}{DEFINITIONS}", definition())
    names, established = condition(made, "NamesAccepted"), condition(made, "Established")
    assert (names["status"], names["reason"], names["message"]) == (
        "False",
        "ListKindConflict",
        '"WidgetList" is already in use',
    )
    assert (established["status"], established["reason"]) == ("False", "NotAccepted")
    assert await still_works(world, world.consumer)
    assert {one["metadata"]["name"] for one in (await world.get(WIDGETS)).json["items"]} == {"bound", "works"}


@pytest.mark.parametrize(
    ("path", "name"), [("root:prov", "nosuch"), ("root:nosuch", "ex.test"), ("Bad_Path", "ex.test"), ("*", "ex.test")]
)
async def test_what_is_not_exported_is_not_bound(world: Provided, path: str, name: str) -> None:
    with world.hub.writes_nothing():
        answer = await bind(world, world.other, binding("b", path, name))
    missing = f"the workspace {path} does not exist"
    why = "the APIExport nosuch does not exist in the workspace root:prov" if name == "nosuch" else missing
    message = f'apibindings.apis.kcp.io "b" is forbidden: unable to create APIBinding: {why}'
    assert (answer.status, answer.message) == (403, message)


async def test_a_binding_that_waits_for_its_export_keeps_no_other_from_being_bound(world: Provided) -> None:
    waits = await bind(world, world.other, binding("waits", "root", "nosuch"))
    assert waits.status == 201
    valid = condition(waits.json, "APIExportValid")
    assert (valid["status"], valid["reason"], valid["message"]) == (
        "False",
        "APIExportNotFound",
        "APIExport root|nosuch not found",
    )
    assert (await bind(world, world.other, binding())).json["status"]["phase"] == "Bound"
    assert await still_works(world, world.other)


async def test_a_binding_never_refers_to_something_else_that_cannot_be_bound(world: Provided) -> None:
    with world.hub.writes_nothing():
        answer = await world.hub.patch(
            f"/clusters/{world.consumer}{BINDINGS}/w", {"spec": {"reference": {"export": {"name": "nosuch"}}}}
        )
    why = "unable to update APIBinding: the APIExport nosuch does not exist in the workspace root:prov"
    assert (answer.status, answer.message) == (403, f'apibindings.apis.kcp.io "w" is forbidden: {why}')
    assert await still_works(world, world.consumer)


# --- exports --------------------------------------------------------------------------------------


@pytest.mark.parametrize("schemas", [["v9.missing.ex.test"], ["v1.widgets.ex.test", "v2.widgets.ex.test"]])
async def test_an_export_with_a_schema_that_is_missing_or_there_twice_binds_nothing(
    world: Provided, schemas: list[str]
) -> None:
    home = f"/clusters/{world.provider}{APIS}"
    await world.hub.create(f"{home}/apiresourceschemas", schema("v2.widgets.ex.test"))
    await world.hub.create(f"{home}/apiexports", export("bad", *schemas))
    bound = (await bind(world, world.other, binding("b", "root:prov", "bad"))).json
    valid = condition(bound, "APIExportValid")
    assert (valid["reason"], valid["message"]) == (
        "InternalError",
        "Invalid APIExport. Please contact the APIExport owner to resolve",
    )
    assert bound["status"]["phase"] == "Binding"
    assert "boundResources" not in bound["status"]
    assert (await bind(world, world.other, binding())).json["status"]["phase"] == "Bound"


async def test_what_is_bound_works_without_its_export_and_schema(world: Provided) -> None:
    home = f"/clusters/{world.provider}{APIS}"
    for path in (f"{home}/apiexports/ex.test", f"{home}/apiresourceschemas/v1.widgets.ex.test"):
        assert (await world.hub.delete(path)).status == 200
    assert await still_works(world, world.consumer)
    bad = {**widget("bad"), "spec": {"size": "large"}}
    assert (await world.hub.post(f"/clusters/{world.consumer}{WIDGETS}", bad)).status == 422
    assert (await bind(world, world.other, binding())).status == 403


@pytest.mark.parametrize(
    "bad",
    [
        {"type": "object", "properties": {"spec": {"properties": {"size": {"type": "integer"}}}}},
        {"type": "object", "properties": {"spec": {"type": "object", "allOf": [{"type": "object"}]}}},
        {"type": "object", "properties": {"spec": {"type": "nothing"}}},
        {"type": "array"},
    ],
)
async def test_a_schema_that_is_not_structural_is_not_kept(world: Provided, bad: Obj) -> None:
    version = {"name": "v1", "served": True, "storage": True, "schema": bad}
    with world.hub.writes_nothing():
        answer = await world.hub.post(
            f"/clusters/{world.provider}{APIS}/apiresourceschemas", schema("v2.widgets.ex.test", versions=[version])
        )
    assert answer.status == 403
    assert answer.message.startswith(
        'apiresourceschemas.apis.kcp.io "v2.widgets.ex.test" is forbidden: [spec.versions[0].schema.openAPIV3Schema'
    )
