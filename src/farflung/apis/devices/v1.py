"""Devices that pods claim: the `resource.k8s.io` group."""

from __future__ import annotations

from typing import Final

from farflung.apis.devices import printers
from farflung.apis.group import Group, status, text

DEVICES: Final = Group("resource.k8s.io", "v1", "io.k8s.api.resource.v1.")

RESOURCES: Final = (
    DEVICES.stored("deviceclasses", "DeviceClass", printer=printers.NAMES_AND_AGES, namespaced=False),
    DEVICES.stored(
        "resourceclaims", "ResourceClaim", printer=printers.RESOURCE_CLAIMS, subresources=(status("ResourceClaim"),)
    ),
    DEVICES.stored("resourceclaimtemplates", "ResourceClaimTemplate", printer=printers.NAMES_AND_AGES),
    DEVICES.stored(
        "resourceslices",
        "ResourceSlice",
        printer=printers.RESOURCE_SLICES,
        namespaced=False,
        selectable={"spec.nodeName": text("spec", "nodeName"), "spec.driver": text("spec", "driver")},
    ),
)
