"""Composition of the processes that run controllers: connections, controllers, leader election and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

import uvloop
from prometheus_client import CollectorRegistry

from farflung.apis.edge.names import EDGE_GROUP, STALE_AFTER
from farflung.apis.kcp.names import SCHEDULING_GROUP, WORKLOAD_GROUP
from farflung.cli.connection import describe_error
from farflung.cli.settings import PROVIDER, AccessOptions, ControllerOptions, FileOptions, WithdrawalOptions
from farflung.client.errors import ClientError, KubeconfigError
from farflung.client.kubeconfig import ClientConfig, has_context, load
from farflung.client.rest import NOTHING, Client, PlainClient, has_workspaces
from farflung.controllers.edge_scheduler.controller import EdgeScheduler, EdgeSchedulerSetting
from farflung.controllers.edge_scheduler.observe import observe
from farflung.controllers.mailbox.controller import MailboxController, MailboxSetting
from farflung.controllers.placement_translator.controller import PlacementTranslator
from farflung.controllers.placing_rights import controller as placing_rights
from farflung.controllers.placing_rights.controller import (
    AccessReviewer,
    PlacingRights,
    TrustedWorkspaces,
    records_authors,
)
from farflung.controllers.status_summarizer.controller import StatusSummarizer
from farflung.lib import klog, memory, outlet
from farflung.lib.klog import Logger
from farflung.machines import elected
from farflung.machines.elected import SchedulerClients
from farflung.machines.files.configuration import FileCopy, LoadedConfiguration, SchedulerConfiguration
from farflung.machines.files.reloader import Reloader
from farflung.machines.files.scheduler_files import SchedulerFiles, SchedulerFilesError
from farflung.placement.feeds import FeedViews, PlacementFeed
from farflung.placement.guard import DEFAULT_LIMITS, WithdrawalLimits
from farflung.runtime.environment import Environment, report_unless_closed, system_environment
from farflung.runtime.exports import View, find_view, is_missing, report_unbound, until_gone, until_there
from farflung.runtime.health import served
from farflung.runtime.identity import identity
from farflung.runtime.informer import SharedInformers
from farflung.runtime.leader import Candidate, LeaseRef, Precedence
from farflung.runtime.manager import Manager
from farflung.runtime.recorder import Recorder

SCHEDULER: Final = "scheduler"
MAILBOXES: Final = "mailbox-controller"
TRANSLATOR: Final = "placement-translator"
SUMMARIZER: Final = "status-summarizer"
GLOBAL: Final = "global-scheduler"
#: the context of each controller's own user
CONTEXTS: Final = {
    SCHEDULER: "edge-scheduler",
    MAILBOXES: MAILBOXES,
    TRANSLATOR: TRANSLATOR,
    SUMMARIZER: SUMMARIZER,
    GLOBAL: GLOBAL,
}
ALL: Final = (SCHEDULER, MAILBOXES, TRANSLATOR, SUMMARIZER, GLOBAL)
ALL_WORKSPACES: Final = frozenset({TRANSLATOR, SUMMARIZER, GLOBAL})  #: need access to all workspaces
READING_PLACEMENTS: Final = frozenset({SCHEDULER, TRANSLATOR, SUMMARIZER})
PLACING: Final = frozenset(
    {SCHEDULER, GLOBAL}
)  #: check the rights of authors, which needs it if the server records them
NEEDS_ALL: Final = (
    "this controller needs access to all workspaces; select a context with it by --allclusters-context, like the one "
    "in the hub's admin.kubeconfig"
)
LOOK: Final = 0.05  #: seconds between two looks whether all controllers run
NO_FILES: Final = FileOptions()
ADMIN_CONTEXT: Final = "system:admin"  #: context with access to all workspaces
WORKERS: Final = {SCHEDULER: 4, MAILBOXES: 4, TRANSLATOR: 16, SUMMARIZER: 8, GLOBAL: 32}


def client_config(access: AccessOptions) -> ClientConfig:
    return load(
        access.kubeconfig or None,
        context=access.context,
        cluster=access.cluster,
        user=access.user,
        server=access.server,
    )


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    controllers: tuple[str, ...]  #: some of ALL
    command: str
    options: ControllerOptions = field(default_factory=ControllerOptions)
    provider_access: AccessOptions = field(default_factory=AccessOptions)  #: to the provider workspace
    root_access: AccessOptions | None = None  #: to the root workspace, if it differs
    all_access: AccessOptions | None = None  #: to all workspaces, for ALL_WORKSPACES
    has_own_users: bool = False  #: the kubeconfig has a context for each controller
    name: str = "edge-scheduler"
    log_only: bool = False
    trusted: tuple[str, ...] = ("root",)  #: paths of workspaces, for a server that records no authors
    with_parent: bool = False  #: stop at the end of standard input
    limits: WithdrawalLimits = DEFAULT_LIMITS  #: of withdrawals
    stale_after: float = STALE_AFTER  #: seconds without a heartbeat
    files: SchedulerFiles = field(default_factory=SchedulerFiles)  #: of the global scheduler
    kept: FileCopy = field(default_factory=FileCopy)  #: the last valid version of them
    loaded: LoadedConfiguration = field(
        default_factory=lambda: LoadedConfiguration(SchedulerConfiguration(), _now())
    )  #: their content

    @property
    def precedence(self) -> Precedence:
        """Of the global scheduler for its Lease."""
        if self.with_parent:
            return Precedence.LAST
        return Precedence.FIRST if self.controllers == (GLOBAL,) else Precedence.EQUAL

    def workers_of(self, controller: str) -> int:
        return self.options.concurrency or WORKERS[controller]


def read_settings(
    command: str,
    controllers: tuple[str, ...],
    options: ControllerOptions,
    files: FileOptions = NO_FILES,
    *,
    withdrawal: WithdrawalOptions | None = None,
    with_parent: bool = False,
) -> ControllerSettings:
    """Options of kcp's and KubeStellar's names count if the usual ones are not given.  Raises SchedulerFilesError."""
    found, kept = SchedulerFiles(files.conf, files.policy_file), FileCopy(files.kept)
    loaded = kept.read(found, _now())
    kubeconfig = options.kubeconfig or loaded.configured.kubeconfig
    server = "" if with_parent else loaded.configured.master  # the controllers of a hub connect to that hub
    nothing = AccessOptions()
    accesses = options.accesses
    provider = replace(
        accesses.get("espw", nothing), **_nonempty(kubeconfig=kubeconfig, context=options.context, server=server)
    )
    root = next((accesses[name] for name in ("root", "inventory") if accesses.get(name, nothing) != nothing), None)
    if root is not None:
        root = replace(root, **_nonempty(kubeconfig=root.kubeconfig or kubeconfig, server=server))
    everywhere = None
    if not (ALL_WORKSPACES | PLACING).isdisjoint(controllers):
        other = next((accesses[name] for name in ("allclusters", "sysadm") if name in accesses), nothing)
        context = other.context or ADMIN_CONTEXT
        everywhere = replace(other, kubeconfig=other.kubeconfig or kubeconfig, context=context, server=server)
    chosen = options.context or any(one != nothing for one in accesses.values())
    return ControllerSettings(
        controllers,
        command,
        options,
        provider,
        root,
        everywhere,
        not chosen and all(has_context(provider.kubeconfig, CONTEXTS[one]) for one in controllers),
        with_parent=with_parent,
        limits=DEFAULT_LIMITS
        if withdrawal is None
        else WithdrawalLimits(withdrawal.max_withdraw, withdrawal.max_withdraw_number),
        files=found,
        kept=kept,
        loaded=loaded,
    )


def _nonempty(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def run(settings: ControllerSettings) -> None:
    """Run until a signal.  Errors of the user are one line and exit code 1."""
    outlet.unblock(klog.lost)
    with report_errors(settings.command):
        uvloop.run(_run(settings))


@contextlib.contextmanager
def report_errors(command: str) -> Iterator[None]:
    try:
        yield
    except (KubeconfigError, SchedulerFilesError, OSError) as error:
        print(f"{command}: {describe_error(error)}", file=sys.stderr)
        sys.exit(1)


async def _run(settings: ControllerSettings) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report_unless_closed)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    if settings.with_parent:
        await _follow_parent(stopped.set)
    log = Logger(sys.stderr, settings.options.verbosity)
    files = Reloader(settings.files, settings.loaded, log, settings.kept)
    if settings.files:
        loop.add_signal_handler(signal.SIGHUP, _on_hang_up(files.reload, stopped.set))
    memory.freeze()
    async with _servers(settings) as servers:
        reading = asyncio.create_task(files.run(), name="files")
        working = asyncio.create_task(_serve(settings, servers, files, system_environment(), log), name="controllers")
        ending = asyncio.create_task(stopped.wait(), name="signals")
        permanent = {working, reading} if settings.files else {working}
        done, _ = await asyncio.wait({*permanent, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        reading.cancel()
        for one in permanent & done:
            one.result()
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working


def _on_hang_up(read: Callable[[], None], stop: Callable[[], None]) -> Callable[[], None]:
    """SIGHUP reloads the files.  If the terminal of the process was closed, and nohup does not ignore that, it stops
    the process."""
    in_terminal = _has_terminal() and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    return lambda: stop() if in_terminal and not _has_terminal() else read()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


async def _follow_parent(stop: Callable[[], None]) -> None:
    """A killed supervisor cannot stop its child, but its end of the pipe closes."""

    class Pipe(asyncio.Protocol):
        def connection_lost(self, error: Exception | None) -> None:
            stop()

    await asyncio.get_running_loop().connect_read_pipe(Pipe, sys.stdin)


@dataclass(frozen=True, slots=True)
class Servers:
    provider: Client
    root: Client
    everywhere: Client | None = None  #: all workspaces
    whole: Client | None = None  #: the API of the kubeconfig's context, for a server that may have no workspaces
    own: Mapping[str, Servers] = field(default_factory=dict)  #: of controllers that are users of their own

    def of(self, controller: str) -> Servers:
        return self.own.get(controller, self)

    def through(self, gate: Callable[[Client], Client]) -> Servers:
        everywhere = None if self.everywhere is None else gate(self.everywhere)
        own = {name: servers.through(gate) for name, servers in self.own.items()}
        return Servers(gate(self.provider), gate(self.root), everywhere, self.whole and gate(self.whole), own)


@contextlib.asynccontextmanager
async def _servers(settings: ControllerSettings) -> AsyncIterator[Servers]:
    if settings.has_own_users:
        async with contextlib.AsyncExitStack() as stack:
            group = object()
            users = {one: await _servers_of(one, settings, group, stack) for one in settings.controllers}
            yield replace(users[settings.controllers[0]], own=users)
        return
    manager = settings.command.rpartition(" ")[2]
    access = client_config(settings.provider_access)
    whole = _access_to_all(settings)
    async with contextlib.AsyncExitStack() as stack:
        transport = await stack.enter_async_context(access.transport())
        own = provider = Client(transport, access.prefix, manager)
        if settings.options.provider:
            provider = provider.workspace(settings.options.provider)
        root = provider.workspace("root")
        if settings.root_access is not None:
            other = client_config(settings.root_access)
            root = Client(await stack.enter_async_context(other.transport()), other.prefix, manager).workspace("root")
        everywhere = None
        if whole is not None:
            everywhere = Client(await stack.enter_async_context(whole.transport()), "", manager).workspace("*")
        yield Servers(provider, root, everywhere, own)


async def _servers_of(
    controller: str, settings: ControllerSettings, group: object, stack: contextlib.AsyncExitStack
) -> Servers:
    """As the controller's own user.  The controllers of a group share watches: each may read what it watches."""
    access = client_config(replace(settings.provider_access, context=CONTEXTS[controller]))
    transport = await stack.enter_async_context(access.transport())
    server = Client(transport, access.prefix, settings.command.rpartition(" ")[2], group=group)
    provider = server.workspace(settings.options.provider or PROVIDER)
    return Servers(provider, server.workspace("root"), server.workspace("*"))


def _access_to_all(settings: ControllerSettings) -> ClientConfig | None:
    """None: it is not available, and may not be needed: a server may have one API."""
    if settings.all_access is None:
        return None
    try:
        return client_config(settings.all_access)
    except KubeconfigError as error:
        if settings.controllers == (GLOBAL,) and settings.all_access.context == ADMIN_CONTEXT:
            return None
        if ALL_WORKSPACES.isdisjoint(settings.controllers):
            return None
        raise KubeconfigError(f"{error}: {NEEDS_ALL}") from None


async def placing_rights_of(
    settings: ControllerSettings, servers: Servers, informers: SharedInformers, log: Logger
) -> PlacingRights:
    if await records_authors(servers.root, informers.env, log):
        if servers.everywhere is None:
            raise KubeconfigError(
                f"no context {ADMIN_CONTEXT}: this controller needs access to all workspaces, to review the rights of "
                "authors; select a context with it by --sysadm-context, like the one in the hub's admin.kubeconfig"
            )

        def trouble(what: str, error: Exception) -> None:
            log.error(error, what, controller=placing_rights.NAME)

        return PlacingRights(AccessReviewer(servers.everywhere, informers, trouble), informers.env, log)
    log.warning(
        "the server records no authors of placements, so trusted workspaces may place on all Locations",
        trustWorkspaces=",".join(settings.trusted),
    )
    trusted = TrustedWorkspaces(settings.trusted, servers.provider.workspace)
    return PlacingRights(trusted, informers.env, log, by_workspace=True)


async def _serve(
    settings: ControllerSettings, servers: Servers, files: Reloader, env: Environment, log: Logger
) -> None:
    status = ProcessStatus()
    if settings.files:
        status.registry.register(files)
    async with (
        contextlib.AsyncExitStack() as stack,
        served(settings.options.bind_address, {"informers": status.ready}, status.registry, files.notes),
        identity(settings.options.identity_file, log) as lease_identity,
    ):
        if settings.with_parent:
            reporting = asyncio.create_task(_report_start(status, env), name="parent")
            stack.callback(reporting.cancel)
        work = partial(run_controllers, settings, files=files, identity=lease_identity, status=status, env=env, log=log)
        if not settings.options.leader_elect:
            await work(servers)
            return
        lease = settings.command.replace(" ", "-")
        candidate = Candidate(LeaseRef(servers.provider, "default", lease), lease_identity, env, _now, log)
        guarded = servers.through(candidate.guarded)
        await candidate.lead(lambda: work(guarded))


async def _report_start(status: ProcessStatus, env: Environment) -> None:
    """Write to the parent when all controllers run, after their log lines."""
    while not status.started():
        await env.sleep(LOOK)
    await asyncio.to_thread(outlet.drain)
    print("started", flush=True)


@dataclass(slots=True)
class ProcessStatus:
    """Readiness and metrics of the process, also while it waits for the Lease."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _manager: Manager | None = None

    def ready(self) -> bool:
        """A process that waits for the Lease is ready."""
        return self._manager is None or self._manager.synced

    def started(self) -> bool:
        return self._manager is not None and self._manager.started

    @contextlib.contextmanager
    def manager(self, log: Logger) -> Iterator[Manager]:
        """A Manager whose metrics are served until the block ends."""
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


async def run_controllers(
    settings: ControllerSettings,
    servers: Servers,
    *,
    files: Reloader,
    identity: str,
    status: ProcessStatus,
    env: Environment,
    log: Logger,
) -> None:
    """Find the views and run the controllers; again whenever a view moves."""

    def join_alone(clients: SchedulerClients, manager: Manager) -> None:
        clients.rights.join(manager)
        workers = settings.workers_of(GLOBAL)
        elected.join(clients, files, identity, manager, SharedInformers(env), log, workers=workers)

    whole = servers.whole
    if whole is not None and servers.everywhere is None and settings.controllers == (GLOBAL,):
        await _require_one_api(whole, env, log)
        with status.manager(log) as manager:
            plain = PlainClient(whole.transport, whole.prefix, whole.manager, lenient=True)
            trusted = TrustedWorkspaces(("root",), plain.workspace)  # one API has no other tenants
            rights = PlacingRights(trusted, env, log, by_workspace=True)
            join_alone(SchedulerClients(NOTHING, plain, plain, "", "", "", rights, has_workspaces=False), manager)
            await manager.run()
    while True:
        may_schedule = servers.everywhere is not None and GLOBAL in settings.controllers
        if may_schedule and await is_missing(servers.provider, EDGE_GROUP):
            with status.manager(log) as manager:
                join = partial(join_alone, manager=manager)
                await _schedule_without_edge_api(settings, servers, join, manager, env, log)
            continue
        with status.manager(log) as manager:
            edge = await find_view(servers.provider, EDGE_GROUP, env, log)
            if not settings.with_parent and READING_PLACEMENTS.intersection(settings.controllers):
                await report_unbound(servers.provider.view(edge.url), EDGE_GROUP, edge.path, log)
            if settings.log_only:
                break
            await _join(settings, servers, files, identity, edge, manager, env, log)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(manager.run(), name="manager")
                await until_gone(servers.provider, EDGE_GROUP, edge, lambda: manager.troubles, env, log)
                running.cancel()
    await observe(servers.provider.view(edge.url), env, log)


async def _schedule_without_edge_api(
    settings: ControllerSettings,
    servers: Servers,
    join: Callable[[SchedulerClients], None],
    manager: Manager,
    env: Environment,
    log: Logger,
) -> None:
    """Run the global scheduler until the edge API exists: it binds machines, and delivers none."""
    own = servers.of(GLOBAL)
    assert own.everywhere is not None
    log.info("No edge API, so virtual machines are bound and not delivered", at=own.provider.prefix)
    targets = (await find_view(own.root, WORKLOAD_GROUP, env, log)).url
    locations = (await find_view(own.root, SCHEDULING_GROUP, env, log)).url
    rights = await placing_rights_of(settings, own, SharedInformers(env), log)
    precedence = settings.precedence
    join(SchedulerClients(NOTHING, own.root, own.everywhere, "", targets, locations, rights, precedence=precedence))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(manager.run(), name="manager")
        await until_there(servers.provider, EDGE_GROUP, env)
        running.cancel()


async def _require_one_api(client: Client, env: Environment, log: Logger) -> None:
    """Wait until the server answers.  Raises KubeconfigError if it has workspaces."""
    failures = 0
    while True:
        try:
            if await has_workspaces(client):
                raise KubeconfigError(f"no context {ADMIN_CONTEXT}: {NEEDS_ALL}")
        except ClientError as error:
            failures += 1
            log.error(error, "cannot find out whether the server has workspaces")
            await env.sleep(env.backoff.delay(failures, error.retry_after))
        else:
            return


async def _join(
    settings: ControllerSettings,
    servers: Servers,
    files: Reloader,
    identity: str,
    edge: View,
    manager: Manager,
    env: Environment,
    log: Logger,
) -> None:
    async def view(export: str, *users: str) -> str:
        """The URL of the view, if a controller uses it."""
        used = not set(users).isdisjoint(settings.controllers)
        return (await find_view(servers.root, export, env, log)).url if used else ""

    locations = await view(SCHEDULING_GROUP, SCHEDULER, TRANSLATOR, SUMMARIZER, GLOBAL)
    targets = await view(WORKLOAD_GROUP, SCHEDULER, MAILBOXES, GLOBAL)
    provider = settings.options.provider or edge.path or PROVIDER
    informers = SharedInformers(env)
    rights = None
    if not PLACING.isdisjoint(settings.controllers):
        first = next(one for one in settings.controllers if one in PLACING)
        rights = await placing_rights_of(settings, servers.of(first), informers, log)
        rights.join(manager)
    if SCHEDULER in settings.controllers and rights is not None:
        own = servers.of(SCHEDULER)
        scheduler = EdgeSchedulerSetting(own.provider, own.root, edge.url, locations, targets, rights, _now)
        EdgeScheduler(scheduler, settings.name, informers, log, workers=settings.workers_of(SCHEDULER)).join(manager)
    if MAILBOXES in settings.controllers:
        own = servers.of(MAILBOXES)
        mailboxes = MailboxSetting(own.provider, own.root, provider, edge.url, targets, own.everywhere)
        MailboxController(mailboxes, informers, log, workers=settings.workers_of(MAILBOXES)).join(manager)
    own = servers.of(GLOBAL)
    if GLOBAL in settings.controllers and own.everywhere is not None and rights is not None:
        home = own.provider.workspace(provider)
        clients = SchedulerClients(
            home, own.root, own.everywhere, edge.url, targets, locations, rights, precedence=settings.precedence
        )
        workers = settings.workers_of(GLOBAL)
        elected.join(clients, files, identity, manager, informers, log, workers=workers)
    if servers.everywhere is not None and {TRANSLATOR, SUMMARIZER} & set(settings.controllers):
        views = feed_views(servers, settings.controllers, provider, edge.url, locations)
        feed = PlacementFeed(views, settings.limits, informers, log)

        def recorder(name: str) -> Recorder:
            return Recorder(views.of(name).everywhere, name, _now, env.monotonic, lambda: f"{time.time_ns():x}", log)

        if TRANSLATOR in settings.controllers:
            PlacementTranslator(feed, recorder(TRANSLATOR), _now, workers=settings.workers_of(TRANSLATOR))
        if SUMMARIZER in settings.controllers:
            workers, stale_after = settings.workers_of(SUMMARIZER), settings.stale_after
            StatusSummarizer(feed, recorder(SUMMARIZER), _now, stale_after=stale_after, workers=workers)
        feed.join(manager)


def feed_views(servers: Servers, controllers: Collection[str], provider: str, edge: str, locations: str) -> FeedViews:
    """`provider`: path of the provider workspace; `edge`, `locations`: URLs of views.  The first controller that uses
    the feed reads for all."""
    own: dict[str, FeedViews] = {}
    for controller in (TRANSLATOR, SUMMARIZER):
        server = servers.of(controller)
        if controller in controllers and server.everywhere is not None:
            home = server.provider.workspace(provider)
            own[controller] = FeedViews(server.everywhere, home, server.root, edge, locations)
    return replace(next(iter(own.values())), own=own)
