"""A syncer is told exactly what goes to the edge, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.placement.names import Category, GroupResource, ObjectRef, category
from farflung.placement.select import UpsyncSet, parse_workload_selector
from farflung.placement.syncer_config import spec_of

CORE = ("configmaps", "limitranges", "pods", "resourcequotas", "secrets", "serviceaccounts", "services")
OFFERED = [
    *(GroupResource("", resource) for resource in CORE),
    GroupResource("apps", "deployments"),
    GroupResource("coordination.k8s.io", "leases"),
    GroupResource("networking.k8s.io", "ingresses"),
    GroupResource("rbac.authorization.k8s.io", "rolebindings"),
    GroupResource("rbac.authorization.k8s.io", "roles"),
]  #: in namespaces of a workspace, of what goes to the edge
NOT_FOR_THE_EDGE = [
    GroupResource("", "events"),
    GroupResource("events.k8s.io", "events"),
    GroupResource("edge.kcp.io", "customizers"),
]
BINDINGS, CLUSTER_ROLES = (
    GroupResource("apis.kcp.io", "apibindings"),
    GroupResource("rbac.authorization.k8s.io", "clusterroles"),
)
VERSIONS = {
    **dict.fromkeys([*OFFERED, CLUSTER_ROLES, *NOT_FOR_THE_EDGE], "v1"),
    GroupResource("", "namespaces"): "v1",
    GroupResource("apiextensions.k8s.io", "customresourcedefinitions"): "v1",
    GroupResource("edge.kcp.io", "customizers"): "v1alpha1",
    BINDINGS: "v1alpha1",
}

COMMON = {
    "locationSelectors": [{"matchLabels": {"env": "prod"}}],
    "namespaceSelector": {"matchLabels": {"common": "si"}},
    "nonNamespacedObjects": [{"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "resourceNames": ["bind-kube"]}],
    "upsync": [
        {
            "apiGroup": "group1.test",
            "resources": ["sprockets", "flanges"],
            "namespaces": ["orbital"],
            "names": ["george", "cosmo"],
        },
        {"apiGroup": "group2.test", "resources": ["cogs"], "names": ["William"]},
    ],
}
SPECIAL = {
    "locationSelectors": [{"matchLabels": {"env": "prod", "extended": "si"}}],
    "namespaceSelector": {"matchLabels": {"special": "si"}},
    "nonNamespacedObjects": [{"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "resourceNames": ["bind-kube"]}],
    "upsync": [
        {
            "apiGroup": "group1.test",
            "resources": ["sprockets", "flanges"],
            "namespaces": ["orbital"],
            "names": ["george", "cosmo"],
        },
        {"apiGroup": "group3.test", "resources": ["widgets"], "names": ["*"]},
    ],
}
RESOURCES = [
    {"apiVersion": "v1", "group": group, "resource": resource}
    for group, resource in [
        ("rbac.authorization.k8s.io", "roles"),
        ("apps", "deployments"),
        ("", "configmaps"),
        ("", "secrets"),
        ("", "serviceaccounts"),
        ("networking.k8s.io", "ingresses"),
        ("", "resourcequotas"),
        ("", "services"),
        ("", "limitranges"),
        ("", "pods"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        ("coordination.k8s.io", "leases"),
    ]
]
GROUP1 = {
    "apiGroup": "group1.test",
    "names": ["george", "cosmo"],
    "namespaces": ["orbital"],
    "resources": ["sprockets", "flanges"],
}
GROUP2 = {"apiGroup": "group2.test", "names": ["William"], "resources": ["cogs"]}
GROUP3 = {"apiGroup": "group3.test", "names": ["*"], "resources": ["widgets"]}


def config(*workloads: tuple[dict[str, Any], dict[str, dict[str, str]]]) -> dict[str, Any]:
    """Of placements, each with the labels of the namespaces of its workspace."""
    whats = [(parse_workload_selector({"spec": spec}), labels) for spec, labels in workloads]
    binding = ObjectRef(BINDINGS, "", "bind-kube")
    return spec_of(
        namespaces=[name for what, some in whats for name, labels in some.items() if what.selects_namespace(labels)],
        resources=[*OFFERED, *NOT_FOR_THE_EDGE],
        refs=[binding for what, _ in whats if what.selects(binding, {}, None)],
        versions=VERSIONS,
        upsync=[one for what, _ in whats for one in what.upsync],
    )


def ordered(value: Any) -> Any:
    """Without the order of what is in lists."""
    if isinstance(value, dict):
        return {key: ordered(value[key]) for key in sorted(value)}
    return sorted(map(ordered, value), key=repr) if isinstance(value, list) else value


IN_COMMON = {"default": {}, "commonstuff": {"common": "si"}}
IN_SPECIAL = {"default": {}, "specialstuff": {"special": "si"}}


def test_florin_gets_the_config_of_the_seed() -> None:
    assert ordered(config((COMMON, IN_COMMON))) == ordered(
        {
            "namespaceScope": {"namespaces": ["commonstuff"], "resources": RESOURCES},
            "upsync": [GROUP2, GROUP1],
        }
    )


def test_guilder_gets_the_config_of_the_seed() -> None:
    assert ordered(config((SPECIAL, IN_SPECIAL), (COMMON, IN_COMMON))) == ordered(
        {
            "namespaceScope": {"namespaces": ["specialstuff", "commonstuff"], "resources": RESOURCES},
            "upsync": [GROUP2, GROUP3, GROUP1],
        }
    )


def test_a_cluster_role_is_listed_and_an_apibinding_is_not() -> None:
    refs = [
        ObjectRef(BINDINGS, "", "bind-kube"),
        ObjectRef(CLUSTER_ROLES, "", "foo"),
        ObjectRef(CLUSTER_ROLES, "", "bar"),
    ]
    assert spec_of(refs=refs, versions=VERSIONS) == {
        "namespaceScope": {},
        "clusterScope": [
            {
                "apiVersion": "v1",
                "group": "rbac.authorization.k8s.io",
                "resource": "clusterroles",
                "objects": ["bar", "foo"],
            }
        ],
    }


def test_nothing_is_an_empty_scope() -> None:
    assert spec_of(versions={}) == {"namespaceScope": {}}
    assert spec_of(resources=OFFERED, versions=VERSIONS) == {"namespaceScope": {}}


def test_an_empty_namespace_is_listed() -> None:
    spec = config((COMMON, {**IN_COMMON, "more": {"common": "si"}}))
    assert spec["namespaceScope"]["namespaces"] == ["commonstuff", "more"]


def test_specs_of_the_original_set_binder_are_reproduced() -> None:
    definitions = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
    group1 = UpsyncSet("group1", ("sprockets", "flanges"), (), ("George", "Cosmo"))
    first = spec_of(
        refs=[ObjectRef(definitions, "", "crd1")],
        versions=VERSIONS,
        upsync=[UpsyncSet("group2", ("cogs",), (), ("William",)), group1],
    )
    assert first == {
        "namespaceScope": {},
        "clusterScope": [
            {
                "apiVersion": "v1",
                "group": "apiextensions.k8s.io",
                "resource": "customresourcedefinitions",
                "objects": ["crd1"],
            }
        ],
        "upsync": [
            {"apiGroup": "group1", "resources": ["sprockets", "flanges"], "names": ["George", "Cosmo"]},
            {"apiGroup": "group2", "resources": ["cogs"], "names": ["William"]},
        ],
    }
    then = spec_of(
        refs=[ObjectRef(GroupResource("", "namespaces"), "", "ns-a")],
        versions=VERSIONS,
        upsync=[group1, UpsyncSet("group3", ("widgets",), (), ("*",))],
    )
    assert then == {
        "namespaceScope": {},
        "clusterScope": [{"apiVersion": "v1", "group": "", "resource": "namespaces", "objects": ["ns-a"]}],
        "upsync": [first["upsync"][0], {"apiGroup": "group3", "resources": ["widgets"], "names": ["*"]}],
    }


def test_single_objects_are_listed_by_namespace_unless_their_whole_namespace_is_selected() -> None:
    config_maps, crons = GroupResource("", "configmaps"), GroupResource("example.com", "crons")
    spec = spec_of(
        namespaces=["whole"],
        resources=[config_maps],
        refs=[
            ObjectRef(config_maps, "b", "2"),
            ObjectRef(config_maps, "b", "1"),
            ObjectRef(config_maps, "a", "1"),
            ObjectRef(config_maps, "whole", "1"),
            ObjectRef(crons, "whole", "1"),
            ObjectRef(GroupResource("", "events"), "a", "1"),
            ObjectRef(GroupResource("example.com", "unheard"), "a", "1"),
        ],
        versions={config_maps: "v1", crons: "v1beta1", GroupResource("", "events"): "v1"},
    )
    assert spec == {
        "namespaceScope": {
            "namespaces": ["whole"],
            "resources": [{"apiVersion": "v1", "group": "", "resource": "configmaps"}],
        },
        "namespacedObjects": [
            {
                "apiVersion": "v1",
                "group": "",
                "resource": "configmaps",
                "objectsByNamespace": [{"namespace": "a", "names": ["1"]}, {"namespace": "b", "names": ["1", "2"]}],
            },
            {
                "apiVersion": "v1beta1",
                "group": "example.com",
                "resource": "crons",
                "objectsByNamespace": [{"namespace": "whole", "names": ["1"]}],
            },
        ],
    }


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (UpsyncSet("", ("pods",), ("*",), ("*",)), {"resources": ["pods"], "namespaces": ["*"], "names": ["*"]}),
        (UpsyncSet("g", ()), {"apiGroup": "g", "resources": []}),
    ],
)
def test_upsync_sets_are_listed_without_empty_fields(one: UpsyncSet, told: dict[str, Any]) -> None:
    assert spec_of(versions={}, upsync=[one, one])["upsync"] == [told]


def test_sets_that_are_not_written_alike_are_different() -> None:
    sets = [UpsyncSet("g", ("a", "b")), UpsyncSet("g", ("b", "a")), UpsyncSet("g", ("a",)), UpsyncSet("g", ("b",))]
    assert len(spec_of(versions={}, upsync=sets)["upsync"]) == 4


# --- against a twin -------------------------------------------------------------------------------

KINDS = st.sampled_from(
    [
        GroupResource("", "configmaps"),
        GroupResource("apps", "deployments"),
        GroupResource("", "events"),
        BINDINGS,
        CLUSTER_ROLES,
    ]
)
NAMESPACES = st.sampled_from(["a", "b", "c"])
REFS = st.builds(ObjectRef, KINDS, st.just("") | NAMESPACES, st.sampled_from(["x", "y"]))
UPSYNCS = st.builds(UpsyncSet, st.sampled_from(["", "g"]), st.just(("r",)), st.sampled_from([(), ("n",), ("*",)]))

Item = tuple[GroupResource, str, str, str]  #: with the version


def told(spec: dict[str, Any]) -> set[Item]:
    """As a syncer understands it: `*` for all names."""
    items = set()
    for one in spec["namespaceScope"].get("resources", ()):
        for namespace in spec["namespaceScope"]["namespaces"]:
            items.add((GroupResource(one["group"], one["resource"]), one["apiVersion"], namespace, "*"))
    for one in spec.get("namespacedObjects", ()):
        for some in one["objectsByNamespace"]:
            for name in some["names"]:
                items.add((GroupResource(one["group"], one["resource"]), one["apiVersion"], some["namespace"], name))
    for one in spec.get("clusterScope", ()):
        for name in one["objects"]:
            items.add((GroupResource(one["group"], one["resource"]), one["apiVersion"], "", name))
    return items


@given(
    st.lists(NAMESPACES), st.lists(KINDS), st.lists(REFS, max_size=10), st.lists(UPSYNCS), st.sets(KINDS), st.randoms()
)
def test_a_syncer_config_lists_everything_for_the_edge_and_nothing_else(
    namespaces: list[str],
    resources: list[GroupResource],
    refs: list[ObjectRef],
    upsync: list[UpsyncSet],
    served: set[GroupResource],
    order: Any,
) -> None:
    versions = {resource: f"v1{resource.resource[0]}" for resource in served}
    going = {resource for resource in served if category(resource) is Category.EDGE}
    spec = spec_of(namespaces=namespaces, resources=resources, refs=refs, versions=versions, upsync=upsync)
    whole = {
        (resource, versions[resource], namespace, "*") for resource in going & {*resources} for namespace in namespaces
    }
    single = {
        (ref.resource, versions[ref.resource], ref.namespace, ref.name)
        for ref in refs
        if ref.resource in going and (ref.resource, versions[ref.resource], ref.namespace, "*") not in whole
    }
    assert told(spec) == whole | single
    assert spec["namespaceScope"].get("namespaces", []) == sorted({*namespaces})
    assert len(spec.get("upsync", ())) == len({*upsync})
    for some in (namespaces, resources, refs, upsync):
        order.shuffle(some)
    again = spec_of(namespaces=namespaces, resources=resources, refs=refs, versions=versions, upsync=upsync)
    assert repr(again) == repr(spec)
