"""Fields of custom resources that lists can be selected by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from farflung.apis.apiextensions.schemas import additional_of, members
from farflung.apis.checks import Errors
from farflung.machinery.errors import FieldError, Obj, duplicate, invalid_value, required, too_many

MOST_FIELDS: Final = 8
SCALARS: Final = ("string", "boolean", "integer")
NO_FIELD: Final = "does not refer to a valid field"
UNSELECTABLE: Final = (
    "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
)
PIECES: Final = re.compile(r"[.\[\]]|'(?:[^'\\]|\\.)*+'|[^.\[\]']++|'", re.DOTALL)


class BadPath(Exception):
    """A path that leads nowhere in a schema; its text says why."""


def check_selectable(fields: Sequence[Obj], schema: Obj, path: str, errors: Errors) -> None:
    seen: set[tuple[str, ...]] = set()
    for index, field in enumerate(fields):
        steps, wrong = _checked(field.get("jsonPath", ""), schema, f"{path}[{index}].jsonPath")
        errors += wrong
        if steps is None:
            continue
        if steps in seen:
            errors.append(duplicate(f"{path}[{index}].jsonPath", field["jsonPath"]))
        seen.add(steps)
    if len(seen) > MOST_FIELDS:
        errors.append(too_many(path, len(seen), MOST_FIELDS))


def _checked(text: str, schema: Obj, field: str) -> tuple[tuple[str, ...] | None, Errors]:
    if not text:
        return None, [required(field)]
    try:
        steps, found = followed(text, schema)
    except BadPath as why:
        return None, [invalid_value(field, text, f"is an invalid path: {why}")]
    errors: list[FieldError] = []
    if steps[0] == "metadata":
        errors.append(invalid_value(field, text, "must not point to fields in metadata"))
    if found is None or found.get("type") not in SCALARS:
        errors.append(invalid_value(field, text, UNSELECTABLE))
    return steps, errors


def followed(text: str, schema: Obj) -> tuple[tuple[str, ...], Obj | None]:
    """The names on a path, and the schema it leads to.  Raises BadPath."""
    steps: list[str] = []
    found: Obj | None = schema
    pieces = (match[0] for match in PIECES.finditer(text))
    for piece in pieces:
        if piece == "[":
            raise BadPath("array notation is not allowed")
        if piece != ".":
            raise BadPath(f"expected [ or . but got: {piece}")
        name = next(pieces, None)
        if name is None:
            raise BadPath("unexpected end of JSON path")
        found = _below(found, name)
        steps.append(name)
    return tuple(steps), found


def _below(schema: Obj | None, name: str) -> Obj | None:
    properties = members(schema or {}, "properties")
    if name in properties:
        return properties[name]
    if properties or schema is None or schema.get("additionalProperties") is None:
        raise BadPath(NO_FIELD)
    return additional_of(schema)
