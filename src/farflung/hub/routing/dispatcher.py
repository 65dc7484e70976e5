"""From a request to its handler: the logical cluster and the view of a path, and the verb of the registry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from farflung.http.messages import Answer, Response
from farflung.hub.catalog.objects import EVERY_CLUSTER
from farflung.hub.registry import create, delete, large_requests, patch, read, scale, update
from farflung.hub.registry.call import Call, Handler
from farflung.hub.registry.pipeline import SUBRESOURCE_FIELDS
from farflung.hub.registry.watch import Watches
from farflung.hub.request.attributes import Attributes, Authorization
from farflung.hub.request.target import DEFAULT_CLUSTER, RequestRoute, route_of
from farflung.hub.request.user import User, is_administrator
from farflung.machinery.errors import ApiError, Obj, method_not_allowed, no_such_path, no_such_resource, too_large


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
        route = route_of(path)
        if route.cluster != DEFAULT_CLUSTER:
            raise no_access(user, route.cluster)
        return route


def no_access(user: User, cluster: str) -> ApiError:
    message = f'forbidden: User "{user.name}" cannot access workspace "{cluster}": access denied'
    return ApiError(403, "Forbidden", message, {})


#: (method, has the path a name) → the verb of discovery and access control
VERBS: Final[Mapping[tuple[str, bool], str]] = {
    ("GET", False): "list",
    ("POST", False): "create",
    ("DELETE", False): "deletecollection",
    ("GET", True): "get",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
}
#: verb → its handler for every stored resource
RESOURCES: Final[Mapping[str, Handler]] = {
    "get": read.get,
    "list": read.list_,
    "create": create.create,
    "update": update.update,
    "patch": patch.patch,
    "delete": delete.delete,
    "deletecollection": delete.delete_collection,
}
#: method → verb of a subresource
SUBRESOURCE_VERBS: Final[Mapping[str, str]] = {
    "GET": "get",
    "PUT": "update",
    "PATCH": "patch",
    "POST": "create",
    "DELETE": "delete",
}
#: (subresource, verb) → its handler; they read and write the object itself
SUBRESOURCES: Final[Mapping[tuple[str, str], Handler]] = {
    **{(name, "get"): read.get for name in ("status", *SUBRESOURCE_FIELDS)},
    **{(name, "update"): update.update for name in ("status", *SUBRESOURCE_FIELDS)},
    **{(name, "patch"): patch.patch for name in ("status", *SUBRESOURCE_FIELDS)},
    ("scale", "get"): scale.get_scale,
    ("scale", "update"): scale.update_scale,
    ("scale", "patch"): scale.patch_scale,
}


WRITES: Final = frozenset({"create", "update", "patch", "delete"})  #: verbs that write one object
LARGEST_QUESTION: Final = 256 * 1024  #: bytes of a body that is answered and not stored


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Handlers of requests that do not store the object that they contain."""

    kinds: Mapping[str, Handler]  #: create of a kind that is never stored: reviews, Binding
    subresources: Mapping[tuple[str, str], Handler]  #: by subresource and verb
    has_nodes: bool = False  #: whether pods run here


class Dispatcher:
    def __init__(
        self,
        watches: Watches,
        endpoints: Endpoints,
        home_workspace: Callable[[Call], Awaitable[Obj] | None] | None = None,
    ) -> None:
        """`home_workspace`: gives the home Workspace of the user, if the request names it."""
        self._watches = watches
        self._endpoints = endpoints
        self._home_workspace = home_workspace

    def dispatch(self, call: Call, verb: str | None) -> Answer | Awaitable[Answer]:
        """`verb`: None for a method that no resource has."""
        target, resource = call.target, call.resource
        if target.view:
            check_visible(call)
        if bool(target.namespace) != resource.namespaced and (target.namespace or target.name):
            if resource.custom:
                return page_not_found()
            raise no_such_path()
        if target.watch:
            return self._watch(call)
        if target.subresource:
            return self._subresource(call)
        if verb is None or verb not in resource.verbs:
            raise unsupported(call, verb) if verb and resource.custom else method_not_allowed()
        if resource.namespaced and not target.namespace and verb in ("create", "deletecollection"):
            if resource.custom:
                return page_not_found()
            raise method_not_allowed()
        if verb == "watch":
            return self._watches.open(call)
        if not resource.storage_version_hash and verb == "create":
            handler = self._endpoints.kinds.get(resource.kind)
            if handler is None:
                raise no_such_path()
            return answered(call, handler)
        if verb == "get" and self._home_workspace is not None:
            home = self._home_workspace(call)
            if home is not None:
                return read.get_made(call, home)
        return computed(call, verb, RESOURCES[verb])

    def _watch(self, call: Call) -> Awaitable[Answer]:
        """The deprecated path /watch/ supports no other verb."""
        if call.target.subresource:
            raise no_such_path()
        if call.request.method != "GET" or "watch" not in call.resource.verbs:
            raise method_not_allowed()
        return self._watches.open(call)

    def _subresource(self, call: Call) -> Answer | Awaitable[Answer]:
        name = call.target.subresource
        described = call.resource.subresource(name)
        if described is None:
            raise call.not_found() if call.resource.custom else no_such_path()
        verb = SUBRESOURCE_VERBS.get(call.request.method, "")
        if verb not in described.verbs:
            raise unsupported(call, verb) if call.resource.custom else method_not_allowed()
        handler = SUBRESOURCES.get((name, verb)) or self._endpoints.subresources.get((name, verb))
        if handler is None:  # discovery lists it, because clients expect it
            what = f"{call.resource.plural}/{name}"
            has_nodes = self._endpoints.has_nodes
            why = "the nodes here do not offer it" if has_nodes else "it needs nodes, and there are none"
            raise ApiError(501, "NotImplemented", f"{what} is not served: {why}", {})
        return computed(call, verb, handler) if (name, verb) in SUBRESOURCES else answered(call, handler)


def computed(call: Call, verb: str, handler: Handler) -> Answer | Awaitable[Answer]:
    """The answer of a handler.  What takes longer than a turn of the event loop is computed in a worker process."""
    if verb in WRITES:
        return large_requests.compute(call, handler)
    return handler(call)


def answered(call: Call, handler: Handler) -> Answer | Awaitable[Answer]:
    """The answer to a question.  Raises 413 if the event loop cannot read it in a turn."""
    if len(call.request.body) > LARGEST_QUESTION:
        raise too_large(LARGEST_QUESTION)
    return handler(call)


def check_visible(call: Call) -> None:
    """Raises 404 for an object outside of the view of a request.  Lists and watches omit such objects themselves."""
    target, views = call.target, call.tools.views
    if views is None or target.cluster == EVERY_CLUSTER:
        return
    if not views.reaches(target.view, call.resource, target.cluster):
        raise no_such_resource()
    if target.name and not views.sees(target.view, call.resource)(call.key):
        raise call.not_found()


def unsupported(call: Call, verb: str) -> ApiError:
    """405 for a verb that a custom resource or its subresource does not have."""
    resource = call.resource
    message = f'{verb} is not supported on resources of kind "{resource.qualified}"'
    return ApiError(405, "MethodNotAllowed", message, {"group": resource.group, "kind": resource.plural})


def page_not_found() -> Response:
    return Response(404, b"404 page not found\n", content_type="text/plain; charset=utf-8")
