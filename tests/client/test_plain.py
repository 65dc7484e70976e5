"""Servers without workspaces, and what no server has."""

from __future__ import annotations

import pytest
from scripted_server import Scripted, ScriptedServer, failure, said

from farflung.apis.names import PODS
from farflung.client.errors import NotFound, Refused
from farflung.client.rest import NOTHING, Client, PlainClient, has_workspaces


def groups(*names: str) -> Scripted:
    return said({"kind": "APIGroupList", "groups": [{"name": name} for name in names]})


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (groups("apps", "tenancy.kcp.io"), True),
        (groups("apps"), False),
        (groups(), False),
        (failure(403, "Forbidden"), True),
    ],
)
async def test_a_server_has_workspaces_if_it_serves_them_or_forbids_requests_outside(
    answer: Scripted, found: bool
) -> None:
    server = ScriptedServer(lambda request: answer)
    assert await has_workspaces(Client(server, "/prefix")) == found
    assert [request.target for request in server.requests] == ["/prefix/apis"]


async def test_a_server_that_fails_does_not_count_as_one_without_workspaces() -> None:
    with pytest.raises(Refused):
        await has_workspaces(Client(ScriptedServer(lambda request: failure(500))))


def test_one_api_stands_for_every_workspace_and_view() -> None:
    plain = PlainClient(ScriptedServer(lambda request: failure(500)), "/api-of-a-proxy")
    for other in (plain.workspace("root:compute"), plain.workspace("*"), plain.view("https://x/services/y", "c")):
        assert other is plain


async def test_nothing_serves_no_kind() -> None:
    for client in (NOTHING, NOTHING.workspace("root"), NOTHING.view("https://x/services/y")):
        with pytest.raises(NotFound):
            await client.list(PODS)
