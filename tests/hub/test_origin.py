"""The annotation that says which cluster an object is in."""

from __future__ import annotations

import pytest
from hub_harness import APPLY_PATCH, JSON_PATCH, LocalHub
from workspaces_harness import LocalWorkspaces

CONFIG_MAPS = "/clusters/root/api/v1/namespaces/default/configmaps"
PATH = f"{CONFIG_MAPS}/a"
CLUSTER = "kcp.io/cluster"


@pytest.fixture
async def hub() -> LocalHub:
    return await LocalWorkspaces.started()


async def test_every_response_has_the_cluster_annotation_for_any_request(hub: LocalHub) -> None:
    made = await hub.create(CONFIG_MAPS, {"metadata": {"name": "a", "annotations": {CLUSTER: "other", "b": "c"}}})
    assert made["metadata"]["annotations"] == {CLUSTER: "root", "b": "c"}
    assert (await hub.get(PATH)).json["metadata"]["annotations"] == {CLUSTER: "root", "b": "c"}
    (item,) = (await hub.get(CONFIG_MAPS)).json["items"]
    assert item["metadata"]["annotations"][CLUSTER] == "root"
    fields = made["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:annotations"]
    assert fields == {".": {}, "f:b": {}}, "nobody owns it"


async def test_leaving_it_out_or_changing_it_is_no_change(hub: LocalHub) -> None:
    made = await hub.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    with hub.writes_nothing():
        await hub.put(PATH, {"metadata": {"name": "a"}})
        await hub.put(PATH, {"metadata": {"name": "a", "annotations": {CLUSTER: "other"}}})
        await hub.patch(PATH, {"metadata": {"annotations": None}})
        remove = [{"op": "remove", "path": "/metadata/annotations/kcp.io~1cluster"}]
        assert (await hub.patch(PATH, remove, JSON_PATCH)).status == 200
    assert (await hub.get(PATH)).json == made


async def test_an_applier_does_not_own_the_cluster_annotation(hub: LocalHub) -> None:
    applied = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "annotations": {CLUSTER: "other"}},
        "data": {"k": "v"},
    }
    made = (await hub.patch(PATH, applied, APPLY_PATCH, {"fieldManager": "me"})).json
    assert made["metadata"]["annotations"] == {CLUSTER: "root"}
    assert made["metadata"]["managedFields"][0]["fieldsV1"] == {"f:data": {"f:k": {}}}
    with hub.writes_nothing():
        assert (await hub.patch(PATH, applied, APPLY_PATCH, {"fieldManager": "me"})).status == 200


async def test_who_adds_the_first_annotation_owns_them_all(hub: LocalHub) -> None:
    await hub.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    patched = await hub.patch(PATH, {"metadata": {"annotations": {"b": "c"}}})
    assert patched.json["metadata"]["annotations"] == {CLUSTER: "root", "b": "c"}
    (entry,) = patched.json["metadata"]["managedFields"]
    assert entry["fieldsV1"]["f:metadata"] == {"f:annotations": {".": {}, "f:b": {}}}


async def test_an_apply_after_an_update_gives_the_cluster_annotation_no_owner(hub: LocalHub) -> None:
    await hub.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    forgotten = await hub.patch(PATH, {"metadata": {"managedFields": [{}]}})
    assert "managedFields" not in forgotten.json["metadata"]
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"l": "w"}}
    made = (await hub.patch(PATH, applied, APPLY_PATCH, {"fieldManager": "me"})).json
    owned = {one["manager"]: one["fieldsV1"] for one in made["metadata"]["managedFields"]}
    assert owned == {"me": {"f:data": {"f:l": {}}}, "before-first-apply": {"f:data": {".": {}, "f:k": {}}}}
    assert made["metadata"]["annotations"] == {CLUSTER: "root"}
