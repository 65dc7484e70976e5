"""Short ways to say what the built-in groups serve, with the defaults they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from farflung.apis.resource import ALL_VERBS, Resource, SelectableFields, Subresource, storage_version_hash
from farflung.machinery.errors import Obj
from farflung.machinery.table import Printer

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
        printer: Printer | None = None,
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
            columns=printer.columns if printer else (),
            cells=printer.cells if printer else None,
            row_conditions=printer.conditions if printer else None,
            selectable=selectable or {},
            storage_group=storage_group if storage_group != self.name else None,
            deprecated=deprecated,
        )

    def virtual(
        self,
        plural: str,
        kind: str,
        *,
        namespaced: bool = False,
        short_names: tuple[str, ...] = (),
        verbs: tuple[str, ...] = ("create",),
        printer: Printer | None = None,
        deprecated: str = "",
    ) -> Resource:
        """A resource that is answered, never stored."""
        return Resource(
            self.name,
            self.version,
            plural,
            kind,
            namespaced,
            self.package + kind,
            singular=kind.lower(),
            list_kind=f"{kind}List",
            short_names=short_names,
            verbs=verbs,
            columns=printer.columns if printer else (),
            cells=printer.cells if printer else None,
            deprecated=deprecated,
        )


def text(*path: str) -> Callable[[Obj], str]:
    """What a field selector compares with the field at a path; an absent field is empty."""
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
