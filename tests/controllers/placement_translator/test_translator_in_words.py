"""What the translator does, one thing after the other, with everything at work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fleet import EDGE
from platform_harness import APIS
from translated import (
    CONFIRM,
    DEFINITIONS,
    MAPS,
    MINE,
    NAMESPACES,
    PRICES,
    PROD,
    PROJECTED,
    SHOP,
    World,
    config_map,
    definition,
    deployment,
    furnished,
    inside,
    namespace,
    secret,
    shop,
    widget,
    world,
)

from farflung.machinery.errors import Obj
from farflung.placement.guard import WithdrawalLimits

SECRETS, WIDGETS = inside("shop", "secrets"), inside("shop", "widgets", "example.org/v1")
DEPLOYMENTS = inside("shop", "deployments", "apps/v1")
BINDINGS = f"{APIS}/apibindings"
BRINGS_KUBE = [{"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "resourceNames": ["kube"]}]


async def data(one: World, box: str = "florin", name: str = "prices") -> dict[str, str]:
    found = await one.copy(box, f"{MAPS}/{name}")
    return (found or {}).get("data") or {}


async def the_one(one: World, box: str = "florin") -> Obj:
    found = await one.copy(box, f"{EDGE}/syncerconfigs/the-one")
    assert found is not None
    spec: Obj = found["spec"]
    return spec


# --- the number of selected objects ---------------------------------------------------------------


async def status(one: World, name: str = "p") -> Obj:
    found = await one.get(one.workloads[0], f"{EDGE}/edgeplacements/{name}")
    assert found is not None
    return found.get("status") or {}


async def count_and_reason(one: World) -> tuple[int | None, str]:
    found = await status(one)
    ready: Obj = next((one for one in found.get("conditions") or () if one["type"] == "Ready"), {})
    return found.get("selectedObjectCount"), ready.get("reason", "")


async def test_a_placement_is_ready_while_it_selects_objects_and_its_count_is_written_seldom() -> None:
    async with shop() as one:
        here = one.workloads[0]

        async def reports(count: int, reason: str) -> None:
            async def does() -> bool:
                return await count_and_reason(one) == (count, reason)

            await one.fleet.eventually(does, f"{count} objects and {reason}")

        await reports(1, "Resolved")
        await one.delete(here, PRICES)
        await reports(0, "NothingSelected")
        await one.at_rest()
        with one.fleet.hub.writes_nothing():
            await one.restart()
            await one.at_rest()
        versions = set()
        for number in range(20):
            await one.must_put(here, MAPS, config_map(f"m{number}", {"a": "b"}))
            for _ in range(10):
                versions.add((await one.get(here, f"{EDGE}/edgeplacements/p") or {})["metadata"]["resourceVersion"])
                await asyncio.sleep(0.03)
        await reports(20, "Resolved")
        assert len(versions) < 8  # of 20 changes in 6 seconds


# --- copies follow their sources ------------------------------------------------------------------


async def test_what_is_removed_at_the_source_is_removed_from_the_copy_and_what_others_added_stays() -> None:
    async with shop() as one:
        full = config_map("prices", {"tea": "4"}, labels={"a": "1", "b": "2"}, annotations={"c": "3"})
        await one.must_put(one.workloads[0], MAPS, {**full, "binaryData": {"x": "AAAA"}})
        await one.fleet.eventually(lambda: has_sections(one, "binaryData"))
        others = {"metadata": {"labels": {"theirs": "x"}, "annotations": {"theirs": "y"}}}
        await one.patch(one.boxes["florin"], f"{MAPS}/prices", others)
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"coffee": "5"}, labels={"b": "2"}))
        await one.fleet.eventually(lambda: has_data(one, {"coffee": "5"}))
        copy = await one.copy("florin", f"{MAPS}/prices")
        assert copy is not None
        assert copy["metadata"]["labels"] == {"b": "2", "theirs": "x", PROJECTED: "yes"}
        assert "c" not in copy["metadata"]["annotations"]
        assert copy["metadata"]["annotations"]["theirs"] == "y"
        assert "binaryData" not in copy


async def has_sections(one: World, *sections: str) -> bool:
    copy = await one.copy("florin", f"{MAPS}/prices")
    return copy is not None and all(section in copy for section in sections)


async def has_data(one: World, wanted: dict[str, str], box: str = "florin", name: str = "prices") -> bool:
    return await data(one, box, name) == wanted


async def test_changes_of_other_clients_to_a_copy_are_reverted() -> None:
    async with shop() as one:
        box = one.boxes["florin"]
        await one.patch(box, f"{MAPS}/prices", {"data": {"tea": "0", "coffee": "9"}})
        await one.fleet.eventually(lambda: has_data(one, {"tea": "3"}))
        await one.delete(box, f"{MAPS}/prices")
        await one.fleet.eventually(lambda: has_data(one, {"tea": "3"}))
        await one.delete(box, SHOP)
        await one.fleet.eventually(lambda: has_data(one, {"tea": "3"}))


async def test_a_definition_follows_its_object_which_is_copied_as_soon_as_the_mailbox_serves_it() -> None:
    async with shop() as one:
        await one.must_put(one.workloads[0], DEFINITIONS, definition("v1"))
        await one.fleet.eventually(lambda: one.put(one.workloads[0], WIDGETS, widget("w", 1)), "a widget")
        await one.fleet.eventually(lambda: one.has(["florin"], f"{WIDGETS}/w"), "its copy")
        await one.fleet.eventually(lambda: tells_of(one, "widgets.example.org"))
        await one.delete(one.workloads[0], f"{WIDGETS}/w")
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{DEFINITIONS}/widgets.example.org"))
        assert "clusterScope" not in await the_one(one)


async def tells_of(one: World, name: str) -> bool:
    return any(name in entry["objects"] for entry in (await the_one(one)).get("clusterScope", ()))


async def test_a_definition_stays_while_other_clients_have_objects_of_it() -> None:
    async with shop() as one:
        await one.must_put(one.workloads[0], DEFINITIONS, definition("v1"))
        await one.fleet.eventually(lambda: one.put(one.workloads[0], WIDGETS, widget("w", 1)), "a widget")
        await one.fleet.eventually(lambda: one.has(["florin"], f"{WIDGETS}/w"), "its copy")
        await one.must_put(one.boxes["florin"], WIDGETS, widget("theirs", 1))
        await one.at_rest()
        await one.delete(one.workloads[0], f"{WIDGETS}/w")
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{WIDGETS}/w"))
        await one.at_rest()
        assert await one.has(["florin"], f"{WIDGETS}/theirs")
        await one.delete(one.boxes["florin"], f"{WIDGETS}/theirs")
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{DEFINITIONS}/widgets.example.org"))


async def test_a_namespace_is_removed_when_it_is_empty_and_unwanted_and_not_before() -> None:
    async with shop() as one:
        await one.must_put(one.boxes["florin"], MAPS, config_map("theirs", {"a": "b"}))
        await one.at_rest()
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="dev"))
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{MAPS}/prices"))
        await one.at_rest()
        assert await data(one, name="theirs") == {"a": "b"}
        assert (await the_one(one)) == {"namespaceScope": {}}
        await one.delete(one.boxes["florin"], f"{MAPS}/theirs")
        await one.fleet.eventually(lambda: one.lacks(["florin"], SHOP), "the end of the namespace")


async def test_a_mailbox_binds_what_its_copies_need_until_the_last_of_them_is_withdrawn() -> None:
    async with shop() as one:
        assert await one.lacks(["florin"], f"{BINDINGS}/kube")
        await one.must_put(one.workloads[0], DEPLOYMENTS, deployment("web", "nginx:1"))
        await one.must_put(one.workloads[0], DEPLOYMENTS, deployment("api", "nginx:1"))
        await one.fleet.eventually(lambda: one.has(["florin"], f"{DEPLOYMENTS}/web"), "the copy")
        await one.restart()
        await one.delete(one.workloads[0], f"{DEPLOYMENTS}/web")
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{DEPLOYMENTS}/web"), "the withdrawal")
        await one.at_rest()
        assert await one.has(["florin"], f"{DEPLOYMENTS}/api")
        await one.delete(one.workloads[0], f"{DEPLOYMENTS}/api")
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{BINDINGS}/kube"), "the withdrawal of the binding")
        assert await one.says("Projected")


async def test_a_binding_that_a_placement_selects_stays_without_objects_that_need_it() -> None:
    async with shop(nonNamespacedObjects=BRINGS_KUBE) as one:
        await one.must_put(one.workloads[0], DEPLOYMENTS, deployment("web", "nginx:1"))
        await one.fleet.eventually(lambda: one.has(["florin"], f"{DEPLOYMENTS}/web"), "the copy")
        await one.delete(one.workloads[0], f"{DEPLOYMENTS}/web")
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{DEPLOYMENTS}/web"), "the withdrawal")
        await one.at_rest()
        assert await one.has(["florin"], f"{BINDINGS}/kube")
        await one.placement(0, "p", namespaceSelector=PROD)
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{BINDINGS}/kube"), "the withdrawal of the binding")


async def test_a_change_of_upsync_alone_updates_the_syncer_configs() -> None:
    async with shop() as one:
        wanted = [{"apiGroup": "group1.test", "resources": ["sprockets"], "namespaces": ["orbital"], "names": ["*"]}]
        await one.placement(0, "p", namespaceSelector=PROD, upsync=wanted)
        await one.fleet.eventually(lambda: upsyncs(one, wanted))


async def test_a_mailbox_without_the_edge_api_gets_its_syncer_config_later() -> None:
    async with shop() as one:
        told = await the_one(one)
        await one.fleet.crash()
        await one.delete(one.boxes["florin"], f"{BINDINGS}/bind-edge")
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{EDGE}/syncerconfigs/the-one"))
        await one.fleet.start(translator=True)
        await one.at_rest()
        assert one.fleet.translator is not None
        assert one.fleet.translator.controller.tally.failures == 0
        await one.restart()
        await one.fleet.eventually(lambda: is_told(one, told))


async def is_told(one: World, wanted: Obj) -> bool:
    found = await one.copy("florin", f"{EDGE}/syncerconfigs/the-one")
    return found is not None and found["spec"] == wanted


async def upsyncs(one: World, wanted: list[Obj]) -> bool:
    return (await the_one(one)).get("upsync") == wanted


async def test_what_is_created_only_is_left_alone_and_withdrawn_at_the_end() -> None:
    async with world("florin") as one:
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop"))
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "3"}))
        clause = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["shop"], "createOnly": True}
        await one.placement(0, "p", downsync=[clause])
        await one.fleet.eventually(lambda: has_data(one, {"tea": "3"}))
        await one.patch(one.boxes["florin"], f"{MAPS}/prices", {"data": {"tea": "0"}})
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "4"}))
        await one.at_rest()
        assert await data(one) == {"tea": "0"}
        await one.delete(one.workloads[0], f"{MAPS}/prices")
        await one.fleet.eventually(lambda: one.lacks(["florin"], SHOP))


# --- nobody knows what is wanted ------------------------------------------------------------------

NONSENSE = {"matchExpressions": [{"key": "env", "operator": "Near", "values": ["x"]}]}


async def test_a_placement_that_cannot_be_understood_keeps_what_is_there_and_so_does_the_next_translator() -> None:
    async with shop() as one:
        await one.at_rest()
        told = await the_one(one)
        await one.placement(0, "p", namespaceSelector=NONSENSE)
        await one.fleet.eventually(lambda: one.says("InvalidSpec", "spec.namespaceSelector"))
        await one.at_rest()
        with one.fleet.hub.writes_nothing():
            await one.restart()
            await one.at_rest()
            assert await data(one) == {"tea": "3"}
            assert await the_one(one) == told
        # another placement goes on meanwhile
        await one.must_put(one.workloads[1], NAMESPACES, namespace("bar", env="prod"))
        await one.placement(1, "q", namespaceSelector=PROD)
        await one.fleet.eventually(lambda: one.has(["florin"], f"{NAMESPACES}/bar"))
        await one.at_rest()
        assert (await the_one(one))["namespaceScope"]["namespaces"] == ["bar", "shop"]
        await one.placement(0, "p", namespaceSelector=MINE)
        await one.fleet.eventually(lambda: one.lacks(["florin"], SHOP))
        await one.at_rest()
        assert (await the_one(one))["namespaceScope"]["namespaces"] == ["bar"]


async def test_a_deleted_slice_withdraws_nothing_while_its_placement_exists() -> None:
    async with shop() as one:
        await one.at_rest()
        told = await the_one(one)
        await one.fleet.crash()
        await one.fleet.start(scheduler=False, translator=True)
        await one.fleet.eventually(lambda: one.fleet.translator is not None and one.fleet.translator.idle)
        path = f"{EDGE}/singleplacementslices/p"
        await one.delete(one.workloads[0], path)
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "4"}))
        await one.fleet.eventually(lambda: has_data(one, {"tea": "4"}), "it goes on as before")
        await one.fleet.crash()
        await one.fleet.start(scheduler=False, translator=True)
        await one.fleet.eventually(lambda: one.fleet.translator is not None and one.fleet.translator.idle)
        assert await data(one) == {"tea": "4"}
        assert await the_one(one) == told
        await one.delete(one.workloads[0], f"{EDGE}/edgeplacements/p")
        await one.fleet.eventually(lambda: one.lacks(["florin"], SHOP))


# --- the same from two workspaces -----------------------------------------------------------------


async def test_the_same_object_of_two_workspaces_is_merged_and_both_placements_report_conflicts() -> None:
    async with shop() as one:
        await one.must_put(one.workloads[1], NAMESPACES, namespace("shop", env="prod"))
        await one.must_put(one.workloads[1], MAPS, config_map("prices", {"coffee": "5"}))
        await one.placement(1, "q", namespaceSelector=PROD)
        await one.fleet.eventually(lambda: has_data(one, {"tea": "3", "coffee": "5"}))
        await one.fleet.eventually(lambda: one.says("Projected"))
        await one.must_put(one.workloads[1], MAPS, config_map("prices", {"coffee": "5", "tea": "4"}))
        await one.fleet.eventually(lambda: has_data(one, {"tea": "4", "coffee": "5"}))
        said = f"data.tea: {one.workloads[1]} wins over {one.workloads[0]}"
        await one.fleet.eventually(lambda: one.says("Conflict", said), "the one is told")
        await one.fleet.eventually(lambda: one.says("Conflict", said, name="q", workload=1), "and the other")
        for workload in (0, 1):
            await one.fleet.eventually(lambda workload=workload: told(one, workload, "Conflict", said))
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "4"}))
        await one.fleet.eventually(lambda: one.says("Projected"))
        await one.delete(one.workloads[0], f"{MAPS}/prices")
        await one.delete(one.workloads[1], f"{EDGE}/edgeplacements/q")
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{MAPS}/prices"))


async def told(one: World, workload: int, reason: str, words: str) -> bool:
    return any(reason == found and words in message for found, message in await one.events(workload))


async def test_workspaces_that_disagree_about_the_version_are_read_in_one_that_both_serve() -> None:
    async with shop() as one:
        await one.must_put(one.workloads[1], NAMESPACES, namespace("shop", env="prod"))
        await one.must_put(one.workloads[0], DEFINITIONS, definition("v2", "v1"))
        await one.must_put(one.workloads[1], DEFINITIONS, definition("v1"))
        for cluster, labels in zip(one.workloads, ({"a": "1"}, {"b": "2"}), strict=True):
            made = widget("w", 1, labels=labels)
            await one.fleet.eventually(lambda cluster=cluster, made=made: one.put(cluster, WIDGETS, made), "a widget")
        await one.placement(1, "q", namespaceSelector=PROD)

        async def merged() -> bool:
            copy = await one.copy("florin", f"{WIDGETS}/w")
            return copy is not None and copy["metadata"]["labels"] == {"a": "1", "b": "2", PROJECTED: "yes"}

        await one.fleet.eventually(merged)


async def test_of_workspaces_without_a_common_version_one_is_left_out_and_both_placements_report_it() -> None:
    async with shop() as one:
        await one.must_put(one.workloads[1], NAMESPACES, namespace("shop", env="prod"))
        await one.must_put(one.workloads[1], DEFINITIONS, definition("v1alpha1"))
        await one.must_put(one.workloads[0], DEFINITIONS, definition("v2"))
        for cluster, version, labels in zip(one.workloads, ("v2", "v1alpha1"), ({"a": "1"}, {"b": "2"}), strict=True):
            made, path = widget("w", 1, version, labels=labels), inside("shop", "widgets", f"example.org/{version}")
            await one.fleet.eventually(
                lambda cluster=cluster, made=made, path=path: one.put(cluster, path, made), "a widget"
            )
        await one.placement(1, "q", namespaceSelector=PROD)
        said = f"left out: {one.workloads[1]}"
        await one.fleet.eventually(lambda: one.says("Conflict", said))
        await one.fleet.eventually(lambda: one.says("Conflict", said, name="q", workload=1))


async def test_an_object_that_is_no_copy_is_not_changed_and_reported() -> None:
    async with world("florin") as one:
        await one.must_put(one.boxes["florin"], NAMESPACES, namespace("shop"))
        before = await one.must_put(one.boxes["florin"], MAPS, config_map("prices", {"mine": "1"}))
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="prod"))
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "3"}))
        await one.placement(0, "p", namespaceSelector=PROD)
        await one.fleet.eventually(lambda: one.says("Conflict", "configmaps shop/prices", "not changed"))
        await one.at_rest()
        assert await one.copy("florin", f"{MAPS}/prices") == before
        assert "namespaces shop" not in (await one.condition())["message"], "that it is there already is no harm"
        await one.delete(one.boxes["florin"], f"{MAPS}/prices")
        await one.fleet.eventually(lambda: has_data(one, {"tea": "3"}))
        await one.fleet.eventually(lambda: one.says("Projected"))
        await one.delete(one.workloads[0], f"{EDGE}/edgeplacements/p")
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{MAPS}/prices"))
        await one.at_rest()
        assert await one.has(["florin"], SHOP)


# --- customization --------------------------------------------------------------------------------

EXPANDED = {"edge.kcp.io/expand-parameters": "true"}
CUSTOMIZERS = f"{EDGE}/namespaces/shop/customizers"


def customizer(path: str, value: str) -> Obj:
    head = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "Customizer", "metadata": {"name": "cz"}}
    return {**head, "replacements": [{"path": path, "value": value}]}


async def test_copies_are_different_in_each_place_and_follow_locations_and_customizers() -> None:
    async with shop("florin", "guilder") as one:
        await one.location("florin", tone="red")
        greeting = {"greeting": "%(tone) at %(location.name)"}
        annotations = {**EXPANDED, "edge.kcp.io/customizer": "cz"}
        await one.must_put(one.workloads[0], CUSTOMIZERS, customizer("$.data.extra", '"1"'))
        await one.must_put(one.workloads[0], MAPS, config_map("prices", greeting, annotations=annotations))
        await one.fleet.eventually(lambda: has_data(one, {"greeting": "red at florin", "extra": "1"}))
        literal = {"greeting": "%(tone) at guilder", "extra": "1"}
        await one.fleet.eventually(lambda: has_data(one, literal, "guilder"))
        await one.fleet.eventually(lambda: one.says("CustomizationIncomplete", "%(tone)"))
        await one.location("guilder", tone="blue")
        await one.fleet.eventually(lambda: has_data(one, {"greeting": "blue at guilder", "extra": "1"}, "guilder"))
        await one.must_put(one.workloads[0], CUSTOMIZERS, customizer("$.data.extra", '"2"'))
        await one.fleet.eventually(lambda: has_data(one, {"greeting": "blue at guilder", "extra": "2"}, "guilder"))
        await one.fleet.eventually(lambda: one.says("Projected"))


async def test_of_two_locations_of_a_mailbox_the_smallest_name_counts_and_differences_are_reported() -> None:
    async with shop("florin") as one:
        await one.location("florin", tone="red")
        await one.fleet.location(one.inventory, "antilles", {"tone": "blue"}, {"matchLabels": {"id": "florin"}})
        await one.at_rest()
        assert await one.says("Projected"), "nothing is customized"
        greeting = {"greeting": "a %(tone) thing"}
        await one.must_put(one.workloads[0], MAPS, config_map("prices", greeting, annotations=EXPANDED))
        await one.fleet.eventually(lambda: has_data(one, {"greeting": "a blue thing"}))
        said = "configmaps shop/prices", "the Locations antilles and florin both select the cluster", "antilles is used"
        await one.fleet.eventually(lambda: one.says("AmbiguousLocation", *said))
        await one.fleet.eventually(lambda: told(one, 0, "AmbiguousLocation", said[1]))
        assert (await one.condition())["severity"] == "Warning"
        await one.location("florin", tone="blue")
        await one.fleet.eventually(lambda: one.says("Projected"), "both say the same now")
        await one.location("florin", tone="red")
        await one.fleet.eventually(lambda: one.says("AmbiguousLocation", *said))
        await one.delete(one.inventory, "/apis/scheduling.kcp.io/v1alpha1/locations/antilles")
        await one.fleet.eventually(lambda: has_data(one, {"greeting": "a red thing"}))
        await one.fleet.eventually(lambda: one.says("Projected"))


async def test_a_broken_customization_holds_back_and_says_so() -> None:
    async with shop("florin") as one:
        annotations = {"edge.kcp.io/customizer": "cz"}
        await one.must_put(one.workloads[0], MAPS, config_map("new", {"a": "1"}, annotations=annotations))
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "9"}, annotations=annotations))
        await one.fleet.eventually(lambda: one.says("CustomizationFailed", "there is no Customizer shop/cz"))
        await one.at_rest()
        assert await data(one) == {"tea": "3"}
        assert await one.lacks(["florin"], f"{MAPS}/new")
        await one.must_put(one.workloads[0], CUSTOMIZERS, customizer("$.data.extra", "not json"))
        await one.fleet.eventually(lambda: one.says("CustomizationFailed", "cz"))
        await one.must_put(one.workloads[0], CUSTOMIZERS, customizer("$.data.extra", '"x"'))
        await one.fleet.eventually(lambda: has_data(one, {"tea": "9", "extra": "x"}))
        await one.fleet.eventually(lambda: has_data(one, {"a": "1", "extra": "x"}, name="new"))


# --- what a server refuses ------------------------------------------------------------------------


def role_binding(role: str, **metadata: Any) -> Obj:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "rb", **metadata}}
    return {**head, "roleRef": reference, "subjects": []}


ROLE_BINDINGS = inside("shop", "rolebindings", "rbac.authorization.k8s.io/v1")


async def made_again(one: World, obj: Obj) -> None:
    """While nobody looks, which a translator does not hear of."""
    await one.fleet.crash()
    await one.delete(one.workloads[0], f"{ROLE_BINDINGS}/rb")
    await one.must_put(one.workloads[0], ROLE_BINDINGS, obj)
    await one.start()


async def refers_to(one: World, role: str) -> bool:
    copy = await one.copy("florin", f"{ROLE_BINDINGS}/rb")
    return copy is not None and copy["roleRef"]["name"] == role


async def test_what_cannot_be_changed_is_made_again() -> None:
    async with shop() as one:
        await one.must_put(one.workloads[0], ROLE_BINDINGS, role_binding("one"))
        await one.fleet.eventually(lambda: refers_to(one, "one"))
        await made_again(one, role_binding("two"))
        await one.fleet.eventually(lambda: refers_to(one, "two"))


async def test_what_is_created_only_is_never_made_again() -> None:
    async with shop() as one:
        await one.must_put(one.workloads[0], ROLE_BINDINGS, role_binding("one"))
        await one.fleet.eventually(lambda: refers_to(one, "one"))
        await made_again(one, role_binding("two", annotations={"edge.kcp.io/downsync-overwrite": "false"}))
        await one.fleet.eventually(lambda: one.idle)
        await one.at_rest()
        assert await refers_to(one, "one")


def quota(pods: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "theirs"},
        "spec": {"hard": {"count/configmaps": pods, "count/secrets": pods}},
    }


async def test_one_object_that_is_refused_keeps_no_other_back_and_is_reported_without_values() -> None:
    async with shop() as one:
        await one.must_put(one.boxes["florin"], inside("shop", "resourcequotas"), quota("2"))
        await one.at_rest()
        await one.must_put(one.workloads[0], MAPS, config_map("more", {"a": "1"}))
        await one.must_put(one.workloads[0], MAPS, config_map("most", {"a": "1"}))
        await one.must_put(one.workloads[0], inside("shop", "serviceaccounts"), {"metadata": {"name": "robot"}})
        for name in ("s1", "s2", "s3"):
            await one.must_put(one.workloads[0], SECRETS, secret(name, {"password": "hunter2"}))
        await one.fleet.eventually(lambda: one.has(["florin"], f"{inside('shop', 'serviceaccounts')}/robot"))
        await one.fleet.eventually(lambda: one.says("Refused", "configmaps shop/mo", "exceeded quota"))
        await one.fleet.eventually(lambda: one.says("Refused", "secrets shop/s", "Forbidden"))
        await one.delete(one.boxes["florin"], f"{inside('shop', 'resourcequotas')}/theirs")
        await one.fleet.eventually(lambda: one.has(["florin"], f"{MAPS}/most"))
        await one.fleet.eventually(lambda: one.says("Projected"))


async def test_values_of_secrets_are_nowhere_to_be_read() -> None:
    async with shop() as one:
        one.fleet.verbosity = 9
        await one.restart()
        for cluster in one.workloads:
            await one.put(cluster, NAMESPACES, namespace("shop", env="prod"))
        await one.placement(1, "q", namespaceSelector=PROD)
        annotations = {"edge.kcp.io/customizer": "cz", **EXPANDED}
        secrets = [
            secret("plain", {"password": "hunter2-a"}),
            secret("broken", {"password": "%(hunter2-b)"}, annotations=annotations),
            secret("typed", {"password": "hunter2-c"}),
        ]
        for obj in secrets:
            await one.must_put(one.workloads[0], SECRETS, obj)
        await one.must_put(one.workloads[1], SECRETS, secret("plain", {"password": "hunter2-d"}))
        await one.must_put(one.boxes["florin"], SECRETS, secret("typed", {"password": "hunter2-e"}))
        await one.fleet.eventually(lambda: one.has(["florin"], f"{SECRETS}/plain"))
        await one.fleet.eventually(lambda: one.says("CustomizationFailed", "data.password"))
        await one.at_rest()
        said = [one.fleet.log.getvalue(), str(await one.events(0)), str(await one.events(1))]
        said += [str(await one.condition()), str(await one.condition("q", 1))]
        for text in said:
            assert "hunter2" not in text
            assert "aHVudGVyMi" not in text


# --- the guard ------------------------------------------------------------------------------------

FLEET = [f"t{number:02}" for number in range(12)]


@asynccontextmanager
async def large_shop() -> AsyncIterator[World]:
    """One Location leads to all twelve mailboxes."""
    async with world(*FLEET[:1]) as one:
        for target in FLEET[1:]:
            await one.fleet.target(one.inventory, target, {"id": target})
        await everywhere(one, env="prod")
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="prod"))
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "3"}))
        await one.placement(0, "p", {"matchLabels": {"env": "prod"}}, namespaceSelector=PROD)
        await one.fleet.eventually(lambda: furnished(one, len(FLEET)), "mailboxes")
        await one.fleet.eventually(lambda: one.has(FLEET, f"{MAPS}/prices"), "the first copies")
        await one.at_rest()
        yield one


async def everywhere(one: World, **labels: str) -> None:
    await one.fleet.location(one.inventory, FLEET[0], labels, {})


async def confirm(one: World, value: str) -> None:
    await one.patch(one.workloads[0], f"{EDGE}/edgeplacements/p", {"metadata": {"annotations": {CONFIRM: value}}})


async def is_used_up(one: World) -> bool:
    found = await one.get(one.workloads[0], f"{EDGE}/edgeplacements/p")
    return found is not None and CONFIRM not in found["metadata"].get("annotations", {})


async def is_held(one: World) -> bool:
    return await one.says("WithdrawalHeld", "from 12 of 12 destinations", f'{CONFIRM}: "1/12"')


@pytest.mark.slow
async def test_one_wrong_label_withdraws_nothing_from_a_fleet_until_it_is_confirmed() -> None:
    async with large_shop() as one:
        told_before = await the_one(one, FLEET[3])
        await everywhere(one, env="prd")
        await one.fleet.eventually(lambda: is_held(one), "it is held")
        await one.fleet.eventually(lambda: told(one, 0, "WithdrawalHeld", "12 of 12"))
        await one.at_rest()
        assert await one.has(FLEET, f"{MAPS}/prices")
        assert await the_one(one, FLEET[3]) == told_before, "nothing goes from the clusters either"
        # the next translator holds it as well, and has nothing to say
        with one.fleet.hub.writes_nothing():
            await one.restart()
            await one.at_rest()
        assert await one.has(FLEET, f"{MAPS}/prices")
        # explicit deletions are meant
        await one.must_put(one.workloads[0], MAPS, config_map("late", {"a": "1"}))
        await one.delete(one.workloads[0], f"{MAPS}/prices")
        await one.fleet.eventually(lambda: one.lacks(FLEET, f"{MAPS}/prices"))
        await one.at_rest()
        assert await one.has(FLEET, SHOP)
        # what was right is right again
        await everywhere(one, env="prod")
        await one.fleet.eventually(lambda: one.says("Projected"))
        await one.fleet.eventually(lambda: one.has(FLEET, f"{MAPS}/late"))


@pytest.mark.slow
async def test_a_confirmation_is_for_one_withdrawal() -> None:
    async with large_shop() as one:
        await everywhere(one, env="prd")
        await one.fleet.eventually(lambda: is_held(one))
        await confirm(one, "1/11")
        await one.at_rest()
        assert await is_held(one), "it is about more of them than were confirmed"
        await confirm(one, "1/12")
        await one.fleet.eventually(lambda: one.lacks(FLEET, SHOP), "it goes")
        await one.fleet.eventually(lambda: is_used_up(one))
        await one.fleet.eventually(lambda: one.says("Projected"))
        assert await the_one(one, FLEET[3]) == {"namespaceScope": {}}
        await everywhere(one, env="prod")
        await one.fleet.eventually(lambda: one.has(FLEET, f"{MAPS}/prices"))
        await everywhere(one, env="prd")
        await one.fleet.eventually(lambda: is_held(one), "the next accident is held again")
        await one.delete(one.workloads[0], f"{EDGE}/edgeplacements/p")
        await one.fleet.eventually(lambda: one.lacks(FLEET, SHOP), "to delete a placement is meant")


async def test_limits_can_be_wide() -> None:
    async with shop("florin", "guilder") as one:
        one.fleet.limits = WithdrawalLimits(100, 0)
        await one.restart()
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="dev"))
        await one.fleet.eventually(lambda: one.lacks(one.boxes, SHOP))


async def test_limits_can_be_narrow() -> None:
    async with shop("florin", "guilder") as one:
        one.fleet.limits = WithdrawalLimits(50, 1)
        await one.restart()
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="dev"))
        await one.fleet.eventually(lambda: one.says("WithdrawalHeld", "2 of 2"))
        assert await one.has(one.boxes, f"{MAPS}/prices")
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="prod"))
        await one.fleet.eventually(lambda: one.says("Projected"))
