"""The types of CEL, with those that Kubernetes adds.

Types are equal if their names and parameters are.  Fields and sizes are not compared, so the names of object types must
be unique within an environment.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Final


class TypeKind(enum.IntEnum):
    DYN = enum.auto()
    ERROR = enum.auto()  #: of an invalid expression: assignable everywhere, so that an error is reported once
    NULL = enum.auto()
    BOOL = enum.auto()
    INT = enum.auto()
    UINT = enum.auto()
    DOUBLE = enum.auto()
    STRING = enum.auto()
    BYTES = enum.auto()
    TIMESTAMP = enum.auto()
    DURATION = enum.auto()
    TYPE = enum.auto()
    LIST = enum.auto()
    MAP = enum.auto()
    OBJECT = enum.auto()
    OPAQUE = enum.auto()
    PARAMETER = enum.auto()


@dataclass(frozen=True, slots=True)
class TypeField:
    """A field of an object type.  `property` is its key in JSON: the name in CEL may be an escaped form of it."""

    type: Type
    property: str


NO_FIELDS: Final[Mapping[str, TypeField]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Type:
    kind: TypeKind
    name: str
    parameters: tuple[Type, ...] = ()
    fields: Mapping[str, TypeField] = field(default_factory=lambda: NO_FIELDS, compare=False, repr=False)
    max_size: int | None = field(
        default=None, compare=False, repr=False
    )  #: of characters, elements or entries; None: unknown
    list_type: str = field(default="atomic", compare=False, repr=False)  #: `set` and `map` lists are equal in any order
    list_keys: tuple[str, ...] = field(default=(), compare=False, repr=False)  #: of a `map` list, as in JSON

    def __str__(self) -> str:
        """The name in error messages: `list(int)`, `map(string, dyn)`."""
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(map(str, self.parameters))})"


DYN: Final = Type(TypeKind.DYN, "dyn")
ERROR: Final = Type(TypeKind.ERROR, "!error!")
NULL: Final = Type(TypeKind.NULL, "null")
BOOL: Final = Type(TypeKind.BOOL, "bool")
INT: Final = Type(TypeKind.INT, "int")
UINT: Final = Type(TypeKind.UINT, "uint")
DOUBLE: Final = Type(TypeKind.DOUBLE, "double")
STRING: Final = Type(TypeKind.STRING, "string")
BYTES: Final = Type(TypeKind.BYTES, "bytes")
TIMESTAMP: Final = Type(TypeKind.TIMESTAMP, "timestamp")
DURATION: Final = Type(TypeKind.DURATION, "duration")
URL: Final = Type(TypeKind.OPAQUE, "kubernetes.URL")
IP: Final = Type(TypeKind.OPAQUE, "net.IP")
CIDR: Final = Type(TypeKind.OPAQUE, "net.CIDR")
QUANTITY: Final = Type(TypeKind.OPAQUE, "kubernetes.Quantity")
SEMVER: Final = Type(TypeKind.OPAQUE, "kubernetes.Semver")
NAMED_FORMAT: Final = Type(TypeKind.OPAQUE, "kubernetes.NamedFormat")

OPTIONAL_NAME: Final = "optional_type"


def list_of(element: Type) -> Type:
    return Type(TypeKind.LIST, "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type(TypeKind.MAP, "map", (key, value))


def type_of(instance: Type) -> Type:
    """The type of a type: `int` has the type `type(int)`."""
    return Type(TypeKind.TYPE, "type", (instance,))


def optional_of(value: Type) -> Type:
    return Type(TypeKind.OPAQUE, OPTIONAL_NAME, (value,))


def object_type(name: str, fields: Mapping[str, TypeField], max_size: int | None = None) -> Type:
    return Type(TypeKind.OBJECT, name, (), fields, max_size)


def parameter(name: str) -> Type:
    """A type parameter of a generic overload: `list(A).contains(A)`."""
    return Type(TypeKind.PARAMETER, name)


def is_optional(of: Type) -> bool:
    return of.kind is TypeKind.OPAQUE and of.name == OPTIONAL_NAME


A: Final = parameter("A")
B: Final = parameter("B")

#: one of several names: a word, and parameters in brackets, which may have brackets of their own
TYPE_NAME: Final = re.compile(r"[\w.]+(?:\((?:[^()]|\([^()]*\))*\))?")
_SIMPLE: Final = (DYN, NULL, BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION)
_NAMED: Final = {one.name: one for one in (*_SIMPLE, URL, IP, CIDR, QUANTITY, SEMVER, NAMED_FORMAT, A, B)}
_GENERIC: Final[Mapping[str, Callable[..., Type]]] = {
    "list": list_of, "map": map_of, "type": type_of, OPTIONAL_NAME: optional_of,
}  # fmt: skip


@cache
def type_named(text: str) -> Type:
    """The type with this name in error messages."""
    name, brackets, inner = text.partition("(")
    return _GENERIC[name](*map(type_named, TYPE_NAME.findall(inner[:-1]))) if brackets else _NAMED[name]
