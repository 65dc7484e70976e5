"""Workspaces that are not there, or closed: a server says "forbidden" of both, and people need to know which."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from farflung.client.errors import ClientError, Forbidden, NotFound
from farflung.client.rest import Client
from farflung.controllers.mailbox.controller import WORKSPACES

ROOT: Final = "root"
OTHERS: Final = "`kubectl ws tree` shows those below the current one"
NONE_AT_ALL: Final = "the server has no workspaces; `farflung start` runs a hub that does"


async def why_closed(workspace: Client) -> str:
    """A sentence, if whoever asks has no access to this workspace; nothing, if something else is wrong.  It says that
    there is none only if a workspace above says so, or if there are none at all."""
    try:
        await workspace.raw(f"/apis/{WORKSPACES.group}")  # which every workspace has
    except NotFound:
        return NONE_AT_ALL
    except Forbidden:
        path = workspace.prefix.rpartition("/")[2]
        return await _told(workspace, path) if ":" in path else await _told_of_one_word(workspace, path)
    except ClientError:
        pass
    return ""


async def _told(server: Client, path: str) -> str:
    above, _, name = path.rpartition(":")
    while above:
        try:
            await server.workspace(above).get(WORKSPACES, name)
        except Forbidden:
            above, _, name = above.rpartition(":")
        except NotFound as error:
            if not error.names(name):
                return NONE_AT_ALL
            return f"there is no workspace {above}:{name}; {await _like(server, above, name)}"
        else:
            break
    return _uncertain(path)


async def _told_of_one_word(server: Client, name: str) -> str:
    """It may be the name of a cluster, of which nobody above knows."""
    return _uncertain(name, await _like(server, ROOT, name))


def _uncertain(path: str, hint: str = OTHERS) -> str:
    return f"there is no workspace {path}, or you may not enter it; {hint}"


async def _like(server: Client, above: str, name: str) -> str:
    """One that was perhaps meant."""
    try:
        names = [one["metadata"]["name"] for one in await server.workspace(above).list(WORKSPACES)]
    except ClientError:
        return OTHERS
    alike = get_close_matches(name, names, 1)
    return f"did you mean {above}:{alike[0]}?" if alike else OTHERS
