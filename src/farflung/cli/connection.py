"""The way to a hub for commands that ask it something: whom they talk to, and what goes wrong, in a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Final, TypeVar

import click

from farflung.apis.edge.names import EDGE_PLACEMENTS
from farflung.apis.kcp.names import WORKSPACES
from farflung.client.discovery import Resource, Served
from farflung.client.errors import (
    ClientError,
    Forbidden,
    KubeconfigError,
    NoKubeconfig,
    NotFound,
    Refused,
    Unauthorized,
    Unreachable,
)
from farflung.client.kubeconfig import load
from farflung.client.rest import Client
from farflung.machinery.errors import Obj

T = TypeVar("T")

PROVIDER: Final = "root:espw"
FIRST_KUBECONFIG: Final = Path(".farflung", "admin.kubeconfig")  #: where `farflung start` puts it, if it is not told
CLUSTERS: Final = "/clusters/"  #: what the path of a workspace begins with, at a server


@dataclass(frozen=True, slots=True)
class Asking:
    """Which hub, which workspace of it, and who asks; nothing said: as kubectl finds it."""

    kubeconfig: str = ""
    context: str = ""
    workspace: str = ""
    provider: str = PROVIDER
    anywhere: bool = False  #: which workspace does not matter: where nothing says one, `root` will do


@dataclass(frozen=True, slots=True)
class Hub:
    """Nothing that is done with these clients changes anything."""

    workspace: Client  #: the one with the placements
    root: Client  #: the one that exports Locations and SyncTargets
    provider: str  #: the path of the workspace that provides the API of placements
    server: str = ""  #: its address, for people


def hub_of(client: Client, provider: str = PROVIDER, server: str = "") -> Hub:
    """`client`: of the workspace with the placements."""
    client = client.rehearsing()
    return Hub(client, client.workspace("root"), provider, server)


def ask(asking: Asking, question: Callable[[Hub], Coroutine[None, None, T]]) -> T:
    """The answer; what went wrong is a click.ClickException."""

    return _done(asking, lambda client, server: question(hub_of(client, asking.provider, server)))


def change(asking: Asking, deed: Callable[[Client], Coroutine[None, None, T]]) -> T:
    """What somebody does in the workspace, whose client changes what it is told to; also a click.ClickException."""

    return _done(asking, lambda client, _server: deed(client))


def _done(asking: Asking, deed: Callable[[Client, str], Coroutine[None, None, T]]) -> T:
    async def done() -> T:
        async with _opened(asking) as (client, server):
            return await in_words(client, deed(client, server))

    try:
        return asyncio.run(done())
    except KubeconfigError as error:
        raise click.ClickException(mending(error)) from None


async def in_words(client: Client, deed: Awaitable[T]) -> T:
    """What went wrong is a click.ClickException; if it is that there is no such workspace, that is all it says."""
    try:
        return await deed
    except click.UsageError:
        raise
    except (Refused, click.ClickException) as error:
        sentence = error.message if isinstance(error, click.ClickException) else _sentence(error)
        raise click.ClickException(await why_closed(client) or sentence) from None
    except ClientError as error:  # who does not answer is not asked again
        raise click.ClickException(_sentence(error)) from None


@asynccontextmanager
async def _opened(asking: Asking) -> AsyncIterator[tuple[Client, str]]:
    """A client of the workspace, and the address of the server."""
    access = load(asking.kubeconfig or None, context=asking.context)
    async with access.transport() as transport:
        client = Client(transport, access.prefix, "farflung")
        if asking.workspace:
            client = client.workspace(asking.workspace)
        elif CLUSTERS not in f"{access.prefix}/" and asking.anywhere:
            client = client.workspace("root")
        elif CLUSTERS not in f"{access.prefix}/":
            raise click.ClickException(
                f"{access.server}{access.prefix} is the address of no workspace: give one with --workspace, or go to "
                "one with `kubectl ws`"
            )
        yield client, access.server


def _sentence(error: ClientError) -> str:
    match error:
        case Unreachable():
            return f"cannot reach the server: {error}; is the hub running? `farflung start` starts it"
        case Unauthorized():
            return f"the server does not know who you are: {error}"
        case _:
            return str(error)


def mending(error: Exception) -> str:
    """What is wrong with a kubeconfig or the like; and what leads to a hub, if nothing does."""
    if not isinstance(error, NoKubeconfig):
        return str(error)
    way = f"`export KUBECONFIG={FIRST_KUBECONFIG}` leads to"
    if FIRST_KUBECONFIG.exists():
        return f"{error}; {way} the hub of this directory"
    return f"{error}; `farflung start` starts a hub, and {way} it"


async def placement_of(hub: Hub, name: str) -> Obj | None:
    """The EdgePlacement; None if there is none of that name.  click.ClickException if there can be none."""
    try:
        return await hub.workspace.get(EDGE_PLACEMENTS, name)
    except NotFound as error:
        if error.details:
            return None
    raise click.ClickException(
        f"the workspace {workspace_name(hub)} does not have the API of placements: in that workspace, "
        f"`kubectl kcp bind apiexport {hub.provider}:edge.kcp.io` binds it"
    )


async def time_at(hub: Hub) -> datetime:
    """What time it is there, by which everything there is dated."""
    return await hub.workspace.date() or datetime.now(UTC)


def workspace_name(hub: Hub) -> str:
    """As it was said: by its path or by its cluster."""
    return hub.workspace.prefix.rpartition("/")[2]


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


def find_resource(served: Served, word: str) -> Resource | None:
    """`nines`, `nine`, `Nine` or a short name, also with the group (`nines.group9.test`) or the version and the group
    (`nines.v1.group9.test`).  None if there is none.  Of several, the first that is served counts, and those whose
    plural it is before others."""
    name, _, rest = word.lower().partition(".")
    version, _, group = rest.partition(".")
    found = [one for one in _candidates(served, rest) if name in _names(one)]
    found = found or [one for one in _every(served) if one.collection.version == version and _is_of(one, name, group)]
    return min(found, key=lambda one: one.collection.plural != name, default=None)


def _candidates(served: Served, group: str) -> list[Resource]:
    return [one for one in served.resources() if group in ("", one.collection.group)]


def _every(served: Served) -> list[Resource]:
    return [one for group in served.groups for version in group.versions for one in version.resources]


def _is_of(one: Resource, name: str, group: str) -> bool:
    return one.collection.group == group and name in _names(one)


def _names(one: Resource) -> set[str]:
    return {one.collection.plural, one.singular, one.collection.kind.lower(), *one.short_names} - {""}
