"""Pods that may be virtual machines: what they must be like, what stays as long as they are bound, and who says where
they are.

The global scheduler believes a Pod that says where it is, and that it has ended: the first takes room in a cluster, and
the second gives it back.  So only those say it who may bind, whatever else they may do with Pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from farflung.apis.edge.names import PROJECTED
from farflung.apis.globalscheduler.names import GLOBALSCHEDULER_GROUP
from farflung.apis.resource import Resource
from farflung.apis.validation import Rules
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import User
from farflung.machinery.errors import FieldError, Obj, field_forbidden, forbidden, invalid_value, required

PODS: Final = ("", "pods")
BINDING: Final = "binding"
#: what containers have, and machines have not
CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
#: what a cluster was chosen by, and what counts there: of the machine, and of the Pod
ASKED_OF_MACHINE: Final = ("flavors", "needEIP", "resourceCommonInfo")
ASKED_OF_POD: Final = ("nodeSelector",)
WHERE: Final = ("nodeName", "clusterName")
SCHEDULERS: Final = (
    f"{GLOBALSCHEDULER_GROUP}/"  #: how labels and annotations begin in which the scheduler notes what it decided
)
ENDED: Final = ("Failed", "Succeeded")  #: phases of what holds nothing any more
SHOWN: Final = 8  #: paths that a message names


# --- what they are like -----------------------------------------------------------------------------


def with_machines(rules: Rules) -> Rules:
    """The rules of Pods by their schema, and these if nothing else is wrong."""
    return replace(
        rules,
        validate_create=lambda new: rules.validate_create(new) or misfits(new),
        validate_update=lambda new, old: rules.validate_update(new, old) or changed_misfits(new, old),
    )


def spec_of(pod: Obj) -> Obj:
    return pod.get("spec") or {}


def misfits(pod: Obj) -> list[FieldError]:
    """A Pod has containers, or is a machine."""
    spec = spec_of(pod)
    if "virtualMachine" not in spec:
        empty = not spec.get("containers")
        return [required("spec.containers", "a Pod has containers, or is a virtualMachine")] if empty else []
    why = "may not be set if virtualMachine is"
    found = [field_forbidden(f"spec.{field}", why) for field in CONTAINERS if spec.get(field)]
    if spec.get("resourceType") not in (None, "", "vm"):
        found.append(invalid_value("spec.resourceType", spec["resourceType"], "must be vm, or nothing, of a machine"))
    return found


def changed_misfits(new: Obj, old: Obj) -> list[FieldError]:
    """What was wrong before may stay so."""
    found = misfits(new)
    if found:
        known = misfits(old)
        found = [one for one in found if one not in known]
    return found or list(_moved_ground(spec_of(new), spec_of(old)))


def _moved_ground(spec: Obj, before: Obj) -> Iterator[FieldError]:
    """What is changed under the feet of who decided about it."""
    machine, was = spec.get("virtualMachine"), before.get("virtualMachine")
    if (machine is None) != (was is None):
        yield field_forbidden("spec.virtualMachine", "a Pod may not become a virtual machine, or cease to be one")
    if machine is None or was is None or not (is_placed(spec) and is_placed(before)):
        return
    why = "may not be changed while the virtual machine is bound"
    for field in ASKED_OF_MACHINE:
        if machine.get(field) != was.get(field):
            yield field_forbidden(f"spec.virtualMachine.{field}", why)
    for field in ASKED_OF_POD:
        if spec.get(field) != before.get(field):
            yield field_forbidden(f"spec.{field}", why)


def is_placed(spec: Obj) -> bool:
    return any(spec.get(field) for field in WHERE)


# --- who says where they are ------------------------------------------------------------------------


def concerns(resource: Resource) -> bool:
    """Whether it is about Pods that are bound by a door of their own."""
    return resource.custom and (resource.group, resource.plural) == PODS and resource.subresource(BINDING) is not None


def said_of(pod: Obj) -> dict[str, Any]:
    """What only those say of a Pod who may bind it, by its path.  A label leads Pods of all sorts to clusters.  Copies
    in mailboxes hold nothing, so their syncers may say that they have ended."""
    metadata, spec = pod["metadata"], spec_of(pod)
    labels = metadata.get("labels") or {}
    found = _noted("labels", labels)
    if spec.get("virtualMachine") is None:
        return found
    found |= _noted("annotations", metadata.get("annotations") or {})
    found |= {f"spec.{field}": spec[field] for field in WHERE if spec.get(field)}
    if PROJECTED in labels:
        found[f"metadata.labels[{PROJECTED}]"] = labels[PROJECTED]
    elif (pod.get("status") or {}).get("phase") in ENDED:
        found["status.phase"] = "ended"
    return found


def _noted(part: str, notes: Mapping[str, str]) -> dict[str, Any]:
    return {f"metadata.{part}[{name}]": text for name, text in notes.items() if name.startswith(SCHEDULERS)}


def differences(new: Obj, old: Obj | None) -> Sequence[str]:
    """The paths of what is said otherwise than before."""
    after, before = said_of(new), {} if old is None else said_of(old)
    if after == before:
        return ()
    return sorted(path for path in after.keys() | before.keys() if after.get(path) != before.get(path))


def check_placing(user: User, new: Obj, old: Obj | None, may: Callable[[Attributes], bool]) -> None:
    """Raises 403.  `may`: whether the user may do something where the Pod is."""
    changed = differences(new, old)
    if not changed:
        return
    metadata = new["metadata"]
    name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
    if may(Attributes("create", *PODS, BINDING, namespace, name)):
        return
    told = ", ".join(changed[:SHOWN]) + (f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else "")
    why = (
        f'User "{user.name}" cannot set, change or remove {told}: where a virtual machine is, and whether it has '
        "ended, is said by those who may create pods/binding"
    )
    raise forbidden(*PODS, name, why)
