"""Views of exports, as requests see them."""

from __future__ import annotations

import pytest
from hub_harness import Answer
from provider_harness import ACCEPTED, APIS, BINDINGS, CLAIM, MAPS, WIDGETS, Provided, binding, widget

from farflung.machinery.errors import Obj


@pytest.fixture
async def world() -> Provided:
    return await Provided.started()


def is_no_resource(answer: Answer) -> bool:
    causes = [{"reason": "UnexpectedServerResponse", "message": "404 page not found"}]
    what = "the server could not find the requested resource"
    return (answer.status, answer.message, answer.json["details"]) == (404, what, {"causes": causes})


# --- what is there --------------------------------------------------------------------------------


async def test_objects_have_no_name_in_all_workspaces_at_once(world: Provided) -> None:
    await world.hub.create(f"/clusters/{world.consumer}{WIDGETS}", widget("a"))
    assert [one["metadata"]["name"] for one in (await world.get(WIDGETS)).json["items"]] == ["a"]
    for method, path in (
        ("GET", f"{WIDGETS}/a"),
        ("POST", WIDGETS),
        ("PUT", f"{WIDGETS}/a"),
        ("PATCH", f"{WIDGETS}/a"),
        ("DELETE", f"{WIDGETS}/a"),
        ("DELETE", WIDGETS),
        ("GET", f"{WIDGETS}/a/status"),
    ):
        assert is_no_resource(await world.hub.request(method, world.view(path), widget("a"))), f"{method} {path}"


@pytest.mark.parametrize("cluster", ["other", "prov", "nosuch", "root"])
async def test_a_workspace_that_has_not_bound_the_export_does_not_have_its_resources(
    world: Provided, cluster: str
) -> None:
    cluster = {"other": world.other, "prov": world.provider}.get(cluster, cluster)
    assert is_no_resource(await world.get(WIDGETS, cluster))
    assert is_no_resource(await world.hub.post(world.view(WIDGETS, cluster), widget("a")))


async def test_what_an_export_neither_has_nor_claims_is_no_page(world: Provided) -> None:
    for path in ("/api/v1/secrets", "/api/v1/namespaces/default", "/apis/apps/v1/deployments", f"{APIS}/apiexports"):
        answer = await world.get(path, world.consumer)
        assert (answer.status, answer.body) == (404, b"404 page not found\n"), path


async def test_the_group_without_a_name_is_there_before_anything_of_it_is_claimed(world: Provided) -> None:
    home = f"/clusters/{world.provider}{APIS}/apiexports/ex.test"
    found = [one["name"] for one in (await world.get("/api/v1")).json["resources"]]
    assert found == ["configmaps"]
    await world.hub.patch(home, {"spec": {"permissionClaims": []}})
    assert (await world.get("/api")).json["versions"] == ["v1"]
    answer = await world.get("/api/v1")
    assert answer.json == {"kind": "APIResourceList", "groupVersion": "v1", "resources": []}
    assert (await world.get("/api/v2")).status == 404


# --- watches --------------------------------------------------------------------------------------


def has_expired(events: list[Obj]) -> bool:
    last = events[-1]
    return last["type"] == "ERROR" and (last["object"]["code"], last["object"]["reason"]) == (410, "Expired")


async def accept(world: Provided, *claims: Obj) -> None:
    path = f"/clusters/{world.consumer}{BINDINGS}/w"
    assert (await world.hub.patch(path, {"spec": {"permissionClaims": list(claims)}})).status == 200


async def test_a_watch_of_bindings_in_a_view_gets_their_deletion(world: Provided) -> None:
    watch = await world.hub.watch(world.view(BINDINGS))
    path = f"/clusters/{world.consumer}{BINDINGS}/w"
    await world.hub.delete(path)
    await world.hub.patch(path, {"metadata": {"finalizers": []}})
    assert (await world.hub.get(path)).status == 404
    await world.hub.create(f"/clusters/{world.other}{BINDINGS}", binding())
    assert watch.changes == [("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w"), ("ADDED", "w")]
    clusters = [event["object"]["metadata"]["annotations"]["kcp.io/cluster"] for event in watch.events]
    assert clusters == [world.consumer] * 3 + [world.other]


async def test_a_watch_of_claimed_objects_relists_when_a_workspace_accepts_or_rejects_a_claim(world: Provided) -> None:
    await world.hub.create(f"/clusters/{world.consumer}{MAPS}", {"metadata": {"name": "m"}})
    maps = world.view("/api/v1/configmaps")
    for decided in ([ACCEPTED], [{**CLAIM, "state": "Rejected"}]):
        widgets, watch = await world.hub.watch(world.view(WIDGETS)), await world.hub.watch(maps)
        await accept(world, *decided)
        assert has_expired(await watch.end())
        assert not widgets.closed, "of which the same is seen as before"
        names = {one["metadata"]["name"] for one in (await world.hub.get(maps)).json["items"]}
        assert ("m" in names) == (decided == [ACCEPTED])


async def test_a_history_that_does_not_tell_what_came_into_sight_is_too_old(world: Provided) -> None:
    maps = world.view("/api/v1/configmaps")
    before = (await world.hub.get(maps)).json["metadata"]["resourceVersion"]
    await accept(world, ACCEPTED)
    after = (await world.hub.get(maps)).json["metadata"]["resourceVersion"]
    assert has_expired(await (await world.hub.watch(maps, {"resourceVersion": before})).end())
    watch = await world.hub.watch(maps, {"resourceVersion": after})
    await world.hub.create(f"/clusters/{world.consumer}{MAPS}", {"metadata": {"name": "m"}})
    assert watch.changes == [("ADDED", "m")]


async def test_watches_in_a_view_end_when_its_export_is_deleted(world: Provided) -> None:
    watch = await world.hub.watch(world.view(WIDGETS))
    await world.hub.delete(f"/clusters/{world.provider}{APIS}/apiexports/ex.test")
    assert has_expired(await watch.end())
    await world.hub.create(f"/clusters/{world.consumer}{WIDGETS}", widget("late"))
    assert len(watch.events) == 1
    assert (await world.get(WIDGETS)).status == 403


async def test_deletions_of_objects_are_sent_even_after_the_deletion_of_their_binding(world: Provided) -> None:
    store = world.hub.store
    await accept(world, ACCEPTED)
    await world.hub.create(f"/clusters/{world.consumer}{WIDGETS}", widget("a"))
    watch = await world.hub.watch(world.view(WIDGETS))
    (home,) = (one for one in store.storage_prefixes() if one.startswith("/ex.test/"))
    (entry,) = store.list(home).entries
    bound = store.get(f"/apis.kcp.io/apibindings/{world.consumer}/w")
    assert bound is not None
    await store.delete(bound.key, expect=bound.revision)
    await store.delete(entry.key, expect=entry.revision)
    assert watch.changes == [("ADDED", "a"), ("DELETED", "a")]


async def test_writes_after_the_deletion_of_a_binding_are_not_sent(world: Provided) -> None:
    await accept(world, ACCEPTED)
    maps = f"/clusters/{world.consumer}{MAPS}"
    await world.hub.create(maps, {"metadata": {"name": "m"}, "data": {"a": "seen"}})
    path = f"/clusters/{world.consumer}{BINDINGS}/w"
    before = await world.hub.watch(world.view("/api/v1/configmaps"))
    await world.hub.delete(path)
    await world.hub.patch(path, {"metadata": {"finalizers": []}})
    assert has_expired(await before.end())
    after = await world.hub.watch(world.view("/api/v1/configmaps"))
    for data in ("first", "second"):
        await world.hub.patch(f"{maps}/m", {"data": {"a": data}})
    assert not any(event["object"]["data"]["a"] in ("first", "second") for event in after.events)
