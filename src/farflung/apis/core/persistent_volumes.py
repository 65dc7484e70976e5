"""Defaults and validation of PersistentVolumes."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Final

from farflung.apis.core.affinity import check_node_selector
from farflung.apis.core.claims import VOLUME, VOLUME_MODES, check_access_modes, protect
from farflung.apis.core.resources import check_quantity
from farflung.apis.core.volumes import (
    DEFAULTS,
    SOURCES,
    CheckSource,
    check_driver,
    check_source,
    requiring,
)
from farflung.apis.validation import (
    IMMUTABLE,
    POSITIVE,
    Errors,
    Rules,
    check_immutable,
    check_name,
    check_present,
    check_supported,
    keep_spec,
    keep_status,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import Obj, field_forbidden, invalid_value, not_supported, required
from farflung.machinery.quantity import parse

RECLAIM_POLICIES: Final = ("Delete", "Recycle", "Retain")
DEFAULTED: Final = ("hostPath", "iscsi", "rbd", "azureDisk", "scaleIO")


def _check_local(source: Obj, path: str, errors: Errors) -> None:
    if not source.get("path"):
        errors.append(required(f"{path}.path"))
    elif ".." in source["path"].split("/"):
        errors.append(invalid_value(f"{path}.path", source["path"], "must not contain '..'"))


def _check_csi(source: Obj, path: str, errors: Errors) -> None:
    check_driver(source, path, errors)
    check_present(source, "volumeHandle", path, errors)


#: in the order of validation
TYPES: Final[Mapping[str, CheckSource]] = {
    **{
        type_: SOURCES[type_]
        for type_ in (
            "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte",
            "cephfs", "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk",
            "portworxVolume", "azureDisk", "scaleIO",
        )
    },
    "local": _check_local,
    "storageos": requiring("volumeName"),
    "csi": _check_csi,
}  # fmt: skip


def default(volume: Obj) -> None:
    spec = volume.setdefault("spec", {})
    for type_ in DEFAULTED:
        if (source := spec.get(type_)) is not None:
            DEFAULTS[type_](source)
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    volume.setdefault("status", {}).setdefault("phase", "Pending")


def _prepare_create(volume: Obj) -> None:
    volume["status"] = status = {"phase": "Pending"}
    protect(volume, VOLUME)
    if created := (volume.get("metadata") or {}).get("creationTimestamp"):
        status["lastPhaseTransitionTime"] = created


def _validate(volume: Obj) -> Errors:
    errors: Errors = []
    spec = spec_of(volume)
    modes = spec.get("accessModes") or []
    if not modes:
        errors.append(required("spec.accessModes"))
    check_access_modes(modes, "spec.accessModes", errors)
    _check_capacity(spec.get("capacity") or {}, errors)
    if policy := spec.get("persistentVolumeReclaimPolicy", ""):
        check_supported(policy, RECLAIM_POLICIES, "spec.persistentVolumeReclaimPolicy", errors)
    _check_node_affinity(spec, errors)
    check_source(spec, "spec", TYPES, errors)
    host_path = (spec.get("hostPath") or {}).get("path", "")
    if host_path and posixpath.normpath(host_path) in ("/", "//") and policy == "Recycle":
        why = "may not be 'recycle' for a hostPath mount of '/'"
        errors.append(field_forbidden("spec.persistentVolumeReclaimPolicy", why))
    if class_name := spec.get("storageClassName"):
        check_name(names.dns_subdomain, class_name, "spec.storageClassName", errors)
    if (mode := spec.get("volumeMode")) is not None:
        check_supported(mode, VOLUME_MODES, "spec.volumeMode", errors)
    return errors


def _check_capacity(capacity: Obj, errors: Errors) -> None:
    if not capacity:
        errors.append(required("spec.capacity"))
    if "storage" not in capacity or len(capacity) > 1:
        errors.append(not_supported("spec.capacity", capacity, ("storage",)))
    for resource, amount in capacity.items():
        field = f"spec.capacity[{resource}]"
        check_quantity(resource, amount, field, errors)
        if parse(amount).nanos <= 0:
            errors.append(invalid_value(field, amount, POSITIVE))


def _check_node_affinity(spec: Obj, errors: Errors) -> None:
    affinity = spec.get("nodeAffinity")
    if affinity is None:
        if spec.get("local") is not None:
            errors.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    elif affinity.get("required") is None:
        errors.append(required("spec.nodeAffinity.required", "must specify required node constraints"))
    else:
        check_node_selector(affinity["required"], "spec.nodeAffinity.required", errors)


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
    validate=_validate,
    validate_update=_validate_update,
    returns_deleted=True,
)
