"""All kinds of kcp: those of every workspace, and those that `root` exports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.custom_kinds import CustomKind
from farflung.apis.kcp import apiresource, apis, core, scheduling, tenancy, topology, workload
from farflung.apis.kcp.names import APIRESOURCE_GROUP, SCHEDULING_GROUP, TENANCY_GROUP, TOPOLOGY_GROUP, WORKLOAD_GROUP
from farflung.machinery.errors import Obj

_SYSTEM: Final = (
    apis.API_RESOURCE_SCHEMA,
    apis.API_EXPORT,
    apis.API_BINDING,
    apis.API_EXPORT_ENDPOINT_SLICE,
    apis.API_CONVERSION,
    core.LOGICAL_CLUSTER,
)
_EXPORTS: Final[Mapping[str, tuple[CustomKind, ...]]] = {
    TENANCY_GROUP: (tenancy.CLUSTER_WORKSPACE, tenancy.WORKSPACE_TYPE, tenancy.WORKSPACE),
    SCHEDULING_GROUP: (scheduling.LOCATION, scheduling.PLACEMENT),
    WORKLOAD_GROUP: (workload.SYNC_TARGET,),
    APIRESOURCE_GROUP: (apiresource.API_RESOURCE_IMPORT, apiresource.NEGOTIATED_API_RESOURCE),
    TOPOLOGY_GROUP: (topology.PARTITION, topology.PARTITION_SET),
    "shards.core.kcp.io": (core.SHARD,),
}

#: the kinds that every workspace serves
SYSTEM: Final = tuple(one.kind for one in _SYSTEM)
#: the exports of root → their kinds
EXPORTS: Final[Mapping[str, tuple[str, ...]]] = {
    name: tuple(one.kind for one in kinds) for name, kinds in _EXPORTS.items()
}
KINDS: Final[Mapping[str, CustomKind]] = {one.kind: one for kinds in (_SYSTEM, *_EXPORTS.values()) for one in kinds}


def definition(kind: str) -> Obj:
    """A kind as a CustomResourceDefinition whose names are accepted.  The schema in it is not to be changed."""
    return KINDS[kind].definition()


def resource_schema(kind: str) -> Obj:
    """A kind as an APIResourceSchema, to be created.  The schema in it is not to be changed."""
    return KINDS[kind].resource_schema()


def api_export(name: str) -> Obj:
    """An export of root, to be created."""
    schemas = [KINDS[kind].resource_schema_name for kind in EXPORTS[name]]
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIExport",
        "metadata": {"name": name},
        "spec": {"latestResourceSchemas": schemas},
    }
