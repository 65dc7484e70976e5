"""StorageClasses, CSI objects and VolumeAttachments: resources, validation and printer columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from farflung.apis.printers import AGE, NAME, NOTHING, UNSET, PrinterRow, column, field, name_of, part, printer
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
from farflung.machinery.errors import Obj, field_forbidden, invalid_value, required, too_long

CLASS_DEFAULTS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
ATTRIBUTES_DEFAULT: Final = "volumeattributesclass.alpha.kubernetes.io/is-default-class"


def marked_name(*annotations: str) -> PrinterRow:
    """`standard (default)`"""

    def cell(obj: Obj, now: datetime) -> str:
        present = part(obj, "metadata", "annotations")
        return f"{name_of(obj)} (default)" if any(present.get(one) == "true" for one in annotations) else name_of(obj)

    return replace(NAME, cell=cell)


def audiences_text(requests: Sequence[Obj] | None) -> str:
    return UNSET if requests is None else ",".join(one.get("audience", "") for one in requests)


CSI_DRIVERS: Final = printer(
    "storage.v1.CSIDriver",
    NAME,
    field("AttachRequired", "spec.attachRequired", True, type="boolean"),
    field("PodInfoOnMount", "spec.podInfoOnMount", False, type="boolean"),
    field("StorageCapacity", "spec.storageCapacity", False, type="boolean"),
    field("TokenRequests", "spec.tokenRequests", None, audiences_text),
    field("RequiresRepublish", "spec.requiresRepublish", False, type="boolean"),
    field("Modes", "spec.volumeLifecycleModes", None, lambda modes: ",".join(modes or ()) or NOTHING),
    AGE,
)
CSI_NODES: Final = printer(
    "storage.v1.CSINode",
    NAME,
    column(
        "Drivers",
        "Drivers indicates the number of CSI drivers registered on the node",
        lambda node: len(part(node, "spec").get("drivers") or ()),
        type="integer",
    ),
    AGE,
)
CSI_STORAGE_CAPACITIES: Final = printer(
    "storage.v1.CSIStorageCapacity",
    NAME,
    field("StorageClassName", "storageClassName"),
    field("Capacity", "capacity", UNSET, str),
)
STORAGE_CLASSES: Final = printer(
    "storage.v1.StorageClass",
    marked_name(*CLASS_DEFAULTS),
    field("Provisioner", "provisioner"),
    field("ReclaimPolicy", "reclaimPolicy", "Delete"),
    field("VolumeBindingMode", "volumeBindingMode", "Immediate"),
    field("AllowVolumeExpansion", "allowVolumeExpansion", False),
    AGE,
)
VOLUME_ATTACHMENTS: Final = printer(
    "storage.v1.VolumeAttachment",
    NAME,
    field("Attacher", "spec.attacher", format="name"),
    field("PV", "spec.source.persistentVolumeName"),
    field("Node", "spec.nodeName"),
    field("Attached", "status.attached", False, type="boolean"),
    AGE,
)
VOLUME_ATTRIBUTES_CLASSES: Final = printer(
    "storage.v1.VolumeAttributesClass", marked_name(ATTRIBUTES_DEFAULT), field("DriverName", "driverName"), AGE
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

MAX_PARAMETERS: Final = 512
LARGEST_PARAMETERS: Final = 256 * 1024
DRIVER_NAME_LENGTH: Final = 63

# --- StorageClass, VolumeAttributesClass ----------------------------------------------------------


def check_parameters(parameters: Mapping[str, str], field: str, errors: Errors) -> None:
    if len(parameters) > MAX_PARAMETERS:
        errors.append(too_long(field, MAX_PARAMETERS))
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
    Required("provisioner", Format(lambda name: names.qualified_name(name.lower()))),
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
