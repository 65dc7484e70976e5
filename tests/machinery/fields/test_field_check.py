"""The strict typing of applied configurations."""

from typing import Any

import pytest

from farflung.apis.definitions import schema
from farflung.machinery.fields.check import untypable
from farflung.machinery.fields.shapes import no_reference
from farflung.machinery.schema.model import Schema

CONFIG_MAP = schema("io.k8s.api.core.v1.ConfigMap")
POD = schema("io.k8s.api.core.v1.Pod")
CUSTOM = Schema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "flag": {"type": "boolean"},
                    "number": {"type": "integer"},
                    "either": {"x-kubernetes-int-or-string": True},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "half": {"type": "object", "properties": {}, "x-kubernetes-preserve-unknown-fields": True},
                    "embedded": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"s": {}}},
                },
            }
        },
    },
    no_reference,
)


def pod(**container: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", **container}]}}


@pytest.mark.parametrize(
    ("applied", "problem"),
    [
        ({"dta": {}}, ".dta: field not declared in schema"),
        ({"data": {"a": 3}}, ".data.a: expected string, got &value.valueUnstructured{Value:3}"),
        ({"data": {"a": 1.5}}, ".data.a: expected string, got &value.valueUnstructured{Value:1.5}"),
        ({"data": {"a": True}}, ".data.a: expected string, got &value.valueUnstructured{Value:true}"),
        (
            {"data": {"a": {"x": ["y", None]}}},
            ".data.a: expected string, got &value.valueUnstructured"
            '{Value:map[string]interface {}{"x":[]interface {}{"y", interface {}(nil)}}}',
        ),
        ({"data": "x"}, ".data: expected map, got &{x}"),
        ({"data": [1, True, None]}, ".data: expected map, got &{[1 true <nil>]}"),
        ({"immutable": "yes"}, ".immutable: expected boolean, got &{yes}"),
        ({"metadata": []}, ".metadata: expected map, got &{[]}"),
        ({"metadata": {"finalizers": {"b": 1, "a": 2}}}, ".metadata.finalizers: expected list, got &{map[a:2 b:1]}"),
        (
            {"metadata": {"finalizers": ["a", "a"]}},
            '.metadata.finalizers: duplicate entries for key [="a"]',
        ),
        (
            {"data": {"a": 1, "b": 2}},
            "errors:\n  .data.a: expected string, got &value.valueUnstructured{Value:1}\n"
            "  .data.b: expected string, got &value.valueUnstructured{Value:2}",
        ),
        ({"data": {"a": None}, "metadata": None}, ""),
    ],
)
def test_what_is_not_of_a_built_in_type_is_named(applied: dict[str, Any], problem: str) -> None:
    assert untypable({"apiVersion": "v1", "kind": "ConfigMap", **applied}, CONFIG_MAP) == problem


@pytest.mark.parametrize(
    ("applied", "problem"),
    [
        (pod(ports=[{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]), ""),
        (
            pod(ports=[{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]),
            '.spec.containers[name="c"].ports: duplicate entries for key [containerPort=80,protocol="TCP"]',
        ),
        (
            pod(args=["a", 1]),
            '.spec.containers[name="c"].args[1]: expected string, got &value.valueUnstructured{Value:1}',
        ),
        (pod(resources={"limits": {"cpu": 1, "memory": "1Gi"}}), ""),
        (
            {"spec": {"containers": [None]}},
            ".spec.containers: element 0: associative list with keys may not have a null element",
        ),
        (
            {"spec": {"containers": ["x"]}},
            ".spec.containers: element 0: associative list with keys may not have non-map elements",
        ),
        ({"spec": {"containers": [{"image": "keys of Go types have defaults"}]}}, ""),
        (
            {"spec": {"nodeSelector": {"a": {}}}},
            ".spec.nodeSelector.a: expected string, got &value.valueUnstructured{Value:map[string]interface {}{}}",
        ),
    ],
)
def test_lists_are_looked_into(applied: dict[str, Any], problem: str) -> None:
    assert untypable(applied, POD) == problem


def test_problems_below_a_long_key_are_listed_until_there_are_enough() -> None:
    env = [{"name": f"e{at}", "value": 1} for at in range(5_000)]
    found = untypable({"spec": {"containers": [{"name": "k" * 100_000, "env": env}]}}, POD)
    assert found.count("expected string") == 3
    assert len(found) < 400_000


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"flag": 1}, ".spec.flag: expected boolean, got &{1}"),
        ({"number": "x"}, ".spec.number: expected numeric (int or float), got string"),
        ({"number": True}, ".spec.number: expected numeric (int or float), got bool"),
        ({"number": {}}, ".spec.number: expected numeric (int or float), got map[string]interface {}"),
        ({"number": []}, ".spec.number: expected numeric (int or float), got []interface {}"),
        ({"either": "50%", "free": {"any": [{}]}, "half": {"any": 1}}, ""),
        ({"embedded": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "s": 1}}, ""),
        ({"embedded": {"metadata": {"nme": "n"}}}, ".spec.embedded.metadata.nme: field not declared in schema"),
        ({"unknown": 1}, ".spec.unknown: field not declared in schema"),
    ],
)
def test_custom_resources_are_held_to_their_schema(spec: dict[str, Any], problem: str) -> None:
    applied = {"apiVersion": "e/v1", "kind": "Thing", "metadata": {"name": "t", "labels": {"a": "b"}}, "spec": spec}
    assert untypable(applied, CUSTOM) == problem
