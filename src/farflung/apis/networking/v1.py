"""Ingresses, network policies and addresses of services."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group, status
from farflung.apis.networking import printers

NETWORKING: Final = Group("networking.k8s.io", "v1", "io.k8s.api.networking.v1.")

RESOURCES: Final = (
    NETWORKING.stored("ingressclasses", "IngressClass", printer=printers.INGRESS_CLASSES, namespaced=False),
    NETWORKING.stored(
        "ingresses", "Ingress", printer=printers.INGRESSES, short_names=("ing",), subresources=(status("Ingress"),)
    ),
    NETWORKING.stored("ipaddresses", "IPAddress", printer=printers.IP_ADDRESSES, namespaced=False, short_names=("ip",)),
    NETWORKING.stored("networkpolicies", "NetworkPolicy", printer=printers.NETWORK_POLICIES, short_names=("netpol",)),
    NETWORKING.stored(
        "servicecidrs",
        "ServiceCIDR",
        printer=printers.SERVICE_CIDRS,
        namespaced=False,
        subresources=(status("ServiceCIDR"),),
    ),
)
