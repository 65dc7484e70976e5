"""A hub in a thread of this process, with its store in memory; it serves plain HTTP on a free port of the loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import uvloop
from hub_harness import authority, hashed, signing_keys
from memory_store import MemoryStore
from servers import NetworkServer

from farflung.cli import credentials, start
from farflung.cli.credentials import KubeconfigUser
from farflung.http.certificates import CertificateHolder
from farflung.http.server import Server, serve
from farflung.hub.assembly import Assembly, HubDependencies, Options, TimeAndRandomness
from farflung.hub.catalog import objects
from farflung.hub.request.user import User
from farflung.lib import ids

T = TypeVar("T")
PATIENCE: Final = 60.0
ADDRESS: Final = "https://hub.example.com:6443"  #: in the URLs of workspaces; no client resolves it


class ThreadedHub:
    """Runs from construction until `close`.  It has nothing in it but what every hub has."""

    def __init__(self, options: Options, administrators: Sequence[KubeconfigUser]) -> None:
        self.tokens = {one.name: ids.new_token() for one in administrators}  #: by the administrators' names
        uids = ids.Uids()
        users = {
            self.tokens[one.name]: User(one.name, one.groups, uids() if one.has_uid else "") for one in administrators
        }
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._assembly, self._server = self._run(self._start(options, users))

    @classmethod
    def without_workspaces(cls) -> ThreadedHub:
        return cls(Options(), [credentials.PLAIN])

    @classmethod
    def with_workspaces(cls) -> ThreadedHub:
        """A hub like that of `farflung start --bare`."""
        return cls(Options(url=ADDRESS, bare=True), start.ADMINISTRATORS_OF_ALL)

    async def _start(self, options: Options, users: dict[str, User]) -> tuple[Assembly, Server]:
        store = MemoryStore(stamp=objects.stamp)
        assembly = Assembly(
            HubDependencies(store, signing_keys(), CertificateHolder(authority()), hashed(users)),
            options,
            TimeAndRandomness(),
        )
        await assembly.start()
        return assembly, await serve(assembly.hub, host="127.0.0.1", port=0, tls=None)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    @contextmanager
    def client(self, administrator: str) -> Iterator[NetworkServer]:
        """The hub as this administrator sees it."""
        server = NetworkServer(f"http://127.0.0.1:{self._server.port}", token=self.tokens[administrator])
        try:
            yield server
        finally:
            server.close()

    def close(self) -> None:
        self._run(self._server.stop(0))
        self._run(self._assembly.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()
