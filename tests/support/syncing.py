"""A mailbox, an edge, and a syncer between them, by lines that can fail on both sides."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fleet import EDGE, PROVIDER, TENANCY, FaultyTransport, Fleet, fleet
from house import TOKEN, House
from platform_harness import MASTER, OPERATOR
from simulated_time import monotonic, poll
from translated import binding

from farflung.apis.names import Collection
from farflung.client.errors import ClientError, NotFound
from farflung.client.rest import Client
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.environment import Environment
from farflung.syncer.context import SyncerOptions
from farflung.syncer.decide import Adopt
from farflung.syncer.journal import Journal
from farflung.syncer.syncer import Syncer, is_idle

NAMESPACES = Collection("", "v1", "namespaces", "Namespace")
MAPS = Collection("", "v1", "configmaps", "ConfigMap")
SECRETS = Collection("", "v1", "secrets", "Secret")
DEPLOYMENTS = Collection("apps", "v1", "deployments", "Deployment")
CONFIGS = Collection("edge.kcp.io", "v1alpha1", "syncerconfigs", "SyncerConfig")
DEFINITIONS = Collection("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")


def environment() -> Environment:
    """Pauses are short beside the heartbeat of a Link."""
    return Environment(monotonic, asyncio.sleep, lambda: 0.5, Backoff(0.001, 0.02, lambda: 0.5))


def scope(*namespaces: str, resources: tuple[Collection, ...] = (MAPS, SECRETS, DEPLOYMENTS), **further: Any) -> Obj:
    """The spec of a SyncerConfig: all of these kinds in these namespaces."""
    listed = [{"group": one.group, "resource": one.plural, "apiVersion": one.version} for one in resources]
    return {"namespaceScope": {"namespaces": list(namespaces), "resources": listed}, **further}


@dataclass
class Link:
    fleet: Fleet
    edge: House
    path: str  #: of the mailbox
    journal: Path
    adopt: Adopt = Adopt.IF_IDENTICAL
    jump: timedelta = timedelta(0)  #: of the syncer's clock
    beat: float = 0.5  #: seconds between two heartbeats
    pause: float = 0.005  #: seconds between two reports
    env: Environment = field(default_factory=environment)
    log: io.StringIO = field(default_factory=io.StringIO)
    up: FaultyTransport = field(init=False)
    down: FaultyTransport = field(init=False)
    syncer: Syncer | None = None
    _task: asyncio.Task[None] | None = None
    _journal: Journal | None = None

    def __post_init__(self) -> None:
        self.up = FaultyTransport(self.fleet.hub.function, MASTER)  # who may write the status of workloads
        self.down = FaultyTransport(self.edge.hub, TOKEN)

    # --- the syncer -------------------------------------------------------------------------------

    def now(self) -> datetime:
        return self.edge.clock() + self.jump

    async def start(self) -> None:
        self._journal = Journal.open(self.journal)
        mailbox = Client(self.up, f"/clusters/{self.path}", "farflung-syncer")
        edge = Client(self.down, "", "farflung-syncer")
        uid = self.path.rpartition("-mb-")[2]
        options = SyncerOptions(mailbox, edge, "florin", uid, self.now, self.adopt, beat=self.beat, pause=self.pause)
        self.syncer = Syncer(options, self._journal, self.env, Logger(self.log, 3))
        self._task = asyncio.create_task(self.syncer.run())

    async def stop(self, *, forgetting: bool = False) -> None:
        """`forgetting`: as a crash does, what was not on disk yet is lost."""
        if self._task is None or self._journal is None:
            return
        if forgetting:
            self.forget()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._journal.close()
        self._task = self._journal = self.syncer = None

    def forget(self) -> None:
        """From now on, nothing gets to the disk."""
        assert self._journal is not None
        self._journal.flush = lambda: None  # type: ignore[method-assign]

    async def restart(self, *, forgetting: bool = False) -> None:
        await self.stop(forgetting=forgetting)
        await self.start()

    @property
    def remembered(self) -> bool:
        """All that is known is on disk."""
        return self._journal is not None and not self._journal.is_dirty

    @property
    def idle(self) -> bool:
        return self.syncer is not None and is_idle(self.syncer)

    # --- both sides -------------------------------------------------------------------------------

    @property
    def mailbox(self) -> Client:
        """As an operator sees it, whatever becomes of the syncer's line."""
        return Client(FaultyTransport(self.fleet.hub.function, OPERATOR), f"/clusters/{self.path}", "test")

    @property
    def cluster(self) -> Client:
        return Client(FaultyTransport(self.edge.hub, TOKEN), "", "test")

    async def configure(self, spec: Obj) -> None:
        await self.mailbox.patch(CONFIGS, "the-one", {"spec": None})
        await self.mailbox.patch(CONFIGS, "the-one", {"spec": spec})

    async def put(self, collection: Collection, obj: Obj, namespace: str = "") -> Obj:
        """A copy, as the translator marks it."""
        metadata = {**obj["metadata"]}
        metadata["labels"] = {**metadata.get("labels", {}), "edge.kcp.io/projected": "yes"}
        return await self.mailbox.create(collection, {**obj, "metadata": metadata}, namespace)

    async def report(self) -> Obj:
        found: Obj = (await self.mailbox.get(CONFIGS, "the-one")).get("status") or {}
        return found

    async def eventually(self, condition: Callable[[], Any], what: str = "the condition") -> Any:
        """What it comes to.  It may be a coroutine function, and raise that something is not there yet."""

        async def tried() -> Any:
            try:
                found = condition()
                found = await found if asyncio.iscoroutine(found) else found
            except (ClientError, KeyError, IndexError):
                found = None
            if not found and self._task is not None and self._task.done():
                self._task.result()
            return found

        found = await poll(tried)
        assert found, f"{what} did not come true\n{self.log.getvalue()[-6000:]}"
        return found

    async def at_edge(self, collection: Collection, name: str, namespace: str = "") -> Obj:
        found: Obj = await self.eventually(lambda: self.cluster.get(collection, name, namespace), f"{name} at the edge")
        return found

    async def gone_at_edge(self, collection: Collection, name: str, namespace: str = "") -> None:
        await self.eventually(lambda: gone(self.cluster, collection, name, namespace), f"end of {name} at the edge")

    async def gone_in_mailbox(self, collection: Collection, name: str, namespace: str = "") -> None:
        await self.eventually(lambda: gone(self.mailbox, collection, name, namespace), f"end of {name} in the mailbox")

    async def settled(self) -> None:
        """Until nothing was written on either side for a while."""
        last: tuple[int, int] = (-1, -1)
        while True:
            now = (self.fleet.hub.store.revision, self.edge.store.revision)
            if now == last and self.idle:
                return
            last = now
            for _ in range(300):
                await asyncio.sleep(0)
            await asyncio.sleep(0.02)


async def gone(client: Client, collection: Collection, name: str, namespace: str = "") -> bool:
    try:
        await client.get(collection, name, namespace)
    except NotFound:
        return True
    return False


async def mailbox_path(one: Fleet) -> str:
    """As soon as the controller has made it."""
    path: str = await poll(lambda: _mailbox(one))
    assert path, one.log.getvalue()
    return path


async def furnished_mailbox(one: Fleet) -> str:
    """Its path, as soon as the controller has made it; it serves the kinds of workloads then."""
    path = await mailbox_path(one)
    await one.do("POST", f"/clusters/{path}/apis/apis.kcp.io/v1alpha1/apibindings", binding("bind-kube"))
    return path


async def _mailbox(one: Fleet) -> str:
    for workspace in await one.items(f"/clusters/{PROVIDER}{TENANCY}/workspaces"):
        path = f"{PROVIDER}:{workspace['metadata']['name']}"
        if "deletionTimestamp" not in workspace["metadata"] and await one.do(
            "GET", f"/clusters/{path}{EDGE}/syncerconfigs/the-one"
        ):
            return path
    return ""


@asynccontextmanager
async def linked(directory: Path, *, adopt: Adopt = Adopt.IF_IDENTICAL, starts: bool = True) -> AsyncIterator[Link]:
    """With a mailbox that serves the kinds of workloads, and an empty edge."""
    async with fleet() as one, House() as edge:
        await one.target("root:compute", "florin", {})
        await one.start(scheduler=False, mailboxes=True)
        path = await furnished_mailbox(one)
        link = Link(one, edge, path, directory / "journal" / "syncer.sqlite", adopt)
        try:
            if starts:
                await link.start()
            yield link
        finally:
            await link.stop()
