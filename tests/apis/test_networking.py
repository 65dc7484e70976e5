"""Ingress, IngressClass and NetworkPolicy."""

from typing import Any

import pytest

from farflung.apis.networking import INGRESS_CLASS_RULES, INGRESS_RULES, NETWORK_POLICY_RULES
from farflung.machinery.errors import Obj


def ingress(path: Obj | None = None, **spec: Any) -> Obj:
    entry = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}
    rules = [{"host": "foo.com", "http": {"paths": [{**entry, **(path or {})}]}}]
    return {"metadata": {"name": "i"}, "spec": {"rules": rules, **spec}}


def said(rules: Any, obj: Obj) -> list[str]:
    rules.default(obj)
    return [str(error) for error in [*rules.validate(obj), *rules.validate_create(obj)]]


def test_an_ingress_starts_without_a_balancer() -> None:
    obj = ingress()
    assert said(INGRESS_RULES, obj) == []
    INGRESS_RULES.prepare_create(obj)
    assert obj["status"] == {"loadBalancer": {}}


def test_a_path_without_a_type_is_told_only_that() -> None:
    rules = [{"http": {"paths": [{"path": "nope", "backend": {"service": {"name": "s"}}}]}}]
    assert said(INGRESS_RULES, ingress(rules=rules)) == [
        "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"
    ]


@pytest.mark.parametrize(
    ("obj", "why"),
    [
        (
            ingress(rules=None),
            "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified",
        ),
        (ingress({"path": "x"}), 'spec.rules[0].http.paths[0].path: Invalid value: "x": must be an absolute path'),
        (
            ingress({"path": "/a//b"}),
            "spec.rules[0].http.paths[0].path: Invalid value: \"/a//b\": must not contain '//'",
        ),
        (
            ingress({"backend": {"service": {"name": "s"}}}),
            "spec.rules[0].http.paths[0].backend: Required value: port name or number is required",
        ),
        (
            ingress({"backend": {}}),
            'spec.rules[0].http.paths[0].backend: Invalid value: "": resource or service backend is required',
        ),
        (
            ingress(rules=[{"host": "1.2.3.4"}]),
            'spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address',
        ),
        (ingress(rules=[{"http": {}}]), "spec.rules[0].http.paths: Required value"),
        (
            ingress({"pathType": "Fuzzy"}),
            'spec.rules[0].http.paths[0].pathType: Unsupported value: "Fuzzy": supported values: "Exact", '
            '"ImplementationSpecific", "Prefix"',
        ),
    ],
)
def test_what_is_wrong_with_an_ingress_is_said_as_kubernetes_says_it(obj: Obj, why: str) -> None:
    assert said(INGRESS_RULES, obj) == [why]


def test_two_places_that_say_the_class_agree() -> None:
    obj = ingress(ingressClassName="nginx")
    obj["metadata"]["annotations"] = {"kubernetes.io/ingress.class": "nginx"}
    assert said(INGRESS_RULES, obj) == []
    obj["metadata"]["annotations"] = {"kubernetes.io/ingress.class": "other"}
    assert said(INGRESS_RULES, obj) == [
        'annotations.kubernetes.io/ingress.class: Invalid value: "other": must match `ingressClassName` when both are '
        "specified"
    ]


def test_an_ingress_class_names_its_controller() -> None:
    assert said(INGRESS_CLASS_RULES, {"metadata": {"name": "c"}}) == ["spec.controller: Required value"]
    assert said(INGRESS_CLASS_RULES, {"metadata": {"name": "c"}, "spec": {"controller": "x"}}) == [
        'spec.controller: Invalid value: "x": must be a domain-prefixed path (such as "acme.io/foo")'
    ]


def test_an_ingress_class_keeps_its_controller() -> None:
    old = {"metadata": {"name": "c"}, "spec": {"controller": "example.com/a", "parameters": {"kind": "K", "name": "n"}}}
    assert said(INGRESS_CLASS_RULES, old) == []
    assert old["spec"]["parameters"]["scope"] == "Cluster"
    new = {"spec": {"controller": "example.com/b"}}
    assert [str(error) for error in INGRESS_CLASS_RULES.validate_update(new, old)] == [
        'spec.controller: Invalid value: "example.com/b": field is immutable'
    ]


def test_a_network_policy_says_which_directions_it_is_about() -> None:
    inward: Obj = {"metadata": {"name": "p"}, "spec": {"ingress": [{"ports": [{"port": 80}]}]}}
    assert said(NETWORK_POLICY_RULES, inward) == []
    assert inward["spec"] == {
        "podSelector": {},
        "ingress": [{"ports": [{"port": 80, "protocol": "TCP"}]}],
        "policyTypes": ["Ingress"],
    }
    outward: Obj = {"metadata": {"name": "p"}, "spec": {"egress": [{}]}}
    assert said(NETWORK_POLICY_RULES, outward) == []
    assert outward["spec"]["policyTypes"] == ["Ingress", "Egress"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"ingress": [{"from": [{}]}]}, "spec.ingress[0].from[0]: Required value: must specify a peer"),
        (
            {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}]},
            "spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer",
        ),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/9"]}}]}]},
            'spec.egress[0].to[0].ipBlock.except[0]: Invalid value: "11.0.0.0/9": must be a strict subset of `cidr`',
        ),
        (
            {"ingress": [{"ports": [{"port": 80, "endPort": 79}]}]},
            "spec.ingress[0].ports[0].endPort: Invalid value: 79: must be greater than or equal to `port`",
        ),
        (
            {"policyTypes": ["Sideways"]},
            'spec.policyTypes: Unsupported value: "Sideways": supported values: "Egress", "Ingress"',
        ),
    ],
)
def test_what_is_wrong_with_a_network_policy_is_said_as_kubernetes_says_it(spec: Obj, why: str) -> None:
    assert said(NETWORK_POLICY_RULES, {"metadata": {"name": "p"}, "spec": spec}) == [why]
