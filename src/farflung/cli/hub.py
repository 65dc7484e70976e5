"""The hub's composition root: files, store, hub, sockets, signals."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NoReturn

import uvloop

from farflung.apis.builtin import BUILTIN
from farflung.cli import logs
from farflung.cli.credentials import KUBECONFIG, SIGNING_KEYS, TOKENS, ensure_admin_token, write_kubeconfig
from farflung.hub import objects
from farflung.hub.app import Hub
from farflung.hub.audit import Audit
from farflung.hub.auth.authenticate import Authenticator
from farflung.hub.auth.authorize import Authorizer
from farflung.hub.auth.keys import ensure_keys
from farflung.hub.auth.service_accounts import AccountTokens
from farflung.hub.auth.tokens import StaticTokens, token_hash
from farflung.hub.auth.user import ADMINISTRATORS, User
from farflung.hub.custom.registry import kinds_in
from farflung.hub.housekeeping.housekeeping import Housekeeping
from farflung.hub.http.certificates import CertificateError, ensure_certificates, server_context
from farflung.hub.http.server import Server, listening_sockets, serve
from farflung.hub.policies.registry import Policies
from farflung.hub.pools import Pools
from farflung.hub.quotas import Quotas
from farflung.hub.served import Served
from farflung.hub.verbs.call import Tools
from farflung.hub.verbs.watch import Watches
from farflung.lib import ids
from farflung.store.base import FIRST, Unusable
from farflung.store.sqlite import SqliteStore

log = logging.getLogger(__name__)

#: New objects between collections.  What a write leaves is no garbage, and looking for some took a tenth of its time.
COLLECT = (20_000, 20, 50)
FOLLOW = 1.0  #: seconds between two looks whether tokens were revoked
STOP_GRACE = 10.0  #: seconds that requests under way get when the hub stops
HOUSEKEEPER = User("system:kube-controller-manager", (ADMINISTRATORS,))  #: the hub itself; its token is never written


@dataclass(frozen=True, slots=True)
class Settings:
    root_directory: Path
    bind_address: str = "127.0.0.1"
    port: int = 6443
    hostnames: tuple[str, ...] = ()
    history: int = 3600
    verbose: bool = False
    event_seconds: int = 3600


def run(settings: Settings) -> None:
    """Until a signal.  What a user can mend is one sentence and exit code 1."""
    logs.configure(sys.stderr, verbose=settings.verbose)
    try:
        uvloop.run(_run(settings))
    except (Unusable, CertificateError) as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(_sentence(error, settings))


def _refuse(sentence: str) -> NoReturn:
    print(f"farflung hub: {sentence}", file=sys.stderr)
    sys.exit(1)


def _sentence(error: OSError, settings: Settings) -> str:
    address = f"{settings.bind_address}:{settings.port}"
    reason = (error.strerror or str(error)).lower()
    if error.filename:
        return f"cannot use {error.filename}: {reason}; choose another --root-directory or mend its permissions"
    if "in use" in str(error).lower():
        return f"{address} is in use; stop what listens there or choose another --port"
    return f"{reason}; choose another --bind-address" if "listen" in reason else reason


async def _run(settings: Settings) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, stopped)
    async with running(settings) as server:
        kubeconfig = settings.root_directory / KUBECONFIG
        print(f"farflung hub is ready on https://{settings.bind_address}:{server.port}", flush=True)
        print(f"  export KUBECONFIG={kubeconfig.absolute()}", flush=True)
        await stopped.wait()
        print("farflung hub is stopping", flush=True)


def _stop(stopped: asyncio.Event) -> None:
    """The first signal ends what is under way in order; the second one ends it at once, and loses no write either."""
    if stopped.is_set():
        print("farflung hub stops at once", flush=True)
        os._exit(1)
    stopped.set()


async def follow_tokens(authenticator: Authenticator) -> None:
    """A token that is handed out counts at once, because it is looked for; one that is revoked must be missed."""
    while True:
        await asyncio.sleep(FOLLOW)
        authenticator.refresh()


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Server]:
    """A hub that serves as long as the block lasts."""
    for probe in await listening_sockets(settings.bind_address, settings.port):
        probe.close()  # an address that cannot be used is found out before any file is made
    directory = settings.root_directory
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    now = datetime.now(UTC)
    certificates = ensure_certificates(directory, [settings.bind_address, *settings.hostnames], now)
    store = await SqliteStore.open(directory / "hub.sqlite", stamp=objects.stamp, keep=settings.history)
    # what a hub makes of an empty directory is always the same, and no news
    lines = logs.Lines(sys.stderr, silent=store.revision == FIRST and not settings.verbose)
    try:
        admin_token = ensure_admin_token(directory, now)
        kinds = kinds_in(store, Served(BUILTIN))
        authorizer = Authorizer(store)
        clock = partial(datetime.now, UTC)
        accounts = AccountTokens(store, ensure_keys(directory / SIGNING_KEYS), clock, ids.Uids())
        quotas, uids = Quotas(store), ids.Uids()
        pools, policies = Pools(store), Policies(store, kinds)
        tools = Tools(store, kinds, pools, quotas, clock, uids, ids.random_suffix, authorizer, accounts, policies)
        watches = Watches(store, longest=lambda: random.uniform(1800, 3600))  # noqa: S311
        own_token = ids.new_token()
        tokens = StaticTokens({token_hash(own_token): HOUSEKEEPER}, directory / TOKENS)
        authenticator = Authenticator(tokens, accounts, clock)
        hub = Hub(kinds, tools, authenticator, watches, Audit(lines.write))
        housekeeping = Housekeeping(
            store,
            kinds,
            hub,
            authorization=f"Bearer {own_token}",
            authority=certificates.ca_pem.decode(),
            clock=tools.clock,
            quotas=quotas,
            event_seconds=settings.event_seconds,
            tokens=accounts,
            signer=certificates,
        )
        await housekeeping.start()
        following = asyncio.create_task(follow_tokens(authenticator), name="tokens")
        try:
            lines.begin()
            gc.collect()
            gc.freeze()
            gc.set_threshold(*COLLECT)
            server = await serve(hub, host=settings.bind_address, port=settings.port, tls=server_context(certificates))
            try:
                hub.metrics.gauge("farflung_connections", "Open connections.", lambda: server.open_connections)
                write_kubeconfig(directory, settings.bind_address, server.port, certificates.ca_pem, admin_token)
                yield server
            finally:
                await server.stop(STOP_GRACE)
        finally:
            following.cancel()
            await housekeeping.stop()
    finally:
        await store.close()
        lines.close()
