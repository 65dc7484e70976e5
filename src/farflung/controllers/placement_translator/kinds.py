"""Which kinds of objects go where, and which objects every cluster has of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

from farflung.controllers.placement_translator.values import Kind


class Category(Enum):
    EDGE = "edge"  #: to the mailbox, and on to the edge
    MAILBOX = "mailbox"  #: to the mailbox, and no further
    NOWHERE = "nowhere"


_OF_THE_HUB: Final = frozenset(
    {
        "edge.kcp.io",
        "edge.kubestellar.io",
        "scheduling.kcp.io",
        "tenancy.kcp.io",
        "topology.kcp.io",
        "workload.kcp.io",
    }
)  #: groups about workspaces, places and what goes there

_STAYING: Final = {
    "": ("bindings", "componentstatuses", "events", "nodes"),
    "apiresource.kcp.io": ("apiresourceimports", "negotiatedapiresources"),
    "apis.kcp.io": ("apiconversions", "apiexportendpointslices", "apiexports", "apiresourceschemas"),
    "apps": ("controllerrevisions",),
    "authentication.k8s.io": ("selfsubjectreviews", "tokenreviews"),
    "authorization.k8s.io": (
        "localsubjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
    ),
    "certificates.k8s.io": ("certificatesigningrequests",),
    "core.kcp.io": ("logicalclusters", "shards"),
    "events.k8s.io": ("events",),
}  #: group → resources

_STAYING_KINDS: Final = frozenset(Kind(group, resource) for group, some in _STAYING.items() for resource in some)
_MAILBOX_KINDS: Final = frozenset({Kind("apis.kcp.io", "apibindings")})


def category(kind: Kind) -> Category:
    """Where objects of a kind go.  A kind that nobody has heard of goes to the edge."""
    if kind in _STAYING_KINDS or kind.group in _OF_THE_HUB:
        return Category.NOWHERE
    return Category.MAILBOX if kind in _MAILBOX_KINDS else Category.EDGE


# --- what every cluster has of its own ------------------------------------------------------------

_TOKENS: Final = frozenset({"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"})
_PULL_SECRET: Final = "kubernetes.io/dockercfg"  # noqa: S105
_OF_AN_ACCOUNT: Final = frozenset(
    {"kubernetes.io/service-account.name", "openshift.io/internal-registry-auth-token.service-account"}
)  #: annotations of Secrets that were made for a ServiceAccount
SUMMARIES: Final = "edge-status"  #: the namespace with the summaries of what is in none
_IDENTITIES: Final = "kcp-system"  #: the namespace with the private identities of APIExports
_MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
_SLICE_CONTROLLERS: Final = frozenset({"endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"})
_ENDPOINTS_MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
_ENDPOINTS_CHANGED: Final = "endpoints.kubernetes.io/last-change-trigger-time"


def may_be_system(kind: Kind) -> bool:
    """Whether there are such objects of a kind at all."""
    return kind in _JUDGES


def is_system(kind: Kind, obj: Mapping[str, Any]) -> bool:
    """Whether an object is one that every cluster makes for itself: no copy of it is wanted anywhere."""
    judge = _JUDGES.get(kind)
    return judge is not None and judge(obj, obj.get("metadata") or {})


def _secret(obj: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    kind = obj.get("type")
    if kind in _TOKENS or metadata.get("namespace") == _IDENTITIES:
        return True
    if kind != _PULL_SECRET:
        return False
    return _is_owned_by("ServiceAccount", metadata) or not _OF_AN_ACCOUNT.isdisjoint(metadata.get("annotations") or ())


def _endpoints(_: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Those of Services.  People make others by hand."""
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


_JUDGES: Final[Mapping[Kind, Callable[[Mapping[str, Any], Mapping[str, Any]], bool]]] = {
    Kind("", "namespaces"): _named(SUMMARIES),
    Kind("", "secrets"): _secret,
    Kind("", "configmaps"): _named("kube-root-ca.crt"),
    Kind("", "serviceaccounts"): _named("default"),
    Kind("", "endpoints"): _endpoints,
    Kind("discovery.k8s.io", "endpointslices"): _endpoint_slice,
}
