"""Validation of the schemas in CustomResourceDefinitions.  The number of reported errors is bounded.

A path in a schema is a chain of (parent, step) and becomes text only in an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from farflung.apis.apiextensions.schemas import (
    FIELDS,
    additional_of,
    as_schema,
    choices,
    items_of,
    members,
    shown_schema,
)
from farflung.machinery.errors import FieldError, Obj, field_forbidden, invalid_value, not_supported, required
from farflung.machinery.schema.structural import formats

Place = tuple["Place | None", str]

MAX_FINDINGS: Final = 200
MAX_TEXT: Final = 512 * 1024  #: characters, the last finding aside


def place(text: str) -> Place:
    return None, text


def text_of(at: Place) -> str:
    steps: list[str] = []
    chain: Place | None = at
    while chain is not None:
        chain, step = chain
        steps.append(step)
    return "".join(reversed(steps))


class Findings:
    """A list of errors that stops growing at its limit."""

    __slots__ = ("_text", "errors")

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self._text = 0

    @property
    def full(self) -> bool:
        return len(self.errors) >= MAX_FINDINGS or self._text >= MAX_TEXT

    def required(self, at: Place, field: str, detail: str) -> None:
        if not self.full:
            self.add(required(text_of(at) + field, detail))

    def forbidden(self, at: Place, field: str, detail: str) -> None:
        if not self.full:
            self.add(field_forbidden(text_of(at) + field, detail))

    def invalid(self, at: Place, field: str, value: Any, detail: str) -> None:
        if not self.full:
            self.add(invalid_value(text_of(at) + field, value, detail))

    def unsupported(self, at: Place, field: str, value: Any, supported: Iterable[str]) -> None:
        if not self.full:
            self.add(not_supported(text_of(at) + field, value, supported))

    def add(self, error: FieldError) -> None:
        self.errors.append(error)
        self._text += len(str(error))


# --- What Go says of a regular expression that is none --------------------------------------------

#: what RE2 says → what Go says of the same mistake
GO_WORDS: Final[Mapping[str, str]] = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
TRAILING: Final = "trailing \\"


def pattern_problem(pattern: str) -> str:
    """Empty for an expression that can be compiled."""
    problem = formats.pattern_problem(pattern)
    if not problem:
        return ""
    if problem == TRAILING:
        return "error parsing regexp: trailing backslash at end of expression: ``"
    words, _, part = problem.partition(": ")
    return f"error parsing regexp: {GO_WORDS.get(words, words)}: `{part}`"


# --- structural schemas ---------------------------------------------------------------------------

ROOT: Final = "root"
ITEM: Final = "item"
FIELD: Final = "field"

UNTYPED: Final = {
    ROOT: "must not be empty at the root",
    ITEM: "must not be empty for specified array items",
    FIELD: "must not be empty for specified object fields",
}
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
EITHER: Final = [{"type": "integer"}, {"type": "string"}]  #: the one `anyOf` that may have types

#: what only restrictions may not have: member, what it must be, whether a value that is there but empty counts
UNRESTRICTED: Final = (
    ("type", "empty", False),
    ("additionalProperties", "undefined", True),
    ("default", "undefined", True),
    ("title", "empty", False),
    ("description", "empty", False),
    ("nullable", "false", False),
    (PRESERVE, "false", False),
    (EMBEDDED, "false", False),
    (INT_OR_STRING, "false", False),
    ("x-kubernetes-list-map-keys", "empty", False),
    ("x-kubernetes-list-type", "undefined", True),
    ("x-kubernetes-map-type", "undefined", True),
    ("x-kubernetes-validations", "empty", False),
)
JUNCTORS: Final = frozenset({"allOf", "anyOf", "oneOf", "not"})
#: what says nothing about values
REMARKS: Final = frozenset({"externalDocs", "example"})


def structural_problems(schema: Obj, at: Place) -> list[FieldError]:
    """Sorted by their texts."""
    findings = Findings()
    _check_structure(schema, ROOT, at, findings)
    _check_declared(schema, schema, at, at, findings)
    return sorted(findings.errors, key=str)


# --- what is declared -----------------------------------------------------------------------------


def _check_structure(schema: Obj, level: str, at: Place, findings: Findings) -> None:
    items, properties, type_ = items_of(schema), members(schema, "properties"), schema.get("type", "")
    if type_ == "array" and items is None:
        findings.required(at, ".items", "must be specified")
    if items is not None:
        _check_structure(items, ITEM, (at, ".items"), findings)
    for name, value in properties.items():
        _check_structure(value, FIELD, (at, f".properties[{name}]"), findings)
    if schema.get("additionalProperties") is not None:
        _check_structural_additional(schema, level, at, findings)
    _check_extensions(schema, at, findings)
    _check_values(schema, at, findings, either=schema.get("anyOf") == EITHER, first_either=True)
    _check_type(schema, type_, level, at, findings)
    if level == ROOT or schema.get(EMBEDDED):
        for name in ("kind", "apiVersion"):
            if name in properties and properties[name].get("type", "") != "string":
                where = f".properties[{name}].type"
                findings.invalid(at, where, properties[name].get("type", ""), "must be string")
    if "metadata" in properties:
        _check_metadata(properties["metadata"], schema, level, (at, ".properties[metadata]"), findings)
    if schema.get(EMBEDDED) and not schema.get(PRESERVE) and not properties:
        detail = f"must not be empty if {EMBEDDED} is true without {PRESERVE}"
        findings.required(at, ".properties", detail)


def _check_structural_additional(schema: Obj, level: str, at: Place, findings: Findings) -> None:
    if level == ROOT:
        findings.forbidden(at, ".additionalProperties", "must not be used at the root")
    if (additional := additional_of(schema)) is not None:
        _check_structure(additional, FIELD, (at, ".additionalProperties"), findings)
    if schema.get(EMBEDDED):
        findings.forbidden(at, ".additionalProperties", f"must not be used if {EMBEDDED} is set")


def _check_extensions(schema: Obj, at: Place, findings: Findings) -> None:
    if schema.get(INT_OR_STRING):
        for member in (PRESERVE, EMBEDDED):
            if schema.get(member):
                findings.invalid(at, f".{member}", True, f"must be false if {INT_OR_STRING} is true")


def _check_type(schema: Obj, type_: str, level: str, at: Place, findings: Findings) -> None:
    if schema.get(EMBEDDED) and type_ != "object":
        detail = f"must be object if {EMBEDDED} is true"
        if type_:
            findings.invalid(at, ".type", type_, detail)
        else:
            findings.required(at, ".type", detail)
    elif not type_ and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        findings.required(at, ".type", UNTYPED[level])
    if level == ROOT and type_ not in ("", "object"):
        findings.invalid(at, ".type", type_, "must be object at the root")


def _check_metadata(metadata: Obj, holder: Obj, level: str, at: Place, findings: Findings) -> None:
    if (level == ROOT or holder.get(EMBEDDED)) and metadata.get("type", "") != "object":
        findings.invalid(at, ".type", metadata.get("type", ""), "must be object")
    if level != ROOT:
        return
    others: set[str] = {member for member in metadata if member not in REMARKS} - {"type", "default", "properties"}
    if others or not members(metadata, "properties").keys() <= {"name", "generateName"}:
        detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        findings.forbidden(at, "", detail)


# --- what only restricts --------------------------------------------------------------------------


def _check_values(
    schema: Obj, at: Place, findings: Findings, *, either: bool = False, first_either: bool = False
) -> None:
    """`either`: the schema's `anyOf` is the one that may have types.  `first_either`: the first of its `allOf` may
    have it as well."""
    if (pattern := schema.get("pattern")) and (problem := pattern_problem(pattern)):
        detail = f"must be a valid regular expression, but isn't: {problem}"
        findings.invalid(at, ".pattern", pattern, detail)
    if JUNCTORS.isdisjoint(schema):
        return
    if not either:
        for index, choice in enumerate(choices(schema, "anyOf")):
            _check_restriction(choice, (at, f".anyOf[{index}]"), findings)
    for index, choice in enumerate(choices(schema, "allOf")):
        excused = first_either and index == 0 and choice.get("anyOf") == EITHER
        _check_restriction(choice, (at, f".allOf[{index}]"), findings, either=excused)
    for index, choice in enumerate(choices(schema, "oneOf")):
        _check_restriction(choice, (at, f".oneOf[{index}]"), findings)
    if type(schema.get("not")) is dict:
        _check_restriction(schema["not"], (at, ".not"), findings)


def _check_restriction(schema: Obj, at: Place, findings: Findings, *, either: bool = False) -> None:
    _check_values(schema, at, findings, either=either)
    if (items := items_of(schema)) is not None:
        _check_restriction(items, (at, ".items"), findings)
    properties = members(schema, "properties")
    for name, restricted in properties.items():
        _check_restriction(restricted, (at, f".properties[{name}]"), findings)
    for member, must_be, present in UNRESTRICTED:
        value = schema.get(member)
        if value is not None and (present or value):
            findings.forbidden(at, f".{member}", f"must be {must_be} to be structural")
    if "metadata" in properties:
        findings.forbidden(at, ".properties[metadata]", "must not be specified in a nested context")


def _check_declared(restriction: Obj, declared: Obj | None, at: Place, there: Place, findings: Findings) -> None:
    """A restriction names only declared fields.  `at`: where they are declared; `there`: the restriction."""
    for member in ("allOf", "anyOf", "oneOf"):
        for index, choice in enumerate(choices(restriction, member)):
            _check_declared_in(choice, declared, at, (there, f".{member}[{index}]"), findings)
    if type(restriction.get("not")) is dict:
        _check_declared_in(restriction["not"], declared, at, (there, ".not"), findings)


def _check_declared_in(restriction: Obj, declared: Obj | None, at: Place, there: Place, findings: Findings) -> None:
    if declared is None:
        if not findings.full:
            findings.required(at, "", f"because it is defined in {text_of(there)}")
        return
    _check_declared(restriction, declared, at, there, findings)
    if (items := items_of(restriction)) is not None:
        _check_declared_in(items, items_of(declared), (at, ".items"), (there, ".items"), findings)
    properties = members(declared, "properties")
    for name, value in members(restriction, "properties").items():
        step = f".properties[{name}]"
        _check_declared_in(value, properties.get(name), (at, step), (there, step), findings)


# --- What is refused in a schema, whether it is structural or not ---------------------------------

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
class SchemaContext:
    """Restrictions of a schema by its position."""

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
    _check(schema, place(path), SchemaContext(), findings, root=True)
    return findings.errors


def _check(schema: Obj, at: Place, context: SchemaContext, findings: Findings, *, root: bool = False) -> None:
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


def _check_members(schema: Obj, at: Place, context: SchemaContext, findings: Findings) -> None:
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


def _check_parts(schema: Obj, at: Place, context: SchemaContext, findings: Findings, *, root: bool) -> None:
    _check_additional(schema, at, context, findings)
    resource = root or bool(schema.get(EMBEDDED))
    for name, value in members(schema, "properties").items():
        inner = context
        if resource and name in META_FIELDS:
            inner = SchemaContext(f"in top-level {name}" if root else context.no_defaults, in_meta=True)
        _check(value, (at, f".properties[{name}]"), inner, findings)
    if not RARE.isdisjoint(schema):
        _check_rare_parts(schema, at, context, findings)
    if (items := items_of(schema)) is not None:
        _check(items, (at, ".items"), context, findings)
    elif type(schema.get("items")) is list:
        for index, value in enumerate(schema["items"]):
            _check(as_schema(value), (at, f".items[{index}]"), context, findings)


def _check_rare_parts(schema: Obj, at: Place, context: SchemaContext, findings: Findings) -> None:
    if type(schema.get("not")) is dict:
        _check(schema["not"], (at, ".not"), context, findings)
    for member in ("allOf", "oneOf", "anyOf"):
        for index, value in enumerate(choices(schema, member)):
            _check(value, (at, f".{member}[{index}]"), context, findings)
    for name, value in members(schema, "definitions").items():
        _check(value, (at, f".definitions[{name}]"), context, findings)


def _check_additional(schema: Obj, at: Place, context: SchemaContext, findings: Findings) -> None:
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
    declared = schema.get(MAP_TYPE)
    if declared is None:
        return
    if schema.get("type") != "object":
        _check_type_is("object", schema, MAP_TYPE, at, findings)
    if declared not in MAP_TYPES:
        findings.unsupported(at, f".{MAP_TYPE}", declared, MAP_TYPES)


def _check_list_type(schema: Obj, at: Place, findings: Findings) -> None:
    declared = schema.get(LIST_TYPE)
    if declared is None:
        return
    items = items_of(schema)
    if schema.get("type") != "array":
        _check_type_is("array", schema, LIST_TYPE, at, findings)
    elif declared == "set" and items is not None:
        if items.get("type") == "array" and items.get(LIST_TYPE, "atomic") != "atomic":
            findings.invalid(at, f".items.{LIST_TYPE}", items.get(LIST_TYPE), NO_ATOM)
        elif items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
            findings.invalid(at, f".items.{MAP_TYPE}", items.get(LIST_TYPE), NO_ATOM)
    if declared not in LIST_TYPES:
        findings.unsupported(at, f".{LIST_TYPE}", declared, LIST_TYPES)


def _check_keys(schema: Obj, at: Place, findings: Findings) -> None:
    keys, declared = schema.get(LIST_KEYS) or [], schema.get(LIST_TYPE)
    if keys and declared != "map":
        detail = f"must be map if {LIST_KEYS} is non-empty"
        if declared is None:
            findings.required(at, f".{LIST_TYPE}", detail)
        else:
            findings.invalid(at, f".{LIST_TYPE}", declared, detail)
    if declared != "map":
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
    """Items of a set or of a map list are never null, and those of a map list have their keys."""
    items, declared = items_of(schema), schema.get(LIST_TYPE)
    if items is None or declared not in ("set", "map"):
        return
    if items.get("nullable"):
        findings.forbidden(at, ".items.nullable", f"cannot be nullable when {LIST_TYPE} is {declared}")
    if declared == "set":
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
