"""globalscheduler.com/v1: clusters that virtual machines can be bound to, and stacks of them that are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.described import Described
from farflung.apis.globalscheduler.allocations import ALLOCATION
from farflung.apis.globalscheduler.clusters import CLUSTER
from farflung.apis.globalscheduler.observed import GROUP
from farflung.machinery.errors import Obj

__all__ = ["GROUP", "KINDS", "api_binding", "api_export", "resource_schemas"]

KINDS: Final[Mapping[str, Described]] = {one.kind: one for one in (ALLOCATION, CLUSTER)}


def resource_schemas() -> list[Obj]:
    return [one.resource_schema() for one in KINDS.values()]


def api_export() -> Obj:
    """The APIExport of all kinds, to be created where their APIResourceSchemas are."""
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIExport",
        "metadata": {"name": GROUP},
        "spec": {
            "latestResourceSchemas": [one.resource_schema_name for one in KINDS.values()],
            "maximalPermissionPolicy": {"local": {}},
        },
    }


def api_binding(provider: str) -> Obj:
    """The APIBinding of the export, when `provider` is the path of its workspace."""
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIBinding",
        "metadata": {"name": GROUP},
        "spec": {"reference": {"export": {"path": provider, "name": GROUP}}},
    }
