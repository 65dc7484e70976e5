"""Rules of IngressClasses, IPAddresses and ServiceCIDRs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from farflung.hub.admission.fields import (
    Errors,
    check_address,
    check_immutable,
    check_name,
    check_network,
    check_required_name,
    check_supported,
    is_ipv6,
    keep_spec,
    keep_status,
    spec_of,
)
from farflung.hub.admission.rules import Rules
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj, field_forbidden, invalid_value, required, too_long

GROUP: Final = "networking.k8s.io"
LONGEST_CONTROLLER: Final = 250
PATH: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_matches_path: Final = re.compile(PATH).fullmatch


def default_ingress_class(obj: Obj) -> None:
    parameters = obj.setdefault("spec", {}).get("parameters")
    if parameters is not None:
        parameters.setdefault("scope", "Cluster")


def validate_ingress_class(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = spec_of(obj)
    controller = spec.get("controller", "")
    if names.size(controller) > LONGEST_CONTROLLER:
        errors.append(too_long("spec.controller", LONGEST_CONTROLLER))
    check_prefixed_path(controller, "spec.controller", errors)
    if spec.get("parameters") is not None:
        _check_parameters(spec["parameters"], "spec.parameters", errors)
    return errors


def check_prefixed_path(text: str, field: str, errors: Errors) -> None:
    """`acme.io/foo`"""
    if not text:
        errors.append(required(field))
        return
    host, _, path = text.partition("/")
    if not host or not path:
        errors.append(invalid_value(field, text, 'must be a domain-prefixed path (such as "acme.io/foo")'))
        return
    check_name(names.dns_subdomain, host, field, errors)
    if not _matches_path(path):
        errors.append(invalid_value(field, path, f"Invalid path (regex used for validation is '{PATH}')"))


def _check_parameters(parameters: Obj, path: str, errors: Errors) -> None:
    group = parameters.get("apiGroup")
    if group:
        check_name(names.dns_subdomain, group, f"{path}.apiGroup", errors)
    check_required_name(names.path_segment, parameters.get("kind", ""), f"{path}.kind", errors)
    check_required_name(names.path_segment, parameters.get("name", ""), f"{path}.name", errors)
    scope, namespace = parameters.get("scope", ""), parameters.get("namespace")
    check_supported(scope, ("Cluster", "Namespace"), f"{path}.scope", errors)
    if scope == "Namespace":
        if not namespace:
            errors.append(required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'"))
        else:
            check_name(names.dns_label, namespace, f"{path}.namespace", errors)
    elif scope == "Cluster" and namespace is not None:
        errors.append(field_forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'"))


def validate_ingress_class_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_immutable(spec_of(new).get("controller"), spec_of(old).get("controller"), "spec.controller", errors)
    return errors


# --- IPAddress, ServiceCIDR -----------------------------------------------------------------------


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
    (GROUP, "IngressClass"): Rules(
        name=names.dns_subdomain,
        default=default_ingress_class,
        validate=validate_ingress_class,
        validate_update=validate_ingress_class_update,
        generation=True,
    ),
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
