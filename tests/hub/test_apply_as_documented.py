"""What Kubernetes' documentation says of server-side apply: owners, conflicts, handing over, lists, forgetting."""

from __future__ import annotations

from typing import Any

import pytest
from hub_harness import APPLY_PATCH, CONFIG_MAPS, DEPLOYMENTS, JSON_PATCH, MERGE_PATCH, SERVICES, Answer, LocalHub

Json = dict[str, Any]

TEST_CM = f"{CONFIG_MAPS}/test-cm"
NGINX = f"{DEPLOYMENTS}/nginx-deployment"


def config_map(data: Json | None = None, **labels: str) -> Json:
    metadata: Json = {"name": "test-cm"}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **({"data": data} if data else {})}


def deployment(**spec: Any) -> Json:
    labels = {"app": "nginx"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "nginx", "image": "nginx:1.14.2"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "nginx-deployment"}, "spec": spec}


def replicas(number: int) -> Json:
    metadata = {"name": "nginx-deployment"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": number}}


async def applied(hub: LocalHub, path: str, body: Any, by: str, *, force: bool = False) -> Answer:
    query = {"fieldManager": by, **({"force": "true"} if force else {})}
    return await hub.patch(path, body, APPLY_PATCH, query)


async def accepted(hub: LocalHub, path: str, body: Any, by: str, *, force: bool = False) -> Json:
    answer = await applied(hub, path, body, by, force=force)
    assert answer.status in (200, 201), answer.body
    obj: Json = answer.json
    return obj


def owners(obj: Json) -> dict[tuple[str, str], Json]:
    """(manager, operation) → fields; of a subresource, manager/subresource."""
    return {
        ("/".join(filter(None, (one["manager"], one.get("subresource")))), one["operation"]): one["fieldsV1"]
        for one in obj["metadata"].get("managedFields", [])
    }


# --- field management -----------------------------------------------------------------------------


async def test_the_applier_owns_what_it_applied_and_nothing_else(hub: LocalHub) -> None:
    created = await accepted(hub, TEST_CM, config_map({"key": "some value"}, **{"test-label": "test"}), "kubectl")
    assert created["metadata"]["managedFields"] == [
        {
            "manager": "kubectl",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2024-05-01T12:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:test-label": {}}}, "f:data": {"f:key": {}}},
        }
    ]


async def test_updates_and_applies_of_one_manager_are_two_owners(hub: LocalHub) -> None:
    await accepted(hub, TEST_CM, config_map({"key": "some value"}, **{"test-label": "test"}), "kubectl")
    hub.later(60)
    patch = {"data": {"key": "new value"}}
    patched = await hub.patch(TEST_CM, patch, MERGE_PATCH, {"fieldManager": "kube-controller-manager"})
    assert owners(patched.json) == {
        ("kubectl", "Apply"): {"f:metadata": {"f:labels": {"f:test-label": {}}}},
        ("kube-controller-manager", "Update"): {"f:data": {"f:key": {}}},
    }
    again = await hub.patch(TEST_CM, {"data": {"more": "1"}}, MERGE_PATCH, {"fieldManager": "kubectl"})
    assert owners(again.json)[("kubectl", "Update")] == {"f:data": {"f:more": {}}}


async def test_a_manager_is_named_after_the_agent_when_it_updates_and_must_be_named_when_it_applies(
    hub: LocalHub,
) -> None:
    created = await hub.post(CONFIG_MAPS, config_map({"key": "1"}), user_agent="tool/v1 (linux)")
    assert list(owners(created.json)) == [("tool", "Update")]
    nameless = await hub.patch(TEST_CM, config_map(), APPLY_PATCH)
    assert nameless.status == 422
    assert "is required for apply patch" in nameless.message


async def test_applying_the_same_again_writes_nothing(hub: LocalHub) -> None:
    await accepted(hub, NGINX, deployment(replicas=3), "kubectl")
    hub.later(3600)
    with hub.writes_nothing():
        await accepted(hub, NGINX, deployment(replicas=3), "kubectl")


# --- conflicts ------------------------------------------------------------------------------------


async def test_a_conflict_names_the_field_and_its_owner_and_changes_nothing(hub: LocalHub) -> None:
    await accepted(hub, TEST_CM, config_map({"key": "some value"}), "kubectl")
    await hub.patch(TEST_CM, {"data": {"key": "new"}}, MERGE_PATCH, {"fieldManager": "kube-controller-manager"})
    with hub.writes_nothing():
        refused = await applied(hub, TEST_CM, config_map({"key": "some value"}), "kubectl")
    assert (refused.status, refused.reason) == (409, "Conflict")
    assert refused.message == (
        'Apply failed with 1 conflict: conflict with "kube-controller-manager" using v1: .data.key'
    )


async def test_overwrite_the_value_and_become_the_only_manager(hub: LocalHub) -> None:
    await accepted(hub, TEST_CM, config_map({"key": "1", "rest": "1"}), "first")
    forced = await accepted(hub, TEST_CM, config_map({"key": "2"}), "second", force=True)
    assert forced["data"] == {"key": "2", "rest": "1"}
    assert owners(forced) == {
        ("first", "Apply"): {"f:data": {"f:rest": {}}},
        ("second", "Apply"): {"f:data": {"f:key": {}}},
    }


async def test_leave_the_value_and_give_up_the_claim(hub: LocalHub) -> None:
    await accepted(hub, TEST_CM, config_map({"key": "1", "mine": "1"}), "first")
    await hub.patch(TEST_CM, {"data": {"key": "2"}}, MERGE_PATCH, {"fieldManager": "other"})
    assert (await applied(hub, TEST_CM, config_map({"key": "1", "mine": "1"}), "first")).status == 409
    gave_up = await accepted(hub, TEST_CM, config_map({"mine": "1"}), "first")
    assert gave_up["data"] == {"key": "2", "mine": "1"}
    assert owners(gave_up)[("first", "Apply")] == {"f:data": {"f:mine": {}}}


async def test_leave_the_value_and_share_it(hub: LocalHub) -> None:
    await accepted(hub, TEST_CM, config_map({"key": "1"}), "first")
    shared = await accepted(hub, TEST_CM, config_map({"key": "1"}), "second")
    assert owners(shared)[("first", "Apply")] == owners(shared)[("second", "Apply")] == {"f:data": {"f:key": {}}}
    for one, other in (("first", "second"), ("second", "first")):
        refused = await applied(hub, TEST_CM, config_map({"key": "2"}), one)
        assert refused.message == f'Apply failed with 1 conflict: conflict with "{other}": .data.key'
    left = await accepted(hub, TEST_CM, config_map(), "first")
    assert left["data"] == {"key": "1"}
    assert "data" not in await accepted(hub, TEST_CM, config_map(), "second")


async def test_updates_never_conflict_and_take_what_they_change(hub: LocalHub) -> None:
    await accepted(hub, TEST_CM, config_map({"key": "1", "same": "1"}), "first")
    live = (await hub.get(TEST_CM)).json
    live["data"]["key"] = "2"
    updated = await hub.put(TEST_CM, live, {"fieldManager": "updater"})
    assert owners(updated.json) == {
        ("first", "Apply"): {"f:data": {"f:same": {}}},
        ("updater", "Update"): {"f:data": {"f:key": {}}},
    }


async def test_several_conflicts_are_listed_by_owner(hub: LocalHub) -> None:
    await accepted(hub, NGINX, deployment(replicas=3), "kubectl")
    body = deployment(replicas=5, paused=False)
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:2"
    refused = await applied(hub, NGINX, body, "other")
    assert refused.message == (
        'Apply failed with 2 conflicts: conflicts with "kubectl":\n'
        "- .spec.replicas\n"
        '- .spec.template.spec.containers[name="nginx"].image'
    )


# --- removing and handing over --------------------------------------------------------------------


async def test_an_omitted_field_is_removed_unless_another_manager_owns_it(hub: LocalHub) -> None:
    await accepted(hub, TEST_CM, config_map({"a": "1", "b": "1"}, l="1"), "first")
    await accepted(hub, TEST_CM, config_map({"b": "1"}), "second")
    left = await accepted(hub, TEST_CM, config_map(), "first")
    assert (left["data"], "labels" in left["metadata"]) == ({"b": "1"}, False)
    assert owners(left) == {("second", "Apply"): {"f:data": {"f:b": {}}}}


async def test_a_field_left_out_that_has_a_default_gets_it(hub: LocalHub) -> None:
    created = await accepted(hub, NGINX, deployment(replicas=3), "kubectl")
    assert "f:strategy" not in owners(created)[("kubectl", "Apply")]["f:spec"]
    assert created["spec"]["strategy"]["type"] == "RollingUpdate"
    without = await accepted(hub, NGINX, deployment(), "kubectl")
    assert without["spec"]["replicas"] == 1
    assert "f:replicas" not in owners(without)[("kubectl", "Apply")]["f:spec"]
    assert (await accepted(hub, NGINX, replicas(2), "anybody"))["spec"]["replicas"] == 2


async def test_replicas_are_handed_over_to_an_autoscaler_through_a_second_manager(hub: LocalHub) -> None:
    await accepted(hub, NGINX, deployment(replicas=3), "kubectl")
    handed = await accepted(hub, NGINX, replicas(3), "handover-to-hpa")
    assert owners(handed)[("handover-to-hpa", "Apply")] == {"f:spec": {"f:replicas": {}}}
    await accepted(hub, NGINX, deployment(), "kubectl")
    assert (await hub.get(NGINX)).json["spec"]["replicas"] == 3
    scale = (await hub.get(f"{NGINX}/scale")).json
    scale["spec"]["replicas"] = 7
    assert (await hub.put(f"{NGINX}/scale", scale, {"fieldManager": "autoscaler"})).status == 200
    live = (await hub.get(NGINX)).json
    assert live["spec"]["replicas"] == 7
    assert owners(live)[("autoscaler/scale", "Update")] == {"f:spec": {"f:replicas": {}}}
    assert ("handover-to-hpa", "Apply") not in owners(live)
    unchanged = await accepted(hub, NGINX, deployment(), "kubectl")
    assert unchanged["spec"]["replicas"] == 7


async def test_ownership_moves_between_appliers_without_the_value_changing(hub: LocalHub) -> None:
    await accepted(hub, TEST_CM, config_map({"key": "1"}), "old")
    await accepted(hub, TEST_CM, config_map({"key": "1"}), "new")
    moved = await accepted(hub, TEST_CM, config_map(), "old")
    assert owners(moved) == {("new", "Apply"): {"f:data": {"f:key": {}}}}
    changed = await accepted(hub, TEST_CM, config_map({"key": "2"}), "new")
    assert changed["data"] == {"key": "2"}


# --- lists, sets and maps -------------------------------------------------------------------------


async def test_members_of_a_set_have_owners_of_their_own(hub: LocalHub) -> None:
    def finalized(*names: str) -> Json:
        return {
            **config_map(),
            "metadata": {"name": "test-cm", "finalizers": [f"example.com/{name}" for name in names]},
        }

    await accepted(hub, TEST_CM, finalized("a", "b"), "first")
    both = await accepted(hub, TEST_CM, finalized("b", "c"), "second")
    assert set(both["metadata"]["finalizers"]) == {"example.com/a", "example.com/b", "example.com/c"}
    left = await accepted(hub, TEST_CM, finalized(), "first")
    assert left["metadata"]["finalizers"] == ["example.com/b", "example.com/c"]


async def test_items_of_a_map_list_are_merged_by_their_keys(hub: LocalHub) -> None:
    service: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}

    def ports(*numbers: int, **more: Any) -> Json:
        return {**service, "spec": {"ports": [{"name": f"p{number}", "port": number, **more} for number in numbers]}}

    await accepted(hub, f"{SERVICES}/s", ports(80, 81), "first")
    both = await accepted(hub, f"{SERVICES}/s", ports(82), "second")
    assert [port["port"] for port in both["spec"]["ports"]] == [80, 81, 82]
    refused = await applied(hub, f"{SERVICES}/s", ports(80, targetPort=8080), "second")
    assert refused.status == 200, refused.body  # the default belongs to nobody
    refused = await applied(hub, f"{SERVICES}/s", ports(80, targetPort=9090), "first")
    assert refused.message.endswith('conflict with "second": .spec.ports[port=80,protocol="TCP"].targetPort')
    left = await accepted(hub, f"{SERVICES}/s", ports(81), "first")
    assert [port["port"] for port in left["spec"]["ports"]] == [80, 81]


async def test_an_atomic_list_has_one_owner(hub: LocalHub) -> None:
    def commanded(*command: str) -> Json:
        body = deployment()
        body["spec"]["template"]["spec"]["containers"][0]["command"] = list(command)
        return body

    await accepted(hub, NGINX, commanded("a", "b"), "first")
    refused = await applied(hub, NGINX, commanded("a"), "second")
    assert refused.message.endswith('.spec.template.spec.containers[name="nginx"].command')
    forced = await accepted(hub, NGINX, commanded("a"), "second", force=True)
    container = forced["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["a"]
    fields = owners(forced)[("first", "Apply")]["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert "f:command" not in fields['k:{"name":"nginx"}']


async def test_an_atomic_map_has_one_owner(hub: LocalHub) -> None:
    def selecting(**labels: str) -> Json:
        body = deployment()
        body["spec"]["template"]["spec"]["nodeSelector"] = labels
        return body

    await accepted(hub, NGINX, selecting(a="1"), "first")
    refused = await applied(hub, NGINX, selecting(b="1"), "second")
    assert refused.message.endswith('conflict with "first": .spec.template.spec.nodeSelector')
    forced = await accepted(hub, NGINX, selecting(b="1"), "second", force=True)
    assert forced["spec"]["template"]["spec"]["nodeSelector"] == {"b": "1"}


async def test_items_without_identity_are_refused(hub: LocalHub) -> None:
    twice = deployment()
    twice["spec"]["template"]["spec"]["containers"] *= 2
    with hub.writes_nothing():
        refused = await applied(hub, NGINX, twice, "kubectl")
    assert refused.status == 400
    assert 'duplicate entries for key [name="nginx"]' in refused.message


# --- subresources ---------------------------------------------------------------------------------


async def test_the_status_has_owners_apart_from_those_of_the_rest(hub: LocalHub) -> None:
    await accepted(hub, NGINX, deployment(replicas=3), "kubectl")
    status = {**replicas(9), "status": {"observedGeneration": 1}}
    shown = await accepted(hub, f"{NGINX}/status", status, "kubectl")
    assert (shown["spec"]["replicas"], shown["status"]["observedGeneration"]) == (3, 1)
    assert owners(shown)[("kubectl/status", "Apply")] == {"f:status": {"f:observedGeneration": {}}}
    assert "f:status" not in owners(shown)[("kubectl", "Apply")]
    emptied = await accepted(hub, f"{NGINX}/status", {**replicas(9), "status": {}}, "kubectl")
    assert "observedGeneration" not in emptied["status"]
    assert emptied["spec"]["replicas"] == 3


def scale(number: int) -> Json:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "nginx-deployment"},
        "spec": {"replicas": number},
    }


async def test_a_scale_is_applied_and_its_applier_owns_the_replicas(hub: LocalHub) -> None:
    await accepted(hub, NGINX, deployment(replicas=3), "kubectl")
    refused = await applied(hub, f"{NGINX}/scale", scale(5), "scaler")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "kubectl": .spec.replicas'
    shared = await accepted(hub, f"{NGINX}/scale", scale(3), "scaler")
    assert (shared["kind"], shared["spec"]) == ("Scale", {"replicas": 3})
    live = (await hub.get(NGINX)).json
    assert owners(live)[("scaler/scale", "Apply")] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" in owners(live)[("kubectl", "Apply")]["f:spec"]

    taken = await accepted(hub, f"{NGINX}/scale", scale(5), "scaler", force=True)
    assert taken["spec"] == {"replicas": 5}
    live = (await hub.get(NGINX)).json
    assert (live["spec"]["replicas"], live["metadata"]["generation"]) == (5, 2)
    assert "f:replicas" not in owners(live)[("kubectl", "Apply")]["f:spec"]
    with hub.writes_nothing():
        await accepted(hub, f"{NGINX}/scale", scale(5), "scaler")
    refused = await applied(hub, NGINX, deployment(replicas=3), "kubectl")
    assert refused.message.endswith('conflict with "scaler" with subresource "scale": .spec.replicas')


async def test_a_scale_that_is_applied_must_be_one(hub: LocalHub) -> None:
    absent = await applied(hub, f"{NGINX}/scale", scale(5), "scaler")
    assert absent.status == 404
    await accepted(hub, NGINX, deployment(replicas=3), "kubectl")
    with hub.writes_nothing():
        for body, status in (
            (deployment(replicas=3), 400),
            ({**scale(5), "spec": {"replicas": "5"}}, 400),
            ({**scale(5), "spec": {"size": 5}}, 400),
            (scale(-1), 422),
            ({**scale(5), "metadata": {"name": "other"}}, 400),
            ({**scale(5), "metadata": {"name": "nginx-deployment", "resourceVersion": "1"}}, 409),
        ):
            assert (await applied(hub, f"{NGINX}/scale", body, "scaler", force=True)).status == status, body


# --- forgetting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("media", "patch"),
    [
        (MERGE_PATCH, {"metadata": {"managedFields": [{}]}}),
        (JSON_PATCH, [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]),
    ],
    ids=["merge", "json"],
)
async def test_owners_are_forgotten_on_demand_and_begin_again_with_the_next_apply(
    hub: LocalHub, media: str, patch: Any
) -> None:
    await accepted(hub, TEST_CM, config_map({"key": "1"}), "first")
    stripped = await hub.patch(TEST_CM, patch, media)
    assert "managedFields" not in stripped.json["metadata"]
    still = await hub.patch(TEST_CM, {"data": {"more": "1"}}, MERGE_PATCH)
    assert owners(still.json) == {}
    refused = await applied(hub, TEST_CM, config_map({"key": "2"}), "first")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.key'
    again = await accepted(hub, TEST_CM, config_map({"key": "1"}), "first")
    assert owners(again) == {
        ("first", "Apply"): {"f:data": {"f:key": {}}},
        ("before-first-apply", "Update"): {"f:data": {".": {}, "f:key": {}, "f:more": {}}},
    }


async def test_clients_that_do_not_know_of_owners_lose_none(hub: LocalHub) -> None:
    created = await accepted(hub, TEST_CM, config_map({"key": "1"}), "first")
    del created["metadata"]["managedFields"]
    created["metadata"]["labels"] = {"l": "1"}
    updated = await hub.put(TEST_CM, created, {"fieldManager": "unaware"})
    assert set(owners(updated.json)) == {("first", "Apply"), ("unaware", "Update")}


async def test_owners_cannot_be_applied(hub: LocalHub) -> None:
    created = await accepted(hub, TEST_CM, config_map({"key": "1"}), "first")
    refused = await applied(hub, TEST_CM, created, "first")
    assert (refused.status, refused.message) == (400, "metadata.managedFields must be nil")


async def test_owners_can_be_rewritten_as_migrations_do(hub: LocalHub) -> None:
    """A manager that updated becomes one that applies: what it leaves out goes then."""
    await hub.post(CONFIG_MAPS, config_map({"keep": "1", "drop": "1"}), {"fieldManager": "migrating"})
    live = (await hub.get(TEST_CM)).json
    [entry] = live["metadata"]["managedFields"]
    migrated = {**entry, "operation": "Apply", "manager": "applier"}
    patch = [
        {"op": "replace", "path": "/metadata/managedFields", "value": [migrated]},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
    ]
    assert (await hub.patch(TEST_CM, patch, JSON_PATCH)).status == 200
    result = await accepted(hub, TEST_CM, config_map({"keep": "1"}), "applier")
    assert result["data"] == {"keep": "1"}


# --- what an apply may say ------------------------------------------------------------------------


async def test_an_apply_creates_what_is_not_there_unless_it_names_an_identity(hub: LocalHub) -> None:
    named = config_map({"key": "1"})
    named["metadata"]["uid"] = "b7a7cbb5-3a4f-4f4e-8f0e-1d6a1f3f2a11"
    with hub.writes_nothing():
        refused = await applied(hub, TEST_CM, named, "first")
    assert refused.status == 409
    assert "and no existing object was found" in refused.message
    created = await applied(hub, TEST_CM, config_map({"key": "1"}), "first")
    assert created.status == 201
    stale = config_map({"key": "2"})
    stale["metadata"]["resourceVersion"] = "1"
    assert (await applied(hub, TEST_CM, stale, "first")).status == 409
    stale["metadata"]["resourceVersion"] = created.json["metadata"]["resourceVersion"]
    assert (await applied(hub, TEST_CM, stale, "first")).status == 200


@pytest.mark.parametrize("force", ["true", "1"])
async def test_only_applies_can_be_forced(hub: LocalHub, force: str) -> None:
    await accepted(hub, TEST_CM, config_map({"key": "1"}), "first")
    refused = await hub.patch(TEST_CM, {"data": {"key": "2"}}, MERGE_PATCH, {"force": force})
    assert refused.status == 422
    assert "may not be specified for non-apply patch" in refused.message


async def test_a_dry_run_tells_of_conflicts_and_results_and_writes_nothing(hub: LocalHub) -> None:
    await accepted(hub, TEST_CM, config_map({"key": "1"}), "first")
    with hub.writes_nothing():
        query = {"fieldManager": "second", "dryRun": "All"}
        assert (await hub.patch(TEST_CM, config_map({"key": "2"}), APPLY_PATCH, query)).status == 409
        forced = await hub.patch(TEST_CM, config_map({"key": "2"}), APPLY_PATCH, {**query, "force": "true"})
    assert forced.json["data"] == {"key": "2"}


async def test_a_configuration_may_be_yaml(hub: LocalHub) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: test-cm}\ndata: {key: '1'}\n"
    assert (await applied(hub, TEST_CM, text, "first")).json["data"] == {"key": "1"}
