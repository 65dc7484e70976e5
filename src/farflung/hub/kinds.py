"""Everything the hub needs to serve one kind, put together once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from farflung.apis.resource import Resource
from farflung.hub import objects
from farflung.hub.admission import events
from farflung.hub.admission.builtin import rules_for
from farflung.hub.admission.rules import Rules
from farflung.hub.catalog.catalog import Catalog
from farflung.hub.request import Target
from farflung.hub.shapes import Shape, shape_of
from farflung.machinery.errors import Obj


def _same(obj: Obj) -> Obj:
    return obj


@dataclass(frozen=True, slots=True)
class Kind:
    resource: Resource
    shape: Shape
    rules: Rules
    stored_as: Resource  #: the resource whose shape is in the store; nearly always the kind's own
    to_storage: Callable[[Obj], Obj] = _same
    from_storage: Callable[[Obj], Obj] = _same

    @property
    def converts(self) -> bool:
        return self.stored_as is not self.resource

    def encode(self, obj: Obj) -> bytes:
        return objects.encode(self.stored_as, self.to_storage(obj))

    def encode_stored(self, obj: Obj) -> bytes:
        """The same for an object that has its stored shape already."""
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
        if resource.storage_group is None:
            return Kind(resource, shape, rules, resource)
        stored = self.catalog.find(resource.storage_group, "v1", resource.plural)
        assert stored is not None, "what shares another group's storage is served together with it"
        return Kind(resource, shape, rules, stored, events.to_core, events.to_events_v1)
