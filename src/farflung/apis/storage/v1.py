"""Storage classes, CSI drivers and attachments."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group, status
from farflung.apis.storage import printers

STORAGE: Final = Group("storage.k8s.io", "v1", "io.k8s.api.storage.v1.")

RESOURCES: Final = (
    STORAGE.stored("csidrivers", "CSIDriver", printer=printers.CSI_DRIVERS, namespaced=False),
    STORAGE.stored("csinodes", "CSINode", printer=printers.CSI_NODES, namespaced=False),
    STORAGE.stored("csistoragecapacities", "CSIStorageCapacity", printer=printers.CSI_STORAGE_CAPACITIES),
    STORAGE.stored(
        "storageclasses", "StorageClass", printer=printers.STORAGE_CLASSES, namespaced=False, short_names=("sc",)
    ),
    STORAGE.stored(
        "volumeattachments",
        "VolumeAttachment",
        printer=printers.VOLUME_ATTACHMENTS,
        namespaced=False,
        subresources=(status("VolumeAttachment"),),
    ),
    STORAGE.stored(
        "volumeattributesclasses",
        "VolumeAttributesClass",
        printer=printers.VOLUME_ATTRIBUTES_CLASSES,
        namespaced=False,
        short_names=("vac",),
    ),
)
