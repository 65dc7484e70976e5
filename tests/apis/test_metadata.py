"""Metadata that every kind shares: messages and their order, as a kube-apiserver 1.34 gives them."""

from typing import Any

import pytest

from farflung.apis.metadata import validate_metadata, validate_metadata_update
from farflung.apis.validation import Rules
from farflung.machinery import names
from farflung.machinery.errors import Obj

CONFIG_MAP = Rules(name=names.dns_subdomain)
CUSTOM = Rules(name=names.dns_subdomain, short_finalizers=True)


def told(rules: Rules = CONFIG_MAP, namespaced: bool = True, **metadata: Any) -> list[str]:
    """The errors of an object in the namespace `n`, each up to its first explanation in parentheses."""
    obj: Obj = {"metadata": {"name": "a", **({"namespace": "n"} if namespaced else {}), **metadata}}
    return [str(error).partition(" (e.g.")[0] for error in validate_metadata(obj, rules, namespaced=namespaced)]


def test_ordinary_metadata_is_fine() -> None:
    metadata = {
        "generateName": "a-",
        "labels": {"app.kubernetes.io/name": "x", "tier": ""},
        "annotations": {"Example.com/A": "anything at all\n"},
        "finalizers": ["example.com/x", "kubernetes"],
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
        ],
        "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1"}],
    }
    assert told(**metadata) == []


@pytest.mark.parametrize("obj", [{}, {"metadata": {}}, {"metadata": {"name": "", "namespace": "n"}}])
def test_an_object_needs_a_name(obj: Obj) -> None:
    errors = validate_metadata(obj, CONFIG_MAP, namespaced=True)
    assert str(errors[0]) == "metadata.name: Required value: name or generateName is required"


def test_a_bad_prefix_is_told_beside_the_bad_name_made_from_it() -> None:
    fields = [
        error.field
        for error in validate_metadata(
            {"metadata": {"generateName": "Gen_", "name": "Gen_abcde", "namespace": "n"}}, CONFIG_MAP, namespaced=True
        )
    ]
    assert fields == ["metadata.generateName", "metadata.name"]


def test_scope_decides_whether_there_is_a_namespace() -> None:
    assert told(namespace="") == ["metadata.namespace: Required value"]
    assert told(namespaced=False, namespace="n") == ["metadata.namespace: Forbidden: not allowed on this type"]
    assert told(namespace="a.b") == ['metadata.namespace: Invalid value: "a.b": must not contain dots']


def test_errors_come_in_the_order_of_the_api_server() -> None:
    wrong = told(
        name="BAD",
        labels={"a b": "x y"},
        annotations={"c d": ""},
        ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}],
        finalizers=["short", "e f"],
    )
    assert [one.partition(": ")[0] for one in wrong] == [
        "metadata.name",
        "metadata.labels",
        "metadata.labels",
        "metadata.annotations",
        "metadata.ownerReferences.uid",
        "metadata.finalizers",
        "metadata.finalizers[0]",
        "metadata.finalizers[1]",
    ]


@pytest.mark.parametrize(("value", "fine"), [("x" * (262144 - 1), True), ("x" * 262144, False), ("é" * 140000, False)])
def test_annotations_hold_256_kibibytes(value: str, fine: bool) -> None:
    too_long = "metadata.annotations: Too long: may not be more than 262144 bytes"
    assert told(annotations={"a": value}) == ([] if fine else [too_long])


def test_finalizers_of_built_in_kinds_are_standard_or_qualified() -> None:
    short = 'metadata.finalizers[0]: Invalid value: "foo": '
    assert told(finalizers=["foo"]) == [short + "name is neither a standard finalizer name nor is it fully qualified"]
    assert told(CUSTOM, finalizers=["foo"]) == []


def test_orphan_and_foreground_deletion_exclude_each_other() -> None:
    both = ["orphan", "foregroundDeletion"]
    assert told(finalizers=both) == [
        'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: '
        "finalizer orphan and foregroundDeletion cannot be both set"
    ]


def test_an_owner_says_what_it_is() -> None:
    assert told(ownerReferences=[{}] * 1_001) == [
        "metadata.ownerReferences: Too many: 1001: must have at most 1000 items"
    ]
    assert told(ownerReferences=[{}]) == [
        'metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty',
        'metadata.ownerReferences.kind: Invalid value: "": must not be empty',
        'metadata.ownerReferences.name: Invalid value: "": must not be empty',
        'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
    ]


@pytest.mark.parametrize("api_version", ["a/b/c", "a/", "/"])
def test_an_owner_has_a_version(api_version: str) -> None:
    owner = {"apiVersion": api_version, "kind": "ConfigMap", "name": "x", "uid": "u1"}
    assert told(ownerReferences=[owner]) == [
        f'metadata.ownerReferences.apiVersion: Invalid value: "{api_version}": version must not be empty'
    ]


def test_an_event_owns_nothing() -> None:
    owner = {"uid": "u1", "name": "x", "kind": "Event", "apiVersion": "v1"}
    assert told(ownerReferences=[owner]) == [
        'metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"x","uid":"u1"}: '
        "/v1, Kind=Event is disallowed from being an owner"
    ]


def test_only_one_owner_is_the_controller() -> None:
    owners = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name, "controller": True} for name in ("x", "y")
    ]
    (wrong,) = told(ownerReferences=owners)
    assert wrong.endswith('Controller set to true. Found "true" in references for ConfigMap/x and ConfigMap/y')


def test_entries_of_managed_fields_are_well_formed() -> None:
    entry = {"manager": "m\n", "operation": "Foo", "fieldsType": "X"}
    assert told(managedFields=[entry, {"manager": "m" * 129, "operation": "Apply"}]) == [
        'metadata.managedFields[0].operation: Invalid value: "Foo": must be `Apply` or `Update`',
        'metadata.managedFields[0].fieldsType: Invalid value: "X": must be `FieldsV1`',
        r'metadata.managedFields[0].manager: Invalid value: "m\n": should only contain printable characters',
        "metadata.managedFields[1].manager: Too long: may not be more than 128 bytes",
    ]


# --- updates --------------------------------------------------------------------------------------

OLD = {"name": "a", "namespace": "n", "uid": "u1", "creationTimestamp": "2020-01-01T00:00:00Z", "generation": 2}


def changed(old: Obj | None = None, **metadata: Any) -> list[str]:
    before = {**OLD, **(old or {})}
    return [
        str(error) for error in validate_metadata_update({"metadata": {**before, **metadata}}, {"metadata": before})
    ]


def test_an_update_may_change_labels_annotations_and_finalizers() -> None:
    assert changed(labels={"a": "b"}, annotations={"c": "d"}, finalizers=["example.com/x"]) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "b"), ("namespace", "m"), ("uid", "u2"), ("deletionTimestamp", "2001-01-01T00:00:00Z")],
)
def test_what_is_fixed_does_not_change(field: str, value: str) -> None:
    assert changed(**{field: value}) == [f'metadata.{field}: Invalid value: "{value}": field is immutable']


def test_a_generation_never_falls() -> None:
    assert changed(generation=1) == ["metadata.generation: Invalid value: 1: must not be decremented"]


def test_finalizers_only_go_while_an_object_is_deleted() -> None:
    deleted = {"deletionTimestamp": "2020-01-01T00:00:00Z", "finalizers": ["example.com/a", "example.com/b"]}
    assert changed(deleted, finalizers=["example.com/a"]) == []
    wrong = changed(deleted, finalizers=["example.com/d", "example.com/a", "example.com/c"])
    assert wrong[0] == (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"example.com/c", "example.com/d"}'
    )
