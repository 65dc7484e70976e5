"""Who wrote what: one line for every request that would change something, whether it was refused or not.

    audit user=admin verb=create resource=apps/v1/deployments cluster=root namespace=shop name=web code=201 ms=2 …

A line never has anything of an object but its name: no body, no query, no message of an error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from time import perf_counter
from typing import Final

from farflung.hub.auth.user import User
from farflung.hub.http.messages import Request
from farflung.hub.request import Target, split_cluster, target_of
from farflung.lib.memory import remember
from farflung.machinery.errors import go_quote

log = logging.getLogger(__name__)

UNANSWERED: Final = (
    500  #: the code of a request that ended without an answer: a fault of the hub, or a client that left
)
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: (method, is there a name) → what is done
VERBS: Final = {
    ("POST", False): "create",
    ("POST", True): "create",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
    ("DELETE", False): "deletecollection",
}
#: groups of questions: what is sent to them is answered and never stored
QUESTIONS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
LONGEST: Final = 256  #: characters of a name; what is longer is refused, and need not be told in full
PLAIN: Final = re.compile(r"[\w.,:;@+/()*-]+", re.ASCII)


class Trail:
    """What is known of one request so far."""

    __slots__ = ("began", "by", "dry_run", "name", "user")

    def __init__(self) -> None:
        self.began = perf_counter()
        self.user: User | None = None  #: who it is taken for; None if that could not be found out
        self.by: User | None = None  #: who it really is
        self.name = ""  #: of a new object, which the path does not tell
        self.dry_run = False


class Audit:
    def __init__(self, write: Callable[[str], None] = log.info) -> None:
        """`write` gets each line, without its end."""
        self._write = write

    def begin(self, request: Request) -> Trail | None:
        """None for a request that only reads."""
        return None if request.method in READING else Trail()

    def end(self, trail: Trail, request: Request, code: int) -> None:
        target = target_of(*split_cluster(request.path))
        if target is None or target.group in QUESTIONS:
            return
        user = "-" if trail.user is None else shown(trail.user.name)
        by = "" if trail.by is trail.user or trail.by is None else f" by={shown(trail.by.name)}"
        verb = VERBS.get((request.method, bool(target.name))) or shown(request.method.lower())
        what = described(target)
        if trail.name and not target.name:
            what = f"{what} name={shown(trail.name)}"
        dry_run = " dry-run" if trail.dry_run or "dryRun=All" in request.query else ""
        duration = (perf_counter() - trail.began) * 1000
        origin = request.peer or "inside"
        self._write(f"audit user={user}{by} verb={verb} {what}{dry_run} code={code} ms={duration:.1f} from={origin}")


@remember(1024)
def shown(text: str) -> str:
    """As it is if that can be told from the rest of the line, otherwise quoted."""
    text = text[:LONGEST]
    return text if PLAIN.fullmatch(text) else go_quote(text)


def described(target: Target) -> str:
    parts = [target.group or "core", target.version, target.plural]
    if target.subresource:
        parts.append(target.subresource)
    text = f"resource={shown('/'.join(parts))} cluster={shown(target.cluster)}"
    if target.namespace:
        text += f" namespace={shown(target.namespace)}"
    return f"{text} name={shown(target.name)}" if target.name else text
