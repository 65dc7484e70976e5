"""A placement selects what it says, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery.selectors import EVERYTHING, parse_labels, selector_of
from farflung.placement.names import GroupResource, ObjectRef
from farflung.placement.select import (
    MAX_ALTERNATIVES,
    Selected,
    UpsyncSet,
    WorkloadSelector,
    parse_workload_selector,
)

CONFIG_MAPS, NAMESPACES = GroupResource("", "configmaps"), GroupResource("", "namespaces")
BINDINGS = GroupResource("apis.kcp.io", "apibindings")
NOTHING: dict[str, str] = {}


def what(**spec: Any) -> WorkloadSelector:
    read = parse_workload_selector({"metadata": {"name": "p"}, "spec": spec})
    assert not read.problem
    return read


def problem(spec: Any) -> str:
    read = parse_workload_selector({"metadata": {"name": "p"}, "spec": spec})
    assert read == WorkloadSelector(problem=read.problem)
    return read.problem


def config_map(name: str, namespace: str = "ns") -> ObjectRef:
    return ObjectRef(CONFIG_MAPS, namespace, name)


# --- namespaces as a whole ------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [None, {}, {"namespaceSelector": None}, {"namespaceSelector": {}}])
def test_a_placement_that_says_nothing_selects_all_namespaces_and_nothing_else(spec: Any) -> None:
    read = parse_workload_selector({"spec": spec})
    assert read.selects(config_map("a"), NOTHING, NOTHING) == Selected(whole_namespace=True)
    assert read.selects_namespace(NOTHING)
    assert read.namespaces == EVERYTHING
    assert read.selects(ObjectRef(NAMESPACES, "", "ns"), NOTHING, None) is None
    assert read.selects(ObjectRef(BINDINGS, "", "kubernetes"), NOTHING, None) is None


@pytest.mark.parametrize("more", [{}, {"namespaceSelector": None}])
@pytest.mark.parametrize("downsync", [[], [{"apiGroup": "apps"}]])
def test_a_placement_with_clauses_selects_no_whole_namespace_unless_it_says_so(more: Any, downsync: Any) -> None:
    read = what(downsync=downsync, **more)
    assert read.namespaces is None
    assert not read.selects_namespace(NOTHING)
    assert read.selects(config_map("a"), NOTHING, NOTHING) is None
    assert what(downsync=downsync, namespaceSelector={}).selects_namespace(NOTHING)


def test_whole_namespaces_are_selected_by_their_labels() -> None:
    read = what(namespaceSelector={"matchLabels": {"common": "si"}})
    assert read.selects_namespace({"common": "si", "more": "x"})
    assert not read.selects_namespace({"common": "no"})
    assert read.selects(config_map("a"), NOTHING, {"common": "si"}) == Selected(whole_namespace=True)
    assert read.selects(config_map("a"), {"common": "si"}, {"common": "no"}) is None
    assert read.selects(ObjectRef(NAMESPACES, "", "ns"), {"common": "si"}, None) is None
    assert read.namespaces == parse_labels("common=si")


def test_nothing_is_decided_about_an_object_whose_namespace_is_not_known_yet() -> None:
    read = what(downsync=[{"objectNames": ["a"]}], namespaceSelector={})
    assert read.selects(config_map("a"), NOTHING, None) is None
    assert read.selects(config_map("a"), NOTHING, NOTHING) is not None


# --- objects without namespace --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "selected"),
    [
        ({"resources": ["roles"], "resourceNames": ["a"]}, {"roles a"}),
        ({"resources": ["roles", "rulers"], "resourceNames": ["b", "c"]}, {"roles b", "roles c", "rulers b"}),
        ({"resources": ["*"], "resourceNames": ["a"]}, {"roles a", "rulers a"}),
        ({"resources": ["roles"], "resourceNames": ["*"]}, {"roles a", "roles b", "roles c"}),
        ({"resources": ["roles"]}, set()),
        ({"resources": ["roles"], "resourceNames": [], "labelSelectors": []}, set()),
        ({"resources": [], "resourceNames": ["*"]}, set()),
        ({"resourceNames": ["*"]}, set()),
        ({"resources": ["roles"], "resourceNames": ["*", "a"]}, {"roles a"}),
        ({"resources": ["*", "rulers"], "resourceNames": ["a"]}, {"rulers a"}),
        ({"resources": ["roles"], "labelSelectors": [{"matchLabels": {"is": "b"}}]}, {"roles b"}),
        ({"resources": ["roles"], "labelSelectors": [{}]}, {"roles a", "roles b", "roles c"}),
        (
            {"resources": ["roles"], "resourceNames": ["c"], "labelSelectors": [{"matchLabels": {"is": "b"}}]},
            {"roles b", "roles c"},
        ),
        ({"apiGroup": "other", "resources": ["roles"], "resourceNames": ["*"]}, set()),
    ],
)
def test_objects_without_namespace_fit_by_name_or_by_labels(said: dict[str, Any], selected: set[str]) -> None:
    read = what(nonNamespacedObjects=[{"apiGroup": "g", **said}])
    there = {f"{resource} {name}" for resource, names in (("roles", "abc"), ("rulers", "ab")) for name in names}
    refs = {text: ObjectRef(GroupResource("g", text.split()[0]), "", text.split()[1]) for text in there}
    assert {text for text, ref in refs.items() if read.selects(ref, {"is": ref.name}, None)} == selected


def test_objects_without_namespace_are_not_looked_for_in_namespaces() -> None:
    said = [{"resources": ["configmaps"], "resourceNames": ["*"]}]
    read = what(nonNamespacedObjects=said, namespaceSelector={"matchLabels": {"x": "y"}})
    assert read.selects(config_map("a"), NOTHING, NOTHING) is None
    assert read.selects(config_map("a", ""), NOTHING, None) == Selected()


def test_a_namespace_itself_is_selected_like_any_object() -> None:
    read = what(nonNamespacedObjects=[{"resources": ["namespaces"], "resourceNames": ["ns"]}])
    assert read.selects(ObjectRef(NAMESPACES, "", "ns"), NOTHING, None) == Selected()
    assert read.selects(ObjectRef(NAMESPACES, "", "other"), NOTHING, None) is None


# --- clauses --------------------------------------------------------------------------------------


def test_the_clauses_of_the_original_select_what_they_did() -> None:
    in_default = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
    read = what(
        downsync=[
            {
                "apiGroup": "",
                "resources": ["configmaps"],
                "namespaceSelectors": [in_default],
                "objectNames": ["cm1", "cmx", "cm3"],
                "labelSelectors": [{"matchLabels": {"foo": "baz"}}, {"matchLabels": {"foo": "bar"}}],
            },
            {"apiGroup": "", "resources": ["namespaces"], "objectNames": ["ns2"]},
        ],
        wantSingletonReportedState=True,
    )
    namespaces = {name: {"kubernetes.io/metadata.name": name} for name in ("default", "ns2")}
    objects = {
        config_map("cm1", "default"): {"foo": "bar"},
        config_map("cm2", "default"): {"foo": "bar"},
        config_map("cm3", "default"): {"foo": "baz"},
        config_map("cm1", "ns2"): {"foo": "bar"},
        config_map("cmx", "default"): {},
        **{ObjectRef(NAMESPACES, "", name): labels for name, labels in namespaces.items()},
    }
    found = {ref: read.selects(ref, labels, namespaces.get(ref.namespace)) for ref, labels in objects.items()}
    assert {ref: selected for ref, selected in found.items() if selected} == {
        config_map("cm1", "default"): Selected(singleton=True),
        config_map("cm3", "default"): Selected(singleton=True),
        ObjectRef(NAMESPACES, "", "ns2"): Selected(singleton=True),
    }


@pytest.mark.parametrize(
    ("clause", "inside", "outside"),
    [
        ({"namespaces": ["ns"]}, True, False),
        ({"namespaces": ["*"], "objectNames": ["a"]}, True, True),
        ({"namespaces": [], "objectNames": ["a"]}, True, True),
        ({"namespaces": ["other"]}, False, False),
        ({"namespaces": ["*", "other"]}, False, False),
        ({"objectNames": ["*", "b"]}, False, False),
        ({"resources": ["*"], "objectNames": ["a"]}, True, True),
        ({"resources": ["configmaps"]}, True, True),
        ({"resources": ["*", "pods"]}, False, False),
        ({"apiGroup": ""}, True, True),
        ({"apiGroup": "apps"}, False, False),
        ({"apiGroup": "*", "objectNames": ["a"]}, True, True),
        ({"apiGroup": None, "objectNames": ["a"]}, True, True),
        ({"namespaceSelectors": [{"matchLabels": {"in": "ns"}}]}, True, False),
        ({"namespaceSelectors": [{"matchExpressions": [{"key": "in", "operator": "DoesNotExist"}]}]}, False, True),
        ({"namespaceSelectors": [{}], "objectNames": ["a"]}, True, True),
        ({"labelSelectors": [{"matchLabels": {"on": "a"}}]}, True, True),
        ({"labelSelectors": [{"matchLabels": {"on": "b"}}, {"matchLabels": {"on": "a"}}]}, True, True),
        ({"labelSelectors": [{"matchLabels": {"in": "ns"}}]}, False, False),
        ({"objectNames": ["a"], "labelSelectors": [{"matchLabels": {"on": "b"}}]}, False, False),
    ],
)
def test_an_object_fits_a_clause_if_it_fits_everything_in_it(clause: Any, inside: bool, outside: bool) -> None:
    read = what(downsync=[clause])
    assert (read.selects(config_map("a"), {"on": "a"}, {"in": "ns"}) is not None) is inside
    assert (read.selects(config_map("a", ""), {"on": "a"}, None) is not None) is outside


def test_wishes_of_all_clauses_that_fit_add_up() -> None:
    read = what(
        downsync=[
            {"objectNames": ["a", "b"], "statusCollectors": ["z", "y", "z"]},
            {"objectNames": ["a"], "createOnly": True, "statusCollectors": ["x"]},
            {"objectNames": ["c"], "createOnly": False},
        ],
        namespaceSelector={"matchLabels": {"whole": "yes"}},
    )
    assert read.selects(config_map("a"), NOTHING, NOTHING) == Selected(create_only=True, collectors=("x", "y", "z"))
    assert read.selects(config_map("b"), NOTHING, NOTHING) == Selected(collectors=("y", "z"))
    assert read.selects(config_map("c"), NOTHING, NOTHING) == Selected()
    whole = read.selects(config_map("a"), NOTHING, {"whole": "yes"})
    assert whole == Selected(create_only=True, collectors=("x", "y", "z"), whole_namespace=True)


# --- what comes back ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("upsync", "inside", "outside"),
    [
        ({"apiGroup": "", "resources": ["configmaps"], "namespaces": ["ns"], "names": ["a"]}, True, True),
        ({"resources": ["configmaps"], "namespaces": ["*"], "names": ["*"]}, True, True),
        ({"resources": ["*"], "namespaces": ["ns"], "names": ["*"]}, True, True),
        ({"resources": ["configmaps"], "names": ["*"]}, False, True),
        ({"resources": ["configmaps"], "namespaces": ["configmaps"], "names": ["a"]}, False, True),
        ({"resources": ["configmaps"], "namespaces": ["ns"], "names": ["configmaps"]}, False, False),
        ({"resources": ["configmaps"], "namespaces": ["ns"]}, False, False),
        ({"resources": ["configmaps"], "namespaces": ["*", "x"], "names": ["a"]}, False, True),
        ({"resources": ["pods"], "namespaces": ["*"], "names": ["*"]}, False, False),
        ({"apiGroup": "*", "resources": ["*"], "namespaces": ["*"], "names": ["*"]}, False, False),
        ({"resources": [], "namespaces": ["*"], "names": ["*"]}, False, False),
    ],
)
def test_upsynced_objects_are_not_selected_for_downsync(upsync: Any, inside: bool, outside: bool) -> None:
    read = what(namespaceSelector={}, downsync=[{"objectNames": ["a"]}], upsync=[upsync])
    assert (read.selects(config_map("a"), NOTHING, NOTHING) is None) is inside
    assert (read.selects(config_map("a", ""), NOTHING, None) is None) is outside


def test_upsync_clauses_are_kept_as_written() -> None:
    upsync = [
        {
            "apiGroup": "group1.test",
            "resources": ["sprockets", "flanges"],
            "namespaces": ["orbital"],
            "names": ["g", "c"],
        },
        {"apiGroup": "group2.test", "resources": ["cogs"], "names": ["William"]},
        {"resources": ["pods"], "namespaces": [], "names": None},
    ]
    assert what(upsync=upsync).upsync == (
        UpsyncSet("group1.test", ("sprockets", "flanges"), ("orbital",), ("g", "c")),
        UpsyncSet("group2.test", ("cogs",), (), ("William",)),
        UpsyncSet("", ("pods",)),
    )


# --- kinds ----------------------------------------------------------------------------------------


# --- what cannot be understood --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Inn"}]}},
            'spec.namespaceSelector.matchExpressions[0].operator: Invalid value: "Inn": not a valid selector operator',
        ),
        (
            {"nonNamespacedObjects": [{"labelSelectors": [{}, {"matchLabels": {"a": "-"}}]}]},
            'spec.nonNamespacedObjects[0].labelSelectors[1].matchLabels[a]: Invalid value: "-": ',
        ),
        (
            {"downsync": [{"labelSelectors": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]}]},
            "spec.downsync[0].labelSelectors[0].matchExpressions[0].values: Required value: ",
        ),
        (
            {"downsync": [{"namespaceSelectors": [{"matchLabels": {"/": "a"}}]}]},
            'spec.downsync[0].namespaceSelectors[0].matchLabels: Invalid value: "/": ',
        ),
        ({"downsync": [{"resources": ["a"]}, {}]}, "spec.downsync[1]: Required value: must not match "),
        ({"downsync": [{"resources": ["*"], "namespaces": ["*"], "labelSelectors": [{}]}]}, "spec.downsync[0]: "),
        ({"downsync": [{"apiGroup": "*", "createOnly": True}]}, "spec.downsync[0]: Required value: "),
        ({"downsync": [{"namespaceSelectors": [{}, {"matchLabels": {"a": "b"}}]}]}, "spec.downsync[0]: Required "),
        ({"downsync": "x"}, "spec.downsync: Expected `array | null`, got `str`"),
        ({"upsync": [{"names": [1]}]}, "spec.upsync[0].names[0]: Expected `str`, got `int`"),
        ("x", "spec: Expected `object | null`, got `str`"),
        (
            {"upsync": [{"resources": ["a"]}] * (MAX_ALTERNATIVES + 1)},
            "spec: Too many: 1001 clauses and selectors: must be at most 1000",
        ),
        (
            {"downsync": [{"namespaceSelectors": [{}] * 500, "labelSelectors": [{"matchLabels": {"a": "b"}}] * 500}]},
            "spec: Too many: 1001 clauses and selectors: must be at most 1000",
        ),
    ],
)
def test_what_cannot_be_understood_says_where_and_why_and_selects_nothing(spec: Any, why: str) -> None:
    assert problem(spec).startswith(why)
    read = parse_workload_selector(json.dumps({"spec": spec}).encode())
    assert read.selects(config_map("a"), NOTHING, NOTHING) is None
    assert not read.selects_namespace(NOTHING)


def test_placements_that_say_the_same_are_equal_whatever_was_asked_of_them() -> None:
    spec = {"downsync": [{"resources": ["a", "b"]}], "upsync": [{"resources": ["x"]}]}
    one, other = what(**spec), what(**{**spec, "locationSelectors": [{}]})
    one.selects(config_map("a"), NOTHING, NOTHING)
    assert one == other
    assert one != what(**{**spec, "upsync": [{"resources": ["y"]}]})
    assert one != what(**spec, wantSingletonReportedState=True)


# --- against a twin that reads the specification sentence by sentence -----------------------------

FEW = st.sampled_from(["a", "b"])
LISTS = st.none() | st.lists(st.sampled_from(["a", "b", "*"]), max_size=2)
SELECTORS = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": st.dictionaries(FEW, FEW, max_size=1),
        "matchExpressions": st.lists(
            st.fixed_dictionaries(
                {"key": FEW, "operator": st.sampled_from(["In", "NotIn"]), "values": st.lists(FEW, min_size=1)}
            )
            | st.fixed_dictionaries({"key": FEW, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
            max_size=1,
        ),
    },
)
SOME_SELECTORS = st.none() | st.lists(SELECTORS, max_size=2)
LABELS = st.dictionaries(FEW, FEW, max_size=2)


def records(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]] | None]:
    return st.none() | st.lists(st.fixed_dictionaries({}, optional=fields), max_size=3)


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "namespaceSelector": st.none() | SELECTORS,
        "nonNamespacedObjects": records(
            apiGroup=FEW, resources=LISTS, resourceNames=LISTS, labelSelectors=SOME_SELECTORS
        ),
        "downsync": records(
            apiGroup=st.none() | FEW,
            resources=LISTS,
            namespaces=LISTS,
            namespaceSelectors=SOME_SELECTORS,
            objectNames=LISTS,
            labelSelectors=SOME_SELECTORS,
            createOnly=st.booleans(),
            statusCollectors=st.lists(FEW, max_size=2),
        ),
        "upsync": records(apiGroup=FEW, resources=LISTS, namespaces=LISTS, names=LISTS),
        "wantSingletonReportedState": st.booleans(),
    },
)


def listed(names: list[str] | None, name: str, *, empty: bool) -> bool:
    return empty if not names else names == ["*"] or name in names


def matches_one(selectors: list[dict[str, Any]] | None, labels: Mapping[str, str]) -> bool:
    return any(selector_of(one).matches(labels) for one in selectors or ())


def in_set(one: dict[str, Any], ref: ObjectRef, labels: Mapping[str, str]) -> bool:
    return (
        one.get("apiGroup", "") == ref.resource.group
        and listed(one.get("resources"), ref.resource.resource, empty=False)
        and (listed(one.get("resourceNames"), ref.name, empty=False) or matches_one(one.get("labelSelectors"), labels))
    )


def in_clause(one: dict[str, Any], ref: ObjectRef, labels: Mapping[str, str], around: Mapping[str, str]) -> bool:
    namespaces = one.get("namespaces")
    return (
        one.get("apiGroup") in (None, ref.resource.group)
        and listed(one.get("resources"), ref.resource.resource, empty=True)
        and (listed(namespaces, ref.namespace, empty=True) if ref.namespace else namespaces in (None, [], ["*"]))
        and (not one.get("namespaceSelectors") or matches_one(one["namespaceSelectors"], around))
        and listed(one.get("objectNames"), ref.name, empty=True)
        and (not one.get("labelSelectors") or matches_one(one["labelSelectors"], labels))
    )


def comes_back(one: dict[str, Any], ref: ObjectRef) -> bool:
    return (
        one.get("apiGroup", "") == ref.resource.group
        and listed(one.get("resources"), ref.resource.resource, empty=False)
        and (not ref.namespace or listed(one.get("namespaces"), ref.namespace, empty=False))
        and listed(one.get("names"), ref.name, empty=False)
    )


def says_nothing(one: dict[str, Any]) -> bool:
    lists = all(one.get(name) in (None, [], ["*"]) for name in ("resources", "namespaces", "objectNames"))
    selectors = all(
        not one.get(name) or not all(selector_of(selector) for selector in one[name])
        for name in ("namespaceSelectors", "labelSelectors")
    )
    return one.get("apiGroup") is None and lists and selectors


def naive(
    spec: dict[str, Any], ref: ObjectRef, labels: Mapping[str, str], around: Mapping[str, str]
) -> Selected | None:
    selector = spec.get("namespaceSelector")
    if selector is None and spec.get("downsync") is None:
        selector = {}
    whole = bool(ref.namespace) and selector is not None and selector_of(selector).matches(around)
    by_set = not ref.namespace and any(in_set(one, ref, labels) for one in spec.get("nonNamespacedObjects") or ())
    clauses = [
        one for one in spec.get("downsync") or () if in_clause(one, ref, labels, around if ref.namespace else {})
    ]
    if not (whole or by_set or clauses) or any(comes_back(one, ref) for one in spec.get("upsync") or ()):
        return None
    return Selected(
        any(one.get("createOnly") for one in clauses),
        spec.get("wantSingletonReportedState", False),
        tuple(sorted({name for one in clauses for name in one.get("statusCollectors", ())})),
        whole,
    )


@given(
    SPECS,
    st.lists(
        st.tuples(
            st.builds(ObjectRef, st.builds(GroupResource, FEW, FEW), st.sampled_from(["", "a", "b"]), FEW), LABELS
        ),
        max_size=6,
    ),
    st.fixed_dictionaries({"a": LABELS, "b": LABELS}),
)
def test_selecting_is_what_the_twin_says(
    spec: dict[str, Any], objects: list[tuple[ObjectRef, dict[str, str]]], namespaces: dict[str, dict[str, str]]
) -> None:
    read = parse_workload_selector({"spec": spec})
    assert bool(read.problem) is any(says_nothing(one) for one in spec.get("downsync") or ())
    if read.problem:
        return
    for ref, labels in objects:
        around = namespaces.get(ref.namespace)
        found = read.selects(ref, labels, around)
        assert found == naive(spec, ref, labels, around or {})
        if found is not None:
            assert found.whole_namespace is (ref.namespace != "" and read.selects_namespace(around or {}))
    for ref, labels in objects:
        changes = {read.selects(ref, labels, around) for around in namespaces.values()}
        assert len(changes) == 1 or any(one.namespace_selectors for one in read.alternatives)
