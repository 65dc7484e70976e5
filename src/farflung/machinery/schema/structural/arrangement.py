"""Lists without duplicates: what the types set and map ask of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from farflung.machinery.errors import FieldError, Obj, duplicate, invalid_value
from farflung.machinery.schema.structural.identity import identical
from farflung.machinery.schema.structural.keyed import key_of
from farflung.machinery.schema.structural.node import SchemaNode
from farflung.machinery.schema.structural.places import NodeValue

MOST_DUPLICATES: Final = 1000  #: errors of one list


def is_arranged(node: SchemaNode) -> bool:
    return node.list_type in ("set", "map")


def duplicates(place: NodeValue) -> Iterator[FieldError]:
    """What is twice in a list of type set or map."""
    node, value, path = place
    if type(value) is not list:
        return
    if node.list_type == "set":
        yield from _set_errors(value, path)
    else:
        yield from _map_errors(value, path, node)


def _set_errors(value: list[Any], path: str) -> Iterator[FieldError]:
    keys = [identical(item) for item in value]
    yield from (duplicate(f"{path}[{index}]", ordered(value[index])) for index in _second_times(keys))


def _map_errors(value: list[Any], path: str, node: SchemaNode) -> Iterator[FieldError]:
    for index, item in enumerate(value):
        if item is not None and type(item) is not dict:
            detail = "must be an object for an array of list-type map"
            yield invalid_value(f"{path}[{index}]", item, detail)
            return
    keys = [key_of(item, node.list_keys) for item in value]
    for index in _second_times(keys):
        fields: Obj = value[index] or {}
        key = {name: fields[name] for name in sorted(node.list_keys) if name in fields}
        yield duplicate(f"{path}[{index}]", ordered(key))


def _second_times(keys: list[Any]) -> list[int]:
    """Where something is for the second time; the third is not mentioned."""
    if len(set(keys)) == len(keys):
        return []
    times: dict[Any, int] = {}
    found: list[int] = []
    for index, key in enumerate(keys):
        times[key] = times.get(key, 0) + 1
        if times[key] == 2:
            found.append(index)
    return found[:MOST_DUPLICATES]


def ordered(value: Any) -> Any:
    """With keys in order, as Go shows objects."""
    if type(value) is dict:
        return {name: ordered(value[name]) for name in sorted(value)}
    if type(value) is list:
        return [ordered(item) for item in value]
    return value
