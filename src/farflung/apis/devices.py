"""Dynamic resource allocation (resource.k8s.io): resources and printer columns."""

from __future__ import annotations

from typing import Final

from farflung.apis.printers import AGE, NAME, column, deleting, field, part, printer
from farflung.apis.resource import Group, status, text
from farflung.machinery.errors import Obj


def claim_state(claim: Obj) -> str:
    status = part(claim, "status")
    states = ["deleted"] if deleting(claim) else []
    if status.get("allocation") is not None:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    elif not states:
        states.append("pending")
    return ",".join(states)


NAMES_AND_AGES: Final = printer("resource.v1.DeviceClass", NAME, AGE)
RESOURCE_CLAIMS: Final = printer(
    "resource.v1.ResourceClaim",
    NAME,
    column("State", "A summary of the current state (allocated, pending, reserved, etc.).", claim_state),
    AGE,
)
RESOURCE_SLICES: Final = printer(
    "resource.v1.ResourceSlice",
    NAME,
    field("Node", "spec.nodeName"),
    field("Driver", "spec.driver"),
    field("Pool", "spec.pool.name"),
    AGE,
)


# --- Devices that pods claim: the `resource.k8s.io` group -----------------------------------------

DEVICES: Final = Group("resource.k8s.io", "v1", "io.k8s.api.resource.v1.")

RESOURCES: Final = (
    DEVICES.stored("deviceclasses", "DeviceClass", printer=NAMES_AND_AGES, namespaced=False),
    DEVICES.stored("resourceclaims", "ResourceClaim", printer=RESOURCE_CLAIMS, subresources=(status("ResourceClaim"),)),
    DEVICES.stored("resourceclaimtemplates", "ResourceClaimTemplate", printer=NAMES_AND_AGES),
    DEVICES.stored(
        "resourceslices",
        "ResourceSlice",
        printer=RESOURCE_SLICES,
        namespaced=False,
        selectable={"spec.nodeName": text("spec", "nodeName"), "spec.driver": text("spec", "driver")},
    ),
)
