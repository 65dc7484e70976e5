"""patch and apply: what they change, and what they refuse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import jsonpatch
import pytest
from examples import examples
from hub_harness import (
    APPLY_PATCH,
    CONFIG_MAPS,
    DEPLOYMENTS,
    JSON_PATCH,
    MERGE_PATCH,
    PODS,
    SERVICES,
    STRATEGIC_PATCH,
    Answer,
    LocalHub,
    deployment,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

REJECTED = "the server rejected our request due to an error in our request"
PATCHES = [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH]


# --- JSON patch -----------------------------------------------------------------------------------


async def test_the_operations_of_a_json_patch(any_hub: LocalHub) -> None:
    await any_hub.config_map("a", x="1", y="2")
    operations = [
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "add", "path": "/data/z", "value": "3"},
        {"op": "replace", "path": "/data/x", "value": "9"},
        {"op": "remove", "path": "/data/y"},
        {"op": "copy", "from": "/data/x", "path": "/data/xx"},
        {"op": "move", "from": "/data/xx", "path": "/data/xy"},
        {"op": "add", "path": "/metadata/annotations", "value": {"example.com/a": "b"}},
        {"op": "replace", "path": "/metadata/annotations/example.com~1a", "value": "c"},
    ]

    patched = await any_hub.patch(f"{CONFIG_MAPS}/a", operations, JSON_PATCH)

    assert patched.status == 200
    assert patched.json["data"] == {"x": "9", "xy": "9", "z": "3"}
    assert patched.json["metadata"]["annotations"] == {"example.com/a": "c"}
    assert patched.version == any_hub.store.revision


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "test", "path": "/data/x", "value": "9"}],
        [{"op": "remove", "path": "/data/never"}],
        [{"op": "add", "path": "/nothing/here", "value": 1}],
        [{"op": "jump", "path": "/data/x"}],
        [{"op": "add", "path": "/metadata/finalizers/7", "value": "x"}],
        [{"path": "/data"}],
        [7],
        [{"op": "add", "path": "/data/y", "value": "1"}, {"op": "test", "path": "/data/y", "value": "2"}],
    ],
)
async def test_a_json_patch_that_cannot_be_applied_changes_nothing(hub: LocalHub, operations: Any) -> None:
    await hub.config_map("a", x="1")

    with hub.writes_nothing():
        answer = await hub.patch(f"{CONFIG_MAPS}/a", operations, JSON_PATCH)

    assert (answer.status, answer.reason, answer.message) == (422, "Invalid", REJECTED)


@pytest.mark.parametrize(
    ("body", "media", "status", "message"),
    [
        (
            {"op": "add"},
            JSON_PATCH,
            400,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        ("hello", JSON_PATCH, 400, "error decoding patch: invalid character 'h' looking for beginning of value"),
        ("hello", MERGE_PATCH, 400, "error decoding patch: invalid character 'h' looking for beginning of value"),
        (b"", MERGE_PATCH, 400, "error decoding patch: unexpected end of JSON input"),
        ("null", MERGE_PATCH, 400, "Invalid JSON Patch"),
        (
            "[]",
            MERGE_PATCH,
            400,
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        ({}, "application/json", 415, "415: Unsupported Media Type"),
        ({}, "application/yaml", 415, "415: Unsupported Media Type"),
        ({}, "", 415, "415: Unsupported Media Type"),
    ],
)
async def test_what_is_no_patch_is_refused(hub: LocalHub, body: Any, media: str, status: int, message: str) -> None:
    await hub.config_map("a", x="1")

    with hub.writes_nothing():
        answer = await hub.patch(f"{CONFIG_MAPS}/a", body, media)

    assert (answer.status, answer.message) == (status, message)


async def test_a_json_patch_has_an_end(hub: LocalHub) -> None:
    await hub.config_map("a", x="1")

    answer = await hub.patch(
        f"{CONFIG_MAPS}/a", [{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001, JSON_PATCH
    )

    assert answer.status == 413
    assert answer.message == (
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    )


async def test_copies_that_double_an_object_again_and_again_are_stopped(hub: LocalHub) -> None:
    await hub.config_map("a", x="1" * 1000)
    doubling = [{"op": "copy", "from": "/data", "path": f"/data/{number}"} for number in range(100)]

    with hub.writes_nothing():
        answer = await hub.patch(f"{CONFIG_MAPS}/a", doubling, JSON_PATCH)

    assert answer.status == 413
    assert answer.message.startswith(
        "Request entity too large: Unable to complete the copy, the accumulated size increase of copy is "
    )


async def test_moves_that_nest_an_object_deeper_and_deeper_are_refused(hub: LocalHub) -> None:
    await hub.config_map("a", x="1")
    deeper = []
    for _ in range(2000):
        deeper += [
            {"op": "add", "path": "/w", "value": {}},
            {"op": "move", "from": "/data", "path": "/w/data"},
            {"op": "move", "from": "/w", "path": "/data"},
        ]

    with hub.writes_nothing():
        answer = await hub.patch(f"{CONFIG_MAPS}/a", deeper, JSON_PATCH)

    assert answer.status == 422


# --- merge patch ----------------------------------------------------------------------------------


async def test_a_merge_patch_merges_and_null_deletes(any_hub: LocalHub) -> None:
    await any_hub.config_map("a", {"l": "m"}, x="1", y="2")

    patched = await any_hub.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "9", "y": None, "z": "3", "nope": None}})

    assert patched.json["data"] == {"x": "9", "z": "3"}
    assert patched.json["metadata"]["labels"] == {"l": "m"}
    assert "data" not in (await any_hub.patch(f"{CONFIG_MAPS}/a", {"data": None})).json


async def test_a_result_that_does_not_fit_is_shown(hub: LocalHub) -> None:
    await hub.config_map("a", x="1")

    answer = await hub.patch(f"{CONFIG_MAPS}/a", {"data": {"x": 1}})

    assert answer.status == 422
    assert answer.message.startswith(
        ' "" is invalid: patch: Invalid value: "{\\"apiVersion\\":\\"v1\\",\\"data\\":{\\"x\\":1},\\"kind\\"'
    )
    assert answer.message.endswith("cannot unmarshal number into Go struct field ConfigMap.data of type string")


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ({"metadata": {"labels": "x"}}, "cannot restore map from string"),
        ({"metadata": {"finalizers": "x"}}, "cannot restore slice from string"),
        ({"metadata": "x"}, "cannot restore struct from: string"),
    ],
)
async def test_a_value_of_another_type_in_a_strategic_patch_is_refused(hub: LocalHub, patch: Any, why: str) -> None:
    await hub.config_map("a")
    answer = await hub.patch(f"{CONFIG_MAPS}/a", patch, STRATEGIC_PATCH)
    assert answer.status == 422
    assert why in answer.message


@pytest.mark.parametrize("media", [MERGE_PATCH, STRATEGIC_PATCH])
@pytest.mark.parametrize(
    ("patch", "status"),
    [
        ({"metadata": {"name": "b"}}, 400),
        ({"metadata": {"namespace": "other"}}, 400),
        ({"kind": "Secret"}, 422),
        ({"kind": "Foo"}, 422),
        ({"apiVersion": "v2"}, 422),
        ({"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}}, 422),
        ({"metadata": {"labels": {"a b": "c"}}}, 422),
        ({"metadata": {"resourceVersion": "1"}}, 409),
        ({"metadata": None}, 200),
        ({"metadata": {"name": None, "uid": None, "namespace": None, "creationTimestamp": None}}, 200),
    ],
)
async def test_a_patch_does_not_make_an_object_another_one(hub: LocalHub, media: str, patch: Any, status: int) -> None:
    created = await hub.config_map("a", x="1")

    answer = await hub.patch(f"{CONFIG_MAPS}/a", patch, media)

    assert answer.status == status, answer.body
    now = (await hub.get(f"{CONFIG_MAPS}/a")).json
    for field in ("name", "namespace", "uid", "creationTimestamp"):
        assert now["metadata"][field] == created["metadata"][field]


async def test_a_patch_with_the_present_version_is_applied(hub: LocalHub) -> None:
    created = await hub.config_map("a", x="1")
    metadata = {"resourceVersion": created["metadata"]["resourceVersion"]}

    assert (await hub.patch(f"{CONFIG_MAPS}/a", {"metadata": metadata, "data": {"x": "2"}})).status == 200
    stale = await hub.patch(f"{CONFIG_MAPS}/a", {"metadata": metadata, "data": {"x": "3"}})
    assert (stale.status, stale.reason) == (409, "Conflict")


@pytest.mark.parametrize("media", PATCHES)
async def test_what_is_not_there_is_not_patched(hub: LocalHub, media: str) -> None:
    answer = await hub.patch(f"{CONFIG_MAPS}/a", [] if media == JSON_PATCH else {}, media)

    assert (answer.status, answer.message) == (404, 'configmaps "a" not found')


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"fieldManager": "m" * 129}, "fieldManager: Too long: may not be more than 128 bytes"),
        ({"fieldManager": "a\nb"}, 'fieldManager: Invalid value: "a\\nb": invalid character U+000A (at position 1)'),
        ({"force": "true"}, "force: Forbidden: may not be specified for non-apply patch"),
        (
            {"fieldValidation": "Foo"},
            'fieldValidation: Unsupported value: "Foo": supported values: "", "Ignore", "Strict", "Warn"',
        ),
    ],
)
async def test_wrong_options_of_a_patch(hub: LocalHub, query: dict[str, str], message: str) -> None:
    await hub.config_map("a", x="1")

    answer = await hub.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "2"}}, MERGE_PATCH, query)

    assert (answer.status, answer.message) == (422, f'PatchOptions.meta.k8s.io "" is invalid: {message}')


# --- strategic merge patch ------------------------------------------------------------------------


async def test_patches_do_not_let_an_object_grow_for_ever(hub: LocalHub) -> None:
    await hub.create(DEPLOYMENTS, deployment("d"))

    def growing(name: str) -> dict[str, Any]:
        container = {"name": "main", "env": [{"name": name, "value": "x" * 2_000_000}]}
        return {"spec": {"template": {"spec": {"containers": [container]}}}}

    assert (await hub.patch(f"{DEPLOYMENTS}/d", growing("a"), STRATEGIC_PATCH)).status == 200
    with hub.writes_nothing():
        refused = await hub.patch(f"{DEPLOYMENTS}/d", growing("b"), STRATEGIC_PATCH)
    assert (refused.status, refused.reason) == (413, "RequestEntityTooLarge")
    assert refused.message == "Request entity too large: limit is 3145728"


async def test_lists_with_keys_are_merged_by_them(any_hub: LocalHub) -> None:
    await any_hub.create(DEPLOYMENTS, deployment("d"))
    containers = [{"name": "main", "image": "nginx:2"}, {"name": "side", "image": "busybox"}]

    patched = await any_hub.patch(
        f"{DEPLOYMENTS}/d", {"spec": {"template": {"spec": {"containers": containers}}}}, STRATEGIC_PATCH
    )

    images = {one["name"]: one["image"] for one in patched.json["spec"]["template"]["spec"]["containers"]}
    assert images == {"main": "nginx:2", "side": "busybox"}
    removed = {"spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}}}
    patched = await any_hub.patch(f"{DEPLOYMENTS}/d", removed, STRATEGIC_PATCH)
    assert [one["name"] for one in patched.json["spec"]["template"]["spec"]["containers"]] == ["main"]


# --- server-side apply ----------------------------------------------------------------------------


def configuration(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


async def apply(hub: LocalHub, manager: str, body: Any, **query: str) -> Any:
    return await hub.patch(f"{CONFIG_MAPS}/a", body, APPLY_PATCH, {"fieldManager": manager, **query})


async def test_applying_creates_changes_and_removes(any_hub: LocalHub) -> None:
    assert (await apply(any_hub, "m", configuration(x="1", y="2"))).status == 201
    assert (await apply(any_hub, "n", configuration(z="3"))).status == 200
    left = await apply(any_hub, "m", configuration(x="9"))

    assert left.status == 200
    assert left.json["data"] == {"x": "9", "z": "3"}
    assert {entry["manager"]: entry["operation"] for entry in left.json["metadata"]["managedFields"]} == {
        "m": "Apply",
        "n": "Apply",
    }


async def test_appliers_that_come_at_once_all_find_a_place(any_hub: LocalHub) -> None:
    path = f"{CONFIG_MAPS}/a"

    def applied(name: str) -> Coroutine[Any, Any, Answer]:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {name: "1"}}
        return any_hub.patch(path, body, APPLY_PATCH, {"fieldManager": name})

    answers = await asyncio.gather(*map(applied, "xyz"))
    assert sorted(answer.status for answer in answers) == [200, 200, 201]
    assert (await any_hub.get(path)).json["data"] == {"x": "1", "y": "1", "z": "1"}

    deleted, created = await asyncio.gather(any_hub.delete(path), applied("w"))
    assert (deleted.status, created.status) == (200, 201)
    assert (await any_hub.get(path)).json["data"] == {"w": "1"}


async def test_appliers_that_disagree_conflict_unless_forced(hub: LocalHub) -> None:
    await apply(hub, "m", configuration(x="1"))

    with hub.writes_nothing():
        conflict = await apply(hub, "n", configuration(x="2"))
    assert (conflict.status, conflict.reason) == (409, "Conflict")
    assert conflict.message == 'Apply failed with 1 conflict: conflict with "m": .data.x'
    forced = await apply(hub, "n", configuration(x="2"), force="true")
    assert forced.json["data"] == {"x": "2"}


@pytest.mark.parametrize(
    ("body", "query", "status", "message"),
    [
        (
            configuration(),
            {},
            422,
            'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch',
        ),
        (
            {"metadata": {"name": "a"}},
            {"fieldManager": "m"},
            400,
            "invalid object type: /, Kind=",
        ),
        (
            configuration() | {"metadata": {"name": "b"}},
            {"fieldManager": "m"},
            400,
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            configuration() | {"metadata": {"name": "a", "namespace": "other"}},
            {"fieldManager": "m"},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            configuration() | {"metadata": {"name": "a", "uid": "u"}},
            {"fieldManager": "m"},
            409,
            'Operation cannot be fulfilled on configmaps "a": uid mismatch: the provided object specified uid u, and '
            "no existing object was found",
        ),
    ],
)
async def test_what_cannot_be_applied(
    hub: LocalHub, body: Any, query: dict[str, str], status: int, message: str
) -> None:
    with hub.writes_nothing():
        answer = await hub.patch(f"{CONFIG_MAPS}/a", body, APPLY_PATCH, query)

    assert (answer.status, answer.message) == (status, message)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "7",
        "- a",
        "a: [",
        "a: &x [*x]",
        "? {a: b}\n: c",
        "!!python/object:os.system {}",
        configuration() | {"data": [1]},
        configuration() | {"data": {"x": {"y": 1}}},
        configuration() | {"metadata": 7},
        configuration() | {"metadata": {"name": "a", "labels": 7}},
        configuration() | {"metadata": {"name": ["a"]}},
        configuration() | {"metadata": {"name": "a", "managedFields": [{"manager": "x"}]}},
        configuration() | {"unknown": 1},
        configuration() | {"metadata": {"name": "a", "finalizers": ["x.io/a", "x.io/a"]}},
    ],
)
async def test_nonsense_is_not_applied(hub: LocalHub, body: Any) -> None:
    with hub.writes_nothing():
        answer = await apply(hub, "m", body)

    assert 400 <= answer.status < 500, answer.body


# --- laws -----------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=4) | st.floats(allow_nan=False)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(["a", "b", "c"])
strings = st.sampled_from(["1", "2", ""])
data_patches = st.dictionaries(keys, st.none() | strings, max_size=3)
POINTERS = st.sampled_from(
    [
        "",
        "/",
        "/data",
        "/data/a",
        "/data/b",
        "/data/c",
        "/data/d/e",
        "/metadata",
        "/metadata/labels",
        "/metadata/labels/a",
        "/metadata/finalizers",
        "/metadata/finalizers/0",
        "/metadata/finalizers/-",
        "/metadata/name",
        "/kind",
        "/metadata/resourceVersion",
        "/metadata/managedFields",
        "/metadata/managedFields/0/time",
        "/binaryData/x",
    ]
)
operations = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]), "path": POINTERS},
    optional={"value": strings | st.dictionaries(keys, strings, max_size=2) | values, "from": POINTERS},
)


def merged(document: Any, patch: Any) -> Any:
    """RFC 7386, word by word."""
    if not isinstance(patch, dict):
        return patch
    target = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = merged(target.get(name), value)
    return target


law = settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))


@law
@given(st.lists(st.tuples(data_patches, data_patches), max_size=5))
async def test_merge_patches_change_what_they_say(patches: list[tuple[Any, Any]]) -> None:
    hub = await LocalHub.in_memory().furnish()
    created = await hub.config_map("a")
    expected: Any = {"data": {}, "labels": {}}
    for data, labels in patches:
        answer = await hub.patch(f"{CONFIG_MAPS}/a", {"data": data, "metadata": {"labels": labels}})
        expected = merged(expected, {"data": data, "labels": labels})
        assert answer.status == 200
        assert answer.json.get("data", {}) == expected["data"]
        assert answer.json["metadata"].get("labels", {}) == expected["labels"]
        assert answer.json["metadata"]["uid"] == created["metadata"]["uid"]


@law
@given(st.lists(st.lists(operations, max_size=4), max_size=4))
async def test_json_patches_change_what_they_say_or_nothing(patches: list[list[dict[str, Any]]]) -> None:
    """jsonpatch says what the result is, where it and Kubernetes agree on what a patch is."""
    hub = await LocalHub.in_memory().furnish()
    await hub.create(CONFIG_MAPS, {"metadata": {"name": "a", "finalizers": ["x.io/y"]}, "data": {"a": "1"}})
    for patch in patches:
        before, revision = (await hub.get(f"{CONFIG_MAPS}/a")).json, hub.store.revision
        answer = await hub.patch(f"{CONFIG_MAPS}/a", patch, JSON_PATCH)
        assert answer.status < 500
        if answer.status != 200:
            assert 400 <= answer.status < 500
            assert hub.store.revision == revision
            continue
        try:
            expected = jsonpatch.apply_patch(before, patch)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, KeyError):
            continue
        if isinstance(expected, dict) and isinstance(expected.get("data", {}), dict):
            wanted = {key: value if value is not None else "" for key, value in (expected.get("data") or {}).items()}
            assert answer.json.get("data", {}) == wanted


@law
@given(st.sampled_from([MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH]), st.data())
async def test_no_patch_is_a_fault_of_ours(media: str, data: st.DataObject) -> None:
    hub = await LocalHub.in_memory().furnish()
    await hub.create(DEPLOYMENTS, deployment("a"))
    await hub.config_map("a", x="1")
    await hub.create(SERVICES, {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}})
    await hub.create(PODS, {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    names = st.sampled_from(
        [
            "metadata",
            "spec",
            "data",
            "labels",
            "template",
            "containers",
            "ports",
            "name",
            "selector",
            "finalizers",
            "$patch",
            "$retainKeys",
            "$setElementOrder/ports",
            "$deleteFromPrimitiveList/finalizers",
            "strategy",
            "managedFields",
            "ownerReferences",
            "replicas",
            "env",
            "volumes",
            "port",
            "uid",
            "status",
            "image",
        ]
    )
    words = st.sampled_from(["delete", "replace", "merge", "a", "c", "x.io/y", "RollingUpdate"])
    trees = st.recursive(
        scalars | words,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
        max_leaves=10,
    )
    for _ in range(3):
        path = data.draw(st.sampled_from([f"{CONFIG_MAPS}/a", f"{DEPLOYMENTS}/a", f"{SERVICES}/a", f"{PODS}/a"]))
        patch = data.draw(st.dictionaries(names, trees, max_size=4))
        if media == APPLY_PATCH:
            present = (await hub.get(path)).json
            patch |= {"apiVersion": present["apiVersion"], "kind": present["kind"]}
        revision = hub.store.revision
        answer = await hub.patch(path, json.dumps(patch), media, "fieldManager=m")
        assert answer.status < 500, answer.body
        assert answer.status == 200 or hub.store.revision == revision
