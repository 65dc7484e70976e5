"""What is refused in a schema, whether it is structural or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from farflung.apis.apiextensions.findings import Findings, Place, place
from farflung.apis.apiextensions.schemas import (
    FIELDS,
    additional_of,
    as_schema,
    choices,
    items_of,
    members,
    shown_schema,
)
from farflung.apis.apiextensions.structural import EMBEDDED, PRESERVE
from farflung.machinery.errors import FieldError, Obj

TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
RARE: Final = frozenset({"not", "allOf", "oneOf", "anyOf", "definitions"})
META_FIELDS: Final = frozenset({"metadata", "kind", "apiVersion"})
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
LIST_TYPES: Final = ("atomic", "set", "map")
MAP_TYPES: Final = ("atomic", "granular")
NO_ATOM: Final = f"must be atomic as item of a list with {LIST_TYPE}=set"

#: members that JSON schema has and custom resources have not, and whether an empty one counts
UNSUPPORTED: Final = {
    "id": False,
    "additionalItems": True,
    "patternProperties": False,
    "definitions": False,
    "dependencies": True,
    "$ref": True,
}
#: Go's names of what the root may have beside a status that is validated apart
AT_ROOT: Final = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)


@dataclass(frozen=True, slots=True)
class Context:
    """What holds for a schema because of where it is."""

    no_defaults: str = ""  #: why there may be no defaults
    in_meta: bool = False  #: it describes apiVersion, kind or metadata


def check_root(schema: Obj, path: str, *, has_status: bool) -> list[FieldError]:
    """The root alone."""
    findings = Findings()
    at = place(path)
    if has_status:
        _check_root_members(schema, at, findings)
    if schema.get("nullable"):
        findings.forbidden(at, ".nullable", "nullable cannot be true at the root")
    return findings.errors


def _check_root_members(schema: Obj, at: Place, findings: Findings) -> None:
    allowed = AT_ROOT.split()
    for name, member, show in FIELDS:
        value = show(schema.get(member))
        if value is None or (value == show(None) and type(value) is type(show(None))):
            continue
        if name == "Type" and value != "object":
            detail = (
                'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            )
            findings.invalid(at, ".type", value, detail)
            return
        if name not in allowed:
            detail = (
                f"only [{AT_ROOT}] fields are allowed at the root of the schema if the status subresource is enabled"
            )
            findings.invalid(at, "", shown_schema(schema), detail)
            return


def check_schema(schema: Obj, path: str) -> list[FieldError]:
    """The root and everything in it."""
    findings = Findings()
    _check(schema, place(path), Context(), findings, root=True)
    return findings.errors


def _check(schema: Obj, at: Place, context: Context, findings: Findings, *, root: bool = False) -> None:
    if findings.full:
        return
    _check_members(schema, at, context, findings)
    _check_parts(schema, at, context, findings, root=root)
    if schema.get(PRESERVE) is False:
        findings.invalid(at, f".{PRESERVE}", False, "must be true or undefined")
    _check_map_type(schema, at, findings)
    _check_list_type(schema, at, findings)
    _check_keys(schema, at, findings)
    _check_items_of_keyed(schema, at, findings)


def _check_members(schema: Obj, at: Place, context: Context, findings: Findings) -> None:
    type_ = schema.get("type", "")
    if type_ and type_ not in TYPES:
        findings.unsupported(at, ".type", type_, TYPES)
    if schema.get("default") is not None and context.no_defaults:
        findings.forbidden(at, ".default", f"must not be set {context.no_defaults}")
    for member, present in UNSUPPORTED.items() if not UNSUPPORTED.keys().isdisjoint(schema) else ():
        value = schema.get(member)
        if value is not None and (present or value):
            findings.forbidden(at, f".{member}", f"{member} is not supported")
    if type_ == "null":
        findings.forbidden(at, ".type", "type cannot be set to null, use nullable as an alternative")
    items = schema.get("items")
    if type(items) is list and items:
        findings.forbidden(at, ".items", "items must be a schema object and not an array")
    elif items is not None and type(items) is not dict:
        findings.invalid(at, ".items", items, "must be a schema")
    if context.in_meta and schema.get(EMBEDDED):
        findings.forbidden(at, f".{EMBEDDED}", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        findings.forbidden(at, ".uniqueItems", detail)


def _check_parts(schema: Obj, at: Place, context: Context, findings: Findings, *, root: bool) -> None:
    _check_additional(schema, at, context, findings)
    resource = root or bool(schema.get(EMBEDDED))
    for name, value in members(schema, "properties").items():
        inner = context
        if resource and name in META_FIELDS:
            inner = Context(f"in top-level {name}" if root else context.no_defaults, in_meta=True)
        _check(value, (at, f".properties[{name}]"), inner, findings)
    if not RARE.isdisjoint(schema):
        _check_rare_parts(schema, at, context, findings)
    if (items := items_of(schema)) is not None:
        _check(items, (at, ".items"), context, findings)
    elif type(schema.get("items")) is list:
        for index, value in enumerate(schema["items"]):
            _check(as_schema(value), (at, f".items[{index}]"), context, findings)


def _check_rare_parts(schema: Obj, at: Place, context: Context, findings: Findings) -> None:
    if type(schema.get("not")) is dict:
        _check(schema["not"], (at, ".not"), context, findings)
    for member in ("allOf", "oneOf", "anyOf"):
        for index, value in enumerate(choices(schema, member)):
            _check(value, (at, f".{member}[{index}]"), context, findings)
    for name, value in members(schema, "definitions").items():
        _check(value, (at, f".definitions[{name}]"), context, findings)


def _check_additional(schema: Obj, at: Place, context: Context, findings: Findings) -> None:
    value: Any = schema.get("additionalProperties")
    if value is None:
        return
    if schema.get("properties") and value is not True:
        detail = "additionalProperties and properties are mutual exclusive"
        findings.forbidden(at, ".additionalProperties", detail)
    if type(value) not in (dict, bool):
        findings.invalid(at, ".additionalProperties", value, "must be a boolean or a schema")
    if (additional := additional_of(schema)) is not None:
        if context.in_meta:
            context = replace(context, no_defaults="inside additionalProperties applying to object metadata")
        _check(additional, (at, ".additionalProperties"), context, findings)


# --- what lists and maps are ------------------------------------------------------------------------


def _check_type_is(wanted: str, schema: Obj, extension: str, at: Place, findings: Findings) -> None:
    detail = f"must be {wanted} if {extension} is specified"
    if schema.get("type"):
        findings.invalid(at, ".type", schema["type"], detail)
    else:
        findings.required(at, ".type", detail)


def _check_map_type(schema: Obj, at: Place, findings: Findings) -> None:
    said = schema.get(MAP_TYPE)
    if said is None:
        return
    if schema.get("type") != "object":
        _check_type_is("object", schema, MAP_TYPE, at, findings)
    if said not in MAP_TYPES:
        findings.unsupported(at, f".{MAP_TYPE}", said, MAP_TYPES)


def _check_list_type(schema: Obj, at: Place, findings: Findings) -> None:
    said = schema.get(LIST_TYPE)
    if said is None:
        return
    items = items_of(schema)
    if schema.get("type") != "array":
        _check_type_is("array", schema, LIST_TYPE, at, findings)
    elif said == "set" and items is not None:
        if items.get("type") == "array" and items.get(LIST_TYPE, "atomic") != "atomic":
            findings.invalid(at, f".items.{LIST_TYPE}", items.get(LIST_TYPE), NO_ATOM)
        elif items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
            findings.invalid(at, f".items.{MAP_TYPE}", items.get(LIST_TYPE), NO_ATOM)
    if said not in LIST_TYPES:
        findings.unsupported(at, f".{LIST_TYPE}", said, LIST_TYPES)


def _check_keys(schema: Obj, at: Place, findings: Findings) -> None:
    keys, said = schema.get(LIST_KEYS) or [], schema.get(LIST_TYPE)
    if keys and said != "map":
        detail = f"must be map if {LIST_KEYS} is non-empty"
        if said is None:
            findings.required(at, f".{LIST_TYPE}", detail)
        else:
            findings.invalid(at, f".{LIST_TYPE}", said, detail)
    if said != "map":
        return
    if not keys:
        findings.required(at, f".{LIST_KEYS}", f"must not be empty if {LIST_TYPE} is map")
    if schema.get("items") is None:
        findings.required(at, ".items", f"must have a schema if {LIST_TYPE} is map")
        return
    items = items_of(schema)
    if items is None:
        findings.invalid(at, ".items", None, f"must only have a single schema if {LIST_TYPE} is map")
    elif items.get("type") != "object":
        detail = f"must be object if parent array's {LIST_TYPE} is map"
        findings.invalid(at, ".items.type", items.get("type", ""), detail)
    else:
        _check_key_properties(keys, items, at, findings)


def _check_key_properties(keys: Sequence[str], items: Obj, at: Place, findings: Findings) -> None:
    properties = members(items, "properties")
    seen: set[str] = set()
    for key in keys:
        if key not in properties:
            findings.invalid(at, f".{LIST_KEYS}", keys, "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            detail = f"must be a scalar type if parent array's {LIST_TYPE} is map"
            findings.invalid(at, f".items.properties[{key}].type", "object", detail)
        if key in seen:
            findings.invalid(at, f".{LIST_KEYS}", keys, "must not contain duplicate entries")
        seen.add(key)


def _check_items_of_keyed(schema: Obj, at: Place, findings: Findings) -> None:
    """Items that are found by what is in them have that."""
    items, said = items_of(schema), schema.get(LIST_TYPE)
    if items is None or said not in ("set", "map"):
        return
    if items.get("nullable"):
        findings.forbidden(at, ".items.nullable", f"cannot be nullable when {LIST_TYPE} is {said}")
    if said == "set":
        return
    properties, needed = members(items, "properties"), set(items.get("required") or ())
    because = f"this property is in {LIST_KEYS}, so it"
    for key in schema.get(LIST_KEYS) or ():
        if key not in properties:
            continue
        if key not in needed and properties[key].get("default") is None:
            detail = f"{because} must have a default or be a required property"
            findings.required(at, f".items.properties[{key}].default", detail)
        if properties[key].get("nullable"):
            findings.forbidden(at, f".items.properties[{key}].nullable", f"{because} cannot be nullable")
