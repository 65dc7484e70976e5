"""Copies get what is the user's, lose what has gone at the source, and are written only if something differs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.apis.edge.names import DOWNSYNC_OVERWRITE, PROJECTED, PROJECTION
from farflung.apis.names import LAST_APPLIED
from farflung.machinery.errors import Obj
from farflung.placement.project import is_ours, make_copy, strip, update_of
from farflung.placement.types import projection_of

PASSWORD = "aHVudGVyMg=="


def config_map(data: Obj | None = None, **metadata: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}, "data": data or {}}


def deployment(replicas: int = 1, **metadata: Any) -> Obj:
    spec = {"replicas": replicas, "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", **metadata}, "spec": spec}


def stored(obj: Obj, version: int = 1, **metadata: Any) -> Obj:
    """As a server has it."""
    found = copy.deepcopy(obj)
    found["metadata"] |= {"resourceVersion": str(version), "uid": "u", "generation": 1, **metadata}
    return found


# --- what goes there ------------------------------------------------------------------------------


def test_what_belongs_to_the_source_server_stays_there() -> None:
    source = deployment(
        namespace="shop",
        labels={"app": "web", "internal.apis.kcp.io/export": "x", PROJECTED: "yes"},
        annotations={
            "note": "n",
            "kcp.io/cluster": "c",
            "experimental.status.workload.kcp.io/x": "s",
            "edge.kcp.io/customizer": "mine",
            "notkcp.io/x": "stays",
            "kcp.io": "no prefix",
            PROJECTION: "{}",
            LAST_APPLIED: "{}",
        },
        managedFields=[{"manager": "kubectl"}],
        ownerReferences=[{"uid": "o"}],
        finalizers=["f"],
        uid="u",
        resourceVersion="7",
        selfLink="/x",
        generation=3,
        creationTimestamp="2024-01-01T00:00:00Z",
        deletionTimestamp="2024-01-01T00:00:00Z",
        deletionGracePeriodSeconds=0,
        generateName="a-",
        clusterName="c",
    )
    assert strip({**source, "status": {"replicas": 1}}) == deployment(
        namespace="shop",
        labels={"app": "web"},
        annotations={
            "note": "n",
            "edge.kcp.io/customizer": "mine",
            "notkcp.io/x": "stays",
            "kcp.io": "no prefix",
        },
    )


def test_maps_of_which_nothing_is_left_are_left_out() -> None:
    assert strip(config_map(labels=None, annotations={"kcp.io/cluster": "c"}))["metadata"] == {"name": "a"}


def test_a_copy_is_marked_and_says_what_was_put_in() -> None:
    obj = deployment(labels={"b": "1", "a": "2"}, annotations={"note": "n"})
    made = make_copy(obj, placements=["ws2", "ws1"])
    assert is_ours(made)
    assert not is_ours(obj)
    assert made["metadata"]["labels"] == {"a": "2", "b": "1", PROJECTED: "yes"}
    said = projection_of(made)
    assert (said.labels, said.annotations, said.placements) == (("a", "b"), ("note",), ("ws1", "ws2"))
    assert made["metadata"]["annotations"] == {
        PROJECTION: f'{{"annotations":["note"],"hash":"{said.hash}","labels":["a","b"],"sources":["ws1","ws2"]}}',
        "note": "n",
    }


def test_the_projection_of_a_secret_has_no_hash() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"password": PASSWORD}}
    marks = make_copy(secret)["metadata"]
    other = make_copy({**secret, "data": {"password": "czM="}})["metadata"]
    assert marks == other
    assert projection_of({"metadata": marks}).hash == ""


def test_text_in_a_secret_is_encoded_as_the_server_would() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"password": "hunter2"}}
    made = make_copy({**secret, "data": {"password": "x", "b": "Yg=="}})
    assert made["data"] == {"password": PASSWORD, "b": "Yg=="}
    assert "stringData" not in made


@pytest.mark.parametrize(
    "annotations", [{DOWNSYNC_OVERWRITE: "false"}, {"edge.kubestellar.io/downsync-overwrite": "false"}]
)
def test_a_source_can_say_itself_that_its_copies_are_left_alone(annotations: Obj) -> None:
    there = stored(make_copy(config_map({"a": "1"})))
    wanted = make_copy(config_map({"a": "2"}, annotations=annotations))
    put = update_of(there, wanted)
    assert put is not None
    assert put["data"] == {"a": "1"}
    assert update_of(put, wanted) is None


# --- from the one to the other --------------------------------------------------------------------


def test_what_is_as_it_is_wanted_is_not_written() -> None:
    wanted = make_copy(deployment(labels={"a": "1"}))
    there = stored(wanted, managedFields=[{}], finalizers=["theirs"])
    assert update_of(there, wanted) is None


def test_a_write_keeps_what_is_not_ours() -> None:
    before = make_copy(deployment(labels={"a": "1", "b": "2"}, annotations={"x": "1"}))
    there = stored(before, 7, managedFields=[{}], finalizers=["theirs"], ownerReferences=[{"uid": "o"}])
    there["metadata"]["labels"]["theirs"] = "l"
    there["metadata"]["annotations"]["kcp.io/cluster"] = "mailbox"
    there["status"] = {"replicas": 1}
    wanted = make_copy(deployment(2, labels={"a": "3"}))
    put = update_of(there, wanted)
    assert put is not None
    assert put["spec"] == wanted["spec"]
    assert put["status"] == {"replicas": 1}
    assert put["metadata"] == {
        "name": "a",
        "resourceVersion": "7",
        "uid": "u",
        "generation": 1,
        "finalizers": ["theirs"],
        "ownerReferences": [{"uid": "o"}],
        "labels": {"a": "3", PROJECTED: "yes", "theirs": "l"},
        "annotations": {**wanted["metadata"]["annotations"], "kcp.io/cluster": "mailbox"},
    }


def test_sections_that_the_source_lost_are_removed_from_the_copy() -> None:
    there = stored(make_copy({**deployment(), "extra": [1]}))
    put = update_of(there, make_copy(deployment()))
    assert put is not None
    assert "extra" not in put


def test_what_the_server_added_by_default_is_no_difference() -> None:
    wanted = make_copy(deployment())
    there = stored(wanted)
    there["spec"]["strategy"] = {"type": "RollingUpdate"}
    there["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Always"
    there["extra"] = {}
    assert update_of(there, wanted) is None


def test_what_the_server_dropped_because_it_is_empty_is_no_difference() -> None:
    obj = deployment()
    wanted = make_copy({**obj, "spec": {**obj["spec"], "selector": None, "volumes": [], "affinity": {}}})
    assert update_of(stored({**wanted, "spec": obj["spec"]}), wanted) is None


def test_a_default_in_the_place_of_null_is_no_difference() -> None:
    obj = deployment()
    wanted = make_copy({**obj, "spec": {**obj["spec"], "paused": None}})
    assert update_of(stored({**wanted, "spec": {**obj["spec"], "paused": False}}), wanted) is None


@pytest.mark.parametrize(
    "edit",
    [
        {"replicas": 2},
        {"replicas": None},
        {"template": {}},
        {"template": {"spec": {"containers": []}}},
        {"template": {"spec": {"containers": [{"name": "main", "image": "evil"}]}}},
        {"template": {"spec": {"containers": {}}}},
    ],
)
def test_a_copy_edited_by_hand_is_restored(edit: Obj) -> None:
    wanted = make_copy(deployment())
    there = stored(wanted)
    there["spec"] |= edit
    put = update_of(there, wanted)
    assert put is not None
    assert put["spec"] == wanted["spec"]


@pytest.mark.parametrize(
    "edit",
    [{"data": {"a": "1", "theirs": "x"}}, {"data": None}, {"binaryData": {"x": "eA=="}}, {"immutable": True}],
)
@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_what_was_added_to_data_by_hand_is_taken_out(kind: str, edit: Obj) -> None:
    wanted = make_copy({**config_map({"a": "1"}), "kind": kind})
    put = update_of({**stored(wanted), **edit}, wanted)
    assert put is not None
    assert {**put, "metadata": {}} == {**wanted, "metadata": {}}


def test_the_type_that_the_server_gave_a_secret_is_no_difference() -> None:
    wanted = make_copy({**config_map({"a": "MQ=="}), "kind": "Secret"})
    assert update_of({**stored(wanted), "type": "Opaque"}, wanted) is None


def test_other_sources_of_the_same_content_are_written_down() -> None:
    there = stored(make_copy(config_map(), placements=["ws1"]))
    wanted = make_copy(config_map(), placements=["ws1", "ws2"])
    put = update_of(there, wanted)
    assert put is not None
    assert projection_of(put).placements == ("ws1", "ws2")


@pytest.mark.parametrize(
    "said", ["", "null", "[]", '{"labels":[1]}', '{"labels":"a"}', '{"x":' + "[" * 5000 + "]" * 5000 + "}", "\udc80"]
)
def test_a_copy_that_says_nonsense_of_itself_is_written_anew(said: str) -> None:
    wanted = make_copy(deployment(labels={"a": "1"}))
    there = stored(wanted)
    there["metadata"]["annotations"][PROJECTION] = said
    there["metadata"]["labels"]["b"] = "whose?"
    put = update_of(there, wanted)
    assert put is not None
    assert put["metadata"]["annotations"] == wanted["metadata"]["annotations"]
    assert put["metadata"]["labels"]["b"] == "whose?"


def test_what_differs_far_below_is_seen() -> None:
    def nested(end: Obj) -> Obj:
        spec = end
        for _ in range(100):
            spec = {"x": [spec], "y": [1]}
        return {"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec}

    wanted = make_copy(nested({"a": 1}))
    ends: list[tuple[Obj, bool]] = [({"a": 1}, True), ({"a": 1, "b": 2}, True), ({"a": 2}, False), ({}, False)]
    for end, same in [*ends, ({"a": [1]}, False)]:
        there = stored({**wanted, "spec": nested(end)["spec"]})
        assert (update_of(there, wanted) is None) == same


# --- create only ----------------------------------------------------------------------------------


def test_a_copy_that_is_left_alone_is_not_written_again() -> None:
    there = stored(make_copy(deployment(labels={"a": "1"}), create_only=True))
    there["spec"]["replicas"] = 9
    assert update_of(there, make_copy(deployment(5, labels={"b": "1"}), create_only=True)) is None


def test_a_copy_that_is_to_be_left_alone_from_now_on_gets_only_the_mark() -> None:
    there = stored(make_copy(deployment(labels={"a": "1"})), 3, managedFields=[{}])
    put = update_of(there, make_copy(deployment(5), create_only=True))
    assert put is not None
    assert put["metadata"]["annotations"] == {**there["metadata"]["annotations"], DOWNSYNC_OVERWRITE: "false"}
    assert put["metadata"]["labels"] == there["metadata"]["labels"]
    assert put["spec"] == there["spec"]


def test_a_copy_that_is_no_longer_left_alone_catches_up() -> None:
    left = stored(make_copy(deployment(labels={"a": "1"}), create_only=True))
    wanted = make_copy(deployment(5, labels={"b": "1"}))
    put = update_of(left, wanted)
    assert put is not None
    assert put["spec"] == wanted["spec"]
    assert put["metadata"]["labels"] == wanted["metadata"]["labels"]
    assert put["metadata"]["annotations"] == wanted["metadata"]["annotations"]


def test_the_mark_alone_is_taken_away_if_nothing_else_differs() -> None:
    left = stored(make_copy(deployment(), create_only=True))
    wanted = make_copy(deployment())
    put = update_of(left, wanted)
    assert put is not None
    assert DOWNSYNC_OVERWRITE not in put["metadata"]["annotations"]
    assert update_of(put, wanted) is None


# --- histories ------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "c", "edge.kcp.io/x"])
MAPS = st.dictionaries(KEYS, st.sampled_from("12"), max_size=4)
LEAVES = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "x"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
SECTIONS = st.dictionaries(st.sampled_from(["spec", "data", "rules"]), VALUES, max_size=3)
KINDS = st.sampled_from([("v1", "ConfigMap"), ("apps/v1", "Deployment"), ("example.org/v1", "Widget")])
STEPS: st.SearchStrategy[list[tuple[str, Obj, Obj, Obj]]] = st.lists(
    st.one_of(
        st.tuples(st.just("source"), MAPS, MAPS, SECTIONS),
        st.tuples(st.just("others"), MAPS, MAPS, st.just({})),
        st.tuples(st.just("edit"), st.just({}), st.just({}), SECTIONS),
    ),
    max_size=8,
)


def defaulted(value: Any) -> Any:
    """As a server stores it: nulls in maps are dropped, and every map gets one more field."""
    if isinstance(value, dict):
        return {"default": 1} | {key: defaulted(entry) for key, entry in value.items() if entry is not None}
    return [defaulted(entry) for entry in value] if isinstance(value, list) else value


def on_server(obj: Obj, literal: bool) -> Obj:
    """Content as the server has it after it was written."""
    return {
        name: section if literal or name in ("apiVersion", "kind", "metadata") else defaulted(section)
        for name, section in copy.deepcopy(obj).items()
        if section is not None
    }


def holds(there: Any, wanted: Any) -> bool:
    """Whether everything that is wanted is there."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return all(holds(there.get(key), value) for key, value in wanted.items() if value is not None)
    if isinstance(wanted, list) and isinstance(there, list):
        return len(wanted) == len(there) and all(map(holds, there, wanted))
    return bool(there == wanted or (there is None and not wanted))


@settings(max_examples=examples(120))
@given(KINDS, MAPS, MAPS, SECTIONS, STEPS)
def test_a_copy_follows_its_source_and_keeps_fields_of_other_writers(
    kind: tuple[str, str], labels: Obj, annotations: Obj, sections: Obj, steps: list[tuple[str, Obj, Obj, Obj]]
) -> None:
    head = {"apiVersion": kind[0], "kind": kind[1]}
    literal = kind[1] == "ConfigMap"
    ours = {"labels": labels, "annotations": annotations}
    others: dict[str, Obj] = {"labels": {}, "annotations": {}}
    source = {**head, "metadata": {"name": "a", **ours}, **sections}
    there = on_server(stored(make_copy(strip(source))), literal)
    assert update_of(there, make_copy(strip(source))) is None
    for what, first, second, content in steps:
        entries = {"labels": first, "annotations": second}
        if what == "source":
            for field, wanted in entries.items():
                others[field] = {
                    key: value
                    for key, value in others[field].items()
                    if key not in wanted and key not in ours[field]  # what we once set is ours
                }
            ours = entries
            source = {**head, "metadata": {"name": "a", **entries}, **content}
        elif what == "others":
            for field, said in entries.items():
                there["metadata"].setdefault(field, {}).update(said)
                others[field] |= {key: value for key, value in said.items() if key not in ours[field]}
        else:
            there |= copy.deepcopy(content)
        aim = make_copy(strip(copy.deepcopy(source)))  # as a translator would that has just started
        put = update_of(there, aim)
        if put is not None:
            assert put["metadata"]["resourceVersion"] == there["metadata"]["resourceVersion"]
            there = on_server(put, literal)
            assert {**put, "metadata": {}} == {**aim, "metadata": {}}
        assert update_of(there, aim) is None
        assert all(holds(there.get(name), section) for name, section in aim.items() if name != "metadata")
        for field in ("labels", "annotations"):
            assert there["metadata"][field] == others[field] | aim["metadata"][field]


@given(KINDS, MAPS, MAPS, SECTIONS)
def test_stripping_twice_changes_nothing(kind: tuple[str, str], labels: Obj, annotations: Obj, sections: Obj) -> None:
    metadata = {"name": "a", "labels": labels, "annotations": annotations | {"kcp.io/cluster": "x"}, "uid": "u"}
    source = {"apiVersion": kind[0], "kind": kind[1], "metadata": metadata, **sections}
    before = copy.deepcopy(source)
    once = strip(source)
    assert source == before
    assert strip(once) == once
    assert strip(stored(make_copy(once))) == once
