"""Who may do what: RBAC, cluster by cluster.

    Authorizer.decide(cluster, user, attributes) ─► Decision(allowed, reason)

Administrators may do everything, and anybody may ask for health and version.  Everything else is for the roles and
bindings of the cluster to say.  They are read when a cluster is first asked about; from then on every commit counts at
once, before its writer is answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Final

from farflung.hub.auth.rbac.policy import DENIED, HOMES, Grant, Policy
from farflung.hub.auth.rbac.rules import Role, Rule
from farflung.hub.request.attributes import Attributes, Decision
from farflung.hub.request.user import ADMINISTRATORS, User
from farflung.machinery.errors import ApiError, forbidden
from farflung.store.base import Change, Store

PUBLIC: Final = frozenset({"healthz", "livez", "readyz", "version"})
YES: Final = Decision(True)
REMEMBERED: Final = 32 * 1024 * 1024  #: bytes of grants kept between requests, which cost a microsecond each …
LARGEST: Final = 64 * 1024  #: … and of one of them: clients choose what they ask about


class Authorizer:
    """`shared`: a cluster whose ClusterRoles and ClusterRoleBindings count in every other one too."""

    def __init__(self, store: Store, *, shared: str = "") -> None:
        self._store = store
        self._shared = shared
        self._policies: dict[str, Policy] = {}
        self._numbers = count(1)
        self._grants: dict[tuple[object, ...], Grant] = {}
        self._remembered = 0  #: bytes, roughly
        for home in HOMES:
            store.subscribe(home, self._hear)

    # --- decisions --------------------------------------------------------------------------------

    def decide(self, cluster: str, user: User, attributes: Attributes) -> Decision:
        """A decision about the present.  Without RBAC's opinion the reason is empty."""
        if user.cluster and user.cluster != cluster:
            return DENIED
        if ADMINISTRATORS in user.groups:
            return YES
        verb, group, resource, subresource, namespace, name, path = attributes
        if path is not None:
            is_public = path[1:].partition("/")[0] in PUBLIC
            return YES if is_public else self._policy(cluster).decide_path(user, verb, path)
        policy = self._policies.get(cluster) or self._load(cluster)
        key = (policy.generation, user.name, user.groups, verb, group, resource, subresource, namespace)
        grant = self._grants.get(key)
        if grant is None:
            grant = policy.grant(user, verb, group, resource, subresource, namespace)
            self._remember(key, grant, size_of(user, attributes, grant))
        return grant.of(name)

    def _remember(self, key: tuple[object, ...], grant: Grant, size: int) -> None:
        if size > LARGEST:
            return
        self._remembered += size
        if self._remembered > REMEMBERED:
            self._grants.clear()
            self._remembered = size
        self._grants[key] = grant

    def check(self, cluster: str, user: User, attributes: Attributes) -> None:
        """Raises 403."""
        decision = self.decide(cluster, user, attributes)
        if not decision.allowed:
            raise refusal(user, attributes, decision.reason)

    # --- rules ------------------------------------------------------------------------------------

    def rules_of(self, cluster: str, user: User, namespace: str) -> tuple[list[Rule], list[str]]:
        """What RBAC lets somebody do in a namespace ("": in the whole cluster), and what went wrong meanwhile."""
        if user.cluster and user.cluster != cluster:
            return [], []
        return self._policy(cluster).rules_of(user, namespace)

    def role(self, cluster: str, kind: str, namespace: str, name: str) -> Role | None:
        """What a binding in a namespace of the cluster would refer to."""
        return self._policy(cluster).role(kind, namespace, name)

    # --- the policies -----------------------------------------------------------------------------

    def forget(self, cluster: str) -> None:
        """A cluster is gone, or will not be asked about for long: it can be read again."""
        if cluster != self._shared:
            self._policies.pop(cluster, None)

    def _policy(self, cluster: str) -> Policy:
        return self._policies.get(cluster) or self._load(cluster)

    def _load(self, cluster: str) -> Policy:
        """Of a cluster without roles and bindings nothing is kept: anybody can make up names of clusters."""
        shared = self._policy(self._shared) if self._shared and cluster != self._shared else None
        policy = Policy(shared)
        policy.generation = next(self._numbers)
        homes = HOMES if cluster and "/" not in cluster else ()
        entries = [entry for home in homes for entry in self._store.list(f"{home}{cluster}/").entries]
        for entry in entries:
            policy.follow(entry.key, entry)
        if entries or cluster == self._shared:
            self._policies[cluster] = policy
        return policy

    def _hear(self, changes: Sequence[Change]) -> None:
        for change in changes:
            cluster = change.key.split("/", 4)[3]
            policy = self._policies.get(cluster)
            if policy is None:
                continue
            policy.follow(change.key, change.entry)
            for stale in self._policies.values() if cluster == self._shared else (policy,):
                stale.generation = next(self._numbers)


def size_of(user: User, attributes: Attributes, grant: Grant) -> int:
    """Roughly the bytes that it takes to remember a grant."""
    said = sum(len(text) for text in attributes if text) + len(user.name) + len(grant.denied.reason)
    return 512 + said + sum(map(len, user.groups)) + 64 * (len(user.groups) + len(grant.named))


def refusal(user: User, attributes: Attributes, reason: str = "") -> ApiError:
    """403, as Kubernetes says it."""
    verb, group, resource, subresource, namespace, name, path = attributes
    why = f": {reason}" if reason else ""
    if path is not None:
        message = f'forbidden: User "{user.name}" cannot {verb} path "{path}"{why}'
        return ApiError(403, "Forbidden", message, {})
    what = f"{resource}/{subresource}" if subresource else resource
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    said = f'User "{user.name}" cannot {verb} resource "{what}" in API group "{group}" {where}{why}'
    return forbidden(group, resource, name, said)
