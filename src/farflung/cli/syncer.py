"""Composition of a syncer: connections to both sides, journal, token renewal and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

import uvloop

from farflung.apis.edge.names import SYNCER_MANAGER
from farflung.cli.settings import KeyOptions, SyncerSettings
from farflung.client.errors import ClientError, KubeconfigError, Unauthorized
from farflung.client.kubeconfig import ACCOUNT, ClientConfig, in_cluster_config, load
from farflung.client.rest import Client
from farflung.lib import klog, outlet
from farflung.lib.klog import Logger
from farflung.runtime.environment import Environment, report_unless_closed, system_environment
from farflung.syncer.authorities import FILE as AUTHORITIES
from farflung.syncer.authorities import AuthorityKeeper, LearnedAuthorities
from farflung.syncer.context import SyncerOptions
from farflung.syncer.decide import Adopt
from farflung.syncer.journal import KEY, Journal, JournalError
from farflung.syncer.lease import WrongMailboxError, cluster_of
from farflung.syncer.manifest import PREFIX, identity
from farflung.syncer.syncer import Syncer
from farflung.syncer.tokens import FILE as TOKEN
from farflung.syncer.tokens import REFUSED, Copy, Report, ServiceAccountToken, renew_tokens, secret_writer, token_of

JOURNAL: Final = "journal.sqlite"
CHECK_TIMEOUT: Final = 5.0  #: seconds to check the mailbox; without an answer the syncer starts anyway

Renewing = Callable[[Client, Environment], Coroutine[None, None, None]]


class WrongMailbox(Exception):
    """The kubeconfig is not of this mailbox; the text says how to get the right one."""


def run(settings: SyncerSettings, keys: KeyOptions) -> None:
    """Run until a signal.  Errors of the user are one line and exit code 1."""
    outlet.unblock(klog.lost)
    try:
        uvloop.run(_run(settings, keys))
    except (KubeconfigError, JournalError, WrongMailbox) as error:
        _exit_with(str(error))
    except OSError as error:
        why = error.strerror or str(error)
        _exit_with(f"cannot use {error.filename}: {why.lower()}" if error.filename else why)


def _exit_with(sentence: str) -> NoReturn:
    print(f"farflung syncer: {sentence}", file=sys.stderr)
    sys.exit(1)


async def _run(settings: SyncerSettings, keys: KeyOptions) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report_unless_closed)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    log = Logger(sys.stderr, settings.verbosity)
    async with _running(settings, keys, log) as working:
        ending = asyncio.create_task(stopped.wait(), name="signals")
        done, _ = await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if working in done:
            working.result()


@contextlib.asynccontextmanager
async def _running(settings: SyncerSettings, keys: KeyOptions, log: Logger) -> AsyncIterator[asyncio.Task[None]]:
    """The task ends only with an error that a retry cannot fix."""
    env = system_environment()
    edge_access = _edge_access(settings)
    learned = LearnedAuthorities(settings.state, Path(settings.from_kubeconfig))
    hub_access = _hub_access(settings, learned)
    check_target(settings, token_of(await hub_access.credentials()))
    settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    journal = Journal.open(settings.state / JOURNAL, keys.file(settings.state / KEY))
    try:
        async with contextlib.AsyncExitStack() as stack:
            edge = Client(await stack.enter_async_context(edge_access.transport()), edge_access.prefix, SYNCER_MANAGER)
            hub_access, renewing = _credential_renewal(settings, hub_access, learned, edge, log)
            mailbox = Client(await stack.enter_async_context(hub_access.transport()), hub_access.prefix, SYNCER_MANAGER)
            if settings.from_cluster:
                mailbox = mailbox.workspace(settings.from_cluster)
            await _check(mailbox, settings, log)
            setting = SyncerOptions(mailbox, edge, settings.name, settings.uid, _now, Adopt(settings.adopt))
            syncer = Syncer(setting, journal, env, log)
            if settings.bind_address:
                await stack.enter_async_context(_serve_metrics(settings.bind_address, syncer))
            working = asyncio.create_task(_work(syncer, renewing(mailbox, env)), name="syncer")
            try:
                yield working
            finally:
                working.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await working
    finally:
        journal.close()


def _edge_access(settings: SyncerSettings) -> ClientConfig:
    """The cluster of the Pod by default.  Outside of a Pod there is no default: $KUBECONFIG is often the hub's."""
    if settings.to_kubeconfig or settings.to_context:
        return load(settings.to_kubeconfig or None, context=settings.to_context)
    if not (ACCOUNT / "token").exists():
        raise KubeconfigError("--to-kubeconfig is required outside of a Pod")
    return in_cluster_config(os.environ)


def _hub_access(settings: SyncerSettings, learned: LearnedAuthorities) -> ClientConfig:
    if not Path(settings.from_kubeconfig).exists():
        writes = f"`farflung syncer-gen {settings.name} --syncer-kubeconfig {settings.from_kubeconfig}` creates it"
        raise KubeconfigError(f"{settings.from_kubeconfig} not found; {writes}")
    return load(settings.from_kubeconfig, context=settings.from_context, authorities=learned)


def check_target(settings: SyncerSettings, token: ServiceAccountToken | None) -> None:
    """Refuse the name of another SyncTarget: `farflung syncer-gen` named the ServiceAccount after both.  Raises
    WrongMailbox."""
    account = "" if token is None else token.account.name
    if account.startswith(f"{PREFIX}-") and account != identity(settings.name, settings.uid):
        raise WrongMailbox(
            f"{settings.from_kubeconfig} is for the syncer {account}, which is not that of the SyncTarget "
            f"{settings.name} with UID {settings.uid}; correct --sync-target-name and --sync-target-uid, or run "
            f"`farflung syncer-gen {settings.name} --syncer-kubeconfig FILE`, which prints both"
        )


async def _check(mailbox: Client, settings: SyncerSettings, log: Logger) -> None:
    """Refuse the kubeconfig of another mailbox, if the hub answers in time.  Raises WrongMailbox."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT):
            await cluster_of(mailbox, settings.uid)
    except WrongMailboxError as error:
        raise WrongMailbox(
            f"{settings.from_kubeconfig} is for {error.path}, which is not the mailbox of the SyncTarget with UID "
            f"{settings.uid}; `farflung syncer-gen {settings.name} --syncer-kubeconfig FILE` writes the right one"
        ) from None
    except Unauthorized:  # the syncer continues without the hub
        log.warning("the hub refuses this syncer", error=REFUSED)
    except (ClientError, TimeoutError):
        return


def _credential_renewal(
    settings: SyncerSettings, access: ClientConfig, learned: LearnedAuthorities, edge: Client, log: Logger
) -> tuple[ClientConfig, Renewing]:
    """Of the token, and of the hub's authorities."""
    namespace, _, name = settings.token_secret.partition("/")

    def copy(file: str) -> Copy | None:
        return secret_writer(edge, namespace, name, file) if name else None

    def report(problem: str) -> Report:
        return lambda sentence: log.warning(problem, error=sentence) if sentence else None

    access, tokens = renew_tokens(access, settings.state, time.time, report("cannot renew the token"), copy(TOKEN))
    authorities = AuthorityKeeper(learned, report("cannot learn the hub's authorities"), copy(AUTHORITIES))

    async def renew(mailbox: Client, env: Environment) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(tokens.run(mailbox, env), name="token")
            group.create_task(authorities.run(mailbox, env), name="authorities")

    return access, renew


async def _work(syncer: Syncer, renewing: Coroutine[None, None, None]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(syncer.run(), name="syncer")
        group.create_task(renewing, name="credentials")


def _serve_metrics(address: str, syncer: Syncer) -> contextlib.AbstractAsyncContextManager[int]:
    """Health and metrics.  Imported lazily, because a web server uses memory."""
    from prometheus_client import CollectorRegistry

    from farflung.runtime.health import served
    from farflung.syncer.metrics import SyncerMetrics

    registry = CollectorRegistry()
    registry.register(SyncerMetrics(syncer.summary, syncer.controllers))
    return served(
        address, {"configuration": lambda: syncer.configured}, registry, lambda: filter(None, [syncer.standby_reason])
    )


def _now() -> datetime:
    return datetime.now(UTC)
