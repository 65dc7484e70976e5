"""Priority classes."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group
from farflung.apis.scheduling import printers

SCHEDULING: Final = Group("scheduling.k8s.io", "v1", "io.k8s.api.scheduling.v1.")

RESOURCES: Final = (
    SCHEDULING.stored(
        "priorityclasses", "PriorityClass", printer=printers.PRIORITY_CLASSES, namespaced=False, short_names=("pc",)
    ),
)
