"""Defaults and validation of PersistentVolumes."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Final

from farflung.apis.core.affinity import NODE_SELECTOR
from farflung.apis.core.claims import CHECK_MODES, VOLUME, VOLUME_MODES, protect
from farflung.apis.core.resources import check_quantity
from farflung.apis.core.volumes import DEFAULTS, DRIVER, SOURCES, exactly_one, requiring
from farflung.apis.rows import (
    Always,
    Check,
    CheckFunction,
    Default,
    Defaults,
    Enum,
    ForbiddenField,
    Format,
    IfPresent,
    Optional,
    Pointer,
    Required,
    RequiredPointer,
    Struct,
    Table,
    Validation,
    Where,
)
from farflung.apis.validation import (
    IMMUTABLE,
    POSITIVE,
    Errors,
    Rules,
    check_immutable,
    check_no_backsteps,
    keep_spec,
    keep_status,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import Obj, field_forbidden, invalid_value, not_supported
from farflung.machinery.quantity import parse

DEFAULTED: Final = ("hostPath", "iscsi", "rbd", "azureDisk", "scaleIO")

#: in the order of validation
TYPES: Final[Mapping[str, CheckFunction]] = {
    **{
        type_: SOURCES[type_]
        for type_ in (
            "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte",
            "cephfs", "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk",
            "portworxVolume", "azureDisk", "scaleIO",
        )
    },
    "local": Table(Required("path", check_no_backsteps)),
    "storageos": requiring("volumeName"),
    "csi": Table(DRIVER, Required("volumeHandle")),
}  # fmt: skip


default: Final = Defaults(
    *(Struct(f"spec.{type_}", DEFAULTS[type_]) for type_ in DEFAULTED),
    Default("spec.persistentVolumeReclaimPolicy", "Retain"),
    Default("spec.volumeMode", "Filesystem"),
    Default("status.phase", "Pending"),
)


def _prepare_create(volume: Obj) -> None:
    volume["status"] = status = {"phase": "Pending"}
    protect(volume, VOLUME)
    if created := (volume.get("metadata") or {}).get("creationTimestamp"):
        status["lastPhaseTransitionTime"] = created


def check_capacity(capacity: Obj, path: str, errors: Errors) -> None:
    if "storage" not in capacity or len(capacity) > 1:
        errors.append(not_supported(path, capacity, ("storage",)))
    for resource, amount in capacity.items():
        check_quantity(resource, amount, f"{path}[{resource}]", errors)
        if parse(amount).nanos <= 0:
            errors.append(invalid_value(f"{path}[{resource}]", amount, POSITIVE))


def recycles_everything(spec: Obj) -> bool:
    host_path = (spec.get("hostPath") or {}).get("path", "")
    is_root = host_path and posixpath.normpath(host_path) in ("/", "//")
    return bool(is_root and spec.get("persistentVolumeReclaimPolicy") == "Recycle")


NOT_ROOT: Final = ForbiddenField("may not be 'recycle' for a hostPath mount of '/'")
SPEC: Final = Table(
    Required("accessModes"),
    CHECK_MODES,
    Required("capacity"),
    Always("capacity", check_capacity, zero={}),
    Optional("persistentVolumeReclaimPolicy", Enum("Delete", "Recycle", "Retain")),
    IfPresent("local", RequiredPointer("nodeAffinity", detail="Local volume requires node affinity")),
    Struct("nodeAffinity", RequiredPointer("required", NODE_SELECTOR, detail="must specify required node constraints")),
    Check(exactly_one(TYPES)),
    Where(recycles_everything, Always("persistentVolumeReclaimPolicy", NOT_ROOT)),
    Optional("storageClassName", Format(names.dns_subdomain)),
    Pointer("volumeMode", Enum(*VOLUME_MODES)),
)


def _validate_update(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    fresh, former = spec_of(new), spec_of(old)
    if any(fresh.get(type_) != former.get(type_) for type_ in TYPES):
        why = "spec.persistentvolumesource is immutable after creation\n"
        errors.append(field_forbidden("spec.persistentvolumesource", why))
    check_immutable(fresh.get("volumeMode"), former.get("volumeMode"), "volumeMode", errors)
    was, is_ = former.get("nodeAffinity"), fresh.get("nodeAffinity")
    if was is not None and was != is_:
        errors.append(invalid_value("nodeAffinity", is_, f"{IMMUTABLE}, except for updating from beta label to GA"))
    return errors


VOLUME_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=default,
    prepare_create=_prepare_create,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=Validation(Always("spec", SPEC, zero={})),
    validate_update=_validate_update,
    returns_deleted=True,
)
