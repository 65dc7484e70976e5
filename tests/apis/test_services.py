"""Services and Endpoints: defaults, allocation and refusals."""

from typing import Any

import pytest

from farflung.apis.core.services import (
    ENDPOINTS_RULES,
    SERVICE_RULES,
    Allocations,
    NotAvailable,
    allocate_service,
    allocations,
    give_back,
)
from farflung.machinery.errors import ApiError, Obj


class Numbers:
    """Pools that count upwards."""

    def __init__(self) -> None:
        self.addresses: set[str] = set()
        self.ports: set[int] = set()

    def take_address(self, wanted: str) -> str:
        address = wanted or f"10.0.0.{len(self.addresses) + 1}"
        if not address.startswith("10.0.0."):
            raise NotAvailable("the provided network does not match the current range")
        if address in self.addresses:
            raise NotAvailable("provided IP is already allocated")
        self.addresses.add(address)
        return address

    def take_port(self, wanted: int) -> int:
        number = wanted or 30000 + len(self.ports)
        if number in self.ports:
            raise NotAvailable("provided port is already allocated")
        self.ports.add(number)
        return number

    def release_address(self, address: str) -> None:
        self.addresses.remove(address)

    def release_port(self, number: int) -> None:
        self.ports.remove(number)


def service(**spec: Any) -> Obj:
    return {"metadata": {"name": "s", "namespace": "n"}, "spec": {"ports": [{"port": 80}], **spec}}


def created(obj: Obj, pools: Numbers | None = None) -> Obj:
    SERVICE_RULES.default(obj)
    SERVICE_RULES.prepare_create(obj)
    allocate_service(obj, None, pools or Numbers())
    return obj


def said(obj: Obj) -> list[str]:
    return [str(error) for error in SERVICE_RULES.validate(created(obj))]


def changed(old: Obj, new: Obj, pools: Numbers) -> list[str]:
    SERVICE_RULES.default(new)
    SERVICE_RULES.prepare_update(new, old)
    allocate_service(new, old, pools)
    return [str(error) for error in [*SERVICE_RULES.validate(new), *SERVICE_RULES.validate_update(new, old)]]


# --- creation -------------------------------------------------------------------------------------


def test_a_minimal_service_gets_an_address_and_its_defaults() -> None:
    obj = created(service())
    assert obj["spec"] == {
        "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}],
        "clusterIP": "10.0.0.1",
        "clusterIPs": ["10.0.0.1"],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
    }
    assert obj["status"] == {"loadBalancer": {}}
    assert SERVICE_RULES.validate(obj) == []


def test_a_headless_service_takes_nothing() -> None:
    pools = Numbers()
    obj = created(service(clusterIP="None", selector={"a": "b"}), pools)
    assert (obj["spec"]["clusterIPs"], obj["spec"]["ipFamilies"]) == (["None"], ["IPv4"])
    assert pools.addresses == set()
    assert SERVICE_RULES.validate(obj) == []
    free = created(service(clusterIP="None"))
    assert (free["spec"]["ipFamilies"], free["spec"]["ipFamilyPolicy"]) == (["IPv4", "IPv6"], "RequireDualStack")


def test_an_external_name_is_just_a_name() -> None:
    obj = created({"metadata": {"name": "s3"}, "spec": {"type": "ExternalName", "externalName": "example.com"}})
    assert obj["spec"] == {"type": "ExternalName", "sessionAffinity": "None", "externalName": "example.com"}
    assert SERVICE_RULES.validate(obj) == []


def test_a_node_port_service_gets_ports_one_for_both_protocols() -> None:
    pools = Numbers()
    ports = [{"name": "a", "port": 53}, {"name": "b", "port": 53, "protocol": "UDP"}, {"name": "c", "port": 80}]
    obj = created(service(type="NodePort", ports=ports), pools)
    assert [port["nodePort"] for port in obj["spec"]["ports"]] == [30000, 30000, 30001]
    assert obj["spec"]["externalTrafficPolicy"] == "Cluster"
    assert allocations(obj) == Allocations(["10.0.0.1"], [30000, 30001])
    assert SERVICE_RULES.validate(obj) == []


def test_a_load_balancer_can_do_without_node_ports_and_needs_one_for_its_health() -> None:
    obj = created(service(type="LoadBalancer", allocateLoadBalancerNodePorts=False, externalTrafficPolicy="Local"))
    assert "nodePort" not in obj["spec"]["ports"][0]
    assert obj["spec"]["healthCheckNodePort"] == 30000
    assert SERVICE_RULES.validate(obj) == []


def test_an_address_that_cannot_be_had_is_refused_before_anything_else() -> None:
    with pytest.raises(ApiError) as refused:
        created(service(clusterIP="1.2.3.4", ports=[{"port": 80, "protocol": "XYZ"}]))
    assert refused.value.message == (
        'Service "s" is invalid: spec.clusterIPs: Invalid value: ["1.2.3.4"]: failed to allocate IP 1.2.3.4: the '
        "provided network does not match the current range"
    )


def test_a_refused_port_gives_everything_back() -> None:
    pools = Numbers()
    pools.take_port(30500)
    ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2, "nodePort": 30500}]
    with pytest.raises(ApiError, match=r"spec\.ports\[1\]\.nodePort: Invalid value: 30500: provided port is already"):
        created(service(type="NodePort", ports=ports), pools)
    assert (pools.addresses, pools.ports) == (set(), {30500})


def test_what_was_taken_can_be_given_back() -> None:
    pools, obj = Numbers(), service(type="NodePort")
    SERVICE_RULES.default(obj)
    SERVICE_RULES.prepare_create(obj)
    give_back(allocate_service(obj, None, pools), pools)
    assert (pools.addresses, pools.ports) == (set(), set())


def test_this_cluster_has_one_family() -> None:
    with pytest.raises(ApiError, match="this cluster is not configured for dual-stack services"):
        created(service(ipFamilyPolicy="RequireDualStack"))
    with pytest.raises(ApiError, match="not configured on this cluster"):
        created(service(ipFamilies=["IPv6"]))


def test_sticky_clients_are_remembered_for_three_hours() -> None:
    obj = created(service(sessionAffinity="ClientIP"))
    assert obj["spec"]["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"ports": []}, ["spec.ports: Required value"]),
        (
            {"type": "X", "ports": [{"port": 80}, {"port": 0}]},
            [
                "spec.ports[0].name: Required value",
                "spec.ports[1].name: Required value",
                "spec.ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[1].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
                'spec.type: Unsupported value: "X": supported values: "ClusterIP", "ExternalName", "LoadBalancer", '
                '"NodePort"',
            ],
        ),
        (
            {"ports": [{"port": 80, "nodePort": 30000}]},
            ["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
        ),
        ({"type": "ExternalName", "ports": []}, ["spec.externalName: Required value"]),
        (
            {"loadBalancerClass": "a/b"},
            ["spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"],
        ),
        (
            {"externalTrafficPolicy": "Local"},
            ['spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services'],
        ),
        (
            {"externalIPs": ["127.0.0.1"]},
            [
                'spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, '
                "::1/128)"
            ],
        ),
        (
            {"type": "LoadBalancer", "loadBalancerSourceRanges": ["x"]},
            [
                'spec.LoadBalancerSourceRanges[0]: Invalid value: "x": must be a valid CIDR value, (e.g. '
                "10.9.8.0/24 or "
                "2001:db8::/64)"
            ],
        ),
    ],
)
def test_what_is_wrong_with_a_service_is_said_as_kubernetes_says_it(spec: Obj, why: list[str]) -> None:
    assert said(service(**spec)) == why


def test_two_ports_may_not_be_the_same() -> None:
    errors = said(service(ports=[{"name": "a", "port": 80}, {"name": "b", "port": 80}]))
    assert len(errors) == 1
    assert errors[0].startswith('spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP"')


# --- updates --------------------------------------------------------------------------------------


def test_the_address_of_a_service_stays() -> None:
    pools = Numbers()
    old = created(service(), pools)
    new = service(clusterIP="10.0.0.250", clusterIPs=["10.0.0.250"])
    assert changed(old, new, pools) == ['spec.clusterIPs[0]: Invalid value: ["10.0.0.250"]: may not change once set']


def test_what_a_client_leaves_out_is_kept() -> None:
    pools = Numbers()
    old = created(service(type="NodePort"), pools)
    new = service(type="NodePort", selector={"a": "b"})
    assert changed(old, new, pools) == []
    assert new["spec"]["clusterIP"] == "10.0.0.1"
    assert new["spec"]["ports"] == old["spec"]["ports"]
    assert (len(pools.addresses), len(pools.ports)) == (1, 1)


def test_a_service_may_become_reachable_and_retire_again() -> None:
    pools = Numbers()
    plain = created(service(), pools)
    open_ = service(type="NodePort")
    assert changed(plain, open_, pools) == []
    assert open_["spec"]["ports"][0]["nodePort"] == 30000
    again = {**open_, "spec": {**open_["spec"], "type": "ClusterIP", "ports": [dict(open_["spec"]["ports"][0])]}}
    assert changed(open_, again, pools) == []
    assert "nodePort" not in again["spec"]["ports"][0]
    assert "externalTrafficPolicy" not in again["spec"]


def test_a_service_may_become_a_name() -> None:
    pools = Numbers()
    old = created(service(), pools)
    new = {**old, "spec": {**old["spec"], "type": "ExternalName", "externalName": "example.com"}}
    assert changed(old, new, pools) == []
    assert "clusterIP" not in new["spec"]
    assert allocations(new) == Allocations()


def test_the_status_of_a_service_is_for_load_balancers() -> None:
    old = created(service())
    new = {**old, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}}}
    assert [str(error) for error in SERVICE_RULES.validate_status(new, old)] == [
        "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"
    ]


# --- Endpoints ------------------------------------------------------------------------------------


def test_endpoints_have_addresses_that_mean_the_same_everywhere() -> None:
    obj = {"metadata": {"name": "e"}, "subsets": [{}, {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": 0}]}]}
    ENDPOINTS_RULES.default(obj)
    assert [str(error) for error in ENDPOINTS_RULES.validate(obj)] == [
        "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
        'subsets[1].addresses[0].ip: Invalid value: "127.0.0.1": may not be in the loopback range '
        "(127.0.0.0/8, ::1/128)",
        "subsets[1].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
    ]
