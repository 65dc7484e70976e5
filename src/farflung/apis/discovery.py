"""EndpointSlices: the resource, its validation and its printer columns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from farflung.apis.printers import AGE, NAME, described, field, printer, shortened
from farflung.apis.resource import Group
from farflung.apis.rows import (
    Always,
    CheckFunction,
    Default,
    Defaults,
    Each,
    Enum,
    Format,
    MaxItems,
    Optional,
    Pointer,
    Required,
    Unique,
    Unless,
    Validation,
    When,
    immutable,
)
from farflung.apis.validation import PROTOCOLS, Errors, Rules, check_not_special, parse_address
from farflung.machinery import names
from farflung.machinery.errors import Obj, invalid_value, required


def addresses_text(slice_: Obj) -> str:
    return shortened([one for endpoint in slice_.get("endpoints") or () for one in endpoint.get("addresses") or ()])


def port_text(port: Obj) -> str:
    number = port.get("port")
    return port.get("name", "*") if number is None else str(number)


ENDPOINT_SLICES: Final = printer(
    "discovery.v1.EndpointSlice",
    NAME,
    field("AddressType", "addressType"),
    field("Ports", "ports", None, lambda ports: shortened([port_text(port) for port in ports or ()])),
    described("Endpoints", "endpoints", addresses_text),
    AGE,
)


# --- Endpoint slices ------------------------------------------------------------------------------

DISCOVERY: Final = Group("discovery.k8s.io", "v1", "io.k8s.api.discovery.v1.")

RESOURCES: Final = (DISCOVERY.stored("endpointslices", "EndpointSlice", printer=ENDPOINT_SLICES),)


# --- Rules of EndpointSlices ----------------------------------------------------------------------


def default_slice(obj: Obj) -> None:
    """Go writes a list without entries as null."""
    for member in ("endpoints", "ports"):
        if not obj.get(member):
            obj[member] = None


def _check_family(text: str, field: str, errors: Errors, *, version: int, example: str) -> None:
    address = parse_address(text)
    if address is None or address.version != version:
        errors.append(invalid_value(field, text, f"must be a valid IPv{version} address, (e.g. {example})"))
    else:
        check_not_special(text, field, errors)


def check_domain(text: str, field: str, errors: Errors) -> None:
    """A domain of at least two parts; it may end with a dot."""
    if not text:
        errors.append(required(field))
        return
    domain = text.removesuffix(".")
    labels = domain.split(".")
    if wrong := names.dns_subdomain(domain):
        errors.append(invalid_value(field, domain, ",".join(wrong)))
    elif len(labels) < 2:
        detail = "should be a domain with at least two segments separated by dots"
        errors.append(invalid_value(field, domain, detail))
    else:
        for label in labels:
            if wrong := names.dns_label(label):
                errors.append(invalid_value(field, label, ",".join(wrong)))
                return


def endpoints(*address_rules: CheckFunction) -> Each:
    return Each(
        "endpoints",
        Required("addresses", MaxItems(100), detail="must contain at least 1 address"),
        Each("addresses", *address_rules),
        Optional("nodeName", Format(names.dns_subdomain)),
        Optional("hostname", Format(names.dns_label)),
        Pointer("hints.forZones", MaxItems(8)),
        most=1000,
    )


SLICE: Final = Validation(
    Required("addressType", Enum("FQDN", "IPv4", "IPv6")),
    When("addressType", "IPv4", endpoints(partial(_check_family, version=4, example="10.9.8.7"))),
    When("addressType", "IPv6", endpoints(partial(_check_family, version=6, example="2001:db8::ffff"))),
    When("addressType", "FQDN", endpoints(check_domain)),
    Unless("addressType", ("FQDN", "IPv4", "IPv6"), endpoints()),
    Each(
        "ports",
        Optional("name", Format(names.dns_label)),
        Always("name", Unique()),
        Required("protocol", Enum(*PROTOCOLS)),
        Optional("appProtocol", Format(names.qualified_name)),
        most=20000,
    ),
)


def slice_changed(new: Obj, old: Obj) -> bool:
    """Labels count too: they tell whose slice it is."""
    if any(new.get(member) != old.get(member) for member in ("addressType", "endpoints", "ports")):
        return True
    return (new["metadata"].get("labels") or {}) != (old["metadata"].get("labels") or {})


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (DISCOVERY.name, "EndpointSlice"): Rules(
        name=names.dns_subdomain,
        default=Defaults(
            default_slice,
            Each("ports", Default("name", ""), Default("protocol", "TCP")),
            Each("endpoints", Default("conditions", {})),
        ),
        validate=SLICE,
        validate_update=immutable("addressType"),
        generation=True,
        another_generation=slice_changed,
    ),
}
