"""Where in an object the schema asks for something special."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from farflung.machinery.schema.structural.node import SchemaNode


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


def paths_of(obj: Any, containers: Iterable[Any]) -> dict[int, str]:
    """The identities of parts of an object → where they are."""
    wanted = {id(container) for container in containers}
    found: dict[int, str] = {}
    rest: list[tuple[Any, str]] = [(obj, "")]
    for value, path in rest:
        if id(value) in wanted:
            found.setdefault(id(value), path)
        if type(value) is dict:
            rest += [(item, below(path, name)) for name, item in value.items() if type(item) in (dict, list)]
        elif type(value) is list:
            rest += [(item, f"{path}[{index}]") for index, item in enumerate(value) if type(item) in (dict, list)]
    return found
