"""A request for a resource, and the parts of the hub that its handler uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from farflung.apis.resource import Resource
from farflung.http.messages import EXEMPT, Answer, FlowOf, Request, no_flow
from farflung.hub.catalog import objects
from farflung.hub.catalog.kinds import Kind, Shape
from farflung.hub.catalog.served import Kinds
from farflung.hub.request.attributes import Authorization
from farflung.hub.request.audit import AuditRecord
from farflung.hub.request.target import Query, Target, parse_query
from farflung.hub.request.user import User, is_administrator
from farflung.lib.worker_pool import Answer as JobAnswer
from farflung.lib.worker_pool import JobOwner, JobTerms, JobTimeout, Overloaded, WorkerLost, WorkerPool
from farflung.machinery.errors import ApiError, FieldError, Obj, forbidden, invalid, not_found, too_many_requests
from farflung.machinery.times import format_seconds
from farflung.store.base import Entry, Revision, Store

if TYPE_CHECKING:
    from farflung.hub.registry.pipeline import Pipeline

T = TypeVar("T")

JOB_SECONDS: Final = 30.0  #: of one computation in a worker
TOO_MANY: Final = 429
PAUSE: Final = 0.5  #: seconds until a computation is tried again that found too many others


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLimits:
    """Of one logical cluster."""

    objects: int = 200_000
    size: int = 1024 * 1024 * 1024  #: bytes


@dataclass(frozen=True, slots=True)
class CallDependencies:
    """The parts of the hub that every handler may use.  Time and random values come from here."""

    store: Store
    kinds: Kinds
    clock: Callable[[], datetime]
    new_uid: Callable[[], str]
    random_suffix: Callable[[], str]  #: five characters, for generateName
    authorizer: Authorization
    pipeline: Pipeline
    workers: WorkerPool
    flow_of: FlowOf = no_flow
    storage_limits: StorageLimits = field(default_factory=StorageLimits)
    annotates: bool = False  #: whether objects get the annotation with their cluster
    views: Views | None = None  #: None: a hub without workspaces

    def owner(self, request: Request) -> JobOwner:
        """Of computations in worker processes."""
        return JobOwner(*(self.flow_of(request) or EXEMPT))

    async def compute(
        self, request: Request, function: Callable[..., T], *args: Any, answer: JobAnswer | None = None
    ) -> T:
        """Compute `function(*args)` in a worker process, or `function(ask, *args)` with `answer`.  Raises what the
        function raises, and 429, 503 or 504."""
        terms = JobTerms(self.owner(request), JOB_SECONDS, len(request.body))
        try:
            if answer is None:
                return await self.workers.run(terms, function, *args)
            return await self.workers.converse(terms, answer, function, *args)
        except Overloaded:
            raise too_many_requests("too many large requests wait to be computed; send fewer at once") from None
        except JobTimeout:
            message = f"the request took longer than {JOB_SECONDS:.0f} seconds to compute; send smaller objects"
            raise ApiError(504, "Timeout", message, {}) from None
        except WorkerLost:
            message = "the process that computed the request ended; retry, or send smaller objects"
            headers = [("Retry-After", "1")]
            raise ApiError(503, "ServiceUnavailable", message, {"retryAfterSeconds": 1}, headers=headers) from None


class Views(Protocol):
    def reaches(self, view: str, resource: Resource, cluster: str) -> bool:
        """Whether a view serves a kind in a cluster."""

    def sees(self, view: str, resource: Resource) -> Callable[[str], bool]:
        """Tells by its key whether an object of a kind is in a view."""

    def shows(self, view: str, resource: Resource) -> Callable[[Entry], bool]:
        """Tells whether an object, in its current or a former state, is in a view."""

    def showed(self, view: str, resource: Resource) -> Callable[[Entry], bool]:
        """Tells whether the former state of an object was in a view, before its latest change or deletion."""

    def steady_since(self, view: str, resource: Resource) -> Revision:
        """The revision since which objects entered and left a view only by changes of their own."""

    def subscribe(self, listener: Callable[[str, Collection[tuple[str, str]] | None], None]) -> None:
        """The listener is called when visibility in a view changes without a write: of these kinds (group, plural),
        or of all."""


class Redefined(Exception):
    """The CustomResourceDefinition changed while a request was processed.  The hub starts the request again."""


@dataclass(slots=True)
class Call:
    """A request for a resource, with its user."""

    request: Request
    target: Target
    kind: Kind
    user: User
    tools: CallDependencies
    audit_record: AuditRecord | None = None  #: for the audit line of a write
    _now: str | None = None
    _beside: asyncio.Lock | None = None

    @property
    def resource(self) -> Resource:
        return self.kind.resource

    @property
    def query(self) -> Query:
        return parse_query(self.request.query) if self.request.query else {}

    @property
    def store(self) -> Store:
        return self.tools.store

    @property
    def key(self) -> str:
        target = self.target
        return objects.key(self.kind.resource, target.cluster, target.namespace, target.name)

    @property
    def prefix(self) -> str:
        return objects.prefix(self.resource, self.target.cluster, self.target.namespace)

    def shape(self, api_version: str, kind: str) -> Shape | None:
        """The shape of a type; None if the cluster does not serve it."""
        return self.tools.kinds.at(self.target.cluster, self.target.view).shape(api_version, kind)

    def key_of(self, name: str) -> str:
        return objects.key(self.resource, self.target.cluster, self.target.namespace, name)

    def now(self) -> str:
        """RFC 3339, in seconds; the same for the whole request."""
        if self._now is None:
            self._now = format_seconds(self.tools.clock())
        return self._now

    @property
    def beside(self) -> asyncio.Lock:
        """Held by the only computation of the request in a worker process, if it concerns several objects."""
        if self._beside is None:
            self._beside = asyncio.Lock()
        return self._beside

    @property
    def owner(self) -> JobOwner:
        """Of computations in worker processes."""
        return self.tools.owner(self.request)

    async def compute(self, function: Callable[..., T], *args: Any, answer: JobAnswer | None = None) -> T:
        """Compute `function(*args)` in a worker process, or `function(ask, *args)` with `answer`.  Raises what the
        function raises, and 429, 503 or 504."""
        return await self.tools.compute(self.request, function, *args, answer=answer)

    async def compute_patiently(self, function: Callable[..., T], *args: Any) -> T:
        """The same for an answer that has begun.  While too many computations wait, it is tried again."""
        while True:
            try:
                return await self.compute(function, *args)
            except ApiError as error:
                if error.code != TOO_MANY:
                    raise
            await asyncio.sleep(PAUSE)

    def check_current(self) -> None:
        """Before a write: the kind must be that of the current definition.  Raises Redefined."""
        if self.resource.custom and self.tools.kinds.find(self.target) is not self.kind:
            raise Redefined

    def follow(self) -> None:
        """Continue with the current definition, if it still exists."""
        if self.resource.custom:
            self.kind = self.tools.kinds.find(self.target) or self.kind

    def sees(self) -> Callable[[str], bool] | None:
        """Tells by its key whether an object is in the view of the request; None: all are."""
        view = self.target.view
        return self.tools.views.sees(view, self.resource) if view and self.tools.views is not None else None

    def shows(self) -> Callable[[Entry], bool] | None:
        """Tells whether an object, in its current or a former state, is in the view of the request; None: all are."""
        view = self.target.view
        return self.tools.views.shows(view, self.resource) if view and self.tools.views is not None else None

    def showed(self) -> Callable[[Entry], bool] | None:
        """Tells whether the former state of an object was in the view of the request; None: all were."""
        view = self.target.view
        return self.tools.views.showed(view, self.resource) if view and self.tools.views is not None else None

    def steady_since(self) -> Revision:
        """The revision since which history has every object that entered or left the view of the request."""
        view = self.target.view
        return self.tools.views.steady_since(view, self.resource) if view and self.tools.views is not None else 0

    def find(self, group: str, plural: str, namespace: str, name: str) -> Obj | None:
        """An object of a built-in kind in the same cluster."""
        kind = self.tools.kinds.builtin.of(group, "v1", plural)
        entry = self.store.get(objects.key(kind.resource, self.target.cluster, namespace, name))
        return None if entry is None else objects.decode(entry)

    def found(self) -> Entry:
        """The object that the path names.  Raises 404."""
        entry = self.store.get(self.key)
        if entry is None:
            raise self.not_found()
        return entry

    def invalid(self, name: str, errors: Sequence[FieldError]) -> ApiError:
        """422 for the kind whose rules the object violates."""
        stored = self.kind.stored_as
        return invalid(stored.group, stored.kind, name, errors)

    def not_found(self) -> ApiError:
        return not_found(self.resource.group, self.resource.plural, self.target.name)


Handler = Callable[[Call], Answer | Awaitable[Answer]]


# --- Limits of what one logical cluster may store: usual workspaces never reach them --------------


CONTROLLERS: Final = "system:kube-controller-manager"  #: of the hub: they delete, and create what every namespace has


def check_room(call: Call, key: str, size: int, before: Entry | None) -> None:
    """Raises 403 if an object of this size does not fit into its logical cluster.  Concurrent writes may exceed a limit
    by their number.  `before`: the object that it replaces."""
    limits = call.tools.storage_limits
    if call.user.name == CONTROLLERS and is_administrator(call.user):
        return
    grown = size - (0 if before is None else len(before.value))
    used = call.store.amount(call.target.cluster)
    if before is None and used.keys >= limits.objects:
        raise exceeded(call, key, "objects", 1, used.keys, limits.objects)
    if grown > 0 and used.size + grown > limits.size:
        raise exceeded(call, key, "bytes", grown, used.size, limits.size)


def exceeded(call: Call, key: str, what: str, wanted: int, used: int, limit: int) -> ApiError:
    """In the words of ResourceQuotas."""
    why = f"exceeded quota: workspace, requested: {what}={wanted}, used: {what}={used}, limited: {what}={limit}"
    return forbidden(call.resource.group, call.resource.plural, key.rpartition("/")[2], why)
