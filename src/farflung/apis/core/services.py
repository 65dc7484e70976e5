"""Defaults, allocation and validation of Services and Endpoints.

The hub calls `allocate_service` after `prepare_create` or `prepare_update` and before validation.  It allocates
addresses and node ports from the cluster's pools, and returns them for release if the write fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from farflung.apis.rows import (
    Always,
    Check,
    Default,
    Defaults,
    Each,
    Enum,
    FirstError,
    ForbiddenField,
    Format,
    InvalidIf,
    Optional,
    Pointer,
    Range,
    Refused,
    Required,
    RequiredPointer,
    Table,
    Unique,
    Unless,
    Validation,
    When,
    Where,
)
from farflung.apis.validation import (
    PROTOCOLS,
    Errors,
    Rules,
    check_address,
    check_labels,
    check_network,
    check_not_special,
    check_port,
    check_required_name,
    is_dual_stack,
    is_ipv6,
    keep_spec,
    keep_status,
    parse_address,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import Obj, duplicate, field_forbidden, invalid, invalid_value, required

WITH_ADDRESS: Final = ("ClusterIP", "NodePort", "LoadBalancer")
REACHABLE_FROM_OUTSIDE: Final = ("NodePort", "LoadBalancer")
FAMILIES: Final = ("IPv4", "IPv6")
HEADLESS: Final = "None"
ONLY_LOAD_BALANCER: Final = "may only be used when `type` is 'LoadBalancer'"
SOURCE_RANGES: Final = "service.beta.kubernetes.io/load-balancer-source-ranges"


def is_headless(spec: Obj) -> bool:
    return bool(spec.get("clusterIPs") == [HEADLESS])


def is_external(spec: Obj) -> bool:
    """It can be reached from outside the cluster."""
    type_ = spec.get("type")
    return type_ in REACHABLE_FROM_OUTSIDE or (type_ == "ClusterIP" and bool(spec.get("externalIPs")))


# --- defaults -------------------------------------------------------------------------------------


def drop_affinity_config(service: Obj) -> None:
    if service["spec"]["sessionAffinity"] == "None":
        service["spec"].pop("sessionAffinityConfig", None)


def default_target_port(port: Obj) -> None:
    if port.get("targetPort") in (None, 0, ""):
        port["targetPort"] = port.get("port", 0)


def default_external_traffic(service: Obj) -> None:
    spec = service["spec"]
    if is_external(spec) and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"


DEFAULT_SERVICE: Final = Defaults(
    Default("spec.sessionAffinity", "None"),
    When("spec.sessionAffinity", "ClientIP", Default("spec.sessionAffinityConfig.clientIP.timeoutSeconds", 10800)),
    drop_affinity_config,
    Default("spec.type", "ClusterIP"),
    Each("spec.ports", Default("protocol", "TCP"), default_target_port),
    default_external_traffic,
    When("spec.type", WITH_ADDRESS, Default("spec.internalTrafficPolicy", "Cluster")),
    When("spec.type", "LoadBalancer", Default("spec.allocateLoadBalancerNodePorts", True)),
    Default("status.loadBalancer", {}),
    Each("status.loadBalancer.ingress", Unless("ip", "", Default("ipMode", "VIP"))),
)


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
        check_addresses(spec, "spec", errors)
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


def needs_ports(spec: Obj) -> bool:
    return not is_headless(spec) and spec.get("type") != "ExternalName"


def has_several_ports(holder: Obj) -> bool:
    return len(holder.get("ports") or ()) > 1


def check_reachable(spec: Obj, path: str, errors: Errors) -> None:
    if spec.get("type") in REACHABLE_FROM_OUTSIDE:
        why = f"may not be set to 'None' for {spec['type']} services"
        errors.append(invalid_value(f"{path}.clusterIPs[0]", HEADLESS, why))


def check_external_name(name: str, field: str, errors: Errors) -> None:
    check_required_name(names.dns_subdomain, name.removesuffix("."), field, errors)


def check_addresses(spec: Obj, path: str, errors: Errors) -> None:
    """`clusterIP`, `clusterIPs` and the families, as far as they can be judged without the pools."""
    one, many, field = spec.get("clusterIP", ""), spec.get("clusterIPs") or [], f"{path}.clusterIPs"
    if one and not many:
        errors.append(required(field))
    elif one and many[0] != one:
        errors.append(invalid_value(field, many, "first value must match `clusterIP`"))
    elif many and not one:
        errors.append(invalid_value(field, many, "must be empty when `clusterIP` is not specified"))
    CHECK_FAMILIES(spec, path, errors)
    if many and many[0] == HEADLESS:
        if len(many) > 1:
            errors.append(invalid_value(field, many, "'None' must be the first and only value"))
        return
    good = [check_address(address, f"{field}[{at}]", errors) for at, address in enumerate(many)]
    if len(many) > 2:
        errors.append(invalid_value(field, many, "may only hold up to 2 values"))
    if not all(good):
        return
    if len(many) > 1 and not is_dual_stack(many):
        errors.append(invalid_value(field, many, "may specify no more than one IP for each IP family"))
    for at, (address, family) in enumerate(zip(many, spec.get("ipFamilies") or (), strict=False)):
        if family in FAMILIES and is_ipv6(address) != (family == "IPv6"):
            why = f"expected an {family} value as indicated by `ipFamilies[{at}]`"
            errors.append(invalid_value(f"{field}[{at}]", address, why))


def check_repeated_ports(spec: Obj, path: str, errors: Errors) -> None:
    ports = spec.get("ports") or ()
    node_ports: set[tuple[str, int]] = set()
    numbers: set[tuple[str, int]] = set()
    for at, port in enumerate(ports):
        number, protocol, field = port.get("nodePort", 0), port.get("protocol", ""), f"{path}.ports[{at}].nodePort"
        if number and spec.get("type") == "ClusterIP":
            errors.append(field_forbidden(field, "may not be used when `type` is 'ClusterIP'"))
        if number and (protocol, number) in node_ports:
            errors.append(duplicate(field, number))
        node_ports.add((protocol, number))
    for at, port in enumerate(ports):
        number, protocol = port.get("port", 0), port.get("protocol", "")
        if (protocol, number) in numbers:
            shown = {"Protocol": protocol, "AppProtocol": None, "Port": number, "TargetPort": 0, "NodePort": 0}
            errors.append(duplicate(f"{path}.ports[{at}]", {"Name": "", **shown}))
        numbers.add((protocol, number))


def check_source_ranges(service: Obj, path: str, errors: Errors) -> None:
    spec = spec_of(service)
    annotated = ((service.get("metadata") or {}).get("annotations") or {}).get(SOURCE_RANGES)
    if ranges := spec.get("loadBalancerSourceRanges"):
        field = "spec.LoadBalancerSourceRanges"
        if spec.get("type") != "LoadBalancer":
            errors.append(field_forbidden(field, ONLY_LOAD_BALANCER))
        for at, text in enumerate(ranges):
            check_network(text.strip(), f"{field}[{at}]", errors)
    elif annotated is not None:
        field = f"metadata.annotations[{SOURCE_RANGES}]"
        if spec.get("type") != "LoadBalancer":
            errors.append(field_forbidden(field, ONLY_LOAD_BALANCER))
        for text in annotated.split(",") if annotated.strip() else ():
            check_network(text.strip(), field, errors)


LABEL: Final = Format(names.dns_label)
PORT: Final = Table(Always("port", check_port, zero=0), Required("protocol", Enum(*PROTOCOLS)))
APP_PROTOCOL: Final = Pointer("appProtocol", Format(names.qualified_name))
SERVICE_PORT: Final = Table(PORT, Always("targetPort", check_port, zero=0), APP_PROTOCOL)
CHECK_FAMILIES: Final = Table(
    Each("ipFamilies", Enum(*FAMILIES), Unique()),
    Pointer("ipFamilyPolicy", Enum("PreferDualStack", "RequireDualStack", "SingleStack")),
)
ONLY_ADDRESSED: Final = ForbiddenField("may not be set for ExternalName services")
ONLY_BALANCED: Final = ForbiddenField(ONLY_LOAD_BALANCER)
ONLY_CLIENT_IP: Final = ForbiddenField("must not be set when session affinity is None")
ONLY_EXTERNAL: Final = Refused("may only be set for externally-accessible services")
ONLY_LOCAL: Final = Refused("may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
NO_SECONDS: Final = "when session affinity type is ClientIP"
AFFINITY_SECONDS: Final = "sessionAffinityConfig.clientIP.timeoutSeconds"

SPEC: Final = Table(
    Where(needs_ports, Required("ports")),
    Where(is_headless, Check(check_reachable)),
    When(
        "type",
        "ExternalName",
        *(Optional(member, ONLY_ADDRESSED) for member in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")),
        Always("externalName", check_external_name),
    ),
    Where(
        has_several_ports,
        Each("ports", Required("name", LABEL, Unique()), SERVICE_PORT),
        otherwise=(Each("ports", Optional("name", LABEL), SERVICE_PORT),),
    ),
    Optional("selector", check_labels),
    Required("sessionAffinity", Enum("ClientIP", "None")),
    When(
        "sessionAffinity",
        "ClientIP",
        RequiredPointer(AFFINITY_SECONDS, named="sessionAffinityConfig", detail=NO_SECONDS),
        Pointer(AFFINITY_SECONDS, Range(1, 86400, "must be greater than 0 and less than 86400")),
    ),
    When("sessionAffinity", "None", Pointer("sessionAffinityConfig", ONLY_CLIENT_IP)),
    Unless("type", "ExternalName", Check(check_addresses)),
    Each("externalIPs", FirstError(check_address, check_not_special)),
    Required("type", Enum("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")),
    Check(check_repeated_ports),
)
TRAFFIC: Final = Table(
    Unless(
        "type",
        "LoadBalancer",
        Pointer("allocateLoadBalancerNodePorts", ONLY_BALANCED),
        Pointer("loadBalancerClass", ONLY_BALANCED),
    ),
    When("type", "LoadBalancer", Pointer("loadBalancerClass", Format(names.qualified_name))),
    Where(
        is_external,
        Required("externalTrafficPolicy", Enum("Cluster", "Local")),
        otherwise=(Optional("externalTrafficPolicy", ONLY_EXTERNAL),),
    ),
    Where(
        _needs_health_check,
        Required("healthCheckNodePort", check_port),
        otherwise=(Optional("healthCheckNodePort", ONLY_LOCAL),),
    ),
    Pointer("internalTrafficPolicy", Enum("Cluster", "Local")),
    Pointer("trafficDistribution", Enum("PreferClose", "PreferSameNode", "PreferSameZone")),
)


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


INGRESS: Final = Table(
    Optional("ip", check_address),
    When("ip", "", Pointer("ipMode", ForbiddenField("may not be specified when `ip` is not set"))),
    Unless("ip", "", RequiredPointer("ipMode", Enum("Proxy", "VIP"), detail="must be specified when `ip` is set")),
    Optional(
        "hostname", Format(names.dns_subdomain), InvalidIf(parse_address, "must be a DNS name, not an IP address")
    ),
)
ONLY_WITH_BALANCER: Final = ForbiddenField("may only be used when `spec.type` is 'LoadBalancer'")

SERVICE_RULES: Final = Rules(
    name=names.dns_1035_label,
    default=DEFAULT_SERVICE,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    prepare_status=keep_spec,
    validate=Validation(Always("spec", SPEC, zero={}), Check(check_source_ranges), Always("spec", TRAFFIC, zero={})),
    validate_update=_validate_update,
    validate_status=Validation(
        Unless("spec.type", "LoadBalancer", Optional("status.loadBalancer.ingress", ONLY_WITH_BALANCER)),
        When("spec.type", "LoadBalancer", Each("status.loadBalancer.ingress", INGRESS)),
    ),
    create_on_update=True,
)


# --- Endpoints ------------------------------------------------------------------------------------


def check_addressed(subset: Obj, path: str, errors: Errors) -> None:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))


ADDRESS: Final = Table(
    Always("ip", check_address),
    Optional("hostname", LABEL),
    Pointer("nodeName", Format(names.dns_subdomain)),
    Always("ip", check_not_special),
)

ENDPOINTS_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=Defaults(Each("subsets", Each("ports", Default("protocol", "TCP")))),
    validate=Validation(
        Each(
            "subsets",
            Check(check_addressed),
            Each("addresses", ADDRESS),
            Each("notReadyAddresses", ADDRESS),
            Where(
                has_several_ports,
                Each("ports", Required("name", LABEL), PORT, APP_PROTOCOL),
                otherwise=(Each("ports", Optional("name", LABEL), PORT, APP_PROTOCOL),),
            ),
        )
    ),
    create_on_update=True,
)
