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
from farflung.hub.request.target import RequestRoute, split_cluster, target_of
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
LARGEST: Final = 2048  #: characters of a record that waits to be formatted; a line is short, whatever the record has
PLAIN: Final = re.compile(r"[\w.,:;@+/()*-]+", re.ASCII)


class Trail:
    """The audit record of one request.  `str()` formats its line when the request has ended; this may happen in any
    thread."""

    __slots__ = ("began", "by", "code", "dry_run", "ended", "method", "name", "path", "peer", "query", "route", "user")

    def __init__(self, request: Request) -> None:
        self.began = self.ended = perf_counter()
        self.method, self.path, self.query, self.peer = request.method, request.path, request.query, request.peer
        self.user: User | None = None  #: the impersonated user, if any; None: not authenticated
        self.by: User | None = None  #: the authenticated user
        self.route: RequestRoute | None = None  #: None: not routed
        self.name = ""  #: of a new object; the path does not have it
        self.dry_run = False
        self.code = UNANSWERED

    def __str__(self) -> str:
        """Empty for a request without a line."""
        what = described(self.method, *(self.route or split_cluster(self.path)))
        if not what or (self.code == RENEWED and what.startswith(RENEWAL)):
            return ""
        user = "-" if self.user is None else shown(self.user.name)
        if self.by is not self.user and self.by is not None:
            user = f"{user} by={shown(self.by.name)}"
        if self.name:
            what = f"{what} name={quoted(self.name)}"
        if self.dry_run or (self.query and "dryRun=All" in self.query):
            what = f"{what} dry-run"
        duration = (self.ended - self.began) * 1000
        return f"audit user={user} {what} code={self.code} ms={duration:.1f} from={self.peer or 'inside'}"


def log_line(trail: Trail | str) -> None:
    if line := str(trail):
        log.info(line)


class Audit:
    def __init__(self, write: Callable[[Trail | str], None] = log_line) -> None:
        """`write` gets each record when its request has ended, and may format it later; of a large record, the text."""
        self._write = write

    def begin(self, request: Request) -> Trail | None:
        """None for a request that only reads."""
        return None if request.method in READING else Trail(request)

    def end(self, trail: Trail, code: int) -> None:
        trail.ended = perf_counter()
        trail.code = code
        is_large = len(trail.path) + len(trail.query) + len(trail.name) > LARGEST
        self._write(str(trail) if is_large else trail)


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
