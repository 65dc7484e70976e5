"""What people are told of workspaces that are not there, or that are not theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import click
import pytest
from asked_hub import WORKLOAD, AskedHub
from hub_harness import ADMIN_TOKEN, USER_TOKEN, LocalHub
from local_transport import LocalTransport
from scripted_server import Scripted, ScriptedServer

from farflung.cli.connection import with_messages
from farflung.client.errors import Unreachable
from farflung.client.rest import Client
from farflung.inspect.fleet_status import status
from farflung.inspect.hub import HubClient, get_placement, hub_client
from farflung.machinery.times import parse
from farflung.syncer.registration import sync_target

OTHERS = "`kubectl ws tree` shows those below the current one"
OPEN = (
    {"nonResourceURLs": ["/"], "verbs": ["access"]},
    {"nonResourceURLs": ["*"], "verbs": ["get"]},
)


def at(hub: AskedHub, path: str, *, somebody: bool = False) -> HubClient:
    asking = LocalTransport(hub.transport.function, USER_TOKEN) if somebody else hub.transport
    return hub_client(Client(asking, f"/clusters/{path}", "farflung"))


async def refused(hub: HubClient, deed: Awaitable[object]) -> str:
    with pytest.raises(click.ClickException) as told:
        await with_messages(hub.workspace, deed)
    return told.value.message


async def refused_a_placement(hub: AskedHub, path: str, *, somebody: bool = False) -> str:
    asking = at(hub, path, somebody=somebody)
    return await refused(asking, get_placement(asking, "p"))


async def test_every_command_says_which_workspace_there_is_none_of_and_which_was_perhaps_meant() -> None:
    hub = at(await AskedHub.started(), "root:wep:inner")
    commands = (
        get_placement(hub, "p"),
        sync_target(hub.workspace, "florin"),
        status(hub, parse("2024-05-01T12:00:00Z"), only=True),
    )
    told = {await refused(hub, one) for one in commands}
    assert told == {"there is no workspace root:wep; did you mean root:web?"}


async def test_the_administrator_is_told_what_is_certain() -> None:
    hub = await AskedHub.started()
    told = [await refused_a_placement(hub, path) for path in ("root:web:inner", "root:nothing-like-it", "web", "qqq")]
    assert told == [
        f"there is no workspace root:web:inner; {OTHERS}",
        f"there is no workspace root:nothing-like-it; {OTHERS}",
        "there is no workspace web, or you may not enter it; did you mean root:web?",
        f"there is no workspace qqq, or you may not enter it; {OTHERS}",
    ]


async def test_who_may_look_around_above_is_told_what_is_certain_and_others_are_not_told_what_there_is() -> None:
    hub = await AskedHub.started()
    paths = ("root:wep", WORKLOAD, "root:web:inner")
    told = [await refused_a_placement(hub, path, somebody=True) for path in paths]
    assert told == [
        "there is no workspace root:wep; did you mean root:web?",
        *(f"there is no workspace {one}, or you may not enter it; {OTHERS}" for one in paths[1:]),
    ]


async def test_a_member_of_a_workspace_learns_the_missing_permission() -> None:
    hub = await AskedHub.started()
    await hub.grant(WORKLOAD, "inside", *OPEN)
    assert 'User "somebody" cannot get resource "edgeplacements"' in await refused_a_placement(
        hub, WORKLOAD, somebody=True
    )


async def test_a_server_without_workspaces_is_told_from_one_that_lacks_this_one() -> None:
    plain = await LocalHub.in_memory().furnish()
    for path in ("root", "root:web", "root:web:inner"):
        hub = hub_client(Client(LocalTransport(plain.function, ADMIN_TOKEN), f"/clusters/{path}"))
        told = await refused(hub, get_placement(hub, "p"))
        assert told == "the server has no workspaces; `farflung start` runs a hub that does"


async def test_who_does_not_answer_is_not_asked_again() -> None:
    server = ScriptedServer(lambda request: Scripted(chunks=[Unreachable("no answer in time")]))
    hub = hub_client(Client(server, "/clusters/root:web"))
    assert (await refused(hub, get_placement(hub, "p"))).startswith("cannot reach the server: no answer in time")
    assert len(server.requests) == 1


async def test_a_wrong_option_needs_no_server() -> None:
    hub = at(await AskedHub.started(), "root:wep")
    wrong: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    wrong.set_exception(click.UsageError("no such word"))
    assert await refused(hub, wrong) == "no such word"
