"""The description of a resource: names, scope, verbs, schema, subresources and printer columns."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from farflung.machinery.errors import Obj, go_quote, qualified
from farflung.machinery.table import DEFAULT, Printer

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
    printer: Printer = DEFAULT  #: of its objects, for Tables
    selectable: SelectableFields = field(default_factory=dict)  #: beside metadata.name and metadata.namespace
    storage_group: str | None = None  #: the group its objects are stored under when another one shares them (events)
    deprecated: str = ""  #: the warning that every answer about it carries
    custom: bool = False  #: defined by a CustomResourceDefinition
    identity: str = ""  #: of its APIExport: exports of the same name do not share objects
    is_listed: bool = True  #: in discovery
    merged_like: str = ""  #: the built-in definition by which clients merge the lists of a custom resource
    # derived from the others, because every write reads them
    api_version: str = field(init=False, repr=False, compare=False)
    has_status: bool = field(init=False, repr=False, compare=False)  #: whether /status is a subresource
    storage_prefix: str = field(init=False, repr=False, compare=False)  #: of all its objects, in all clusters

    def __post_init__(self) -> None:
        derive = partial(object.__setattr__, self)
        derive("api_version", f"{self.group}/{self.version}" if self.group else self.version)
        derive("has_status", self.subresource("status") is not None)
        group = self.group if self.storage_group is None else self.storage_group
        plural = f"{self.plural}:{self.identity}" if self.identity else self.plural
        derive("storage_prefix", f"/{group or 'core'}/{plural}/")

    @property
    def qualified(self) -> str:
        """`deployments.apps`"""
        return qualified(self.plural, self.group)

    def subresource(self, name: str) -> Subresource | None:
        return next((one for one in self.subresources if one.name == name), None)

    def unselectable(self, field: str) -> str:
        """Kubernetes' message for a field selector on a field that is not in `selectable`."""
        if self.custom or self.selectable:
            return f"field label not supported: {field}"
        return f'{go_quote(field)} is not a known field selector: only "metadata.name", "metadata.namespace"'


def storage_version_hash(group: str, version: str, kind: str) -> str:
    """The storageVersionHash of discovery."""
    digest = hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


# --- Short ways to say what the built-in groups serve, with the defaults they share ---------------

CHANGE: Final = ("get", "patch", "update")  #: the verbs of an ordinary subresource
PROXY: Final = ("create", "delete", "get", "patch", "update")

SCALE: Final = Subresource("scale", CHANGE, "Scale", "autoscaling", "v1")


def status(kind: str) -> Subresource:
    return Subresource("status", CHANGE, kind)


@dataclass(frozen=True, slots=True)
class Group:
    """One version of a group.  `package` is what the names of its OpenAPI definitions start with."""

    name: str
    version: str
    package: str

    def stored(
        self,
        plural: str,
        kind: str,
        *,
        namespaced: bool = True,
        singular: str = "",
        short_names: tuple[str, ...] = (),
        categories: tuple[str, ...] = (),
        verbs: tuple[str, ...] = ALL_VERBS,
        subresources: tuple[Subresource, ...] = (),
        stored_as: tuple[str, str] | None = None,
        printer: Printer = DEFAULT,
        selectable: SelectableFields | None = None,
        deprecated: str = "",
    ) -> Resource:
        """An ordinary resource.  `stored_as` is the group and version its objects are kept in, if not this one."""
        storage_group, storage_version = stored_as or (self.name, self.version)
        return Resource(
            self.name,
            self.version,
            plural,
            kind,
            namespaced,
            self.package + kind,
            singular=singular or kind.lower(),
            list_kind=f"{kind}List",
            short_names=short_names,
            categories=categories,
            verbs=verbs,
            subresources=subresources,
            storage_version_hash=storage_version_hash(storage_group, storage_version, kind),
            printer=printer,
            selectable=selectable or {},
            storage_group=storage_group if storage_group != self.name else None,
            deprecated=deprecated,
        )

    def virtual(
        self, plural: str, kind: str, *, namespaced: bool = False, verbs: tuple[str, ...] = ("create",), **others: Any
    ) -> Resource:
        """A resource that is answered, never stored.  `others`: of `stored`."""
        resource = self.stored(plural, kind, namespaced=namespaced, verbs=verbs, **others)
        return replace(resource, storage_version_hash="")


def text(*path: str) -> Callable[[Obj], str]:
    """A function that returns the field at a path, for field selectors; empty if absent."""
    *parents, last = path

    def read(obj: Obj) -> str:
        node: Any = obj
        for name in parents:
            node = node.get(name) or {}
        value = node.get(last)
        return "" if value is None else str(value)

    return read


def flag(*path: str) -> Callable[[Obj], str]:
    """Like `text`, for a boolean: `true` or `false`."""
    read = text(*path)
    return lambda obj: "true" if read(obj) == "True" else "false"


def count(*path: str) -> Callable[[Obj], str]:
    """Like `text`, for a number: an absent one is zero."""
    read = text(*path)
    return lambda obj: read(obj) or "0"
