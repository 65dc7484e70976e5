"""Leases, priorities, storage, endpoint slices, runtimes, addresses, flow control: defaults and rules."""

from typing import Any

import pytest

from farflung.apis.builtin.rules import RULES
from farflung.machinery.errors import Obj


def created(group: str, kind: str, **members: Any) -> Obj:
    obj: Obj = {"metadata": {"name": "x"}, **members}
    RULES[group, kind].default(obj)
    RULES[group, kind].prepare_create(obj)
    return obj


def told(group: str, kind: str, **members: Any) -> list[str]:
    rules = RULES[group, kind]
    obj = created(group, kind, **members)
    return [str(error) for error in rules.validate(obj) + rules.validate_create(obj)]


def changed(group: str, kind: str, new: Obj, old: Obj) -> list[str]:
    return [str(error) for error in RULES[group, kind].validate_update(new, old)]


# --- Lease ----------------------------------------------------------------------------------------

LEASE = ("coordination.k8s.io", "Lease")


def test_a_lease_has_no_defaults_and_may_have_no_holder() -> None:
    assert created(*LEASE, spec={"holderIdentity": ""}) == {"metadata": {"name": "x"}, "spec": {"holderIdentity": ""}}
    assert told(*LEASE, spec={"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0}) == []


def test_a_lease_lasts_and_its_transitions_count_up() -> None:
    assert told(*LEASE, spec={"leaseDurationSeconds": 0, "leaseTransitions": -1}) == [
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
    ]


def test_a_preferred_holder_needs_a_strategy() -> None:
    assert told(*LEASE, spec={"preferredHolder": "a"}) == [
        "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined"
    ]
    assert told(*LEASE, spec={"preferredHolder": "a", "strategy": "OldestEmulationVersion"}) == []


# --- PriorityClass --------------------------------------------------------------------------------

PRIORITY = ("scheduling.k8s.io", "PriorityClass")


def test_a_priority_class_preempts_and_is_of_the_first_generation() -> None:
    assert created(*PRIORITY, value=1000) == {
        "metadata": {"name": "x", "generation": 1},
        "value": 1000,
        "preemptionPolicy": "PreemptLowerPriority",
    }


@pytest.mark.parametrize(
    ("name", "value", "messages"),
    [
        ("x", 1_000_000_000, []),
        ("x", 1_000_000_001, ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"]),
        ("system-node-critical", 2_000_001_000, []),
        (
            "system-node-critical",
            1,
            [
                "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use "
                "only. error: value of system-node-critical PriorityClass must be 2000001000"
            ],
        ),
        (
            "system-foo",
            1,
            [
                "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use "
                "only. error: system-foo is not a known system priority class"
            ],
        ),
    ],
)
def test_high_priorities_are_the_systems(name: str, value: int, messages: list[str]) -> None:
    assert told(*PRIORITY, metadata={"name": name}, value=value) == messages


def test_a_priority_does_not_change() -> None:
    old = {"value": 1, "preemptionPolicy": "Never"}
    assert changed(*PRIORITY, {"value": 2, "preemptionPolicy": "PreemptLowerPriority"}, old) == [
        "value: Forbidden: may not be changed in an update.",
        'preemptionPolicy: Invalid value: "PreemptLowerPriority": field is immutable',
    ]


# --- storage --------------------------------------------------------------------------------------

STORAGE = "storage.k8s.io"


def test_a_storage_class_deletes_and_binds_at_once() -> None:
    storage = created(STORAGE, "StorageClass", provisioner="example.com/disk")
    assert (storage["reclaimPolicy"], storage["volumeBindingMode"]) == ("Delete", "Immediate")


def test_a_storage_class_names_its_provisioner() -> None:
    assert told(STORAGE, "StorageClass", provisioner="Example.com/disk") == []
    assert told(STORAGE, "StorageClass", reclaimPolicy="Keep", volumeBindingMode="Late") == [
        "provisioner: Required value",
        'reclaimPolicy: Unsupported value: "Keep": supported values: "Delete", "Retain"',
        'volumeBindingMode: Unsupported value: "Late": supported values: "Immediate", "WaitForFirstConsumer"',
    ]


def test_what_a_storage_class_is_stays() -> None:
    old = {"provisioner": "a", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}
    new = {"provisioner": "b", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", "parameters": {"k": "v"}}
    assert changed(STORAGE, "StorageClass", new, old) == [
        "parameters: Forbidden: updates to parameters are forbidden.",
        "provisioner: Forbidden: updates to provisioner are forbidden.",
    ]


def test_a_driver_attaches_persistent_volumes_unless_it_says_otherwise() -> None:
    assert created(STORAGE, "CSIDriver", spec={"attachRequired": False})["spec"] == {
        "attachRequired": False,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
        "volumeLifecycleModes": ["Persistent"],
    }


def test_a_driver_counts_its_changes() -> None:
    old = created(STORAGE, "CSIDriver")
    new = created(STORAGE, "CSIDriver", spec={"storageCapacity": True})
    RULES[STORAGE, "CSIDriver"].prepare_update(new, old)
    assert new["metadata"]["generation"] == 1


def test_a_node_lists_each_driver_once() -> None:
    drivers = [{"name": "a.b", "nodeID": "1"}, {"name": "a.b", "nodeID": ""}]
    assert told(STORAGE, "CSINode", spec={"drivers": drivers}) == [
        "spec.drivers[1].nodeID: Required value",
        'spec.drivers[1].name: Duplicate value: "a.b"',
    ]


def test_an_attachment_names_driver_volume_and_node_and_is_not_attached_yet() -> None:
    spec = {"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}
    assert told(STORAGE, "VolumeAttachment", spec=spec) == []
    assert created(STORAGE, "VolumeAttachment", spec=spec)["status"] == {"attached": False}
    assert told(STORAGE, "VolumeAttachment") == [
        "spec.attacher: Required value",
        "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        "spec.nodeName: Required value",
    ]


# --- EndpointSlice --------------------------------------------------------------------------------

SLICE = ("discovery.k8s.io", "EndpointSlice")


def test_ports_of_a_slice_are_unnamed_tcp_ports() -> None:
    slice_ = created(*SLICE, addressType="IPv4", endpoints=[{"addresses": ["10.0.0.1"]}], ports=[{"port": 80}])
    assert slice_["ports"] == [{"port": 80, "name": "", "protocol": "TCP"}]
    assert slice_["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {}}]


@pytest.mark.parametrize(
    ("kind", "address", "message"),
    [
        ("IPv4", "10.0.0.1", ""),
        ("IPv4", "::1", "must be a valid IPv4 address, (e.g. 10.9.8.7)"),
        ("IPv6", "2001:db8::1", ""),
        ("IPv4", "127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("FQDN", "example.com.", ""),
        ("FQDN", "localhost", "should be a domain with at least two segments separated by dots"),
    ],
)
def test_addresses_of_a_slice_are_of_its_type(kind: str, address: str, message: str) -> None:
    wrong = told(*SLICE, addressType=kind, endpoints=[{"addresses": [address]}])
    assert [one.rpartition(f'"{address}": ')[2] for one in wrong] == ([message] if message else [])


def test_a_slice_has_a_type_and_no_port_twice() -> None:
    assert told(*SLICE, endpoints=[{}], ports=[{"name": "a"}, {"name": "a", "protocol": "X"}]) == [
        "addressType: Required value",
        "endpoints[0].addresses: Required value: must contain at least 1 address",
        'ports[1].name: Duplicate value: "a"',
        'ports[1].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"',
    ]


def test_labels_make_another_generation_of_a_slice() -> None:
    another = RULES[SLICE].another_generation
    assert another is not None
    old: Obj = {"metadata": {"annotations": {"a": "b"}}, "ports": None}
    assert not another({"metadata": {}, "ports": None}, old)
    assert another({"metadata": {"labels": {"a": "b"}}, "ports": None}, old)
    assert another({"metadata": {}, "ports": [{"port": 1}]}, old)


# --- RuntimeClass, IPAddress, ServiceCIDR ---------------------------------------------------------


def test_a_runtime_class_names_its_handler_for_good() -> None:
    runtime = ("node.k8s.io", "RuntimeClass")
    assert told(*runtime, handler="runc", overhead={"podFixed": {"cpu": "10m"}}) == []
    assert told(*runtime, handler="a.b") == ['handler: Invalid value: "a.b": must not contain dots']
    assert changed(*runtime, {"handler": "a"}, {"handler": "b"}) == ['handler: Invalid value: "a": field is immutable']


def test_an_address_is_its_name_and_belongs_to_something() -> None:
    address = ("networking.k8s.io", "IPAddress")
    assert list(RULES[address].name("10.0.0.1")) == []
    assert list(RULES[address].name("x")) == ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    assert told(*address) == ["spec.parentRef: Required value"]
    assert told(*address, spec={"parentRef": {"resource": "services", "name": "s"}}) == []


def test_a_range_of_services_has_at_most_one_network_of_each_family() -> None:
    cidr = ("networking.k8s.io", "ServiceCIDR")
    assert told(*cidr, spec={"cidrs": ["10.0.0.0/24", "2001:db8::/64"]}) == []
    assert told(*cidr) == ["spec.cidrs: Required value: at least one CIDR required"]
    assert "no more than one IP for each IP family" in told(*cidr, spec={"cidrs": ["10.0.0.0/24", "10.1.0.0/24"]})[0]


# --- flow control ---------------------------------------------------------------------------------

FLOW = "flowcontrol.apiserver.k8s.io"


def test_a_flow_schema_has_a_precedence_and_a_level() -> None:
    flow = created(FLOW, "FlowSchema", spec={"priorityLevelConfiguration": {"name": "l"}})
    assert flow["spec"]["matchingPrecedence"] == 1000
    assert told(FLOW, "FlowSchema", spec={"matchingPrecedence": 10001}) == [
        "spec.matchingPrecedence: Invalid value: 10001: must be between 1 and 10000, inclusive",
        "spec.priorityLevelConfiguration.name: Required value",
    ]


def test_a_limited_level_queues_with_the_usual_numbers() -> None:
    spec = {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}
    assert created(FLOW, "PriorityLevelConfiguration", spec=spec)["spec"]["limited"] == {
        "nominalConcurrencyShares": 30,
        "lendablePercent": 0,
        "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 8, "queueLengthLimit": 50}},
    }
    assert told(FLOW, "PriorityLevelConfiguration", spec=spec) == []
    assert told(FLOW, "PriorityLevelConfiguration", spec={"type": "Limited"}) == [
        "spec.limited: Required value: must not be empty when type is Limited"
    ]
