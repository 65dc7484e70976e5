"""Runtime classes."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group
from farflung.apis.node import printers

NODE: Final = Group("node.k8s.io", "v1", "io.k8s.api.node.v1.")

RESOURCES: Final = (NODE.stored("runtimeclasses", "RuntimeClass", printer=printers.RUNTIME_CLASSES, namespaced=False),)
