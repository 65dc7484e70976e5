"""`farflung plan`: what would become of the copies in mailboxes; and that it comes true."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from fleet import EDGE
from local_transport import LocalTransport
from platform_harness import OPERATOR
from translated import CONFIRM, MINE, NAMESPACES, PROD, World, config_map, deployment, inside, namespace, secret, world

from farflung.cli.explain_output import printed as printed_explanation
from farflung.cli.plan_output import printed
from farflung.client.rest import Client
from farflung.inspect.explain import explain
from farflung.inspect.hub import HubClient, hub_client
from farflung.inspect.manifests import Manifest
from farflung.inspect.plan import Plan, check, plan
from farflung.inspect.results import as_document
from farflung.machinery.errors import Obj

MAPS, SECRETS = inside("shop", "configmaps"), inside("shop", "secrets")
DEPLOYMENTS = inside("shop", "deployments", "apps/v1")
HIDDEN = "dontshowthis"
KINDS = 12  #: in namespaces, that go anywhere


@asynccontextmanager
async def shop(*targets: str) -> AsyncIterator[World]:
    """A namespace with a ConfigMap and a Secret that a placement `p` brings to all targets."""
    async with world(*(targets or ("florin", "guilder"))) as one:
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="prod"))
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "3"}))
        await one.must_put(one.workloads[0], SECRETS, secret("key", {"pin": f"{HIDDEN}1"}))
        await one.placement(0, "p", namespaceSelector=PROD)
        await one.fleet.eventually(lambda: one.has(one.boxes, f"{MAPS}/prices"), "the first copies")
        await one.at_rest()
        yield one


def asked(one: World, workload: int = 0) -> HubClient:
    transport = LocalTransport(one.fleet.hub.function, OPERATOR)
    return hub_client(Client(transport, f"/clusters/{one.workloads[workload]}", "farflung"))


async def planned(one: World, *objs: Obj, workload: int = 0, **how: Any) -> Plan:
    """Nothing is done."""
    hub = asked(one, workload)
    before = one.fleet.hub.store.revision
    answer = await plan(hub, check([Manifest("x.yaml", obj) for obj in objs], "shop"), **how)
    assert one.fleet.hub.store.revision == before
    assert isinstance(hub.workspace.transport, LocalTransport)
    assert all(b"All" in one.body or "dryRun=All" in one.target for one in hub.workspace.transport.writes)
    text = printed(answer, "json") + printed(answer, "table") + printed(answer, "yaml")
    assert HIDDEN not in text
    assert base64.b64encode(HIDDEN.encode()).decode() not in text
    return answer


def shown(answer: Obj) -> list[str]:
    return printed(answer, "table").splitlines()


def placement(name: str = "p", **spec: Any) -> Obj:
    spec = {"locationSelectors": [{}], **spec}
    return {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "metadata": {"name": name}, "spec": spec}


async def test_a_new_placement_brings_what_it_selects_and_what_that_needs() -> None:
    async with world("florin", "guilder") as one:
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="prod"))
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "3"}))
        await one.at_rest()
        answer = await planned(one, placement(namespaceSelector=PROD))
        assert shown(answer)[3:] == [
            "2 added, 0 removed, 0 unchanged; 1 object selected",
            "",
            "2 destinations: florin/florin, guilder/guilder",
            "~ syncerconfigs.edge.kcp.io the-one",
            "    spec.namespaceScope.namespaces: shop added",
            f"    spec.namespaceScope.resources: {KINDS} kinds added",
            "+ configmaps shop/prices",
            "+ namespaces shop",
        ]
        assert as_document(answer)["summary"]["createdCopies"] == 4
        assert answer.is_change


async def test_what_syncers_would_be_told_is_shown_where_it_is_different() -> None:
    async with shop("florin") as one:
        wanted = {"apiGroup": "group1.test", "resources": ["sprockets"], "namespaces": ["orbital"], "names": ["*"]}
        answer = await planned(one, placement(namespaceSelector=PROD, upsync=[wanted]))
        said = '{"apiGroup":"group1.test","names":["*"],"namespaces":["orbital"],"resources":["sprockets"]}'
        assert shown(answer)[-3:] == [
            "1 destination: florin/florin",
            "~ syncerconfigs.edge.kcp.io the-one",
            f"    spec.upsync: {said} added",
        ]
        assert as_document(answer)["summary"]["changedSyncerConfigs"] == 1
        assert answer.is_change
        clause = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["shop"], "objectNames": ["prices"]}
        single = await planned(one, placement(namespaceSelector=MINE, downsync=[clause]))
        assert [(each["path"], each["change"]) for each in as_document(single)["destinations"][0]["syncerConfig"]] == [
            ("spec.namespaceScope.namespaces", "removed"),
            *[("spec.namespaceScope.resources", "removed")] * KINDS,
            ("spec.namespacedObjects", "added"),
        ]
        assert "    spec.namespacedObjects: configmaps shop/prices added" in shown(single)
        assert (
            as_document(await planned(one, config_map("prices", {"tea": "4"})))["summary"]["changedSyncerConfigs"] == 0
        )


async def test_an_edit_of_an_object_shows_where_it_goes_and_how_each_copy_changes() -> None:
    async with shop() as one:
        edited = config_map("prices", {"tea": "4", "a.b": "x"}, labels={"new": "yes"})
        assert shown(await planned(one, edited)) == [
            "ConfigMap shop/prices (changed)",
            "placed on 2 destinations",
            "",
            "2 destinations: florin/florin, guilder/guilder",
            "~ configmaps shop/prices",
            '    data["a.b"]: "x" added',
            '    data.tea: "3" → "4"',
            '    metadata.labels.new: "yes" added',
        ]


async def test_what_an_object_is_that_is_new_unchanged_or_goes_nowhere() -> None:
    async with shop() as one:
        nowhere = config_map("other", {"a": "b"}, namespace="default")
        answer = await planned(one, config_map("fresh", {"a": "b"}), config_map("prices", {"tea": "3"}), nowhere)
        assert [(obj["spec"], len(obj["goesTo"])) for obj in as_document(answer)["objects"]] == [
            ("new", 2),
            ("unchanged", 2),
            ("new", 0),
        ]
        assert "not placed: no EdgePlacement selects it" in shown(answer)
        assert [
            len(obj["goesTo"]) for obj in as_document(await planned(one, namespace("shop", env="prod")))["objects"]
        ] == [2]
        assert shown(answer)[-1] == "+ configmaps shop/fresh"


async def test_an_object_of_a_placement_without_destinations_is_not_placed_and_names_the_placement() -> None:
    async with shop() as one:
        nowhere = placement("q", locationSelectors=[{"matchLabels": {"env": "moon"}}], namespaceSelector=MINE)
        answer = await planned(one, nowhere, namespace("mine", mine="yes"), config_map("a", {}, namespace="mine"))
        lines = shown(answer)
        assert lines[:3] == [
            "EdgePlacement q (new)",
            "warning: no destination: no Location matches",
            "0 added, 0 removed, 0 unchanged; 1 object selected",
        ]
        why = "not placed: EdgePlacement q selects it, and has no destinations (farflung explain placement q)"
        assert lines.count(why) == 2


async def test_of_a_secret_only_keys_are_shown() -> None:
    async with shop() as one:
        answer = await planned(one, secret("key", {"pin": f"{HIDDEN}2", "more": HIDDEN}))
        [differences] = {
            orjson.dumps(each["changed"][0]["differences"]) for each in as_document(answer)["destinations"]
        }
        assert orjson.loads(differences) == [
            {"path": "data.more", "change": "added"},
            {"path": "data.pin", "change": "changed"},
        ]
        assert shown(answer)[-2:] == ["    data.more added", "    data.pin changed"]
        wrong = {**secret("key", {}), "data": {"pin": f"{HIDDEN}!"}}
        assert "error" in as_document(await planned(one, wrong))["objects"][0]


async def test_a_deployment_is_compared_without_what_servers_add() -> None:
    async with shop() as one:
        await one.must_put(one.workloads[0], DEPLOYMENTS, deployment("web", "httpd:1"))
        bound = {"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "resourceNames": ["kube"]}
        await one.placement(0, "p", namespaceSelector=PROD, nonNamespacedObjects=[bound])
        await one.fleet.eventually(lambda: one.has(one.boxes, f"{DEPLOYMENTS}/web"), "the Deployment")
        await one.at_rest()
        answer = await planned(one, deployment("web", "httpd:2"))
        assert as_document(answer)["destinations"][0]["changed"][0]["differences"] == [
            {"path": "spec.template.spec.containers[0].image", "before": "httpd:1", "after": "httpd:2"}
        ]


async def test_a_deletion_takes_the_copies_and_that_of_a_placement_all_of_them() -> None:
    async with shop() as one:
        answer = await planned(one, config_map("prices", {}), delete=True)
        assert shown(answer)[0] == "ConfigMap shop/prices (deleted)"
        assert shown(answer)[-1] == "- configmaps shop/prices"
        whole = await planned(one, placement(), delete=True)
        assert shown(whole)[0] == "EdgePlacement p (deleted)"
        assert shown(whole)[-3:] == ["- configmaps shop/prices", "- namespaces shop", "- secrets shop/key"]
        missing = await planned(one, config_map("missing", {}), delete=True)
        assert as_document(missing)["objects"][0]["error"] == 'configmaps "missing" not found'


async def test_an_edit_of_a_placement_or_a_namespace_shows_what_is_withdrawn() -> None:
    async with shop() as one:
        gone = ["- configmaps shop/prices", "- namespaces shop", "- secrets shop/key"]
        assert shown(await planned(one, placement(namespaceSelector=MINE)))[-3:] == gone
        assert shown(await planned(one, namespace("shop", env="dev")))[-3:] == gone
        elsewhere = {"matchLabels": {"nowhere": "x"}}
        away = await planned(one, placement(namespaceSelector=PROD, locationSelectors=[elsewhere]))
        assert (as_document(away)["summary"]["removed"], as_document(away)["summary"]["deletedCopies"]) == (2, 6)


async def test_what_the_translator_would_hold_is_marked() -> None:
    async with shop(*(f"t{number:02}" for number in range(11))) as one:
        answer = await planned(one, placement(namespaceSelector=MINE))
        assert as_document(answer)["summary"]["heldCopies"] == as_document(answer)["summary"]["deletedCopies"] == 33
        assert shown(answer)[-4:] == [
            "11 destinations: t00/t00, t01/t01, t02/t02, t03/t03, t04/t04 and 6 more",
            "- configmaps shop/prices (held until confirmed)",
            "- namespaces shop (held until confirmed)",
            "- secrets shop/key (held until confirmed)",
        ]
        confirmed = placement(namespaceSelector=MINE)
        confirmed["metadata"]["annotations"] = {CONFIRM: "2/11"}
        assert as_document(await planned(one, confirmed))["summary"]["heldCopies"] == 0
        by_name = await planned(one, config_map("prices", {}), delete=True)
        assert as_document(by_name)["summary"]["heldCopies"] == 0


async def test_an_object_of_others_is_in_the_way() -> None:
    async with shop("florin") as one:
        await one.must_put(one.boxes["florin"], MAPS, config_map("theirs", {}))
        answer = await planned(one, config_map("theirs", {"a": "b"}))
        assert shown(answer)[-1] == (
            "! configmaps shop/theirs: the mailbox has such an object that no placement created; it is not changed"
        )
        assert not answer.is_change


async def test_what_a_syncer_still_holds_is_shown_as_being_withdrawn() -> None:
    async with shop("florin") as one:
        held = {"metadata": {"finalizers": ["edge.kcp.io/syncer"]}}
        await one.patch(one.boxes["florin"], f"{MAPS}/prices", held)
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="dev"))
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{SECRETS}/key"))
        await one.at_rest()
        explained = await explain(asked(one), "p", "florin")
        [entry] = as_document(explained)["locations"]
        assert [(copy["syncTarget"], copy["name"]) for copy in entry["beingWithdrawn"]] == [("florin", "prices")]
        text = printed_explanation(explained, "table", detailed=True)
        assert "SYNCTARGET   BEING WITHDRAWN\nflorin       configmaps shop/prices\n" in text
        back = await planned(one, namespace("shop", env="prod"))
        assert "+ configmaps shop/prices (being withdrawn, then created again)" in shown(back)
        assert as_document(back)["summary"]["createdCopies"] == 1, "the Secret; the namespace is there still"
        gone = await planned(one, config_map("prices", {}), delete=True)
        assert not gone.is_change


async def test_what_another_workspace_brings_too_stays() -> None:
    async with shop("florin") as one:
        await one.must_put(one.workloads[1], NAMESPACES, namespace("shop", env="prod"))
        await one.must_put(one.workloads[1], MAPS, config_map("prices", {"coffee": "5"}))
        await one.placement(1, "q", namespaceSelector=PROD)

        async def both() -> bool:
            found = await one.copy("florin", f"{MAPS}/prices")
            return found is not None and set(found["data"]) == {"coffee", "tea"}

        await one.fleet.eventually(both, "what both bring")
        await one.at_rest()
        answer = await planned(one, placement(), delete=True)
        [destination] = as_document(answer)["destinations"]
        assert [each["name"] for each in destination["deleted"]] == ["key"]
        assert destination["changed"][0]["differences"] == [{"path": "data.tea", "before": "3"}]


async def test_a_customizer_changes_the_copies_that_name_it() -> None:
    async with shop() as one:
        marked = {"annotations": {"edge.kcp.io/customizer": "prices"}}
        customizer = {
            "apiVersion": "edge.kcp.io/v1alpha1",
            "kind": "Customizer",
            "metadata": {"name": "prices", "namespace": "shop"},
            "replacements": [{"path": "$.data.tea", "value": '"9"'}],
        }
        path = f"{EDGE}/namespaces/shop/customizers"
        await one.must_put(one.workloads[0], path, customizer)
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "3"}, **marked))

        async def customized() -> bool:
            found = await one.copy("florin", f"{MAPS}/prices")
            return found is not None and found["data"] == {"tea": "9"}

        await one.fleet.eventually(customized, "the customized copy")
        await one.at_rest()
        customizer["replacements"] = [{"path": "$.data.tea", "value": '"8"'}]
        answer = await planned(one, customizer)
        assert shown(answer)[-1] == '    data.tea: "9" → "8"'


async def test_who_cannot_see_mailboxes_is_told_so_and_sees_what_they_should_have() -> None:
    async with shop() as one:
        hub = asked(one)
        blind = HubClient(hub.workspace, hub.root, "root:nothing")
        answer = await plan(blind, check([Manifest("x.yaml", config_map("prices", {"tea": "4"}, namespace="shop"))]))
        assert as_document(answer)["destinations"][0]["changed"][0]["differences"][0]["path"] == "data.tea"
        [remark] = as_document(answer)["remarks"]
        assert remark.startswith("mailboxes are not visible; the plan assumes that they are up to date: ")


EDITS = [
    (MAPS, config_map("prices", {"tea": "4"}, namespace="shop", labels={"a": "b"})),
    (NAMESPACES, namespace("shop", env="dev")),
    (f"{EDGE}/edgeplacements", placement(namespaceSelector=MINE)),
    (f"{EDGE}/edgeplacements", placement(namespaceSelector=PROD, locationSelectors=[{"matchLabels": {"x": "y"}}])),
    (SECRETS, secret("key", {"other": "x"}, namespace="shop")),
]


@pytest.mark.parametrize(("path", "obj"), EDITS)
async def test_the_plan_comes_true(path: str, obj: Obj) -> None:
    async with shop("florin") as one:
        answer = await planned(one, obj)
        copy_changes = as_document(answer)["destinations"][0]
        await one.must_put(one.workloads[0], path, obj)
        await one.at_rest()

        async def true() -> bool:
            return all([await one.copy("florin", path_of(copy)) is None for copy in copy_changes["deleted"]]) and all(
                [await one.copy("florin", path_of(copy)) is not None for copy in copy_changes["created"]]
            )

        await one.fleet.eventually(true, "the plan")
        again = await planned(one, obj)
        assert not again.is_change, again


def path_of(copy: Obj) -> str:
    assert not copy["group"]
    return inside(copy["namespace"], copy["resource"]) + f"/{copy['name']}" if copy["namespace"] else _whole(copy)


def _whole(copy: Obj) -> str:
    return f"/api/v1/{copy['resource']}/{copy['name']}"


async def test_copies_that_another_tenant_or_the_cluster_itself_prevents_are_problems_and_no_changes() -> None:
    parents = ("root:owners", "root:tenants")
    async with world("florin", parents=parents) as one:
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="prod"))
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "3"}))
        await one.placement(0, "p", namespaceSelector=PROD)
        await one.fleet.eventually(lambda: one.has(one.boxes, f"{MAPS}/prices"), "the first copies")
        for name in ("shop", "kube-system", "own"):
            await one.must_put(one.workloads[1], NAMESPACES, namespace(name, env="prod"))
        await one.must_put(one.workloads[1], MAPS, config_map("prices", {"tea": "0"}))
        await one.at_rest()
        answer = await planned(one, placement("q", namespaceSelector=PROD), workload=1)
        (found,) = answer.destinations
        in_use = "namespaces shop: the namespace at the Location florin is used by a workspace with another parent"
        reserved = "namespaces kube-system: the namespace at the Location florin is reserved for the cluster itself"
        assert [problem.partition(", so ")[0] for problem in found.problems] == [in_use, reserved]
        assert [(one.resource, one.name) for one in found.created] == [("namespaces", "own")]
        assert (found.changed, found.deleted) == ([], [])
        assert all("shop" not in str(change) for change in found.syncer_config)
        await one.placement(1, "q", namespaceSelector=PROD)
        await one.fleet.eventually(lambda: one.has(one.boxes, f"{NAMESPACES}/own"), "the copy")
        await one.fleet.eventually(lambda: one.says("NamespaceReserved", name="q", workload=1))
        changed = await planned(one, config_map("prices", {"tea": "1"}), workload=1)
        (found,) = changed.destinations
        assert (found.created, found.changed, len(found.problems)) == ([], [], 1)
        assert shown(changed)[-1].startswith(f"! {in_use}")
