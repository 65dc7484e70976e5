"""A structural schema as a tree of nodes, for pruning, defaulting and validation.

Schemas are validated with their CustomResourceDefinition, yet reading one never fails: a keyword of the wrong type is
ignored, and below `DEEPEST` levels any value is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from farflung.machinery.errors import Obj
from farflung.machinery.schema.structural import formats
from farflung.machinery.schema.structural.formats import SchemaPattern

DEEPEST: Final = 120  #: nodes below each other; a body has 254 levels, and a schema needs two for a node
TYPES: Final = frozenset({"object", "array", "string", "integer", "number", "boolean"})
IDENTITY: Final = frozenset({"apiVersion", "kind", "metadata"})  #: what every object has, whatever its schema says
NO_DEFAULT: Final = object()

Number = int | float


@dataclass(frozen=True)
class SchemaNode:
    """One schema.  Limits that are not there are None."""

    types: tuple[str, ...] = ()  #: empty: any type
    nullable: bool = False
    properties: Mapping[str, SchemaNode] = field(default_factory=dict)
    values: SchemaNode | None = None  #: of the keys that are no properties, if the schema speaks of them
    open: bool = False  #: it speaks of them at all: `additionalProperties`
    items: SchemaNode | None = None
    required: tuple[str, ...] = ()
    preserving: bool = False  #: fields that are not known stay
    embedded: bool = False  #: an object with apiVersion, kind and metadata of its own
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    default: Any = NO_DEFAULT  #: NO_DEFAULT if there is none
    format: str = ""  #: empty if the API does not know it
    pattern: SchemaPattern | None = None
    enum: Sequence[Any] | None = None
    multiple_of: Number | None = None
    minimum: Number | None = None
    maximum: Number | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    unique_items: bool = False
    min_properties: int | None = None
    max_properties: int | None = None
    any_of: tuple[SchemaNode, ...] = ()
    one_of: tuple[SchemaNode, ...] = ()
    all_of: tuple[SchemaNode, ...] = ()
    none_of: SchemaNode | None = None

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT

    @property
    def type_text(self) -> str:
        """The types as error messages show them."""
        return ",".join(self.types)

    def field(self, name: str) -> SchemaNode | None:
        """The schema of a field, if there is one."""
        return self.properties.get(name, self.values)


def read(schema: Any, depth: int = DEEPEST) -> SchemaNode:
    """A node of an OpenAPI schema."""
    if not isinstance(schema, dict) or not depth:
        return ANYTHING
    get = schema.get
    additional = get("additionalProperties")
    integer_or_string = get("x-kubernetes-int-or-string") is True
    list_keys = get("x-kubernetes-list-map-keys")
    return SchemaNode(
        types=("integer", "string") if integer_or_string else _types(get("type")),
        nullable=get("nullable") is True,
        properties={name: read(one, depth - 1) for name, one in _mapping(get("properties")).items()},
        values=read(additional, depth - 1) if isinstance(additional, dict) else None,
        open=isinstance(additional, dict) or additional is True,
        items=read(get("items"), depth - 1) if isinstance(get("items"), dict) else None,
        required=tuple(one for one in _sequence(get("required")) if isinstance(one, str)),
        preserving=get("x-kubernetes-preserve-unknown-fields") is True,
        embedded=get("x-kubernetes-embedded-resource") is True,
        list_type=str(get("x-kubernetes-list-type") or ""),
        list_keys=tuple(one for one in _sequence(list_keys) if isinstance(one, str)),
        default=NO_DEFAULT if get("default") is None else get("default"),
        format=formats.known(get("format")),
        pattern=_pattern(get("pattern")),
        enum=list(_sequence(get("enum"))) or None,
        multiple_of=_positive(get("multipleOf")),
        minimum=_number(get("minimum")),
        maximum=_number(get("maximum")),
        exclusive_minimum=get("exclusiveMinimum") is True,
        exclusive_maximum=get("exclusiveMaximum") is True,
        min_length=_count(get("minLength")),
        max_length=_count(get("maxLength")),
        min_items=_count(get("minItems")),
        max_items=_count(get("maxItems")),
        unique_items=get("uniqueItems") is True,
        min_properties=_count(get("minProperties")),
        max_properties=_count(get("maxProperties")),
        any_of=_nodes(schema, "anyOf", depth),
        one_of=_nodes(schema, "oneOf", depth),
        all_of=_nodes(schema, "allOf", depth),
        none_of=read(get("not"), depth - 1) if isinstance(get("not"), dict) else None,
    )


def _nodes(schema: Obj, junctor: str, depth: int) -> tuple[SchemaNode, ...]:
    return tuple(read(one, depth - 1) for one in _sequence(schema.get(junctor)))


def _types(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) and value in TYPES else ()


def _mapping(value: Any) -> Obj:
    return value if isinstance(value, dict) else {}


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _pattern(value: Any) -> SchemaPattern | None:
    return SchemaPattern(value) if value and isinstance(value, str) else None


def _number(value: Any) -> Number | None:
    return value if type(value) is int or type(value) is float else None


def _positive(value: Any) -> Number | None:
    number = _number(value)
    return number if number is not None and number > 0 else None


def _count(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


ANYTHING: Final = SchemaNode(nullable=True, preserving=True)


# --- values of nodes ----------------------------------------------------------------------------


class NodeValue(NamedTuple):
    node: SchemaNode
    value: Any
    path: str  #: `spec.list[0].x`


Find = Callable[[Any, str], Iterator[NodeValue]]


def finder(node: SchemaNode, wanted: Callable[[SchemaNode], bool]) -> Find | None:
    """A function that finds the values of wanted nodes, outer ones first; None if there are none."""
    here = wanted(node)
    fields = {name: found for name, one in node.properties.items() if (found := finder(one, wanted))}
    values = finder(node.values, wanted) if node.values is not None else None
    items = finder(node.items, wanted) if node.items is not None else None
    if not (here or fields or values or items):
        return None

    def find(value: Any, path: str) -> Iterator[NodeValue]:
        if here:
            yield NodeValue(node, value, path)
        if type(value) is dict and (fields or values):
            for name, item in value.items():
                if name in fields:
                    yield from fields[name](item, below(path, name))
                elif values is not None and name not in node.properties:
                    yield from values(item, f"{path}[{name}]")
        elif type(value) is list and items is not None:
            for index, item in enumerate(value):
                yield from items(item, f"{path}[{index}]")

    return find


def below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
