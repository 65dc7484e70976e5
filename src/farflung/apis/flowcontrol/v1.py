"""Priority and fairness of requests: the objects, which change nothing here."""

from __future__ import annotations

from typing import Final

from farflung.apis.flowcontrol import printers
from farflung.apis.group import Group, status

FLOW_CONTROL: Final = Group("flowcontrol.apiserver.k8s.io", "v1", "io.k8s.api.flowcontrol.v1.")

RESOURCES: Final = (
    FLOW_CONTROL.stored(
        "flowschemas",
        "FlowSchema",
        printer=printers.FLOW_SCHEMAS,
        namespaced=False,
        subresources=(status("FlowSchema"),),
    ),
    FLOW_CONTROL.stored(
        "prioritylevelconfigurations",
        "PriorityLevelConfiguration",
        printer=printers.PRIORITY_LEVELS,
        namespaced=False,
        subresources=(status("PriorityLevelConfiguration"),),
    ),
)
