"""Tables: the server-side output of `kubectl get`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import orjson

from farflung.machinery.errors import ApiError, Obj, bad_request, go_quote

META_GROUP: Final = "meta.k8s.io"

#: the object in a row: none, its metadata (the default) or all of it
NONE: Final = "None"
METADATA: Final = "Metadata"
OBJECT: Final = "Object"


@dataclass(frozen=True, slots=True)
class Column:
    """A column definition of a Table.  Priority 1 shows only with `-o wide`."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


Cells = Callable[[Obj, datetime], list[Any]]  #: (object, now) → one value per column
Conditions = Callable[[Obj], list[Obj] | None]  #: object → the conditions of its row


@dataclass(frozen=True, slots=True)
class Printer:
    """The columns of a kind, and the function from an object to its cells."""

    columns: tuple[Column, ...]
    cells: Cells
    conditions: Conditions | None = None


NAME: Final = Column(
    "Name",
    format="name",
    description=(
        "Name must be unique within a namespace. Is required when creating resources, although some resources may "
        "allow a client to request the generation of an appropriate name automatically. Name is primarily intended for "
        "creation idempotence and configuration definition. Cannot be updated. More info: "
        "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
    ),
)
CREATED: Final = Column(
    "Created At",
    "date",
    description=(
        "CreationTimestamp is a timestamp representing the server time when this object was created. It is not "
        "guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It "
        "is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More "
        "info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
    ),
)
AGE: Final = Column("Age", description=CREATED.description)


def default_cells(obj: Obj, now: datetime) -> list[Any]:
    metadata = obj.get("metadata") or {}
    return [metadata.get("name", ""), metadata.get("creationTimestamp")]


#: of a kind without columns of its own
DEFAULT: Final = Printer((NAME, CREATED), default_cells)


def included(text: str) -> str:
    """The object in each row, by the query parameter `includeObject`."""
    if text in (NONE, METADATA, OBJECT):
        return text
    if not text:
        return METADATA
    raise unknown_include(text)


def unknown_include(text: str) -> ApiError:
    why = f"includeObject: Invalid value: {go_quote(text)}: must be 'Metadata', 'Object', 'None', or empty"
    return bad_request(f"Unable to convert to Table as requested: {why}")


def row(printer: Printer, obj: Obj, now: datetime, include: str = METADATA, version: str = "v1") -> Obj:
    """One object's row.  If the row contains the whole object, `obj` must have apiVersion and kind."""
    made: Obj = {"cells": printer.cells(obj, now)}
    if printer.conditions and (conditions := printer.conditions(obj)):
        made["conditions"] = conditions
    if include == METADATA:
        made["object"] = partial_metadata(obj, version)
    else:
        made["object"] = obj if include == OBJECT else None
    return made


def table(printer: Printer, rows: Iterable[Obj], metadata: Obj, version: str = "v1", *, headers: bool = True) -> Obj:
    """A Table, to be encoded by orjson.  In a watch only the first one has headers."""
    return {
        "kind": "Table",
        "apiVersion": f"{META_GROUP}/{version}",
        "metadata": metadata,
        "columnDefinitions": orjson.Fragment(encoded_columns(printer.columns)) if headers else None,
        "rows": list(rows),
    }


@lru_cache(maxsize=1024)
def encoded_columns(columns: tuple[Column, ...]) -> bytes:
    return orjson.dumps([asdict(column) for column in columns])


def partial_metadata(obj: Obj, version: str = "v1") -> Obj:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"{META_GROUP}/{version}",
        "metadata": obj.get("metadata") or {},
    }


def partial_metadata_list(items: Iterable[Obj], metadata: Obj, version: str = "v1") -> Obj:
    """`items` are whole objects."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"{META_GROUP}/{version}",
        "metadata": metadata,
        "items": [partial_metadata(item, version) for item in items],
    }
