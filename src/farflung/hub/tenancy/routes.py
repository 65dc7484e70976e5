"""Which workspace a path is about.

    /clusters/<name or path>/…                                     one workspace
    /clusters/*/…                                                  all of them, to list and to watch
    /services/apiexport/<cluster>/<export>/clusters/<name or *>/…  what an export provides, in those that bound it
    /services/initializingworkspaces/<cluster>:<type>/clusters/…   those that wait for an initializer
    /…                                                             without a cluster, whatever the user belongs to

A percent sign hides nothing: what is between slashes is decoded once, and must then look like a name.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from farflung.hub.auth.authorizer import access_denied
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.target import Route
from farflung.hub.request.user import User
from farflung.hub.tenancy import initializer_views as initializing
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

CLUSTERS: Final = "/clusters/"
SERVICES: Final = "/services"
VIEWS: Final = "/services/apiexport/"


class WorkspaceRoutes:
    def __init__(self, clusters: LogicalClusters, authorizer: WorkspaceAuthorizer) -> None:
        self._clusters = clusters
        self._authorizer = authorizer
        self._initializers = initializing.Initializers(clusters, authorizer)

    def place(self, path: str, user: User) -> Route:
        if path.startswith(CLUSTERS):
            cluster, slash, rest = path[len(CLUSTERS) :].partition("/")
            return Route(self._named(unquote(cluster)), slash + rest or "/")
        if path.startswith(VIEWS):
            return self._viewed(path, user)
        if path.startswith(initializing.ROOT_PATH):
            place = initializing.initializer_place(path)
            if place is None:
                raise unresolved(path, user)
            return place
        if path == SERVICES or path.startswith(f"{SERVICES}/"):
            raise unresolved(path, user)
        return Route(default_cluster(user), path if path.startswith("/") else f"/{path}")

    def _named(self, text: str) -> str:
        if text == WILDCARD or text.startswith(SYSTEM):
            return text if "/" not in text else NO_CLUSTER
        if text and not is_path(text):
            raise invalid_cluster(text)
        return self._clusters.resolve(text) or NO_CLUSTER

    def _viewed(self, path: str, user: User) -> Route:
        """A view is of an export in the cluster of a name; so are the clusters that are seen through it."""
        match path[len(VIEWS) :].split("/", 4):
            case [home, export, "clusters", cluster, *rest]:
                pass
            case _:
                raise unresolved(path, user)
        home, export, cluster = unquote(home), unquote(export), unquote(cluster)
        if "/" in export or not is_name(home) or not (cluster == WILDCARD or is_name(cluster)):
            raise unresolved(path, user)
        return Route(cluster, f"/{rest[0]}" if rest else "/", f"{home}/{export}")

    def enter(self, place: Route, user: User) -> tuple[Route, User]:
        return self._initializers.enter(place, user) if initializing.is_initializer_view(place.view) else (place, user)

    def allows(self, cluster: str, view: str, user: User, asked: Attributes) -> bool:
        """Whether `check` lets somebody do something."""
        try:
            self.check(cluster, view, user, asked)
        except ApiError:
            return False
        return True

    def check(self, cluster: str, view: str, user: User, asked: Attributes) -> None:
        if ":" in asked.resource and not is_privileged(user):
            raise access_denied(
                user, asked, ACCESS_DENIED.reason
            )  # roles and policies know resources without identities
        if initializing.is_initializer_view(view):
            self._initializers.check(view, user, asked)
        elif view:
            home, _, export = view.partition("/")
            self._authorizer.check_view(home, export, user, asked)
        else:
            self._authorizer.check(cluster, user, asked)
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
