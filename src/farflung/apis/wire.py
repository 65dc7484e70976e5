"""Facts about the Go types behind the OpenAPI definitions that OpenAPI leaves out, for JSON and protobuf.

    fields("io.k8s.api.core.v1.Volume")    every field JSON shows, by name, in the order Go writes them
    members("io.k8s.api.core.v1.Volume")   the struct as Go has it: its inlined structs are members

The facts are in `wire.json`, which `tools/extract_wire.py` makes.  A line of it is a type and its members, each
`[name, protobuf number or 0, type, flags]`.  In a type, `*` is a pointer, `[]` a list, `{}` a map from strings, and a
message without a package is of the same package; the flags are `i`nline, `o`mitempty and omit`z`ero.  A type that is a
string is a list that protobuf wraps in a message (`ExtraValue`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

import msgspec

from farflung.apis import definitions
from farflung.machinery.codec.protobuf import Messages
from farflung.machinery.structs import LIST, MAP, ONE, SCALARS, GoField


@cache
def _raw() -> dict[str, msgspec.Raw]:
    """Every type, still encoded."""
    return msgspec.json.decode(files(__package__).joinpath("wire.json").read_bytes(), type=dict[str, msgspec.Raw])


def known(definition: str) -> bool:
    """Whether the wire facts of a definition are known.  Only such definitions can be read or written in protobuf."""
    return definition in _raw()


@cache
def members(definition: str) -> tuple[GoField, ...]:
    """The struct as Go and protobuf have it.  Of an unknown one all fields are pointers, and none has a number."""
    if not known(definition):
        properties = definitions.definition(definition).get("properties", {})
        return tuple(GoField(name, 0, "any", pointer=True, omitempty=True) for name in properties)
    package = definition.rpartition(".")[0]
    content = msgspec.json.decode(_raw()[definition], type=list[tuple[str, int, str, str]] | str)
    if isinstance(content, str):
        return (_field(package, "", 1, content, "w"),)
    return tuple(_field(package, *line) for line in content)


def _field(package: str, name: str, number: int, shown: str, flags: str) -> GoField:
    bare = shown.lstrip("*[]{}")
    return GoField(
        name,
        number,
        bare if bare in SCALARS or "." in bare else f"{package}.{bare}",
        shape=LIST if shown.startswith("[]") else MAP if shown.startswith("{}") else ONE,
        pointer=shown.startswith("*"),
        omitempty="o" in flags,
        omitzero="z" in flags,
        inline="i" in flags,
        wrapped="w" in flags,
    )


@cache
def fields(definition: str) -> Mapping[str, GoField]:
    """The fields as JSON shows them: inlined structs dissolved, in Go's order."""
    return MappingProxyType({field.name: field for field in _dissolved(definition)})


def _dissolved(definition: str) -> Iterator[GoField]:
    for field in members(definition):
        if field.inline:
            yield from _dissolved(field.type)
        elif not field.wrapped:
            yield field


MESSAGES: Final = Messages(members)  #: what `machinery.codec.protobuf` reads and writes by
