"""The connection of commands to a hub, and errors as sentences."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Final, TypeVar

import click

from farflung.apis.kcp.names import WORKSPACES
from farflung.cli.settings import ServerOptions
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
from farflung.inspect.hub import HubClient, hub_client
from farflung.lib.errors import UserError

T = TypeVar("T")

FIRST_KUBECONFIG: Final = Path(".farflung", "admin.kubeconfig")  #: the default of `farflung start`
CLUSTERS: Final = "/clusters/"  #: prefix of the URL path of a workspace


def query(connection: ServerOptions, read: Callable[[HubClient], Coroutine[None, None, T]]) -> T:
    """Raises click.ClickException."""

    return _run(connection, lambda client, server: read(hub_client(client, connection.provider, server)))


def modify(connection: ServerOptions, action: Callable[[Client], Coroutine[None, None, T]]) -> T:
    """Like `query`, with a client that can write."""

    return _run(connection, lambda client, _server: action(client))


def _run(connection: ServerOptions, action: Callable[[Client, str], Coroutine[None, None, T]]) -> T:
    async def run() -> T:
        async with _connected(connection) as (client, server):
            return await with_messages(client, action(client, server))

    try:
        return asyncio.run(run())
    except KubeconfigError as error:
        raise click.ClickException(describe_error(error)) from None


async def with_messages(client: Client, action: Awaitable[T]) -> T:
    """Turns errors into click.ClickException.  If the workspace does not exist, the message says only that."""
    try:
        return await action
    except click.UsageError:
        raise
    except (Refused, UserError, click.ClickException) as error:
        sentence = error.message if isinstance(error, click.ClickException) else _sentence(error)
        raise click.ClickException(await explain_denial(client) or sentence) from None
    except ClientError as error:  # no second request to a server that does not answer
        raise click.ClickException(_sentence(error)) from None


@asynccontextmanager
async def open_kubeconfig(path: str, context: str) -> AsyncIterator[Client]:
    """A client of another cluster, whose errors name its kubeconfig."""
    try:
        access = load(path, context=context)
    except KubeconfigError as error:
        raise click.ClickException(str(error)) from None
    async with access.transport() as transport:
        try:
            yield Client(transport, access.prefix, "farflung")
        except ClientError as error:
            raise click.ClickException(f"the cluster of {path}: {error}") from None


@asynccontextmanager
async def _connected(connection: ServerOptions) -> AsyncIterator[tuple[Client, str]]:
    """The client of the workspace, and the server's URL."""
    access = load(connection.kubeconfig or None, context=connection.context)
    async with access.transport() as transport:
        client = Client(transport, access.prefix, "farflung")
        if connection.workspace:
            client = client.workspace(connection.workspace)
        elif CLUSTERS not in f"{access.prefix}/" and connection.anywhere:
            client = client.workspace("root")
        elif CLUSTERS not in f"{access.prefix}/":
            raise click.ClickException(
                f"{access.server}{access.prefix} is not the URL of a workspace: select one with --workspace or "
                "`kubectl ws`; if the hub has no workspaces (`farflung hub`), `kubectl describe` shows Events instead"
            )
        yield client, access.server


def _sentence(error: ClientError | UserError) -> str:
    match error:
        case Unreachable():
            return f"cannot reach the server: {error}; is the hub running? `farflung start` starts it"
        case Unauthorized():
            return f"the server does not accept your credentials: {error}"
        case _:
            return str(error)


def describe_error(error: Exception) -> str:
    """The error, with a hint if there is no kubeconfig at all."""
    if not isinstance(error, NoKubeconfig):
        return str(error)
    hint = f"`export KUBECONFIG={FIRST_KUBECONFIG}` selects"
    if FIRST_KUBECONFIG.exists():
        return f"{error}; {hint} the hub of this directory"
    return f"{error}; `farflung start` starts a hub, and {hint} it"


ROOT: Final = "root"
OTHERS: Final = "`kubectl ws tree` shows those below the current one"
NONE_AT_ALL: Final = "the server has no workspaces; `farflung start` runs a hub that does"


async def explain_denial(workspace: Client) -> str:
    """A sentence if the user cannot access the workspace, else empty.  It says that the workspace does not exist only
    if a parent workspace confirms that."""
    try:
        await workspace.raw(f"/apis/{WORKSPACES.group}")  # which every workspace serves
    except NotFound:
        return NONE_AT_ALL
    except Forbidden:
        path = workspace.prefix.rpartition("/")[2]
        return await _find_missing(workspace, path) if ":" in path else await _suggest_path(workspace, path)
    except ClientError:
        pass
    return ""


async def _find_missing(server: Client, path: str) -> str:
    above, _, name = path.rpartition(":")
    while above:
        try:
            await server.workspace(above).get(WORKSPACES, name)
        except Forbidden:
            above, _, name = above.rpartition(":")
        except NotFound as error:
            if not error.is_about(name):
                return NONE_AT_ALL
            return f"there is no workspace {above}:{name}; {await _suggest(server, above, name)}"
        else:
            break
    return _not_found(path)


async def _suggest_path(server: Client, name: str) -> str:
    """It may be the name of a logical cluster, which no parent workspace lists."""
    return _not_found(name, await _suggest(server, ROOT, name))


def _not_found(path: str, hint: str = OTHERS) -> str:
    return f"there is no workspace {path}, or you may not enter it; {hint}"


async def _suggest(server: Client, above: str, name: str) -> str:
    """A hint with a similar name."""
    try:
        names = [one["metadata"]["name"] for one in await server.workspace(above).list(WORKSPACES)]
    except ClientError:
        return OTHERS
    alike = get_close_matches(name, names, 1)
    return f"did you mean {above}:{alike[0]}?" if alike else OTHERS
