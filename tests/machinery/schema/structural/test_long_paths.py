"""Objects of a megabyte with many problems below one long key: only the first ones are described."""

from __future__ import annotations

from typing import Any

import pytest

from farflung.apis.metadata import OBJECT_META
from farflung.machinery.errors import MAX_ERROR_TEXT, ApiError, FieldError, invalid
from farflung.machinery.schema.structural.structural import compile_structural

KEY = "k" * 300_000
MANY = 20_000
NUMBERS = {"type": "array", "items": {"type": "integer"}}
SET = {**NUMBERS, "x-kubernetes-list-type": "set"}
EMBEDDED = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
FIELDS = {
    "numbers": NUMBERS,
    "sets": {"type": "array", "items": SET},
    "either": {"type": "array", "items": {"anyOf": [{"minimum": 5}, {"minimum": 0}]}},
    "embedded": {"type": "array", "items": EMBEDDED},
}
STRUCTURAL = compile_structural(
    {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "additionalProperties": {"type": "object", "properties": FIELDS}},
        },
    },
    OBJECT_META,
)


def with_field(name: str, value: Any) -> dict[str, Any]:
    return {"spec": {KEY: {name: value}}}


@pytest.mark.parametrize(
    ("field", "value"),
    [("numbers", ["x"] * MANY), ("sets", [[1, 1]] * MANY), ("embedded", [{}] * MANY), ("either", [-1] * MANY)],
)
def test_the_errors_of_an_object_are_hardly_longer_than_one(field: str, value: Any) -> None:
    errors = STRUCTURAL.validate(with_field(field, value))
    assert errors
    assert sum(len(str(error)) for error in errors) < 2 * MAX_ERROR_TEXT + 4 * len(KEY)


def test_an_invalid_item_after_many_failed_alternatives_is_found() -> None:
    assert STRUCTURAL.validate(with_field("either", [1] * MANY)) == []
    [*_, last] = STRUCTURAL.validate(with_field("either", [1] * 900 + [-1]))
    assert last.field.endswith(".either[900]")


def test_unknown_fields_of_an_object_are_hardly_longer_than_one() -> None:
    obj = {"spec": {KEY: {f"x{at}": 1 for at in range(MANY)}}}
    assert STRUCTURAL.conform(obj) == [f'unknown field "spec.{KEY}.x0"']
    unreadable = {"apiVersion": "v1", "kind": "A", "metadata": {"x": 1}}
    obj = with_field("embedded", [dict(unreadable) for _ in range(MANY)])
    assert STRUCTURAL.conform(obj) == [f'unknown field "spec[{KEY}].embedded[0].metadata.x"']
    assert obj["spec"][KEY]["embedded"] == [{"apiVersion": "v1", "kind": "A", "metadata": {}}] * MANY


def test_a_response_says_how_many_errors_it_omits() -> None:
    errors = [FieldError("Invalid value", f"{KEY}[{at}]", "x", "") for at in range(100)]
    refused: ApiError = invalid("", "Pod", "a", errors)
    assert refused.message.endswith(", and 99 errors more]")
    assert refused.details is not None
    assert len(refused.details["causes"]) == 1
