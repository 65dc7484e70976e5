"""Names of the Kubernetes API: collections, labels, annotations, taints, finalizers, conditions.

Each is declared once.  Those of kcp, the edge API and the global scheduler are in `names.py` of their folders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote


@dataclass(frozen=True, slots=True, order=True)
class Collection:
    """All objects of one kind, in one version of the API."""

    group: str  #: empty: the core group
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of a request, below the root of an API."""
        parts = ["/apis" if self.group else "/api", self.api_version]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


# --- API groups -----------------------------------------------------------------------------------

AUTHENTICATION_GROUP: Final = "authentication.k8s.io"
CERTIFICATES_GROUP: Final = "certificates.k8s.io"
POLICIES_GROUP: Final = "admissionregistration.k8s.io"
RBAC_GROUP: Final = "rbac.authorization.k8s.io"

# --- collections ----------------------------------------------------------------------------------

CONFIG_MAPS: Final = Collection("", "v1", "configmaps", "ConfigMap")
EVENTS: Final = Collection("", "v1", "events", "Event")
NAMESPACES: Final = Collection("", "v1", "namespaces", "Namespace")
NODES: Final = Collection("", "v1", "nodes", "Node")
CLAIMS: Final = Collection("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PODS: Final = Collection("", "v1", "pods", "Pod")
SECRETS: Final = Collection("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS: Final = Collection("", "v1", "serviceaccounts", "ServiceAccount")
CONTROLLER_REVISIONS: Final = Collection("apps", "v1", "controllerrevisions", "ControllerRevision")
DAEMON_SETS: Final = Collection("apps", "v1", "daemonsets", "DaemonSet")
DEPLOYMENTS: Final = Collection("apps", "v1", "deployments", "Deployment")
REPLICA_SETS: Final = Collection("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS: Final = Collection("apps", "v1", "statefulsets", "StatefulSet")
JOBS: Final = Collection("batch", "v1", "jobs", "Job")
LEASES: Final = Collection("coordination.k8s.io", "v1", "leases", "Lease")
ACCESS_REVIEWS: Final = Collection("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")
TOKEN_REVIEWS: Final = Collection(AUTHENTICATION_GROUP, "v1", "tokenreviews", "TokenReview")
CLUSTER_ROLES: Final = Collection(RBAC_GROUP, "v1", "clusterroles", "ClusterRole")
CLUSTER_ROLE_BINDINGS: Final = Collection(RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding")
CUSTOM_RESOURCE_DEFINITIONS: Final = Collection(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"
)

# --- users ----------------------------------------------------------------------------------------

SERVICE_ACCOUNT: Final = "system:serviceaccount:"  #: prefix of the name of a ServiceAccount; namespace:name follows

# --- labels and annotations -----------------------------------------------------------------------

REQUESTED_BY: Final = "farflung.io/requested-by"  #: of Leases: the candidate that asks the holder to release it
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
NAME_LABEL: Final = "kubernetes.io/metadata.name"  #: of every Namespace: its name
SERVICE_ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"  #: annotation of a token's Secret
SERVICE_ACCOUNT_UID: Final = "kubernetes.io/service-account.uid"  #: annotation of a token's Secret
AUDIT_TRUNCATED: Final = "audit.k8s.io/truncated"  #: annotation of audit events without a body that is too large
AUTHORIZATION_DECISION: Final = "authorization.k8s.io/decision"  #: annotation of audit events
BETA_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
CONTROLLER_HASH: Final = "controller.kubernetes.io/hash"  #: label of ControllerRevisions
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
DEPLOYMENT_DESIRED: Final = "deployment.kubernetes.io/desired-replicas"  #: annotation of ReplicaSets
DEPLOYMENT_MAX: Final = "deployment.kubernetes.io/max-replicas"  #: annotation of ReplicaSets
DEPLOYMENT_REVISION: Final = "deployment.kubernetes.io/revision"
DEPLOYMENT_HISTORY: Final = "deployment.kubernetes.io/revision-history"
JOB_INDEX: Final = "batch.kubernetes.io/job-completion-index"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
STATEFUL_POD_NAME: Final = "statefulset.kubernetes.io/pod-name"

# --- finalizers, taints, conditions ---------------------------------------------------------------

JOB_FINALIZER: Final = "batch.kubernetes.io/job-tracking"  #: of Pods that their Job has not counted
NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
UNREACHABLE_TAINT: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
NO_EXECUTE: Final = "NoExecute"
NO_SCHEDULE: Final = "NoSchedule"
POD_SCHEDULED: Final = "PodScheduled"
REPLICA_FAILURE: Final = "ReplicaFailure"
