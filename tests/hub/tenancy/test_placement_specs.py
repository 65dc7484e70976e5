"""The hub refuses EdgePlacements that no controller could interpret, and tells why; stored ones stay usable."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hub_harness import MERGE_PATCH, Answer
from long_turns import no_long_turns
from platform_harness import ALICE, PlatformHub

from farflung.machinery.errors import Obj
from farflung.placement.types import placement_problem

PLACEMENTS = "/apis/edge.kcp.io/v1alpha1/edgeplacements"
IS = {"matchExpressions": [{"key": "env", "operator": "Is", "values": ["x"]}]}


class Workspace:
    """`checked`: a hub that checks EdgePlacements, on the store of an earlier version, which does not."""

    def __init__(self, before: PlatformHub, cluster: str) -> None:
        self.before, self.cluster = before, cluster
        self.checked = PlatformHub(before.store, placement_problem=placement_problem)

    async def post(self, hub: PlatformHub | None = None, query: str = "", **spec: Any) -> Answer:
        obj = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "metadata": {"name": "shop"}}
        path = f"/clusters/{self.cluster}{PLACEMENTS}"
        return await (hub or self.checked).of(ALICE, "POST", path, {**obj, "spec": spec}, query=query)

    async def patch(self, patch: Obj, subresource: str = "") -> Answer:
        path = f"/clusters/{self.cluster}{PLACEMENTS}/shop{subresource}"
        return await self.checked.of(ALICE, "PATCH", path, patch, content_type=MERGE_PATCH)


@pytest.fixture
async def workspace() -> AsyncIterator[Workspace]:
    hub = PlatformHub()
    await hub.platform.bootstrap.start(bare=False)
    async with hub.running_controllers():
        pass  # the default roles
    cluster = await hub.workspace("shop", ALICE)
    await hub.bind(cluster, "edge", "root:espw", "edge.kcp.io")
    made = Workspace(hub, cluster)
    await made.checked.platform.bootstrap.start(bare=False)
    yield made
    hub.close()
    made.checked.close()


@pytest.mark.parametrize(
    ("spec", "field", "reason", "message"),
    [
        ({"where": "location.name =="}, "spec.where", "FieldValueInvalid", "compilation failed"),
        ({"where": "1 + 1"}, "spec.where", "FieldValueInvalid", "compilation failed"),
        ({"where": " && ".join(["true"] * 500 + ["nothing"])}, "spec.where", "FieldValueInvalid", "compilation failed"),
        (
            {"locationSelectors": [IS]},
            "spec.locationSelectors[0].matchExpressions[0].operator",
            "FieldValueInvalid",
            'Invalid value: "Is": not a valid selector operator',
        ),
        (
            {"namespaceSelector": {"matchLabels": {"a b": "c"}}},
            "spec.namespaceSelector.matchLabels",
            "FieldValueInvalid",
            'Invalid value: "a b"',
        ),
        (
            {"downsync": [{"apiGroup": "*"}]},
            "spec.downsync[0]",
            "FieldValueRequired",
            "Required value: must not match every object",
        ),
        ({"spreadBy": ["a b"]}, "spec.spreadBy[0]", "FieldValueInvalid", 'Invalid value: "a b"'),
    ],
)
async def test_a_spec_that_no_controller_could_interpret_is_refused_with_its_field_and_the_reason(
    workspace: Workspace, spec: Obj, field: str, reason: str, message: str
) -> None:
    for query in ("dryRun=All", ""):
        answer = await workspace.post(query=query, **spec)
        assert answer.status == 422, answer.body
        [cause] = answer.json["details"]["causes"]
        assert (cause["field"], cause["reason"]) == (field, reason)
        assert message in cause["message"]
        head = f'EdgePlacement.edge.kcp.io "shop" is invalid: {field}: {cause["message"]}'
        assert answer.json["message"] == head


async def test_a_valid_expression_of_any_length_is_accepted_without_a_long_turn(workspace: Workspace) -> None:
    async with no_long_turns():
        answer = await workspace.post(where=" || ".join(["location.metadata.name == 'florin'"] * 250))
    assert answer.status == 201, answer.body
    assert (await workspace.patch({"spec": {"where": "target.metadata.name =="}})).status == 422


async def test_an_invalid_spec_that_is_stored_can_be_labelled_finished_and_repaired(workspace: Workspace) -> None:
    assert (await workspace.post(workspace.before, where="location.name ==")).status == 201
    labelled = await workspace.patch({"metadata": {"labels": {"a": "b"}, "finalizers": ["example.org/x"]}})
    assert labelled.status == 200, labelled.body
    assert (await workspace.patch({"status": {"matchingLocationCount": 1}}, "/status")).status == 200
    assert (await workspace.patch({"spec": {"numberOfLocations": 1}})).status == 422
    assert (await workspace.patch({"spec": {"where": "true"}})).status == 200
