"""The process of a hub: files, store, sockets, signals.  The hub itself is composed in `hub/assembly.py`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import uvloop

from farflung.apis.edge.names import STALE_AFTER
from farflung.cli.credentials import (
    ADMIN,
    KUBECONFIG,
    PLAIN,
    TOKENS,
    KubeconfigUser,
    ensure_tokens,
    url_of,
    write_kubeconfig,
)
from farflung.cli.settings import DATABASE, KEY_FILE, WORKSPACES, KeyOptions, ServingOptions
from farflung.http.certificates import CertificateError
from farflung.http.flow_control import FlowLimits
from farflung.http.messages import Service
from farflung.http.server import Server, listening_sockets, serve_on
from farflung.hub.assembly import Assembly, HubDependencies, Options, TimeAndRandomness
from farflung.hub.auth.authenticator import Authenticator
from farflung.hub.auth.credential_files import CredentialFiles
from farflung.hub.auth.flows import JOB_SHARES
from farflung.hub.auth.static_tokens import read_tokens
from farflung.hub.catalog import objects
from farflung.hub.endpoints.logs import Nodes
from farflung.hub.registry.call import StorageLimits
from farflung.hub.request.audit import Audit
from farflung.hub.request.audit_policy import AuditPolicy
from farflung.lib import klog, log_lines, memory, outlet
from farflung.lib.errors import UserError
from farflung.lib.outlet import RotatedFile, Rotation
from farflung.machines.files.scheduler_files import SchedulerFiles, SchedulerFilesError
from farflung.placement.guard import DEFAULT_LIMITS, WithdrawalLimits
from farflung.placement.types import placement_problem
from farflung.store.base import FIRST, Unusable
from farflung.store.sqlite.store import SqliteStore
from farflung.store.sqlite.store_encryption import StoreEncryption

log = logging.getLogger(__name__)

FOLLOW = 1.0  #: seconds between two checks for revoked tokens
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  #: errors of a file that cannot grow
STARTING = 10.0  #: seconds for the controllers to start before the hub reports that it is ready
#: modules that the start does not need.  Loading them takes longer than a turn of the event loop.
LOADED_LATER = (
    "prometheus_client.core",
    "jwt.api_jws",
    "farflung.hub.catalog.openapi.handler",
    "farflung.hub.catalog.openapi.custom",
    "farflung.machinery.cel.crd",
    "farflung.hub.admission.policies.session",
)
STOP_GRACE = 10.0  #: seconds for requests in progress when the hub stops


@dataclass(frozen=True, slots=True)
class HubSettings(ServingOptions):
    keys: KeyOptions = field(default_factory=KeyOptions)
    workspaces: bool = False
    bare: bool = False  #: with workspaces: create only what the hub itself needs
    controllers: bool = False  #: with workspaces: run the controllers in a second process
    limits: WithdrawalLimits = DEFAULT_LIMITS  #: of withdrawals
    stale_after: float = STALE_AFTER  #: seconds without a heartbeat
    files: SchedulerFiles = field(default_factory=SchedulerFiles)  #: of the global scheduler
    audits: bool = True  #: write an audit log

    @property
    def command(self) -> str:
        return "farflung start" if self.workspaces else "farflung hub"

    def url(self, port: int) -> str:
        """The URL for clients.  Workspaces store it, so it should have a host name that clients can resolve."""
        host = self.hostnames[0] if self.workspaces and self.hostnames else self.bind_address
        return url_of(host, port)


def run(settings: HubSettings) -> None:
    """Run until a signal.  Errors of the user are one line and exit code 1."""
    outlet.unblock(klog.lost)
    log_lines.configure(sys.stderr, verbose=settings.verbose)
    try:
        if settings.controllers and settings.files:
            settings.files.read()  # an invalid file would make the controllers fail repeatedly
        uvloop.run(_run(settings))
    except (Unusable, CertificateError, SchedulerFilesError, UserError) as error:
        _refuse(settings, str(error))
    except OSError as error:
        _refuse(settings, _sentence(error, settings))


def _refuse(settings: HubSettings, sentence: str) -> NoReturn:
    print(f"{settings.command}: {sentence}", file=sys.stderr)
    sys.exit(1)


def _sentence(error: OSError, settings: HubSettings) -> str:
    address = f"{settings.bind_address}:{settings.port}"
    reason = (error.strerror or str(error)).lower()
    if error.filename:
        return f"cannot use {error.filename}: {reason}; choose another --root-directory or change its permissions"
    if "in use" in str(error).lower():
        return f"{address} is in use; stop what listens there or choose another --port"
    return f"{reason}; choose another --bind-address" if "listen" in reason else reason


async def _run(settings: HubSettings) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, stopped)
    async with running(settings) as server:
        kubeconfig = settings.root_directory / KUBECONFIG
        async with contextlib.AsyncExitStack() as stack:
            if settings.controllers:
                working = await stack.enter_async_context(_controllers(settings, kubeconfig))
                await _first_of(working, stopped)
            await asyncio.to_thread(outlet.drain)
            print(f"farflung hub is ready on https://{settings.bind_address}:{server.port}", flush=True)
            print(f"  export KUBECONFIG={kubeconfig.absolute()}", flush=True)
            await stopped.wait()
            print("farflung hub is stopping", flush=True)


async def _first_of(*events: asyncio.Event) -> None:
    """Wait for one of them, but not for long: the hub serves already."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, timeout=STARTING, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


def _stop(stopped: asyncio.Event) -> None:
    """The first signal stops the hub in order; the second at once, without losing writes."""
    if stopped.is_set():
        print("farflung hub stops at once", flush=True)
        outlet.drain()
        os._exit(1)
    stopped.set()


async def follow_tokens(authenticator: Authenticator) -> None:
    """New tokens are read at their first use; revoked ones are noticed here."""
    while True:
        await asyncio.sleep(FOLLOW)
        authenticator.refresh()


async def load_the_rest() -> None:
    """Load modules in a thread, which lets the event loop run every few milliseconds."""
    for name in LOADED_LATER:
        await asyncio.to_thread(import_module, name)
    memory.freeze()


def database(settings: HubSettings) -> Path:
    """Raises Unusable for a directory of the other kind of hub."""
    mine, other, command = DATABASE, WORKSPACES, "farflung start"
    if settings.workspaces:
        mine, other, command = WORKSPACES, DATABASE, "farflung hub"
    if (settings.root_directory / other).exists():
        kind = "without" if settings.workspaces else "with"
        raise Unusable(
            f"{settings.root_directory} belongs to a hub {kind} workspaces: run `{command}`, or choose another "
            "--root-directory"
        )
    return settings.root_directory / mine


def read_audit_policy(settings: HubSettings) -> AuditPolicy | None:
    """None: the default policy.  Raises UserError."""
    path = settings.audit_policy_file
    if path is None:
        return None
    try:
        return AuditPolicy.read(path)
    except OSError as error:
        raise UserError(f"cannot read the audit policy {path}: {(error.strerror or str(error)).lower()}") from None


def audit_lines(settings: HubSettings, *, silent: bool) -> log_lines.LogLines:
    """Raises UserError."""
    path = settings.audit_log_path
    if not path:
        return log_lines.LogLines(sys.stderr, silent=silent)
    if path == "-":
        return log_lines.EventLines(sys.stderr, silent=silent)
    rotation = Rotation(settings.audit_log_maxsize, settings.audit_log_maxbackup, settings.audit_log_maxage)
    try:
        file = RotatedFile(Path(path), rotation, log_lines.lost_events)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UserError(f"cannot write the audit log {path}: {why}; choose another --audit-log-path") from None
    return log_lines.EventLines(io.TextIOWrapper(file), silent=silent)


def flow_limits(settings: HubSettings) -> FlowLimits:
    return FlowLimits(
        reading=settings.max_requests_inflight,
        mutating=settings.max_mutating_requests_inflight,
        queued=settings.max_queued_requests_per_user,
        streams=settings.max_watches_per_user,
    )


@contextlib.asynccontextmanager
async def running(settings: HubSettings, nodes: Nodes | None = None) -> AsyncIterator[Server]:
    """A hub that serves until the block ends.  `nodes`: the logs of its pods, if it runs any."""
    # a bad address is refused before any file is written, and the port is known from the start
    sockets = await listening_sockets(settings.bind_address, settings.port)
    try:
        async with _running(settings, sockets, nodes) as server:
            yield server
    finally:
        for listening in sockets:
            listening.close()


@contextlib.asynccontextmanager
async def _running(settings: HubSettings, sockets: list[socket.socket], nodes: Nodes | None) -> AsyncIterator[Server]:
    directory = settings.root_directory
    audit_policy = read_audit_policy(settings)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = database(settings)
    encrypted = StoreEncryption(settings.keys.file(directory / KEY_FILE), settings.encryption_resources)
    encryption = await asyncio.to_thread(encrypted.ensure, path)
    files = CredentialFiles(directory, [settings.bind_address, *settings.hostnames])
    read_tokens(directory / TOKENS)  # opening the store changes it, so a damaged token file is refused before
    store = await SqliteStore.open(path, encryption, stamp=objects.stamp, keep=settings.history)
    try:
        # the initial objects of an empty directory are not logged
        lines = audit_lines(settings, silent=store.revision == FIRST and not settings.verbose)
        write = lines.write if settings.audits else lambda line, size: None
        admin_tokens = ensure_tokens(directory, _kubeconfig_users(settings), datetime.now(UTC))
        url = settings.url(sockets[0].getsockname()[1])
        dependencies = HubDependencies(
            store,
            files.keys,
            files.certificates,
            tokens_file=directory / TOKENS,
            audit=Audit(write, audit_policy, as_json=bool(settings.audit_log_path)),
            nodes=nodes,
            uses=files.uses,
            placement_problem=placement_problem,
        )
        options = Options(
            url if settings.workspaces else None,
            settings.bare,
            settings.event_ttl,
            stale_after=settings.stale_after,
            token_seconds=settings.service_account_max_token_expiration,
            flows=flow_limits(settings),
            storage=StorageLimits(
                objects=settings.max_objects_per_workspace, size=settings.max_megabytes_per_workspace * 1024 * 1024
            ),
            home_workspaces=settings.max_workspaces_per_home,
        )
        assembly = Assembly(dependencies, options, TimeAndRandomness())
        await assembly.start()

        def write_kubeconfig(*_: object) -> None:
            try:
                _write_kubeconfig(settings, url, files.certificates.current.ca_pem, admin_tokens)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                path, why = directory / KUBECONFIG, (error.strerror or str(error)).lower()
                log.warning("cannot write %s: %s; restart the hub when there is room", path, why)

        following = [
            asyncio.create_task(follow_tokens(assembly.authenticator), name="tokens"),
            asyncio.create_task(files.follow(assembly.accounts), name="keys and certificates"),
            asyncio.create_task(encrypted.follow(store), name="encryption"),
        ]
        try:
            lines.begin()
            memory.freeze()
            hub, metrics = assembly.hub, assembly.hub.metrics
            service = Service(assembly.flow_control, hub.admit, assembly.flow_control.flow_of, JOB_SHARES)
            server = await serve_on(sockets, service, tls=files.tls)
            try:
                metrics.gauge("farflung_connections", "Open connections.", lambda: server.open_connections)
                unread = "Memory for responses that clients have not read."
                metrics.gauge("farflung_unread_bytes", unread, lambda: server.unread_bytes)
                slow = "Clients disconnected because they read too slowly and used too much memory."
                metrics.counter("farflung_slow_clients_disconnected", slow, lambda: server.slow_clients)
                metrics.sources.append(files.metrics)
                metrics.counter("farflung_audit_events_lost", "Lost lines of the audit log.", lambda: lines.lost)
                metrics.probe.start(asyncio.get_running_loop())
                write_kubeconfig()
                files.certificates.subscribe(write_kubeconfig)
                following.append(asyncio.create_task(load_the_rest(), name="modules"))
                yield server
            finally:
                metrics.probe.stop()
                await server.stop(STOP_GRACE)
        finally:
            for task in following:
                task.cancel()
            await assembly.stop()
            await asyncio.to_thread(lines.drain)
    finally:
        await store.close()


# --- loaded only with workspaces ------------------------------------------------------------------


def _kubeconfig_users(settings: HubSettings) -> Sequence[KubeconfigUser]:
    if not settings.workspaces:
        return (PLAIN,)
    from farflung.cli.start import USERS

    return USERS


def _write_kubeconfig(settings: HubSettings, url: str, ca_pem: bytes, tokens: Mapping[str, str]) -> None:
    if not settings.workspaces:
        write_kubeconfig(settings.root_directory, url, ca_pem, tokens[ADMIN])
        return
    from farflung.cli import start

    start.write_kubeconfig(settings.root_directory, url, ca_pem, tokens)


def _controllers(settings: HubSettings, kubeconfig: Path) -> contextlib.AbstractAsyncContextManager[asyncio.Event]:
    from farflung.cli.start import controllers

    return controllers(kubeconfig, settings.limits, settings.stale_after, settings.files, verbose=settings.verbose)
