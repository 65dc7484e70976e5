"""All configurations of a mailbox count together, and nonsense in them is said and otherwise ignored."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef
from farflung.syncer.sync_scope import MAX_PROBLEMS, NAMESPACES, SyncScope, read_scope

CONFIGMAPS = GroupResource("", "configmaps")
SECRETS = GroupResource("", "secrets")
DEPLOYMENTS = GroupResource("apps", "deployments")
ROLES = GroupResource("rbac.authorization.k8s.io", "clusterroles")
CHEDDARS = GroupResource("cheese.test", "cheddars")

KINDS = {
    ("", "ConfigMap"): ("configmaps", True),
    ("", "Namespace"): ("namespaces", False),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): ("customresourcedefinitions", False),
    ("my.domain", "Sample"): ("samples", True),
}


def kinds(group: str, kind: str) -> tuple[str, bool] | None:
    return KINDS.get((group, kind))


def wanted_of(*specs: Any) -> SyncScope:
    return read_scope([{"metadata": {"name": f"c{number}"}, "spec": one} for number, one in enumerate(specs)], kinds)


def asked(resource: GroupResource, version: str = "v1", **more: Any) -> Obj:
    return {"group": resource.group, "resource": resource.resource, "apiVersion": version, **more}


def namespace(name: str) -> ObjectRef:
    return ObjectRef(NAMESPACES, "", name)


# --- SyncerConfigs --------------------------------------------------------------------------------


def test_every_resource_of_a_namespace_scope_is_selected_in_all_its_namespaces() -> None:
    scope = {"namespaces": ["a", "b"], "resources": [asked(CONFIGMAPS), asked(DEPLOYMENTS)]}
    wanted = wanted_of({"namespaceScope": scope})
    assert wanted.resources == {CONFIGMAPS: "v1", NAMESPACES: "v1", DEPLOYMENTS: "v1"}
    for resource in (CONFIGMAPS, DEPLOYMENTS):
        assert wanted.covers(ObjectRef(resource, "a", "x")) and wanted.covers(ObjectRef(resource, "b", "y"))
        assert not wanted.covers(ObjectRef(resource, "c", "x"))
        assert not wanted.covers(ObjectRef(resource, "", "x"))
    assert not wanted.covers(ObjectRef(SECRETS, "a", "x"))
    assert wanted.covers(namespace("a")) and wanted.covers(namespace("b")) and not wanted.covers(namespace("c"))
    assert not wanted.problems


def test_the_scopes_of_two_configurations_are_not_mixed() -> None:
    wanted = wanted_of(
        {"namespaceScope": {"namespaces": ["a"], "resources": [asked(CONFIGMAPS)]}},
        {"namespaceScope": {"namespaces": ["b"], "resources": [asked(SECRETS)]}},
    )
    assert wanted.covers(ObjectRef(CONFIGMAPS, "a", "x")) and wanted.covers(ObjectRef(SECRETS, "b", "x"))
    assert not wanted.covers(ObjectRef(CONFIGMAPS, "b", "x")) and not wanted.covers(ObjectRef(SECRETS, "a", "x"))


def test_a_namespace_is_selected_even_if_no_object_in_it_is() -> None:
    wanted = wanted_of({"namespaceScope": {"namespaces": ["a"]}})
    assert wanted.covers(namespace("a"))
    assert wanted.resources == {NAMESPACES: "v1"}


def test_resources_without_namespaces_are_not_watched() -> None:
    assert wanted_of({"namespaceScope": {"resources": [asked(CONFIGMAPS)]}}).resources == {}


def test_objects_in_namespaces_go_one_by_one_with_their_namespace() -> None:
    """The scenario of test1, test2, test3 and a namespace in which no name is given."""
    by_namespace = [{"namespace": "test2", "names": ["cm1"]}, {"namespace": "no", "names": []}, {"namespace": "nor"}]
    wanted = wanted_of(
        {
            "namespaceScope": {"namespaces": ["test1"], "resources": [asked(CONFIGMAPS), asked(SECRETS)]},
            "namespacedObjects": [
                asked(CONFIGMAPS, objectsByNamespace=by_namespace),
                asked(SECRETS, objectsByNamespace=[{"namespace": "test3", "names": ["s1"]}]),
            ],
        }
    )
    refs = [
        ObjectRef(CONFIGMAPS, "test1", "cm1"),
        ObjectRef(CONFIGMAPS, "test1", "cm2"),
        ObjectRef(SECRETS, "test1", "s"),
    ]
    refs += [ObjectRef(CONFIGMAPS, "test2", "cm1"), ObjectRef(SECRETS, "test3", "s1")]
    assert all(map(wanted.covers, [*refs, namespace("test1"), namespace("test2"), namespace("test3")]))
    others = [
        ObjectRef(CONFIGMAPS, "test2", "cm2"),
        ObjectRef(CONFIGMAPS, "test3", "cm1"),
        ObjectRef(SECRETS, "test2", "s"),
    ]
    others += [ObjectRef(CONFIGMAPS, "no", "cm1"), namespace("no"), namespace("nor")]
    assert not any(map(wanted.covers, others))


@pytest.mark.parametrize(
    ("within", "name", "covered"),
    [("a", "*", {"ax", "ay"}), ("*", "x", {"ax", "bx"}), ("*", "*", {"ax", "ay", "bx", "by"})],
)
def test_a_star_stands_for_every_name_and_every_namespace(within: str, name: str, covered: set[str]) -> None:
    wanted = wanted_of(
        {"namespacedObjects": [asked(CONFIGMAPS, objectsByNamespace=[{"namespace": within, "names": [name]}])]}
    )
    found = {where + what for where in "ab" for what in "xy" if wanted.covers(ObjectRef(CONFIGMAPS, where, what))}
    assert found == covered
    assert wanted.covers(namespace("a"))
    assert wanted.covers(namespace("b")) == (within == "*")
    assert not wanted.covers(ObjectRef(CONFIGMAPS, "", "x"))


def test_a_star_among_the_namespaces_of_a_scope_stands_for_all_of_them() -> None:
    wanted = wanted_of({"namespaceScope": {"namespaces": ["*"], "resources": [asked(CONFIGMAPS)]}})
    assert wanted.covers(ObjectRef(CONFIGMAPS, "any", "x")) and wanted.covers(namespace("any"))
    assert not wanted.covers(ObjectRef(SECRETS, "any", "x"))


@pytest.mark.parametrize(
    ("objects", "covered"),
    [({}, set()), ({"objects": []}, set()), ({"objects": ["x"]}, {"x"}), ({"objects": ["*"]}, {"x", "y"})],
)
def test_objects_without_namespace_go_by_name_and_none_without_names(objects: Obj, covered: set[str]) -> None:
    wanted = wanted_of({"clusterScope": [asked(ROLES, **objects)]})
    assert {name for name in "xy" if wanted.covers(ObjectRef(ROLES, "", name))} == covered
    assert wanted.resources == ({ROLES: "v1"} if covered else {})
    assert not wanted.covers(ObjectRef(ROLES, "a", "x"))


def test_namespaces_may_be_wanted_like_any_object_without_namespace() -> None:
    wanted = wanted_of({"clusterScope": [asked(NAMESPACES, objects=["a"])]})
    assert wanted.covers(namespace("a")) and not wanted.covers(namespace("b"))


def test_the_newest_version_that_anybody_asks_for_is_watched() -> None:
    def one(version: str) -> Obj:
        return {"clusterScope": [asked(ROLES, version, objects=["x"])]}

    versions = ["", "v1beta1", "v1", "v1alpha1"]
    for _ in versions:
        versions = [*versions[1:], versions[0]]
        assert wanted_of(*map(one, versions)).resources == {ROLES: "v1"}
    assert wanted_of(one("")).resources == {ROLES: ""}


def test_the_syncer_config_of_the_seed_is_understood() -> None:
    wanted = wanted_of(
        {
            "clusterScope": [asked(ROLES, objects=["foo"])],
            "namespaceScope": {"namespaces": ["commonstuff"], "resources": [asked(DEPLOYMENTS), asked(CONFIGMAPS)]},
            "upsync": [
                {"apiGroup": "group2.test", "names": ["William"], "resources": ["cogs"]},
                {
                    "apiGroup": "group1.test",
                    "names": ["george", "cosmo"],
                    "namespaces": ["orbital"],
                    "resources": ["sprockets", "flanges"],
                },
            ],
        }
    )
    assert not wanted.problems
    assert wanted.covers(ObjectRef(DEPLOYMENTS, "commonstuff", "commond"))
    assert {one.group for one in wanted.upsync} == {"group1.test", "group2.test"}
    assert wanted.upsyncs(GroupResource("group2.test", "cogs"), "", "William")
    assert not wanted.upsyncs(GroupResource("group2.test", "cogs"), "orbital", "William")
    assert wanted.upsyncs(GroupResource("group1.test", "flanges"), "orbital", "cosmo")
    assert not wanted.upsyncs(GroupResource("group1.test", "flanges"), "elsewhere", "cosmo")
    assert not wanted.upsyncs(GroupResource("group1.test", "flanges"), "orbital", "William")
    assert not wanted.upsyncs(GroupResource("group2.test", "flanges"), "orbital", "cosmo")


# --- what comes back ------------------------------------------------------------------------------


def upsync(**one: Any) -> SyncScope:
    return wanted_of({"upsync": [{"apiGroup": "cheese.test", **one}]})


def test_stars_bring_everything_of_a_group() -> None:
    wanted = upsync(resources=["*"], namespaces=["*"], names=["*"])
    assert wanted.upsyncs(CHEDDARS, "a", "x") and wanted.upsyncs(CHEDDARS, "", "x")
    assert wanted.may_upsync(CHEDDARS) and not wanted.may_upsync(CONFIGMAPS)
    assert not wanted.upsyncs(CONFIGMAPS, "a", "x")


def test_without_namespaces_only_cluster_scoped_objects_are_selected() -> None:
    wanted = upsync(resources=["cheddars"], names=["*"])
    assert wanted.upsyncs(CHEDDARS, "", "x") and not wanted.upsyncs(CHEDDARS, "a", "x")


def test_namespaces_do_not_matter_for_what_has_none() -> None:
    assert upsync(resources=["cheddars"], namespaces=["a"], names=["x"]).upsyncs(CHEDDARS, "", "x")


@pytest.mark.parametrize("lists", [{"resources": ["cheddars"]}, {"names": ["*"]}, {"resources": [], "names": ["x"]}])
def test_a_set_without_names_or_resources_brings_nothing(lists: Obj) -> None:
    wanted = upsync(**lists)
    assert wanted.upsync == () and not wanted.may_upsync(CHEDDARS)


def test_sets_that_differ_in_names_alone_are_one() -> None:
    one = {"apiGroup": "cheese.test", "resources": ["cheddars"]}
    wanted = wanted_of({"upsync": [{**one, "names": [name]} for name in "abc"]})
    assert [sorted(some.names) for some in wanted.upsync] == [["a", "b", "c"]]


# --- EdgeSyncConfigs ------------------------------------------------------------------------------


def test_the_old_kind_of_configuration_names_objects_by_kind() -> None:
    wanted = wanted_of(
        {
            "downSyncedResources": [
                {"group": "apiextensions.k8s.io", "version": "v1", "kind": "CustomResourceDefinition", "name": "s.d"},
                {"kind": "Namespace", "version": "v1", "name": "test"},
                {"group": "my.domain", "version": "v1alpha1", "kind": "Sample", "namespace": "test", "name": "down"},
                {"version": "v1", "kind": "ConfigMap", "namespace": "*", "name": "*"},
            ],
            "upSyncedResources": [
                {"group": "my.domain", "version": "v1alpha1", "kind": "Sample", "namespace": "test", "name": "up"},
                {"group": "my.domain", "version": "v1alpha1", "kind": "Sample", "namespace": "any", "name": "*"},
                {"kind": "Namespace", "version": "v1", "namespace": "ignored", "name": "test"},
            ],
        }
    )
    samples = GroupResource("my.domain", "samples")
    definitions = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
    assert wanted.resources == {CONFIGMAPS: "v1", NAMESPACES: "v1", definitions: "v1", samples: "v1alpha1"}
    assert wanted.covers(ObjectRef(definitions, "", "s.d")) and wanted.covers(namespace("test"))
    assert wanted.covers(ObjectRef(samples, "test", "down")) and not wanted.covers(ObjectRef(samples, "test", "up"))
    assert wanted.covers(ObjectRef(CONFIGMAPS, "wherever", "whatever"))
    assert wanted.upsyncs(samples, "test", "up") and not wanted.upsyncs(samples, "test", "down")
    assert wanted.upsyncs(samples, "any", "thing")
    assert wanted.upsyncs(NAMESPACES, "", "test")
    assert not wanted.problems and not wanted.unknown


def test_unknown_kinds_are_reported() -> None:
    one = {"group": "x.test", "kind": "X", "version": "v1", "name": "x"}
    wanted = wanted_of({"downSyncedResources": [one], "upSyncedResources": [one, {"kind": "Y", "name": "y"}]})
    assert wanted.unknown == (("", "Y"), ("x.test", "X"))
    assert wanted.resources == {} and wanted.upsync == ()


def test_an_object_in_a_namespace_needs_one() -> None:
    wanted = wanted_of({"downSyncedResources": [{"kind": "ConfigMap", "version": "v1", "name": "x"}]})
    [problem] = wanted.problems
    assert "spec.downSyncedResources[0].namespace is missing" in problem


# --- nonsense -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        (7, "spec is no map"),
        ({"namespaceScope": []}, "spec.namespaceScope is no map"),
        ({"namespaceScope": {"namespaces": "a"}}, "spec.namespaceScope.namespaces is no list"),
        ({"namespaceScope": {"namespaces": ["a", 1]}}, "spec.namespaceScope.namespaces holds something"),
        ({"clusterScope": {}}, "spec.clusterScope is no list"),
        ({"clusterScope": ["x"]}, "spec.clusterScope[0] is no map"),
        ({"clusterScope": [{"resource": "../x", "objects": ["a"]}]}, "spec.clusterScope[0] has a resource"),
        ({"clusterScope": [{"resource": 3, "objects": ["a"]}]}, "spec.clusterScope[0].resource is no text"),
        ({"clusterScope": [asked(GroupResource("a/b", "c"), objects=["a"])]}, "spec.clusterScope[0].group is no name"),
        ({"clusterScope": [asked(ROLES, "rbac/v1", objects=["a"])]}, "spec.clusterScope[0].apiVersion is no version"),
        ({"namespacedObjects": [asked(SECRETS, objectsByNamespace=[{"names": ["a"]}])]}, "[0].namespace is missing"),
        ({"upsync": [{"apiGroup": "*", "resources": ["*"], "names": ["*"]}]}, "spec.upsync[0].apiGroup is no name"),
        ({"upsync": [{"apiGroup": 0, "resources": ["*"], "names": ["*"]}]}, "spec.upsync[0].apiGroup is no name"),
        ({"upsync": [{"resources": ["Pods"], "names": ["*"]}]}, "spec.upsync[0] has a resource"),
        ({"upSyncedResources": [{"kind": ["ConfigMap"], "name": "a"}]}, "spec.upSyncedResources[0].kind is no text"),
    ],
)
def test_invalid_parts_are_reported_with_their_paths(spec: Any, place: str) -> None:
    wanted = wanted_of(spec)
    assert any(one.startswith("SyncerConfig c0: spec") and place in one for one in wanted.problems), wanted.problems
    assert wanted.resources == {} or set(wanted.resources) == {NAMESPACES}
    assert wanted.upsync == ()


def test_the_rest_of_a_configuration_counts() -> None:
    wanted = wanted_of({"clusterScope": [None, asked(ROLES, objects=[None, "x"])], "upsync": 3})
    assert wanted.covers(ObjectRef(ROLES, "", "x"))
    assert len(wanted.problems) == 3


def test_the_number_of_reported_problems_is_limited() -> None:
    wanted = wanted_of({"clusterScope": list(range(1000))})
    assert len(wanted.problems) == MAX_PROBLEMS + 1
    assert wanted.problems[-1] == f"… and {1000 - MAX_PROBLEMS} more"


GOOD: Obj = {
    "kind": "SyncerConfig",
    "metadata": {"name": "the-one"},
    "spec": {
        "namespaceScope": {"namespaces": ["a"], "resources": [asked(CONFIGMAPS)]},
        "namespacedObjects": [asked(SECRETS, objectsByNamespace=[{"namespace": "b", "names": ["s"]}])],
        "clusterScope": [asked(ROLES, objects=["x"])],
        "upsync": [{"apiGroup": "g.test", "resources": ["cogs"], "namespaces": ["n"], "names": ["*"]}],
        "downSyncedResources": [{"group": "", "version": "v1", "kind": "ConfigMap", "namespace": "c", "name": "x"}],
        "upSyncedResources": [{"group": "", "version": "v1", "kind": "ConfigMap", "namespace": "c", "name": "*"}],
    },
}


def places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [above, *(place for key, one in below for place in places(one, (*above, key)))]


NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("*"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(places(GOOD)), NONSENSE)
@settings(max_examples=examples(300))
def test_nonsense_anywhere_does_no_harm(place: tuple[Any, ...], nonsense: Any) -> None:
    holder = [copy.deepcopy(GOOD)]
    below: Any = holder
    path = (0, *place)
    for key in path[:-1]:
        below = below[key]
    below[path[-1]] = nonsense
    wanted = read_scope(holder, kinds)
    assert all(isinstance(version, str) for version in wanted.resources.values())
    if len(place) >= 2 and place[1] != "clusterScope":
        assert wanted.covers(ObjectRef(ROLES, "", "x"))  # the other sections count


# --- against a twin -------------------------------------------------------------------------------

SMALL = st.lists(st.sampled_from(["a", "b", "*"]), max_size=2)
SOME = st.sampled_from([CONFIGMAPS, SECRETS, NAMESPACES])
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "namespaceScope": st.fixed_dictionaries(
            {}, optional={"namespaces": SMALL, "resources": st.lists(SOME.map(asked), max_size=2)}
        ),
        "namespacedObjects": st.lists(
            st.builds(
                lambda resource, some: asked(resource, objectsByNamespace=some),
                SOME,
                st.lists(st.fixed_dictionaries({"namespace": st.sampled_from("ab*"), "names": SMALL}), max_size=2),
            ),
            max_size=2,
        ),
        "clusterScope": st.lists(st.builds(lambda one, names: asked(one, objects=names), SOME, SMALL), max_size=2),
        "upsync": st.lists(
            st.fixed_dictionaries(
                {"resources": st.lists(st.sampled_from(["configmaps", "secrets", "*"]), max_size=2)},
                optional={"apiGroup": st.sampled_from(["", "x.test"]), "namespaces": SMALL, "names": SMALL},
            ),
            max_size=3,
        ),
    },
)


def fits(text: str, some: list[str]) -> bool:
    return text in some or "*" in some


def twin_covers(spec: Obj, ref: ObjectRef) -> bool:
    scope = spec.get("namespaceScope", {})
    inside = scope.get("namespaces", [])
    named = [
        (asked(GroupResource(one["group"], one["resource"])), within["namespace"], within["names"])
        for one in spec.get("namespacedObjects", [])
        for within in one["objectsByNamespace"]
        if within["names"]
    ]
    kind = asked(ref.resource)
    needed = [*inside, *(within for _, within, _ in named)]
    if ref.resource == NAMESPACES and not ref.namespace and fits(ref.name, needed):
        return True
    if not ref.namespace:
        some = [one["objects"] for one in spec.get("clusterScope", []) if one["resource"] == ref.resource.resource]
        return any(fits(ref.name, names) for names in some)
    if ref.resource != NAMESPACES and kind in scope.get("resources", []) and fits(ref.namespace, inside):
        return True
    return any(
        kind == one and fits(ref.namespace, [within]) and fits(ref.name, names)
        for one, within, names in named
        if ref.resource != NAMESPACES
    )


def twin_brings(spec: Obj, resource: GroupResource, namespace: str, name: str) -> bool:
    return any(
        one.get("apiGroup", "") == resource.group
        and fits(resource.resource, one["resources"])
        and fits(name, one.get("names", []))
        and (not namespace or fits(namespace, one.get("namespaces", [])))
        for one in spec.get("upsync", [])
    )


@given(st.lists(SPECS, max_size=3))
@settings(max_examples=examples(200))
def test_all_configurations_count_as_the_definition_says(specs: list[Obj]) -> None:
    wanted = wanted_of(*specs)
    assert not wanted.problems
    assert wanted == wanted_of(*reversed(specs))
    refs = [
        ObjectRef(resource, where, name)
        for resource in (CONFIGMAPS, SECRETS, NAMESPACES)
        for where in ("", "a", "b", "c")
        for name in "abc"
        if resource != NAMESPACES or not where
    ]
    for ref in refs:
        covered = any(twin_covers(one, ref) for one in specs)
        assert wanted.covers(ref) == covered, ref
        assert not covered or ref.resource in wanted.resources
        brought = any(twin_brings(one, *ref) for one in specs)
        assert wanted.upsyncs(*ref) == brought, ref
        assert not brought or wanted.may_upsync(ref.resource)
