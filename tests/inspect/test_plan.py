"""`farflung plan`: what would be added and removed, and nothing done."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import yaml
from asked_hub import INVENTORY, AskedHub, placement
from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.edge.names import EDGE_PLACEMENTS, SINGLE_PLACEMENT_SLICES
from farflung.apis.names import LAST_APPLIED
from farflung.cli.plan_output import printed
from farflung.controllers.edge_scheduler.decide import NOTHING_SELECTED
from farflung.inspect.manifests import Manifest
from farflung.inspect.plan import Plan, applied, check, plan
from farflung.inspect.results import InspectError, as_document
from farflung.machinery.errors import Obj

PROD, DEV = {"matchLabels": {"env": "prod"}}, {"matchLabels": {"env": "dev"}}


async def furnished() -> AskedHub:
    hub = await AskedHub.started()
    for env in ("dev", "prod"):
        await hub.target(env, env=env)
        await hub.location(env, {"env": env}, env=env)
    return hub


async def planned(hub: AskedHub, *objs: Obj) -> Plan:
    return await plan(hub.asked, check([Manifest("x.yaml", obj) for obj in objs]))


def shown(hub: AskedHub, answer: Obj, **how: Any) -> list[str]:
    return printed(answer, "table", **how).replace(INVENTORY, "C").splitlines()


async def test_all_destinations_of_a_new_placement_are_added() -> None:
    hub = await furnished()
    answer = await planned(hub, placement("p", {}))
    assert shown(hub, answer) == [
        "EdgePlacement p (new)",
        "+ C   dev    dev",
        "+ C   prod   prod",
        f"warning: {NOTHING_SELECTED}",
        "2 added, 0 removed, 0 unchanged; 0 objects selected",
        "",
        "2 destinations: dev/dev, prod/prod",
        "~ syncerconfigs.edge.kcp.io the-one",
        "    spec.namespaceScope.namespaces: default added",
        "    spec.namespaceScope.resources: 8 kinds added",
    ]
    assert await hub.client.list(EDGE_PLACEMENTS) == []


async def test_an_edit_is_compared_with_the_slices_and_changes_nothing() -> None:
    hub = await furnished()
    await hub.place(placement("p", PROD))
    await hub.schedule()
    before = [*await hub.client.list(EDGE_PLACEMENTS), *await hub.client.list(SINGLE_PLACEMENT_SLICES)]
    answer = await planned(hub, placement("p", DEV))
    assert shown(hub, answer)[1:3] == ["+ C   dev    dev", "- C   prod   prod"]
    assert answer.is_change
    assert [*await hub.client.list(EDGE_PLACEMENTS), *await hub.client.list(SINGLE_PLACEMENT_SLICES)] == before
    assert all("dryRun=All" in request.target for request in hub.transport.writes)


async def test_what_stays_is_counted_and_shown_on_demand() -> None:
    hub = await furnished()
    await hub.place(placement("p", PROD))
    await hub.schedule()
    answer = await planned(hub, placement("p", PROD))
    assert not answer.is_change
    assert shown(hub, answer) == [
        "EdgePlacement p (unchanged)",
        f"warning: {NOTHING_SELECTED}",
        "0 added, 0 removed, 1 unchanged; 0 objects selected",
    ]
    assert shown(hub, answer, verbose=True)[1] == "  C   prod   prod"


async def test_what_is_there_already_is_preferred_as_the_scheduler_does() -> None:
    hub = await furnished()
    await hub.place(placement("p", PROD))
    await hub.schedule()
    answer = await planned(hub, placement("p", {}, numberOfLocations=1))
    assert [as_document(answer)["summary"][key] for key in ("added", "removed", "unchanged", "errors")] == [0, 0, 1, 0]
    other = as_document(await planned(hub, placement("q", {}, numberOfLocations=1)))["placements"][0]
    assert [one["locationName"] for one in other["added"]] == ["dev"]


async def test_too_few_locations_are_a_warning() -> None:
    hub = await furnished()
    answer = await planned(hub, placement("p", PROD, numberOfLocations=3))
    assert "warning: 1 of 3 Locations can be used; 1 matches" in shown(hub, answer)


async def test_the_slice_of_an_earlier_placement_of_that_name_goes() -> None:
    hub = await furnished()
    await hub.place(placement("p", PROD))
    await hub.schedule()
    await hub.client.delete(EDGE_PLACEMENTS, "p")
    answer = await planned(hub, placement("p", DEV))
    assert shown(hub, answer)[:3] == ["EdgePlacement p (new)", "+ C   dev    dev", "- C   prod   prod"]


async def test_a_placement_that_is_being_deleted_is_not_planned() -> None:
    hub = await furnished()
    held = placement("p", PROD)
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await hub.place(held)
    await hub.client.delete(EDGE_PLACEMENTS, "p")
    assert as_document(await planned(hub, placement("p", DEV)))["placements"][0]["error"] == "it is being deleted"


async def test_the_plan_comes_true() -> None:
    hub = await furnished()
    await hub.place(placement("p", PROD))
    await hub.schedule()
    obj = placement("p", {}, where="target.metadata.labels['env'] != 'prod'")
    answer = as_document(await planned(hub, obj))["placements"][0]
    await hub.client.patch(EDGE_PLACEMENTS, "p", {"spec": obj["spec"]})
    await hub.schedule()
    [slice_] = await hub.client.list(SINGLE_PLACEMENT_SLICES)
    assert [{**one, "workspace": INVENTORY} for one in slice_["destinations"]] == answer["added"]


async def test_several_placements_are_summed_up_and_an_error_of_one_harms_no_other() -> None:
    hub = await furnished()
    wrong = placement("wrong", {"matchExpressions": [{"key": "env", "operator": "Is"}]})
    bad = placement("bad", {}, numberOfLocations=-1)
    unknown = placement("unknown", {}, numberOfLocation=1)
    answer = await planned(hub, wrong, bad, unknown, placement("p", {}))
    assert [line for line in shown(hub, answer) if "error" in line] == [
        "EdgePlacement wrong: error: spec.locationSelectors[0].matchExpressions[0].operator: Invalid value: "
        '"Is": not a valid selector operator',
        'EdgePlacement bad: error: EdgePlacement.edge.kcp.io "bad" is invalid: spec.numberOfLocations: Invalid value: '
        "-1: spec.numberOfLocations in body should be greater than or equal to 0",
        'EdgePlacement unknown: error: EdgePlacement in version "v1alpha1" cannot be handled as a EdgePlacement: '
        'strict decoding error: unknown field "spec.numberOfLocation"',
    ]
    assert (
        shown(hub, answer)[-1] == "4 EdgePlacements: 2 added, 0 removed, 0 unchanged; 3 placements cannot be planned."
    )


async def test_programs_get_the_same_in_json_and_yaml() -> None:
    hub = await furnished()
    answer = await planned(hub, placement("p", {}))
    assert orjson.loads(printed(answer, "json")) == yaml.safe_load(printed(answer, "yaml")) == as_document(answer)


async def test_a_kind_that_the_workspace_does_not_serve_is_an_error() -> None:
    hub = await furnished()
    answer = await planned(hub, {"apiVersion": "x.org/v1", "kind": "X", "metadata": {"name": "x"}})
    assert shown(hub, answer) == ["X default/x: error: the workspace root:web does not serve X in x.org/v1"]


@pytest.mark.parametrize(
    ("objs", "sentence"),
    [
        ([], "no objects in the files"),
        ([placement(), placement()], "x.yaml: the EdgePlacement p is in x.yaml already"),
        ([{**placement(), "metadata": {"generateName": "p-"}}], "x.yaml: the EdgePlacement has no metadata.name"),
        ([{**placement(), "metadata": None}], "x.yaml: the EdgePlacement has no metadata.name"),
    ],
)
def test_what_cannot_be_planned_is_a_sentence(objs: list[Obj], sentence: str) -> None:
    with pytest.raises(InspectError, match=sentence):
        check([Manifest("x.yaml", obj) for obj in objs])


# --- what kubectl apply would do ------------------------------------------------------------------


async def test_what_others_added_stays_and_what_the_file_dropped_goes() -> None:
    hub = await furnished()
    first = placement("p", PROD, numberOfLocations=1)
    first["metadata"]["annotations"] = {LAST_APPLIED: orjson.dumps(placement("p", PROD, numberOfLocations=1)).decode()}
    live = await hub.place(first)
    live = await hub.client.patch(EDGE_PLACEMENTS, "p", {"spec": {"spreadBy": ["zone"]}})
    after = applied(live, placement("p", DEV))
    assert after["spec"] == {"locationSelectors": [DEV], "spreadBy": ["zone"]}
    assert live["spec"]["numberOfLocations"] == 1


def test_what_kubectl_notes_itself_stays() -> None:
    last = {"metadata": {"annotations": {}, "name": "p"}, "spec": {"a": 1}}
    noted = {LAST_APPLIED: orjson.dumps(last).decode(), "others": "x"}
    live = {"metadata": {"annotations": noted, "name": "p"}, "spec": {"a": 1}}
    assert applied(live, {"metadata": {"name": "p"}, "spec": {"a": 1}}) == live


VALUES = st.recursive(
    st.integers(0, 2), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=6
)
SPECS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@given(SPECS, SPECS)
def test_applying_again_what_was_applied_leads_exactly_to_the_file(last: Obj, wanted: Obj) -> None:
    """If nobody else touched it."""
    live = {"metadata": {"annotations": {LAST_APPLIED: orjson.dumps({"spec": last}).decode()}}, "spec": last}
    assert applied(live, {"spec": wanted})["spec"] == wanted


async def test_a_client_that_rehearses_writes_nothing_whatever_it_is_asked() -> None:
    hub = await furnished()
    await hub.place(placement("p", PROD))
    before = await hub.client.list(EDGE_PLACEMENTS)
    dry_run = hub.asked.workspace
    await dry_run.create(EDGE_PLACEMENTS, placement("q", PROD))
    await dry_run.update(EDGE_PLACEMENTS, {**before[0], "spec": {}})
    await dry_run.patch(EDGE_PLACEMENTS, "p", {"spec": None})
    await dry_run.delete(EDGE_PLACEMENTS, "p")
    assert await hub.client.list(EDGE_PLACEMENTS) == before
