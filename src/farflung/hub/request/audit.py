"""The audit log: a line of text, or events of Kubernetes' audit.k8s.io/v1, for each request that the policy selects.

    audit user=admin verb=create resource=apps/v1/deployments cluster=root namespace=shop name=web code=201 ms=2 …
    {"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":…

A line of text has only names: no body, no query, no error message.  An event has bodies if its level allows it, but
never those of confidential resources.  The thread that writes the log formats both.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from time import perf_counter, time
from typing import Any, Final, NamedTuple
from uuid import uuid4

import orjson

from farflung.apis import wire
from farflung.apis.kcp.names import WORKSPACE_AUDIT_ANNOTATION
from farflung.apis.names import AUDIT_TRUNCATED, AUTHORIZATION_DECISION
from farflung.http.messages import Answer, Request, Response, Stream, StreamedBody
from farflung.hub.request import attributes, media_types
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.audit_policy import (
    API_VERSION,
    LEVELS,
    NONE,
    REQUEST,
    REQUEST_RESPONSE,
    AuditPolicy,
    default_policy,
)
from farflung.hub.request.target import RequestRoute, Target, route_of, target_of
from farflung.hub.request.user import User, user_info
from farflung.lib.memory import remember
from farflung.machinery.codec import protobuf, yaml
from farflung.machinery.errors import ApiError, Malformed, Obj, go_quote
from farflung.machinery.times import format_micros

log = logging.getLogger(__name__)

UNANSWERED: Final = 500  #: the code of a request without a response: a bug of the hub, or the client disconnected
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_NAME: Final = 256  #: characters of a name in a line of text; longer ones are invalid
LONGEST_AGENT: Final = 1024  #: characters, as in Kubernetes
BASE_SIZE: Final = 256  #: approximate bytes of a record without what clients choose
LARGEST_BODY: Final = 100 * 1024  #: bytes; larger bodies are left out
LARGEST_YAML: Final = 16 * 1024  #: bytes; it is slow to read
PLAIN: Final = re.compile(r"[\w.,:;@+/()*-]+", re.ASCII)
#: kinds whose content is never logged, also if a client sends it to a path of another kind
CONFIDENTIAL_KINDS: Final = frozenset({"Secret", "SecretList", "TokenRequest", "TokenReview"})

JSON_MEDIA: Final = frozenset({"", media_types.JSON, *media_types.PATCHES})

Line = Callable[[], str]  #: the formatted line; empty for none
Write = Callable[[Line, int], None]  #: writes a line later, in any thread; the number is its approximate size in bytes


class LoggedBody(NamedTuple):
    content: bytes
    media: str


NO_BODY: Final = LoggedBody(b"", "")


class AuditRecord:
    """The audit record of one request."""

    __slots__ = (
        "agent",
        "answered",
        "authorized",
        "began",
        "by",
        "code",
        "definition",
        "dry_run",
        "id",
        "is_received",
        "is_truncated",
        "method",
        "name",
        "path",
        "peer",
        "policy",
        "query",
        "request",
        "route",
        "sent",
        "user",
    )

    def __init__(self, request: Request, policy: AuditPolicy) -> None:
        self.began = perf_counter()
        self.policy = policy
        self.method, self.path, self.query, self.peer = request.method, request.path, request.query, request.peer
        self.agent = request.headers.get("user-agent", "")
        self.request: Request | None = request  #: until it is answered
        self.user: User | None = None  #: the impersonated user, if any; None: not authenticated
        self.by: User | None = None  #: the authenticated user
        self.route: RequestRoute | None = None  #: None: not routed
        self.name = ""  #: of a new object; the path does not have it
        self.definition = ""  #: of the kind of the resource
        self.is_received = False  #: whether the stage of this name is written
        self.authorized = False
        self.dry_run = False
        self.code = UNANSWERED
        self.id = ""
        self.sent = self.answered = NO_BODY
        self.is_truncated = False

    @property
    def size(self) -> int:
        """Approximately, in bytes: clients choose most of it."""
        size = BASE_SIZE + len(self.path) + len(self.query) + len(self.name) + len(self.agent)
        if self.user is not self.by and self.user is not None:
            size += len(self.user.name) + sum(map(len, self.user.groups)) + len(repr(self.user.extra))
        return size + len(self.sent.content) + len(self.answered.content)

    def _target(self) -> tuple[str, Target | None, Attributes]:
        """The logical cluster, and what was requested there."""
        cluster, path, view = self.route or route_of(self.path)
        target = target_of(cluster, path, view)
        if target is None:
            return cluster, None, attributes.of_path(self.method, path)
        access = attributes.of_target(self.method, target, self.query)
        return cluster, target, access._replace(name=self.name) if self.name else access

    def level(self) -> int:
        return self.policy.decide(self.by, self._target()[2]).level

    # --- bodies -----------------------------------------------------------------------------------

    def keep_bodies(self, answer: Answer | None) -> None:
        """Keep the bodies that the level allows, and that are small."""
        request, level = self.request, self.level()
        if request is not None and request.body and level >= REQUEST:
            self.sent = self._kept(request.body, request.headers.get("content-type", ""))
        if isinstance(answer, Response) and (level == REQUEST_RESPONSE or (level == REQUEST and answer.status >= 400)):
            self.answered = self._kept(answer.body, answer.content_type)

    def _kept(self, body: bytes | StreamedBody, content_type: str) -> LoggedBody:
        media = content_type.partition(";")[0].strip().lower()
        if isinstance(body, bytes):
            is_yaml = media in (media_types.YAML, media_types.APPLY_PATCH) and not body.startswith(b"{")
            if len(body) <= (LARGEST_YAML if is_yaml else LARGEST_BODY):
                return LoggedBody(body, media)
        self.is_truncated = True
        return NO_BODY

    def _decoded(self, body: LoggedBody, *, with_managed_fields: bool) -> Any:
        """None for a body that is confidential or cannot be read."""
        raw = body.content
        try:
            match body.media:
                case media_types.PROTOBUF if wire.known(self.definition):
                    value: Any = protobuf.decode(raw, self.definition, wire.MESSAGES).obj
                case media_types.YAML | media_types.APPLY_PATCH:
                    value = yaml.parse(raw).value
                case media if media in JSON_MEDIA:
                    value = orjson.loads(raw)
                case _:
                    return None
        except (ApiError, Malformed, orjson.JSONDecodeError):
            return None
        if not isinstance(value, dict):
            return value
        items = value.get("items")
        objects = [value, *(one for one in (items if isinstance(items, list) else ()) if isinstance(one, dict))]
        if any(one.get("kind") in CONFIDENTIAL_KINDS for one in objects):
            return None
        for one in () if with_managed_fields else objects:
            if isinstance(metadata := one.get("metadata"), dict):
                metadata.pop("managedFields", None)
        return value

    # --- lines ------------------------------------------------------------------------------------

    def text(self, ended: float) -> str:
        """Empty for a request that the policy does not select."""
        if self.level() == NONE:
            return ""
        cluster, path, view = self.route or route_of(self.path)
        user = "-" if self.user is None else shown(self.user.name)
        if self.by is not self.user and self.by is not None:
            user = f"{user} by={shown(self.by.name)}"
        what = described(self.method, self.query if self.method in READING else "", cluster, path, view)
        if self.name:
            what = f"{what} name={quoted(self.name)}"
        if self.dry_run or (self.query and "dryRun=All" in self.query):
            what = f"{what} dry-run"
        duration = (ended - self.began) * 1000
        return f"audit user={user} {what} code={self.code} ms={duration:.1f} from={self.peer or 'inside'}"

    def event(self, stage: str, moment: float) -> str:
        """As JSON.  Empty for a request or a stage that the policy does not select."""
        cluster, target, access = self._target()
        decision = self.policy.decide(self.by, access)
        if decision.level == NONE or stage in decision.omitted_stages:
            return ""
        self.id = self.id or str(uuid4())
        event: Obj = {
            "kind": "Event",
            "apiVersion": API_VERSION,
            "level": LEVELS[decision.level],
            "auditID": self.id,
            "stage": stage,
            "requestURI": self._uri(access),
            "verb": access.verb,
            "user": {} if self.by is None else user_info(self.by),
        }
        if self.user is not self.by and self.user is not None:
            event["impersonatedUser"] = user_info(self.user)
        if self.peer:
            event["sourceIPs"] = [self.peer.rpartition(":")[0].strip("[]")]
        if self.agent:
            is_long = len(self.agent) > LONGEST_AGENT
            event["userAgent"] = f"{self.agent[:LONGEST_AGENT]}...TRUNCATED" if is_long else self.agent
        if target is not None:
            reference = {
                "resource": target.plural,
                "namespace": access.namespace,
                "name": access.name,
                "apiGroup": target.group,
                "apiVersion": target.version,
                "subresource": target.subresource,
            }
            event["objectRef"] = {field: value for field, value in reference.items() if value}
        shows_managed = not decision.omits_managed_fields
        answered = self._decoded(self.answered, with_managed_fields=shows_managed)
        if stage != "RequestReceived":
            status: Obj = {"metadata": {}}
            if self.code >= 400 and isinstance(answered, dict):
                status |= {
                    name: answered[name] for name in ("status", "message", "reason", "details") if name in answered
                }
            event["responseStatus"] = status | {"code": self.code}
            sent = self._decoded(self.sent, with_managed_fields=shows_managed)
            if sent is not None:
                event["requestObject"] = sent
            if answered is not None and decision.level == REQUEST_RESPONSE:
                event["responseObject"] = answered
        event["requestReceivedTimestamp"] = timestamp(self.began)
        event["stageTimestamp"] = timestamp(moment)
        event["annotations"] = self._annotations(stage, cluster)
        return orjson.dumps(event).decode()

    def _uri(self, access: Attributes) -> str:
        """Without the query for confidential resources: clients may put anything there."""
        if not self.query or self.policy.is_confidential(access):
            return self.path
        return f"{self.path}?{self.query}"

    def _annotations(self, stage: str, cluster: str) -> dict[str, str]:
        found = {WORKSPACE_AUDIT_ANNOTATION: cluster}
        if stage != "RequestReceived" and (self.authorized or self.code == 403):
            found[AUTHORIZATION_DECISION] = "allow" if self.authorized else "forbid"
        if self.is_truncated:
            found[AUDIT_TRUNCATED] = "true"
        return found


def timestamp(moment: float) -> str:
    """Of a value of the performance counter."""
    return format_micros(datetime.fromtimestamp(time() - perf_counter() + moment, UTC))


def log_line(line: Line, size: int) -> None:
    if text := line():
        log.info(text)


class Audit:
    def __init__(self, write: Write = log_line, policy: AuditPolicy | None = None, *, as_json: bool = False) -> None:
        """`policy`: None: the default policy.  `as_json`: write events instead of lines of text."""
        self._write = write
        self._policy = policy or default_policy()
        self._words_of_reads = self._policy.words_of_reads
        self._as_json = as_json
        self._keeps_bodies = as_json and self._policy.has_bodies

    def begin(self, request: Request) -> AuditRecord | None:
        """None for a request without a line."""
        if request.method in READING:
            path = request.path
            for word in self._words_of_reads:
                if word in path:
                    break
            else:
                return None
        return AuditRecord(request, self._policy)

    def receive(self, audit_record: AuditRecord) -> None:
        """The user of a request is known."""
        if self._as_json and self._policy.has_received and not audit_record.is_received:
            audit_record.is_received = True
            self._write(partial(audit_record.event, "RequestReceived", audit_record.began), audit_record.size)

    def end(self, audit_record: AuditRecord, answer: Answer | None) -> None:
        """`answer`: None: there is none, because of a bug or because the client disconnected."""
        ended = perf_counter()
        if answer is not None:
            audit_record.code = answer.status
        if not self._as_json:
            audit_record.request = None
            self._write(partial(audit_record.text, ended), audit_record.size)
            return
        if self._keeps_bodies:
            audit_record.keep_bodies(answer)
        audit_record.request = None
        if isinstance(answer, Stream):
            self._write(partial(audit_record.event, "ResponseStarted", ended), audit_record.size)
            answer.stop = partial(self._end_stream, audit_record, answer.stop)
        else:
            stage = "Panic" if answer is None else "ResponseComplete"
            self._write(partial(audit_record.event, stage, ended), audit_record.size)

    def _end_stream(self, audit_record: AuditRecord, stop: Callable[[], None]) -> None:
        stop()
        self._write(partial(audit_record.event, "ResponseComplete", perf_counter()), audit_record.size)


def quoted(text: str) -> str:
    """The text, quoted if it contains other than plain characters."""
    text = text[:MAX_NAME]
    return text if PLAIN.fullmatch(text) else go_quote(text)


shown = remember(1024)(quoted)


@remember(4096)
def described(method: str, query: str, cluster: str, path: str, view: str) -> str:
    """The part of a line that follows from method and path."""
    target = target_of(cluster, path, view)
    if target is None:
        return f"verb={quoted(method.lower())} path={quoted(path)} cluster={quoted(cluster)}"
    verb = attributes.of_target(method, target, query).verb
    parts = [target.group or "core", target.version, target.plural]
    if target.subresource:
        parts.append(target.subresource)
    text = f"verb={quoted(verb)} resource={quoted('/'.join(parts))} cluster={quoted(target.cluster)}"
    if target.view:
        text += f" view={quoted(target.view)}"
    if target.namespace:
        text += f" namespace={quoted(target.namespace)}"
    return f"{text} name={quoted(target.name)}" if target.name else text
