"""Schema fragments that several groups of kcp share: paths, types, exports, resources."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import object_, text
from farflung.apis.kcp.names import WORKLOAD_GROUP
from farflung.machinery.errors import Obj

PATH_PATTERN: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
GROUP_PATTERN: Final = r"^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$"
RESOURCE_PATTERN: Final = "^[a-z][-a-z0-9]*[a-z0-9]$"
INITIALIZER_PATTERN: Final = (
    "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:[a-z0-9][a-z0-9]([-a-z0-9]*[a-z0-9])?))"
    "|(system:.+)$"
)

#: what the name of a workspace must be, and that of a type
WORKSPACE_NAME: Final = {"minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"}


def path(description: str) -> Obj:
    """The path of a workspace: `root:org:team`."""
    return text(description, pattern=PATH_PATTERN)


def group(description: str, **facets: object) -> Obj:
    return text(description, pattern=GROUP_PATTERN, **facets)


def resource(description: str, **facets: object) -> Obj:
    return text(description, pattern=RESOURCE_PATTERN, **facets)


def workspace_type(description: str, **facets: object) -> Obj:
    fields = {
        "name": text("The name of the WorkspaceType.", pattern="^[a-z]([a-z0-9-]{0,61}[a-z0-9])?"),
        "path": path("The workspace that holds the WorkspaceType."),
    }
    return object_(description, **fields, requires=("name",), facets=facets)


def export(description: str) -> Obj:
    """The reference to an APIExport in APIBindings and APIExportEndpointSlices."""
    fields = {
        "path": path("The workspace of the APIExport; by default this one."),
        "name": text("The name of the APIExport."),
    }
    return object_(description, **fields, requires=("name",))


def named_export(description: str) -> Obj:
    """The reference to an APIExport in WorkspaceTypes and SyncTargets."""
    fields = {
        "path": path("The workspace of the APIExport; by default this one."),
        "export": text("The name of the APIExport."),
    }
    return object_(description, **fields, requires=("export",))


def sync_targets(description: str) -> Obj:
    """The resource whose instances a Location gathers; there is one alone."""
    fields = {
        "group": group("Its API group.", enum=[WORKLOAD_GROUP]),
        "version": resource("Its version.", enum=["v1alpha1"]),
        "resource": resource("Its plural name.", enum=["synctargets"]),
    }
    return object_(description, **fields, requires=("resource", "version"))
