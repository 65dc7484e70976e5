"""Defaults of fields in version 3 documents: Go's zero values, and some of the API's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from farflung.apis import wire
from farflung.machinery.structs import ONE, SCALARS, SPECIAL, GoField

CORE: Final = "io.k8s.api.core.v1."

#: structs whose `name` is always encoded, even if it is empty
NAMED: Final = (
    "LocalObjectReference",
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
)

#: (definition, field) → the API's default
DECLARED: Final[Mapping[tuple[str, str], Any]] = {
    **{(CORE + name, "name"): "" for name in NAMED},
    (f"{CORE}ContainerPort", "protocol"): "TCP",
    (f"{CORE}ServicePort", "protocol"): "TCP",
    (f"{CORE}AzureDiskVolumeSource", "cachingMode"): "ReadWrite",
    (f"{CORE}AzureDiskVolumeSource", "fsType"): "ext4",
    (f"{CORE}AzureDiskVolumeSource", "kind"): "Shared",
    (f"{CORE}AzureDiskVolumeSource", "readOnly"): False,
    **{(CORE + name, "iscsiInterface"): "default" for name in ("ISCSIVolumeSource", "ISCSIPersistentVolumeSource")},
    **{
        (CORE + name, field): value
        for name in ("RBDVolumeSource", "RBDPersistentVolumeSource")
        for field, value in (("keyring", "/etc/ceph/keyring"), ("pool", "rbd"), ("user", "admin"))
    },
    **{
        (CORE + name, field): value
        for name in ("ScaleIOVolumeSource", "ScaleIOPersistentVolumeSource")
        for field, value in (("fsType", "xfs"), ("storageMode", "ThinProvisioned"))
    },
}


class FieldDefault(NamedTuple):
    """None: no default.  `element`: of the items of a list, or the values of a map."""

    own: Any = None
    element: Any = None


NONE: Final = FieldDefault()


def of_fields(definition: str) -> Mapping[str, FieldDefault]:
    """The defaults of a built-in definition's fields."""
    if not wire.known(definition):
        return {}
    return {name: of_field(definition, field) for name, field in wire.fields(definition).items()}


def of_field(definition: str, field: GoField) -> FieldDefault:
    if field.shape != ONE:
        return FieldDefault(element=zero(field.type))
    declared = DECLARED.get((definition, field.name))
    if declared is not None:
        return FieldDefault(declared)
    if field.pointer or (field.omitempty and field.type in SCALARS):
        return NONE
    return FieldDefault(zero(field.type))


def zero(type_: str) -> Any:
    """The zero value of a type; None if JSON omits it."""
    if type_ in SCALARS:
        return SCALARS[type_]
    if type_ in SPECIAL or any(member.wrapped for member in wire.members(type_)):
        return None
    return {}
