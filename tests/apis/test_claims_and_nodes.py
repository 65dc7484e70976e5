"""PersistentVolumes, PersistentVolumeClaims and Nodes."""

from typing import Any

import pytest

from farflung.apis.core.claims import CLAIM_RULES
from farflung.apis.core.persistent_volumes import VOLUME_RULES
from farflung.apis.core.validation import NODE_RULES
from farflung.machinery.errors import Obj


def claim(**spec: Any) -> Obj:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": "c"}, "spec": {**wanted, **spec}}


def volume(**spec: Any) -> Obj:
    offered = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
    return {"metadata": {"name": "v", "creationTimestamp": "2020-01-01T00:00:00Z"}, "spec": {**offered, **spec}}


def said(rules: Any, obj: Obj) -> list[str]:
    rules.default(obj)
    return [str(error) for error in rules.validate(obj)]


def test_a_claim_is_pending_first() -> None:
    obj = claim()
    assert said(CLAIM_RULES, obj) == []
    CLAIM_RULES.prepare_create(obj)
    assert (obj["spec"]["volumeMode"], obj["status"]) == ("Filesystem", {"phase": "Pending"})


def test_the_two_spellings_of_a_data_source_agree() -> None:
    obj = claim(dataSource={"kind": "PersistentVolumeClaim", "name": "other"})
    CLAIM_RULES.default(obj)
    CLAIM_RULES.prepare_create(obj)
    assert obj["spec"]["dataSourceRef"] == obj["spec"]["dataSource"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"accessModes": []}, "spec.accessModes: Required value: at least 1 access mode is required"),
        ({"resources": {}}, "spec.resources[storage]: Required value"),
        (
            {"resources": {"requests": {"storage": "0"}}},
            'spec.resources[storage]: Invalid value: "0": must be greater than 0',
        ),
        (
            {"accessModes": ["ReadWriteOncePod", "ReadOnlyMany"]},
            "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
        ),
        (
            {"volumeMode": "Tape"},
            'spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"',
        ),
    ],
)
def test_what_is_wrong_with_a_claim_is_said_as_kubernetes_says_it(spec: Obj, why: str) -> None:
    assert said(CLAIM_RULES, claim(**spec)) == [why]


def test_a_bound_claim_may_grow_and_is_otherwise_fixed() -> None:
    bound = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
    old = {**claim(), "status": bound}
    grown = {**claim(resources={"requests": {"storage": "2Gi"}}), "status": bound}
    assert CLAIM_RULES.validate_update(grown, old) == []
    shrunk = {**claim(resources={"requests": {"storage": "1Mi"}}), "status": bound}
    assert [str(error) for error in CLAIM_RULES.validate_update(shrunk, old)] == [
        "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
    ]
    other = {**claim(accessModes=["ReadOnlyMany"]), "status": bound}
    (error,) = CLAIM_RULES.validate_update(other, old)
    assert str(error).startswith("spec: Forbidden: spec is immutable after creation except resources.requests and")


def test_an_unbound_claim_may_be_bound() -> None:
    assert CLAIM_RULES.validate_update(claim(volumeName="v"), claim()) == []
    assert len(CLAIM_RULES.validate_update(claim(volumeName="w"), claim(volumeName="v"))) == 1


def test_a_volume_gets_its_defaults() -> None:
    obj = volume()
    assert said(VOLUME_RULES, obj) == []
    VOLUME_RULES.prepare_create(obj)
    assert obj["spec"]["hostPath"] == {"path": "/x", "type": ""}
    assert obj["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert obj["status"] == {"phase": "Pending", "lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"hostPath": None}, "spec: Required value: must specify a volume type"),
        (
            {"capacity": {"storage": "-1"}},
            'spec.capacity[storage]: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            {"hostPath": {"path": "/"}, "persistentVolumeReclaimPolicy": "Recycle"},
            "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'",
        ),
        (
            {"hostPath": None, "local": {"path": "/x"}},
            "spec.nodeAffinity: Required value: Local volume requires node affinity",
        ),
    ],
)
def test_what_is_wrong_with_a_volume_is_said_as_kubernetes_says_it(spec: Obj, why: str) -> None:
    obj = volume(**spec)
    obj["spec"] = {key: value for key, value in obj["spec"].items() if value is not None}
    assert said(VOLUME_RULES, obj)[0] == why


def test_the_source_of_a_volume_stays() -> None:
    (error,) = VOLUME_RULES.validate_update(volume(hostPath={"path": "/y"}), volume())
    assert error.field == "spec.persistentvolumesource"


def test_a_node_offers_what_it_has() -> None:
    obj: Obj = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}, "spec": {"podCIDR": "10.0.0.0/24"}}
    assert said(NODE_RULES, obj) == []
    assert obj["status"]["allocatable"] == {"cpu": "4"}
    assert obj["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}
    assert obj["status"]["nodeInfo"]["kubeletVersion"] == ""
    assert obj["spec"]["podCIDRs"] == ["10.0.0.0/24"]


def test_taints_are_unique() -> None:
    taint = {"key": "a", "effect": "NoSchedule"}
    assert said(NODE_RULES, {"metadata": {"name": "n"}, "spec": {"taints": [taint, dict(taint)]}}) == [
        'metadata.taints[1]: Duplicate value: {"key":"a","effect":"NoSchedule"}: taints must be unique '
        "by key and effect "
        "pair"
    ]


def test_a_node_keeps_its_network_and_provider() -> None:
    old = {"spec": {"podCIDRs": ["10.0.0.0/24"], "providerID": "a"}}
    assert [error.field for error in NODE_RULES.validate_update({"spec": {}}, old)] == [
        "spec.podCIDRs",
        "spec.providerID",
    ]
