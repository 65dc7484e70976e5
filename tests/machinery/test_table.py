"""Tables: columns, rows and what rows carry."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson
import pytest

from farflung.apis import definitions
from farflung.machinery import table
from farflung.machinery.errors import ApiError
from farflung.machinery.table import Column, Printer

NOW = datetime(2024, 1, 1, tzinfo=UTC)
THING = {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "t", "resourceVersion": "7"}, "data": {"a": 1}}
PRINTER = Printer(
    (table.NAME, Column("Data", priority=1)), lambda obj, now: [obj["metadata"]["name"], len(obj["data"])]
)


def decoded(made):
    return orjson.loads(orjson.dumps(made))


def test_a_table_has_its_parts_in_the_order_of_a_real_server():
    made = decoded(table.table(PRINTER, [table.row(PRINTER, THING, NOW)], {"resourceVersion": "7"}))
    assert list(made) == ["kind", "apiVersion", "metadata", "columnDefinitions", "rows"]
    assert made["kind"] == "Table"
    assert made["apiVersion"] == "meta.k8s.io/v1"
    assert made["columnDefinitions"][1] == {
        "name": "Data",
        "type": "string",
        "format": "",
        "description": "",
        "priority": 1,
    }


def test_a_row_has_metadata_by_default():
    row = table.row(PRINTER, THING, NOW)
    assert row["cells"] == ["t", 1]
    assert row["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": THING["metadata"],
    }


def test_a_row_can_carry_nothing_or_all_of_its_object():
    assert table.row(PRINTER, THING, NOW, table.NONE)["object"] is None
    assert table.row(PRINTER, THING, NOW, table.OBJECT)["object"] == THING


def test_the_older_version_is_said_in_the_table_and_in_its_rows():
    made = decoded(table.table(PRINTER, [table.row(PRINTER, THING, NOW, version="v1beta1")], {}, "v1beta1"))
    assert made["apiVersion"] == "meta.k8s.io/v1beta1"
    assert made["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"


def test_later_tables_of_a_watch_have_no_columns():
    assert decoded(table.table(PRINTER, [], {}, headers=False))["columnDefinitions"] is None


def test_an_empty_list_has_columns_and_no_rows():
    made = decoded(table.table(PRINTER, [], {"resourceVersion": "1"}))
    assert len(made["columnDefinitions"]) == 2
    assert made["rows"] == []


def test_conditions_are_part_of_a_row_when_there_are_any():
    said = Printer(PRINTER.columns, PRINTER.cells, lambda obj: obj.get("conditions"))
    assert "conditions" not in table.row(said, THING, NOW)
    row = table.row(said, {**THING, "conditions": [{"type": "Completed"}]}, NOW)
    assert list(row) == ["cells", "conditions", "object"]


@pytest.mark.parametrize(
    ("asked", "expected"), [("", "Metadata"), ("Metadata", "Metadata"), ("None", "None"), ("Object", "Object")]
)
def test_include_object_says_what_rows_carry(asked, expected):
    assert table.included(asked) == expected


def test_an_unknown_include_object_is_refused():
    with pytest.raises(ApiError) as refused:
        table.included("Foo")
    assert refused.value.code == 400
    assert refused.value.message == (
        'Unable to convert to Table as requested: includeObject: Invalid value: "Foo": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )


def test_a_kind_without_columns_shows_when_it_was_created():
    cells = table.DEFAULT.cells({"metadata": {"name": "a", "creationTimestamp": "2024-01-01T00:00:00Z"}}, NOW)
    assert cells == ["a", "2024-01-01T00:00:00Z"]
    assert [(one.name, one.type) for one in table.DEFAULT.columns] == [("Name", "string"), ("Created At", "date")]


def test_names_and_ages_are_described_as_the_api_describes_them():
    metadata = definitions.definition(definitions.META + "ObjectMeta")["properties"]
    assert table.NAME.description == metadata["name"]["description"]
    assert table.AGE.description == metadata["creationTimestamp"]["description"]


def test_a_list_of_metadata_keeps_nothing_else():
    made = table.partial_metadata_list([THING], {"resourceVersion": "7"})
    assert made["kind"] == "PartialObjectMetadataList"
    assert made["items"] == [table.partial_metadata(THING)]
    assert "data" not in made["items"][0]
