"""A syncer obeys the mailbox of its own SyncTarget and no other, and writes nothing into another one."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet import EDGE, PROVIDER, TENANCY
from syncing import CONFIGS, MAPS, NAMESPACES, Link, linked, scope
from translated import binding, config_map, namespace

from farflung.apis.edge.names import PROJECTED
from farflung.client.rest import Client, ListOptions
from farflung.http import messages
from farflung.machinery.errors import Obj


async def another_mailbox(link: Link) -> str:
    """That of a SyncTarget `guilder`."""
    one = link.fleet
    await one.target("root:compute", "guilder", {})

    async def made() -> str:
        for workspace in await one.items(f"/clusters/{PROVIDER}{TENANCY}/workspaces"):
            found = f"{PROVIDER}:{workspace['metadata']['name']}"
            if found != link.path and await one.do("GET", f"/clusters/{found}{EDGE}/syncerconfigs/the-one"):
                return found
        return ""

    other = str(await link.eventually(made, "another mailbox"))
    await one.do("POST", f"/clusters/{other}/apis/apis.kcp.io/v1alpha1/apibindings", binding("bind-kube"))
    return other


def client(link: Link, path: str) -> Client:
    return Client(link.mailbox.transport, f"/clusters/{path}", "test")


async def furnish(client: Client, words: str) -> None:
    await client.patch(CONFIGS, "the-one", {"spec": scope("shop", resources=(MAPS,))})
    for collection, obj, inside in (
        (NAMESPACES, namespace("shop"), ""),
        (MAPS, config_map("page", {"words": words}), "shop"),
        (MAPS, config_map(words, {}), "shop"),
    ):
        obj["metadata"]["labels"] = {PROJECTED: "yes"}
        await client.create(collection, obj, inside)


def led_astray(link: Link, other: str) -> Any:
    """The hub answers as if the one were the other."""
    function = link.fleet.hub.function

    def answer(request: messages.Request) -> messages.Response | messages.Stream | Awaitable[object]:
        return function(replace(request, path=request.path.replace(link.path, other)))

    return answer


async def contents(client: Client) -> list[Obj]:
    copies = ListOptions(labels=f"{PROJECTED}=yes")
    return [*await client.list(CONFIGS), *await client.list(NAMESPACES, copies), *await client.list(MAPS, copies)]


def warned(link: Link) -> list[str]:
    return [line for line in link.log.getvalue().splitlines() if "the mailbox belongs to another SyncTarget" in line]


async def shows(link: Link, words: str) -> bool:
    return bool((await link.cluster.get(MAPS, "page", "shop"))["data"]["words"] == words)


async def test_the_mailbox_of_another_cluster_in_place_of_ours_is_ignored(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await furnish(link.mailbox, "ours")
        await link.at_edge(MAPS, "ours", "shop")
        other = await another_mailbox(link)
        theirs = client(link, other)
        await furnish(theirs, "theirs")
        await link.settled()
        before = await contents(theirs)
        link.up.function = led_astray(link, other)
        await link.fleet.hub.store.compact(link.fleet.hub.store.revision)
        link.up.cut()
        await link.eventually(lambda: warned(link), "a warning")
        await link.cluster.delete(MAPS, "page", "shop")
        await link.eventually(lambda: shows(link, "ours"), "what the syncer remembers")
        asked = len(link.up.requests)
        await link.eventually(lambda: len(link.up.requests) > asked + 5, "further tries")
        assert await contents(theirs) == before
        assert len(warned(link)) == 1
        assert (
            f"{other} is not the mailbox of a SyncTarget with the uid {link.path.rpartition('-mb-')[2]}"
            in warned(link)[0]
        )
        link.up.function = link.fleet.hub.function
        await link.mailbox.patch(MAPS, "page", {"data": {"words": "ours again"}}, "shop")
        await link.eventually(lambda: shows(link, "ours again"), "what our mailbox says")
        assert {one["metadata"]["name"] for one in await link.cluster.list(MAPS)} >= {"ours", "page"}
        assert not [one for one in await link.cluster.list(MAPS) if one["metadata"]["name"] == "theirs"]


async def test_the_mailbox_of_another_is_not_obeyed_from_the_start(tmp_path: Path) -> None:
    async with linked(tmp_path, starts=False) as link:
        other = await another_mailbox(link)
        theirs = client(link, other)
        await furnish(theirs, "theirs")
        before = await contents(theirs)
        link.up.function = led_astray(link, other)
        await link.start()
        await link.eventually(lambda: warned(link), "a warning")
        asked = len(link.up.requests)
        await link.eventually(lambda: len(link.up.requests) > asked + 5, "further tries")
        assert {request.method for request in link.up.requests} == {"GET"}
        assert await contents(theirs) == before
        await furnish(link.mailbox, "ours")
        link.up.function = link.fleet.hub.function
        await link.at_edge(MAPS, "ours", "shop")
        await link.eventually(lambda: shows(link, "ours"), "what our mailbox says")
