"""Definitions of bound resources, compiled once per schema and identity and shared by all workspaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache, cached_property, partial
from typing import Any, Final, Literal

import orjson

from farflung.apis.apiextensions import kinds
from farflung.apis.builtin.kinds import BUILTIN
from farflung.apis.globalscheduler.machines import machine_rules
from farflung.apis.globalscheduler.pods import machine_cells
from farflung.apis.kcp import compute
from farflung.apis.resource import ALL_VERBS, Resource, Subresource
from farflung.hub.auth import virtual_machines as machines
from farflung.hub.auth.virtual_machines import PODS
from farflung.hub.catalog.custom_kinds import ANYTHING, Definition, DefinitionVersion
from farflung.hub.catalog.kinds import Kind, shape_of
from farflung.hub.tenancy.bound_rules import KCP_ACCEPTS, with_builtin_rules
from farflung.hub.tenancy.resource_schemas import as_raw_definition, conformed_version
from farflung.machinery.errors import Obj
from farflung.machinery.table import DEFAULT, Cells, Column, Printer
from farflung.store.base import Revision

#: in a workspace, in a workspace whose binding is being deleted, and in the export's view
Form = Literal["bound", "ending", "viewed"]

#: kinds with the printer columns of Kubernetes, whatever their schema; kcp prints Ingresses like any custom resource
PRINTED: Final = frozenset(
    (one.group, one.plural)
    for exported in compute.EXPORTED.values()
    for one in exported
    if one.qualified != "ingresses.networking.k8s.io"
)
BINDING: Final = Subresource(machines.BINDING, ("create",), "Binding", "", "v1")
SELECTABLE: Final = kinds.selectable((".spec.nodeName", ".spec.clusterName", ".status.phase"))
#: errors of a printer that gets an object of another shape
PRINTER_ERRORS: Final = (AttributeError, TypeError, KeyError, ValueError, IndexError, ArithmeticError)


@cache
def builtin_resources() -> Mapping[tuple[str, str, str], Resource]:
    """The built-in kinds of Kubernetes, by group, version and plural."""
    return {(one.group, one.version, one.plural): one for one in BUILTIN}


class SchemaVersion(DefinitionVersion):
    """A version of an APIResourceSchema, conformed when it is first used."""

    @cached_property
    def schema(self) -> Obj:
        conformed: Obj = conformed_version(self._described)["schema"]["openAPIV3Schema"]
        return conformed or ANYTHING


class BoundDefinition(Definition):
    versioned = SchemaVersion

    def __init__(self, schema: Obj, identity: str, settled: Revision, form: Form = "bound") -> None:
        """`identity`: the identity under which objects are stored."""
        self.identity = identity
        self._has_builtin_types = schema["metadata"]["name"] in compute.SCHEMA_NAMES
        definition = as_raw_definition(schema)
        resources = [served_resource(one, identity, form) for one in kinds.resources_of(definition)]
        resources = [with_pod_binding(one, definition) for one in resources]
        super().__init__(definition, settled, resources)
        self.remake = partial(BoundDefinition, schema, identity, settled, form)

    @property
    def is_bound(self) -> bool:
        return True

    def _made(self, resource: Resource) -> Kind:
        kind = super()._made(resource)
        native = builtin_resources().get((resource.group, resource.version, resource.plural))
        if native is None:
            return kind
        shape = replace(kind.shape, merging=shape_of(native).schema, encoded=native.definition)
        rules = machine_rules(kind.rules) if self._has_machines(resource) else kind.rules
        if not self._has_builtin_types:
            return replace(kind, shape=shape, rules=with_builtin_rules(rules, native))
        accepted = KCP_ACCEPTS.get((resource.group, resource.plural), ())
        return replace(kind, shape=shape, rules=with_builtin_rules(rules, native, accepted, same_types=True))

    def _has_machines(self, resource: Resource) -> bool:
        """Whether the schema has the fields of containers and of virtual machines."""
        schema = self._versions[resource.version].schema
        types = (_type_at(schema, "spec", field) for field in ("containers", "virtualMachine"))
        return machines.is_machine(resource) and tuple(types) == ("array", "object")


def bound_definition(value: bytes, identity: str, settled: Revision, form: Form) -> BoundDefinition:
    """The definition in a stored APIResourceSchema."""
    definition = BoundDefinition(orjson.loads(value), identity, settled, form)
    definition.remake = partial(bound_definition, value, identity, settled, form)
    return definition


def served_resource(resource: Resource, identity: str, form: Form) -> Resource:
    resource = replace(resource, identity=identity)
    if form == "ending":
        resource = replace(resource, verbs=tuple(verb for verb in resource.verbs if verb != "create"))
    elif form == "viewed":
        resource = replace(resource, verbs=ALL_VERBS, subresources=view_subresources(resource))
    native = builtin_resources().get((resource.group, resource.version, resource.plural))
    if native is None or native.printer is DEFAULT or (resource.group, resource.plural) not in PRINTED:
        return resource
    if (resource.group, resource.plural) != PODS:
        return replace(resource, printer=tolerant(native.printer.columns, native.printer.cells))
    # kubectl can merge every built-in kind, but does not know the additional fields of these Pods
    printer = tolerant(native.printer.columns, machine_cells)
    return replace(resource, printer=printer, merged_like=native.definition)


def with_pod_binding(resource: Resource, definition: Obj) -> Resource:
    """Add the subresource `binding` and field selectors to Pods, if their schema has the fields."""
    if (resource.group, resource.plural, resource.version) != (*PODS, "v1"):
        return resource
    schema = next(
        SchemaVersion(one).schema for one in definition["spec"]["versions"] if one["name"] == resource.version
    )
    has_room = _type_at(schema, "spec", "nodeName") == "string" and _type_at(schema, "status", "conditions") == "array"
    if not has_room:
        return resource
    return replace(resource, subresources=(*resource.subresources, BINDING), selectable=SELECTABLE)


def _type_at(schema: Obj, *path: str) -> str:
    for name in path:
        schema = (schema.get("properties") or {}).get(name) or {}
    found: str = schema.get("type", "")
    return found


def tolerant(columns: tuple[Column, ...], cells: Cells) -> Printer:
    """A printer that shows only the name of objects of another shape."""

    def printed(obj: Obj, now: datetime) -> list[Any]:
        try:
            return cells(obj, now)
        except PRINTER_ERRORS:
            return [(obj.get("metadata") or {}).get("name", ""), *[None] * (len(columns) - 1)]

    return Printer(columns, printed)


def view_subresources(resource: Resource) -> tuple[Subresource, ...]:
    """The subresources in a view: only `status`, nothing that grants permissions or starts something."""
    return tuple(one for one in resource.subresources if one.name == "status")
