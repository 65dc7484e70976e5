"""What a resource is: its names, scope, verbs, schema, subresources and what `kubectl get` shows of it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from farflung.machinery.errors import Obj, go_quote, qualified
from farflung.machinery.table import DEFAULT, Column, Conditions, Printer

#: the verbs of an ordinary resource, in the order discovery lists them
ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

#: field selector name → the text it is compared with
SelectableFields = Mapping[str, Callable[[Obj], str]]


@dataclass(frozen=True, slots=True)
class Subresource:
    """`deployments/scale`.  Group, version and kind are those of what it takes and answers, when not the parent's."""

    name: str
    verbs: tuple[str, ...]
    kind: str
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource in one version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    definition: str  #: the name of its OpenAPI definition
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    storage_version_hash: str = ""
    columns: tuple[Column, ...] = ()
    cells: Callable[[Obj, Any], list[Any]] | None = None  #: (object, now) → one row's cells, one per column
    selectable: SelectableFields = field(default_factory=dict)  #: beside metadata.name and metadata.namespace
    storage_group: str | None = None  #: the group its objects are stored under when another one shares them (events)
    deprecated: str = ""  #: the warning that every answer about it carries
    custom: bool = False  #: defined by a CustomResourceDefinition
    identity: str = ""  #: of the API export it comes from: two exports of one name do not share their objects
    row_conditions: Conditions | None = None  #: what a row says beside its cells
    merged_like: str = ""  #: the built-in definition by which clients merge the lists of a custom resource

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`deployments.apps`"""
        return qualified(self.plural, self.group)

    @property
    def printer(self) -> Printer:
        """How its objects become rows of a Table."""
        return Printer(self.columns, self.cells, self.row_conditions) if self.cells else DEFAULT

    def subresource(self, name: str) -> Subresource | None:
        return next((one for one in self.subresources if one.name == name), None)

    def unselectable(self, field: str) -> str:
        """Why objects cannot be selected by a field that is not in `selectable`, in the API's words."""
        if self.custom or self.selectable:
            return f"field label not supported: {field}"
        return f'{go_quote(field)} is not a known field selector: only "metadata.name", "metadata.namespace"'


def storage_version_hash(group: str, version: str, kind: str) -> str:
    """What discovery says of the version objects are stored in."""
    digest = hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()
