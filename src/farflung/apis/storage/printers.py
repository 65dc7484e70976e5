"""What `kubectl get` shows of storage."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.printing import NOTHING, UNSET, age_of, described, name_of, part
from farflung.machinery.errors import Obj
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
