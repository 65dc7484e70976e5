"""Who owns what after creates, updates and patches."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.definitions import schema
from farflung.machinery.errors import ApiError
from farflung.machinery.fields import managed
from farflung.machinery.fields.sets import path
from farflung.machinery.fields.shapes import no_reference
from farflung.machinery.schema.model import Schema

Obj = dict[str, Any]

CONFIG_MAP = schema("io.k8s.api.core.v1.ConfigMap")
DEPLOYMENT = schema("io.k8s.api.apps.v1.Deployment")
POD = schema("io.k8s.api.core.v1.Pod")
THING = Schema(
    {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    },
    no_reference,
)


def time(second: int) -> str:
    return f"2024-01-01T00:00:{second:02}Z"


def config_map(data: Obj | None = None, **metadata: Any) -> Obj:
    obj: Obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n", **metadata}}
    return obj if data is None else {**obj, "data": data}


def written(new: Obj, old: Obj | None, by: str, second: int = 0, kind: Schema = CONFIG_MAP, **options: Any) -> Obj:
    """`new` as it would be stored."""
    new = copy.deepcopy(new)
    arguments = copy.deepcopy((new, old))
    entries = managed.after_update(
        new, old, kind, manager=by, api_version=new["apiVersion"], now=time(second), **options
    )
    assert arguments == (new, old), "an argument was changed"
    new["metadata"]["managedFields"] = entries
    return new


def owners(obj: Obj) -> dict[str, Any]:
    return {one["manager"]: one["fieldsV1"] for one in obj["metadata"]["managedFields"]}


def test_the_creator_owns_what_it_wrote() -> None:
    new = config_map({"x": "1"}, labels={"l": "1"}, finalizers=["example.com/f"])
    assert written(new, None, "replay", 1)["metadata"]["managedFields"] == [
        {
            "manager": "replay",
            "operation": "Update",
            "apiVersion": "v1",
            "time": time(1),
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:data": {".": {}, "f:x": {}},
                "f:metadata": {
                    "f:finalizers": {".": {}, 'v:"example.com/f"': {}},
                    "f:labels": {".": {}, "f:l": {}},
                },
            },
        }
    ]


def test_an_object_without_fields_has_no_owners() -> None:
    assert owners(written(config_map(), None, "m")) == {}


def test_structs_of_go_types_are_not_owned_what_is_in_them_is() -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "containers": [
                        {
                            "name": "c",
                            "command": ["x"],
                            "env": [{"name": "A", "value": "1"}],
                            "ports": [{"containerPort": 80, "protocol": "UDP"}],
                            "resources": {"limits": {"cpu": "1"}},
                        }
                    ],
                    "securityContext": {},
                    "tolerations": [{"key": "a"}],
                    "volumes": [{"name": "v", "emptyDir": {}}],
                },
            },
        },
        "status": {},
    }
    assert owners(written(deployment, None, "m", kind=DEPLOYMENT))["m"] == {
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {
                    "f:containers": {
                        'k:{"name":"c"}': {
                            ".": {},
                            "f:command": {},
                            "f:env": {".": {}, 'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}},
                            "f:name": {},
                            "f:ports": {
                                ".": {},
                                'k:{"containerPort":80,"protocol":"UDP"}': {
                                    ".": {},
                                    "f:containerPort": {},
                                    "f:protocol": {},
                                },
                            },
                            "f:resources": {".": {}, "f:limits": {".": {}, "f:cpu": {}}},
                        }
                    },
                    "f:securityContext": {},
                    "f:tolerations": {},
                    "f:volumes": {".": {}, 'k:{"name":"v"}': {".": {}, "f:emptyDir": {}, "f:name": {}}},
                },
            },
        }
    }


def test_a_custom_resource_is_owned_from_its_top_fields_down() -> None:
    thing = {"apiVersion": "e/v1", "kind": "Thing", "metadata": {"name": "t", "labels": {"a": "b"}}, "spec": {"a": "x"}}
    assert owners(written(thing, None, "m", kind=THING))["m"] == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {".": {}, "f:a": {}},
    }


def test_what_the_server_drops_is_not_owned() -> None:
    thing = {"apiVersion": "e/v1", "kind": "Thing", "metadata": {}, "spec": {"a": "x"}, "status": {"phase": "P"}}
    created = written(thing, None, "m", kind=THING, reset=path("status"))
    assert owners(created) == {"m": {"f:spec": {".": {}, "f:a": {}}}}
    del created["status"]
    patched = {**created, "spec": {"a": "no"}, "status": {"phase": "P"}}
    through_status = written(patched, created, "m", kind=THING, reset=path("spec"), subresource="status")
    assert [one["fieldsV1"] for one in through_status["metadata"]["managedFields"]] == [
        {"f:spec": {".": {}, "f:a": {}}},
        {"f:status": {".": {}, "f:phase": {}}},
    ]


def test_another_manager_owns_what_it_adds() -> None:
    first = written(config_map({"x": "1"}), None, "one", 1)
    second = written(config_map({"x": "1", "y": "1"}), first, "two", 2)
    assert owners(second) == {"one": {"f:data": {".": {}, "f:x": {}}}, "two": {"f:data": {"f:y": {}}}}


def test_changing_a_value_takes_the_field_over_and_may_leave_only_the_container() -> None:
    first = written(config_map({"x": "1"}), None, "one", 1)
    second = written(config_map({"x": "2"}), first, "two", 2)
    assert owners(second) == {"one": {"f:data": {}}, "two": {"f:data": {"f:x": {}}}}


def test_repeating_a_value_takes_nothing_and_changes_nothing() -> None:
    first = written(config_map({"x": "1"}), None, "one", 1)
    entries = managed.after_update(config_map({"x": "1"}), first, CONFIG_MAP, manager="two", api_version="v1", now="")
    assert entries is first["metadata"]["managedFields"]


def test_a_removed_field_leaves_every_owner_and_entries_without_fields_are_deleted() -> None:
    first = written(config_map({"x": "1"}), None, "one", 1)
    second = written(config_map({"x": "1", "y": "1"}), first, "two", 2)
    third = written(config_map({"x": "1"}), second, "three", 3)
    assert owners(third) == {"one": {"f:data": {".": {}, "f:x": {}}}}
    assert owners(written(config_map(), third, "four", 4)) == {}


def test_only_entries_that_changed_are_new() -> None:
    first = written(config_map({"x": "1", "z": "1"}), None, "one", 1)
    second = written(config_map({"x": "1", "z": "1", "y": "1"}), first, "two", 2)
    entries = managed.after_update(
        config_map({"x": "1", "z": "1", "y": "2"}), second, CONFIG_MAP, manager="two", api_version="v1", now=time(3)
    )
    assert entries[0] is second["metadata"]["managedFields"][0]
    assert entries[1]["time"] == time(3)


def test_a_manager_has_an_entry_for_each_version_and_subresource() -> None:
    first = written(config_map({"x": "1"}), None, "m", 1)
    new = config_map({"x": "1", "y": "2"})
    entries = managed.after_update(new, first, CONFIG_MAP, manager="m", api_version="v2", now=time(2))
    assert [one["apiVersion"] for one in entries] == ["v1", "v2"]
    entries = managed.after_update(
        new, first, CONFIG_MAP, manager="m", api_version="v1", now=time(2), subresource="status"
    )
    assert [one.get("subresource") for one in entries] == [None, "status"]


def test_entries_are_ordered_by_operation_and_time_and_within_a_second_as_they_came() -> None:
    applied = managed.entry("z", "Apply", "v1", time(9), {"f:data": {"f:z": {}}}, "")
    updates = [
        managed.entry("b", "Update", "v1", time(5), {"f:data": {}}, ""),
        managed.entry("a", "Update", "v1", time(5), {"f:data": {}}, ""),
        managed.entry("c", "Update", "v1", time(1), {"f:data": {}}, ""),
    ]
    assert [one["manager"] for one in managed.arranged([*updates, applied])] == ["z", "c", "b", "a"]


# --- what clients send as managedFields -----------------------------------------------------------


@pytest.mark.parametrize("reset", [[], [{}]])
def test_an_empty_list_forgets_all_owners_and_nothing_is_tracked_until_an_apply(reset: list[Obj]) -> None:
    first = written(config_map({"x": "1"}), None, "one", 1)
    forgotten = written(config_map({"x": "2"}, managedFields=reset), first, "two", 2)
    assert owners(forgotten) == {}
    assert owners(written(config_map({"x": "3"}), forgotten, "three", 3)) == {}


def test_leaving_the_owners_out_keeps_them() -> None:
    first = written(config_map({"x": "1"}), None, "one", 1)
    assert owners(written(config_map({"x": "1"}, managedFields=None), first, "two", 2)) == owners(first)


@pytest.mark.parametrize(
    "garbage",
    [
        "text",
        [1],
        [{"manager": "m", "operation": "Foo", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}],
        [{"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {}}],
        [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsV1": {}}],
        [{"manager": 1, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}],
        [{"manager": "m", "operation": [], "apiVersion": "v1", "fieldsType": "FieldsV1"}],
        [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"x": {}}}],
    ],
)
def test_owners_that_cannot_be_decoded_count_as_left_out(garbage: Any) -> None:
    first = written(config_map({"x": "1"}), None, "one", 1)
    assert owners(written(config_map({"x": "1"}, managedFields=garbage), first, "two", 2)) == owners(first)
    assert owners(written(config_map({"x": "1"}, managedFields=garbage), None, "two", 2)).keys() == {"two"}


def test_clients_may_rewrite_the_owners() -> None:
    first = written(config_map({"x": "1"}), None, "kubectl-client-side-apply", 1)
    moved = [managed.entry("kubectl", "Apply", "v1", time(1), {"f:data": {"f:x": {".": {}}}}, "")]
    second = written(config_map({"x": "1"}, managedFields=moved), first, "kubectl", 2)
    assert second["metadata"]["managedFields"] == [
        managed.entry("kubectl", "Apply", "v1", time(1), {"f:data": {"f:x": {}}}, "")
    ]


def test_a_subresource_does_not_rewrite_the_owners() -> None:
    first = written(config_map({"x": "1"}), None, "one", 1)
    second = written(config_map({"x": "1"}, managedFields=[]), first, "two", 2, subresource="status")
    assert owners(second) == owners(first)


def test_what_cannot_be_typed_leaves_the_owners_alone() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    first = written(pod, None, "one", 1, POD)
    broken = {**pod, "spec": {"containers": [{"name": "c"}, None]}}
    assert owners(written(broken, first, "two", 2, POD)) == owners(first)


def test_endless_nesting_is_a_bad_request() -> None:
    free = Schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, no_reference)
    old, new = ({**config_map(managedFields=[{"manager": "m"}]), "free": nested(end)} for end in "12")
    with pytest.raises(ApiError, match="deeply"):
        managed.after_update(new, old, free, manager="m", api_version="v1", now="")
    assert managed.ignore_time_changes(new, old) == new["metadata"]["managedFields"]


def nested(value: Any) -> Any:
    for _ in range(100_000):
        value = {"a": value}
    return value


# --- many managers --------------------------------------------------------------------------------


def test_the_oldest_updates_are_put_together_when_there_are_too_many() -> None:
    obj = written(config_map({"0": ""}), None, "manager-00", 0)
    for number in range(1, 14):
        obj = written(config_map({str(key): "" for key in range(number + 1)}), obj, f"manager-{number:02}", number)
    entries = obj["metadata"]["managedFields"]
    assert len(entries) == managed.MAX_UPDATE_ENTRIES
    assert entries[0] == managed.entry(
        "ancient-changes",
        "Update",
        "v1",
        time(4),
        {"f:data": {".": {}, **{f"f:{key}": {} for key in range(5)}}},
        "",
    )


def test_updates_of_different_versions_are_not_put_together() -> None:
    entries = [
        managed.entry(f"m{number:02}", "Update", f"v{number}", time(number), {"f:data": {}}, "") for number in range(12)
    ]
    assert managed.arranged(entries) == entries


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["one", "two", "three"]),
            st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"), max_size=4),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_after_any_history_each_key_is_owned_by_the_last_writer_of_its_value(
    history: list[tuple[str, dict[str, str]]],
) -> None:
    obj: Obj | None = None
    expected: dict[str, str] = {}
    before: dict[str, str] = {}
    tracked = True
    for second, (manager, data) in enumerate(history):
        tracked = tracked and (obj is None or bool(obj["metadata"]["managedFields"]))
        obj = written(config_map(data or None), obj, manager, second)
        expected = {key: expected[key] if before.get(key) == value else manager for key, value in data.items()}
        before = data
    assert obj is not None
    found = {
        key[2:]: manager for manager, fields in owners(obj).items() for key in fields.get("f:data", {}) if key != "."
    }
    assert found == (expected if tracked else {})


# --- scale ----------------------------------------------------------------------------------------


def test_scaling_takes_the_replicas_from_their_owners() -> None:
    entries = [
        managed.entry("one", "Apply", "apps/v1", time(1), {"f:spec": {"f:replicas": {}, "f:selector": {}}}, ""),
        managed.entry("two", "Update", "apps/v1", time(2), {"f:spec": {"f:replicas": {}}}, ""),
    ]
    scaled = managed.after_scale(entries, manager="kubectl", api_version="apps/v1")
    assert scaled == [
        managed.entry("one", "Apply", "apps/v1", time(1), {"f:spec": {"f:selector": {}}}, ""),
        managed.entry("kubectl", "Update", "apps/v1", "", {"f:spec": {"f:replicas": {}}}, "scale"),
    ]
    assert managed.after_scale(scaled, manager="kubectl", api_version="apps/v1") == scaled


def test_replicas_without_an_owner_get_none() -> None:
    entries = [managed.entry("one", "Apply", "apps/v1", time(1), {"f:spec": {"f:selector": {}}}, "")]
    assert managed.after_scale(entries, manager="kubectl", api_version="apps/v1") is entries


# --- times ----------------------------------------------------------------------------------------


def test_a_change_of_times_only_is_no_change() -> None:
    old = written(config_map({"x": "1"}, resourceVersion="5"), None, "one", 1)
    new = written(config_map({"x": "1"}), None, "one", 2)
    assert managed.ignore_time_changes(new, old) is old["metadata"]["managedFields"]


def test_a_change_of_anything_else_keeps_the_new_times() -> None:
    old = written(config_map({"x": "1"}), None, "one", 1)
    for new in (
        written(config_map({"x": "2"}), None, "one", 2),
        written(config_map({"x": "1"}), None, "two", 2),
        written(config_map(), None, "two", 2),
    ):
        assert managed.ignore_time_changes(new, old) == new["metadata"]["managedFields"]
