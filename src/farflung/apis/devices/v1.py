"""Devices that pods claim: the `resource.k8s.io` group."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group, status, text

DEVICES: Final = Group("resource.k8s.io", "v1", "io.k8s.api.resource.v1.")

RESOURCES: Final = (
    DEVICES.stored("deviceclasses", "DeviceClass", namespaced=False),
    DEVICES.stored("resourceclaims", "ResourceClaim", subresources=(status("ResourceClaim"),)),
    DEVICES.stored("resourceclaimtemplates", "ResourceClaimTemplate"),
    DEVICES.stored(
        "resourceslices",
        "ResourceSlice",
        namespaced=False,
        selectable={"spec.nodeName": text("spec", "nodeName"), "spec.driver": text("spec", "driver")},
    ),
)
