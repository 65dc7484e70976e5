"""delete: preconditions, finalizers, grace periods, propagation, and whole collections."""

from __future__ import annotations

from typing import Any

import pytest
from hub_harness import CONFIG_MAPS, PODS, SERVICES, LocalHub, pod

UNKNOWN_UID = "11111111-2222-3333-4444-555555555555"


async def test_a_deleted_object_is_not_found_and_the_response_names_it(any_hub: LocalHub) -> None:
    created = await any_hub.config_map("a")

    answer = await any_hub.delete(f"{CONFIG_MAPS}/a")

    assert answer.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]},
    }
    assert (await any_hub.get(f"{CONFIG_MAPS}/a")).status == 404
    again = await any_hub.delete(f"{CONFIG_MAPS}/a")
    assert (again.status, again.message) == (404, 'configmaps "a" not found')


# --- preconditions --------------------------------------------------------------------------------


async def test_an_object_with_another_uid_is_not_deleted(hub: LocalHub) -> None:
    created = await hub.config_map("a")

    with hub.writes_nothing():
        answer = await hub.delete(f"{CONFIG_MAPS}/a", {"preconditions": {"uid": UNKNOWN_UID}})

    assert answer.status == 409
    assert answer.message == (
        f'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition ({UNKNOWN_UID}) does not match '
        f"the UID in record ({created['metadata']['uid']}). The object might have been deleted and then recreated"
    )
    assert answer.json["details"] == {"name": "a", "kind": "ConfigMap"}


async def test_an_object_of_another_version_is_not_deleted(hub: LocalHub) -> None:
    version = (await hub.config_map("a"))["metadata"]["resourceVersion"]

    answer = await hub.delete(f"{CONFIG_MAPS}/a", {"preconditions": {"resourceVersion": "1"}})

    assert answer.status == 409
    assert answer.message == (
        'Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition (1) does not match '
        f"the ResourceVersion in record ({version}). The object might have been modified"
    )


async def test_an_object_that_is_what_the_preconditions_say_is_deleted(hub: LocalHub) -> None:
    metadata = (await hub.config_map("a"))["metadata"]
    wanted = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}

    assert (await hub.delete(f"{CONFIG_MAPS}/a", {"preconditions": wanted})).status == 200
    assert (await hub.get(f"{CONFIG_MAPS}/a")).status == 404


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "query", "status", "message"),
    [
        (
            None,
            "propagationPolicy=Foo",
            422,
            'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Foo": supported values: '
            '"Foreground", "Background", "Orphan", "nil"',
        ),
        (
            {"orphanDependents": True, "propagationPolicy": "Background"},
            "",
            422,
            'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: "Background": '
            "orphanDependents and deletionPropagation cannot be both set",
        ),
        (None, "gracePeriodSeconds=abc", 400, 'strconv.ParseInt: parsing "abc": invalid syntax'),
        (
            None,
            f"gracePeriodSeconds={2**63}",
            400,
            'strconv.ParseInt: parsing "9223372036854775808": value out of range',
        ),
        (
            None,
            "dryRun=Some",
            422,
            'DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"',
        ),
        (
            {"kind": "ConfigMap", "apiVersion": "v1"},
            "",
            400,
            'no kind "ConfigMap" is registered for version "v1" in scheme '
            '"pkg/apis/meta/internalversion/scheme/register.go:27"',
        ),
        ("{", "", 400, "couldn't get version/kind; json parse error: unexpected end of JSON input"),
    ],
)
async def test_wrong_options_delete_nothing(hub: LocalHub, body: Any, query: str, status: int, message: str) -> None:
    await hub.config_map("a")

    with hub.writes_nothing():
        answer = await hub.delete(f"{CONFIG_MAPS}/a", body, query)

    assert (answer.status, answer.message) == (status, message)


async def test_options_in_a_body_win_over_the_query(hub: LocalHub) -> None:
    await hub.config_map("a")

    with hub.writes_nothing():
        answer = await hub.delete(f"{CONFIG_MAPS}/a", {"dryRun": ["All"], "unknown": 1}, "propagationPolicy=Foo")
    assert answer.status == 200

    answer = await hub.delete(f"{CONFIG_MAPS}/a", {"propagationPolicy": "Background"}, "dryRun=All")
    assert (await hub.get(f"{CONFIG_MAPS}/a")).status == 404


# --- finalizers -----------------------------------------------------------------------------------


async def held(hub: LocalHub, **metadata: Any) -> None:
    await hub.create(CONFIG_MAPS, {"metadata": {"name": "f", "finalizers": ["example.com/hold"], **metadata}})


async def test_an_object_with_finalizers_waits_for_them(any_hub: LocalHub) -> None:
    await held(any_hub)

    marked = await any_hub.delete(f"{CONFIG_MAPS}/f")

    assert marked.status == 200
    assert marked.json["kind"] == "ConfigMap"
    assert marked.json["metadata"]["deletionTimestamp"] == "2024-05-01T12:00:00Z"
    assert marked.json["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await any_hub.get(f"{CONFIG_MAPS}/f")).body == marked.body

    any_hub.later(10)
    with any_hub.writes_nothing():
        again = await any_hub.delete(f"{CONFIG_MAPS}/f")
    assert again.body == marked.body

    released = await any_hub.patch(f"{CONFIG_MAPS}/f", {"metadata": {"finalizers": None}})
    assert released.status == 200
    assert released.version == any_hub.store.revision
    assert (await any_hub.get(f"{CONFIG_MAPS}/f")).status == 404


async def test_a_put_without_the_finalizers_releases_too(hub: LocalHub) -> None:
    await held(hub)
    await hub.delete(f"{CONFIG_MAPS}/f")

    assert (await hub.put(f"{CONFIG_MAPS}/f", {"metadata": {"name": "f"}})).status == 200
    assert (await hub.get(f"{CONFIG_MAPS}/f")).status == 404


async def test_a_port_that_a_terminating_service_allocates_is_released(hub: LocalHub) -> None:
    def service(name: str, port: int) -> Any:
        return {"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}}

    created = service("a", 30500)
    created["metadata"]["finalizers"] = ["example.com/hold"]
    await hub.create(SERVICES, created)
    await hub.delete(f"{SERVICES}/a")

    last = {"metadata": {"finalizers": None}, "spec": {"ports": [{"port": 80, "nodePort": 30501}]}}
    assert (await hub.patch(f"{SERVICES}/a", last)).status == 200
    assert (await hub.get(f"{SERVICES}/a")).status == 404
    await hub.create(SERVICES, service("b", 30500))
    await hub.create(SERVICES, service("c", 30501))


async def test_an_object_being_deleted_gets_no_new_finalizers(hub: LocalHub) -> None:
    await held(hub)
    await hub.delete(f"{CONFIG_MAPS}/f")

    answer = await hub.patch(f"{CONFIG_MAPS}/f", {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}})

    assert answer.status == 422
    assert answer.message == (
        'ConfigMap "f" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is '
        'being deleted, found new finalizers []string{"example.com/more"}'
    )
    changed = await hub.patch(f"{CONFIG_MAPS}/f", {"data": {"still": "writable"}})
    assert changed.json["data"] == {"still": "writable"}


async def test_the_name_of_an_object_being_deleted_is_still_taken(hub: LocalHub) -> None:
    await held(hub)
    await hub.delete(f"{CONFIG_MAPS}/f")

    answer = await hub.post(CONFIG_MAPS, {"metadata": {"name": "f"}})

    assert (answer.status, answer.message) == (409, 'object is being deleted: configmaps "f" already exists')


@pytest.mark.parametrize(
    ("body", "query", "finalizers"),
    [
        (None, "propagationPolicy=Orphan", ["example.com/hold", "orphan"]),
        (None, "propagationPolicy=Foreground", ["example.com/hold", "foregroundDeletion"]),
        (None, "propagationPolicy=Background", ["example.com/hold"]),
        ({"orphanDependents": True}, "", ["example.com/hold", "orphan"]),
        ({"orphanDependents": False}, "", ["example.com/hold"]),
        (None, "orphanDependents=true", ["example.com/hold", "orphan"]),
        (None, "", ["example.com/hold"]),
    ],
)
async def test_the_propagation_is_written_down_as_a_finalizer(
    hub: LocalHub, body: Any, query: str, finalizers: list[str]
) -> None:
    await held(hub)

    answer = await hub.delete(f"{CONFIG_MAPS}/f", body, query)

    assert answer.json["metadata"]["finalizers"] == finalizers


# --- grace ----------------------------------------------------------------------------------------


async def test_a_pod_without_a_node_is_deleted_at_once_and_returned(hub: LocalHub) -> None:
    await hub.create(PODS, pod("p"))

    answer = await hub.delete(f"{PODS}/p")

    assert answer.json["kind"] == "Pod"
    assert answer.json["metadata"]["deletionGracePeriodSeconds"] == 0
    assert answer.version == hub.store.revision
    assert (await hub.get(f"{PODS}/p")).status == 404


async def test_a_grace_period_gets_shorter_never_longer(any_hub: LocalHub) -> None:
    await any_hub.create(PODS, pod("p", nodeName="n"))

    first = (await any_hub.delete(f"{PODS}/p")).json["metadata"]
    assert (first["deletionGracePeriodSeconds"], first["generation"]) == (30, 2)
    assert first["deletionTimestamp"] == "2024-05-01T12:00:30Z"

    shorter = (await any_hub.delete(f"{PODS}/p", query="gracePeriodSeconds=5")).json["metadata"]
    assert (shorter["deletionGracePeriodSeconds"], shorter["generation"]) == (5, 2)
    assert shorter["deletionTimestamp"] == "2024-05-01T12:00:05Z"

    with any_hub.writes_nothing():
        longer = (await any_hub.delete(f"{PODS}/p", query="gracePeriodSeconds=60")).json["metadata"]
    assert longer == shorter

    assert (await any_hub.delete(f"{PODS}/p", query="gracePeriodSeconds=0")).status == 200
    assert (await any_hub.get(f"{PODS}/p")).status == 404


@pytest.mark.parametrize("seconds", [2**40, 2**63 - 1])
async def test_an_endless_grace_period_is_a_very_long_one(hub: LocalHub, seconds: int) -> None:
    await hub.create(PODS, pod("p", nodeName="n"))
    await hub.create(PODS, pod("q", nodeName="n", terminationGracePeriodSeconds=seconds))

    asked = await hub.delete(f"{PODS}/p", {"gracePeriodSeconds": seconds})
    usual = await hub.delete(f"{PODS}/q")

    assert asked.json["metadata"]["deletionTimestamp"] > "2090"
    assert usual.json["metadata"]["deletionTimestamp"] > "2090"


async def test_a_negative_grace_period_is_one_second(hub: LocalHub) -> None:
    await hub.create(PODS, pod("p", nodeName="n"))

    answer = await hub.delete(f"{PODS}/p", {"gracePeriodSeconds": -5})

    assert answer.json["metadata"]["deletionGracePeriodSeconds"] == 1


# --- namespaces -----------------------------------------------------------------------------------


async def test_a_deleted_namespace_terminates_until_it_is_finalized(hub: LocalHub) -> None:
    await hub.create("/api/v1/namespaces", {"metadata": {"name": "old"}})

    marked = await hub.delete("/api/v1/namespaces/old")
    assert marked.json["status"]["phase"] == "Terminating"
    assert marked.json["spec"]["finalizers"] == ["kubernetes"]

    finalized = marked.json | {"spec": {"finalizers": []}}
    assert (await hub.put("/api/v1/namespaces/old/finalize", finalized)).status == 200
    assert (await hub.get("/api/v1/namespaces/old")).status == 404


async def test_the_namespaces_of_the_system_stay(hub: LocalHub) -> None:
    with hub.writes_nothing():
        answer = await hub.delete("/api/v1/namespaces/default")

    assert (answer.status, answer.message) == (
        403,
        'namespaces "default" is forbidden: this namespace may not be deleted',
    )


# --- collections ----------------------------------------------------------------------------------


async def test_a_collection_is_deleted_as_far_as_it_is_selected(any_hub: LocalHub) -> None:
    await any_hub.config_map("a", {"g": "1"})
    await any_hub.config_map("b", {"g": "2"})
    await any_hub.create(CONFIG_MAPS, {"metadata": {"name": "c", "labels": {"g": "1"}, "finalizers": ["x.io/hold"]}})

    answer = await any_hub.delete(CONFIG_MAPS, query="labelSelector=g%3D1")

    assert answer.json["kind"] == "ConfigMapList"
    assert answer.names == ["a", "c"]
    assert (await any_hub.get(CONFIG_MAPS)).names == ["b", "c"]


async def test_a_collection_is_deleted_up_to_the_limit(hub: LocalHub) -> None:
    for name in "abcd":
        await hub.config_map(name, {"g": "1"})

    selected = await hub.delete(CONFIG_MAPS, query="labelSelector=g&limit=1")
    assert selected.names == ["a"]
    assert "continue" in selected.json["metadata"]

    whole = await hub.delete(CONFIG_MAPS, query="limit=2")
    assert whole.names == ["b", "c"]
    assert (await hub.get(CONFIG_MAPS)).names == ["d"]


@pytest.mark.parametrize("selector", ["", "g"])
async def test_deleting_a_collection_in_pages_ends(hub: LocalHub, selector: str) -> None:
    for name in "abc":
        metadata = {"name": name, "labels": {"g": "1"}, "finalizers": ["example.com/hold"]}
        await hub.create(CONFIG_MAPS, {"metadata": metadata})
    names, token = [], ""

    while True:
        page = await hub.delete(CONFIG_MAPS, query={"limit": 1, "labelSelector": selector, "continue": token})
        names += page.names
        token = page.json["metadata"].get("continue", "")
        if not token:
            break

    assert names == ["a", "b", "c"]


async def test_a_collection_of_another_namespace_is_left_alone(hub: LocalHub) -> None:
    await hub.create("/api/v1/namespaces", {"metadata": {"name": "default-not"}})
    await hub.create("/api/v1/namespaces/default-not/configmaps", {"metadata": {"name": "a"}})
    await hub.config_map("a")

    await hub.delete(CONFIG_MAPS)

    listed = await hub.get("/api/v1/configmaps")
    assert [item["metadata"]["namespace"] for item in listed.json["items"]] == ["default-not"]


async def test_all_namespaces_together_are_not_a_collection_to_delete(hub: LocalHub) -> None:
    assert (await hub.delete("/api/v1/configmaps")).status == 405
    assert (await hub.delete("/api/v1/namespaces")).status == 405


@pytest.mark.parametrize("method", ["DELETE", "POST", "PUT", "PATCH"])
async def test_the_old_watch_paths_change_nothing(hub: LocalHub, method: str) -> None:
    await hub.config_map("a")

    for path in ("configmaps", "configmaps/a"):
        with hub.writes_nothing():
            answer = await hub.request(method, f"/api/v1/watch/namespaces/default/{path}", {"metadata": {"name": "b"}})
        assert answer.status == 405
