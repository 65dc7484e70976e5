"""One object of several sources, whatever their order; and the version in which all of them can be read."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery.errors import Obj
from farflung.machinery.names import version_order
from farflung.placement.project import Agreement, MergeConflict, ServedVersions, SourceObject, agree, merge, same

PASSWORDS = "aHVudGVyMg==", "czNjcjN0"


def obj(metadata: Obj | None = None, **sections: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a", **(metadata or {})}, **sections}


def source(cluster: str, version: int, metadata: Obj | None = None, **sections: Any) -> SourceObject:
    return SourceObject(cluster, version, obj(metadata, **sections))


def merged(*sources: SourceObject) -> tuple[Obj, list[MergeConflict]]:
    found = merge(sources)
    assert found.obj is not None
    return found.obj, list(found.conflicts)


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_labels_and_annotations_are_merged_key_by_key(field: str) -> None:
    found, conflicts = merged(
        source("ws1", 2, {field: {"both": "new", "a.b/c": "x", "same": "s"}}),
        source("ws2", 1, {field: {"both": "old", "theirs": "y", "same": "s"}}),
    )
    assert found["metadata"][field] == {"a.b/c": "x", "both": "new", "same": "s", "theirs": "y"}
    assert conflicts == [MergeConflict(f"metadata.{field}.both", "ws1", ("ws2",))]


def test_owners_are_merged_by_version_kind_and_name() -> None:
    def owner(name: str, uid: str) -> Obj:
        return {"apiVersion": "v1", "kind": "Thing", "name": name, "uid": uid}

    found, conflicts = merged(
        source("ws1", 1, {"ownerReferences": [owner("x", "1"), owner("y", "1")]}),
        source("ws2", 2, {"ownerReferences": [owner("z", "2"), owner("x", "2")]}),
    )
    assert found["metadata"]["ownerReferences"] == [owner("x", "2"), owner("y", "1"), owner("z", "2")]
    assert conflicts == [MergeConflict("metadata.ownerReferences['v1 Thing x'].uid", "ws2", ("ws1",))]


def test_finalizers_are_merged_as_a_set_and_managed_fields_are_dropped() -> None:
    found, conflicts = merged(
        source("ws1", 1, {"finalizers": ["b", "a"], "managedFields": [{}]}),
        source("ws2", 2, {"finalizers": ["c", "a"], "managedFields": [{}]}),
    )
    assert found["metadata"] == {"name": "a", "finalizers": ["a", "b", "c"]}
    assert conflicts == []


@pytest.mark.parametrize("section", ["spec", "status"])
def test_of_specs_that_differ_the_most_recent_one_wins(section: str) -> None:
    found, conflicts = merged(
        source("ws1", 5, **{section: {"replicas": 1, "parts": [{"image": "x"}]}}),
        source("ws2", 7, **{section: {"replicas": 1, "parts": [{"image": "y"}]}}),
        source("ws3", 6, **{section: {"replicas": 1, "parts": [{"image": "y"}]}}),
    )
    assert found[section] == {"replicas": 1, "parts": [{"image": "y"}]}
    assert conflicts == [MergeConflict(f"{section}.parts[0].image", "ws2", ("ws1",))]


@pytest.mark.parametrize("other", [{"spec": {"a": 1, "b": None}}, {"spec": {"a": 1}}, {"spec": {"a": 1.0}}])
def test_absent_and_null_are_the_same(other: Obj) -> None:
    found, conflicts = merged(source("ws1", 2, spec={"a": 1, "c": None}, data=None), source("ws2", 1, **other))
    assert found == obj(spec={"a": 1, "c": None})
    assert conflicts == []


@pytest.mark.parametrize(
    ("latest", "other", "path"),
    [
        ({"spec": {}}, {}, "spec"),
        ({}, {"spec": {"a": 1}}, "spec"),
        ({"spec": {"on": True}}, {"spec": {"on": 1}}, "spec.on"),
        ({"spec": {"parts": [1]}}, {"spec": {"parts": [1, 2]}}, "spec.parts"),
        ({"spec": {"b": 1, "a.b": 1}}, {"spec": {"b": 2, "a.b": 2}}, "spec['a.b']"),
        ({"rules": [1]}, {"rules": [2]}, "rules[0]"),
        ({"rules": [1]}, {}, "rules"),
        ({"data": {"a": "1"}}, {"data": []}, "data"),
        ({"immutable": True}, {"immutable": False}, "immutable"),
    ],
)
def test_everything_else_that_differs_is_a_conflict_that_says_where(latest: Obj, other: Obj, path: str) -> None:
    found, conflicts = merged(source("ws1", 2, **latest), source("ws2", 1, **other))
    assert found == obj(**latest)
    assert conflicts == [MergeConflict(path, "ws1", ("ws2",))]
    assert str(conflicts[0]) == f"{path}: ws1 wins over ws2"


def test_other_sections_that_are_maps_are_merged_key_by_key() -> None:
    found, conflicts = merged(
        source("ws1", 3, data={"a": "1", "gone": None}),
        source("ws2", 2, data={"a": "2", "b": "2"}, binaryData={"x": "eA=="}),
        source("ws3", 1, data={"b": "3", "gone": "not for all"}),
    )
    assert found == obj(data={"a": "1", "b": "2", "gone": "not for all"}, binaryData={"x": "eA=="})
    assert conflicts == [MergeConflict("data.a", "ws1", ("ws2",)), MergeConflict("data.b", "ws2", ("ws3",))]


def test_what_is_being_deleted_counts_no_more() -> None:
    gone = source("ws1", 9, {"deletionTimestamp": "2024-01-01T00:00:00Z"}, spec={"a": 1})
    assert merged(gone, source("ws2", 1, spec={"a": 2})) == (obj(spec={"a": 2}), [])
    assert merge([gone]).obj is None
    assert merge([]).obj is None


def test_of_equal_versions_the_first_cluster_wins() -> None:
    found, conflicts = merged(source("ws2", 1, spec={"a": 2}), source("ws1", 1, spec={"a": 1}))
    assert found["spec"] == {"a": 1}
    assert conflicts == [MergeConflict("spec.a", "ws1", ("ws2",))]


def test_values_of_secrets_are_never_reported() -> None:
    sources = [
        SourceObject(cluster, version, {**obj({"annotations": {"x": password}}), "data": {"password": password}})
        for version, (cluster, password) in enumerate(zip(("ws1", "ws2"), PASSWORDS, strict=True))
    ]
    found = merge(sources)
    told = repr(sources) + repr(found) + "".join(map(str, found.conflicts))
    assert [one.path for one in found.conflicts] == ["data.password", "metadata.annotations.x"]
    assert not any(password in told for password in PASSWORDS)


def test_objects_nested_deeply_are_compared() -> None:
    def nested(end: int) -> Any:
        value: Any = end
        for _ in range(5000):
            value = [value]
        return value

    assert same(nested(1), nested(1))
    assert not same(nested(1), nested(2))


# --- laws -----------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "c"])
LEAVES = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "x"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
TEXTS = st.dictionaries(KEYS, st.sampled_from("12"), max_size=3)
OBJECTS = st.builds(
    lambda labels, sections: obj({"labels": labels} if labels else {}, **sections),
    TEXTS,
    st.dictionaries(st.sampled_from(["spec", "data", "rules"]), VALUES, max_size=3),
)
SOURCES = st.lists(
    st.builds(SourceObject, st.sampled_from(["ws1", "ws2", "ws3", "ws4"]), st.integers(1, 4), OBJECTS),
    max_size=4,
    unique_by=lambda one: one.cluster,
)


def pruned(value: Any) -> Any:
    """Without nulls in maps, and with its type, so that true is not 1."""
    if isinstance(value, dict):
        return {key: pruned(entry) for key, entry in value.items() if entry is not None}
    return [pruned(entry) for entry in value] if isinstance(value, list) else (isinstance(value, bool), value)


def said(sources: list[SourceObject], *path: str) -> list[tuple[str, Any]]:
    """Who says what of a field, the most recent first; null if nothing."""
    found = []
    for one in sorted(sources, key=lambda one: (-one.version, one.cluster)):
        value: Any = one.obj
        for name in path:
            value = (value or {}).get(name)
        found.append((one.cluster, value))
    return found


@given(SOURCES, st.randoms(use_true_random=False))
def test_the_order_of_the_sources_does_not_matter_and_nothing_is_changed(
    sources: list[SourceObject], random: Any
) -> None:
    before = copy.deepcopy([one.obj for one in sources])
    first = merge(sources)
    assert [one.obj for one in sources] == before
    random.shuffle(sources)
    assert merge(sources) == first


@given(OBJECTS)
def test_one_source_alone_is_what_it_is(alone: Obj) -> None:
    found = merge([SourceObject("ws1", 3, alone)])
    assert found.obj == alone
    assert found.conflicts == ()


@given(SOURCES, OBJECTS)
def test_equal_sources_are_like_one(sources: list[SourceObject], alone: Obj) -> None:
    found = merge([SourceObject(one.cluster, one.version, alone) for one in sources])
    assert found.conflicts == ()
    if sources:
        assert pruned(found.obj) == pruned(alone)


@given(SOURCES.filter(bool))
def test_every_field_is_what_the_most_recent_source_says_that_says_anything(sources: list[SourceObject]) -> None:
    found = merge(sources)
    assert found.obj is not None
    clusters: dict[tuple[str, ...], MergeConflict] = {}
    for one in found.conflicts:
        where = one.path.replace("[", ".[").split(".")
        depth = 3 if where[0] == "metadata" else 2 if is_map(sources, where[0]) else 1
        clusters[tuple(where[:depth])] = one
    for path in [("spec",), ("data",), ("rules",), *(("metadata", "labels", key) for key in "abc")]:
        paths = [(*path, key) for key in "abc"] if is_map(sources, path[0]) and len(path) == 1 else [path]
        for each in paths:
            opinions = said(sources, *each)
            if len(each) > 1:
                opinions = [opinion for opinion in opinions if opinion[1] is not None]
            value = said([SourceObject("", 0, found.obj)], *each)[0][1]
            expected = opinions[0] if opinions else ("", None)
            assert pruned(value) == pruned(expected[1])
            losers = tuple(sorted(who for who, what in opinions[1:] if pruned(what) != pruned(expected[1])))
            assert (each in clusters) == bool(losers)
            if losers:
                assert (clusters[each].winner, clusters[each].losers) == (expected[0], losers)


def is_map(sources: list[SourceObject], name: str) -> bool:
    sections = [one.obj.get(name) for one in sources]
    return name in ("data", "rules") and all(one is None or isinstance(one, dict) for one in sections)


# --- versions -------------------------------------------------------------------------------------


def offer(cluster: str, *versions: str, preferred: str = "") -> ServedVersions:
    return ServedVersions(cluster, versions, preferred or versions[0])


@pytest.mark.parametrize(
    ("offers", "earlier", "version"),
    [
        ([], None, ""),
        ([offer("a", "v1")], None, "v1"),
        ([offer("a", "v1", "v2", preferred="v1")], None, "v1"),  # preferred, though it is not the highest
        ([offer("a", "v1", "v2"), offer("b", "v2", "v1")], None, "v2"),  # both are preferred by somebody
        ([offer("a", "v1", "v2"), offer("b", "v2", "v1")], "v1", "v1"),  # what was once agreed upon stays
        ([offer("a", "v2", "v1"), offer("b", "v2", "v1")], "v1", "v2"),  # unless nobody prefers it any more
        ([offer("a", "v3", "v1"), offer("b", "v2", "v1")], None, "v1"),  # nobody's preferred one is common
        ([offer("a", "v3", "v1", "v1beta1"), offer("b", "v2", "v1beta1", "v1")], "v1beta1", "v1beta1"),
        ([offer("a", "v1beta1", "v1alpha1"), offer("b", "v1alpha1", "v1beta1")], "v9", "v1beta1"),
    ],
)
def test_workspaces_agree_upon_a_version(offers: list[ServedVersions], earlier: str | None, version: str) -> None:
    assert agree(offers, earlier) == Agreement(version)


def test_who_has_only_old_versions_is_left_out_and_named() -> None:
    found = agree([offer("a", "v1beta1"), offer("b", "v2", "v1"), offer("c", "v1")])
    why = "no version is served by all of a (v1beta1), b (v2, v1), c (v1); left out: a"
    assert found == Agreement("v1", ("a",), why)


def test_who_serves_nothing_is_left_out_first() -> None:
    found = agree([ServedVersions("a", (), ""), offer("b", "v1alpha1")])
    assert found == Agreement("v1alpha1", ("a",), "no version is served by all of a (none), b (v1alpha1); left out: a")
    assert agree([ServedVersions("a", (), "")]).version == ""


VERSIONS = st.lists(st.sampled_from(["v1", "v2", "v1beta1", "v1alpha1", "other"]), max_size=3, unique=True)
OFFERS = st.lists(
    st.builds(ServedVersions, st.sampled_from("abcd"), VERSIONS.map(tuple), st.sampled_from(["v1", "v2", "v1beta1"])),
    max_size=4,
    unique_by=lambda one: one.cluster,
)


def twin(offers: list[ServedVersions], earlier: str | None) -> tuple[str, set[str]]:
    """By the letter of the rule."""
    left, dropped = list(offers), set()
    while left and not set.intersection(*(set(one.versions) for one in left)):
        worst = max(left, key=lambda one: (min(map(version_order, one.versions), default=(9, 0, 0, "")), one.cluster))
        left.remove(worst)
        dropped.add(worst.cluster)
    if not left:
        return "", dropped
    common = set.intersection(*(set(one.versions) for one in left))
    candidates = {one.preferred for one in left} & common or common
    return (earlier if earlier in candidates else min(candidates, key=version_order)) or "", dropped


@given(OFFERS, st.sampled_from([None, "v1", "v1beta1", "other"]), st.randoms(use_true_random=False))
def test_agreements_are_by_the_rule_whatever_the_order(
    offers: list[ServedVersions], earlier: str | None, random: Any
) -> None:
    found = agree(offers, earlier)
    assert (found.version, set(found.dropped)) == twin(offers, earlier)
    assert bool(found.dropped) == bool(found.conflict)
    random.shuffle(offers)
    assert agree(offers, earlier) == found
    if found.version:
        assert agree(offers, found.version) == found
