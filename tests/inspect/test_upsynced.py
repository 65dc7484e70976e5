"""`farflung list-upsynced`: what was made at edges and comes back, and nothing else."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from asked_fleet import DEFINITIONS, NAMESPACES, NOW, AskedFleet
from asked_hub import placement as placed
from click.testing import CliRunner
from translated import config_map, definition, namespace, widget

from farflung.apis.edge.names import EDGE_PLACEMENTS
from farflung.apis.names import Collection
from farflung.cli.main import main
from farflung.cli.trace_output import print_upsynced
from farflung.client.errors import Forbidden
from farflung.client.rest import Client
from farflung.inspect.hub import hub_client
from farflung.inspect.results import InspectError
from farflung.inspect.upsynced import UpsyncQuery, upsynced
from farflung.machinery.errors import Obj
from farflung.syncer.conversion import for_mailbox

MAPS = Collection("", "v1", "configmaps", "ConfigMap")
WIDGETS = Collection("example.org", "v1", "widgets", "Widget")
ENTER = {"nonResourceURLs": ["/"], "verbs": ["access"]}
DISCOVER = {"nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*"], "verbs": ["get"]}


def wanted(group: str = "example.org", *resources: str, namespaces: Any = ("*",), names: Any = ("*",)) -> Obj:
    sets = {"namespaces": list(namespaces), "names": list(names)}
    return {"apiGroup": group, "resources": list(resources or ("widgets",)), **sets}


async def born(mailbox: Client, obj: Obj, collection: Collection = WIDGETS) -> None:
    """At the edge, and brought to the mailbox as a syncer does."""
    obj = for_mailbox({**obj, "metadata": {**obj["metadata"], "namespace": "shop"}})
    await mailbox.create(collection, obj, "shop")


async def furnished(*upsync: Obj) -> tuple[AskedFleet, Client, Client]:
    """Two edges, a placement that leads to both, and mailboxes that serve Widgets, which the workspace does not."""
    hub = await AskedFleet.started()
    florin, guilder = await hub.edge("florin"), await hub.edge("guilder")
    for mailbox in (florin, guilder):
        await mailbox.create(DEFINITIONS, definition("v1"))
        await mailbox.create(NAMESPACES, namespace("shop"))
    await hub.place(placed("p", {}, upsync=list(upsync or [wanted()])))
    await hub.schedule()
    return hub, florin, guilder


async def names(hub: AskedFleet, *query: str) -> list[str]:
    found = await upsynced(hub.asked, UpsyncQuery(*query))
    return [f"{item.sync_target} {item.object['metadata']['name']}" for item in found.items]


async def test_what_all_edges_made_is_listed_with_where_it_is_from() -> None:
    hub, florin, guilder = await furnished()
    await born(guilder, widget("b", 1, labels={"hot": "yes"}))
    await born(florin, widget("b", 2))
    await born(florin, widget("a", 3))
    await florin.create(WIDGETS, widget("theirs", 4), "shop")
    for word in ("widgets", "widget", "Widget", "widgets.example.org", "widgets.v1.example.org"):
        answer = await upsynced(hub.asked, UpsyncQuery(word))
        assert [line.split()[:4] for line in print_upsynced(answer, "table", NOW).splitlines()] == [
            ["NAMESPACE", "NAME", "LOCATION", "SYNCTARGET"],
            ["shop", "a", "florin", "florin"],
            ["shop", "b", "florin", "florin"],
            ["shop", "b", "guilder", "guilder"],
        ]
    assert hub.transport.writes == []
    answer = await upsynced(hub.asked, UpsyncQuery("widgets", "shop", "hot=yes"))
    [hot] = orjson.loads(print_upsynced(answer, "json", NOW))["items"]
    assert guilder.prefix.endswith(f":{hot['mailbox']}")
    assert (hot["location"], hot["otherLocations"], hot["syncTarget"]) == ("guilder", [], "guilder")
    assert (hot["object"]["kind"], hot["object"]["spec"]) == ("Widget", {"size": 1})
    nothing = await upsynced(hub.asked, UpsyncQuery("widgets", "default"))
    assert print_upsynced(nothing, "table", NOW) == "No upsynced widgets found."


async def test_only_what_placements_of_the_workspace_bring_back_is_listed() -> None:
    hub, florin, _ = await furnished(wanted(names=("a",)), wanted("", "configmaps"))
    for name in ("a", "b"):
        await born(florin, widget(name, 1))
    await born(florin, config_map("made", {"x": "y"}), MAPS)
    assert await names(hub, "widgets") == ["florin a"]
    assert await names(hub, "cm") == ["florin made"]
    with pytest.raises(InspectError, match="nor a mailbox of its placements serves gadgets"):
        await names(hub, "gadgets")


async def test_it_is_said_why_nothing_can_come_back() -> None:
    hub, _, _ = await furnished()
    secrets = await upsynced(hub.asked, UpsyncQuery("secrets"))
    reason = "no EdgePlacement of the workspace root:web upsyncs secrets (spec.upsync)"
    assert (secrets.items, secrets.remarks) == ([], [reason])
    await hub.client.patch(EDGE_PLACEMENTS, "p", {"spec": {"locationSelectors": [{"matchLabels": {"no": "place"}}]}})
    await hub.schedule()
    nowhere = (await upsynced(hub.asked, UpsyncQuery("widgets"))).remarks
    assert nowhere == ["the EdgePlacements of the workspace root:web with spec.upsync have no destination"]
    await hub.client.patch(EDGE_PLACEMENTS, "p", {"spec": {"upsync": None}})
    nothing = (await upsynced(hub.asked, UpsyncQuery("widgets"))).remarks
    assert nothing == ["no EdgePlacement of the workspace root:web has spec.upsync"]
    with pytest.raises(InspectError, match=r"`kubectl kcp bind apiexport root:espw:edge.kcp.io` in that workspace"):
        await upsynced(hub_client(hub.inventory), UpsyncQuery("widgets"))


async def test_a_mailbox_that_has_another_version_is_read_in_that_one() -> None:
    hub, florin, guilder = await furnished()
    crd = await florin.get(DEFINITIONS, "widgets.example.org")
    await florin.update(DEFINITIONS, crd | {"spec": definition("v1", "v2")["spec"]})
    await hub.client.create(DEFINITIONS, definition("v2"))
    await born(florin, widget("a", 1))
    await born(guilder, widget("a", 1))
    found = await upsynced(hub.asked, UpsyncQuery("widgets"))
    versions = {item.sync_target: item.object["apiVersion"] for item in found.items}
    assert versions == {"florin": "example.org/v2", "guilder": "example.org/v1"}


async def test_a_mailbox_that_is_not_made_yet_has_nothing() -> None:
    hub, florin, _ = await furnished()
    await hub.edge("fresh", mailbox=False)
    await hub.schedule()
    await born(florin, widget("a", 1))
    found = await upsynced(hub.asked, UpsyncQuery("widgets"))
    assert (len(found.items), found.remarks) == (1, [])


async def test_what_one_may_not_see_is_said() -> None:
    hub, florin, _ = await furnished()
    await born(florin, widget("a", 1))
    with pytest.raises(Forbidden):
        await upsynced(hub.asked_by_somebody, UpsyncQuery("widgets"))
    read = {"apiGroups": ["edge.kcp.io"], "resources": ["*"], "verbs": ["get", "list"]}
    await hub.grant("root:web", "read", ENTER, read)
    await hub.client.create(DEFINITIONS, definition("v1"))
    with pytest.raises(InspectError, match="serves widgets, as far as you may see: "):
        await upsynced(hub.asked_by_somebody, UpsyncQuery("widgets"))
    await hub.grant("root:web", "discover", DISCOVER)
    with pytest.raises(InspectError, match="you may not read the mailboxes of these placements"):
        await upsynced(hub.asked_by_somebody, UpsyncQuery("widgets"))
    see = {"apiGroups": ["example.org"], "resources": ["widgets"], "verbs": ["list"]}
    await hub.grant(florin.prefix.removeprefix("/clusters/"), "see", ENTER, see)
    found = await upsynced(hub.asked_by_somebody, UpsyncQuery("widgets"))
    assert [item.sync_target for item in found.items] == ["florin"]
    assert found.remarks[0].startswith("1 of 2 mailboxes are not visible and are ignored: ")


def test_the_command_says_what_it_takes() -> None:
    said = CliRunner().invoke(main, ["list-upsynced", "--help"]).output
    assert "--json" in said
    assert "nines.group9.test" in said
