"""Leases."""

from __future__ import annotations

from typing import Final

from farflung.apis.coordination import printers
from farflung.apis.group import Group

COORDINATION: Final = Group("coordination.k8s.io", "v1", "io.k8s.api.coordination.v1.")

RESOURCES: Final = (COORDINATION.stored("leases", "Lease", printer=printers.LEASES),)
