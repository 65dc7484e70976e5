"""Checks of virtual machines: Pods, their priorities, and the EdgePlacements that deliver them.

The global scheduler relies on a Pod's binding, which reserves capacity of a Cluster, and on its end, which frees it.
So only users with permission to create pods/binding can set them, whatever other permissions they have.

The machines and Allocations of all tenants wait in one queue.  There are no PriorityClasses in workspaces.  The default
priority is 0, every user may set a lower one, and a higher one requires the permission to bind.

The status of a machine is that of its copy.  A user who could change the EdgePlacement of a delivery could report any
status.  Users with permission to delete EdgePlacements may delete deliveries, because the scheduler creates them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from farflung.apis.edge.names import EDGE_GROUP, PROJECTED
from farflung.apis.globalscheduler.names import DELIVERS_TO, DELIVERY_PREFIX, GLOBALSCHEDULER_GROUP
from farflung.apis.resource import Resource
from farflung.apis.validation import Rules
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import User
from farflung.machinery.errors import FieldError, Obj, field_forbidden, forbidden, invalid_value, required

PODS: Final = ("", "pods")
BINDING: Final = "binding"
#: fields that only Pods with containers have
CONTAINER_FIELDS: Final = ("containers", "initContainers", "ephemeralContainers")
#: fields that the scheduler used to choose a Cluster: of the machine, and of the Pod
SCHEDULED_MACHINE_FIELDS: Final = ("flavors", "needEIP", "resourceCommonInfo")
SCHEDULED_POD_FIELDS: Final = ("nodeSelector",)
BINDING_FIELDS: Final = ("nodeName", "clusterName")
SCHEDULER_PREFIX: Final = f"{GLOBALSCHEDULER_GROUP}/"  #: prefix of labels and annotations that the scheduler writes
FINISHED_PHASES: Final = ("Failed", "Succeeded")  #: phases without reserved capacity
MOST_SHOWN: Final = 8  #: paths in a message
PLACEMENTS: Final = (EDGE_GROUP, "edgeplacements")
ALLOCATIONS: Final = (GLOBALSCHEDULER_GROUP, "allocations")
#: the permission to bind machines and Allocations
BINDING_PERMISSION: Final = {PODS: ("create", BINDING), ALLOCATIONS: ("update", "status")}


# --- validation -----------------------------------------------------------------------------------


def machine_rules(rules: Rules) -> Rules:
    """Validate machines after the schema's rules."""
    return replace(
        rules,
        validate_create=lambda new: rules.validate_create(new) or machine_errors(new),
        validate_update=lambda new, old: rules.validate_update(new, old) or machine_update_errors(new, old),
    )


def spec_of(pod: Obj) -> Obj:
    return pod.get("spec") or {}


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


# --- bindings -------------------------------------------------------------------------------------


def is_machine(resource: Resource) -> bool:
    """Whether the resource is Pods with the subresource `binding`."""
    return resource.custom and (resource.group, resource.plural) == PODS and resource.subresource(BINDING) is not None


def binding_fields(pod: Obj) -> dict[str, Any]:
    """Fields, by path, that only users with permission to bind can set.  Labels also deliver Pods with containers.  A
    copy in a mailbox reserves nothing, so its syncer may report its end."""
    metadata, spec = pod["metadata"], spec_of(pod)
    labels = metadata.get("labels") or {}
    found = _noted("labels", labels)
    if spec.get("virtualMachine") is None:
        return found
    found |= _noted("annotations", metadata.get("annotations") or {})
    found |= {f"spec.{field}": spec[field] for field in BINDING_FIELDS if spec.get(field)}
    if PROJECTED in labels:
        found[f"metadata.labels[{PROJECTED}]"] = labels[PROJECTED]
    elif (pod.get("status") or {}).get("phase") in FINISHED_PHASES:
        found["status.phase"] = "ended"
    return found


def _noted(part: str, notes: Mapping[str, str]) -> dict[str, Any]:
    return {f"metadata.{part}[{name}]": text for name, text in notes.items() if name.startswith(SCHEDULER_PREFIX)}


def binding_changes(new: Obj, old: Obj | None) -> Sequence[str]:
    """The paths of changed fields."""
    after, before = binding_fields(new), {} if old is None else binding_fields(old)
    if after == before:
        return ()
    return sorted(path for path in after.keys() | before.keys() if after.get(path) != before.get(path))


def check_binding(user: User, new: Obj, old: Obj | None, may: Callable[[Attributes], bool]) -> None:
    """Raises 403.  `may`: whether the user has a permission in the Pod's workspace."""
    changed = binding_changes(new, old)
    if not changed:
        return
    metadata = new["metadata"]
    name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
    if may(Attributes("create", *PODS, BINDING, namespace, name)):
        return
    paths = ", ".join(changed[:MOST_SHOWN]) + (
        f" and {len(changed) - MOST_SHOWN} more" if len(changed) > MOST_SHOWN else ""
    )
    why = (
        f'User "{user.name}" cannot set, change or remove {paths}: the binding and the end of a virtual '
        "machine require permission to create pods/binding"
    )
    raise forbidden(*PODS, name, why)


# --- priorities -----------------------------------------------------------------------------------


def has_priority(resource: Resource) -> bool:
    return is_machine(resource) or (bool(resource.identity) and (resource.group, resource.plural) == ALLOCATIONS)


def check_priority(
    user: User, resource: Resource, new: Obj, old: Obj | None, may: Callable[[Attributes], bool]
) -> None:
    """Raises 403.  `may`: whether the user has a permission in the object's workspace."""
    wanted = priority_of(new)
    if wanted <= max(0, priority_of(old or {})):
        return
    metadata, kind = new["metadata"], (resource.group, resource.plural)
    name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
    verb, subresource = BINDING_PERMISSION[kind]
    if may(Attributes(verb, *kind, subresource, namespace, name)):
        return
    why = (
        f'User "{user.name}" cannot set spec.priority to {wanted}: a priority above 0 requires permission to {verb} '
        f"{resource.plural}/{subresource}"
    )
    raise forbidden(*kind, name, why)


def priority_of(obj: Obj) -> int:
    """The priority of a machine or an Allocation; 0 for other Pods."""
    spec = obj.get("spec") or {}
    if obj.get("kind") == "Pod" and spec.get("virtualMachine") is None:
        return 0
    return spec.get("priority") or 0


# --- deliveries -----------------------------------------------------------------------------------


def is_placement(resource: Resource) -> bool:
    return (resource.group, resource.plural) == PLACEMENTS


def delivery_fields(placement: Obj) -> dict[str, Any]:
    """Fields of a delivery, by path, that only users with permission to bind can set; empty for other
    EdgePlacements."""
    metadata = placement["metadata"]
    name, mark = metadata.get("name") or metadata.get("generateName", ""), (metadata.get("annotations") or {})
    if DELIVERS_TO not in mark and not name.startswith(DELIVERY_PREFIX):
        return {}
    return {f"metadata.annotations[{DELIVERS_TO}]": mark.get(DELIVERS_TO), "spec": placement.get("spec")}


def delivery_changes(new: Obj, old: Obj | None) -> Sequence[str]:
    after, before = delivery_fields(new), {} if old is None else delivery_fields(old)
    return sorted(path for path in after.keys() | before.keys() if after.get(path) != before.get(path))


def check_delivery(user: User, new: Obj, old: Obj | None, may: Callable[[Attributes], bool]) -> None:
    """Raises 403.  `may`: whether the user has a permission in the workspace, whatever the view of the request."""
    changed = delivery_changes(new, old)
    if not changed or may(Attributes("create", *PODS, BINDING)):
        return
    why = (
        f'User "{user.name}" cannot set, change or remove {", ".join(changed)} of an EdgePlacement that the global '
        "scheduler manages: this requires permission to create pods/binding"
    )
    raise forbidden(*PLACEMENTS, new["metadata"].get("name", ""), why)
