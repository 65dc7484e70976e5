"""Composition of the processes that run controllers: where the server is, what runs, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import uvloop
from prometheus_client import CollectorRegistry

from farflung.apis.edge.names import EDGE_GROUP
from farflung.apis.kcp.names import SCHEDULING_GROUP, WORKLOAD_GROUP
from farflung.cli import global_scheduler
from farflung.cli.connection import mending
from farflung.cli.environment import system_environment
from farflung.cli.global_scheduler import Ways
from farflung.cli.identity import identity
from farflung.cli.reloader import Reloading
from farflung.cli.scheduler_configuration import Configuration, KeptFiles, Reading
from farflung.cli.scheduler_files import ConfigurationError, Files
from farflung.client.errors import KubeconfigError
from farflung.client.kubeconfig import Access, load
from farflung.client.rest import Client
from farflung.controllers.edge_scheduler.controller import EdgeScheduler, EdgeSchedulerSetting
from farflung.controllers.edge_scheduler.observe import observe
from farflung.controllers.mailbox.controller import MailboxController, MailboxSetting
from farflung.controllers.placement_translator.controller import PlacementTranslator
from farflung.controllers.status_summarizer.controller import STALE_AFTER, StatusSummarizer
from farflung.lib import klog, memory, outlet
from farflung.lib.klog import Logger
from farflung.placement.feeds import FeedViews, PlacementFeed
from farflung.placement.guard import WithdrawalLimits
from farflung.runtime.exports import View, find_view, until_gone
from farflung.runtime.health import served
from farflung.runtime.informer import SharedInformers
from farflung.runtime.leader import Candidate, LeaseRef
from farflung.runtime.manager import Manager
from farflung.runtime.recorder import Recorder
from farflung.runtime.reflector import Environment

SCHEDULER: Final = "scheduler"
MAILBOXES: Final = "mailbox-controller"
TRANSLATOR: Final = "placement-translator"
SUMMARIZER: Final = "status-summarizer"
GLOBAL: Final = "global-scheduler"
ALL: Final = (SCHEDULER, MAILBOXES, TRANSLATOR, SUMMARIZER, GLOBAL)
SEEING_ALL: Final = frozenset({TRANSLATOR, SUMMARIZER, GLOBAL})  #: those that have to see all workspaces at once
PROVIDER: Final = "root:espw"
EVERYWHERE: Final = "system:admin"  #: the context of who may see all workspaces at once
WORKERS: Final = {SCHEDULER: 4, MAILBOXES: 4, TRANSLATOR: 16, SUMMARIZER: 8, GLOBAL: 32}


@dataclass(frozen=True, slots=True)
class Where:
    """One way to a server, as command lines say it; nothing said: as kubectl would go."""

    kubeconfig: str = ""
    context: str = ""
    user: str = ""
    cluster: str = ""
    server: str = ""  #: the address, if not that of the kubeconfig

    def access(self) -> Access:
        chosen = {"context": self.context, "cluster": self.cluster, "user": self.user}
        return load(self.kubeconfig or None, **chosen, server=self.server)


@dataclass(frozen=True, slots=True)
class Settings:
    what: tuple[str, ...]  #: some of ALL
    command: str
    where: Where = field(default_factory=Where)  #: the provider's workspace
    root: Where | None = None  #: the root workspace, if not by the same way
    everywhere: Where | None = None  #: all workspaces at once, for those who have to see them
    provider: str = ""  #: the path of the provider's workspace; empty: the one that `where` leads to
    name: str = "edge-scheduler"
    verbosity: int = 2
    workers: int = 0  #: of each controller; 0: as WORKERS says
    bind_address: str = ""
    elects: bool = False
    identity_file: str = ""  #: that remembers who this process is; empty: none
    log_only: bool = False
    with_parent: bool = False  #: ends when standard input does
    limits: WithdrawalLimits = field(default_factory=WithdrawalLimits)  #: of what goes at once
    stale_after: float = STALE_AFTER  #: seconds without a word of a syncer
    files: Files = field(default_factory=Files)  #: of the global scheduler
    kept: KeptFiles = field(default_factory=KeptFiles)  #: the copy of them
    reading: Reading = field(default_factory=lambda: Reading(Configuration(), _now()))  #: what they said

    def workers_of(self, controller: str) -> int:
        return self.workers or WORKERS[controller]


def settings_of(command: str, what: tuple[str, ...], options: Mapping[str, Any]) -> Settings:
    """`options`: as the command line has them.  A way to the server by another name counts if nothing else is said.
    Raises ConfigurationError."""

    def way(name: str) -> Where:
        return Where(*(options.get(f"{name}_{part}") or "" for part in ("kubeconfig", "context", "user", "cluster")))

    files = Files(options.get("conf") or "", options.get("policy_file") or "")
    kept = KeptFiles(options.get("kept_files") or "")
    reading = kept.read(files, _now())
    configured = reading.configured
    kubeconfig = options["kubeconfig"] or configured.kubeconfig
    server = "" if options.get("with_parent") else configured.master  # a hub's own controllers serve that hub
    told = _said(kubeconfig=kubeconfig, context=options["context"], server=server)
    provider = replace(way("espw"), **told)
    root = way("root") if way("root") != Where() else way("inventory")
    everywhere = None
    if not SEEING_ALL.isdisjoint(what):
        other = way("allclusters")
        context = other.context or EVERYWHERE
        everywhere = replace(other, kubeconfig=other.kubeconfig or kubeconfig, context=context, server=server)
    return Settings(
        what=what,
        command=command,
        where=provider,
        root=None
        if root == Where()
        else replace(root, **_said(kubeconfig=root.kubeconfig or kubeconfig, server=server)),
        everywhere=everywhere,
        provider=options["provider"],
        name=options.get("name", "edge-scheduler"),
        verbosity=options["verbosity"],
        workers=options["concurrency"] or 0,
        bind_address=options["bind_address"],
        elects=options["leader_elect"],
        identity_file=options.get("identity_file", ""),
        log_only=options.get("log_only", False),
        with_parent=options.get("with_parent", False),
        limits=WithdrawalLimits(options["max_withdraw"], options["max_withdraw_number"])
        if TRANSLATOR in what
        else WithdrawalLimits(),
        stale_after=options.get("stale_after", STALE_AFTER),
        files=files,
        kept=kept,
        reading=reading,
    )


def _said(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def run(settings: Settings) -> None:
    """Until a signal.  What a user can mend is one sentence and exit code 1."""
    outlet.unblock(klog.lost)
    with mendable(settings.command):
        uvloop.run(_run(settings))


@contextlib.contextmanager
def mendable(command: str) -> Iterator[None]:
    try:
        yield
    except (KubeconfigError, ConfigurationError, OSError) as error:
        print(f"{command}: {mending(error)}", file=sys.stderr)
        sys.exit(1)


async def _run(settings: Settings) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    if settings.with_parent:
        await _follow_parent(stopped.set)
    log = Logger(sys.stderr, settings.verbosity)
    files = Reloading(settings.files, settings.reading, log, settings.kept)
    if settings.files:
        loop.add_signal_handler(signal.SIGHUP, _on_hang_up(files.ask, stopped.set))
    memory.freeze()
    async with _servers(settings) as servers:
        reading = asyncio.create_task(files.run(), name="files")
        working = asyncio.create_task(_work(settings, servers, files, system_environment(), log), name="controllers")
        ending = asyncio.create_task(stopped.wait(), name="signals")
        lasting = {working, reading} if settings.files else {working}
        done, _ = await asyncio.wait({*lasting, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        reading.cancel()
        for one in lasting & done:
            one.result()
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working


def _on_hang_up(read: Callable[[], None], stop: Callable[[], None]) -> Callable[[], None]:
    """SIGHUP asks to read files again, but for who was started in a terminal that is closed it is the end, unless nohup
    said that it is not."""
    in_terminal = _has_terminal() and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    return lambda: stop() if in_terminal and not _has_terminal() else read()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


async def _follow_parent(stop: Callable[[], None]) -> None:
    """A supervisor that is gone cannot end what it began, but its end of the pipe closes."""

    class Pipe(asyncio.Protocol):
        def connection_lost(self, error: Exception | None) -> None:
            stop()

    await asyncio.get_running_loop().connect_read_pipe(Pipe, sys.stdin)


@dataclass(frozen=True, slots=True)
class Servers:
    provider: Client
    root: Client
    everywhere: Client | None = None  #: all workspaces, for those who have to see them at once

    def through(self, gate: Callable[[Client], Client]) -> Servers:
        everywhere = None if self.everywhere is None else gate(self.everywhere)
        return Servers(gate(self.provider), gate(self.root), everywhere)


@contextlib.asynccontextmanager
async def _servers(settings: Settings) -> AsyncIterator[Servers]:
    manager = settings.command.rpartition(" ")[2]
    access = settings.where.access()
    whole = None if settings.everywhere is None else _access_to_all(settings.everywhere)
    async with contextlib.AsyncExitStack() as stack:
        transport = await stack.enter_async_context(access.transport())
        provider = Client(transport, access.prefix, manager)
        if settings.provider:
            provider = provider.workspace(settings.provider)
        root = provider.workspace("root")
        if settings.root is not None:
            other = settings.root.access()
            root = Client(await stack.enter_async_context(other.transport()), other.prefix, manager).workspace("root")
        everywhere = None
        if whole is not None:
            everywhere = Client(await stack.enter_async_context(whole.transport()), "", manager).workspace("*")
        yield Servers(provider, root, everywhere)


def _access_to_all(everywhere: Where) -> Access:
    try:
        return everywhere.access()
    except KubeconfigError as error:
        raise KubeconfigError(
            f"{error}: this controller has to see all workspaces at once, and a context of somebody who may, "
            "as that of a hub's admin.kubeconfig, is given with --allclusters-context"
        ) from None


async def _work(settings: Settings, servers: Servers, files: Reloading, env: Environment, log: Logger) -> None:
    shown = Shown()
    if settings.files:
        shown.registry.register(files)
    async with (
        served(settings.bind_address, {"informers": shown.ready}, shown.registry, files.notes),
        identity(settings.identity_file, log) as ourselves,
    ):
        run_controllers = partial(control, settings, files=files, identity=ourselves, shown=shown, env=env, log=log)
        if not settings.elects:
            await run_controllers(servers)
            return
        lease = settings.command.replace(" ", "-")
        candidate = Candidate(LeaseRef(servers.provider, "default", lease), ourselves, env, _now, log)
        guarded = servers.through(candidate.guarded)
        await candidate.lead(lambda: run_controllers(guarded))


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


async def control(
    settings: Settings,
    servers: Servers,
    *,
    files: Reloading,
    identity: str,
    shown: Shown,
    env: Environment,
    log: Logger,
) -> None:
    """Find what is needed, and run; anew whenever that is somewhere else."""
    while True:
        with shown.manager(log) as manager:
            edge = await find_view(servers.provider, EDGE_GROUP, env, log)
            if settings.log_only:
                break
            await _join(settings, servers, files, identity, edge, manager, env, log)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(manager.run(), name="manager")
                await until_gone(servers.provider, EDGE_GROUP, edge, lambda: manager.troubles, env, log)
                running.cancel()
    await observe(servers.provider.view(edge.url), env, log)


async def _join(
    settings: Settings,
    servers: Servers,
    files: Reloading,
    identity: str,
    edge: View,
    manager: Manager,
    env: Environment,
    log: Logger,
) -> None:
    async def view(export: str, *users: str) -> str:
        """Where it is, if somebody uses it."""
        used = not set(users).isdisjoint(settings.what)
        return (await find_view(servers.root, export, env, log)).url if used else ""

    locations = await view(SCHEDULING_GROUP, SCHEDULER, TRANSLATOR, SUMMARIZER)
    targets = await view(WORKLOAD_GROUP, SCHEDULER, MAILBOXES, GLOBAL)
    provider = settings.provider or edge.path or PROVIDER
    informers = SharedInformers(env)
    if SCHEDULER in settings.what:
        scheduler = EdgeSchedulerSetting(servers.provider, servers.root, edge.url, locations, targets, _now)
        EdgeScheduler(scheduler, settings.name, informers, log, workers=settings.workers_of(SCHEDULER)).join(manager)
    if MAILBOXES in settings.what:
        mailboxes = MailboxSetting(servers.provider, servers.root, provider, edge.url, targets, servers.everywhere)
        MailboxController(mailboxes, informers, log, workers=settings.workers_of(MAILBOXES)).join(manager)
    if GLOBAL in settings.what and servers.everywhere is not None:
        home = servers.provider.workspace(provider)
        ways = Ways(home, servers.root, servers.everywhere, edge.url, targets)
        workers = settings.workers_of(GLOBAL)
        global_scheduler.join(ways, files, identity, manager, informers, log, workers=workers)
    if servers.everywhere is not None and {TRANSLATOR, SUMMARIZER} & set(settings.what):
        views = FeedViews(servers.everywhere, servers.provider.workspace(provider), servers.root, edge.url, locations)
        listening = PlacementFeed(views, settings.limits, informers, log)

        def recorder(name: str) -> Recorder:
            return Recorder(views.everywhere, name, _now, env.monotonic, lambda: f"{time.time_ns():x}", log)

        if TRANSLATOR in settings.what:
            PlacementTranslator(listening, recorder(TRANSLATOR), _now, workers=settings.workers_of(TRANSLATOR))
        if SUMMARIZER in settings.what:
            workers, stale_after = settings.workers_of(SUMMARIZER), settings.stale_after
            StatusSummarizer(listening, recorder(SUMMARIZER), _now, stale_after=stale_after, workers=workers)
        listening.join(manager)
