"""StorageClasses, CSI objects and VolumeAttachments: resources, validation and printer columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from farflung.apis.printers import NOTHING, UNSET, age_of, described, name_of, part
from farflung.apis.resource import Group, status
from farflung.apis.validation import (
    Errors,
    Rules,
    check_choice,
    check_immutable,
    check_name,
    check_required_name,
    check_selector,
    check_supported,
    keep_spec,
    keep_status,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import (
    FieldError,
    Obj,
    duplicate,
    field_forbidden,
    invalid_value,
    required,
    too_long,
)
from farflung.machinery.table import AGE, NAME, Column, Printer

CLASS_DEFAULTS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
ATTRIBUTES_DEFAULT: Final = ("volumeattributesclass.alpha.kubernetes.io/is-default-class",)


def marked_name(obj: Obj, annotations: tuple[str, ...]) -> str:
    """`standard (default)`"""
    present = part(obj, "metadata", "annotations")
    return f"{name_of(obj)} (default)" if any(present.get(one) == "true" for one in annotations) else name_of(obj)


def driver_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = part(obj, "spec")
    requests = spec.get("tokenRequests")
    return [
        name_of(obj),
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        UNSET if requests is None else ",".join(one.get("audience", "") for one in requests),
        spec.get("requiresRepublish", False),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NOTHING,
        age_of(obj, now),
    ]


CSI_DRIVERS: Final = Printer(
    (
        NAME,
        described("AttachRequired", "storage.v1.CSIDriverSpec.attachRequired", "boolean"),
        described("PodInfoOnMount", "storage.v1.CSIDriverSpec.podInfoOnMount", "boolean"),
        described("StorageCapacity", "storage.v1.CSIDriverSpec.storageCapacity", "boolean"),
        described("TokenRequests", "storage.v1.CSIDriverSpec.tokenRequests"),
        described("RequiresRepublish", "storage.v1.CSIDriverSpec.requiresRepublish", "boolean"),
        described("Modes", "storage.v1.CSIDriverSpec.volumeLifecycleModes"),
        AGE,
    ),
    driver_cells,
)


def node_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), len(part(obj, "spec").get("drivers") or ()), age_of(obj, now)]


CSI_NODES: Final = Printer(
    (
        NAME,
        Column("Drivers", "integer", description="Drivers indicates the number of CSI drivers registered on the node"),
        AGE,
    ),
    node_cells,
)


def capacity_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), obj.get("storageClassName", ""), str(obj.get("capacity", UNSET))]


CSI_STORAGE_CAPACITIES: Final = Printer(
    (
        NAME,
        described("StorageClassName", "storage.v1.CSIStorageCapacity.storageClassName"),
        described("Capacity", "storage.v1.CSIStorageCapacity.capacity"),
    ),
    capacity_cells,
)


def class_cells(obj: Obj, now: datetime) -> list[Any]:
    return [
        marked_name(obj, CLASS_DEFAULTS),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        obj.get("allowVolumeExpansion", False),
        age_of(obj, now),
    ]


STORAGE_CLASSES: Final = Printer(
    (
        NAME,
        described("Provisioner", "storage.v1.StorageClass.provisioner"),
        described("ReclaimPolicy", "storage.v1.StorageClass.reclaimPolicy"),
        described("VolumeBindingMode", "storage.v1.StorageClass.volumeBindingMode"),
        described("AllowVolumeExpansion", "storage.v1.StorageClass.allowVolumeExpansion"),
        AGE,
    ),
    class_cells,
)


def attachment_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        spec.get("attacher", ""),
        part(spec, "source").get("persistentVolumeName", ""),
        spec.get("nodeName", ""),
        part(obj, "status").get("attached", False),
        age_of(obj, now),
    ]


VOLUME_ATTACHMENTS: Final = Printer(
    (
        NAME,
        described("Attacher", "storage.v1.VolumeAttachmentSpec.attacher", format="name"),
        described("PV", "storage.v1.VolumeAttachmentSource.persistentVolumeName"),
        described("Node", "storage.v1.VolumeAttachmentSpec.nodeName"),
        described("Attached", "storage.v1.VolumeAttachmentStatus.attached", "boolean"),
        AGE,
    ),
    attachment_cells,
)


def attributes_class_cells(obj: Obj, now: datetime) -> list[Any]:
    return [marked_name(obj, ATTRIBUTES_DEFAULT), obj.get("driverName", ""), age_of(obj, now)]


VOLUME_ATTRIBUTES_CLASSES: Final = Printer(
    (NAME, described("DriverName", "storage.v1.VolumeAttributesClass.driverName"), AGE), attributes_class_cells
)


# --- Storage classes, CSI drivers and attachments -------------------------------------------------

STORAGE: Final = Group("storage.k8s.io", "v1", "io.k8s.api.storage.v1.")

RESOURCES: Final = (
    STORAGE.stored("csidrivers", "CSIDriver", printer=CSI_DRIVERS, namespaced=False),
    STORAGE.stored("csinodes", "CSINode", printer=CSI_NODES, namespaced=False),
    STORAGE.stored("csistoragecapacities", "CSIStorageCapacity", printer=CSI_STORAGE_CAPACITIES),
    STORAGE.stored("storageclasses", "StorageClass", printer=STORAGE_CLASSES, namespaced=False, short_names=("sc",)),
    STORAGE.stored(
        "volumeattachments",
        "VolumeAttachment",
        printer=VOLUME_ATTACHMENTS,
        namespaced=False,
        subresources=(status("VolumeAttachment"),),
    ),
    STORAGE.stored(
        "volumeattributesclasses",
        "VolumeAttributesClass",
        printer=VOLUME_ATTRIBUTES_CLASSES,
        namespaced=False,
        short_names=("vac",),
    ),
)


# --- Rules of StorageClasses, CSI drivers and nodes, and VolumeAttachments ------------------------

GROUP: Final = "storage.k8s.io"
MOST_PARAMETERS: Final = 512
LARGEST_PARAMETERS: Final = 256 * 1024
DRIVER_NAME_LENGTH: Final = 63
BINDING_MODES: Final = ("Immediate", "WaitForFirstConsumer")
RECLAIM_POLICIES: Final = ("Delete", "Retain")

# --- StorageClass, VolumeAttributesClass ----------------------------------------------------------


def default_storage_class(obj: Obj) -> None:
    if not obj.get("reclaimPolicy"):
        obj["reclaimPolicy"] = "Delete"
    if not obj.get("volumeBindingMode"):
        obj["volumeBindingMode"] = "Immediate"


def validate_storage_class(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    provisioner = obj.get("provisioner", "")
    if not provisioner:
        errors.append(required("provisioner"))
    for message in names.qualified_name(provisioner.lower()) if provisioner else ():
        errors.append(invalid_value("provisioner", provisioner, message))
    _check_parameters(obj.get("parameters") or {}, errors)
    check_supported(obj.get("reclaimPolicy", ""), RECLAIM_POLICIES, "reclaimPolicy", errors)
    check_choice(obj.get("volumeBindingMode", ""), BINDING_MODES, "volumeBindingMode", errors)
    return errors


def _check_parameters(parameters: Mapping[str, str], errors: Errors) -> None:
    if len(parameters) > MOST_PARAMETERS:
        errors.append(too_long("parameters", MOST_PARAMETERS))
        return
    for key in parameters:
        if not key:
            errors.append(invalid_value("parameters", key, "field can not be empty."))
    if sum(names.size(key) + names.size(value) for key, value in parameters.items()) > LARGEST_PARAMETERS:
        errors.append(too_long("parameters", LARGEST_PARAMETERS))


def validate_storage_class_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    for member in ("parameters", "provisioner", "reclaimPolicy"):
        if (new.get(member) or None) != (old.get(member) or None):
            errors.append(field_forbidden(member, f"updates to {member} are forbidden."))
    check_immutable(new.get("volumeBindingMode"), old.get("volumeBindingMode"), "volumeBindingMode", errors)
    return errors


def validate_attributes_class(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    driver = obj.get("driverName", "")
    check_driver_name(driver, "driverName", errors)
    if not obj.get("parameters"):
        errors.append(required("parameters", "must contain at least one key/value pair"))
    _check_parameters(obj.get("parameters") or {}, errors)
    return errors


def validate_attributes_class_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_immutable(new.get("driverName"), old.get("driverName"), "driverName", errors)
    check_immutable(new.get("parameters"), old.get("parameters"), "parameters", errors)
    return errors


# --- CSIDriver, CSINode ---------------------------------------------------------------------------


def check_driver_name(name: str, field: str, errors: Errors) -> None:
    if not name:
        errors.append(required(field))
        return
    if names.size(name) > DRIVER_NAME_LENGTH:
        errors.append(too_long(field, DRIVER_NAME_LENGTH))
    for message in names.dns_subdomain(name.lower()):
        errors.append(invalid_value(field, name, message))


#: what a CSIDriver's spec is when it does not say
DRIVER_DEFAULTS: Final[Mapping[str, object]] = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "requiresRepublish": False,
    "seLinuxMount": False,
}
DRIVER_MUTABLE: Final = (
    "podInfoOnMount",
    "storageCapacity",
    "fsGroupPolicy",
    "tokenRequests",
    "requiresRepublish",
    "seLinuxMount",
    "nodeAllocatableUpdatePeriodSeconds",
)


def default_driver(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    for member, value in DRIVER_DEFAULTS.items():
        if spec.get(member) is None:
            spec[member] = value
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


def validate_driver(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = spec_of(obj)
    check_driver_name(obj["metadata"].get("name", ""), "metadata.name", errors)
    policies = ("File", "None", "ReadWriteOnceWithFSType")
    check_supported(spec.get("fsGroupPolicy", ""), policies, "spec.fsGroupPolicy", errors)
    for mode in spec.get("volumeLifecycleModes") or ():
        check_supported(mode, ("Ephemeral", "Persistent"), "spec.volumeLifecycleModes", errors)
    return errors


def validate_driver_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    for member in ("attachRequired", "volumeLifecycleModes"):
        check_immutable(spec_of(new).get(member), spec_of(old).get(member), f"spec.{member}", errors)
    return errors


def count_driver_changes(new: Obj, old: Obj) -> None:
    """A CSIDriver has no generation until one of its mutable fields changes."""
    after, before = spec_of(new), spec_of(old)
    if any(after.get(member) != before.get(member) for member in DRIVER_MUTABLE):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def default_node(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("drivers"):
        spec["drivers"] = None
    for driver in spec["drivers"] or ():
        if not driver.get("topologyKeys"):
            driver["topologyKeys"] = None


def validate_node(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    seen: set[str] = set()
    for index, driver in enumerate(spec_of(obj).get("drivers") or ()):
        path = f"spec.drivers[{index}]"
        name = driver.get("name", "")
        check_driver_name(name, f"{path}.name", errors)
        if not driver.get("nodeID"):
            errors.append(required(f"{path}.nodeID"))
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
        for key in driver.get("topologyKeys") or ():
            check_name(names.qualified_name, key, f"{path}.topologyKeys", errors)
    return errors


# --- VolumeAttachment, CSIStorageCapacity ---------------------------------------------------------


def default_attachment(obj: Obj) -> None:
    obj.setdefault("status", {"attached": False})


def prepare_attachment(obj: Obj) -> None:
    obj["status"] = {"attached": False}


def validate_attachment(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = spec_of(obj)
    check_required_name(names.qualified_name, spec.get("attacher", ""), "spec.attacher", errors)
    source = spec.get("source") or {}
    inline, volume = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and volume is None:
        errors.append(required("spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
    elif inline is not None and volume is not None:
        detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        errors.append(field_forbidden("spec.source", detail))
    elif volume is not None:
        check_required_name(names.dns_subdomain, volume, "spec.source.persistentVolumeName", errors)
    check_required_name(names.dns_subdomain, spec.get("nodeName", ""), "spec.nodeName", errors)
    return errors


def validate_attachment_update(new: Obj, old: Obj) -> list[FieldError]:
    if spec_of(new) == spec_of(old):
        return []
    return [invalid_value("spec", spec_of(new), "field is immutable")]


def validate_capacity(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    check_selector(obj.get("nodeTopology"), "nodeTopology", errors)
    check_required_name(names.dns_subdomain, obj.get("storageClassName", ""), "storageClassName", errors)
    return errors


def validate_capacity_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    for member in ("nodeTopology", "storageClassName"):
        check_immutable(new.get(member), old.get(member), member, errors)
    return errors


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (GROUP, "StorageClass"): Rules(
        name=names.dns_subdomain,
        default=default_storage_class,
        validate=validate_storage_class,
        validate_update=validate_storage_class_update,
    ),
    (GROUP, "VolumeAttributesClass"): Rules(
        name=names.dns_subdomain,
        validate=validate_attributes_class,
        validate_update=validate_attributes_class_update,
    ),
    (GROUP, "CSIDriver"): Rules(
        name=names.dns_subdomain,
        default=default_driver,
        prepare_update=count_driver_changes,
        validate=validate_driver,
        validate_update=validate_driver_update,
        unconditional_update=False,
    ),
    (GROUP, "CSINode"): Rules(
        name=names.dns_subdomain,
        default=default_node,
        validate=validate_node,
        unconditional_update=False,
    ),
    (GROUP, "VolumeAttachment"): Rules(
        name=names.dns_subdomain,
        default=default_attachment,
        prepare_create=prepare_attachment,
        prepare_update=keep_status,
        prepare_status=keep_spec,
        validate=validate_attachment,
        validate_update=validate_attachment_update,
        unconditional_update=False,
    ),
    (GROUP, "CSIStorageCapacity"): Rules(
        name=names.dns_subdomain,
        validate=validate_capacity,
        validate_update=validate_capacity_update,
        unconditional_update=False,
    ),
}
