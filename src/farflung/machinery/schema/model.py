"""A schema node: the type of a value, for decoding, pruning, patches, server-side apply and protobuf.

Nodes are made once from the OpenAPI schema of a built-in kind or of a CustomResourceDefinition, and shared by all these
walks.  A reference is resolved when its node is first needed, so types may be recursive, and unused ones cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Definition = Mapping[str, Any]  #: an OpenAPI schema as JSON
Lookup = Callable[[str], "Schema"]  #: the name of a definition → its schema

OBJECT: Final = "object"  #: a struct: named properties
MAP: Final = "map"  #: string keys, values of one type
LIST: Final = "list"
STRING: Final = "string"
INTEGER: Final = "integer"
NUMBER: Final = "number"
BOOLEAN: Final = "boolean"
INT_OR_STRING: Final = "int-or-string"
QUANTITY: Final = "quantity"
ANY: Final = "any"  #: any JSON

#: definitions that OpenAPI does not describe completely
SPECIAL: Final[Mapping[str, str]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": INT_OR_STRING,
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": ANY,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": ANY,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": ANY,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray": ANY,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool": ANY,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray": ANY,
}


class Schema:
    """One node.  `member`, `items` and `values` return child nodes, which are created on first use."""

    __slots__ = (
        "_children",
        "_lookup",
        "definition",
        "format",
        "kind",
        "list_keys",
        "list_type",
        "merge_key",
        "name",
        "property_names",
        "strategies",
    )

    def __init__(self, definition: Definition, lookup: Lookup, name: str = "") -> None:
        self.name = name  #: `io.k8s.api.core.v1.ConfigMap`; empty for an anonymous node
        self.definition = definition  #: as written, with descriptions
        self._lookup = lookup
        self._children: dict[str, Schema] = {}
        self.kind = kind_of(definition, name)
        self.format: str = definition.get("format", "")  #: int32, int64, byte, date-time …
        self.property_names = frozenset(definition.get("properties", ()))
        self.list_type: str = definition.get("x-kubernetes-list-type", "atomic")  #: atomic, set or map
        self.list_keys: tuple[str, ...] = tuple(definition.get("x-kubernetes-list-map-keys", ()))
        self.strategies = frozenset(filter(None, definition.get("x-kubernetes-patch-strategy", "").split(",")))
        self.merge_key: str = definition.get("x-kubernetes-patch-merge-key", "")

    @property
    def go_name(self) -> str:
        """The Go struct's bare name, as it appears in decoding errors."""
        return self.name.rpartition(".")[2]

    def member(self, name: str) -> Schema | None:
        """The node of a named property, or None if an object has no such property."""
        child = self._children.get(name)
        if child is None and name in self.property_names:
            child = self._children[name] = self._child(self.definition["properties"][name])
        return child

    @property
    def items(self) -> Schema:
        """The node of a list's items."""
        return self._only_child(self.definition.get("items", {}))

    @property
    def values(self) -> Schema:
        """The node of a map's values."""
        values = self.definition.get("additionalProperties", {})
        return self._only_child({} if values is True else values)

    def field(self, name: str) -> Schema | None:
        """The node of a key of an object or a map."""
        if self.kind == MAP:
            return self.values
        return self.member(name)

    def definition_named(self, name: str) -> Schema:
        """Another definition of the same document."""
        return self._lookup(name)

    def _only_child(self, definition: Definition) -> Schema:
        child = self._children.get("")
        if child is None:
            child = self._children[""] = self._child(definition)
        return child

    def _child(self, definition: Definition) -> Schema:
        reference = definition.get("$ref")
        if reference is None and len(definition.get("allOf", ())) == 1:
            reference = definition["allOf"][0].get("$ref")
        if reference is None:
            return Schema(definition, self._lookup)
        target = self._lookup(reference.rpartition("/")[2])
        extensions = {key: value for key, value in definition.items() if key.startswith("x-kubernetes-")}
        if not extensions:
            return target
        return Schema({**target.definition, **extensions}, self._lookup, target.name)

    def __repr__(self) -> str:
        return f"Schema({self.kind}, {self.name or self.format!r})"


def kind_of(definition: Definition, name: str = "") -> str:
    if name in SPECIAL:
        return SPECIAL[name]
    if definition.get("x-kubernetes-int-or-string"):
        return INT_OR_STRING
    type_ = definition.get("type")
    if isinstance(type_, list):  # ["string", "null"]: Go decodes null into anything
        type_ = next((one for one in type_ if one != "null"), None)
    match type_:
        case "object" if definition.get("properties"):
            return OBJECT
        case "object" if definition.get("additionalProperties"):
            return MAP
        case "object" if name:
            return OBJECT  # a struct without fields
        case "object":
            return ANY
        case "array":
            return LIST
        case "string" | "integer" | "number" | "boolean":
            return str(type_)
        case _:
            return OBJECT if definition.get("properties") else ANY
