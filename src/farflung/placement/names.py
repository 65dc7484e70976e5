"""Names of kinds, objects and mailboxes, and the collections of the placement API."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from farflung.apis.edge.copied_kinds import is_copied
from farflung.apis.edge.names import EDGE_GROUP
from farflung.apis.kcp.names import (
    APIS_GROUP,
)
from farflung.apis.names import SERVICE_ACCOUNT_NAME, Collection


class GroupResource(NamedTuple):
    """A kind by group and resource, in any version."""

    group: str  #: empty: the core group
    resource: str  #: the lower-case plural

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class ObjectRef(NamedTuple):
    """The name of an object within its workspace."""

    resource: GroupResource
    namespace: str  #: empty: cluster-scoped
    name: str

    def __str__(self) -> str:
        within = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.resource} {within}"


class WatchedCollection(NamedTuple):
    """The collection in which objects of a kind are watched."""

    resource: GroupResource
    version: str  #: of the API
    identity: str = ""  #: of the APIExport of the kind; empty for others
    cluster: str = ""  #: the workspace whose definition serves the kind; empty: all workspaces

    def collection(self) -> Collection:
        plural = f"{self.resource.resource}:{self.identity}" if self.identity else self.resource.resource
        return Collection(self.resource.group, self.version, plural, "")

    def collection_in(self, api_version: str) -> Collection:
        """Where one workspace serves the kind in this version, with or without its group."""
        return Collection(self.resource.group, api_version.rpartition("/")[2], self.resource.resource, "")


NAMESPACES: Final = GroupResource("", "namespaces")
PODS: Final = GroupResource("", "pods")
DEFINITIONS: Final = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")


class ObjectKey(NamedTuple):
    """A cluster-scoped object of a known kind.  As text: `cluster|name`, like the keys of informers."""

    cluster: str
    name: str

    def __str__(self) -> str:
        return f"{self.cluster}|{self.name}"


PlacementKey: TypeAlias = ObjectKey
BINDINGS: Final = GroupResource(APIS_GROUP, "apibindings")
#: resources whose status the hub writes; the status of their copies is not returned
STATUS_BY_HUB: Final = frozenset({NAMESPACES, GroupResource("", "resourcequotas"), DEFINITIONS, BINDINGS})


class Category(Enum):
    EDGE = "edge"  #: copied to mailboxes, and applied at edges
    MAILBOX = "mailbox"  #: copied to mailboxes only
    NOWHERE = "nowhere"


_MAILBOX_RESOURCES: Final = frozenset({GroupResource(APIS_GROUP, "apibindings")})


def category(resource: GroupResource) -> Category:
    """Where objects of a kind are copied to.  Unknown kinds are copied to edges."""
    if not is_copied(*resource):
        return Category.NOWHERE
    return Category.MAILBOX if resource in _MAILBOX_RESOURCES else Category.EDGE


# --- objects that every cluster creates for itself ------------------------------------------------

_TOKENS: Final = frozenset({"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"})
_PULL_SECRET: Final = "kubernetes.io/dockercfg"  # noqa: S105
_OF_AN_ACCOUNT: Final = frozenset(
    {SERVICE_ACCOUNT_NAME, "openshift.io/internal-registry-auth-token.service-account"}
)  #: annotations of Secrets that were generated for a ServiceAccount


SUMMARY_NAMESPACE: Final = "edge-status"  #: the namespace with the summaries of cluster-scoped objects
_IDENTITIES: Final = "kcp-system"  #: the namespace with the private identities of APIExports
_MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
_SLICE_CONTROLLERS: Final = frozenset({"endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"})
_ENDPOINTS_MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
_ENDPOINTS_CHANGED: Final = "endpoints.kubernetes.io/last-change-trigger-time"


def may_be_system(resource: GroupResource) -> bool:
    """Whether objects of a kind can be system objects."""
    return resource in _PREDICATES


def is_system(resource: GroupResource, obj: Mapping[str, Any]) -> bool:
    """Whether an object is one that every cluster creates for itself, and that is never copied."""
    predicate = _PREDICATES.get(resource)
    return predicate is not None and predicate(obj, obj.get("metadata") or {})


def _secret(obj: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    kind = obj.get("type")
    if kind in _TOKENS or metadata.get("namespace") == _IDENTITIES:
        return True
    if kind != _PULL_SECRET:
        return False
    return _is_owned_by("ServiceAccount", metadata) or not _OF_AN_ACCOUNT.isdisjoint(metadata.get("annotations") or ())


def _endpoints(_: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Endpoints that a controller wrote for a Service.  Users may create others."""
    return (
        _ENDPOINTS_MANAGED_BY in (metadata.get("labels") or ())
        or _ENDPOINTS_CHANGED in (metadata.get("annotations") or ())
        or _is_owned_by("Service", metadata)
    )


def _endpoint_slice(_: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    manager = (metadata.get("labels") or {}).get(_MANAGED_BY)
    return manager in _SLICE_CONTROLLERS or _is_owned_by("Service", metadata)


def _is_owned_by(kind: str, metadata: Mapping[str, Any]) -> bool:
    return any(
        owner.get("apiVersion") == "v1" and owner.get("kind") == kind for owner in metadata.get("ownerReferences") or ()
    )


def _named(name: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], bool]:
    return lambda _, metadata: metadata.get("name") == name


_PREDICATES: Final[Mapping[GroupResource, Callable[[Mapping[str, Any], Mapping[str, Any]], bool]]] = {
    GroupResource("", "namespaces"): _named(SUMMARY_NAMESPACE),
    GroupResource("", "secrets"): _secret,
    GroupResource("", "configmaps"): _named("kube-root-ca.crt"),
    GroupResource("", "serviceaccounts"): _named("default"),
    GroupResource("", "endpoints"): _endpoints,
    GroupResource("discovery.k8s.io", "endpointslices"): _endpoint_slice,
}


BINDING: Final = "bind-edge"
THE_ONE: Final = "the-one"  #: the name of the SyncerConfig in every mailbox
EXPORT: Final = EDGE_GROUP
_NAME: Final = re.compile(r"(?P<cluster>[a-z0-9][a-z0-9-]*)-mb-(?P<uid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


# --- names ----------------------------------------------------------------------------------------


def mailbox_name(cluster: str, uid: str) -> str:
    return f"{cluster}-mb-{uid}"


def is_mailbox_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def cluster_of(name: str) -> str:
    """The logical cluster of the SyncTarget; empty if this is not the name of a mailbox."""
    found = _NAME.fullmatch(name)
    return found["cluster"] if found is not None else ""


PLACING_NOT_ALLOWED: Final = "PlacingNotAllowed"  #: of the condition Ready, and of machines
#: reasons of problems, the worst first
INVALID_SPEC: Final = "InvalidSpec"
WITHDRAWAL_HELD: Final = "WithdrawalHeld"
TRANSLATOR_FAILED: Final = "TranslatorFailed"  #: unwanted copies stay
REFUSED: Final = "Refused"
CUSTOMIZATION_FAILED: Final = "CustomizationFailed"
CONFLICT: Final = "Conflict"
FOREIGN: Final = "the mailbox has such an object that no placement created; it is not changed"  #: a CONFLICT
NAMESPACE_IN_USE: Final = "NamespaceInUse"
NAME_IN_USE: Final = "NameInUse"
KIND_IN_USE: Final = "KindInUse"  #: the mailbox serves a kind of this name of another APIExport
NAMESPACE_RESERVED: Final = "NamespaceReserved"
NOT_SERVED: Final = "NotServed"
AMBIGUOUS: Final = "AmbiguousLocation"  #: the object is copied
CUSTOMIZATION_INCOMPLETE: Final = "CustomizationIncomplete"  #: the object is copied
SEPARATOR: Final = "; "  #: between the problems in a condition


def located(ref: ObjectRef, mailbox: str) -> str:
    """The beginning of each message about a copy in the condition of its EdgePlacement."""
    return f"{ref} in {mailbox}: "


REASONS: Final = (
    INVALID_SPEC,
    WITHDRAWAL_HELD,
    TRANSLATOR_FAILED,
    REFUSED,
    CUSTOMIZATION_FAILED,
    NAMESPACE_RESERVED,
    NAMESPACE_IN_USE,
    NAME_IN_USE,
    KIND_IN_USE,
    CONFLICT,
    NOT_SERVED,
    AMBIGUOUS,
    CUSTOMIZATION_INCOMPLETE,
)


HARMLESS: Final = (AMBIGUOUS, CUSTOMIZATION_INCOMPLETE)
