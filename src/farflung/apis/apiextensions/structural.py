"""Whether a schema is structural: what is known of a value does not hang on what else it is.

Each part has its type outside of `allOf`, `anyOf`, `oneOf` and `not`, and these only restrict what is declared.
"""

from __future__ import annotations

from typing import Final

from farflung.apis.apiextensions.findings import Findings, Place, text_of
from farflung.apis.apiextensions.patterns import pattern_problem
from farflung.apis.apiextensions.schemas import additional_of, choices, items_of, members
from farflung.machinery.errors import FieldError, Obj

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
    _check(schema, ROOT, at, findings)
    _check_declared(schema, schema, at, at, findings)
    return sorted(findings.errors, key=str)


# --- what is declared -----------------------------------------------------------------------------


def _check(schema: Obj, level: str, at: Place, findings: Findings) -> None:
    items, properties, type_ = items_of(schema), members(schema, "properties"), schema.get("type", "")
    if type_ == "array" and items is None:
        findings.required(at, ".items", "must be specified")
    if items is not None:
        _check(items, ITEM, (at, ".items"), findings)
    for name, value in properties.items():
        _check(value, FIELD, (at, f".properties[{name}]"), findings)
    if schema.get("additionalProperties") is not None:
        _check_additional(schema, level, at, findings)
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


def _check_additional(schema: Obj, level: str, at: Place, findings: Findings) -> None:
    if level == ROOT:
        findings.forbidden(at, ".additionalProperties", "must not be used at the root")
    if (additional := additional_of(schema)) is not None:
        _check(additional, FIELD, (at, ".additionalProperties"), findings)
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
    said: set[str] = {member for member in metadata if member not in REMARKS} - {"type", "default", "properties"}
    if said or not members(metadata, "properties").keys() <= {"name", "generateName"}:
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
    """Whatever a restriction speaks of is declared.  `at`: the place of the declaration, `there`: that of the
    restriction."""
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
