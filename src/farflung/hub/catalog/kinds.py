"""A kind: its resource, the shape of its bodies, rules, storage form and conversion.  Each is compiled once."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Final, Protocol

import orjson

from farflung.apis import autoscaling, definitions, wire
from farflung.apis.autoscaling import BuiltinScaling, Scaling
from farflung.apis.builtin.catalog import Catalog
from farflung.apis.builtin.kinds import BUILTIN
from farflung.apis.builtin.rules import rules_for
from farflung.apis.core import events
from farflung.apis.resource import Resource
from farflung.apis.validation import Rules
from farflung.hub.catalog import objects
from farflung.machinery.errors import Obj, too_large
from farflung.machinery.schema.conform import Conformed, compile
from farflung.machinery.schema.model import Schema
from farflung.store.base import Entry, Revision

Convert = Callable[[Obj], Obj]

NEVER: Final[Revision] = sys.maxsize


class Conforms(Protocol):
    def conform(self, obj: Obj) -> Conformed:
        """Raises Malformed if a value does not fit its type."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The schema of a type of the API, and the conformer of its objects."""

    group: str
    api_version: str
    kind: str
    definition: str
    schema: Schema
    conformer: Conforms
    custom: bool = False  #: defined by a CustomResourceDefinition
    merging: Schema | None = None  #: for strategic merge patches of a custom resource; None: not supported
    encoded: str = ""  #: the definition for protobuf bodies of a custom resource; empty: not supported


@cache
def builtin_shape(group: str, api_version: str, kind: str, definition: str) -> Shape:
    schema = definitions.schema(definition)
    return Shape(group, api_version, kind, definition, schema, compile(schema, wire.fields))


def shape_of(resource: Resource) -> Shape:
    return builtin_shape(resource.group, resource.api_version, resource.kind, resource.definition)


def same(obj: Obj) -> Obj:
    return obj


@dataclass(frozen=True, slots=True)
class Conversion:
    """Conversion of a resource whose objects are stored in the form of another one.

    Clients see the served form, the store has the stored form, and rules use one of the two.
    """

    group: str
    version: str  #: of the resource whose form is stored
    served: Convert  #: stored → served
    enter: Convert = same  #: served → the form that the rules use
    present: Convert = same  #: stored → the form that the rules use
    leave: Convert = same  #: the form that the rules use → stored
    renew: Convert = same  #: stored → stored, as a write would store it now
    unchanged_since: Revision = NEVER  #: objects of later revisions are served as stored


CONVERSIONS: Final[Mapping[tuple[str, str, str], Conversion]] = {
    ("events.k8s.io", "v1", "events"): Conversion(
        "", "v1", served=events.to_events_v1, present=events.to_events_v1, leave=events.to_core
    ),
    ("autoscaling", "v1", "horizontalpodautoscalers"): Conversion(
        "autoscaling", "v2", served=autoscaling.to_v1, enter=autoscaling.to_v2
    ),
}


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Kind:
    """Compared by identity: a kind is compiled once."""

    resource: Resource
    shape: Shape
    rules: Rules
    stored_as: Resource  #: the resource whose form is stored; usually the kind's own
    schema: Schema  #: of the form that the rules use
    conversion: Conversion | None = None
    scaling: Scaling | None = None  #: of a kind that has /scale
    remake: Callable[[], Kind] | None = None  #: makes the kind in another process

    @property
    def made_anew(self) -> Callable[[], Kind]:
        assert self.remake is not None, f"{self.resource.kind} exists only in this process"
        return self.remake

    def enter(self, obj: Obj) -> Obj:
        """An object that a client sent, in the form that the rules use."""
        return obj if self.conversion is None else self.conversion.enter(obj)

    def present(self, stored: Obj) -> Obj:
        """A stored object, in the form that the rules use."""
        return stored if self.conversion is None else self.conversion.present(stored)

    def served(self, stored: Obj) -> Obj:
        """A stored object, in the served form."""
        return stored if self.conversion is None else self.conversion.served(stored)

    def read(self, entry: Entry) -> Obj:
        """A copy of the object of an entry, in the served form."""
        stored = objects.decode(entry)
        return stored if self.is_plain(entry) else self.served(stored)

    def presented(self, entry: Entry) -> Obj:
        """A copy of the object of an entry, in the form that the rules use."""
        stored = objects.decode(entry)
        return stored if self.is_plain(entry) else self.present(stored)

    def is_plain(self, entry: Entry) -> bool:
        """Whether the stored bytes are the served ones."""
        return self.conversion is None or entry.revision > self.conversion.unchanged_since

    def document(self, entry: Entry) -> bytes:
        """The served JSON of an entry."""
        if self.is_plain(entry):
            return entry.value
        document = objects.encode(self.resource, self.read(entry))
        return document if entry.revision else objects.without_revision(document)

    def encode(self, obj: Obj, *, before: int = 0) -> bytes:
        """The stored bytes of an object in the form that the rules use.  Raises 413 for an object that is too large,
        unless it was larger `before`: a patch may shrink it."""
        value = objects.encode(self.stored_as, obj if self.conversion is None else self.conversion.leave(obj))
        largest = self.rules.largest
        if len(value) > max(largest, before):
            raise too_large(largest)
        return value

    def is_out_of_date(self, entry: Entry, obj: Obj) -> bool:
        """Whether a write without changes would store another form: this migrates objects to another storage
        version."""
        if not self.resource.custom or self.is_plain(entry):
            return False
        return bool(orjson.loads(self.encode(obj, before=len(entry.value))) != objects.decode(entry))

    def renewed(self, entry: Entry) -> Obj:
        """A copy of the object of an entry in its stored form, as a write would store it now."""
        stored = objects.decode(entry)
        return stored if self.conversion is None or self.is_plain(entry) else self.conversion.renew(stored)

    def encode_stored(self, obj: Obj) -> bytes:
        """The same as `encode`, for an object in its stored form."""
        return objects.encode(self.stored_as, obj)


def made(make: Callable[[], Kind]) -> Kind:
    """In a worker process: a kind, compiled once."""
    return _made(pickle.dumps(make))


@lru_cache(maxsize=64)
def _made(pickled: bytes) -> Kind:
    make: Callable[[], Kind] = pickle.loads(pickled)  # noqa: S301  this process wrote it
    return make()


def builtin_kind(resource: Resource, catalog: Catalog) -> Kind:
    shape = shape_of(resource)
    rules = rules_for(resource.group, resource.kind)
    conversion = CONVERSIONS.get((resource.group, resource.version, resource.plural))
    remake = partial(builtin_kind_at, resource.group, resource.version, resource.plural)
    if conversion is None:
        scaling = BuiltinScaling(resource.group, resource.kind) if resource.subresource("scale") else None
        return Kind(resource, shape, rules, resource, shape.schema, scaling=scaling, remake=remake)
    stored = catalog.find(conversion.group, conversion.version, resource.plural)
    assert stored is not None, "what shares another resource's storage is served together with it"
    schema = shape.schema if conversion.enter is same else shape_of(stored).schema
    return Kind(resource, shape, rules, stored, schema, conversion, remake=remake)


def builtin_kind_at(group: str, version: str, plural: str) -> Kind:
    """In a worker process."""
    catalog = builtin_catalog()
    resource = catalog.find(group, version, plural)
    assert resource is not None, f"{plural}.{group}/{version} is not built in"
    return builtin_kind(resource, catalog)


@cache
def builtin_catalog() -> Catalog:
    return Catalog(BUILTIN)
