"""Rules of Pods that are virtual machines instead of containers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from farflung.apis.core.pods import add_tolerations
from farflung.apis.edge.names import PROJECTED, UPSYNCED
from farflung.apis.validation import Rules, spec_of
from farflung.machinery.errors import FieldError, Obj, field_forbidden, invalid_value, required

#: fields that only Pods with containers have
CONTAINER_FIELDS: Final = ("containers", "initContainers", "ephemeralContainers")
#: fields that the scheduler used to choose a Cluster: of the machine, and of the Pod
SCHEDULED_MACHINE_FIELDS: Final = ("flavors", "needEIP", "resourceCommonInfo")
SCHEDULED_POD_FIELDS: Final = ("nodeSelector",)
BINDING_FIELDS: Final = ("nodeName", "clusterName")


def is_virtual_machine(pod: Obj) -> bool:
    """The Pod need not be valid."""
    spec = pod.get("spec")
    return isinstance(spec, dict) and spec.get("virtualMachine") is not None


def machine_rules(rules: Rules) -> Rules:
    """Complete machines, and validate them after the schema's rules."""

    def prepare_create(new: Obj) -> None:
        rules.prepare_create(new)
        complete_machine(new)

    return replace(
        rules,
        prepare_create=prepare_create,
        validate_create=lambda new: rules.validate_create(new) or machine_errors(new),
        validate_update=lambda new, old: rules.validate_update(new, old) or machine_update_errors(new, old),
    )


def complete_machine(pod: Obj) -> None:
    """What Kubernetes adds to every new Pod: a phase, a priority and tolerations.  Copies and objects of clusters get
    them there."""
    metadata = pod["metadata"]
    if not is_virtual_machine(pod) or PROJECTED in (metadata.get("labels") or ()):
        return
    if UPSYNCED in (metadata.get("annotations") or ()):
        return
    pod["status"] = {**(pod.get("status") or {}), "phase": "Pending"}
    pod["spec"].setdefault("priority", 0)
    tolerations = pod["spec"].get("tolerations") or []
    if isinstance(tolerations, list) and all(isinstance(one, dict) for one in tolerations):
        add_tolerations(pod)


def machine_errors(pod: Obj) -> list[FieldError]:
    """A Pod has either containers or a virtual machine."""
    spec = spec_of(pod)
    if "virtualMachine" not in spec:
        empty = not spec.get("containers")
        return [required("spec.containers", "a Pod has containers, or is a virtualMachine")] if empty else []
    why = "may not be set if virtualMachine is"
    found = [field_forbidden(f"spec.{field}", why) for field in CONTAINER_FIELDS if spec.get(field)]
    if spec.get("resourceType") not in (None, "", "vm"):
        found.append(
            invalid_value("spec.resourceType", spec["resourceType"], "must be vm or empty for a virtual machine")
        )
    return found


def machine_update_errors(new: Obj, old: Obj) -> list[FieldError]:
    """Errors that the old object had are accepted."""
    found = machine_errors(new)
    if found:
        known = machine_errors(old)
        found = [one for one in found if one not in known]
    return found or list(_changed_decision_fields(spec_of(new), spec_of(old)))


def _changed_decision_fields(spec: Obj, before: Obj) -> Iterator[FieldError]:
    """Errors for changes of fields that the scheduler based its decision on."""
    machine, was = spec.get("virtualMachine"), before.get("virtualMachine")
    if (machine is None) != (was is None):
        yield field_forbidden("spec.virtualMachine", "a Pod may not become a virtual machine, or cease to be one")
    if machine is None or was is None or not (is_bound(spec) and is_bound(before)):
        return
    why = "may not be changed while the virtual machine is bound"
    for field in SCHEDULED_MACHINE_FIELDS:
        if machine.get(field) != was.get(field):
            yield field_forbidden(f"spec.virtualMachine.{field}", why)
    for field in SCHEDULED_POD_FIELDS:
        if spec.get(field) != before.get(field):
            yield field_forbidden(f"spec.{field}", why)


def is_bound(spec: Obj) -> bool:
    return any(spec.get(field) for field in BINDING_FIELDS)
