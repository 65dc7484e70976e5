"""Where a request goes: which cluster a path is about, and through which view of it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from farflung.hub.auth.authorizer import Authorizer
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.target import DEFAULT_CLUSTER, split_cluster
from farflung.hub.request.user import User
from farflung.machinery.errors import ApiError


class Place(NamedTuple):
    cluster: str  #: its name; `*` is every cluster
    path: str  #: an ordinary path of Kubernetes
    view: str = ""  #: what is served instead of all that the cluster has; empty for all


class Routes(Protocol):
    def place(self, path: str, user: User) -> Place:
        """Raises 403 for a cluster that is not there, as for one that the user may not enter."""

    def enter(self, place: Place, user: User) -> tuple[Place, User]:
        """Where a request for a view goes in the end, and as whose.  Raises 403."""

    def check(self, cluster: str, view: str, user: User, asked: Attributes) -> None:
        """Raises 403 for what the user may not do there."""


class OneCluster:
    """A server with nothing but its default cluster."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def check(self, cluster: str, view: str, user: User, asked: Attributes) -> None:
        self._authorizer.check(cluster, user, asked)

    def enter(self, place: Place, user: User) -> tuple[Place, User]:
        return place, user

    def place(self, path: str, user: User) -> Place:
        cluster, rest = split_cluster(path)
        if cluster != DEFAULT_CLUSTER:
            raise no_access(user, cluster)
        return Place(cluster, rest)


def no_access(user: User, cluster: str) -> ApiError:
    message = f'forbidden: User "{user.name}" cannot access workspace "{cluster}": access denied'
    return ApiError(403, "Forbidden", message, {})
