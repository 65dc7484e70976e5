"""Rules of IPAddresses and ServiceCIDRs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from farflung.apis.checks import (
    Errors,
    check_address,
    check_immutable,
    check_network,
    check_required_name,
    is_ipv6,
    keep_spec,
    keep_status,
    spec_of,
)
from farflung.apis.rules import Rules
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj, invalid_value, required

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
