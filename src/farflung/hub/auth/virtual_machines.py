"""Checks of virtual machines: Pods, their priorities, and the EdgePlacements that deliver them.

The global scheduler relies on a Pod's binding, which reserves capacity of a Cluster, and on its end, which frees it.
So only users with permission to create pods/binding can set them, whatever other permissions they have.

The machines and Allocations of all tenants wait in one queue.  There are no PriorityClasses in workspaces.  The default
priority is 0, every user may set a lower one, and a higher one requires the permission to bind.

The status of a machine is that of its copy.  A user who could change the EdgePlacement of a delivery could report any
status.  Users with permission to delete EdgePlacements may delete deliveries, because the scheduler creates them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from farflung.apis.edge.names import EDGE_GROUP, PROJECTED
from farflung.apis.globalscheduler.machines import BINDING_FIELDS, is_virtual_machine
from farflung.apis.globalscheduler.names import DELIVERS_TO, DELIVERY_PREFIX, GLOBALSCHEDULER_GROUP
from farflung.apis.resource import Resource
from farflung.apis.validation import spec_of
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import User
from farflung.machinery.errors import Obj, forbidden

PODS: Final = ("", "pods")
BINDING: Final = "binding"
SCHEDULER_PREFIX: Final = f"{GLOBALSCHEDULER_GROUP}/"  #: prefix of labels and annotations that the scheduler writes
FINISHED_PHASES: Final = ("Failed", "Succeeded")  #: phases without reserved capacity
MAX_SHOWN: Final = 8  #: paths in a message
PLACEMENTS: Final = (EDGE_GROUP, "edgeplacements")
ALLOCATIONS: Final = (GLOBALSCHEDULER_GROUP, "allocations")
#: the permission to bind machines and Allocations
BINDING_PERMISSION: Final = {PODS: ("create", BINDING), ALLOCATIONS: ("update", "status")}


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
    if not is_virtual_machine(pod):
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
    paths = ", ".join(changed[:MAX_SHOWN]) + (
        f" and {len(changed) - MAX_SHOWN} more" if len(changed) > MAX_SHOWN else ""
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
    if obj.get("kind") == "Pod" and not is_virtual_machine(obj):
        return 0
    return spec_of(obj).get("priority") or 0


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
