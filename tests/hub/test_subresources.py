"""/status, /scale, /finalize and the doors that lead nowhere here."""

from __future__ import annotations

import pytest
from hub_harness import CONFIG_MAPS, DEPLOYMENTS, JSON_PATCH, PODS, STRATEGIC_PATCH, TABLE, LocalHub, deployment, pod

# --- status ---------------------------------------------------------------------------------------


async def test_a_status_is_written_through_its_own_door_only(any_hub: LocalHub) -> None:
    created = await any_hub.create(DEPLOYMENTS, deployment("d"))
    sent = created | {"spec": created["spec"] | {"replicas": 7}, "status": {"replicas": 3, "observedGeneration": 1}}
    sent["metadata"] = created["metadata"] | {"labels": {"a": "b"}}

    written = (await any_hub.put(f"{DEPLOYMENTS}/d/status", sent)).json
    assert written["status"] == {"replicas": 3, "observedGeneration": 1}
    assert written["spec"] == created["spec"]
    assert written["metadata"]["generation"] == 1
    assert (await any_hub.get(f"{DEPLOYMENTS}/d/status")).json == written

    whole = written | {"status": {"replicas": 9}, "spec": written["spec"] | {"replicas": 4}}
    changed = (await any_hub.put(f"{DEPLOYMENTS}/d", whole)).json
    assert changed["status"] == {"replicas": 3, "observedGeneration": 1}
    assert changed["spec"]["replicas"] == 4
    assert changed["metadata"]["generation"] == 2


async def test_annotations_that_come_with_a_status_are_no_new_generation(hub: LocalHub) -> None:
    created = await hub.create(DEPLOYMENTS, deployment("d"))
    metadata = created["metadata"] | {"annotations": {"deployment.kubernetes.io/revision": "1"}}

    answer = await hub.put(f"{DEPLOYMENTS}/d/status", created | {"metadata": metadata})

    assert answer.json["metadata"]["annotations"] == {"deployment.kubernetes.io/revision": "1"}
    assert answer.json["metadata"]["generation"] == 1


async def test_a_status_insists_on_its_version_like_any_update(hub: LocalHub) -> None:
    created = await hub.create(DEPLOYMENTS, deployment("d"))
    await hub.patch(f"{DEPLOYMENTS}/d", {"metadata": {"labels": {"a": "b"}}})

    stale = await hub.put(f"{DEPLOYMENTS}/d/status", created | {"status": {"replicas": 3}})
    assert (stale.status, stale.reason) == (409, "Conflict")
    missing = await hub.put(f"{DEPLOYMENTS}/x/status", deployment("x"))
    assert (missing.status, missing.message) == (404, 'deployments.apps "x" not found')


async def test_the_manager_of_a_status_is_apart_from_that_of_the_rest(hub: LocalHub) -> None:
    await hub.create(PODS, pod("p"))

    patched = await hub.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}}, query="fieldManager=kubelet")

    entries = {entry["manager"]: entry for entry in patched.json["metadata"]["managedFields"]}
    assert entries["kubelet"]["subresource"] == "status"
    assert entries["kubelet"]["fieldsV1"] == {"f:status": {"f:phase": {}}}
    assert "f:status" not in entries["test"]["fieldsV1"]


async def test_what_has_no_status_has_no_such_door(hub: LocalHub) -> None:
    await hub.config_map("a")

    assert (await hub.get(f"{CONFIG_MAPS}/a/status")).status == 404
    assert (await hub.delete(f"{DEPLOYMENTS}/d/status")).status == 405


# --- scale ----------------------------------------------------------------------------------------


async def test_a_scale_shows_and_changes_replicas(any_hub: LocalHub) -> None:
    created = await any_hub.create(DEPLOYMENTS, deployment("d"))

    scale = (await any_hub.get(f"{DEPLOYMENTS}/d/scale")).json
    metadata = {key: created["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
    assert scale == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata | {"creationTimestamp": created["metadata"]["creationTimestamp"]},
        "spec": {"replicas": 1},
        "status": {"replicas": 0, "selector": "app=d"},
    }

    scaled = await any_hub.put(f"{DEPLOYMENTS}/d/scale", scale | {"spec": {"replicas": 4}})
    assert (scaled.status, scaled.json["spec"]) == (200, {"replicas": 4})
    parent = await any_hub.get(f"{DEPLOYMENTS}/d")
    assert (parent.json["spec"]["replicas"], parent.version) == (4, scaled.version)
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 2}]
    assert (await any_hub.patch(f"{DEPLOYMENTS}/d/scale", operations, JSON_PATCH)).json["spec"] == {"replicas": 2}
    strategic = await any_hub.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 0}}, STRATEGIC_PATCH)
    assert strategic.status == 200
    assert (await any_hub.get(f"{DEPLOYMENTS}/d")).json["spec"]["replicas"] == 0


@pytest.mark.parametrize(
    ("metadata", "spec", "status", "message"),
    [
        (
            {"name": "d"},
            {"replicas": -1},
            422,
            'Scale.autoscaling "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0',
        ),
        (
            {"name": "d", "resourceVersion": "1"},
            {"replicas": 4},
            409,
            'Operation cannot be fulfilled on deployments.apps "d": the object has been modified; please apply your '
            "changes to the latest version and try again",
        ),
        ({"name": "e"}, {"replicas": 4}, 400, "the name of the object (e) does not match the name on the URL (d)"),
    ],
)
async def test_a_scale_that_is_refused_scales_nothing(
    hub: LocalHub, metadata: dict[str, str], spec: dict[str, int], status: int, message: str
) -> None:
    await hub.create(DEPLOYMENTS, deployment("d"))

    with hub.writes_nothing():
        answer = await hub.put(f"{DEPLOYMENTS}/d/scale", {"metadata": metadata, "spec": spec})

    assert (answer.status, answer.message) == (status, message)


@pytest.mark.parametrize(("accept", "query"), [("image/png", ""), (TABLE, "includeObject=Everything")])
async def test_a_request_with_unacceptable_formats_is_refused_before_anything_is_written(
    hub: LocalHub, accept: str, query: str
) -> None:
    await hub.create(DEPLOYMENTS, deployment("d"))
    await hub.config_map("a")

    with hub.writes_nothing():
        answers = [
            await hub.put(
                f"{DEPLOYMENTS}/d/scale", {"metadata": {"name": "d"}, "spec": {"replicas": 4}}, query, accept=accept
            ),
            await hub.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 4}}, query=query, accept=accept),
            await hub.post(CONFIG_MAPS, {"metadata": {"name": "b"}}, query, accept=accept),
            await hub.put(f"{CONFIG_MAPS}/a", {"metadata": {"name": "a"}, "data": {"k": "v"}}, query, accept=accept),
            await hub.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}}, query=query, accept=accept),
            await hub.delete(f"{CONFIG_MAPS}/a", query=query, accept=accept),
            await hub.delete(CONFIG_MAPS, query=query, accept=accept),
        ]

    assert {answer.status for answer in answers} <= {400, 406}


# --- finalize, and what needs nodes ---------------------------------------------------------------


async def test_only_the_finalizers_go_through_finalize(hub: LocalHub) -> None:
    created = await hub.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
    sent = created | {"metadata": created["metadata"] | {"labels": {"a": "b"}}, "spec": {"finalizers": ["x.io/y"]}}

    answer = await hub.put("/api/v1/namespaces/n/finalize", sent)

    assert answer.json["spec"] == {"finalizers": ["x.io/y"]}
    assert answer.json["metadata"]["labels"] == created["metadata"]["labels"]


@pytest.mark.parametrize("name", ["exec", "attach", "log", "portforward", "proxy"])
async def test_what_needs_a_node_is_not_implemented(hub: LocalHub, name: str) -> None:
    await hub.create(PODS, pod("p"))

    answer = await hub.get(f"{PODS}/p/{name}")

    assert (answer.status, answer.reason) == (501, "NotImplemented")
    assert answer.message == f"pods/{name} is not served: it needs nodes, and there are none"
