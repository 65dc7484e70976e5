"""Who comes first: the virtual machines and Allocations of all tenants wait in one queue, so nobody goes before others
because they say so.

There are no PriorityClasses in workspaces.  Who says nothing has the priority 0, and everybody may let others go first.
A higher one is given by those who may decide where it goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from farflung.apis.globalscheduler.names import GLOBALSCHEDULER_GROUP
from farflung.apis.resource import Resource
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import User
from farflung.hub.tenancy import virtual_machines as machines
from farflung.machinery.errors import Obj, forbidden

ALLOCATIONS: Final = (GLOBALSCHEDULER_GROUP, "allocations")
#: what those may do who decide about them
DECIDING: Final = {machines.PODS: ("create", machines.BINDING), ALLOCATIONS: ("update", "status")}


def concerns(resource: Resource) -> bool:
    return machines.concerns(resource) or (bool(resource.identity) and (resource.group, resource.plural) == ALLOCATIONS)


def check_priority(
    user: User, resource: Resource, new: Obj, old: Obj | None, may: Callable[[Attributes], bool]
) -> None:
    """Raises 403.  `may`: whether the user may do something where the object is."""
    wanted = priority_of(new)
    if wanted <= max(0, priority_of(old or {})):
        return
    metadata, kind = new["metadata"], (resource.group, resource.plural)
    name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
    verb, subresource = DECIDING[kind]
    if may(Attributes(verb, *kind, subresource, namespace, name)):
        return
    why = (
        f'User "{user.name}" cannot set spec.priority to {wanted}: a priority above 0 is given by those who may {verb} '
        f"{resource.plural}/{subresource}"
    )
    raise forbidden(*kind, name, why)


def priority_of(obj: Obj) -> int:
    """Of a machine or an Allocation; other Pods wait for nobody."""
    spec = obj.get("spec") or {}
    if obj.get("kind") == "Pod" and spec.get("virtualMachine") is None:
        return 0
    return spec.get("priority") or 0
