"""Ingresses, NetworkPolicies, IPAddresses and ServiceCIDRs: resources and printer columns."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.printers import NOTHING, age_of, described, load_balancer_text, name_of, part, selector_text
from farflung.apis.resource import Group, status
from farflung.machinery.errors import Obj, qualified
from farflung.machinery.table import AGE, NAME, Column, Printer

SHOWN_HOSTS: Final = 3


def ingress_class_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = part(obj, "spec")
    parameters = spec.get("parameters")
    return [
        name_of(obj),
        spec.get("controller", ""),
        parameters_text(parameters) if parameters else NOTHING,
        age_of(obj, now),
    ]


def parameters_text(parameters: Obj) -> str:
    kind = qualified(parameters.get("kind", ""), parameters.get("apiGroup") or "")
    return f"{kind}/{parameters.get('name', '')}"


INGRESS_CLASSES: Final = Printer(
    (
        NAME,
        Column("Controller", description="Controller that is responsible for handling this class"),
        Column("Parameters", description="A reference to a resource with additional parameters"),
        AGE,
    ),
    ingress_class_cells,
)


def ingress_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        spec.get("ingressClassName", NOTHING),
        hosts_text(spec.get("rules") or []),
        load_balancer_text(part(obj, "status")),
        "80, 443" if spec.get("tls") else "80",
        age_of(obj, now),
    ]


def hosts_text(rules: list[Obj]) -> str:
    """The first hosts, and the number of further rules, with or without host."""
    shown: list[str] = []
    for rule in rules:
        if len(shown) == SHOWN_HOSTS:
            return f"{','.join(shown)} + {len(rules) - SHOWN_HOSTS} more..."
        if rule.get("host"):
            shown.append(rule["host"])
    return ",".join(shown) or "*"


INGRESSES: Final = Printer(
    (
        NAME,
        Column(
            "Class",
            description="The name of the IngressClass resource that should be used for additional configuration",
        ),
        Column("Hosts", description="Hosts that incoming requests are matched against before the ingress rule"),
        Column("Address", description="Address is a list containing ingress points for the load-balancer"),
        Column("Ports", description="Ports of TLS configurations that open"),
        AGE,
    ),
    ingress_cells,
)


def address_cells(obj: Obj, now: datetime) -> list[Any]:
    parent = part(obj, "spec").get("parentRef")
    return [name_of(obj), parent_text(parent) if parent else NOTHING]


def parent_text(parent: Obj) -> str:
    resource = qualified(parent.get("resource", ""), parent.get("group", "")).lower()
    return "/".join(filter(None, (resource, parent.get("namespace"), parent.get("name", ""))))


IP_ADDRESSES: Final = Printer((NAME, described("ParentRef", "networking.v1.IPAddressSpec.parentRef")), address_cells)


def network_policy_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), selector_text(part(obj, "spec", "podSelector")), age_of(obj, now)]


NETWORK_POLICIES: Final = Printer(
    (NAME, described("Pod-Selector", "networking.v1.NetworkPolicySpec.podSelector"), AGE), network_policy_cells
)


def service_range_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), ",".join(part(obj, "spec").get("cidrs") or ()), age_of(obj, now)]


SERVICE_CIDRS: Final = Printer(
    (NAME, described("CIDRs", "networking.v1.ServiceCIDRSpec.cidrs"), AGE), service_range_cells
)


# --- Ingresses, network policies and addresses of services ----------------------------------------

NETWORKING: Final = Group("networking.k8s.io", "v1", "io.k8s.api.networking.v1.")

RESOURCES: Final = (
    NETWORKING.stored("ingressclasses", "IngressClass", printer=INGRESS_CLASSES, namespaced=False),
    NETWORKING.stored(
        "ingresses", "Ingress", printer=INGRESSES, short_names=("ing",), subresources=(status("Ingress"),)
    ),
    NETWORKING.stored("ipaddresses", "IPAddress", printer=IP_ADDRESSES, namespaced=False, short_names=("ip",)),
    NETWORKING.stored("networkpolicies", "NetworkPolicy", printer=NETWORK_POLICIES, short_names=("netpol",)),
    NETWORKING.stored(
        "servicecidrs",
        "ServiceCIDR",
        printer=SERVICE_CIDRS,
        namespaced=False,
        subresources=(status("ServiceCIDR"),),
    ),
)
