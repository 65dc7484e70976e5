"""Ingresses, network policies and addresses of services."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group, status

NETWORKING: Final = Group("networking.k8s.io", "v1", "io.k8s.api.networking.v1.")

RESOURCES: Final = (
    NETWORKING.stored("ingressclasses", "IngressClass", namespaced=False),
    NETWORKING.stored("ingresses", "Ingress", short_names=("ing",), subresources=(status("Ingress"),)),
    NETWORKING.stored("ipaddresses", "IPAddress", namespaced=False, short_names=("ip",)),
    NETWORKING.stored("networkpolicies", "NetworkPolicy", short_names=("netpol",)),
    NETWORKING.stored("servicecidrs", "ServiceCIDR", namespaced=False, subresources=(status("ServiceCIDR"),)),
)
