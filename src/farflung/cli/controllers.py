"""Composition of the processes that run controllers: where the server is, what runs, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import uvloop
from prometheus_client import CollectorRegistry

from farflung.client.kubeconfig import Access, KubeconfigError, load
from farflung.client.rest import Client
from farflung.controllers.edge_scheduler.controller import EdgeScheduler
from farflung.controllers.edge_scheduler.controller import Setting as SchedulerSetting
from farflung.controllers.edge_scheduler.observe import observe
from farflung.controllers.mailbox.controller import MailboxController
from farflung.controllers.mailbox.controller import Setting as MailboxSetting
from farflung.informer.reflector import Surroundings
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.runtime.exports import View, find_view
from farflung.runtime.health import served
from farflung.runtime.leader import Candidate
from farflung.runtime.manager import Manager

EDGE: Final = "edge.kcp.io"
SCHEDULING: Final = "scheduling.kcp.io"
WORKLOAD: Final = "workload.kcp.io"
SCHEDULER: Final = "scheduler"
MAILBOXES: Final = "mailbox-controller"
ALL: Final = (SCHEDULER, MAILBOXES)
PROVIDER: Final = "root:espw"


@dataclass(frozen=True, slots=True)
class Where:
    """One way to a server, as command lines say it; nothing said: as kubectl would go."""

    kubeconfig: str = ""
    context: str = ""
    user: str = ""
    cluster: str = ""

    def access(self) -> Access:
        return load(self.kubeconfig or None, context=self.context, cluster=self.cluster, user=self.user)


@dataclass(frozen=True, slots=True)
class Settings:
    what: tuple[str, ...]  #: SCHEDULER, MAILBOXES
    command: str
    where: Where = field(default_factory=Where)  #: the provider's workspace
    root: Where | None = None  #: the root workspace, if not by the same way
    provider: str = ""  #: the path of the provider's workspace; empty: the one that `where` leads to
    name: str = "edge-scheduler"
    verbosity: int = 2
    workers: int = 4
    bind_address: str = ""
    elects: bool = False
    log_only: bool = False
    with_parent: bool = False  #: ends when standard input does


def settings_of(command: str, what: tuple[str, ...], options: Mapping[str, Any]) -> Settings:
    """`options`: as the command line has them.  A way to the server by another name counts if nothing else is said."""

    def way(name: str) -> Where:
        return Where(*(options.get(f"{name}_{part}") or "" for part in ("kubeconfig", "context", "user", "cluster")))

    provider = replace(way("espw"), **_said(kubeconfig=options["kubeconfig"], context=options["context"]))
    root = way("root") if way("root") != Where() else way("inventory")
    return Settings(
        what,
        command,
        provider,
        None if root == Where() else replace(root, **_said(kubeconfig=root.kubeconfig or options["kubeconfig"])),
        options["provider"],
        options.get("name", "edge-scheduler"),
        options["verbosity"],
        options["concurrency"],
        options["bind_address"],
        options["leader_elect"],
        options.get("log_only", False),
        options.get("with_parent", False),
    )


def _said(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def run(settings: Settings) -> None:
    """Until a signal.  What a user can mend is one sentence and exit code 1."""
    try:
        uvloop.run(_run(settings))
    except (KubeconfigError, OSError) as error:
        print(f"{settings.command}: {error}", file=sys.stderr)
        sys.exit(1)


async def _run(settings: Settings) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    if settings.with_parent:
        await _follow_parent(stopped.set)
    log = Logger(sys.stderr, settings.verbosity)
    async with _servers(settings) as servers:
        working = asyncio.create_task(_work(settings, servers, surroundings(), log), name="controllers")
        ending = asyncio.create_task(stopped.wait(), name="signals")
        done, _ = await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if working in done:
            working.result()
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working


async def _follow_parent(stop: Callable[[], None]) -> None:
    """A supervisor that is gone cannot end what it began, but its end of the pipe closes."""

    class Pipe(asyncio.Protocol):
        def connection_lost(self, error: Exception | None) -> None:
            stop()

    await asyncio.get_running_loop().connect_read_pipe(Pipe, sys.stdin)


def surroundings() -> Surroundings:
    backoff = Backoff(first=0.05, longest=30.0, random=random.random)
    return Surroundings(time.monotonic, asyncio.sleep, random.random, backoff)


@dataclass(frozen=True, slots=True)
class Servers:
    provider: Client
    root: Client


@contextlib.asynccontextmanager
async def _servers(settings: Settings) -> AsyncIterator[Servers]:
    manager = settings.command.rpartition(" ")[2]
    access = settings.where.access()
    async with contextlib.AsyncExitStack() as stack:
        transport = await stack.enter_async_context(access.transport())
        provider = Client(transport, access.prefix, manager)
        if settings.provider:
            provider = provider.workspace(settings.provider)
        root = provider.workspace("root")
        if settings.root is not None:
            other = settings.root.access()
            root = Client(await stack.enter_async_context(other.transport()), other.prefix, manager).workspace("root")
        yield Servers(provider, root)


async def _work(settings: Settings, servers: Servers, outside: Surroundings, log: Logger) -> None:
    shown = Shown()
    async with served(settings.bind_address, {"informers": shown.ready}, shown.registry):
        if not settings.elects:
            await _control(settings, servers, shown, outside, log)
            return
        identity = f"{socket.gethostname()}_{os.getpid()}_{os.urandom(4).hex()}"
        lease = settings.command.replace(" ", "-")
        candidate = Candidate(servers.provider, "default", lease, identity, outside, _now, log)
        guarded = Servers(candidate.guarded(servers.provider), candidate.guarded(servers.root))
        await candidate.lead(lambda: _control(settings, guarded, shown, outside, log))


@dataclass(slots=True)
class Shown:
    """What a process shows of itself, whether it works or waits until it may."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _manager: Manager | None = None

    def ready(self) -> bool:
        """Who waits is ready to."""
        return self._manager is None or self._manager.synced

    @contextlib.contextmanager
    def manager(self, log: Logger) -> Iterator[Manager]:
        """One that is shown as long as the block lasts."""
        self._manager = manager = Manager(log)
        figures = manager.figures()
        self.registry.register(figures)
        try:
            yield manager
        finally:
            self.registry.unregister(figures)
            self._manager = None


def _now() -> datetime:
    return datetime.now(UTC)


async def _control(settings: Settings, servers: Servers, shown: Shown, outside: Surroundings, log: Logger) -> None:
    """Find what is needed, and run."""
    with shown.manager(log) as manager:
        edge = await find_view(servers.provider, EDGE, outside, log)
        if not settings.log_only:
            await _join(settings, servers, edge, manager, outside, log)
            await manager.run()
            return
    await observe(servers.provider.view(edge.url), outside, log)


async def _join(
    settings: Settings, servers: Servers, edge: View, manager: Manager, outside: Surroundings, log: Logger
) -> None:
    locations = await find_view(servers.root, SCHEDULING, outside, log) if SCHEDULER in settings.what else None
    targets = await find_view(servers.root, WORKLOAD, outside, log)
    if locations is not None:
        scheduler = SchedulerSetting(servers.provider, servers.root, edge.url, locations.url, targets.url, _now)
        EdgeScheduler(scheduler, settings.name, outside, log, workers=settings.workers).join(manager)
    if MAILBOXES in settings.what:
        provider = settings.provider or edge.path or PROVIDER
        mailboxes = MailboxSetting(servers.provider, servers.root, provider, edge.url, targets.url)
        MailboxController(mailboxes, outside, log, workers=settings.workers).join(manager)
