"""What the hub does by itself: the parts of a controller manager that every Kubernetes API needs.

    system       the namespaces and priority classes that are always there
    roles        the roles and bindings that are there from the start
    aggregation  the rules of ClusterRoles that are made of others
    accounts     the ServiceAccount and the CA's ConfigMap of every namespace
    namespaces   the end of a namespace
    definitions  the end of a CustomResourceDefinition
    quotas       the status of ResourceQuotas
    protection   claims and volumes that are in use
    events       the end of Events that are old
    collector    the end of objects whose owners are gone
    secrets      the tokens in Secrets of ServiceAccounts
    signing      certificates for those who ask

Each part listens to the store, so nothing is polled, and acts through the hub's front door, so that what it does is
checked and shown like anybody's requests.  On start it looks at everything again: what was under way goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from farflung.http.certificates import Certificates
from farflung.http.messages import Handler
from farflung.hub.auth.service_account_tokens import AccountTokens
from farflung.hub.catalog.served import Kinds
from farflung.hub.controllers.certificates import Signing
from farflung.hub.controllers.cluster_roles import Aggregation, DefaultRoles
from farflung.hub.controllers.custom_resource_definitions import Definitions
from farflung.hub.controllers.events import HOUR, Events
from farflung.hub.controllers.garbage_collector import Collector
from farflung.hub.controllers.loopback import Inside
from farflung.hub.controllers.namespaces import USUAL_PACE, Namespaces, Pace
from farflung.hub.controllers.reconcile_queue import Work
from farflung.hub.controllers.resource_quotas import QuotaStatus
from farflung.hub.controllers.service_accounts import Accounts, TokenSecrets
from farflung.hub.controllers.stored_kinds import KeptKinds, follow
from farflung.hub.controllers.system_objects import SystemObjects
from farflung.hub.controllers.volume_protection import PODS, Protection
from farflung.hub.quotas import Quotas
from farflung.hub.routing.target import DEFAULT_CLUSTER
from farflung.store.base import Store

#: who managedFields say it was
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SERVER: Final = "kube-apiserver"
PATIENCE: Final = 1.0  #: seconds that a start waits for the first namespaces; a full disk must not keep it for ever

log = logging.getLogger(__name__)


class Part(Protocol):
    """Something that is kept in order, by looking at one key at a time."""

    @property
    def work(self) -> Work[Any]: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


#: the door to act through, who deals with dependents, and who gives names to definitions → further parts
Further = Callable[[Inside, Collector, Definitions], Sequence[Part]]


def no_more(inside: Inside, collector: Collector, definitions: Definitions) -> Sequence[Part]:
    return ()


@dataclass(frozen=True, slots=True)
class Household:
    """What differs between hubs."""

    clusters: Sequence[str] = (DEFAULT_CLUSTER,)  #: which have the namespaces that are always there
    roles_in: str = DEFAULT_CLUSTER  #: where the default roles are
    further: Further = no_more  #: parts that only some hubs have


ONE_CLUSTER: Final = Household()


class Housekeeping:
    def __init__(
        self,
        store: Store,
        kinds: Kinds,
        handler: Handler,
        *,
        authorization: str,
        authority: str,
        clock: Callable[[], datetime],
        tokens: AccountTokens,
        signer: Certificates,
        quotas: Quotas,
        pace: Pace = USUAL_PACE,
        event_seconds: float = HOUR,
        household: Household = ONE_CLUSTER,
    ) -> None:
        """`authorization`: the header of an administrator; `authority`: the hub's CA in PEM; `event_seconds`: how long
        Events stay."""
        clusters = self._clusters = household.clusters
        kept = KeptKinds(kinds.builtin.catalog)
        follow(kinds, kept)
        inside = Inside(handler, authorization, CONTROLLER_MANAGER)
        self._system = SystemObjects(store, kept, Inside(handler, authorization, SERVER), clusters)
        self._roles = DefaultRoles(store, kept, Inside(handler, authorization, SERVER), [household.roles_in])
        self._aggregation = Aggregation(store, kept, inside)
        self._accounts = Accounts(store, kept, inside, authority)
        self._namespaces = Namespaces(store, kept, inside, clock, pace)
        self._collector = Collector(store, kept, inside, clock)
        definitions = Definitions(store, kept, inside, clock, self._collector, kinds.bound_names)
        secrets = TokenSecrets(store, kept, inside, tokens, authority)
        signing = Signing(store, kept, inside, signer, clock)
        self._parts: tuple[Part, ...] = (
            self._system,
            self._roles,
            self._aggregation,
            self._accounts,
            self._namespaces,
            self._collector,
            definitions,
            QuotaStatus(store, kept, inside, quotas, pace.gather),
            *([Protection(store, kept, inside)] if kept.has(PODS) else []),
            Events(store, clock, event_seconds),
            secrets,
            signing,
            *household.further(inside, self._collector, definitions),
        )
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """When it returns, the namespaces that are always there are complete, unless the store refuses to write."""
        for part in self._parts:
            part.start()
        self._running = asyncio.create_task(self._run(), name="housekeeping")
        try:
            async with asyncio.timeout(PATIENCE):
                await self._system.work.finished()
                await self._roles.work.finished()
                await self._aggregation.work.finished()
                if self._clusters:
                    await self._accounts.work.finished()
        except TimeoutError:
            log.warning("the first namespaces are not complete yet")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for part in self._parts:
                part.work.start(group)

    async def finished(self) -> None:
        """Until there is nothing left to do: for the present, as every write may bring something new."""
        while any(part.work.is_busy for part in self._parts):
            for part in self._parts:
                await part.work.finished()

    async def stop(self) -> None:
        for part in self._parts:
            part.stop()
            part.work.stop()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
