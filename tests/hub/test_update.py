"""update: which versions win, what a client cannot change, and that nothing is written when nothing changed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hub_harness import (
    APPLY_PATCH,
    CONFIG_MAPS,
    DEPLOYMENTS,
    JSON_PATCH,
    MERGE_PATCH,
    PODS,
    SERVICES,
    STRATEGIC_PATCH,
    LocalHub,
    deployment,
    pod,
)

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def config_map(name: str = "a", version: str = "", **data: str) -> dict[str, Any]:
    metadata = {"name": name} | ({"resourceVersion": version} if version else {})
    return {"metadata": metadata, "data": data}


async def test_an_update_replaces_what_is_there(any_hub: LocalHub) -> None:
    created = await any_hub.config_map("a", {"l": "m"}, k="v")

    updated = await any_hub.put(f"{CONFIG_MAPS}/a", config_map(x="y"))

    assert updated.status == 200
    assert updated.json["data"] == {"x": "y"}
    assert "labels" not in updated.json["metadata"]
    assert updated.json["metadata"]["uid"] == created["metadata"]["uid"]
    assert updated.version == any_hub.store.revision == int(created["metadata"]["resourceVersion"]) + 1
    assert (await any_hub.get(f"{CONFIG_MAPS}/a")).body == updated.body


async def test_a_stale_update_is_refused(any_hub: LocalHub) -> None:
    first = await any_hub.config_map("a", k="v")
    await any_hub.put(f"{CONFIG_MAPS}/a", config_map(k="w"))

    with any_hub.writes_nothing():
        stale = await any_hub.put(f"{CONFIG_MAPS}/a", config_map("a", first["metadata"]["resourceVersion"], k="x"))

    assert (stale.status, stale.reason) == (409, "Conflict")
    assert stale.message == f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}'
    assert stale.json["details"] == {"name": "a", "kind": "configmaps"}
    fresh = str(any_hub.store.revision)
    assert (await any_hub.put(f"{CONFIG_MAPS}/a", config_map("a", fresh, k="x"))).status == 200


@pytest.mark.parametrize("version", ["999", "9" * 5000, "18446744073709551616"])
async def test_a_version_that_never_was_is_stale_too(hub: LocalHub, version: str) -> None:
    await hub.config_map("a")

    answer = await hub.put(f"{CONFIG_MAPS}/a", config_map("a", version, k="x"))

    assert (answer.status, answer.reason) == (409, "Conflict")


@pytest.mark.parametrize("version", ["abc", "-1", "1.5", "٣", " 1"])
async def test_a_version_that_is_no_number_is_a_bad_request(hub: LocalHub, version: str) -> None:
    await hub.config_map("a")

    answer = await hub.put(f"{CONFIG_MAPS}/a", config_map("a", version, k="x"))

    assert answer.status == 400
    assert answer.message.startswith("strconv.ParseUint: parsing ")


async def test_another_uid_is_another_object(hub: LocalHub) -> None:
    uid = (await hub.config_map("a"))["metadata"]["uid"]
    other = "11111111-2222-3333-4444-555555555555"

    answer = await hub.put(f"{CONFIG_MAPS}/a", {"metadata": {"name": "a", "uid": other}})

    assert answer.status == 409
    assert answer.message == (
        'Operation cannot be fulfilled on configmaps "a": StorageError: invalid object, Code: 4, Key: '
        "/registry/configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in "
        f"precondition: {other}, UID in object meta: {uid}"
    )


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"name": "b"}, "the name of the object (b) does not match the name on the URL (a)"),
        ({}, "the name of the object (a based on URL) was undeterminable: name must be provided"),
        (
            {"name": "a", "namespace": "other"},
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ],
)
async def test_a_body_must_be_about_the_object_of_its_path(
    hub: LocalHub, metadata: dict[str, str], message: str
) -> None:
    await hub.config_map("a")

    with hub.writes_nothing():
        answer = await hub.put(f"{CONFIG_MAPS}/a", {"metadata": metadata})

    assert (answer.status, answer.message) == (400, message)


async def test_most_objects_are_not_created_by_an_update(hub: LocalHub) -> None:
    answer = await hub.put(f"{CONFIG_MAPS}/a", config_map(k="v"))

    assert (answer.status, answer.message) == (404, 'configmaps "a" not found')


async def test_a_lease_is_created_by_an_update(hub: LocalHub) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}

    assert (await hub.put(f"{LEASES}/l", lease)).status == 201
    assert (await hub.put(f"{LEASES}/m", {"metadata": {"name": "m", "uid": "x"}})).status == 404


async def test_what_only_the_server_sets_stays_as_it_was(hub: LocalHub) -> None:
    created = await hub.create(DEPLOYMENTS, deployment("d"))
    hub.later(100)
    sent = deployment("d")
    sent["metadata"] |= {
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "generation": 77,
        "selfLink": "/x",
        "labels": {"new": "label"},
    }

    updated = (await hub.put(f"{DEPLOYMENTS}/d", sent)).json["metadata"]

    assert updated["creationTimestamp"] == created["metadata"]["creationTimestamp"]
    assert updated["generation"] == 1
    assert "selfLink" not in updated
    marked = sent | {"metadata": {"name": "d", "deletionTimestamp": "2001-01-01T00:00:00Z"}}
    refused = await hub.put(f"{DEPLOYMENTS}/d", marked)
    assert refused.status == 422
    assert refused.message.endswith("field is immutable")


# --- generation -----------------------------------------------------------------------------------


async def generation(hub: LocalHub) -> int:
    return int((await hub.get(f"{DEPLOYMENTS}/d")).json["metadata"]["generation"])


async def test_only_another_desired_state_is_another_generation(hub: LocalHub) -> None:
    await hub.create(DEPLOYMENTS, deployment("d"))

    await hub.patch(f"{DEPLOYMENTS}/d", {"metadata": {"labels": {"a": "b"}}})
    assert await generation(hub) == 1
    await hub.patch(f"{DEPLOYMENTS}/d/status", {"status": {"replicas": 1}})
    assert await generation(hub) == 1
    await hub.patch(f"{DEPLOYMENTS}/d", {"spec": {"replicas": 1}})
    assert await generation(hub) == 1, "that is the default"
    await hub.patch(f"{DEPLOYMENTS}/d", {"spec": {"replicas": 2}})
    assert await generation(hub) == 2
    await hub.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 3}})
    assert await generation(hub) == 3
    await hub.put(f"{DEPLOYMENTS}/d", deployment("d", replicas=3))
    assert await generation(hub) == 3


# --- nothing changed ------------------------------------------------------------------------------


async def test_writes_that_change_nothing_write_nothing(any_hub: LocalHub) -> None:
    created = await any_hub.config_map("a", {"l": "m"}, k="v")
    await any_hub.create(DEPLOYMENTS, deployment("d"))
    await any_hub.patch(f"{DEPLOYMENTS}/d/status", {"status": {"replicas": 1}})
    any_hub.later(3600)
    path = f"{CONFIG_MAPS}/a"
    watch = await any_hub.watch(CONFIG_MAPS, {"resourceVersion": any_hub.store.revision})

    with any_hub.writes_nothing():
        same = await any_hub.put(path, {"metadata": {"name": "a", "labels": {"l": "m"}}, "data": {"k": "v"}})
        assert same.json == created
        assert (await any_hub.put(path, created)).json == created
        assert (await any_hub.patch(path, {"data": {"k": "v", "x": None}}, MERGE_PATCH)).json == created
        assert (await any_hub.patch(path, {"data": {"k": "v"}}, STRATEGIC_PATCH)).json == created
        assert (await any_hub.patch(path, [], JSON_PATCH)).json == created
        moved = [{"op": "move", "from": "/data/k", "path": "/data/k"}]
        assert (await any_hub.patch(path, moved, JSON_PATCH)).json == created
        assert (await any_hub.patch(f"{DEPLOYMENTS}/d", {"spec": {"replicas": 1}})).status == 200
        assert (await any_hub.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 1}})).status == 200
        assert (await any_hub.patch(f"{DEPLOYMENTS}/d/status", {"status": {"replicas": 1}})).status == 200
        assert (await any_hub.put(f"{DEPLOYMENTS}/d", deployment("d"))).status == 200
    assert watch.events == []
    watch.leave()


async def test_applying_the_same_again_writes_nothing(any_hub: LocalHub) -> None:
    configuration = {"apiVersion": "v1", "kind": "ConfigMap", **config_map(k="v")}
    applied = await any_hub.patch(f"{CONFIG_MAPS}/a", configuration, APPLY_PATCH, "fieldManager=m")
    assert applied.status == 201
    any_hub.later(3600)

    with any_hub.writes_nothing():
        again = await any_hub.patch(f"{CONFIG_MAPS}/a", configuration, APPLY_PATCH, "fieldManager=m")
    assert again.json == applied.json


# --- dry runs -------------------------------------------------------------------------------------


async def test_a_dry_run_of_every_verb_stores_nothing(any_hub: LocalHub) -> None:
    created = await any_hub.config_map("a", k="v")
    version = created["metadata"]["resourceVersion"]
    await any_hub.create(DEPLOYMENTS, deployment("d"))
    await any_hub.create(PODS, pod("p", nodeName="n"))
    await any_hub.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    dry = "dryRun=All"
    path = f"{CONFIG_MAPS}/a"
    applied = {"apiVersion": "v1", "kind": "ConfigMap", **config_map("new", k="v")}
    before = (await any_hub.get(CONFIG_MAPS)).json["items"]

    with any_hub.writes_nothing():
        new = await any_hub.post(CONFIG_MAPS, config_map("b", k="v"), dry)
        assert (new.status, "resourceVersion" in new.json["metadata"]) == (201, False)
        assert (await any_hub.post(CONFIG_MAPS, config_map("a"), dry)).status == 409
        assert (await any_hub.post(CONFIG_MAPS, config_map("B"), dry)).status == 422
        put = await any_hub.put(path, config_map(k="w"), dry)
        assert (put.json["data"], put.json["metadata"]["resourceVersion"]) == ({"k": "w"}, version)
        assert (await any_hub.put(path, config_map("a", "1", k="w"), dry)).status == 409
        patched = await any_hub.patch(path, {"data": {"k": "x"}}, MERGE_PATCH, dry)
        assert (patched.json["data"], patched.json["metadata"]["resourceVersion"]) == ({"k": "x"}, version)
        assert (await any_hub.patch(path, [{"op": "remove", "path": "/data"}], JSON_PATCH, dry)).status == 200
        fresh = await any_hub.patch(f"{CONFIG_MAPS}/new", applied, APPLY_PATCH, f"{dry}&fieldManager=m")
        assert fresh.status == 201
        assert (await any_hub.put(f"{LEASES}/l", {"metadata": {"name": "l"}}, dry)).status == 201
        scale = await any_hub.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 5}}, MERGE_PATCH, dry)
        assert scale.json["spec"]["replicas"] == 5
        status = await any_hub.patch(f"{DEPLOYMENTS}/d/status", {"status": {"replicas": 5}}, MERGE_PATCH, dry)
        assert status.json["status"]["replicas"] == 5
        assert (await any_hub.delete(path, query=dry)).json["status"] == "Success"
        assert (await any_hub.delete(path, {"dryRun": ["All"]})).json["status"] == "Success"
        assert (await any_hub.delete(f"{PODS}/p", query=dry)).json["metadata"]["deletionGracePeriodSeconds"] == 30
        assert (await any_hub.delete(CONFIG_MAPS, query=dry)).names == ["a"]
        ended = await any_hub.delete("/api/v1/namespaces/other", query=dry)
        assert ended.json["status"]["phase"] == "Terminating"

    assert (await any_hub.get(CONFIG_MAPS)).json["items"] == before


@pytest.mark.parametrize("value", ["Foo", "", "all"])
async def test_there_is_no_other_dry_run(hub: LocalHub, value: str) -> None:
    answer = await hub.post(CONFIG_MAPS, config_map(), {"dryRun": value})

    assert answer.status == 422
    assert answer.message == (
        f'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["{value}"]: supported values: "All"'
    )


# --- races ----------------------------------------------------------------------------------------


async def test_of_concurrent_updates_of_one_version_exactly_one_wins(any_hub: LocalHub) -> None:
    await any_hub.config_map("a", k="0")
    for _ in range(5):
        version = (await any_hub.get(f"{CONFIG_MAPS}/a")).json["metadata"]["resourceVersion"]
        writers = [any_hub.put(f"{CONFIG_MAPS}/a", config_map("a", version, k=f"{version}.{n}")) for n in range(8)]

        answers = await asyncio.gather(*writers)

        assert sorted(answer.status for answer in answers) == [200] + [409] * 7
        (won,) = (answer for answer in answers if answer.status == 200)
        assert (await any_hub.get(f"{CONFIG_MAPS}/a")).body == won.body


async def test_concurrent_patches_all_get_through(any_hub: LocalHub) -> None:
    """Nobody insists on a version, so whoever loses a race tries again."""
    await any_hub.config_map("a")

    patches = [any_hub.patch(f"{CONFIG_MAPS}/a", {"data": {f"k{number}": "v"}}) for number in range(6)]
    answers = await asyncio.gather(*patches)

    assert [answer.status for answer in answers] == [200] * 6
    assert len((await any_hub.get(f"{CONFIG_MAPS}/a")).json["data"]) == 6


async def test_of_concurrent_creators_exactly_one_wins(any_hub: LocalHub) -> None:
    answers = await asyncio.gather(*(any_hub.post(CONFIG_MAPS, config_map("a", k=str(n))) for n in range(8)))

    assert sorted(answer.status for answer in answers) == [201] + [409] * 7
    (won,) = (answer for answer in answers if answer.status == 201)
    assert (await any_hub.get(f"{CONFIG_MAPS}/a")).body == won.body


async def test_concurrent_creators_of_services_get_different_addresses(any_hub: LocalHub) -> None:
    def service(number: int) -> dict[str, Any]:
        return {"metadata": {"name": f"s{number}"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}

    answers = await asyncio.gather(*(any_hub.post(SERVICES, service(number)) for number in range(20)))

    assert len({answer.json["spec"]["clusterIP"] for answer in answers}) == 20
    assert len({answer.json["spec"]["ports"][0]["nodePort"] for answer in answers}) == 20


async def test_a_delete_and_an_update_at_once_leave_no_ghost(any_hub: LocalHub) -> None:
    for number in range(5):
        name = f"a{number}"
        await any_hub.config_map(name)
        deleted, updated = await asyncio.gather(
            any_hub.delete(f"{CONFIG_MAPS}/{name}"), any_hub.put(f"{CONFIG_MAPS}/{name}", config_map(name, k="v"))
        )
        assert deleted.status == 200
        assert updated.status in (200, 404, 409)
        assert (await any_hub.get(f"{CONFIG_MAPS}/{name}")).status == 404
