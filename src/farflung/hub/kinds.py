"""Everything the hub needs to serve one kind, put together once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from farflung.apis.resource import Resource
from farflung.hub import objects
from farflung.hub.admission import autoscaling, events
from farflung.hub.admission.builtin import rules_for
from farflung.hub.admission.rules import Rules
from farflung.hub.catalog.catalog import Catalog
from farflung.hub.request import Target
from farflung.hub.shapes import Shape, shape_of
from farflung.machinery.errors import Obj, too_large
from farflung.machinery.schema.model import Schema

Convert = Callable[[Obj], Obj]

LARGEST: Final = 3 * 1024 * 1024  #: bytes of an object; what is larger could not be sent back either


def same(obj: Obj) -> Obj:
    return obj


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a resource that shares another one's storage gets there and back.

    Clients see the served form, the store has the stored form, and rules are applied to one of the two.
    """

    group: str
    version: str  #: of the resource whose form is stored
    served: Convert  #: stored → served
    enter: Convert = same  #: served → the form of the rules
    present: Convert = same  #: stored → the form of the rules
    leave: Convert = same  #: the form of the rules → stored


CONVERSIONS: Final[Mapping[tuple[str, str, str], Conversion]] = {
    ("events.k8s.io", "v1", "events"): Conversion(
        "", "v1", served=events.to_events_v1, present=events.to_events_v1, leave=events.to_core
    ),
    ("autoscaling", "v1", "horizontalpodautoscalers"): Conversion(
        "autoscaling", "v2", served=autoscaling.to_v1, enter=autoscaling.to_v2
    ),
}


@dataclass(frozen=True, slots=True)
class Kind:
    resource: Resource
    shape: Shape
    rules: Rules
    stored_as: Resource  #: the resource whose form is stored; nearly always the kind's own
    schema: Schema  #: of the form of the rules
    conversion: Conversion | None = None

    def enter(self, obj: Obj) -> Obj:
        """What a client sent, in the form of the rules."""
        return obj if self.conversion is None else self.conversion.enter(obj)

    def present(self, stored: Obj) -> Obj:
        """What is stored, in the form of the rules."""
        return stored if self.conversion is None else self.conversion.present(stored)

    def served(self, stored: Obj) -> Obj:
        """What is stored, as clients see it."""
        return stored if self.conversion is None else self.conversion.served(stored)

    def encode(self, obj: Obj, *, before: int = 0) -> bytes:
        """An object in the form of the rules, as it is stored.  Raises 413 for one that is too large, unless it was
        larger `before`: patches must not let it grow, but may mend it."""
        value = objects.encode(self.stored_as, obj if self.conversion is None else self.conversion.leave(obj))
        if len(value) > max(LARGEST, before):
            raise too_large(LARGEST)
        return value

    def encode_stored(self, obj: Obj) -> bytes:
        """The same for an object that has its stored form already."""
        return objects.encode(self.stored_as, obj)


class Kinds:
    """The kinds of a catalogue, each made when it is first asked for."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self._types = {(resource.api_version, resource.kind): resource for resource in catalog}

    def find(self, target: Target) -> Kind | None:
        path = (target.group, target.version, target.plural)
        kind = self._kinds.get(path)
        if kind is None:
            resource = self.catalog.find(*path)
            if resource is None:
                return None
            kind = self._kinds[path] = self._kind(resource)
        return kind

    def of(self, group: str, version: str, plural: str) -> Kind:
        """A kind that is certainly served."""
        kind = self.find(Target("", group, version, plural))
        assert kind is not None, f"{plural}.{group}/{version} is not served"
        return kind

    def shape(self, api_version: str, kind: str) -> Shape | None:
        """What objects of a type look like, if there is such a type at all."""
        resource = self._types.get((api_version, kind))
        return None if resource is None else shape_of(resource)

    def _kind(self, resource: Resource) -> Kind:
        shape = shape_of(resource)
        rules = rules_for(resource.group, resource.kind)
        conversion = CONVERSIONS.get((resource.group, resource.version, resource.plural))
        if conversion is None:
            return Kind(resource, shape, rules, resource, shape.schema)
        stored = self.catalog.find(conversion.group, conversion.version, resource.plural)
        assert stored is not None, "what shares another resource's storage is served together with it"
        schema = shape.schema if conversion.enter is same else shape_of(stored).schema
        return Kind(resource, shape, rules, stored, schema, conversion)
