"""What somebody wants to do, as access control sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from farflung.hub.request.target import Target, is_true, parse_query
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
    """A verb on a resource; or on a path that is none, and then only `verb` and `path` are set."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str | None = None


def of_path(method: str, path: str) -> Attributes:
    """Of a document that is no resource."""
    return Attributes("get" if method == "HEAD" else method.lower(), path=path)


def of_target(method: str, target: Target, query: str) -> Attributes:
    """Of a request for a resource, be it served or not.  Nothing in the query is refused here: whoever may not do
    something is not told first that they asked for it in the wrong way."""
    verb = "watch" if target.watch else METHODS.get(method) or method.lower()
    name = target.name
    if not name:
        if verb == "get":
            verb, name = asked_of_collection(query) if query else ("list", "")
        elif verb == "delete":
            verb = "deletecollection"
    # a namespace is in itself, so that whoever rules in it may look at it
    namespace = target.name if target.plural == "namespaces" and not target.namespace else target.namespace
    return Attributes(verb, target.group, target.plural, target.subresource, namespace, name)


def asked_of_collection(query: str) -> tuple[str, str]:
    """list or watch, and the one name that the field selector leaves."""
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
