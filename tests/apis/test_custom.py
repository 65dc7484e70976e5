"""The resources that definitions define."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from farflung.apis.apiextensions import kinds
from farflung.apis.resource import Subresource
from farflung.machinery.errors import Obj

NOW = datetime(2024, 1, 2, tzinfo=UTC)
NAMES = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList", "shortNames": ["th"]}


def defined(*versions: Obj, scope: str = "Namespaced", **names: Any) -> Obj:
    accepted = {**NAMES, **names}
    spec = {"group": "ex.example.com", "scope": scope, "names": accepted, "versions": list(versions)}
    return {"metadata": {"name": "things.ex.example.com"}, "spec": spec, "status": {"acceptedNames": accepted}}


def version(name: str = "v1", **members: Any) -> Obj:
    return {"name": name, "served": True, "storage": name == "v1", **members}


def row(obj: Obj, *columns: Obj) -> list[Any]:
    (resource,) = kinds.resources_of(defined(version(additionalPrinterColumns=list(columns))))
    cells = resource.printer.cells(obj, NOW)
    orjson.dumps(cells)
    return cells


def cell(type: str, value: Any) -> Any:
    return row({"metadata": {"name": "x"}, "spec": value}, {"name": "C", "type": type, "jsonPath": ".spec"})[1]


def test_each_version_that_is_served_is_a_resource() -> None:
    found = kinds.resources_of(defined(version(), version("v1beta1"), version("v2", served=False), categories=["all"]))
    assert [one.version for one in found] == ["v1", "v1beta1"]
    first = found[0]
    assert (first.group, first.plural, first.kind, first.namespaced) == ("ex.example.com", "things", "Thing", True)
    assert (first.singular, first.list_kind, first.short_names) == ("thing", "ThingList", ("th",))
    assert (first.categories, first.custom, first.deprecated) == (("all",), True, "")
    assert first.verbs == ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
    assert first.definition == "com.example.ex.v1.Thing"
    assert first.storage_version_hash == found[1].storage_version_hash != ""
    assert not kinds.resources_of(defined(version(), scope="Cluster"))[0].namespaced


def test_accepted_names_count_and_not_those_that_are_wished_for() -> None:
    definition = defined(version())
    definition["spec"]["names"] = {**NAMES, "shortNames": ["th", "taken"], "singular": "other"}
    (resource,) = kinds.resources_of(definition)
    assert (resource.short_names, resource.singular) == (("th",), "thing")


def test_status_and_scale_are_subresources_if_the_version_says_so() -> None:
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.s"}
    definition = defined(
        version(subresources={"status": {}, "scale": scale}), version("v2", subresources={"status": {}}), version("v3")
    )
    first, second, third = kinds.resources_of(definition)
    verbs = ("get", "patch", "update")
    assert first.subresources == (
        Subresource("status", verbs, "Thing"),
        Subresource("scale", verbs, "Scale", "autoscaling", "v1"),
    )
    assert second.subresources == first.subresources[:1]
    assert third.subresources == ()
    assert kinds.scale_paths(definition, "v1") == kinds.ScalePaths(".spec.n", ".status.n", ".status.s")
    assert kinds.scale_paths(definition, "v2") is None
    assert kinds.scale_paths(definition, "v9") is None


def test_objects_are_stored_in_the_version_that_says_so() -> None:
    assert kinds.stored_version(defined(version("v0"), version("v1"))) == "v1"


@pytest.mark.parametrize(
    ("versions", "warning"),
    [
        ([version(deprecated=True)], "ex.example.com/v1 Thing is deprecated"),
        ([version(deprecated=True, deprecationWarning="go away")], "go away"),
        (
            [version("v1beta1", deprecated=True), version("v1beta2"), version("v1")],
            "ex.example.com/v1beta1 Thing is deprecated; use ex.example.com/v1 Thing",
        ),
        (
            [version("v1beta1", deprecated=True), version("v1", served=False), version("v1alpha1")],
            "ex.example.com/v1beta1 Thing is deprecated",
        ),
        (
            [version("v1", deprecated=True), version("v2", deprecated=True), version("v3", storage=True)],
            "ex.example.com/v1 Thing is deprecated; use ex.example.com/v3 Thing",
        ),
    ],
)
def test_a_deprecated_version_warns_and_names_the_best_other_one(versions: list[Obj], warning: str) -> None:
    storing = [*versions[:-1], {**versions[-1], "storage": True}]
    assert kinds.resources_of(defined(*storing))[0].deprecated == warning


# --- rows -------------------------------------------------------------------------------------------


def test_without_columns_of_its_own_a_resource_shows_its_age() -> None:
    (resource,) = kinds.resources_of(defined(version()))
    assert [(one.name, one.type, one.format) for one in resource.printer.columns] == [
        ("Name", "string", "name"),
        ("Age", "date", ""),
    ]
    assert resource.printer.columns[1].description.startswith("CreationTimestamp is a timestamp")
    created = {"metadata": {"name": "x", "creationTimestamp": "2024-01-01T00:00:00Z"}}
    assert resource.printer.cells(created, NOW) == ["x", "24h"]


def test_columns_say_what_they_are() -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "format": "int32", "priority": 1},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "description": "the phase"},
    ]
    (resource,) = kinds.resources_of(defined(version(additionalPrinterColumns=columns)))
    size, phase = resource.printer.columns[1:]
    assert (size.name, size.type, size.format, size.priority) == ("Size", "integer", "int32", 1)
    assert size.description == "Custom resource definition column (in JSONPath format): .spec.size"
    assert (phase.name, phase.priority, phase.description) == ("Phase", 0, "the phase")


@pytest.mark.parametrize(
    ("type", "value", "shown"),
    [
        ("string", "a", "a"),
        ("string", 0, "0"),
        ("string", 1.5, "1.5"),
        ("string", False, "false"),
        ("string", [1, {"b": 2}], '[1,{"b":2}]'),
        ("string", {}, "{}"),
        ("integer", 3, 3),
        ("integer", 3.9, 3),
        ("integer", 1e300, -(2**63)),
        ("integer", "3", None),
        ("integer", True, None),
        ("number", 3, 3),
        ("number", 2.0, 2),
        ("number", 2.5, 2.5),
        ("number", 1e300, 1e300),
        ("number", "x", None),
        ("boolean", True, True),
        ("boolean", 1, None),
        ("date", "2024-01-01T23:59:00Z", "60s"),
        ("date", "2023-01-02T01:00:00+01:00", "365d"),
        ("date", "yesterday", "<invalid>"),
        ("date", "2034-01-01T00:00:00Z", "<invalid>"),
        ("date", "", "<unknown>"),
        ("date", "null", "<unknown>"),
        ("date", 5, None),
    ],
)
def test_cells_have_the_type_of_their_column_or_nothing(type: str, value: Any, shown: Any) -> None:
    found = cell(type, value)
    assert found == shown
    assert found is shown or found.__class__ is shown.__class__


@pytest.mark.parametrize("type", ["string", "integer", "number", "boolean", "date"])
def test_what_is_not_there_shows_as_nothing(type: str) -> None:
    assert row({"metadata": {"name": "x"}}, {"name": "C", "type": type, "jsonPath": ".spec.a.b"}) == ["x", None]


def test_the_first_of_several_values_shows() -> None:
    parts = {"metadata": {"name": "x"}, "spec": {"parts": [{"name": "p"}, {"name": "q"}]}}
    column = {"name": "Part", "type": "string", "jsonPath": ".spec.parts[*].name"}
    assert row(parts, column) == ["x", "p"]
    ready = {"name": "Ready", "type": "string", "jsonPath": '.spec.parts[?(@.name=="q")].name'}
    assert row(parts, column, ready) == ["x", "p", "q"]
    outside = {"name": "Fifth", "type": "string", "jsonPath": ".spec.parts[4].name"}
    assert row(parts, outside, column) == ["x", None, "p"]


def test_a_path_that_is_none_ends_the_table() -> None:
    good = {"name": "A", "type": "string", "jsonPath": ".spec.a"}
    bad = {"name": "B", "type": "string", "jsonPath": ".spec["}
    (resource,) = kinds.resources_of(defined(version(additionalPrinterColumns=[good, bad, good])))
    assert [one.name for one in resource.printer.columns] == ["Name", "A"]
    assert row({"metadata": {"name": "x"}, "spec": {"a": "1"}}, good, bad, good) == ["x", "1"]


# --- selecting --------------------------------------------------------------------------------------


def test_selectable_fields_are_compared_as_text() -> None:
    fields = [{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.n"}, {"jsonPath": ".spec.on"}]
    (resource,) = kinds.resources_of(defined(version(selectableFields=fields)))
    assert list(resource.selectable) == ["spec.a", "spec.n", "spec.on"]
    obj = {"spec": {"a": "x", "n": 7, "on": True}}
    assert [read(obj) for read in resource.selectable.values()] == ["x", "7", "true"]
    assert [read({"spec": None}) for read in resource.selectable.values()] == ["", "", ""]
    assert [read({"spec": {"a": {}, "n": None}}) for read in resource.selectable.values()] == ["", "", ""]
