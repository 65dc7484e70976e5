"""Which URL means what: a path becomes a target, a query becomes named values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from farflung.lib.memory import remember

DEFAULT_CLUSTER = "root"

#: what may follow /namespaces/NAME without being a resource in it
NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})

Query = Mapping[str, str]


class Target(NamedTuple):
    """What a resource path names.  A part that is not there is empty."""

    cluster: str
    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False  #: the deprecated /watch/ path
    view: str = ""  #: through which the cluster is seen; empty for all of it


def split_cluster(path: str) -> tuple[str, str]:
    """(cluster, the rest of the path).  The rest always begins with a slash, even if it was no path at all (`*`)."""
    if not path.startswith("/clusters/"):
        return DEFAULT_CLUSTER, path if path.startswith("/") else f"/{path}"
    cluster, slash, rest = path[len("/clusters/") :].partition("/")
    return unquote(cluster), slash + rest or "/"


@remember(8192)
def target_of(cluster: str, path: str, view: str = "") -> Target | None:
    """The resource a path names; None if it is not a resource path (discovery, health, nonsense)."""
    parts = unquote(path).split("/")[1:]  # %2F is a slash like any other, so no part ever holds one
    if parts and not parts[-1]:
        parts.pop()  # a trailing slash means nothing
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
    """The first value of every parameter.  Not to be changed: it is shared."""
    values: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True, errors="replace"):
        values.setdefault(name, value)
    return values


def is_true(text: str | None) -> bool:
    """A boolean parameter: present and not said to be false."""
    return text is not None and text.lower() not in ("0", "false")
