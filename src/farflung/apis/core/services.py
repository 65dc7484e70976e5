"""Defaults, allocation and validation of Services and Endpoints.

The hub calls `allocate_service` after `prepare_create` or `prepare_update` and before validation.  It allocates
addresses and node ports from the cluster's pools, and returns them for release if the write fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from farflung.apis.validation import (
    PROTOCOLS,
    Errors,
    Rules,
    check_address,
    check_choice,
    check_labels,
    check_name,
    check_network,
    check_not_special,
    check_port,
    check_required_name,
    check_supported,
    is_dual_stack,
    is_ipv6,
    keep_spec,
    keep_status,
    parse_address,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import (
    Obj,
    duplicate,
    field_forbidden,
    invalid,
    invalid_value,
    not_supported,
    required,
)

TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
WITH_ADDRESS: Final = ("ClusterIP", "NodePort", "LoadBalancer")
REACHABLE_FROM_OUTSIDE: Final = ("NodePort", "LoadBalancer")
FAMILIES: Final = ("IPv4", "IPv6")
FAMILY_POLICIES: Final = ("PreferDualStack", "RequireDualStack", "SingleStack")
TRAFFIC_POLICIES: Final = ("Cluster", "Local")
DISTRIBUTIONS: Final = ("PreferClose", "PreferSameNode", "PreferSameZone")
AFFINITY_SECONDS: Final = 10800
LONGEST_AFFINITY: Final = 86400
HEADLESS: Final = "None"
ONLY_LOAD_BALANCER: Final = "may only be used when `type` is 'LoadBalancer'"
ONLY_EXTERNAL: Final = "may not be set for ExternalName services"
SOURCE_RANGES: Final = "service.beta.kubernetes.io/load-balancer-source-ranges"


def is_headless(spec: Obj) -> bool:
    return bool(spec.get("clusterIPs") == [HEADLESS])


def is_external(spec: Obj) -> bool:
    """It can be reached from outside the cluster."""
    type_ = spec.get("type")
    return type_ in REACHABLE_FROM_OUTSIDE or (type_ == "ClusterIP" and bool(spec.get("externalIPs")))


# --- defaults -------------------------------------------------------------------------------------


def _default_service(service: Obj) -> None:
    spec = service.setdefault("spec", {})
    if spec.setdefault("sessionAffinity", "None") == "ClientIP":
        client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        client.setdefault("timeoutSeconds", AFFINITY_SECONDS)
    elif spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    type_ = spec.setdefault("type", "ClusterIP")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    if is_external(spec) and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if type_ in WITH_ADDRESS:
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if type_ == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    balancer = service.setdefault("status", {}).setdefault("loadBalancer", {})
    for ingress in balancer.get("ingress") or ():
        if ingress.get("ip"):
            ingress.setdefault("ipMode", "VIP")


def _prepare_create(service: Obj) -> None:
    service["status"] = {"loadBalancer": {}}
    spec = service["spec"]
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


def _prepare_update(new: Obj, old: Obj) -> None:
    keep_status(new, old)
    fresh, former = new["spec"], spec_of(old)
    _keep_allocated(fresh, former)
    # `clusterIP` is the first of `clusterIPs`: a change of one changes the other too.
    one, was_one = fresh.get("clusterIP", ""), former.get("clusterIP", "")
    many, were_many = fresh.get("clusterIPs") or [], former.get("clusterIPs") or []
    if one != was_one and many == were_many:
        if one:
            fresh["clusterIPs"] = [one, *many[1:]]
        else:
            fresh.pop("clusterIPs", None)
    elif one == was_one and not many:
        fresh.pop("clusterIP", None)
    _drop_what_the_type_has_not(fresh, former)


def _keep_allocated(fresh: Obj, former: Obj) -> None:
    """A client that leaves out what the server had allocated means to keep it."""
    both_addressed = fresh.get("type") in WITH_ADDRESS and former.get("type") in WITH_ADDRESS
    if both_addressed and not fresh.get("clusterIP") and not fresh.get("clusterIPs") and former.get("clusterIP"):
        fresh["clusterIP"], fresh["clusterIPs"] = former["clusterIP"], list(former.get("clusterIPs") or ())
    if fresh.get("type") in REACHABLE_FROM_OUTSIDE and former.get("type") in REACHABLE_FROM_OUTSIDE:
        _keep_node_ports(fresh.get("ports") or (), former.get("ports") or ())
    if _needs_health_check(fresh) and _needs_health_check(former) and former.get("healthCheckNodePort"):
        fresh.setdefault("healthCheckNodePort", former["healthCheckNodePort"])
    for member in ("ipFamilies", "ipFamilyPolicy"):
        if not fresh.get(member) and former.get(member) and fresh.get("type") in WITH_ADDRESS:
            fresh[member] = former[member]


def _keep_node_ports(ports: Iterable[Obj], former: Iterable[Obj]) -> None:
    used = {port.get("nodePort") for port in ports if port.get("nodePort")}
    known = {(port.get("protocol"), port.get("port")): port.get("nodePort") for port in former}
    for port in ports:
        number = known.get((port.get("protocol"), port.get("port")))
        if not port.get("nodePort") and number and number not in used:
            port["nodePort"] = number


def _drop_what_the_type_has_not(fresh: Obj, former: Obj) -> None:
    """When the type changes, unchanged fields of the old type are removed."""
    type_, was = fresh.get("type"), former.get("type")
    if type_ == was:
        return
    dropped: list[str] = []
    if was in WITH_ADDRESS and type_ not in WITH_ADDRESS:
        dropped += ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]
    if was in REACHABLE_FROM_OUTSIDE and type_ not in REACHABLE_FROM_OUTSIDE:
        dropped.append("externalTrafficPolicy")
        before = {(port.get("protocol"), port.get("port")): port.get("nodePort") for port in former.get("ports") or ()}
        for port in fresh.get("ports") or ():
            if port.get("nodePort") == before.get((port.get("protocol"), port.get("port"))):
                port.pop("nodePort", None)
    if was == "LoadBalancer":
        dropped += ["allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"]
    for member in dropped:
        if fresh.get(member) == former.get(member):
            fresh.pop(member, None)


# --- allocation -----------------------------------------------------------------------------------


class NotAvailable(Exception):
    """The wanted address or port cannot be had; the text says why (`provided IP is already allocated`)."""


class AddressPools(Protocol):
    """The allocator of addresses and node ports."""

    def take_address(self, wanted: str) -> str:
        """An address of the cluster, any if `wanted` is empty.  Raises NotAvailable."""

    def take_port(self, wanted: int) -> int:
        """A node port, any if `wanted` is 0.  Raises NotAvailable."""

    def release_address(self, address: str) -> None: ...

    def release_port(self, number: int) -> None: ...


@dataclass(slots=True)
class Allocations:
    addresses: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)


def allocations(service: Obj) -> Allocations:
    """The addresses and node ports of a stored Service."""
    spec = spec_of(service)
    addresses = [] if spec.get("type") == "ExternalName" or is_headless(spec) else list(spec.get("clusterIPs") or ())
    ports = {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}
    if spec.get("healthCheckNodePort"):
        ports.add(spec["healthCheckNodePort"])
    return Allocations(addresses, sorted(ports))


def allocate_service(service: Obj, old: Obj | None, pools: AddressPools) -> Allocations:
    """Take what the Service needs and `old` does not hold yet, and write it into the Service.

    Returns what was taken, for `give_back` if the write fails.  Raises a 422 that says which field could not be had;
    then nothing is taken.
    """
    taken, held = Allocations(), allocations(old) if old is not None else Allocations()
    errors: Errors = []
    spec = service["spec"]
    if spec.get("type") != "ExternalName":
        _check_addresses(spec, errors)
        if not errors:
            _choose_families(spec, errors)
        if not errors:
            _take_addresses(spec, held, taken, pools, errors)
        if not errors:
            _take_ports(spec, held, taken, pools, errors)
    if errors:
        give_back(taken, pools)
        raise invalid("", "Service", (service.get("metadata") or {}).get("name", ""), errors)
    return taken


def give_back(taken: Allocations, pools: AddressPools) -> None:
    for address in taken.addresses:
        pools.release_address(address)
    for number in taken.ports:
        pools.release_port(number)


def _choose_families(spec: Obj, errors: Errors) -> None:
    """This cluster has IPv4 addresses only."""
    if is_headless(spec) and not spec.get("selector"):
        spec.setdefault("ipFamilyPolicy", "RequireDualStack")
        families = spec.get("ipFamilies") or []
        spec["ipFamilies"] = families or (list(FAMILIES) if spec["ipFamilyPolicy"] != "SingleStack" else ["IPv4"])
        return
    addresses = [] if is_headless(spec) else spec.get("clusterIPs") or []
    families = spec.get("ipFamilies") or (["IPv6"] if addresses and is_ipv6(addresses[0]) else ["IPv4"])
    if spec.get("ipFamilyPolicy") == "RequireDualStack" or len(families) > 1 or len(addresses) > 1:
        policy = spec.get("ipFamilyPolicy") or "RequireDualStack"
        if policy != "PreferDualStack":
            why = "this cluster is not configured for dual-stack services"
            errors.append(invalid_value("spec.ipFamilyPolicy", policy, why))
    for at, family in enumerate(families):
        if family == "IPv6":
            errors.append(invalid_value(f"spec.ipFamilies[{at}]", family, "not configured on this cluster"))
    spec["ipFamilies"] = list(families)
    spec.setdefault("ipFamilyPolicy", "SingleStack")


def _take_addresses(spec: Obj, held: Allocations, taken: Allocations, pools: AddressPools, errors: Errors) -> None:
    if is_headless(spec):
        return
    wanted = spec.get("clusterIPs") or [""]
    for address in wanted:
        if address and address in held.addresses:
            continue
        if held.addresses and address:
            continue  # it may not change; validation says so
        try:
            taken.addresses.append(pools.take_address(address))
        except NotAvailable as refusal:
            why = f"failed to allocate IP {address}: {refusal}"
            errors.append(invalid_value("spec.clusterIPs", spec.get("clusterIPs"), why))
            return
    if not spec.get("clusterIPs"):
        spec["clusterIP"], spec["clusterIPs"] = taken.addresses[0], list(taken.addresses)


def _wants_node_ports(spec: Obj) -> bool:
    if spec.get("type") == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return spec.get("type") == "NodePort"


def _take_ports(spec: Obj, held: Allocations, taken: Allocations, pools: AddressPools, errors: Errors) -> None:
    shared: dict[int, tuple[str, int]] = {}  # port → protocol and node port, to be used by the other protocol too
    have = set(held.ports)
    for at, port in enumerate(spec.get("ports") or ()) if spec.get("type") in REACHABLE_FROM_OUTSIDE else ():
        wanted, protocol = port.get("nodePort", 0), port.get("protocol", "")
        if not wanted and not _wants_node_ports(spec):
            continue
        other, number = shared.get(port.get("port", 0), (protocol, 0))
        number = wanted or (number if other != protocol else 0)
        if not number or number not in have:
            number = _take_port(number, f"spec.ports[{at}].nodePort", taken, pools, errors)
            if errors:
                return
        have.add(number)
        port["nodePort"] = number
        shared.setdefault(port.get("port", 0), (protocol, number))
    if _needs_health_check(spec):
        wanted = spec.get("healthCheckNodePort", 0)
        if not wanted or wanted not in have:
            spec["healthCheckNodePort"] = _take_port(wanted, "spec.healthCheckNodePort", taken, pools, errors)


def _take_port(wanted: int, where: str, taken: Allocations, pools: AddressPools, errors: Errors) -> int:
    try:
        number = pools.take_port(wanted)
    except NotAvailable as refusal:
        errors.append(invalid_value(where, wanted, str(refusal)))
        return wanted
    taken.ports.append(number)
    return number


def _needs_health_check(spec: Obj) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


# --- checks ---------------------------------------------------------------------------------------


def _validate(service: Obj) -> Errors:
    errors: Errors = []
    spec = spec_of(service)
    ports = spec.get("ports") or ()
    if not ports and not is_headless(spec) and spec.get("type") != "ExternalName":
        errors.append(required("spec.ports"))
    _check_type_fields(spec, errors)
    _check_ports(ports, errors)
    if selector := spec.get("selector"):
        check_labels(selector, "spec.selector", errors)
    _check_affinity(spec, errors)
    if spec.get("type") != "ExternalName":
        _check_addresses(spec, errors)
    for at, address in enumerate(spec.get("externalIPs") or ()):
        if check_address(address, f"spec.externalIPs[{at}]", errors):
            check_not_special(address, f"spec.externalIPs[{at}]", errors)
    check_choice(spec.get("type", ""), TYPES, "spec.type", errors)
    _check_repeated_ports(spec, ports, errors)
    _check_source_ranges(service, spec, errors)
    _check_load_balancer(spec, errors)
    _check_traffic(spec, errors)
    return errors


def _check_type_fields(spec: Obj, errors: Errors) -> None:
    type_ = spec.get("type")
    if type_ in REACHABLE_FROM_OUTSIDE and is_headless(spec):
        why = f"may not be set to 'None' for {type_} services"
        errors.append(invalid_value("spec.clusterIPs[0]", HEADLESS, why))
    if type_ != "ExternalName":
        return
    for member in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(member):
            errors.append(field_forbidden(f"spec.{member}", ONLY_EXTERNAL))
    check_required_name(
        names.dns_subdomain, spec.get("externalName", "").removesuffix("."), "spec.externalName", errors
    )


def _check_ports(ports: Sequence[Obj], errors: Errors) -> None:
    seen: set[str] = set()
    for at, port in enumerate(ports):
        path, name = f"spec.ports[{at}]", port.get("name", "")
        if name:
            check_name(names.dns_label, name, f"{path}.name", errors)
            if name in seen:
                errors.append(duplicate(f"{path}.name", name))
            seen.add(name)
        elif len(ports) > 1:
            errors.append(required(f"{path}.name"))
        check_port(port.get("port", 0), f"{path}.port", errors)
        check_choice(port.get("protocol", ""), PROTOCOLS, f"{path}.protocol", errors)
        check_port(port.get("targetPort", 0), f"{path}.targetPort", errors)
        if (protocol := port.get("appProtocol")) is not None:
            check_name(names.qualified_name, protocol, f"{path}.appProtocol", errors)


def _check_affinity(spec: Obj, errors: Errors) -> None:
    affinity, config = spec.get("sessionAffinity", ""), spec.get("sessionAffinityConfig")
    check_choice(affinity, ("ClientIP", "None"), "spec.sessionAffinity", errors)
    if affinity == "ClientIP":
        path = "spec.sessionAffinityConfig"
        seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
        if seconds is None:
            errors.append(required(path, "when session affinity type is ClientIP"))
        elif not 0 < seconds <= LONGEST_AFFINITY:
            why = f"must be greater than 0 and less than {LONGEST_AFFINITY}"
            errors.append(invalid_value(f"{path}.clientIP.timeoutSeconds", seconds, why))
    elif affinity == "None" and config is not None:
        why = "must not be set when session affinity is None"
        errors.append(field_forbidden("spec.sessionAffinityConfig", why))


def _check_addresses(spec: Obj, errors: Errors) -> None:
    """`clusterIP`, `clusterIPs` and the families, as far as they can be judged without the pools."""
    one, many, path = spec.get("clusterIP", ""), spec.get("clusterIPs") or [], "spec.clusterIPs"
    if one and not many:
        errors.append(required(path))
    elif one and many[0] != one:
        errors.append(invalid_value(path, many, "first value must match `clusterIP`"))
    elif many and not one:
        errors.append(invalid_value(path, many, "must be empty when `clusterIP` is not specified"))
    _check_families(spec, errors)
    if many and many[0] == HEADLESS:
        if len(many) > 1:
            errors.append(invalid_value(path, many, "'None' must be the first and only value"))
        return
    good = [check_address(address, f"{path}[{at}]", errors) for at, address in enumerate(many)]
    if len(many) > 2:
        errors.append(invalid_value(path, many, "may only hold up to 2 values"))
    if not all(good):
        return
    if len(many) > 1 and not is_dual_stack(many):
        errors.append(invalid_value(path, many, "may specify no more than one IP for each IP family"))
    for at, (address, family) in enumerate(zip(many, spec.get("ipFamilies") or (), strict=False)):
        if family in FAMILIES and is_ipv6(address) != (family == "IPv6"):
            why = f"expected an {family} value as indicated by `ipFamilies[{at}]`"
            errors.append(invalid_value(f"{path}[{at}]", address, why))


def _check_families(spec: Obj, errors: Errors) -> None:
    seen: set[str] = set()
    for at, family in enumerate(spec.get("ipFamilies") or ()):
        check_supported(family, FAMILIES, f"spec.ipFamilies[{at}]", errors)
        if family in seen:
            errors.append(duplicate(f"spec.ipFamilies[{at}]", family))
        seen.add(family)
    if (policy := spec.get("ipFamilyPolicy")) is not None:
        check_supported(policy, FAMILY_POLICIES, "spec.ipFamilyPolicy", errors)


def _check_repeated_ports(spec: Obj, ports: Sequence[Obj], errors: Errors) -> None:
    node_ports: set[tuple[str, int]] = set()
    numbers: set[tuple[str, int]] = set()
    for at, port in enumerate(ports):
        number, protocol, path = port.get("nodePort", 0), port.get("protocol", ""), f"spec.ports[{at}]"
        if number and spec.get("type") == "ClusterIP":
            errors.append(field_forbidden(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'"))
        if number and (protocol, number) in node_ports:
            errors.append(duplicate(f"{path}.nodePort", number))
        node_ports.add((protocol, number))
    for at, port in enumerate(ports):
        key = port.get("protocol", ""), port.get("port", 0)
        if key in numbers:
            errors.append(duplicate(f"spec.ports[{at}]", _shown_port(*key)))
        numbers.add(key)


def _shown_port(protocol: str, number: int) -> Obj:
    return {
        "Name": "", "Protocol": protocol, "AppProtocol": None, "Port": number, "TargetPort": 0, "NodePort": 0,
    }  # fmt: skip


def _check_source_ranges(service: Obj, spec: Obj, errors: Errors) -> None:
    annotated = ((service.get("metadata") or {}).get("annotations") or {}).get(SOURCE_RANGES)
    if ranges := spec.get("loadBalancerSourceRanges"):
        path = "spec.LoadBalancerSourceRanges"
        if spec.get("type") != "LoadBalancer":
            errors.append(field_forbidden(path, ONLY_LOAD_BALANCER))
        for at, text in enumerate(ranges):
            check_network(text.strip(), f"{path}[{at}]", errors)
    elif annotated is not None:
        path = f"metadata.annotations[{SOURCE_RANGES}]"
        if spec.get("type") != "LoadBalancer":
            errors.append(field_forbidden(path, ONLY_LOAD_BALANCER))
        for text in annotated.split(",") if annotated.strip() else ():
            check_network(text.strip(), path, errors)


def _check_load_balancer(spec: Obj, errors: Errors) -> None:
    balanced, class_name = spec.get("type") == "LoadBalancer", spec.get("loadBalancerClass")
    if spec.get("allocateLoadBalancerNodePorts") is not None and not balanced:
        errors.append(field_forbidden("spec.allocateLoadBalancerNodePorts", ONLY_LOAD_BALANCER))
    if class_name is not None:
        if balanced:
            check_name(names.qualified_name, class_name, "spec.loadBalancerClass", errors)
        else:
            errors.append(field_forbidden("spec.loadBalancerClass", ONLY_LOAD_BALANCER))


def _check_traffic(spec: Obj, errors: Errors) -> None:
    policy = spec.get("externalTrafficPolicy", "")
    if is_external(spec):
        check_choice(policy, TRAFFIC_POLICIES, "spec.externalTrafficPolicy", errors)
    elif policy:
        why = "may only be set for externally-accessible services"
        errors.append(invalid_value("spec.externalTrafficPolicy", policy, why))
    health_port = spec.get("healthCheckNodePort", 0)
    if _needs_health_check(spec):
        if not health_port:
            errors.append(required("spec.healthCheckNodePort"))
        else:
            check_port(health_port, "spec.healthCheckNodePort", errors)
    elif health_port:
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.append(invalid_value("spec.healthCheckNodePort", health_port, why))
    if (inside := spec.get("internalTrafficPolicy")) is not None:
        check_supported(inside, TRAFFIC_POLICIES, "spec.internalTrafficPolicy", errors)
    if (distribution := spec.get("trafficDistribution")) is not None:
        check_supported(distribution, DISTRIBUTIONS, "spec.trafficDistribution", errors)


def _validate_update(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    fresh, former = spec_of(new), spec_of(old)
    if "ExternalName" not in (fresh.get("type"), former.get("type")):
        headless = is_headless(fresh), is_headless(former)
        if headless != (True, True):
            _check_kept(fresh, former, errors)
        if headless == (False, False):
            many, were = fresh.get("ipFamilies") or [], former.get("ipFamilies") or []
            if many and were and many[0] != were[0]:
                errors.append(invalid_value("spec.ipFamilies[0]", many, "may not change once set"))
    class_name, was = fresh.get("loadBalancerClass"), former.get("loadBalancerClass")
    if fresh.get("type") == former.get("type") == "LoadBalancer" and class_name != was:
        errors.append(invalid_value("spec.loadBalancerClass", class_name, "may not change once set"))
    port, was = fresh.get("healthCheckNodePort"), former.get("healthCheckNodePort")
    if _needs_health_check(fresh) and _needs_health_check(former) and port != was:
        errors.append(field_forbidden("spec.healthCheckNodePort", "field is immutable"))
    return errors


def _check_kept(fresh: Obj, former: Obj, errors: Errors) -> None:
    many, were = fresh.get("clusterIPs") or [], former.get("clusterIPs") or []
    if len(many) == len(were):
        for at, (address, was) in enumerate(zip(many, were, strict=True)):
            if address != was:
                errors.append(invalid_value(f"spec.clusterIPs[{at}]", many, "may not change once set"))
        return
    if not many:
        errors.append(invalid_value("spec.clusterIPs[0]", many, "primary clusterIP can not be unset"))
    elif were and many[0] != were[0]:
        errors.append(invalid_value("spec.clusterIPs[0]", many, "may not change once set"))


def _validate_status(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    ingresses = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    path = "status.loadBalancer.ingress"
    if ingresses and spec_of(new).get("type") != "LoadBalancer":
        errors.append(field_forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'"))
        return errors
    for at, ingress in enumerate(ingresses):
        _check_ingress(ingress, f"{path}[{at}]", errors)
    return errors


def _check_ingress(ingress: Obj, path: str, errors: Errors) -> None:
    address, mode, host = ingress.get("ip", ""), ingress.get("ipMode"), ingress.get("hostname", "")
    if address:
        check_address(address, f"{path}.ip", errors)
    if mode is None:
        if address:
            errors.append(required(f"{path}.ipMode", "must be specified when `ip` is set"))
    elif not address:
        errors.append(field_forbidden(f"{path}.ipMode", "may not be specified when `ip` is not set"))
    elif mode not in ("Proxy", "VIP"):
        errors.append(not_supported(f"{path}.ipMode", mode, ("Proxy", "VIP")))
    if host:
        check_name(names.dns_subdomain, host, f"{path}.hostname", errors)
        if parse_address(host) is not None:
            errors.append(invalid_value(f"{path}.hostname", host, "must be a DNS name, not an IP address"))


SERVICE_RULES: Final = Rules(
    name=names.dns_1035_label,
    default=_default_service,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    prepare_status=keep_spec,
    validate=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
    create_on_update=True,
)


# --- Endpoints ------------------------------------------------------------------------------------


def _default_endpoints(endpoints: Obj) -> None:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            port.setdefault("protocol", "TCP")


def _validate_endpoints(endpoints: Obj) -> Errors:
    errors: Errors = []
    for at, subset in enumerate(endpoints.get("subsets") or ()):
        path = f"subsets[{at}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for member in ("addresses", "notReadyAddresses"):
            for index, address in enumerate(subset.get(member) or ()):
                _check_endpoint(address, f"{path}.{member}[{index}]", errors)
        ports = subset.get("ports") or ()
        for index, port in enumerate(ports):
            _check_endpoint_port(port, f"{path}.ports[{index}]", errors, named=len(ports) > 1)
    return errors


def _check_endpoint(address: Obj, path: str, errors: Errors) -> None:
    check_address(address.get("ip", ""), f"{path}.ip", errors)
    if host := address.get("hostname"):
        check_name(names.dns_label, host, f"{path}.hostname", errors)
    if (node := address.get("nodeName")) is not None:
        check_name(names.dns_subdomain, node, f"{path}.nodeName", errors)
    check_not_special(address.get("ip", ""), f"{path}.ip", errors)


def _check_endpoint_port(port: Obj, path: str, errors: Errors, *, named: bool) -> None:
    if name := port.get("name", ""):
        check_name(names.dns_label, name, f"{path}.name", errors)
    elif named:
        errors.append(required(f"{path}.name"))
    check_port(port.get("port", 0), f"{path}.port", errors)
    check_choice(port.get("protocol", ""), PROTOCOLS, f"{path}.protocol", errors)
    if (protocol := port.get("appProtocol")) is not None:
        check_name(names.qualified_name, protocol, f"{path}.appProtocol", errors)


ENDPOINTS_RULES: Final = Rules(
    name=names.dns_subdomain, default=_default_endpoints, validate=_validate_endpoints, create_on_update=True
)
