"""The flow of a request: its priority level, tenant, user and workspace.

Levels are those of API Priority and Fairness in Kubernetes, as far as a hub has such clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from farflung.apis.names import SERVICE_ACCOUNT
from farflung.http.messages import EXEMPT, Flow, Request
from farflung.hub.auth.authenticator import Authenticator
from farflung.hub.request.user import ANONYMOUS, CONTROLLER, User, is_administrator
from farflung.machinery.errors import ApiError

PROBES: Final = "probes"  #: health checks
LEADER_ELECTION: Final = "leader-election"  #: Leases
HEARTBEATS: Final = "node-high"  #: reports of syncers
SYSTEM: Final = "system"  #: components that an administrator gave a name with the prefix system:
WORKLOADS: Final = "workload-low"  #: other authenticated users
STRANGERS: Final = "catch-all"
#: Parts of the event loop's time, if all levels have requests waiting: Kubernetes' nominal shares.
SHARES: Final[Mapping[str, float]] = {
    PROBES: 5,
    LEADER_ELECTION: 10,
    HEARTBEATS: 40,
    SYSTEM: 40,
    WORKLOADS: 100,
    STRANGERS: 5,
}
#: … of the time of worker processes, and of the time to write large responses.
JOB_SHARES: Final[Mapping[str, float]] = {**SHARES, EXEMPT.level: 1000}
HEALTH: Final = frozenset({"/healthz", "/livez", "/readyz"})
CLUSTERS: Final = "/clusters/"
REMEMBERED: Final = 4096


class Flows:
    def __init__(self, authenticator: Authenticator, path_of: Callable[[str], str]) -> None:
        """`path_of`: the path of a logical cluster."""
        self._authenticator = authenticator
        self._path_of = path_of
        self._tenants: dict[str, str] = {}  #: of logical clusters

    def __call__(self, request: Request) -> Flow | None:
        """None for administrators and the hub's controllers, which never wait."""
        try:
            user = self._authenticator.recognized_user(request)
        except ApiError:
            user = ANONYMOUS
        path = request.path
        if path in HEALTH:
            return Flow(PROBES, host(request.peer), "")
        if user is ANONYMOUS:
            return Flow(STRANGERS, host(request.peer), "")
        if (is_administrator(user) or user.name.startswith(CONTROLLER)) and not user.cluster:
            return None
        workspace = path[len(CLUSTERS) :].partition("/")[0] if path.startswith(CLUSTERS) else ""
        return Flow(level_of(user, path), self._tenant_of(user), user.name, workspace)

    def _tenant_of(self, user: User) -> str:
        """Users of one logical cluster belong to the organization above it, because the organization may create any
        number of them."""
        if not user.cluster:
            return user.name
        known = self._tenants.get(user.cluster)
        if known is None:
            if len(self._tenants) >= REMEMBERED:
                self._tenants.clear()
            known = self._tenants[user.cluster] = ":".join(self._path_of(user.cluster).split(":")[:2])
        return known


def level_of(user: User, path: str) -> str:
    if "/coordination.k8s.io/" in path:
        return LEADER_ELECTION
    if "/syncerconfigs" in path:
        return HEARTBEATS
    if user.name.startswith("system:") and not user.name.startswith(SERVICE_ACCOUNT) and not user.cluster:
        return SYSTEM
    return WORKLOADS


def host(peer: str) -> str:
    """The address without its port."""
    return peer.rpartition(":")[0]
