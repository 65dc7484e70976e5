"""The ClusterRoles of the controllers, each bound to a user: what a controller does, and nothing else.

The lines are those of `hub/auth/default_roles.py`.  A controller has a role in each place where it works: in every
workspace (EVERYWHERE), there for any kind that placements copy (COPIED_KINDS), in every mailbox (MAILBOXES), or in one
workspace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from farflung.apis.kcp.names import COMPUTE
from farflung.apis.kcp.names import CONTROLLERS_CLUSTER as EVERYWHERE
from farflung.apis.kcp.names import COPIED_KINDS_CLUSTER as COPIED_KINDS
from farflung.apis.kcp.names import MAILBOXES_CLUSTER as MAILBOXES
from farflung.hub.auth.default_roles import role_of_user
from farflung.hub.request.user import CONTROLLER
from farflung.hub.tenancy.controller_access import RESERVED_CLUSTERS
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
DISCOVERY: Final = "get /api,/apis"
VIEWS: Final = "get apis.kcp.io apiexports"  #: the URLs of views
ENTER: Final = "access /"  #: the permission to enter a workspace, and to read its discovery; everyone may enter root
#: to review the rights of authors
RIGHTS: Final = """
    follow rbac.authorization.k8s.io clusterroles,clusterrolebindings
    follow core.kcp.io logicalclusters
    create authorization.k8s.io subjectaccessreviews
"""
#: what placements and summaries depend on, beside the objects that are copied
PLACEMENTS: Final = """
    follow edge.kcp.io customizers,edgeplacements,singleplacementslices,statuscollectors,statussummaries,syncerconfigs
    follow scheduling.kcp.io locations
    follow core.kcp.io logicalclusters
"""
ELECTION: Final = "create,get,update coordination.k8s.io leases"

RULES: Final[Mapping[str, Mapping[str, str]]] = {
    "edge-scheduler": {
        EVERYWHERE: f"""
            {RIGHTS}
            follow edge.kcp.io edgeplacements,singleplacementslices
            create,delete,update edge.kcp.io singleplacementslices
            update edge.kcp.io edgeplacements/status
            follow scheduling.kcp.io locations
            follow workload.kcp.io synctargets
            list apis.kcp.io apibindings  # warn about workspaces that bind another export
            place scheduling.kcp.io locations  # write slices with any destinations
        """,
        ROOT: VIEWS,
        ESPW: f"""
            {ENTER}
            {VIEWS}
            {ELECTION}
        """,
    },
    "mailbox-controller": {
        EVERYWHERE: """
            follow,get workload.kcp.io synctargets
            patch workload.kcp.io synctargets/status
            follow apis.kcp.io apibindings
            follow edge.kcp.io syncerconfigs
        """,
        MAILBOXES: f"""
            {DISCOVERY}
            create,delete,get apis.kcp.io apibindings
            create edge.kcp.io syncerconfigs
            list,release * *  # remove the finalizer of syncers from objects of mailboxes that are being deleted
        """,
        ROOT: VIEWS,
        ESPW: f"""
            {ENTER}
            {VIEWS}
            {ELECTION}
            bind apis.kcp.io apiexports edge.kcp.io
            create,delete,follow,patch tenancy.kcp.io workspaces
        """,
    },
    "placement-translator": {
        EVERYWHERE: f"""
            {DISCOVERY}
            {PLACEMENTS}
            create,patch core events
            update edge.kcp.io edgeplacements/status
            patch edge.kcp.io edgeplacements  # remove a confirmation
            bind apis.kcp.io apiexports  # copies of APIBindings
        """,
        COPIED_KINDS: "follow,get * *",
        MAILBOXES: """
            create,delete,update * *
            bind,escalate rbac.authorization.k8s.io clusterroles,roles  # copies, which have no effect in the hub
        """,
        ROOT: VIEWS,
        ESPW: f"""
            {ENTER}
            {VIEWS}
            {ELECTION}
            follow tenancy.kcp.io workspaces
        """,
    },
    "status-summarizer": {
        EVERYWHERE: f"""
            {DISCOVERY}
            {PLACEMENTS}
            create,patch core events
            create core namespaces  # for summaries of cluster-scoped objects
            create,delete,update edge.kcp.io statussummaries
            update edge.kcp.io statuscollectors/status
            create core pods/binding  # return the end of virtual machines
        """,
        COPIED_KINDS: """
            follow,get * *
            mark * *  # the label and the annotation of returned status
            patch * */status  # return the status of the only copy
        """,
        ROOT: VIEWS,
        ESPW: f"""
            {ENTER}
            {VIEWS}
            {ELECTION}
            follow tenancy.kcp.io workspaces
        """,
    },
    "global-scheduler": {
        EVERYWHERE: f"""
            {RIGHTS}
            follow,get core pods
            patch core pods,pods/status
            create core pods/binding
            follow,get globalscheduler.com allocations
            follow globalscheduler.com clusters
            patch globalscheduler.com allocations/status,clusters/status
            follow edge.kcp.io edgeplacements,syncerconfigs
            create,delete,patch edge.kcp.io edgeplacements
            place scheduling.kcp.io locations  # bring machines to all Clusters
            follow workload.kcp.io synctargets
            follow scheduling.kcp.io locations
            follow apis.kcp.io apibindings
            get core.kcp.io logicalclusters  # the workspaces of SyncTargets
            create,patch core events
        """,
        ROOT: VIEWS,
        ESPW: f"""
            {ENTER}
            {VIEWS}
            follow tenancy.kcp.io workspaces
        """,
        COMPUTE: f"""
            {ENTER}
            {VIEWS}
            {ELECTION}
        """,
    },
}


def user_of(controller: str) -> str:
    return f"{CONTROLLER}{controller}"


def controller_roles(clusters: LogicalClusters) -> Iterator[tuple[str, list[Obj]]]:
    """Roles and bindings by logical cluster, without those of workspaces that do not exist."""
    for controller in CONTROLLERS:
        for place, rules in RULES[controller].items():
            cluster = place if place in RESERVED_CLUSTERS else clusters.resolve(place)
            if cluster is not None:
                yield cluster, role_of_user(user_of(controller), user_of(controller), rules)
