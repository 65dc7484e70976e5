"""Storage classes, CSI drivers and attachments."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group, status

STORAGE: Final = Group("storage.k8s.io", "v1", "io.k8s.api.storage.v1.")

RESOURCES: Final = (
    STORAGE.stored("csidrivers", "CSIDriver", namespaced=False),
    STORAGE.stored("csinodes", "CSINode", namespaced=False),
    STORAGE.stored("csistoragecapacities", "CSIStorageCapacity"),
    STORAGE.stored("storageclasses", "StorageClass", namespaced=False, short_names=("sc",)),
    STORAGE.stored(
        "volumeattachments", "VolumeAttachment", namespaced=False, subresources=(status("VolumeAttachment"),)
    ),
    STORAGE.stored("volumeattributesclasses", "VolumeAttributesClass", namespaced=False, short_names=("vac",)),
)
