"""Endpoint slices."""

from __future__ import annotations

from typing import Final

from farflung.apis.discovery import printers
from farflung.apis.group import Group

DISCOVERY: Final = Group("discovery.k8s.io", "v1", "io.k8s.api.discovery.v1.")

RESOURCES: Final = (DISCOVERY.stored("endpointslices", "EndpointSlice", printer=printers.ENDPOINT_SLICES),)
