"""What is refused in an APIResourceSchema, and in which words."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.hub.tenancy import resource_schemas as schemas
from farflung.machinery.errors import ApiError

Obj = dict[str, Any]


def widget_schema(name: str = "v1.widgets.ex.test", **spec: Any) -> Obj:
    said = {
        "group": "ex.test",
        "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
        "scope": "Cluster",
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"type": "object"}}],
    }
    return {"metadata": {"name": name, "uid": "u1"}, "spec": {**said, **spec}}


def refused(schema: Obj) -> str:
    with pytest.raises(ApiError) as caught:
        schemas.check_new(schema)
    assert caught.value.code == 403
    return caught.value.message.partition(" is forbidden: ")[2]


def test_a_good_schema_is_accepted() -> None:
    schemas.check_new(widget_schema())


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            widget_schema("widgets.ex.test"),
            '[metadata.name: Invalid value: "widgets.ex.test": must end in .widgets.ex.test]',
        ),
        (
            widget_schema("1x.widgets.ex.test"),
            '[metadata.name: Invalid value: "1x.widgets.ex.test": must match ^[a-z]([-a-z0-9]*[a-z0-9])?$ in front of '
            ".widgets.ex.test]",
        ),
        (
            widget_schema("v1.widgets.core", group="core"),
            '[spec.group: Invalid value: "core": must be empty string for the core group]',
        ),
        (
            widget_schema(versions=[{"name": "v1", "served": True, "storage": True, "schema": {"type": "foo"}}]),
            '[spec.versions[0].schema.openAPIV3Schema.type: Unsupported value: "foo": supported values: "array", '
            '"boolean", "integer", "number", "object", "string" spec.versions[0].schema.openAPIV3Schema.type: Invalid '
            'value: "foo": must be object at the root]',
        ),
        (
            widget_schema(versions=[{"name": "v1", "served": True, "storage": False, "schema": {"type": "object"}}]),
            '[spec.versions: Invalid value: "array": must have exactly one version marked as storage version]',
        ),
        (
            widget_schema("v9.widgets.foo.k8s.io", group="foo.k8s.io"),
            "[metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval "
            'annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111]',
        ),
    ],
)
def test_what_is_wrong_is_forbidden_in_the_words_of_kcp(schema: Obj, message: str) -> None:
    assert refused(schema) == message


@pytest.mark.parametrize(
    "schema",
    [
        widget_schema("v2.widgets.core", group=""),
        widget_schema("v8.widgets.apis.kcp.io", group="apis.kcp.io"),
        widget_schema(
            versions=[
                {"name": "v1", "served": True, "storage": True, "schema": {"type": "object"}},
                {"name": "v2", "served": True, "storage": False, "schema": {"type": "object"}},
            ]
        ),
    ],
)
def test_the_core_group_groups_of_kcp_and_several_versions_are_accepted(schema: Obj) -> None:
    schemas.check_new(schema)


def test_a_schema_that_is_not_structural_is_refused() -> None:
    version = {"name": "v1", "served": True, "storage": True}
    schema = {"type": "object", "properties": {"spec": {"properties": {"a": {"type": "string"}}}}}
    assert "must not be empty for specified object fields" in refused(
        widget_schema(versions=[{**version, "schema": schema}])
    )


def test_an_expression_that_does_not_compile_is_refused() -> None:
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": "self.nosuch == 1"}]}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    assert "compilation failed" in refused(widget_schema(versions=versions))


def test_what_a_schema_says_never_changes() -> None:
    old = widget_schema()
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"a": "b"}
    schemas.check_change(new, old)
    new["spec"]["scope"] = "Namespaced"
    with pytest.raises(ApiError, match=r"spec: .*is immutable"):
        schemas.check_change(new, old)


@pytest.mark.parametrize("group", ["apis.kcp.io", "x.apis.kcp.io", "tenancy.kcp.io", "core.kcp.io"])
def test_a_workspace_defines_nothing_in_the_groups_of_the_hub(group: str) -> None:
    with pytest.raises(ApiError, match=f"{group} is a reserved group"):
        schemas.check_definition({"metadata": {"name": f"widgets.{group}"}, "spec": {"group": group}})
    schemas.check_definition({"metadata": {"name": "x"}, "spec": {"group": "edge.kcp.io"}})


def test_a_schema_is_the_definition_of_a_custom_resource() -> None:
    definition = schemas.as_definition(widget_schema(names={"kind": "Widget", "plural": "widgets"}))
    assert definition["status"]["acceptedNames"] == {
        "kind": "Widget",
        "plural": "widgets",
        "singular": "widget",
        "listKind": "WidgetList",
    }
    assert definition["spec"]["versions"][0]["schema"] == {"openAPIV3Schema": {"type": "object"}}


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "items", "a", "enum", "required", "default", "allOf", "not"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["type", "properties", "items", "x-kubernetes-validations"]), anything))
def test_no_schema_raises_anything_but_a_refusal(schema: Obj) -> None:
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    try:
        schemas.check_new(widget_schema(versions=[version]))
    except ApiError as error:
        assert error.code == 403
