"""Runtime classes."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group

NODE: Final = Group("node.k8s.io", "v1", "io.k8s.api.node.v1.")

RESOURCES: Final = (NODE.stored("runtimeclasses", "RuntimeClass", namespaced=False),)
