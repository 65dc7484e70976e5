"""StorageClasses, CSI objects and VolumeAttachments: resources, validation and printer columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from farflung.apis.printers import NOTHING, UNSET, age_of, described, name_of, part
from farflung.apis.resource import Group, status
from farflung.apis.rows import (
    Always,
    Default,
    Defaults,
    Each,
    Enum,
    Format,
    Optional,
    Required,
    Unique,
    Validation,
    immutable,
    new_status,
)
from farflung.apis.validation import (
    IMMUTABLE,
    Errors,
    Rules,
    check_required_name,
    check_selector,
    keep_spec,
    keep_status,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import (
    Obj,
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

MOST_PARAMETERS: Final = 512
LARGEST_PARAMETERS: Final = 256 * 1024
DRIVER_NAME_LENGTH: Final = 63

# --- StorageClass, VolumeAttributesClass ----------------------------------------------------------


def check_provisioner(provisioner: str, field: str, errors: Errors) -> None:
    for message in names.qualified_name(provisioner.lower()):
        errors.append(invalid_value(field, provisioner, message))


def check_parameters(parameters: Mapping[str, str], field: str, errors: Errors) -> None:
    if len(parameters) > MOST_PARAMETERS:
        errors.append(too_long(field, MOST_PARAMETERS))
        return
    for key in parameters:
        if not key:
            errors.append(invalid_value(field, key, "field can not be empty."))
    if sum(names.size(key) + names.size(value) for key, value in parameters.items()) > LARGEST_PARAMETERS:
        errors.append(too_long(field, LARGEST_PARAMETERS))


def validate_storage_class_update(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    for member in ("parameters", "provisioner", "reclaimPolicy"):
        if (new.get(member) or None) != (old.get(member) or None):
            errors.append(field_forbidden(member, f"updates to {member} are forbidden."))
    return errors + immutable("volumeBindingMode")(new, old)


STORAGE_CLASS: Final = Validation(
    Required("provisioner", check_provisioner),
    Optional("parameters", check_parameters),
    Always("reclaimPolicy", Enum("Delete", "Retain")),
    Required("volumeBindingMode", Enum("Immediate", "WaitForFirstConsumer")),
)

# --- CSIDriver, CSINode ---------------------------------------------------------------------------


def check_driver_name(name: str, field: str, errors: Errors) -> None:
    if names.size(name) > DRIVER_NAME_LENGTH:
        errors.append(too_long(field, DRIVER_NAME_LENGTH))
    for message in names.dns_subdomain(name.lower()):
        errors.append(invalid_value(field, name, message))


ATTRIBUTES_CLASS: Final = Validation(
    Required("driverName", check_driver_name),
    Required("parameters", check_parameters, detail="must contain at least one key/value pair"),
)

DRIVER_MUTABLE: Final = (
    "podInfoOnMount", "storageCapacity", "fsGroupPolicy", "tokenRequests", "requiresRepublish", "seLinuxMount",
    "nodeAllocatableUpdatePeriodSeconds",
)  # fmt: skip

DRIVER_DEFAULTS: Final = Defaults(
    Default("spec.attachRequired", True),
    Default("spec.podInfoOnMount", False),
    Default("spec.storageCapacity", False),
    Default("spec.fsGroupPolicy", "ReadWriteOnceWithFSType"),
    Default("spec.requiresRepublish", False),
    Default("spec.seLinuxMount", False),
    Default("spec.volumeLifecycleModes", ["Persistent"], empty=True),
)
DRIVER: Final = Validation(
    Required("metadata.name", check_driver_name),
    Always("spec.fsGroupPolicy", Enum("File", "None", "ReadWriteOnceWithFSType")),
    Each("spec.volumeLifecycleModes", Enum("Ephemeral", "Persistent"), indexed=False),
)


def count_driver_changes(new: Obj, old: Obj) -> None:
    """A CSIDriver has no generation until one of its mutable fields changes."""
    after, before = spec_of(new), spec_of(old)
    if any(after.get(member) != before.get(member) for member in DRIVER_MUTABLE):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def default_node(obj: Obj) -> None:
    """Go writes a list without entries as null."""
    spec = obj.setdefault("spec", {})
    if not spec.get("drivers"):
        spec["drivers"] = None
    for driver in spec["drivers"] or ():
        if not driver.get("topologyKeys"):
            driver["topologyKeys"] = None


NODE: Final = Validation(
    Each(
        "spec.drivers",
        Required("name", check_driver_name),
        Required("nodeID"),
        Always("name", Unique()),
        Each("topologyKeys", Format(names.qualified_name), indexed=False),
    ),
)

# --- VolumeAttachment, CSIStorageCapacity ---------------------------------------------------------

ONE_SOURCE: Final = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def check_attachment_source(source: Obj, path: str, errors: Errors) -> None:
    inline, volume = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and volume is None:
        errors.append(required(path, ONE_SOURCE))
    elif inline is not None and volume is not None:
        errors.append(field_forbidden(path, ONE_SOURCE))
    elif volume is not None:
        check_required_name(names.dns_subdomain, volume, f"{path}.persistentVolumeName", errors)


ATTACHMENT: Final = Validation(
    Required("spec.attacher", Format(names.qualified_name)),
    Always("spec.source", check_attachment_source, zero={}),
    Required("spec.nodeName", Format(names.dns_subdomain)),
)


def validate_attachment_update(new: Obj, old: Obj) -> Errors:
    return [] if spec_of(new) == spec_of(old) else [invalid_value("spec", spec_of(new), IMMUTABLE)]


CAPACITY: Final = Validation(
    Optional("nodeTopology", check_selector),
    Required("storageClassName", Format(names.dns_subdomain)),
)


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (STORAGE.name, "StorageClass"): Rules(
        name=names.dns_subdomain,
        default=Defaults(
            Default("reclaimPolicy", "Delete", empty=True), Default("volumeBindingMode", "Immediate", empty=True)
        ),
        validate=STORAGE_CLASS,
        validate_update=validate_storage_class_update,
    ),
    (STORAGE.name, "VolumeAttributesClass"): Rules(
        name=names.dns_subdomain,
        validate=ATTRIBUTES_CLASS,
        validate_update=immutable("driverName", "parameters"),
    ),
    (STORAGE.name, "CSIDriver"): Rules(
        name=names.dns_subdomain,
        default=DRIVER_DEFAULTS,
        prepare_update=count_driver_changes,
        validate=DRIVER,
        validate_update=immutable("spec.attachRequired", "spec.volumeLifecycleModes"),
        unconditional_update=False,
    ),
    (STORAGE.name, "CSINode"): Rules(
        name=names.dns_subdomain,
        default=default_node,
        validate=NODE,
        unconditional_update=False,
    ),
    (STORAGE.name, "VolumeAttachment"): Rules(
        name=names.dns_subdomain,
        default=Defaults(Default("status", {"attached": False})),
        prepare_create=new_status({"attached": False}),
        prepare_update=keep_status,
        prepare_status=keep_spec,
        validate=ATTACHMENT,
        validate_update=validate_attachment_update,
        unconditional_update=False,
    ),
    (STORAGE.name, "CSIStorageCapacity"): Rules(
        name=names.dns_subdomain,
        validate=CAPACITY,
        validate_update=immutable("nodeTopology", "storageClassName"),
        unconditional_update=False,
    ),
}
