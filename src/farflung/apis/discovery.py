"""EndpointSlices: the resource, its validation and its printer columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from farflung.apis.printers import age_of, described, name_of, shortened
from farflung.apis.resource import Group
from farflung.apis.validation import (
    PROTOCOLS,
    Errors,
    Rules,
    check_choice,
    check_immutable,
    check_name,
    check_not_special,
    parse_address,
)
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj, duplicate, invalid_value, required, too_many
from farflung.machinery.table import AGE, NAME, Printer


def slice_cells(obj: Obj, now: datetime) -> list[Any]:
    addresses = [one for endpoint in obj.get("endpoints") or () for one in endpoint.get("addresses") or ()]
    return [
        name_of(obj),
        obj.get("addressType", ""),
        shortened([port_text(port) for port in obj.get("ports") or ()]),
        shortened(addresses),
        age_of(obj, now),
    ]


def port_text(port: Obj) -> str:
    number = port.get("port")
    return port.get("name", "*") if number is None else str(number)


ENDPOINT_SLICES: Final = Printer(
    (
        NAME,
        described("AddressType", "discovery.v1.EndpointSlice.addressType"),
        described("Ports", "discovery.v1.EndpointSlice.ports"),
        described("Endpoints", "discovery.v1.EndpointSlice.endpoints"),
        AGE,
    ),
    slice_cells,
)


# --- Endpoint slices ------------------------------------------------------------------------------

DISCOVERY: Final = Group("discovery.k8s.io", "v1", "io.k8s.api.discovery.v1.")

RESOURCES: Final = (DISCOVERY.stored("endpointslices", "EndpointSlice", printer=ENDPOINT_SLICES),)


# --- Rules of EndpointSlices ----------------------------------------------------------------------

GROUP: Final = "discovery.k8s.io"
ADDRESS_TYPES: Final = ("FQDN", "IPv4", "IPv6")
MOST_ENDPOINTS: Final = 1000
MOST_ADDRESSES: Final = 100
MOST_PORTS: Final = 20000
MOST_HINTS: Final = 8


def default_slice(obj: Obj) -> None:
    if not obj.get("endpoints"):
        obj["endpoints"] = None
    if not obj.get("ports"):
        obj["ports"] = None
    for port in obj["ports"] or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")
    for endpoint in obj["endpoints"] or ():
        endpoint.setdefault("conditions", {})


def validate_slice(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    kind = obj.get("addressType", "")
    check_choice(kind, ADDRESS_TYPES, "addressType", errors)
    endpoints, ports = obj.get("endpoints") or (), obj.get("ports") or ()
    if len(endpoints) > MOST_ENDPOINTS:
        errors.append(too_many("endpoints", len(endpoints), MOST_ENDPOINTS))
    else:
        for index, endpoint in enumerate(endpoints):
            _check_slice_endpoint(endpoint, kind, f"endpoints[{index}]", errors)
    if len(ports) > MOST_PORTS:
        errors.append(too_many("ports", len(ports), MOST_PORTS))
    else:
        _check_slice_ports(ports, errors)
    return errors


def _check_slice_endpoint(endpoint: Obj, kind: str, path: str, errors: Errors) -> None:
    addresses = endpoint.get("addresses") or ()
    if not addresses:
        errors.append(required(f"{path}.addresses", "must contain at least 1 address"))
    elif len(addresses) > MOST_ADDRESSES:
        errors.append(too_many(f"{path}.addresses", len(addresses), MOST_ADDRESSES))
    for index, address in enumerate(addresses):
        if kind == "FQDN":
            check_domain(address, f"{path}.addresses[{index}]", errors)
        elif kind in ("IPv4", "IPv6"):
            parsed = parse_address(address)
            if parsed is None or f"IPv{parsed.version}" != kind:
                example = "10.9.8.7" if kind == "IPv4" else "2001:db8::ffff"
                errors.append(
                    invalid_value(
                        f"{path}.addresses[{index}]", address, f"must be a valid {kind} address, (e.g. {example})"
                    )
                )
            else:
                check_not_special(address, f"{path}.addresses[{index}]", errors)
    if node := endpoint.get("nodeName"):
        check_name(names.dns_subdomain, node, f"{path}.nodeName", errors)
    if hostname := endpoint.get("hostname"):
        check_name(names.dns_label, hostname, f"{path}.hostname", errors)
    hints = (endpoint.get("hints") or {}).get("forZones") or ()
    if len(hints) > MOST_HINTS:
        errors.append(too_many(f"{path}.hints.forZones", len(hints), MOST_HINTS))


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


def _check_slice_ports(ports: Sequence[Obj], errors: Errors) -> None:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"ports[{index}]", port.get("name", "")
        if name:
            check_name(names.dns_label, name, f"{path}.name", errors)
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
        check_choice(port.get("protocol", ""), PROTOCOLS, f"{path}.protocol", errors)
        if protocol := port.get("appProtocol"):
            check_name(names.qualified_name, protocol, f"{path}.appProtocol", errors)


def validate_slice_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_immutable(new.get("addressType"), old.get("addressType"), "addressType", errors)
    return errors


def slice_changed(new: Obj, old: Obj) -> bool:
    """Labels count too: they tell whose slice it is."""
    if any(new.get(member) != old.get(member) for member in ("addressType", "endpoints", "ports")):
        return True
    return (new["metadata"].get("labels") or {}) != (old["metadata"].get("labels") or {})


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (GROUP, "EndpointSlice"): Rules(
        name=names.dns_subdomain,
        default=default_slice,
        validate=validate_slice,
        validate_update=validate_slice_update,
        generation=True,
        another_generation=slice_changed,
    ),
}
