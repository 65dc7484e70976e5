"""One request on its way through the hub, and what the hub works with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from farflung.apis.resource import Resource
from farflung.http.messages import Answer, Request
from farflung.hub.catalog import objects
from farflung.hub.catalog.kinds import Kind
from farflung.hub.catalog.served import Kinds
from farflung.hub.catalog.shapes import Shape
from farflung.hub.request.attributes import Authorization
from farflung.hub.request.audit import Trail
from farflung.hub.request.target import Query, Target, parse_query
from farflung.hub.request.user import User
from farflung.machinery.errors import ApiError, FieldError, Obj, invalid, not_found
from farflung.machinery.times import format_seconds
from farflung.store.base import Entry, Revision, Store

if TYPE_CHECKING:
    from farflung.hub.registry.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Tools:
    """What every verb may use.  Time and randomness come from here."""

    store: Store
    kinds: Kinds
    clock: Callable[[], datetime]
    new_uid: Callable[[], str]
    random_suffix: Callable[[], str]  #: five characters, for generateName
    authorizer: Authorization
    pipeline: Pipeline
    annotates: bool = False  #: whether objects say which cluster they are in
    views: Views | None = None  #: which objects are seen through a view


class Views(Protocol):
    def reaches(self, view: str, resource: Resource, cluster: str) -> bool:
        """Whether a cluster has a kind in a view at all."""

    def sees(self, view: str, resource: Resource) -> Callable[[str], bool]:
        """Which objects of a kind are in a view, by their keys."""

    def shows(self, view: str, resource: Resource) -> Callable[[Entry], bool]:
        """Which objects of a kind are in a view, as they are or were."""

    def showed(self, view: str, resource: Resource) -> Callable[[Entry], bool]:
        """Which were in a view until they changed or went, a moment ago."""

    def steady_since(self, view: str, resource: Resource) -> Revision:
        """Since when nothing came into sight or went out of it but by its own changes."""

    def subscribe(self, listener: Callable[[str, Collection[tuple[str, str]] | None], None]) -> None:
        """Hear of views in which kinds came into sight, or went out of it, otherwise: of all kinds, or of these."""


class Redefined(Exception):
    """A custom resource was redefined while a request for it was under way: the request is to be begun anew."""


@dataclass(slots=True)
class Call:
    """A request for a resource: who asks for what."""

    request: Request
    target: Target
    kind: Kind
    user: User
    tools: Tools
    trail: Trail | None = None  #: of a write, for the audit
    _now: str | None = None

    @property
    def resource(self) -> Resource:
        return self.kind.resource

    @property
    def query(self) -> Query:
        return parse_query(self.request.query)

    @property
    def store(self) -> Store:
        return self.tools.store

    @property
    def key(self) -> str:
        return self.key_of(self.target.name)

    @property
    def prefix(self) -> str:
        return objects.prefix(self.resource, self.target.cluster, self.target.namespace)

    def shape(self, api_version: str, kind: str) -> Shape | None:
        """What objects of a type look like, if the cluster has such a type at all."""
        return self.tools.kinds.at(self.target.cluster, self.target.view).shape(api_version, kind)

    def key_of(self, name: str) -> str:
        return objects.key(self.resource, self.target.cluster, self.target.namespace, name)

    def now(self) -> str:
        """RFC 3339, in seconds; the same for the whole request."""
        if self._now is None:
            self._now = format_seconds(self.tools.clock())
        return self._now

    def check_current(self) -> None:
        """Before a write: what is written must be as the present definition has it.  Raises Redefined."""
        if self.resource.custom and self.tools.kinds.find(self.target) is not self.kind:
            raise Redefined

    def follow(self) -> None:
        """Go on with the present definition, if there still is one."""
        if self.resource.custom:
            self.kind = self.tools.kinds.find(self.target) or self.kind

    def sees(self) -> Callable[[str], bool] | None:
        """Which objects are in the view of the request, by their keys; None for all."""
        view = self.target.view
        return self.tools.views.sees(view, self.resource) if view and self.tools.views is not None else None

    def shows(self) -> Callable[[Entry], bool] | None:
        """The same, as they are or were."""
        view = self.target.view
        return self.tools.views.shows(view, self.resource) if view and self.tools.views is not None else None

    def showed(self) -> Callable[[Entry], bool] | None:
        """Which were in it until they changed or went."""
        view = self.target.view
        return self.tools.views.showed(view, self.resource) if view and self.tools.views is not None else None

    def steady_since(self) -> Revision:
        """From where on history tells of everything that came into the view of the request or went out of it."""
        view = self.target.view
        return self.tools.views.steady_since(view, self.resource) if view and self.tools.views is not None else 0

    def find(self, group: str, plural: str, namespace: str, name: str) -> Obj | None:
        """An object of a built-in kind in the same cluster."""
        kind = self.tools.kinds.builtin.of(group, "v1", plural)
        entry = self.store.get(objects.key(kind.resource, self.target.cluster, namespace, name))
        return None if entry is None else objects.decode(entry)

    def found(self) -> Entry:
        """The object the path names, or 404."""
        entry = self.store.get(self.key)
        if entry is None:
            raise self.not_found()
        return entry

    def invalid(self, name: str, errors: Sequence[FieldError]) -> ApiError:
        """422, of the kind whose rules were broken."""
        stored = self.kind.stored_as
        return invalid(stored.group, stored.kind, name, errors)

    def not_found(self) -> ApiError:
        return not_found(self.resource.group, self.resource.plural, self.target.name)


Handler = Callable[[Call], Answer | Awaitable[Answer]]
