"""The kinds that placements copy."""

from __future__ import annotations

from typing import Final

from farflung.apis.edge.names import EDGE_GROUP
from farflung.apis.kcp.names import (
    APIRESOURCE_GROUP,
    APIS_GROUP,
    CORE_GROUP,
    SCHEDULING_GROUP,
    TENANCY_GROUP,
    TOPOLOGY_GROUP,
    WORKLOAD_GROUP,
)
from farflung.apis.names import AUTHENTICATION_GROUP, CERTIFICATES_GROUP

_OF_THE_HUB: Final = frozenset(
    {
        EDGE_GROUP,
        "edge.kubestellar.io",
        SCHEDULING_GROUP,
        TENANCY_GROUP,
        TOPOLOGY_GROUP,
        WORKLOAD_GROUP,
    }
)  #: groups of the kinds of workspaces and placement


_NEVER_COPIED: Final = {
    "": ("bindings", "componentstatuses", "events", "nodes"),
    APIRESOURCE_GROUP: ("apiresourceimports", "negotiatedapiresources"),
    APIS_GROUP: ("apiconversions", "apiexportendpointslices", "apiexports", "apiresourceschemas"),
    "apps": ("controllerrevisions",),
    AUTHENTICATION_GROUP: ("selfsubjectreviews", "tokenreviews"),
    "authorization.k8s.io": (
        "localsubjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
    ),
    CERTIFICATES_GROUP: ("certificatesigningrequests",),
    CORE_GROUP: ("logicalclusters", "shards"),
    "events.k8s.io": ("events",),
}  #: group → resources


def is_copied(group: str, resource: str) -> bool:
    """Whether placements copy objects of a kind.  Unknown kinds are copied."""
    return group not in _OF_THE_HUB and resource not in _NEVER_COPIED.get(group, ())
