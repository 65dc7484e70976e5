"""CustomResourceDefinitions: the resource, its printer columns, and the resources that one defines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from farflung.apis.resource import Group, Resource, SelectableFields, Subresource, status, storage_version_hash
from farflung.machinery import jsonpath, times
from farflung.machinery.errors import Obj
from farflung.machinery.names import version_order
from farflung.machinery.table import AGE, NAME, Column, Printer

EXTENSIONS: Final = Group("apiextensions.k8s.io", "v1", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.")

RESOURCES: Final = (
    EXTENSIONS.stored(
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=(status("CustomResourceDefinition"),),
        stored_as=("apiextensions.k8s.io", "v1beta1"),
    ),
)


# --- The resources that a CustomResourceDefinition defines, one for each version it serves --------

#: the verbs of a custom resource, in the order discovery lists them
VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
PART_VERBS: Final = ("get", "patch", "update")
DEFAULT_COLUMN: Final = Column("Age", "date", description=AGE.description)
LEAST_INT64: Final = -(2**63)

Find = Callable[[Any], Any]  #: an object → the first value at a path, ABSENT if there is none
Cell = Callable[[Any, datetime], Any]  #: a value that was found, now → what the Table shows

ABSENT: Final = object()


def resources_of(definition: Obj) -> list[Resource]:
    """The resources of a definition with accepted names, in the order of its versions."""
    spec = definition["spec"]
    return [_resource(definition, version) for version in spec["versions"] if version.get("served")]


def stored_version(definition: Obj) -> str:
    """The version its objects are stored in."""
    name: str = next(version["name"] for version in definition["spec"]["versions"] if version.get("storage"))
    return name


def definition_name(group: str, version: str, kind: str) -> str:
    """The name of its OpenAPI definition: `com.example.v1.Thing`."""
    return ".".join((*reversed((group or "core").split(".")), version, kind))


def _resource(definition: Obj, version: Obj) -> Resource:
    spec, names = definition["spec"], definition["status"]["acceptedNames"]
    group, name, kind = spec["group"], version["name"], names["kind"]
    return Resource(
        group,
        name,
        names["plural"],
        kind,
        spec["scope"] == "Namespaced",
        definition_name(group, name, kind),
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        verbs=VERBS,
        subresources=_subresources(version, kind),
        storage_version_hash=storage_version_hash(group, stored_version(definition), kind),
        printer=_printer(version.get("additionalPrinterColumns") or ()),
        selectable=selectable(field["jsonPath"] for field in version.get("selectableFields") or ()),
        deprecated=_deprecation(spec, version, kind) if version.get("deprecated") else "",
        custom=True,
    )


def _subresources(version: Obj, kind: str) -> tuple[Subresource, ...]:
    parts = version.get("subresources") or {}
    found = []
    if parts.get("status") is not None:
        found.append(Subresource("status", PART_VERBS, kind))
    if parts.get("scale") is not None:
        found.append(Subresource("scale", PART_VERBS, "Scale", "autoscaling", "v1"))
    return tuple(found)


def _deprecation(spec: Obj, version: Obj, kind: str) -> str:
    """The definition's own warning, or one that names the best version to use instead."""
    warning: str | None = version.get("deprecationWarning")
    if warning is not None:
        return warning
    group, name = spec["group"], version["name"]
    better = [
        other["name"]
        for other in spec["versions"]
        if other.get("served") and not other.get("deprecated") and version_order(other["name"]) < version_order(name)
    ]
    use = f"; use {group}/{min(better, key=version_order)} {kind}" if better else ""
    return f"{group}/{name} {kind} is deprecated{use}"


# --- paths ----------------------------------------------------------------------------------------


def finder(text: str) -> Find:
    """A function that returns the first value at a path.  Raises PathError for an invalid path."""
    names = jsonpath.member_names(text)
    if names is not None:
        return _following(names)
    path = jsonpath.compile(text)

    def find(obj: Any) -> Any:
        try:
            found = path.find(obj)
        except jsonpath.PathError:
            return ABSENT
        return found[0] if found else ABSENT

    return find


def _following(names: tuple[str, ...]) -> Find:
    def find(value: Any) -> Any:
        for name in names:
            if type(value) is not dict or name not in value:
                return ABSENT
            value = value[name]
        return value

    return find


def selectable(paths: Iterable[str]) -> SelectableFields:
    """By the name a selector gives them: the path without its first dot."""
    return {path.removeprefix("."): _text_at(path) for path in paths}


def _text_at(path: str) -> Callable[[Obj], str]:
    find = finder(path)

    def read(obj: Obj) -> str:
        value = find(obj)
        return jsonpath.printed(value) if type(value) in (str, int, bool) else ""

    return read


# --- columns --------------------------------------------------------------------------------------


def _printer(columns: Sequence[Obj]) -> Printer:
    """A path that cannot be parsed ends the table before its column."""
    shown, makers = [NAME], []
    for column in columns or ({"jsonPath": ".metadata.creationTimestamp", "type": "date"},):
        path = column.get("jsonPath", "")
        try:
            find = finder(path)
        except jsonpath.PathError:
            break
        makers.append((find, CELLS[column["type"]]))
        shown.append(_column(column, path) if columns else DEFAULT_COLUMN)

    def cells(obj: Obj, now: datetime) -> list[Any]:
        row: list[Any] = [(obj.get("metadata") or {}).get("name", "")]
        for find, cell in makers:
            value = find(obj)
            row.append(None if value is ABSENT else cell(value, now))
        return row

    return Printer(tuple(shown), cells)


def _column(column: Obj, path: str) -> Column:
    return Column(
        column["name"],
        column["type"],
        column.get("format", ""),
        column.get("description") or f"Custom resource definition column (in JSONPath format): {path}",
        column.get("priority", 0),
    )


def _string_cell(value: Any, now: datetime) -> Any:
    return jsonpath.printed(value)


def _integer_cell(value: Any, now: datetime) -> Any:
    if type(value) is float:
        value = int(value)
    if type(value) is not int:
        return None
    return value if LEAST_INT64 <= value < -LEAST_INT64 else LEAST_INT64


def _number_cell(value: Any, now: datetime) -> Any:
    if type(value) is float and value.is_integer() and abs(value) < -LEAST_INT64:
        return int(value)
    return value if type(value) in (int, float) else None


def _boolean_cell(value: Any, now: datetime) -> Any:
    return value if type(value) is bool else None


def _date_cell(value: Any, now: datetime) -> Any:
    if type(value) is not str:
        return None
    return times.age(None if value == "null" else value, now)


CELLS: Final[dict[str, Cell]] = {
    "string": _string_cell,
    "integer": _integer_cell,
    "number": _number_cell,
    "boolean": _boolean_cell,
    "date": _date_cell,
}


# --- scale ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The paths of the `/scale` fields in objects of a version, with a leading dot."""

    spec_replicas: str
    status_replicas: str
    selector: str = ""


def scale_paths(definition: Obj, version: str) -> ScalePaths | None:
    """None if the version has no such subresource."""
    for one in definition["spec"]["versions"]:
        scale = (one.get("subresources") or {}).get("scale")
        if one["name"] == version and scale is not None:
            return ScalePaths(
                scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath") or ""
            )
    return None
