"""Custom resources on a hub: defined, used, redefined."""

from __future__ import annotations

from typing import Any

import pytest
from definitions import DEFINITIONS, INTEGER, STRING, THINGS, definition, struct, thing, version
from hub_harness import MERGE_PATCH, STRATEGIC_PATCH, TABLE, Answer, LocalHub

from farflung.machinery.errors import Obj


@pytest.fixture
async def hub() -> LocalHub:
    return await LocalHub.in_memory().furnish()


async def redefine(hub: LocalHub, *versions: Obj) -> Answer:
    """Give the definition of things other versions."""
    return await hub.patch(f"{DEFINITIONS}/things.example.com", {"spec": {"versions": list(versions)}})


async def specs(hub: LocalHub, path: str = THINGS) -> dict[str, Any]:
    return {one["metadata"]["name"]: one.get("spec") for one in (await hub.get(path)).json["items"]}


async def test_a_definition_can_be_used_as_soon_as_its_creation_is_answered(hub: LocalHub) -> None:
    made = await hub.create(DEFINITIONS, definition())
    assert {one["type"]: one["status"] for one in made["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert (await hub.get("/apis/example.com/v1")).json["resources"][0]["name"] == "things"
    assert "example.com" in [group["name"] for group in (await hub.get("/apis")).json["groups"]]
    assert "apis/example.com/v1" in (await hub.get("/openapi/v3")).json["paths"]
    await hub.create(THINGS, thing("one", a="x"))
    assert await specs(hub) == {"one": {"a": "x"}}


async def test_a_deleted_definition_is_no_longer_served(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition())
    path = f"{DEFINITIONS}/things.example.com"
    await hub.delete(path)
    assert (await hub.patch(path, {"metadata": {"finalizers": None}})).status == 200
    assert (await hub.get(THINGS)).body == b"404 page not found\n"
    assert (await hub.get("/apis/example.com/v1")).status == 404
    assert "apis/example.com/v1" not in (await hub.get("/openapi/v3")).json["paths"]


async def test_a_name_that_another_kind_of_the_group_has_is_not_served(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition())
    second = await hub.create(DEFINITIONS, definition(plural="stuffs"))
    conditions = {one["type"]: one for one in second["status"]["conditions"]}
    assert conditions["NamesAccepted"]["reason"] == "ListKindConflict"
    assert conditions["Established"]["status"] == "False"
    assert (await hub.get("/apis/example.com/v1/stuffs")).status == 404


async def test_a_definition_does_not_replace_a_built_in_kind(hub: LocalHub) -> None:
    shadow = definition(version(a=STRING), version("v2", storage=False, a=STRING), group="networking.k8s.io")
    shadow["metadata"] = {
        "name": "ingresses.networking.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for fun"},
    }
    shadow["spec"]["names"] = {"plural": "ingresses", "kind": "Ingress"}
    await hub.create(DEFINITIONS, shadow)
    answer = await hub.post("/apis/networking.k8s.io/v1/namespaces/default/ingresses", {"metadata": {"name": "one"}})
    assert (answer.status, answer.reason) == (422, "Invalid"), "by the rules of Ingresses"
    assert (await hub.get("/apis/networking.k8s.io/v2/namespaces/default/ingresses")).status == 404


async def test_spec_finalizers_of_a_custom_kind_called_namespace_do_not_keep_its_objects(hub: LocalHub) -> None:
    described = definition(version(finalizers={"type": "array", "items": STRING}))
    described["spec"]["names"] = {**described["spec"]["names"], "kind": "Namespace", "listKind": "NamespaceList"}
    await hub.create(DEFINITIONS, described)
    kept = {"apiVersion": "example.com/v1", "kind": "Namespace", "spec": {"finalizers": ["kubernetes"]}}
    made = await hub.create(THINGS, kept | {"metadata": {"name": "one"}})
    assert made["spec"] == kept["spec"]
    assert (await hub.delete(f"{THINGS}/one")).status == 200
    assert (await hub.get(f"{THINGS}/one")).status == 404


async def test_a_field_that_gets_a_default_shows_it_in_objects_that_were_written_before(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition(version(a=STRING)))
    await hub.create(THINGS, thing("before", a="x"))
    await redefine(hub, version(a=STRING, b={**STRING, "default": "B"}))
    await hub.create(THINGS, thing("after", a="y"))
    shown = {"before": {"a": "x", "b": "B"}, "after": {"a": "y", "b": "B"}}
    assert await specs(hub) == shown
    assert (await hub.get(f"{THINGS}/before")).json["spec"] == shown["before"]
    watch = await hub.watch(THINGS)
    assert {one["object"]["metadata"]["name"]: one["object"]["spec"] for one in await watch.next(2)} == shown


async def test_a_field_that_the_schema_loses_is_not_shown_any_more(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition(version(a=STRING, b=STRING)))
    await hub.create(THINGS, thing("before", a="x", b="y"))
    await redefine(hub, version(a=STRING))
    assert await specs(hub) == {"before": {"a": "x"}}
    await redefine(hub, version(a=STRING, b=STRING))
    assert await specs(hub) == {"before": {"a": "x", "b": "y"}}, "it is stored as long as nobody writes"


async def test_the_last_event_of_an_object_shows_it_under_its_present_schema(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition(version(a=STRING)))
    await hub.create(THINGS, thing("old", a="x"))
    await redefine(hub, version(a=STRING, b={**STRING, "default": "B"}))
    watch = await hub.watch(THINGS, {"resourceVersion": str((await hub.get(THINGS)).version)})
    await hub.delete(f"{THINGS}/old")
    (event,) = await watch.next(1)
    assert (event["type"], event["object"]["spec"]) == ("DELETED", {"a": "x", "b": "B"})


async def test_an_update_stores_what_reading_had_shown(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition(version(a=STRING)))
    await hub.create(THINGS, thing("old", a="x"))
    await redefine(hub, version(a=STRING, b={**STRING, "default": "B"}))
    await hub.patch(f"{THINGS}/old", {"metadata": {"labels": {"l": "1"}}})
    await redefine(hub, version(a=STRING, b=STRING))
    assert (await hub.get(f"{THINGS}/old")).json["spec"] == {"a": "x", "b": "B"}


async def test_marking_for_deletion_keeps_the_defaults_that_reading_shows(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition(version(a=STRING)))
    held = thing("held", a="x")
    held["metadata"]["finalizers"] = ["keep"]
    await hub.create(THINGS, held)
    await redefine(hub, version(a=STRING, b={**STRING, "default": "B"}))
    assert (await hub.delete(f"{THINGS}/held")).json["spec"] == {"a": "x", "b": "B"}
    assert (await hub.get(f"{THINGS}/held")).json["spec"] == {"a": "x", "b": "B"}


# --- watchers -------------------------------------------------------------------------------------


async def test_a_watch_ends_cleanly_when_the_schema_changes_and_resumes(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition(version(a=STRING)))
    watch = await hub.watch(THINGS)
    await hub.create(THINGS, thing("one", a="x"))
    await redefine(hub, version(a=STRING, b={**STRING, "default": "B"}))
    events = await watch.end()
    assert [one["type"] for one in events] == ["ADDED"]
    assert not watch.aborted
    again = await hub.watch(THINGS, {"resourceVersion": events[-1]["object"]["metadata"]["resourceVersion"]})
    await hub.create(THINGS, thing("two", a="y"))
    assert again.changes == [("ADDED", "two")]


async def test_a_watch_continues_when_parts_of_a_definition_that_are_not_served_change(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition())
    watch = await hub.watch(THINGS)
    await hub.patch(f"{DEFINITIONS}/things.example.com", {"metadata": {"labels": {"l": "1"}}})
    await hub.create(THINGS, thing("one", a="x"))
    assert watch.changes == [("ADDED", "one")]
    assert not watch.closed


async def test_another_definition_does_not_disturb_a_watch(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition())
    watch = await hub.watch(THINGS)
    await hub.create(DEFINITIONS, definition(plural="others", kind="Other"))
    await hub.create(THINGS, thing("one", a="x"))
    assert watch.changes == [("ADDED", "one")]
    assert not watch.closed


# --- versions -------------------------------------------------------------------------------------


async def test_a_version_shows_what_it_knows_and_its_own_defaults(hub: LocalHub) -> None:
    old = version("v1alpha1", storage=False, a=STRING, old=STRING)
    new = version("v1", a=STRING, b={**STRING, "default": "B"})
    await hub.create(DEFINITIONS, definition(old, new))
    alpha = THINGS.replace("/v1/", "/v1alpha1/")
    made = await hub.create(alpha, thing("one", api_version="example.com/v1alpha1", a="x", old="o"))
    assert made["spec"] == {"a": "x"}, "the version that is stored does not know it"
    assert (await hub.get(f"{THINGS}/one")).json["spec"] == {"a": "x", "b": "B"}
    assert (await hub.get(f"{alpha}/one")).json["apiVersion"] == "example.com/v1alpha1"
    assert [one["apiVersion"] for one in (await hub.get(alpha)).json["items"]] == ["example.com/v1alpha1"]


async def test_objects_that_were_stored_in_another_version_are_served_as_before(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition(version("v1", a=STRING)))
    await hub.create(THINGS, thing("one", a="x"))
    changed = await redefine(hub, version("v1", storage=False, a=STRING), version("v2", a=STRING))
    assert changed.json["status"]["storedVersions"] == ["v1", "v2"]
    await hub.create(THINGS, thing("two", a="y"))
    second = THINGS.replace("/v1/", "/v2/")
    for path, api_version in ((THINGS, "example.com/v1"), (second, "example.com/v2")):
        items = (await hub.get(path)).json["items"]
        assert [(one["apiVersion"], one["spec"]["a"]) for one in items] == [(api_version, "x"), (api_version, "y")]


# --- parts ----------------------------------------------------------------------------------------


async def test_writing_an_object_as_it_is_brings_it_to_the_present_storage_version_once(hub: LocalHub) -> None:
    first, second = version("v1", a=STRING, b=STRING), version("v2", storage=False, a=STRING)
    await hub.create(DEFINITIONS, definition(first, second))
    await hub.create(THINGS, thing("old", a="x", b="y"))
    await redefine(hub, {**first, "storage": False}, {**second, "storage": True})
    before = (await hub.get(f"{THINGS}/old")).json
    after = await hub.put(f"{THINGS}/old", before)
    assert after.version > int(before["metadata"]["resourceVersion"])
    assert after.json["metadata"]["generation"] == 1
    assert after.json["spec"] == {"a": "x"}, "the version that is stored now knows no b"
    for api_version in ("v1", "v2"):
        with hub.writes_nothing():
            path = f"{THINGS.replace('/v1/', f'/{api_version}/')}/old"
            assert (await hub.patch(path, {"spec": {"a": "x"}})).status == 200


async def test_status_and_the_rest_are_written_through_their_own_doors(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition(version(status=True, a=STRING)))
    made = await hub.create(THINGS, thing("one", a="x") | {"status": {"phase": "no"}})
    assert "status" not in made
    path = f"{THINGS}/one"
    changed = (await hub.patch(f"{path}/status", {"spec": {"a": "y"}, "status": {"phase": "yes"}})).json
    assert (changed["spec"], changed["status"], changed["metadata"]["generation"]) == ({"a": "x"}, {"phase": "yes"}, 1)
    changed = (await hub.patch(path, {"spec": {"a": "y"}, "status": {"phase": "no"}})).json
    assert (changed["spec"], changed["status"], changed["metadata"]["generation"]) == ({"a": "y"}, {"phase": "yes"}, 2)


async def test_scale_reads_and_writes_where_the_definition_says(hub: LocalHub) -> None:
    scaled = version(status=True, size=struct(wanted=INTEGER))
    scaled["schema"]["openAPIV3Schema"]["properties"]["status"] = struct(size=INTEGER, selector=STRING)
    scaled["subresources"]["scale"] = {
        "specReplicasPath": ".spec.size.wanted",
        "statusReplicasPath": ".status.size",
        "labelSelectorPath": ".status.selector",
    }
    await hub.create(DEFINITIONS, definition(scaled))
    await hub.create(THINGS, thing("one", size={"wanted": 2}))
    path = f"{THINGS}/one"
    await hub.patch(f"{path}/status", {"status": {"size": 1, "selector": "a=b"}})
    shown = (await hub.patch(f"{path}/scale", {"spec": {"replicas": 5}})).json
    assert (shown["spec"], shown["status"]) == ({"replicas": 5}, {"replicas": 1, "selector": "a=b"})
    assert (await hub.get(path)).json["spec"] == {"size": {"wanted": 5}}
    refused = await hub.patch(f"{path}/scale", {"spec": {"replicas": -1}})
    assert refused.message == (
        'Thing.example.com "one" is invalid: .spec.size.wanted: Invalid value: -1: should be a non-negative integer'
    )


async def test_numbers_that_scale_could_not_show_are_refused(hub: LocalHub) -> None:
    scaled = version(status=True, replicas={"x-kubernetes-preserve-unknown-fields": True, "nullable": True})
    scaled["schema"]["openAPIV3Schema"]["properties"]["status"] = struct(size=INTEGER)
    scaled["subresources"]["scale"] = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.size",
        "labelSelectorPath": ".status.size.text",
    }
    await hub.create(DEFINITIONS, definition(scaled))

    async def refusal(replicas: Any) -> str:
        refused = await hub.post(THINGS, thing("bad", replicas=replicas))
        assert refused.status == 422
        return refused.message.removeprefix('Thing.example.com "bad" is invalid: .spec.replicas: Invalid value: ')

    unlike = "0: .spec.replicas accessor error:"
    assert await refusal(-1) == "-1: should be a non-negative integer"
    assert await refusal(2**31) == "2147483648: should be less than or equal to 2147483647"
    assert await refusal("x") == f"{unlike} x is of the type string, expected int64"
    assert await refusal(1.5) == f"{unlike} 1.5 is of the type float64, expected int64"
    assert await refusal({"a": [1]}) == f"{unlike} map[a:[1]] is of the type map[string]interface {{}}, expected int64"
    assert await refusal(None) == f"{unlike} <nil> is of the type <nil>, expected int64"
    await hub.create(THINGS, thing("one", replicas=2**31 - 1))
    refused = await hub.patch(f"{THINGS}/one/status", {"status": {"size": -1}})
    assert refused.message == (
        'Thing.example.com "one" is invalid: [.status.size: Invalid value: -1: should be a non-negative integer, '
        '.status.size.text: Invalid value: "": .status.size accessor error: -1 is of the type int64, expected '
        "map[string]interface {}]"
    )


async def test_selectable_fields_select_what_is_served(hub: LocalHub) -> None:
    plain = version(a=STRING, b=STRING)
    await hub.create(DEFINITIONS, definition(plain))
    await hub.create(THINGS, thing("old", a="x"))
    selecting = version(a=STRING, b={**STRING, "default": "B"}) | {"selectableFields": [{"jsonPath": ".spec.b"}]}
    await redefine(hub, selecting)
    await hub.create(THINGS, thing("other", b="C"))
    assert (await hub.get(THINGS, {"fieldSelector": "spec.b=B"})).names == ["old"]
    assert (await hub.get(THINGS, {"fieldSelector": "spec.a=x"})).message == "field label not supported: spec.a"


# --- refusals -------------------------------------------------------------------------------------


async def test_a_refusal_carries_the_warnings_that_came_before_it(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition(version(n=INTEGER)))
    refused = await hub.post(THINGS, thing("one", n="x", unknown=1))
    assert refused.status == 422
    assert refused.warnings == ['299 - "unknown field \\"spec.unknown\\""']


async def test_strategic_merge_patches_are_for_built_in_kinds(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition())
    await hub.create(THINGS, thing("one", a="x"))
    refused = await hub.patch(f"{THINGS}/one", {"spec": {"a": "y"}}, STRATEGIC_PATCH)
    assert refused.status == 415
    assert refused.message.endswith(
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )


async def test_a_strict_patch_is_refused_with_what_it_would_have_made(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition())
    await hub.create(THINGS, thing("one", a="x"))
    refused = await hub.patch(f"{THINGS}/one", {"spec": {"q": 1}}, MERGE_PATCH, {"fieldValidation": "Strict"})
    assert refused.status == 422
    assert '\\"q\\":1' in refused.message
    assert refused.message.endswith('strict decoding error: unknown field "spec.q"')


async def test_a_rule_of_the_schema_refuses_and_compares_with_what_was(hub: LocalHub) -> None:
    ruled = version(a={**STRING, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "a stays"}]})
    await hub.create(DEFINITIONS, definition(ruled))
    await hub.create(THINGS, thing("one", a="x"))
    refused = await hub.patch(f"{THINGS}/one", {"spec": {"a": "y"}})
    assert refused.message == 'Thing.example.com "one" is invalid: spec.a: Invalid value: "string": a stays'


async def test_rules_are_checked_beside_other_errors_unless_these_make_it_pointless(hub: LocalHub) -> None:
    ruled = version(n={**INTEGER, "minimum": 5}, a=STRING)
    rules = [{"rule": "self.a != 'x'", "message": "not x"}]
    ruled["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = rules
    await hub.create(DEFINITIONS, definition(ruled))
    both = (await hub.post(THINGS, thing("one", n=1, a="x"))).json["details"]["causes"]
    assert [cause["field"] for cause in both] == ["spec.n", "spec"]
    one = (await hub.post(THINGS, thing("one", n="1", a="x"))).json["details"]["causes"]
    assert sorted(cause["field"] for cause in one) == ["<nil>", "spec.n"]


async def test_objects_that_broke_no_rule_when_written_can_still_be_read_and_changed_elsewhere(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, definition(version(a=STRING, b=STRING)))
    await hub.create(THINGS, thing("old", a="much too long"))
    await redefine(hub, version(a={**STRING, "maxLength": 3}, b=STRING))
    assert (await hub.get(f"{THINGS}/old")).json["spec"] == {"a": "much too long"}
    assert (await hub.patch(f"{THINGS}/old", {"spec": {"b": "new"}})).status == 200
    assert (await hub.patch(f"{THINGS}/old", {"spec": {"a": "too long again"}})).status == 422


async def test_a_table_has_the_columns_of_the_version_that_was_asked_for(hub: LocalHub) -> None:
    columns = [{"name": "Letter", "type": "string", "jsonPath": ".spec.a"}]
    await hub.create(DEFINITIONS, definition(version(a=STRING) | {"additionalPrinterColumns": columns}))
    await hub.create(THINGS, thing("one", a="x"))
    table = (await hub.get(THINGS, accept=TABLE)).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Letter"]
    assert table["rows"][0]["cells"] == ["one", "x"]
