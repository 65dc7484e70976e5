"""Names of kcp's API: groups, collections, labels, annotations, finalizers, conditions."""

from __future__ import annotations

from typing import Final

import msgspec

from farflung.apis.names import SERVICE_ACCOUNT, Collection

APIRESOURCE_GROUP: Final = "apiresource.kcp.io"
APIS_GROUP: Final = "apis.kcp.io"
CORE_GROUP: Final = "core.kcp.io"
SCHEDULING_GROUP: Final = "scheduling.kcp.io"
TENANCY_GROUP: Final = "tenancy.kcp.io"
TOPOLOGY_GROUP: Final = "topology.kcp.io"
WORKLOAD_GROUP: Final = "workload.kcp.io"

#: the logical cluster whose ClusterRoles and ClusterRoleBindings apply in every workspace
SHARED_CLUSTER: Final = "system:admin"
CONTROLLERS_CLUSTER: Final = "system:controllers"  #: … and which grant the rights of controllers, also in all at once
COPIED_KINDS_CLUSTER: Final = "system:copied-kinds"  #: … in every workspace, for the kinds that placements copy
MAILBOXES_CLUSTER: Final = "system:mailboxes"  #: … in every mailbox
COMPUTE: Final = "root:compute"  #: the workspace that exports Pods, Clusters and Allocations
COMPUTE_EXPORT: Final = "kubernetes"  #: the export of Pods, Services, Deployments and Ingresses there
MORE_EXPORT: Final = "kubernetes-more"  #: the export of all other kinds of workloads there

# --- users of other logical clusters --------------------------------------------------------------

CONSUMER: Final = "apis.kcp.io:binding:"  #: prefix of all users and groups in maximal permission policies
CONSUMING_ACCOUNT: Final = (
    "system:kcp:serviceaccount:"  #: prefix; the logical cluster, `:`, the namespace, `:`, the name
)
CONSUMING_USER: Final = "system:kcp:user:"  #: prefix of other users of one logical cluster; the cluster, `:`, the name
GLOBAL_GROUPS: Final = frozenset({"system:masters", "system:kcp:admin"})  #: with permissions in all workspaces
NOT_CHOSEN: Final = frozenset(
    {"system:authenticated", "system:unauthenticated"}
)  #: groups that every tenant has anyway


def consuming_user(name: str, cluster: str) -> str:
    """The name of a user of one logical cluster in the others: a tenant chooses the names of ServiceAccounts,
    certificates and impersonated users."""
    kind = CONSUMING_ACCOUNT if name.startswith(SERVICE_ACCOUNT) else CONSUMING_USER
    return f"{kind}{cluster}:{name.removeprefix(SERVICE_ACCOUNT)}"


# --- collections ----------------------------------------------------------------------------------

API_BINDINGS: Final = Collection(APIS_GROUP, "v1alpha1", "apibindings", "APIBinding")
API_RESOURCE_SCHEMAS: Final = Collection(APIS_GROUP, "v1alpha1", "apiresourceschemas", "APIResourceSchema")
API_EXPORTS: Final = Collection(APIS_GROUP, "v1alpha1", "apiexports", "APIExport")
LOCATIONS: Final = Collection(SCHEDULING_GROUP, "v1alpha1", "locations", "Location")
LOGICAL_CLUSTERS: Final = Collection(CORE_GROUP, "v1alpha1", "logicalclusters", "LogicalCluster")
SYNC_TARGETS: Final = Collection(WORKLOAD_GROUP, "v1alpha1", "synctargets", "SyncTarget")
WORKSPACES: Final = Collection(TENANCY_GROUP, "v1alpha1", "workspaces", "Workspace")

# --- annotations ----------------------------------------------------------------------------------

CLUSTER_ANNOTATION: Final = "kcp.io/cluster"  #: of every object: its logical cluster
PATH_ANNOTATION: Final = "kcp.io/path"  #: of LogicalClusters: the path of the workspace; `root` has none
OWNER_ANNOTATION: Final = "experimental.tenancy.kcp.io/owner"
#: of Workspaces: whether an administrator created it, if the name of its owner does not tell
BY_ADMINISTRATOR: Final = "internal.tenancy.kcp.io/by-administrator"
TYPE_ANNOTATION: Final = "internal.tenancy.kcp.io/type"
INTERNAL_CLUSTER: Final = "internal.tenancy.kcp.io/cluster"
INTERNAL_SHARD: Final = "internal.tenancy.kcp.io/shard"
REPLICATE: Final = "internal.kcp.io/replicate"
REQUIRED_GROUPS: Final = "authorization.kcp.io/required-groups"
BATTERY: Final = "bootstrap.kcp.io/battery"
CREATE_ONLY: Final = "bootstrap.kcp.io/create-only"
EXTRA_ANNOTATIONS: Final = "extra.apis.kcp.io/"  #: prefix: annotations of an APIExport that its APIBindings repeat
COMPUTE_ANNOTATION: Final = "extra.apis.kcp.io/compute.workload.kcp.io"
LABELS_ANNOTATION: Final = "scheduling.kcp.io/labels"  #: of Locations: their labels, for printing
WORKSPACE_AUDIT_ANNOTATION: Final = "tenancy.kcp.io/workspace"  #: of audit events: the logical cluster
DEFAULTS_CREATED: Final = "workload.kcp.io/skip-default-object-creation"

# --- labels ---------------------------------------------------------------------------------------

PHASE_LABEL: Final = "tenancy.kcp.io/phase"
INITIALIZER_LABELS: Final = "initializer.internal.kcp.io/"  #: prefix
EXPORT_LABEL: Final = "internal.apis.kcp.io/export"
CLAIM_LABEL: Final = "claimed.internal.apis.kcp.io/"  #: prefix of the hash of an APIExport
KEY_LABEL: Final = "internal.workload.kcp.io/key"

# --- finalizers -----------------------------------------------------------------------------------

API_BINDING_FINALIZER: Final = "apis.kcp.io/apibinding-finalizer"
WORKSPACE_FINALIZER: Final = "core.kcp.io/logicalcluster"  #: of a Workspace that has a LogicalCluster
LOGICAL_CLUSTER_FINALIZER: Final = "core.kcp.io/logicalcluster-deletion"

# --- conditions -----------------------------------------------------------------------------------

HEARTBEAT_HEALTHY: Final = "HeartbeatHealthy"  #: of SyncTargets
URLS_READY: Final = "VirtualWorkspaceURLsReady"  #: of APIExports
WORKSPACE_SCHEDULED: Final = "WorkspaceScheduled"
WORKSPACE_INITIALIZED: Final = "WorkspaceInitialized"
WORKSPACE_CONTENT_DELETED: Final = "WorkspaceContentDeleted"
WITHIN_QUOTA: Final = "WithinQuota"


class ExportReference(msgspec.Struct, frozen=True):
    """The APIExport of an APIBinding or a WorkspaceType."""

    path: str = ""  #: of the export's workspace; empty: the workspace of the referring object
    name: str = ""
