"""What a version says beside its schema: columns, subresources, deprecation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from farflung.apis.checks import Errors
from farflung.machinery import names
from farflung.machinery.errors import Obj, invalid_value, required, too_many

COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
MOST_COLUMNS: Final = 200
LONGEST_WARNING: Final = 256


def check_deprecation(version: Obj, path: str, errors: Errors) -> None:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    wrong = _wrong_with(warning) if version.get("deprecated") else ["can only be set for deprecated versions"]
    errors += [invalid_value(f"{path}.deprecationWarning", warning, why) for why in wrong]


def _wrong_with(warning: str) -> list[str]:
    wrong = []
    if names.size(warning) > LONGEST_WARNING:
        wrong.append("must be <= 256 characters long")
    if not warning:
        wrong.append("must not be an empty string")
    if not warning.isprintable():
        at = next(index for index, char in enumerate(warning) if not char.isprintable())
        where = f"non-printable character found at index {names.size(warning[:at])}"
        wrong.append(f"must only contain printable UTF-8 characters; {where}")
    return wrong


def check_columns(columns: Sequence[Obj], path: str, errors: Errors) -> None:
    if len(columns) > MOST_COLUMNS:
        errors.append(too_many(path, len(columns), MOST_COLUMNS))
        return
    for index, column in enumerate(columns):
        _check_column(column, f"{path}[{index}]", errors)


def _check_column(column: Obj, path: str, errors: Errors) -> None:
    type_, format_ = column.get("type", ""), column.get("format", "")
    if not column.get("name"):
        errors.append(required(f"{path}.name"))
    types = f"must be one of {','.join(COLUMN_TYPES)}"
    if not type_:
        errors.append(required(f"{path}.type", types))
    elif type_ not in COLUMN_TYPES:
        errors.append(invalid_value(f"{path}.type", type_, types))
    if format_ and format_ not in COLUMN_FORMATS:
        errors.append(invalid_value(f"{path}.format", format_, f"must be one of {','.join(COLUMN_FORMATS)}"))
    if not column.get("jsonPath"):
        errors.append(required(f"{path}.JSONPath"))
    else:
        _check_simple(column["jsonPath"], f"{path}.JSONPath", errors)


def check_subresources(subresources: Obj | None, path: str, errors: Errors) -> None:
    scale = (subresources or {}).get("scale")
    if scale is None:
        return
    for member, root in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        field, text = f"{path}.scale.{member}", scale.get(member, "")
        if not text:
            errors.append(required(field))
        elif _check_simple(text, field, errors) and not text.startswith(f"{root}."):
            errors.append(invalid_value(field, text, f"should be a json path under {root}"))
    if selector := scale.get("labelSelectorPath"):
        field = f"{path}.scale.labelSelectorPath"
        if _check_simple(selector, field, errors) and not selector.startswith((".spec.", ".status.")):
            errors.append(invalid_value(field, selector, "should be a json path under either .spec or .status"))


def _check_simple(text: str, field: str, errors: Errors) -> bool:
    if text.startswith("."):
        return True
    errors.append(invalid_value(field, text, "must be a simple json path starting with ."))
    return False
