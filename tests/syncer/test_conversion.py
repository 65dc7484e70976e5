"""Each side gets what people wrote on the other, marked, and nothing that the other server made up."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import orjson
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.apis.edge.names import (
    CREATE_ONLY,
    DOWNSYNCED,
    PROJECTED,
    PROJECTION,
    SYNCER_FINALIZER,
    SYNCER_MANAGER,
    UPSYNCED,
)
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource
from farflung.placement.project import make_copy, strip
from farflung.syncer.conversion import (
    encoded,
    for_edge,
    for_mailbox,
    hash_of,
    identical,
    is_create_only,
    is_downsynced,
    is_upsynced,
    mark,
    owned_fields,
    returned_status,
    takes_status,
    translated_status,
    updated_upsync,
)

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
OVERWRITE = "edge.kcp.io/downsync-overwrite"
OF_THE_SERVER: Obj = {
    "uid": "u",
    "resourceVersion": "7",
    "generation": 3,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "deletionTimestamp": "2026-01-01T00:00:00Z",
    "deletionGracePeriodSeconds": 0,
    "selfLink": "/x",
    "generateName": "a-",
    "managedFields": [{"manager": "placement-translator", "operation": "Update", "fieldsV1": {"f:spec": {}}}],
    "ownerReferences": [{"uid": "o"}],
    "finalizers": [SYNCER_FINALIZER],
}


def obj(kind: str, api: str = "v1", namespace: str = "shop", name: str = "a", **sections: Any) -> Obj:
    metadata: Obj = {"name": name, **sections.pop("metadata", {})}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **sections}


def copy_of(source: Obj, *, create_only: bool = False) -> Obj:
    """As the translator leaves it in a mailbox."""
    made = make_copy(strip(source), create_only=create_only, placements=["c1"])
    made["metadata"] |= OF_THE_SERVER
    made["metadata"]["annotations"] |= {"kcp.io/cluster": "mb"}
    return made


# --- down -----------------------------------------------------------------------------------------


def test_what_people_wrote_is_applied_with_our_marks_and_nothing_else() -> None:
    source = obj(
        "Deployment",
        "apps/v1",
        metadata={
            "labels": {"app": "web", "internal.apis.kcp.io/x": "y"},
            "annotations": {"note": "n", LAST_APPLIED: "{}", "edge.kcp.io/customizer": "mine"},
        },
        spec={"replicas": 2},
        status={"replicas": 1},
    )
    assert for_edge(copy_of(source)) == obj(
        "Deployment",
        "apps/v1",
        metadata={
            "labels": {"app": "web", PROJECTED: "yes"},
            "annotations": {"note": "n", "edge.kcp.io/customizer": "mine", DOWNSYNCED: "Deployment/shop/a"},
        },
        spec={"replicas": 2},
    )


def test_a_copy_that_no_translator_made_is_marked_all_the_same() -> None:
    made = for_edge(obj("ClusterRole", "rbac.authorization.k8s.io/v1", namespace="", rules=[]))
    assert made["metadata"]["labels"] == {PROJECTED: "yes"}
    assert made["metadata"]["annotations"] == {DOWNSYNCED: "ClusterRole/a"}


def test_the_copy_stays_as_it_is() -> None:
    source = copy_of(obj("Namespace", namespace="", spec={"finalizers": ["kubernetes"]}))
    before = copy.deepcopy(source)
    for_edge(source)
    assert source == before


def test_marks_of_the_way_up_do_not_go_down() -> None:
    made = for_edge(obj("ConfigMap", metadata={"annotations": {UPSYNCED: "ConfigMap/shop/a", DOWNSYNCED: "true"}}))
    assert made["metadata"]["annotations"] == {DOWNSYNCED: "ConfigMap/shop/a"}


@pytest.mark.parametrize(
    ("source", "left"),
    [
        (obj("Namespace", namespace="", spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"}), {}),
        (obj("ServiceAccount", secrets=[{"name": "a-token"}]), {}),
        (
            obj("Job", "batch/v1", spec={"selector": {"matchLabels": {"controller-uid": "u"}}, "completions": 1}),
            {"spec": {"completions": 1}},
        ),
        (obj("Pod", spec={"nodeName": "n", "containers": []}), {"spec": {"containers": []}}),
    ],
)
def test_what_a_server_assigned_does_not_travel(source: Obj, left: Obj) -> None:
    made = for_edge(source)
    assert {key: made[key] for key in made.keys() - {"apiVersion", "kind", "metadata"}} == left


def test_the_address_that_the_hub_gave_to_a_service_stays_there() -> None:
    entry = {"manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {"f:type": {}}}}
    spec = {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "type": "ClusterIP"}
    assert for_edge(obj("Service", metadata={"managedFields": [entry]}, spec=spec))["spec"] == {"type": "ClusterIP"}
    headless = {"clusterIP": "None", "type": "ClusterIP"}
    made = for_edge(obj("Service", metadata={"managedFields": [entry]}, spec=headless))
    assert made["spec"] == {**headless, "clusterIPs": ["None"]}


@pytest.mark.parametrize(
    ("source", "create_only"),
    [
        (copy_of(obj("ConfigMap")), False),
        (copy_of(obj("ConfigMap"), create_only=True), True),
        (copy_of(obj("ConfigMap", metadata={"annotations": {CREATE_ONLY: "false"}})), True),
        (copy_of(obj("ConfigMap", metadata={"annotations": {CREATE_ONLY: "true"}})), False),
        (obj("ConfigMap", metadata={"annotations": {CREATE_ONLY: "false"}}), True),
        (obj("ConfigMap", metadata={"annotations": None}), False),
    ],
)
def test_the_edge_can_see_what_is_made_only_once(source: Obj, create_only: bool) -> None:
    assert is_create_only(source) is create_only
    assert is_create_only(for_edge(source)) is create_only


# --- marks ----------------------------------------------------------------------------------------


def test_what_is_applied_is_ours() -> None:
    assert is_downsynced(for_edge(copy_of(obj("ConfigMap"))))
    assert is_downsynced(for_edge(copy_of(obj("Namespace", namespace=""))))
    assert not is_downsynced(copy_of(obj("ConfigMap")))


def test_a_mark_names_the_object_that_has_it() -> None:
    assert mark("ConfigMap", "shop", "a") == "ConfigMap/shop/a"
    assert mark("Namespace", "", "shop") == "Namespace/shop"


@pytest.mark.parametrize(
    ("annotations", "labels", "ours"),
    [
        ({DOWNSYNCED: "ReplicaSet/shop/a"}, {}, True),
        ({DOWNSYNCED: "Deployment/shop/a"}, {PROJECTED: "yes"}, False),
        ({DOWNSYNCED: "ReplicaSet/shop/a-1"}, {PROJECTED: "yes"}, False),
        ({DOWNSYNCED: "true"}, {PROJECTED: "yes"}, True),
        ({DOWNSYNCED: "true"}, {}, False),
        ({DOWNSYNCED: "true"}, None, False),
        ({}, {PROJECTED: "yes"}, False),
        (None, {PROJECTED: "yes"}, False),
    ],
)
def test_a_mark_that_was_handed_on_does_not_count(annotations: Any, labels: Any, ours: bool) -> None:
    made = obj("ReplicaSet", "apps/v1", metadata={"annotations": annotations, "labels": labels})
    assert is_downsynced(made) is ours


# --- what was applied -----------------------------------------------------------------------------


def test_equal_objects_are_encoded_equally() -> None:
    one, other = {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}
    assert encoded(one) == encoded(other)
    assert hash_of(encoded(one)) == hash_of(encoded(other)) != hash_of(encoded({"a": 2}))


def test_what_cannot_be_sent_is_a_value_error() -> None:
    deep: Any = 1
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(ValueError, match="cannot be written"):
        encoded({"spec": deep})
    entry = {"manager": SYNCER_MANAGER, "operation": "Apply", "fieldsV1": {"f": deep}}
    assert owned_fields(obj("ConfigMap", metadata={"managedFields": [entry]}), SYNCER_MANAGER) == ""


def entry_of(fields: Any, **more: Any) -> Obj:
    return {"manager": SYNCER_MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsV1": fields, **more}


def owned(*entries: Any) -> str:
    return owned_fields(obj("ConfigMap", metadata={"managedFields": list(entries)}), SYNCER_MANAGER)


def test_our_fields_are_distinguished_from_fields_of_others() -> None:
    fields = {"f:data": {"f:a": {}, "f:b": {}}}
    ours = owned(entry_of(fields))
    assert ours == owned(entry_of({"f:data": {"f:b": {}, "f:a": {}}}, time="later", apiVersion="v2"))
    assert ours == owned({**entry_of({}), "manager": "somebody"}, entry_of(fields))
    assert ours == owned(entry_of(fields), entry_of({"f:status": {}}, subresource="status"))
    assert ours == owned(entry_of(fields), entry_of({}, operation="Update"))
    assert ours != owned(entry_of({"f:data": {"f:a": {}}})) != ""


@pytest.mark.parametrize("entries", [[], [None, 3, "x", {}], None, {"a": 1}, "x"])
def test_who_owns_nothing_has_no_hash(entries: Any) -> None:
    assert owned_fields(obj("ConfigMap", metadata={"managedFields": entries}), SYNCER_MANAGER) == ""
    assert owned_fields({}, SYNCER_MANAGER) == ""


# --- comparing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "there", "same"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": None, "b": {}, "c": []}, {}, True),
        ({"a": {}}, {"a": {"b": 1}}, True),
        ({"a": []}, {"a": [1]}, False),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}]}, True),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 0}, {"a": False}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": ""}, {}, False),
        ({"a": False}, {}, False),
        ({"a": {"b": 1}}, {"a": [1]}, False),
        ({"limits": {"cpu": "1000m"}}, {"limits": {"cpu": "1"}}, True),
        ({"limits": {"cpu": 1}}, {"limits": {"cpu": "1"}}, True),
        ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1073741824"}}, True),
        ({"limits": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, False),
        ({"limits": {"cpu": "x"}}, {"limits": {"cpu": "y"}}, False),
        ({"limits": {"cpu": True}}, {"limits": {"cpu": "1"}}, False),
        ({"sizeLimit": "0.5Gi"}, {"sizeLimit": "512Mi"}, True),
        ({"env": [{"name": "A", "value": "1.0"}]}, {"env": [{"name": "A", "value": "1"}]}, False),
    ],
)
def test_all_that_is_wanted_has_to_be_there(wanted: Obj, there: Obj, same: bool) -> None:
    assert identical(obj("Thing", spec=wanted), obj("Thing", spec=there)) is same


def test_texts_of_a_config_map_are_no_quantities() -> None:
    assert not identical(obj("ConfigMap", data={"a": "1000m"}), obj("ConfigMap", data={"a": "1"}))


def test_our_marks_make_no_difference_and_other_labels_do() -> None:
    source = obj("ConfigMap", metadata={"labels": {"app": "web"}}, data={"a": "1"})
    desired = for_edge(copy_of(source, create_only=True))
    assert identical(desired, source)
    assert identical(desired, desired)
    assert not identical(desired, obj("ConfigMap", data={"a": "1"}))
    assert not identical(desired, {**source, "kind": "Secret"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "1", "1000m", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "limits"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def twin_identical(wanted: Any, there: Any, amount: bool = False) -> bool:
    if isinstance(wanted, dict) and isinstance(there, dict):
        return all(twin_identical(value, there.get(key), amount or key == "limits") for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(there, list):
        return len(wanted) == len(there) and all(map(twin_identical, wanted, there))
    if wanted in (None, {}, []) and there is None:
        return True
    if orjson.dumps(wanted) == orjson.dumps(there):
        return True
    numbers = {"1": Decimal(1), "1000m": Decimal(1), **{str(one): Decimal(one) for one in range(-3, 4)}}
    both = [numbers.get(str(one)) if type(one) in (str, int) else None for one in (wanted, there)]
    return amount and None not in both and both[0] == both[1]


@given(JSON, JSON)
@settings(max_examples=examples(400))
def test_comparing_does_as_its_definition_says(wanted: Any, there: Any) -> None:
    assert identical(obj("Thing", spec=wanted), obj("Thing", spec=there)) == twin_identical(wanted, there)
    assert identical(obj("Thing", spec=wanted), obj("Thing", spec=wanted))


# --- up and back ----------------------------------------------------------------------------------


def edge_object(**sections: Any) -> Obj:
    metadata = {"labels": {"l": "v"}, "annotations": {"a": "v", LAST_APPLIED: "{}"}, **OF_THE_SERVER}
    return obj("Nine", "group9.test/v1", "", "n1", **{"metadata": metadata, "spec": {"a": 1}, **sections})


def in_mailbox(wanted: Obj) -> Obj:
    """As the hub has it once it was put there."""
    there = copy.deepcopy(wanted)
    there["metadata"] |= {"uid": "m", "resourceVersion": "9", "generation": 1, "managedFields": [], "finalizers": ["f"]}
    there["metadata"]["annotations"]["kcp.io/cluster"] = "mb"
    return there


def test_upsynced_objects_are_annotated_and_lose_fields_of_their_cluster() -> None:
    assert for_mailbox(edge_object(status={"ok": True})) == obj(
        "Nine",
        "group9.test/v1",
        "",
        "n1",
        metadata={"labels": {"l": "v"}, "annotations": {"a": "v", UPSYNCED: "Nine/n1"}},
        spec={"a": 1},
        status={"ok": True},
    )


def test_what_was_handed_on_by_something_downsynced_does_not_look_like_a_copy() -> None:
    annotations = {DOWNSYNCED: "Deployment/shop/web", PROJECTION: "{}", OVERWRITE: "false", CREATE_ONLY: "false"}
    made = for_mailbox(
        obj("ReplicaSet", "apps/v1", metadata={"labels": {PROJECTED: "yes"}, "annotations": annotations})
    )
    assert made["metadata"] == {"name": "a", "namespace": "shop", "annotations": {UPSYNCED: "ReplicaSet/shop/a"}}


def test_what_came_from_the_edge_is_known_by_its_mark() -> None:
    made = for_mailbox(edge_object())
    assert is_upsynced(made)
    assert is_upsynced(edge_object(metadata={"annotations": {UPSYNCED: "true"}}))
    assert not is_upsynced(edge_object(metadata={"annotations": {UPSYNCED: "Nine/n2"}}))
    assert not is_upsynced(edge_object())


def test_what_is_there_already_is_not_written_again() -> None:
    wanted = for_mailbox(edge_object())
    assert updated_upsync(in_mailbox(wanted), wanted) is None
    assert updated_upsync({**in_mailbox(wanted), "status": {"b": 1}}, {**wanted, "status": {"b": 2}}) is None


def test_a_change_replaces_all_but_what_the_mailbox_added() -> None:
    before = in_mailbox(for_mailbox(edge_object(status={"b": 1})))
    metadata = {"labels": {"new": "x"}, "annotations": {}}
    wanted = for_mailbox(edge_object(metadata=metadata, spec={"c": 2}, status={"b": 2}))
    assert updated_upsync(before, wanted) == {
        "apiVersion": "group9.test/v1",
        "kind": "Nine",
        "metadata": {
            "name": "n1",
            "uid": "m",
            "resourceVersion": "9",
            "generation": 1,
            "finalizers": ["f"],
            "labels": {"new": "x"},
            "annotations": {UPSYNCED: "Nine/n1", "kcp.io/cluster": "mb"},
        },
        "spec": {"c": 2},
        "status": {"b": 1},
    }


TEXTS = st.dictionaries(st.sampled_from(["a", "b", "kcp.io/x", "edge.kcp.io/customizer"]), st.sampled_from("xy"))
OBJECTS = st.builds(
    lambda labels, annotations, sections: obj(
        "Nine", "group9.test/v1", metadata={"labels": labels, "annotations": annotations}, **sections
    ),
    TEXTS,
    TEXTS,
    st.dictionaries(st.sampled_from(["spec", "data"]), JSON, max_size=2),
)


@given(OBJECTS, OBJECTS)
@settings(max_examples=examples(200))
def test_after_a_change_the_mailbox_is_as_if_it_had_been_made_so(before: Obj, after: Obj) -> None:
    observed, wanted = in_mailbox(for_mailbox(before)), for_mailbox(after)
    written = updated_upsync(observed, wanted)
    if written is None:
        assert for_mailbox(before) == wanted
    else:
        assert updated_upsync(written, wanted) is None
        assert is_upsynced(written)
        assert written["metadata"]["annotations"]["kcp.io/cluster"] == "mb"


@given(OBJECTS)
@settings(max_examples=examples(100))
def test_going_down_twice_is_going_down_once(source: Obj) -> None:
    once = for_edge(source)
    assert for_edge(once) == once
    assert is_downsynced(once)
    assert identical(once, once)


def test_a_status_is_returned_if_there_is_one() -> None:
    assert returned_status({"status": {"a": 1}}) == {"a": 1}
    assert returned_status({}) is None
    assert returned_status({"status": "odd"}) is None


def test_an_observed_generation_is_that_of_the_copy_if_the_edge_observed_its_content_and_lower_otherwise() -> None:
    ready = {"type": "Ready", "status": "True", "observedGeneration": 4}
    status = {"observedGeneration": 4, "replicas": 1, "conditions": [ready, {"type": "Other"}, "odd"]}

    def observed(at_edge: int, copy: int, *, is_applied: bool = True) -> list[int]:
        found = translated_status({"metadata": {"generation": at_edge}, "status": status}, copy, is_applied=is_applied)
        assert found is not None
        assert (found["replicas"], found["conditions"][1:]) == (1, [{"type": "Other"}, "odd"])
        return [found["observedGeneration"], found["conditions"][0]["observedGeneration"]]

    assert observed(4, 9) == [9, 9]
    assert observed(5, 9) == [8, 8]
    assert observed(4, 9, is_applied=False) == [8, 8]
    assert observed(4, 1) == [1, 1]
    assert status["observedGeneration"] == 4
    assert translated_status({"metadata": {"generation": 4}, "status": status}, 0, is_applied=True) == status
    assert translated_status({"metadata": {}, "status": status}, 9, is_applied=True) == status
    assert translated_status({"metadata": {"generation": 4}}, 9, is_applied=True) is None
    odd = {"metadata": {"generation": 4}, "status": {"observedGeneration": "4", "conditions": 7}}
    assert translated_status(odd, 9, is_applied=True) == odd["status"]


def test_the_centre_keeps_the_status_that_is_its_own() -> None:
    assert takes_status(GroupResource("apps", "deployments"))
    assert not takes_status(GroupResource("", "namespaces"))
    assert not takes_status(GroupResource("apiextensions.k8s.io", "customresourcedefinitions"))
    assert takes_status(GroupResource("other.test", "namespaces"))
