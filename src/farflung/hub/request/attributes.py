"""The attributes of a request that an authorizer decides about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from farflung.hub.request.target import Target, is_true, parse_query, target_of
from farflung.hub.request.user import User
from farflung.lib.memory import remember
from farflung.machinery import names
from farflung.machinery.errors import ApiError
from farflung.machinery.selectors import parse_fields

METHODS: Final[Mapping[str, str]] = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}


class Attributes(NamedTuple):
    """A verb on a resource; for other paths only `verb` and `path` are set."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str | None = None


class Decision(NamedTuple):
    allowed: bool
    reason: str = ""


class Authorization(Protocol):
    """An authorizer, as far as the registry and routing use it."""

    def decide(self, cluster: str, user: User, attributes: Attributes) -> Decision: ...

    def check(self, cluster: str, user: User, attributes: Attributes) -> None:
        """Raises 403."""

    def depends_on(self, cluster: str, attributes: Attributes) -> Iterator[str]:
        """The keys and prefixes of the objects on which decisions depend."""


@remember(8192)
def requested(method: str, cluster: str, path: str, view: str, query: str) -> tuple[Target | None, Attributes]:
    """The target of a route, if it is a resource, and what an authorizer decides about."""
    target = target_of(cluster, path, view)
    return target, of_path(method, path) if target is None else of_target(method, target, query)


def of_path(method: str, path: str) -> Attributes:
    """Attributes of a request for a document, such as /version."""
    return Attributes("get" if method == "HEAD" else method.lower(), path=path)


def of_target(method: str, target: Target, query: str) -> Attributes:
    """Attributes of a request for a resource, served or not.  Invalid parameters raise nothing here: a client without
    permission gets 403, not an error about its query."""
    verb = "watch" if target.watch else METHODS.get(method) or method.lower()
    name = target.name
    if not name:
        if verb == "get":
            verb, name = collection_access(query) if query else ("list", "")
        elif verb == "delete":
            verb = "deletecollection"
    # a namespace is in itself, so that a Role in it can grant access to it
    namespace = target.name if target.plural == "namespaces" and not target.namespace else target.namespace
    return Attributes(verb, target.group, target.plural, target.subresource, namespace, name)


def collection_access(query: str) -> tuple[str, str]:
    """list or watch, and the only name that the field selector selects."""
    values = parse_query(query)
    verb = "watch" if is_true(values.get("watch")) else "list"
    selector = values.get("fieldSelector")
    return (verb, selected_name(selector)) if selector else (verb, "")


def selected_name(selector: str) -> str:
    try:
        name = parse_fields(selector).exactly("metadata.name")
    except ApiError:
        return ""
    return "" if not name or names.path_segment(name) else name
