"""Type errors of an applied configuration.  They do not depend on `fieldValidation`: fields without a type cannot be
owned.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from farflung.machinery import go_text
from farflung.machinery.errors import Obj, Place, first_texts, place_text
from farflung.machinery.fields.sets import MAX_DEPTH, element_text
from farflung.machinery.fields.shapes import (
    LEAF,
    OBJECT_META,
    List,
    ListSet,
    Unkeyed,
    describes_metadata,
    list_map,
    no_reference,
)
from farflung.machinery.schema.model import BOOLEAN, INTEGER, NUMBER, STRING, Schema


def untypable(applied: Obj, schema: Schema) -> str:
    """The first type errors of a configuration, in one text; empty if it has none."""
    found = first_texts(_object_errors(applied, schema))
    if len(found) < 2:
        return "".join(found)
    return "\n".join(["errors:", *(f"  {error}" for error in found)])


def _object_errors(applied: Obj, schema: Schema) -> Iterator[str]:
    if not describes_metadata(schema):
        yield from _errors(applied.get("metadata"), OBJECT_META, (None, ".metadata"), MAX_DEPTH)
        applied = {name: value for name, value in applied.items() if name not in ("apiVersion", "kind", "metadata")}
    yield from _container_errors(applied, schema, None, MAX_DEPTH)


def _errors(value: Any, schema: Schema, place: Place, depth: int) -> Iterator[str]:
    if value is None or not depth:
        return
    match schema.kind:
        case "object" | "map":
            yield from _container_errors(value, schema, place, depth)
        case "list":
            yield from _list_errors(value, schema, place, depth)
        case kind:
            yield from _scalar_errors(value, kind, place)


def _scalar_errors(value: Any, kind: str, place: Place) -> Iterator[str]:
    if kind == STRING and not isinstance(value, str):
        yield f"{place_text(place)}: expected string, got &value.valueUnstructured{{Value:{go_text.syntax(value)}}}"
    elif kind in (INTEGER, NUMBER) and type(value) not in (int, float):
        yield f"{place_text(place)}: expected numeric (int or float), got {go_text.type_name(value)}"
    elif kind == BOOLEAN and type(value) is not bool:
        yield f"{place_text(place)}: expected boolean, got {go_text.wrapped(value)}"


def _container_errors(value: Any, schema: Schema, place: Place, depth: int) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{place_text(place)}: expected map, got {go_text.wrapped(value)}"
        return
    for name, item in value.items():
        child = _child(schema, name)
        if child is None:
            yield f"{place_text(place)}.{name}: field not declared in schema"
            return
        yield from _errors(item, child, (place, f".{name}"), depth - 1)


_ANYTHING: Final = Schema({}, no_reference)


def _child(schema: Schema, name: str) -> Schema | None:
    child = schema.field(name)
    if child is None and schema.definition.get("x-kubernetes-preserve-unknown-fields"):
        return _ANYTHING
    if child is None and schema.definition.get("x-kubernetes-embedded-resource"):
        return {"apiVersion": _ANYTHING, "kind": _ANYTHING, "metadata": OBJECT_META}.get(name)
    return child


def _list_errors(value: Any, schema: Schema, place: Place, depth: int) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{place_text(place)}: expected list, got {go_text.wrapped(value)}"
        return
    items = schema.items
    keyed = _keyed(schema)
    seen: set[str] = set()
    for index, item in enumerate(value):
        text = f"[{index}]"
        if keyed is not None:
            try:
                element = keyed.element(item)
            except Unkeyed as error:
                yield f"{place_text(place)}: element {index}: {error}"
                return
            text = element_text(element)
            if element in seen:
                yield f"{place_text(place)}: duplicate entries for key {text}"
            seen.add(element)
        yield from _errors(item, items, (place, text), depth - 1)


@lru_cache(maxsize=1024)
def _keyed(schema: Schema) -> List | None:
    match schema.list_type:
        case "map":
            return list_map(LEAF, schema.items, schema.list_keys)
        case "set":
            return ListSet(LEAF)
        case _:
            return None
