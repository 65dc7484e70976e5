"""The types of CEL that the schemas of custom resources declare.

CEL has no type for, and cannot access: values of any type, properties whose names cannot be escaped, and arrays and
maps of such values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from farflung.machinery.cel.language.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    TypeField,
    list_of,
    map_of,
    object_type,
)
from farflung.machinery.cel.parser import RESERVED
from farflung.machinery.errors import Obj
from farflung.machinery.turns import Steps, at_once

LARGEST_REQUEST: Final = 3 * 1024 * 1024  #: maximum bytes of an object, for estimates
LONGEST_STRING: Final = LARGEST_REQUEST - 2  #: without its quotes
BYTES_PER_CHARACTER: Final = 4  #: at most
DECLARING: Final = 300  #: work of finding one type

_ESCAPED: Final = re.compile(r"__|[-./]")
_ESCAPES: Final = {"__": "__underscores__", "-": "__dash__", ".": "__dot__", "/": "__slash__"}
_WRITABLE: Final = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")

#: formats of strings that are other types in CEL: type, longest, and shortest in JSON
_FORMATS: Final = {"duration": (DURATION, 32, 3), "date": (TIMESTAMP, 12, 12), "date-time": (TIMESTAMP, 32, 21)}
_PLAIN: Final = {"boolean": (BOOL, 4), "number": (DOUBLE, 1), "integer": (INT, 1)}


@dataclass(frozen=True, slots=True)
class Declared:
    type: Type
    shortest: int  #: bytes of the smallest value in JSON


def escape(name: str) -> str | None:
    """The escaped name of a property in CEL; None if it has none."""
    if name in RESERVED:
        return f"__{name}__"
    if not _WRITABLE.fullmatch(name):
        return None
    return _ESCAPED.sub(lambda match: _ESCAPES[match.group()], name)


class Declarations:
    """The types of a schema and its parts, each found once."""

    def __init__(self, root: Obj) -> None:
        self._root = root
        self._declared: dict[int, Declared | None] = {}  #: by the id of the schema, which the root keeps alive

    def find_all(self) -> Steps[None]:
        """Find the types of the root and of its parts."""
        if id(self._root) not in self._declared:
            self._declared[id(self._root)] = yield from self._declare(self._root, "selfType", resource=True)

    def of(self, schema: Any, name: str) -> Declared | None:
        """The type of the root or of a part of it; None if CEL cannot access the values.  `name`: of object types."""
        at_once(self.find_all())
        return at_once(self._of(schema, name))

    def _of(self, schema: Any, name: str) -> Steps[Declared | None]:
        if not isinstance(schema, dict):
            return None
        if id(schema) not in self._declared:
            resource = bool(schema.get("x-kubernetes-embedded-resource"))
            self._declared[id(schema)] = yield from self._declare(schema, name, resource=resource)
        return self._declared[id(schema)]

    def _declare(self, schema: Obj, name: str, *, resource: bool) -> Steps[Declared | None]:
        yield DECLARING
        if schema.get("x-kubernetes-int-or-string"):
            return Declared(replace(DYN, max_size=_longest(schema)), 1)
        kind = schema.get("type")
        if kind in _PLAIN:
            plain, shortest = _PLAIN[kind]
            return Declared(plain, shortest)
        if kind == "string":
            return _string(schema)
        if kind == "array":
            return (yield from self._array(schema, name))
        if kind == "object":
            return (yield from self._object(with_resource_properties(schema) if resource else schema, name))
        return None

    def _array(self, schema: Obj, name: str) -> Steps[Declared | None]:
        items = yield from self._of(schema.get("items"), f"{name}.@idx")
        if items is None:
            return None
        most = _limit(schema, "maxItems", LONGEST_STRING // (items.shortest + 1))
        of = replace(
            list_of(items.type),
            max_size=most,
            list_type=schema.get("x-kubernetes-list-type") or "atomic",
            list_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
        )
        return Declared(of, 2)

    def _object(self, schema: Obj, name: str) -> Steps[Declared | None]:
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict):
            values = yield from self._of(additional, f"{name}.@elem")
            if values is None:
                return None
            most = _limit(schema, "maxProperties", LONGEST_STRING // (values.shortest + 6))
            return Declared(replace(map_of(STRING, values.type), max_size=most), 2)
        required = frozenset(schema.get("required") or ())
        fields: dict[str, TypeField] = {}
        shortest = 2
        for key, child in (schema.get("properties") or {}).items():
            escaped = escape(key)
            declared = yield from self._of(child, f"{name}.{escaped}")
            if declared is None:
                continue
            if escaped is not None:
                fields[escaped] = TypeField(declared.type, key)
            if key in required and child.get("default") is None:
                shortest += len(key.encode()) + declared.shortest + 4
        return Declared(object_type(name, fields), shortest)


def _string(schema: Obj) -> Declared:
    form = schema.get("format")
    if form in _FORMATS:
        of, longest, shortest = _FORMATS[form]
        return Declared(replace(of, max_size=longest), shortest)
    if form == "byte":
        return Declared(replace(BYTES, max_size=_limit(schema, "maxLength", LONGEST_STRING)), 2)
    return Declared(replace(STRING, max_size=_longest(schema)), 2)


def _longest(schema: Obj) -> int:
    if schema.get("maxLength") is not None:
        return _limit(schema, "maxLength", 0) * BYTES_PER_CHARACTER
    values = schema.get("enum")
    if values and not schema.get("x-kubernetes-int-or-string"):
        return max((len(value.encode()) for value in values if isinstance(value, str)), default=0)
    return LONGEST_STRING


def _limit(schema: Obj, name: str, otherwise: int) -> int:
    limit = schema.get(name)
    return otherwise if limit is None else max(int(limit), 0)


_NAME: Final[Obj] = {"type": "string"}
_METADATA: Final[Obj] = {"type": "object", "properties": {"name": _NAME, "generateName": _NAME}}


def with_resource_properties(schema: Obj) -> Obj:
    """At the root of a resource, kind, apiVersion and the names in metadata exist even if the schema does not have
    them."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    metadata = properties.get("metadata") or {}
    names = metadata.get("properties") or {}
    if (
        metadata.get("type") == "object"
        and all((properties.get(key) or {}).get("type") == "string" for key in ("kind", "apiVersion"))
        and all((names.get(key) or {}).get("type") == "string" for key in ("name", "generateName"))
    ):
        return schema
    return {**schema, "properties": {**properties, "kind": _NAME, "apiVersion": _NAME, "metadata": _METADATA}}
