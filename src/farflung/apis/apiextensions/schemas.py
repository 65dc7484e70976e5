"""JSON schemas in CustomResourceDefinitions: traversal, size limits, and their Go form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import orjson

from farflung.apis.validation import Errors
from farflung.machinery import go_text
from farflung.machinery.errors import FieldError, Obj, duplicate, invalid_value, required, too_many

MAX_PARTS: Final = 30_000  #: schemas in the schemas of one definition
DEEPEST: Final = 100  #: schemas in each other
MAX_SHOWN: Final = 500  #: schemas that a message shows
MAX_RULES: Final = 1000  #: validation rules of one definition
MAX_RULE_TEXT: Final = 200_000  #: characters of their expressions
MAX_DEFAULT_WORK: Final = 200_000  #: see `default_work`
WORK_PER_DEFAULT: Final = 40
LONGEST_NAME: Final = 1000  #: characters of a property's name
VALIDATIONS: Final = "x-kubernetes-validations"


def as_schema(value: Any) -> Obj:
    """A schema, or an empty one for any other value."""
    return value if type(value) is dict else {}


def schema_of(version: Obj) -> Obj | None:
    """The schema of a version, None if it has none."""
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    return schema if type(schema) is dict else None


def members(schema: Obj, member: str) -> dict[str, Obj]:
    """`properties` and what else has schemas by name."""
    return {name: as_schema(value) for name, value in (schema.get(member) or {}).items()}


def choices(schema: Obj, member: str) -> list[Obj]:
    """`allOf`, `anyOf`, `oneOf`."""
    return [as_schema(choice) for choice in schema.get(member) or ()]


def items_of(schema: Obj) -> Obj | None:
    """The schema of the items; None if there is none, or not just one."""
    items = schema.get("items")
    return items if type(items) is dict else None


def additional_of(schema: Obj) -> Obj | None:
    """The schema of additional properties, None if it is a boolean or absent."""
    additional = schema.get("additionalProperties")
    return additional if type(additional) is dict else None


BY_NAME: Final = frozenset({"properties", "patternProperties", "definitions", "dependencies"})
#: members that are schemas, have schemas by name, or are lists of schemas
HOLDERS: Final = BY_NAME | {"items", "additionalProperties", "additionalItems", "not", "allOf", "anyOf", "oneOf"}


def parts(schema: Obj) -> list[Obj]:
    """The schemas right inside a schema."""
    found: list[Any] = []
    for member in HOLDERS.intersection(schema):
        value = schema[member]
        if type(value) is list:
            found += value
        elif type(value) is dict:
            found += value.values() if member in BY_NAME else (value,)
    return [part for part in found if type(part) is dict]


def everything_in(schema: Obj) -> Iterator[Obj]:
    """A schema and all schemas in it; raises TooDeep."""
    level, depth = [schema], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise TooDeep
        yield from level
        level = [part for one in level for part in parts(one)]


class TooDeep(Exception):
    """Schemas in schemas, beyond all reason."""


def too_large(versions: Sequence[Obj]) -> str:
    """Why the schemas of a definition are too large to validate; empty if they are not."""
    everything = (part for version in versions for part in everything_in(schema_of(version) or {}))
    try:
        found = list(islice(everything, MAX_PARTS + 1))
    except TooDeep:
        return f"schemas that nest more than {DEEPEST} levels deep are not supported"
    if len(found) > MAX_PARTS:
        return f"schemas of more than {MAX_PARTS} parts are not supported"
    if any(len(name) > LONGEST_NAME for part in found for name in part.get("properties") or ()):
        return f"properties with names of more than {LONGEST_NAME} characters are not supported"
    rules = [rule or {} for part in found for rule in part.get(VALIDATIONS) or ()]
    if len(rules) > MAX_RULES:
        return f"more than {MAX_RULES} {VALIDATIONS} are not supported"
    if sum(len(rule.get("rule", "")) + len(rule.get("messageExpression", "")) for rule in rules) > MAX_RULE_TEXT:
        return f"{VALIDATIONS} of more than {MAX_RULE_TEXT} characters are not supported"
    return ""


def default_work(schema: Obj) -> int:
    """The work of validating the defaults of a schema: each by all of the schema that it belongs to, and by
    the length of its path."""
    work = 0

    def size(part: Obj, length: int) -> int:
        nonlocal work
        named = (size(one, length + len(name)) for name, one in members(part, "properties").items())
        below = sum(named) + sum(size(one, length) for one in (items_of(part), additional_of(part)) if one is not None)
        if part.get("default") is not None:
            work += WORK_PER_DEFAULT + below + length // 64
        return 1 + below

    size(schema, 0)
    return work


# --- as messages show them -------------------------------------------------------------------------


def shown_versions(versions: Sequence[Obj] | None, *, hoisted: Callable[[str], bool]) -> Any:
    """`spec.versions` with the names of Go's fields.  What all versions have in common is not in them."""
    if versions is None:
        return None
    several = sum(1 for version in versions for _ in everything_in(schema_of(version) or {})) > MAX_SHOWN
    without = (lambda member: member == "schema" or hoisted(member)) if several else hoisted
    return orjson.Fragment(go_text.encoded([_version(version, without) for version in versions], ordered=True))


def shown_schema(schema: Obj) -> Any:
    if sum(1 for _ in everything_in(schema)) > MAX_SHOWN:
        return None
    return orjson.Fragment(go_text.encoded(_schema(schema), ordered=True))


def _version(version: Obj, hoisted: Callable[[str], bool]) -> Obj:
    def own(member: str) -> Any:
        return None if hoisted(member) else version.get(member)

    validation, subresources = own("schema"), own("subresources")
    return {
        "Name": version.get("name", ""),
        "Served": version.get("served", False),
        "Storage": version.get("storage", False),
        "Deprecated": version.get("deprecated", False),
        "DeprecationWarning": version.get("deprecationWarning"),
        "Schema": None if validation is None else {"OpenAPIV3Schema": _optional(validation.get("openAPIV3Schema"))},
        "Subresources": None if subresources is None else _subresources(subresources),
        "AdditionalPrinterColumns": _list(own("additionalPrinterColumns"), _column),
        "SelectableFields": _list(own("selectableFields"), lambda field: {"JSONPath": field.get("jsonPath", "")}),
    }


def _list(values: Sequence[Obj] | None, show: Callable[[Obj], Obj]) -> list[Obj] | None:
    return [show(value) for value in values] if values else None


def _column(column: Obj) -> Obj:
    texts = {name.title(): column.get(name, "") for name in ("name", "type", "format", "description")}
    return {**texts, "Priority": column.get("priority", 0), "JSONPath": column.get("jsonPath", "")}


def _subresources(subresources: Obj) -> Obj:
    scale = subresources.get("scale")
    return {
        "Status": subresources.get("status"),
        "Scale": None
        if scale is None
        else {
            "SpecReplicasPath": scale.get("specReplicasPath", ""),
            "StatusReplicasPath": scale.get("statusReplicasPath", ""),
            "LabelSelectorPath": scale.get("labelSelectorPath"),
        },
    }


def _optional(value: Any) -> Obj | None:
    return _schema(value) if type(value) is dict else None


def _schemas(values: Sequence[Any] | None) -> list[Obj] | None:
    return [_schema(as_schema(value)) for value in values] if values else None


def _named(values: Obj | None) -> Obj | None:
    return {name: _schema(as_schema(values[name])) for name in sorted(values)} if values else None


def _or_array(value: Any) -> Obj | None:
    if value is None:
        return None
    return {"Schema": _optional(value), "JSONSchemas": _schemas(value) if type(value) is list else None}


def _or_bool(value: Any) -> Obj | None:
    return None if value is None else {"Allows": value is not False, "Schema": _optional(value)}


def _or_texts(values: Obj | None) -> Obj | None:
    if not values:
        return None
    return {
        name: {"Schema": _optional(values[name]), "Property": values[name] if type(values[name]) is list else None}
        for name in sorted(values)
    }


def _documents(value: Obj | None) -> Obj | None:
    return None if value is None else {"Description": value.get("description", ""), "URL": value.get("url", "")}


def _rules(values: Sequence[Obj] | None) -> list[Obj] | None:
    return [_rule(value or {}) for value in values] if values else None


def _rule(rule: Obj) -> Obj:
    return {
        "Rule": rule.get("rule", ""),
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> Any:
    return value or ""


def _flag(value: Any) -> Any:
    return bool(value)


#: Go's fields in their order: name, member, how it is shown
FIELDS: Final[tuple[tuple[str, str, Callable[[Any], Any]], ...]] = (
    ("ID", "id", _text),
    ("Schema", "$schema", _text),
    ("Ref", "$ref", _same),
    ("Description", "description", _text),
    ("Type", "type", _text),
    ("Nullable", "nullable", _flag),
    ("Format", "format", _text),
    ("Title", "title", _text),
    ("Default", "default", _same),
    ("Maximum", "maximum", _same),
    ("ExclusiveMaximum", "exclusiveMaximum", _flag),
    ("Minimum", "minimum", _same),
    ("ExclusiveMinimum", "exclusiveMinimum", _flag),
    ("MaxLength", "maxLength", _same),
    ("MinLength", "minLength", _same),
    ("Pattern", "pattern", _text),
    ("MaxItems", "maxItems", _same),
    ("MinItems", "minItems", _same),
    ("UniqueItems", "uniqueItems", _flag),
    ("MultipleOf", "multipleOf", _same),
    ("Enum", "enum", _same),
    ("MaxProperties", "maxProperties", _same),
    ("MinProperties", "minProperties", _same),
    ("Required", "required", _same),
    ("Items", "items", _or_array),
    ("AllOf", "allOf", _schemas),
    ("OneOf", "oneOf", _schemas),
    ("AnyOf", "anyOf", _schemas),
    ("Not", "not", _optional),
    ("Properties", "properties", _named),
    ("AdditionalProperties", "additionalProperties", _or_bool),
    ("PatternProperties", "patternProperties", _named),
    ("Dependencies", "dependencies", _or_texts),
    ("AdditionalItems", "additionalItems", _or_bool),
    ("Definitions", "definitions", _named),
    ("ExternalDocs", "externalDocs", _documents),
    ("Example", "example", _same),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", _same),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", _flag),
    ("XIntOrString", "x-kubernetes-int-or-string", _flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", _same),
    ("XListType", "x-kubernetes-list-type", _same),
    ("XMapType", "x-kubernetes-map-type", _same),
    ("XValidations", VALIDATIONS, _rules),
)


def _schema(schema: Obj) -> Obj:
    return {name: show(schema.get(member)) for name, member, show in FIELDS}


# --- Fields of custom resources that lists can be selected by -------------------------------------

MAX_FIELDS: Final = 8
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
    if len(seen) > MAX_FIELDS:
        errors.append(too_many(path, len(seen), MAX_FIELDS))


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
    """The names on a path, and the schema at its end.  Raises BadPath."""
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
