"""The types of workspaces that the root has from the start."""

from __future__ import annotations

from typing import Final

from farflung.machinery.errors import Obj

BATTERY: Final = "bootstrap.kcp.io/battery"
CREATE_ONLY: Final = "bootstrap.kcp.io/create-only"
#: the exports of root that workspaces bind by themselves
DEFAULT_EXPORTS: Final = (
    "tenancy.kcp.io",
    "scheduling.kcp.io",
    "workload.kcp.io",
    "apiresource.kcp.io",
    "topology.kcp.io",
)


def _reference(name: str) -> Obj:
    return {"name": name, "path": "root"}


def _type(name: str, annotations: Obj, child: str, **spec: Obj) -> Obj:
    return {
        "metadata": {"name": name, "generation": 1, "annotations": annotations},
        "spec": {
            "extend": {"with": [_reference("universal")]},
            "defaultChildWorkspaceType": _reference(child),
            **spec,
        },
    }


def builtin_types() -> list[Obj]:
    """To be created; without what the server sets."""
    battery = {BATTERY: "workspace-types"}
    universal = {
        "metadata": {"name": "universal", "generation": 1},
        "spec": {
            "initializer": True,
            "defaultChildWorkspaceType": _reference("universal"),
            "defaultAPIBindings": [{"path": "root", "export": export} for export in DEFAULT_EXPORTS],
        },
    }
    return [
        universal,
        _type("root", {CREATE_ONLY: "true"}, "organization", limitAllowedParents={"none": True}),
        _type("home", {}, "universal", limitAllowedParents={"none": True}),
        _type(
            "organization",
            battery,
            "universal",
            limitAllowedChildren={"types": [_reference("universal")]},
            limitAllowedParents={"types": [_reference("root")]},
        ),
        _type(
            "team",
            dict(battery),
            "universal",
            limitAllowedParents={"types": [_reference("organization"), _reference("team")]},
        ),
    ]
