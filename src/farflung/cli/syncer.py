"""The syncer's composition root: the way to both sides, the journal, the token, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

import uvloop

from farflung.client.errors import ClientError, KubeconfigError
from farflung.client.kubeconfig import ACCOUNT, Access, load, of_service_account
from farflung.client.rest import Client
from farflung.lib import klog, outlet
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.runtime.reflector import Environment
from farflung.syncer.journal import Journal, JournalError
from farflung.syncer.lease import WrongMailboxError, cluster_of
from farflung.syncer.syncer import Syncer, SyncerOptions
from farflung.syncer.tokens import renew_tokens, secret_writer
from farflung.syncer.types import MANAGER, Adopt

JOURNAL: Final = "journal.sqlite"
PATIENCE: Final = 5.0  #: seconds for the hub to say whose mailbox it is; then the syncer waits for that itself

Renewing = Callable[[Client, Environment], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True)
class Settings:
    from_kubeconfig: str
    from_context: str
    from_cluster: str  #: the path of the mailbox, if the kubeconfig does not lead there
    to_kubeconfig: str
    to_context: str
    name: str
    uid: str
    state: Path
    adopt: Adopt
    token_secret: str = ""  #: `namespace/name` of the Secret at the edge that the kubeconfig is from
    bind_address: str = ""
    verbosity: int = 0


class WrongMailbox(Exception):
    """A sentence: where the kubeconfig leads, and how to get one that leads to the mailbox."""


def run(settings: Settings) -> None:
    """Until a signal.  What a user can mend is one sentence and exit code 1."""
    outlet.unblock(klog.lost)
    try:
        uvloop.run(_run(settings))
    except (KubeconfigError, JournalError, WrongMailbox) as error:
        _give_up(str(error))
    except OSError as error:
        why = error.strerror or str(error)
        _give_up(f"cannot use {error.filename}: {why.lower()}" if error.filename else why)


def _give_up(sentence: str) -> NoReturn:
    print(f"farflung syncer: {sentence}", file=sys.stderr)
    sys.exit(1)


async def _run(settings: Settings) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    log = Logger(sys.stderr, settings.verbosity)
    async with _running(settings, log) as working:
        ending = asyncio.create_task(stopped.wait(), name="signals")
        done, _ = await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if working in done:
            working.result()


@contextlib.asynccontextmanager
async def _running(settings: Settings, log: Logger) -> AsyncIterator[asyncio.Task[None]]:
    """The task ends only if something fails that trying again does not mend."""
    env = Environment(time.monotonic, asyncio.sleep, random.random, Backoff(0.05, 30.0, random.random))
    edge_access = _edge_access(settings)
    hub_access = _hub_access(settings)
    settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    journal = Journal.open(settings.state / JOURNAL)
    try:
        async with contextlib.AsyncExitStack() as stack:
            edge = Client(await stack.enter_async_context(edge_access.transport()), edge_access.prefix, MANAGER)
            hub_access, renewing = _renewing(settings, hub_access, edge, log)
            mailbox = Client(await stack.enter_async_context(hub_access.transport()), hub_access.prefix, MANAGER)
            if settings.from_cluster:
                mailbox = mailbox.workspace(settings.from_cluster)
            await _check(mailbox, settings)
            setting = SyncerOptions(mailbox, edge, settings.name, settings.uid, _now, settings.adopt)
            syncer = Syncer(setting, journal, env, log)
            if settings.bind_address:
                await stack.enter_async_context(_shown(settings.bind_address, syncer))
            working = asyncio.create_task(_work(syncer, renewing(mailbox, env)), name="syncer")
            try:
                yield working
            finally:
                working.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await working
    finally:
        journal.close()


def _edge_access(settings: Settings) -> Access:
    """In a Pod the cluster is known by itself.  Elsewhere $KUBECONFIG often leads to the hub, which is no edge."""
    if settings.to_kubeconfig or settings.to_context:
        return load(settings.to_kubeconfig or None, context=settings.to_context)
    if not (ACCOUNT / "token").exists():
        raise KubeconfigError("--to-kubeconfig has to name the way to the cluster: only in a Pod it is known by itself")
    return of_service_account(os.environ)


def _hub_access(settings: Settings) -> Access:
    if not Path(settings.from_kubeconfig).exists():
        writes = f"`farflung syncer-gen {settings.name} --syncer-kubeconfig {settings.from_kubeconfig}` writes it"
        raise KubeconfigError(f"there is no {settings.from_kubeconfig}; {writes}")
    return load(settings.from_kubeconfig, context=settings.from_context)


async def _check(mailbox: Client, settings: Settings) -> None:
    """Whoever gave us the kubeconfig of another mailbox is told at once, if the hub says so now.  Raises
    WrongMailbox."""
    try:
        async with asyncio.timeout(PATIENCE):
            await cluster_of(mailbox, settings.uid)
    except WrongMailboxError as error:
        raise WrongMailbox(
            f"{settings.from_kubeconfig} leads to {error.path}, and not to the mailbox of a SyncTarget with the uid "
            f"{settings.uid}; `farflung syncer-gen {settings.name} --syncer-kubeconfig FILE` writes one that does"
        ) from None
    except (ClientError, TimeoutError):
        return


def _renewing(settings: Settings, access: Access, edge: Client, log: Logger) -> tuple[Access, Renewing]:
    def report(sentence: str) -> None:
        if sentence:
            log.warning("cannot renew the token", error=sentence)

    namespace, _, name = settings.token_secret.partition("/")
    copy = secret_writer(edge, namespace, name) if name else None
    access, keeper = renew_tokens(access, settings.state, time.time, report, copy)
    return access, keeper.run


async def _work(syncer: Syncer, renewing: Coroutine[None, None, None]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(syncer.run(), name="syncer")
        group.create_task(renewing, name="token")


def _shown(address: str, syncer: Syncer) -> contextlib.AbstractAsyncContextManager[int]:
    """What it shows of itself.  Imported only if somebody wants it: a web server takes memory."""
    from prometheus_client import CollectorRegistry

    from farflung.runtime.health import served
    from farflung.syncer.metrics import SyncerMetrics

    registry = CollectorRegistry()
    registry.register(SyncerMetrics(syncer))
    return served(
        address, {"configuration": lambda: syncer.configured}, registry, lambda: filter(None, [syncer.obstacle])
    )


def _now() -> datetime:
    return datetime.now(UTC)
