"""Placements, Locations and SyncTargets are read as the API gives them, and what cannot be understood says why."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery.selectors import EVERYTHING, parse_labels
from farflung.placement.names import ObjectKey
from farflung.placement.types import (
    UNSCHEDULABLE,
    Effect,
    Taint,
    Toleration,
    parse_location,
    parse_placement,
    parse_target,
)

METADATA = {"name": "x", "uid": "u", "generation": 3, "annotations": {"kcp.io/cluster": "imw"}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("abc", max_size=3),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text("abc", max_size=3), some, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["locationSelectors", "numberOfLocations", "spreadBy", "tolerations", "where", "instanceSelector", "taints"]
)


def obj(spec: Any, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {**METADATA, **metadata}, "spec": spec}


def test_a_placement_without_options_is_what_the_seeds_have() -> None:
    spec = {"locationSelectors": [{}, {"matchLabels": {"env": "prod"}}], "namespaceSelector": {}}
    placement = parse_placement(json.dumps(obj(spec)).encode())
    assert placement.key == ObjectKey("imw", "x")
    assert str(placement.key) == "imw|x"
    assert (placement.uid, placement.generation) == ("u", 3)
    assert placement.selectors == (EVERYTHING, parse_labels("env=prod"))
    assert (placement.number, placement.spread_by, placement.tolerations, placement.where) == (None, (), (), None)
    assert parse_placement(obj(spec), "wmw").key == ObjectKey("wmw", "x")


def test_a_placement_without_selectors_selects_nothing() -> None:
    for spec in (None, {}, {"locationSelectors": None}, {"locationSelectors": []}):
        assert parse_placement(obj(spec)).selectors == ()


def test_options_are_read() -> None:
    spec = {
        "numberOfLocations": 0,
        "spreadBy": ["region", "region"],
        "tolerations": [
            {"key": "gpu", "value": "x", "effect": "NoSchedule"},
            {"key": "gpu"},
            {"operator": "Exists"},
            {"key": "old", "operator": "Exists", "value": ""},
        ],
        "where": "target.metadata.name != 'x'",
    }
    placement = parse_placement(obj(spec))
    assert not placement.problem
    assert placement.number == 0
    assert placement.spread_by == ("region",)
    assert placement.tolerations == (
        Toleration("gpu", "x", Effect.NO_SCHEDULE),
        Toleration("gpu", ""),
        Toleration(),
        Toleration("old"),
    )
    assert placement.where is not None


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"locationSelectors": [{}, {"matchExpressions": [{"key": "env", "operator": "Inn", "values": ["a"]}]}]},
            "spec.locationSelectors[1].matchExpressions[0].operator: "
            'Invalid value: "Inn": not a valid selector operator',
        ),
        (
            {"locationSelectors": [{"matchExpressions": [{"key": "env", "operator": "In"}]}]},
            "spec.locationSelectors[0].matchExpressions[0].values: "
            "Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            {"locationSelectors": [{"matchExpressions": [{"key": "env", "operator": "Exists", "values": ["a"]}]}]},
            "spec.locationSelectors[0].matchExpressions[0].values: "
            "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        (
            {"locationSelectors": [{"matchLabels": {"a b": "c"}}]},
            'spec.locationSelectors[0].matchLabels: Invalid value: "a b"',
        ),
        (
            {"locationSelectors": [{"matchLabels": {"a": "b c"}}]},
            'spec.locationSelectors[0].matchLabels[a]: Invalid value: "b c"',
        ),
        ({"locationSelectors": [7]}, "spec.locationSelectors[0]: Expected `object`, got `int`"),
        ({"numberOfLocations": -1}, "spec.numberOfLocations: Invalid value: -1: must be greater than or equal to 0"),
        ({"spreadBy": ["good", "not good"]}, 'spec.spreadBy[1]: Invalid value: "not good"'),
        ({"tolerations": [{}]}, 'spec.tolerations[0].operator: Invalid value: "Equal": must be Exists without a key'),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            'spec.tolerations[0].value: Invalid value: "b": must be empty if operator is Exists',
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Is"}]},
            'spec.tolerations[0].operator: Unsupported value: "Is": supported values: "Equal", "Exists"',
        ),
        ({"tolerations": [{"key": "a", "effect": "Never"}]}, 'spec.tolerations[0].effect: Unsupported value: "Never"'),
        ({"where": "target."}, 'spec.where: Invalid value: "target.": compilation failed: ERROR: <input>:1:8: Syntax'),
        (
            {"where": "1"},
            'spec.where: Invalid value: "1": compilation failed: ERROR: <input>:-1:0: must evaluate to bool',
        ),
        ({"where": "true" + " " * 20_000}, "spec.where: "),
        ({"locationSelectors": [{}] * 1001}, "spec.locationSelectors: Too many: 1001: must have at most 1000 items"),
        ("nonsense", "spec: Expected `object | null`, got `str`"),
    ],
)
def test_a_placement_that_cannot_be_understood_says_where_and_why(spec: Any, problem: str) -> None:
    placement = parse_placement(obj(spec))
    assert placement.find_problem().startswith(problem)
    assert placement.key == ObjectKey("imw", "x")
    assert not placement.selectors


def test_a_location_without_a_selector_selects_everything() -> None:
    for spec in (None, {}, {"instanceSelector": None}, {"instanceSelector": {}}):
        assert parse_location(obj(spec)).instances == EVERYTHING


def test_a_location_that_cannot_be_understood_selects_nothing_and_says_why() -> None:
    expression = {"key": "env", "operator": "Foo"}
    location = parse_location(obj({"instanceSelector": {"matchExpressions": [expression]}}, labels={"a": "b"}))
    assert location.instances is None
    assert location.labels == {"a": "b"}
    assert location.problem.startswith("spec.instanceSelector.matchExpressions[0].operator: ")
    assert parse_location(obj({"instanceSelector": 7})).problem.startswith("spec.instanceSelector: ")
    assert parse_location(obj(7)).problem.startswith("spec: ")


def test_taints_are_read_and_unschedulable_is_one() -> None:
    taints = [{"key": "gpu", "value": "x", "effect": "NoExecute"}, {"key": "new", "effect": "Unknown"}]
    expected = Taint("gpu", "x", Effect.NO_EXECUTE)
    assert parse_location(obj({"taints": taints})).taints == (expected,)
    assert parse_target(obj({"taints": taints, "unschedulable": True})).taints == (UNSCHEDULABLE, expected)
    assert parse_target(obj(None)).taints == ()
    assert parse_target(obj({"unschedulable": "perhaps"})).taints == (UNSCHEDULABLE,)


def test_expressions_see_no_heartbeat_and_miss_no_part() -> None:
    quiet = parse_target(obj(None))
    assert json.loads(quiet.document) == {
        "metadata": {"name": "x", "labels": {}, "annotations": {"kcp.io/cluster": "imw"}},
        "spec": {},
        "status": {},
    }
    beating = {**obj({"cells": {"a": "b"}}), "status": {"lastSyncerHeartbeatTime": "now", "capacity": {"cpu": "4"}}}
    later = {**beating, "status": {**beating["status"], "lastSyncerHeartbeatTime": "later"}}
    assert parse_target(beating) == parse_target(later)
    assert json.loads(parse_target(beating).document)["status"] == {"capacity": {"cpu": "4"}}


@given(st.one_of(JSON, st.dictionaries(FIELDS, JSON, max_size=3)))
def test_no_spec_does_harm(spec: Any) -> None:
    parse_placement(obj(spec))
    parse_location(obj(spec))
    parse_target(obj(spec))
