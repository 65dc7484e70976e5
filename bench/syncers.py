"""Many syncers in one process, each with its own way to the hub, its own journal, and a lightweight edge.

    python bench/syncers.py FILE DIRECTORY

FILE says where the hub is and which mailboxes there are.  Each line on standard input is answered with a line of
figures; when it ends, so do all syncers.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import orjson
import uvloop
from figures import allow_many_connections
from light_edge import LightEdge

from farflung.apis.edge.names import SYNCER_MANAGER
from farflung.client.credentials import StaticCredentials, bearer
from farflung.client.kubeconfig import ClientConfig, load
from farflung.client.rest import Client
from farflung.client.transport import HttpTransport, OutgoingRequest, Reply
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.runtime.environment import Environment
from farflung.syncer.journal import Journal
from farflung.syncer.syncer import Syncer, SyncerOptions, is_idle

REPORT = "/syncerconfigs/the-one/status"
TURN = 0.01  #: seconds


class Config(msgspec.Struct):
    kubeconfig: str  #: of somebody who knows where the hub is
    mailboxes: list[tuple[str, str, str, str]]  #: name and uid of the SyncTarget, cluster and token


@dataclass
class Said:
    """Of all of them together."""

    requests: dict[str, int] = field(default_factory=dict)  #: that were answered, by what they are for
    failed: int = 0  #: requests without an answer
    watches: int = 0  #: that are open
    applied: int = 0  #: at the edges
    idle: int = 0  #: syncers that have nothing to do
    cpu: float = 0.0
    slowest_turn: float = 0.0  #: seconds that something was in the way of everything else


@dataclass
class Counts:
    requests: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    watches: int = 0
    slowest_turn: float = 0.0


@dataclass(frozen=True)
class Counted:
    """A transport, counted."""

    inner: HttpTransport
    counts: Counts

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        what, opened = purpose(request), False
        try:
            async with self.inner.open(request) as reply:
                opened = True
                self.counts.requests[what if reply.status < 400 else str(reply.status)] += 1
                self.counts.watches += what == "watch"
                yield reply
        finally:
            self.counts.failed += not opened
            self.counts.watches -= opened and what == "watch"


def purpose(request: OutgoingRequest) -> str:
    if request.method != "GET":
        path = request.target.partition("?")[0]
        if path.endswith(REPORT):
            return "report"
        return "status" if path.endswith("/status") else "finalizer"
    if "watch=true" in request.target:
        return "watch"
    return "list" if "limit=" in request.target else "get"


@dataclass
class Fleet:
    """All syncers, at work as long as `run` is."""

    counts: Counts = field(default_factory=Counts)
    syncers: list[Syncer] = field(default_factory=list)
    edges: list[LightEdge] = field(default_factory=list)

    async def run(self, access: ClientConfig, mailboxes: list[tuple[str, str, str, str]], directory: Path) -> None:
        env = Environment(time.monotonic, asyncio.sleep, random.random, Backoff(0.05, 30.0, random.random))
        async with asyncio.TaskGroup() as group:
            for name, uid, cluster, token in mailboxes:
                path = directory / name / "journal.sqlite"
                group.create_task(self._one(access, env, name, uid, cluster, token, path))
            group.create_task(self._turn())

    async def _one(
        self, access: ClientConfig, env: Environment, name: str, uid: str, cluster: str, token: str, path: Path
    ) -> None:
        identity = StaticCredentials(bearer(token, name))
        async with HttpTransport(access.server, tls=access.tls, credentials=identity.headers) as transport:
            mailbox = Client(Counted(transport, self.counts), f"/clusters/{cluster}", SYNCER_MANAGER)
            edge = LightEdge()
            self.edges.append(edge)
            with closing(Journal.open(path)) as journal:
                setting = SyncerOptions(mailbox, Client(edge, "", SYNCER_MANAGER), name, uid, lambda: datetime.now(UTC))
                syncer = Syncer(setting, journal, env, Logger(sys.stderr, 0))
                self.syncers.append(syncer)
                await syncer.run()

    async def _turn(self) -> None:
        """Notices whatever keeps the loop from turning."""
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TURN)
            self.counts.slowest_turn = max(self.counts.slowest_turn, time.perf_counter() - began - TURN)

    def said(self) -> Said:
        """The slowest turn is the one since this was asked last."""
        slowest, self.counts.slowest_turn = self.counts.slowest_turn, 0.0
        return Said(
            dict(self.counts.requests),
            self.counts.failed,
            self.counts.watches,
            sum(edge.applied for edge in self.edges),
            sum(map(is_idle, self.syncers)),
            time.process_time(),
            slowest,
        )


async def work(config: Config, directory: Path) -> None:
    fleet = Fleet()
    running = asyncio.create_task(fleet.run(load(config.kubeconfig), config.mailboxes, directory))
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    asking = asyncio.create_task(answer(reader, fleet))
    await asyncio.wait([running, asking], return_when=asyncio.FIRST_COMPLETED)
    for task in (running, asking):
        task.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    with suppress(asyncio.CancelledError):
        await running


async def answer(reader: asyncio.StreamReader, fleet: Fleet) -> None:
    while await reader.readline():
        print(orjson.dumps(asdict(fleet.said())).decode(), flush=True)


def main() -> None:
    allow_many_connections()
    _, config, directory = sys.argv
    uvloop.run(work(msgspec.json.decode(Path(config).read_bytes(), type=Config), Path(directory)))


if __name__ == "__main__":
    main()
