"""Validation of the defaults in a schema: they must be pruned, and valid by their own schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import orjson

from farflung.machinery.errors import FieldError, Obj, invalid_value
from farflung.machinery.schema.structural.embedded import (
    MetadataRules,
    UnreadableMetadata,
    conform_embedded,
    embedded_errors,
)
from farflung.machinery.schema.structural.node import IDENTITY, NodeValue, SchemaNode, finder, no_values, read
from farflung.machinery.schema.structural.quick_check import QuickCheck
from farflung.machinery.schema.structural.report import ErrorReport, ordered
from farflung.machinery.schema.structural.structural import ONLY_PRUNE, compile_values
from farflung.machinery.schema.walk import Problems

Wrap = Callable[[Any], Any]  #: the value of a nested field → the object around it

PLAIN: Final[Obj] = {"apiVersion": "validation/v1", "kind": "Validation"}


def check_defaults(schema: Any, field: str, metadata: MetadataRules) -> list[FieldError]:
    """Errors of the defaults in a version's schema, which is at `field` of its definition."""
    return list(_below(replace(read(schema), embedded=True), field, metadata, None))


def _below(
    node: SchemaNode, field: str, metadata: MetadataRules, inside: tuple[SchemaNode, Wrap] | None
) -> Iterator[FieldError]:
    """`inside` apiVersion, kind or metadata of an object, a default is validated together with that object."""
    if node.embedded:
        inside = None
    if node.has_default:
        found = _value_errors(node, f"{field}.default", metadata)
        yield from _identity_errors(node, f"{field}.default", metadata, *inside) if inside else found
    if node.items is not None:
        yield from _below(node.items, f"{field}.items", metadata, _wrapped(inside, lambda value: [value]))
    for name, one in node.properties.items():
        around = inside
        if node.embedded and name in IDENTITY:
            around = (node, lambda value: value)
        deeper = _wrapped(around, in_field(name))
        yield from _below(one, f"{field}.properties[{name}]", metadata, deeper)


def in_field(name: str) -> Wrap:
    return lambda value: {name: value}


def _wrapped(inside: tuple[SchemaNode, Wrap] | None, wrap: Wrap) -> tuple[SchemaNode, Wrap] | None:
    if inside is None:
        return None
    root, around = inside
    return root, lambda value: around(wrap(value))


def _value_errors(node: SchemaNode, field: str, metadata: MetadataRules) -> list[FieldError]:
    errors: list[FieldError] = []
    unknown: Problems = []
    compile_values(node, ONLY_PRUNE).convert(node.default, None, unknown)
    if unknown:
        errors.append(invalid_value(field, ordered(node.default), "must not have unknown fields"))
    find = finder(node, lambda one: one.embedded) or no_values
    found = list(find(_copy(node.default), (None, field)))
    try:
        for embedded in found:
            conform_embedded(embedded, metadata)
        wrong = [error for embedded in found for error in embedded_errors(embedded, metadata)]
    except UnreadableMetadata as unreadable:
        return [*errors, unreadable.error]
    return [*errors, *(wrong or ErrorReport(QuickCheck(), field).errors(node, node.default))]


def _identity_errors(
    node: SchemaNode, field: str, metadata: MetadataRules, root: SchemaNode, wrap: Wrap
) -> list[FieldError]:
    embedded = NodeValue(root, {**PLAIN, **wrap(_copy(node.default))}, None)
    try:
        conform_embedded(embedded, metadata)
        wrong = embedded_errors(embedded, metadata)
        why = ", ".join(map(str, wrong)) if len(wrong) < 2 else f"[{', '.join(map(str, wrong))}]"
    except UnreadableMetadata as unreadable:
        why = str(unreadable.error)
    if why:
        return [invalid_value(field, ordered(node.default), f"must result in valid metadata: {why}")]
    return ErrorReport(QuickCheck(), field).errors(node, node.default)


def _copy(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))
