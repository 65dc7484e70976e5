"""The published schema of a custom resource: that of its definition, with the fields of every object."""

from __future__ import annotations

from typing import Any, Final

from farflung.apis.definitions import META, definition
from farflung.apis.resource import Resource
from farflung.hub.catalog.openapi.operations import group_version_kind
from farflung.hub.catalog.openapi.schemas import Own
from farflung.machinery.errors import Obj
from farflung.machinery.schema.structural.node import DEEPEST

CONVENTIONS: Final = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
OBJECT: Final = "x-kubernetes-group-version-kind"

METADATA: Final[Obj] = {
    "$ref": f"#/definitions/{META}ObjectMeta",
    "description": f"Standard object's metadata. More info: {CONVENTIONS}#metadata",
}
LIST_METADATA: Final[Obj] = {
    "$ref": f"#/definitions/{META}ListMeta",
    "description": f"Standard list metadata. More info: {CONVENTIONS}#types-kinds",
}
API_VERSION_TEXT: Final = (
    " defines the versioned schema of this representation of an object. Servers should convert recognized schemas to "
    f"the latest internal value, and may reject unrecognized values. More info: {CONVENTIONS}#resources"
)
KIND_TEXT: Final = (
    " is a string value representing the REST resource this object represents. Servers may infer this from the "
    f"endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: {CONVENTIONS}#types-kinds"
)
EMBEDDED_KIND_TEXT: Final = (
    " is a string value representing the type of this object. Servers may infer this from the endpoint the client "
    f"submits requests to. Cannot be updated. In CamelCase. More info: {CONVENTIONS}#types-kinds"
)
TYPE_META: Final[Obj] = {
    "apiVersion": {"type": "string", "description": f"APIVersion{API_VERSION_TEXT}"},
    "kind": {"type": "string", "description": f"Kind{KIND_TEXT}"},
}
EMBEDDED: Final[Obj] = {
    "apiVersion": {"type": "string", "description": f"apiVersion{API_VERSION_TEXT}"},
    "kind": {"type": "string", "description": f"kind{EMBEDDED_KIND_TEXT}"},
    "metadata": METADATA,
}

#: keywords that are published unchanged
PUBLISHED: Final = frozenset(
    {
        "default",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "nullable",
        "pattern",
        "required",
        "title",
        "type",
        "uniqueItems",
    }
)
STRATEGIES: Final = ("x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key")
INTEGER_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]


def published(resource: Resource, schema: Any) -> Own:
    """The definitions of a custom resource and of its lists, by name; `schema` is its version's openAPIV3Schema."""
    return {
        resource.definition: described_object(resource, schema),
        f"{resource.definition.rpartition('.')[0]}.{resource.list_kind}": described_list(resource),
    }


def described_object(resource: Resource, schema: Any) -> Obj:
    result: Obj = published_schema(schema) if isinstance(schema, dict) else {"type": "object"}
    if resource.merged_like:
        add_merge_strategies(result, definition(resource.merged_like))
    result["properties"] = {**result.get("properties", {}), **TYPE_META, "metadata": METADATA}
    return {**result, OBJECT: [group_version_kind(resource.group, resource.version, resource.kind)]}


def described_list(resource: Resource) -> Obj:
    items: Obj = {
        "type": "array",
        "description": f"List of {resource.plural}. More info: {CONVENTIONS}",
        "items": {"$ref": f"#/definitions/{resource.definition}"},
    }
    return {
        "type": "object",
        "description": f"{resource.list_kind} is a list of {resource.kind}",
        "required": ["items"],
        "properties": {**TYPE_META, "items": items, "metadata": LIST_METADATA},
        OBJECT: [group_version_kind(resource.group, resource.version, resource.list_kind)],
    }


def published_schema(schema: Obj, depth: int = DEEPEST) -> Obj:
    """The published form of a node of a schema."""
    if not depth:
        return {"x-kubernetes-preserve-unknown-fields": True}
    result: Obj = {}
    for keyword, value in schema.items():
        match keyword:
            case "properties" if isinstance(value, dict):
                result[keyword] = {name: published_schema(one, depth - 1) for name, one in value.items()}
            case "items" | "additionalProperties" | "not":
                result[keyword] = published_schema(value, depth - 1) if isinstance(value, dict) else value
            case "allOf" | "anyOf" | "oneOf" if isinstance(value, list):
                result[keyword] = [published_schema(one, depth - 1) for one in value]
            case _ if keyword in PUBLISHED or keyword.startswith("x-kubernetes-"):
                result[keyword] = value
    if result.get("x-kubernetes-int-or-string") and "type" not in result:
        _describe_integer_or_string(result)
    return _with_identity(result) if result.get("x-kubernetes-embedded-resource") else result


def add_merge_strategies(result: Obj, native: Obj) -> None:
    """Add the merge strategies of the lists that a built-in definition has too."""
    if "$ref" in native:
        native = definition(native["$ref"].rpartition("/")[2])
    for name, one in result.get("properties", {}).items():
        known = native.get("properties", {}).get(name)
        if known is not None:
            one |= {keyword: known[keyword] for keyword in STRATEGIES if keyword in known}
            add_merge_strategies(one, known)
    if isinstance(result.get("items"), dict) and "items" in native:
        add_merge_strategies(result["items"], native["items"])


def _describe_integer_or_string(result: Obj) -> None:
    if result.get("anyOf") == INTEGER_OR_STRING:
        return
    alternatives: Obj = {"anyOf": INTEGER_OR_STRING}
    if "anyOf" not in result:
        result |= alternatives
    elif alternatives not in result.get("allOf", ()):
        result["allOf"] = [alternatives, *result.get("allOf", ())]


def _with_identity(result: Obj) -> Obj:
    """Add apiVersion, kind and metadata to an embedded object."""
    required = result.get("required") or []
    missing = [name for name in ("kind", "apiVersion") if name not in required]
    return {**result, "properties": {**result.get("properties", {}), **EMBEDDED}, "required": [*required, *missing]}
