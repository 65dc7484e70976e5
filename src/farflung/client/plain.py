"""Clients of servers without workspaces, and of APIs that no server has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import orjson

from farflung.apis.kcp.names import TENANCY_GROUP
from farflung.client.errors import Forbidden, NotFound
from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest, Reply

UNSERVED: Final = "the server could not find the requested resource"


@dataclass(frozen=True, slots=True)
class PlainClient(Client):
    """Of a server with one API, which stands for every workspace and view."""

    def workspace(self, cluster: str) -> Client:
        return self

    def view(self, url: str, cluster: str = "*") -> Client:
        return self


@dataclass(frozen=True, slots=True)
class _NoServer:
    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        raise NotFound(404, "NotFound", UNSERVED)
        yield


#: serves no kind
NOTHING: Final = PlainClient(_NoServer(), lenient=True)


async def has_workspaces(client: Client) -> bool:
    """A server with workspaces forbids requests outside of them.  Raises ClientError."""
    try:
        groups = orjson.loads(await client.raw("/apis")).get("groups") or ()
    except Forbidden:
        return True
    return any(one.get("name") == TENANCY_GROUP for one in groups)
