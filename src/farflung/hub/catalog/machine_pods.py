"""Pods of a hub without workspaces and nodes: with containers, or virtual machines.

A Pod with `spec.virtualMachine` has the schema and rules that it has in a workspace; every other Pod those of
Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

from farflung.apis import definitions
from farflung.apis.builtin.kinds import BUILTIN
from farflung.apis.custom_kinds import CustomKind
from farflung.apis.globalscheduler.machines import is_virtual_machine, machine_rules
from farflung.apis.globalscheduler.pods import machine_cells
from farflung.apis.kcp import compute
from farflung.apis.kcp.names import COMPUTE_EXPORT
from farflung.apis.resource import Resource, text
from farflung.apis.validation import Rules
from farflung.hub.catalog.custom_kinds import Definition
from farflung.hub.catalog.kinds import Conforms, Kind, builtin_kind_at
from farflung.hub.catalog.served import ExtendedKind
from farflung.machinery.errors import Obj
from farflung.machinery.schema.conform import Conformed
from farflung.machinery.schema.model import Schema

if TYPE_CHECKING:
    from farflung.hub.catalog.openapi.schemas import Own

T = TypeVar("T")

PODS: Final = ("", "v1", "pods")
POD: Final = "io.k8s.api.core.v1.Pod"
POD_SPEC: Final = "io.k8s.api.core.v1.PodSpec"
POD_STATUS: Final = "io.k8s.api.core.v1.PodStatus"
#: the definitions of the parts of a Pod that may be a machine; pod templates have those of Kubernetes
EXTENDED: Final = {POD_SPEC: "com.globalscheduler.v1.PodSpec", POD_STATUS: "com.globalscheduler.v1.PodStatus"}
BASES: Final = {POD: POD, **{own: base for base, own in EXTENDED.items()}}


@cache
def machine_resources() -> tuple[Resource, ...]:
    """The built-in resources, with these Pods."""
    return tuple(_extended(one) if (one.group, one.version, one.plural) == PODS else one for one in BUILTIN)


def _extended(pods: Resource) -> Resource:
    selectable = {**pods.selectable, "spec.clusterName": text("spec", "clusterName")}
    return replace(pods, printer=replace(pods.printer, cells=machine_cells), selectable=selectable)


@cache
def machine_pods() -> Kind:
    """Raises TurnOver; the next call continues."""
    builtin, machine = builtin_kind_at(*PODS), _machine_definition().kind("v1")
    resource = next(one for one in machine_resources() if (one.group, one.version, one.plural) == PODS)
    schema = extended_schema(POD)
    shape = replace(
        builtin.shape, schema=schema, conformer=PodConformer(builtin.shape.conformer, machine.shape.conformer)
    )
    rules = rules_by_content(builtin.rules, machine_rules(machine.rules))
    return replace(
        builtin, resource=resource, stored_as=resource, shape=shape, schema=schema, rules=rules, remake=machine_pods
    )


@cache
def _machine_definition() -> Definition:
    return Definition(_machine().definition(), 0)


def _machine() -> CustomKind:
    """As workspaces have it."""
    return next(one for one in compute.kinds(COMPUTE_EXPORT) if one.plural == "pods")


# --- schemas --------------------------------------------------------------------------------------


@cache
def extended_definitions() -> dict[str, Obj]:
    """The definition of a Pod, and of its parts with the fields of machines, by name."""
    pod = definitions.decoded(POD)
    found: dict[str, Obj] = {POD: pod}
    fields = _machine().schema()["properties"]
    for part, definition in (("spec", POD_SPEC), ("status", POD_STATUS)):
        own = definitions.decoded(definition)
        added = {name: one for name, one in fields[part]["properties"].items() if name not in own["properties"]}
        own["properties"] |= added
        found[EXTENDED[definition]] = own
        pod["properties"][part] = {**pod["properties"][part], "$ref": f"#/definitions/{EXTENDED[definition]}"}
    return found


@cache
def extended_schema(name: str) -> Schema:
    """Under the names of Kubernetes, by which field ownership knows the Go types."""
    found = extended_definitions().get(name)
    return definitions.schema(name) if found is None else Schema(found, extended_schema, BASES[name])


# --- by content -----------------------------------------------------------------------------------


class PodConformer:
    def __init__(self, containers: Conforms, machine: Conforms) -> None:
        self._containers = containers
        self._machine = machine

    def conform(self, obj: Obj) -> Conformed:
        return (self._machine if is_virtual_machine(obj) else self._containers).conform(obj)


def rules_by_content(containers: Rules, machine: Rules) -> Rules:
    """A change is one of a machine if either version is: a Pod may not become one, or cease to be one."""

    def of(*pods: Obj | None) -> Rules:
        return machine if any(pod is not None and is_virtual_machine(pod) for pod in pods) else containers

    def one(choose: Callable[[Rules], Callable[[Obj], T]]) -> Callable[[Obj], T]:
        return lambda new: choose(of(new))(new)

    def both(choose: Callable[[Rules], Callable[[Obj, Obj], T]]) -> Callable[[Obj, Obj], T]:
        return lambda new, old: choose(of(new, old))(new, old)

    def grace_seconds(pod: Obj) -> int:
        """No node stops a machine."""
        seconds = of(pod).graceful_seconds
        return 0 if seconds is None else seconds(pod)

    return replace(
        containers,
        default=one(lambda rules: rules.default),
        prepare_create=one(lambda rules: rules.prepare_create),
        prepare_update=both(lambda rules: rules.prepare_update),
        prepare_status=both(lambda rules: rules.prepare_status),
        prepare_delete=one(lambda rules: rules.prepare_delete),
        validate=one(lambda rules: rules.validate),
        validate_create=one(lambda rules: rules.validate_create),
        validate_update=both(lambda rules: rules.validate_update),
        validate_status=both(lambda rules: rules.validate_status),
        warnings=lambda new, old: of(new, old).warnings(new, old),
        graceful_seconds=grace_seconds,
    )


# --- OpenAPI --------------------------------------------------------------------------------------


def machine_openapi() -> Own:
    """The definitions of a Pod, in which those of Kubernetes are restored."""
    from farflung.hub.catalog.openapi.schemas import EXTENDS

    found = {name: {**one, EXTENDS: BASES[name]} for name, one in extended_definitions().items()}
    del found[EXTENDED[POD_SPEC]]["required"]  # a machine has no containers
    return found


MACHINES: Final = {PODS: ExtendedKind(machine_pods, machine_openapi)}
