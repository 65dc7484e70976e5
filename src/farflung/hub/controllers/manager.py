"""The hub's controller manager: the controllers that every Kubernetes API server depends on.

    system_objects                namespaces and priority classes that always exist
    cluster_roles                 default roles and bindings, and aggregated ClusterRoles
    service_accounts              the ServiceAccount and CA ConfigMap of every namespace, and tokens in Secrets
    namespaces                    deletion of namespaces
    custom_resource_definitions   deletion of CustomResourceDefinitions, and their names
    resource_quotas               status of ResourceQuotas
    volume_protection             finalizers of claims and volumes in use
    events                        expiry of Events
    garbage_collector             deletion of objects whose owners were deleted
    certificates                  signing of CertificateSigningRequests

Each controller subscribes to the store and writes through the request handler, so its writes are admitted, audited
and visible like those of any client.  At start every controller reconciles all of its objects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from farflung.http.certificates import CertificateHolder
from farflung.http.messages import Handler
from farflung.hub.admission.quota_tracker import Quotas
from farflung.hub.auth.default_roles import default_bindings, default_roles
from farflung.hub.auth.service_account_tokens import ServiceAccountTokens
from farflung.hub.catalog.served import Kinds
from farflung.hub.controllers.certificates import CertificateController
from farflung.hub.controllers.cluster_roles import ClusterRoleAggregationController, DefaultRolesController, RoleSource
from farflung.hub.controllers.custom_resource_definitions import CRDController
from farflung.hub.controllers.events import DEFAULT_TTL_SECONDS, EventTTLController
from farflung.hub.controllers.garbage_collector import GarbageCollector
from farflung.hub.controllers.loopback import LoopbackClient
from farflung.hub.controllers.namespaces import DEFAULT_PACE, NamespaceController, Pace
from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.hub.controllers.resource_quotas import ResourceQuotaController
from farflung.hub.controllers.service_accounts import ServiceAccountsController, TokensController
from farflung.hub.controllers.stored_kinds import StoredKinds, follow
from farflung.hub.controllers.system_objects import SystemObjectsController
from farflung.hub.controllers.volume_protection import PODS, VolumeProtectionController
from farflung.hub.request.target import DEFAULT_CLUSTER
from farflung.machinery.errors import Obj
from farflung.store.base import Store

#: field managers of what controllers write
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SERVER: Final = "kube-apiserver"
START_TIMEOUT: Final = 1.0  #: seconds to wait for the first namespaces; a full disk must not block the start

log = logging.getLogger(__name__)


class HubController(Protocol):
    """Reconciles one key of its queue at a time."""

    @property
    def queue(self) -> ReconcileQueue[Any]: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


ExtraControllers = Callable[[LoopbackClient, GarbageCollector, CRDController], Sequence[HubController]]


def no_extra_controllers(
    client: LoopbackClient, collector: GarbageCollector, definitions: CRDController
) -> Sequence[HubController]:
    return ()


def default_objects() -> list[Obj]:
    """The default roles and their bindings."""
    return [*default_roles(), *default_bindings()]


def roles_of_one_cluster() -> Iterable[tuple[str, Iterable[Obj]]]:
    yield DEFAULT_CLUSTER, default_objects()


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    clusters: Sequence[str] = (DEFAULT_CLUSTER,)  #: clusters with system namespaces and priority classes
    roles: RoleSource = RoleSource(roles_of_one_cluster)  # noqa: RUF009
    extra_controllers: ExtraControllers = no_extra_controllers
    pace: Pace = DEFAULT_PACE
    event_seconds: float = DEFAULT_TTL_SECONDS  #: how long Events are kept


@dataclass(frozen=True, slots=True)
class ManagerDependencies:
    store: Store
    kinds: Kinds
    handler: Handler
    authorization: str  #: an administrator's Authorization header
    certificates: CertificateHolder
    tokens: ServiceAccountTokens
    quotas: Quotas
    clock: Callable[[], datetime]


class ControllerManager:
    def __init__(self, hub: ManagerDependencies, options: ManagerOptions) -> None:
        self._clusters = options.clusters
        store, clock, certificates = hub.store, hub.clock, hub.certificates
        kinds = StoredKinds(hub.kinds.builtin.catalog)
        follow(hub.kinds, kinds)
        client = LoopbackClient(hub.handler, hub.authorization, CONTROLLER_MANAGER)
        server = LoopbackClient(hub.handler, hub.authorization, SERVER)
        self._system = SystemObjectsController(store, kinds, server, options.clusters)
        self._roles = DefaultRolesController(store, kinds, server, options.roles)
        self._aggregation = ClusterRoleAggregationController(store, kinds, client)
        self._accounts = ServiceAccountsController(store, kinds, client, certificates)
        collector = GarbageCollector(store, kinds, client, clock)
        definitions = CRDController(store, kinds, client, clock, collector, hub.kinds.bound_names)
        self._controllers: tuple[HubController, ...] = (
            self._system,
            self._roles,
            self._aggregation,
            self._accounts,
            NamespaceController(store, kinds, client, clock, options.pace),
            collector,
            definitions,
            ResourceQuotaController(store, kinds, client, hub.quotas, options.pace.gather),
            *([VolumeProtectionController(store, kinds, client)] if kinds.has(PODS) else []),
            EventTTLController(store, clock, options.event_seconds),
            TokensController(store, kinds, client, hub.tokens, certificates),
            CertificateController(store, kinds, client, certificates, clock),
            *options.extra_controllers(client, collector, definitions),
        )
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the system's namespaces are complete, unless the store refuses writes."""
        for controller in self._controllers:
            controller.start()
        self._running = asyncio.create_task(self._run(), name="controllers")
        try:
            async with asyncio.timeout(START_TIMEOUT):
                await self._system.queue.finished()
                await self._roles.queue.finished()
                await self._aggregation.queue.finished()
                if self._clusters:
                    await self._accounts.queue.finished()
        except TimeoutError:
            log.warning("the first namespaces are not complete yet")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                controller.queue.start(group)

    async def finished(self) -> None:
        """Wait until all queues are empty.  Any later write may add keys."""
        while any(controller.queue.is_busy for controller in self._controllers):
            for controller in self._controllers:
                await controller.queue.finished()

    async def stop(self) -> None:
        for controller in self._controllers:
            controller.stop()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
