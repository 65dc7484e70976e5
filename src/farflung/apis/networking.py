"""Ingresses, IngressClasses, NetworkPolicies, IPAddresses, ServiceCIDRs: resources, validation and printer columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from farflung.apis.printers import AGE, NAME, NOTHING, column, field, load_balancer_text, part, printer, selector_text
from farflung.apis.resource import Group, status
from farflung.apis.rows import (
    ITSELF,
    Always,
    Check,
    Default,
    Defaults,
    Each,
    Enum,
    ForbiddenField,
    Format,
    IfAbsent,
    IfPresent,
    InvalidIf,
    Optional,
    Pointer,
    Required,
    RequiredPointer,
    Struct,
    Table,
    Unless,
    Validation,
    When,
    immutable,
    new_status,
)
from farflung.apis.validation import (
    NO_ADDRESS,
    PROTOCOLS,
    Errors,
    Rules,
    check_address,
    check_domain_path,
    check_network,
    check_port,
    check_selector,
    check_supported,
    is_ipv6,
    keep_spec,
    keep_status,
    parse_address,
    parse_network,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import Obj, field_forbidden, invalid_value, qualified, required

SHOWN_HOSTS: Final = 3


def parameters_text(ingress_class: Obj) -> str:
    parameters = part(ingress_class, "spec").get("parameters")
    if not parameters:
        return NOTHING
    kind = qualified(parameters.get("kind", ""), parameters.get("apiGroup") or "")
    return f"{kind}/{parameters.get('name', '')}"


def hosts_text(ingress: Obj) -> str:
    """The first hosts, and the number of further rules, with or without host."""
    rules = part(ingress, "spec").get("rules") or []
    shown: list[str] = []
    for rule in rules:
        if len(shown) == SHOWN_HOSTS:
            return f"{','.join(shown)} + {len(rules) - SHOWN_HOSTS} more..."
        if rule.get("host"):
            shown.append(rule["host"])
    return ",".join(shown) or "*"


def parent_text(parent: Obj | None) -> str:
    if not parent:
        return NOTHING
    resource = qualified(parent.get("resource", ""), parent.get("group", "")).lower()
    return "/".join(filter(None, (resource, parent.get("namespace"), parent.get("name", ""))))


INGRESS_CLASSES: Final = printer(
    "networking.v1.IngressClass",
    NAME,
    field("Controller", "spec.controller", description="Controller that is responsible for handling this class"),
    column("Parameters", "A reference to a resource with additional parameters", parameters_text),
    AGE,
)
INGRESSES: Final = printer(
    "networking.v1.Ingress",
    NAME,
    field(
        "Class",
        "spec.ingressClassName",
        NOTHING,
        description="The name of the IngressClass resource that should be used for additional configuration",
    ),
    column("Hosts", "Hosts that incoming requests are matched against before the ingress rule", hosts_text),
    column("Address", "Address is a list containing ingress points for the load-balancer", load_balancer_text),
    column(
        "Ports",
        "Ports of TLS configurations that open",
        lambda obj: "80, 443" if part(obj, "spec").get("tls") else "80",
    ),
    AGE,
)
IP_ADDRESSES: Final = printer("networking.v1.IPAddress", NAME, field("ParentRef", "spec.parentRef", None, parent_text))
NETWORK_POLICIES: Final = printer(
    "networking.v1.NetworkPolicy", NAME, field("Pod-Selector", "spec.podSelector", None, selector_text), AGE
)
SERVICE_CIDRS: Final = printer(
    "networking.v1.ServiceCIDR", NAME, field("CIDRs", "spec.cidrs", None, lambda found: ",".join(found or ())), AGE
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


CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
LONGEST_CONTROLLER: Final = 250
BAD_SEQUENCES: Final = ("//", "/./", "/../", "%2f", "%2F")
BAD_SUFFIXES: Final = ("/..", "/.")


# --- Ingress --------------------------------------------------------------------------------------


def _wrong_host(host: str) -> Sequence[str]:
    return names.wildcard_subdomain(host) if "*" in host else names.dns_subdomain(host)


HOST: Final = Format(_wrong_host)
NO_ADDRESS_HOST: Final = InvalidIf(
    lambda host: parse_address(host) is not None, "must be a DNS name, not an IP address"
)


def _check_traversal(text: str, field: str, errors: Errors) -> None:
    for sequence in BAD_SEQUENCES:
        if sequence in text:
            errors.append(invalid_value(field, text, f"must not contain '{sequence}'"))
    for suffix in BAD_SUFFIXES:
        if text.endswith(suffix):
            errors.append(invalid_value(field, text, f"cannot end with '{suffix}'"))


def _check_service_port(service: Obj, path: str, errors: Errors) -> None:
    port = service.get("port") or {}
    name, number = port.get("name", ""), port.get("number", 0)
    if name and number:
        errors.append(invalid_value(path, "", "cannot set both port name & port number"))
    elif name:
        check_port(name, f"{path}.service.port.name", errors)
    elif number:
        check_port(number, f"{path}.service.port.number", errors)
    else:
        errors.append(required(path, "port name or number is required"))


def _refuse_both(backend: Obj, path: str, errors: Errors) -> None:
    errors.append(invalid_value(path, "", "cannot set both resource and service backends"))


def _refuse_none(backend: Obj, path: str, errors: Errors) -> None:
    errors.append(invalid_value(path, "", "resource or service backend is required"))


REFERENCE: Final = Table(
    Pointer("apiGroup", Format(names.dns_subdomain)),
    Required("kind", Format(names.path_segment), detail="kind is required"),
    Required("name", Format(names.path_segment), detail="name is required"),
)
BACKEND: Final = Table(
    IfPresent(
        "resource", IfPresent("service", Check(_refuse_both)), IfAbsent("service", Struct("resource", REFERENCE))
    ),
    IfAbsent(
        "resource",
        IfPresent(
            "service",
            Required("service.name", Format(names.dns_1035_label)),
            Pointer("service", _check_service_port, named=ITSELF),
        ),
        IfAbsent("service", Check(_refuse_none)),
    ),
)
ABSOLUTE: Final = InvalidIf("not {v}.startswith('/')", "must be an absolute path")
PATH: Final = Table(
    RequiredPointer("pathType", Enum("Exact", "ImplementationSpecific", "Prefix"), detail="pathType must be specified"),
    When("pathType", "ImplementationSpecific", Optional("path", ABSOLUTE)),
    When("pathType", ("Exact", "Prefix"), Always("path", ABSOLUTE, _check_traversal)),
    IfPresent("pathType", Always("backend", BACKEND, zero={})),
)


def _check_any_backend(spec: Obj, path: str, errors: Errors) -> None:
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        why = "either `defaultBackend` or `rules` must be specified"
        errors.append(invalid_value(path, spec.get("rules"), why))


def _check_class_annotation(ingress: Obj, path: str, errors: Errors) -> None:
    annotated = ((ingress.get("metadata") or {}).get("annotations") or {}).get(CLASS_ANNOTATION)
    class_name = spec_of(ingress).get("ingressClassName")
    if annotated is not None and class_name is not None and annotated != class_name:
        why = "must match `ingressClassName` when both are specified"
        errors.append(invalid_value(f"annotations.{CLASS_ANNOTATION}", annotated, why))


INGRESS_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=Defaults(Default("spec", {}), Default("status.loadBalancer", {})),
    prepare_create=new_status({"loadBalancer": {}}),
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=Validation(
        Always("spec", _check_any_backend, zero={}),
        Struct("spec.defaultBackend", BACKEND),
        Each(
            "spec.rules",
            Optional("host", NO_ADDRESS_HOST, HOST),
            IfPresent("http", Required("http.paths"), Each("http.paths", PATH)),
        ),
        Each("spec.tls", Each("hosts", HOST), Optional("secretName", Format(names.dns_subdomain))),
        Pointer("spec.ingressClassName", Format(names.dns_subdomain)),
    ),
    validate_create=Validation(Check(_check_class_annotation)),
    validate_status=Validation(
        Each(
            "status.loadBalancer.ingress",
            Optional("ip", check_address),
            Optional("hostname", Format(names.dns_subdomain), NO_ADDRESS_HOST),
        )
    ),
    generation=True,
)


# --- IngressClass ---------------------------------------------------------------------------------

INGRESS_CLASS_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=Defaults(Default("spec", {}), Struct("spec.parameters", Default("scope", "Cluster"))),
    validate=Validation(
        Always("spec.controller", partial(check_domain_path, longest=LONGEST_CONTROLLER)),
        Struct(
            "spec.parameters",
            REFERENCE,
            Required("scope", Enum("Cluster", "Namespace")),
            When(
                "scope",
                "Namespace",
                Required("namespace", Format(names.dns_label), detail="`parameters.scope` is set to 'Namespace'"),
            ),
            Unless(
                "scope",
                ("", "Namespace"),
                Pointer("namespace", ForbiddenField("`parameters.scope` is set to 'Cluster'")),
            ),
        ),
    ),
    validate_update=immutable("spec.controller", zero=""),
    generation=True,
)


# --- NetworkPolicy --------------------------------------------------------------------------------


def _default_policy_types(spec: Obj) -> None:
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _check_end_port(port: Obj, path: str, errors: Errors) -> None:
    number, end = port["port"], port["endPort"]
    if isinstance(number, str):
        errors.append(invalid_value(f"{path}.endPort", end, "may not be specified when `port` is non-numeric"))
        return
    if end < number:
        errors.append(invalid_value(f"{path}.endPort", end, "must be greater than or equal to `port`"))
    check_port(end, f"{path}.endPort", errors)


def _check_one_peer(peer: Obj, path: str, errors: Errors) -> None:
    selects_pods = peer.get("podSelector") is not None or peer.get("namespaceSelector") is not None
    if peer.get("ipBlock") is None:
        if not selects_pods:
            errors.append(required(path, "must specify a peer"))
    elif selects_pods:
        errors.append(field_forbidden(path, "may not specify both ipBlock and another peer"))


def _check_exceptions(block: Obj, path: str, errors: Errors) -> None:
    outer = parse_network(block.get("cidr", ""))
    if outer is None:
        return
    for at, text in enumerate(block.get("except") or ()):
        field, inner = f"{path}.except[{at}]", parse_network(text)
        if inner is None:
            check_network(text, field, errors)
            continue
        inside = inner.version == outer.version and inner.network_address in outer
        if not inside or inner.prefixlen <= outer.prefixlen:
            errors.append(invalid_value(field, text, "must be a strict subset of `cidr`"))


def _check_policy_types(types: Sequence[str], field: str, errors: Errors) -> None:
    if len(types) > 2:
        errors.append(invalid_value(field, types, "may not specify more than two policyTypes"))
    else:
        for type_ in types:
            check_supported(type_, ("Egress", "Ingress"), field, errors)


PORTS: Final = Each(
    "ports",
    Pointer("protocol", Enum(*PROTOCOLS)),
    IfAbsent(
        "port", IfPresent("endPort", RequiredPointer("port", detail="must be specified when `endPort` is specified"))
    ),
    IfPresent("port", Always("port", check_port), IfPresent("endPort", Check(_check_end_port))),
)
PEER: Final = Table(
    Optional("podSelector", check_selector),
    Optional("namespaceSelector", check_selector),
    Struct("ipBlock", Required("cidr", check_network), _check_exceptions),
    Check(_check_one_peer),
)
NETWORK_POLICY_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=Defaults(
        Default("spec.podSelector", {}),
        *(Each(f"spec.{way}", Each("ports", Default("protocol", "TCP"))) for way in ("ingress", "egress")),
        Struct("spec", _default_policy_types),
    ),
    validate=Validation(
        Optional("spec.podSelector", check_selector),
        Each("spec.ingress", PORTS, Each("from", PEER)),
        Each("spec.egress", PORTS, Each("to", PEER)),
        Optional("spec.policyTypes", _check_policy_types),
    ),
    generation=True,
)


# --- IPAddresses and ServiceCIDRs -----------------------------------------------------------------


def address_name(text: str) -> Sequence[str]:
    return () if parse_address(text) is not None else (NO_ADDRESS,)


def _check_networks(spec: Obj, path: str, errors: Errors) -> None:
    networks = spec.get("cidrs") or ()
    if not networks:
        errors.append(required(f"{path}.cidrs", "at least one CIDR required"))
    elif len(networks) > 2:
        errors.append(invalid_value(path, networks, "may only hold up to 2 values"))
    for index, network in enumerate(networks[:2]):
        check_network(network, f"{path}.cidrs[{index}]", errors)
    if len(networks) == 2 and not errors:
        first, second = (is_ipv6(network.partition("/")[0]) for network in networks)
        if first == second:
            detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
            errors.append(invalid_value(path, networks, detail))


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (NETWORKING.name, "Ingress"): INGRESS_RULES,
    (NETWORKING.name, "IngressClass"): INGRESS_CLASS_RULES,
    (NETWORKING.name, "NetworkPolicy"): NETWORK_POLICY_RULES,
    (NETWORKING.name, "IPAddress"): Rules(
        name=address_name,
        validate=Validation(
            RequiredPointer(
                "spec.parentRef",
                Required("resource", Format(names.path_segment)),
                Required("name", Format(names.path_segment)),
            )
        ),
        validate_update=immutable("spec.parentRef"),
    ),
    (NETWORKING.name, "ServiceCIDR"): Rules(
        name=names.dns_subdomain,
        default=Defaults(Default("spec", {}), Default("status", {})),
        prepare_create=new_status({}),
        prepare_update=keep_status,
        prepare_status=keep_spec,
        validate=Validation(Always("spec", _check_networks, zero={})),
        validate_update=immutable("spec.cidrs"),
    ),
}
