"""Published schemas, by the name of their definition.

The definitions in the package are for validators: null is a type, `kind` and `apiVersion` are enumerations, types with
several JSON types have no description, fields neither enumerations nor defaults.  This restores what Kubernetes serves,
in both versions of OpenAPI.  A resource may have definitions of its own, in terms of version 3, with plain references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from farflung.apis import definitions
from farflung.hub.catalog.openapi import defaults
from farflung.hub.catalog.openapi.enumerations import VALUES
from farflung.machinery.errors import Obj

QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING: Final = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"

DESCRIPTIONS: Final = {
    QUANTITY: (
        "Quantity is a fixed-point number: digits with at most one point, and a suffix. Suffixes are Ki, Mi, Gi, Ti, "
        "Pi, Ei (powers of 1024), n, u, m, k, M, G, T, P, E (powers of 1000), or a decimal exponent such as e3. "
        "It has at most three decimal places and is at most 2^63-1 in magnitude; larger or more precise numbers are "
        "capped or rounded up. It is written in its canonical form: no precision lost, no fraction, and the largest "
        "possible suffix; so 1.5 becomes 1500m and 1.5Gi becomes 1536Mi."
    ),
    INT_OR_STRING: (
        "IntOrString is a type that can hold an int32 or a string. In JSON or YAML it is whichever of the two it is "
        "given as, for instance a port's number or its name, a number of pods or a percentage."
    ),
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences between the two versions of OpenAPI."""

    references: str  #: prefix of a reference
    modern: bool  #: wraps references that have siblings; has alternatives and defaults
    unions: Mapping[str, Obj]  #: schemas of types with several JSON types


V2: Final = Dialect(
    "#/definitions/",
    modern=False,
    unions={QUANTITY: {"type": "string"}, INT_OR_STRING: {"type": "string", "format": "int-or-string"}},
)
V3: Final = Dialect(
    "#/components/schemas/",
    modern=True,
    unions={
        QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
        INT_OR_STRING: {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    },
)

Own = Mapping[str, Obj]  #: definitions beside the built-in ones
EXTENDS: Final = "x-extends"  #: in such a definition: the built-in one that it has further fields than


def without_mark(own: Obj) -> Obj:
    """A copy of a definition that extends a built-in one, whose fields may be restored."""
    rest = {name: value for name, value in own.items() if name != EXTENDS}
    return {**rest, "properties": deepcopy(own["properties"])}


class Schemas:
    """Definitions in one dialect, rendered on demand and not cached."""

    __slots__ = ("_built_in", "_dialect", "_own")

    def __init__(self, dialect: Dialect, own: Own) -> None:
        self._dialect = dialect
        self._own = own
        self._built_in = frozenset(definitions.names())

    def known(self, name: str) -> bool:
        return name in self._own or name in self._built_in

    def reference(self, name: str) -> Obj:
        return {"$ref": self._dialect.references + name}

    def closure(self, names: Iterable[str]) -> dict[str, Obj]:
        """These definitions and all that they refer to, by name."""
        found: dict[str, Obj] = {}
        waiting = sorted(names, reverse=True)
        while waiting:
            name = waiting.pop()
            if name not in found and self.known(name):
                found[name] = self._rendered(name, waiting.append)
        return dict(sorted(found.items()))

    def _rendered(self, name: str, refer: Callable[[str], None]) -> Obj:
        renderer = Renderer(self._dialect, refer)
        if name in self._own:
            own = self._own[name]
            base = own.get(EXTENDS)
            return renderer.node(own) if base is None else renderer.built_in(base, without_mark(own))
        union = self._dialect.unions.get(name)
        if union is not None:
            return {"description": DESCRIPTIONS[name], **union}
        return renderer.built_in(name, definitions.decoded(name))


class Renderer:
    """Copies schemas into a dialect, and collects the definitions that they refer to."""

    __slots__ = ("_dialect", "_refer")

    def __init__(self, dialect: Dialect, refer: Callable[[str], None]) -> None:
        self._dialect = dialect
        self._refer = refer

    def built_in(self, name: str, definition: Obj) -> Obj:
        """A built-in definition, with the restored fields."""
        fields = definition.get("properties")
        if not fields:
            return self.node(definition)
        if "x-kubernetes-group-version-kind" in definition:
            fields.get("apiVersion", {}).pop("enum", None)
            fields.get("kind", {}).pop("enum", None)
        known_defaults = defaults.of_fields(name) if self._dialect.modern else {}
        for field, schema in fields.items():
            restore(schema, VALUES.get((name, field)), known_defaults.get(field, defaults.NONE))
        return self.node(definition)

    def node(self, schema: Obj) -> Obj:
        modern = self._dialect.modern
        if not modern:
            schema = simplified(schema)
        copy: Obj = {}
        for key, value in schema.items():
            match key:
                case "properties":
                    copy[key] = {name: self.node(field) for name, field in value.items()}
                case "items" | "additionalProperties" | "not":
                    copy[key] = self.node(value) if isinstance(value, dict) else value
                case "allOf" | "anyOf" | "oneOf":
                    copy[key] = [self.node(one) for one in value]
                case "type" if isinstance(value, list):
                    copy[key] = next(one for one in value if one != "null")
                case "$ref":
                    copy[key] = self._reference(value)
                case _:
                    copy[key] = value
        return wrapped(copy) if modern and "$ref" in copy and len(copy) > 1 else copy

    def _reference(self, reference: str) -> str:
        name = reference.rpartition("/")[2]
        self._refer(name)
        return self._dialect.references + name


def restore(schema: Obj, values: tuple[str, ...] | None, default: defaults.FieldDefault) -> None:
    """Restore the enumeration and the default of a field, or of the elements of a list or map."""
    element: Any = schema.get("items") or schema.get("additionalProperties")
    if values:
        (element or schema)["enum"] = values
    if default.own is not None:
        schema["default"] = default.own
    if default.element is not None and isinstance(element, dict):
        element["default"] = default.element


UNSAID: Final = frozenset({"allOf", "anyOf", "nullable", "not", "oneOf"})  #: keywords that version 2 does not have


def simplified(schema: Obj) -> Obj:
    """The schema in terms of version 2.  Its clients refuse null and unknown fields if types and fields are given, so
    these are omitted where null or unknown fields are allowed."""
    untyped = schema.get("nullable") or schema.get("x-kubernetes-int-or-string")
    open_ended = schema.get("nullable") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not untyped and not open_ended and schema.keys().isdisjoint(UNSAID) and "required" not in schema:
        return schema
    left_out = UNSAID | ({"type"} if untyped else set()) | ({"items", "properties"} if open_ended else set())
    rest = {key: value for key, value in schema.items() if key not in left_out}
    if "required" in rest:
        fields = schema.get("properties", {})
        rest["required"] = [name for name in rest["required"] if not fields.get(name, {}).get("nullable")]
    return rest


def wrapped(schema: Obj) -> Obj:
    """Version 3 allows no siblings of a reference."""
    return {"allOf": [{"$ref": schema.pop("$ref")}], **schema}
