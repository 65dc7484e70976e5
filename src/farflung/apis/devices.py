"""Dynamic resource allocation (resource.k8s.io): resources and printer columns."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.printers import age_of, deleting, described, name_of, part
from farflung.apis.resource import Group, status, text
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Column, Printer


def age_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), age_of(obj, now)]


NAMES_AND_AGES: Final = Printer((NAME, AGE), age_cells)


def claim_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), claim_state(obj), age_of(obj, now)]


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


RESOURCE_CLAIMS: Final = Printer(
    (NAME, Column("State", description="A summary of the current state (allocated, pending, reserved, etc.)."), AGE),
    claim_cells,
)


def slice_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        spec.get("nodeName", ""),
        spec.get("driver", ""),
        part(spec, "pool").get("name", ""),
        age_of(obj, now),
    ]


RESOURCE_SLICES: Final = Printer(
    (
        NAME,
        described("Node", "resource.v1.ResourceSliceSpec.nodeName"),
        described("Driver", "resource.v1.ResourceSliceSpec.driver"),
        described("Pool", "resource.v1.ResourcePool.name"),
        AGE,
    ),
    slice_cells,
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
