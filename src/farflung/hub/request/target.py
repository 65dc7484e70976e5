"""URLs: parse a path into a target, and a query into named values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from farflung.lib.memory import remember

DEFAULT_CLUSTER = "root"

#: subresources of namespaces; after /namespaces/NAME they are not resources in the namespace
NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})

Query = Mapping[str, str]


class Target(NamedTuple):
    """The parts of a resource path.  A missing part is empty."""

    cluster: str
    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False  #: the deprecated /watch/ path
    view: str = ""  #: empty: everything that the cluster serves


class RequestRoute(NamedTuple):
    """The logical cluster of a request, the path in it, and the view through which it is served."""

    cluster: str  #: its name; `*` is every cluster
    path: str  #: an ordinary path of Kubernetes
    view: str = ""  #: empty: everything that the cluster serves


@remember(8192)
def route_of(path: str) -> RequestRoute:
    """The route outside of views.  Its path always begins with a slash, even for `*`, which is no path."""
    if not path.startswith("/clusters/"):
        return RequestRoute(DEFAULT_CLUSTER, path if path.startswith("/") else f"/{path}")
    cluster, slash, rest = path[len("/clusters/") :].partition("/")
    return RequestRoute(unquote(cluster), slash + rest or "/")


@remember(8192)
def target_of(cluster: str, path: str, view: str = "") -> Target | None:
    """The target of a resource path; None for other paths (discovery, health, invalid ones)."""
    parts = unquote(path).split("/")[1:]  # %2F is a slash like any other, so no part contains one
    if parts and not parts[-1]:
        parts.pop()  # ignore a trailing slash
    if not all(parts):
        return None
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    watch = bool(rest) and rest[0] == "watch"
    if watch:
        rest = rest[1:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    if not rest or len(rest) > 3:
        return None
    plural, name, subresource = (*rest, "", "")[:3]
    return Target(cluster, group, version, plural, namespace, name, subresource, watch, view)


@remember(4096)
def parse_query(query: str) -> Query:
    """The first value of every parameter.  Callers share the result and must not change it."""
    values: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True, errors="replace"):
        values.setdefault(name, value)
    return values


def is_true(text: str | None) -> bool:
    """A boolean parameter: present, and neither `0` nor `false`."""
    return text is not None and text.lower() not in ("0", "false")
