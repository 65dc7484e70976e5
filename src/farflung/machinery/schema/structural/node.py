"""A structural schema as a tree of nodes, for pruning, defaulting and validation.

Schemas are validated with their CustomResourceDefinition, yet reading one never fails: a keyword of the wrong type is
ignored, and below `DEEPEST` levels any value is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from farflung.machinery.errors import Obj, Place, place_text
from farflung.machinery.schema.structural import formats
from farflung.machinery.schema.structural.formats import SchemaPattern
from farflung.machinery.schema.structural.json_values import is_number
from farflung.machinery.turns import Steps

DEEPEST: Final = 120  #: nodes below each other; a body has 254 levels, and a schema needs two for a node
TYPES: Final = ("object", "array", "string", "integer", "number", "boolean")
IDENTITY: Final = frozenset({"apiVersion", "kind", "metadata"})  #: fields of every object, also without a schema
NO_DEFAULT: Final = object()

WITH_SCHEMA: Final = ("additionalProperties", "items", "not")  #: keywords of one schema
WITH_SCHEMAS: Final = ("anyOf", "oneOf", "allOf")  #: … and of several
NODE_WORK: Final = 1000  #: of reading or compiling a node, in the units of `machinery/turns.py`
TOGETHER: Final = 32  #: nodes of a step
VISIT_WORK: Final = 100  #: of visiting a node
VISITED: Final = 256  #: nodes of a step that only visits them

T = TypeVar("T")
Number = int | float


@dataclass(frozen=True)
class SchemaNode:
    """One schema.  Limits that it does not set are None."""

    types: tuple[str, ...] = ()  #: empty: any type
    nullable: bool = False
    properties: Mapping[str, SchemaNode] = field(default_factory=dict)
    values: SchemaNode | None = None  #: the schema of additionalProperties
    open: bool = False  #: allows additionalProperties
    items: SchemaNode | None = None
    required: tuple[str, ...] = ()
    preserving: bool = False  #: keeps unknown fields
    embedded: bool = False  #: an object with its own apiVersion, kind and metadata
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    default: Any = NO_DEFAULT  #: NO_DEFAULT: none
    format: str = ""  #: empty: not validated
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
        """The schema of a field; None if it has none."""
        return self.properties.get(name, self.values)


NodesRead = dict[int, SchemaNode]  #: by the identity of their schemas


def read(schema: Any, depth: int = DEEPEST, known: NodesRead | None = None) -> SchemaNode:
    """A node of an OpenAPI schema.  `known`: nodes below it."""
    if not isinstance(schema, dict) or not depth:
        return ANYTHING
    if known is not None and (found := known.get(id(schema))) is not None:
        return found
    get = schema.get
    type_, pattern, additional, factor = get("type"), get("pattern"), get("additionalProperties"), get("multipleOf")
    integer_or_string = get("x-kubernetes-int-or-string") is True

    def node(value: Any) -> SchemaNode | None:
        return read(value, depth - 1, known) if isinstance(value, dict) else None

    def nodes(value: Any) -> tuple[SchemaNode, ...]:
        return tuple(read(one, depth - 1, known) for one in sequence(value))

    return SchemaNode(
        types=("integer", "string") if integer_or_string else (type_,) if type_ in TYPES else (),
        nullable=get("nullable") is True,
        properties={name: read(one, depth - 1, known) for name, one in mapping(get("properties")).items()},
        values=node(additional),
        open=isinstance(additional, dict) or additional is True,
        items=node(get("items")),
        required=texts(get("required")),
        preserving=get("x-kubernetes-preserve-unknown-fields") is True,
        embedded=get("x-kubernetes-embedded-resource") is True,
        list_type=str(get("x-kubernetes-list-type") or ""),
        list_keys=texts(get("x-kubernetes-list-map-keys")),
        default=NO_DEFAULT if get("default") is None else get("default"),
        format=formats.known(get("format")),
        pattern=SchemaPattern(pattern) if pattern and isinstance(pattern, str) else None,
        enum=list(sequence(get("enum"))) or None,
        multiple_of=factor if is_number(factor) and factor > 0 else None,
        minimum=number(get("minimum")),
        maximum=number(get("maximum")),
        exclusive_minimum=get("exclusiveMinimum") is True,
        exclusive_maximum=get("exclusiveMaximum") is True,
        min_length=count(get("minLength")),
        max_length=count(get("maxLength")),
        min_items=count(get("minItems")),
        max_items=count(get("maxItems")),
        unique_items=get("uniqueItems") is True,
        min_properties=count(get("minProperties")),
        max_properties=count(get("maxProperties")),
        any_of=nodes(get("anyOf")),
        one_of=nodes(get("oneOf")),
        all_of=nodes(get("allOf")),
        none_of=node(get("not")),
    )


def read_steps(schema: Any) -> Steps[SchemaNode]:
    """The same, in steps: inner nodes are read before outer ones."""
    known: NodesRead = {}
    order = yield from inner_first((schema, DEEPEST), schemas_in)
    for at, (one, depth) in enumerate(order):
        if at % TOGETHER == 0:
            yield work_of(len(order) - at)
        if isinstance(one, dict) and depth:
            known[id(one)] = read(one, depth, known)
    return read(schema, DEEPEST, known)


def schemas_in(place: tuple[Any, int]) -> Iterator[tuple[Any, int]]:
    schema, depth = place
    if not isinstance(schema, dict) or not depth:
        return
    for one in (*mapping(schema.get("properties")).values(), *(schema.get(name) for name in WITH_SCHEMA)):
        yield one, depth - 1
    for name in WITH_SCHEMAS:
        for one in sequence(schema.get(name)):
            yield one, depth - 1


def inner_first(root: T, within: Callable[[T], Iterable[T]]) -> Steps[list[T]]:
    """The nodes of a tree, each after those within it."""
    found: list[T] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if len(found) % VISITED == 0:
            yield VISIT_WORK * VISITED
        waiting += within(node)
    found.reverse()
    return found


def work_of(left: int) -> int:
    """Of the next step, if so many nodes are left."""
    return NODE_WORK * min(left, TOGETHER)


def mapping(value: Any) -> Obj:
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def texts(value: Any) -> tuple[str, ...]:
    return tuple(one for one in sequence(value) if isinstance(one, str))


def number(value: Any) -> Number | None:
    return value if is_number(value) else None


def count(value: Any) -> int | None:
    return int(value) if is_number(value) else None


ANYTHING: Final = SchemaNode(nullable=True, preserving=True)


# --- values of nodes ----------------------------------------------------------------------------


def member(place: Place, name: str) -> Place:
    return place, name if place is None else f".{name}"


class NodeValue(NamedTuple):
    node: SchemaNode
    value: Any
    place: Place

    @property
    def path(self) -> str:
        return place_text(self.place)


Find = Callable[[Any, Place], Iterator[NodeValue]]


def finder(node: SchemaNode, wanted: Callable[[SchemaNode], bool]) -> Find | None:
    """A function that finds the values of wanted nodes, outer ones first; None if no node is wanted."""
    here = wanted(node)
    fields = {name: found for name, one in node.properties.items() if (found := finder(one, wanted))}
    values = finder(node.values, wanted) if node.values is not None else None
    items = finder(node.items, wanted) if node.items is not None else None
    if not (here or fields or values or items):
        return None

    def find(value: Any, place: Place) -> Iterator[NodeValue]:
        if here:
            yield NodeValue(node, value, place)
        if type(value) is dict and (fields or values):
            for name, item in value.items():
                if name in fields:
                    yield from fields[name](item, member(place, name))
                elif values is not None and name not in node.properties:
                    yield from values(item, (place, f"[{name}]"))
        elif type(value) is list and items is not None:
            for index, item in enumerate(value):
                yield from items(item, (place, f"[{index}]"))

    return find


def no_values(value: Any, place: Place) -> Iterator[NodeValue]:
    return iter(())


def below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
