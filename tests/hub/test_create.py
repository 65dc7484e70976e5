"""create: what is stored, and what is refused."""

from __future__ import annotations

from itertools import chain, repeat

import pytest
from hub_harness import CONFIG_MAPS, DEPLOYMENTS, MERGE_PATCH, PODS, SERVICES, LocalHub, deployment, pod


async def test_a_created_object_is_answered_as_it_is_stored(any_hub: LocalHub) -> None:
    created = await any_hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})

    assert created.status == 201
    assert created.content_type == "application/json"
    obj = created.json
    assert list(obj) == ["kind", "apiVersion", "metadata", "data"]
    assert obj["metadata"]["namespace"] == "default"
    assert obj["metadata"]["creationTimestamp"] == "2024-05-01T12:00:00Z"
    assert obj["metadata"]["resourceVersion"] == str(any_hub.store.revision)
    assert (await any_hub.get(f"{CONFIG_MAPS}/a")).body == created.body


async def test_a_name_is_taken_once(any_hub: LocalHub) -> None:
    await any_hub.config_map("a")

    with any_hub.writes_nothing():
        again = await any_hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}})

    assert again.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "a" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "a", "kind": "configmaps"},
        "code": 409,
    }


async def test_objects_need_a_namespace_that_exists(hub: LocalHub) -> None:
    answer = await hub.post("/api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "a"}})

    assert (answer.status, answer.message) == (404, 'namespaces "nowhere" not found')


async def test_creating_an_object_in_a_terminating_namespace_is_refused(hub: LocalHub) -> None:
    await hub.create("/api/v1/namespaces", {"metadata": {"name": "old"}})
    await hub.delete("/api/v1/namespaces/old")

    answer = await hub.post("/api/v1/namespaces/old/configmaps", {"metadata": {"name": "a"}})

    assert answer.status == 403
    assert answer.message == (
        'configmaps "a" is forbidden: unable to create new content in namespace old because it is being terminated'
    )
    assert answer.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"metadata": {"name": "a", "namespace": "other"}},
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            {"metadata": {"name": "a", "resourceVersion": "5"}},
            "resourceVersion should not be set on objects to be created",
        ),
        (
            {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}},
            'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): '
            "unknown conversion",
        ),
        (
            {"kind": "Foo", "apiVersion": "v1", "metadata": {"name": "a"}},
            'Foo in version "v1" cannot be handled as a ConfigMap: no kind "Foo" is registered for version "v1" in '
            'scheme "pkg/api/legacyscheme/scheme.go:30"',
        ),
        (
            {"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "a"}},
            'ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version '
            '"v2" in scheme "pkg/api/legacyscheme/scheme.go:30"',
        ),
        (
            {"metadata": {"name": "a"}, "data": {"k": 1}},
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct '
            "field ConfigMap.data of type string",
        ),
        (
            {"metadata": []},
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal array into Go struct '
            "field ConfigMap.metadata of type v1.ObjectMeta",
        ),
    ],
)
async def test_a_body_that_is_not_what_the_path_is_about_is_a_bad_request(
    hub: LocalHub, body: object, message: str
) -> None:
    with hub.writes_nothing():
        answer = await hub.post(CONFIG_MAPS, body)

    assert (answer.status, answer.reason, answer.message) == (400, "BadRequest", message)


@pytest.mark.parametrize("body", [{}, {"metadata": {}}, "null"])
async def test_an_object_without_a_name_is_invalid(hub: LocalHub, body: object) -> None:
    answer = await hub.post(CONFIG_MAPS, body)

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == 'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    cause = {
        "reason": "FieldValueRequired",
        "message": "Required value: name or generateName is required",
        "field": "metadata.name",
    }
    assert answer.json["details"] == {"kind": "ConfigMap", "causes": [cause]}


async def test_a_bad_name_is_invalid_and_named(hub: LocalHub) -> None:
    answer = await hub.post(CONFIG_MAPS, {"metadata": {"name": "Not_Good"}})

    assert answer.status == 422
    assert answer.message.startswith('ConfigMap "Not_Good" is invalid: metadata.name: Invalid value: "Not_Good": ')


async def test_what_only_the_server_sets_is_not_taken_from_a_client(hub: LocalHub) -> None:
    metadata = {
        "name": "a",
        "uid": "11111111-2222-3333-4444-555555555555",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 7,
        "selfLink": "/x",
    }

    created = await hub.create(CONFIG_MAPS, {"metadata": metadata})

    assert created["metadata"]["uid"] != metadata["uid"]
    assert created["metadata"]["creationTimestamp"] == "2024-05-01T12:00:00Z"
    assert not created["metadata"].keys() & {"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}


# --- generateName ---------------------------------------------------------------------------------


async def test_a_name_is_generated_from_its_beginning(hub: LocalHub) -> None:
    hub.suffix = lambda: "x2x4z"

    created = await hub.create(CONFIG_MAPS, {"metadata": {"generateName": "job-"}})

    assert created["metadata"]["name"] == "job-x2x4z"
    assert created["metadata"]["generateName"] == "job-"


async def test_a_long_beginning_leaves_room_for_the_suffix(hub: LocalHub) -> None:
    created = await hub.create(CONFIG_MAPS, {"metadata": {"generateName": "a" * 100}})

    assert len(created["metadata"]["name"]) == 63


async def test_a_generated_name_that_is_taken_is_tried_again(hub: LocalHub) -> None:
    await hub.config_map("job-aaaaa")
    hub.suffix = chain(repeat("aaaaa", 3), ["bbbbb"]).__next__

    created = await hub.create(CONFIG_MAPS, {"metadata": {"generateName": "job-"}})

    assert created["metadata"]["name"] == "job-bbbbb"


async def test_a_create_without_a_free_generated_name_may_be_retried(hub: LocalHub) -> None:
    await hub.config_map("job-aaaaa")
    hub.suffix = lambda: "aaaaa"

    answer = await hub.post(CONFIG_MAPS, {"metadata": {"generateName": "job-"}})

    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.message == (
        'configmaps "job-aaaaa" already exists, the server was not able to generate a unique name for the object'
    )
    assert answer.json["details"]["retryAfterSeconds"] == 1


async def test_a_name_that_was_given_is_not_replaced_by_a_generated_one(hub: LocalHub) -> None:
    await hub.config_map("a")

    with hub.writes_nothing():
        answer = await hub.post(CONFIG_MAPS, {"metadata": {"name": "a", "generateName": "b-"}})

    assert (answer.status, answer.message) == (409, 'configmaps "a" already exists')


# --- generation, defaults and pools ---------------------------------------------------------------


async def test_only_kinds_with_a_desired_state_count_generations(hub: LocalHub) -> None:
    assert "generation" not in (await hub.config_map("a"))["metadata"]
    assert (await hub.create(DEPLOYMENTS, deployment("a")))["metadata"]["generation"] == 1


async def test_defaults_are_stored(hub: LocalHub) -> None:
    created = await hub.create(DEPLOYMENTS, deployment("a"))

    assert created["spec"]["replicas"] == 1
    assert created["spec"]["strategy"]["type"] == "RollingUpdate"
    assert created["spec"]["template"]["spec"]["restartPolicy"] == "Always"


async def test_the_status_of_a_new_object_is_not_taken_from_a_client(hub: LocalHub) -> None:
    created = await hub.create(DEPLOYMENTS, deployment("a") | {"status": {"replicas": 5}})

    assert created["status"] == {}


async def test_a_pod_needs_its_account(hub: LocalHub) -> None:
    answer = await hub.post(PODS, pod("a", serviceAccountName="nobody"))

    assert answer.status == 403
    assert answer.message == (
        'pods "a" is forbidden: error looking up service account default/nobody: serviceaccount "nobody" not found'
    )


async def test_services_never_share_an_address(any_hub: LocalHub) -> None:
    spec = {"ports": [{"port": 80}]}
    addresses = set()
    for number in range(20):
        created = await any_hub.create(SERVICES, {"metadata": {"name": f"s{number}"}, "spec": spec})
        addresses.add(created["spec"]["clusterIP"])
        if number % 3 == 0:
            await any_hub.delete(f"{SERVICES}/s{number}")
            addresses.remove(created["spec"]["clusterIP"])

    assert len(addresses) == 13
    taken = await any_hub.post(
        SERVICES, {"metadata": {"name": "t"}, "spec": {**spec, "clusterIP": sorted(addresses)[0]}}
    )
    assert taken.status == 422
    assert "provided IP is already allocated" in taken.message


async def test_an_address_is_given_back_when_its_service_is_refused(hub: LocalHub) -> None:
    spec = {"ports": [{"port": 80}], "clusterIP": "10.96.0.77"}
    await hub.create(SERVICES, {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}})

    assert (await hub.post(SERVICES, {"metadata": {"name": "a"}, "spec": spec})).status == 409
    assert (await hub.post(SERVICES, {"metadata": {"name": "B"}, "spec": spec})).status == 422
    assert (await hub.post(SERVICES, {"metadata": {"name": "c"}, "spec": spec}, {"dryRun": "All"})).status == 201
    assert (await hub.post(SERVICES, {"metadata": {"name": "d"}, "spec": spec})).status == 201


# --- who wrote it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "agent", "manager"),
    [
        ("", "kubectl/v1.33.0 (linux/amd64)", "kubectl"),
        ("fieldManager=me", "kubectl/v1.33.0", "me"),
        ("", "/nothing", "unknown"),
        ("", "a\tb", "ab"),
    ],
)
async def test_the_manager_is_the_parameter_or_the_program(hub: LocalHub, query: str, agent: str, manager: str) -> None:
    created = await hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}, query, user_agent=agent)

    (entry,) = created.json["metadata"]["managedFields"]
    assert entry["manager"] == manager
    assert entry["operation"] == "Update"
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:k": {}}}


async def test_owners_that_are_there_twice_are_stored_once_with_a_warning(hub: LocalHub) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "11111111-2222-3333-4444-555555555555"}

    created = await hub.post(CONFIG_MAPS, {"metadata": {"name": "a", "ownerReferences": [owner, owner]}})

    assert created.json["metadata"]["ownerReferences"] == [owner]
    assert len(created.warnings) == 1
    assert created.warnings[0].startswith('299 - ".metadata.ownerReferences contains duplicate entries')


async def test_the_names_of_objects_may_look_like_anything_in_json(hub: LocalHub) -> None:
    """The place of the resourceVersion in stored bytes is not fooled by what comes before it."""
    value = 'a","resourceVersion":"7","x":"'
    answer = await hub.post(
        CONFIG_MAPS, {"metadata": {"name": "a", "annotations": {"resourceVersion": value}}, "data": {"k": value}}
    )
    patched = await hub.patch(f"{CONFIG_MAPS}/a", {"data": {"l": value}}, MERGE_PATCH)

    assert patched.version == answer.version + 1
    assert patched.json["data"] == {"k": value, "l": value}
    assert patched.json["metadata"]["annotations"] == {"resourceVersion": value}


async def test_of_very_many_errors_the_first_are_reported(hub: LocalHub) -> None:
    wrong = {"metadata": {"name": "a"}, "data": {f"not a key {number}": "" for number in range(20_000)}}

    answer = await hub.post(CONFIG_MAPS, wrong)

    assert answer.status == 422
    assert len(answer.json["details"]["causes"]) == 500
    assert answer.message.endswith(", and 19500 errors more]")
    assert len(answer.body) < 1_000_000


async def test_a_pod_of_a_priority_class_that_is_not_there_is_refused(hub: LocalHub) -> None:
    with hub.writes_nothing():
        answer = await hub.post(PODS, pod("hasty", priorityClassName="high"))
    assert answer.status == 403
    assert answer.json["message"] == 'pods "hasty" is forbidden: no PriorityClass with name high was found'
    await hub.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 7})
    assert (await hub.create(PODS, pod("hasty", priorityClassName="high")))["spec"]["priority"] == 7


async def test_a_webhook_is_stored_with_a_warning_that_it_is_never_called(hub: LocalHub) -> None:
    answer = await hub.post(
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", {"metadata": {"name": "w"}}
    )
    assert answer.status == 201
    assert answer.warnings == ['299 - "webhooks are stored, but this server does not call them"']


@pytest.mark.parametrize(
    ("plural", "spec", "parent", "member", "default"),
    [
        (
            "networking.k8s.io/v1/ingressclasses",
            {"controller": "ex.test/c", "parameters": {"kind": "K", "name": "n"}},
            "parameters",
            "scope",
            "Cluster",
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
            {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}},
            "limited",
            "nominalConcurrencyShares",
            30,
        ),
    ],
)
async def test_a_field_that_is_written_as_null_when_it_is_absent_gets_its_default(
    hub: LocalHub, plural: str, spec: dict[str, object], parent: str, member: str, default: object
) -> None:
    created = await hub.post(f"/apis/{plural}", {"metadata": {"name": "a"}, "spec": spec})

    assert created.status == 201, created.json
    assert created.json["spec"][parent][member] == default


async def test_a_grpc_probe_without_a_service_asks_for_the_empty_one(hub: LocalHub) -> None:
    container = {"name": "a", "image": "a", "startupProbe": {"grpc": {"port": 1}}}
    template = {"metadata": {"name": "a"}, "template": {"spec": {"containers": [container]}}}
    created = await hub.post("/api/v1/namespaces/default/podtemplates", template)

    assert created.status == 201, created.json
    assert created.json["template"]["spec"]["containers"][0]["startupProbe"]["grpc"] == {"port": 1, "service": ""}
