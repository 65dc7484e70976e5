"""The ClusterRoles of the controllers, each bound to a user: what a controller does, and nothing else.

The lines are those of `hub/auth/default_roles.py`.  A controller has a role in each place where it works: in every
workspace (EVERYWHERE), in every mailbox (MAILBOXES), or in one workspace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from farflung.apis.kcp.names import COMPUTE
from farflung.apis.kcp.names import CONTROLLERS_CLUSTER as EVERYWHERE
from farflung.apis.kcp.names import MAILBOXES_CLUSTER as MAILBOXES
from farflung.hub.auth.default_roles import role_of_user
from farflung.hub.request.user import CONTROLLER
from farflung.hub.tenancy.paths import PROVIDER, ROOT, LogicalClusters
from farflung.machinery.errors import Obj

ESPW: Final = f"{ROOT}:{PROVIDER}"
CONTROLLERS: Final = (
    "edge-scheduler",
    "mailbox-controller",
    "placement-translator",
    "status-summarizer",
    "global-scheduler",
)
DISCOVERY: Final = "get /api,/api/*,/apis,/apis/*,/version"
#: to check whether authors of placements may use a Location
RIGHTS: Final = """
    read rbac.authorization.k8s.io clusterroles,clusterrolebindings
    read core.kcp.io logicalclusters
    create authorization.k8s.io subjectaccessreviews
    place scheduling.kcp.io locations  # to write slices with any destinations
"""
#: in the workspaces of exports: `access` is the permission to enter
VIEWS: Final = """
    access /
    get /version
    get apis.kcp.io apiexports
    create,get,update coordination.k8s.io leases
"""

RULES: Final[Mapping[str, Mapping[str, str]]] = {
    "edge-scheduler": {
        EVERYWHERE: f"""
            read edge.kcp.io edgeplacements,singleplacementslices
            create,delete,update edge.kcp.io singleplacementslices
            update edge.kcp.io edgeplacements/status
            read scheduling.kcp.io locations
            read workload.kcp.io synctargets
            list apis.kcp.io apibindings
            {RIGHTS}
        """,
        ROOT: VIEWS,
        ESPW: VIEWS,
    },
    "mailbox-controller": {
        EVERYWHERE: """
            read workload.kcp.io synctargets
            patch workload.kcp.io synctargets/status
            read apis.kcp.io apibindings
            read edge.kcp.io syncerconfigs
        """,
        MAILBOXES: f"""
            {DISCOVERY}
            create,delete apis.kcp.io apibindings
            create edge.kcp.io syncerconfigs
            list,release * *  # remove the finalizer of syncers from objects of mailboxes that are being deleted
        """,
        ROOT: VIEWS,
        ESPW: f"""
            {VIEWS}
            bind apis.kcp.io apiexports edge.kcp.io
            create,delete,get,list,patch,watch tenancy.kcp.io workspaces
        """,
    },
    "placement-translator": {
        EVERYWHERE: f"""
            {DISCOVERY}
            read * *  # placements select objects of any kind
            create,patch core events
            update edge.kcp.io edgeplacements/status
            patch edge.kcp.io edgeplacements  # remove a confirmation
            bind apis.kcp.io apiexports  # copies of APIBindings
        """,
        MAILBOXES: """
            create,delete,update * *
            bind,escalate rbac.authorization.k8s.io clusterroles,roles  # copies, which have no effect in the hub
        """,
        ROOT: VIEWS,
        ESPW: VIEWS,
    },
    "status-summarizer": {
        EVERYWHERE: f"""
            {DISCOVERY}
            read * *  # placements select objects of any kind
            create,patch core events
            create core namespaces  # for summaries of cluster-scoped objects
            create,delete,update edge.kcp.io statussummaries
            update edge.kcp.io statuscollectors/status
            mark * *  # the label and the annotation of returned status
            patch * */status  # return the status of the only copy
            create core pods/binding  # return the end of virtual machines
        """,
        ROOT: VIEWS,
        ESPW: VIEWS,
    },
    "global-scheduler": {
        EVERYWHERE: f"""
            read core pods
            patch core pods,pods/status
            create core pods/binding
            read globalscheduler.com allocations,clusters
            patch globalscheduler.com allocations/status,clusters/status
            read edge.kcp.io edgeplacements,syncerconfigs
            create,delete,patch edge.kcp.io edgeplacements
            read workload.kcp.io synctargets
            read scheduling.kcp.io locations
            read apis.kcp.io apibindings
            create,patch core events
            {RIGHTS}
        """,
        MAILBOXES: "create apis.kcp.io apibindings",
        ROOT: VIEWS,
        ESPW: f"""
            {VIEWS}
            read tenancy.kcp.io workspaces
        """,
        COMPUTE: f"""
            {VIEWS}
            bind apis.kcp.io apiexports kubernetes
        """,
    },
}


def user_of(controller: str) -> str:
    return f"{CONTROLLER}{controller}"


def controller_roles(clusters: LogicalClusters) -> Iterator[tuple[str, list[Obj]]]:
    """Roles and bindings by logical cluster, without those of workspaces that do not exist."""
    for controller in CONTROLLERS:
        for place, rules in RULES[controller].items():
            cluster = place if place in (EVERYWHERE, MAILBOXES) else clusters.resolve(place)
            if cluster is not None:
                yield cluster, role_of_user(user_of(controller), user_of(controller), rules)
