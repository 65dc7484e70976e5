"""Kinds of Kubernetes that come from an export: printed and patched as Kubernetes does, and not trusted to look so."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.hub.tenancy.bound_definitions import BoundDefinition
from farflung.machinery.errors import Obj
from farflung.machinery.patch import strategic

NOW = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)
KINDS = {
    "deployments": ("apps", "Deployment"),
    "services": ("", "Service"),
    "pods": ("", "Pod"),
    "ingresses": ("networking.k8s.io", "Ingress"),
    "widgets": ("ex.test", "Widget"),
}


def definition(plural: str) -> BoundDefinition:
    group, kind = KINDS[plural]
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.a"}},
    }
    names = {"plural": plural, "kind": kind}
    spec = {"group": group, "names": names, "scope": "Namespaced", "versions": [version]}
    return BoundDefinition({"metadata": {"name": f"v1.{plural}"}, "spec": spec}, "some-identity", 0)


def row(plural: str, obj: Obj) -> list[Any]:
    [resource] = definition(plural).resources
    return resource.printer.cells({"metadata": {"name": "a"}, **obj}, NOW)


def test_deployments_services_and_pods_have_the_columns_of_kubernetes() -> None:
    assert row("deployments", {"spec": {}})[:4] == ["a", "0/0", 0, 0]
    assert row("services", {"spec": {"ports": [{"port": 80, "protocol": "TCP"}]}})[:5] == [
        "a",
        "",
        "<none>",
        "<unknown>",
        "80/TCP",
    ]
    [pods] = definition("pods").resources
    assert [column.name for column in pods.printer.columns][:4] == ["Name", "Ready", "Status", "Restarts"]


@pytest.mark.parametrize("plural", ["ingresses", "widgets"])
def test_other_kinds_have_the_columns_of_their_schema(plural: str) -> None:
    [resource] = definition(plural).resources
    assert [column.name for column in resource.printer.columns] == ["Name", "Age"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["replicas", "ports", "template", "spec", "containers", "selector", "type"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(st.sampled_from(["deployments", "services", "pods"]), anything, anything)
def test_an_object_of_any_shape_can_be_shown(plural: str, spec: Any, status: Any) -> None:
    [resource] = definition(plural).resources
    assert len(row(plural, {"spec": spec, "status": status})) == len(resource.printer.columns)


def test_lists_of_a_kind_of_kubernetes_merge_as_kubernetes_merges_them() -> None:
    shape = definition("deployments").kind("v1").shape
    assert shape.merging is not None
    present = {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]}}}}
    change = {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "y"}]}}}}
    merged = strategic.apply(present, change, shape.merging)
    assert merged["spec"]["template"]["spec"]["containers"] == [{"name": "a", "image": "y"}, {"name": "b"}]
    assert definition("widgets").kind("v1").shape.merging is None


def test_a_kind_of_the_core_group_is_in_the_core_group() -> None:
    [services] = definition("services").resources
    assert (services.api_version, services.qualified, services.identity) == ("v1", "services", "some-identity")
