"""Defaults and validation of Ingresses, IngressClasses and NetworkPolicies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from farflung.apis.rows import Default, Defaults, Struct
from farflung.apis.validation import (
    PROTOCOLS,
    Errors,
    Rules,
    check_address,
    check_domain_path,
    check_immutable,
    check_name,
    check_network,
    check_port,
    check_present,
    check_required_name,
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
from farflung.machinery.errors import FieldError, Obj, field_forbidden, invalid_value, not_supported, required

CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
LONGEST_CONTROLLER: Final = 250
PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
BAD_SEQUENCES: Final = ("//", "/./", "/../", "%2f", "%2F")
BAD_SUFFIXES: Final = ("/..", "/.")
NOT_AN_ADDRESS: Final = "must be a DNS name, not an IP address"


# --- Ingress --------------------------------------------------------------------------------------


def _default_ingress(ingress: Obj) -> None:
    ingress.setdefault("spec", {})
    ingress.setdefault("status", {}).setdefault("loadBalancer", {})


def _prepare_ingress(ingress: Obj) -> None:
    ingress["status"] = {"loadBalancer": {}}


def _validate_ingress(ingress: Obj) -> Errors:
    errors: Errors = []
    spec = spec_of(ingress)
    rules, backend = spec.get("rules") or [], spec.get("defaultBackend")
    if not rules and backend is None:
        why = "either `defaultBackend` or `rules` must be specified"
        errors.append(invalid_value("spec", spec.get("rules"), why))
    if backend is not None:
        _check_backend(backend, "spec.defaultBackend", errors)
    for at, rule in enumerate(rules):
        _check_rule(rule, f"spec.rules[{at}]", errors)
    for at, tls in enumerate(spec.get("tls") or ()):
        _check_tls(tls, f"spec.tls[{at}]", errors)
    if (class_name := spec.get("ingressClassName")) is not None:
        check_name(names.dns_subdomain, class_name, "spec.ingressClassName", errors)
    return errors


def _check_tls(tls: Obj, path: str, errors: Errors) -> None:
    for at, host in enumerate(tls.get("hosts") or ()):
        check_name(_host_check(host), host, f"{path}.hosts[{at}]", errors)
    if secret := tls.get("secretName"):
        check_name(names.dns_subdomain, secret, f"{path}.secretName", errors)


def _host_check(host: str) -> names.Check:
    return names.wildcard_subdomain if "*" in host else names.dns_subdomain


def _check_rule(rule: Obj, path: str, errors: Errors) -> None:
    if host := rule.get("host"):
        if parse_address(host) is not None:
            errors.append(invalid_value(f"{path}.host", host, NOT_AN_ADDRESS))
        check_name(_host_check(host), host, f"{path}.host", errors)
    if (http := rule.get("http")) is None:
        return
    paths = http.get("paths") or ()
    if not paths:
        errors.append(required(f"{path}.http.paths"))
    for at, entry in enumerate(paths):
        _check_path(entry, f"{path}.http.paths[{at}]", errors)


def _check_path(entry: Obj, path: str, errors: Errors) -> None:
    type_, text = entry.get("pathType"), entry.get("path", "")
    if type_ is None:
        errors.append(required(f"{path}.pathType", "pathType must be specified"))
        return
    if type_ not in PATH_TYPES:
        errors.append(not_supported(f"{path}.pathType", type_, PATH_TYPES))
    elif not text.startswith("/") and (text or type_ != "ImplementationSpecific"):
        errors.append(invalid_value(f"{path}.path", text, "must be an absolute path"))
    if type_ in ("Exact", "Prefix"):
        for sequence in BAD_SEQUENCES:
            if sequence in text:
                errors.append(invalid_value(f"{path}.path", text, f"must not contain '{sequence}'"))
        for suffix in BAD_SUFFIXES:
            if text.endswith(suffix):
                errors.append(invalid_value(f"{path}.path", text, f"cannot end with '{suffix}'"))
    _check_backend(entry.get("backend") or {}, f"{path}.backend", errors)


def _check_backend(backend: Obj, path: str, errors: Errors) -> None:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        errors.append(invalid_value(path, "", "cannot set both resource and service backends"))
    elif resource is not None:
        _check_backend_resource(resource, f"{path}.resource", errors)
    elif service is not None:
        _check_backend_service(service, path, errors)
    else:
        errors.append(invalid_value(path, "", "resource or service backend is required"))


def _check_backend_resource(resource: Obj, path: str, errors: Errors) -> None:
    if (group := resource.get("apiGroup")) is not None:
        check_name(names.dns_subdomain, group, f"{path}.apiGroup", errors)
    for member in ("kind", "name"):
        if not resource.get(member):
            errors.append(required(f"{path}.{member}", f"{member} is required"))
        else:
            check_name(names.path_segment, resource[member], f"{path}.{member}", errors)


def _check_backend_service(service: Obj, path: str, errors: Errors) -> None:
    check_required_name(names.dns_1035_label, service.get("name", ""), f"{path}.service.name", errors)
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


def _validate_ingress_create(ingress: Obj) -> Errors:
    annotated = ((ingress.get("metadata") or {}).get("annotations") or {}).get(CLASS_ANNOTATION)
    class_name = spec_of(ingress).get("ingressClassName")
    if annotated is None or class_name is None or annotated == class_name:
        return []
    why = "must match `ingressClassName` when both are specified"
    return [invalid_value(f"annotations.{CLASS_ANNOTATION}", annotated, why)]


def _validate_ingress_status(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    balancer = (new.get("status") or {}).get("loadBalancer") or {}
    for at, ingress in enumerate(balancer.get("ingress") or ()):
        path, host = f"status.loadBalancer.ingress[{at}]", ingress.get("hostname", "")
        if ingress.get("ip"):
            check_address(ingress["ip"], f"{path}.ip", errors)
        if host:
            check_name(names.dns_subdomain, host, f"{path}.hostname", errors)
            if parse_address(host) is not None:
                errors.append(invalid_value(f"{path}.hostname", host, NOT_AN_ADDRESS))
    return errors


INGRESS_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=_default_ingress,
    prepare_create=_prepare_ingress,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=_validate_ingress,
    validate_create=_validate_ingress_create,
    validate_status=_validate_ingress_status,
    generation=True,
)


# --- IngressClass ---------------------------------------------------------------------------------


def _validate_ingress_class(ingress_class: Obj) -> Errors:
    errors: Errors = []
    spec = spec_of(ingress_class)
    check_domain_path(spec.get("controller", ""), "spec.controller", errors, longest=LONGEST_CONTROLLER)
    if (parameters := spec.get("parameters")) is not None:
        _check_parameters(parameters, "spec.parameters", errors)
    return errors


def _check_parameters(parameters: Obj, path: str, errors: Errors) -> None:
    _check_backend_resource(parameters, path, errors)
    scope, namespace = parameters.get("scope", ""), parameters.get("namespace")
    if not scope:
        errors.append(required(f"{path}.scope"))
        return
    check_supported(scope, ("Cluster", "Namespace"), f"{path}.scope", errors)
    if scope == "Namespace":
        if not namespace:
            errors.append(required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'"))
        else:
            check_name(names.dns_label, namespace, f"{path}.namespace", errors)
    elif namespace is not None:
        errors.append(field_forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'"))


def _validate_ingress_class_update(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    check_immutable(spec_of(new).get("controller", ""), spec_of(old).get("controller", ""), "spec.controller", errors)
    return errors


INGRESS_CLASS_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=Defaults(Default("spec", {}), Struct("spec.parameters", Default("scope", "Cluster"))),
    validate=_validate_ingress_class,
    validate_update=_validate_ingress_class_update,
    generation=True,
)


# --- NetworkPolicy --------------------------------------------------------------------------------


def _default_network_policy(policy: Obj) -> None:
    spec = policy.setdefault("spec", {})
    spec.setdefault("podSelector", {})
    for direction in ("ingress", "egress"):
        for rule in spec.get(direction) or ():
            for port in rule.get("ports") or ():
                port.setdefault("protocol", "TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _validate_network_policy(policy: Obj) -> Errors:
    errors: Errors = []
    spec = spec_of(policy)
    check_selector(spec.get("podSelector"), "spec.podSelector", errors)
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for at, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{at}]"
            for index, port in enumerate(rule.get("ports") or ()):
                _check_policy_port(port, f"{path}.ports[{index}]", errors)
            for index, peer in enumerate(rule.get(peers) or ()):
                _check_peer(peer, f"{path}.{peers}[{index}]", errors)
    types = spec.get("policyTypes") or ()
    if len(types) > 2:
        errors.append(invalid_value("spec.policyTypes", types, "may not specify more than two policyTypes"))
    else:
        for type_ in types:
            check_supported(type_, ("Egress", "Ingress"), "spec.policyTypes", errors)
    return errors


def _check_policy_port(port: Obj, path: str, errors: Errors) -> None:
    if (protocol := port.get("protocol")) is not None:
        check_supported(protocol, PROTOCOLS, f"{path}.protocol", errors)
    number, end = port.get("port"), port.get("endPort")
    if number is None:
        if end is not None:
            errors.append(required(f"{path}.port", "must be specified when `endPort` is specified"))
        return
    check_port(number, f"{path}.port", errors)
    if end is None:
        return
    if isinstance(number, str):
        errors.append(invalid_value(f"{path}.endPort", end, "may not be specified when `port` is non-numeric"))
        return
    if end < number:
        errors.append(invalid_value(f"{path}.endPort", end, "must be greater than or equal to `port`"))
    check_port(end, f"{path}.endPort", errors)


def _check_peer(peer: Obj, path: str, errors: Errors) -> None:
    pods, namespaces, block = (peer.get(member) for member in ("podSelector", "namespaceSelector", "ipBlock"))
    check_selector(pods, f"{path}.podSelector", errors)
    check_selector(namespaces, f"{path}.namespaceSelector", errors)
    if block is not None:
        _check_block(block, f"{path}.ipBlock", errors)
        if pods is not None or namespaces is not None:
            errors.append(field_forbidden(path, "may not specify both ipBlock and another peer"))
    elif pods is None and namespaces is None:
        errors.append(required(path, "must specify a peer"))


def _check_block(block: Obj, path: str, errors: Errors) -> None:
    before = len(errors)
    check_present(block, "cidr", path, errors)
    if block.get("cidr"):
        check_network(block["cidr"], f"{path}.cidr", errors)
    if len(errors) > before:
        return
    outer = parse_network(block["cidr"])
    for at, text in enumerate(block.get("except") or ()):
        field, inner = f"{path}.except[{at}]", parse_network(text)
        check_network(text, field, errors)
        if inner is None or outer is None:
            continue
        inside = inner.version == outer.version and inner.network_address in outer
        if not inside or inner.prefixlen <= outer.prefixlen:
            errors.append(invalid_value(field, text, "must be a strict subset of `cidr`"))


NETWORK_POLICY_RULES: Final = Rules(
    name=names.dns_subdomain, default=_default_network_policy, validate=_validate_network_policy, generation=True
)


# --- Rules of IPAddresses and ServiceCIDRs --------------------------------------------------------

GROUP: Final = "networking.k8s.io"


def address_name(text: str) -> Sequence[str]:
    errors: Errors = []
    check_address(text, "", errors)
    return [error.detail for error in errors]


def validate_address(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    parent = spec_of(obj).get("parentRef")
    if parent is None:
        errors.append(required("spec.parentRef"))
        return errors
    for member in ("resource", "name"):
        check_required_name(names.path_segment, parent.get(member, ""), f"spec.parentRef.{member}", errors)
    return errors


def validate_address_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_immutable(spec_of(new).get("parentRef"), spec_of(old).get("parentRef"), "spec.parentRef", errors)
    return errors


def default_service_cidr(obj: Obj) -> None:
    obj.setdefault("spec", {})
    obj.setdefault("status", {})


def prepare_service_cidr(obj: Obj) -> None:
    obj["status"] = {}


def validate_service_cidr(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    networks = spec_of(obj).get("cidrs") or ()
    if not networks:
        errors.append(required("spec.cidrs", "at least one CIDR required"))
    elif len(networks) > 2:
        errors.append(invalid_value("spec", networks, "may only hold up to 2 values"))
    for index, network in enumerate(networks[:2]):
        check_network(network, f"spec.cidrs[{index}]", errors)
    if len(networks) == 2 and not errors:
        first, second = (is_ipv6(network.partition("/")[0]) for network in networks)
        if first == second:
            detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
            errors.append(invalid_value("spec", networks, detail))
    return errors


def validate_service_cidr_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_immutable(spec_of(new).get("cidrs"), spec_of(old).get("cidrs"), "spec.cidrs", errors)
    return errors


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (GROUP, "Ingress"): INGRESS_RULES,
    (GROUP, "IngressClass"): INGRESS_CLASS_RULES,
    (GROUP, "NetworkPolicy"): NETWORK_POLICY_RULES,
    (GROUP, "IPAddress"): Rules(
        name=address_name,
        validate=validate_address,
        validate_update=validate_address_update,
    ),
    (GROUP, "ServiceCIDR"): Rules(
        name=names.dns_subdomain,
        default=default_service_cidr,
        prepare_create=prepare_service_cidr,
        prepare_update=keep_status,
        prepare_status=keep_spec,
        validate=validate_service_cidr,
        validate_update=validate_service_cidr_update,
    ),
}
