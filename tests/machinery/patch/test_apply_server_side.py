"""Server-side apply: conflicts, shared fields, removal, first applies, kubectl's migration."""

import copy
from typing import Any

import pytest

from farflung.apis.definitions import schema
from farflung.machinery.errors import ApiError
from farflung.machinery.fields import managed
from farflung.machinery.fields.sets import path
from farflung.machinery.patch.apply import LAST_APPLIED, apply

Obj = dict[str, Any]

CONFIG_MAP = schema("io.k8s.api.core.v1.ConfigMap")
DEPLOYMENT = schema("io.k8s.api.apps.v1.Deployment")
SERVICE = schema("io.k8s.api.core.v1.Service")


def time(second: int) -> str:
    return f"2024-01-01T00:00:{second:02}Z"


def config_map(data: Obj | None = None, **metadata: Any) -> Obj:
    obj: Obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}
    return obj if data is None else {**obj, "data": data}


def applied(live: Obj | None, configuration: Obj, by: str, second: int = 0, *, force: bool = False, **more: Any) -> Obj:
    before = copy.deepcopy((live, configuration))
    kind = more.pop("schema", CONFIG_MAP)
    version = configuration.get("apiVersion", "v1")
    result = apply(
        live, configuration, kind, manager=by, force=force, now=time(second), **{"api_version": version, **more}
    )
    assert before == (live, configuration), "an argument was changed"
    return result


def updated(live: Obj | None, new: Obj, by: str, second: int = 0) -> Obj:
    entries = managed.after_update(new, live, CONFIG_MAP, manager=by, api_version="v1", now=time(second))
    return {**new, "metadata": {**new["metadata"], "managedFields": entries}}


def owners(obj: Obj) -> dict[str, Any]:
    return {one["manager"]: one["fieldsV1"] for one in obj["metadata"].get("managedFields", [])}


def refused(live: Obj | None, configuration: Obj, by: str = "m", **more: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        applied(live, configuration, by, **more)
    return caught.value


# --- one applier ----------------------------------------------------------------------------------


def test_applying_what_is_not_there_creates_it() -> None:
    created = applied(None, config_map({"x": "1"}), "one", 1)
    assert created["data"] == {"x": "1"}
    assert created["metadata"]["managedFields"] == [
        {
            "manager": "one",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": time(1),
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:x": {}}},
        }
    ]


def test_applying_the_same_again_changes_nothing_not_even_the_time() -> None:
    created = applied(None, config_map({"x": "1"}), "one", 1)
    again = applied(created, config_map({"x": "1"}), "one", 2)
    assert again == created
    assert again["metadata"]["managedFields"] is created["metadata"]["managedFields"]


def test_fields_that_are_left_out_are_removed() -> None:
    created = applied(None, config_map({"x": "1", "y": "1"}), "one", 1)
    less = applied(created, config_map({"y": "1"}), "one", 2)
    assert less["data"] == {"y": "1"}
    assert less["metadata"]["managedFields"][0]["time"] == time(2)


def test_a_manager_that_applies_nothing_owns_nothing_and_empty_maps_are_removed() -> None:
    created = applied(None, config_map({"x": "1"}), "one", 1)
    assert applied(created, config_map(), "one", 2) == config_map()


def test_an_applier_keeps_one_entry_when_it_changes_the_version() -> None:
    created = applied(None, config_map({"x": "1"}), "one", 1)
    entries = applied(created, {**config_map({"x": "1"}), "apiVersion": "v2"}, "one", 2)["metadata"]["managedFields"]
    assert [(one["apiVersion"], one["time"]) for one in entries] == [("v2", time(1))]


def test_fields_that_the_server_will_drop_are_not_owned() -> None:
    created = applied(None, config_map({"x": "1"}, labels={"a": "b"}), "one", reset=path("data"))
    assert owners(created) == {"one": {"f:metadata": {"f:labels": {"f:a": {}}}}}


def test_a_null_is_applied_like_a_value() -> None:
    created = applied(None, config_map({"x": "1"}), "one", 1)
    nulled = applied(created, config_map({"x": None}), "one", 2)
    assert nulled["data"] == {"x": None}
    assert owners(nulled) == owners(created)


# --- several appliers -----------------------------------------------------------------------------


def test_a_second_applier_adds_its_own_fields() -> None:
    both = applied(applied(None, config_map({"x": "1"}), "one"), config_map({"z": "1"}), "two")
    assert both["data"] == {"x": "1", "z": "1"}
    assert owners(both) == {"one": {"f:data": {"f:x": {}}}, "two": {"f:data": {"f:z": {}}}}


def test_the_same_value_is_shared_and_such_an_apply_has_no_time() -> None:
    one = applied(None, config_map({"x": "1"}), "one", 1)
    both = applied(one, config_map({"x": "1"}), "two", 2)
    entries = {entry["manager"]: entry for entry in both["metadata"]["managedFields"]}
    assert entries["two"]["fieldsV1"] == entries["one"]["fieldsV1"]
    assert "time" not in entries["two"]
    left = applied(both, config_map(), "one", 3)
    assert left["data"] == {"x": "1"}
    assert owners(left) == {"two": {"f:data": {"f:x": {}}}}


def test_another_value_is_a_conflict_that_names_field_and_owner() -> None:
    one = applied(None, config_map({"x": "1", "y": "1"}), "one")
    error = refused(one, config_map({"x": "2"}), "two")
    assert error.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'Apply failed with 1 conflict: conflict with "one": .data.x',
        "reason": "Conflict",
        "details": {
            "causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.x"}]
        },
        "code": 409,
    }


def test_conflicts_below_a_long_key_are_listed_until_there_are_enough() -> None:
    def configured(value: str) -> Obj:
        env = [{"name": f"e{at}", "value": value} for at in range(1_000)]
        pod = {"metadata": {}, "spec": {"containers": [{"name": "k" * 100_000, "env": env}]}}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"template": pod}}

    error = refused(applied(None, configured("1"), "one", schema=DEPLOYMENT), configured("2"), "two", schema=DEPLOYMENT)
    assert error.message.startswith('Apply failed with 1000 conflicts: conflicts with "one":\n- .spec.template.spec.')
    assert error.message.endswith('"].value\nand 997 conflicts more')
    assert error.details is not None
    assert len(error.details["causes"]) == 3


def test_several_conflicts_are_listed_by_owner() -> None:
    live = applied(None, config_map({"x": "1", "y": "1"}), "one")
    live = updated(live, {**live, "data": {**live["data"], "z": "1"}}, "two")
    live["metadata"]["managedFields"][1]["subresource"] = "status"
    error = refused(live, config_map({"x": "2", "y": "2", "z": "2"}), "three")
    assert error.message == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .data.x\n- .data.y\n'
        'conflicts with "two" with subresource "status" using v1:\n- .data.z'
    )
    assert error.details is not None
    assert [cause["message"] for cause in error.details["causes"]] == [
        'conflict with "one"',
        'conflict with "one"',
        'conflict with "two" with subresource "status" using v1',
    ]


def test_force_takes_the_fields() -> None:
    one = applied(None, config_map({"x": "1", "y": "1"}), "one", 1)
    forced = applied(one, config_map({"x": "2"}), "two", 2, force=True)
    assert forced["data"] == {"x": "2", "y": "1"}
    assert owners(forced) == {"one": {"f:data": {"f:y": {}}}, "two": {"f:data": {"f:x": {}}}}
    assert [entry["time"] for entry in forced["metadata"]["managedFields"]] == [time(1), time(2)]


def test_an_update_takes_fields_without_asking_and_the_applier_conflicts_then() -> None:
    one = applied(None, config_map({"x": "1"}), "one", 1)
    patched = updated(one, {**one, "data": {"x": "2"}}, "patcher", 2)
    assert owners(patched) == {"patcher": {"f:data": {"f:x": {}}}}
    error = refused(patched, config_map({"x": "1"}), "one")
    assert error.message == 'Apply failed with 1 conflict: conflict with "patcher" using v1: .data.x'


def test_an_object_without_owners_belongs_to_before_first_apply() -> None:
    live = config_map({"u": "1", "y": "5"}, finalizers=["a/b"])
    error = refused(live, config_map({"u": "2"}), "three")
    assert error.message == 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.u'
    forced = applied(live, config_map({"u": "2"}), "three", force=True)
    assert forced["data"] == {"u": "2", "y": "5"}
    assert owners(forced) == {
        "three": {"f:data": {"f:u": {}}},
        "before-first-apply": {
            "f:data": {".": {}, "f:y": {}},
            "f:metadata": {"f:finalizers": {".": {}, 'v:"a/b"': {}}},
        },
    }


# --- lists ----------------------------------------------------------------------------------------


def deployment(containers: list[Obj], **spec: Any) -> Obj:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template, **spec},
    }


def containers(obj: Obj) -> list[Obj]:
    result: list[Obj] = obj["spec"]["template"]["spec"]["containers"]
    return result


def test_items_are_merged_by_key_and_given_up_item_by_item() -> None:
    first = deployment(
        [{"name": "c1", "image": "i1", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}]}],
        replicas=2,
    )
    live = applied(None, first, "one", schema=DEPLOYMENT)
    containers(live)[0]["ports"][0]["protocol"] = "TCP"  # as defaulting does
    second = deployment(
        [{"name": "c1", "env": [{"name": "B", "value": "2"}]}, {"name": "c2", "image": "i2", "args": ["x"]}]
    )
    live = applied(live, second, "two", schema=DEPLOYMENT)
    assert containers(live) == [
        {
            "name": "c1",
            "image": "i1",
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        },
        {"name": "c2", "image": "i2", "args": ["x"]},
    ]
    third = deployment([{"name": "c1", "image": "i1"}])
    live = applied(live, third, "one", schema=DEPLOYMENT)
    assert "replicas" not in live["spec"]
    assert containers(live)[0] == {"name": "c1", "image": "i1", "env": [{"name": "B", "value": "2"}]}
    assert owners(live)["two"]["f:spec"]["f:template"]["f:spec"]["f:containers"] == {
        'k:{"name":"c1"}': {
            ".": {},
            "f:name": {},
            "f:env": {'k:{"name":"B"}': {".": {}, "f:name": {}, "f:value": {}}},
        },
        'k:{"name":"c2"}': {".": {}, "f:args": {}, "f:image": {}, "f:name": {}},
    }


def test_conflicts_in_lists_name_the_item() -> None:
    live = applied(None, deployment([{"name": "c", "args": ["x"]}]), "two", schema=DEPLOYMENT)
    error = refused(live, deployment([{"name": "c", "args": ["y"]}]), schema=DEPLOYMENT)
    assert error.message.endswith('conflict with "two": .spec.template.spec.containers[name="c"].args')


def test_a_key_that_is_left_out_has_its_default_and_is_not_claimed() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 81}]}}
    created = applied(None, service, "one", schema=SERVICE)
    assert owners(created) == {
        "one": {"f:spec": {"f:ports": {'k:{"port":81,"protocol":"TCP"}': {".": {}, "f:port": {}}}}}
    }


def test_members_of_a_set_are_owned_by_their_appliers() -> None:
    live = applied(None, config_map(finalizers=["e/1"]), "three")
    live = applied(live, config_map(finalizers=["e/2"]), "four")
    assert live["metadata"]["finalizers"] == ["e/1", "e/2"]
    live = applied(live, config_map(labels={"a": "1"}), "three")
    assert live["metadata"]["finalizers"] == ["e/2"]
    assert owners(live) == {
        "three": {"f:metadata": {"f:labels": {"f:a": {}}}},
        "four": {"f:metadata": {"f:finalizers": {'v:"e/2"': {}}}},
    }


# --- what cannot be applied -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"metadata": {}}, "invalid object type: /, Kind="),
        ({"kind": "ConfigMap"}, "invalid object type: /, Kind=ConfigMap"),
        ({"apiVersion": "v1", "kind": "Secret"}, "invalid object type: /v1, Kind=Secret"),
        ({"apiVersion": "g/v2", "kind": "ConfigMap"}, "invalid object type: g/v2, Kind=ConfigMap"),
        ({"apiVersion": 1, "kind": []}, "invalid object type: /, Kind="),
        (config_map(managedFields=[]), "metadata.managedFields must be nil"),
    ],
)
def test_objects_of_another_type_and_owners_are_bad_requests(configuration: Obj, message: str) -> None:
    error = refused(None, configuration, kind="ConfigMap", api_version="v1")
    assert (error.code, error.reason, error.message) == (400, "BadRequest", message)


def test_what_is_not_of_the_type_is_a_bad_request() -> None:
    error = refused(None, {**config_map(namespace="n"), "foo": 1})
    assert error.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": (
            "failed to create typed patch object (n/a; /v1, Kind=ConfigMap): .foo: field not declared in schema"
        ),
        "reason": "BadRequest",
        "code": 400,
    }


def test_nulls_in_place_of_metadata_are_fine() -> None:
    assert applied(None, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": None}, "m")["metadata"] == {}
    live = applied(None, config_map({"x": "1"}), "m")
    assert applied(live, {"apiVersion": "v1", "kind": "ConfigMap"}, "m") == config_map()
    assert applied(live, config_map({"x": "1"}, managedFields=None), "m") == live


def test_endless_nesting_is_a_bad_request() -> None:
    deep: Any = "bottom"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ApiError, match="deeply"):
        apply(None, config_map({"x": deep}), CONFIG_MAP, manager="m", force=False, api_version="v1", now="")


# --- kubectl --------------------------------------------------------------------------------------


def client_side(data: Obj, last: str) -> Obj:
    return updated(None, config_map(data, annotations={LAST_APPLIED: last}), "kubectl-client-side-apply")


LAST = '{"apiVersion":"v1","data":{"a":"1","b":"2"},"kind":"ConfigMap","metadata":{"name":"a"}}\n'


def test_kubectl_takes_over_what_it_applied_on_the_clients_side() -> None:
    live = client_side({"a": "1", "b": "2"}, LAST)
    moved = applied(live, config_map({"a": "3"}), "kubectl")
    assert moved["data"] == {"a": "3", "b": "2"}
    assert moved["metadata"]["annotations"][LAST_APPLIED] == (
        '{"apiVersion":"v1","data":{"a":"3"},"kind":"ConfigMap","metadata":{"name":"a"}}\n'
    )
    assert "Apply failed with 1 conflict" in refused(live, config_map({"a": "3"}), "other").message


@pytest.mark.parametrize(
    "last",
    [
        "",
        "no JSON",
        "[]",
        "{}",
        LAST.replace('"v1"', '"v2"'),
        LAST.replace('"1"', '"changed since"'),
        LAST.replace('"a":"1",', ""),
    ],
)
def test_kubectl_takes_over_nothing_else(last: str) -> None:
    error = refused(client_side({"a": "1", "b": "2"}, last), config_map({"a": "3"}), "kubectl")
    assert error.message.endswith('conflict with "kubectl-client-side-apply" using v1: .data.a')


def test_only_conflicts_that_remain_are_reported() -> None:
    live = client_side({"a": "1", "b": "changed since"}, LAST)
    error = refused(live, config_map({"a": "3", "b": "3"}), "kubectl")
    assert error.message.endswith('1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.b')


def test_the_kept_configuration_is_written_as_go_writes_it_and_without_itself() -> None:
    live = client_side({"a": "1"}, LAST)
    own = config_map({"a": "1", "c": "<&>\u2028é"}, annotations={LAST_APPLIED: "old", "x": "y"})
    assert applied(live, own, "kubectl", force=True)["metadata"]["annotations"][LAST_APPLIED] == (
        '{"apiVersion":"v1","data":{"a":"1","c":"\\u003c\\u0026\\u003e\\u2028é"},"kind":"ConfigMap",'
        '"metadata":{"annotations":{"x":"y"},"name":"a"}}\n'
    )


def test_a_configuration_too_large_to_keep_is_dropped() -> None:
    live = client_side({"a": "1"}, LAST)
    large = applied(live, config_map({"a": "1", "b": "x" * 300_000}), "kubectl")
    assert LAST_APPLIED not in large["metadata"]["annotations"]


def test_a_live_list_with_duplicate_keys_must_be_repaired_by_the_client() -> None:
    account = schema("io.k8s.api.core.v1.ServiceAccount")
    wanted: Obj = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}
    wanted["secrets"] = [{"name": "b"}]
    live = applied(None, wanted, "me", schema=account)
    live = {**live, "secrets": [{"name": "b"}, {}]}
    with pytest.raises(ApiError) as refusal:
        applied(live, {**wanted, "secrets": [{"name": "c"}]}, "me", schema=account)
    assert refusal.value.code == 400
    assert "omits key field" in refusal.value.message
