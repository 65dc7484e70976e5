"""Routes: the logical cluster and the view of a path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from farflung.hub.request.attributes import Attributes, Authorization
from farflung.hub.request.target import DEFAULT_CLUSTER, RequestRoute, split_cluster
from farflung.hub.request.user import User, is_administrator
from farflung.machinery.errors import ApiError


class Routes(Protocol):
    def route(self, path: str, user: User) -> RequestRoute:
        """Raises 403 for a missing cluster, as for one that the user may not access."""

    def enter(self, route: RequestRoute, user: User) -> tuple[RequestRoute, User]:
        """The route and the user of a request through a view.  Raises 403."""

    def check(self, cluster: str, view: str, user: User, attributes: Attributes) -> None:
        """Raises 403 if the user may not do this."""

    def depends_on(self, route: RequestRoute, user: User, attributes: Attributes) -> Iterable[str]:
        """The keys and prefixes of the objects on which the permission for a route depends."""


class OneCluster:
    """A hub without workspaces."""

    def __init__(self, authorizer: Authorization) -> None:
        self._authorizer = authorizer

    def check(self, cluster: str, view: str, user: User, attributes: Attributes) -> None:
        self._authorizer.check(cluster, user, attributes)

    def enter(self, route: RequestRoute, user: User) -> tuple[RequestRoute, User]:
        return route, user

    def depends_on(self, route: RequestRoute, user: User, attributes: Attributes) -> Iterable[str]:
        return () if is_administrator(user) else self._authorizer.depends_on(route.cluster, attributes)

    def route(self, path: str, user: User) -> RequestRoute:
        cluster, rest = split_cluster(path)
        if cluster != DEFAULT_CLUSTER:
            raise no_access(user, cluster)
        return RequestRoute(cluster, rest)


def no_access(user: User, cluster: str) -> ApiError:
    message = f'forbidden: User "{user.name}" cannot access workspace "{cluster}": access denied'
    return ApiError(403, "Forbidden", message, {})
