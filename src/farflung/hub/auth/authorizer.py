"""Authorization by RBAC, per cluster.

    Authorizer.decide(cluster, user, attributes) ─► Decision(allowed, reason)

Administrators may do everything, and everyone may read health and version.  All else depends on the roles and bindings
of the cluster.  They are loaded at the first request for the cluster.  From then on every commit takes effect before
its writer gets a response.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple

from farflung.hub.auth.rbac import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    DENIED,
    READING,
    ROLES,
    STORAGE_PREFIXES,
    Grant,
    PolicyRule,
    RbacPolicy,
    Role,
)
from farflung.hub.request.attributes import Attributes, Decision
from farflung.hub.request.user import ADMINISTRATORS, User
from farflung.machinery.errors import ApiError, forbidden
from farflung.machinery.turns import INDIVISIBLE, Paced, Steps
from farflung.store.base import Change, Store

PUBLIC: Final = frozenset({"healthz", "livez", "readyz", "version"})
ALLOWED: Final = Decision(True)
CACHED_BYTES: Final = 32 * 1024 * 1024  #: bytes of cached grants; each saves a microsecond …
LARGEST: Final = 64 * 1024  #: … and of one grant: clients choose the attributes
FOLLOWING: Final = 1_000  #: work of adding a role or binding to an index


class LoadingPolicy(NamedTuple):
    policy: RbacPolicy  #: not complete yet
    steps: Paced[RbacPolicy]


class Authorizer:
    """`shared`: a cluster whose ClusterRoles and ClusterRoleBindings apply in every cluster, except those in `kept`."""

    def __init__(self, store: Store, *, shared: str = "", kept: Collection[str] = ()) -> None:
        """`kept`: clusters whose roles stay in memory, besides those that have any."""
        self._store = store
        self._shared = shared
        self._kept = frozenset((shared, *kept)) - {""}
        self._policies: dict[str, RbacPolicy] = {}
        self._loading: dict[str, LoadingPolicy] = {}
        self._numbers = count(1)
        self._grants: dict[tuple[object, ...], Grant] = {}
        self._cached_bytes = 0  #: approximately
        for home in STORAGE_PREFIXES:
            store.subscribe(home, self._on_changes)

    # --- decisions --------------------------------------------------------------------------------

    def decide(self, cluster: str, user: User, attributes: Attributes) -> Decision:
        """Decide with the current roles.  The reason is empty if RBAC has no opinion."""
        if user.cluster and user.cluster != cluster:
            return DENIED
        if ADMINISTRATORS in user.groups:
            return ALLOWED
        verb, group, resource, subresource, namespace, name, path = attributes
        if path is not None:
            is_public = path[1:].partition("/")[0] in PUBLIC
            return ALLOWED if is_public else self._policy(cluster).decide_path(user, verb, path)
        policy = self._policies.get(cluster) or self._load(cluster)
        key = (policy.generation, user.name, user.groups, verb, group, resource, subresource, namespace)
        grant = self._grants.get(key)
        if grant is None:
            grant = policy.grant(user, verb, group, resource, subresource, namespace)
            self._cache(key, grant, size_of(user, attributes, grant))
        return grant.of(name)

    def _cache(self, key: tuple[object, ...], grant: Grant, size: int) -> None:
        if size > LARGEST:
            return
        self._cached_bytes += size
        if self._cached_bytes > CACHED_BYTES:
            self._grants.clear()
            self._cached_bytes = size
        self._grants[key] = grant

    def check(self, cluster: str, user: User, attributes: Attributes) -> None:
        """Raises 403."""
        decision = self.decide(cluster, user, attributes)
        if not decision.allowed:
            raise access_denied(user, attributes, decision.reason)

    # --- rules ------------------------------------------------------------------------------------

    def rules_of(self, cluster: str, user: User, namespace: str) -> tuple[list[PolicyRule], list[str]]:
        """The rules of a user in a namespace ("": in the whole cluster), and errors about missing roles."""
        if user.cluster and user.cluster != cluster:
            return [], []
        return self._policy(cluster).rules_of(user, namespace)

    def role(self, cluster: str, kind: str, namespace: str, name: str) -> Role | None:
        """The role that a binding in a namespace of the cluster would refer to."""
        return self._policy(cluster).role(kind, namespace, name)

    def depends_on(self, cluster: str, attributes: Attributes) -> Iterator[str]:
        """The keys and prefixes of the objects on which decisions depend; without a namespace, in all namespaces."""
        for home in (CLUSTER_ROLES, CLUSTER_BINDINGS):
            yield f"{home}{cluster}/"
            if self._shared:
                yield f"{home}{self._shared}/"
        for home in (ROLES, BINDINGS):
            yield f"{home}{cluster}/{attributes.namespace}/" if attributes.namespace else f"{home}{cluster}/"

    # --- the policies -----------------------------------------------------------------------------

    def forget(self, cluster: str) -> None:
        """Drop the index of a cluster.  It is loaded again when needed."""
        if cluster not in self._kept:
            self._policies.pop(cluster, None)
            self._loading.pop(cluster, None)

    def _policy(self, cluster: str) -> RbacPolicy:
        return self._policies.get(cluster) or self._load(cluster)

    def _load(self, cluster: str) -> RbacPolicy:
        """Raises TurnOver if the current task has an allowance that is too small.  A cluster without roles and bindings
        is not cached, because clients can request any cluster name."""
        loading = self._loading.get(cluster)
        if loading is None:
            shared = self._policy(self._shared) if self._shared and cluster not in self._kept else None
            policy = RbacPolicy(shared)
            policy.generation = next(self._numbers)
            homes = STORAGE_PREFIXES if cluster and "/" not in cluster else ()
            keys = [entry.key for home in homes for entry in self._store.list(f"{home}{cluster}/").entries]
            if not keys:
                if cluster in self._kept:
                    self._policies[cluster] = policy
                return policy
            loading = self._loading[cluster] = LoadingPolicy(policy, Paced(lambda: self._loading_steps(policy, keys)))
        self._policies[cluster] = loading.steps.value
        del self._loading[cluster]
        return loading.policy

    def _loading_steps(self, policy: RbacPolicy, keys: Iterable[str]) -> Steps[RbacPolicy]:
        """Between two steps, objects may change: `policy` follows these changes too."""
        for key in keys:
            entry = self._store.get(key)
            if entry is not None:
                yield min(FOLLOWING + READING * len(entry.value), INDIVISIBLE)
                policy.follow(key, self._store.get(key))
        return policy

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            cluster = change.key.split("/", 4)[3]
            if loading := self._loading.get(cluster):
                loading.policy.follow(change.key, change.entry)
            policy = self._policies.get(cluster)
            if policy is None:
                continue
            policy.follow(change.key, change.entry)
            for stale in self._policies.values() if cluster == self._shared else (policy,):
                stale.generation = next(self._numbers)


def size_of(user: User, attributes: Attributes, grant: Grant) -> int:
    """The approximate size of a cached grant in bytes."""
    text = sum(len(text) for text in attributes if text) + len(user.name) + len(grant.denied.reason)
    return 512 + text + sum(map(len, user.groups)) + 64 * (len(user.groups) + len(grant.named))


def access_denied(user: User, attributes: Attributes, reason: str = "") -> ApiError:
    """403 with Kubernetes' message."""
    verb, group, resource, subresource, namespace, name, path = attributes
    why = f": {reason}" if reason else ""
    if path is not None:
        message = f'forbidden: User "{user.name}" cannot {verb} path "{path}"{why}'
        return ApiError(403, "Forbidden", message, {})
    what = f"{resource}/{subresource}" if subresource else resource
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    text = f'User "{user.name}" cannot {verb} resource "{what}" in API group "{group}" {where}{why}'
    return forbidden(group, resource, name, text)
