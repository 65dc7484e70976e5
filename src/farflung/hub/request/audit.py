"""The audit log: one line for every write request, refused or not.

    audit user=admin verb=create resource=apps/v1/deployments cluster=root namespace=shop name=web code=201 ms=2 …

Renewals of Leases are omitted: they are heartbeats.

Of objects, a line has only the name: no body, no query, no error message.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from time import perf_counter
from typing import Final

from farflung.apis.names import AUTHENTICATION_GROUP
from farflung.http.messages import Request
from farflung.hub.request.target import Route, split_cluster, target_of
from farflung.hub.request.user import User
from farflung.lib.memory import remember
from farflung.machinery.errors import go_quote

log = logging.getLogger(__name__)

UNANSWERED: Final = 500  #: the code of a request without a response: a bug of the hub, or the client disconnected
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: (method, has the path a name) → verb
VERBS: Final = {
    ("POST", False): "create",
    ("POST", True): "create",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
    ("DELETE", False): "deletecollection",
}
#: groups of reviews, which are never stored
QUESTIONS: Final = frozenset({AUTHENTICATION_GROUP, "authorization.k8s.io"})
RENEWED: Final = 200
RENEWAL: Final = "verb=update resource=coordination.k8s.io/v1/leases "  #: a heartbeat
LONGEST: Final = 256  #: characters of a name; longer ones are invalid
PLAIN: Final = re.compile(r"[\w.,:;@+/()*-]+", re.ASCII)


class Trail:
    """The facts for the audit line of one request."""

    __slots__ = ("began", "by", "dry_run", "name", "place", "user")

    def __init__(self) -> None:
        self.began = perf_counter()
        self.user: User | None = None  #: the impersonated user, if any; None: not authenticated
        self.by: User | None = None  #: the authenticated user
        self.place: Route | None = None  #: None: not routed
        self.name = ""  #: of a new object; the path does not have it
        self.dry_run = False


class Audit:
    def __init__(self, write: Callable[[str], None] = log.info) -> None:
        """`write`: gets each line, without a line break."""
        self._write = write

    def begin(self, request: Request) -> Trail | None:
        """None for a request that only reads."""
        return None if request.method in READING else Trail()

    def end(self, trail: Trail, request: Request, code: int) -> None:
        what = described(request.method, *(trail.place or split_cluster(request.path)))
        if not what or (code == RENEWED and what.startswith(RENEWAL)):
            return
        user = "-" if trail.user is None else shown(trail.user.name)
        if trail.by is not trail.user and trail.by is not None:
            user = f"{user} by={shown(trail.by.name)}"
        if trail.name:
            what = f"{what} name={quoted(trail.name)}"
        if trail.dry_run or (request.query and "dryRun=All" in request.query):
            what = f"{what} dry-run"
        duration = (perf_counter() - trail.began) * 1000
        self._write(f"audit user={user} {what} code={code} ms={duration:.1f} from={request.peer or 'inside'}")


def quoted(text: str) -> str:
    """The text, quoted if it contains other than plain characters."""
    text = text[:LONGEST]
    return text if PLAIN.fullmatch(text) else go_quote(text)


shown = remember(1024)(quoted)


@remember(4096)
def described(method: str, cluster: str, path: str, view: str = "") -> str:
    """The part of a line that follows from method and path.  Empty if the request writes nothing."""
    target = target_of(cluster, path, view)
    if target is None or target.group in QUESTIONS:
        return ""
    verb = VERBS.get((method, bool(target.name))) or quoted(method.lower())
    parts = [target.group or "core", target.version, target.plural]
    if target.subresource:
        parts.append(target.subresource)
    text = f"verb={verb} resource={quoted('/'.join(parts))} cluster={quoted(target.cluster)}"
    if target.view:
        text += f" view={quoted(target.view)}"
    if target.namespace:
        text += f" namespace={quoted(target.namespace)}"
    return f"{text} name={quoted(target.name)}" if target.name else text
