"""Views of initializers: the workspaces that wait for an initializer.

    /services/initializingworkspaces/<cluster>:<type>/clusters/*/…          list and watch their LogicalClusters
    /services/initializingworkspaces/<cluster>:<type>/clusters/<cluster>/…  remove the initializer from one of them, and
                                                                            access its content as its owner

Access requires the verb `initialize` on the type, in the workspace of the type.  Content is accessed with the
permissions of the owner at creation, while the workspace waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Final
from urllib.parse import unquote

import msgspec

from farflung.apis.kcp.names import CORE_GROUP, GLOBAL_GROUPS, OWNER_ANNOTATION, TENANCY_GROUP
from farflung.apis.resource import Resource
from farflung.hub.auth.authorizer import access_denied
from farflung.hub.catalog.objects import EVERY_CLUSTER
from farflung.hub.catalog.served import ClusterKinds, Kinds
from farflung.hub.registry.call import Call
from farflung.hub.request.attributes import Attributes, Authorization
from farflung.hub.request.target import RequestRoute, target_of
from farflung.hub.request.user import User
from farflung.hub.routing.dispatcher import no_access
from farflung.hub.tenancy import status as states
from farflung.hub.tenancy.bound_definitions import view_subresources
from farflung.hub.tenancy.export_views import READ_VERBS, ExportViews, Listener, Sees, Shows
from farflung.hub.tenancy.guards import logical_cluster_forbidden
from farflung.hub.tenancy.paths import SINGLETON, LogicalClusters, is_path, read_logical_cluster
from farflung.hub.tenancy.workspace_authorizer import ACCESS_DENIED, NO_CLUSTER, is_operator, is_privileged
from farflung.machinery import names
from farflung.machinery.errors import ApiError, Obj, invalid_value
from farflung.store.base import Entry, Revision, Store

ROOT_PATH: Final = "/services/initializingworkspaces/"
#: prefix of the names of these views; names of export views start with a cluster and a slash
VIEW: Final = "initializing:"
LOGICAL_CLUSTERS: Final = (CORE_GROUP, "logicalclusters")
CLUSTER_NAME: Final = "authentication.kubernetes.io/cluster-name"


def is_initializer_view(view: str) -> bool:
    return view.startswith(VIEW)


def initializer_of(view: str) -> str:
    return view.removeprefix(VIEW)


def initializer_route(path: str) -> RequestRoute | None:
    """The route of a path below ROOT_PATH; None if it is invalid."""
    match path[len(ROOT_PATH) :].split("/", 3):
        case [initializer, "clusters", cluster, *rest]:
            pass
        case _:
            return None
    initializer, cluster = unquote(initializer), unquote(cluster)
    home, _, name = initializer.rpartition(":")
    if not is_path(home) or names.dns_subdomain(name):
        return None
    if cluster != EVERY_CLUSTER and (":" in cluster or not is_path(cluster)):
        return None
    return RequestRoute(cluster, f"/{rest[0]}" if rest else "/", f"{VIEW}{initializer}")


def is_waiting_for(entry: Entry, initializer: str) -> bool:
    """Whether a LogicalCluster waits for an initializer."""
    if initializer.encode() not in entry.value:  # most do not
        return False
    found = read_logical_cluster(entry)
    return found.phase == states.INITIALIZING and initializer in found.initializers


# --- permissions ----------------------------------------------------------------------------------


class _Owner(msgspec.Struct, gc=False):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


_read_owner = msgspec.json.Decoder(_Owner).decode


def workspace_owner(text: str) -> User | None:
    """The recorded owner of a workspace, without groups that have permissions in all workspaces."""
    try:
        noted = _read_owner(text)
    except (msgspec.DecodeError, UnicodeError):
        return None
    if not noted.username:
        return None
    groups = tuple(group for group in noted.groups if group not in GLOBAL_GROUPS)
    cluster = next(iter(noted.extra.get(CLUSTER_NAME, ())), "")
    return User(noted.username, groups, noted.uid, (), cluster, borrowed=True)


class Initializers:
    """The permissions of initializers."""

    def __init__(self, clusters: LogicalClusters, authorizer: Authorization) -> None:
        self._clusters = clusters
        self._authorizer = authorizer

    def may_initialize(self, initializer: str, user: User) -> bool:
        home, _, name = initializer.rpartition(":")
        asked = Attributes("initialize", TENANCY_GROUP, "workspacetypes", name=name)
        return self._authorizer.decide(self._clusters.resolve(home) or NO_CLUSTER, user, asked).allowed

    def depends_on(self, view: str) -> Iterator[str]:
        """The keys and prefixes of the objects on which access to a view depends."""
        home = initializer_of(view).rpartition(":")[0]
        cluster = self._clusters.resolve(home) or NO_CLUSTER
        return self._authorizer.depends_on(cluster, Attributes("initialize", TENANCY_GROUP, "workspacetypes"))

    def check(self, view: str, user: User, asked: Attributes) -> None:
        """Raises 403."""
        if not self.may_initialize(initializer_of(view), user):
            raise access_denied(user, asked, ACCESS_DENIED.reason)

    def enter(self, route: RequestRoute, user: User) -> tuple[RequestRoute, User]:
        """The content of a workspace is accessed outside of the view, as its owner.  Raises 403."""
        target = target_of(*route)
        if route.cluster == EVERY_CLUSTER or (target and (target.group, target.plural) == LOGICAL_CLUSTERS):
            return route, user
        initializer = initializer_of(route.view)
        if not self.may_initialize(initializer, user):
            raise no_access(user, route.cluster)
        found = self._clusters.read(route.cluster)
        if found is None or found.phase != states.INITIALIZING or initializer not in found.initializers:
            raise no_initializer_access(initializer)
        owner = workspace_owner(found.annotations.get(OWNER_ANNOTATION, ""))
        if owner is None:
            raise no_initializer_access(initializer)
        return RequestRoute(route.cluster, route.path), owner


def check_change(call: Call, clusters: LogicalClusters, new: Obj, old: Obj) -> None:
    """Only an initializer may remove itself from a LogicalCluster, and the owner is immutable.  Raises 422 and 403."""
    before, after = _waiting(old), _waiting(new)
    if is_initializer_view(call.target.view):
        own = initializer_of(call.target.view)
        if own not in before or set(after) != set(before) - {own}:
            why = f'only removing the "{own}" initializer is supported'
            raise call.invalid(SINGLETON, [invalid_value("status.initializers", after, why)])
        return
    if is_privileged(call.user) or is_operator(call.user):
        return
    if _owner(new) != _owner(old):
        raise logical_cluster_forbidden(f"metadata.annotations[{OWNER_ANNOTATION}] is immutable")
    initializers = Initializers(clusters, call.tools.authorizer)
    for one in before:
        if one not in after and not initializers.may_initialize(one, call.user):
            raise logical_cluster_forbidden(f'no permission to remove the initializer "{one}"')


def _waiting(logical_cluster: Obj) -> list[str]:
    return (logical_cluster.get("status") or {}).get("initializers") or []


def _owner(logical_cluster: Obj) -> str:
    return str((logical_cluster["metadata"].get("annotations") or {}).get(OWNER_ANNOTATION, ""))


def no_initializer_access(initializer: str) -> ApiError:
    return ApiError(403, "Forbidden", f'initializer "{initializer}" cannot access this workspace', {})


# --- content --------------------------------------------------------------------------------------


class InitializerViews:
    def __init__(self, store: Store, kinds: Kinds) -> None:
        self._store = store
        self._kinds = kinds

    @cached_property
    def _served(self) -> ClusterKinds:
        """The same in all views: LogicalClusters, read-only, and their status."""
        seen = [
            replace(one, verbs=READ_VERBS, subresources=view_subresources(one))
            for one in self._kinds.builtin.catalog
            if (one.group, one.plural) == LOGICAL_CLUSTERS
        ]
        return ClusterKinds(seen, (), self._kinds.builtin)

    def served(self, view: str) -> ClusterKinds:
        return self._served

    def sees(self, view: str) -> Sees:
        initializer = initializer_of(view)

        def seen(key: str) -> bool:
            entry = self._store.get(key)
            return entry is not None and is_waiting_for(entry, initializer)

        return seen

    def shows(self, view: str) -> Shows:
        initializer = initializer_of(view)
        return lambda entry: is_waiting_for(entry, initializer)


class VirtualWorkspaces:
    """The views of exports and of initializers."""

    def __init__(self, exports: ExportViews, initializing: InitializerViews) -> None:
        self._exports = exports
        self._initializing = initializing

    def served(self, view: str) -> ClusterKinds:
        return self._initializing.served(view) if is_initializer_view(view) else self._exports.served(view)

    def reaches(self, view: str, resource: Resource, cluster: str) -> bool:
        return is_initializer_view(view) or self._exports.reaches(view, resource, cluster)

    def sees(self, view: str, resource: Resource) -> Sees:
        return self._initializing.sees(view) if is_initializer_view(view) else self._exports.sees(view, resource)

    def shows(self, view: str, resource: Resource) -> Shows:
        return self._initializing.shows(view) if is_initializer_view(view) else self._exports.shows(view, resource)

    def showed(self, view: str, resource: Resource) -> Shows:
        return self._initializing.shows(view) if is_initializer_view(view) else self._exports.showed(view, resource)

    def steady_since(self, view: str, resource: Resource) -> Revision:
        return 0 if is_initializer_view(view) else self._exports.steady_since(view, resource)

    def subscribe(self, listener: Listener) -> None:
        self._exports.subscribe(listener)
