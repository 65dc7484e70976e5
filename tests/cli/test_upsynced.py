"""`farflung list-upsynced`: what was made at edges and comes back, and nothing else."""

from __future__ import annotations

from typing import Any

import click
import orjson
import pytest
from click.testing import CliRunner
from local_transport import LocalTransport
from platform_harness import ALICE, OPERATOR, RBAC, PlatformHub
from translated import DEFINITIONS, NAMESPACES, PROD, World, config_map, definition, inside, namespace, widget, world

from farflung.cli.connection import Hub, hub_of
from farflung.cli.main import main
from farflung.cli.upsynced import Question, printed, upsynced, ways
from farflung.client.errors import Forbidden
from farflung.client.rest import Client
from farflung.controllers.placement_translator.values import Kind, Part
from farflung.machinery.errors import Obj
from farflung.syncer.shaping import for_mailbox

WIDGETS = inside("shop", "widgets", "example.org/v1")
MAPS = inside("shop", "configmaps")


def wanted(group: str = "example.org", *resources: str, namespaces: Any = ("*",), names: Any = ("*",)) -> Obj:
    sets = {"namespaces": list(namespaces), "names": list(names)}
    return {"apiGroup": group, "resources": list(resources or ("widgets",)), **sets}


def asked(one: World, workload: int = 0, who: str = OPERATOR) -> Hub:
    transport = LocalTransport(one.fleet.hub.function, who)
    return hub_of(Client(transport, f"/clusters/{one.workloads[workload]}", "farflung"))


async def born(one: World, box: str, obj: Obj, collection: str = WIDGETS) -> None:
    """At the edge, and brought to the mailbox as a syncer does."""
    obj = {**obj, "metadata": {**obj["metadata"], "namespace": "shop"}}
    await one.must_put(one.boxes[box], collection, for_mailbox(obj))


async def furnished(one: World) -> None:
    """A placement to all edges; mailboxes that serve Widgets, which the workspace does not."""
    await one.placement(0, "p", namespaceSelector={"matchLabels": {"none": "such"}}, upsync=[wanted()])
    for cluster in one.boxes.values():
        await one.must_put(cluster, DEFINITIONS, definition("v1"))
        await one.must_put(cluster, NAMESPACES, namespace("shop"))
    await one.at_rest()


def rows(answer: Obj, one: World) -> list[list[str]]:
    return [line.split() for line in printed(answer, "table", one.fleet.hub.now).splitlines()]


async def test_what_all_edges_made_is_listed_with_where_it_is_from() -> None:
    async with world("florin", "guilder") as one:
        await furnished(one)
        await born(one, "guilder", widget("b", 1, labels={"hot": "yes"}))
        await born(one, "florin", widget("b", 2))
        await born(one, "florin", widget("a", 3))
        await one.must_put(one.boxes["florin"], WIDGETS, widget("theirs", 4))
        for word in ("widgets", "widget", "widgets.example.org", "widgets.v1.example.org"):
            answer = await upsynced(asked(one), Question(word))
            assert rows(answer, one) == [
                ["NAMESPACE", "NAME", "LOCATION", "SYNCTARGET", "AGE"],
                ["shop", "a", "florin", "florin", "0s"],
                ["shop", "b", "florin", "florin", "0s"],
                ["shop", "b", "guilder", "guilder", "0s"],
            ]
        [hot] = orjson.loads(
            printed(await upsynced(asked(one), Question("widgets", "shop", "hot=yes")), "json", one.fleet.hub.now)
        )["items"]
        assert (hot["location"], hot["syncTarget"], hot["mailbox"]) == ("guilder", "guilder", one.names["guilder"])
        assert (hot["object"]["kind"], hot["object"]["spec"]) == ("Widget", {"size": 1})
        elsewhere = await upsynced(asked(one), Question("widgets", "default"))
        assert rows(elsewhere, one) == [["Nothing", "of", "widgets", "came", "back", "from", "an", "edge."]]


async def test_only_what_placements_of_the_workspace_bring_back_is_listed() -> None:
    async with world("florin", "guilder") as one:
        await furnished(one)
        await one.fleet.placement(one.workloads[1], "other", {"matchLabels": {"no": "place"}}, upsync=[wanted()])
        await one.placement(0, "p", namespaceSelector=PROD, upsync=[wanted(names=("a",)), wanted("", "configmaps")])
        await one.at_rest()
        for name in ("a", "b"):
            await born(one, "florin", widget(name, 1))
        await born(one, "florin", config_map("made", {"x": "y"}), MAPS)
        found = await upsynced(asked(one), Question("widgets"))
        assert [item["object"]["metadata"]["name"] for item in found["items"]] == ["a"]
        maps = await upsynced(asked(one), Question("cm"))
        assert [item["object"]["metadata"]["name"] for item in maps["items"]] == ["made"]
        assert (await upsynced(asked(one, 1), Question("widgets")))["remarks"] == [
            f"the EdgePlacements of the workspace {one.workloads[1]} that bring something back lead nowhere"
        ]
        secrets = await upsynced(asked(one), Question("secrets"))
        assert (secrets["items"], secrets["remarks"]) == (
            [],
            [f"no EdgePlacement of the workspace {one.workloads[0]} brings secrets back (spec.upsync)"],
        )
        with pytest.raises(click.ClickException, match="nor a mailbox of its placements serves gadgets"):
            await upsynced(asked(one), Question("gadgets"))


async def test_a_mailbox_that_has_another_version_is_read_in_that_one() -> None:
    async with world("florin", "guilder") as one:
        await furnished(one)
        await one.must_put(one.boxes["florin"], DEFINITIONS, definition("v1", "v2"))
        await one.must_put(one.workloads[0], DEFINITIONS, definition("v2"))
        await born(one, "florin", widget("a", 1))
        await born(one, "guilder", widget("a", 1))
        found = await upsynced(asked(one), Question("widgets"))
        versions = {item["syncTarget"]: item["object"]["apiVersion"] for item in found["items"]}
        assert versions == {"florin": "example.org/v2", "guilder": "example.org/v1"}


async def test_a_workspace_whose_placements_bring_nothing_back_is_told_how() -> None:
    async with world("florin") as one:
        found = await upsynced(asked(one), Question("widgets"))
        assert found["remarks"] == [
            f"no EdgePlacement of the workspace {one.workloads[0]} brings anything back: spec.upsync says what does"
        ]
        with pytest.raises(click.ClickException, match=r"`kubectl kcp bind apiexport root:espw:edge.kcp.io` binds it"):
            await upsynced(hub_of(asked(one).workspace.workspace("root")), Question("widgets"))


async def grant(hub: PlatformHub, cluster: str, name: str, *rules: Obj) -> None:
    meta = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    role = {**meta, "kind": "ClusterRole", "rules": list(rules)}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": ALICE}]
    binding = {**meta, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects}
    for plural, body in (("clusterroles", role), ("clusterrolebindings", binding)):
        answer = await hub.of(OPERATOR, "POST", f"/clusters/{cluster}{RBAC}/{plural}", body)
        assert answer.status == 201


ENTER = {"nonResourceURLs": ["/", "/api", "/api/*", "/apis", "/apis/*"], "verbs": ["access", "get"]}


async def test_what_one_may_not_see_is_said() -> None:
    async with world("florin", "guilder") as one:
        await furnished(one)
        await born(one, "florin", widget("a", 1))
        with pytest.raises(Forbidden):
            await upsynced(asked(one, who=ALICE), Question("widgets"))
        read = {"apiGroups": ["edge.kcp.io"], "resources": ["*"], "verbs": ["get", "list"]}
        await grant(one.fleet.hub, one.workloads[0], "read", ENTER, read)
        await one.must_put(one.workloads[0], DEFINITIONS, definition("v1"))
        with pytest.raises(click.ClickException, match="you may not see what is in the mailboxes of these placements"):
            await upsynced(asked(one, who=ALICE), Question("widgets"))
        see = {"apiGroups": ["example.org"], "resources": ["widgets"], "verbs": ["list"]}
        await grant(one.fleet.hub, one.boxes["florin"], "see", ENTER, see)
        found = await upsynced(asked(one, who=ALICE), Question("widgets"))
        assert [item["syncTarget"] for item in found["items"]] == ["florin"]
        assert found["remarks"][0].startswith("1 of 2 mailboxes cannot be seen, and are left out: ")


# --- which objects come back, and from where ------------------------------------------------------


def placement(uid: str, *upsync: Obj) -> Obj:
    return {"metadata": {"name": uid, "uid": uid}, "spec": {"upsync": list(upsync)}}


def part_of(owner: str, *destinations: tuple[str, str, str]) -> Obj:
    reference = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "name": owner, "uid": owner}
    places = [
        {"cluster": "c", "locationName": location, "syncTargetName": target, "syncTargetUID": uid}
        for location, target, uid in destinations
    ]
    return {"metadata": {"ownerReferences": [reference]}, "destinations": places}


def test_places_are_those_of_placements_that_bring_something_back() -> None:
    some = [placement("up", wanted()), placement("down"), placement("odd", {"apiGroup": 3})]
    slices = [
        part_of("up", ("l1", "t1", "1")),
        part_of("up", ("l2", "t1", "1"), ("l2", "t2", "2")),
        part_of("down", ("l3", "t3", "3")),
        part_of("odd", ("l4", "t4", "4")),
        {"metadata": {}, "destinations": [None]},
    ]
    found = ways(some, slices)
    assert {name: way.place.locations for name, way in found.items()} == {"c-mb-1": ("l1", "l2"), "c-mb-2": ("l2",)}


@pytest.mark.parametrize(
    ("upsync", "part", "brought"),
    [
        (wanted(), Part(Kind("example.org", "widgets"), "shop", "a"), True),
        (wanted(), Part(Kind("example.org", "widgets"), "", "a"), True),
        (wanted(), Part(Kind("other.org", "widgets"), "shop", "a"), False),
        (wanted(), Part(Kind("example.org", "gadgets"), "shop", "a"), False),
        (wanted("example.org", "*"), Part(Kind("example.org", "gadgets"), "shop", "a"), True),
        (wanted(namespaces=("farm",)), Part(Kind("example.org", "widgets"), "shop", "a"), False),
        (wanted(namespaces=("farm",)), Part(Kind("example.org", "widgets"), "", "a"), True),
        (wanted(names=("b",)), Part(Kind("example.org", "widgets"), "shop", "a"), False),
        (wanted(names=()), Part(Kind("example.org", "widgets"), "shop", "a"), False),
    ],
)
def test_a_place_brings_back_what_its_placements_say(upsync: Obj, part: Part, brought: bool) -> None:
    [way] = ways([placement("p", upsync)], [part_of("p", ("l", "t", "1"))]).values()
    assert way.brings(part) is brought


def test_two_placements_bring_back_together_what_each_does() -> None:
    some = [placement("p", wanted(names=("a",))), placement("q", wanted(names=("b",)))]
    [way] = ways(some, [part_of("p", ("l", "t", "1")), part_of("q", ("m", "t", "1"))]).values()
    assert [way.brings(Part(Kind("example.org", "widgets"), "shop", name)) for name in "abc"] == [True, True, False]
    assert way.place.locations == ("l", "m")


def test_the_command_says_what_it_takes() -> None:
    said = CliRunner().invoke(main, ["list-upsynced", "--help"]).output
    assert "--json" in said
    assert "nines.group9.test" in said
