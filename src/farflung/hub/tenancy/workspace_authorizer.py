"""Authorization in workspaces.

    health          all users, everywhere
    system:masters  everything, also in all workspaces at once
    other users     reserved? ─► access to the workspace? ─► policy of the export ─► roles of the workspace

All refusals are alike, whether the workspace does not exist, is not accessible, or only forbids this request.  So a
refusal reveals nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec
import orjson

from farflung.apis.kcp.names import (
    APIS_GROUP,
    CONSUMER,
    GLOBAL_GROUPS,
    NOT_CHOSEN,
    REQUIRED_GROUPS,
    SHARED_CLUSTER,
    consuming_user,
)
from farflung.apis.names import SERVICE_ACCOUNT
from farflung.hub.auth.authorizer import Authorizer, access_denied
from farflung.hub.auth.escalation import ALL_RULES
from farflung.hub.auth.rbac import STORAGE_PREFIXES, PolicyRule
from farflung.hub.catalog.objects import cluster_in, name_in
from farflung.hub.request.attributes import Attributes, Decision
from farflung.hub.request.user import ADMINISTRATORS, AUTHENTICATED, User
from farflung.hub.tenancy.api_bindings import claim_of, permission_claims
from farflung.hub.tenancy.api_exports import ExportKey
from farflung.hub.tenancy.controller_access import RESERVED_CLUSTERS, ControllerAccess
from farflung.hub.tenancy.paths import WORKSPACES, LogicalClusters
from farflung.lib.groups import discard_from
from farflung.machinery.errors import ApiError, Obj, object_details, qualified
from farflung.store.base import Change, Entry, Store

ROOT: Final = "root"
WILDCARD: Final = "*"
NO_CLUSTER: Final = ""  #: the cluster of a request without one, or for one that does not exist
SYSTEM: Final = "system:"  #: prefix of clusters that are not workspaces

OPERATORS: Final = "system:kcp:admin"  #: group with cluster-admin in every workspace
HEALTH: Final = frozenset({"healthz", "livez", "readyz"})
METRICS: Final = "metrics"  #: of the whole hub
ACCESS: Final = Attributes("access", path="/")  #: the permission to access a workspace

ACCESS_GRANTED: Final = Decision(True, "access granted")
ACCESS_DENIED: Final = Decision(False, "access denied")

LOGICAL_CLUSTERS: Final = "/core.kcp.io/logicalclusters/"
LOGICAL_CLUSTER: Final = "cluster"  #: the name of every LogicalCluster
RESERVED_STATUS: Final = frozenset({"apiexports", "apibindings"})
WRITE_VERBS: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
#: verbs that could create objects in a cluster that does not exist
CREATING_VERBS: Final = frozenset({"create", "update", "patch"})
CACHED_DECISIONS: Final = 4096  #: users per workspace
DECISIONS: Final = 1024  #: about collections, kept until an object changes that they depend on
LONGEST_KEY: Final = 8192  #: characters of the key of a cached decision: reviews contain any user and attributes


# --- decisions without other objects --------------------------------------------------------------
EXPORTS: Final = "/apis.kcp.io/apiexports/"
BINDINGS: Final = "/apis.kcp.io/apibindings/"
CLUSTERS_CACHED: Final = 1024  #: clusters with cached bindings


def is_privileged(user: User) -> bool:
    return ADMINISTRATORS in user.groups and not user.cluster


def is_operator(user: User) -> bool:
    return OPERATORS in user.groups and not user.cluster


def without_global_groups(user: User) -> User:
    """Remove global groups from users of a single workspace: ServiceAccounts, users of certificates requested there,
    and impersonated users."""
    if not user.cluster or GLOBAL_GROUPS.isdisjoint(user.groups):
        return user
    return replace(user, groups=tuple(group for group in user.groups if group not in GLOBAL_GROUPS))


def is_service_account_of(cluster: str, user: User) -> bool:
    return user.cluster == cluster and user.name.startswith(SERVICE_ACCOUNT)


def is_health(attributes: Attributes) -> bool:
    return attributes.path is not None and attributes.path[1:].partition("/")[0] in HEALTH


def is_reserved(user: User, attributes: Attributes) -> bool:
    """Requests that roles of a workspace cannot allow: status of exports and bindings, and metrics of the hub."""
    if attributes.path is not None:
        return attributes.path[1:].partition("/")[0] == METRICS and not is_operator(user)
    return (
        attributes.group == APIS_GROUP
        and attributes.subresource == "status"
        and attributes.resource in RESERVED_STATUS
        and attributes.verb in WRITE_VERBS
    )


def has_required_groups(required: str, groups: Collection[str]) -> bool:
    """`a,b;c` requires both a and b, or c."""
    return not required or any(
        all(group.strip() in groups for group in alternative.split(",")) for alternative in required.split(";")
    )


def default_cluster(user: User) -> str:
    """The cluster of a request without one: a ServiceAccount's own, root for administrators, none for others."""
    return ROOT if is_privileged(user) else user.cluster


def content_attributes(export: str, asked: Attributes) -> Attributes:
    """The permission in an export's workspace that a request in its view requires."""
    return Attributes(asked.verb, APIS_GROUP, "apiexports", "content", name=export)


def check_wildcard_verb(asked: Attributes) -> None:
    """Raises 405 for verbs other than list and watch: an object is in one cluster."""
    if asked.path is not None or asked.verb in ("list", "watch"):
        return
    what = qualified(asked.resource, asked.group)
    message = f'{asked.verb} is not supported on resources of kind "{what}" in the `*` logical cluster'
    raise ApiError(405, "MethodNotAllowed", message, object_details(asked.group, asked.resource, ""))


# --- workspaces -----------------------------------------------------------------------------------


class _Annotations(msgspec.Struct, gc=False):
    required: str = msgspec.field(default="", name=REQUIRED_GROUPS)


class _Metadata(msgspec.Struct, gc=False):
    annotations: _Annotations | None = None


class _Annotated(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode = msgspec.json.Decoder(_Annotated).decode


def required_groups(entry: Entry) -> str:
    annotations = _decode(entry.value).metadata.annotations
    return "" if annotations is None else annotations.required


class WorkspaceAuthorizer(Authorizer):
    def __init__(self, store: Store) -> None:
        super().__init__(store, shared=SHARED_CLUSTER, kept=RESERVED_CLUSTERS)
        self.controllers = ControllerAccess(LogicalClusters(store), super().decide, self._policy)
        self._limits = PermissionPolicies(store)
        self._required: dict[str, str] = {}  #: cluster → required groups, if any
        self._entering: dict[tuple[object, ...], bool] = {}
        self._granted: set[tuple[object, ...]] = set()  #: decisions about collections
        store.subscribe(LOGICAL_CLUSTERS, self._on_clusters)
        for prefix in (*STORAGE_PREFIXES, LOGICAL_CLUSTERS, WORKSPACES, EXPORTS, BINDINGS):
            store.subscribe(prefix, self._drop_decisions)
        for entry in store.list(LOGICAL_CLUSTERS).entries:
            self._update_cluster(entry.key, entry)

    # --- decisions --------------------------------------------------------------------------------

    def decide(self, cluster: str, user: User, attributes: Attributes) -> Decision:
        if attributes.name or attributes.path is not None:
            return ACCESS_GRANTED if is_health(attributes) or self._allows(cluster, user, attributes) else ACCESS_DENIED
        key = cluster, user.cluster, user.name, user.groups, attributes
        if key in self._granted:
            return ACCESS_GRANTED
        if not self._allows(cluster, user, attributes):
            return (
                ACCESS_DENIED  # not cached, so that users without permissions cannot displace the decisions of others
            )
        if key_size(user, attributes) <= LONGEST_KEY:
            if len(self._granted) >= DECISIONS:
                self._granted.clear()
            self._granted.add(key)
        return ACCESS_GRANTED

    def _drop_decisions(self, changes: Sequence[Change]) -> None:
        """Called when anything changes that a decision depends on."""
        self._granted.clear()

    def check_view(self, view: ExportKey, cluster: str, user: User, asked: Attributes) -> None:
        """Raises 403 unless the user may do something in a cluster or all clusters of an export's view.  The view of an
        export that does not exist is forbidden for all users.  Claims for resources of another export are subject to
        that export's policy."""
        is_there = self._store.get(f"{EXPORTS}{view.cluster}/{view.name}") is not None
        if not is_there or not (self._may_use(view, user, asked) or self.controllers.allows(cluster, user, asked)):
            raise access_denied(user, asked, ACCESS_DENIED.reason)

    def _may_use(self, view: ExportKey, user: User, asked: Attributes) -> bool:
        is_allowed = is_privileged(user) or self._may_see(view, without_global_groups(user), asked)
        return is_allowed and self.decide(view.cluster, user, content_attributes(view.name, asked)).allowed

    def may_enter(self, cluster: str, user: User) -> bool:
        if user.cluster and user.cluster != cluster:
            return False
        user = without_global_groups(user)
        return is_privileged(user) or self._may_enter(cluster, user)

    def exists(self, cluster: str) -> bool:
        if cluster == ROOT:
            return True
        return "/" not in cluster and self._store.get(f"{LOGICAL_CLUSTERS}{cluster}/{LOGICAL_CLUSTER}") is not None

    def rules_of(self, cluster: str, user: User, namespace: str) -> tuple[list[PolicyRule], list[str]]:
        if not self.may_enter(cluster, user):
            return [], []
        rules, errors = super().rules_of(cluster, without_global_groups(user), namespace)
        return ([*ALL_RULES, *rules] if is_operator(user) else rules), errors

    def depends_on(self, cluster: str, attributes: Attributes) -> Iterator[str]:
        yield from super().depends_on(cluster, attributes)
        yield f"{LOGICAL_CLUSTERS}{cluster}/"
        yield f"{BINDINGS}{cluster}/"
        export = self._limits.exported_by(cluster, attributes.group, attributes.resource)
        if export is not None:
            yield f"{EXPORTS}{export.cluster}/"
            yield from super().depends_on(export.cluster, attributes)

    def view_depends_on(self, view: ExportKey, asked: Attributes) -> Iterator[str]:
        """The keys and prefixes of the objects on which the permission for a view depends."""
        yield f"{EXPORTS}{view.cluster}/"
        yield from self.depends_on(view.cluster, content_attributes(view.name, asked))
        if self._limits.is_claimed(view, asked.group, asked.resource):
            yield EXPORTS  # any of them may get a policy
            limiting = self._limits.on_view(view, asked.group, asked.resource)
            if limiting is not None:
                yield from super().depends_on(limiting.cluster, asked)

    def _allows(self, cluster: str, user: User, attributes: Attributes) -> bool:
        if user.cluster and user.cluster != cluster:
            return False
        user = without_global_groups(user)
        if is_privileged(user):
            return cluster != NO_CLUSTER and (attributes.verb not in CREATING_VERBS or self._can_have_objects(cluster))
        if is_reserved(user, attributes):
            return False
        return (
            self._may_enter(cluster, user)
            and self._is_within_policy(cluster, user, attributes)
            and (is_operator(user) or super().decide(cluster, user, attributes).allowed)
        ) or ((cluster == WILDCARD or self.exists(cluster)) and self.controllers.allows(cluster, user, attributes))

    def _can_have_objects(self, cluster: str) -> bool:
        """For other clusters, such as the wildcard, the registry refuses with a better message."""
        return cluster == WILDCARD or cluster.startswith(SYSTEM) or self.exists(cluster)

    def _may_enter(self, cluster: str, user: User) -> bool:
        """The user is not an administrator."""
        if cluster.startswith(SYSTEM) or not self.exists(cluster):
            return False
        if is_operator(user) or is_service_account_of(cluster, user):
            return True
        required = self._required.get(cluster, "")
        if required and not has_required_groups(required, user.groups):
            return False
        return AUTHENTICATED in user.groups if cluster == ROOT else self._has_access(cluster, user)

    def _has_access(self, cluster: str, user: User) -> bool:
        key = (self._policy(cluster).generation, user.name, user.groups)
        known = self._entering.get(key)
        if known is None:
            known = super().decide(cluster, user, ACCESS).allowed
            if key_size(user, ACCESS) <= LONGEST_KEY:
                if len(self._entering) >= CACHED_DECISIONS:
                    self._entering.clear()
                self._entering[key] = known
        return known

    def _is_within_policy(self, cluster: str, user: User, attributes: Attributes) -> bool:
        if attributes.path is not None:
            return True
        return self._is_within(self._limits.on(cluster, attributes.group, attributes.resource), user, attributes)

    def _may_see(self, view: ExportKey, user: User, asked: Attributes) -> bool:
        if is_reserved(user, asked):
            return False
        return asked.path is not None or self._is_within(
            self._limits.on_view(view, asked.group, asked.resource), user, asked
        )

    def _is_within(self, export: ExportKey | None, user: User, attributes: Attributes) -> bool:
        """Whether the policy of an export, if any, allows a request."""
        return export is None or super().decide(export.cluster, prefixed_user(user), attributes).allowed

    # --- updates ----------------------------------------------------------------------------------

    def _on_clusters(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._update_cluster(change.key, change.entry)
            if change.entry is None:
                self.forget(cluster_in(change.key))

    def _update_cluster(self, key: str, entry: Entry | None) -> None:
        required = required_groups(entry) if entry is not None else ""
        if required:
            self._required[cluster_in(key)] = required
        else:
            self._required.pop(cluster_in(key), None)


def key_size(user: User, attributes: Attributes) -> int:
    """The approximate size of a user and attributes in characters."""
    texts = (user.name, user.cluster, *user.groups, *attributes)
    return 16 * len(texts) + sum(len(text) for text in texts if text)


def prefixed_user(user: User) -> User:
    """The user as policies in the export's workspace name it.  A tenant chooses the names of the ServiceAccounts,
    certificates and impersonated users of a workspace, so policies name them with their logical cluster, and see none
    of their groups that a tenant can choose."""
    name, groups = user.name, user.groups
    if user.cluster:
        name = consuming_user(name, user.cluster)
        groups = tuple(group for group in groups if group in NOT_CHOSEN)
    return User(CONSUMER + name, tuple(CONSUMER + group for group in groups))


def has_permission_policy(export: Obj) -> bool:
    policy = (export.get("spec") or {}).get("maximalPermissionPolicy") or {}
    return policy.get("local") is not None


def identity_of(export: Obj) -> str:
    return str((export.get("status") or {}).get("identityHash") or "")


def claimed_identities(export: Obj) -> Mapping[tuple[str, str], str]:
    """(group, resource) → identity, of the claims of an export for resources of other exports."""
    claims = map(claim_of, permission_claims(export))
    return {(one.group, one.resource): one.identity for one in claims if one.identity}


def bound_exports(binding: Obj) -> Mapping[tuple[str, str], ExportKey]:
    """(group, resource) → export, of the bound resources of a binding."""
    status = binding.get("status") or {}
    reference = ((binding.get("spec") or {}).get("reference") or {}).get("export") or {}
    export = ExportKey(status.get("apiExportClusterName", ""), reference.get("name", ""))
    return {(one.get("group", ""), one.get("resource", "")): export for one in status.get("boundResources") or ()}


class PermissionPolicies:
    """An index of the exports with maximal permission policies, and of the clusters that bind them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._limited: dict[ExportKey, str] = {}  #: export → identity
        self._identified: dict[str, set[ExportKey]] = {}  #: identity → exports
        self._claims: dict[ExportKey, Mapping[tuple[str, str], str]] = {}
        self._bound: dict[str, Mapping[tuple[str, str], ExportKey]] = {}
        store.subscribe(EXPORTS, self._on_exports)
        store.subscribe(BINDINGS, self._on_bindings)
        for entry in store.list(EXPORTS).entries:
            self._update(entry.key, entry)

    def on(self, cluster: str, group: str, resource: str) -> ExportKey | None:
        """The export whose policy applies to a resource of a cluster."""
        if not self._limited:
            return None
        export = self.exported_by(cluster, group, resource)
        return export if export in self._limited else None

    def exported_by(self, cluster: str, group: str, resource: str) -> ExportKey | None:
        """The export of a resource that a cluster has bound."""
        bound = self._bound.get(cluster)
        if bound is None:
            bound = self._read(cluster)
        return bound.get((group, resource))

    def is_claimed(self, view: ExportKey, group: str, resource: str) -> bool:
        """Whether an export claims a resource of another export."""
        return (group, resource) in self._claims.get(view, ())

    def on_view(self, view: ExportKey, group: str, resource: str) -> ExportKey | None:
        """The export whose policy applies to a resource that another export claims."""
        claims = self._claims.get(view)
        limiting = None if claims is None else self._identified.get(claims.get((group, resource), ""))
        return min(limiting) if limiting else None

    def _read(self, cluster: str) -> Mapping[tuple[str, str], ExportKey]:
        found: dict[tuple[str, str], ExportKey] = {}
        for entry in self._store.list(f"{BINDINGS}{cluster}/").entries:
            found.update(bound_exports(orjson.loads(entry.value)))
        if len(self._bound) >= CLUSTERS_CACHED:
            del self._bound[next(iter(self._bound))]
        self._bound[cluster] = found
        return found

    def _on_exports(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._update(change.key, change.entry)

    def _on_bindings(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._bound.pop(cluster_in(change.key), None)

    def _update(self, key: str, entry: Entry | None) -> None:
        export = ExportKey(cluster_in(key), name_in(key)[1])
        found = {} if entry is None else orjson.loads(entry.value)
        if before := self._limited.pop(export, ""):
            discard_from(self._identified, before, export)
        if has_permission_policy(found):
            identity = self._limited[export] = identity_of(found)
            if identity:
                self._identified.setdefault(identity, set()).add(export)
        self._claims.pop(export, None)
        if claims := claimed_identities(found):
            self._claims[export] = claims
