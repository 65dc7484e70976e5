"""Routes of a hub with workspaces.

    /clusters/<name or path>/…                                     one workspace
    /clusters/*/…                                                  all workspaces, to list and to watch
    /services/apiexport/<cluster>/<export>/clusters/<name or *>/…  the view of an export
    /services/initializingworkspaces/<cluster>:<type>/clusters/…   the view of an initializer
    /…                                                             without a cluster: the default cluster of the user

Each path segment is percent-decoded once, and must then be a valid name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import unquote

from farflung.hub.auth.authorizer import access_denied
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.target import RequestRoute
from farflung.hub.request.user import User
from farflung.hub.tenancy import initializer_views as initializing
from farflung.hub.tenancy.api_exports import ExportKey
from farflung.hub.tenancy.paths import LogicalClusters, invalid_cluster, is_path
from farflung.hub.tenancy.workspace_authorizer import (
    ACCESS_DENIED,
    NO_CLUSTER,
    SYSTEM,
    WILDCARD,
    WorkspaceAuthorizer,
    check_wildcard_verb,
    default_cluster,
    is_privileged,
)
from farflung.machinery.errors import ApiError, no_such_resource
from farflung.store.base import Change

CLUSTERS: Final = "/clusters/"
SERVICES: Final = "/services"
VIEWS: Final = "/services/apiexport/"
RESOLVED: Final = 1024  #: names and paths whose clusters are remembered


class WorkspaceRoutes:
    def __init__(self, clusters: LogicalClusters, authorizer: WorkspaceAuthorizer) -> None:
        self._clusters = clusters
        self._resolved: dict[str, str] = {}  #: name or path → cluster, until Workspaces or LogicalClusters change
        clusters.subscribe(self._drop_resolved)
        self._authorizer = authorizer
        self._initializers = initializing.Initializers(clusters, authorizer)

    def route(self, path: str, user: User) -> RequestRoute:
        if path.startswith(CLUSTERS):
            cluster, slash, rest = path[len(CLUSTERS) :].partition("/")
            return RequestRoute(self._named(unquote(cluster)), slash + rest or "/")
        if path.startswith(VIEWS):
            return self._viewed(path, user)
        if path.startswith(initializing.ROOT_PATH):
            route = initializing.initializer_route(path)
            if route is None:
                raise unresolved(path, user)
            return route
        if path == SERVICES or path.startswith(f"{SERVICES}/"):
            raise unresolved(path, user)
        return RequestRoute(default_cluster(user), path if path.startswith("/") else f"/{path}")

    def _named(self, text: str) -> str:
        known = self._resolved.get(text)
        if known is not None:
            return known
        if text == WILDCARD or text.startswith(SYSTEM):
            return text if "/" not in text else NO_CLUSTER
        if text and not is_path(text):
            raise invalid_cluster(text)
        cluster = self._clusters.resolve(text)
        if cluster is None:
            return NO_CLUSTER
        if len(self._resolved) >= RESOLVED:
            self._resolved.clear()
        self._resolved[text] = cluster
        return cluster

    def _drop_resolved(self, changes: Sequence[Change]) -> None:
        self._resolved.clear()

    def _viewed(self, path: str, user: User) -> RequestRoute:
        """The export's cluster and the clusters in the view are given by name."""
        match path[len(VIEWS) :].split("/", 4):
            case [home, export, "clusters", cluster, *rest]:
                pass
            case _:
                raise unresolved(path, user)
        home, export, cluster = unquote(home), unquote(export), unquote(cluster)
        if "/" in export or not is_name(home) or not (cluster == WILDCARD or is_name(cluster)):
            raise unresolved(path, user)
        return RequestRoute(cluster, f"/{rest[0]}" if rest else "/", f"{home}/{export}")

    def enter(self, route: RequestRoute, user: User) -> tuple[RequestRoute, User]:
        return self._initializers.enter(route, user) if initializing.is_initializer_view(route.view) else (route, user)

    def depends_on(self, route: RequestRoute, user: User, attributes: Attributes) -> Iterator[str]:
        if is_privileged(user):
            return
        cluster, _, view = route
        if self._authorizer.controllers.is_controller(user):
            yield from self._authorizer.controllers.depends_on()
        if initializing.is_initializer_view(view):
            yield from self._initializers.depends_on(view)
        elif view:
            home, _, export = view.partition("/")
            yield from self._authorizer.view_depends_on(ExportKey(home, export), attributes)
            return
        if cluster != WILDCARD:
            yield from self._authorizer.depends_on(cluster, attributes)

    def allows(self, cluster: str, view: str, user: User, asked: Attributes) -> bool:
        """Whether `check` passes."""
        try:
            self.check(cluster, view, user, asked)
        except ApiError:
            return False
        return True

    def check(self, cluster: str, view: str, user: User, asked: Attributes) -> None:
        if ":" in asked.resource and not (is_privileged(user) or self._authorizer.controllers.is_controller(user)):
            # roles and policies name resources without identities
            raise access_denied(user, asked, ACCESS_DENIED.reason)
        if not view:
            self._authorizer.check(cluster, user, asked)
        elif initializing.is_initializer_view(view):
            self._initializers.check(view, user, asked)
        else:
            home, _, export = view.partition("/")
            self._authorizer.check_view(ExportKey(home, export), cluster, user, asked)
        if cluster != WILDCARD:
            return
        if not view:
            check_wildcard_verb(asked)
        elif asked.path is None and asked.verb not in ("list", "watch"):
            raise no_such_resource()


def is_name(text: str) -> bool:
    return ":" not in text and is_path(text)


def unresolved(path: str, user: User) -> ApiError:
    why = "Path not resolved to a valid virtual workspace"
    return access_denied(user, Attributes("get", path=path), why)
